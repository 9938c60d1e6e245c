"""Waiting for a condition instead of for time."""

import asyncio
import time


async def until(condition, limit=60.0, what="the condition"):
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {limit} s"
        await asyncio.sleep(0.01)
    return value


def wait_until(condition, limit=60.0, what="the condition"):
    """The same for tests without an event loop."""
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {limit} s"
        time.sleep(0.05)
    return value
