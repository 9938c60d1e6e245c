"""Programs on this machine, by the protocol of `shell.Shell`: for the one that has kubectl, where that is this one."""

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import cast

from rankdeck.errors import AgentError, UnreachableError
from rankdeck.model.cluster import Cluster
from rankdeck.remote.shell import Channel, Clock, OnData, Result, Shell

THIS_MACHINE = "localhost"
"""The name under which jobs on Kubernetes have their control host where the cluster file names none."""
_MOST_OUTPUT = 32 << 20
_MOST_COMPLAINT = 16 << 10
_CLOSE_LIMIT = 2.0


def control_host(cluster: Cluster) -> str:
    """The machine that has kubectl: the login node, or this one."""
    return cluster.options.get("login", "") or THIS_MACHINE


def asks_here(cluster: Cluster) -> bool:
    """Whether this machine asks Kubernetes: the cluster file names no other one that has kubectl."""
    return cluster.backend == "kubernetes" and control_host(cluster) == THIS_MACHINE


class _Program(asyncio.SubprocessProtocol):
    """Hands stdout to a callback at once; keeps the end of stderr."""

    def __init__(self, on_data: OnData) -> None:
        self._on_data = on_data
        self.complaints = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writable = asyncio.Event()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._on_data(data)
        else:
            self.complaints = (self.complaints + data)[-_MOST_COMPLAINT:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable.set()
        if not self.ended.done():
            self.ended.set_result(None)


class LocalChannel:
    """One running program; see `shell.Channel`."""

    def __init__(self, transport: asyncio.SubprocessTransport, program: _Program) -> None:
        self._transport, self._program = transport, program
        self._stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        self._stdout = cast("asyncio.ReadTransport", transport.get_pipe_transport(1))

    def write(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)

    async def drain(self) -> None:
        await self._program.writable.wait()

    def end(self) -> None:
        if not self._stdin.is_closing():
            self._stdin.close()

    def pause(self) -> None:
        if not self._stdout.is_closing():
            self._stdout.pause_reading()

    def resume(self) -> None:
        if not self._stdout.is_closing():
            self._stdout.resume_reading()

    @property
    def complaint(self) -> str:
        lines = self.complaints.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    @property
    def complaints(self) -> bytes:
        return self._program.complaints

    async def wait(self) -> int:
        await asyncio.shield(self._program.ended)
        code = self._transport.get_returncode() or 0
        return 128 - code if code < 0 else code

    async def close(self) -> None:
        """End it with all that it started and that has not detached."""
        if self._transport.get_returncode() is None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_CLOSE_LIMIT):
                    await asyncio.shield(self._program.ended)
            except TimeoutError:
                self._signal(signal.SIGKILL)
        self._transport.close()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._transport.get_pid(), number)
        except ProcessLookupError:
            return


class LocalShell:
    """Runs programs here; see `shell.Shell`."""

    async def run(
        self, node: str, argv: Sequence[str], stdin: bytes = b"", limit: float = 30
    ) -> Result:
        """Run a program to its end, at most `limit` seconds; raises UnreachableError."""
        pieces: list[bytes] = []
        size = 0

        def collect(data: bytes) -> None:
            nonlocal size
            size += len(data)
            if size <= _MOST_OUTPUT:
                pieces.append(data)

        channel = await self.open(node, argv, collect)
        try:
            async with asyncio.timeout(limit):
                channel.write(stdin)
                channel.end()
                code = await channel.wait()
        except TimeoutError as error:
            why = f"no answer within {limit:.0f} s to {argv[-1][:60]}"
            raise UnreachableError(node, why) from error
        finally:
            await channel.close()
        if size > _MOST_OUTPUT:
            raise AgentError(node, f"sent more than {_MOST_OUTPUT >> 20} MB as an answer")
        return Result(code, b"".join(pieces), channel.complaints)

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> LocalChannel:
        """Start a program; `on_data` is called with its stdout as it arrives. Raises UnreachableError."""
        loop = asyncio.get_running_loop()
        try:
            transport, program = await loop.subprocess_exec(
                lambda: _Program(on_data), *argv, start_new_session=True
            )
        except OSError as error:
            raise UnreachableError(node, f"{argv[0]} cannot be started: {error}") from error
        return LocalChannel(transport, program)

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        """Here `port` itself is the way to it."""
        return port

    async def clock(self, node: str) -> Clock:
        """The same clock."""
        return Clock(0.0, 0.0)


class WithThisMachine:
    """The nodes through one shell, and this machine under its name through another."""

    def __init__(self, nodes: Shell) -> None:
        self._nodes, self._here = nodes, LocalShell()

    def _of(self, node: str) -> Shell:
        return self._here if node == THIS_MACHINE else self._nodes

    async def run(
        self, node: str, argv: Sequence[str], stdin: bytes = b"", limit: float = 30
    ) -> Result:
        return await self._of(node).run(node, argv, stdin, limit)

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> Channel:
        return await self._of(node).open(node, argv, on_data)

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        return await self._of(node).reverse_tunnel(node, host, port)

    async def clock(self, node: str) -> Clock:
        return await self._of(node).clock(node)
