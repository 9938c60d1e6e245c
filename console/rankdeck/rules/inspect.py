"""Groups ranks by where they are in the program (stack, kernel function), and finds the odd ones.

No I/O.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import field

from rankdeck.model.json_tables import as_list, as_table, as_tables
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.rank import is_computing
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.kernel_waits import name_kernel_wait
from rankdeck.rules.native_frames import name_mpi_function, read_native_frames, ways_in
from rankdeck.values import Value

Frame = tuple[str, str, int]
"""(function, file, line number)."""
WAITING = re.compile(
    r"all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|bcast|barrier|gather|scatter"
    r"|\bmpi_\w+|send_?recv|\brecv\b|wait_?all|\bwait\b|synchronize|allreduce|monitored_barrier",
    re.IGNORECASE,
)
"""Matches names of functions in which a rank waits for others."""
_MOST_STACKS = 4
_MOST_FRAMES = 30
_MOST_RANKS = 4096
_MOST_PAIRS, _SHOWN_PAIRS = 64, 4
_QUIET, _APART = 10.0, 0.2
"""Seconds without output that count as silence; seconds that separate one silence from the next."""


class QueuePair(Value):
    """An RDMA queue pair that a rank holds."""

    device: str
    number: int
    remote: int | None
    """Number of the one at the other end; None if it has none."""
    kind: str
    """RC, UD, …"""
    state: str
    """RTS (ready to send), RTR, INIT, ERR, …"""

    @property
    def words(self) -> str:
        """`rxe0 #17 to #18 RC RTS`."""
        to = "" if self.remote is None else f" to #{self.remote}"
        return f"{self.device} #{self.number}{to} {self.kind} {self.state}"


class Look(Value, kw_only=True):
    """Where one rank was at one moment."""

    rank: int
    node: str
    pid: int = 0
    command: str = ""
    state: str = ""
    """As in /proc: R runs, S sleeps, D waits for a device."""
    wchan: str = ""
    kernel: tuple[str, ...] = ()
    cpu: float | None = None
    """Cores in use; None if not known."""
    threads: Mapping[str, int] = field(default_factory=dict[str, int])
    stacks: tuple[tuple[Frame, ...], ...] = ()
    """Python stacks of its main thread, innermost frame first, one per sample."""
    last: str = ""
    silent: float | None = None
    """Seconds since it last wrote output; None if not known."""
    pairs: tuple[QueuePair, ...] = ()

    @property
    def pairs_text(self) -> str:
        """`2 queue pairs: rxe0 #17 to #18 RC RTS, …`; "" if it holds none."""
        shown = ", ".join(pair.words for pair in self.pairs[:_SHOWN_PAIRS])
        more = ", …" if len(self.pairs) > _SHOWN_PAIRS else ""
        many = "queue pair" if len(self.pairs) == 1 else "queue pairs"
        return f"{len(self.pairs)} {many}: {shown}{more}" if self.pairs else ""


class StackGroup(Value):
    """Ranks that are at the same place in the program."""

    place: str
    """Where they are, in words: `f (a.py:3)`, `waiting in futex_wait (a lock …)`, `computing`."""
    where: str
    """The same without the first words; "" if they compute."""
    looks: tuple[Look, ...]
    waiting: bool
    """Whether they are in a call that waits for other ranks."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(look.rank for look in self.looks)

    @property
    def stack(self) -> tuple[Frame, ...]:
        return next((look.stacks[0] for look in self.looks if look.stacks), ())


class Inspection(Value):
    """The result of `rankdeck inspect`: where the ranks of a job are."""

    job: str
    at: float
    groups: tuple[StackGroup, ...]
    """Largest first."""
    odd: tuple[int, ...]
    """Ranks that are not where the others are; () if none stands out."""
    answer: str
    """The result in one sentence."""
    missing: Mapping[str, str]
    """Node -> why its ranks could not be inspected."""
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> what was not available there: no py-spy, …"""
    ras: tuple[str, ...] = ()
    """The lines of NCCL's RAS report."""


def look_of(node: str, raw: object, silent: Mapping[int, float]) -> Look | None:
    """The look in one row of a node's (untrusted) answer; None if invalid.

    `silent`: rank -> seconds since output.
    """
    row = as_table(raw)
    rank = row.get("rank")
    if type(rank) is not int or not 0 <= rank < 1 << 24:
        return None
    cpu = row.get("cpu")
    return Look(
        rank=rank,
        node=node,
        pid=_integer(row.get("pid")),
        command=clean_line(row.get("command"), 200),
        state=clean_line(row.get("state"), 2),
        wchan=clean_line(row.get("wchan"), 60),
        kernel=tuple(clean_line(word, 60) for word in as_list(row.get("kernel"), 8)),
        cpu=float(cpu) if isinstance(cpu, int | float) and 0 <= cpu < 1e5 else None,
        threads=_counts(row.get("threads")),
        stacks=_stacks(row.get("stacks"))
        or _witnessed(row.get("witness"))
        or _native(row.get("native")),
        last=clean_line(row.get("last"), 200),
        silent=silent.get(rank),
        pairs=tuple(map(_pair, as_tables(row.get("pairs"), _MOST_PAIRS))),
    )


def _pair(row: Mapping[str, object]) -> QueuePair:
    remote = row.get("remote")
    return QueuePair(
        device=clean_line(row.get("device"), 32),
        number=_integer(row.get("number")),
        remote=None if remote is None else _integer(remote),
        kind=clean_line(row.get("kind"), 10),
        state=clean_line(row.get("state"), 10),
    )


def _integer(raw: object) -> int:
    return raw if type(raw) is int and 0 <= raw < 1 << 31 else 0


def _counts(raw: object) -> dict[str, int]:
    return {clean_line(k, 80): _integer(v) for k, v in list(as_table(raw).items())[:64]}


def _stacks(raw: object) -> tuple[tuple[Frame, ...], ...]:
    stacks = (read_frames(one.get("frames")) for one in as_tables(raw, _MOST_STACKS))
    return tuple(tuple(map(_in_folder, stack)) for stack in stacks if stack)


def _witnessed(raw: object) -> tuple[tuple[Frame, ...], ...]:
    """What the witness inside the rank says, where py-spy says nothing."""
    stack = read_frames(as_table(raw).get("stack"))
    return (tuple(map(_in_folder, stack)),) if stack else ()


def _native(raw: object) -> tuple[tuple[Frame, ...], ...]:
    """The last call of the program and who made it: what is below differs while a rank polls."""
    row = as_table(raw)
    frames = read_native_frames(row.get("frames"))
    found = ways_in(name_mpi_function(row.get("entered")), frames)
    return (tuple((name, frames[-1][1], 0) for name in found if name),) if any(found) else ()


def read_frames(raw: object) -> tuple[Frame, ...]:
    """The frames in a list of a node's (untrusted) answer, with the whole paths of their files."""
    rows = (as_list(one) for one in as_list(raw, _MOST_FRAMES))
    parts = ((*row, "", "", 0)[:3] for row in rows)
    return tuple((clean_line(n, 120), clean_line(f, 200), _integer(line)) for n, f, line in parts)


def _in_folder(frame: Frame) -> Frame:
    name, file, line = frame
    return name, file.rpartition("/")[2], line


# ---- grouping -------------------------------------------------------------------------------


def conclude_inspection(
    job: str, at: float, looks: Iterable[Look], missing: Mapping[str, str]
) -> Inspection:
    """Group the looks and find the ranks that stand out; `at` is epoch
    seconds, `missing` node -> why not inspected.
    """
    groups = group_stacks(list(looks)[:_MOST_RANKS])
    odd = odd_groups(groups)
    return Inspection(
        job=job,
        at=at,
        groups=groups,
        odd=tuple(sorted(rank for one in odd for rank in one.ranks)),
        answer=_sentence(groups, odd),
        missing=dict(missing),
    )


def group_stacks(looks: Sequence[Look]) -> tuple[StackGroup, ...]:
    """Group ranks whose samples share a stack; the largest group first."""
    parent: dict[object, object] = {}

    def root(key: object) -> object:
        while parent.setdefault(key, key) != key:
            key = parent[key]
        return key

    for look in looks:
        first, *others = _signatures(look)
        for other in others:
            parent[root(other)] = root(first)
    found: dict[object, list[Look]] = {}
    for look in sorted(looks, key=lambda one: one.rank):
        found.setdefault(root(_signatures(look)[0]), []).append(look)
    groups = [_made(members) for members in found.values()]
    return tuple(sorted(groups, key=lambda one: (-len(one.looks), one.ranks[:1])))


def _signatures(look: Look) -> list[object]:
    """A hashable place for each sample; without stacks, the one that /proc shows."""
    if look.stacks:
        return list(dict.fromkeys(look.stacks))
    busy = is_computing(look.state, look.cpu or 0.0)
    return [("computes",) if busy else (look.state, look.wchan, look.kernel[:2])]


def _made(looks: Sequence[Look]) -> StackGroup:
    """The group, and its place as text: the most telling frame of its most common stack."""
    stacks = [stack for look in looks for stack in look.stacks]
    if not stacks:
        look = looks[0]
        busy = is_computing(look.state, look.cpu or 0.0)
        function = look.kernel[0] if look.kernel else look.wchan
        if busy:
            return StackGroup("computing", "", tuple(looks), waiting=False)
        if function in ("", "0"):
            state = f"state {look.state}"
            return StackGroup(state, state, tuple(looks), waiting=False)
        where = name_kernel_wait(function)
        return StackGroup(f"waiting in {where}", where, tuple(looks), waiting=False)
    stack = max(stacks, key=stacks.count)
    collective = next((frame for frame in stack if WAITING.search(frame[0])), None)
    name, _, _ = frame = collective or stack[0]
    own = next((f for f in stack if not _is_library(f)), frame)
    called = name if own == frame else f"{name} ← {own[0]}"
    place = f"{name} ({own[1]}:{own[2]})" if own[2] else called
    return StackGroup(place, place, tuple(looks), waiting=collective is not None)


def _is_library(frame: Frame) -> bool:
    name, file, _ = frame
    return bool(WAITING.search(name)) or file in (
        "distributed_c10d.py",
        "c10d_logger.py",
        "threading.py",
        "functional.py",
    )


def odd_groups(groups: Sequence[StackGroup]) -> list[StackGroup]:
    """The groups that are not in a call in which others wait; else those smaller than a majority.

    [] if none is odd.
    """
    if len(groups) < 2:
        return []
    if any(one.waiting for one in groups) and not all(one.waiting for one in groups):
        return [one for one in groups if not one.waiting]
    total = sum(len(one.looks) for one in groups)
    return [one for one in groups[1:] if 2 * len(groups[0].looks) > total]


def _sentence(groups: Sequence[StackGroup], odd: Sequence[StackGroup]) -> str:
    """`15 in all_reduce (train.py:8), 1 in load_batch (train.py:3): rank 2 on n1`."""
    if not groups:
        return "no running rank could be looked at"
    ordered = [one for one in groups if one not in odd] + list(odd)
    parts = [_part(one, named=one in odd) for one in ordered[:6]]
    more = f", {len(ordered) - 6} more places" if len(ordered) > 6 else ""
    return ", ".join(parts) + more + ("" if odd else _silent_first(groups))


def _silent_first(groups: Sequence[StackGroup]) -> str:
    """`; silent first: rank 2 on n1`, if all are silent and a few fell
    silent clearly before the others; else "".
    """
    looks = [look for one in groups for look in one.looks if look.silent is not None]
    looks.sort(key=lambda look: -(look.silent or 0.0))
    since = [look.silent or 0.0 for look in looks]
    if len(looks) < 3 or since[-1] < _QUIET:
        return ""
    steps = [before - after for before, after in pairwise(since)]
    at = steps.index(max(steps)) + 1
    clearly = steps[at - 1] >= max(_APART, since[at] - since[-1])
    return f"; silent first: {_who(looks[:at])}" if clearly and 2 * at < len(looks) else ""


def _part(one: StackGroup, *, named: bool) -> str:
    place = one.place if one.place.startswith(("wait", "comp", "state")) else f"in {one.place}"
    return f"{len(one.looks)} {place}" + (f": {_who(one.looks)}" if named else "")


def _who(looks: Sequence[Look]) -> str:
    """`ranks 2,3 on n[1-2]`."""
    word = "rank" if len(looks) == 1 else "ranks"
    nodes = fold_nodes(dict.fromkeys(look.node for look in looks))
    return f"{word} {fold_ranks([look.rank for look in looks])} on {nodes}"
