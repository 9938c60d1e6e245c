"""Where the output of one rank leaves that of another, or that of most ranks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankdeck.logs.masks import mask
from rankdeck.state.lines import Line, RankLog

MOST = 4_000
"""Lines of a rank that are compared, from the beginning of what is here."""
STREAMS = ("out", "err")


@dataclass(frozen=True, slots=True)
class Kept:
    """What one rank wrote to one stream, lines and their masks side by side."""

    rank: int
    stream: str
    lines: tuple[Line, ...]
    masks: tuple[bytes, ...]
    whole: bool
    """Whether it begins at the first byte of the stream."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where two ranks differ by more than numbers."""

    stream: str
    place: int
    """Lines that are the same before it."""
    left: Line | None
    right: Line | None
    """None: this one has ended there, or has not come so far."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One rank beside another."""

    left: int
    right: int
    first: Divergence | None
    only_left: tuple[Line, ...]
    only_right: tuple[Line, ...]
    """One line of each kind that the other never wrote."""


def kept(log: RankLog, stream: str) -> Kept:
    """What is here of one stream of a rank."""
    chosen = [line for line in log.lines[:MOST] if line.stream == stream]
    masks = tuple(mask(line.text.encode("utf-8", "replace"))[0] for line in chosen)
    whole = not chosen or chosen[0].offset == 0
    return Kept(log.rank, stream, tuple(chosen), masks, whole)


def compare(left: RankLog, right: RankLog) -> Difference:
    """Where they part, and what only one of them says."""
    pairs = [(kept(left, stream), kept(right, stream)) for stream in STREAMS]
    found = [first for a, b in pairs if (first := divergence(a, b)) is not None]
    return Difference(
        left.rank,
        right.rank,
        min(found, key=_moment, default=None),
        _only([a for a, _ in pairs], [b for _, b in pairs]),
        _only([b for _, b in pairs], [a for a, _ in pairs]),
    )


def _moment(one: Divergence) -> float:
    return min(line.at for line in (one.left, one.right) if line is not None)


def _only(these: Sequence[Kept], others: Sequence[Kept]) -> tuple[Line, ...]:
    known = {(one.stream, key) for one in others for key in one.masks}
    found: list[Line] = []
    for one in these:
        for line, key in zip(one.lines, one.masks, strict=True):
            if (one.stream, key) not in known:
                known.add((one.stream, key))
                found.append(line)
    return tuple(found)


def divergence(a: Kept, b: Kept) -> Divergence | None:
    """The first line that is not the same; None where one goes only as far as there is to read."""
    start_a, start_b = _begin(a, b)
    place = 0
    left, right = a.masks[start_a:], b.masks[start_b:]
    for place, (x, y) in enumerate(zip(left, right, strict=False)):  # noqa: B007
        if x != y:
            break
    else:
        place = min(len(left), len(right))
        if len(left) == len(right):
            return None
    at_a, at_b = start_a + place, start_b + place
    return Divergence(
        a.stream,
        place,
        a.lines[at_a] if at_a < len(a.lines) else None,
        b.lines[at_b] if at_b < len(b.lines) else None,
    )


def _begin(a: Kept, b: Kept) -> tuple[int, int]:
    """Where the two can be laid side by side: the beginning, else the first line that both have."""
    if a.whole and b.whole:
        return 0, 0
    there = {line.text: place for place, line in reversed(list(enumerate(b.lines)))}
    for place, line in enumerate(a.lines):
        if line.text in there:
            return place, there[line.text]
    return 0, 0


@dataclass(frozen=True, slots=True)
class Branch:
    """Ranks that leave the majority at the same place with the same line, or with none."""

    ranks: tuple[int, ...]
    first: Divergence | None
    """`right` is what the majority has there; None: they never leave it."""


def branches(logs: Mapping[int, RankLog]) -> tuple[int, tuple[Branch, ...]]:
    """The rank that most are like, and all ranks by where they leave it; the fewest first."""
    by_stream = {
        stream: [kept(log, stream) for log in logs.values()] for stream in STREAMS
    }
    middle = _typical([by_stream[stream] for stream in STREAMS])
    groups: dict[tuple[object, ...], list[int]] = {}
    firsts: dict[tuple[object, ...], Divergence | None] = {}
    for place, rank in enumerate(logs):
        pairs = [(by_stream[s][place], by_stream[s][middle]) for s in STREAMS]
        found = [f for a, b in pairs if (f := divergence(a, b)) is not None]
        # What a rank says tells more than that it says nothing further.
        first = min(found, key=lambda f: (f.left is None, _moment(f)), default=None)
        key = _key(first)
        groups.setdefault(key, []).append(rank)
        firsts.setdefault(key, first)
    made = [Branch(tuple(ranks), firsts[key]) for key, ranks in groups.items()]
    made.sort(key=lambda b: (b.first is None, len(b.ranks), b.ranks))
    return tuple(logs)[middle] if logs else -1, tuple(made)


def _key(first: Divergence | None) -> tuple[object, ...]:
    if first is None:
        return ()
    left = first.left and mask(first.left.text.encode("utf-8", "replace"))[0]
    return first.stream, first.place, left


def _typical(streams: Sequence[Sequence[Kept]]) -> int:
    """The place of a rank that goes with the majority at every line, as long as there is one."""
    alive = list(range(len(streams[0]))) if streams else []
    for ranks in streams:
        alive = _majority(ranks, alive)
    return alive[0] if alive else 0


def _majority(ranks: Sequence[Kept], alive: list[int]) -> list[int]:
    line = 0
    while len(alive) > 1:
        nexts = Counter(
            ranks[i].masks[line] if line < len(ranks[i].masks) else None for i in alive
        )
        chosen = nexts.most_common(1)[0][0]
        if chosen is None:
            return [i for i in alive if line >= len(ranks[i].masks)]
        alive = [
            i
            for i in alive
            if line < len(ranks[i].masks) and ranks[i].masks[line] == chosen
        ]
        line += 1
    return alive
