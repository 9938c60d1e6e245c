"""A session without machines: the real state objects, filled by hand."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path

from rankdeck.acceptance.run import AcceptanceProtocol
from rankdeck.errors import (
    AgentError,
    ConfigError,
    HostKeyError,
    LaunchError,
    NodeError,
    Problem,
    RankdeckError,
)
from rankdeck.images.copy import CopyState
from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.health import Ack, PastView
from rankdeck.model.job_spec import Abort, JobSpec, Launch
from rankdeck.model.patterns import search_pattern
from rankdeck.model.plan import Plan
from rankdeck.model.process import NodeProcess
from rankdeck.model.queue import LogRun, Partition
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Chunk, FoundLine, LogPart, LogPlace
from rankdeck.preflight.findings import Finding
from rankdeck.remote.agent import Agents
from rankdeck.remote.command import CommandRun, CommandState, FoundProcesses
from rankdeck.remote.questions import Answers, LoginQuestion
from rankdeck.remote.user_ssh import UserSsh
from rankdeck.rules.inspect import Inspection, Look, conclude_inspection
from rankdeck.scaling.study import ScalingProtocol
from rankdeck.schedulers.kubernetes.values import KubernetesJob, Namespaces
from rankdeck.schedulers.orders import (
    JobChange,
    JobOrder,
    SchedulerPages,
    ServiceChange,
    ServiceOrder,
)
from rankdeck.schedulers.slurm.values import SlurmJob
from rankdeck.state.fleet import Fleet, Switches
from rankdeck.state.fleet_history import Messages
from rankdeck.state.history import HistoryState
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent.job.browse import LogSearch, RegexQuery, TextQuery, read_log_lines
from rankdeck_agent.wire import LAUNCHER, NodePlan, ProcessPlan
from tests.support.acceptance_run import Port
from tests.support.judged_fleet import JudgedFleet
from tests.support.node_events import node_event
from tests.support.scaling_study import ScalingPort
from tests.support.swap_proof import SwapPort


def cluster_of(count: int, name: str = "lab") -> Cluster:
    digits = max(len(str(count)), 2)
    return Cluster(
        name=name,
        nodes=tuple(
            Node(name=f"node{i:0{digits}}", slots=8, gpus=4, rdma=2) for i in range(1, count + 1)
        ),
    )


MPIRUN = ProcessPlan("mpirun", ("mpirun", "--hostfile", "hosts", "-n", "4", "./hello"))


def plan_of(job: str, nodes: int, per_node: int) -> Plan:
    plans = tuple(
        NodePlan(
            job=job,
            node=f"node{n + 1:02}",
            ranks=tuple(range(n * per_node, (n + 1) * per_node)),
            processes=() if n else (MPIRUN,),
        )
        for n in range(nodes)
    )
    return Plan(
        job=job,
        name=job.split("-")[0],
        cluster="lab",
        backend="ssh",
        nodes=plans,
        abort=Abort(),
    )


PARTS = (
    "control",
    "following",
    "hearing",
    "history",
    "images",
    "node_journal",
    "nodes",
    "questions",
    "queue",
    "site_past",
)
"""The parts of a session whose methods the double has."""


class SessionDouble:
    """The methods of a session's parts, which record the calls: it plays all parts itself.

    tests/ui/test_opening.py compares them with those of the real ones.
    """

    clock = staticmethod(time.monotonic)
    """The clock of the fleet."""

    def __init__(self, cluster: Cluster, clock=None) -> None:
        self.cluster = cluster
        self.fleet: Fleet = JudgedFleet(cluster, clock or self.clock, lambda: time.time())
        self.switches = Switches(cluster)
        self.jobs = Jobs()
        self.messages = Messages()
        for part in PARTS:
            setattr(self, part, self)
        self.state = HistoryState("", "", "")
        self.connecting = (0, 0)
        self.pending: HostKeyError | LoginQuestion | None = None
        self.answers: list[Answers] = []
        self.launched: list[str] = []
        self.copies: list[CopyState] = []
        """States of an image copy that a launch reports; the launch
        continues once `copied` is set.
        """
        self.copied = asyncio.Event()
        self.asked = asyncio.Event()
        """Preflight ends once this is set; set at the start."""
        self.asked.set()
        self.cancelled: list[str] = []
        self.runs: list[LogRun] = []
        """The log of each run of a job."""
        self.held: list[str] = []
        self.past_view: PastView | None = None
        self.looked_back: list[tuple[str, float, float | None]] = []
        self.commands: list[CommandRun] = []
        self.running: list[NodeProcess] = []
        self.not_asked: dict[str, str] = {}
        self.signalled: list[tuple[str, tuple[int, ...]]] = []
        self.copied_files: list[tuple[Path, str, tuple[str, ...]]] = []
        self.lacks: dict[str, str] = {}
        """Job file -> what its nodes lack for it."""
        self.fetched_files: list[tuple[str, tuple[str, ...], Path]] = []
        self.acks: list[Ack] = []
        self.watched: list[tuple[str, tuple[int, ...]]] = []
        self.cancel_report: CancelReport | None = None
        self.looks: list[Look] = []
        self.findings: list[Finding] = []
        self.replayed: list[tuple[str, float]] = []
        self.wound: list[tuple[str, float]] = []
        self.acceptance: AcceptanceProtocol = Port()
        self.scaling: ScalingProtocol = ScalingPort()
        self.swaps = SwapPort()
        self.listed: list[KubernetesJob | SlurmJob] = []
        """Jobs of others that the scheduler lists."""
        self.ended: list[SlurmJob] = []
        self.no_history = ""
        self.left_out = ""
        self.parts: list[Partition] = []
        self.ordered: list[tuple[ServiceOrder, str]] = []
        self.changes: list[ServiceChange] = []
        """Answers of Slurm to successive orders."""
        self.job_orders: list[tuple[JobOrder, str]] = []
        self.job_changes: list[JobChange] = []
        """Answers of Slurm to successive orders about jobs."""
        self.known_namespaces = self.namespaces_there = Namespaces()
        """The API server's answer about namespaces, which a test gives."""
        self.slurm_asked: list[tuple[str, tuple[str, ...]]] = []
        self.slurm_says = SchedulerPages()
        self.refused: dict[str, str] = {}
        """Refused operation -> why."""
        self.files: tuple[Path, ...] = ()
        self.on_node: dict[int, Path] = {}
        """Rank -> file with its whole stdout."""
        self._seq: dict[tuple[str, str], int] = {}
        self._node_of: dict[tuple[str, int], str] = {}
        self._offsets: dict[tuple[str, int, str], int] = {}

    # ---- methods that the console calls

    async def namespaces(self, also: str = "") -> Namespaces:
        del also
        self.known_namespaces = self.namespaces_there
        return self.namespaces_there

    def want(self, nodes) -> None:
        self.wanted = nodes

    def answer(self, answers: Answers) -> None:
        self.answers.append(answers)
        self.pending = None

    def job_files(self) -> tuple[Path, ...]:
        return self.files

    def read_job(self, path: Path) -> JobSpec:
        text = path.read_text()
        if "bad" in text:
            raise ConfigError(
                [
                    Problem(
                        str(path),
                        3,
                        1,
                        "ranks_per_nod",
                        "not known; did you mean ranks_per_node?",
                    )
                ]
            )
        return JobSpec(name=path.stem, launch=Launch.PLAIN, command=("true",), file=str(path))

    def plan(self, spec: JobSpec) -> Plan:
        if spec.name == "impossible":
            raise LaunchError("plan", "3 nodes asked for, 2 there")
        return plan_of(f"{spec.name}-1", 2, 2)

    async def launch(self, spec: JobSpec, tell=lambda _: None) -> str:
        for progress in self.copies:
            tell(progress)
            await self.copied.wait()
        if spec.name == "refused":
            raise LaunchError("start", "node02: no Python 3.9 there")
        self.launched.append(spec.name)
        plan = plan_of(f"{spec.name}-1", 2, 2)
        self._place(plan)
        return self.jobs.add(plan, time.time()).id

    async def find_run(self, job_id: str, number: int) -> LogRun:
        if number >= len(self.runs):
            raise RankdeckError(f"{job_id} has the runs 0 to {len(self.runs) - 1}")
        return self.runs[number]

    async def cancel_tasks(self, job_id: str, tasks: Sequence[int]) -> CancelReport:
        self.cancelled.append(" ".join([job_id, *map(str, tasks)]))
        return CancelReport(job_id, State.CANCELLED)

    async def cancel(self, job_id: str, grace: float | None = None) -> CancelReport:
        del grace
        self.cancelled.append(job_id)
        report = self.cancel_report or CancelReport(job_id, State.CANCELLED)
        self.jobs.cancelled(job_id, report, time.time())
        return report

    def why_not(self, need: str, what: JobSpec | str) -> str:
        del what
        return self.refused.get(need, "")

    def others(self, known) -> list[KubernetesJob | SlurmJob]:
        del known
        return self.listed

    async def list_ended(self) -> str:
        self.listed += self.ended
        return self.no_history

    def words(self) -> str:
        return self.left_out

    def partitions(self) -> list[Partition]:
        return self.parts

    async def change_service(self, order: ServiceOrder, agreed: str = "") -> ServiceChange:
        self.ordered.append((order, agreed))
        return self.changes.pop(0)

    async def change_jobs(self, order: JobOrder, agreed: str = "") -> JobChange:
        self.job_orders.append((order, agreed))
        return self.job_changes.pop(0)

    async def ask(self, what: str, jobs=()) -> SchedulerPages:
        self.slurm_asked.append((what, tuple(jobs)))
        return self.slurm_says

    def entry(self, number: str) -> SlurmJob | None:
        return next(
            (one for one in self.listed if isinstance(one, SlurmJob) and one.id == number), None
        )

    async def attach(self, text: str) -> str:
        (found,) = [one for one in self.listed if one.place == text]
        self.listed.remove(found)
        plan = replace(plan_of(f"{found.name}-1", 1, 1), owner=found.whose)
        self.jobs.add(plan, time.time())
        return plan.job

    def run_command(self, nodes, command: str) -> CommandRun:
        run = CommandRun(Agents(NoShell()), CommandState(command, nodes), 10.0)
        self.commands = [*self.commands, run]
        return run

    async def find_processes(self, nodes) -> FoundProcesses:
        wanted = tuple(one for one in self.running if one.node in set(nodes))
        return FoundProcesses(wanted, dict(self.not_asked))

    async def send_signal(self, name: str, some) -> dict[str, str]:
        self.signalled.append((name, tuple(one.pid for one in some)))
        return {}

    async def find_lacking(self, specs) -> dict[str, str]:
        return {spec.file: self.lacks.get(spec.file, "") for spec in specs}

    async def push(self, file: Path, to: str, nodes, tell) -> tuple[str, dict[str, NodeError]]:
        self.copied_files.append((file, to, tuple(nodes)))
        return "", {}

    async def fetch(self, path: str, nodes, folder: Path, tell) -> dict[str, NodeError]:
        self.fetched_files.append((path, tuple(nodes), folder))
        return {}

    def shell_command(self, node: str, words=()) -> tuple[str, ...]:
        return UserSsh(self.cluster).command(node, words)

    async def inspect(self, job_id: str) -> Inspection:
        return conclude_inspection(job_id, time.time(), self.looks, {})

    async def report(self, job_id: str, path: Path, *, page: bool) -> dict[str, str]:
        text = f"{'page' if page else 'archive'} of {job_id}"
        await asyncio.to_thread(path.write_text, text)
        return {"node02": "it does not answer"}

    def export(self, spec: JobSpec) -> str:
        return f"#!/bin/sh\n# {spec.name}\n"

    async def replay(self, job_id: str, speed: float = 1.0) -> str:
        self.replayed.append((job_id, speed))
        job = self.jobs.job(job_id)
        if job.plan.replay_of:
            # Starts again, as in the session.
            self.jobs.add(job.plan, job.created)
            self.jobs.set_clock(job_id, job.created + 9)
        return job_id

    def forget(self, job_id: str) -> None:
        self.jobs.forget(job_id)

    def wind(self, job_id: str, seconds: float) -> bool:
        self.wound.append((job_id, seconds))
        return len(self.wound) % 2 == 1

    async def preflight(
        self, spec: JobSpec, tell=lambda _: None, step=lambda _done, _of, _doing: None
    ) -> tuple[Finding, ...]:
        for place, one in enumerate(self.findings, 1):
            tell(one)
            step(place, len(self.findings) + 1, "trying")
        await self.asked.wait()
        return tuple(self.findings)

    async def acknowledge(self, *acks: Ack) -> None:
        self.acks = [*self.acks, *acks]
        valid: dict[tuple[str, str, str], Ack] = {}
        for one in self.acks:
            valid = valid if one.until else {k: v for k, v in valid.items() if not one.ends(v)}
            valid |= {(one.node, one.check, one.device): one} if one.until else {}
        self.fleet.set_acks(one for one in valid.values() if one.until > time.time())

    def view(self, node: str, hours: float, until: float | None = None) -> PastView | None:
        self.looked_back.append((node, hours, until))
        return self.past_view

    def hold(self, job_id: str) -> None:
        self.held.append(job_id)
        self.jobs.set_countdown(job_id, None)

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = None) -> None:
        del backlog
        self.watched.append((job_id, tuple(ranks)))

    def read_output(self, job_id: str, rank: int) -> "OnNode":
        if rank not in self.on_node:
            raise AgentError("node01", f"rank {rank} has no output")
        return OnNode(job_id, self.on_node[rank])

    def _place(self, plan: Plan) -> None:
        """Note which node each rank, and the launcher, writes from."""
        self._node_of[plan.job, LAUNCHER] = plan.nodes[0].node
        for node in plan.nodes:
            self._node_of |= {(plan.job, rank): node.node for rank in node.ranks}


class Stage(SessionDouble):
    """A session whose jobs a test fills by hand."""

    def follow(self, plan: Plan) -> None:
        """Add a job of others that is followed."""
        self._place(plan)
        self.jobs.add(plan, time.time())

    def start(self, job_id: str, nodes: int = 2, per_node: int = 4) -> str:
        """A job with all its ranks running."""
        plan = plan_of(job_id, nodes, per_node)
        self._place(plan)
        self.jobs.add(plan, time.time() - 83)
        for node in plan.nodes:
            self.tell(job_id, node.node, "ready", pid=1, boot="b")
            for rank in node.ranks:
                self.tell(job_id, node.node, "started", rank=rank, pid=100 + rank)
        return job_id

    def tell(
        self,
        job_id: str,
        node: str,
        kind: str,
        at: float | None = None,
        **fields: object,
    ) -> None:
        """An event of a node's supervisor."""
        seq = self._seq.get((job_id, node), -1) + 1
        self._seq[job_id, node] = seq
        self.jobs.apply(node_event(job_id, node, kind, at or time.time(), seq=seq, **fields))

    def write(
        self,
        job_id: str,
        rank: int,
        text: str | bytes,
        stream: str = "out",
        at: float | None = None,
    ) -> None:
        """Output of a rank."""
        data = text.encode() if isinstance(text, str) else text
        offset = self._offsets.get((job_id, rank, stream), 0)
        self._offsets[job_id, rank, stream] = offset + len(data)
        self.jobs.apply(
            Chunk(
                job_id,
                self._node_of[job_id, rank],
                rank,
                stream,
                offset,
                at or time.time(),
                data,
            )
        )


class NoShell:
    """Contacts no node: a test gives the output of a command."""


class OnNode:
    """Output by offset, read by the agent's own code from a local file instead of the node's."""

    def __init__(self, job: str, path: Path) -> None:
        self._job, self._path = job, path
        self.opened = 0

    async def read(self, place: LogPlace, size: int) -> LogPart:
        pieces, end = read_log_lines(self._path, place.offset, size)
        chunks = [
            Chunk(self._job, "", place.rank, place.stream, p.offset, p.at or 0.0, p.data)
            for p in pieces
        ]
        return LogPart(place.stream, tuple(chunks), end)

    async def find(self, place: LogPlace, text: str, *, back: bool) -> AsyncGenerator[FoundLine]:
        pattern = search_pattern(text)
        needle = RegexQuery(pattern) if pattern else TextQuery(text)
        for one in LogSearch(self._path, needle).steps(place.offset, back):
            if one is not None:
                share = one.counted / max(one.end, 1)
                yield FoundLine(one.at, one.before, one.lines, share, one.looking)

    async def open(self) -> None:
        self.opened += 1
