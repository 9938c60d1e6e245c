"""Receives the telemetry of a cluster, from the private or the site's broker, into the fleet."""

import asyncio
import contextlib
import logging
import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from rankdeck.config.accounts import read_accounts
from rankdeck.config.safe_files import read_regular
from rankdeck.errors import AgentError, BrokerError, RankdeckError
from rankdeck.model.cluster import Broker, Cluster
from rankdeck.remote.shell import Shell
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.broker import PrivateBroker
from rankdeck.telemetry.subscriber import Address, subscribe
from rankdeck_agent.wire import TOPIC_PREFIX, WireError, decode, split_topic

log = logging.getLogger(__name__)
PERIOD = 1.0
KEEPALIVE = 10
FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
STEADY = 30.0
"""Seconds: a connection that stood so long is tried again soon; one that breaks at once is not hammered."""
_NAME = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}")
"""Names of nodes that Kubernetes takes."""
RETAINED = 0.5
"""Seconds in which a broker sends what it keeps, once it has taken a subscription."""


class Link(Protocol):
    """Where the agents of an open cluster publish."""

    private: bool
    """The broker is ours, on this machine: agents need a tunnel to it."""

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


class Intake:
    """Decodes messages into the fleet; what is wrong is counted and said once per node."""

    def __init__(self, cluster: str, fleet: Fleet) -> None:
        self.refused: dict[str, int] = {}
        """Node -> messages that could not be used."""
        self._cluster = cluster
        self._fleet = fleet

    def take(self, topic: str, payload: bytes, retained: bool = False) -> None:
        """Apply one message; raises nothing."""
        parts = split_topic(topic)
        if parts is None or parts[0] != self._cluster:
            self._refuse(
                "another cluster",
                f"message on {topic[:120]!r} is not for cluster {self._cluster}",
            )
            return
        _, node, kind = parts
        if not payload or (retained and kind != "hello"):
            # An erased or old message: not a sign of life.
            if kind == "hello":
                self._fleet.uninstalled(node)
            return
        if not (self._fleet.knows(node) or self._found(node)):
            self._refuse("unknown nodes", f"node {node[:80]!r} is not in the cluster file")
            return
        try:
            self._fleet.apply(node, decode(kind, payload))
        except WireError as error:
            self._refuse(node, f"unusable message: {str(error)[:200]!r}")

    def _found(self, node: str) -> bool:
        """Whether a fleet without names takes this one: an agent may be heard before the API server is."""
        return bool(_NAME.fullmatch(node)) and self._fleet.find(node)

    def too_long(self, topic: str, size: int) -> None:
        """Note a message that was left out for its length, with the node of its topic."""
        _, node, kind = split_topic(topic) or ("", "", "")
        known = node if self._fleet.knows(node) else "unknown nodes"
        self._refuse(
            known,
            f"{kind[:20] or 'message'} of {size >> 20} MB on {topic[:120]!r}: left out",
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

    def agent_config(self, node_name: str) -> dict[str, object]:
        username, password = self.broker.credential(node_name)
        host, port = self.address
        login = {
            "username": username,
            "password": password,
            "tls": False,
            "ca_file": "",
        }
        return {
            **_common(self._cluster, node_name),
            "host": host,
            "port": port,
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
        self._wait = FIRST_WAIT
        self._told = asyncio.Event()

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
        """With the node's own account where the site gives it one, else the operator's."""
        return agent_config(self._cluster, self._broker, node_name)

    async def settled(self, limit: float) -> None:
        """Wait until the broker has sent its retained messages, or is in trouble."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._told.wait()
                await asyncio.sleep(RETAINED)

    async def run(self) -> None:
        """Read until cancelled; what goes wrong is stored as the fleet's trouble."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await subscribe(
                    _address(self._broker),
                    f"{TOPIC_PREFIX}/{self._cluster.name}/+/+",
                    self.intake.take,
                    self._ready,
                    self.intake.too_long,
                )
            except BrokerError as error:
                self._note(str(error))
            if loop.time() - began > STEADY:
                self._wait = FIRST_WAIT
            await asyncio.sleep(self._wait)
            self._wait = min(self._wait * 2, LONGEST_WAIT)

    def _ready(self) -> None:
        self._fleet.trouble = ""
        self._told.set()

    def _note(self, why: str) -> None:
        if why != self._fleet.trouble:
            log.error("%s", why, extra={"source": "broker"})
        self._fleet.trouble = why
        self._told.set()


@asynccontextmanager
async def open_link(cluster: Cluster, fleet: Fleet) -> AsyncGenerator[Link]:
    """Telemetry flows into the fleet as long as this is open.

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
    accounts = read_accounts(broker.agents_file) if broker.agents_file else {}
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


def _common(cluster: Cluster, node: str) -> dict[str, object]:
    return {
        "cluster": cluster.name,
        "node": node,
        "keepalive": KEEPALIVE,
        "period": PERIOD,
        "rdma_exclude": list(cluster.rdma_exclude),
        "simulate": list(cluster.simulate),
        "root": "/",
    }


SETTLE_LIMIT = 12.0
INSTALLED_LOOK = 2.0
INSTALLED = "installed there; see `rankdeck agent status`"


class Telemetry:
    """Configures the telemetry agents of nodes, and records what became of them."""

    def __init__(self, connections: Shell, link: Link, fleet: Fleet) -> None:
        self._connections, self._link, self._fleet = connections, link, fleet

    async def configure(self, node: str) -> Mapping[str, Any]:
        """The agent's configuration, once one is needed; a tunnel is made anew."""
        await self._link.settled(SETTLE_LIMIT)
        if self._link.trouble:
            raise AgentError(node, "not started: nobody could hear it")
        while self._is_installed(node):
            self.report(node, INSTALLED, well=True)
            await asyncio.sleep(INSTALLED_LOOK)
        try:
            config = self._link.agent_config(node)
        except BrokerError as error:
            raise AgentError(node, str(error)) from error
        if self._link.tunnel:
            port = await self._connections.reverse_tunnel(node, *self._link.address)
            config |= {"host": "127.0.0.1", "port": port}
        return config

    async def superseded(self, node: str) -> None:
        """Return when an installed agent publishes: it was still starting when we looked."""
        if self._link.private:
            # Installed agents publish to a site's broker only.
            await asyncio.Event().wait()
        # State is plain data without listeners: nobody could set an Event.
        while not self._is_installed(node):  # noqa: ASYNC110
            await asyncio.sleep(INSTALLED_LOOK)

    def _is_installed(self, node: str) -> bool:
        return self._fleet.node(node).installed

    def report(self, node: str, sentence: str, well: bool) -> None:
        if well:
            self._fleet.attached(node, sentence)
            return
        self._fleet.troubled(node, sentence)
        log.warning("%s", sentence, extra={"source": node})
