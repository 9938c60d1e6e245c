"""Planted stalls as timelines: what the ranks of a job wrote and what looks at their processes
showed, with noise. No job is started. A name always gives the same timeline.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from benchmarks.planted_ends import Who
from rankdeck.model.job import Job, RankState
from rankdeck.model.plan import Plan
from rankdeck.model.rank import Activity, State
from rankdeck.model.stall import Stall
from rankdeck.rules.rank_signs import KnownOfJob
from rankdeck.rules.stall import find_stalls
from rankdeck_agent.wire import NodePlan

NOW = 1000.0
_PERIOD, _LOOKS = 5.0, 12
Doing = tuple[str, str, float, float | None]
"""State, place in the kernel, cores, share of system time."""
WAITS: Doing = ("S", "ep_poll", 0.0, None)
SLEEPS: Doing = ("S", "hrtimer_nanosleep", 0.0, None)
POLLS: Doing = ("R", "", 0.95, 0.45)
COMPUTES: Doing = ("R", "", 0.98, 0.01)
STOPPED: Doing = ("T", "do_signal_stop", 0.0, None)
READS: Doing = ("D", "nfs_wait_bit_killable", 0.0, None)
PIPES: Doing = ("S", "pipe_read", 0.0, None)


@dataclass(frozen=True, slots=True)
class StallTimeline:
    """A job of which some ranks make no progress, and who is to blame; () if nobody is."""

    name: str
    job: Job
    found: tuple[Stall, ...]
    right: frozenset[Who]
    family: str


@dataclass(slots=True)
class _Scene:
    rng: Random
    ranks: int
    per_node: int
    silence: float
    doing: dict[int, Doing] = field(default_factory=dict[int, Doing])
    heard: dict[int, float] = field(default_factory=dict[int, float])
    last: dict[int, str] = field(default_factory=dict[int, str])
    done: set[int] = field(default_factory=set[int])
    moves: int | None = None

    def victim(self) -> int:
        return self.rng.randrange(self.ranks)

    def spread(self, rank: int) -> set[Who]:
        """The rank; sometimes what befell it befell another one, too."""
        here = rank // self.per_node * self.per_node
        others = [one for one in range(here, here + self.per_node) if one != rank]
        if self.rng.random() < 0.85 or self.ranks < 5:
            return {("rank", rank)}
        other = self.rng.choice(others)
        self.doing[other], self.heard[other] = self.doing[rank], self.heard[rank]
        return {("rank", rank), ("rank", other)}

    def all_silent(self, usual: Doing) -> None:
        for rank in range(self.ranks):
            self.doing[rank] = usual
            self.heard[rank] = NOW - self.silence + self.rng.random() * 0.2


def _stopped(s: _Scene) -> set[Who]:
    """A rank is stopped, the others wait for it."""
    rank = s.victim()
    s.all_silent(s.rng.choice((WAITS, POLLS)))
    s.doing[rank] = STOPPED
    right = s.spread(rank)
    if s.rng.random() < 0.02:  # somebody looks at another rank with a debugger
        s.doing[s.victim()] = STOPPED
    return right


def _in_device(s: _Scene) -> set[Who]:
    """A file system hangs for one rank, or for all of its node."""
    rank = s.victim()
    s.all_silent(s.rng.choice((WAITS, POLLS)))
    here = [one for one in range(s.ranks) if one // s.per_node == rank // s.per_node]
    whole = s.rng.random() < 0.3
    for one in here if whole else (rank,):
        s.doing[one] = READS
    if s.rng.random() < 0.04:  # another one reads for another reason
        s.doing[s.victim()] = READS
    return {("rank", one) for one in (here if whole else (rank,))}


def _silent(s: _Scene) -> set[Who]:
    """A rank falls silent while the others go on; sometimes it only writes seldom."""
    rank = s.victim()
    for one in range(s.ranks):
        s.doing[one], s.heard[one] = COMPUTES, NOW - s.rng.random() * 4
    s.doing[rank] = s.rng.choice((SLEEPS, PIPES, COMPUTES))
    s.heard[rank] = NOW - s.silence - 40
    right = s.spread(rank)
    return set() if s.rng.random() < 0.05 else right


def _odd(s: _Scene) -> set[Who]:
    """All are silent, one sleeps, reads or computes; sometimes rank 0 waits at another place."""
    rank = s.victim()
    s.all_silent(WAITS)
    hidden = s.rng.random() < 0.08
    s.doing[rank] = WAITS if hidden else s.rng.choice((SLEEPS, PIPES, READS, COMPUTES))
    if s.rng.random() < (0.8 if hidden else 0.06):
        s.doing[0] = PIPES
    s.heard[rank] -= s.rng.choice((0.0, 0.0, 1.5, 4.0))
    return {("rank", rank)} if hidden else s.spread(rank)


def _early(s: _Scene) -> set[Who]:
    """All are silent at the same place; one fell silent first, sometimes another one by chance."""
    rank = s.victim()
    s.all_silent(WAITS)
    s.heard[rank] -= s.rng.choice((0.1, 0.6, 2.0, 5.0))
    if s.rng.random() < 0.2:
        s.heard[s.victim()] -= s.rng.choice((0.5, 3.0))
    return {("rank", rank)}


def _disputed(s: _Scene) -> set[Who]:
    """One does something else, another one fell silent first."""
    one, other = s.rng.sample(range(s.ranks), 2)
    s.all_silent(WAITS)
    s.doing[one] = s.rng.choice((SLEEPS, PIPES))
    s.heard[other] -= 4.0
    return {("rank", one if s.rng.random() < 0.6 else other)}


def _locked(s: _Scene) -> set[Who]:
    """All poll for messages: nobody is to blame."""
    s.all_silent(POLLS)
    s.moves = 0
    return {("rank", s.victim())} if s.rng.random() < 0.03 else set()


def _raised(s: _Scene) -> set[Who]:
    """A rank raises and hangs in its clean-up; sometimes another one raises because of it."""
    rank = s.victim()
    s.all_silent(WAITS)
    s.last[rank] = "ValueError: no sample 17"
    s.heard[rank] -= 1.0
    if s.rng.random() < 0.12:
        other = s.victim()
        s.last.setdefault(other, "RuntimeError: halo exchange returned 0 bytes")
        s.heard[other] -= s.rng.choice((0.0, 0.5, 2.0))
    return {("rank", rank)}


def _slow(s: _Scene) -> set[Who]:
    """All write, one computes or reads while the others wait; sometimes it polls for another."""
    rank = s.victim()
    for one in range(s.ranks):
        s.doing[one], s.heard[one] = s.rng.choice((WAITS, POLLS)), NOW - s.rng.random() * 3
    s.doing[rank] = s.rng.choice((COMPUTES, COMPUTES, SLEEPS, READS))
    if s.rng.random() < 0.05:
        return {("rank", (rank + 1) % s.ranks)}
    return s.spread(rank)


def _left(s: _Scene) -> set[Who]:
    """A rank ends with exit 0, the others wait for it."""
    rank = s.victim()
    s.all_silent(WAITS)
    s.done.add(rank)
    return {("rank", rank)} if s.rng.random() < 0.95 else set()


_Plant = Callable[[_Scene], set[Who]]
STALLS: Mapping[_Plant, int] = {
    _stopped: 14, _in_device: 10, _silent: 12, _odd: 16, _early: 10, _disputed: 5, _locked: 8,
    _raised: 8, _slow: 12, _left: 5,
}  # fmt: skip
"""Stall -> how often it is planted, of 100."""


def _looks(s: _Scene, rank: int) -> Sequence[Activity]:
    """What looks show: on a busy machine a few show something else."""
    found: list[Activity] = []
    for back in reversed(range(_LOOKS)):
        state, place, cores, system = s.doing[rank]
        if s.rng.random() < 0.04 and state in "SR":
            state, place, cores, system = s.rng.choice((WAITS, POLLS, COMPUTES))
        at = NOW - _PERIOD * back - s.rng.random()
        found.append(Activity(state, place, cores, system, at, moves=s.moves))
    return found


def plant_stall(name: str) -> StallTimeline:
    """The timeline of this name."""
    rng = Random(name)
    per_node, nodes = rng.randint(2, 4), rng.randint(2, 4)
    s = _Scene(rng, per_node * nodes, per_node, rng.choice((32.0, 45.0, 70.0)))
    plant = rng.choices(list(STALLS), list(STALLS.values()))[0]
    right = plant(s)
    ranks = tuple(
        RankState(
            rank=rank, node=f"n{rank // per_node + 1}", heard=s.heard[rank], lines=600,
            state=State.DONE if rank in s.done else State.RUNNING, started=0.0,
            last_line=s.last.get(rank, "step 7"),
        )
        for rank in range(s.ranks)
    )  # fmt: skip
    plans = tuple(NodePlan("j", f"n{n + 1}", ()) for n in range(nodes))
    plan = Plan(job="j", name="j", cluster="c", backend="ssh", nodes=plans)
    job = Job(id="j", name="j", cluster="c", plan=plan, ranks=ranks, state=State.RUNNING, created=-1.0)  # fmt: skip
    looks = {rank: _looks(s, rank) for rank in range(s.ranks) if rank not in s.done}
    words = {rank: (*("step 6", "Traceback (most recent call last):"), line) for rank, line in s.last.items()}  # fmt: skip
    known = KnownOfJob(looks=looks, words=lambda rank: words.get(rank, ("step 7",)))
    found = find_stalls(job, NOW, known)
    return StallTimeline(name, job, found, frozenset(right), plant.__name__.lstrip("_"))
