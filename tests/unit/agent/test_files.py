"""What the agent asks of its descriptors."""

import os
import resource
from collections.abc import Iterator

import pytest

from rankdeck_agent.files import readable


@pytest.fixture
def high_pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose reading end has a number that select() refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= 1100:
        if hard <= 1100:
            pytest.skip("the limit of descriptors is too low here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, hard))
    low, writing = os.pipe()
    reading = 1100
    os.dup2(low, reading)
    os.close(low)
    yield reading, writing
    for handle in (reading, writing):
        os.close(handle)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_descriptor_above_1024_can_be_waited_for(high_pipe: tuple[int, int]) -> None:
    reading, writing = high_pipe
    assert readable([reading], 0.01) == []
    os.write(writing, b"x")
    assert readable([reading], 5) == [reading]


def test_the_end_of_a_stream_is_worth_a_look() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert readable([reading], 5) == [reading]
    os.close(reading)
