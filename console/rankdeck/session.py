"""The session of one open cluster: the parts that do its work, and what keeps them going."""

import asyncio
import time
from functools import cached_property
from typing import TYPE_CHECKING

from rankdeck import plugins
from rankdeck.acceptance.store import AcceptanceRuns
from rankdeck.backends.base import Backend
from rankdeck.backends.black_boxes import BoxReader
from rankdeck.backends.witnesses import WitnessWatch
from rankdeck.background import BackgroundTasks
from rankdeck.config.files import console_state_folder
from rankdeck.following import Following, PauseWatch
from rankdeck.hearing import Hearing
from rankdeck.job_control import LOOK_LIMIT, JobControl, JobParts
from rankdeck.model.cluster import Cluster
from rankdeck.node_commands import NodeCommands
from rankdeck.node_journal import NodeJournal
from rankdeck.remote.agent import Agents
from rankdeck.remote.questions import Questions
from rankdeck.remote.shell import Shell
from rankdeck.scaling.store import ScalingStudies
from rankdeck.schedulers.queue import Queue
from rankdeck.state.fleet import Fleet, Switches
from rankdeck.state.fleet_history import Messages
from rankdeck.state.history_thread import HistoryThread, KeptRecords
from rankdeck.state.job_recorder import JobRecorder
from rankdeck.state.jobs import Jobs
from rankdeck.telemetry.gnmi import collect_switches

if TYPE_CHECKING:
    from rankdeck.acceptance.service import Acceptance
    from rankdeck.images.bring import ImageDistributor
    from rankdeck.prometheus.site_past import SitePast
    from rankdeck.scaling.service import Scaling
    from rankdeck.swap.service import Swaps
    from rankdeck.telemetry.link import Link

SAVE_PERIOD = 1.0
LOOK = 0.1
"""Seconds between two judgements of the nodes that changed."""
WORK = 0.005
"""Seconds that one round of judging may take, so that key presses are not delayed."""
Kept = tuple[HistoryThread, AcceptanceRuns, ScalingStudies]
"""The user's stored data: history of jobs, acceptance runs, scaling studies."""


class Session:
    """One open cluster; made by `open_cluster_session`.

    Screens and commands read its state (`fleet`, `jobs`, …) and have its parts do the work.
    """

    def __init__(
        self, cluster: Cluster, kept: Kept, questions: Questions, shell: Shell, tasks: asyncio.TaskGroup
    ) -> None:  # fmt: skip
        self.cluster, self.questions = cluster, questions
        self.history, self._accepted, self._studies = kept
        # State
        self.fleet, self.switches = Fleet(cluster), Switches(cluster)
        self.jobs, self.messages = Jobs(), Messages()
        # Parts
        self._background = background = BackgroundTasks(tasks)
        self._agents = agents = Agents(
            shell,
            *cluster.access.pythons,
            of_node={node.name: node.pythons for node in cluster.nodes},
            folder=cluster.access.folder,
            patience=cluster.access.patience,
            simulating=bool(cluster.simulate),
        )
        backend: Backend = plugins.find_plugin("backends", cluster.backend)(agents)
        recorder = JobRecorder(self.history, self.fleet, cluster.name)
        self.queue = open_queue(cluster, agents, self.fleet)
        self.following = Following(self.jobs, self.fleet, recorder, backend, background.start)
        self.following.allow(cluster.access.patience, WitnessWatch(agents), BoxReader(agents))
        self.nodes = NodeCommands(cluster, agents, self.queue, background)
        self.node_journal = NodeJournal(
            self.history.nodes_of(cluster.name), self.history, (self.fleet, self.jobs, recorder)
        )
        self.hearing = Hearing(
            cluster, agents, shell, (self.fleet, self.jobs, self.queue, background)
        )
        self.control = JobControl(
            JobParts(
                cluster=cluster,
                agents=agents,
                backend=backend,
                queue=self.queue,
                fleet=self.fleet,
                jobs=self.jobs,
                images=lambda: self.images,
                following=self.following,
                history=self.history,
                recorder=recorder,
                accepted=self._accepted,
                background=background,
                site_past=lambda: self.site_past,
            )
        )

    @cached_property
    def images(self) -> "ImageDistributor":
        """Copies images to nodes; see `images/bring.py`."""
        from rankdeck.images.bring import ImageDistributor

        return ImageDistributor(self._agents)

    @cached_property
    def site_past(self) -> "SitePast":
        """The nodes' numbers of hours and days ago, from the site's Prometheus."""
        from rankdeck.prometheus.site_past import SitePast

        return SitePast(self.cluster, self._background.start)

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

    @cached_property
    def swaps(self) -> "Swaps":
        """Finds out whether a program or a node is to blame; see `swap/service.py`."""
        from rankdeck.swap.service import Swaps

        return Swaps(self)

    def begin(self, kept: KeptRecords, link: "Link | None", *, brief: bool = False) -> None:
        """Take up the jobs and events of earlier sessions; with a `link`, start to
        receive the telemetry of every node.
        """
        self.following.begin(self.control.cancel)
        for job in reversed(kept.jobs):
            self.following.take_up(job, kept.seen.get(job.id, {}))
        self.fleet.event_log.restore(kept.events)
        if link is not None and not brief:
            # Their problems are shown until the nodes have been judged again.
            self.fleet.recall()
        self.fleet.set_acks(kept.acks)
        start = self._background.start
        start(self._keep_records())
        start(self._serve_screens())
        start(self._keep_time())
        if link is not None:
            start(collect_switches(self.cluster, self.switches))
            start(self.control.find_running(LOOK_LIMIT))
            told = self.queue.judges_nodes or self.fleet.open
            self.fleet.await_nodes(awaited=self.queue.asked and told)
            start(self.queue.watch())
            self.hearing.attach(link, [node.name for node in self.cluster.nodes], brief=brief)

    def end(self) -> None:
        """Stop all background tasks; jobs on the nodes go on."""
        self._background.stop()

    async def _keep_records(self) -> None:
        while True:
            await asyncio.sleep(SAVE_PERIOD)
            await self.following.save(time.time())
            await self.node_journal.look()

    async def _serve_screens(self) -> None:
        """What must go on while a disk hangs."""
        while True:
            await asyncio.sleep(SAVE_PERIOD)
            self.hearing.look()

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


def open_queue(cluster: Cluster, agents: Agents, fleet: Fleet) -> Queue:
    """What is asked about the jobs and nodes of the cluster's scheduler; an empty queue where
    there is none to ask: no scheduler, or one whose login node the cluster file does not name.
    """
    nobody = cluster.can.queue and not cluster.options.get("login")
    if nobody or not cluster.can.scheduler:
        return Queue()
    name = cluster.backend
    if name not in plugins.QUEUES and name not in plugins.plugin_names("queues"):
        return Queue()  # of another package, which brings no queue
    queue: Queue = plugins.find_plugin("queues", name)(agents, cluster, fleet)
    return queue
