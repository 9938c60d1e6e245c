"""One fault of a drill: its job, when the fault happened, who was named, and the proof that nothing
of it is left.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from shlex import join

from rankdeck.acceptance.measure import Ended, MeasureSession, ended_with_proof, measure_job
from rankdeck.drill.judge import Shown, judge_fault, launcher_named, named_in
from rankdeck.drill.programs import MARK
from rankdeck.drill.values import DrillFault, DrillPlan, DrillResult, DrillVerdict, Way
from rankdeck.model.job import Job
from rankdeck.model.safe_text import clean_line
from rankdeck.state.jobs import Jobs
from rankdeck_agent.wire import LAUNCHER

LOOK = 0.1
"""Seconds between two looks at what is shown."""
STANDS = 5.0
"""Seconds for which the same must be named: the answer may still change."""
START = 120.0
"""Seconds within which the ranks start and the fault happens."""
_MOST = 300
_MEND_LIMIT = 30.0
"""Seconds in which a program of the site must cut or mend a link."""


@dataclass(slots=True)
class FaultWatch:
    """What was shown of the job of a fault, look by look."""

    fault: DrillFault
    limit: float
    node: str = ""
    """The node of the victim."""
    at: float | None = None
    """When the fault happened, epoch seconds on the console's clock."""
    cannot: str = ""
    """Why it does not happen."""
    shown: list[Shown] = field(default_factory=list[Shown])
    launcher: str = ""
    """What the launcher had written, until the job is cancelled."""

    def look(self, job: Job, jobs: Jobs, now: float) -> None:
        """Take in what is shown now."""
        if self.at is None and not self.cannot:
            self._find_fault(job, jobs)
        if self.at is None:
            return
        named = named_in(job)
        if not self.shown or self.shown[-1][1] != named:
            self.shown.append((now, named))

    def _find_fault(self, job: Job, jobs: Jobs) -> None:
        """Look for the line in which a rank says that it goes wrong now, or why it cannot."""
        for rank in job.ranks:
            if rank.rank == self.fault.victim:
                self.node = rank.node
            for line in jobs.log(job.id, rank.rank).lines:
                what, _, more = line.text.partition(MARK + " ")[2].partition(" ")
                if what == "cannot":
                    self.cannot = self.cannot or clean_line(more, _MOST)
                elif what == "now" and rank.rank == self.fault.victim:
                    self.at = line.at + float(more)

    def is_decided(self, job: Job | None, now: float) -> bool:
        """Whether nothing more is waited for."""
        if self.cannot or job is None:
            return bool(self.cannot)
        if job.state.final:
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
    if fault.unplanted:
        return DrillResult(fault=fault, verdict=DrillVerdict.UNPLANTED, sentence=fault.unplanted)
    run = _Run(session, fault, plan, patience)
    async with asyncio.TaskGroup() as tasks:
        job = tasks.create_task(measure_job(session, fault.spec, run.rest, environment))
        look = tasks.create_task(run.watch())
        try:
            await asyncio.wait((job,))
        finally:
            look.cancel()
            await run.mend()
            job.cancel()
    return await run.result(job.result())


class _Run:
    """The job of one fault."""

    def __init__(
        self, session: MeasureSession, fault: DrillFault, plan: DrillPlan, patience: float
    ) -> None:
        self._session, self._fault, self._link = session, fault, plan.link
        self._patience = patience
        self._known = {job.id for job in session.jobs.all()}
        self._watch = FaultWatch(fault, plan.limit * patience)
        self._decided, self._cut = False, ""

    def rest(self) -> float:
        """Seconds that the job may run, as `measure_job` asks; 0 once all is known."""
        return 0.0 if self._decided else START * self._patience + self._watch.limit

    def _job(self) -> Job | None:
        part = self._fault.spec.part_of
        own = (one for one in self._session.jobs.all() if one.plan.part_of == part)
        return next((one for one in own if one.id not in self._known), None)

    async def watch(self) -> None:
        """Follow the job until all is known; cuts the link when its rank says that it is time."""
        while not self._decided:
            await asyncio.sleep(LOOK)
            job = self._job()
            if job is None:
                continue
            before, now = self._watch.at, time.time()
            self._watch.look(job, self._session.jobs, now)
            if before is None and self._watch.at is not None and self._fault.way is Way.CUT:
                await self._cut_link()
            self._watch.launcher = _launcher_text(self._session.jobs, job) or self._watch.launcher
            decided = self._watch.is_decided(job, now)
            if decided:
                await self.mend()
            self._decided = decided

    async def _cut_link(self) -> None:
        self._cut = self._watch.node
        if why := await run_link_program(self._link.cut, self._cut):
            self._watch.cannot = why
        self._watch.at = time.time()

    async def mend(self) -> None:
        """Mend the link that was cut, if one was."""
        node, self._cut = self._cut, ""
        if node and (why := await run_link_program(self._link.mend, node)):
            self._watch.cannot = f"{node} may still be cut off: {why}"

    async def result(self, ended: Ended) -> DrillResult:
        """Judge the run, and prove that nothing of it is left."""
        blank = DrillResult(
            fault=self._fault, verdict=DrillVerdict.UNPLANTED, job=ended.job,
            node=self._watch.node, left=ended.left,
        )  # fmt: skip
        if ended.refused or not ended.job:
            return replace(blank, sentence=clean_line(ended.refused or "it was not started", _MOST))
        job = self._session.jobs.job(ended.job)
        if not ended.hung:
            self._watch.look(job, self._session.jobs, time.time())
            self._watch.launcher = _launcher_text(self._session.jobs, job)
            blank = replace(blank, left=await ended_with_proof(self._session, ended.job))
        return self._judged(replace(blank, node=self._watch.node), job, ended)

    def _judged(self, blank: DrillResult, job: Job, ended: Ended) -> DrillResult:
        fault, watch = self._fault, self._watch
        if watch.cannot or watch.at is None:
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
