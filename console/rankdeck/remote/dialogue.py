"""A program on a node that answers every line of JSON with another."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from rankdeck.errors import AgentError, UnreachableError
from rankdeck.model.border import table
from rankdeck.model.text import clean
from rankdeck.remote.attach import Agents
from rankdeck.remote.shell import Channel, Shell

_LONGEST = 8 << 20
Row = dict[str, Any]
Answer = TypeVar("Answer")


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
            if row := table(bytes(line)):
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
        answer = await next_of(self._node, self.channel, self._answers, limit)
        if answer is None:
            raise AgentError(self._node, self._why())
        return answer

    def _why(self) -> str:
        if self._taken > _LONGEST:
            return f"sent more than {_LONGEST >> 20} MB as an answer"
        said = clean(self.channel.complaint.removeprefix("rankdeck: "))
        return said or "the agent ended without an answer"


async def next_of(
    node: str, channel: Channel, answers: asyncio.Queue[Answer], limit: float
) -> Answer | None:
    """What comes next into the queue, None where the program has ended; raises UnreachableError."""
    if not answers.empty():
        return answers.get_nowait()
    try:
        async with asyncio.timeout(limit), asyncio.TaskGroup() as tasks:
            ending = tasks.create_task(_ended(channel))
            hearing = tasks.create_task(answers.get())
            await asyncio.wait((hearing, ending), return_when=asyncio.FIRST_COMPLETED)
            hearing.cancel()
            ending.cancel()
    except TimeoutError as error:
        raise UnreachableError(node, f"no answer within {limit:.0f} s") from error
    if not hearing.cancelled():
        return hearing.result()
    # Both may have come at once: the last words count, then the end.
    return None if answers.empty() else answers.get_nowait()


async def _ended(channel: Channel) -> None:
    try:
        await channel.wait()
    except UnreachableError:
        return


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
