"""Collapses the output of many ranks: each line once, with the set of ranks that wrote it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.text import printable
from rankdeck.state.lines import RankLog

_NUMBER = re.compile(rb"((?:(?<= ) +)?(?:0[xX][0-9a-fA-F]+|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))")
"""With the spaces before it that align a column: `step   9` and `step  10` are one kind of line."""
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")

Numbers = tuple[bytes, ...]


def mask(raw: bytes) -> tuple[bytes, Numbers]:
    """The line with a NUL in the place of each number, and the numbers; colours are left out."""
    if b"\x1b" in raw:
        raw = _COLOUR.sub(b"", raw)
    parts = _NUMBER.split(raw)
    if len(parts) == 1:
        return raw, ()
    return b"\0".join(parts[::2]), tuple(parts[1::2])


def filled(template: bytes, numbers: Numbers) -> bytes:
    """The line again."""
    pieces = template.split(b"\0")
    whole = [pieces[0]]
    for piece, number in zip(pieces[1:], numbers, strict=False):
        whole += [number, piece]
    return b"".join(whole)


def value(number: bytes) -> float | None:
    """The value of a number; None for a hexadecimal name."""
    try:
        return float(number)
    except ValueError:
        return None


SLICE = 4000
"""Lines processed in one step: some 10 ms."""
MOST_GROUPS = 20_000
MOST_KNOWN = 20_000
ENOUGH = 5
"""Ranks below which no value is called unusual."""
SPREAD = 5 * 1.4826
"""Median absolute deviations that are five standard deviations of a normal distribution."""
LEAST = 0.05
"""Part of the median by which a value has to differ at least."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A rank whose newest value is unlike that of the others."""

    place: int
    """Which number of the line, from 0."""
    rank: int
    value: float
    median: float


@dataclass(slots=True)
class Group:
    """Lines that are equal but for their numbers."""

    number: int
    """In the order in which they were first met."""
    stream: str
    template: bytes
    at: float
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Rank -> how often."""
    newest: dict[int, Numbers] = field(default_factory=dict[int, Numbers])
    _judged: tuple[int, tuple[Outlier, ...]] = (-1, ())
    changes: int = 0

    @property
    def lines(self) -> int:
        return sum(self.counts.values())

    def line(self, rank: int) -> bytes:
        """The newest line of this kind that the rank wrote."""
        return filled(self.template, self.newest[rank])

    def fields(self) -> list[list[bytes]]:
        """Per number of the line, the newest values of all ranks."""
        return [list(column) for column in zip(*self.newest.values(), strict=False)]

    def text(self) -> bytes:
        """The line with each number that differs between the ranks as `least..most`."""
        return filled(self.template, tuple(_range(column) for column in self.fields()))

    def outliers(self) -> tuple[Outlier, ...]:
        """Ranks with a value far from the median, the farthest first."""
        if self._judged[0] != self.changes:
            self._judged = (self.changes, self._judge())
        return self._judged[1]

    def _judge(self) -> tuple[Outlier, ...]:
        if len(self.newest) < ENOUGH:
            return ()
        found: list[tuple[float, Outlier]] = []
        ranks = tuple(self.newest)
        for place, column in enumerate(self.fields()):
            if column.count(column[0]) != len(column):
                found += _unlike(place, ranks, column)
        found.sort(key=lambda pair: -pair[0])
        return tuple(outlier for _, outlier in found)


def _range(column: list[bytes]) -> bytes:
    if column.count(column[0]) == len(column):
        return column[0]
    by_value = [(worth, text) for text in column if (worth := value(text)) is not None]
    if len(by_value) < len(column):
        return b"*"
    return min(by_value)[1].lstrip() + b".." + max(by_value)[1].lstrip()


def _unlike(place: int, ranks: tuple[int, ...], column: list[bytes]) -> list[tuple[float, Outlier]]:
    values = [value(text) for text in column]
    known = [(r, v) for r, v in zip(ranks, values, strict=True) if v is not None]
    if len(known) < ENOUGH:
        return []
    middle = median(v for _, v in known)
    deviation = median(abs(v - middle) for _, v in known)
    # Counters that all ranks share differ by a step or two while they run.
    whole = all(v.is_integer() for _, v in known)
    least = 2.0 if whole else LEAST * abs(middle)
    limit = max(SPREAD * deviation, least)
    return [
        (abs(v - middle) / (limit or 1e-12), Outlier(place, r, v, middle))
        for r, v in known
        if abs(v - middle) > limit
    ]


class Collapse:
    """Groups of lines of many ranks, kept up to date."""

    def __init__(self, logs: Mapping[int, RankLog]) -> None:
        self._logs = dict(logs)
        self._restart()
        self._known: dict[bytes, tuple[bytes, Numbers]] = {}
        self._met = 0
        self.forgotten = 0
        """Groups dropped because there were too many."""
        self.skipped = 0
        """Lines that came too fast to be read; the nodes have them."""
        self.total = 0
        """Lines taken in."""

    def _restart(self) -> None:
        self._seen = {rank: log.first for rank, log in self._logs.items()}
        self._rewinds = {rank: log.rewinds for rank, log in self._logs.items()}
        self._groups: dict[tuple[str, bytes], Group] = {}

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self._logs)

    @property
    def groups(self) -> tuple[Group, ...]:
        """In the order in which they were first met."""
        return tuple(self._groups.values())

    def silent(self) -> tuple[int, ...]:
        """Ranks of which nothing has been read."""
        wrote = {rank for group in self._groups.values() for rank in group.counts}
        return tuple(rank for rank in self._logs if rank not in wrote)

    def missing(self, group: Group) -> tuple[int, ...]:
        """Ranks that did not write a line that most others did."""
        if len(group.counts) * 2 < len(self._logs):
            return ()
        return tuple(rank for rank in self._logs if rank not in group.counts)

    def update(self, most: int = SLICE) -> bool:
        """Process at most about that many new lines; True if more are waiting."""
        if any(log.rewinds != self._rewinds[r] for r, log in self._logs.items()):
            self._restart()
        waiting = False
        for rank, log in self._logs.items():
            if log.total == self._seen[rank]:
                continue
            if most <= 0:
                return True
            most -= self._take(rank, log, most)
            waiting = waiting or self._seen[rank] < log.total
        return waiting

    def _take(self, rank: int, log: RankLog, most: int) -> int:
        start = max(self._seen[rank], log.first)
        self.skipped += start - self._seen[rank]
        entries = log.entries(start, most)
        for at, stream, _, raw in entries:
            self.add(rank, at, stream, raw)
        self._seen[rank] = start + len(entries)
        return len(entries)

    def add(self, rank: int, at: float, stream: str, raw: bytes) -> None:
        """Process one line."""
        self.total += 1
        known = self._known.get(raw)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[raw] = mask(raw)
        template, numbers = known
        group = self._groups.get((stream, template))
        if group is None:
            group = self._begin(stream, template, at)
        group.counts[rank] = group.counts.get(rank, 0) + 1
        group.newest[rank] = numbers
        group.changes += 1

    def _begin(self, stream: str, template: bytes, at: float) -> Group:
        if len(self._groups) >= MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
            self.forgotten += 1
        group = self._groups[stream, template] = Group(self._met, stream, template, at)
        self._met += 1
        return group


@dataclass(frozen=True, slots=True)
class Folded:
    """One row of the answer."""

    group: Group
    missing: tuple[int, ...]
    outliers: tuple[Outlier, ...]
    of: int
    """How many ranks there are."""

    @property
    def unusual(self) -> bool:
        return len(self.group.counts) < self.of or bool(self.outliers)

    @property
    def who(self) -> str:
        """`[0-3,7] x12`: which ranks wrote it, and how often each."""
        counts = self.group.counts
        times = self.group.lines // len(counts)
        ranks = "all" if len(counts) == self.of else fold_ranks(counts)
        return f"[{ranks}]" + (f" x{times}" if times > 1 else "")

    @property
    def text(self) -> str:
        """The line, safe to show."""
        return printable(self.group.text().decode("utf-8", "replace"))

    @property
    def order(self) -> tuple[int, int, int]:
        """What few ranks wrote comes first, then what few did not, then odd values."""
        wrote = len(self.group.counts)
        missing = self.of - wrote
        tier = 3 if not self.unusual else 2 if not missing else int(missing < wrote)
        few = min(wrote, missing) if missing else 0
        return tier, few, self.group.number


def folded(collapse: Collapse, *, unusual_first: bool = True) -> list[Folded]:
    """The groups as rows, the unusual ones first or all in the order of time."""
    of = len(collapse.ranks)
    rows = [
        Folded(group, collapse.missing(group), group.outliers(), of) for group in collapse.groups
    ]
    return sorted(rows, key=lambda row: row.order) if unusual_first else rows
