"""Rows of JSON that a command of the agent sends for as long as it runs: read with limits, asked again when it ends."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rankdeck.errors import NodeError
from rankdeck.model.text import clean, table
from rankdeck.remote.agent import BACKOFF, STEADY, Agents

_LONGEST = 4 << 20
_SENTENCE = 600
Takes = Mapping[str, Callable[[object], None]]


class AgentRows:
    """Makes lines of bytes, rows of lines, and hands each known key of a row to who takes it."""

    def __init__(self, takes: Takes) -> None:
        self._takes = takes
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Take bytes as they come; what is no row of ours is left out."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= _LONGEST else b""
        for line in lines:
            if found := table(line, _LONGEST):
                for key, take in self._takes.items():
                    if key in found:
                        take(found[key])


def as_table(found: object) -> Mapping[str, Any]:
    """`found`, or an empty table where it is none."""
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class RowSource:
    """A command of the agent on a host, and what it gets on stdin."""

    agents: Agents
    host: str
    command: tuple[str, ...]
    config: bytes


async def watch(
    source: RowSource,
    takes: Callable[[], Takes],
    trouble: Callable[[str], None],
    pauses: Sequence[float] = BACKOFF,
) -> None:
    """Run the command until cancelled, again whenever it ends, after a pause that grows.

    `takes` gives who takes the rows of one run; `trouble` is called with the sentence for each end.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        began = loop.time()
        try:
            why = await _once(source, AgentRows(takes()))
        except NodeError as error:
            why = error.why
        failures = 0 if loop.time() - began > STEADY else failures + 1
        trouble(clean(why, _SENTENCE))
        await asyncio.sleep(pauses[min(max(failures, 1), len(pauses)) - 1])


async def _once(source: RowSource, rows: AgentRows) -> str:
    """Run it once; why it ended."""
    channel = await source.agents.open(source.host, source.command, rows.take)
    try:
        channel.write(source.config)
        code = await channel.wait()
    finally:
        await channel.close()
    return channel.complaint or f"the agent ended with exit code {code}"
