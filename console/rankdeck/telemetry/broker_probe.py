"""What answers at a broker's address where no MQTT connection came about."""

import asyncio
import socket
import ssl
from contextlib import suppress
from enum import StrEnum
from secrets import token_hex

from rankdeck.telemetry.mqtt_packets import PacketKind, make_packet
from rankdeck.telemetry.tls_probe import speaks_tls

LIMIT = 4.0
"""Seconds for the connection, and again for the first bytes of the answer."""
_RECORD = (0x15, 0x16)
"""The first byte of a TLS alert and of a TLS handshake."""


class Found(StrEnum):
    """What was found, in words that follow the broker's name."""

    MQTT = "speaks MQTT 3.1.1 only"
    NOTHING = "does not answer: it takes the connection, and says nothing"
    CLOSED = (
        "closes each connection without an answer: a proxy whose broker is down, a limit of its"
        " connections, or not the port of MQTT"
    )
    HTTP = (
        "speaks HTTP, perhaps MQTT over websockets: name the port for MQTT over TCP in the `url`"
        " of `broker:`"
    )
    SSH = "speaks SSH: name the port of MQTT in the `url` of `broker:`"
    PLAIN = "speaks MQTT without TLS: write `mqtt://` in the `url` of `broker:`"
    TLS = "speaks TLS: write `mqtts://` in the `url` of `broker:`"
    NO_CERTIFICATE = (
        "wants a client certificate, which Rankdeck does not have: let it take a user name and"
        " password at this port"
    )
    OTHER = "does not speak MQTT: is the port in the `url` of `broker:` right?"


async def find_protocol(host: str, port: int, tls: ssl.SSLContext | None) -> Found:
    """Connect once more without MQTT's rules, and see what answers. No login is sent."""
    return await asyncio.to_thread(_find, host, port, tls)


def _find(host: str, port: int, tls: ssl.SSLContext | None) -> Found:
    try:
        first = _first_bytes(host, port, tls)
    except TimeoutError:
        return Found.NOTHING
    except OSError as error:
        # With TLS 1.3 a server refuses only after the handshake.
        if "CERTIFICATE_REQUIRED" in str(getattr(error, "reason", "")):
            return Found.NO_CERTIFICATE
        first = b""
    if not first and tls is None and speaks_tls(host, port):
        return Found.TLS
    return judge_answer(first)


def judge_answer(first: bytes) -> Found:
    """What a server is, by the first bytes that it sends after MQTT's CONNECT."""
    if not first:
        return Found.CLOSED
    if first.startswith(b"HTTP/"):
        return Found.HTTP
    if first.startswith(b"SSH-"):
        return Found.SSH
    if first[0] in _RECORD and first[1:2] == b"\x03":
        return Found.TLS
    is_connack = first[0] == PacketKind.CONNACK << 4 and first[1:2] == b"\x02"
    return Found.MQTT if is_connack else Found.OTHER


def _hello() -> bytes:
    """CONNECT of MQTT 3.1.1, without a login."""
    name = f"rankdeck-{token_hex(6)}".encode()
    body = b"\x00\x04MQTT\x04\x02\x00\x0f" + len(name).to_bytes(2, "big") + name
    return make_packet(PacketKind.CONNECT, body)


def _first_bytes(host: str, port: int, tls: ssl.SSLContext | None) -> bytes:
    with socket.create_connection((host, port), LIMIT) as plain:
        if tls is None:
            return _answer_to_hello(plain)
        with tls.wrap_socket(plain, server_hostname=host) as secured:
            return _answer_to_hello(secured)


def _answer_to_hello(peer: socket.socket) -> bytes:
    # A server that has refused already still tells why to who reads.
    with suppress(OSError):
        peer.sendall(_hello())
    return peer.recv(64)
