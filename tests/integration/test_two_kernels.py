"""Two machines with kernels, clocks and disks of their own, as one cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import yaml
from tests.support.rdma_lab import RdmaLab
from tests.support.rdma_lab.exporter import LIMIT, Exporter, exporting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.left_out]


@pytest.fixture(scope="module")
def exporter(rdma_lab: RdmaLab) -> Iterator[Exporter]:
    with exporting(rdma_lab, rdma_lab.cluster_file()) as found:
        yield found


def test_a_node_that_panics_is_silent_and_boots_again(
    rdma_lab: RdmaLab, exporter: Exporter
) -> None:
    machine = rdma_lab.machines["rxe2"]
    boots = machine.console().count("is ready")
    before = exporter.number("node_boot_time_seconds", "rxe2")
    machine.poke("echo c >/proc/sysrq-trigger")
    exporter.until_checks("rxe2", fired="node.silent")
    machine.wait_for_boot(boots + 1)
    machine.set_clock()
    after = exporter.until_above("node_boot_time_seconds", "rxe2", before + 1)
    exporter.until_checks("rxe2", cleared="node.silent")

    assert after > before


def test_a_full_disk_is_named_until_there_is_room_again(
    rdma_lab: RdmaLab, exporter: Exporter
) -> None:
    rdma_lab.run("rxe2", "dd if=/dev/zero of=/var/full bs=1M 2>/dev/null || true", 600)
    exporter.until_checks("rxe2", fired="disk.full")
    rdma_lab.run("rxe2", "rm /var/full")
    exporter.until_checks("rxe2", cleared="disk.full")

    assert "disk.full" not in exporter.checks("rxe1")


def test_a_clock_that_is_moved_is_named_until_it_is_right_again(
    rdma_lab: RdmaLab, exporter: Exporter
) -> None:
    exporter.until_checks("rxe1", cleared="node.clock")
    rdma_lab.machines["rxe1"].set_clock(ahead=120)
    exporter.until_checks("rxe1", fired="node.clock")
    rdma_lab.machines["rxe1"].set_clock()
    exporter.until_checks("rxe1", cleared="node.clock")

    assert exporter.number("rankdeck_node_up", "rxe1") == 1


LONG = {
    "job": "long",
    "launch": "plain",
    "nodes": 2,
    "ranks_per_node": 1,
    "abort": True,
    "command": ["sh", "-c", "echo begun on $(hostname); while :; do sleep 5; done"],
}


# A crash takes what the kernel had not written to disk yet: the young job's own records too.
@pytest.mark.parametrize(
    ("how", "kept"), [("sync; echo b", True), ("echo c", False)], ids=["reboot", "panic"]
)
def test_a_node_that_reboots_in_the_middle_of_a_job_is_named(
    rdma_lab: RdmaLab, tmp_path: Path, how: str, kept: bool
) -> None:
    machine, job = rdma_lab.machines["rxe2"], tmp_path / "long.yaml"
    job.write_text(yaml.safe_dump(LONG))
    file = str(rdma_lab.cluster_file())
    boots = machine.console().count("is ready")
    with subprocess.Popen(
        [sys.executable, "-m", "rankdeck", "-c", file, "run", "--no-preflight", str(job)],
        env={**os.environ, **rdma_lab.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        begun = (line.split()[-1] for line in process.stdout if "begun on" in line)
        began = set(islice(begun, 2))
        machine.poke(f"{how} >/proc/sysrq-trigger")
        machine.wait_for_boot(boots + 1)
        machine.set_clock()
        said = process.stdout.read()
    # All tests share the lab: the jobs of the others are told too.
    rows = (json.loads(row) for row in jobs_of(rdma_lab, file))
    told = max((row for row in rows if row["name"] == "long"), key=lambda row: row["created"])
    logs = rdma_lab.rankdeck("-c", file, "logs", told["job"], "--rank", "1", limit=LIMIT)

    first = told["first_failure"]
    assert began == {"rxe1", "rxe2"}
    assert process.returncode not in (0, None)
    assert (first["what"], first["node"], first["name"]) == ("node", "rxe2", "restarted"), said
    assert "node rxe2, was restarted while the job ran" in said
    assert not kept or "begun on rxe2" in logs.stdout


def jobs_of(lab: RdmaLab, file: str) -> list[str]:
    """The jobs that the command line tells of, as JSON."""
    return lab.rankdeck("-c", file, "jobs", "--json", limit=LIMIT).stdout.splitlines()
