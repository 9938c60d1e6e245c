"""A ProxyCommand: runs it as OpenSSH does, by the user's shell, and keeps
what it writes to stderr for the error.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence

from rankdeck.remote.shell import last_line, shell_exit_code

_KEPT = 4096
_WAIT = 1.0
"""Seconds for a program whose connection has ended to say why and end."""
_FROM_SSH = 255
"""The exit status of `ssh` when its connection failed: trying again may help."""


class _Watch(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
        self.said = b""
        self.ended = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.said = (self.said + data)[-_KEPT:]

    def process_exited(self) -> None:
        self.ended.set()


class ProxyProgram:
    """A running ProxyCommand."""

    def __init__(self, command: str, transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
        self.command = command
        self._transport, self._watch = transport, watch

    async def complaint(self) -> str:
        """Why it ended, in words: its last line on stderr, or its exit status;
        "" while it runs and says nothing.
        """
        try:
            async with asyncio.timeout(_WAIT):
                await self._watch.ended.wait()
        except TimeoutError:
            return last_line(self._watch.said)
        return last_line(self._watch.said) or f"exit status {self._code}"

    @property
    def worth_trying_again(self) -> bool:
        """Whether it runs, or ended as `ssh` does when a server drops it."""
        return self._transport.get_returncode() is None or self._code == _FROM_SSH

    @property
    def _code(self) -> int:
        return shell_exit_code(self._transport.get_returncode() or 0)

    def end(self) -> None:
        """End it, and all processes in its group."""
        if self._transport.get_returncode() is None:
            try:
                os.killpg(self._transport.get_pid(), signal.SIGHUP)
            except ProcessLookupError:
                return
        self._transport.close()


async def start_proxy(command: str, *, pass_socket: bool) -> tuple[ProxyProgram, socket.socket]:
    """Start a ProxyCommand whose tokens are filled in; returns it and
    the socket that leads to the host.

    With `pass_socket` (ProxyUseFdpass) the command connects by itself and
    hands its socket over. Raises OSError.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    ours, theirs = socket.socketpair()
    try:
        program = await _start([shell, "-c", f"exec {command}"], theirs, command)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return program, await asyncio.to_thread(_handed, ours) if pass_socket else ours


async def _start(argv: Sequence[str], theirs: socket.socket, command: str) -> ProxyProgram:
    watch = _Watch()
    transport, _ = await asyncio.get_running_loop().subprocess_exec(
        lambda: watch, *argv, stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True
    )
    return ProxyProgram(command, transport, watch)


def _handed(ours: socket.socket) -> socket.socket:
    """The socket that the program hands over; raises OSError."""
    with ours:
        ours.settimeout(30)
        _, handles, _, _ = socket.recv_fds(ours, 1, 1)
    if not handles:
        raise ConnectionResetError("the ProxyCommand handed over no socket")
    return socket.socket(fileno=handles[0])
