"""Programs of a node run right here: the real agent on real pipes,
and every byte it sends counted.
"""

import asyncio
import os
from contextlib import asynccontextmanager
from pathlib import Path

from rankdeck.remote.node_python import ALONE
from rankdeck.remote.shell import ClockOffset, OnData, Way


class LocalChannel:
    """See `shell.Channel`."""

    complaint, complaints = "", b""

    def __init__(self, process: asyncio.subprocess.Process, reading) -> None:
        self.process, self._reading = process, reading

    def write(self, data: bytes) -> None:
        if not self.process.stdin.is_closing():
            self.process.stdin.write(data)

    async def drain(self) -> None:
        await self.process.stdin.drain()

    def end(self) -> None:
        self.process.stdin.close()

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    async def wait(self) -> int:
        await asyncio.shield(self._reading)
        return await self.process.wait()

    async def close(self) -> None:
        self.end()


class LocalShell:
    """See `shell.Shell`; made by `local_shell`."""

    def __init__(self, home: Path, tasks: asyncio.TaskGroup) -> None:
        self._env = {**os.environ, "HOME": str(home), "RANKDECK_STATE": str(home)}
        self._tasks = tasks
        self.sent = 0
        """Bytes that came from programs."""
        self.opened: list[str] = []
        self.channels: list[LocalChannel] = []

    async def open(self, node: str, argv, on_data: OnData) -> LocalChannel:
        del node
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, env=self._env
        )
        words = [word for word in argv if word not in ("/usr/bin/env", ALONE)]
        self.opened.append(" ".join(words[2:4]))

        async def read() -> None:
            while data := await process.stdout.read(1 << 16):
                self.sent += len(data)
                on_data(data)

        channel = LocalChannel(process, self._tasks.create_task(read()))
        self.channels.append(channel)
        return channel

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        raise NotImplementedError

    def way(self, node: str) -> Way:
        del node
        return Way()

    async def clock(self, node: str) -> ClockOffset:
        del node
        return ClockOffset(0.0, 0.0)


@asynccontextmanager
async def local_shell(home: Path):
    """Programs that were started end with the block, because their stdin is closed."""
    async with asyncio.TaskGroup() as tasks:
        shell = LocalShell(home, tasks)
        try:
            yield shell
        finally:
            for channel in shell.channels:
                channel.end()
