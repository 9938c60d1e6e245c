"""Interfaces, names, ports, and connections between the nodes of a job."""

import fcntl
import hmac
import ipaddress
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional, TypeVar

from rankdeck_agent.job.text import plain

PAYLOAD = 32 << 10
"""Bytes after the token: several packets of the largest usual size."""
CONNECT_LIMIT = 1.5
_WIDTH = 32
_BACKLOG = 256
_FLAGS, _ADDRESS, _MASK, _MTU = 0x8913, 0x8915, 0x891B, 0x8921
_UP, _RUNNING = 1, 0x40
_DONE = b"ok"
T = TypeVar("T")


def interfaces() -> list[dict[str, Any]]:
    """Every interface with its name, IPv4 `address` as a.b.c.d/n, `mtu`, and whether it is `up`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return [_interface(probe, name) for _, name in socket.if_nameindex()[:256]]


def _interface(probe: socket.socket, name: str) -> dict[str, Any]:
    flags, mtu = _ask(probe, _FLAGS, name), _ask(probe, _MTU, name)
    address, mask = _ask(probe, _ADDRESS, name), _ask(probe, _MASK, name)
    state = struct.unpack("H", flags[16:18])[0] if flags else 0
    row = {
        "name": plain(name, 32),
        "up": bool(state & _UP and state & _RUNNING),
        "mtu": struct.unpack("i", mtu[16:20])[0] if mtu else 0,
        "address": "",
    }
    if address and mask:
        text = f"{socket.inet_ntoa(address[20:24])}/{socket.inet_ntoa(mask[20:24])}"
        row["address"] = str(ipaddress.IPv4Interface(text))
    return row


def _ask(probe: socket.socket, what: int, name: str) -> Optional[bytes]:
    try:
        return fcntl.ioctl(probe, what, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return None


def resolve(name: str) -> list[str]:
    """The addresses a name has here; raises OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return sorted({str(row[4][0]) for row in found})[:8]


def port_trouble(port: int) -> str:
    """Why nothing can listen on this TCP port, or ""."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            probe.listen(1)
    except OSError as error:
        return plain(error.strerror or str(error))
    return ""


# ---- connections -----------------------------------------------------------------------


class Listener:
    """Answers whoever knows the token, until the process ends."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._socket = _listening()
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        try:
            with peer:
                peer.settimeout(2 * CONNECT_LIMIT)
                said = _exactly(peer, len(self._token))
                if hmac.compare_digest(said, self._token):
                    _exactly(peer, PAYLOAD)
                    peer.sendall(_DONE)
        except OSError:
            return


def _listening() -> socket.socket:
    """On every address, a free port; the old protocol alone where there is no new one."""
    try:
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
        )
    except (OSError, ValueError):
        return socket.create_server(("", 0), backlog=_BACKLOG)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(min(65536, size - len(data)))
        if not piece:
            raise ConnectionError("the other side ended the connection")
        data += piece
    return data


def connect(token: str, host: str, port: int) -> dict[str, str]:
    """One attempt: `error` is "" where all bytes arrived; `local` is our address on that way."""
    try:
        peer = socket.create_connection((host, port), CONNECT_LIMIT)
    except OSError as error:
        return {"error": _why(error), "local": "", "stage": "connect"}
    with peer:
        local = str(peer.getsockname()[0])
        try:
            peer.sendall(token.encode() + bytes(PAYLOAD))
            _exactly(peer, len(_DONE))
        except OSError as error:
            return {"error": _why(error), "local": local, "stage": "data"}
    return {"error": "", "local": local, "stage": ""}


def _why(error: OSError) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return f"no answer within {CONNECT_LIMIT:g} s"
    return plain(error.strerror or str(error))


def side_by_side(work: Callable[[T], Any], items: Iterable[T], limit: float) -> list[Any]:
    """What `work` gave for every item, in order; None for those that took too long."""
    todo: Sequence[T] = list(items)
    found: list[Any] = [None] * len(todo)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done = threading.Semaphore(0)
    for index in range(len(todo)):
        waiting.put(index)

    def run() -> None:
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            found[index] = work(todo[index])
            done.release()

    for _ in range(min(_WIDTH, len(todo))):
        threading.Thread(target=run, daemon=True).start()
    deadline = time.monotonic() + limit
    for _ in todo:
        if not done.acquire(timeout=max(0.0, deadline - time.monotonic())):
            break
    return list(found)
