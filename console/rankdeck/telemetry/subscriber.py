"""An MQTT subscriber that reads its socket on a timer, not per message.

Ten readings a second instead of one wake-up per message: a fraction of the CPU of a general
client at a thousand messages a second, and screens are painted four times a second anyway.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex

from rankdeck.errors import BrokerError
from rankdeck.telemetry.broker import packets
from rankdeck.telemetry.broker.packets import Framer, Kind, MalformedError, Refusal

TICK = 0.1
KEEPALIVE = 15
CONNECT_LIMIT = 10.0
PACKET_LIMIT = 4 << 20

Deliver = Callable[[str, bytes, bool], None]
TooLong = Callable[[str, int], None]
"""Told the topic and the bytes of a message that is left out for its length."""
_REFUSED = {
    Refusal.VERSION: "does not speak MQTT 3.1.1",
    Refusal.IDENTIFIER: "refuses the name of this client",
    Refusal.UNAVAILABLE: "is not available now",
    Refusal.CREDENTIALS: "refuses the user name or password",
    Refusal.NOT_ALLOWED: "does not allow this user to connect",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a broker is and how to log in."""

    host: str
    port: int
    username: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


async def subscribe(
    address: Address,
    topic_filter: str,
    deliver: Deliver,
    on_ready: Callable[[], None],
    too_long: TooLong,
) -> None:
    """Deliver every message until the connection ends; raises BrokerError, which says why."""
    loop = asyncio.get_running_loop()
    client = _Client(deliver, too_long)
    try:
        async with asyncio.timeout(CONNECT_LIMIT):
            await loop.create_connection(
                lambda: client, address.host, address.port, ssl=address.tls
            )
            client.write(
                packets.connect(
                    f"rankdeck-{token_hex(6)}",
                    KEEPALIVE,
                    address.username,
                    address.password.encode(),
                )
            )
            await client.accepted
            client.write(packets.subscribe(1, topic_filter, 1))
            await client.subscribed
        on_ready()
        await client.drain()
    except BrokerError as error:
        raise BrokerError(f"the broker at {address} {error}") from error
    except TimeoutError as error:
        raise BrokerError(f"the broker at {address} does not answer") from error
    except ssl.SSLCertVerificationError as error:
        raise BrokerError(
            f"the broker at {address} shows a certificate that we do not accept: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        raise BrokerError(
            f"no TLS with the broker at {address}: {error.reason or error}"
        ) from error
    except OSError as error:
        raise BrokerError(
            f"the broker at {address} cannot be reached: {error.strerror or error}"
        ) from error
    finally:
        client.close()


class _Client(asyncio.Protocol):
    def __init__(self, deliver: Deliver, too_long: TooLong) -> None:
        loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._loop = loop
        self._too_long = too_long
        self._framer = Framer(PACKET_LIMIT, self._left_out)
        self._transport: asyncio.Transport | None = None
        self._heard = self._sent = loop.time()
        self._paced = False
        self.accepted: asyncio.Future[None] = loop.create_future()
        self.subscribed: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("ended the connection" if exc is None else f"is gone: {exc}")

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            for first, body in self._framer.feed(data):
                self._handle(first, body)
        except MalformedError as error:
            self._fail(f"does not speak MQTT 3.1.1: {error}")
            self.close()
        if self._paced and self._transport and len(data) < self.full:
            self._transport.pause_reading()

    full = 1 << 18
    """What asyncio reads at once; a full reading means that more waits."""

    def _handle(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == Kind.PUBLISH:
            message = packets.read_publish(first, body)
            self._deliver(message.topic, message.payload, message.retain)
            if message.qos:
                self.write(packets.acknowledge(Kind.PUBACK, message.packet_id))
        elif kind == Kind.CONNACK and len(body) == 2 and not self.accepted.done():
            self._on_connack(body[1])
        elif kind == Kind.SUBACK and len(body) == 3 and not self.subscribed.done():
            if body[2] > 2:
                self._fail("does not allow this user to read telemetry")
            else:
                self.subscribed.set_result(None)

    def _left_out(self, message: packets.Publish, size: int) -> None:
        """A message that is too long: said, acknowledged, and not taken."""
        self._too_long(message.topic, size)
        if message.qos:
            self.write(packets.acknowledge(Kind.PUBACK, message.packet_id))

    def _on_connack(self, code: int) -> None:
        if code == 0:
            self.accepted.set_result(None)
            return
        known = code in Refusal.__members__.values()
        self._fail(_REFUSED[Refusal(code)] if known else f"refuses with code {code}")

    def _fail(self, why: str) -> None:
        """Tell the one who waits now."""
        for future in (self.accepted, self.subscribed, self._ended):
            if not future.done():
                future.set_exception(BrokerError(why))
                # Nobody may have come to wait for it.
                future.exception()

    def write(self, data: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._sent = self._loop.time()
            self._transport.write(data)

    async def drain(self) -> None:
        """Read once a tick until the connection ends; ping when there is nothing to say."""
        self._paced = True
        while not self._ended.done():
            await asyncio.sleep(TICK)
            if self._transport and not self._transport.is_closing():
                self._transport.resume_reading()
            now = self._loop.time()
            if now - self._heard > 1.5 * KEEPALIVE:
                self._fail("does not answer any more")
            elif now - self._sent > KEEPALIVE / 2:
                self.write(packets.packet(Kind.PINGREQ))
        await self._ended

    def close(self) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(packets.packet(Kind.DISCONNECT))
            self._transport.close()
