"""The session of one open cluster: its state, its background tasks, and
all operations of screens and commands.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankdeck import plugins
from rankdeck.acceptance.store import AcceptanceRuns
from rankdeck.backends import slurm, slurm_attach
from rankdeck.backends.base import Backend, SchedulerWord
from rankdeck.backends.export import write_export
from rankdeck.backends.kubernetes import (
    OtherJob,
    attach_id,
    cannot_follow,
    find_followed,
    find_listed,
    kubernetes_attach_plan,
)
from rankdeck.backends.launchers import place_job
from rankdeck.backends.plan_options import new_job_id
from rankdeck.backends.remote_log import Player, Ranges, RemoteLogs, as_replay, read_replay
from rankdeck.backends.ssh import ask_what_runs, complete_plan, inspect_job
from rankdeck.backends.witnesses import WitnessWatch
from rankdeck.config.files import console_state_folder, job_folders
from rankdeck.config.jobs import read_job
from rankdeck.errors import BrokerError, HostKeyError, LaunchError, RankdeckError
from rankdeck.following import (
    BACKLOG,
    DISK_LIMIT,
    Following,
    PauseWatch,
    wait_for_condition,
)
from rankdeck.images.bring import ImageDistributor
from rankdeck.images.copy import Failed, TellFetch, TellLaunch
from rankdeck.images.copy import Tell as TellCopy
from rankdeck.model.cluster import Cluster
from rankdeck.model.health import Ack, PastView
from rankdeck.model.job import CancelReport, Job, JobSpec, Launch, Plan
from rankdeck.model.leftovers import CleanOrder, CleanReport
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.process import NodeProcess
from rankdeck.model.schedulers import (
    JOB,
    MPIJOB,
    JobChange,
    JobOrder,
    KubernetesJob,
    LogRun,
    ServiceChange,
    ServiceOrder,
    SlurmJob,
    SlurmNode,
    SlurmPages,
    SlurmPartition,
)
from rankdeck.preflight.doctor import examine_nodes, lacking_tools, server_finding
from rankdeck.preflight.findings import Finding, Step, TellFinding, no_step, tell_nobody
from rankdeck.preflight.run import Tools, find_mpi, run_all_checks
from rankdeck.prometheus.site_past import SitePast
from rankdeck.remote.agent import Agents, Installer
from rankdeck.remote.clean import clean_up
from rankdeck.remote.command import (
    FAN_OUT,
    USUAL_LIMIT,
    CommandRun,
    CommandState,
    FoundProcesses,
    find_processes,
    send_signal,
)
from rankdeck.remote.questions import Answers, LoginQuestion, Questions
from rankdeck.remote.shell import Shell
from rankdeck.remote.user_ssh import UserSsh
from rankdeck.reports.job import TAIL, report_source, write_page, write_report
from rankdeck.rules.inspect import Inspection
from rankdeck.scaling.store import ScalingStudies
from rankdeck.state.fleet import Fleet, KubernetesState, Switches
from rankdeck.state.fleet_history import Messages
from rankdeck.state.history import History, HistoryState
from rankdeck.state.history_thread import HistoryThread, KeptRecords
from rankdeck.state.job_recorder import JobRecorder, NodeNotes
from rankdeck.state.jobs import Jobs
from rankdeck.state.launch_lock import is_launched, launch_of
from rankdeck.telemetry.gnmi import collect_switches
from rankdeck.telemetry.kubernetes import KubernetesClient
from rankdeck.telemetry.link import Link, Telemetry, open_link
from rankdeck.telemetry.slurm import SlurmClient

if TYPE_CHECKING:
    from rankdeck.acceptance.service import Acceptance
    from rankdeck.scaling.service import Scaling

log = logging.getLogger(__name__)
SAVE_PERIOD = 1.0
LOOK = 0.1
"""Seconds between two judgements of the nodes that changed."""
WORK = 0.005
"""Seconds that one round of judging may take, so that key presses are not delayed."""
MOST_BUSY = 256
"""If running jobs use more nodes than this, full samples are not requested
for them; health messages are enough.
"""
ASK_LIMIT, LOOK_LIMIT = 3.0, 20.0
"""Seconds that nodes have to report their jobs: while a person waits
for something else, and otherwise.
"""
FOUND = "found on its nodes: another console, or one whose history is gone, started it"
NOT_ASKED = "did not answer when the job was found: ranks of the job there are not shown"
MOST_COMMANDS = 10
"""Commands whose output is kept."""
LAUNCH_LIMIT = 120.0
"""Seconds that a cancel waits for another console that is starting the job."""
HEAR_AFTER = 1.0
"""Seconds after which a command that shows a job also receives telemetry from the job's nodes."""
Kept = tuple[HistoryThread, AcceptanceRuns, ScalingStudies]
"""The user's stored data: history of jobs, acceptance runs, scaling studies."""


class Session:
    """The owner of all state and tasks of one open cluster; made by `open_session`."""

    def __init__(
        self, cluster: Cluster, kept: Kept, questions: Questions, connections: Shell, tasks: asyncio.TaskGroup
    ) -> None:  # fmt: skip
        self.cluster, self.questions = cluster, questions
        self.fleet = Fleet(cluster)
        self.switches = Switches(cluster)
        self.kubernetes = KubernetesState()
        self.jobs, self.messages = Jobs(), Messages()
        self.commands: tuple[CommandRun, ...] = ()
        """Shell commands that this session ran on nodes, newest last;
        the last MOST_COMMANDS are kept.
        """
        self._connections = connections
        self._agents = agents = Agents(
            connections,
            *cluster.access.pythons,
            of_node={node.name: node.pythons for node in cluster.nodes},
            folder=cluster.access.folder,
            patience=cluster.access.patience,
            simulating=bool(cluster.simulate),
        )
        self.images = ImageDistributor(agents)
        self._backend: Backend = plugins.find_plugin("backends", cluster.backend)(agents)
        self.kubernetes_client = KubernetesClient(agents, cluster)
        self.slurm = SlurmClient(agents, cluster, self.fleet)
        self._log_reader = RemoteLogs(agents)
        self._history, self._accepted, self._studies = history, *_ = kept
        self._recorder = JobRecorder(history, self.fleet, cluster.name)
        self._nodes_log = history.nodes_of(cluster.name)
        self._node_notes = NodeNotes(self.jobs, self.fleet, history, self._nodes_log)
        self._tasks = tasks
        self.following = Following(
            self.jobs, self.fleet, self._recorder, self._backend, self._start
        )
        self.following.allow(cluster.access.patience, WitnessWatch(agents))
        self._past = SitePast(cluster, self._start)
        known = (self.fleet.healths, self.jobs.judge_nodes)
        self._tools = Tools(cluster, agents, self._backend, self._placed, *known)
        self._background: list[asyncio.Task[Any]] = []
        self._listens = False
        """Whether telemetry of the nodes is being received."""
        self._telemetry: Telemetry | None = None
        self._on_screen: frozenset[str] | None = frozenset()
        """Nodes from which a front end wants full samples; None: from all."""

    # ---- jobs

    def job_files(self) -> tuple[Path, ...]:
        """Job files to choose from: those next to the cluster file, the user's, and the samples."""
        folders = job_folders(self.cluster.file)
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
        return place_job(self.cluster, spec, self.excluded(), self.fleet.bad, self.fleet.busy)

    def _plan(self, spec: JobSpec, job: str = "") -> Plan:
        spec = self._tools.with_mpi(spec)
        plan = self._backend.plan(self.cluster, spec, job or new_job_id(spec.name))
        return replace(plan, spec=spec)

    async def preflight(
        self, spec: JobSpec, tell: TellFinding = tell_nobody, step: Step = no_step
    ) -> tuple[Finding, ...]:
        """What would go wrong with this job now.

        `tell` is called with each finding, `step` with the progress.
        """
        return await run_all_checks(self._tools, spec, tell, step)

    async def doctor(self, tell: TellFinding = tell_nobody) -> tuple[Finding, ...]:
        """What the nodes lack for any job; `tell` is called with each finding."""
        findings = await examine_nodes(self.cluster, self._agents, tell)
        if not self.kubernetes_client.asked:
            return findings
        server = await server_finding(self.kubernetes_client.check)
        tell(server)
        return (*findings, server)

    async def lacking(self, specs: Sequence[JobSpec]) -> dict[str, str]:
        """Job file -> what its nodes lack to run it, "" for nothing; see `preflight.doctor`."""
        return await lacking_tools(self._tools, specs)

    async def check(self, plan: Plan) -> SchedulerWord:
        """What the scheduler says of this plan now. Raises NodeError."""
        return await self._backend.check(plan)

    def export(self, spec: JobSpec) -> str:
        """The job as a shell script that needs no Rankdeck; raises LaunchError."""
        return write_export(self.plan(spec), self.cluster)

    async def launch(
        self, spec: JobSpec, tell: TellLaunch = lambda _: None, *, anywhere: bool = False
    ) -> str:
        """Start the job on its nodes and return its id. Raises
        LaunchError; then nothing is left running.

        With `anywhere`, excluded nodes are used too. The image is first copied to nodes that lack
        it. `tell` is called with the progress of the copy and, if the launch fails, with the reason
        before what had started is ended. The job is saved in the history before anything starts, so
        that no unknown job is left if the console is killed.
        """
        await find_mpi(self._tools, spec)
        plan = self._plan(spec) if anywhere else self.plan(spec)
        await self.kubernetes_client.learn_rights(self.kubernetes)
        if why := self.why_not("launch", spec):
            raise LaunchError("start", why)
        if not self.chooses_nodes:
            await self.images.bring(spec, [node.node for node in plan.nodes], tell)
        with launch_of(plan.job):
            self._keep(self.jobs.add(plan, time.time()))
            await self._start_on_nodes(plan, tell)
        self.following.follow(self.jobs.job(plan.job))
        return plan.job

    async def _start_on_nodes(self, plan: Plan, tell: TellLaunch = lambda _: None) -> None:
        async def failed_on(failed: str) -> None:
            self.jobs.note(plan.job, failed)
            self._keep(self.jobs.job(plan.job))
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
                self._keep(self.jobs.refused(plan.job, why))
        if launched != plan:
            self.jobs.planned(launched)
            self._history.due.plans[launched.job] = launched

    async def find_running(
        self, limit: float = ASK_LIMIT, *, ended: bool = False
    ) -> dict[str, str]:
        """Find jobs on the nodes that are missing in the history, and follow
        them. With a scheduler: update `others`.

        Returns node -> why it did not answer within `limit` seconds. With `ended`, jobs that are
        over are read back too. A job that was found while one of its nodes did not answer gets the
        ranks of that node now.
        """
        if self.chooses_nodes:
            asked = await self.slurm.list()
            return {**asked, **await self.kubernetes_client.list(self.kubernetes)}
        names, cluster = [node.name for node in self.cluster.nodes], self.cluster.name
        found, silent = await ask_what_runs(self._agents, cluster, names, limit, ended=ended)
        kept = await self._history.ask(lambda history: set(filter(history.knows, found)))
        for plan, created in found.values():
            if not self.jobs.knows(plan.job) and plan.job not in kept:
                self._add_found(plan, created, silent)
            elif self.jobs.knows(plan.job):
                whole = complete_plan(self.jobs.job(plan.job).plan, plan)
                if whole is not None:
                    await self.following.stop(plan.job)
                    self._recorder.forget(plan.job)
                    self._add_found(whole, created, silent)
        return silent

    def _add_found(self, plan: Plan, created: float, silent: Collection[str]) -> None:
        self.jobs.add(plan, created)
        self.jobs.note(plan.job, FOUND)
        if silent:
            self.jobs.note(plan.job, f"{fold_nodes(silent)} {NOT_ASKED}")
        self._keep(self.jobs.job(plan.job))
        self.following.follow(self.jobs.job(plan.job))

    async def slurm_nodes(self) -> Mapping[str, SlurmNode]:
        """Node -> its present state in Slurm; {} without Slurm. Raises NodeError."""
        return await self.slurm.nodes_now()

    def others(self) -> tuple[OtherJob, ...]:
        """Jobs of the scheduler that this console does not follow: those of
        other users and of other consoles.
        """
        if self.slurm.asked:
            return self.slurm.state.jobs({job.slurm.id for job in self.jobs.all() if job.slurm})
        known = {job.id for job in self.jobs.all()}
        return tuple(one for one in self.kubernetes.jobs(known) if attach_id(one) not in known)

    async def list_ended(self) -> str:
        """Add jobs that ended within a day to `others`. Returns why it is impossible, or "".

        Raises RankdeckError.
        """
        return await self.slurm.list_ended()

    def partitions(self) -> tuple[SlurmPartition, ...]:
        """Slurm's partitions, with their idle nodes; empty without Slurm."""
        return self.slurm.state.partitions()

    def queue_words(self) -> str:
        """A sentence if `others` is not all of Slurm's queue, or is old; else ""."""
        return self.slurm.state.words(time.time())

    async def service(self, order: ServiceOrder, agreed: str = "") -> ServiceChange:
        """Take nodes out of service in Slurm, or return them. Returns
        the command line that this needs.

        It runs only if it equals `agreed`, the line that the user agreed to. Raises RankdeckError.
        """
        return await self.slurm.service(order, agreed)

    async def change_jobs(self, order: JobOrder, agreed: str = "") -> JobChange:
        """Like `service`, for jobs in Slurm's queue: hold, release, requeue, new time limit.

        Raises RankdeckError.
        """
        return await self.slurm.change(order, agreed)

    async def ask_slurm(self, what: str, jobs: Sequence[str] = ()) -> SlurmPages:
        """What Slurm itself says; see `SlurmClient.ask`. Raises RankdeckError."""
        return await self.slurm.ask(what, jobs)

    def queued(self, number: str) -> SlurmJob | None:
        """The job of this number in Slurm's queue, also one that this
        console follows; None if it has none.
        """
        return self.slurm.state.job(number)

    async def attach(self, text: str) -> str:
        """Follow one of `others` (`pi`, `mpijob/pi`, a Slurm job number) without changing it;
        returns its Rankdeck id. Raises UnknownJobError, and LaunchError if it cannot be followed.
        """
        if self.slurm.asked:
            await self.following.caught_up()
        if followed := find_followed(self.kubernetes.jobs(), self.jobs.all(), text):
            return followed
        plan, created = await self._plan_to_read(text)
        self._keep(self.jobs.add(plan, created or time.time()))
        await self._start_on_nodes(plan)
        self.following.follow(self.jobs.job(plan.job))
        return plan.job

    async def _plan_to_read(self, text: str) -> tuple[Plan, float | None]:
        """The plan to follow a job of others, and when the job was created.

        Asks Slurm for jobs not in `others` too.
        """
        number, place = slurm_attach.job_named(text) if self.slurm.asked else ("", "")
        if not number:
            found = find_listed(self.others(), text)
            if isinstance(found, KubernetesJob):
                if why := cannot_follow(found) or self.why_not("follow", found.place):
                    raise LaunchError("start", why)
                return kubernetes_attach_plan(self.cluster, found), found.created
            number, place = found.id, found.place
        seen = await self.slurm.look(number)
        return slurm_attach.slurm_attach_plan(self.cluster, seen, place), seen.submitted

    def why_not(self, need: str, what: JobSpec | str) -> str:
        """Why this user lacks the right to do `need`; "" if no reason is known.

        `need` is "launch" (`what`: a JobSpec), "follow" or "cancel" (`what`: a job id, or its place
        in Kubernetes). Only Kubernetes has such rights; elsewhere, a user who can log in may do all
        three.
        """
        if isinstance(what, JobSpec):
            kind = MPIJOB if what.launch is Launch.MPI else JOB
            return self.kubernetes.refused(need, "see", "follow", kind=kind)
        known = self.jobs.job(what) if self.jobs.knows(what) else None
        owned = known.plan.owner.partition(" of ")[0] if known else ""
        spec = known.plan.spec if known else None
        started = MPIJOB if spec and spec.launch is Launch.MPI else JOB
        kind = self.kubernetes.kind_of(what) or owned or started
        return self.kubernetes.refused(need, "see", kind=kind)

    def _keep(self, job: Job) -> None:
        self._recorder.save(job, time.time())

    async def _write_history(self) -> None:
        """Write what was noted; waits at most DISK_LIMIT seconds for a disk
        that hangs, which then goes on writing.
        """
        await asyncio.wait((self._start(self._recorder.write()),), timeout=DISK_LIMIT)

    async def cancel_tasks(
        self, job_id: str, tasks: Sequence[int], grace: float | None = None
    ) -> CancelReport:
        """End only these tasks of a Slurm array; otherwise like `cancel`."""
        return await slurm.cancel_tasks(self._agents, self.jobs.job(job_id), tasks, grace)

    async def cancel(
        self, job_id: str, grace: float | None = None, *, by: str = "user"
    ) -> CancelReport:
        """End every process of the job on every node, and check that none is left.

        `grace` is the seconds between SIGTERM and SIGKILL; None takes the job's own. Raises
        UnknownJobError, and RankdeckError for a replay, or if this user may not cancel the job.
        """
        job = self.jobs.job(job_id)
        if job.plan.replay_of:
            raise RankdeckError(f"{job_id} is a replay: nothing of it runs")
        await self.kubernetes_client.learn_rights(self.kubernetes)
        if why := self.why_not("cancel", job_id):
            raise RankdeckError(f"{job_id} cannot be cancelled from here: {why}")
        self.following.stop_counting(job_id)
        # A rank that starts on a node after the cancel ran there would be left behind.
        await wait_for_condition(lambda: not is_launched(job_id), LAUNCH_LIMIT)
        grace = job.plan.grace if grace is None else grace
        self.jobs.cancelling(job_id, time.time(), abort=by == "abort", grace=grace)
        report = await self._backend.cancel(job.plan, grace, by=by)
        if report.refused:
            self.jobs.not_cancelled(job_id)
            raise RankdeckError(f"{job_id} cannot be cancelled from here: {report.refused}")
        if job.state.final and not report.left and not report.unverified:
            report = replace(report, state=job.state)
        self.jobs.cancelled(job_id, report, time.time())
        self._recorder.save(self.jobs.job(job_id), time.time())
        # A node that could not be asked does not change how a job that is over ended.
        known = self.jobs.job(job_id).state
        return replace(report, state=known) if report.unverified and known.final else report

    def command(
        self, nodes: Sequence[str], command: str, limit: float = USUAL_LIMIT, fan_out: int = FAN_OUT
    ) -> CommandRun:
        """Run a shell command on these nodes, `fan_out` nodes at a time and at most
        `limit` seconds on each; returns at once.

        The `state` of the result shows the progress. Raises
        RankdeckError on Kubernetes: no SSH login.
        """
        self._need_ssh()
        run = CommandRun(self._agents, CommandState(command, nodes), limit, fan_out)
        self.commands = (*self.commands, run)[-MOST_COMMANDS:]
        self._start(run.run())
        return run

    def shell_command(self, node: str, words: Sequence[str] = ()) -> tuple[str, ...]:
        """The command line of the user's own ssh to that node: opens a
        shell, or runs `words` on a terminal.

        Raises RankdeckError where nodes are not reached over SSH.
        """
        self._need_ssh()
        return UserSsh(self.cluster).command(node, words)

    async def processes(self, nodes: Iterable[str]) -> FoundProcesses:
        """The processes on these nodes, and the nodes that did not answer.

        Raises RankdeckError on Kubernetes.
        """
        self._need_ssh()
        return await find_processes(self._agents, nodes)

    async def clean(self, nodes: Sequence[str], order: CleanOrder) -> CleanReport:
        """Remove what ended jobs and older consoles left on these nodes and
        here; with `dry`, only ask what that is.
        """
        return await clean_up(self._agents, nodes, order)

    async def log_run(self, job_id: str, number: int) -> LogRun:
        """Which part of the output belongs to run `number` (from 0) of a
        requeued Slurm job; raises RankdeckError.
        """
        return await slurm.log_run(self._agents, self.jobs.job(job_id), number)

    async def signal(self, name: str, some: Sequence[NodeProcess]) -> dict[str, str]:
        """Send a signal (`name`: TERM, KILL, …) to these processes; returns
        `NODE PID` -> why it was not sent.
        """
        return await send_signal(self._agents, name, some)

    async def copy_file(self, file: Path, to: str, nodes: Sequence[str], tell: TellCopy) -> Failed:
        """Copy a local file to the path `to` on nodes ("": same name). Returns failed nodes.

        Raises OSError.
        """
        return (await self.images.push(file, to, nodes, tell))[1]

    async def fetch(self, path: str, nodes: Sequence[str], to: Path, tell: TellFetch) -> Failed:
        """Copy `path` from nodes into the local folder `to`, as NAME.NODE. Returns failed nodes.

        Raises OSError.
        """
        return await self.images.fetch(path, nodes, to, tell)

    def _need_ssh(self) -> None:
        if not self._backend.can.allows_login:
            raise RankdeckError(
                f"nodes of a {self._backend.can.scheduler} cluster are not reached over SSH"
            )

    async def inspect(self, job_id: str) -> Inspection:
        """What every rank of the job is doing now; asks all its nodes."""
        return await inspect_job(self._agents, self.jobs.job(job_id))

    async def report(
        self, job_id: str, path: Path, *, page: bool, full: bool = False
    ) -> Mapping[str, str]:
        """Write a report on the job to `path`, secrets masked; returns
        node -> why its part is missing.

        With `page`, one HTML page; else an archive (.tar.gz) with the last megabyte of each log, or
        with `full` the whole logs. Raises RankdeckError.
        """
        source = await report_source(
            self.jobs.job(job_id), self._history, self.fleet, self._past, self.cluster.environment
        )
        if page:
            return (await write_page(self._backend, source, path)).missing
        return (await write_report(self._backend, source, path, None if full else TAIL)).missing

    async def replay(self, job_id: str, speed: float = 1.0, *, keep: bool = True) -> str:
        """Replay a job from what its nodes kept, or restart a replay. `speed` 2.0 is twice as fast.

        Returns the id of the replay. With `keep`, a finished job's
        replay is also saved in the history.
        """
        shown = as_replay(self.jobs.job(job_id))
        of = shown.plan.replay_of
        events = await self._history.ask(lambda history: history.events(of, shown.plan))
        player = Player(self.jobs, await read_replay(self._backend, shown, events), speed)
        if keep and shown.state.final:
            self._keep(shown)
        return self.following.play(shown.id, player)

    def forget(self, job_id: str) -> None:
        """Remove this replay, here and from the history; the job itself stays."""
        self.following.forget(job_id)

    def wind(self, job_id: str, seconds: float) -> bool:
        """See `Following.wind`."""
        return self.following.wind(job_id, seconds)

    @property
    def history_state(self) -> HistoryState:
        """What is wrong with the history."""
        return self._history.state

    def past(self, node: str, hours: float, until: float | None = None) -> PastView | None:
        """A node's numbers of the `hours` before `until`, from the site's
        Prometheus; see `SitePast.view`.
        """
        return self._past.view(node, hours, until)

    def hold(self, job_id: str) -> None:
        """Keep the other ranks running after a failure: no console of this user stops them."""
        self.following.hold(job_id)

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = BACKLOG) -> None:
        """Fetch the full output of these ranks from now on; see `Following.watch`."""
        self.following.watch(job_id, ranks, backlog)

    def output(self, job_id: str, rank: int) -> Ranges:
        """A reader of a rank's output: reads and searches the log on its node, by byte offset."""
        return self._log_reader.of(self.jobs.job(job_id), rank)

    def want(self, nodes: frozenset[str] | None) -> None:
        """Request full samples from these nodes, instead of those of the
        last call; None: from all nodes.
        """
        self._on_screen = nodes
        self._ask_for_samples()

    def _ask_for_samples(self) -> None:
        """Request full samples from nodes on screen and, to judge
        stalls, from nodes of running jobs.
        """
        wanted = self._on_screen
        if wanted is not None and len(self.fleet.busy) <= MOST_BUSY:
            wanted |= self.fleet.busy
        self.fleet.want(wanted)
        if self._telemetry is not None:
            self._telemetry.want(wanted)

    async def settle(self, limit: float) -> None:
        """Wait until every node has sent telemetry or failed, at most `limit` seconds."""
        await wait_for_condition(self.fleet.settled, limit)

    def installer(self, *, system: bool, dry: bool = False) -> Installer:
        """Installs agents on nodes as a service, or removes them;
        `dry` only reports what it would do.
        """
        return Installer(self._agents, system=system, dry=dry)

    async def acknowledge(self, *acks: Ack) -> None:
        """Store these acknowledgements of problems; an `until` in the past withdraws one.

        Raises HistoryError.
        """

        def store(_: History) -> None:
            for ack in acks:
                self._nodes_log.acknowledge(ack)

        await self._history.ask(store)
        await self._exchange_node_events(time.time())

    # ---- acceptance

    @cached_property
    def acceptance(self) -> "Acceptance":
        """Starts and keeps acceptance runs; see `acceptance/service.py`."""
        # Loading the recipes takes time, and most sessions need none.
        from rankdeck.acceptance.service import Acceptance

        return Acceptance(self, self._accepted, console_state_folder() / "acceptance")

    @cached_property
    def scaling(self) -> "Scaling":
        """Starts and keeps scaling studies; see `scaling/service.py`."""
        from rankdeck.scaling.service import Scaling

        return Scaling(self, self._studies)

    def starting_often(self) -> AbstractAsyncContextManager[None]:
        """Inside this block, jobs start faster: a helper stays on each
        node and starts the next job there.
        """
        return self._agents.starting_often()

    @property
    def chooses_nodes(self) -> bool:
        """Whether a scheduler chooses the nodes: jobs may then wait."""
        return self._backend.can.chooses_nodes

    def excluded(self) -> dict[str, str]:
        """Node -> why new jobs must not use it: the exclusions from acceptance runs."""
        found = self._accepted.exclusions(self.cluster.name, time.time())
        return {one.node: one.sentence for one in found}

    # ---- opening and closing

    def begin(self, kept: KeptRecords, link: Link | None, *, brief: bool = False) -> None:
        """Take up the jobs and events of earlier sessions; with a `link`, start to
        receive the telemetry of every node.
        """
        self.following.begin(self.cancel)
        for job in reversed(kept.jobs):
            self.following.take_up(job, kept.seen.get(job.id, {}))
        self.fleet.event_log.restore(kept.events)
        if link is not None and not brief:
            # Their problems are shown until the nodes have been judged again.
            self.fleet.recall()
        self.fleet.set_acks(kept.acks)
        self._start(self._keep_records())
        self._start(self._serve_screens())
        self._start(self._keep_time())
        if link is not None:
            self._start(collect_switches(self.cluster, self.switches))
            self._start(self.find_running(LOOK_LIMIT))
            listed = self.fleet.open and self.slurm.asked
            self.fleet.await_nodes(awaited=self.kubernetes_client.asked or listed)
            self._start(self.kubernetes_client.watch(self.fleet, self.kubernetes))
            self._start(self.slurm.watch())
            self._attach(link, [node.name for node in self.cluster.nodes], brief=brief)

    def hear(self, nodes: Iterable[str]) -> None:
        """Receive the telemetry of these nodes in the background, while the session is open.

        Only the first call has an effect, and none in a session opened
        with telemetry: it hears every node.
        """
        if not self._listens:
            self._listens = True
            known = {node.name for node in self.cluster.nodes}
            # A login node, or this machine, is not part of the fleet.
            self._start(self._hear([node for node in nodes if node in known]))

    async def _hear(self, nodes: Sequence[str]) -> None:
        await asyncio.sleep(HEAR_AFTER)  # a short job must not be delayed by telemetry
        try:
            async with open_link(self.cluster, self.fleet) as link:
                self._attach(link, nodes)
                await asyncio.Event().wait()
        except BrokerError as error:
            log.warning("the nodes of the job are not heard: %s", error)

    def _attach(self, link: Link, nodes: Sequence[str], *, brief: bool = False) -> None:
        self._listens = True
        self._telemetry = Telemetry(self._connections, link, self.fleet, brief=brief)
        self._ask_for_samples()
        self._telemetry.expect(nodes)
        for node in nodes:
            work = self._agents.attach_telemetry(node, self._telemetry, self._tasks)
            self._background.append(work)
        self._start(self.slurm.hear(self._telemetry, self.jobs))

    async def look_at_nodes(self) -> None:
        """Save new node events, and add node events to the jobs that they concern.

        One call at a time.
        """
        now = time.time()
        await self._exchange_node_events(now)
        for job in await self._node_notes.notice(now):
            self._recorder.save(job, now)

    async def _exchange_node_events(self, now: float) -> None:
        """Save new node events, and take the acknowledgements if any console changed them."""
        fresh = self.fleet.event_log.take()
        acks = await self._history.ask(lambda _: self._nodes_log.exchange(fresh, now))
        if acks is not None:
            self.fleet.set_acks(acks)

    def end(self) -> None:
        """Stop all background tasks; jobs on the nodes go on."""
        for task in self._background:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        self._background = [task for task in self._background if not task.done()]
        self._background.append(self._tasks.create_task(work))
        return self._background[-1]

    async def _keep_records(self) -> None:
        while True:
            await asyncio.sleep(SAVE_PERIOD)
            await self.following.save(time.time())
            await self.look_at_nodes()

    async def _serve_screens(self) -> None:
        """What must go on while a disk hangs."""
        while True:
            await asyncio.sleep(SAVE_PERIOD)
            self.fleet.set_busy(self.jobs.busy())
            self._ask_for_samples()
            if self._telemetry is not None:
                self._telemetry.look()

    async def _keep_time(self) -> None:
        """Judge the nodes that changed or fell silent; nothing else does this.

        After this process was stopped, what came meanwhile is heard before any silence is judged.
        """
        pause = PauseWatch(time.time())
        while True:
            if not pause.look(time.time()):
                await asyncio.sleep(LOOK)
                continue
            self.fleet.take_changes(WORK)
            await asyncio.sleep(WORK if self.fleet.behind else LOOK)

    @property
    def connecting(self) -> tuple[int, int]:
        """(done, all) of the nodes asked for telemetry; a node is done
        once it has answered or failed.
        """
        return self._telemetry.connecting if self._telemetry else (0, 0)

    @property
    def pending_question(self) -> HostKeyError | LoginQuestion | None:
        """The unknown host key that the operator must accept or refuse now, or
        what a server asks; None if nothing.
        """
        return self.questions.pending

    def answer_question(self, answers: Answers) -> None:
        """Answer `pending_question`: () accepts a host key; None refuses it, or answers nothing."""
        self.questions.answer(answers)
