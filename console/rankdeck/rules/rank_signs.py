"""The signs of life of each running rank: its silence, and what its process did. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import field

from rankdeck.model.job import Job, RankState
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.rank import Activity, State
from rankdeck.values import Value
from rankdeck_agent.rules.units import write_duration

QUIET = 30.0
"""Silence of up to this many seconds is never a stall."""
FRESH = 6.0
"""A rank can only count as silent for this many seconds after its
node's last frame; frames come every 2 s.
"""
STALE = 20.0
"""A look older than this many seconds is not used."""
STOPPED = frozenset("Tt")
_FEW = 5
"""A rank's usual pause is known once it has written this many lines."""
_STEPS = ((120.0, 10.0), (600.0, 30.0), (float("inf"), 60.0))
"""Pairs (longest duration, step) in seconds, to round durations in texts."""

OfNode = Callable[[str], bool | None]
"""Node -> whether something is so; None if not known."""


def _unknown(_: str) -> None:
    return None


def _no_words(_: int) -> Sequence[str]:
    return ()


class KnownOfJob(Value, kw_only=True):
    """What is known in addition to the job itself, to judge stalls; by default nothing."""

    idle: OfNode = _unknown
    """Whether a node is idle according to telemetry; used if there are no looks."""
    gpus: OfNode = _unknown
    """Whether the GPUs of a node are busy; None if it has none, or if that is not known."""
    clock: Callable[[str], float | None] = _unknown
    """The mean clock of a node's cores in Hz."""
    launcher: Sequence[str] = ()
    """The last lines of the launcher."""
    words: Callable[[int], Sequence[str]] = _no_words
    """The last lines of a rank, as far as they were fetched."""
    looks: Mapping[int, Sequence[Activity]] = field(default_factory=dict[int, Sequence[Activity]])
    """Rank -> what it did in the last minute, oldest first."""
    reported: Mapping[str, float] | None = None
    """Node -> epoch seconds up to which it has reported everything; None: all nodes up to now."""
    patience: float = 1.0
    """How many times longer than usual an agent may take (`patience:` of the cluster file)."""


class RankSigns(Value):
    """The output and activity of one running rank until now."""

    rank: RankState
    since: float
    """Epoch seconds of its last sign of life."""
    silent: float
    """Seconds of silence since then, not counting time in which
    its output could not have arrived.
    """
    pace: float | None
    """Its usual pause between lines, in seconds; None if it has written too little."""
    talks: float = float("inf")
    """Seconds since its last long pause ended."""
    looks: tuple[Activity, ...] = ()
    """What it did in the last minute; empty if that is not known now."""


def signs_of(job: Job, now: float, known: KnownOfJob) -> list[RankSigns]:
    """The signs of the running ranks of a job, in rank order; `now` is epoch seconds."""
    running = [rank for rank in job.ranks if rank.state is State.RUNNING]
    released = _released(known.looks[r.rank] for r in running if r.rank in known.looks)
    return [_signs(job, rank, now, known, released) for rank in running]


def _released(looks: Iterable[Sequence[Activity]]) -> float:
    """When a rank was last seen stopped: until then the others may have waited for it."""
    stops = (look.at for some in looks for look in some if look.state in STOPPED)
    return max(stops, default=0.0)


def _signs(job: Job, rank: RankState, now: float, known: KnownOfJob, released: float) -> RankSigns:
    begun = rank.started or 0.0
    latest = max(rank.heard or begun, begun)
    until = _until(job, rank, now, known.reported)
    since = max(latest, released)
    looks = tuple(known.looks.get(rank.rank, ()))
    fresh = bool(looks) and (until is None or until - looks[-1].at < STALE)
    talks = rank.lines >= _FEW and rank.started is not None
    return RankSigns(
        rank=rank,
        since=since,
        silent=0.0 if until is None else max(until - since, 0.0),
        pace=(latest - begun) / rank.lines if talks else None,
        talks=float("inf") if rank.resumed is None else now - rank.resumed,
        looks=looks if fresh else (),
    )


def _until(
    job: Job, rank: RankState, now: float, reported: Mapping[str, float] | None
) -> float | None:
    """Epoch seconds up to which its output has arrived; None: unknown.

    A broken link is not silence.
    """
    if reported is None:
        return now
    latest = reported.get(job.plan.supervising_node(rank.node))
    return now if latest is not None and now - latest <= FRESH else latest


def quiet_for(job: Job, rank: RankState, now: float, reported: Mapping[str, float] | None) -> float:
    """Seconds since the last output of a running rank, up to its node's last
    report; `reported` as in `KnownOfJob`.
    """
    since = rank.heard if rank.heard is not None else rank.started
    until = _until(job, rank, now, reported)
    return 0.0 if since is None or until is None else max(until - since, 0.0)


def name_ranks(ranks: Sequence[RankState]) -> str:
    """`rank 2 on n1`, `ranks 2-3 on n[1-2]`."""
    by_node: Mapping[str, None] = dict.fromkeys(rank.node for rank in ranks)
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {fold_ranks(rank.rank for rank in ranks)} on {fold_nodes(by_node)}"


def rank_numbers(some: Iterable[RankSigns]) -> tuple[int, ...]:
    """The numbers of these ranks."""
    return tuple(sign.rank.rank for sign in some)


def lasting_words(seconds: float) -> str:
    """A duration in words, rounded down to 10 s, 30 s or 60 s."""
    step = next(step for most, step in _STEPS if seconds < most)
    return write_duration(max(seconds - seconds % step, step))
