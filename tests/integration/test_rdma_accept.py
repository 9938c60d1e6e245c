"""`rankdeck accept` with perftest and rping between real RDMA devices (Soft-RoCE)."""

import json
import os
import subprocess
import sys

import pytest
from tests.support.polling import wait_until
from tests.support.rdma_lab import RdmaLab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.left_out]
LIMIT = 1800.0
BOTH_WAYS = [("rxe1", "rxe2"), ("rxe2", "rxe1")]


def accept(lab: RdmaLab, recipe: str) -> tuple[int, dict]:
    """The exit code and the object of a run."""
    words = ("accept", "--json", "--recipe", recipe, "--include-busy", "rxe[1-2]")
    done = lab.rankdeck("-c", str(lab.cluster_file()), *words, limit=LIMIT)
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("recipe", ["rping", "ib_write_bw", "ib_read_lat"])
def test_both_directions_are_measured(rdma_lab: RdmaLab, recipe: str) -> None:
    _, run = accept(rdma_lab, recipe)

    good = [one for one in run["results"] if one["outcome"] == "measured"]
    assert sorted({(one["sender"], one["receiver"]) for one in good}) == BOTH_WAYS, run["results"]
    assert all(one["value"] > 0 for one in good)
    assert not run["bad"], run["verdicts"]


def test_a_node_without_the_address_of_the_fabric_is_not_measured(rdma_lab: RdmaLab) -> None:
    rdma_lab.run("rxe2", "ip address delete 10.9.0.2/24 dev eth1")
    try:
        code, run = accept(rdma_lab, "rping")
    finally:
        rdma_lab.run("rxe2", "ip address add 10.9.0.2/24 dev eth1")

    assert (code, run["accepted"], run["bad"]) == (2, False, [])


def test_a_cable_that_is_pulled_out_in_the_middle_is_not_accepted(rdma_lab: RdmaLab) -> None:
    words = ("accept", "--json", "--recipe", "ib_write_bw", "--seconds", "60")
    command = [sys.executable, "-m", "rankdeck", "-c", str(rdma_lab.cluster_file()), *words]
    environment = {**os.environ, **rdma_lab.environment()}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            busy = "pgrep -x ib_write_bw >/dev/null && echo yes || echo no"
            wait_until(lambda: rdma_lab.run("rxe2", busy, 300) == "yes", LIMIT)
            rdma_lab.machines["rxe2"].connect_link(up=False)
            said, _ = process.communicate(timeout=LIMIT)
        finally:
            rdma_lab.machines["rxe2"].connect_link(up=True)
            process.kill()

    run = json.loads(said)
    assert process.returncode in (1, 2)
    assert not run["accepted"]
    assert run["verdicts"], run
