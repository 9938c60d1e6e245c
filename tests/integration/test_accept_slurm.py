"""`rankdeck accept` through a real Slurm: who is not given to us is left out,
real programs run, in a container too.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from tests.support.lab import RootLab
from tests.support.lab.root import SIF, slurm
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]
LIMIT = 400
PAUSES = (1, 5, 10, 20, 30, 40, 50, 60)
"""Seconds before each further attempt: other tests share the CPUs, and
the ranks wait for each other there.
"""
RECIPE = ("--recipe", "mpi4py.bench", "--repeats", "2")


@pytest.fixture(scope="module")
def root(slurm_lab: RootLab) -> Operator:
    root = Operator(slurm_lab, "root")
    slurm.start(root)
    return slurm.through(root)


@pytest.fixture
def user(root: Operator) -> Iterator[Operator]:
    """An ordinary user; every test leaves the workers idle."""
    yield slurm.through(Operator(root.lab, "lab"))
    root.on("n3", "scancel --user=lab; scontrol update nodename=n[1-2] state=resume")
    assert eventually(lambda: slurm.idle(root)), root.on("n3", "sinfo -R; squeue")


def rankdeck(user: Operator, *words: str, limit: float) -> CompletedProcess[str]:
    return user.lab.rankdeck("-c", user.file, *words, limit=limit)


def accept(user: Operator, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the object of a run."""
    done = rankdeck(user, "accept", "n[1-2]", "--json", *words, limit=LIMIT)
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def measured(user: Operator, *words: str) -> tuple[int, dict[str, Any]]:
    """The same; on a machine that is busy with other tests once more,
    until it is quiet enough to tell.
    """
    code, run = accept(user, *words)
    for pause in PAUSES:
        if not any("the nodes were busy" in one["text"] for one in run["results"]):
            break
        time.sleep(pause)
        code, run = accept(user, *words)
    return code, run


def outcomes(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["outcome"], one["text"]) for one in run["results"]]


def values(run: dict[str, Any]) -> list[float]:
    assert [one for one in outcomes(run) if one[0] != "measured"] == []
    return [one["value"] for one in run["results"]]


def test_two_nodes_are_measured_by_real_mpi_ranks_that_srun_starts(user: Operator) -> None:
    code, run = measured(user, *RECIPE)

    assert (code, run["accepted"]) == (0, True), (run["left_out"], outcomes(run))
    assert len(values(run)) == 1
    assert run["left_out"] == {}
    (job,) = {one["job"] for one in run["results"]}
    assert "Hello, World! I am process" in rankdeck(user, "logs", job, limit=60).stdout


@pytest.mark.left_out
def test_the_same_in_a_container(user: Operator) -> None:
    like = Path(user.lab.folder) / "like.yaml"
    like.write_text(
        yaml.safe_dump(
            {
                "job": "like", "launch": "mpi", "command": ["true"],
                "container": {"runtime": "apptainer", "image": SIF},
            }
        )
    )  # fmt: skip

    code, run = measured(user, *RECIPE, "--like", str(like))

    assert (code, run["accepted"]) == (0, True), (run["left_out"], outcomes(run))
    assert values(run)[0] > 0
    (one,) = run["results"]
    job = user.objects("jobs", "--all")
    (ours,) = [row for row in job if row["job"] == one["job"]]
    assert ours["part_of"] == run["run"]


def test_a_drained_and_a_used_node_are_left_out_by_name_before_anything_waits_for_them(
    user: Operator, root: Operator
) -> None:
    root.on("n3", "scontrol update nodename=n2 state=drain reason='bad cable'")
    root.on("n1", "runuser -u lab -- sbatch -w n1 --wrap 'sleep 300' -o /dev/null")
    assert eventually(lambda: "n1 mix" in root.on("n3", "sinfo -h -N -p debug -o '%N %t'"))

    done = rankdeck(user, "accept", "n[1-2]", "--dry-run", "--json", *RECIPE, limit=LIMIT)
    code, run = accept(user, "--dry-run", *RECIPE, "--include-busy", "n1")

    assert done.returncode == 3, done.stderr
    assert "n1: busy: mixed in Slurm" in done.stderr
    assert "n2: drained in Slurm: bad cable, by root" in done.stderr
    assert (code, list(run["left_out"])) == (0, ["n2"])


@pytest.mark.left_out
def test_a_job_is_measured_with_more_ranks_through_the_queue(user: Operator) -> None:
    file = Path(user.lab.folder) / "scaled.yaml"
    command = ["sh", "-c", "echo tasks=$SLURM_NTASKS"]
    file.write_text(
        yaml.safe_dump(
            {
                "job": "scaled", "launch": "plain", "command": command,
                "progress": {"tasks": "tasks=([0-9]+)"},
            }
        )
    )  # fmt: skip

    words = ("scale", str(file), "--ranks", "1,2", "--repeat", "2", "--yes", "--no-preflight")
    done = rankdeck(user, *words, "--json", limit=LIMIT)

    assert done.returncode == 0, done.stderr[-3000:]
    study = json.loads(done.stdout)
    assert [point["values"] for point in study["curves"][0]["points"]] == [[1.0, 1.0], [2.0, 2.0]]
    assert len({run["job"] for run in study["runs"]}) == 4
