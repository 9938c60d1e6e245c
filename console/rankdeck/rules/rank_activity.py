"""When the running ranks of a job last wrote output, and what they did since. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rankdeck.model import text
from rankdeck.model.activity import Activity
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.nodeset import fold, fold_ranks

QUIET = 30.0
"""Seconds of silence that are never a stall."""
FRESH = 6.0
"""Seconds after a node's last frame in which silence is the rank's; frames come every 2 s."""
STALE = 20.0
"""Seconds after which a look is too old."""
STOPPED = frozenset("Tt")
_FEW = 5
"""Lines from which on a rank has a usual pause."""
_STEPS = ((120.0, 10.0), (600.0, 30.0), (float("inf"), 60.0))
"""Pairs (longest duration, step) in seconds, to round durations in texts."""

Idle = Callable[[str], bool | None]
"""Whether a node computes nothing; None if that is not known."""


def _unknown(_: str) -> None:
    return None


def _no_words(_: int) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known in addition to the job itself; by default nothing."""

    idle: Idle = _unknown
    """Whether a node is idle by telemetry; used where there are no looks."""
    gpus: Idle = _unknown
    """Whether the GPUs of a node are busy; None where it has none or that is not known."""
    clock: Callable[[str], float | None] = _unknown
    """The mean clock of a node's cores in Hz."""
    launcher: Sequence[str] = ()
    """The last lines of the launcher."""
    words: Callable[[int], Sequence[str]] = _no_words
    """The last lines of a rank, as far as they were fetched."""
    looks: Mapping[int, Sequence[Activity]] = field(default_factory=dict[int, Sequence[Activity]])
    """What each rank did in the last minute, oldest first."""
    told: Mapping[str, float] | None = None
    """Node -> epoch seconds up to which it has reported everything; None: all nodes up to now."""


@dataclass(frozen=True, slots=True)
class Voice:
    """The output and activity of one running rank until now."""

    rank: RankState
    since: float
    """Its last sign of life."""
    silent: float
    """Seconds since then in which its output would have arrived."""
    pace: float | None
    """Its usual pause between lines, in seconds; None if it has written too little."""
    looks: tuple[Activity, ...] = ()
    """What it did in the last minute; empty where that is not known now."""


def voices(job: Job, now: float, known: Known) -> list[Voice]:
    """The running ranks of a job, in order."""
    running = [rank for rank in job.ranks if rank.state is State.RUNNING]
    released = _released(known.looks[r.rank] for r in running if r.rank in known.looks)
    return [_voice(job, rank, now, known, released) for rank in running]


def _released(looks: Iterable[Sequence[Activity]]) -> float:
    """When a rank was last seen stopped: until then the others had nobody to talk to."""
    stops = (look.at for some in looks for look in some if look.state in STOPPED)
    return max(stops, default=0.0)


def _voice(job: Job, rank: RankState, now: float, known: Known, released: float) -> Voice:
    begun = rank.started or 0.0
    heard = max(rank.heard or begun, begun)
    until = _until(job, rank, now, known)
    since = max(heard, released)
    looks = tuple(known.looks.get(rank.rank, ()))
    fresh = bool(looks) and (until is None or until - looks[-1].at < STALE)
    says = rank.lines >= _FEW and rank.started is not None
    return Voice(
        rank=rank,
        since=since,
        silent=0.0 if until is None else max(until - since, 0.0),
        pace=(heard - begun) / rank.lines if says else None,
        looks=looks if fresh else (),
    )


def _until(job: Job, rank: RankState, now: float, known: Known) -> float | None:
    """Until when its output would have arrived; None: never. A broken link is not silence."""
    if known.told is None:
        return now
    told = known.told.get(job.plan.supervising_node(rank.node))
    return now if told is not None and now - told <= FRESH else told


def named(ranks: Sequence[RankState]) -> str:
    """`rank 2 on n1`, `ranks 2-3 on n[1-2]`."""
    by_node: Mapping[str, None] = dict.fromkeys(rank.node for rank in ranks)
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {fold_ranks(rank.rank for rank in ranks)} on {fold(by_node)}"


def numbers(some: Iterable[Voice]) -> tuple[int, ...]:
    """Their ranks."""
    return tuple(voice.rank.rank for voice in some)


def lasting(seconds: float) -> str:
    """A duration in words, in steps."""
    step = next(step for most, step in _STEPS if seconds < most)
    return text.duration(max(seconds - seconds % step, step))
