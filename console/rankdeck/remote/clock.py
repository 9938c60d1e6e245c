"""Measures how the clocks of nodes differ from the console's."""

import asyncio
import re
import time

from rankdeck.remote.shell import ClockOffset, Shell

LIMIT = 5.0
"""Seconds for all readings; more on slow nodes (`patience`)."""
_PINGS = 4
_CLOCK = ("sh", "-c", "while read x; do date +%s.%N; done")
_STAMP = re.compile(rb"(\d{9,11})(\.\d+)?")


async def measure_clock(shell: Shell, node: str, limit: float = LIMIT) -> ClockOffset:
    """The best of some readings within `limit` seconds; ± 60 s if the node gives none.

    Raises UnreachableError.
    """
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    channel = await shell.open(node, _CLOCK, answers.put_nowait)
    best = ClockOffset(0.0, 60.0)
    try:
        async with asyncio.timeout(limit):
            for _ in range(_PINGS):
                asked = time.time()
                channel.write(b"\n")
                best = min(best, _reading(await answers.get(), asked), key=_width)
    except TimeoutError:
        return best
    finally:
        await channel.close()
    return best


class ClockOffsets:
    """The clock offsets of the nodes of one transport, each measured once per connection."""

    def __init__(self, shell: Shell, patience: float = 1.0) -> None:
        self._shell, self._limit = shell, LIMIT * patience
        self._known: dict[str, tuple[object, ClockOffset]] = {}
        """Node -> the connection by which it was measured, and what was found."""

    async def of(self, node: str, connection: object) -> ClockOffset:
        """The offset of a node that is reached by this connection; raises UnreachableError."""
        known = self._known.get(node)
        if known is None or known[0] is not connection:
            known = connection, await measure_clock(self._shell, node, self._limit)
            self._known[node] = known
        return known[1]


def _width(clock: ClockOffset) -> float:
    return clock.uncertainty


def _reading(answer: bytes, asked: float) -> ClockOffset:
    """The clock offset by one answer: the node read its clock in the
    middle of the round trip, ± half of it.
    """
    answered = time.time()
    match = _STAMP.search(answer)
    if match is None:
        return ClockOffset(0.0, 60.0)
    half = (answered - asked) / 2
    if match[2] is None:
        return ClockOffset(int(match[1]) + 0.5 - asked - half, half + 0.5)
    return ClockOffset(float(match[0]) - asked - half, half)
