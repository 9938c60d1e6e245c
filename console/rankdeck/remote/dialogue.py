"""A program on a node that answers every line of JSON with another."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from rankdeck.errors import AgentError, UnreachableError
from rankdeck.model.text import clean
from rankdeck.remote.attach import Agents
from rankdeck.remote.shell import Channel, Shell

_LONGEST = 8 << 20
Row = dict[str, Any]


class Dialogue:
    """One running program; made by `dialogue`."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._text = bytearray()
        self._taken = 0
        self._answers: asyncio.Queue[Row] = asyncio.Queue()
        self.channel: Channel

    def take(self, data: bytes) -> None:
        """What came on its stdout; lines that are no JSON objects are a login's greetings."""
        self._taken += len(data)
        if self._taken > _LONGEST:
            return
        self._text += data
        *lines, rest = self._text.split(b"\n")
        self._text = bytearray(rest)
        for line in lines:
            if row := _row(bytes(line)):
                self._answers.put_nowait(row)

    @property
    def answered(self) -> bool:
        """Whether there is an answer that nobody has taken yet."""
        return not self._answers.empty()

    async def ask(self, question: Mapping[str, Any], limit: float) -> Row:
        """Write a line, then wait for the next answer; raises NodeError."""
        self.channel.write(json.dumps(question).encode() + b"\n")
        return await self.hear(limit)

    async def hear(self, limit: float) -> Row:
        """The next answer; raises NodeError after `limit` seconds or when the program ends."""
        try:
            async with asyncio.timeout(limit), asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(_ended(self.channel))
                hearing = tasks.create_task(self._answers.get())
                await asyncio.wait(
                    (hearing, ending), return_when=asyncio.FIRST_COMPLETED
                )
                hearing.cancel()
                ending.cancel()
        except TimeoutError as error:
            why = f"no answer within {limit:.0f} s"
            raise UnreachableError(self._node, why) from error
        if not hearing.cancelled():
            return hearing.result()
        # Both may have come at once: the last words count, then the end.
        if not self._answers.empty():
            return self._answers.get_nowait()
        raise AgentError(self._node, self._why())

    def _why(self) -> str:
        if self._taken > _LONGEST:
            return f"sent more than {_LONGEST >> 20} MB as an answer"
        said = clean(self.channel.complaint.removeprefix("rankdeck: "))
        return said or "the agent ended without an answer"


async def _ended(channel: Channel) -> None:
    try:
        await channel.wait()
    except UnreachableError:
        return


def _row(line: bytes) -> Row | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("Row", value) if isinstance(value, dict) else None


@asynccontextmanager
async def dialogue(
    shell: Shell, agents: Agents, node: str, argv: Sequence[str]
) -> AsyncGenerator[Dialogue]:
    """The agent's command on the node, until the block ends; raises NodeError."""
    talk = Dialogue(node)
    agent = await agents.agent_path(node)
    talk.channel = await shell.open(node, (*agent, *argv), talk.take)
    try:
        yield talk
    finally:
        talk.channel.end()
        await talk.channel.close()
