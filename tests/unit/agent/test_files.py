"""What the agent asks of its descriptors."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankdeck_agent.agent_file import mark_agent_used
from rankdeck_agent.descriptors import wait_readable
from rankdeck_agent.private_files import read_json_table
from rankdeck_agent.user_names import user_name


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
    assert wait_readable([reading], 0.01) == []
    os.write(writing, b"x")
    assert wait_readable([reading], 5) == [reading]


def test_the_end_of_a_stream_is_worth_a_look() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert wait_readable([reading], 5) == [reading]
    os.close(reading)


def test_the_file_of_an_agent_that_runs_for_long_counts_as_used_once_a_day(tmp_path, monkeypatch):
    agent, other = tmp_path / "agent-0123456789ab.pyz", tmp_path / "agent.py"
    hour = time.time() - 3600
    for file in (agent, other):
        file.touch()
        os.utime(file, (1e9, 1e9))
        monkeypatch.setattr(sys, "argv", [str(file)])
        mark_agent_used()
    assert time.time() - agent.stat().st_mtime < 60
    assert other.stat().st_mtime == 1e9
    monkeypatch.setattr(sys, "argv", [str(agent)])
    os.utime(agent, (hour, hour))
    mark_agent_used()
    assert agent.stat().st_mtime == pytest.approx(hour)
    agent.unlink()
    mark_agent_used()


def test_a_name_that_was_not_known_once_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[int, SimpleNamespace] = {}
    monkeypatch.setattr("pwd.getpwuid", known.__getitem__)
    assert user_name(4_242_424) == "4242424"
    known[4_242_424] = SimpleNamespace(pw_name="ann")
    assert user_name(4_242_424) == "ann"


def test_a_torn_file_has_no_table(tmp_path: Path) -> None:
    file = tmp_path / "slot"
    file.write_bytes(b'{"turn": 3, "name": "caf\xc3"}')
    assert read_json_table(file) == {}
    assert read_json_table(tmp_path / "none") == {}
    file.write_text('{"turn": 3}')
    assert read_json_table(file) == {"turn": 3}
