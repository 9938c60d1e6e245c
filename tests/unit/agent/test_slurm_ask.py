"""How well jobs used what they had, reckoned as seff does from what sacct
prints, and what is read of resource lists.
"""

import os
from pathlib import Path

import pytest

from rankdeck_agent.schedulers.slurm.ask import cpu_time, job_efficiencies
from rankdeck_agent.schedulers.slurm.commands import Slurm, slurm_in
from rankdeck_agent.schedulers.slurm.values import gpus_of, requested_megabytes

USED = """\
4711|4711|COMPLETED|600|8|2|01:00:00|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=16G,node=2|
4711.batch|4711.batch|COMPLETED|600|4|1|00:10.500|cpu=4|cpu=00:00:10,mem=1048576K,pages=0
4711.0|4711.0|COMPLETED|590|8|2|59:49.500|cpu=8|cpu=00:59:49,gres/gpumem=20G,gres/gpuutil=320,mem=8G
4711.extern|4711.extern|COMPLETED|600|8|2|00:00:00|cpu=8|mem=0
4712|48_3|CANCELLED by 3000|0|1|1|00:00:00|cpu=1,mem=450M,node=1|
4713|4713|FAILED|10|1|1|00:00:00|cpu=1,node=1|
a banner | of the site
"""
"""Lines as sacct of 24.11 prints them; the third job was not measured."""


def test_a_job_is_reckoned_as_seff_reckons_it() -> None:
    whole, never, silent = job_efficiencies(USED)

    assert (whole["job"], whole["state"], whole["gpus"]) == ("4711", "COMPLETED", 4)
    assert whole["cpu"] == pytest.approx(3600 / (600 * 8))
    assert (whole["memory"], whole["memory_used"]) == (16 * 1024, 8 * 1024)
    assert (whole["memory_share"], whole["gpu"]) == (0.5, 0.8)
    assert (never["job"], never["state"], never["cpu"]) == ("48_3", "CANCELLED", None)
    unknown = ("cpu", "cpu_used", "memory", "memory_used", "memory_share", "gpu")
    assert {silent[key] for key in unknown} == {None}


@pytest.mark.parametrize(("text", "seconds"), [
    ("00:01.234", 1.234), ("02:03:04", 7384.0), ("1-00:00:01", 86401.0), ("", None), ("x", None), ("01:00.", 60.0),
])  # fmt: skip
def test_cpu_time_is_read(text: str, seconds: float | None) -> None:
    assert cpu_time(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(("text", "count"), [
    ("cpu=4,mem=1G,gres/gpu=2,gres/gpu:a100=2", 2), ("cpu=1,gres/gpu:a100=1,gres/gpu:h100=2", 3), ("gres/gpu:2", 2),
    ("gres/gpu:a100:4", 4), ("gpu:1g.10gb:7", 7), ("gres/gpu", 1), ("gres/gpu:a100", 1), ("gres/gpumem=40G", 0),
    ("gres/nic:2", 0), ("N/A", 0), ("", 0), ("gres:gpu:8(IDX:0-7)", 8),
])  # fmt: skip
def test_gpus_are_counted_with_their_type_and_without(text: str, count: int) -> None:
    assert gpus_of(text) == count


@pytest.mark.parametrize(("text", "megabytes"), [
    ("cpu=1,mem=450M,node=1", 450.0), ("mem=1.50G", 1536.0), ("mem=2T", 2 << 20), ("mem=512K", 0.5), ("mem=7", 7.0),
    ("cpu=1,gres/gpumem=8G", 0.0), ("", 0.0),
])  # fmt: skip
def test_memory_is_read_with_its_unit(text: str, megabytes: float) -> None:
    assert requested_megabytes(text) == megabytes


def test_limits_follow_the_patience_of_the_user(tmp_path: Path) -> None:
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\nsleep 0.6; echo here\n")
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.defpath}"}

    late = Slurm(path).ask("squeue", limit=0.2)
    waited = slurm_in({"environment": path, "patience": 20}).ask("squeue", limit=0.2)

    assert (late.late, waited.out) == (True, "here\n")


@pytest.mark.parametrize(("given", "patience"), [(2.5, 2.5), (0.1, 1.0), (1e9, 60.0), ("x", 1.0), (None, 1.0), (True, 1.0)])  # fmt: skip
def test_a_patience_that_makes_no_sense_is_the_usual_one(given: object, patience: float) -> None:
    assert slurm_in({"patience": given}).patience == patience
