"""A small MQTT 3.1.1 broker inside the console, for clusters without a broker: packets, connections, accounts."""

import asyncio
import errno
import hmac
import logging
import os
import resource
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from selectors import EVENT_READ, DefaultSelector, SelectorKey
from typing import NamedTuple

from rankdeck.errors import BrokerError
from rankdeck.model.deadlines import Deadlines
from rankdeck_agent.wire import topic as make_topic


class PacketKind(IntEnum):
    """The upper half of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


class Refusal(IntEnum):
    """Return codes of CONNACK."""

    ACCEPTED = 0
    VERSION = 1
    IDENTIFIER = 2
    UNAVAILABLE = 3
    CREDENTIALS = 4
    NOT_ALLOWED = 5


class MalformedError(ValueError):
    """Bytes that are not MQTT 3.1.1, or packets that this broker does not accept."""


class VersionError(MalformedError):
    """A CONNECT with another version of MQTT."""


class Publish(NamedTuple):
    """An application message."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    packet_id: int = 0


class Connect(NamedTuple):
    """The first packet of a client."""

    client_id: str
    keepalive: int
    clean: bool
    username: str
    password: bytes
    will: Publish | None


CONNECT_BYTE = bytes((PacketKind.CONNECT << 4,))
"""The first byte of every MQTT connection."""


class Framer:
    """Splits a stream of bytes into packets of at most `limit` bytes; the stream must begin with `first`."""

    def __init__(self, limit: int, first: bytes = b"") -> None:
        self.limit = limit
        self._first = first
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(first byte, body) of every packet that is complete now; raises MalformedError."""
        if not data.startswith(self._first):
            raise MalformedError("the first bytes are not MQTT")
        self._first = b""
        buffer = self._rest + data if self._rest else data
        self._rest = b""
        start, end = 0, len(buffer)
        while end - start >= 2:
            length, body = _length(buffer, start + 1, end)
            if length > self.limit:
                raise MalformedError(f"a packet of {length} bytes, at most {self.limit} are taken")
            if length < 0 or body + length > end:
                break
            yield buffer[start], buffer[body : body + length]
            start = body + length
        self._rest = buffer[start:]


def _length(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    """(remaining length, start of the body); the length is -1 if bytes are missing. Raises MalformedError."""
    value = 0
    for shift in range(0, 28, 7):
        if at >= end:
            return -1, at
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise MalformedError("the length of a packet has more than four bytes")


def _take(body: bytes, at: int) -> tuple[bytes, int]:
    if at + 2 > len(body):
        raise MalformedError("a packet ends too early")
    end = at + 2 + (body[at] << 8 | body[at + 1])
    if end > len(body):
        raise MalformedError("a string is longer than its packet")
    return body[at + 2 : end], end


def _text(body: bytes, at: int) -> tuple[str, int]:
    raw, end = _take(body, at)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedError("a string is not UTF-8") from error
    if "\0" in text:
        raise MalformedError("a string holds a null character")
    return text, end


def packet_id(body: bytes, at: int = 0) -> int:
    """The packet identifier at `at`; raises MalformedError."""
    if at + 2 > len(body):
        raise MalformedError("a packet ends too early")
    number = body[at] << 8 | body[at + 1]
    if not number:
        raise MalformedError("packet identifier 0")
    return number


def read_connect(first: int, body: bytes) -> Connect:
    """The CONNECT in `body`; raises VersionError for MQTT 3.1 and 5."""
    name, at = _text(body, 0)
    if first != PacketKind.CONNECT << 4 or name not in ("MQTT", "MQIsdp") or at + 4 > len(body):
        raise MalformedError("not a CONNECT of MQTT")
    if name != "MQTT" or body[at] != 4:
        raise VersionError(f"MQTT version byte {body[at]}; 4 (MQTT 3.1.1) is supported")
    flags, keepalive = body[at + 1], body[at + 2] << 8 | body[at + 3]
    _check_flags(flags)
    client_id, at = _text(body, at + 4)
    will, at = _will(flags, body, at) if flags & 0x04 else (None, at)
    username, at = _text(body, at) if flags & 0x80 else ("", at)
    password, at = _take(body, at) if flags & 0x40 else (b"", at)
    if at != len(body):
        raise MalformedError("bytes after the end of CONNECT")
    return Connect(client_id, keepalive, bool(flags & 0x02), username, password, will)


def _check_flags(flags: int) -> None:
    stray_will = not flags & 0x04 and flags & 0x38
    if flags & 0x01 or stray_will or (flags & 0x18) == 0x18 or (flags & 0xC0) == 0x40:
        raise MalformedError(f"impossible flags {flags:#04x} in CONNECT")


def _will(flags: int, body: bytes, at: int) -> tuple[Publish, int]:
    topic, at = _text(body, at)
    payload, at = _take(body, at)
    return Publish(topic, payload, flags >> 3 & 3, bool(flags & 0x20)), at


def read_publish(first: int, body: bytes) -> Publish:
    """The PUBLISH in `body`; raises MalformedError, also for QoS 2."""
    topic, at = _text(body, 0)
    qos = first >> 1 & 3
    if qos == 0:
        return Publish(topic, body[at:], 0, bool(first & 1))
    if qos > 1:
        raise MalformedError(f"a message of QoS {qos}; 0 and 1 are supported")
    return Publish(topic, body[at + 2 :], 1, bool(first & 1), packet_id(body, at))


def packet(kind: PacketKind, body: bytes = b"", flags: int = 0) -> bytes:
    """The bytes of a packet."""
    head = bytearray((kind << 4 | flags,))
    length = len(body)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body


_PUBACK = packet(PacketKind.PUBACK, bytes(2))[:2]


def acknowledge(number: int) -> bytes:
    """The PUBACK for the message with this packet identifier."""
    return _PUBACK + number.to_bytes(2, "big")


def _connack(code: Refusal) -> bytes:
    """The answer to CONNECT."""
    return packet(PacketKind.CONNACK, bytes((0, code)))


LONGEST = 1024


def valid_topic(topic: str) -> bool:
    """Whether a message may be published to this topic."""
    return 0 < len(topic) <= LONGEST and "+" not in topic and "#" not in topic


@dataclass(frozen=True, slots=True)
class Account:
    """A login and what it may publish."""

    username: str
    password: str
    publishes: str
    """Topics must begin with this."""

    def may_publish(self, topic: str) -> bool:
        return topic.startswith(self.publishes) and valid_topic(topic)

    def admits(self, password: bytes) -> bool:
        return hmac.compare_digest(self.password.encode(), password)


log = logging.getLogger(__name__)
PACKET_LIMIT = 1 << 20
LOGIN_PACKET_LIMIT = 1 << 16
LOGIN_LIMIT = 5.0
"""Seconds in which a client must log in; agents send their CONNECT at once."""
BURST = 500
"""Packets that are read of one client between two sweeps; then it must wait for the next sweep."""
NO_HURRY = 15.0
"""Seconds between two checks of a client without keepalive, which may be silent but must read its acknowledgements."""
CHUNK = 1 << 16
"""Most bytes that are read of one client at once."""
SEND_BUFFER = 1 << 16
"""Size of the write buffer of a client in bytes; it may leave twice as many bytes of acknowledgements unread."""


class Connection(asyncio.Protocol):
    """Speaks MQTT 3.1.1 with one client that only publishes; any other packet closes the connection."""

    def __init__(self, hub: "PrivateBroker") -> None:
        self.client_id = ""
        self.account: Account | None = None
        self.fd = -1
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._framer = Framer(LOGIN_PACKET_LIMIT, CONNECT_BYTE)
        self._heard = self._loop.time()
        self._patience = LOGIN_LIMIT
        self._will: Publish | None = None
        self._burst = self._turn = 0
        """Number of packets since the last sweep, and the number of that sweep."""
        self._denied = False

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(SEND_BUFFER)
        # The transport only writes: the broker itself reads all its clients on one tick.
        transport.pause_reading()
        self.fd = transport.get_extra_info("socket").fileno()
        self._hub.joined(self)
        self._hub.look_at(self, self._heard + self._patience)

    def read(self) -> bool:
        """Read and handle what has arrived; returns whether there was anything."""
        try:
            data = b"" if self._transport.is_closing() else os.read(self.fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            self._transport.abort()
            return False
        if not data:
            self._hub.listen(self, on=False)
            self._transport.close()
            return False
        self._heard = self._loop.time()
        try:
            for first, body in self._framer.feed(data):
                self._handle(first, body)
                if self._transport.is_closing():
                    break
        except VersionError as error:
            self._refuse(Refusal.VERSION, str(error))
        except MalformedError as error:
            log.warning("broker: closed a connection: %s", error, extra={"source": self._name})
            self.close()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._hub.listen(self, on=False)
        self._hub.lost(self)
        self._publish_will()

    def go_on(self) -> None:
        """Read a client again that had sent too much."""
        if not self._transport.is_closing():
            self._heard = self._loop.time()
            self._hub.listen(self, on=True)

    def sweep(self, now: float) -> None:
        """Close the connection if the client was silent for too long, or does not read its acknowledgements."""
        silent = self._patience and now - self._heard > self._patience
        # Unread data is not silence: if a busy broker closed such connections, all clients would reconnect at once.
        silent = silent and not self.read()
        if silent or self._transport.get_write_buffer_size() > 2 * SEND_BUFFER:
            self.abort()
            return
        patience = self._patience or NO_HURRY
        self._hub.look_at(self, max(self._heard, now - patience) + patience)

    def abort(self) -> None:
        """Close the connection at once, without sending what is still in the buffer."""
        self._publish_will()
        self._transport.abort()

    def close(self) -> None:
        self._publish_will()
        self._transport.close()

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
            self._transport.write(packet(PacketKind.PINGRESP))
        elif kind == PacketKind.DISCONNECT:
            self._will = None
            self._transport.close()
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
        self._transport.write(_connack(Refusal.ACCEPTED))

    def _refuse(self, code: Refusal, why: str) -> None:
        log.warning("broker: %s", why, extra={"source": "broker"})
        self._transport.write(_connack(code))
        self._transport.close()

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
            self._transport.write(acknowledge(message.packet_id))


TICK = 0.1
"""Seconds between two readings while data keeps arriving; screens are painted less often."""
TURN = 0.01
"""Seconds of reading before other tasks get a turn."""


class SocketReader:
    """Calls connections that have data to read: at once after a quiet time, else every TICK seconds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._selector = DefaultSelector()
        self._left: deque[SelectorKey] = deque()
        """Connections that had data at the last `select` and were not read yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def add(self, fd: int, read: Callable[[], object]) -> None:
        """Call `read` whenever there is data on `fd`; `read` must read it or call `remove`."""
        self._selector.register(fd, EVENT_READ, read)

    def remove(self, fd: int) -> None:
        """Stop reading a connection; no effect if it is not read."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def close(self) -> None:
        self._loop.remove_reader(self._selector.fileno())
        if self._timer:
            self._timer.cancel()
        self._selector.close()

    def _wait(self) -> None:
        # The selector's own descriptor is readable as soon as one of its connections is.
        self._loop.add_reader(self._selector.fileno(), self._read)

    def _read(self) -> None:
        self._loop.remove_reader(self._selector.fileno())
        if not self._left:
            self._left.extend(key for key, _ in self._selector.select(0))
        if not self._left:
            self._wait()
            return
        until, pause = self._loop.time() + TURN, TICK
        known = self._selector.get_map()
        while self._left:
            key = self._left.popleft()
            # The descriptor may belong to another connection by now.
            if known.get(key.fd) is key:
                key.data()
            if self._loop.time() > until:
                pause = 0.0
                break
        # While much data arrives, polling is cheaper than being woken.
        self._timer = self._loop.call_later(pause, self._read)


SWEEP = 0.5
CONNECTIONS = 10_000
BACKLOG = 32
"""Connections that may be accepted at once, before any of them can be refused."""
FEWEST = 64
"""Number of clients that are always accepted."""
RESERVE = 64
"""Descriptors kept free for files, SSH and everything else."""

Deliver = Callable[[str, bytes], None]
"""Called with (topic, payload) of each message."""


class PrivateBroker:
    """An MQTT 3.1.1 broker on loopback that passes every message to `deliver`.

    Clients only publish, with QoS 0 or 1; nobody subscribes, so nothing is stored. A client id belongs
    to its account: no agent can take over the connection of another. It does not replace a site's broker.
    """

    def __init__(self, deliver: Deliver, cluster: str) -> None:
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
        self._reader = SocketReader()
        self.port = self._server.sockets[0].getsockname()[1]
        self._timer = loop.call_later(SWEEP, self._sweep)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._timer:
            self._timer.cancel()
        for session in tuple(self._sessions):
            session.abort()
        if self._server:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
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
        """(return code, account) for this CONNECT, after closing an older connection with the same client id."""
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
        # When all agents reconnect at once, none is logged in for a tick: allow up to half of all connections.
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
    """Most clients of a process that may have this many descriptors (below 0: no limit).

    A client needs two if it comes through a tunnel that ends in this process, and its node one more for SSH.
    """
    if descriptors < 0:
        return CONNECTIONS
    free = descriptors - RESERVE - BACKLOG
    return max(FEWEST, min(CONNECTIONS, free // 3))


class _Full(asyncio.Protocol):
    """Refuses a connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
