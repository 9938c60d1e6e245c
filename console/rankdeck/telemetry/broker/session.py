"""One connection to the private broker."""

import asyncio
import hmac
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from typing import Protocol

from rankdeck.telemetry.broker import packets
from rankdeck.telemetry.broker.packets import (
    Connect,
    Kind,
    MalformedError,
    Publish,
    Refusal,
)

LONGEST = 1024


def valid_topic(topic: str) -> bool:
    """Whether a message may go to this topic."""
    return 0 < len(topic) <= LONGEST and "+" not in topic and "#" not in topic


def valid_filter(topic_filter: str) -> bool:
    """Whether + and # each fill a level of their own, and # the last one."""
    levels = topic_filter.split("/")
    if not 0 < len(topic_filter) <= LONGEST or "#" in "/".join(levels[:-1]):
        return False
    return all(level in ("+", "#") or not ("+" in level or "#" in level) for level in levels)


def matches(topic_filter: str, topic: str) -> bool:
    """Whether the filter takes the topic; topics with $ are hidden from wildcards."""
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


@dataclass(frozen=True, slots=True)
class Account:
    """What the holder of a password may do."""

    username: str
    password: str
    publishes: str = ""
    """Topics must begin with this; "" may not publish."""
    subscribes: bool = False

    def may_publish(self, topic: str) -> bool:
        return bool(self.publishes) and topic.startswith(self.publishes) and valid_topic(topic)

    def admits(self, password: bytes) -> bool:
        return hmac.compare_digest(self.password.encode(), password)


def new_account(username: str, *, publishes: str = "", subscribes: bool = False) -> Account:
    """An account with a password that lives as long as the broker."""
    return Account(username, secrets.token_urlsafe(24), publishes, subscribes)


log = logging.getLogger(__name__)
PACKET_LIMIT = 1 << 20
LOGIN_PACKET_LIMIT = 1 << 16
LOGIN_LIMIT = 5.0
"""Seconds: the first words of a client go out with its connection."""
BURST = 500
"""Packets of one client between two sweeps; then it waits for the next."""
CHUNK = 1 << 16
"""Bytes of one client that are read at once."""
SEND_BUFFER = 4 << 20
IN_FLIGHT = 100
QUEUE = 1000
FILTERS = 100


class Hub(Protocol):
    """What a session needs of the broker."""

    def login(self, session: "Connection", hello: Connect) -> tuple[Refusal, Account | None]: ...

    def accept(self, account: Account, message: Publish) -> None:
        """Deliver, store and pass on a message that the account may publish."""
        ...

    def subscribed(self, session: "Connection", topic_filter: str) -> None: ...

    def joined(self, session: "Connection") -> None: ...

    def lost(self, session: "Connection") -> None: ...

    def listen(self, session: "Connection", *, on: bool) -> None:
        """Call `read` of the session when there is something to read, or no longer."""
        ...


class Connection(asyncio.Protocol):
    """Speaks MQTT 3.1.1 with one client; anything malformed ends it."""

    def __init__(self, hub: Hub) -> None:
        self.client_id = ""
        self.account: Account | None = None
        self.filters: dict[str, int] = {}
        self.fd = -1
        self.dropped = 0
        """Messages this client was too slow for."""
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._framer = packets.Framer(LOGIN_PACKET_LIMIT)
        self._heard = self._loop.time()
        self._patience = LOGIN_LIMIT
        self._will: Publish | None = None
        self._burst = 0
        self._writable = True
        self._begun = False
        self._denied = False
        self._in_flight: set[int] = set()
        self._waiting: deque[Publish] = deque()
        self._last_id = 0

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(SEND_BUFFER)
        # The transport writes only: the broker reads all of its clients on one tick.
        transport.pause_reading()
        self.fd = transport.get_extra_info("socket").fileno()
        self._hub.joined(self)

    def read(self) -> None:
        """Take what has come in."""
        if self._transport.is_closing():
            self._hub.listen(self, on=False)
            return
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._transport.abort()
            return
        if data:
            self._take(data)
        else:
            self._transport.close()

    def _take(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            if not self._begun and data[0] != Kind.CONNECT << 4:
                raise MalformedError("the first bytes are not MQTT")
            self._begun = True
            for first, body in self._framer.feed(data):
                self._handle(first, body)
                if self._transport.is_closing():
                    return
        except packets.VersionError as error:
            self._refuse(Refusal.VERSION, str(error))
        except MalformedError as error:
            log.warning("broker: closed a connection: %s", error, extra={"source": self._name})
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._hub.listen(self, on=False)
        self._hub.lost(self)
        self._publish_will()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._send_waiting()

    def sweep(self, now: float) -> None:
        """Close the client if it was silent for too long; let a busy one go on."""
        if self._burst >= BURST and not self._transport.is_closing():
            self._heard = now
            self._hub.listen(self, on=True)
        self._burst = 0
        silent = self._patience and now - self._heard > self._patience
        if silent or self._transport.get_write_buffer_size() > 2 * SEND_BUFFER:
            self.abort()

    def abort(self) -> None:
        """Cut the connection without waiting for what is still to be sent."""
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
        if will and self.account:
            self._hub.accept(self.account, will)

    # ---- packets

    def _handle(self, first: int, body: bytes) -> None:
        kind = first >> 4
        self._burst += 1
        if self._burst == BURST:
            self._hub.listen(self, on=False)
        if kind == Kind.PUBLISH and self.account:
            self._on_publish(packets.read_publish(first, body))
        elif kind == Kind.CONNECT and not self.account:
            self._on_connect(packets.read_connect(first, body))
        elif self.account:
            self._on_other(kind, first, body)
        else:
            raise MalformedError(f"packet {kind} out of turn")

    def _on_other(self, kind: int, first: int, body: bytes) -> None:
        if kind == Kind.PINGREQ:
            self._transport.write(packets.packet(Kind.PINGRESP))
        elif kind == Kind.PUBACK:
            self._in_flight.discard(packets.packet_id(body))
            self._send_waiting()
        elif kind == Kind.SUBSCRIBE:
            self._on_subscribe(
                packets.packet_id(body),
                packets.read_filters(first, body, with_qos=True),
            )
        elif kind == Kind.UNSUBSCRIBE:
            for topic_filter, _ in packets.read_filters(first, body, with_qos=False):
                self.filters.pop(topic_filter, None)
            self._transport.write(packets.acknowledge(Kind.UNSUBACK, packets.packet_id(body)))
        elif kind == Kind.DISCONNECT:
            self._will = None
            self._transport.close()
        else:
            raise MalformedError(f"packet {kind} out of turn")

    def _on_connect(self, hello: Connect) -> None:
        self.client_id = hello.client_id
        code, account = self._hub.login(self, hello)
        if account is None:
            self._refuse(code, f"login as {hello.username[:80]!r} refused")
            return
        self.account, self._will = account, hello.will
        self._framer.limit = PACKET_LIMIT
        self._patience = 1.5 * hello.keepalive
        self._transport.write(packets.connack(Refusal.ACCEPTED))

    def _refuse(self, code: Refusal, why: str) -> None:
        log.warning("broker: %s", why, extra={"source": "broker"})
        self._transport.write(packets.connack(code))
        self._transport.close()

    def _on_publish(self, message: Publish) -> None:
        assert self.account is not None
        if self.account.may_publish(message.topic):
            self._hub.accept(self.account, message)
        elif not self._denied:
            self._denied = True
            log.warning(
                "broker: %s may not publish on %r",
                self._name,
                message.topic[:120],
                extra={"source": self._name},
            )
        if message.qos:
            self._transport.write(packets.acknowledge(Kind.PUBACK, message.packet_id))

    def _on_subscribe(self, number: int, wanted: list[tuple[str, int]]) -> None:
        assert self.account is not None
        granted = bytearray()
        fresh: list[str] = []
        for topic_filter, qos in wanted:
            allowed = (
                self.account.subscribes
                and valid_filter(topic_filter)
                and len(self.filters) < FILTERS
            )
            granted.append(min(qos, 1) if allowed else 0x80)
            if allowed:
                self.filters[topic_filter] = min(qos, 1)
                fresh.append(topic_filter)
        self._transport.write(packets.acknowledge(Kind.SUBACK, number, bytes(granted)))
        for topic_filter in fresh:
            self._hub.subscribed(self, topic_filter)

    # ---- to a subscriber

    def send(self, message: Publish) -> None:
        """Pass a message on; a reader who is too slow loses it."""
        if message.qos == 0 and self._writable:
            self._transport.write(packets.publish(message))
        elif message.qos and len(self._waiting) < QUEUE:
            self._waiting.append(message)
            self._send_waiting()
        else:
            self.dropped += 1

    def _send_waiting(self) -> None:
        while self._waiting and self._writable and len(self._in_flight) < IN_FLIGHT:
            number = self._next_id()
            self._in_flight.add(number)
            self._transport.write(
                packets.publish(self._waiting.popleft()._replace(packet_id=number))
            )

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % 0xFFFF + 1
            if self._last_id not in self._in_flight:
                return self._last_id


TICK = 0.05
"""Seconds between two readings of connections that never stop: screens are painted more seldom."""
TURN = 0.01
"""Seconds of reading after which others have their turn."""


class Drain:
    """Calls whoever has something to read; a first word at once, further ones on the tick."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._selector = DefaultSelector()
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def add(self, fd: int, read: Callable[[], None]) -> None:
        """Call `read` whenever there is something; it must read or remove."""
        self._selector.register(fd, EVENT_READ, read)

    def remove(self, fd: int) -> None:
        """Read no more of a connection that is, or is no longer, read."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def close(self) -> None:
        self._loop.remove_reader(self._selector.fileno())
        if self._timer:
            self._timer.cancel()
        self._selector.close()

    def _wait(self) -> None:
        # A selector is itself readable once one of its connections is.
        self._loop.add_reader(self._selector.fileno(), self._ready)

    def _ready(self) -> None:
        self._loop.remove_reader(self._selector.fileno())
        until, pause = self._loop.time() + TURN, TICK
        for key, _ in self._selector.select(0):
            key.data()
            if self._loop.time() > until:
                pause = 0.0
                break
        self._timer = self._loop.call_later(pause, self._wait)
