"""One connection to the private broker."""

import asyncio
import hmac
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector, SelectorKey
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


@dataclass(frozen=True, slots=True)
class Account:
    """What the holder of a password may do."""

    username: str
    password: str
    publishes: str
    """Topics must begin with this."""

    def may_publish(self, topic: str) -> bool:
        return topic.startswith(self.publishes) and valid_topic(topic)

    def admits(self, password: bytes) -> bool:
        return hmac.compare_digest(self.password.encode(), password)


def new_account(username: str, publishes: str) -> Account:
    """An account with a password that lives as long as the broker."""
    return Account(username, secrets.token_urlsafe(24), publishes)


log = logging.getLogger(__name__)
PACKET_LIMIT = 1 << 20
LOGIN_PACKET_LIMIT = 1 << 16
LOGIN_LIMIT = 5.0
"""Seconds: the first words of a client go out with its connection."""
BURST = 500
"""Packets of one client between two sweeps; then it waits for the next."""
NO_HURRY = 15.0
"""Seconds between two looks at a client that may be silent for ever: it might not read."""
CHUNK = 1 << 16
"""Bytes of one client that are read at once."""
SEND_BUFFER = 1 << 16
"""Bytes of acknowledgements that a client may leave unread."""


class Hub(Protocol):
    """What a session needs of the broker."""

    def login(self, session: "Connection", hello: Connect) -> tuple[Refusal, Account | None]: ...

    def accept(self, message: Publish) -> None:
        """Deliver a message that its account may publish."""
        ...

    def joined(self, session: "Connection") -> None: ...

    def lost(self, session: "Connection") -> None: ...

    @property
    def turn(self) -> int:
        """Number of the sweeps so far."""
        ...

    def hold(self, session: "Connection") -> None:
        """Read no more of the session until the next sweep, which calls its `go_on`."""
        ...

    def look_at(self, session: "Connection", at: float) -> None:
        """Call `sweep` of the session once that time of the loop has passed."""
        ...

    def listen(self, session: "Connection", *, on: bool) -> None:
        """Call `read` of the session when there is something to read, or no longer."""
        ...


class Connection(asyncio.Protocol):
    """Speaks MQTT 3.1.1 with one client that publishes; anything else ends it."""

    def __init__(self, hub: Hub) -> None:
        self.client_id = ""
        self.account: Account | None = None
        self.fd = -1
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._framer = packets.Framer(LOGIN_PACKET_LIMIT)
        self._heard = self._loop.time()
        self._patience = LOGIN_LIMIT
        self._will: Publish | None = None
        self._burst = self._turn = 0
        """Packets in this turn of the hub."""
        self._begun = False
        self._denied = False

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(SEND_BUFFER)
        # The transport writes only: the broker reads all of its clients on one tick.
        transport.pause_reading()
        self.fd = transport.get_extra_info("socket").fileno()
        self._hub.joined(self)
        self._hub.look_at(self, self._heard + self._patience)

    def read(self) -> bool:
        """Take what has come in; whether it was anything."""
        if self._transport.is_closing():
            self._hub.listen(self, on=False)
            return False
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            self._transport.abort()
            return False
        if data:
            self._take(data)
        else:
            self._transport.close()
        return bool(data)

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

    def go_on(self) -> None:
        """Let a busy client go on."""
        if not self._transport.is_closing():
            self._heard = self._loop.time()
            self._hub.listen(self, on=True)

    def sweep(self, now: float) -> None:
        """Close the client if it was silent for too long, or does not read what it is sent."""
        silent = self._patience and now - self._heard > self._patience
        # What has come in and we were too busy to read is no silence: cut off, all would come back at once.
        silent = silent and not self.read()
        if silent or self._transport.get_write_buffer_size() > 2 * SEND_BUFFER:
            self.abort()
            return
        patience = self._patience or NO_HURRY
        self._hub.look_at(self, max(self._heard, now - patience) + patience)

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
        if will:
            self._hub.accept(will)

    # ---- packets

    def _handle(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if self._turn != self._hub.turn:
            self._turn, self._burst = self._hub.turn, 0
        self._burst += 1
        if self._burst == BURST:
            self._hub.hold(self)
        if kind == Kind.PUBLISH and self.account:
            self._on_publish(packets.read_publish(first, body))
        elif kind == Kind.CONNECT and not self.account:
            self._on_connect(packets.read_connect(first, body))
        elif self.account:
            self._on_other(kind)
        else:
            raise MalformedError(f"packet {kind} out of turn")

    def _on_other(self, kind: int) -> None:
        if kind == Kind.PINGREQ:
            self._transport.write(packets.packet(Kind.PINGRESP))
        elif kind == Kind.DISCONNECT:
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
        self._transport.write(packets.connack(Refusal.ACCEPTED))

    def _refuse(self, code: Refusal, why: str) -> None:
        log.warning("broker: %s", why, extra={"source": "broker"})
        self._transport.write(packets.connack(code))
        self._transport.close()

    def _on_publish(self, message: Publish) -> None:
        assert self.account is not None
        if self.account.may_publish(message.topic):
            self._hub.accept(message)
        elif not self._denied:
            self._denied = True
            log.warning(
                "broker: %s may not publish on %r",
                self._name,
                message.topic[:120],
                extra={"source": self._name},
            )
        if message.qos:
            self._transport.write(packets.acknowledge(message.packet_id))


TICK = 0.1
"""Seconds between two readings of connections that never stop: screens are painted more seldom."""
TURN = 0.01
"""Seconds of reading after which others have their turn."""


class Drain:
    """Calls whoever has something to read; a first word at once, further ones on the tick."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._selector = DefaultSelector()
        self._left: deque[SelectorKey] = deque()
        """What had something to read at the last look and was not read yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def add(self, fd: int, read: Callable[[], object]) -> None:
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
        self._read()

    def _read(self) -> None:
        if not self._left:
            self._left.extend(key for key, _ in self._selector.select(0))
        if not self._left:
            self._wait()
            return
        until, pause = self._loop.time() + TURN, TICK
        known = self._selector.get_map()
        while self._left:
            key = self._left.popleft()
            # Its number may be another's by now.
            if known.get(key.fd) is key:
                key.data()
            if self._loop.time() > until:
                pause = 0.0
                break
        # While there is much to read, looking again is cheaper than waiting to be woken.
        self._timer = self._loop.call_later(pause, self._read)
