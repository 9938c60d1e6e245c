"""One MQTT 3.1.1 connection that only publishes, without a thread: for a process that plays many agents.

What is published waits in a buffer for the connection; answers of the broker are read and dropped.
"""

import socket
from typing import Optional

MOST_WAITING = 4 << 20
"""Bytes that may wait; what comes then is left out."""
_PING = b"\xc0\x00"
_CONNACK = b"\x20\x02"
_BUSY = (BlockingIOError, InterruptedError)


class LineError(OSError):
    """The connection has ended; the text says why."""


class Line:
    """Raises LineError from `read` and `flush` where it cannot go on."""

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        *,
        login: tuple[str, str] = ("", ""),
        keepalive: int = 60,
        will: Optional[tuple[str, bytes]] = None,
    ) -> None:
        """`will`: topic and payload that the broker publishes, retained, where we vanish."""
        self.dropped = 0
        self.keepalive = keepalive
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect_ex(address)
        self._waiting = bytearray(_connect(client_id, login, keepalive, will))
        self._open = False
        self._answer = b""
        self._number = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def waits(self) -> bool:
        """Whether something is still to be written."""
        return bool(self._waiting)

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> bool:
        """Send a message, or keep it until there is room; False where it is left out."""
        if len(self._waiting) > MOST_WAITING:
            self.dropped += 1
            return False
        number = b""
        if qos:
            self._number = self._number % 0xFFFF + 1
            number = self._number.to_bytes(2, "big")
        body = _text(topic.encode()) + number + payload
        self._waiting += bytes((0x30 | qos << 1 | retain,)) + _length(len(body)) + body
        if self._open:
            self.flush()
        return True

    def ping(self) -> None:
        """Say that we are there; at least every `keepalive` seconds."""
        if not self._waiting:
            self._waiting += _PING
            self.flush()

    def flush(self) -> None:
        """Write what can be written now."""
        try:
            del self._waiting[: self._socket.send(self._waiting)]
        except _BUSY:
            return
        except OSError as error:
            raise LineError(error.strerror or "the connection is lost") from error
        self._open = True

    def read(self) -> None:
        """Take what the broker says; a refusal is an error."""
        try:
            data = self._socket.recv(1 << 16)
        except _BUSY:
            return
        except OSError as error:
            raise LineError(error.strerror or "the connection is lost") from error
        if not data:
            raise LineError("the broker ended the connection")
        if len(self._answer) < 4:
            self._answer += data[:4]
            if len(self._answer) >= 4 and not _accepted(self._answer):
                raise LineError(f"the broker refuses us: {self._answer[:4].hex()}")

    def close(self) -> None:
        self._socket.close()


def _accepted(answer: bytes) -> bool:
    return answer[:2] == _CONNACK and answer[3] == 0


def _connect(
    client_id: str, login: tuple[str, str], keepalive: int, will: Optional[tuple[str, bytes]]
) -> bytes:
    flags, rest = 0x02, _text(client_id.encode())
    if will:
        flags |= 0x2C  # will, QoS 1, retained
        rest += _text(will[0].encode()) + _text(will[1])
    if login[0]:
        flags |= 0xC0
        rest += _text(login[0].encode()) + _text(login[1].encode())
    body = _text(b"MQTT") + bytes((4, flags)) + keepalive.to_bytes(2, "big") + rest
    return b"\x10" + _length(len(body)) + body


def _text(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def _length(number: int) -> bytes:
    encoded = bytearray()
    while True:
        number, low = divmod(number, 128)
        encoded.append(low | (0x80 if number else 0))
        if not number:
            return bytes(encoded)
