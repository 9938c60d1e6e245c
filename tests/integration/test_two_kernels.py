"""Two machines with kernels, clocks and disks of their own, as one cluster."""

from collections.abc import Iterator

import pytest
from tests.support.rdma_lab import RdmaLab
from tests.support.rdma_lab.exporter import Exporter, exporting

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
