"""Job control of one open cluster: plans, starts, finds, attaches to and cancels jobs."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rankdeck.acceptance.store import AcceptanceRuns
from rankdeck.backends.base import Backend, SchedulerWord
from rankdeck.backends.launchers import place_job
from rankdeck.backends.plan_options import new_job_id
from rankdeck.backends.remote_log import Player, Ranges, RemoteLogs, as_replay, read_replay
from rankdeck.backends.ssh import ask_what_runs, complete_plan, inspect_job
from rankdeck.background import BackgroundTasks
from rankdeck.config.files import job_folders
from rankdeck.config.jobs import read_job
from rankdeck.errors import LaunchError, RankdeckError
from rankdeck.following import DISK_LIMIT, Following, wait_for_condition
from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.plan import Plan
from rankdeck.model.queue import LogRun
from rankdeck.preflight.findings import Finding, Step, TellFinding, no_step, tell_nobody
from rankdeck.remote.agent import Agents
from rankdeck.rules.inspect import Inspection
from rankdeck.schedulers.queue import Queue
from rankdeck.state.fleet import Fleet
from rankdeck.state.history_thread import HistoryThread
from rankdeck.state.job_recorder import JobRecorder
from rankdeck.state.jobs import Jobs
from rankdeck.state.launch_lock import is_launched, launch_of
from rankdeck.values import Value, replace

if TYPE_CHECKING:
    from rankdeck.images.bring import ImageDistributor
    from rankdeck.images.copy import TellLaunch
    from rankdeck.preflight.run import Tools
    from rankdeck.prometheus.site_past import SitePast

ASK_LIMIT, LOOK_LIMIT = 3.0, 20.0
"""Seconds that nodes have to report their jobs: while a person waits
for something else, and otherwise.
"""
FOUND = "found on its nodes: another console, or one whose history is gone, started it"
NOT_ASKED = "did not answer when the job was found: ranks of the job there are not shown"
LAUNCH_LIMIT = 120.0
"""Seconds that a cancel waits for another console that is starting the job."""


class JobParts(Value, kw_only=True):
    """What job control works with; all of it belongs to the same open cluster."""

    cluster: Cluster
    agents: Agents
    backend: Backend
    queue: Queue
    fleet: Fleet
    jobs: Jobs
    following: Following
    history: HistoryThread
    recorder: JobRecorder
    accepted: AcceptanceRuns
    background: BackgroundTasks
    images: "Callable[[], ImageDistributor]"
    site_past: "Callable[[], SitePast]"
    """These two are loaded by the first who calls them."""


class JobControl:
    """Everything that a person or a command does with jobs; the only caller of the backend that
    starts or ends any.
    """

    def __init__(self, parts: JobParts) -> None:
        self._cluster, self._agents, self._backend = parts.cluster, parts.agents, parts.backend
        self._queue, self._fleet, self._jobs = parts.queue, parts.fleet, parts.jobs
        self._images, self._following = parts.images, parts.following
        self._history, self._recorder = parts.history, parts.recorder
        self._accepted, self._background = parts.accepted, parts.background
        self._site_past = parts.site_past
        self._logs = RemoteLogs(parts.agents)

    # ---- before a job starts

    @cached_property
    def _tools(self) -> "Tools":
        # Loading the checks takes time, and most commands start no job.
        from rankdeck.preflight.run import Tools

        known = (self._fleet.healths, self._jobs.judge_nodes)
        return Tools(self._cluster, self._agents, self._backend, self._placed, *known)

    def job_files(self) -> tuple[Path, ...]:
        """Job files to choose from: those next to the cluster file, the user's, and the samples."""
        folders = job_folders(self._cluster.file)
        return tuple(path for folder in folders for path in sorted(folder.glob("*.yaml")))

    def read_job(self, path: Path) -> JobSpec:
        """Read a job file; raises ConfigError."""
        return read_job(path)

    def plan(self, spec: JobSpec, job: str = "") -> Plan:
        """Exactly what `launch` would do, with job id `job` or a new one; contacts no node.

        Raises LaunchError.
        """
        return self._plan(self._placed(spec), job)

    def _placed(self, spec: JobSpec) -> JobSpec:
        fleet = self._fleet
        return place_job(self._cluster, spec, self.find_excluded(), fleet.bad, fleet.busy)

    def _plan(self, spec: JobSpec, job: str = "") -> Plan:
        spec = self._tools.with_mpi(spec)
        plan = self._backend.plan(self._cluster, spec, job or new_job_id(spec.name))
        return replace(plan, spec=spec)

    def find_excluded(self) -> dict[str, str]:
        """Node -> why new jobs must not use it: the exclusions from acceptance runs."""
        found = self._accepted.exclusions(self._cluster.name, time.time())
        return {one.node: one.sentence for one in found}

    async def preflight(
        self, spec: JobSpec, tell: TellFinding = tell_nobody, step: Step = no_step
    ) -> tuple[Finding, ...]:
        """What would go wrong with this job now.

        `tell` is called with each finding, `step` with the progress.
        """
        from rankdeck.preflight.run import run_all_checks

        return await run_all_checks(self._tools, spec, tell, step)

    async def find_lacking(self, specs: Sequence[JobSpec]) -> dict[str, str]:
        """Job file -> what its nodes lack to run it, "" for nothing; see `preflight.doctor`."""
        from rankdeck.preflight.doctor import lacking_tools

        return await lacking_tools(self._tools, specs)

    async def check_plan(self, plan: Plan) -> SchedulerWord:
        """What the scheduler says of this plan now. Raises NodeError."""
        return await self._backend.check(plan)

    def export(self, spec: JobSpec) -> str:
        """The job as a shell script that needs no Rankdeck; raises LaunchError."""
        from rankdeck.backends.export import write_export

        return write_export(self.plan(spec), self._cluster)

    def why_not(self, need: str, what: JobSpec | str) -> str:
        """Why this user lacks the right to do `need`; "" if no reason is known.

        `need` is "launch" (`what`: a JobSpec), "follow" or "cancel" (`what`: a job id, or its place
        in the queue).
        """
        if isinstance(what, JobSpec):
            return self._queue.why_not(need, what.launch, None, "")
        known = self._jobs.job(what) if self._jobs.knows(what) else None
        return self._queue.why_not(need, None, known, what)

    def starting_often(self) -> AbstractAsyncContextManager[None]:
        """Inside this block, jobs start faster: a helper stays on each
        node and starts the next job there.
        """
        return self._agents.starting_often()

    # ---- start, find, attach

    async def launch(
        self, spec: JobSpec, tell: "TellLaunch" = lambda _: None, *, anywhere: bool = False
    ) -> str:
        """Start the job on its nodes and return its id. Raises
        LaunchError; then nothing is left running.

        With `anywhere`, excluded nodes are used too. The image is first copied to nodes that lack
        it. `tell` is called with the progress of the copy and, if the launch fails, with the reason
        before what had started is ended. The job is saved in the history before anything starts, so
        that no unknown job is left if the console is killed.
        """
        from rankdeck.preflight.run import find_mpi

        await find_mpi(self._tools, spec)
        plan = self._plan(spec) if anywhere else self.plan(spec)
        await self._queue.learn_rights()
        if why := self.why_not("launch", spec):
            raise LaunchError("start", why)
        if not self._backend.can.chooses_nodes:
            await self._images().bring(spec, [node.node for node in plan.nodes], tell)
        with launch_of(plan.job):
            self._keep(self._jobs.add(plan, time.time()))
            await self._start_on_nodes(plan, tell)
        self._following.follow(self._jobs.job(plan.job))
        return plan.job

    async def _start_on_nodes(self, plan: Plan, tell: "TellLaunch" = lambda _: None) -> None:
        async def failed_on(failed: str) -> None:
            self._jobs.note(plan.job, failed)
            self._keep(self._jobs.job(plan.job))
            await self._write_history()
            tell(f"{failed} · ending what was started …")

        why = "its launch was interrupted"
        try:
            await self._write_history()
            launched = await self._backend.launch(plan, failed_on)
            why = ""
        except RankdeckError as error:
            why = str(error)
            raise
        finally:
            if why:
                self._keep(self._jobs.refused(plan.job, why))
        if launched != plan:
            self._jobs.planned(launched)
            self._history.due.plans[launched.job] = launched

    async def find_running(
        self, limit: float = ASK_LIMIT, *, ended: bool = False
    ) -> dict[str, str]:
        """Find jobs on the nodes that are missing in the history, and follow
        them. With a scheduler: read its queue again.

        Returns node -> why it did not answer within `limit` seconds. With `ended`, jobs that are
        over are read back too. A job that was found while one of its nodes did not answer gets the
        ranks of that node now.
        """
        if self._backend.can.chooses_nodes:
            return await self._queue.refresh()
        names, cluster = [node.name for node in self._cluster.nodes], self._cluster.name
        found, silent = await ask_what_runs(self._agents, cluster, names, limit, ended=ended)
        kept = await self._history.ask(lambda history: set(filter(history.knows, found)))
        for plan, created in found.values():
            if not self._jobs.knows(plan.job) and plan.job not in kept:
                self._add_found(plan, created, silent)
            elif self._jobs.knows(plan.job):
                whole = complete_plan(self._jobs.job(plan.job).plan, plan)
                if whole is not None:
                    await self._following.stop(plan.job)
                    self._recorder.forget(plan.job)
                    self._add_found(whole, created, silent)
        return silent

    def _add_found(self, plan: Plan, created: float, silent: Collection[str]) -> None:
        self._jobs.add(plan, created)
        self._jobs.note(plan.job, FOUND)
        if silent:
            self._jobs.note(plan.job, f"{fold_nodes(silent)} {NOT_ASKED}")
        self._keep(self._jobs.job(plan.job))
        self._following.follow(self._jobs.job(plan.job))

    async def attach(self, text: str) -> str:
        """Follow a job of others (`pi`, `mpijob/pi`, a number in the queue) without changing it;
        returns its Rankdeck id. Raises UnknownJobError, and LaunchError if it cannot be followed.
        """
        if self._queue.is_number(text):  # those of one's own jobs are known once these were heard
            await self._following.caught_up()
        if followed := self._queue.find_followed(self._jobs.all(), text):
            return followed
        found = await self._queue.find_job(self._jobs.all(), text)
        self._keep(self._jobs.add(found.plan, found.created or time.time()))
        await self._start_on_nodes(found.plan)
        self._following.follow(self._jobs.job(found.plan.job))
        return found.plan.job

    def _keep(self, job: Job) -> None:
        self._recorder.save(job, time.time())

    async def _write_history(self) -> None:
        """Write what was noted; waits at most DISK_LIMIT seconds for a disk
        that hangs, which then goes on writing.
        """
        await asyncio.wait((self._background.start(self._recorder.write()),), timeout=DISK_LIMIT)

    # ---- look at a job

    async def inspect(self, job_id: str) -> Inspection:
        """What every rank of the job is doing now; asks all its nodes."""
        return await inspect_job(self._agents, self._jobs.job(job_id))

    def read_output(self, job_id: str, rank: int) -> Ranges:
        """A reader of a rank's output: reads and searches the log on its node, by byte offset."""
        return self._logs.of(self._jobs.job(job_id), rank)

    async def find_run(self, job_id: str, number: int) -> LogRun:
        """Which part of the output belongs to run `number` (from 0) of a
        requeued job; raises RankdeckError.
        """
        return await self._backend.find_run(self._jobs.job(job_id), number)

    async def report(
        self, job_id: str, path: Path, *, page: bool, full: bool = False
    ) -> Mapping[str, str]:
        """Write a report on the job to `path`, secrets masked; returns
        node -> why its part is missing.

        With `page`, one HTML page; else an archive (.tar.gz) with the last megabyte of each log, or
        with `full` the whole logs. Raises RankdeckError.
        """
        from rankdeck.reports.job import TAIL, report_source, write_page, write_report

        boxes = await self._following.learn_boxes(job_id)
        source = await report_source(
            self._jobs.job(job_id),
            self._history,
            self._fleet,
            self._site_past(),
            self._cluster.environment,
        )
        source = replace(source, boxes=boxes)
        if page:
            return (await write_page(self._backend, source, path)).missing
        return (await write_report(self._backend, source, path, None if full else TAIL)).missing

    async def replay(self, job_id: str, speed: float = 1.0, *, keep: bool = True) -> str:
        """Replay a job from what its nodes kept, or restart a replay. `speed` 2.0 is twice as fast.

        Returns the id of the replay. With `keep`, a finished job's
        replay is also saved in the history.
        """
        shown = as_replay(self._jobs.job(job_id))
        of = shown.plan.replay_of
        events = await self._history.ask(lambda history: history.events(of, shown.plan))
        player = Player(self._jobs, await read_replay(self._backend, shown, events), speed)
        if keep and shown.state.final:
            self._keep(shown)
        return self._following.play(shown.id, player)

    # ---- end a job

    async def cancel_tasks(
        self, job_id: str, tasks: Sequence[int], grace: float | None = None
    ) -> CancelReport:
        """End only these tasks of an array; otherwise like `cancel`. Raises RankdeckError."""
        job = self._jobs.job(job_id)
        return await self._backend.cancel_tasks(
            job, tasks, job.plan.grace if grace is None else grace
        )

    async def cancel(
        self, job_id: str, grace: float | None = None, *, by: str = "user"
    ) -> CancelReport:
        """End every process of the job on every node, and check that none is left.

        `grace` is the seconds between SIGTERM and SIGKILL; None takes the job's own. Raises
        UnknownJobError, and RankdeckError for a replay, or if this user may not cancel the job.
        """
        job = self._jobs.job(job_id)
        if job.plan.replay_of:
            raise RankdeckError(f"{job_id} is a replay: nothing of it runs")
        await self._queue.learn_rights()
        if why := self.why_not("cancel", job_id):
            raise RankdeckError(f"{job_id} cannot be cancelled from here: {why}")
        self._following.stop_counting(job_id)
        # A rank that starts on a node after the cancel ran there would be left behind.
        await wait_for_condition(lambda: not is_launched(job_id), LAUNCH_LIMIT)
        grace = job.plan.grace if grace is None else grace
        self._jobs.cancelling(job_id, time.time(), abort=by == "abort", grace=grace)
        report = await self._backend.cancel(job.plan, grace, by=by)
        if report.refused:
            self._jobs.not_cancelled(job_id)
            raise RankdeckError(f"{job_id} cannot be cancelled from here: {report.refused}")
        if job.state.final and not report.left and not report.unverified:
            report = replace(report, state=job.state)
        self._jobs.cancelled(job_id, report, time.time())
        self._recorder.save(self._jobs.job(job_id), time.time())
        # A node that could not be asked does not change how a job that is over ended.
        known = self._jobs.job(job_id).state
        return replace(report, state=known) if report.unverified and known.final else report
