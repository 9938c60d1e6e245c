"""Free ports of this machine, and programs that come to listen there."""

import socket
import time


def free_port() -> int:
    """A TCP port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, limit: float = 10.0) -> None:
    """Wait until something accepts connections there; raises OSError if nothing does in time."""
    deadline = time.monotonic() + limit
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
