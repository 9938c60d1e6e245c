"""The agent on the nodes: put there once, telemetry started and kept."""

import asyncio
import json
import re
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from rankdeck.errors import AgentError, NodeError
from rankdeck.model.text import clean
from rankdeck.remote.bundle import bundle
from rankdeck.remote.shell import Channel, Shell


class Wanted(Protocol):
    """What the telemetry of a node is told, and who wants to know what becomes of it."""

    async def configure(self, node: str) -> Mapping[str, Any]:
        """The configuration, made anew each time (tunnels get new ports); raises NodeError."""
        ...

    async def superseded(self, node: str) -> None:
        """Return when another agent does the work there."""
        ...

    def report(self, node: str, sentence: str, well: bool) -> None: ...


OLDEST_PYTHON = (3, 9)
UPLOAD_LIMIT = 120.0
BACKOFF = (1.0, 2.0, 5.0, 10.0, 15.0)
STEADY = 30.0
"""Telemetry that ran so long starts with the shortest pause again."""
_LOOK = (
    'f="$HOME/.cache/rankdeck/$1"; '
    """v=$("$2" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || v=; """
    's=$(cat "$f" 2>/dev/null | wc -c); '
    'printf "\\nrankdeck|%s|%d|%s\\n" "$v" "$s" "$f"'
)
_PUT = (
    'umask 077; mkdir -p "${1%/*}" && cat > "$1.$$.part" && '
    'test "$(wc -c < "$1.$$.part")" -eq "$2" && mv -f "$1.$$.part" "$1"; '
    'c=$?; rm -f "$1.$$.part"; exit $c'
)


_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\Z", re.ASCII)
_SIZE = re.compile(r"\d{1,12}\Z", re.ASCII)


class Agents:
    """Knows where the agent lies on each node."""

    def __init__(self, shell: Shell, python: str = "python3") -> None:
        self._shell, self._python = shell, python
        self._paths: dict[str, tuple[str, ...]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def agent_path(self, node: str) -> tuple[str, ...]:
        """The words that start the agent there; uploads it first. Raises NodeError."""
        async with self._locks.setdefault(node, asyncio.Lock()):
            if node not in self._paths:
                self._paths[node] = await self._bring(node)
            return self._paths[node]

    async def _bring(self, node: str) -> tuple[str, ...]:
        agent = bundle()
        look = ("sh", "-c", _LOOK, "sh", agent.name, self._python)
        found = await self._shell.run(node, look)
        version, size, path = _parse(node, found.out, found.err)
        self._check_python(node, version)
        if size != len(agent.data):
            await self._upload(node, path, agent.data)
        return (self._python, path)

    def _check_python(self, node: str, version: str) -> None:
        if not version:
            why = f"no `{self._python}` there: install Python 3.9 or newer, or name it with `ssh: {{python: …}}`"
            raise AgentError(node, why)
        if not _VERSION.match(version):
            why = f"`{self._python}` gives no version: name a Python 3.9 or newer with `ssh: {{python: …}}`"
            raise AgentError(node, why)
        major, _, minor = version.partition(".")
        if (int(major), int(minor)) < OLDEST_PYTHON:
            why = f"`{self._python}` is {version}, too old: name a Python 3.9 or newer with `ssh: {{python: …}}`"
            raise AgentError(node, why)

    async def _upload(self, node: str, path: str, data: bytes) -> None:
        put = ("sh", "-c", _PUT, "sh", path, str(len(data)))
        result = await self._shell.run(node, put, data, UPLOAD_LIMIT)
        if result.code != 0:
            why = _last_line(result.err) or f"exit status {result.code}"
            raise AgentError(node, f"the agent could not be put at {path}: {why}")

    # ---- telemetry

    def attach_telemetry(
        self, node: str, wanted: Wanted, tasks: asyncio.TaskGroup
    ) -> asyncio.Task[None]:
        """Start telemetry there and keep it running until the task is cancelled."""
        work = self._keep(node, wanted, tasks)
        return tasks.create_task(work, name=f"telemetry {node}")

    async def _keep(self, node: str, wanted: Wanted, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                why = await self._telemetry(node, wanted, tasks)
            except NodeError as error:
                why = error.why
            if not why:
                continue
            failures = 0 if loop.time() - began > STEADY else failures + 1
            pause = BACKOFF[min(failures, len(BACKOFF)) - 1] if failures else BACKOFF[0]
            wanted.report(node, f"{why}; trying again in {pause:.0f} s", False)
            await asyncio.sleep(pause)

    async def _telemetry(self, node: str, wanted: Wanted, tasks: asyncio.TaskGroup) -> str:
        """Run it once; why it ended, "" where another agent took its place."""
        # First: it may wait, for good where an agent is installed there.
        config = json.dumps(await wanted.configure(node)).encode()
        agent = await self.agent_path(node)
        channel = await self._shell.open(node, (*agent, "telemetry"), lambda _: None)
        yielding = tasks.create_task(_yield_to(wanted.superseded(node), channel))
        try:
            channel.write(config + b"\n")
            wanted.report(node, "telemetry started", True)
            code = await channel.wait()
            superseded = yielding.done()
        finally:
            yielding.cancel()
            await channel.close()
        if superseded:
            return ""
        # The file may have been swept away: look again before the next start.
        self._paths.pop(node, None)
        return channel.complaint or f"telemetry ended with exit code {code}"


async def _yield_to(other: Awaitable[None], channel: Channel) -> None:
    """End the program when `other` is over: its standard input is its lease."""
    await other
    channel.end()


def _parse(node: str, out: bytes, err: bytes) -> tuple[str, int, str]:
    """The answer line, among whatever the login's start-up files print."""
    for line in reversed(out.decode("utf-8", "replace").splitlines()):
        words = line.split("|", 3)
        if words[0] == "rankdeck" and len(words) == 4 and _SIZE.match(words[2]):
            return words[1], int(words[2]), words[3]
    why = _last_line(err) or "nothing"
    raise AgentError(node, f"a command over SSH gives no usable answer: {why}")


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return clean(lines[-1], 300) if lines else ""
