"""Reads the output of a recipe's program: text without launcher tags, columns by header, what every result must stand."""

import codecs
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from typing import cast

from rankdeck.acceptance.expectations import explained
from rankdeck.acceptance.recipe import Known, Reading, Recipe, Status, not_measured
from rankdeck.model.nodeset import fold
from rankdeck.model.text import LIMIT, Table, clean, table

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_TAG = re.compile(
    r"""^(?=[ \[\dA-Z])(?:
        \[(?:[\w.-]{1,80}@)?\d{1,7}(?:,\d{1,7})?\](?:\[[\w.-]{1,80}:\d{1,9}\])?(?:<std(?:out|err|diag)>)?:[ ]?
      | \[\d{1,7}\][ ]
      | [ ]{0,6}\d{1,7}:[ ]
      | \[(?:rank|default)\d{1,7}\]:[ ]?
      | \[pod/[\w./-]{1,300}\][ ]
      | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[ ]
      | \[?(?:[A-Z][a-z]{2}[ ])?[A-Z][a-z]{2}[ ]{1,2}\d{1,2}[ ]\d\d:\d\d:\d\d(?:[ ]\d{4})?\]?(?:<std(?:out|err)>:)?(?:[ ]|(?=\[))
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""`[1,3]<stdout>: ` of mpirun (before it a time, behind it a host, with those options), `3: ` of srun, `[3] ` of MPICH,
`[rank3]: ` of torch, `[pod/x/main] ` of kubectl, and the times that Kubernetes, `ts` and others put before a line."""
_TAGS = 3
"""So many may stand before one line: a time, a tag of the scheduler, one of the launcher."""
_HOST_TAG = re.compile(
    r"^[\w.-]{1,80}(?::| {1,40}\|| [\w./-]{1,80}\[\d{1,9}\]:)(?: |$)", re.MULTILINE
)
_FEWEST_LINES = 5
"""Lines that all begin so from which on that is a tag, not what a program says: `name: ` of pdsh and clush, `name  | ` of
docker compose, `host program[7]: ` of journalctl behind the time."""
_STEERING = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78Mc])"
)
"""Colours, titles and cursor moves in what went through `script`, `tee` or a terminal."""
_RETURNS = re.compile(r"\r+\n?")
_LONG = re.compile(rf"^(.{{{LIMIT}}}).+$", re.MULTILINE)
_DIGITS = 25
"""Characters of a number; a longer one is none."""


def text_of(raw: bytes) -> str:
    """The output as text, without colours and launcher tags; each line at most 16,384 characters long."""
    text = _RETURNS.sub("\n", _STEERING.sub("", _decoded(raw)))
    text = _LONG.sub(r"\1", text)
    for _ in range(_TAGS):
        untagged = _TAG.sub("", text)
        if untagged == text:
            break
        text = untagged
    return _HOST_TAG.sub("", text) if _by_host(text) else text


def _by_host(text: str) -> bool:
    """Whether every line begins with a name and a colon."""
    enough = text.count("\n") >= _FEWEST_LINES and _HOST_TAG.match(text.lstrip())
    return bool(enough) and all(_HOST_TAG.match(line) or line.isspace() for line in StringIO(text))


def runs_of(text: str, begins: str, done: str = "") -> Iterator[str]:
    """Each run in an output that has several, one after the other.

    A line that matches `begins` is the first of a run, but not while the one before has no line that
    matches `done`: copies of a program that run side by side begin side by side.
    """
    start, begun, ready = 0, False, not done
    for found in re.finditer(f"(?P<done>{done or '(?!)'})|{begins}", text, re.MULTILINE):
        if found["done"] is not None:
            ready = True
        elif begun and ready:
            yield text[start : found.start()]
            start, ready = found.start(), not done
        begun = True
    yield text[start:]


def lines_of(text: str) -> Iterator[str]:
    """Its lines, one at a time: hostile output may have millions."""
    for line in StringIO(text):
        yield line.rstrip("\n")


def _decoded(raw: bytes) -> str:
    for mark, coding in _BOMS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(coding, "replace")
    return raw.decode("utf-8", "replace")


def is_binary(text: str) -> bool:
    """Whether this is no text at all."""
    return "\0" in text


def number(word: str) -> float | None:
    """The finite number in a cell; None for `N/A`, `nan`, and anything else."""
    if len(word) > _DIGITS:
        return None
    try:
        found = float(word)
    except ValueError:
        return None
    return found if math.isfinite(found) and "_" not in word else None


def whole(word: str) -> int | None:
    """The whole number from 0 on in a cell."""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= _DIGITS else None


@dataclass(frozen=True, slots=True)
class Row:
    """A line under a header."""

    header: tuple[str, ...]
    cells: tuple[str, ...]

    def cell(self, column: str, which: int = 0) -> str:
        """The cell under the first (second, …) column of that name; "" if there is none."""
        places = [place for place, name in enumerate(self.header) if name == column]
        if which >= len(places) or places[which] >= len(self.cells):
            return ""
        return self.cells[places[which]]

    def number(self, column: str, which: int = 0) -> float | None:
        return number(self.cell(column, which))


@dataclass(frozen=True, slots=True)
class Layout:
    """How the tables of a program look."""

    first: str
    """Name of the column by which a header is known; it holds whole numbers."""
    also: str
    """A part of another word of the header."""
    names: re.Pattern[str]
    """One name of the header line."""
    cells: re.Pattern[str] = re.compile(r"\S+")


def rows(text: str, layout: Layout) -> Iterator[Row]:
    """Every line that stands under a header and has a whole number under its `first` column."""
    header: tuple[str, ...] = ()
    for line in lines_of(text):
        if layout.first in line and layout.also in line:
            header = tuple(layout.names.findall(line.lstrip().removeprefix("# ")))
        elif header:
            cells = tuple(layout.cells.findall(line))
            place = header.index(layout.first) if layout.first in header else len(cells)
            if place < len(cells) and whole(cells[place]) is not None:
                yield Row(header, cells)


def object_in(text: str) -> Table | None:
    """The JSON object in an output, whatever lines stand before or behind it; None if it is not valid."""
    begin, end = text.find("{"), text.rfind("}")
    return table(text[begin : end + 1].encode("utf-8", "replace")) if begin >= 0 else None


def first_line(text: str, *parts: str) -> str:
    """The first line that has one of these parts, without blanks around; "" if none has."""
    places = [place for part in parts if (place := text.find(part)) >= 0]
    if not places:
        return ""
    begin, end = text.rfind("\n", 0, min(places)) + 1, text.find("\n", min(places))
    return text[begin : end if end >= 0 else None].strip()


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(names))


def as_table(value: object) -> Table:
    """The JSON object; an empty one where it is something else."""
    return cast("Table", value) if isinstance(value, dict) else {}


def tables(parent: object, key: str) -> list[Table]:
    """The JSON objects in the list under this key, without empty ones."""
    found = as_table(parent).get(key)
    children = cast("list[object]", found) if isinstance(found, list) else []
    return [child for one in children if (child := as_table(one))]


LARGEST = 32 << 20
"""Bytes of an output that are read; NCCL_DEBUG=INFO of 1,000 ranks stays below."""
MOST = 1000
"""Results of one output."""
_ABSURD = 10.0
"""Times the ceiling: such a number is not a measurement."""
_BOUND = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the run was asked for; empty and None where somebody else ran it."""

    hosts: tuple[str, ...] = ()
    ranks: int = 0
    exit_code: int | None = None


NOBODY = Asked()


def read_output(
    recipe: Recipe, raw: bytes, asked: Asked = NOBODY, known: Known | None = None
) -> tuple[Reading, ...]:
    """Each result with its sentence, at least one: complete, of those asked for, and valid, or why not."""
    text = text_of(raw[:LARGEST])
    if not text.strip():
        return (not_measured("the output is empty"),)
    if is_binary(text):
        return (not_measured("this is no text"),)
    traits = recipe.traits
    runs = runs_of(text, traits.begins, traits.done) if traits.begins else (text,)
    readings = islice((one for run in runs for one in recipe.read(run)), MOST)
    return tuple(_checked(recipe, one, asked, known or Known()) for one in readings)


def _checked(recipe: Recipe, reading: Reading, asked: Asked, known: Known) -> Reading:
    reading = _sane(reading)
    if reading.status is Status.MEASURED:
        expected = recipe.expect(reading, known)
        ceiling = expected.ceiling if expected else 0.0
        reading = _complaint(reading, asked, ceiling, recipe.traits.names_hosts) or explained(
            reading, expected
        )
    if reading.status is not Status.MEASURED:
        return replace(reading, value=None)
    return reading


def _sane(reading: Reading) -> Reading:
    """Text of others made printable."""
    return replace(
        reading,
        text=clean(reading.text, 400),
        hosts=tuple(clean(host, 100) for host in reading.hosts[:10_000]),
    )


def _complaint(reading: Reading, asked: Asked, ceiling: float, names_hosts: bool) -> Reading | None:
    """Why the value may not be used; None if it may."""
    value = reading.value
    if asked.exit_code:
        why = f"it printed a result and ended with {asked.exit_code}"
        return replace(reading, status=Status.FAILED, text=why)
    if asked.hosts and reading.hosts and set(reading.hosts) != set(asked.hosts):
        why = f"it ran on {fold(reading.hosts)}, not on {fold(asked.hosts)}"
        return replace(reading, status=Status.REFUSED, text=why)
    if asked.hosts and names_hosts and not reading.hosts:
        why = "it does not say on which hosts it ran"
        return replace(reading, status=Status.REFUSED, text=why)
    if asked.ranks and reading.ranks not in (None, asked.ranks):
        why = f"it ran with {reading.ranks} ranks, not with {asked.ranks}"
        return replace(reading, status=Status.REFUSED, text=why)
    if value is None or not 0 < value < (_ABSURD * ceiling or _BOUND):
        why = f"the value {value:g} cannot be" if value is not None else "no value"
        return replace(reading, status=Status.NOT_MEASURED, text=why)
    return None
