"""Which ranks have entered which collective operation, by what the ranks themselves say, and who
keeps the others waiting. No I/O.

A rank that is in an operation waits for those of its group that have not entered it. Whoever is
waited for and waits for nobody is the one to look at; if everybody is, it is a deadlock.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec import field

from rankdeck.model.json_tables import as_list, as_table, as_tables
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.deadlock import describe_deadlock
from rankdeck.rules.doing import Doing, describe_doing, read_doing
from rankdeck.rules.inspect import Frame, read_frames
from rankdeck.values import Value

_MOST_GROUPS, _MOST_RECENT, _MOST_RANKS, _MOST_ENDS = 64, 16, 1 << 16, 64
_ENDS = ("own", "peers", "seeks")
_SOUGHT = 30.0
"""Seconds of silence after which a rank is told that has not found the others."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen ")
"""Files of Python and of installed packages, not of the program."""
_MEETINGS = (
    ("init_process_group", "torch/distributed/distributed_c10d.py"),
    ("initialize", "jax/_src/distributed.py"),
    ("shutdown", "jax/_src/distributed.py"),
)
"""Functions in which all ranks wait for each other before there are groups, or after; and the end
of the path of their file.
"""
_IMPORTS = re.compile(r"<frozen importlib\.")
"""File of the frames of a rank that still loads a module."""


class Operation(Value):
    """One collective operation of a group, as a rank has entered it."""

    number: int
    """Counted from 1 in each group."""
    name: str
    """`all_reduce`, without the library's prefix."""
    shape: str
    """Sizes and types of the tensors, only to compare."""
    over: bool
    ago: float
    """Seconds since the rank entered it."""


class GroupRecord(Value):
    """What one rank has entered in one group."""

    name: str
    called: str
    """What the program calls the group; "" or `undefined` if nothing."""
    ranks: tuple[int, ...]
    """All ranks of the group; () if not known."""
    newest: tuple[Operation, ...]
    """The newest operations, oldest first."""

    @property
    def last(self) -> int:
        """Number of the last operation that was entered; 0 if none was."""
        return self.newest[-1].number if self.newest else 0

    def operation(self, number: int) -> Operation | None:
        """The operation with this number, if it is among the newest."""
        return next((one for one in self.newest if one.number == number), None)


class Connections(Value):
    """The TCP connections of a rank while it has few; each end is `address:port`."""

    own: frozenset[str] = frozenset()
    peers: frozenset[str] = frozenset()
    seeks: tuple[str, ...] = ()
    """Where it tries to connect."""


class RankTestimony(Value):
    """What the witness inside one rank said."""

    rank: int
    groups: Mapping[str, GroupRecord] = field(default_factory=dict[str, GroupRecord])
    stack: tuple[Frame, ...] = ()
    """Of its main thread, innermost frame first."""
    peer: tuple[str, int] | None = None
    """(`recv` or `send`, the other rank) if it waits in that; the rank is -1 if it is any."""
    place: str = ""
    """`load_batch (train.py:3)`: the innermost frame of the program's own code; "" if not known."""
    doing: Doing = field(default_factory=Doing)
    """What it waits for in the kernel."""
    links: Connections | None = None
    """None if not known, or if they are many."""

    @property
    def meeting(self) -> str:
        """The function in which it waits for all others, `init_process_group`; "" if in none."""
        frames = ((name, file) for name, file, *_ in self.stack)
        inside = (n for n, f in frames if any(n == m and f.endswith(of) for m, of in _MEETINGS))
        return next(inside, "")

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is in no meeting and no group, and has loaded what it needs for them."""
        loads = any(_IMPORTS.match(file) for _, file, *_ in self.stack)
        return bool(self.stack) and not (self.groups or self.meeting or loads)

    @property
    def still_for(self) -> float:
        """Seconds since it last entered an operation; endless if it is not known to have."""
        newest = [group.newest[-1].ago for group in self.groups.values() if group.newest]
        return min(newest, default=float("inf"))


class Absence(Value):
    """Ranks for which others wait in an operation that these never entered, or a deadlock."""

    ranks: tuple[int, ...]
    """Who is waited for and waits for nobody; of a deadlock, all that wait for each other."""
    waiting: tuple[int, ...]
    text: str
    """One sentence."""
    deadlock: bool = False
    still: bool = False
    """Whether it is certain that none of them does any work."""
    guess: bool = False
    """Whether the others may also have left these behind."""
    told_after: float = 0.0
    """Seconds of silence before which it is not told: it may still go on by itself."""
    apart: bool = False
    """Whether they came, and have no connection to where the others are connected."""


def read_rank_testimony(raw: object) -> RankTestimony | None:
    """The same from a row of `job inspect`, where it is the `witness` of a rank."""
    row = as_table(raw)
    return read_testimony({**as_table(row.get("witness")), "rank": row.get("rank")})


def read_testimony(raw: object) -> RankTestimony | None:
    """What a rank's witness said (untrusted), with its `rank`; None if it said nothing of use."""
    row = as_table(raw)
    rank = row.get("rank")
    if type(rank) is not int:
        return None
    members = as_table(row.get("groups"))
    recorded = as_table(row.get("recorded"))
    groups = {
        (name := clean_line(key, 60)): _group(name, members.get(key), recorded.get(key))
        for key in [*dict.fromkeys((*members, *recorded))][:_MOST_GROUPS]
    }
    stack = read_frames(row.get("stack"))
    what, other, *_ = [*as_list(row.get("peer")), "", None]
    waits = what in ("recv", "send") and type(other) is int and -1 <= other < _MOST_RANKS
    peer = (str(what), int(other)) if waits else None  # type: ignore[arg-type]
    if not groups and not stack:
        return None
    links = _read_connections(row.get("links"))
    doing = read_doing(row.get("does"))
    return RankTestimony(rank, groups, stack, peer, _place(stack), doing, links)


def _read_connections(raw: object) -> Connections | None:
    row = as_table(raw)
    ends = {
        key: tuple(clean_line(one, 60) for one in as_list(row.get(key), _MOST_ENDS))
        for key in _ENDS
        if key in row
    }
    if len(ends) < len(_ENDS):
        return None
    return Connections(frozenset(ends["own"]), frozenset(ends["peers"]), ends["seeks"])


def _place(stack: Iterable[Frame]) -> str:
    own = next((frame for frame in stack if not _LIBRARY.search(frame[1])), None)
    return f"{own[0]} ({own[1].rpartition('/')[2]}:{own[2]})" if own else ""


def _group(name: str, known: object, operations: object) -> GroupRecord:
    about = as_table(known)
    ranks = (one for one in as_list(about.get("ranks"), _MOST_RANKS) if type(one) is int)
    rows = as_tables(operations, _MOST_RECENT)
    newest = [
        Operation(
            number=number,
            name=clean_line(row.get("what"), 60).rpartition(":")[2],
            shape=clean_line(f"{row.get('sizes')} {row.get('types')}", 300),
            over=row.get("over") is True,
            ago=float(ago) if isinstance(ago := row.get("ago"), int | float) else 0.0,
        )
        for row in rows
        if type(number := row.get("number")) is int and row.get("between") is not True
    ]
    called = clean_line(about.get("called"), 60)
    return GroupRecord(name, called, tuple(ranks), tuple(newest))


# ---- who waits for whom


def find_absence(
    said: Mapping[int, RankTestimony], nodes: Mapping[int, str], least: float
) -> Absence | None:
    """Who keeps the others waiting; None if nobody waits for a rank, or the rank is not known.

    Only operations count that were entered at least `least` seconds ago, and only ranks that have
    entered nothing since then. `nodes` is rank -> node.
    """
    waits, entered = _who_waits(said, least)
    if not waits:
        return _mismatch(said, nodes, least) or _unmet(said, nodes)
    wanted = {rank for late in waits.values() for rank in late}
    if any(rank in said and said[rank].still_for < least for rank in wanted):
        return None
    if sinks := sorted(wanted - waits.keys()):
        return _absent(said, nodes, waits, entered, sinks)
    return _deadlock(said, nodes, waits, entered)


Waits = Mapping[int, set[int]]
"""Rank -> ranks that it waits for."""
Entered = Mapping[int, tuple[GroupRecord, Operation]]
"""Rank -> the operation in which it waits."""


def _who_waits(said: Mapping[int, RankTestimony], least: float) -> tuple[Waits, Entered]:
    waits: dict[int, set[int]] = {}
    entered: dict[int, tuple[GroupRecord, Operation]] = {}
    for rank, one in said.items():
        for group in one.groups.values():
            open_ = _open_operation(group)
            if open_ is None or open_.ago < least:
                continue
            if late := _late(group, open_, said) - {rank}:
                waits.setdefault(rank, set()).update(late)
                entered[rank] = group, open_
        if one.peer is not None and one.peer[1] >= 0:
            waits.setdefault(rank, set()).add(one.peer[1])
    return waits, entered


def _open_operation(group: GroupRecord) -> Operation | None:
    """The operation that the rank is in; None if all that it has entered is over."""
    return next((one for one in group.newest if not one.over), None)


def _late(group: GroupRecord, open_: Operation, said: Mapping[int, RankTestimony]) -> set[int]:
    """Ranks of the group that are known to have not entered this operation."""
    members = group.ranks or [rank for rank, one in said.items() if group.name in one.groups]
    late: set[int] = set()
    for rank in members:
        theirs = said[rank].groups.get(group.name) if rank in said else None
        if rank in said and (theirs is None or theirs.last < open_.number):
            late.add(rank)
    return late


def _absent(
    said: Mapping[int, RankTestimony],
    nodes: Mapping[int, str],
    waits: Waits,
    entered: Entered,
    sinks: Sequence[int],
) -> Absence | None:
    """The ranks that entered nothing while others wait in an operation, or for a message."""
    told = [rank for rank in entered if waits[rank] & set(sinks)]
    if told:
        named = Counter((entered[r][0].name, entered[r][1].number) for r in told)
        group, number = named.most_common(1)[0][0]
        inside = [r for r in told if (entered[r][0].name, entered[r][1].number) == (group, number)]
        record, operation = entered[inside[0]]
        since = max(entered[rank][1].ago for rank in inside)
        gone = [rank for rank in sinks if any(rank in waits[one] for one in inside)]
        others = f"{_ranks(inside, nodes, short=True)} wait{'s' * (len(inside) == 1)} there"
        text = f"{_ranks(gone, nodes)} never entered {_called(record, operation)} ({others} since {since:.0f} s)"
    else:
        inside = sorted(rank for rank, late in waits.items() if late & set(sinks))
        gone = list(sinks)
        who = f"{_ranks(inside, nodes, short=True)} wait{'s' * (len(inside) == 1)}"
        text = f"{who} to {_exchanges(said[inside[0]])} {_ranks(gone, nodes)}"
    more = _otherwise(said, gone) or _instead(said, gone)
    return Absence(tuple(gone), tuple(sorted(waits)), text + _at(said, gone) + more)


def _unmet(said: Mapping[int, RankTestimony], nodes: Mapping[int, str]) -> Absence | None:
    """The few ranks that did not come to where all others wait for them, or that came and are not
    connected to where all others are.
    """
    meetings = Counter(one.meeting for one in said.values() if one.meeting)
    if not meetings:
        return None
    meeting = meetings.most_common(1)[0][0]
    inside = sorted(rank for rank, one in said.items() if one.meeting == meeting)
    gone = sorted(rank for rank, one in said.items() if one.is_elsewhere)
    if len(inside) == len(nodes):
        return _apart(said, nodes, meeting)
    if not gone or len(gone) >= len(inside) or len(inside) + len(gone) < len(nodes):
        return None
    others = f"{_ranks(inside, nodes, short=True)} wait{'s' * (len(inside) == 1)} there"
    text = f"{_ranks(gone, nodes)} never entered {meeting} ({others})"
    return Absence(tuple(gone), tuple(inside), text + _at(said, gone) + _instead(said, gone))


def _apart(
    said: Mapping[int, RankTestimony], nodes: Mapping[int, str], meeting: str
) -> Absence | None:
    """The few ranks without a connection to any address at which more than half of the ranks have
    one: they were given another address or port, or the way there is closed.
    """
    links = {rank: one.links for rank, one in said.items() if one.links is not None}
    if len(links) < len(nodes):
        return None
    at = Counter(chain.from_iterable(one.own | one.peers for one in links.values()))
    usual = {address for address, count in at.items() if 2 * count > len(links)}
    gone = sorted(rank for rank, one in links.items() if not usual & (one.own | one.peers))
    inside = sorted(links.keys() - set(gone))
    where = min(usual, key=lambda address: (-at[address], address), default="")
    if not where or not gone or at[where] < len(inside):
        return None
    sought = sorted({address for rank in gone for address in links[rank].seeks})
    seeks = f"; it seeks {', '.join(sought)}" if sought and len(gone) == 1 else ""
    text = (
        f"{_ranks(gone, nodes)} {_are(gone)} not connected to {where}, where"
        f" {_ranks(inside, nodes, short=True)} wait in {meeting}{seeks}"
    )
    return Absence(tuple(gone), tuple(inside), text, apart=True, told_after=_SOUGHT)


def _at(said: Mapping[int, RankTestimony], gone: Sequence[int]) -> str:
    """Where in their program the missing ranks are, if that is one place."""
    where = {said[rank].place for rank in gone if rank in said} - {""}
    them = "it is" if len(gone) == 1 else "they are"
    return f"; {them} in {where.pop()}" if len(where) == 1 else ""


def _instead(said: Mapping[int, RankTestimony], gone: Sequence[int]) -> str:
    """What the one missing rank waits for outside of its program."""
    does = describe_doing(said[gone[0]].doing) if len(gone) == 1 and gone[0] in said else ""
    return f"; it {does}" if does else ""


def _otherwise(said: Mapping[int, RankTestimony], gone: Sequence[int]) -> str:
    """How the operation in which a missing rank still is differs from what others called there."""
    mine = {rank: said[rank] for rank in gone if rank in said}
    for one in mine.values():
        for group in one.groups.values():
            open_ = _open_operation(group)
            theirs = _same_number(said, mine, group.name, open_.number) if open_ else []
            for other in theirs:
                if open_ and (open_.name, open_.shape) != (other.name, other.shape):
                    own = f"{_called(group, open_)} with {open_.shape}"
                    return f", in {own}; the others called {other.name} with {other.shape}"
    return ""


def _same_number(
    said: Mapping[int, RankTestimony], without: Mapping[int, RankTestimony], group: str, number: int
) -> list[Operation]:
    """The operations of the other ranks with this number."""
    records = [
        one.groups[group]
        for rank, one in said.items()
        if rank not in without and group in one.groups
    ]
    return [found for record in records if (found := record.operation(number))]


def _deadlock(
    said: Mapping[int, RankTestimony],
    nodes: Mapping[int, str],
    waits: Waits,
    entered: Entered,
) -> Absence:
    """Every rank that is waited for waits itself."""
    parts: list[str] = []
    for rank in sorted(waits):
        others = _ranks(waits[rank], nodes, short=True)
        if rank in entered:
            parts.append(f"rank {rank} is in {_called(*entered[rank])}, without {others}")
        else:
            parts.append(f"rank {rank} waits to {_exchanges(said[rank])} {others}")
    ranks = tuple(sorted(waits))
    text = describe_deadlock(_ranks(ranks, nodes, short=True), parts)
    return Absence(ranks, ranks, text, deadlock=True)


def _exchanges(one: RankTestimony) -> str:
    what, _ = one.peer or ("recv", 0)
    return "receive from" if what == "recv" else "send to"


def _mismatch(
    said: Mapping[int, RankTestimony], nodes: Mapping[int, str], least: float
) -> Absence | None:
    """Ranks that are in the same operation by its number, and not by its name or sizes."""
    at: dict[tuple[str, int], dict[int, Operation]] = {}
    groups: dict[str, GroupRecord] = {}
    for rank, one in said.items():
        for group in one.groups.values():
            open_ = _open_operation(group)
            if open_ is not None and open_.ago >= least:
                at.setdefault((group.name, open_.number), {})[rank] = open_
                groups[group.name] = group
    for (name, _), ranks in at.items():
        for kind in ("name", "shape"):
            counts = Counter(str(getattr(one, kind)) for one in ranks.values())
            if len(counts) < 2:
                continue
            usual = counts.most_common(1)[0][0]
            odd = sorted(r for r, one in ranks.items() if getattr(one, kind) != usual)
            rest = sorted(set(ranks) - set(odd))
            mine, theirs = ranks[odd[0]], ranks[rest[0]]
            group = groups[name]
            size = "" if kind == "name" else f" with {mine.shape}"
            others = theirs.name + ("" if kind == "name" else f" with {theirs.shape}")
            parts = [
                f"{_ranks(odd, nodes)} {_are(odd)} in {_called(group, mine)}{size}",
                f"{_ranks(rest, nodes, short=True)} {_are(rest)} in {others}: these do not match",
            ]
            text = describe_deadlock(_ranks(ranks, nodes, short=True), parts)
            if 2 * len(odd) >= len(ranks):  # nobody knows which half is wrong
                odd = rest = sorted(ranks)
            return Absence(tuple(odd), tuple(rest), text, deadlock=True)
    return None


# ---- in words


def _called(group: GroupRecord, operation: Operation) -> str:
    """`all_reduce 4,817 of tensor_parallel`."""
    named = "" if group.called in ("", "undefined", "default_pg") else f" of {group.called}"
    return f"{operation.name} {operation.number:,}{named}"


def _ranks(ranks: Iterable[int], nodes: Mapping[int, str], *, short: bool = False) -> str:
    """`rank 5 on n3`; short: `rank 5`, `ranks 0-4,6`."""
    some = sorted(ranks)
    word = f"rank{'s' * (len(some) != 1)} {fold_ranks(some)}"
    where = {nodes.get(rank, "") for rank in some} - {""}
    return f"{word} on {where.pop()}" if not short and len(where) == 1 else word


def _are(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"
