"""The broker of a cluster, the private or the site's, over which telemetry comes."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from rankdeck.errors import BrokerError, RankdeckError
from rankdeck.model.cluster import Broker, Cluster
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.agent_configs import (
    agent_config,
    common_config,
    password_of,
    read_certificates,
)
from rankdeck.telemetry.fleet_updater import FleetUpdater
from rankdeck.telemetry.private_broker import PrivateBroker
from rankdeck.telemetry.site_client import Address, SiteClient, Topics
from rankdeck_agent.wire import message_topic as make_topic

log = logging.getLogger(__name__)
FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
STEADY = 30.0
"""A connection that lasted longer than this many seconds is reopened soon;
after a shorter one the pause grows.
"""
HEARD_ALWAYS = {"hello": 1, "health": 0, "event": 1}
"""Kinds of messages that a console always receives from every node -> MQTT quality of service.

Health messages have QoS 0: each is complete and is repeated with every heartbeat. Acknowledging
each would cost as much as reading it, and only 20 could be in flight at a time.
"""
MANY = 64
"""Samples are subscribed to by node name for up to this many nodes or half of
the fleet, else for all nodes at once.
"""
SPARE = 2
"""Seconds from a missing heartbeat to the ping that replaces it."""
RETAINED = 0.5
"""Seconds that a broker may need to send its retained messages after a subscription."""


class Link(Protocol):
    """The broker to which the agents of an open cluster publish."""

    private: bool
    """The broker is inside this console: agents need a tunnel to it."""
    intake: FleetUpdater
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
        common = common_config(self._cluster, node_name)
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
        return ssl.create_default_context(cadata=read_certificates(broker) or None)
    except ssl.SSLError as error:
        raise BrokerError(
            f"cannot read the broker's certificates in {broker.ca_file}: {error}"
        ) from error
