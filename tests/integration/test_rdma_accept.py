"""`rankdeck accept` with perftest and rping between real RDMA devices (Soft-RoCE)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.polling import wait_until
from tests.support.rdma_lab import RdmaLab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.left_out]
LIMIT = 1800.0
BOTH_WAYS = [("rxe1", "rxe2"), ("rxe2", "rxe1")]


@contextmanager
def accepting(lab: RdmaLab, *words: str, patience: int = 18) -> Iterator["subprocess.Popen[str]"]:
    """A running `accept` of the pair; an emulated node always looks busy."""
    usual = ("accept", "--json", "--include-busy", "rxe[1-2]")
    file = str(lab.cluster_file(patience))
    with subprocess.Popen(
        [sys.executable, "-m", "rankdeck", "-c", file, *usual, *words],
        env={**os.environ, **lab.environment()},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def outcome(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The object that it prints at its end."""
    said, _ = process.communicate(timeout=LIMIT)
    return json.loads(said)


def test_each_program_measures_both_directions_and_the_link_is_judged(rdma_lab: RdmaLab) -> None:
    recipes = ("rping", "ib_write_bw", "ib_read_lat")
    asked = [word for name in recipes for word in ("--recipe", name)]
    with accepting(rdma_lab, "--only", "pairs", "--seconds", "3", *asked) as process:
        run = outcome(process)

    # On a busy machine perftest finds its own clock too rough, and says so.
    ended = [one for one in run["results"] if one["value"] or one["text"].endswith("idle node")]
    ways = {(one["recipe"], one["sender"], one["receiver"]) for one in ended}
    assert ways == {(name, *way) for name in recipes for way in BOTH_WAYS}, run["results"]
    assert {one["recipe"] for one in ended if one["value"]} == set(recipes), run["results"]
    # Software that computes each packet carries a small part of what the port calls its rate.
    told = [one["kind"] for one in run["verdicts"] if one["recipe"] == "ib_write_bw"]
    assert "configuration" in told, run["verdicts"]
    assert process.returncode == 1


def test_a_node_that_sends_at_a_fraction_of_its_rate_is_named(rdma_lab: RdmaLab) -> None:
    rdma_lab.run("rxe2", "tc qdisc replace dev eth1 root tbf rate 1500kbit burst 32kb limit 1mb")
    try:
        with accepting(rdma_lab, "--seconds", "4", "--recipe", "ib_write_bw") as process:
            run = outcome(process)
    finally:
        rdma_lab.run("rxe2", "tc qdisc delete dev eth1 root")

    # The other direction may be called unsteady: the machines share the processor with others.
    slow = [one for one in run["verdicts"] if (one["kind"], one["answer"]) == ("pair", "slow")]
    assert [one["subject"] for one in slow] == ["rxe2→rxe1"], run["verdicts"]
    assert not run["accepted"]


def test_a_cable_that_is_pulled_out_in_the_middle_of_a_measurement_is_named(
    rdma_lab: RdmaLab,
) -> None:
    cable = rdma_lab.machines["rxe2"]
    before = rdma_lab.sent_packets()
    words = ("--only", "pairs", "--seconds", "8", "--recipe", "ib_write_bw")
    try:
        # Soft-RoCE sends again for ever and says nothing: only the time tells that it hangs.
        with accepting(rdma_lab, *words, patience=3) as process:
            wait_until(lambda: rdma_lab.sent_packets() > before + 100, LIMIT)
            cable.connect_link(up=False)
            run = outcome(process)
    finally:
        cable.connect_link(up=True)
        for node in rdma_lab.nodes:
            rdma_lab.run(node, "while pgrep ib_write_bw; do sleep 1; done", 600)

    (pair,) = (one for one in run["verdicts"] if one["kind"] == "pair")
    assert (pair["answer"], pair["ends"]) == ("failed", ["rxe1", "rxe2"])
    assert "rxe2: " in pair["sentence"]
    assert "RDMA port rxe0/1 is down" in pair["sentence"]
    assert not run["accepted"]
