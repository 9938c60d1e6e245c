"""Questions to one running command of the agent on a node, and its answers."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from rankdeck.errors import AgentError, NodeError
from rankdeck.model.json_tables import parse_table
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.shell import Channel, Row, limit_time

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
    except NodeError:
        return
