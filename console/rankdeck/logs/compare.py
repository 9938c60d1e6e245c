"""Compares the output of two or more ranks: where they begin to differ."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rankdeck.logs.collapse import SLICE
from rankdeck.logs.line_templates import TemplateCache, mask_numbers
from rankdeck.state.lines import Entry, Line, RankLog, line_of
from rankdeck.values import Value

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
        self._masks = TemplateCache()
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
