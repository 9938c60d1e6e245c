"""The MQTT client for a site's broker: connects, subscribes to the
wanted topics, delivers messages.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from itertools import islice
from secrets import token_hex
from typing import Any

import aiomqtt
from aiomqtt import MqttCodeError, MqttError, ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from rankdeck.errors import BrokerError
from rankdeck.telemetry.broker_probe import Found, find_protocol
from rankdeck.values import Value

# paho writes there what it also raises; without a handler, Python would print it.
logging.getLogger("mqtt").addHandler(logging.NullHandler())
KEEPALIVE = 15
CONNECT_LIMIT = 10.0
PACKET_LIMIT = 4 << 20
"""Longer messages are left out, and reported for their node."""
LARGEST = 16 << 20
"""The packet limit that is announced to a broker with MQTT 5: it must not send longer ones."""
AT_ONCE = 100
"""Most topics in one SUBSCRIBE: brokers limit the size of a packet."""

Deliver = Callable[[str, bytes, bool], None]
"""Called with (topic, payload, whether the broker had stored it) of each message."""
TooLong = Callable[[str, int], None]
"""Called with (topic, size in bytes) of a message that is left out because of its length."""
_VERSION = 132
_REFUSED = {
    _VERSION: "speaks neither MQTT 5 nor MQTT 3.1.1",
    133: "refuses the name of this client",
    136: "is not available now",
    134: "refuses the user name or password",
    135: "does not allow this user to connect: is the password right?",
}
"""MQTT 5 reason code -> words that follow the broker's name; codes of
MQTT 3.1.1 are translated to these.
"""

_OWN_CA = " (`ca_file` of `broker:` names the file of the site's CA)"
_OF_CERTIFICATE = {
    9: " (is the clock of this machine right?)",
    **dict.fromkeys((18, 19, 20, 21), _OWN_CA),
}
"""OpenSSL's code of a certificate that is refused -> what to look at: not yet valid; signed by
itself or by somebody who is not known.
"""

_WITHOUT_TLS = {Found.MQTT: Found.PLAIN, Found.HTTP: Found.HTTP, Found.SSH: Found.SSH}
"""What answers without TLS -> what that means where the cluster file says mqtts://."""


class Address(Value, kw_only=True):
    """Where a broker is and how to log in."""

    host: str
    port: int
    username: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Topics:
    """The topics that are wanted now, with their QoS; the connected client follows changes."""

    def __init__(self, always: dict[str, int]) -> None:
        self._always = always
        self._wanted = dict(always)
        self._news = asyncio.Event()

    def want(self, more: Iterable[str]) -> None:
        """Set the topics that are wanted besides the permanent ones, at QoS
        0; replaces those of the last call.
        """
        wanted = self._always | dict.fromkeys(more, 0)
        if wanted != self._wanted:
            self._wanted = wanted
            self._news.set()

    async def follow(self, client: aiomqtt.Client) -> None:
        """Keep the subscriptions equal to the wanted topics, until
        cancelled; raises BrokerError.
        """
        have = self._always
        while True:
            self._news.clear()
            wanted = self._wanted
            for part in _parts(name for name in have if name not in wanted):
                await client.unsubscribe(part)
            for part in _parts(name for name in wanted if name not in have):
                await _subscribe(client, {name: wanted[name] for name in part})
            have = wanted
            await self._news.wait()

    async def first(self, client: aiomqtt.Client) -> None:
        """Subscribe to the permanent topics; raises BrokerError."""
        await _subscribe(client, self._always)


async def _subscribe(client: aiomqtt.Client, topics: dict[str, int]) -> None:
    codes = await client.subscribe(list(topics.items()))
    if any(_value(code) >= 0x80 for code in codes):
        why = "does not allow this user to read telemetry, or cannot take a subscription now"
        raise BrokerError(why)


def _parts(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while part := list(islice(left, AT_ONCE)):
        yield part


class _Straight(asyncio.Queue[aiomqtt.Message]):
    """Delivers each message as soon as it is read: waking a task for each
    would cost more than everything else.
    """

    def __init__(self, deliver: Deliver, too_long: TooLong, maxsize: int = 0) -> None:
        super().__init__(maxsize)
        self._deliver, self._too_long = deliver, too_long

    def put_nowait(self, item: aiomqtt.Message) -> None:
        if len(item.payload) > PACKET_LIMIT:
            self._too_long(str(item.topic), len(item.payload))
        else:
            self._deliver(str(item.topic), item.payload, item.retain)


class SiteClient:
    """Connects by `listen`, which may be called again; remembers which
    version of MQTT the broker speaks.
    """

    def __init__(self, address: Address, topics: Topics) -> None:
        self._address, self._topics = address, topics
        self._version = ProtocolVersion.V5
        self._accepted = False
        """Whether the broker has accepted the connection of the current call of `listen`."""

    async def listen(
        self, deliver: Deliver, on_ready: Callable[[], None], too_long: TooLong
    ) -> None:
        """Connect and deliver every message until the connection ends; then
        raises BrokerError, which says why.

        `on_ready` is called once connected and subscribed to the permanent topics.
        """
        try:
            await self._session(deliver, on_ready, too_long)
        except BrokerError as error:
            raise BrokerError(f"the broker at {self._address} {error}") from error
        except MqttError as error:
            found = await self._what_answers(error)
            if self._version is ProtocolVersion.V5 and (found is Found.MQTT or _wants_older(error)):
                self._version = ProtocolVersion.V311
                return await self.listen(deliver, on_ready, too_long)
            why = found.value if found and found is not Found.MQTT else self._why(error)
            raise BrokerError(f"the broker at {self._address} {why}") from error

    async def _what_answers(self, error: MqttError) -> Found | None:
        """What answers at the address, if no connection came about and the error does not say why;
        else None.
        """
        at = self._address
        if self._accepted:
            return None
        if _is_silent(error):
            return await find_protocol(at.host, at.port, at.tls)
        if at.tls and _is_no_tls(_cause(error)):
            return _WITHOUT_TLS.get(await find_protocol(at.host, at.port, None))
        return None

    def _why(self, error: MqttError) -> str:
        """Why there is no connection, in words that follow the broker's name; a broker may also
        say nothing where the user may not subscribe.
        """
        if self._accepted and _is_silent(error) and "timed out" in str(error):
            return "takes the login but no subscription: may this user read `rankdeck/1/#` there (ACL)?"
        return _in_words(error)

    async def _session(
        self, deliver: Deliver, on_ready: Callable[[], None], too_long: TooLong
    ) -> None:
        self._accepted = False
        async with self._client(partial(_Straight, deliver, too_long)) as client:
            self._accepted = True
            await self._topics.first(client)
            on_ready()
            await _either(self._topics.follow(client), _until_lost(client))

    def _client(self, queue: Callable[..., asyncio.Queue[aiomqtt.Message]]) -> aiomqtt.Client:
        at = self._address
        new = self._version is ProtocolVersion.V5
        return aiomqtt.Client(
            at.host,
            at.port,
            username=at.username or None,
            password=at.password or None,
            identifier=f"rankdeck-{token_hex(6)}",
            queue_type=queue,  # pyright: ignore[reportArgumentType] - it is only called
            protocol=self._version,
            clean_session=None if new else True,
            properties=_limits() if new else None,
            timeout=CONNECT_LIMIT,
            keepalive=KEEPALIVE,
            tls_context=at.tls,
        )


def _limits() -> Properties:
    """The limits that are announced to a broker with MQTT 5."""
    found = Properties(PacketTypes.CONNECT)
    found.MaximumPacketSize = LARGEST
    return found


async def _until_lost(client: aiomqtt.Client) -> None:
    """Wait for the end of the connection, which raises MqttError; the iterator
    never has messages (see `_Straight`).
    """
    async for _ in client.messages:
        pass


async def _either(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until one raises; raises that error alone, not as a group."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for work in works:
                tasks.create_task(work)
    except* (MqttError, BrokerError) as group:
        raise group.exceptions[0] from None


def _is_no_tls(cause: OSError | None) -> bool:
    """Whether the other side broke off the TLS handshake, not we because of its certificate."""
    broken = isinstance(cause, (ssl.SSLError, ConnectionResetError))
    return broken and not isinstance(cause, ssl.SSLCertVerificationError)


def _is_silent(error: MqttError) -> bool:
    """Whether the broker took the connection and gave no answer: it may not speak
    MQTT 5, or is no broker.
    """
    return not isinstance(error, MqttCodeError) and _cause(error) is None


def _cause(error: MqttError) -> OSError | None:
    """The system error that caused the MQTT error, if any; time limits of Python are none."""
    # aiomqtt keeps it only as the context.
    found = error.__cause__ or error.__context__
    return found if isinstance(found, OSError) and found.errno is not None else None


def _value(code: object) -> int:
    return code.value if isinstance(code, ReasonCode) else code if isinstance(code, int) else 0


def _wants_older(error: MqttError) -> bool:
    """Whether the broker says that it does not speak MQTT 5."""
    return isinstance(error, MqttCodeError) and _value(error.rc) == _VERSION


def _in_words(error: MqttError) -> str:
    """Why there is no connection, in words that follow the broker's name."""
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        hint = _OF_CERTIFICATE.get(cause.verify_code, "")
        return f"shows a certificate that we do not accept: {cause.verify_message}{hint}"
    if isinstance(cause, ssl.SSLError):
        return f"does not speak TLS with us: {cause.reason or cause}"
    if isinstance(cause, OSError):
        return f"cannot be reached: {cause.strerror or cause}"
    if isinstance(error, MqttCodeError):
        known = _REFUSED.get(_value(error.rc))
        return known or f"ended the connection: {error}"
    return "does not answer" if "timed out" in str(error) else "ended the connection"
