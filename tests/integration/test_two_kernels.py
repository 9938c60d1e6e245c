"""Two machines with kernels, clocks and disks of their own, as one cluster: what happens to one
while both work on a job.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from tests.support.polling import seen_until
from tests.support.rdma_lab import RdmaLab
from tests.support.rdma_lab.exporter import Exporter, exporting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.left_out]
LIMIT = 900.0


@pytest.fixture(scope="module")
def exporter(rdma_lab: RdmaLab) -> Iterator[Exporter]:
    with exporting(rdma_lab, rdma_lab.cluster_file()) as found:
        yield found


def objects(lab: RdmaLab, *arguments: str) -> list[dict]:
    done = lab.rankdeck("-c", str(lab.folder / "cluster.yaml"), *arguments, "--json", limit=LIMIT)
    assert done.stdout or not done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def job_on_both(lab: RdmaLab) -> Iterator[str]:
    """A job with one rank on each node that would run for an hour; its name."""
    job = {"job": "both", "launch": "plain", "nodes": 2, "ranks_per_node": 1}
    file = lab.folder / "both.yaml"
    file.write_text(yaml.safe_dump({**job, "command": ["sleep", "3600"]}))
    name = objects(lab, "run", str(file), "--detach")[-1]["job"]
    try:
        yield name
    finally:
        objects(lab, "cancel", name)


@pytest.mark.parametrize(
    "end", ["reboot -f", "echo c >/proc/sysrq-trigger"], ids=["reboot", "panic"]
)
def test_a_node_that_boots_in_the_middle_of_a_job_is_at_fault(
    rdma_lab: RdmaLab, exporter: Exporter, end: str
) -> None:
    machine = rdma_lab.machines["rxe2"]
    before = machine.console().count("is ready")
    boots = exporter.number("node_boot_time_seconds", "rxe2")
    with job_on_both(rdma_lab) as name:
        machine.poke(end)
        machine.wait_for_boot(before + 1)
        machine.set_clock()
        ended = seen_until(
            lambda: next(one for one in objects(rdma_lab, "jobs") if one["job"] == name),
            lambda job: job["state"] not in ("pending", "running"),
            LIMIT,
        )
    exporter.until_above("node_boot_time_seconds", "rxe2", boots + 1)

    assert ended["state"] == "failed", ended
    assert "rxe2" in json.dumps(ended["first_failure"]), ended


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
    rdma_lab.machines["rxe1"].set_clock(ahead=120)
    exporter.until_checks("rxe1", fired="node.clock")
    rdma_lab.machines["rxe1"].set_clock()
    exporter.until_checks("rxe1", cleared="node.clock")

    assert exporter.number("rankdeck_node_up", "rxe1") == 1
