"""The session of one open cluster: its state, its background tasks, and all a front end may ask."""

import asyncio
import logging
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from rankdeck import plugins
from rankdeck.backends.base import Backend
from rankdeck.backends.export import export
from rankdeck.backends.inspect import ask_what_runs, inspect_job
from rankdeck.backends.kubernetes import attach_id, attach_plan
from rankdeck.backends.plans import new_job_id, render
from rankdeck.backends.recording import Recording, play, read_replay
from rankdeck.backends.remote_log import LogReader, Ranges
from rankdeck.config.jobs import read_job
from rankdeck.config.paths import job_folders, state_folder
from rankdeck.errors import (
    BrokerError,
    HostKeyError,
    LaunchError,
    NodeError,
    RankdeckError,
    UnknownJobError,
)
from rankdeck.following import BACKLOG, Following, until
from rankdeck.images.bring import ImageDistributor
from rankdeck.images.copy import Tell as TellCopy
from rankdeck.model.cluster import Cluster
from rankdeck.model.health import Ack
from rankdeck.model.job import CancelReport, Job, JobSpec, Launch, Plan
from rankdeck.model.kubernetes import ClusterAbout, KubernetesJob
from rankdeck.preflight.doctor import examine
from rankdeck.preflight.findings import Finding
from rankdeck.preflight.run import Tools, preflight
from rankdeck.remote.agent import Agents, Installer
from rankdeck.remote.local import WithThisMachine, control_host
from rankdeck.remote.login import Questions
from rankdeck.remote.shell import Shell
from rankdeck.remote.ssh import Connections
from rankdeck.reports.archive import TAIL, ReportSource, write_page, write_report
from rankdeck.rules.inspect import Inspection
from rankdeck.state.fleet import Fleet, Switches
from rankdeck.state.history import History
from rankdeck.state.job_recorder import JobRecorder, node_health
from rankdeck.state.jobs import Jobs
from rankdeck.state.kubernetes import KubernetesState
from rankdeck.state.launch_lock import is_launched, launch_of
from rankdeck.state.messages import Messages
from rankdeck.state.node_notes import NodeNotes
from rankdeck.telemetry.gnmi import collect
from rankdeck.telemetry.kubernetes import ClusterClient
from rankdeck.telemetry.link import Link, Telemetry, open_link

log = logging.getLogger(__name__)
SAVE_PERIOD = 1.0
ASK_LIMIT, LOOK_LIMIT = 3.0, 20.0
"""Seconds in which nodes must say what runs on them: while a person waits, and in the background."""
FOUND = "found on its nodes: another console, or one whose history is gone, started it"
LAUNCH_LIMIT = 120.0
"""Seconds that a cancel waits for another console that is starting the job."""
HEAR_AFTER = 1.0
"""Seconds after which a command that shows a job listens to its nodes too."""

Confirm = Callable[[HostKeyError], Awaitable[bool]]


class Session:
    """The owner of all state and tasks of one open cluster; made by `open_session`."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        questions: Questions,
        connections: Shell,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.cluster = cluster
        self.questions = questions
        self.fleet = Fleet(cluster)
        self.jobs = Jobs()
        self.switches = Switches(cluster)
        self.kubernetes = KubernetesState()
        self.messages = Messages()
        self._connections = connections
        self._agents = agents = Agents(connections, cluster.access.python)
        self.images = ImageDistributor(agents)
        self._backend: Backend = plugins.find("backends", cluster.backend)(agents)
        self._cluster_client = ClusterClient(agents, cluster)
        self._log_reader = LogReader(agents)
        self._history = history
        self._recorder = JobRecorder(history, self.fleet, cluster.name)
        self._nodes_log = history.nodes_of(cluster.name)
        self._node_notes = NodeNotes(self.jobs, self.fleet, self._nodes_log)
        self._tasks = tasks
        self.following = Following(
            self.jobs, self.fleet, self._recorder, self._backend, self._start
        )
        self._background: list[asyncio.Task[None]] = []
        self._listens = False
        """Whether telemetry of the nodes is being received."""
        self._judges = False
        """Whether this session, not a screen, calls `Fleet.take_changes`."""

    # ---- jobs

    def job_files(self) -> tuple[Path, ...]:
        """Job files to choose from: those next to the cluster file, the user's, and the samples."""
        folders = job_folders(self.cluster.file)
        return tuple(path for folder in folders for path in sorted(folder.glob("*.yaml")))

    def read_job(self, path: Path) -> JobSpec:
        """The job in this file; raises ConfigError."""
        return read_job(path)

    def plan(self, spec: JobSpec, job: str = "") -> Plan:
        """Exactly what a launch would do, under this job id or a new one; asks no node. Raises LaunchError."""
        plan = self._backend.plan(self.cluster, spec, job or new_job_id(spec.name))
        return replace(plan, spec=spec)

    def render(self, plan: Plan) -> str:
        return render(plan)

    async def preflight(
        self, spec: JobSpec, tell: Callable[[Finding], None] = lambda _: None
    ) -> tuple[Finding, ...]:
        """What would go wrong with this job now; `tell` is called with each finding as it is made."""
        health = {
            node.name: node.health for node in self.fleet.nodes() if node.heard_s() is not None
        }
        means = Tools(
            cluster=self.cluster,
            agents=self._agents,
            backend=self._backend,
            health=health,
        )
        return await preflight(means, spec, tell)

    async def doctor(self, tell: Callable[[Finding], None] = lambda _: None) -> tuple[Finding, ...]:
        """What the nodes lack, whatever job will run; `tell` is called with each finding."""
        return await examine(self.cluster, self._agents, tell)

    async def check(self, plan: Plan) -> str:
        """Why the scheduler would refuse this plan now; "" where it would take it. Raises NodeError."""
        return await self._backend.check(plan)

    def export(self, spec: JobSpec) -> str:
        """The job as a shell script that needs no Rankdeck; raises LaunchError."""
        return export(self.plan(spec), self.cluster)

    async def launch(self, spec: JobSpec, tell: TellCopy = lambda _: None) -> str:
        """Start the job on its nodes and return its id; raises LaunchError and leaves nothing running.

        Nodes that lack its image get it first; `tell` is called with the progress of the copy. The
        job is written to the history before anything starts, so that a console that is killed
        leaves no unknown job behind.
        """
        plan = self.plan(spec)
        starts = "mpi" if spec.launch is Launch.MPI else "launch"
        if why := self.kubernetes.refused(starts, "follow"):
            raise LaunchError("start", why)
        if not self._backend.chooses_nodes:
            await self.images.bring(spec, [node.node for node in plan.nodes], tell)
        with launch_of(plan.job):
            self._keep(self.jobs.add(plan, time.time()))
            await self._start_on_nodes(plan)
        self.following.follow(self.jobs.job(plan.job))
        return plan.job

    async def _start_on_nodes(self, plan: Plan) -> None:
        why = "its launch was interrupted"
        try:
            launched = await self._backend.launch(plan)
            why = ""
        except RankdeckError as error:
            why = str(error)
            raise
        finally:
            if why:
                self._keep(self.jobs.refused(plan.job, why))
        if launched != plan:
            self.jobs.planned(launched)
            self._history.plan(launched)

    async def find_running(self, limit: float = ASK_LIMIT) -> dict[str, str]:
        """Follow jobs that run on the nodes and that the history does not know.

        Returns node -> why it did not answer within `limit` seconds.
        """
        if self.cluster.backend == "kubernetes":
            return await self._list_kubernetes()
        if self._backend.chooses_nodes:
            return {}
        names = [node.name for node in self.cluster.nodes]
        found, silent = await ask_what_runs(self._agents, self.cluster.name, names, limit)
        for plan, created in found.values():
            if not self.jobs.knows(plan.job) and not self._history.knows(plan.job):
                self.jobs.add(plan, created)
                self.jobs.note(plan.job, FOUND)
                self._keep(self.jobs.job(plan.job))
                self.following.follow(self.jobs.job(plan.job))
        return silent

    async def _list_kubernetes(self) -> dict[str, str]:
        """Learn what jobs the API server has; host -> why it did not tell."""
        host = control_host(self.cluster)
        try:
            await self._cluster_client.list(self.kubernetes)
        except NodeError as error:
            return {host: error.why}
        trouble = self.kubernetes.trouble or self.kubernetes.refused("follow")
        return {host: trouble} if trouble else {}

    def others(self) -> tuple[KubernetesJob, ...]:
        """Jobs on Kubernetes that this console does not follow, newest first: of others, or of other consoles."""
        known = {job.id for job in self.jobs.all()}
        return tuple(one for one in self.kubernetes.jobs(known) if attach_id(one) not in known)

    async def attach(self, text: str) -> str:
        """Follow the job of others that is called so (`pi` or `mpijob/pi`) from now on; returns our id of it.

        Nothing of it is changed. Raises UnknownJobError, and LaunchError where it cannot be followed.
        """
        found = [
            one for one in self.others() if text in (one.place, one.name, one.ours, attach_id(one))
        ]
        if len(found) != 1:
            places = ", ".join(one.place for one in found[:5])
            why = (
                f"`{text[:60]}` is more than one job: {places}"
                if found
                else f"no job `{text[:60]}`"
            )
            raise UnknownJobError(why)
        plan = attach_plan(self.cluster, found[0])
        self._keep(self.jobs.add(plan, found[0].created or time.time()))
        await self._start_on_nodes(plan)
        self.following.follow(self.jobs.job(plan.job))
        return plan.job

    async def about_kubernetes(self) -> ClusterAbout:
        """Versions, kinds of jobs and rights, asked now; raises NodeError."""
        return await self._cluster_client.check()

    async def kubectl_apply(self, text: str) -> str:
        """Give these YAML documents to Kubernetes; what kubectl says. Raises NodeError."""
        return await self._cluster_client.apply(text)

    async def _find_in_background(self) -> None:
        await self.find_running(LOOK_LIMIT)

    def _keep(self, job: Job) -> None:
        self._recorder.save(job, time.time())

    async def cancel(
        self, job_id: str, grace: float | None = None, *, by: str = "user"
    ) -> CancelReport:
        """End every process of the job on every node, and check that none is left.

        `grace` is the seconds between SIGTERM and SIGKILL; None takes the job's own. Raises
        UnknownJobError, and RankdeckError for a replay.
        """
        job = self.jobs.job(job_id)
        if job.clock is not None:
            raise RankdeckError(f"{job_id} is a replay: nothing of it runs")
        self.following.stop_counting(job_id)
        # What is started on a node after the cancel ran there would be left behind.
        await until(lambda: not is_launched(job_id), LAUNCH_LIMIT)
        self.jobs.cancelling(job_id, time.time(), abort=by == "abort")
        grace = job.plan.grace if grace is None else grace
        report = await self._backend.cancel(job.plan, grace, by=by)
        if job.state.final and not report.left and not report.unverified:
            report = replace(report, state=job.state)
        self.jobs.cancelled(job_id, report)
        self._recorder.save(self.jobs.job(job_id), time.time())
        return report

    async def inspect(self, job_id: str) -> Inspection:
        """Where every rank of the job is now; asks all its nodes."""
        return await inspect_job(self._agents, self.jobs.job(job_id))

    async def report(self, job_id: str, path: Path, *, full: bool = False) -> Recording:
        """Write all about the job to a .tar.gz at `path`, secrets masked; raises RankdeckError.

        Of each log the last megabyte, or with `full` all of it.
        """
        source = self._report_source(job_id)
        return await write_report(self._backend, source, path, None if full else TAIL)

    async def report_page(self, job_id: str, path: Path) -> Recording:
        """Write what matters of the job to one page of HTML at `path`, secrets masked; raises RankdeckError."""
        return await write_page(self._backend, self._report_source(job_id), path)

    def _report_source(self, job_id: str) -> ReportSource:
        job, now = self.jobs.job(job_id), time.time()
        health = [*self._history.health(job_id)]
        health.append({"at": now, "turn": "now", "nodes": node_health(self.fleet, job)})
        return ReportSource(
            job,
            self._history.events(job_id),
            health,
            self.cluster.environment,
            self._history.numbers(job_id),
        )

    async def replay(self, job_id: str, speed: float = 1.0) -> str:
        """Play a job again, `speed` times as fast, from what its nodes kept; returns the id of the replay."""
        job = self.jobs.job(job_id)
        fresh = f"{job_id}.replay-{token_hex(2)}"
        kept = self._history.events(job_id)
        shown = await read_replay(self._backend, job, fresh, kept)
        self.jobs.add(shown.plan, shown.created)
        self.jobs.set_clock(fresh, shown.created)
        self.following.play(fresh, play(self.jobs, shown, speed))
        return fresh

    @property
    def history_trouble(self) -> str:
        """Why the history cannot be written now, one sentence; "" if it can."""
        return self._history.trouble

    def hold(self, job_id: str) -> None:
        """Keep the rest of the job running: no console of this user stops it."""
        self.following.hold(job_id)

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = BACKLOG) -> None:
        """From now on fetch the full output of these ranks; see `Following.watch`."""
        self.following.watch(job_id, ranks, backlog)

    def output(self, job_id: str, rank: int) -> Ranges:
        """The output of a rank, which is read and searched on its node, by byte offset."""
        return self._log_reader.of(self.jobs.job(job_id), rank)

    async def settle(self, limit: float) -> None:
        """Wait until every node has sent telemetry or failed, at most `limit` seconds."""
        await until(self.fleet.settled, limit)

    def installer(self, *, system: bool, dry: bool = False) -> Installer:
        """Installs agents on nodes as a service, or removes them; `dry` only reports what it would do."""
        return Installer(self._agents, system=system, dry=dry)

    def acknowledge(self, ack: Ack) -> None:
        """Store the acknowledgement of a problem; an `until` in the past withdraws it.

        Raises HistoryError.
        """
        self._nodes_log.acknowledge(ack, self.fleet)

    # ---- opening and closing

    def begin(self, link: Link | None) -> None:
        """Restore the jobs of earlier sessions and start receiving the telemetry of every node."""
        self.following.begin(self.cancel)
        self._history.prune(self.cluster.name)
        for job in reversed(self._history.load(self.cluster.name)):
            self.following.take_up(job)
        self._nodes_log.recall(self.fleet, time.time())
        self._start(self._save())
        if link is not None:
            self._start(collect(self.cluster, self.switches))
            self._start(self._find_in_background())
            if self.cluster.backend == "kubernetes":
                self.fleet.await_nodes(awaited=self.fleet.open)
                self._start(self._cluster_client.watch(self.fleet, self.kubernetes))
            self._attach(link, (node.name for node in self.cluster.nodes))

    def hear(self, nodes: Iterable[str]) -> None:
        """Receive the telemetry of these nodes in the background, while the session is open.

        For sessions that were opened without telemetry; others receive that of every node.
        """
        if not self._listens:
            self._listens = self._judges = True
            known = {node.name for node in self.cluster.nodes}
            # A login node, or this machine, is no node of the fleet.
            self._start(self._hear([node for node in nodes if node in known]))

    async def _hear(self, nodes: Sequence[str]) -> None:
        # A job that ends at once must neither pay nor wait for telemetry.
        await asyncio.sleep(HEAR_AFTER)
        try:
            async with open_link(self.cluster, self.fleet) as link:
                self._attach(link, nodes)
                await asyncio.Event().wait()
        except BrokerError as error:
            log.warning("the nodes of the job are not heard: %s", error)

    def _attach(self, link: Link, nodes: Iterable[str]) -> None:
        self._listens = True
        telemetry = Telemetry(self._connections, link, self.fleet)
        for node in nodes:
            self._background.append(self._agents.attach_telemetry(node, telemetry, self._tasks))

    def look_at_nodes(self) -> None:
        """Save what happened on the nodes, and note on each job what concerns it."""
        if self._judges:
            self.fleet.take_changes()
        now = time.time()
        self._nodes_log.exchange(self.fleet, now)
        for job in self._node_notes.notice(now):
            self._recorder.save(job, now)

    def end(self) -> None:
        """Stop all background tasks; jobs on the nodes go on."""
        for task in self._background:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._background = [task for task in self._background if not task.done()]
        self._background.append(self._tasks.create_task(work))
        return self._background[-1]

    async def _save(self) -> None:
        while True:
            await asyncio.sleep(SAVE_PERIOD)
            self.following.save(time.time())
            self.look_at_nodes()
            self.fleet.set_busy(self.jobs.busy())

    @property
    def pending_host_key(self) -> HostKeyError | None:
        """A host key that the operator must accept or refuse; None if there is none."""
        return self.questions.pending

    def answer_host_key(self, accept: bool) -> None:
        """The operator's answer to `pending_host_key`."""
        self.questions.answer(accept)


def _is_control_host(cluster: Cluster) -> bool:
    """Whether this machine asks Kubernetes: the cluster file names no other one that has kubectl."""
    return cluster.backend == "kubernetes" and not cluster.options.get("login")


def _unheard(text: str) -> None:
    """Ignore progress messages."""


@asynccontextmanager
async def open_session(
    cluster: Cluster,
    *,
    telemetry: bool = True,
    confirm: Confirm | None = None,
    progress: Callable[[str], None] | None = None,
) -> AsyncGenerator[Session]:
    """Open a cluster: jobs of earlier sessions are followed again, nodes are connected when needed.

    `telemetry` receives the numbers of all nodes. `confirm` is awaited with each unknown host key;
    without it the question appears as `Session.pending_host_key`. `progress` is called with lines
    for the user. Raises BrokerError if the private broker cannot listen.
    """
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(state_folder() / "history.db"))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        questions = Questions()
        connections = Connections(cluster, confirm or questions.confirm)
        await stack.enter_async_context(connections)
        shell: Shell = WithThisMachine(connections) if _is_control_host(cluster) else connections
        session = Session(cluster, history, questions, shell, tasks)
        logger = logging.getLogger("rankdeck")
        logger.setLevel(logging.INFO)
        logger.addHandler(session.messages)
        if history.trouble:
            log.warning("%s", history.trouble)
            (progress or _unheard)(f"rankdeck: {history.trouble}")
        stack.callback(logger.removeHandler, session.messages)
        link = None
        if telemetry:
            link = await stack.enter_async_context(open_link(cluster, session.fleet))
        session.begin(link)
        stack.callback(session.end)
        yield session
