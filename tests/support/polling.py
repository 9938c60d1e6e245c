"""Waits for a condition instead of a fixed time."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
LIMIT = 60.0
SHORTEST, LONGEST = 0.05, 3.0
"""Shortest and longest seconds between two checks."""


async def until(condition, limit=LIMIT, what="the condition"):
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {limit} s"
        await asyncio.sleep(0.01)
    return value


def eventually(condition: Callable[[], Any], limit: float = LIMIT) -> Any:
    """The first true value of the condition, or its last one after `limit` seconds.

    A slow check, such as a command, is called less often: the
    awaited thing needs the processor, too.
    """
    deadline = time.monotonic() + limit
    while True:
        began = time.monotonic()
        value = condition()
        ended = time.monotonic()
        if value or ended > deadline:
            return value
        time.sleep(min(max(SHORTEST, 2 * (ended - began)), LONGEST))


def seen_until(look: Callable[[], T], true: Callable[[T], object], limit: float = LIMIT) -> T:
    """Call `look` until `true(result)` holds; returns that result."""
    seen: list[T] = []

    def once() -> object:
        seen[:] = [look()]
        return true(seen[0])

    assert eventually(once, limit), f"not in {limit} s: {str(seen[0])[:1500]}"
    return seen[0]


def wait_until(condition, limit=LIMIT, what="the condition"):
    """Like `eventually`, but fails if the condition does not become
    true; `what` names it in the message.
    """
    value = eventually(condition, limit)
    assert value, f"{what} did not come true in {limit} s"
    return value
