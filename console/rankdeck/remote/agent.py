"""The agents on the nodes of a cluster: copied there, called, kept running for telemetry."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from rankdeck.errors import AgentError, NodeError
from rankdeck.model.safe_text import clean_line
from rankdeck.remote import node_python
from rankdeck.remote.bundle import COMPILE_MODULES, UNPACK, Bundle, build_bundle
from rankdeck.remote.dialogue import Dialogue, next_answer
from rankdeck.remote.node_python import FoundPython, parse_found_python
from rankdeck.remote.relay import StdioRelay
from rankdeck.remote.shell import (
    Channel,
    OnData,
    ProgramResult,
    Row,
    Shell,
    last_line,
    limit_time,
    run_program,
)
from rankdeck.values import Value

_REMEDIES = (
    ("File too large", "raise the limit on the size of files of this account there (`ulimit -f`)"),
    ("", "make one of these folders writable, with room for five megabytes"),
)
"""What a refused copy says -> what to do; the first row that fits wins."""
LOOK_LIMIT, UPLOAD_LIMIT = 30.0, 120.0
_HANGS = (
    "a start-up file of the login shell waits there, or its Python hangs, or the machine is very slow "
    "(`ssh: {connect_limit: …}` makes this limit longer)"
)
BACKOFF = (1.0, 2.0, 5.0, 10.0, 15.0)
STEADY = 30.0
"""After this many seconds of running, the next restart waits only for the shortest pause."""
_PUT = (
    'umask 077; f=$1 part=$1.$5.part; mkdir -p "${f%/*}" || exit 1; '
    f'{{ {node_python.OWN_FOLDER}; }} || {{ echo "$d belongs to another user" >&2; exit 1; }}; '
    '"$3" ALONE -c "$6" > "$part" && test "$(wc -c < "$part")" -eq "$2" && '
    '{ "$3" ALONE -c "$4" "$part" "$f" 2>/dev/null; mv -f "$part" "$f"; }; '
    'c=$?; rm -f "$part" "${part}c"; exit $c'
).replace("ALONE", node_python.ALONE)
"""Arguments: the file, its length, the Python, COMPILE_MODULES, a word that no other
upload has (nodes may share the folder), UNPACK.
"""
JOB_RUN = ("job", "run")


class AgentSetup(Value):
    """How a node's telemetry agent is started."""

    config: Mapping[str, Any]
    relay: tuple[str, int] | None = None
    """Host and port of the broker, if its connection goes over the agent's
    stdin and stdout; see `StdioRelay`.
    """


class WantedAgent(Protocol):
    """Supplies the configuration of a node's telemetry agent, and is
    called when the agent starts and ends.
    """

    async def configure(self, node: str) -> "AgentSetup":
        """How the agent is started, asked before each start; may wait. Raises NodeError."""
        ...

    def superseded(self, node: str) -> Awaitable[None] | None:
        """An awaitable that returns when another agent has taken over
        on this node; None if none will.
        """
        ...

    def started(self, node: str, write: Callable[[bytes], None]) -> None:
        """Called when the agent runs; `write` sends to its stdin and is valid until `ended`."""
        ...

    def ended(self, node: str) -> None:
        """Called when the agent no longer runs."""
        ...

    def report(self, node: str, sentence: str, well: bool) -> None:
        """Called when the state changes: the agent runs (`well`), or why it does not."""
        ...


class Agents:
    """Calls commands of the agent on nodes; copies the agent to a node first if it is missing."""

    def __init__(
        self,
        shell: Shell,
        *pythons: str,
        of_node: Mapping[str, Sequence[str]] | None = None,
        folder: str = "",
        patience: float = 1.0,
        simulating: bool = False,
    ) -> None:
        """`pythons`: which to try on a node, in order, if `of_node` names
        none for it; neither: the usual ones.

        `folder`: where the agent file lies on the nodes; "": the first of the usual places that can
        be used. `patience`: all limits are multiplied by it (see `Access.patience`).
        `simulating`: the nodes simulate devices.
        """
        self.patience, self._simulating = patience, simulating
        self.shell, self._pythons, self._of_node = shell, pythons, of_node or {}
        """`shell` is for other programs on nodes."""
        self._places = (folder,) if folder else node_python.PLACES
        self.elsewhere: dict[str, str] = {}
        """Node -> the agent file, where that does not lie in the usual place."""
        self._uploads: dict[str, asyncio.Lock] = {}
        """Inode of a home folder -> lock: nodes that share it need one upload."""
        self._paths: dict[str, tuple[str, ...]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._often: dict[str, Dialogue] | None = None
        """Node -> idle helper that starts jobs there; None outside `starting_often`."""

    async def call(
        self, node: str, command: Sequence[str], stdin: bytes = b"", *, limit: float
    ) -> ProgramResult:
        """Run a command of the agent, such as ("job", "list"), to its end.

        `limit` is in seconds and includes copying the agent. Raises NodeError if the node cannot be
        reached or the agent cannot run there; if the command itself fails, returns its result with
        the exit code.
        """
        limit *= self.patience
        async with limit_time(node, limit):
            return await run_program(self, node, command, stdin, limit)

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> Channel:
        """Start a command of the agent, such as ("telemetry",); `on_data` gets its stdout.

        Copies the agent first if it is not there. Raises NodeError.
        """
        async with self._locks.setdefault(node, asyncio.Lock()):
            if node not in self._paths:
                channel = await self._begin(node, argv, on_data)
                if channel is not None:
                    return channel
        return await self.shell.open(node, (*self._paths[node], *argv), on_data)

    @asynccontextmanager
    async def dialogue(self, node: str, command: Sequence[str]) -> AsyncGenerator[Dialogue]:
        """Run a command of the agent that answers questions, until
        the block ends; raises NodeError.
        """
        talk = Dialogue(node, self.patience)
        talk.channel = await self.open(node, command, talk.take)
        try:
            yield talk
        finally:
            await talk.end()

    async def hand_over(
        self, node: str, command: tuple[str, ...], plan: Mapping[str, Any], limit: float
    ) -> None:
        """Pass a plan to the command of the agent that starts it; raises NodeError if that fails.

        `limit` is in seconds and includes copying the agent.
        """
        if self._often is not None and command == JOB_RUN:
            row, why = await self._start_there(node, plan, limit, self._often), "it says nothing"
        else:
            answer = await self.call(node, command, json.dumps(plan).encode(), limit=limit)
            row, why = answer.row, answer.complaint
        if row.get("ok") is not True:
            raise AgentError(node, clean_line(row.get("error"), 400) or why)

    @asynccontextmanager
    async def starting_often(self) -> AsyncGenerator[None]:
        """Inside this block, the helper that starts a job on a node
        stays there for the next job.
        """
        self._often = {}
        try:
            yield
        finally:
            kept, self._often = self._often, None
            for talk in kept.values():
                await talk.end()

    async def _start_there(
        self, node: str, plan: Mapping[str, Any], limit: float, idle: dict[str, Dialogue]
    ) -> Row:
        """Start a job by the idle helper on the node; if there is none, start a helper."""
        talk, kept = idle.pop(node, None) or await self._starter(node, limit), False
        try:
            row = await talk.ask(plan, limit)
            kept = self._often is idle and node not in idle
        finally:
            # A helper that did not answer is not used again: a late answer would
            # be taken for that of the next job.
            if kept:
                idle[node] = talk
            else:
                await talk.end()
        return row

    async def _starter(self, node: str, limit: float) -> Dialogue:
        talk = Dialogue(node, self.patience)
        async with limit_time(node, limit * self.patience):
            talk.channel = await self.open(node, (*JOB_RUN, "--each"), talk.take)
        return talk

    @property
    def _bundle(self) -> Bundle:
        return build_bundle(simulating=self._simulating)

    async def _begin(self, node: str, command: Sequence[str], on_data: OnData) -> Channel | None:
        """Find the agent on a node and start this command of it in the same round trip; None
        if it was not there and has only been copied. Raises NodeError.
        """
        agent, named = self._bundle, self._of_node.get(node) or self._pythons
        found, channel = await self._ask(node, named, self._places, command, on_data)
        async with AsyncExitStack() as unless_it_runs:
            unless_it_runs.push_async_callback(channel.close)
            node_python.check_python(node, found, named)
            if found.digest == agent.digest:
                unless_it_runs.pop_all()
                self._remember(node, found)
                return channel

        lock = self._uploads.setdefault(found.home, asyncio.Lock())
        waits = lock.locked()
        async with lock:
            found = await self._upload(node, found, again=waits)
        if found.digest != agent.digest:
            why = f"the agent at {clean_line(found.path)} is not what was sent (SHA-256 {agent.digest}): not started"
            raise AgentError(node, why)
        self._remember(node, found)
        return None

    def _remember(self, node: str, found: FoundPython) -> None:
        # A login shell may have a function or an alias of this name.
        python = (found.python,) if "/" in found.python else ("/usr/bin/env", found.python)
        self._paths[node] = (*python, node_python.ALONE, found.path)
        if found.place != "0":
            self.elsewhere[node] = found.path

    async def _look(self, node: str, pythons: Sequence[str], places: Sequence[str]) -> FoundPython:
        found, channel = await self._ask(node, pythons, places, (), _ignore)
        await channel.close()
        return found

    async def _ask(
        self,
        node: str,
        pythons: Sequence[str],
        places: Sequence[str],
        command: Sequence[str],
        on_data: OnData,
    ) -> tuple[FoundPython, Channel]:
        """Look for a Python and the agent file on a node; if the file is right, the
        channel goes on as this command of the agent. Raises NodeError.
        """
        agent, limit = self._bundle, LOOK_LIMIT * self.patience
        asked = node_python.python_look_command(agent.name, agent.digest, pythons, places, command)
        answer = node_python.LookAnswer(node, on_data)
        why = f"no answer within {limit:g} s to a command over SSH: {_HANGS}"
        async with limit_time(node, limit, why), AsyncExitStack() as unless_answered:
            channel = await self.shell.open(node, asked, answer.take)
            unless_answered.push_async_callback(channel.close)
            found = await next_answer(node, channel, answer.found, 2 * limit)
            if found is None:
                await channel.wait()  # raises what ended it: a lost connection, endless output
                found = parse_found_python(node, answer.said, channel.complaints)
            unless_answered.pop_all()
        return found, channel

    async def _upload(self, node: str, found: FoundPython, *, again: bool) -> FoundPython:
        """Put the agent into the first place that can be used. Raises AgentError.

        `again`: look first, for another node that may share the home has just got it.
        """
        refused: dict[str, list[str]] = {}
        for number, place in enumerate(self._places):
            if again or number:
                found = await self._look(node, (found.python,), (place,))
                if found.digest == self._bundle.digest:
                    return found._replace(place=str(number))
            why = await self._put(node, found, self._bundle)
            if not why:
                there = await self._look(node, (found.python,), (place,))
                return there._replace(place=str(number))
            refused.setdefault(why, []).append(found.path.rpartition("/")[0])
        remedy = next(do for words, do in _REMEDIES if words in list(refused)[-1])
        tried = "; ".join(f"{', '.join(folders)}: {why}" for why, folders in refused.items())
        raise AgentError(node, f"the agent could not be copied: {remedy}; tried {tried}")

    async def _put(self, node: str, found: FoundPython, agent: Bundle) -> str:
        """Copy the agent to where it belongs; returns why that failed, or ""."""
        own, length = secrets.token_hex(6), str(len(agent.data))
        arguments = (found.path, length, found.python, COMPILE_MODULES, own, UNPACK)
        put, limit = ("sh", "-c", _PUT, "sh", *arguments), UPLOAD_LIMIT * self.patience
        result = await run_program(self.shell, node, put, agent.packed, limit)
        return (last_line(result.err) or f"exit status {result.code}") if result.code else ""

    # ---- telemetry

    def attach_telemetry(
        self, node: str, wanted: WantedAgent, tasks: asyncio.TaskGroup
    ) -> asyncio.Task[None]:
        """Start the telemetry agent on a node and keep it running until
        the returned task is cancelled.
        """

        def tell(why: str, pause: float) -> None:
            wanted.report(node, f"{why}; trying again in {pause:.0f} s", False)

        work = keep_running(lambda: self._telemetry(node, wanted, tasks), tell)
        return tasks.create_task(work, name=f"telemetry {node}")

    async def _telemetry(self, node: str, wanted: WantedAgent, tasks: asyncio.TaskGroup) -> str:
        """Run the telemetry agent once; returns why it ended, "" if
        another agent took its place.
        """
        # First, because it may wait: forever, if an agent is installed there.
        setup = await wanted.configure(node)
        config = json.dumps(setup.config).encode()
        relay = StdioRelay(*setup.relay, tasks) if setup.relay else None
        channel = await self.open(node, ("telemetry",), relay.take if relay else _ignore)
        other = wanted.superseded(node)
        yielding = tasks.create_task(_yield_to(other, channel)) if other else None
        try:
            if relay:
                relay.begin(channel.write)
            channel.write(config + b"\n")
            del config, setup
            wanted.started(node, channel.write)
            wanted.report(node, "its telemetry has started", True)
            code = await channel.wait()
            superseded = yielding is not None and yielding.done()
        finally:
            wanted.ended(node)
            if relay:
                relay.end()
            if yielding:
                yielding.cancel()
            await channel.close()
        if superseded:
            return ""
        # The agent file may have been deleted: check it again before the next start.
        self._paths.pop(node, None)
        return channel.complaint or f"telemetry ended with exit code {code}"


def _ignore(_: bytes) -> None:
    """What a login shell prints before the telemetry agent, which itself writes nothing."""


async def keep_running(
    once: Callable[[], Awaitable[str]],
    tell: Callable[[str, float], None],
    pauses: Sequence[float] = BACKOFF,
) -> None:
    """Call and await `once` again and again until cancelled, with growing pauses in between.

    `once` returns why it ended, or "" to start again at once; `tell` is
    called with that and the pause in seconds.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        began = loop.time()
        try:
            why = await once()
        except NodeError as error:
            why = error.why
        if not why:
            continue
        failures = 0 if loop.time() - began > STEADY else failures + 1
        pause = pauses[min(max(failures, 1), len(pauses)) - 1]
        tell(why, pause)
        await asyncio.sleep(pause)


async def _yield_to(other: Awaitable[None], channel: Channel) -> None:
    """Close the program's stdin, which ends it, when `other` returns."""
    await other
    channel.end()
