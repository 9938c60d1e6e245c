"""Receives the telemetry of a cluster, from the private or the site's broker, into the fleet."""

import asyncio
import contextlib
import json
import logging
import os
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from rankdeck.config.clusters import read_accounts
from rankdeck.config.files import read_regular
from rankdeck.errors import AgentError, BrokerError, RankdeckError
from rankdeck.model.cluster import Broker, Cluster, Node
from rankdeck.remote.shell import Shell
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.private_broker import PrivateBroker
from rankdeck.telemetry.site_client import Address, SiteClient, Topics
from rankdeck_agent.wire import WireError, decode, split_time, split_topic
from rankdeck_agent.wire import topic as make_topic

log = logging.getLogger(__name__)
PERIOD = 1.0
KEEPALIVE = 10
FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
STEADY = 30.0
"""A connection that lasted so many seconds is opened again soon; after a shorter one the pause grows."""
_NAME = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}")
"""Names of nodes that Kubernetes takes."""
KEPT = frozenset({"hello", "health"})
"""Kinds of retained messages that are still useful."""
HEARD_ALWAYS = {"hello": 1, "health": 0, "event": 1}
"""Kinds of messages of every node that a console always hears, and at which quality of service.

Each health message says all, and is said again with every heartbeat: to acknowledge each would cost as much
as to read it, and at most 20 could be under way.
"""
MANY = 64
"""Nodes whose samples are asked for by name; of more than half of a larger fleet those of all are."""
MANY_NODES_PERIOD = 15.0
"""Seconds between two samples of an installed agent, unless the cluster file says how many."""
FEW_NODES, HEARTBEAT, SLOW_HEARTBEAT = 2000, 10.0, 30.0
SPARE = 2
"""Seconds from a missing heartbeat to a ping in its place."""
RETAINED = 0.5
"""Seconds in which a broker sends its retained messages after a subscription."""


class Link(Protocol):
    """Where the agents of an open cluster publish."""

    private: bool
    """The broker is ours, on this machine: agents need a tunnel to it."""
    intake: "Intake"
    """Takes each message."""

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
        """Whether agents reach the broker through our SSH connection."""
        ...

    def agent_config(self, node_name: str) -> dict[str, object]:
        """The configuration of this node's agent; a tunnel replaces host and port. Raises BrokerError."""
        ...

    async def settled(self, limit: float) -> None:
        """Wait until retained messages of the agents have arrived, at most `limit` seconds."""
        ...

    def want(self, names: frozenset[str] | None) -> None:
        """Ask for full samples of these nodes from now on; None: of all."""
        ...


class Intake:
    """Decodes messages into the fleet; invalid ones are counted, and reported once per node."""

    def __init__(self, cluster: str, fleet: Fleet) -> None:
        self.refused: dict[str, int] = {}
        """Node -> messages that could not be used."""
        self._health: dict[str, int] = {}
        """Node -> hash of its last health message, without its time."""
        self._cluster = cluster
        self._fleet = fleet

    def take(self, topic: str, payload: bytes, retained: bool = False) -> None:
        """Apply one message; raises nothing."""
        parts = split_topic(topic)
        if parts is None or parts[0] != self._cluster:
            self._refuse(
                "another cluster", f"message on {topic[:120]!r} is not for cluster {self._cluster}"
            )
            return
        _, node, kind = parts
        if not payload or (retained and kind not in KEPT):
            # An erased or old message: not a sign of life.
            if kind == "hello":
                self._fleet.uninstalled(node)
            return
        if not (self._fleet.knows(node) or self._found(node)):
            self._refuse("unknown nodes", f"node {node[:80]!r} is not in the cluster file")
            return
        if kind == "health" and self._is_heartbeat(node, payload, retained=retained):
            return
        try:
            self._fleet.apply(node, decode(kind, payload), retained=retained)
        except WireError as error:
            self._health.pop(node, None)
            self._refuse(node, f"unusable message: {str(error)[:200]!r}")

    def _is_heartbeat(self, node: str, payload: bytes, *, retained: bool) -> bool:
        """Whether the fleet took a health message as a heartbeat: the node lives, and its health is as before."""
        stamp, said = split_time(payload)
        if retained or stamp is None:
            return False
        before, self._health[node] = self._health.get(node), hash(said)
        return before == self._health[node] and self._fleet.heartbeat(node, stamp)

    def _found(self, node: str) -> bool:
        """Whether a fleet without named nodes adds this one: an agent may be heard before the API server."""
        return bool(_NAME.fullmatch(node)) and self._fleet.find(node)

    def too_long(self, topic: str, size: int) -> None:
        """Note a message that was left out for its length, with the node of its topic."""
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
        self.intake = Intake(cluster.name, fleet)
        self._cluster = cluster
        self._fleet = fleet
        self.broker = PrivateBroker(self.intake.take, cluster.name)

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
        """Return at once: no agent publishes here before this console starts it."""

    def want(self, names: frozenset[str] | None) -> None:
        """Do nothing: agents learn it by their lease, and send only what is wanted."""

    def agent_config(self, node_name: str) -> dict[str, object]:
        username, password = self.broker.credential(node_name)
        host, port = self.address
        login = {"username": username, "password": password, "tls": False, "ca_file": ""}
        common = _common(self._cluster, node_name)
        return {
            **common,
            "host": host,
            "port": port,
            # SSH notices a node that is gone: an agent that sends heartbeats need not ping too.
            "keepalive": int(common["heartbeat"]) + SPARE,
            **login,
        }


class SiteLink:
    """The site's broker: subscribe, and come back when the connection is lost."""

    private = False

    def __init__(self, cluster: Cluster, fleet: Fleet, broker: Broker) -> None:
        self.intake = Intake(cluster.name, fleet)
        self._cluster = cluster
        self._fleet = fleet
        self._broker = broker
        self.closed = False
        """Set before `run` is cancelled, because a connection lost at that moment would hide the cancellation."""
        self._wait = FIRST_WAIT
        self._told = asyncio.Event()
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
        """With the node's own account if the site has one for it, otherwise the operator's."""
        return agent_config(self._cluster, self._broker, node_name)

    async def settled(self, limit: float) -> None:
        """Wait until the broker has sent its retained messages, or is in trouble."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._told.wait()
                await asyncio.sleep(RETAINED)

    def want(self, names: frozenset[str] | None) -> None:
        """Subscribe to the samples of these nodes, and of those that are not judged by their agent."""
        if names is not None:
            names |= self._fleet.not_judged_there
        most = max(MANY, self._fleet.size // 2)
        if names is None or len(names) > most:
            names = frozenset({"+"})
        self._topics.want(make_topic(self._cluster.name, name, "sample") for name in names)

    async def run(self) -> None:
        """Read until cancelled; what goes wrong is stored as the fleet's trouble."""
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
        self._told.set()

    def _note(self, why: str) -> None:
        if why != self._fleet.trouble:
            log.error("%s", why, extra={"source": "broker"})
        self._fleet.trouble = why
        self._told.set()


@asynccontextmanager
async def open_link(cluster: Cluster, fleet: Fleet) -> AsyncGenerator[Link]:
    """Telemetry is written to the fleet while this is open.

    Raises BrokerError if the private broker cannot listen; a site broker that cannot be
    reached is trouble to show, and is tried again.
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
            # Raised outside, or the group would wrap it.
            failure = error
        finally:
            site.closed = True
            reading.cancel()
    if failure:
        raise failure


def password_of(broker: Broker) -> str:
    """The password the cluster file names; raises BrokerError."""
    if broker.password_env:
        found = os.environ.get(broker.password_env)
        if found is None:
            raise BrokerError(
                f"the environment has no {broker.password_env}, which holds the broker's password"
            )
        return found
    if not broker.password_file:
        return ""
    try:
        return _text(broker.password_file).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerError(
            f"cannot read the broker's password from {broker.password_file}: {error}"
        ) from error


def agent_config(cluster: Cluster, broker: Broker, node: str) -> dict[str, object]:
    """What the agent of a node needs to publish to the site's broker; raises BrokerError."""
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
        # The text, not the name: the file lies here, not on the node.
        "ca": _ca(broker) if broker.tls and broker.ca_file else "",
        **login,
    }


def installed_config(cluster: Cluster, broker: Broker, node: str) -> dict[str, object]:
    """The same for an installed agent, which is not told when samples are wanted. Raises BrokerError."""
    usual = PERIOD if len(cluster.nodes) <= FEW_NODES else MANY_NODES_PERIOD
    return {**agent_config(cluster, broker, node), "sample_period": broker.sample_period or usual}


def _text(file: str) -> str:
    return read_regular(Path(file).expanduser()).decode()


def _ca(broker: Broker) -> str:
    try:
        return _text(broker.ca_file)
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerError(
            f"cannot read the broker's certificates in {broker.ca_file}: {error}"
        ) from error


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
        return ssl.create_default_context(cadata=_ca(broker) if broker.ca_file else None)
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
    """What agents need that all get the same line: the distinct configurations, and which one is whose."""
    own = {node: {**_common(cluster, node), "sample_period": sample_period} for node in nodes}
    for config in own.values():
        del config["node"]
    configs = list({json.dumps(config): config for config in own.values()}.values())
    return {"of": {node: configs.index(config) for node, config in own.items()}, "configs": configs}


def _expect(cluster: Cluster, name: str) -> dict[str, object]:
    """What the cluster file says that this node has, for its agent."""
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
    """Configures the telemetry agents of nodes, and records what became of them."""

    def __init__(
        self, connections: Shell, link: Link, fleet: Fleet, *, brief: bool = False
    ) -> None:
        """`brief`: for commands that look only for a moment; see `Config.brief` of the agent."""
        self._connections, self._link, self._fleet = connections, link, fleet
        self._brief = brief
        self._leases: dict[str, Callable[[bytes], None]] = {}
        """Node -> writes to the standard input of its agent."""
        self._waiting: dict[str, asyncio.Future[None]] = {}
        """Node -> waits for an installed agent there to come or go."""
        self._wanted: set[str] = set()
        """Nodes whose agent runs and was told that full samples are wanted."""
        self._to_reach: set[str] = set()
        """Nodes that were neither reached nor failed yet."""
        self._inside: dict[str, str] = {}
        """Node -> how it is heard although nobody may log in there, one sentence."""
        self._expected = 0

    def expect(self, nodes: Iterable[str]) -> None:
        """These nodes are about to be reached."""
        self._to_reach = {*nodes}
        self._expected = len(self._to_reach)

    @property
    def connecting(self) -> tuple[int, int]:
        """How many nodes were reached, or failed, at least once, and how many there are."""
        return self._expected - len(self._to_reach), self._expected

    def want(self, names: frozenset[str] | None) -> None:
        """Tell the agents that we started whether full samples are wanted; None: of all nodes."""
        self._link.want(names)
        known = self._leases.keys()
        now = known if names is None else known & names
        for node in now ^ self._wanted:
            self._tell(node, wanted=node in now)

    def _tell(self, node: str, *, wanted: bool) -> None:
        (self._wanted.add if wanted else self._wanted.discard)(node)
        self._leases[node](json.dumps({"samples": wanted}).encode() + b"\n")

    def started(self, node: str, write: Callable[[bytes], None]) -> None:
        """Note how to speak to the agent that now runs there."""
        self._leases[node] = write
        self._wanted.discard(node)
        if self._fleet.is_wanted(node):
            self._tell(node, wanted=True)

    def ended(self, node: str) -> None:
        """Note that it no longer runs."""
        self._leases.pop(node, None)
        self._wanted.discard(node)

    async def configure(self, node: str) -> Mapping[str, Any]:
        """The agent's configuration, once one is needed; a tunnel is made again."""
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
        if self._link.tunnel:
            port = await self._connections.reverse_tunnel(node, *self._link.address)
            config |= {"host": "127.0.0.1", "port": port}
        return config

    def superseded(self, node: str) -> Awaitable[None] | None:
        """Returns when an installed agent publishes, which was still starting when we looked."""
        # Installed agents publish to a site's broker only.
        return None if self._link.private else self._until(node, installed=True)

    async def _until(self, node: str, *, installed: bool) -> None:
        while self._is_installed(node) is not installed:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting[node] = waiting
            await waiting

    def look(self) -> None:
        """Wake those who wait for an installed agent to come or go; to be called now and then.

        One look for all nodes: a timer for each would cost more than reading their messages.
        """
        for node in self._fleet.take_installations():
            if (waiting := self._waiting.pop(node, None)) and not waiting.done():
                waiting.set_result(None)

    def _is_installed(self, node: str) -> bool:
        return self._fleet.node(node).installed

    def take(self, node: str, topic: str, payload: bytes, way: str) -> None:
        """Take a message of a node that did not come through the broker; `way` is the sentence for that."""
        if self._inside.get(node) != way:
            self._inside[node] = way
            self.report(node, way, well=True)
        self._link.intake.take(topic, payload)

    def lost(self, nodes: Iterable[str]) -> None:
        """Note that no more messages come that way."""
        for node in nodes:
            self._inside.pop(node, None)

    def report(self, node: str, sentence: str, well: bool) -> None:
        self._to_reach.discard(node)
        if well or node in self._inside:
            self._fleet.attached(node, sentence if well else self._inside[node])
            return
        self._fleet.troubled(node, sentence)
        log.warning("%s", sentence, extra={"source": node})
