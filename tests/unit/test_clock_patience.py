"""How long a node may take to say its time."""

import asyncio
import time

import pytest

from rankdeck.remote import clock
from rankdeck.remote.clock import ClockOffsets


class SlowNode:
    """A node whose every answer comes late."""

    async def open(self, _node, _argv, on_data) -> "SlowNode":
        self._on_data = on_data
        return self

    def write(self, _data: bytes) -> None:
        late = asyncio.get_running_loop().call_later
        late(0.1, lambda: self._on_data(f"{time.time():.6f}\n".encode()))

    async def close(self) -> None:
        return


@pytest.mark.parametrize(("patience", "known"), [(1.0, False), (1000.0, True)])
def test_the_clock_of_a_slow_node_is_known_with_patience(
    monkeypatch: pytest.MonkeyPatch, patience: float, known: bool
) -> None:
    monkeypatch.setattr(clock, "LIMIT", 0.05)

    found = asyncio.run(ClockOffsets(SlowNode(), patience).of("n1", object()))

    assert (found.uncertainty < 60) == known
