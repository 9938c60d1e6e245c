"""The agent on the nodes: built as one file, copied to nodes, started, installed as a service."""

import asyncio
import hashlib
import io
import json
import secrets
import zipfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import field

from rankdeck.errors import AgentError, NodeError, UnreachableError
from rankdeck.model.json_tables import as_list, parse_table
from rankdeck.model.safe_text import clean_line
from rankdeck.remote import node_python
from rankdeck.remote.node_python import FoundPython
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

_PACKAGES = ("rankdeck_agent", "paho")
_SIMULATOR = "rankdeck_simulator"
"""Only for nodes that simulate devices."""
_MODULES = ("pynvml",)
"""Included in the file if they are installed here; the agent works without them."""
_MAKE_WRITABLE = "make that folder writable, with room for two megabytes"
_DATE = (1980, 1, 1, 0, 0, 0)
_LEVEL = 4
"""How hard the file is compressed: every command builds it, and level 9 takes three times as long
for 3 % less.
"""
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = """\
import os, sys

if sys.version_info < (3, 6):
    sys.exit(
        "rankdeck-agent needs Python 3.6 or newer; %s is %d.%d: name another one with `python:` in the cluster file"
        % (sys.executable, sys.version_info[0], sys.version_info[1])
    )

agent = sys.path[0]
# Where the console put it, the same modules lie beside it, compiled by this version of Python.
compiled = "%s.%s" % (agent, sys.implementation.cache_tag)
sys.path.insert(0, compiled)
if sys.version_info < (3, 8):
    sys.path.append(agent + "/rankdeck_agent/for_older_python")
if sys.version_info < (3, 9) and not os.path.exists(compiled):
    from rankdeck_agent.older_source import OlderSourceFinder

    sys.meta_path.insert(0, OlderSourceFinder(agent))

from rankdeck_agent.__main__ import main

sys.exit(main())
"""
_COMPILE = """\
import glob, importlib.util, marshal, os, re, sys, zipfile
part, agent = sys.argv[1:]
sys.path.insert(0, part)
from rankdeck_agent.older_source import compile_module
head = importlib.util.MAGIC_NUMBER + bytes(12 if sys.version_info >= (3, 7) else 8)
with zipfile.ZipFile(part) as source, zipfile.ZipFile(part + "c", "w", zipfile.ZIP_DEFLATED) as compiled:
    for name in source.namelist():
        if name.endswith(".py") and name != "__main__.py":
            code = marshal.dumps(compile_module(source.read(name), agent + "/" + name))
            compiled.writestr(name + "c", head + code)
os.replace(part + "c", "%s.%s" % (agent, sys.implementation.cache_tag))

running = set()
for file in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        with open(file, "rb") as words:
            running.update(re.findall(r"agent-[0-9a-f]{12}[.]pyz", words.read().decode("utf-8", "replace")))
    except OSError:
        pass
now = os.stat(part).st_mtime
for old in glob.glob(os.path.dirname(agent) + "/agent-*.pyz"):
    name, seen = os.path.basename(old), os.stat(old)
    ours = re.fullmatch(r"agent-[0-9a-f]{12}[.]pyz", name)
    if ours and old != agent and name not in running and now - max(seen.st_mtime, seen.st_atime) > 30 * 86400:
        for file in glob.glob(old + "*"):
            os.remove(file)
"""
"""Run by the node's Python after an upload. It compiles the modules, because Python does not cache
those of a zip file, and compiling takes most of the start time of a command. It also removes agents
of other versions that were not used for 30 days and do not run on this node; by the clock of the
file system, which nodes may share.
"""


class Bundle(Value):
    """A zip file that Python runs: `python3 agent.pyz VERB`."""

    data: bytes
    digest: str
    """SHA-256 of `data`, in hex."""
    name: str
    """The file name on a node; contains the beginning of the digest."""


def build_bundle(*, simulating: bool = False) -> Bundle:
    """The agent as one file; the same sources give the same bytes.

    `simulating`: with the devices that `simulate:` of a cluster file asks for.
    """
    return _built(simulating)


@cache
def _built(simulating: bool) -> Bundle:
    files = {"__main__.py": _MAIN.encode()}
    for package in (*_PACKAGES, *[_SIMULATOR] * simulating):
        files.update(_package(package))
    for module in _MODULES:
        files.update(_module(module))
    data = _SHEBANG + _zip(files)
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(data, digest, f"agent-{digest[:12]}.pyz")


def _package(name: str) -> Iterator[tuple[str, bytes]]:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{name} is not installed: the agent cannot be built", name=name)
    folder = Path(next(iter(spec.submodule_search_locations)))
    for path in folder.rglob("*.py"):
        yield f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _module(name: str) -> Iterator[tuple[str, bytes]]:
    spec = find_spec(name)
    if spec is not None and spec.origin and spec.origin.endswith(".py"):
        yield f"{name}.py", Path(spec.origin).read_bytes()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name in sorted(files):
            # Fixed dates and modes, so that the bytes depend only on the sources.
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name], compresslevel=_LEVEL)
    return buffer.getvalue()


# ---- answers


Parsed = TypeVar("Parsed")
_LONGEST = 8 << 20


class Dialogue:
    """Questions to one running command of the agent, and its answers; made by `Agents.dialogue`."""

    def __init__(self, node: str, patience: float = 1.0) -> None:
        """`patience`: all limits are multiplied by it (see `Access.patience`)."""
        self._node, self._patience = node, patience
        self._text = bytearray()
        self._taken = 0
        self._answers: asyncio.Queue[Row] = asyncio.Queue()
        self.channel: Channel

    def take(self, data: bytes) -> None:
        """Take bytes of its stdout; lines that are not JSON objects come
        from the login shell and are ignored.
        """
        self._taken += len(data)
        if self._taken > _LONGEST:
            return
        self._text += data
        *lines, rest = self._text.split(b"\n")
        self._text = bytearray(rest)
        for line in lines:
            if row := parse_table(bytes(line)):
                self._answers.put_nowait(row)

    @property
    def answered(self) -> bool:
        """Whether an answer has arrived that was not read yet."""
        return not self._answers.empty()

    async def ask(self, question: Mapping[str, Any], limit: float) -> Row:
        """Send a question, then wait at most `limit` seconds for the
        next answer; raises NodeError.
        """
        self.channel.write(json.dumps(question).encode() + b"\n")
        return await self.hear(limit)

    async def hear(self, limit: float) -> Row:
        """The next answer; raises NodeError after `limit` seconds or when the program ends."""
        answer = await next_answer(self._node, self.channel, self._answers, limit * self._patience)
        if answer is None:
            raise AgentError(self._node, self._why())
        return answer

    async def end(self) -> None:
        """Close the program's stdin and the channel, which ends the program."""
        self.channel.end()
        await self.channel.close()

    def _why(self) -> str:
        if self._taken > _LONGEST:
            return f"sent more than {_LONGEST >> 20} MB as an answer"
        complaint = clean_line(self.channel.complaint.removeprefix("rankdeck: "))
        return complaint or "the agent ended without an answer"


async def next_answer(
    node: str, channel: Channel, answers: asyncio.Queue[Parsed], limit: float
) -> Parsed | None:
    """The next item of the queue, None if the program has ended; raises
    UnreachableError after `limit` seconds.
    """
    if not answers.empty():
        return answers.get_nowait()
    async with limit_time(node, limit), asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(_ended(channel))
        hearing = tasks.create_task(answers.get())
        await asyncio.wait((hearing, ending), return_when=asyncio.FIRST_COMPLETED)
        hearing.cancel()
        ending.cancel()
    if not hearing.cancelled():
        return hearing.result()
    # Both may happen at the same time: return the last item first, the end with the next call.
    return None if answers.empty() else answers.get_nowait()


async def _ended(channel: Channel) -> None:
    try:
        await channel.wait()
    except UnreachableError:
        return


# ---- the agents of a cluster


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
    'cat > "$part" && test "$(wc -c < "$part")" -eq "$2" && '
    f'{{ "$3" {node_python.ALONE} -c "$4" "$part" "$f" 2>/dev/null; mv -f "$part" "$f"; }}; '
    'c=$?; rm -f "$part" "${part}c"; exit $c'
)
"""Arguments: the file, its length, the Python, _COMPILE, a word that no other
upload has: nodes may share the folder.
"""


JOB_RUN = ("job", "run")


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
            agent = await self._path(node)
            return await run_program(self.shell, node, (*agent, *command), stdin, limit)

    async def open(self, node: str, command: Sequence[str], on_data: OnData) -> Channel:
        """Start a long-running command of the agent; `on_data` gets its stdout.

        Raises NodeError.
        """
        agent = await self._path(node)
        return await self.shell.open(node, (*agent, *command), on_data)

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

    async def _path(self, node: str) -> tuple[str, ...]:
        """The words before a command of the agent on this node; uploads the agent if needed.

        Raises NodeError.
        """
        async with self._locks.setdefault(node, asyncio.Lock()):
            if node not in self._paths:
                self._paths[node] = await self._bring(node)
            return self._paths[node]

    @property
    def _bundle(self) -> Bundle:
        return build_bundle(simulating=self._simulating)

    async def _bring(self, node: str) -> tuple[str, ...]:
        agent, named = self._bundle, self._of_node.get(node) or self._pythons
        found = await self._look(node, named, self._places)
        node_python.check_python(node, found, named)
        if found.digest != agent.digest:
            lock = self._uploads.setdefault(found.home, asyncio.Lock())
            waits = lock.locked()
            async with lock:
                found = await self._upload(node, found, again=waits)
        if found.digest != agent.digest:
            why = f"the agent at {clean_line(found.path)} is not what was sent (SHA-256 {agent.digest}): not started"
            raise AgentError(node, why)
        if found.place != "0":
            self.elsewhere[node] = found.path
        return (found.python, node_python.ALONE, found.path)

    async def _look(self, node: str, pythons: Sequence[str], places: Sequence[str]) -> FoundPython:
        asked = node_python.python_look_command(self._bundle.name, pythons, places)
        limit = LOOK_LIMIT * self.patience
        async with limit_time(
            node, limit, f"no answer within {limit:g} s to a command over SSH: {_HANGS}"
        ):
            said = await run_program(self.shell, node, asked, limit=2 * limit)
        return node_python.parse_found_python(node, said.out, said.err)

    async def _upload(self, node: str, found: FoundPython, *, again: bool) -> FoundPython:
        """Put the agent into the first place that can be used. Raises AgentError.

        `again`: look first, for another node that may share the home has just got it.
        """
        refused: list[str] = []
        for number, place in enumerate(self._places):
            if again or number:
                found = await self._look(node, (found.python,), (place,))
                if found.digest == self._bundle.digest:
                    return found._replace(place=str(number))
            why = await self._put(node, found, self._bundle.data)
            if not why:
                there = await self._look(node, (found.python,), (place,))
                return there._replace(place=str(number))
            refused.append(f"{found.path}: {why}")
        raise AgentError(
            node, f"the agent could not be put at {'; '.join(refused)}; {_MAKE_WRITABLE}"
        )

    async def _put(self, node: str, found: FoundPython, data: bytes) -> str:
        """Copy the agent to where it belongs; returns why that failed, or ""."""
        own = secrets.token_hex(6)
        put = ("sh", "-c", _PUT, "sh", found.path, str(len(data)), found.python, _COMPILE, own)
        result = await run_program(self.shell, node, put, data, UPLOAD_LIMIT * self.patience)
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


# ---- installed agents


INSTALL_LIMIT = 120.0


class NodeOutcome(Value):
    """The result for one node; `why` is one sentence if it is not ok."""

    node: str
    ok: bool
    why: str = ""
    answer: Row = field(default_factory=dict[str, Any])

    def text(self, key: str) -> str:
        """One value of the answer as text, safe to show."""
        return clean_line(self.answer.get(key, ""))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(map(clean_line, as_list(self.answer.get("notes"))))


class Installer:
    """Runs the agent's `service` command on nodes; `system`: system-wide, not
    for the user; `dry`: change nothing.
    """

    def __init__(self, agents: Agents, *, system: bool, dry: bool = False) -> None:
        self._agents = agents
        self._words = ("--system" if system else "--user", *(["--dry-run"] * dry))

    async def run(
        self, verb: str, nodes: Sequence[str], configs: Mapping[str, Mapping[str, Any]]
    ) -> tuple[NodeOutcome, ...]:
        """Run `verb` on every node, for install with `configs` (node ->
        configuration); a failure stops no other.
        """
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._one(verb, node, configs.get(node, {}))) for node in nodes
            ]
        return tuple(task.result() for task in running)

    async def _one(self, verb: str, node: str, config: Mapping[str, Any]) -> NodeOutcome:
        try:
            stdin = json.dumps(dict(config)).encode()
            command = ("service", verb, *self._words)
            result = await self._agents.call(node, command, stdin, limit=INSTALL_LIMIT)
        except NodeError as error:
            return NodeOutcome(node, ok=False, why=clean_line(error.why, 400))
        answer = result.row or {"why": result.complaint}
        ok = answer.get("ok") is True
        return NodeOutcome(node, ok, "" if ok else clean_line(answer.get("why"), 400), answer)
