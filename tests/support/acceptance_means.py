"""A session without real jobs: the output of ranks is made up from a simulated
network and the real script of each job.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path

from rankdeck.acceptance.gate import PROGRAM
from rankdeck.acceptance.work import FILE, MARK
from rankdeck.backends.launchers import plan_job
from rankdeck.config.jobs import read_job
from rankdeck.errors import LaunchError
from rankdeck.model.cancel_report import CancelReport, RemainingProcess
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Chunk, Followed
from rankdeck.model.scheduler_node import SchedulerNode
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from tests.support.judged_fleet import JudgedFleet
from tests.support.node_events import node_event

_STEP = re.compile(r"^    (ask|serve) (\d+) \d+ (.*)$", re.MULTILINE)
Speed = Callable[[str, str], float | None]
"""(sender, receiver) -> Gb/s, None if it hangs; for a program without a
server its first and its last node.
"""


@dataclass
class SimulatedMeans:
    """Implements `AcceptanceSession`: every job ends at once, unless one of its pairs hangs."""

    cluster: Cluster
    speed: Speed
    left: frozenset[str] = frozenset()
    """Nodes on which a cancelled job leaves a process."""
    unasked: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node that a cancel cannot reach -> why; with a scheduler its login node."""
    jobs: Jobs = field(default_factory=Jobs)
    launched: list[JobSpec] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=dict)
    """Node -> reported share of its cores in use; 0 for others."""
    refusing: Mapping[str, str] = field(default_factory=dict)
    """Node -> why no job can start there."""
    after: Callable[[int], None] = lambda _: None
    """Called at each launch with the number of jobs launched so far."""

    def __post_init__(self) -> None:
        self.fleet = JudgedFleet(self.cluster)
        self._hung: set[str] = set()
        self._hear: dict[str, Callable[[Followed], None]] = {}

    @property
    def following(self) -> "SimulatedMeans":
        return self

    @property
    def control(self) -> "SimulatedMeans":
        return self

    @property
    def queue(self) -> "SimulatedMeans":
        return self

    def read_job(self, path: Path) -> JobSpec:
        return read_job(path)

    async def caught_up(self, *, silent: Collection[str]) -> set[str]:
        del silent
        return set()

    async def ask_nodes(self, names: Sequence[str]) -> Mapping[str, SchedulerNode]:
        del names
        return {}

    async def find_running(self, limit: float = 0.0) -> dict[str, str]:
        return {}

    def starting_often(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def find_lacking(self, specs: Sequence[JobSpec]) -> dict[str, str]:
        return {spec.file: "" for spec in specs}

    def find_excluded(self) -> dict[str, str]:
        return {}

    async def launch(self, spec: JobSpec, *, anywhere: bool = False) -> str:
        assert anywhere
        if whys := {node: why for node, why in self.refusing.items() if node in spec.on}:
            raise LaunchError("prepare", "; ".join(whys.values()), whys)
        self.launched.append(spec)
        self.after(len(self.launched))
        job = f"accept-{len(self.launched)}"
        self.jobs.add(replace(plan_job(self.cluster, spec, job), spec=spec), 1.0)
        return job

    def listen(self, job_id: str, hear: Callable[[Followed], None]) -> None:
        self._hear[job_id] = hear

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = None) -> None:
        del ranks, backlog
        spec = self.launched[int(job_id.rpartition("-")[2]) - 1]
        for rank, text in enumerate(self._outputs(job_id, spec)):
            self._hear[job_id](Chunk(job_id, spec.on[rank], rank, "out", 0, 1.0, text.encode()))

    async def finished(self, job_id: str) -> Job:
        if job_id in self._hung:
            await asyncio.Event().wait()
        for rank in self.jobs.job(job_id).ranks:
            for seq, kind in enumerate(("exited", "closed")):
                more = {"seq": seq, "rank": rank.rank, "code": 0}
                self.jobs.apply(node_event(job_id, rank.node, kind, 2.0, **more))
        return self.jobs.job(job_id)

    async def cancel(self, job_id: str, grace: float | None = None) -> CancelReport:
        del grace
        self.cancelled.append(job_id)
        nodes = self.jobs.job(job_id).nodes
        left = tuple(RemainingProcess(node, 7, "iperf3") for node in nodes if node in self.left)
        return CancelReport(job_id, State.RUNNING if left else State.CANCELLED, left, self.unasked)

    def _outputs(self, job_id: str, spec: JobSpec) -> list[str]:
        """The output of both ranks; it ends at the step that hangs."""
        if PROGRAM in spec.files:
            return [_facts(node, self.busy.get(node, 0.0)) for node in spec.on]
        texts = [""] * len(spec.on)
        if FILE not in spec.files:
            if self.speed(spec.on[0], spec.on[-1]) is None:
                self._hung.add(job_id)
            return texts  # a program without output
        sections = re.split(r"^[01]\)\n", spec.files[FILE], flags=re.MULTILINE)[1:]
        asks = sorted(
            (int(m[2]), rank)
            for rank, part in enumerate(sections)
            for m in _STEP.finditer(part)
            if m[1] == "ask"
        )
        for number, rank in asks:
            speed = self.speed(spec.on[rank], spec.on[1 - rank])
            texts[rank] += f"{MARK} begin {number}\n"
            if speed is None:
                self._hung.add(job_id)
                break
            texts[rank] += f"{_iperf3(speed)}\n{MARK} end {number} 0 100.00 101.00\n"
        return texts


def _facts(node: str, busy: float) -> str:
    """What a node says of itself."""
    said = {"hostname": node, "machine": node, "boot": node, "busy": busy, "programs": ["iperf3"]}
    return f"#rankdeck-facts {dumps(said)}\n"


def _iperf3(gbps: float) -> str:
    end = {"sum_received": {"bits_per_second": gbps * 1e9}, "sum_sent": {"retransmits": 0}}
    return dumps({"start": {"connected": []}, "intervals": [{}], "end": end})
