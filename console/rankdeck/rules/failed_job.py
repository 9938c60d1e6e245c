"""A job that may have failed: all its ends, and what each of them means. No I/O."""

from collections.abc import Mapping, Sequence
from signal import SIGKILL, SIGPIPE

from msgspec import field

from rankdeck.model.rank import signal_of
from rankdeck.model.stall import Stall
from rankdeck.rules.ends import (
    ASKED,
    LAUNCHER_ENDINGS,
    End,
    LauncherEnding,
    Meaning,
    Role,
    abort_meaning,
    aborted_ranks,
    exception_of,
    keep_own_lines,
    meaning_of,
    raised_and_waited,
    telling_words,
)
from rankdeck.rules.message_table import MessageKind
from rankdeck.rules.messages import (
    first_by_launcher,
    kinds_of,
    missing_ranks,
    named_peers,
    named_ranks,
    rank_without_heartbeat,
    ranks_out_of_memory,
    ready_ranks,
)
from rankdeck.values import Value
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict

_TOLD = ASKED | {SIGPIPE}
WINDOW = 1.0
"""Two ends within this many seconds may be recorded in the wrong order: on a busy
node a shim records the end of its rank late.
"""


class FailedJob(Value, kw_only=True):
    """All that is known about a job that may have failed."""

    ends: tuple[End, ...]
    """Every rank, including ranks that still run."""
    launchers: tuple[End, ...] = ()
    """mpirun, torchrun and MPI daemons on all nodes that have failed."""
    lost: tuple[End, ...] = ()
    """Nodes that stopped answering; `at` is when they were last heard."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Address or host name -> node."""
    ending: LauncherEnding = LAUNCHER_ENDINGS[""]
    """How the launcher of this job ends ranks."""
    scheduler: SchedulerVerdict | None = None
    """What the scheduler says about its end; None if there is no
    scheduler, or it has not said it.
    """
    held_up: Stall | None = None
    """Who was accused of holding up the others when the first rank failed; None if nobody was."""


class View(Value):
    """The job with the meaning of every end in it."""

    job: FailedJob
    first: float
    """When something in the job first failed, epoch seconds; 0.0 if nothing did."""
    ranks: tuple[Meaning, ...]
    launchers: tuple[Meaning, ...]
    lost: tuple[Meaning, ...]
    named: frozenset[int]
    """Ranks that a launcher says failed first."""
    faulty: frozenset[int]
    """Those of them of which it says more than that they were killed."""
    aborted: frozenset[int]
    """Ranks that called MPI_Abort."""

    def of(self, *roles: Role) -> list[Meaning]:
        """Ranks in these roles, in the order of their ends."""
        return sorted((m for m in self.ranks if m.role in roles), key=end_time)

    def ranks_of(self, meaning: Meaning) -> frozenset[int]:
        """The ranks that its last lines name, else those that it said before did not come; who
        names every rank names nobody. The report of a torchrun that ran as this rank counts its
        own processes.
        """
        lines = tuple(line for line in keep_own_lines(meaning.end) if "(local_rank: " not in line)
        found = (rank for line in telling_words(lines) for rank in named_ranks(line))
        every = frozenset(end.rank for end in self.job.ends if end.rank is not None)
        ready = ready_ranks(lines)
        named = frozenset(found) or missing_ranks(lines) or (every - ready if ready else ready)
        return frozenset() if named >= every else named

    def peers_of(self, meaning: Meaning) -> frozenset[str]:
        """The nodes that its last lines name as the peer; NCCL says it before the exception."""
        lines = keep_own_lines(meaning.end)
        lost = tuple(line for kind, line in kinds_of(lines) if kind == MessageKind.PEER)
        found = _peers_in(telling_words(lines)) or _peers_in(lost)
        return frozenset(self.job.names[n] for n in found if n in self.job.names)


def _peers_in(lines: Sequence[str]) -> list[str]:
    return [name for line in lines for name in named_peers(line)]


class CauseChoice(Value):
    """The chosen cause, with sentences that say why; `tied` are ends
    that may have been first instead.
    """

    chosen: Meaning
    evidence: tuple[str, ...] = ()
    tied: tuple[Meaning, ...] = ()


def view_of(job: FailedJob) -> View:
    """The job with the meaning of every end in it."""
    failed = [e.at for e in (*job.ends, *job.launchers) if e.at and e.failed]
    first = min(failed, default=0.0)

    aborted = _aborted(job)

    def read(end: End) -> Meaning:
        called = end.rank in aborted and end.failed_unstopped
        return abort_meaning(end) if called else meaning_of(end, job.ending, first)

    killed = _why_killed(job)
    silent = {rank for rank, (role, _) in killed.items() if role is Role.TIMEOUT}
    named = _named_by_launchers(job, killed=True) - silent

    def heard(m: Meaning) -> Meaning:
        """The meaning of the end of a rank, with what launchers and others say of it."""
        if not m.end.failed_unstopped:
            return m
        if m.end.rank in killed and m.role > Role.CAUSE:
            return Meaning(m.end, *killed[m.end.rank])
        if taken := _launcher_that_took(m, job.launchers):
            return Meaning(m.end, Role.TERMINATED, f"it ended with {taken.name}, which was gone")
        # Who is told to end before a launcher can have done it, or where
        # no launcher does that, is told from outside.
        from_outside = m in outside or job.ending.kill_after == float("inf")
        if was_told_to_end(m) and (from_outside or m.end.rank in named):
            return Meaning(m.end, Role.LIKELY, f"{m.why}, not by Rankdeck", told=True)
        return m

    own = tuple(map(read, job.ends))
    outside = _told_from_outside(own, first)
    ranks = tuple(map(heard, own))
    if not job.lost and all(m.role > Role.LIKELY for m in ranks):
        ranks = tuple(_who_raised_before(m, first) for m in ranks)
    return View(
        job,
        first,
        ranks,
        tuple(map(read, job.launchers)),
        tuple(map(read, job.lost)),
        named,
        _named_by_launchers(job, killed=False) - silent,
        aborted,
    )


def _launcher_that_took(meaning: Meaning, launchers: Sequence[End]) -> End | None:
    """The launcher or supervisor of its node with which a rank ended that does not say why: it was
    killed, and nobody read the rank's output any more.
    """
    end = meaning.end
    if meaning.role is not Role.LIKELY or end.code is None or end.at is None:
        return None
    if exception_of(telling_words(keep_own_lines(end))):
        return None
    here = (one for one in launchers if one.node == end.node and one.killed)
    return next((one for one in here if abs(end.at - (one.at or 0.0)) <= WINDOW), None)


def _who_raised_before(meaning: Meaning, first: float) -> Meaning:
    """Where no rank ended by itself: one that raised an exception and waited until it was ended."""
    ended = meaning.role in (Role.TERMINATED, Role.KILLED) and not meaning.end.stopped
    return (raised_and_waited(meaning.end, first) if ended else None) or meaning


def _named_by_launchers(job: FailedJob, *, killed: bool) -> frozenset[int]:
    ranks = (first_by_launcher(one.lines, killed=killed) for one in job.launchers)
    return frozenset(rank for some in ranks for rank in some)


def _why_killed(job: FailedJob) -> Mapping[int | None, tuple[Role, str]]:
    """What launchers say of ranks that SIGKILL ended, if the kernel does not say why.

    One that sent no heartbeat may have waited for another one, which is silent too.
    """
    name = job.ending.name or "its launcher"
    killed = {e.rank for e in job.ends if signal_of(e.code, e.signal) == SIGKILL and not e.kernel}
    lines = [line for one in job.launchers for line in one.lines]
    silent = {rank_without_heartbeat(line) for line in lines}
    memory = {rank for line in lines for rank in ranks_out_of_memory(line)}
    return {
        **dict.fromkeys(silent & killed, (Role.TIMEOUT, f"{name} killed it: it sent no heartbeat")),
        **dict.fromkeys(memory & killed, (Role.CAUSE, f"{name} says that it was out of memory")),
    }


def _aborted(job: FailedJob) -> frozenset[int]:
    """The ranks that called MPI_Abort: a launcher may say it of any, a rank only of itself."""
    by_launchers = {rank for one in job.launchers for rank in aborted_ranks(one.lines)}
    themselves = {e.rank for e in job.ends if e.rank in aborted_ranks(keep_own_lines(e))}
    return frozenset((by_launchers | themselves) - {None})


AT_ONCE = 0.05
"""Seconds within which no launcher has told the other ranks to end."""


def _told_from_outside(ranks: Sequence[Meaning], first: float) -> list[Meaning]:
    """The ranks that were told to end before anything else failed, with those that were told in
    the same moment.
    """
    told = [m for m in ranks if was_told_to_end(m) and m.end.at is not None]
    if not any(m.end.at == first for m in told):
        return []
    return [m for m in told if end_time(m) <= first + AT_ONCE]


def was_told_to_end(meaning: Meaning) -> bool:
    """Whether a signal ended it that asks a program to end, or SIGPIPE; or it says so."""
    return meaning.role is Role.TERMINATED or meaning.told or meaning.end.signal in _TOLD


def was_killed(meaning: Meaning) -> bool:
    """Whether SIGKILL ended it, or its end was not seen, and nothing else is known of it."""
    number = signal_of(meaning.end.code, meaning.end.signal)
    return meaning.role is Role.KILLED or (meaning.role is not Role.CAUSE and number == SIGKILL)


def end_time(meaning: Meaning) -> float:
    """Epoch seconds of its end; infinite if it has not ended."""
    return meaning.end.at if meaning.end.at is not None else float("inf")


def failure_start(meaning: Meaning) -> float:
    """When it first showed that it fails, epoch seconds; infinite if it has not ended."""
    at = meaning.began
    return at if at is not None else float("inf")


def name_of(end: End) -> str:
    """`rank 3`, `mpirun`, `n2`."""
    return f"rank {end.rank}" if end.what == "rank" else end.name or end.node


def ranks_in_words(count: int) -> str:
    """`1 rank`, `2 ranks`."""
    return "1 rank" if count == 1 else f"{count} ranks"


def ranks_name(count: int, where: str = "") -> str:
    """`1 rank on other nodes names`, `2 ranks name`."""
    return f"{ranks_in_words(count)}{where} {'names' if count == 1 else 'name'}"
