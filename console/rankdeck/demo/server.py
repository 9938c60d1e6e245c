"""The SSH server of one virtual node: `python -m rankdeck.demo.server ROOT NAME PORT READY`."""

import asyncio
import json
import os
import sys
from pathlib import Path

import asyncssh

from rankdeck.demo.command import Command
from rankdeck.demo.layout import Layout, environment

_LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = ("localhost", _LOOPBACK)


class Server(asyncssh.SSHServer):
    """Runs commands for whoever holds the key; forwards to and from loopback only."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._environment = environment(layout, name)

    def session_requested(self) -> Command:
        return Command(self._environment)

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        return listen_host in _LOOPBACK_NAMES

    def unix_server_requested(self, listen_path: str) -> bool:
        return True

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        return dest_host in _LOOPBACK_NAMES

    def unix_connection_requested(self, dest_path: str) -> bool:
        return True


async def listen(layout: Layout, name: str, port: int) -> asyncssh.SSHAcceptor:
    """Listen on loopback, on `port` or, where that is taken, on a free one."""
    try:
        return await _listen(layout, name, port)
    except OSError:
        return await _listen(layout, name, 0)


async def _listen(layout: Layout, name: str, port: int) -> asyncssh.SSHAcceptor:
    return await asyncssh.create_server(
        lambda: Server(layout, name),
        _LOOPBACK,
        port,
        server_host_keys=[str(layout.host_key(name))],
        authorized_client_keys=str(layout.authorized),
        password_auth=False,
        kbdint_auth=False,
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
    )


async def serve(layout: Layout, name: str, port: int, ready: int) -> None:
    """Listen, say so as one line of JSON on the descriptor `ready`, and stay."""
    acceptor = await listen(layout, name, port)
    os.write(ready, json.dumps({"port": str(acceptor.get_port())}).encode() + b"\n")
    os.close(ready)
    await acceptor.wait_closed()


def main() -> None:
    """Serve until killed."""
    root, name, port, ready = sys.argv[1:]
    asyncio.run(serve(Layout(Path(root)), name, int(port), int(ready)))


if __name__ == "__main__":
    main()
