"""A small MQTT 3.1.1 broker inside the console, for clusters without
a broker: accounts and connections.
"""

import asyncio
import errno
import hmac
import logging
import resource
import secrets
import socket
from collections.abc import Callable

from rankdeck.errors import BrokerError
from rankdeck.model.deadlines import Deadlines
from rankdeck.telemetry.client_sockets import BACKLOG, ClientSocket, Listener, SocketReader
from rankdeck.telemetry.mqtt_packets import (
    CONNECT_BYTE,
    Connect,
    Framer,
    MalformedError,
    PacketKind,
    Publish,
    Refusal,
    VersionError,
    answer_connect,
    make_packet,
    make_puback,
    read_connect,
    read_publish,
    valid_topic,
)
from rankdeck.values import Value
from rankdeck_agent.wire import message_topic as make_topic

log = logging.getLogger(__name__)
PACKET_LIMIT = 1 << 20
LOGIN_PACKET_LIMIT = 1 << 16
LOGIN_LIMIT = 5.0
"""Seconds in which a client must log in; agents send their CONNECT at once."""
BURST = 500
"""Packets that are read of one client between two sweeps; then it must wait for the next sweep."""
NO_HURRY = 15.0
"""Seconds between two checks of a client without keepalive, which may be
silent but must read its acknowledgements.
"""
MOST_UNSENT = 1 << 17
"""Most bytes of acknowledgements that a client may leave unread."""
SWEEP = 0.5
"""Seconds between two looks at who was silent for too long."""
CONNECTIONS = 10_000
FEWEST = 64
"""Number of clients that are always accepted."""
RESERVE = 64
"""Descriptors kept free for files, SSH and everything else."""

Deliver = Callable[[str, bytes], None]
"""Called with (topic, payload) of each message."""


class Account(Value):
    """A login and what it may publish."""

    username: str
    password: str
    publishes: str
    """Topics must begin with this."""

    def may_publish(self, topic: str) -> bool:
        return topic.startswith(self.publishes) and valid_topic(topic)

    def admits(self, password: bytes) -> bool:
        return hmac.compare_digest(self.password.encode(), password)


class Connection:
    """Speaks MQTT 3.1.1 with one client that only publishes; any
    other packet closes the connection.
    """

    def __init__(self, hub: "PrivateBroker", connected: socket.socket) -> None:
        self.client_id = ""
        self.account: Account | None = None
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._socket = ClientSocket(connected, self._closed)
        self.fd = self._socket.fd
        self._framer = Framer(LOGIN_PACKET_LIMIT, CONNECT_BYTE)
        self._heard = self._loop.time()
        self._patience = hub.login_limit
        self._will: Publish | None = None
        self._burst = self._turn = 0
        """Number of packets since the last sweep, and the number of that sweep."""
        self._denied = False
        hub.joined(self)
        hub.look_at(self, self._heard + self._patience)

    # ---- the connection

    def read(self) -> bool:
        """Read and handle what has arrived; returns whether there was anything."""
        data = self._socket.receive()
        if data is None:
            return False
        if not data:
            self._hub.listen(self, on=False)
            self._socket.close()
            return False
        self._heard = self._loop.time()
        try:
            for first, body in self._framer.feed(data):
                self._handle(first, body)
                if self._socket.closing:
                    break
        except VersionError as error:
            self._refuse(Refusal.VERSION, str(error))
        except MalformedError as error:
            log.warning("broker: closed a connection: %s", error, extra={"source": self._name})
            self.close()
        return True

    def _closed(self) -> None:
        self._hub.listen(self, on=False)
        self._hub.lost(self)
        self._publish_will()

    def go_on(self) -> None:
        """Read a client again that had sent too much."""
        if not self._socket.closing:
            self._heard = self._loop.time()
            self._hub.listen(self, on=True)

    def sweep(self, now: float) -> None:
        """Close the connection if the client was silent for too long, or
        does not read its acknowledgements.
        """
        silent = self._patience and now - self._heard > self._patience
        # Unread data is not silence: if a busy broker closed such connections,
        # all clients would reconnect at once.
        silent = silent and not self.read()
        if silent or self._socket.unsent > MOST_UNSENT:
            self.abort()
            return
        patience = self._patience or NO_HURRY
        self._hub.look_at(self, max(self._heard, now - patience) + patience)

    def abort(self) -> None:
        """Close the connection at once, without sending what is still in the buffer."""
        self._publish_will()
        self._socket.abort()

    def close(self) -> None:
        self._publish_will()
        self._socket.close()

    @property
    def _name(self) -> str:
        return self.account.username if self.account else "broker"

    def _publish_will(self) -> None:
        will, self._will = self._will, None
        if will:
            self._hub.deliver(will.topic, will.payload)

    # ---- packets

    def _handle(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if self._turn != self._hub.turn:
            self._turn, self._burst = self._hub.turn, 0
        self._burst += 1
        if self._burst == BURST:
            self._hub.hold(self)
        if kind == PacketKind.PUBLISH and self.account:
            self._on_publish(read_publish(first, body))
        elif kind == PacketKind.CONNECT and not self.account:
            self._on_connect(read_connect(first, body))
        elif self.account:
            self._on_other(kind)
        else:
            raise MalformedError(f"packet {kind} out of turn")

    def _on_other(self, kind: int) -> None:
        if kind == PacketKind.PINGREQ:
            self._socket.write(make_packet(PacketKind.PINGRESP))
        elif kind == PacketKind.DISCONNECT:
            self._will = None
            self._socket.close()
        else:
            raise MalformedError(f"packet {kind}: clients of this broker only publish")

    def _on_connect(self, hello: Connect) -> None:
        self.client_id = hello.client_id
        code, account = self._hub.login(self, hello)
        if account is None:
            self._refuse(code, f"login as {hello.username[:80]!r} refused")
            return
        self.account, self._will = account, hello.will
        self._framer.limit = PACKET_LIMIT
        self._patience = 1.5 * hello.keepalive
        self._hub.look_at(self, self._heard + (self._patience or NO_HURRY))
        self._socket.write(answer_connect(Refusal.ACCEPTED))

    def _refuse(self, code: Refusal, why: str) -> None:
        log.warning("broker: %s", why, extra={"source": "broker"})
        self._socket.write(answer_connect(code))
        self._socket.close()

    def _on_publish(self, message: Publish) -> None:
        assert self.account is not None
        if self.account.may_publish(message.topic):
            self._hub.deliver(message.topic, message.payload)
        elif not self._denied:
            self._denied = True
            log.warning(
                "broker: %s may not publish on %r",
                self._name,
                message.topic[:120],
                extra={"source": self._name},
            )
        if message.qos:
            self._socket.write(make_puback(message.packet_id))


class PrivateBroker:
    """An MQTT 3.1.1 broker on loopback that passes every message to `deliver`.

    Clients only publish, with QoS 0 or 1; nobody subscribes, so nothing is stored. A client id
    belongs to its account: no agent can take over the connection of another. It does not replace a
    site's broker.
    """

    def __init__(self, deliver: Deliver, cluster: str, patience: float = 1.0) -> None:
        """`patience`: by how much longer than usual clients may take to log in;
        see `rankdeck.model.cluster.Access`.
        """
        self.login_limit = LOGIN_LIMIT * patience
        self.port = 0
        self.deliver = deliver
        self._cluster = cluster
        self._accounts: dict[str, Account] = {}
        self._sessions: set[Connection] = set()
        self._clients: dict[tuple[str, str], Connection] = {}
        self._strangers: dict[Connection, None] = {}
        """Connections that are not logged in yet, oldest first."""
        self._patience: Deadlines[Connection] = Deadlines()
        """When each connection is next checked for silence."""
        self._held: list[Connection] = []
        """Connections that are not read until the next sweep, because they sent too much."""
        self.turn = 0
        """Number of sweeps so far."""
        self._most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._reader: SocketReader | None = None
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; `port` 0 takes a free one. Raises BrokerError."""
        try:
            self._listener = Listener(host, port, self._connected)
        except OSError as error:
            why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise BrokerError(
                f"the private broker cannot listen on {host}:{port}: {why}"
            ) from error
        self._reader = SocketReader()
        self.port = self._listener.port
        self._timer = asyncio.get_running_loop().call_later(SWEEP, self._sweep)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._timer:
            self._timer.cancel()
        if self._listener:
            self._listener.close()
            self._listener = None
        for session in tuple(self._sessions):
            session.abort()
        if self._reader:
            self._reader.close()
            self._reader = None

    def credential(self, node: str) -> tuple[str, str]:
        """Username and password with which the agent of `node` may publish as that node."""
        name = f"node-{node}"
        if name not in self._accounts:
            password = secrets.token_urlsafe(24)  # valid as long as the broker runs
            self._accounts[name] = Account(name, password, make_topic(self._cluster, node, ""))
        return name, self._accounts[name].password

    # ---- called by connections

    def login(self, session: Connection, hello: Connect) -> tuple[Refusal, Account | None]:
        """(return code, account) for this CONNECT, after closing an older
        connection with the same client id.
        """
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

    def listen(self, session: Connection, *, on: bool) -> None:
        """Start (`on`) or stop calling the connection's `read` when it has data."""
        if self._reader is None:
            return
        self._reader.remove(session.fd)
        if on:
            self._reader.add(session.fd, session.read)

    def hold(self, session: Connection) -> None:
        """Stop reading the connection until the next sweep, which calls its `go_on`."""
        self.listen(session, on=False)
        self._held.append(session)

    def look_at(self, session: Connection, at: float) -> None:
        """Call the connection's `sweep` at the first sweep after `at` (time of the event loop)."""
        self._patience.set(session, at)

    def joined(self, session: Connection) -> None:
        """Read and sweep this connection from now on."""
        self._sessions.add(session)
        self._strangers[session] = None
        self.listen(session, on=True)
        # When all agents reconnect at once, none is logged in for a tick:
        # allow up to half of all connections.
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

    # ---- called by the event loop

    def _connected(self, connected: socket.socket) -> None:
        if len(self._sessions) >= self._most:
            connected.close()
        else:
            Connection(self, connected)

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
    """Most clients of a process that may have this many descriptors (below 0: no limit).

    A client needs two if it comes through a tunnel that ends in this
    process, and its node one more for SSH.
    """
    if descriptors < 0:
        return CONNECTIONS
    free = descriptors - RESERVE - BACKLOG
    return max(FEWEST, min(CONNECTIONS, free // 3))
