"""Which ranks of an MPI job keep the others waiting, by their native stacks. No I/O.

A rank stands still if nothing of its program has changed between the looks of its node: its
variables on the stack, its registers, its static data. Only if all ranks that could be read stand
still is anything said: a program that goes on, however slowly and silently, is left alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import field

from rankdeck.model.json_tables import as_list, as_table
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.rules.arrivals import Absence
from rankdeck.rules.deadlock import describe_deadlock
from rankdeck.rules.doing import Doing, describe_doing, read_doing
from rankdeck.rules.native_frames import NativeFrame, name_mpi_function, read_native_frames, ways_in
from rankdeck.values import Value

LOOKS = 2
"""Answers in a row in which all ranks must stand still at the same place for a deadlock."""
_LEAST = 3
"""Looks that a node must have taken for one answer."""
_MOST_LOOKS = 10
_FEW_MOVES = 20
"""Page faults, reads and writes between two looks of a rank that only waits."""
_LITTLE = 0.05
"""Cores that a rank may use and stand still outside of MPI."""
_HELD = frozenset("TtD")
"""States in which a rank's stack is not read, and in which it does nothing."""
_MEETINGS = r"All\w+|Barrier|Bcast|Gatherv?|Scatterv?|Reduce(?!_local)\w*|Scan|Exscan|Neighbor_\w+"
_MEETING = re.compile(rf"MPI_(?:{_MEETINGS})")
"""Collectives in which ranks wait for nothing but each other and the network: for no disk."""
_COLLECTIVE = re.compile(
    rf"MPI_(?:{_MEETINGS}"
    r"|Comm_(?:split|dup|create|free|disconnect)\w*|Intercomm_\w+|(?:Cart|Graph|Dist_graph)_create\w*"
    r"|Win_(?:create|allocate|fence|free)\w*|File_(?:open|close|set_view|set_size|\w+_all)\w*"
    r"|Init\w*|Finalize)"
)
_TO_A_ROOT = re.compile(r"MPI_(?:Gatherv?|Reduce|Scan|Exscan)")
"""Operations that others may well have left although a rank still waits there: for one of them that
left it out, or meant another root or group.
"""
_FROM_A_ROOT = re.compile(r"MPI_(?:Bcast|Scatterv?)")
"""Operations in which one rank alone waits mostly because only it is there. The others can only
have gone on without it if the one that passes on to it what comes from the root left it out.
"""
_WITHOUT_DATA = "MPI_Barrier"
"""If all ranks stand still here, they mean different groups, or the network does not carry."""
_UNDER_WAY = 25.0
"""Seconds for which the data of one collective may be under way without a sign: of all programs,
the network adapter may be the only one that works.
"""
_OF_ALL = re.compile(r"MPI_(?:All\w+|Barrier)")
"""Operations that end for nobody before all have come."""
_MESSAGE = re.compile(r"MPI_(?:Recv|Mrecv|Probe|Mprobe|Send|Ssend|Rsend|Sendrecv\w*|Wait\w*)")


class StandingRank(Value):
    """One look at a rank of a silent job."""

    rank: int
    entered: str = ""
    """The function of MPI in which it is, `MPI_Allreduce`; "" if it is in none."""
    frames: tuple[NativeFrame, ...] = ()
    """Innermost first; () if its stack could not be read."""
    mark: int = 0
    """Changes with everything that the program does itself."""
    still: bool = False
    """Whether its program did nothing from the first look to the last."""
    doing: Doing = field(default_factory=Doing)
    place: str = ""
    """Where its Python program is; "" if not known."""

    @property
    def known(self) -> bool:
        """Whether it can be said where it is."""
        return bool(self.frames) or self.doing.state in _HELD

    @property
    def waits(self) -> bool:
        """Whether it is in an operation that ends only with the help of others."""
        return bool(_COLLECTIVE.fullmatch(self.entered) or _MESSAGE.fullmatch(self.entered))


def read_standing_rank(raw: object, place: str) -> StandingRank | None:
    """The same from a row of `job witness` (untrusted); None if it says nothing of a native stack
    or of the kernel. `place`: where the rank's witness says it is.
    """
    row = as_table(raw)
    rank, native = row.get("rank"), as_table(row.get("native"))
    if type(rank) is not int or not (native or row.get("does")):
        return None
    doing = read_doing(row.get("does"))
    looks = [as_list(one) for one in as_list(native.get("looks"), _MOST_LOOKS)]
    mark, still = _standing(looks) if native else (0, doing.state in _HELD)
    return StandingRank(
        rank,
        entered=name_mpi_function(native.get("entered")),
        frames=read_native_frames(native.get("frames")),
        mark=mark,
        still=still,
        doing=doing,
        place=place,
    )


def _standing(looks: Sequence[Sequence[object]]) -> tuple[int, bool]:
    """(the mark of the last look, whether the rank stood still in all)."""
    rows = [row for row in looks if len(row) == 5 and all(type(one) is int for one in row[1:3])]
    if len(rows) < _LEAST or len(rows) < len(looks):
        return 0, False
    (began, mark, ticks, moves, entered), last = rows[0], rows[-1]
    same = all((row[1], row[4]) == (mark, entered) for row in rows)
    numbers = [
        one if isinstance(one, int | float) else 0.0 for one in (began, ticks, last[0], last[2])
    ]
    if entered:  # it may poll, but neither read nor write
        before, after = (one if type(one) is int else 0 for one in (moves, last[3]))
        return int(str(mark)), same and abs(after - before) <= _FEW_MOVES
    return int(str(mark)), same and (numbers[3] - numbers[1]) / 100 <= _LITTLE * (
        numbers[2] - numbers[0]
    )


# ---- who keeps whom waiting


def find_mpi_absence(
    looks: Mapping[int, Sequence[StandingRank]], nodes: Mapping[int, str]
) -> Absence | None:
    """Who keeps the others waiting; None if anybody goes on, or if that cannot be told.

    `looks`: rank -> its answers, oldest first; `nodes`: the running ranks -> their nodes.
    """
    newest = {rank: some[-1] for rank, some in looks.items() if rank in nodes and some}
    known = {rank: one for rank, one in newest.items() if one.known}
    if len(known) < 2 or not _stand_still((looks[rank] for rank in known), 1):
        return None
    waiting = [rank for rank, one in known.items() if one.waits]
    outside = [rank for rank, one in known.items() if not one.entered]
    if not waiting or len(waiting) + len(outside) < len(known):
        return None
    if outside:
        few = len(outside) <= len(waiting)
        return _absent(known, sorted(outside), sorted(waiting), nodes) if few else None
    sure = len(known) == len(nodes) and _stand_still(looks.values(), LOOKS)
    return _deadlock(known, nodes) if sure else None


def _stand_still(looks: Iterable[Sequence[StandingRank]], count: int) -> bool:
    """Whether all of these ranks stood still at one place in their last `count` answers."""
    last = [some[-count:] for some in looks]
    return all(len(some) == count and _at_one_place(some) for some in last)


def _at_one_place(some: Sequence[StandingRank]) -> bool:
    places = {(one.mark, one.entered, one.doing.state in _HELD) for one in some}
    return len(places) == 1 and all(one.still for one in some)


def _absent(
    known: Mapping[int, StandingRank],
    gone: Sequence[int],
    waiting: Sequence[int],
    nodes: Mapping[int, str],
) -> Absence:
    calls = {known[rank].entered for rank in waiting}
    never = "never entered" if all(known[rank].frames for rank in gone) else "did not enter"
    if len(calls) == 1 and _COLLECTIVE.fullmatch(call := calls.pop()):
        text = f"{_ranks(gone, nodes)} {never} {call} ({_ranks(waiting)} {_wait(waiting)} there)"
    else:
        (where, first), *more = _grouped(waiting, known)
        others = "".join(f", {_ranks(some)} in {place}" for place, some in more)
        text = (
            f"{_ranks(gone, nodes)} {_are(gone)} in no operation of MPI"
            f" ({_ranks(first)} {_wait(first)} in {where}{others})"
        )
    places = {_way_in(known[rank]) for rank in gone} - {""}
    does = {describe_doing(known[rank].doing) for rank in gone} - {""}
    it, they = ("it", "is") if len(gone) == 1 else ("they", "are")
    text += f"; {it} {they} in {places.pop()}" if len(places) == 1 else ""
    if len(does) == 1:
        text += f"; {it} {does.pop()}" if len(gone) == 1 else f"; each {does.pop()}"
    return Absence(tuple(gone), tuple(waiting), text, still=True)


def _deadlock(known: Mapping[int, StandingRank], nodes: Mapping[int, str]) -> Absence | None:
    """All ranks are in operations that others must help to end, and nobody does."""
    calls = {one.entered for one in known.values()}
    collective = [call for call in calls if _COLLECTIVE.fullmatch(call)]
    one_call = len(calls) == 1 and bool(collective)
    if one_call and not _MEETING.fullmatch(collective[0]):
        return None
    groups = _grouped(known, known)
    parts = [f"{_ranks(ranks)} {_are(ranks)} in {where}" for where, ranks in groups]
    parts[-1] += ": these do not match" * (len(collective) > 1)
    ranks = tuple(sorted(known))
    fewest = groups[-1][1]
    others = {known[rank].entered for rank in ranks if rank not in fewest}
    # Where the others do not agree either, nobody stands out; nor who may have been left behind.
    agree = len(calls) == 2 and len(others) == 1 and 2 * len(fewest) < len(ranks)
    alone = agree and _is_alone_below_a_root(known[fewest[0]].entered, others, len(fewest))
    odd = fewest if alone or (agree and not _may_be_left_behind(calls - others)) else ranks
    who = f"all {len(ranks)} ranks"
    text = describe_deadlock(who, parts)
    told_after = _UNDER_WAY if one_call and calls != {_WITHOUT_DATA} else 0.0
    return Absence(
        tuple(odd), ranks, text, deadlock=True, still=True, guess=alone, told_after=told_after
    )


def _is_alone_below_a_root(call: str, others: Iterable[str], count: int) -> bool:
    """Whether one rank waits for what comes from a root, and all others where all must come."""
    return count == 1 and bool(_FROM_A_ROOT.fullmatch(call)) and all(map(_OF_ALL.fullmatch, others))


def _may_be_left_behind(calls: Iterable[str]) -> bool:
    """Whether others can have gone on from these operations without the ranks that wait in them."""
    kinds = (_TO_A_ROOT, _FROM_A_ROOT, _MESSAGE)
    return any(kind.fullmatch(call) for call in calls for kind in kinds)


# ---- in words


def _grouped(
    ranks: Iterable[int], known: Mapping[int, StandingRank]
) -> list[tuple[str, list[int]]]:
    """(place, the ranks that are there), the most first."""
    found: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        found.setdefault(_way_in(known[rank]) or "an unknown place", []).append(rank)
    return sorted(found.items(), key=lambda one: (-len(one[1]), one[1]))


def _way_in(one: StandingRank) -> str:
    """`MPI_Allreduce ← step`, `read ← load_batch (train)`, `load_batch (train.py:3)`."""
    leaf, own = ways_in(one.entered, one.frames)
    if one.place:
        leaf, own = one.entered, one.place
    return " ← ".join(part for part in (leaf, own) if part)


def _ranks(ranks: Iterable[int], nodes: Mapping[int, str] | None = None) -> str:
    some = sorted(ranks)
    word = f"rank{'s' * (len(some) != 1)} {fold_ranks(some)}"
    return f"{word} on {fold_nodes(dict.fromkeys(nodes[rank] for rank in some))}" if nodes else word


def _wait(ranks: Sequence[int]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _are(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"
