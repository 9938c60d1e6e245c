"""Who should be heard and is not: ranks that fell silent, ranks that never began. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rankdeck.model.insight import Stall
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.nodeset import fold, fold_ranks
from rankdeck.model.units import duration
from rankdeck.rules.decode import explain

QUIET = 30.0
"""Seconds of silence that are never a stall."""
UNSURE = 60.0
"""The same for all ranks at once, where it is not known whether CPUs and GPUs are idle."""
BUSY = 300.0
"""The same where they are busy, by the job or by somebody else, and all ranks fell silent together: a long
phase is as likely. Where a few did before the rest, these wait for them, spinning: then UNSURE holds."""
SPEECHLESS = 120.0
"""Silence of a job that never wrote anything and leaves its nodes idle."""
START = 60.0
"""Seconds that ranks may take to begin."""
PACES = 10.0
"""Times its own usual pause that a rank may be silent."""
_FEW = 5
"""Lines from which on a rank has a usual pause."""
_IDLE_CORES = 0.3
"""Cores per rank below which a node does not compute."""
_IDLE_GPU = 10.0

Idle = Callable[[str], bool | None]
"""Whether a node computes nothing; None where that is not known."""


def is_idle(
    ranks: int, cpu_used: float | None, cores: float | None, gpus: Sequence[float]
) -> bool | None:
    """Whether a node with so many ranks computes nothing, by its telemetry."""
    if cpu_used is None or cores is None:
        return None
    if any(used >= _IDLE_GPU for used in gpus):
        return False
    return cpu_used / 100 * cores < _IDLE_CORES * max(ranks, 1)


@dataclass(frozen=True, slots=True)
class _Voice:
    """How one running rank was heard until now."""

    rank: RankState
    since: float
    """Its last sign of life."""
    pace: float | None
    """Its usual pause; None where it has said too little."""

    def silent(self, now: float) -> float:
        return max(now - self.since, 0.0)

    def is_late(self, now: float) -> bool:
        return self.silent(now) > max(QUIET, PACES * (self.pace or 0.0))


def stalls(
    job: Job, now: float, idle: Idle, launcher: Sequence[str] = ()
) -> tuple[Stall, ...]:
    """What is odd about the silence of this job's ranks; nothing for one that has ended."""
    if job.state.final or job.first_failure is not None or job.clock is not None:
        return ()
    pending = [rank for rank in job.ranks if rank.state is State.PENDING]
    voices = [_voice(rank) for rank in job.ranks if rank.state is State.RUNNING]
    found = [
        _not_begun(job, pending, now, launcher),
        _all_silent(voices, now, idle) or _some_silent(voices, now),
    ]
    return tuple(stall for stall in found if stall is not None)


def _voice(rank: RankState) -> _Voice:
    begun = rank.started or 0.0
    since = max(rank.heard or begun, begun)
    spoke = since - begun
    pace = (
        spoke / rank.lines if rank.lines >= _FEW and rank.started is not None else None
    )
    return _Voice(rank, since, pace)


def _not_begun(
    job: Job, pending: list[RankState], now: float, launcher: Sequence[str]
) -> Stall | None:
    if not pending or now - job.created < START:
        return None
    ranks = tuple(rank.rank for rank in pending)
    everybody = len(pending) == len(job.ranks)
    who = "no rank has" if everybody else f"{_named(pending)} {_have(pending)} not"
    last = next((line for line in reversed(launcher) if line.strip()), "")
    said = f"; the launcher's last line: {last.strip()}" if last else ""
    return Stall(
        kind="start",
        ranks=ranks,
        since=job.created,
        text=f"{who} begun after {duration(now - job.created)}{said}",
        explained=explain(launcher),
    )


def _some_silent(voices: Sequence[_Voice], now: float) -> Stall | None:
    """A minority that fell silent: where most are silent, only some were meant to speak."""
    speakers = [voice for voice in voices if voice.pace is not None]
    late = [voice for voice in speakers if voice.is_late(now)]
    if not late or 2 * len(late) >= len(speakers):
        return None
    since = min(voice.since for voice in late)
    ranks = [voice.rank for voice in late]
    return Stall(
        kind="rank",
        ranks=tuple(rank.rank for rank in ranks),
        since=since,
        text=f"{_named(ranks)} silent for {duration(now - since)} while {len(speakers) - len(late)} others go on",
        first=_first(late),
    )


def _all_silent(voices: Sequence[_Voice], now: float, idle: Idle) -> Stall | None:
    if not voices:
        return None
    resting = _resting(voices, idle)
    silent = min(voice.silent(now) for voice in voices)
    spoke = [voice for voice in voices if voice.pace is not None]
    first = _first(voices)
    patience = _patience(resting, first)
    limit = patience if spoke else (SPEECHLESS if resting else float("inf"))
    if silent <= limit or not all(voice.is_late(now) for voice in voices):
        return None
    began = (
        f"; {_named([v.rank for v in voices if v.rank.rank in first])} fell silent first"
        if first
        else ""
    )
    load = {True: "CPUs and GPUs are idle", False: "the nodes are busy", None: ""}
    why = f", {load[resting]}" if load[resting] else ""
    return Stall(
        kind="all",
        ranks=tuple(voice.rank.rank for voice in voices),
        since=min(voice.since for voice in voices),
        text=f"all {len(voices)} ranks silent for {duration(silent)}{why}{began}",
        first=first,
    )


def _patience(resting: bool | None, first: Sequence[int]) -> float:
    return {True: QUIET, None: UNSURE, False: UNSURE if first else BUSY}[resting]


def _resting(voices: Sequence[_Voice], idle: Idle) -> bool | None:
    """True where all nodes are known to be idle, False where one is busy."""
    known = {idle(node) for node in {voice.rank.node for voice in voices}}
    if False in known:
        return False
    return None if None in known else True


def _first(voices: Sequence[_Voice]) -> tuple[int, ...]:
    """The minority that fell silent at least a pause before the rest."""
    ordered = sorted(voices, key=lambda voice: voice.since)
    usual = median(voice.pace or 0.0 for voice in voices)
    for count in range(1, (len(ordered) + 1) // 2):
        gap = ordered[count].since - ordered[count - 1].since
        if gap > max(usual, 0.25):
            return tuple(sorted(voice.rank.rank for voice in ordered[:count]))
    return ()


def _have(ranks: Sequence[RankState]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _named(ranks: Sequence[RankState]) -> str:
    """`rank 2 on n1`, `ranks 2-3 on n[1-2]`."""
    by_node: Mapping[str, None] = dict.fromkeys(rank.node for rank in ranks)
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {fold_ranks(rank.rank for rank in ranks)} on {fold(by_node)}"
