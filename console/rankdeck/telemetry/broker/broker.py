"""The private broker: who is connected, and who may publish what."""

import asyncio
import errno
import resource
from collections.abc import Callable

from rankdeck.errors import BrokerError
from rankdeck.model.deadlines import Deadlines
from rankdeck.telemetry.broker.packets import Connect, Publish, Refusal
from rankdeck.telemetry.broker.session import Account, Connection, Drain, new_account
from rankdeck_agent.wire import topic as make_topic

SWEEP = 0.5
CONNECTIONS = 10_000
BACKLOG = 32
"""Connections that are taken in at once, before any of them can be turned away."""
FEWEST = 64
"""Clients that are always taken."""
RESERVE = 64
"""Descriptors left for files, SSH and all else, whatever comes."""

Deliver = Callable[[str, bytes], None]


class PrivateBroker:
    """An MQTT 3.1.1 broker on loopback that hands every message to `deliver`.

    Clients only publish, with QoS 0 or 1: nobody subscribes, so nothing is kept for later. A client id belongs
    to its account: no agent can take over another's connection. Never meant for a site: that is mosquitto's.
    """

    def __init__(self, deliver: Deliver, cluster: str) -> None:
        self.port = 0
        self._deliver = deliver
        self._cluster = cluster
        self._accounts: dict[str, Account] = {}
        self._sessions: set[Connection] = set()
        self._clients: dict[tuple[str, str], Connection] = {}
        self._strangers: dict[Connection, None] = {}
        """Not logged in yet, the oldest first."""
        self._patience: Deadlines[Connection] = Deadlines()
        """When each connection is looked at next: it may have been silent for too long by then."""
        self._held: list[Connection] = []
        """Not read until the next sweep: they said too much."""
        self.turn = 0
        """Number of the sweeps so far."""
        self._most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._drain: Drain | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; `port` 0 takes a free one. Raises BrokerError."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._connected, host, port, backlog=BACKLOG)
        except OSError as error:
            why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise BrokerError(
                f"the private broker cannot listen on {host}:{port}: {why}"
            ) from error
        self._drain = Drain()
        self.port = self._server.sockets[0].getsockname()[1]
        self._timer = loop.call_later(SWEEP, self._sweep)

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._timer:
            self._timer.cancel()
        for session in tuple(self._sessions):
            session.abort()
        if self._server:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        if self._drain:
            self._drain.close()
            self._drain = None

    def credential(self, node: str) -> tuple[str, str]:
        """Username and password with which the agent of `node` may publish as that node."""
        name = f"node-{node}"
        if name not in self._accounts:
            self._accounts[name] = new_account(name, make_topic(self._cluster, node, ""))
        return name, self._accounts[name].password

    # ---- what sessions ask for

    def login(self, session: Connection, hello: Connect) -> tuple[Refusal, Account | None]:
        """The account that this CONNECT may use, after closing its older connection."""
        account = self._accounts.get(hello.username)
        if account is None or not account.admits(hello.password):
            return Refusal.CREDENTIALS, None
        if hello.will and (hello.will.qos > 1 or not account.may_publish(hello.will.topic)):
            return Refusal.NOT_ALLOWED, None
        if not hello.client_id:
            if not hello.clean:
                return Refusal.IDENTIFIER, None
            session.client_id = f"anonymous-{id(session):x}"
        older = self._clients.get((account.username, session.client_id))
        if older is not None:
            older.abort()
        self._clients[account.username, session.client_id] = session
        self._strangers.pop(session, None)
        return Refusal.ACCEPTED, account

    def accept(self, message: Publish) -> None:
        """Deliver the message."""
        self._deliver(message.topic, message.payload)

    def listen(self, session: Connection, *, on: bool) -> None:
        """Read the session when it speaks, or no longer."""
        if self._drain is None:
            return
        self._drain.remove(session.fd)
        if on:
            self._drain.add(session.fd, session.read)

    def hold(self, session: Connection) -> None:
        """Read no more of the session until the next sweep."""
        self.listen(session, on=False)
        self._held.append(session)

    def look_at(self, session: Connection, at: float) -> None:
        """Ask the session then, by the loop's clock, whether it was silent for too long."""
        self._patience.set(session, at)

    def joined(self, session: Connection) -> None:
        """Read and sweep a connection that stands."""
        self._sessions.add(session)
        self._strangers[session] = None
        self.listen(session, on=True)
        # Agents that all come back at once are strangers for a tick: half of all may be.
        if len(self._strangers) > self._most // 2:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()

    def lost(self, session: Connection) -> None:
        """Forget a connection that ended."""
        self._sessions.discard(session)
        self._patience.forget(session)
        self._strangers.pop(session, None)
        key = (session.account.username if session.account else "", session.client_id)
        if self._clients.get(key) is session:
            del self._clients[key]

    # ---- by itself

    def _connected(self) -> asyncio.Protocol:
        if len(self._sessions) >= self._most:
            return _Full()
        return Connection(self)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.turn += 1
        held, self._held = self._held, []
        for session in held:
            session.go_on()
        for session in self._patience.due(loop.time()):
            session.sweep(loop.time())
        self._timer = loop.call_later(SWEEP, self._sweep)


def most_connections(descriptors: int) -> int:
    """How many clients a process with so many descriptors may have.

    Each needs two where it comes through a tunnel that ends in this process, and its node one more for SSH.
    """
    if descriptors < 0:
        return CONNECTIONS
    free = descriptors - RESERVE - BACKLOG
    return max(FEWEST, min(CONNECTIONS, free // 3))


class _Full(asyncio.Protocol):
    """Turns a connection away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
