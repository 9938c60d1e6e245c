"""Waiting for a condition instead of for time."""

import asyncio
import time


async def until(condition, limit=10.0, what="the condition"):
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {limit} s"
        await asyncio.sleep(0.01)
    return value
