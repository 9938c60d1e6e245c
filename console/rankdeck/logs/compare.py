"""Compares the output of many ranks: each line once, with the ranks that
wrote it; where ranks begin to differ.
"""

import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.safe_text import printable_line
from rankdeck.state.lines import Entry, Line, RankLog, line_of
from rankdeck.values import Value

_NUMBER = re.compile(
    rb"[\d-](?<![A-Za-z\d_]-)(?:(?<=0)[xX][\da-fA-F]+|(?:(?<!-)|(?=\d))\d*(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)
"""A number. It begins with a class of characters, for which `re` looks without trying the rest.
`-` is a hyphen behind a letter or a digit, as in the names of pods.
"""
_IN_COLUMN = re.compile(rb"(?:(?<= ) +)?" + _NUMBER.pattern)
"""The same, with the spaces before it that align a column: `step   9` and
`step  10` are the same kind of line.
"""
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")

Numbers = tuple[bytes, ...]


def mask_numbers(raw: bytes) -> bytes:
    """The template of a line: without colours, with a NUL in place of each number."""
    if b"\x1b" in raw:
        raw = _COLOUR.sub(b"", raw)
    return (_IN_COLUMN if b"  " in raw else _NUMBER).sub(b"\0", raw)


def mask_lines(lines: Sequence[bytes]) -> list[bytes]:
    """The template of each of these lines, of which there is at least one: all are searched at
    once, which takes a third less than one by one.
    """
    return mask_numbers(b"\n".join(lines)).split(b"\n")


def extract_numbers(raw: bytes) -> Numbers:
    """The numbers of a line, in the order of the NULs of its template."""
    raw = _COLOUR.sub(b"", raw)
    return tuple((_IN_COLUMN if b"  " in raw else _NUMBER).findall(raw))


def fill_template(template: bytes, numbers: Numbers) -> bytes:
    """The line of this template with these numbers."""
    pieces = template.split(b"\0")
    whole = [pieces[0]]
    for piece, number in zip(pieces[1:], numbers, strict=False):
        whole += [number, piece]
    return b"".join(whole)


def number_value(number: bytes) -> float | None:
    """The value of a number; None if it is hexadecimal."""
    try:
        return float(number)
    except ValueError:
        return None


SLICE = 4000
"""Lines processed in one step: some 10 ms."""
MOST_GROUPS = 20_000
MOST_KNOWN = 20_000
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


class _Masks:
    """Knows the templates of lines that came before; all are forgotten if there are too many."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}

    def of(self, lines: Sequence[bytes]) -> list[bytes]:
        """The template of each line."""
        known = self._known
        if len(known) >= MOST_KNOWN:
            known.clear()
        if fresh := [*set(lines).difference(known)]:
            known.update(zip(fresh, mask_lines(fresh), strict=True))
        return [known[line] for line in lines]


class Collapse:
    """Groups of lines of many ranks, kept up to date."""

    def __init__(self, logs: Mapping[int, RankLog]) -> None:
        self._logs = dict(logs)
        self._restart()
        self._masks = _Masks()
        self._met = 0
        self.forgotten = 0
        """Groups dropped because there were too many."""
        self.skipped = 0
        """Lines that arrived too fast to be read; the nodes have them."""
        self.total = 0
        """Number of lines processed."""

    def _restart(self) -> None:
        self._seen = {rank: log.first for rank, log in self._logs.items()}
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
        start = max(self._seen[rank], log.first)
        self.skipped += start - self._seen[rank]
        entries = log.entries(start, most)
        self.add_lines(rank, entries)
        self._seen[rank] = start + len(entries)
        return len(entries)

    def add_lines(self, rank: int, entries: Sequence[Entry]) -> None:
        """Process lines of a rank."""
        templates = self._masks.of([raw for _, _, _, raw in entries])
        kinds = [(entry[1], template) for entry, template in zip(entries, templates, strict=True)]
        first = dict(zip(reversed(kinds), reversed(entries), strict=True))
        newest = dict(zip(kinds, entries, strict=True))
        for kind, count in Counter(kinds).items():
            group = self._groups.get(kind) or self._begin(*kind, first[kind][0])
            group.counts[rank] = group.counts.get(rank, 0) + count
            group.newest[rank] = newest[kind][3]
            group.changes += count
        self.total += len(entries)

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


MOST_ALL = 200_000
"""Most lines of all ranks together that are compared, from the first line that is here."""
STEP = 2_000
"""Lines per step, which takes about a millisecond."""
STREAMS = ("out", "err")
Found = TypeVar("Found")
Steps = Generator[None, None, Found]
"""Work in steps of about a millisecond; its return value is the result. See `finish_steps`."""


BEHIND = 5.0
"""Seconds by which a running rank may be behind the others; after that, a
line that it lacks counts as a difference.
"""


@dataclass(slots=True)
class RankLines:
    """What one rank wrote to one stream: lines, and the template of each line (`masks`)."""

    rank: int
    stream: str
    entries: list[Entry] = field(default_factory=list[Entry])
    masks: list[bytes] = field(default_factory=list[bytes])
    cut: bool = False
    """There are more lines than were read, so its end here is not the end of the output."""
    running: float = 0.0
    """For a running rank: epoch seconds when it was read, because it may be a moment behind.

    0: it has ended.
    """

    def may_follow(self, other: Line | None) -> bool:
        """Whether this line of another rank is so new that this rank may still write the same."""
        return other is not None and bool(self.running) and self.running - other.at < BEHIND

    @property
    def whole(self) -> bool:
        """Whether it begins at the first byte of the stream."""
        return not self.entries or self.entries[0][2] == 0

    def line(self, place: int) -> Line | None:
        """The line at this index; None if there are fewer lines."""
        return line_of(self.rank, self.entries[place]) if place < len(self.entries) else None


Side = tuple[RankLines, ...]
"""What one rank wrote, one `Kept` for each of STREAMS."""


class Divergence(Value):
    """The first place where two ranks differ by more than numbers."""

    stream: str
    place: int
    """Number of equal lines before it."""
    left: Line | None
    right: Line | None
    """The first different line of each; None: its output ends there, or has not come so far."""


class Difference(Value):
    """How the output of two ranks differs."""

    left: int
    right: int
    first: Divergence | None
    only_left: tuple[Line, ...]
    only_right: tuple[Line, ...]
    """One line of each kind that the other rank never wrote."""


class Comparison:
    """The beginning of the output of some ranks, read step by step."""

    def __init__(self, ranks: Sequence[int], logs: Mapping[int, RankLog] | None = None) -> None:
        self._ranks, self._logs = tuple(ranks), dict(logs or {})
        self.most = MOST_ALL // max(len(ranks), 1)
        """Most lines of each rank; later lines are not compared."""
        self._masks = _Masks()
        self._restart()

    def _restart(self) -> None:
        self._seen = {rank: log.first for rank, log in self._logs.items()}
        self._rewinds = {rank: log.rewinds for rank, log in self._logs.items()}
        self._room = dict.fromkeys(self._ranks, self.most)
        self.sides: dict[int, Side] = {
            rank: tuple(RankLines(rank, stream) for stream in STREAMS) for rank in self._ranks
        }
        self.total = 0
        """Number of lines processed."""

    @property
    def waiting(self) -> int:
        """Number of lines that have arrived and were not processed yet."""
        return sum(
            min(log.total - self._seen[rank], self._room[rank]) for rank, log in self._logs.items()
        )

    @property
    def full(self) -> bool:
        """Whether a rank has written more than is compared."""
        return any(kept.cut for side in self.sides.values() for kept in side)

    def update(self, most: int = SLICE) -> bool:
        """Process about `most` lines at most; returns whether more are waiting."""
        if any(log.rewinds != self._rewinds[r] for r, log in self._logs.items()):
            self._restart()
        for rank, log in self._logs.items():
            if most <= 0:
                return True
            if self._seen[rank] < log.total and self._room[rank]:
                most -= self._take(rank, log, most)
        return self.waiting > 0

    def _take(self, rank: int, log: RankLog, most: int) -> int:
        if log.first > self._seen[rank]:
            # Lines in between were dropped, so later lines cannot be compared.
            self._fill(rank)
            return 0
        entries = log.entries(self._seen[rank], min(most, self._room[rank] + 1))
        self._seen[rank] += len(entries)
        self.add_lines(rank, entries)
        return len(entries)

    def add_lines(self, rank: int, entries: Sequence[Entry]) -> None:
        """Process lines of a rank, as far as there is room."""
        compared = entries[: self._room[rank]]
        for entry, template in zip(
            compared, self._masks.of([raw for _, _, _, raw in compared]), strict=True
        ):
            kept = self.sides[rank][STREAMS.index(entry[1])]
            kept.entries.append(entry)
            kept.masks.append(template)
        self._room[rank] -= len(compared)
        self.total += len(compared)
        if len(compared) < len(entries):
            self._fill(rank)

    def _fill(self, rank: int) -> None:
        self._room[rank] = 0
        for kept in self.sides[rank]:
            kept.cut = True


def finish_steps(steps: Steps[Found]) -> Found:
    """Run all steps at once and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def compare_ranks(left: Side, right: Side) -> Steps[Difference]:
    """Where two ranks begin to differ, and the lines that only one of them wrote."""
    found: list[Divergence] = []
    for a, b in zip(left, right, strict=True):
        there = yield from _places(b)
        first = yield from _divergence(a, b, there)
        found += [first] if first is not None else []
    only_left = yield from _only(left, right)
    only_right = yield from _only(right, left)
    first = min(found, key=_moment, default=None)
    return Difference(left[0].rank, right[0].rank, first, only_left, only_right)


def _moment(one: Divergence) -> float:
    return min(line.at for line in (one.left, one.right) if line is not None)


def _only(these: Side, others: Side) -> Steps[tuple[Line, ...]]:
    found: list[Line] = []
    for one, other in zip(these, others, strict=True):
        known: set[bytes] = set()
        for begin in range(0, len(other.masks), STEP):
            known.update(other.masks[begin : begin + STEP])
            yield
        for place, key in enumerate(one.masks):
            if place % STEP == 0:
                yield
            if key not in known:
                known.add(key)
                found.append(line_of(one.rank, one.entries[place]))
    return tuple(found)


Places = dict[bytes, int]


def _places(kept: RankLines) -> Steps[Places]:
    """Line -> index of its first occurrence."""
    found: Places = {}
    for place, entry in enumerate(kept.entries):
        if place % STEP == 0:
            yield
        found.setdefault(entry[3], place)
    return found


def _divergence(a: RankLines, b: RankLines, there: Places) -> Steps[Divergence | None]:
    """The first different line; None if there is none, or if one of
    them may still write the same line.
    """
    start_a, start_b = yield from _begin(a, b, there)
    length = min(len(a.masks) - start_a, len(b.masks) - start_b)
    place = yield from _equal(a.masks, start_a, b.masks, start_b, length)
    at_a, at_b = start_a + place, start_b + place
    if place == length:
        ended, further = (a, b.line(at_b)) if at_a == len(a.masks) else (b, a.line(at_a))
        if ended.cut or further is None or ended.may_follow(further):
            return None
    return Divergence(a.stream, place, a.line(at_a), b.line(at_b))


def _equal(a: list[bytes], i: int, b: list[bytes], j: int, most: int) -> Steps[int]:
    """How many masks are equal from `i` and `j` on, at most `most`."""
    for place in range(most):
        if place % STEP == 0:
            yield
        if a[i + place] != b[j + place]:
            return place
    return most


def _begin(a: RankLines, b: RankLines, there: Places) -> Steps[tuple[int, int]]:
    """The indices at which a comparison can start: the beginning,
    else the first line that both have.
    """
    if a.whole and b.whole:
        return 0, 0
    for place, entry in enumerate(a.entries):
        if place % STEP == 0:
            yield
        if entry[3] in there:
            return place, there[entry[3]]
    return 0, 0


class Branch(Value):
    """Ranks that differ from the majority first at the same place, by
    the same line or by having none.
    """

    ranks: tuple[int, ...]
    first: Divergence | None
    """The first difference, with the majority's line as `right`;
    None: these ranks do not differ.
    """


def group_branches(sides: Mapping[int, Side]) -> Steps[tuple[int, tuple[Branch, ...]]]:
    """(a typical rank, all ranks grouped by where they first differ
    from it; the smallest group first).
    """
    middle = yield from _typical(list(sides.values()))
    there: list[Places] = []
    for kept in middle:
        there += [(yield from _places(kept))]
    groups: dict[tuple[object, ...], list[int]] = {}
    firsts: dict[tuple[object, ...], Divergence | None] = {}
    for rank, side in sides.items():
        found: list[Divergence] = []
        for a, b, known in zip(side, middle, there, strict=False):
            parted = yield from _divergence(a, b, known)
            found += [parted] if parted is not None else []
        # A different line tells more than the end of the output.
        first = min(found, key=lambda f: (f.left is None, _moment(f)), default=None)
        key = _key(first)
        groups.setdefault(key, []).append(rank)
        firsts.setdefault(key, first)
    made = [Branch(tuple(ranks), firsts[key]) for key, ranks in groups.items()]
    made.sort(key=lambda b: (b.first is None, len(b.ranks), b.ranks))
    return middle[0].rank if middle else -1, tuple(made)


def _key(first: Divergence | None) -> tuple[object, ...]:
    if first is None:
        return ()
    left = first.left and mask_numbers(first.left.text.encode("utf-8", "replace"))
    return first.stream, first.place, left


def _typical(sides: Sequence[Side]) -> Steps[Side]:
    """A rank that agrees with the most common line at every place."""
    alive: Sequence[Side] = sides
    for stream in range(len(STREAMS)):
        alive = yield from _majority(alive, stream)
    return alive[0] if alive else ()


def _majority(alive: Sequence[Side], stream: int) -> Steps[Sequence[Side]]:
    line = 0
    while len(alive) > 1:
        yield
        masks = [side[stream].masks for side in alive]
        nexts = [one[line] if line < len(one) else None for one in masks]
        chosen = Counter(nexts).most_common(1)[0][0]
        alive = [s for s, one in zip(alive, nexts, strict=True) if one == chosen]
        if chosen is None:
            break
        line += 1
    return alive
