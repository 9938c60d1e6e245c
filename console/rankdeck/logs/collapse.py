"""The output of many ranks with each line once, and the ranks that wrote it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, repeat
from operator import itemgetter
from statistics import median

from rankdeck.logs.line_templates import TemplateCache, extract_numbers, fill_template, number_value
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.safe_text import printable_line
from rankdeck.state.kept_lines import Block
from rankdeck.state.lines import Entry, RankLog
from rankdeck.values import Value

SLICE = 4000
"""Lines processed in one step: some 10 ms."""
MOST_GROUPS = 20_000
ENOUGH = 5
"""Fewest ranks for which unusual values are searched."""
SPREAD = 5 * 1.4826
"""Median absolute deviations that correspond to five standard
deviations of a normal distribution.
"""
LEAST = 0.05
"""A value must differ by at least this share of the median to be unusual."""


class Outlier(Value):
    """A rank whose newest value is far from those of the others."""

    place: int
    """Index of the number in the line, from 0."""
    rank: int
    value: float
    median: float


@dataclass(slots=True)
class Group:
    """Lines that are equal except for their numbers."""

    number: int
    """Number of the group, in the order of first lines."""
    stream: str
    template: bytes
    at: float
    """Epoch seconds of the first line."""
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Rank -> how often it wrote such a line."""
    newest: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Rank -> its newest line."""
    _judged: tuple[int, tuple[Outlier, ...]] = (-1, ())
    changes: int = 0

    @property
    def lines(self) -> int:
        return sum(self.counts.values())

    def line(self, rank: int) -> bytes:
        """The newest line of this kind that the rank wrote, without colours."""
        return fill_template(self.template, extract_numbers(self.newest[rank]))

    def fields(self) -> list[list[bytes]]:
        """For each number of the line, the newest values of all ranks."""
        numbers = map(extract_numbers, self.newest.values())
        return [list(column) for column in zip(*numbers, strict=False)]

    def text(self) -> bytes:
        """The line with each number that differs between the ranks as `least..most`."""
        return fill_template(self.template, tuple(_range(column) for column in self.fields()))

    def outliers(self) -> tuple[Outlier, ...]:
        """Ranks with a value far from the median, the farthest first;
        () with fewer than ENOUGH ranks.
        """
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
    by_value = [(worth, text) for text in column if (worth := number_value(text)) is not None]
    if len(by_value) < len(column):
        return b"*"
    return min(by_value)[1].lstrip() + b".." + max(by_value)[1].lstrip()


def _unlike(place: int, ranks: tuple[int, ...], column: list[bytes]) -> list[tuple[float, Outlier]]:
    values = [number_value(text) for text in column]
    known = [(r, v) for r, v in zip(ranks, values, strict=True) if v is not None]
    if len(known) < ENOUGH:
        return []
    middle = median(v for _, v in known)
    deviation = median(abs(v - middle) for _, v in known)
    # Counters such as the step differ by one or two between running ranks.
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
        self._masks = TemplateCache()
        self._met = 0
        self.forgotten = 0
        """Groups dropped because there were too many."""
        self.skipped = 0
        """Lines that arrived too fast to be read; the nodes have them."""
        self.total = 0
        """Number of lines processed."""

    def _restart(self) -> None:
        self._seen = {rank: log.total - log.held for rank, log in self._logs.items()}
        self._rewinds = {rank: log.rewinds for rank, log in self._logs.items()}
        self._groups: dict[tuple[str, bytes], Group] = {}

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self._logs)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups in the order of their first lines."""
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
        """Process about `most` new lines at most; returns whether more are waiting."""
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
        skipped, pieces = log.unread(self._seen[rank], most)
        before = self.total
        # Blocks are newer than all lines that were split.
        self.add_lines(rank, [piece for piece in pieces if not isinstance(piece, Block)])
        for piece in pieces:
            if isinstance(piece, Block):
                self._count(rank, piece.stream, piece.raws(), repeat(piece.at, piece.lines))
        self.skipped += skipped
        taken = self.total - before
        self._seen[rank] += skipped + taken
        return taken

    def add_lines(self, rank: int, entries: Iterable[Entry]) -> None:
        """Process lines of a rank."""
        for stream, some in groupby(entries, itemgetter(1)):
            run = [*some]
            self._count(rank, stream, [raw for _, _, _, raw in run], (at for at, *_ in run))

    def _count(self, rank: int, stream: str, raws: Sequence[bytes], ats: Iterable[float]) -> None:
        templates = self._masks.of(raws)
        newest = dict(zip(templates, raws, strict=True))
        first: dict[bytes, float] | None = None
        for template, count in Counter(templates).items():
            group = self._groups.get((stream, template))
            if group is None:
                first = first or dict(zip(reversed(templates), reversed([*ats]), strict=True))
                group = self._begin(stream, template, first[template])
            group.counts[rank] = group.counts.get(rank, 0) + count
            group.newest[rank] = newest[template]
            group.changes += count
        self.total += len(raws)

    def _begin(self, stream: str, template: bytes, at: float) -> Group:
        if len(self._groups) >= MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
            self.forgotten += 1
        group = self._groups[stream, template] = Group(self._met, stream, template, at)
        self._met += 1
        return group


class Folded(Value):
    """One row of the collapsed output."""

    group: Group
    missing: tuple[int, ...]
    outliers: tuple[Outlier, ...]
    of: int
    """Number of all ranks."""

    @property
    def unusual(self) -> bool:
        """Whether some ranks did not write the line, or wrote odd values."""
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
        return printable_line(self.group.text().decode("utf-8", "replace"))

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: first lines that few ranks wrote, then lines that few did
        not write, then lines with odd values.
        """
        wrote = len(self.group.counts)
        missing = self.of - wrote
        tier = 3 if not self.unusual else 2 if not missing else int(missing < wrote)
        few = min(wrote, missing) if missing else 0
        return tier, few, self.group.number


def fold_groups(collapse: Collapse, *, unusual_first: bool = True) -> list[Folded]:
    """The groups as rows: unusual ones first, or in the order of their first lines."""
    of = len(collapse.ranks)
    rows = [
        Folded(group, collapse.missing(group), group.outliers(), of) for group in collapse.groups
    ]
    return sorted(rows, key=lambda row: row.order) if unusual_first else rows
