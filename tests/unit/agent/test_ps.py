"""The agent's `ps`: what runs here, whose it is, and signals that hit only who is meant."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankdeck_agent.job import processes

ROOT = Path(__file__).resolve().parents[3]
JOB = "ps-test-1122-000000-0000"


def agent(*words: str, stdin: dict | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", *words],
        cwd=ROOT / "agents",
        input=json.dumps(stdin) if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    # As in task 3 of a Slurm array, where every task is process 0 of its step.
    env = {**os.environ, "RANKDECK_JOB": JOB, "RANKDECK_RANK": "3", "SLURM_PROCID": "0"}
    process = subprocess.Popen(["sleep", "300"], env=env)
    yield process
    process.kill()
    process.wait()


def test_a_process_of_a_job_has_its_job_and_rank(sleeper: subprocess.Popen[bytes]) -> None:
    told = json.loads(agent("ps").stdout)

    (mine,) = [row for row in told["rows"] if row["pid"] == sleeper.pid]
    assert (mine["job"], mine["rank"], mine["command"]) == (JOB, 3, "sleep 300")
    assert mine["start"] == processes.find_process(sleeper.pid).start
    assert mine["rss"] > 0
    assert mine["cpu"] == 0
    assert mine["read"] == 0


def test_jobs_come_first_and_the_kernels_threads_not_at_all(sleeper) -> None:
    rows = json.loads(agent("ps").stdout)["rows"]

    with_job = [bool(row["job"]) for row in rows]
    assert with_job == sorted(with_job, reverse=True)
    assert 2 not in {row["ppid"] for row in rows}


def test_a_signal_reaches_who_is_meant(sleeper: subprocess.Popen[bytes]) -> None:
    start = processes.find_process(sleeper.pid).start
    done = agent("ps", "signal", stdin={"signal": "TERM", "pids": [[sleeper.pid, start]]})

    assert json.loads(done.stdout) == {"not": []}
    assert sleeper.wait(10) == -15


def test_a_reused_pid_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    start = processes.find_process(sleeper.pid).start + 1
    done = agent("ps", "signal", stdin={"signal": "KILL", "pids": [[sleeper.pid, start]]})

    assert json.loads(done.stdout) == {"not": [{"pid": sleeper.pid, "why": "it has ended"}]}
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    "asked", [{}, {"signal": "SEGV", "pids": []}, {"signal": "TERM", "pids": 3}]
)
def test_a_request_that_is_none_is_refused(asked: dict) -> None:
    done = agent("ps", "signal", stdin=asked)

    assert done.returncode == 2
    assert "ps signal needs" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("pair", [[1, 1], [-1, 5], ["x", 1], [2], 7])
def test_no_group_and_not_the_first_process_is_signalled(pair: object) -> None:
    done = agent("ps", "signal", stdin={"signal": "TERM", "pids": [pair]})

    (row,) = json.loads(done.stdout)["not"]
    assert row["why"]
