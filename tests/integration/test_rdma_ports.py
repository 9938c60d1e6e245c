"""Ports of real RDMA devices (Soft-RoCE in two virtual machines): traffic, losses, cables."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.polling import seen_until
from tests.support.rdma_lab import RdmaLab
from tests.support.rdma_lab.exporter import LIMIT, Exporter, exporting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.left_out]
DOWNS = "rankdeck_rdma_link_downs_total"
SENT = "node_infiniband_hw_sent_pkts_total"


@pytest.fixture(scope="module")
def exporter(rdma_lab: RdmaLab) -> Iterator[Exporter]:
    with exporting(rdma_lab, rdma_lab.cluster_file()) as found:
        yield found


@contextmanager
def transfer(lab: RdmaLab) -> Iterator[None]:
    """rxe1 writes into the memory of rxe2 until the end of the block."""
    program = "ib_write_bw -d rxe0 -F --run_infinitely"
    try:
        lab.run("rxe2", f"{program} >/tmp/server 2>&1 & echo $! >/tmp/pid")
        lab.run("rxe2", "until ss -lnt | grep -q :18515; do sleep 0.2; done", 300)
        lab.run("rxe1", f"{program} 10.9.0.2 >/tmp/client 2>&1 & echo $! >/tmp/pid")
        yield
    finally:
        for node in lab.nodes:
            lab.run(node, "kill -9 $(cat /tmp/pid) 2>/dev/null; rm -f /tmp/pid")


def test_what_is_sent_and_what_is_lost_is_counted(rdma_lab: RdmaLab, exporter: Exporter) -> None:
    before = exporter.number(SENT, "rxe1"), sent_again(exporter, rdma_lab)
    with transfer(rdma_lab):
        sent = exporter.until_above(SENT, "rxe1", before[0] + 100)
        exporter.until_above("node_infiniband_hw_rcvd_pkts_total", "rxe2", 100)
        rdma_lab.run("rxe1", "tc qdisc replace dev eth1 root netem loss 5%")
        try:
            again = seen_until(
                lambda: sent_again(exporter, rdma_lab), lambda count: count > before[1] + 5, LIMIT
            )
        finally:
            rdma_lab.run("rxe1", "tc qdisc delete dev eth1 root")

    assert sent > before[0]
    assert again > before[1]


def sent_again(exporter: Exporter, lab: RdmaLab) -> float:
    """Packets that both ends took for sent again or out of sequence."""
    return sum(exporter.number("rankdeck_rdma_retx_total", node) for node in lab.nodes)


def test_a_port_whose_cable_is_pulled_out_is_bad_until_it_is_back(
    rdma_lab: RdmaLab, exporter: Exporter
) -> None:
    rdma_lab.machines["rxe2"].connect_link(up=False)
    exporter.until_checks("rxe2", fired="rdma.link")
    states = [exporter.number("node_infiniband_state_id", node) for node in rdma_lab.nodes]
    health = exporter.number("rankdeck_node_health", "rxe2")
    rdma_lab.machines["rxe2"].connect_link(up=True)
    exporter.until_checks("rxe2", cleared="rdma.link")

    assert states == [4, 1]
    assert health == 3
    assert exporter.number("node_infiniband_state_id", "rxe2") == 4


def test_each_time_that_a_port_goes_down_is_counted(rdma_lab: RdmaLab, exporter: Exporter) -> None:
    before = exporter.number(DOWNS, "rxe2")
    for _ in range(2):
        for up, state in ((False, 1), (True, 4)):
            rdma_lab.machines["rxe2"].connect_link(up=up)
            exporter.until_is("node_infiniband_state_id", "rxe2", state)

    exporter.until_is(DOWNS, "rxe2", before + 2)
