"""Waiting for a condition instead of for time."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
LIMIT = 60.0
SHORTEST, LONGEST = 0.05, 3.0
"""Seconds between two looks."""


async def until(condition, limit=LIMIT, what="the condition"):
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {limit} s"
        await asyncio.sleep(0.01)
    return value


def eventually(condition: Callable[[], Any], limit: float = LIMIT) -> Any:
    """The first true value of the condition, or its last one after `limit` seconds.

    A look that takes long, such as a command, is taken less often: what is waited for needs the processor, too.
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
    """The first of these looks of which this is true."""
    seen: list[T] = []

    def once() -> object:
        seen[:] = [look()]
        return true(seen[0])

    assert eventually(once, limit), f"not in {limit} s: {str(seen[0])[:1500]}"
    return seen[0]


def wait_until(condition, limit=LIMIT, what="the condition"):
    """The same for tests without an event loop."""
    value = eventually(condition, limit)
    assert value, f"{what} did not come true in {limit} s"
    return value
