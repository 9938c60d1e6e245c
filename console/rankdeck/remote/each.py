"""The same question to many nodes, side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rankdeck.errors import NodeError

T = TypeVar("T")


async def on_each(
    names: Iterable[str], ask: Callable[[str], Awaitable[T]]
) -> dict[str, T | NodeError]:
    """The answer of every node, or its error."""
    answers: dict[str, T | NodeError] = {}

    async def one(name: str) -> None:
        try:
            answers[name] = await ask(name)
        except NodeError as error:
            answers[name] = error

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(one(name))
    return answers
