"""Hearing the nodes: their agents are started, and what they send reaches the fleet."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rankdeck.background import BackgroundTasks
from rankdeck.errors import BrokerError
from rankdeck.following import wait_for_condition
from rankdeck.model.cluster import Cluster
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import Shell
from rankdeck.schedulers.queue import Queue
from rankdeck.state.fleet import Fleet
from rankdeck.state.jobs import Jobs

if TYPE_CHECKING:
    from rankdeck.telemetry.link import Link
    from rankdeck.telemetry.node_telemetry import Telemetry

log = logging.getLogger(__name__)
MOST_BUSY = 256
"""If running jobs use more nodes than this, full samples are not requested
for them; health messages are enough.
"""
HEAR_AFTER = 1.0
"""Seconds after which a command that shows a job also receives telemetry from the job's nodes."""


class Hearing:
    """Receives the telemetry of the nodes of one open cluster, and says which samples to send."""

    def __init__(self, cluster: Cluster, agents: Agents, shell: Shell, known: "Known") -> None:
        self._cluster, self._agents, self._shell = cluster, agents, shell
        self._fleet, self._jobs, self._queue, self._background = known
        self._listens = False
        """Whether telemetry of the nodes is being received."""
        self._telemetry: Telemetry | None = None
        self._on_screen: frozenset[str] | None = frozenset()
        """Nodes from which a front end wants full samples; None: from all."""

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
        if wanted is not None and len(self._fleet.busy) <= MOST_BUSY:
            wanted |= self._fleet.busy
        self._fleet.want(wanted)
        if self._telemetry is not None:
            self._telemetry.want(wanted)

    async def settle(self, limit: float) -> None:
        """Wait until every node has sent telemetry or failed, at most `limit` seconds."""
        await wait_for_condition(self._fleet.settled, limit)

    @property
    def connecting(self) -> tuple[int, int]:
        """(done, all) of the nodes asked for telemetry; a node is done
        once it has answered or failed.
        """
        return self._telemetry.connecting if self._telemetry else (0, 0)

    def hear(self, nodes: Iterable[str]) -> None:
        """Receive the telemetry of these nodes in the background, while the cluster is open.

        Only the first call has an effect, and none if it was opened with telemetry: then every
        node is heard.
        """
        if not self._listens:
            self._listens = True
            known = {node.name for node in self._cluster.nodes}
            # A login node, or this machine, is not part of the fleet.
            self._background.start(self._open([node for node in nodes if node in known]))

    async def _open(self, nodes: Sequence[str]) -> None:
        await asyncio.sleep(HEAR_AFTER)  # a short job must not be delayed by telemetry
        from rankdeck.telemetry.link import open_link

        try:
            async with open_link(self._cluster, self._fleet) as link:
                self.attach(link, nodes)
                await asyncio.Event().wait()
        except BrokerError as error:
            log.warning("the nodes of the job are not heard: %s", error)

    def attach(self, link: "Link", nodes: Sequence[str], *, brief: bool = False) -> None:
        """Start the agents of these nodes, and receive what they send over `link`.

        `brief`: see `open_cluster_session`.
        """
        # Most commands hear no node.
        from rankdeck.telemetry.node_telemetry import Telemetry

        self._listens = True
        self._telemetry = Telemetry(self._shell, link, self._fleet, brief=brief)
        self._ask_for_samples()
        self._telemetry.expect(nodes)
        for node in nodes:
            work = self._agents.attach_telemetry(node, self._telemetry, self._background.group)
            self._background.adopt(work)
        self._background.start(self._queue.hear(self._telemetry, self._jobs))

    def look(self) -> None:
        """Once a second: note which nodes run jobs, and which agents do not answer."""
        self._fleet.set_busy(self._jobs.busy())
        self._ask_for_samples()
        if self._telemetry is not None:
            self._telemetry.look()


Known = tuple[Fleet, Jobs, Queue, BackgroundTasks]
"""What is known of the cluster, and what runs for it in the background."""
