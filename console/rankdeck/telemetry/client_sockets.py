"""Sockets of many clients: accepted, read together on one tick, and written without waiting.

The event loop only says that a descriptor is ready; the sockets are ours. Transports of asyncio are
not used, because versions of Python differ in when a transport begins to read: that of 3.11.2 reads
although it was paused.
"""

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable
from selectors import EVENT_READ, DefaultSelector, SelectorKey

log = logging.getLogger(__name__)
CHUNK = 1 << 16
"""Most bytes that are read of one client at once."""
TICK = 0.1
"""Seconds between two readings while data keeps arriving; screens are painted less often."""
TURN = 0.01
"""Seconds of reading before other tasks get a turn."""
BACKLOG = 32
"""Connections that may be accepted at once, before any of them can be refused."""
ACCEPT_AGAIN = 1.0
"""Seconds until connections are accepted again, after the system had no room for one."""
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class ClientSocket:
    """A connected socket that never waits: what the kernel does not take
    yet is kept, and sent when it does.
    """

    def __init__(self, connected: socket.socket, on_closed: Callable[[], None]) -> None:
        """`on_closed` is called once, just before the descriptor is closed."""
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd = connected.fileno()
        self.closing = False
        """Whether the connection is closed, or will be when all is sent."""
        self._socket = connected
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._ended = False

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""
        return len(self._unsent)

    def receive(self) -> bytes | None:
        """What has arrived, at most CHUNK bytes; None if nothing
        has, b"" if nothing will any more.
        """
        if self.closing:
            return b""
        try:
            return self._socket.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            self.abort()
            return b""

    def write(self, data: bytes) -> None:
        """Send data, or keep what the kernel does not take now; no effect
        on a connection that is closing.
        """
        if self.closing:
            return
        if not self._unsent:
            data = data[self._send(data) :]
            if self.closing or not data:
                return
            self._loop.add_writer(self.fd, self._send_kept)
        self._unsent += data

    def close(self) -> None:
        """Close the connection as soon as all is sent."""
        self.closing = True
        if not self._unsent:
            self._end()

    def abort(self) -> None:
        """Close the connection now; what is not sent is lost."""
        self.closing = True
        self._end()

    def _send(self, data: bytes | bytearray) -> int:
        """The number of bytes that the kernel took; closes a connection that is broken."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.abort()
            return 0

    def _send_kept(self) -> None:
        del self._unsent[: self._send(self._unsent)]
        if self._ended or self._unsent:
            return
        self._loop.remove_writer(self.fd)
        if self.closing:
            self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._loop.remove_writer(self.fd)
        self._on_closed()
        self._socket.close()


class SocketReader:
    """Calls connections that have data to read: at once after a
    quiet time, else every TICK seconds.
    """

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


class Listener:
    """Accepts connections on a port of this machine."""

    def __init__(self, host: str, port: int, on_connected: Callable[[socket.socket], None]) -> None:
        """Listen (port 0: a free one). `on_connected` is called with each new connection.

        Raises OSError.
        """
        self._socket = socket.create_server((host, port), backlog=BACKLOG)
        self._socket.setblocking(False)
        self._on_connected = on_connected
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.port: int = self._socket.getsockname()[1]
        self._wait()

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        if self._timer:
            self._timer.cancel()
        self._socket.close()

    def _wait(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                connected, _ = self._socket.accept()
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._rest(error)
                return
            self._on_connected(connected)

    def _rest(self, error: OSError) -> None:
        log.warning(
            "broker: no connection can be accepted: %s; again in a second",
            error.strerror,
            extra={"source": "broker"},
        )
        self._loop.remove_reader(self._socket)
        self._timer = self._loop.call_later(ACCEPT_AGAIN, self._wait)
