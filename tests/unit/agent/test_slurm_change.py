"""Orders about jobs in Slurm's queue: which make sense, which jobs
they hit, and the exact command line.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rankdeck_agent.schedulers.slurm import change
from rankdeck_agent.schedulers.slurm.answers import QUEUE, read_answer
from rankdeck_agent.schedulers.slurm.change import (
    JobOrder,
    job_change_command,
    job_order,
    refused_job_change,
    rows_of_job,
)
from rankdeck_agent.schedulers.slurm.commands import Slurm
from rankdeck_agent.schedulers.slurm.keeper_lease import take_change
from rankdeck_agent.schedulers.slurm.queue import job_rows
from tests.unit.agent.test_slurm_cluster import WAITS, answers, queued

NO_SENSE: list[Mapping[str, Any]] = [
    {"do": "cancel", "jobs": ["1"]},
    {"do": "hold", "jobs": []},
    {"do": "hold", "jobs": "1"},
    {"do": "hold", "jobs": ["1", "--help"]},
    {"do": "hold", "jobs": ["1 2"]},
    {"do": "hold", "jobs": ["48_[2-5;id]"]},
    {"do": "timelimit", "jobs": ["1"]},
    {"do": "timelimit", "jobs": ["1"], "to": "10 partition=x"},
    {"do": ["hold"], "jobs": ["1"]},
]


@pytest.mark.parametrize("row", NO_SENSE, ids=map(str, NO_SENSE))
def test_an_order_that_makes_no_sense_is_none(row: Mapping[str, Any]) -> None:
    assert job_order(row) is None


@pytest.mark.parametrize("to", ["30", "02:00:00", "1-12", "1-00:30:00", "+30", "-10", "UNLIMITED"])
def test_a_time_limit_is_written_as_slurm_writes_it(to: str) -> None:
    asked = job_order({"do": "timelimit", "jobs": ["4711", "48_3"], "to": to})

    assert asked is not None
    line = " ".join(job_change_command(asked, asked.jobs))
    assert line == f"scontrol update jobid=4711,48_3 timelimit={to}"


ROWS = list(
    job_rows(
        "\n".join([
            queued(1), queued(2, **WAITS), queued(3, **WAITS, ArrayJobID="48", ArrayTaskID="2-5%2"),
            queued(4, ArrayJobID="48", ArrayTaskID="0"), queued(5, ArrayJobID="48", ArrayTaskID="1"),
            queued(6, HetJobID="6", HetJobOffset="0"), queued(7, HetJobID="6", HetJobOffset="1"),
            queued(9, **WAITS, ArrayJobID="9", ArrayTaskID="1,3,5,7,..."),
        ])
    )
)  # fmt: skip


@pytest.mark.parametrize(("name", "shown"), [
    ("1", ["1"]), ("48", ["48_[2-5%2]", "48_0", "48_1"]), ("48_3", ["48_[2-5%2]"]), ("48_0", ["48_0"]),
    ("48_[4-9]", ["48_[2-5%2]"]), ("48_7", []), ("6", ["6"]), ("7", []), ("4", []),
    ("9", ["9_[1,3,5,7,...]"]), ("9_3", []),
])  # fmt: skip
def test_a_name_stands_for_its_rows_and_no_others(name: str, shown: list[str]) -> None:
    assert [row["shown"] for row in rows_of_job(name, ROWS)] == shown


@pytest.mark.parametrize(("do", "name", "why"), [
    ("hold", "2", ""), ("hold", "1", "it is RUNNING: only a job that waits can be held"), ("hold", "48", ""),
    ("release", "1", "it is RUNNING: only a job that waits can be released"), ("requeue", "1", ""),
    ("requeue", "2", "it is PENDING: it is in the queue already"), ("timelimit", "1", ""), ("hold", "77", "Slurm has no job of this number"),
])  # fmt: skip
def test_what_cannot_be_done_is_said_before_it_is_tried(do: str, name: str, why: str) -> None:
    assert refused_job_change(JobOrder(do, (name,)), rows_of_job(name, ROWS)) == why


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path / "state"))
    (tmp_path / "state" / "slurm").mkdir(parents=True)
    waits = queued(2, **WAITS)
    array = queued(3, **WAITS, ArrayJobID="48", ArrayTaskID="2-5%2")
    answers(tmp_path, "squeue", f"{waits}\t", f"{array}\t", f"{queued(1)}\t")
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/done\n')
    scontrol.chmod(0o755)
    return Slurm({"PATH": f"{tmp_path}:{os.environ['PATH']}"})


def test_only_the_line_that_was_agreed_to_is_run_and_the_queue_is_fresh_afterwards(
    slurm: Slurm, tmp_path: Path
) -> None:
    order = JobOrder("hold", ("2", "48_[2-5]", "1", "5"))

    shown = change._answer(order, slurm)
    assert shown["line"] == "scontrol hold 2,48_[2-5]"
    assert (shown["hits"], shown["done"]) == (5, False)
    assert [*shown["left"]] == ["1", "5"]
    assert not (tmp_path / "done").exists()
    other = change._answer(order._replace(agreed="scontrol hold 2"), slurm)
    assert "something else of these jobs by now" in other["error"]
    assert not (tmp_path / "done").exists()
    assert read_answer(QUEUE) is None

    run = change._answer(order._replace(agreed=shown["line"]), slurm)

    assert (run["done"], (tmp_path / "done").read_text()) == (True, "hold 2,48_[2-5]\n")
    assert run["now"]["2"].startswith("PENDING")
    assert [take_change(), take_change()] == [True, False]
    fresh = read_answer(QUEUE)
    assert fresh is not None
    assert [row["id"] for row in job_rows(fresh.text)] == ["2", "3", "1"]


def test_what_slurm_refuses_is_told_in_a_sentence(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'Access/permission denied for job 2' >&2; exit 1\n")  # fmt: skip
    order = JobOrder("release", ("2",), agreed="scontrol release 2")

    told = change._answer(order, slurm)

    assert told["done"] is False
    assert told["error"].startswith("you may not do this to these jobs: that takes their owner")
    assert json.dumps(told)
