"""Planted failures as timelines: who fails, how the others and their launcher react, and what a
console hears of it, with late records and clocks that differ. No job is started.

A name always gives the same timeline.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from random import Random

from rankdeck.rules.ends import LAUNCHER_ENDINGS, End
from rankdeck.rules.failed_job import FailedJob
from rankdeck.values import replace

Who = tuple[str, int | str]
"""("rank", 3), ("node", "n2"), ("launcher", "n1")."""
START = 1000.0
GAVE_UP = 30.0
"""Seconds after which ranks give up waiting."""
ABORT = 10.0
"""Seconds after which Rankdeck ends the rest."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A job that failed, as a console knows it, and who was to blame."""

    name: str
    job: FailedJob
    right: frozenset[Who]
    family: str = ""


@dataclass(frozen=True, slots=True)
class _Event:
    """How a rank ends, on the true clock."""

    rank: int
    at: float
    code: int | None = None
    signal: int | None = None
    lines: tuple[str, ...] = ()
    said: float = 0.01
    """Seconds before its end in which the last lines were written."""
    stopped: bool = False
    kernel: tuple[str, ...] = ()


@dataclass(slots=True)
class _World:
    rng: Random
    launcher: str
    nodes: int
    per_node: int
    sloppy: bool
    """Whether ranks that lose a peer fail in ways that look like a fault of their own."""
    events: dict[int, _Event] = field(default_factory=dict[int, _Event])
    lost: str = ""
    launchers: list[End] = field(default_factory=list[End])

    @property
    def ranks(self) -> range:
        return range(self.nodes * self.per_node)

    def node_of(self, rank: int) -> str:
        return f"n{rank // self.per_node + 1}"

    def victim(self) -> int:
        return self.rng.randrange(len(self.ranks))

    def add(self, event: _Event) -> None:
        self.events.setdefault(event.rank, event)


_OWN = (
    "KeyError: 'label'",
    "ValueError: could not convert string to float: '1.2.3'",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-17'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "AssertionError: loss is nan",
    "IndexError: list index out of range",
    "PermissionError: [Errno 13] Permission denied: '/scratch/out'",
    "OSError: [Errno 28] No space left on device",
)
_UNKNOWN = (
    "RuntimeError: solver diverged at step 12",
    "mesh.errors.MeshError: cell 17 has no volume",
    "RuntimeError: invalid configuration of group 3",
)
_OF_VICTIMS = (
    "ValueError: not enough values to unpack (expected 3, got 0)",
    "AssertionError: received an empty halo",
    "RuntimeError: halo exchange returned 0 bytes",
    "EOFError: ran out of input",
)
_PEER = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:542] Connection closed by peer [10.0.0.{node}]:4567",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    "BrokenPipeError: [Errno 32] Broken pipe",
)
_WAITED = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation to complete"
_TRACE = ("Traceback (most recent call last):", '  File "/app/train.py", line 88, in <module>')


def _raised(line: str) -> tuple[str, ...]:
    return (*_TRACE, line)


# ---- faults: each plants its culprits and returns who is to blame --------------------------


def _own_error(w: _World) -> set[Who]:
    """A rank raises an error of its own."""
    rank = w.victim()
    w.add(_Event(rank, START, 1, lines=_raised(w.rng.choice(_OWN))))
    return {("rank", rank)}


def _unknown_error(w: _World) -> set[Who]:
    """A rank raises an error that no table knows."""
    rank = w.victim()
    w.add(_Event(rank, START, 1, lines=_raised(w.rng.choice(_UNKNOWN))))
    return {("rank", rank)}


def _quiet_exit(w: _World) -> set[Who]:
    """A rank ends with a code of its own and says nothing; some use their launcher's codes."""
    rank = w.victim()
    w.add(_Event(rank, START, w.rng.choice((1, 1, 2, 3, 7, 14, 42, 127))))
    return {("rank", rank)}


def _crash(w: _World) -> set[Who]:
    """A rank crashes."""
    rank, number = w.victim(), w.rng.choice((signal.SIGSEGV, signal.SIGFPE, signal.SIGBUS))
    kernel = (f"a.out[77]: segfault at 0 (rank {rank})",) if w.rng.random() < 0.3 else ()
    w.add(_Event(rank, START, signal=number, kernel=kernel))
    return {("rank", rank)}


def _aborted(w: _World) -> set[Who]:
    """A rank calls MPI_Abort."""
    rank = w.victim()
    line = f"MPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD"
    w.add(_Event(rank, START, 7, lines=(line,)))
    return {("rank", rank)}


def _killed(w: _World) -> set[Who]:
    """A rank gets SIGKILL; half the time the kernel says that memory was used up."""
    rank = w.victim()
    kernel = ("Out of memory: Killed process 77 (a.out)",) if w.rng.random() < 0.5 else ()
    w.add(_Event(rank, START, signal=signal.SIGKILL, kernel=kernel))
    return {("rank", rank)}


def _told(w: _World) -> set[Who]:
    """Somebody outside sends a rank SIGTERM."""
    rank = w.victim()
    w.add(_Event(rank, START, signal=signal.SIGTERM))
    return {("rank", rank)}


def _left(w: _World) -> set[Who]:
    """A rank ends with exit 0 while the others need it."""
    rank = w.victim()
    w.add(_Event(rank, START, 0))
    return {("rank", rank)}


def _two_alike(w: _World) -> set[Who]:
    """The same is missing for all ranks of a node: each fails by itself."""
    node, line = w.rng.randrange(w.nodes), w.rng.choice(_OWN)
    ranks = [w.per_node * node + n for n in range(w.per_node)]
    for rank in ranks:
        w.add(_Event(rank, START + w.rng.expovariate(20), 1, lines=_raised(line)))
    return {("rank", rank) for rank in ranks}


def _all_alike(w: _World) -> set[Who]:
    """The same is missing on all nodes: each rank fails by itself."""
    said = w.rng.choice((_raised(w.rng.choice(_OWN)), _raised(w.rng.choice(_UNKNOWN)), ()))
    for rank in w.ranks:
        code = 1 if said else 127
        w.add(_Event(rank, START + w.rng.expovariate(20), code, lines=said))
    return {("rank", rank) for rank in w.ranks}


def _mismatch(w: _World) -> set[Who]:
    """A rank is in another operation than the others, and each says which the other is in."""
    rank = w.victim()
    for one in w.ranks:
        other = rank if one != rank else w.rng.choice([n for n in w.ranks if n != rank])
        line = f"RuntimeError: Detected mismatch between collectives on ranks. Rank {one} is running collective: A, but Rank {other} is running collective: B"
        w.add(_Event(one, START + w.rng.expovariate(20), 1, lines=_raised(line)))
    return {("rank", rank)}


def _one_of_two(w: _World) -> set[Who]:
    """A rank fails quietly, and a neighbour whose partner it was fails in the same way at once."""
    rank, code = w.victim(), w.rng.choice((1, 2, 3))
    other = w.rng.choice([one for one in w.ranks if one != rank])
    said = _raised(w.rng.choice(_OWN)) if w.rng.random() < 0.3 else ()
    w.add(_Event(rank, START, code, lines=said))
    w.add(_Event(other, START + w.rng.expovariate(50), code, lines=said))
    return {("rank", rank)}


def _node_gone(w: _World) -> set[Who]:
    """A node goes away."""
    w.lost = f"n{w.rng.randrange(w.nodes) + 1}"
    return {("node", w.lost)}


def _never_came(w: _World) -> set[Who]:
    """A rank never enters the operation in which the others wait until they give up."""
    rank = w.victim()
    for other in w.ranks:
        if other != rank:
            late = GAVE_UP + w.rng.expovariate(5)
            w.add(_Event(other, START + late, 1, lines=_raised(_WAITED)))
    late = w.rng.choice((GAVE_UP + 3 + w.rng.random(), GAVE_UP + 12))
    if w.rng.random() < 0.5:
        w.add(_Event(rank, START + late, signal=signal.SIGTERM, stopped=True))
    elif w.rng.random() < 0.3:
        w.add(
            _Event(
                rank, START + GAVE_UP + 0.2, 1, lines=_raised(w.rng.choice(_PEER).format(node=1))
            )
        )
    return {("rank", rank)}


def _raised_and_waits(w: _World) -> set[Who]:
    """A rank raises an error and hangs in its clean-up until it is ended."""
    rank = w.victim()
    said = _raised(w.rng.choice(_OWN))
    late = 5 + w.rng.random() * 15
    w.add(_Event(rank, START + late, signal=signal.SIGTERM, lines=said, said=late))
    return {("rank", rank)}


def _launcher_killed(w: _World) -> set[Who]:
    """The launcher of a node gets SIGKILL."""
    node = f"n{w.rng.randrange(w.nodes) + 1}"
    name = LAUNCHER_ENDINGS[w.launcher].name or "supervisor"
    at = START + w.rng.expovariate(50)
    w.launchers.append(End(what="launcher", name=name, node=node, signal=signal.SIGKILL, at=at))
    for rank in w.ranks:
        if w.node_of(rank) == node:
            w.add(_Event(rank, START + w.rng.expovariate(20), signal=signal.SIGKILL))
    return {("launcher", node)}


def _launcher_fails(w: _World) -> set[Who]:
    """A launcher cannot start; rarely because of another node."""
    node, other = w.rng.sample([f"n{n + 1}" for n in range(w.nodes)], 2)
    name = LAUNCHER_ENDINGS[w.launcher].name or "supervisor"
    line = "OSError: [Errno 98] Address already in use"
    w.launchers.append(End(what="launcher", name=name, node=node, code=1, at=START, lines=(line,)))
    return {("launcher", node if w.rng.random() < 0.95 else other)}


def _in_shells(w: _World) -> set[Who]:
    """Ranks are shells that end with exit 0 whatever their programs do; one program fails."""
    rank = w.victim()
    for one in w.ranks:
        if one == rank or w.rng.random() < 0.6:
            late = 0.0 if one == rank else w.rng.expovariate(20)
            w.add(_Event(one, START + late, 0))
    return {("rank", rank)}


_Fault = Callable[[_World], set[Who]]
FAULTS: Mapping[_Fault, int] = {
    _own_error: 14, _unknown_error: 8, _quiet_exit: 10, _crash: 12, _aborted: 4, _killed: 10,
    _told: 4, _left: 5, _two_alike: 6, _one_of_two: 6, _node_gone: 6, _never_came: 8,
    _raised_and_waits: 4, _launcher_killed: 3, _all_alike: 4, _mismatch: 4, _launcher_fails: 3, _in_shells: 3,
}  # fmt: skip
"""Fault -> how often it is planted, of 114."""
LAUNCHERS = ("openmpi5", "openmpi5", "mpich", "torchrun", "torchrun", "slurm", "", "")


# ---- how the others react ------------------------------------------------------------------


def _react(w: _World) -> None:
    """End all ranks that have not ended, as this launcher and such a program do."""
    ending = LAUNCHER_ENDINGS[w.launcher]
    first = min((one.at for one in w.events.values()), default=START)
    dead = next(iter(w.events), 0)
    notices = w.rng.sample(w.ranks, len(w.ranks))
    told = first + w.rng.uniform(0.05, 0.4)
    for place, rank in enumerate(notices):
        late = w.rng.expovariate(25) + 0.001
        if w.lost and w.node_of(rank) == w.lost:
            continue
        if ending.kill_after == 0:
            w.add(_Event(rank, first + late, signal=signal.SIGKILL))
        elif place < len(notices) // 2:
            w.add(_loses_peer(w, rank, first + late * w.rng.choice((1, 1, 20)), dead))
        elif ending.kill_after < float("inf"):
            w.add(_Event(rank, told + late, signal=signal.SIGTERM))
        else:
            at = first + ABORT + late
            w.add(_Event(rank, at, signal=signal.SIGTERM, stopped=True))


def _loses_peer(w: _World, rank: int, at: float, dead: int) -> _Event:
    if w.sloppy and w.rng.random() < 0.5:
        own = w.rng.random() < 0.7
        return _Event(rank, at, 1, lines=_raised(w.rng.choice(_OF_VICTIMS)) if own else ())
    if w.launcher == "openmpi5":
        return _Event(rank, at, 14)
    where = int(w.node_of(dead)[1:])
    return _Event(rank, at, 1, lines=_raised(w.rng.choice(_PEER).format(node=where)))


def _launcher_words(w: _World) -> list[End]:
    """What the launchers write: mpirun names who it saw first, torchrun the first of each node."""
    seen = sorted(w.events.values(), key=lambda one: one.at + w.rng.expovariate(25))
    failed = [one for one in seen if not one.stopped and (one.code or one.signal)]
    if not failed or w.launchers:
        return w.launchers
    first, end = failed[0], max(one.at for one in failed) + 0.1
    if w.launcher == "openmpi5" and w.rng.random() < 0.7:
        line = f"   Process name: [prterun-n1-7@1,{first.rank}]"
        return [End(what="launcher", name="mpirun", node="n1", code=1, at=end, lines=(line,))]
    if w.launcher == "slurm":
        lines = tuple(
            f"srun: error: {w.node_of(one.rank)}: task {one.rank}: {_as_srun(one)}"
            for one in failed
        )
        said = lines if w.rng.random() < 0.7 else ()
        # Slurm tells how the job as a whole ended, at a whole second.
        return [End(what="launcher", name="sbatch", node="n1", code=1, at=floor(end), lines=said)]
    return _torchruns(w, failed, end) if w.launcher == "torchrun" else []


def _as_srun(one: _Event) -> str:
    """How srun says that a rank ended."""
    return (
        f"Exited with exit code {one.code}"
        if one.code
        else _SIGNALS[signal.Signals(one.signal or 0)]
    )


_SIGNALS = {
    signal.SIGKILL: "Killed", signal.SIGTERM: "Terminated", signal.SIGFPE: "Floating point exception",
    signal.SIGSEGV: "Segmentation fault (core dumped)", signal.SIGBUS: "Bus error",
}  # fmt: skip


def _torchruns(w: _World, failed: Sequence[_Event], end: float) -> list[End]:
    found: dict[str, End] = {}
    for one in failed:
        node = w.node_of(one.rank)
        lines = ("Root Cause (first observed failure):", "[0]:", f"  rank      : {one.rank} (local_rank: 0)", f"  exitcode  : {one.code or 1} (pid: 7)")  # fmt: skip
        found.setdefault(node, End(what="launcher", name="torchrun", node=node, code=1, at=end, lines=lines))  # fmt: skip
    return list(found.values())


# ---- what a console hears ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Clock:
    slack: float
    wrong: float


def _clock(rng: Random) -> _Clock:
    """A node's clock: by how much it may be off as the console knows, and by how much it is."""
    slack = rng.choice((0.002, 0.005, 0.01, 0.02, 0.02, 0.1, 0.2, 0.5, 2.0))
    beyond = 3.0 if rng.random() < 0.03 else 1.0
    return _Clock(slack, rng.uniform(-slack, slack) * beyond)


def _heard(w: _World, rank: int, clock: _Clock) -> End:
    event, node = w.events.get(rank), w.node_of(rank)
    if event is None or node == w.lost:
        return End(rank=rank, node=node, slack=clock.slack)
    late = w.rng.expovariate(120) + (w.rng.expovariate(3) if w.rng.random() < 0.05 else 0.0)
    steps = tuple(f"step {n} loss {1 / n:.3f}" for n in range(3, 6))
    lines = (*steps, *event.lines)
    known = w.rng.random() < 0.7
    ago = (*(event.said + 1 for _ in steps), *(event.said + late for _ in event.lines))
    return End(
        rank=rank, node=node, code=event.code, signal=event.signal,
        at=event.at + late + clock.wrong, slack=clock.slack, stopped=event.stopped, lines=lines,
        ago=ago if known else (), kernel=event.kernel,
    )  # fmt: skip


def plant_failure(name: str) -> Timeline:
    """The timeline of this name."""
    rng = Random(name)
    w = _World(
        rng, rng.choice(LAUNCHERS), rng.randint(2, 4), rng.randint(2, 4), rng.random() < 0.15
    )
    fault = rng.choices(list(FAULTS), list(FAULTS.values()))[0]
    right = fault(w)
    if fault is not _launcher_fails:
        _react(w)
    clocks = [_clock(rng) for _ in range(w.nodes)]
    ends = tuple(_heard(w, rank, clocks[rank // w.per_node]) for rank in w.ranks)
    gone = (
        (End(what="node", node=w.lost, at=START - rng.random() * 2, slack=2.0),) if w.lost else ()
    )
    names = {f"10.0.0.{n + 1}": f"n{n + 1}" for n in range(w.nodes)}
    names |= {f"n{n + 1}": f"n{n + 1}" for n in range(w.nodes)}
    job = FailedJob(
        ends=ends, launchers=tuple(_launcher_words(w)), lost=gone, names=names,
        ending=LAUNCHER_ENDINGS[w.launcher],
    )  # fmt: skip
    if w.lost and rng.random() < 0.1:  # the node is not yet known to be lost
        job = replace(job, lost=())
    return Timeline(name, job, frozenset(right), fault.__name__.lstrip("_"))
