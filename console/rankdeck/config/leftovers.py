"""What consoles left in the state folder on this machine: locks of
launches, databases that were set aside.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rankdeck.config.files import console_state_folder, lock_if_free
from rankdeck.model.leftovers import DATABASES, LOCKS, Cleaned, CleanOrder, LeftoverGroup
from rankdeck_agent.wire.leftovers import GOES, Ground

DAY = 86400.0
_SLACK = 3600.0
"""Seconds by which a file may be newer than our clock."""
_ASIDE = re.compile(r"(history|acceptance|scaling)\.db\.old\d{1,6}(-wal|-shm)?\Z")
"""How `state/database.py` renames a database that it cannot use, with the files beside it."""
_MOST_NAMES = 20


def clean_state(order: CleanOrder, now: float) -> Cleaned:
    """Remove what is older than the order keeps, or with `dry` only say
    what that is; `now` in epoch seconds.

    A lock stays while a console holds it, and for a day.
    """
    groups: dict[tuple[str, Ground], list[tuple[str, int]]] = {}
    failed: dict[str, str] = {}
    for kind, path in _found():
        with suppress(FileNotFoundError):  # its console, or another command, has just removed it
            seen = path.lstat()
            ground = _ground(kind, path, now - seen.st_mtime, order)
            if ground in GOES and not order.dry:
                try:
                    path.unlink()
                except PermissionError as error:
                    failed[path.name], ground = str(error), Ground.FAILED
            groups.setdefault((kind, ground), []).append((path.name, seen.st_blocks * 512))
    return Cleaned(tuple(_group(*key, some) for key, some in groups.items()), failed)


def _found() -> Iterator[tuple[str, Path]]:
    folder = console_state_folder()
    for path in sorted((folder / "launching").glob("*")):
        yield LOCKS, path
    for path in sorted(folder.glob("*.db.old*")):
        if _ASIDE.match(path.name):
            yield DATABASES, path


def _ground(kind: str, path: Path, age: float, order: CleanOrder) -> Ground:
    if age < -_SLACK:
        return Ground.CLOCK
    if kind == LOCKS and _is_held(path):
        return Ground.IN_USE
    least = DAY if kind == LOCKS else order.days * DAY
    return Ground.OLD if max(age, 0.0) >= least else Ground.RECENT


def _is_held(path: Path) -> bool:
    try:
        with lock_if_free(path) as free:
            return not free
    except OSError:
        return True


def _group(kind: str, ground: Ground, some: list[tuple[str, int]]) -> LeftoverGroup:
    names = tuple(name for name, _ in some[:_MOST_NAMES])
    return LeftoverGroup(kind, ground, len(some), sum(size for _, size in some), names)
