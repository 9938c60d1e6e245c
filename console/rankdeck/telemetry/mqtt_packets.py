"""Packets of MQTT 3.1.1: split a stream into them, read and write them."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

LONGEST_TOPIC = 1024
"""Most characters of a topic."""


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
    """Splits a stream of bytes into packets of at most `limit` bytes;
    the stream must begin with `first`.
    """

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
    """(remaining length, start of the body); the length is -1 if bytes are missing.

    Raises MalformedError.
    """
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


def make_packet(kind: PacketKind, body: bytes = b"", flags: int = 0) -> bytes:
    """The bytes of a packet."""
    head = bytearray((kind << 4 | flags,))
    length = len(body)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body


_PUBACK = make_packet(PacketKind.PUBACK, bytes(2))[:2]


def make_puback(number: int) -> bytes:
    """The PUBACK for the message with this packet identifier."""
    return _PUBACK + number.to_bytes(2, "big")


def answer_connect(code: Refusal) -> bytes:
    """The CONNACK that answers a CONNECT."""
    return make_packet(PacketKind.CONNACK, bytes((0, code)))


def valid_topic(topic: str) -> bool:
    """Whether a message may be published to this topic."""
    return 0 < len(topic) <= LONGEST_TOPIC and "+" not in topic and "#" not in topic
