"""How the fleet is shown: filter, order, columns, map; under names kept in a file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankdeck.config.private import private_folder, write_private
from rankdeck.ui import columns, query

NAME_LIMIT = 40
MOST = 200


class ViewError(ValueError):
    """A view that cannot be kept or found; the text says why."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """One way to look at all nodes."""

    filter: str = ""
    sort: tuple[str, ...] = ("STATE",)
    """Titles of columns, the most important first."""
    reversed: bool = False
    columns: tuple[str, ...] = ()
    """Titles or metrics; none: the usual ones."""
    map: str = "STATE"


class Views:
    """The saved views of a user, in one JSON file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def all(self) -> dict[str, FleetView]:
        """Name -> view; raises ViewError where the file cannot be read."""
        try:
            raw: Any = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ViewError(f"{self._file}: {error}") from error
        if not isinstance(raw, dict):
            raise ViewError(f"{self._file}: a table of views by name is wanted")
        table: dict[str, Any] = raw  # pyright: ignore[reportUnknownVariableType]
        return {name: self._view(name, table[name]) for name in sorted(table)[:MOST]}

    def save(self, name: str, view: FleetView) -> None:
        """Keep a view under a name, in the place of an older one."""
        if not name or len(name) > NAME_LIMIT or not name.isprintable() or " " in name:
            raise ViewError("a view has a name of one word, at most 40 letters")
        if name in ("save", "delete"):
            raise ViewError(f"`{name}` is a word of the command; take another name")
        self._write({**self.all(), name: view})

    def delete(self, name: str) -> None:
        """Forget a view."""
        kept = self.all()
        if name not in kept:
            raise ViewError(_unknown(name, kept))
        self._write({key: view for key, view in kept.items() if key != name})

    def find(self, name: str) -> FleetView:
        """The view of that name; raises ViewError."""
        kept = self.all()
        if name not in kept:
            raise ViewError(_unknown(name, kept))
        return kept[name]

    def _view(self, name: str, raw: object) -> FleetView:
        where = f"{self._file}: {name}"
        if not isinstance(raw, dict):
            raise ViewError(f"{where}: a table is wanted")
        table: dict[str, Any] = raw  # pyright: ignore[reportUnknownVariableType]
        try:
            view = FleetView(
                filter=str(table.get("filter", "")),
                sort=tuple(map(str, table.get("sort", ("STATE",)))),
                reversed=table.get("reversed") is True,
                columns=tuple(map(str, table.get("columns", ()))),
                map=str(table.get("map", "STATE")),
            )
            return checked(view)
        except (TypeError, ViewError) as error:
            raise ViewError(f"{where}: {error}") from error

    def _write(self, views: Mapping[str, FleetView]) -> None:
        text = json.dumps({name: asdict(view) for name, view in views.items()}, indent=1)
        fresh = self._file.with_suffix(".new")
        try:
            private_folder(self._file.parent)
            write_private(fresh, text + "\n")
            fresh.replace(self._file)
        except OSError as error:
            raise ViewError(f"{self._file}: {error.strerror}") from error


def checked(view: FleetView) -> FleetView:
    """The same view where all of it is known; raises ViewError."""
    try:
        query.parse(view.filter)
    except query.QueryError as error:
        raise ViewError(f"filter: {error}") from error
    if view.map not in columns.MAPS:
        raise ViewError(f"no map of `{view.map}`; there are {', '.join(columns.MAPS)}")
    for name in (*view.columns, *(n for n in view.sort if n not in columns.SORTS)):
        column(name)
    return view


def column(name: str) -> columns.NodeColumn:
    """The column of this title or metric, in any case; raises ViewError."""
    found = columns.find(name)
    if found is None:
        raise ViewError(f"no column or metric `{name}`; tab completes")
    return found


def _unknown(name: str, kept: Mapping[str, FleetView]) -> str:
    there = f"there are {', '.join(kept)}" if kept else ":view save NAME keeps this one"
    return f"no view `{name}`; {there}"
