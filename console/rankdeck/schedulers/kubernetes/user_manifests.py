"""Manifests of Kubernetes that a user gives in place of a job file: recognised,
and named in sentences. Nothing is run.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from rankdeck.config.document import Entry, compose_all, read_text, replace_unprintable
from rankdeck.errors import ConfigError, Problem
from rankdeck.values import Value

MOST_NAMED = 6


class ManifestPart(Value):
    """One object of a manifest."""

    kind: str
    version: str
    name: str
    """"" if the server makes the name (`generateName`)."""
    namespace: str
    line: int

    @property
    def words(self) -> str:
        """`MPIJob pi`."""
        return f"{self.kind} {self.name or '(named by the server)'}"


class Manifest(Value):
    """A file with objects of Kubernetes."""

    file: Path
    text: str
    parts: tuple[ManifestPart, ...]

    @property
    def words(self) -> str:
        """Its objects in a row: `Service pi, MPIJob pi`."""
        named = ", ".join(part.words for part in self.parts[:MOST_NAMED])
        more = len(self.parts) - MOST_NAMED
        return f"{named} and {more} more" if more > 0 else named


def read_manifest(path: Path) -> Manifest | None:
    """The manifest in `path`; None if it is something else, also if it is no YAML.
    Raises ConfigError if it cannot be read.

    A file is a manifest if its first document has `apiVersion` and `kind`.
    """
    text = read_text(path)
    try:
        roots = compose_all(text)
    except yaml.YAMLError:
        return None
    parts = tuple(part for root in roots for part in _parts(Entry(str(path), root, "", [])))
    first = _fields(Entry(str(path), roots[0], "", [])) if roots else {}
    return Manifest(path, text, parts) if parts and {"apiVersion", "kind"} <= first.keys() else None


@contextmanager
def manifest_named(path: Path) -> Generator[None]:
    """If reading the file in this block raises ConfigError and it is a manifest
    of Kubernetes, raise one that says so.

    Only a file with mistakes is read again: a manifest always has some,
    as it lacks the keys of our files.
    """
    try:
        yield
    except ConfigError:
        found = read_manifest(path)
        if found is None:
            raise
        what = f"this is a manifest of Kubernetes ({found.words}) and no job file: `rankdeck run` applies and follows it"
        problem = Problem(str(path), found.parts[0].line, 1, "file", replace_unprintable(what))
        raise ConfigError([problem]) from None


def _parts(root: Entry) -> Iterator[ManifestPart]:
    """The objects of a document: itself, or those in it if it is a List."""
    fields = _fields(root)
    if _word(fields, "kind").endswith("List") and "items" in fields:
        for item in fields["items"].items():
            yield from _parts(item)
        return
    if not {"apiVersion", "kind"} <= fields.keys():
        return
    meta = _fields(fields["metadata"]) if "metadata" in fields else {}
    yield ManifestPart(
        kind=_word(fields, "kind"),
        version=_word(fields, "apiVersion"),
        name=_word(meta, "name"),
        namespace=_word(meta, "namespace"),
        line=root.node.start_mark.line + 1,
    )


def _fields(entry: Entry) -> dict[str, Entry]:
    return entry.fields() if entry.kind == "map" else {}


def _word(fields: dict[str, Entry], key: str) -> str:
    return replace_unprintable(fields[key].raw)[:253] if key in fields else ""
