"""What NCCL's (or RCCL's) RAS says of its communicators, and which rank is behind or gone. No I/O.

RAS may answer for another job, or wrongly: only ranks of processes that are known to be ours count,
and only what two answers say alike.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rankdeck.model.json_tables import as_list, as_table, as_tables
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.arrivals import Absence
from rankdeck.values import Value, replace

_MOST_COMMUNICATORS, _MOST_RANKS, _MOST_KINDS, _MOST_LINES = 256, 1 << 14, 16, 400
_MOST_LAUNCHED = 1 << 48
"""A count beyond it is none: it decides nothing about its rank."""
_ANY = "operation"
_COMMUNICATOR = re.compile(r"#\d+-\d+ \((?P<name>[0-9a-fx]{1,20})\) (?P<what>[A-Z|]+)$")
_KIND = re.compile(r"Communicator ranks have different (?P<kind>\w+) operation counts$")
_GROUP = re.compile(r"\d+ ranks have (?:launched up to operation (?P<at>\d{1,18})|not launched)")
_OWN = re.compile(
    r"Rank (?P<rank>\d{1,7})(?: has (?:launched up to operation (?P<at>\d{1,18})|(?P<none>not launched any operations)))?"
    r" -- GPU .{1,40} managed by process (?P<pid>\d{1,10}) on node \S+$"
)


class RasRank(Value):
    """One rank of a communicator."""

    rank: int
    """Its number in the communicator."""
    pid: int
    counts: Mapping[str, int]
    """Kind of operation -> how many the rank has launched; {} if it does not answer."""
    missing: bool = False
    dead: bool = False


class RasCommunicator(Value):
    """One communicator, as RAS reports it."""

    name: str
    size: int
    """0 if not known: a report as text names only ranks that differ from most."""
    ranks: tuple[RasRank, ...]
    most: Mapping[str, int]
    """Kind -> the count of most ranks."""


def read_ras(raw: object) -> tuple[RasCommunicator, ...]:
    """The communicators in the `ras` of a node's (untrusted) answer."""
    row = as_table(raw)
    if report := as_table(row.get("json")):
        found = map(_communicator, as_tables(report.get("communicators"), _MOST_COMMUNICATORS))
        return tuple(sorted((one for one in found if one.ranks), key=lambda one: one.name))
    lines = (clean_line(line, 200).strip() for line in as_list(row.get("lines"), _MOST_LINES))
    return tuple(_from_text(lines))


def _communicator(row: Mapping[str, object]) -> RasCommunicator:
    here = [_rank(one) for one in as_tables(row.get("ranks"), _MOST_RANKS)]
    gone = [
        replace(_rank(one), counts={}, missing=True, dead=_is_dead(one))
        for one in as_tables(row.get("missing_ranks"), _MOST_RANKS)
    ]
    kinds = {kind for one in here for kind in one.counts}
    most = {kind: _usual(one.counts.get(kind, 0) for one in here) for kind in kinds}
    known = (one for one in (*here, *gone) if one.rank >= 0)
    ranks = tuple(sorted(known, key=lambda one: one.rank))
    return RasCommunicator(clean_line(row.get("hash"), 20), _whole(row.get("size")), ranks, most)


def _rank(row: Mapping[str, object]) -> RasRank:
    rank, counts = row.get("rank"), as_table(row.get("collective_counts"))
    some = list(counts.items())[:_MOST_KINDS]
    number = rank if type(rank) is int else -1
    known = {clean_line(k, 30): v for k, v in some if type(v) is int and 0 <= v <= _MOST_LAUNCHED}
    return RasRank(number, _whole(row.get("pid")), known)


def _is_dead(row: Mapping[str, object]) -> bool:
    return as_table(row.get("status")).get("considered_dead") is True


def _whole(raw: object) -> int:
    return raw if type(raw) is int and 0 <= raw < 1 << 62 else 0


def _usual(counts: Iterable[int]) -> int:
    return max(Counter(counts).items(), key=lambda one: (one[1], one[0]))[0]


def _from_text(lines: Iterable[str]) -> Iterable[RasCommunicator]:
    name, kind, at = "", _ANY, 0
    ranks: dict[int, RasRank] = {}
    most: dict[str, int] = {}
    for line in [*lines, "#0-0 (0) END"]:
        if match := _COMMUNICATOR.match(line):
            if ranks:
                yield RasCommunicator(name, 0, tuple(ranks.values()), most)
            name, kind, at, ranks, most = match["name"], _ANY, 0, {}, {}
        elif match := _KIND.match(line):
            kind = _ANY if match["kind"] == "collective" else match["kind"]
        elif match := _GROUP.match(line):
            at = int(match["at"] or 0)
            most.setdefault(kind, at)  # the largest group comes first
        elif match := _OWN.match(line):
            own = 0 if match["none"] else int(match["at"] or at)
            ranks[int(match["rank"])] = RasRank(int(match["rank"]), int(match["pid"]), {kind: own})


def find_ras_absence(
    before: Sequence[RasCommunicator],
    now: Sequence[RasCommunicator],
    ours: Mapping[int, int],
    nodes: Mapping[int, str],
) -> Absence | None:
    """Who has launched fewer operations than the others, or is gone; None if anybody went on
    between the two answers, or if no process is known to be ours.

    `ours`: pid -> rank; `nodes`: rank of the job -> node.
    """
    if tuple(before) != tuple(now):
        return None
    found = [late for one in now if (late := _late_in(one, ours, nodes))]
    # Who waits in one communicator comes late to another: of several the rank that waits in none.
    roots = [one for one in found if not any(one.ranks & other.waiting for other in found)]
    if len({one.ranks for one in roots}) != 1:
        return None
    ranks = tuple(sorted(roots[0].ranks))
    return Absence(ranks, tuple(sorted(set(nodes) - roots[0].ranks)), roots[0].text)


class _Late(Value):
    """Who is late in one communicator, and who waits there; ranks of the job."""

    ranks: frozenset[int]
    waiting: frozenset[int]
    text: str


def _late_in(
    one: RasCommunicator, ours: Mapping[int, int], nodes: Mapping[int, str]
) -> _Late | None:
    numbers = _numbers(one, ours, nodes)
    if len({rank.rank for rank in one.ranks}) < len(one.ranks) or not numbers:
        return None
    gone = [rank for rank in one.ranks if rank.missing and rank.rank in numbers]
    late = [rank for rank in one.ranks if rank.rank in numbers and _kinds_late(rank, one)]
    some = gone or late
    if not some or 2 * len(some) >= len(nodes):
        return None
    ranks = frozenset(numbers[rank.rank] for rank in some)
    there = frozenset(numbers[rank.rank] for rank in one.ranks if rank.rank in numbers)
    names = sorted(ranks)
    text = _missing(some, names, nodes) if gone else _behind(some[0], one, names, nodes)
    # A report as text names only those that differ: of the rest it is not known whether they wait.
    return _Late(ranks, there - ranks if one.size else frozenset(), text)


def _numbers(
    one: RasCommunicator, ours: Mapping[int, int], nodes: Mapping[int, str]
) -> dict[int, int]:
    """Rank of the communicator -> rank of the job, of those that are known; {}: not of our job."""
    known = {rank.rank: ours[rank.pid] for rank in one.ranks if ours.get(rank.pid) in nodes}
    if one.size and 2 * len(known) < len(one.ranks):  # the same pids may be on other nodes
        return {}
    same = one.size == len(nodes) and known and all(rank == job for rank, job in known.items())
    return {rank.rank: rank.rank for rank in one.ranks if rank.rank in nodes} if same else known


def _kinds_late(rank: RasRank, one: RasCommunicator) -> list[str]:
    if rank.missing:
        return []
    ahead = any(count > one.most.get(kind, 0) for kind, count in rank.counts.items())
    late = [kind for kind, count in rank.counts.items() if count < one.most.get(kind, 0)]
    return [] if ahead else late


def _missing(some: Sequence[RasRank], ranks: Sequence[int], nodes: Mapping[int, str]) -> str:
    verb = "does" if len(ranks) == 1 else "do"
    dead = ", which takes it for dead" if len(ranks) == 1 and some[0].dead else ""
    return f"{_name(ranks, nodes)} {verb} not answer NCCL's RAS{dead}"


def _behind(
    rank: RasRank, one: RasCommunicator, ranks: Sequence[int], nodes: Mapping[int, str]
) -> str:
    kind = _kinds_late(rank, one)[0]
    number = rank.counts[kind] + 1
    return (
        f"{_name(ranks, nodes)} never launched {kind} {number:,} of NCCL communicator {one.name}"
        f" (most others have launched {one.most[kind]:,})"
    )


def _name(ranks: Sequence[int], nodes: Mapping[int, str]) -> str:
    where = fold_nodes(dict.fromkeys(nodes[rank] for rank in ranks))
    return f"rank{'s' * (len(ranks) != 1)} {fold_ranks(ranks)} on {where}"
