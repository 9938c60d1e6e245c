"""MQTT packets as a client writes them."""

import struct

from rankdeck.telemetry.mqtt_packets import PacketKind, Publish, make_packet


def string(text: str | bytes) -> bytes:
    """Text with its length before it."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("!H", len(raw)) + raw


def publish(message: Publish) -> bytes:
    """A PUBLISH packet."""
    number = struct.pack("!H", message.packet_id) if message.qos else b""
    flags = message.qos << 1 | message.retain
    return make_packet(PacketKind.PUBLISH, string(message.topic) + number + message.payload, flags)


def connect(client_id: str, keepalive: int, username: str, password: bytes) -> bytes:
    """A CONNECT with a clean session and no will."""
    flags = 0x02 | (0x80 if username else 0) | (0x40 if username and password else 0)
    body = string("MQTT") + struct.pack("!BBH", 4, flags, keepalive) + string(client_id)
    if username:
        body += string(username)
        body += string(password) if password else b""
    return make_packet(PacketKind.CONNECT, body)


def subscribe(number: int, topic_filter: str) -> bytes:
    """A SUBSCRIBE for one filter."""
    return (
        bytes((0x82, 5 + len(topic_filter)))
        + struct.pack("!H", number)
        + string(topic_filter)
        + b"\0"
    )
