"""Carries the connection to the broker over standard output and input,
where the SSH server opens no ports.

The publisher connects to a port of this process on loopback; each row of
JSON carries bytes of one such connection.
"""

import base64
import contextlib
import json
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any, Optional

PART = 32 << 10
"""Most bytes of a connection in one row."""
SEND_LIMIT = 10.0
"""Seconds that the publisher may take to read what the broker sent."""


class BrokerRelay:
    """Listens on loopback, and passes one connection after the other on.

    Rows on stdout and stdin: `{"relay": {"id": 1, "data": "…"}}` has bytes in base64, a row
    without `data` says that the connection has ended.
    """

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(1)
        self._number = 0
        self._connection: Optional[socket.socket] = None

    @property
    def port(self) -> int:
        """Where the publisher connects to."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Begin to accept, in a thread that ends with the process."""
        threading.Thread(target=self._accept, daemon=True).start()

    def take(self, row: Mapping[str, Any]) -> None:
        """Take what came from the broker, the value of `relay` in a row of standard input."""
        connection = self._connection
        if connection is None or row.get("id") != self._number:
            return  # of a connection that is over
        data = row.get("data")
        try:
            if isinstance(data, str):
                connection.sendall(base64.b64decode(data))
            else:
                connection.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):
            return  # the publisher has closed it, which the other thread reports

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(SEND_LIMIT)
                self._number, self._connection = self._number + 1, connection
                self._pass_on(connection)
                self._connection = None
                _say({"id": self._number})

    def _pass_on(self, connection: socket.socket) -> None:
        """Send what the publisher writes, until it or the broker ends the connection."""
        while True:
            with contextlib.suppress(socket.timeout):
                try:
                    data = connection.recv(PART)
                except ConnectionError:
                    return
                if not data:
                    return
                _say({"id": self._number, "data": base64.b64encode(data).decode()})


def _say(row: "dict[str, object]") -> None:
    with contextlib.suppress(BrokenPipeError):  # the lease ends, too
        sys.stdout.write(json.dumps({"relay": row}) + "\n")
        sys.stdout.flush()
