"""Processes as nodes tell them: checked, and joined to ranks."""

import pytest

from rankdeck.model.process import NodeProcess, process_of, rank_uses
from tests.ui.support.stage import Stage, cluster_of

JOB = "train-1122-000000-0000"


def process(pid: int, **more) -> NodeProcess:
    return NodeProcess(node=more.pop("node", "node01"), pid=pid, start=1, **{"job": JOB, **more})


def test_a_rank_takes_what_all_below_its_program_take() -> None:
    stage = Stage(cluster_of(2))
    stage.start(JOB, 2, 2)
    found = [
        process(100, cpu=0.1, rss=10),
        process(201, ppid=100, cpu=0.9, rss=20, gpus={"0": 5}, read=1.0, write=2.0, state="R"),
        process(300, ppid=7, rank=1, cpu=0.5, rss=7),
        process(101, ppid=1, cpu=0.2, rss=3, rank=0),
        process(102, node="node02", cpu=1.0, rss=1),
        process(900, ppid=1),
        process(901, job="other", rank=0, cpu=9),
    ]
    uses = rank_uses(stage.jobs.job(JOB), found)

    assert [one.pid for one in uses[0].processes] == [100, 201]
    assert (uses[0].cpu, uses[0].rss, uses[0].state) == (1.0, 30, "R")
    assert (uses[0].gpus, uses[0].gpu_memory, uses[0].traffic) == (("0",), 5, 3.0)
    assert [one.pid for one in uses[1].processes] == [300, 101]
    assert [one.pid for one in uses[2].processes] == [102]
    assert (uses[3].cpu, uses[3].state) == (None, "?")


def test_parents_in_a_circle_end() -> None:
    stage = Stage(cluster_of(1))
    stage.start(JOB, 1, 1)
    found = [process(5, ppid=6), process(6, ppid=5)]

    assert rank_uses(stage.jobs.job(JOB), found)[0].processes == ()


@pytest.mark.parametrize("row", [{}, {"pid": "1", "start": 2}, {"pid": -1, "start": 2}, {"pid": 1}])
def test_a_row_that_is_none_is_left_out(row: dict) -> None:
    assert process_of("n", row) is None


def test_what_a_node_sends_is_made_safe() -> None:
    told = process_of(
        "n",
        {
            "pid": 7, "start": 2, "user": "\x1b[31mroot", "state": "RUNNING", "command": 3, "cpu": -1,
            "rss": 1e400, "read": "x", "gpus": {"0": "y", "\x07": 2}, "rank": -4, "job": ["a"],
        },
    )  # fmt: skip

    assert told is not None
    assert told.user == "<U+001B>[31mroot"
    assert (told.cpu, told.rss, told.read, told.rank) == (0.0, 0, None, None)
    assert dict(told.gpus) == {"0": 0, "<U+0007>": 2}
