"""Configures the telemetry agents of nodes, and records in the fleet how each is heard."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from rankdeck.errors import AgentError, BrokerError, ForwardingError
from rankdeck.model.nodeset import fold_nodes
from rankdeck.remote.agent import AgentSetup
from rankdeck.remote.shell import Shell
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.link import Link

log = logging.getLogger(__name__)


SETTLE_LIMIT = 12.0
MUTE = 30.0
"""Seconds after the start of an agent in which the first message of it must have arrived."""
_STARTED = "its telemetry has started"
INSTALLED = "installed there; see `rankdeck agent status`"


class Telemetry:
    """Configures the telemetry agents of nodes, records their state in the
    fleet; see `remote.agent.WantedAgent`.
    """

    def __init__(
        self,
        connections: Shell,
        link: Link,
        fleet: Fleet,
        *,
        brief: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`brief`: for commands that run only a moment; see `Config.brief` of the agent.

        `clock`: seconds from any origin.
        """
        self._clock = clock
        self._connections, self._link, self._fleet = connections, link, fleet
        self._brief = brief
        self._leases: dict[str, Callable[[bytes], None]] = {}
        """Node -> function that writes to its agent's stdin."""
        self._waiting: dict[str, asyncio.Future[None]] = {}
        """Node -> future that is done when an agent may have been installed or removed there."""
        self._wanted: set[str] = set()
        """Nodes whose agent runs and was told that full samples are wanted."""
        self._to_reach: set[str] = set()
        """Nodes that have neither been reached nor failed yet."""
        self._since: dict[str, float] = {}
        """Node -> when its agent was started, for those of which no message has arrived yet."""
        self._mute: set[str] = set()
        """Those of them that have been reported."""
        self._inside: dict[str, str] = {}
        """Node -> how it is heard although nobody can log in there, one sentence."""
        self._expected = 0

    def expect(self, nodes: Iterable[str]) -> None:
        """Set which nodes are about to be reached; see `connecting`."""
        self._to_reach = {*nodes}
        self._expected = len(self._to_reach)

    @property
    def connecting(self) -> tuple[int, int]:
        """(done, all) of the expected nodes; a node is done once it was reached or failed."""
        return self._expected - len(self._to_reach), self._expected

    def want(self, names: frozenset[str] | None) -> None:
        """Tell the agents that this console started whether full samples
        are wanted; None: of all nodes.
        """
        self._link.want(names)
        known = self._leases.keys()
        now = known if names is None else known & names
        for node in now ^ self._wanted:
            self._send_wish(node, wanted=node in now)

    def _send_wish(self, node: str, *, wanted: bool) -> None:
        (self._wanted.add if wanted else self._wanted.discard)(node)
        self._leases[node](json.dumps({"samples": wanted}).encode() + b"\n")

    def started(self, node: str, write: Callable[[bytes], None]) -> None:
        """Note that the agent runs; `write` sends to its stdin."""
        self._leases[node] = write
        self._since[node] = self._clock()
        self._wanted.discard(node)
        if self._fleet.is_wanted(node):
            self._send_wish(node, wanted=True)

    def ended(self, node: str) -> None:
        """Note that the agent no longer runs."""
        self._leases.pop(node, None)
        self._since.pop(node, None)
        self._mute.discard(node)
        self._wanted.discard(node)

    async def configure(self, node: str) -> AgentSetup:
        """The agent's configuration; waits while an agent is installed there.
        Opens a new tunnel. Raises NodeError.

        If the SSH server opens no port, the agent sends over its own output.
        """
        await self._link.settled(SETTLE_LIMIT)
        if self._link.trouble:
            raise AgentError(node, "not started: nothing would receive its data")
        if self._is_installed(node):
            self.report(node, INSTALLED, well=True)
            await self._until(node, installed=False)
        try:
            config = self._link.agent_config(node) | {"samples": False, "brief": self._brief}
        except BrokerError as error:
            raise AgentError(node, str(error)) from error
        if not self._link.tunnel:
            return AgentSetup(config)
        try:
            port = await self._connections.reverse_tunnel(node, *self._link.address)
        except ForwardingError:
            return AgentSetup(config | {"host": "127.0.0.1", "relay": True}, self._link.address)
        return AgentSetup(config | {"host": "127.0.0.1", "port": port})

    def superseded(self, node: str) -> Awaitable[None] | None:
        """Returns when an installed agent publishes that was still starting
        in `configure`; None: there is none.
        """
        # Installed agents publish to a site's broker only.
        return None if self._link.private else self._until(node, installed=True)

    async def _until(self, node: str, *, installed: bool) -> None:
        while self._is_installed(node) is not installed:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting[node] = waiting
            await waiting

    def look(self) -> None:
        """Wake the tasks that wait for an agent to be installed or removed, and note
        agents that run unheard. Call it about once a second.

        It checks all nodes at once: a timer for each node would cost
        more than reading the messages.
        """
        for node in self._fleet.take_installations():
            if (waiting := self._waiting.pop(node, None)) and not waiting.done():
                waiting.set_result(None)
        if self._since and not self._link.private and not self._link.trouble:
            self._look_for_mute()

    def _look_for_mute(self) -> None:
        """Report nodes whose agent runs, but of which the site's broker passes nothing on."""
        now = self._clock()
        for node in [node for node in self._since if self._fleet.node(node).was_heard]:
            del self._since[node]
            if node in self._mute:
                self._mute.discard(node)
                self._fleet.attached(node, _STARTED)
        late = {node for node, since in self._since.items() if now - since > MUTE} - self._mute
        for node in late:
            self._fleet.troubled(node, self._why_mute())
        if late:
            log.warning("%s", self._why_mute(), extra={"source": fold_nodes(late)})
        self._mute |= late

    def _why_mute(self) -> str:
        host, port = self._link.address
        return (
            f"its agent runs, but nothing of it comes from the broker {host}:{port}: can the node"
            " reach that, and may agents write and this console read `rankdeck/1/#` there (ACL)?"
        )

    def _is_installed(self, node: str) -> bool:
        return self._fleet.node(node).installed

    def take(self, node: str, topic: str, payload: bytes, way: str) -> None:
        """Take a node's message that did not come through the broker;
        `way` is a sentence for how it came.
        """
        if self._inside.get(node) != way:
            self._inside[node] = way
            self.report(node, way, well=True)
        self._link.intake.take(topic, payload)

    def lost(self, nodes: Iterable[str]) -> None:
        """Note that messages of these nodes no longer arrive that way; see `take`."""
        for node in nodes:
            self._inside.pop(node, None)

    def report(self, node: str, sentence: str, well: bool) -> None:
        """Record the agent's state in the fleet: it runs (`well`), or why it does not."""
        self._to_reach.discard(node)
        if well or node in self._inside:
            self._fleet.attached(node, sentence if well else self._inside[node])
            return
        self._fleet.troubled(node, sentence)
        log.warning("%s", sentence, extra={"source": node})
