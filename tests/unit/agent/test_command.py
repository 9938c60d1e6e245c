"""The agent's `sh`: what a command writes, how it ends, and that nothing of it is left."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.chain import chain, is_over

ROOT = Path(__file__).resolve().parents[3]


def begin(command: str, limit: float = 30, most: int = 100_000) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "rankdeck_agent", "sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT / "agents",
    )
    asked = {"command": command, "limit": limit, "most": most}
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    process.stdin.flush()
    return process


def rows(process: subprocess.Popen[bytes]) -> list[dict]:
    """Its answers until it ends by itself."""
    found = [json.loads(line) for line in process.stdout]
    process.stdin.close()
    assert process.wait(10) == 0
    return found


def ended(found: list[dict]) -> dict:
    return found[-1]["end"]


def texts(found: list[dict], stream: str) -> list[str]:
    return [text for row in found for text in row.get(stream, ())]


def running(mark: str) -> list[str]:
    """Processes with this word as an argument of their own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            found.append(path.parent.name)
    return found


def test_both_streams_and_the_exit_status_are_told() -> None:
    found = rows(begin("echo one; echo two >&2; printf three; exit 7"))

    assert texts(found, "out") == ["one", "three"]
    assert texts(found, "err") == ["two"]
    assert ended(found)["code"] == 7
    assert ended(found)["why"] == ""


def test_a_signal_is_told_as_shells_do() -> None:
    assert ended(rows(begin("kill -9 $$")))["code"] == 137


def test_the_time_limit_ends_it_with_all_that_it_started() -> None:
    mark = f"30.{time.time_ns() % 10**9:09}"
    found = rows(begin(f"setsid sleep {mark} & sleep {mark}", limit=1))

    assert ended(found)["why"] == "limit"
    assert ended(found)["left"] == []
    assert running(mark) == []


@pytest.mark.long
def test_the_time_limit_ends_a_chain_of_processes(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    end = ended(rows(begin(shlex.join(chain(mark)), limit=1)))

    assert (end["why"], end["left"]) == ("limit", [])
    assert is_over(mark)


@pytest.mark.long
def test_a_console_that_is_gone_leaves_nothing_behind() -> None:
    mark = f"40.{time.time_ns() % 10**9:09}"
    process = begin(f"trap '' TERM; echo up; (setsid sleep {mark} &); sleep {mark}; sleep {mark}")
    assert json.loads(process.stdout.readline()) == {"out": ["up"]}
    process.stdin.close()

    end = json.loads(process.stdout.read().splitlines()[-1])["end"]
    assert end["why"] == "cancelled"
    assert end["left"] == []
    assert running(mark) == []


def test_what_stays_in_the_background_is_counted_and_left() -> None:
    mark = f"20.{time.time_ns() % 10**9:09}"
    found = rows(begin(f"sleep {mark} & echo started"))
    try:
        assert texts(found, "out") == ["started"]
        assert ended(found)["behind"] == 1
        assert len(running(mark)) == 1
    finally:
        for pid in running(mark):
            os.kill(int(pid), signal.SIGTERM)


def test_output_beyond_the_limit_is_counted_and_left_out() -> None:
    found = rows(begin("yes | head -c 100000", most=1000))

    assert len(texts(found, "out")) == 500
    assert ended(found)["cut"] == 99_000
    assert ended(found)["code"] == 0


def test_a_line_without_end_comes_in_pieces() -> None:
    found = rows(begin("head -c 40000 /dev/zero | tr '\\0' x"))

    assert sum(map(len, texts(found, "out"))) == 40_000


@pytest.mark.parametrize("asked", [b"", b"what?\n", b'{"command": 3}\n'])
def test_a_question_that_is_none_is_refused(asked: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "sh"],
        input=asked,
        capture_output=True,
        cwd=ROOT / "agents",
        timeout=300,
        check=False,
    )

    assert done.returncode == 2
    assert b"sh needs" in done.stderr
