"""One fault of a drill: its job, when the fault happened, who was named, and the proof that nothing
of it is left.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import join

from rankdeck.acceptance.measure import Ended, MeasureSession
from rankdeck.acceptance.watched_job import run_watched_job
from rankdeck.drill.judge import Shown, judge_fault, launcher_named, named_in
from rankdeck.drill.programs import MARK
from rankdeck.drill.values import DrillFault, DrillPlan, DrillResult, DrillVerdict, Link, Way
from rankdeck.model.job import Job
from rankdeck.model.safe_text import clean_line
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER

STANDS = 5.0
"""Seconds for which the same must be named: the answer may still change."""
START = 120.0
"""Seconds within which the ranks start and the fault happens."""
_MOST = 300
_MEND_LIMIT = 30.0
"""Seconds in which a program of the site must cut or mend a link."""


@dataclass(slots=True)
class FaultWatch:
    """What is shown of the job of a fault, look by look; cuts a link when a rank says that it is
    time.
    """

    jobs: Jobs
    fault: DrillFault
    link: Link
    limit: float
    """Seconds after the fault within which somebody must be named."""
    node: str = ""
    """The node of the victim."""
    at: float | None = None
    """When the fault happened, epoch seconds on the console's clock."""
    cannot: str = ""
    """Why it does not happen."""
    shown: list[Shown] = field(default_factory=list[Shown])
    launcher: str = ""
    """What the launcher had written, until the job is cancelled."""
    _cut: str = ""
    """The node whose link is cut now."""

    async def look(self, job: Job, now: float) -> bool:
        """Take in what is shown now; returns whether nothing more is waited for."""
        before = self.at
        self.take_in(job, now)
        happened = before is None and self.at is not None
        # Nobody would mend a link that is cut after the end.
        if happened and self.fault.way is Way.CUT and not job.state.final:
            await self._cut_link()
        return self.is_decided(job, now)

    def take_in(self, job: Job, now: float) -> None:
        """Keep whom the job's page names at `now`, epoch seconds, once the fault has happened."""
        if self.at is None and not self.cannot:
            self._find_fault(job)
        if self.at is not None:
            named = named_in(job)
            if not self.shown or self.shown[-1][1] != named:
                self.shown.append((now, named))
        self.launcher = _launcher_text(self.jobs, job) or self.launcher

    async def _cut_link(self) -> None:
        self._cut = self.node
        if why := await run_link_program(self.link.cut, self._cut):
            self.cannot = why
        self.at = time.time()

    async def release(self) -> None:
        """Mend the link that was cut, if one was."""
        if self._cut and (why := await run_link_program(self.link.mend, self._cut)):
            self.cannot = f"{self._cut} may still be cut off: {why}"
        self._cut = ""

    def _find_fault(self, job: Job) -> None:
        """Look for the line in which a rank says that it goes wrong now, or why it cannot."""
        for rank in job.ranks:
            if rank.rank == self.fault.victim:
                self.node = rank.node
            for line in self.jobs.log(job.id, rank.rank).lines:
                what, _, more = line.text.partition(MARK + " ")[2].partition(" ")
                if what == "cannot":
                    self.cannot = self.cannot or clean_line(more, _MOST)
                elif what == "now" and rank.rank == self.fault.victim:
                    self.at = line.at + float(more)

    def is_decided(self, job: Job, now: float) -> bool:
        """Whether nothing more is waited for."""
        if self.cannot or job.state.final:
            return True
        if self.at is None:
            return False
        named = self.shown[-1][1] if self.shown else None
        stood = named is not None and named.settled and now >= self._stands_since + STANDS
        return stood or now > self.at + self.limit

    @property
    def _stands_since(self) -> float:
        """Since when the same are named."""
        since, last = self.shown[-1]
        for at, named in reversed(self.shown):
            if named is None or last is None or named.who != last.who:
                break
            since = at
        return since


async def run_fault(
    session: MeasureSession,
    plan: DrillPlan,
    fault: DrillFault,
    waits: tuple[float, Mapping[str, str]],
) -> DrillResult:
    """Plant a fault in a job of its own and judge what is shown.

    `waits` is (by how much longer than usual all waits are, environment of the cluster).

    Cancelled, it mends what was cut and cancels the job with proof first.
    """
    patience, environment = waits
    blank = DrillResult(fault=fault, verdict=DrillVerdict.UNPLANTED)
    if fault.unplanted:
        return replace(blank, sentence=fault.unplanted)
    watch = FaultWatch(session.jobs, fault, plan.link, plan.limit * patience)
    limit = START * patience + watch.limit
    ended = await run_watched_job(session, fault.spec, watch, limit, environment)
    blank = replace(blank, job=ended.job, node=watch.node, left=ended.left)
    if ended.refused or not ended.job:
        return replace(blank, sentence=clean_line(ended.refused or "it was not started", _MOST))
    if watch.cannot or watch.at is None:
        job = session.jobs.job(ended.job)
        return replace(blank, sentence=watch.cannot or _why_unplanted(job, ended))
    found = judge_fault(watch.shown, watch.at, (fault.way, fault.victim, watch.node))
    return replace(
        blank, verdict=found.verdict, named=found.named.who, seconds=found.seconds,
        before=found.before, sentence=clean_line(found.named.sentence, _MOST),
        sure=found.named.sure, launcher=launcher_named(watch.launcher),
    )  # fmt: skip


def _launcher_text(jobs: Jobs, job: Job) -> str:
    """What the launchers of all nodes have written so far."""
    logs = [jobs.log(job.id, LAUNCHER, node) for node in dict.fromkeys(("", *job.nodes))]
    return "\n".join(line.text for log in logs for line in log.lines)


def _why_unplanted(job: Job, ended: Ended) -> str:
    """Why the ranks never came to the fault."""
    if job.first_failure is not None:
        return f"the job ended before: {clean_line(job.first_failure.sentence, _MOST)}"
    return job.not_started or ended.hung or f"the job ended before: {job.state.value}"


async def run_link_program(words: Iterable[str], node: str) -> str:
    """Run a program of the site for this node; returns why it failed, "" if it did not."""
    argv: Sequence[str] = [word.replace("{node}", node) for word in words]
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=null, stderr=pipe)
    except OSError as error:
        return f"`{join(argv)}`: {error.strerror}"
    try:
        async with asyncio.timeout(_MEND_LIMIT):
            _, said = await process.communicate()
    except TimeoutError:
        return f"`{join(argv)}` took longer than {_MEND_LIMIT:.0f} s"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    words_of_it = clean_line(said.decode("utf-8", "replace"), 100)
    return (
        f"`{join(argv)}`: exit {process.returncode} {words_of_it}".rstrip()
        if process.returncode
        else ""
    )
