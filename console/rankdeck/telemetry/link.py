"""Receives the telemetry of a cluster from the private or the site's
broker and passes it to the fleet.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from rankdeck.config.clusters import read_accounts
from rankdeck.config.files import expand_path, read_regular
from rankdeck.errors import AgentError, BrokerError, ForwardingError, RankdeckError
from rankdeck.model.cluster import Broker, Cluster, Node
from rankdeck.remote.agent import AgentSetup
from rankdeck.remote.shell import Shell
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.private_broker import PrivateBroker
from rankdeck.telemetry.site_client import Address, SiteClient, Topics
from rankdeck_agent.wire import WireError, decode_message, split_time, split_topic
from rankdeck_agent.wire import message_topic as make_topic

log = logging.getLogger(__name__)
PERIOD = 1.0
KEEPALIVE = 10
FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
STEADY = 30.0
"""A connection that lasted longer than this many seconds is reopened soon;
after a shorter one the pause grows.
"""
_NAME = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}")
"""Node names that Kubernetes allows."""
KEPT = frozenset({"hello", "health"})
"""Kinds of retained messages that are still useful."""
HEARD_ALWAYS = {"hello": 1, "health": 0, "event": 1}
"""Kinds of messages that a console always receives from every node -> MQTT quality of service.

Health messages have QoS 0: each is complete and is repeated with every heartbeat. Acknowledging
each would cost as much as reading it, and only 20 could be in flight at a time.
"""
MANY = 64
"""Samples are subscribed to by node name for up to this many nodes or half of
the fleet, else for all nodes at once.
"""
MANY_NODES_PERIOD = 15.0
"""Seconds between two samples of an installed agent in a large cluster,
unless the cluster file sets another value.
"""
FEW_NODES, HEARTBEAT, SLOW_HEARTBEAT = 2000, 10.0, 30.0
SPARE = 2
"""Seconds from a missing heartbeat to the ping that replaces it."""
RETAINED = 0.5
"""Seconds that a broker may need to send its retained messages after a subscription."""


class Link(Protocol):
    """The broker to which the agents of an open cluster publish."""

    private: bool
    """The broker is inside this console: agents need a tunnel to it."""
    intake: "FleetUpdater"
    """Receives each message."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the broker, as seen from the console."""
        ...

    @property
    def trouble(self) -> str:
        """What is wrong with the broker, one sentence; "" if nothing."""
        ...

    @property
    def tunnel(self) -> bool:
        """Whether agents reach the broker through the console's SSH connection."""
        ...

    def agent_config(self, node_name: str) -> dict[str, object]:
        """The configuration of this node's agent; with a tunnel, callers replace host and port.

        Raises BrokerError.
        """
        ...

    async def settled(self, limit: float) -> None:
        """Wait until retained messages of the agents have arrived, at most `limit` seconds."""
        ...

    def want(self, names: frozenset[str] | None) -> None:
        """Receive full samples of these nodes from now on; None: of all nodes."""
        ...


class FleetUpdater:
    """Decodes messages and applies them to the fleet; invalid ones are
    counted, and reported once per node.
    """

    def __init__(self, cluster: str, fleet: Fleet) -> None:
        self.refused: dict[str, int] = {}
        """Node -> number of messages that could not be used."""
        self._health: dict[str, int] = {}
        """Node -> hash of its last health message without the time."""
        self._cluster = cluster
        self._fleet = fleet

    def take(self, topic: str, payload: bytes, retained: bool = False) -> None:
        """Apply one message; never raises. `retained`: the broker had stored it."""
        parts = split_topic(topic)
        if parts is None or parts[0] != self._cluster:
            self._refuse(
                "another cluster", f"message on {topic[:120]!r} is not for cluster {self._cluster}"
            )
            return
        _, node, kind = parts
        if not payload or (retained and kind not in KEPT):
            # A deleted retained message, or an old event or sample: not a sign of life.
            if kind == "hello":
                self._fleet.uninstalled(node)
            return
        if not (self._fleet.knows(node) or self._found(node)):
            self._refuse("unknown nodes", f"node {node[:80]!r} is not in the cluster file")
            return
        if kind == "health" and self._is_heartbeat(node, payload, retained=retained):
            return
        try:
            self._fleet.apply(node, decode_message(kind, payload), retained=retained)
        except WireError as error:
            self._health.pop(node, None)
            self._refuse(node, f"unusable message: {str(error)[:200]!r}")

    def _is_heartbeat(self, node: str, payload: bytes, *, retained: bool) -> bool:
        """Whether the fleet took a health message as a heartbeat, because the
        node's health is the same as before.
        """
        stamp, rest = split_time(payload)
        if retained or stamp is None:
            return False
        before, self._health[node] = self._health.get(node), hash(rest)
        return before == self._health[node] and self._fleet.heartbeat(node, stamp)

    def _found(self, node: str) -> bool:
        """Whether a fleet that discovers its nodes adds this one: agents may be
        heard before the server lists them.
        """
        return bool(_NAME.fullmatch(node)) and self._fleet.find(node)

    def too_long(self, topic: str, size: int) -> None:
        """Note a message of `size` bytes that was left out because of its length."""
        _, node, kind = split_topic(topic) or ("", "", "")
        known = node if self._fleet.knows(node) else "unknown nodes"
        self._refuse(
            known, f"{kind[:20] or 'message'} of {size >> 20} MB on {topic[:120]!r}: left out"
        )

    def _refuse(self, who: str, why: str) -> None:
        if who not in self.refused:
            log.warning("%s", why, extra={"source": who})
        self.refused[who] = self.refused.get(who, 0) + 1


class PrivateLink:
    """The broker inside this console."""

    private = True

    def __init__(self, cluster: Cluster, fleet: Fleet) -> None:
        self.intake = FleetUpdater(cluster.name, fleet)
        self._cluster = cluster
        self._fleet = fleet
        self.broker = PrivateBroker(self.intake.take, cluster.name, cluster.access.patience)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.broker.port

    @property
    def trouble(self) -> str:
        return self._fleet.trouble

    @property
    def tunnel(self) -> bool:
        return True

    async def settled(self, limit: float) -> None:
        """Return at once: agents publish here only after this console has started them."""

    def want(self, names: frozenset[str] | None) -> None:
        """Do nothing: agents are told on their stdin, and send only what is wanted."""

    def agent_config(self, node_name: str) -> dict[str, object]:
        username, password = self.broker.credential(node_name)
        host, port = self.address
        login = {"username": username, "password": password, "tls": False, "ca_file": ""}
        common = _common(self._cluster, node_name)
        return {
            **common,
            "host": host,
            "port": port,
            # SSH notices when a node is gone, so an agent that sends
            # heartbeats need not ping as well.
            "keepalive": int(common["heartbeat"]) + SPARE,
            **login,
        }


class SiteLink:
    """The site's broker: subscribes, and reconnects when the connection is lost."""

    private = False

    def __init__(self, cluster: Cluster, fleet: Fleet, broker: Broker) -> None:
        self.intake = FleetUpdater(cluster.name, fleet)
        self._cluster = cluster
        self._fleet = fleet
        self._broker = broker
        self.closed = False
        """Set before `run` is cancelled: if the connection is lost just then,
        `run` might miss the cancellation.
        """
        self._wait = FIRST_WAIT
        self._answered = asyncio.Event()
        always = {make_topic(cluster.name, "+", kind): qos for kind, qos in HEARD_ALWAYS.items()}
        self._topics = Topics(always)

    @property
    def address(self) -> tuple[str, int]:
        return self._broker.host, self._broker.port

    @property
    def trouble(self) -> str:
        return self._fleet.trouble

    @property
    def tunnel(self) -> bool:
        return self._broker.reach == "ssh"

    def agent_config(self, node_name: str) -> dict[str, object]:
        """The agent's configuration, with the node's own account if
        there is one, else the operator's.
        """
        return agent_config(self._cluster, self._broker, node_name)

    async def settled(self, limit: float) -> None:
        """Wait until the broker has sent its retained messages, or has failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._answered.wait()
                await asyncio.sleep(RETAINED)

    def want(self, names: frozenset[str] | None) -> None:
        """Subscribe to the samples of these nodes; None: of all nodes."""
        most = max(MANY, self._fleet.size // 2)
        if names is None or len(names) > most:
            names = frozenset({"+"})
        self._topics.want(make_topic(self._cluster.name, name, "sample") for name in names)

    async def run(self) -> None:
        """Receive messages until cancelled; errors are stored as the fleet's `trouble`."""
        loop = asyncio.get_running_loop()
        client: SiteClient | None = None
        while True:
            began = loop.time()
            try:
                client = client or SiteClient(_address(self._broker), self._topics)
                await client.listen(self.intake.take, self._ready, self.intake.too_long)
            except BrokerError as error:
                self._note(str(error))
            if self.closed:
                return
            if loop.time() - began > STEADY:
                self._wait = FIRST_WAIT
            await asyncio.sleep(self._wait)
            self._wait = min(self._wait * 2, LONGEST_WAIT)

    def _ready(self) -> None:
        self.want(self._fleet.wanted)
        self._fleet.trouble = ""
        self._answered.set()

    def _note(self, why: str) -> None:
        if why != self._fleet.trouble:
            log.error("%s", why, extra={"source": "broker"})
        self._fleet.trouble = why
        self._answered.set()


@asynccontextmanager
async def open_link(cluster: Cluster, fleet: Fleet) -> AsyncGenerator[Link]:
    """Inside this block, telemetry is received and written to the fleet.

    Raises BrokerError if the private broker cannot listen. If a site's broker cannot be reached,
    that is `fleet.trouble`, and connecting is tried again.
    """
    if cluster.broker is None:
        private = PrivateLink(cluster, fleet)
        await private.broker.start()
        try:
            yield private
        finally:
            await private.broker.close()
        return
    site = SiteLink(cluster, fleet, cluster.broker)
    failure: RankdeckError | None = None
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(site.run())
        try:
            yield site
        except RankdeckError as error:
            # Raised outside of the group, which would wrap it.
            failure = error
        finally:
            site.closed = True
            reading.cancel()
    if failure:
        raise failure


def password_of(broker: Broker) -> str:
    """The password from the variable or file that the cluster file names; "" if none.

    Raises BrokerError.
    """
    if broker.password_env:
        found = os.environ.get(broker.password_env)
        if found is None:
            raise BrokerError(
                f"the environment has no {broker.password_env}, which holds the broker's password"
            )
        return found
    return _text(broker.password_file, "password from").strip() if broker.password_file else ""


def agent_config(cluster: Cluster, broker: Broker, node: str) -> dict[str, object]:
    """The configuration with which a node's agent publishes to the
    site's broker; raises BrokerError.
    """
    accounts = read_accounts(broker.agents_file) if broker.agents_file else dict[str, str]()
    if node in accounts:
        login = {"username": node, "password": accounts[node]}
    else:
        login = {"username": broker.username, "password": password_of(broker)}
    return {
        **_common(cluster, node),
        "host": broker.host,
        "port": broker.port,
        "tls": broker.tls,
        # The text of the file, which is here and not on the node.
        "ca": _ca(broker) if broker.tls else "",
        **login,
    }


def installed_config(cluster: Cluster, broker: Broker, node: str) -> dict[str, object]:
    """The same for an installed agent, which sends samples all the time. Raises BrokerError."""
    usual = PERIOD if len(cluster.nodes) <= FEW_NODES else MANY_NODES_PERIOD
    return {**agent_config(cluster, broker, node), "sample_period": broker.sample_period or usual}


def _text(file: str, what: str) -> str:
    """The text of a file; raises BrokerError, which says `what` of the broker it has."""
    try:
        return read_regular(expand_path(file)).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or error
        raise BrokerError(f"cannot read the broker's {what} {file}: {why}") from error


def _ca(broker: Broker) -> str:
    """The certificates that the cluster file names; "" for those of this machine.

    Raises BrokerError.
    """
    if not broker.ca_file:
        return ""
    # OpenSSL takes only ASCII, but people write comments between certificates.
    return _text(broker.ca_file, "certificates in").encode("ascii", "ignore").decode()


def _address(broker: Broker) -> Address:
    return Address(
        host=broker.host,
        port=broker.port,
        username=broker.username,
        password=password_of(broker),
        tls=_tls(broker) if broker.tls else None,
    )


def _tls(broker: Broker) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=_ca(broker) or None)
    except ssl.SSLError as error:
        raise BrokerError(
            f"cannot read the broker's certificates in {broker.ca_file}: {error}"
        ) from error


def _common(cluster: Cluster, node: str) -> dict[str, Any]:
    return {
        "cluster": cluster.name,
        "node": node,
        "keepalive": KEEPALIVE,
        "period": PERIOD,
        "heartbeat": HEARTBEAT if len(cluster.nodes) <= FEW_NODES else SLOW_HEARTBEAT,
        "expect": _expect(cluster, node),
        "rdma_exclude": list(cluster.rdma_exclude),
        "simulate": list(cluster.simulate),
        "root": "/",
    }


def shared_config(cluster: Cluster, nodes: Iterable[str], sample_period: float) -> dict[str, Any]:
    """Configurations for agents that all get the same line: `configs` has the
    different ones, `of` node -> its index.

    `sample_period` is in seconds.
    """
    own = {node: {**_common(cluster, node), "sample_period": sample_period} for node in nodes}
    for config in own.values():
        del config["node"]
    configs = list({json.dumps(config): config for config in own.values()}.values())
    return {"of": {node: configs.index(config) for node, config in own.items()}, "configs": configs}


def _expect(cluster: Cluster, name: str) -> dict[str, object]:
    """What the node should have according to the cluster file, for its agent."""
    node = cluster.node(name) if cluster.has(name) else Node(name=name)
    return {
        "gpus": node.gpus,
        "rdma": node.rdma,
        "interface": node.interface,
        "other": dict(cluster.expect),
    }


SETTLE_LIMIT = 12.0
INSTALLED = "installed there; see `rankdeck agent status`"


class Telemetry:
    """Configures the telemetry agents of nodes, records their state in the
    fleet; see `remote.agent.WantedAgent`.
    """

    def __init__(
        self, connections: Shell, link: Link, fleet: Fleet, *, brief: bool = False
    ) -> None:
        """`brief`: for commands that run only a moment; see `Config.brief` of the agent."""
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
        self._wanted.discard(node)
        if self._fleet.is_wanted(node):
            self._send_wish(node, wanted=True)

    def ended(self, node: str) -> None:
        """Note that the agent no longer runs."""
        self._leases.pop(node, None)
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
        """Wake the tasks that wait for an agent to be installed or
        removed. Call it about once a second.

        It checks all nodes at once: a timer for each node would cost
        more than reading the messages.
        """
        for node in self._fleet.take_installations():
            if (waiting := self._waiting.pop(node, None)) and not waiting.done():
                waiting.set_result(None)

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
