"""Commands of the agent that answer in rows of JSON: `sh` and `ps` on many
nodes, and commands that are kept running.

Equal output of `sh` is stored once, however many nodes wrote it.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import field

from rankdeck.errors import AgentError, NodeError
from rankdeck.model.cancel_report import RemainingProcess
from rankdeck.model.field_checks import is_integer, is_number, natural_or_zero
from rankdeck.model.json_tables import as_tables, is_list, is_table, parse_table
from rankdeck.model.process import (
    CANCELLED,
    LIMIT,
    CommandEnd,
    NodeProcess,
    OutputGroup,
    process_of,
)
from rankdeck.model.safe_text import clean_line, strip_codes
from rankdeck.remote.agent import BACKOFF, Agents, keep_running
from rankdeck.remote.shell import Channel, limit_time, on_each
from rankdeck.values import Value, replace

_Step = tuple[int, str, str]
"""(number of the output before, stream, next line)."""


class _Outputs:
    """All different outputs of nodes so far, by number; each is stored
    as another output plus one line.
    """

    def __init__(self) -> None:
        self._steps: list[_Step] = [(0, "", "")]
        self._known: dict[_Step, int] = {}

    def longer(self, before: int, stream: str, line: str) -> int:
        """The number of the output that is `before` plus this line."""
        step = (before, stream, line)
        found = self._known.get(step)
        if found is None:
            found = self._known[step] = len(self._steps)
            self._steps.append(step)
        return found

    def lines(self, output: int) -> tuple[tuple[str, str], ...]:
        """(stream, text) of all lines of this output."""
        found: list[tuple[str, str]] = []
        while output:
            output, stream, line = self._steps[output]
            found.append((stream, line))
        return tuple(reversed(found))


class CommandState:
    """How far a command is on each node; written only by its `CommandRun`."""

    def __init__(self, command: str, nodes: Sequence[str]) -> None:
        self.command, self.nodes = command, tuple(nodes)
        self.changes = 0
        """Grows with every change."""
        self.ends: dict[str, CommandEnd] = {}
        self._outputs = _Outputs()
        self._wrote: dict[str, int] = dict.fromkeys(nodes, 0)
        self._begun: set[str] = set()

    def began(self, node: str) -> None:
        """Note that the command is being started on the node."""
        self._begun.add(node)
        self.changes += 1

    def wrote(self, node: str, stream: str, lines: Iterable[str]) -> None:
        """Add lines that the command wrote on the node; `stream` is "out" or "err"."""
        for line in lines:
            self._wrote[node] = self._outputs.longer(self._wrote[node], stream, line)
        self.changes += 1

    def ended(self, node: str, end: CommandEnd) -> None:
        """Note how the command ended on the node, or that its end cannot be known."""
        self.ends[node] = end
        self.changes += 1

    @property
    def over(self) -> bool:
        """Whether the command has ended on all nodes."""
        return len(self.ends) == len(self.nodes)

    @property
    def waited_for(self) -> tuple[str, ...]:
        """Nodes on which the command has not ended."""
        return tuple(node for node in self.nodes if node not in self.ends)

    @property
    def status(self) -> int:
        """The largest exit status of all nodes, as in `clush -S`."""
        return max((end.status for end in self.ends.values()), default=0)

    def lines(self, node: str) -> tuple[tuple[str, str], ...]:
        """(stream, text) of the lines that it wrote on the node."""
        return self._outputs.lines(self._wrote[node])

    def groups(self) -> tuple[OutputGroup, ...]:
        """Nodes grouped by equal output and equal end; the largest group
        first, equal ones in the order of nodes.
        """
        found: dict[tuple[object, ...], list[str]] = {}
        for node in self.nodes:
            end = self.ends.get(node)
            alike = replace(end, seconds=0.0) if end else None
            found.setdefault((self._wrote[node], alike, node in self._begun), []).append(node)
        groups = [self._group(names) for names in found.values()]
        return tuple(sorted(groups, key=lambda group: -len(group.nodes)))

    def _group(self, nodes: Sequence[str]) -> OutputGroup:
        first = nodes[0]
        return OutputGroup(
            tuple(nodes), self.lines(first), self.ends.get(first), first in self._begun
        )

    def not_proven(self) -> Mapping[str, CommandEnd]:
        """Node -> end, for nodes on which processes of the command are left, or may be."""
        return {n: e for n, e in self.ends.items() if e.left or not e.known}


FAN_OUT = 64
"""Nodes on which a command runs at the same time."""
USUAL_LIMIT = 300.0
"""Seconds that a command may take, unless the user says otherwise."""
_START, _PROOF = 45.0, 15.0
"""Seconds to start the agent; seconds beyond the limit for the agent to end
the command and search for what is left.
"""
_MOST, _LEAST, _ALL = 1 << 20, 16 << 10, 256 << 20
"""Bytes of output that are kept: the limit per node is between
_LEAST and _MOST; about _ALL in total.
"""
_LINE = 1 << 20
_LONGEST = 1000


class CommandRun:
    """Runs one command on many nodes; `state` has the progress."""

    def __init__(
        self, agents: Agents, state: CommandState, limit: float, fan_out: int = FAN_OUT
    ) -> None:
        self.state = state
        self._agents, self._limit = agents, limit
        self._turn = asyncio.Semaphore(fan_out)
        self._most = max(_LEAST, min(_MOST, _ALL // max(len(state.nodes), 1)))
        self._channels: set[Channel] = set()
        self.cancelled = False

    def cancel(self) -> None:
        """End the command on every node; `run` returns when it is known what is left."""
        self.cancelled = True
        for channel in self._channels:
            channel.end()

    async def run(self) -> None:
        """Run the command until it has ended on every node."""
        async with asyncio.TaskGroup() as tasks:
            for node in self.state.nodes:
                tasks.create_task(self._on(node))

    async def _on(self, node: str) -> None:
        async with self._turn:
            if self.cancelled:
                self.state.ended(node, CommandEnd(why=CANCELLED))
                return
            self.state.began(node)
            try:
                end = await self._started(node)
            except NodeError as error:
                end = CommandEnd(why=clean_line(error.why, 300))
            self.state.ended(node, end)

    async def _started(self, node: str) -> CommandEnd:
        hearing = _AnswerReader(node, self.state, self._most)
        async with limit_time(node, _START):
            channel = await self._agents.open(node, ("sh",), hearing.take)
        self._channels.add(channel)
        try:
            asked = {"command": self.state.command, "limit": self._limit, "most": self._most}
            channel.write(json.dumps(asked).encode() + b"\n")
            if self.cancelled:
                channel.end()
            return await self._await_end(node, channel, hearing)
        finally:
            self._channels.remove(channel)
            await channel.close()

    async def _await_end(self, node: str, channel: Channel, hearing: "_AnswerReader") -> CommandEnd:
        why = "did not say how the command ended: it may still run there"
        async with limit_time(node, self._limit + _PROOF, why):
            await channel.wait()
        if hearing.end is None:
            complaint = clean_line(channel.complaint.removeprefix("rankdeck: "))
            raise AgentError(node, complaint or "the agent ended without an answer")
        return hearing.end


class _AnswerReader:
    """Checks the answers of one node; other lines come from its login shell and are ignored."""

    def __init__(self, node: str, state: CommandState, most: int) -> None:
        self._node, self._state = node, state
        self._left = most * 8 + _LINE
        """Bytes that the node may still send; JSON needs up to six bytes for one byte of output."""
        self._text = b""
        self.end: CommandEnd | None = None

    def take(self, data: bytes) -> None:
        """Take bytes of its stdout; raises AgentError if it sends more than was requested."""
        self._left -= len(data)
        *lines, self._text = (self._text + data).split(b"\n")
        if self._left < 0 or len(self._text) > _LINE:
            raise AgentError(self._node, "sent more than any command's output")
        for line in lines:
            self._answer(parse_table(line) or {})

    def _answer(self, row: Mapping[str, Any]) -> None:
        for stream in ("out", "err"):
            texts = row.get(stream)
            if is_list(texts):
                lines = [strip_codes(t) for t in texts if isinstance(t, str)]
                self._state.wrote(self._node, stream, lines)
        if is_table(end := row.get("end")):
            self.end = end_of(self._node, end)


def end_of(node: str, row: Mapping[str, Any]) -> CommandEnd:
    """How the command ended, from the agent's last answer; invalid fields are left out."""
    code, seconds, left = row.get("code"), row.get("seconds"), row.get("left")
    why = row.get("why")
    return CommandEnd(
        code if is_integer(code) and 0 <= code < 1000 else None,
        why if why in (LIMIT, CANCELLED) else "",
        tuple(remaining_process(node, one) for one in as_tables(left, _LONGEST)),
        natural_or_zero(row.get("behind")),
        natural_or_zero(row.get("cut")),
        float(seconds) if is_number(seconds) and seconds >= 0 else 0.0,
    )


def remaining_process(node: str, row: Mapping[str, Any], longest: int = 200) -> RemainingProcess:
    """A process that is left, with at most `longest` characters of its command.

    An invalid field becomes 0 or "", but the process is always listed.
    """
    pid = natural_or_zero(row.get("pid"))
    command, refused = clean_line(row.get("command"), longest), row.get("refused") is True
    return RemainingProcess(node, pid if pid < 1 << 31 else 0, command, refused)


PS_LIMIT = 45.0
_TOGETHER = 64
_MOST_PROCESSES = 5_000


class FoundProcesses(Value):
    """Processes that were found on some nodes."""

    processes: tuple[NodeProcess, ...] = ()
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """Node -> why it did not answer."""
    notes: tuple[str, ...] = ()
    """Sentences about what is not known."""


async def find_processes(agents: Agents, nodes: Iterable[str]) -> FoundProcesses:
    """The processes on these nodes now; nodes that do not answer
    within PS_LIMIT are in `missing`.
    """

    async def ask(node: str) -> tuple[list[NodeProcess], list[str]]:
        answer = await agents.call(node, ("ps",), limit=PS_LIMIT)
        rows = answer.row.get("rows")
        if not is_list(rows):
            raise AgentError(node, answer.complaint)
        found = [process_of(node, row) for row in as_tables(rows, _MOST_PROCESSES)]
        why = clean_line(answer.row.get("gpus"))
        notes = [f"{node}: who is on the GPUs is not known: {why}"] if why else []
        return [one for one in found if one is not None], notes

    answered, failed = await on_each(nodes, ask, _TOGETHER)
    return FoundProcesses(
        tuple(one for rows, _ in answered.values() for one in rows),
        {node: clean_line(error.why, 300) for node, error in failed.items()},
        tuple(note for _, notes in answered.values() for note in notes),
    )


async def send_signal(agents: Agents, name: str, some: Sequence[NodeProcess]) -> dict[str, str]:
    """Send a signal (TERM, KILL, …) to processes; returns `NODE PID`, or
    `NODE` for all there -> why not sent.
    """
    by_node: dict[str, list[list[int]]] = {}
    for one in some:
        by_node.setdefault(one.node, []).append([one.pid, one.start])

    async def send(node: str) -> dict[str, str]:
        asked = json.dumps({"signal": name, "pids": by_node[node]}).encode()
        answer = await agents.call(node, ("ps", "signal"), asked, limit=PS_LIMIT)
        rows = answer.row.get("not")
        if not is_list(rows):
            raise AgentError(node, answer.complaint)
        results = as_tables(rows)
        return {
            f"{node} {clean_line(row.get('pid'))}": clean_line(row.get("why")) for row in results
        }

    answers, failed = await on_each(by_node, send)
    unsent = {node: error.why for node, error in failed.items()}
    for answer in answers.values():
        unsent |= answer
    return unsent


_LONGEST_ROW = 4 << 20
_SENTENCE = 600
Takes = Mapping[str, Callable[[object], None]]


class AgentRows:
    """Splits bytes into rows of JSON and passes each known key of a row to its function."""

    def __init__(self, takes: Takes) -> None:
        self._takes = takes
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Take bytes as they arrive; lines that are not JSON objects are ignored."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= _LONGEST_ROW else b""
        for line in lines:
            if found := parse_table(line, _LONGEST_ROW):
                for key, take in self._takes.items():
                    if key in found:
                        take(found[key])


class RowSource(Value):
    """A command of the agent on a host; `config` is sent to its stdin."""

    agents: Agents
    host: str
    command: tuple[str, ...]
    config: bytes


async def watch_command(
    source: RowSource,
    takes: Callable[[], Takes],
    trouble: Callable[[str], None],
    pauses: Sequence[float] = BACKOFF,
) -> None:
    """Run the command until cancelled; start it again whenever it ends, with growing pauses.

    `takes` is called before each run and returns the functions for its rows;
    `trouble` is called with the reason of each end.
    """
    await keep_running(
        lambda: _once(source, AgentRows(takes())),
        lambda why, _: trouble(clean_line(why, _SENTENCE)),
        pauses,
    )


async def _once(source: RowSource, rows: AgentRows) -> str:
    """Run the command once; returns why it ended."""
    channel = await source.agents.open(source.host, source.command, rows.take)
    try:
        channel.write(source.config)
        code = await channel.wait()
    finally:
        await channel.close()
    return channel.complaint or f"the agent ended with exit code {code}"
