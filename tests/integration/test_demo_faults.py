"""Made-up faults all the way: demo nodes, agents, broker, rules, and what the command line says."""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.agent_file import put_agent_in_demo
from tests.support.commands import COMMANDS
from tests.support.reasons import reasons

from rankdeck.demo import cluster

pytestmark = pytest.mark.slow

NODES = ("sakuya", "sakura", "koishi")
CASES = {
    "at once": (0, {"gpu:ecc": "gpu.ecc", "gpu:lost": "gpu.lost", "gpu:xid79": "kernel.xid"}),
    "at two looks": (0, {"gpu:nvlink": "gpu.nvlink", "gpu:pcie": "gpu.pcie", "gpu:hot": "gpu.temp"}),
    "after seconds": (45, {"rdma:down": "rdma.link", "rdma:errors": "rdma.phys_errors", "rdma:retx": "rdma.retx", "gpu:hang": "gpu.driver"}),
}  # fmt: skip
"""How long is watched, and fault -> check; test_simulated_faults.py has all
faults, also those that take minutes.
"""
LEVELS = {"rdma.retx": "warn"}


@pytest.fixture(autouse=True)
def demo(own_folders: Path) -> Iterator[None]:
    put_agent_in_demo()
    try:
        yield
    finally:
        cluster.stop_demo()


def asked(verb: str, watch: float):
    argv = ("-c", "demo", verb, "--json", "--wait", "60", "--watch", str(watch))
    done = COMMANDS.run(argv, os.environ, 400)
    return done.returncode, {node["name"]: node for node in json.loads(done.stdout)["nodes"]}


@pytest.mark.left_out("after seconds", "at two looks")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.timeout(480)
def test_a_fault_is_told_with_level_check_and_exit_code(case: str) -> None:
    watch, faults = CASES[case]
    places = tuple(zip(itertools.cycle(NODES), faults.items(), strict=False))
    cluster.start_demo([f"{fault}@{node}" for node, (fault, _) in places])

    code, nodes = asked("health", watch)

    for node, (fault, check) in places:
        assert reasons(nodes[node]).get(check) == LEVELS.get(check, "bad"), fault
    for node in set(NODES) - {node for node, _ in places}:
        assert reasons(nodes[node]) == {}
    assert code == 2


def test_status_says_the_same_as_health() -> None:
    cluster.start_demo(["gpu:nvlink@sakura"])

    code, nodes = asked("status", 0)

    assert reasons(nodes["sakura"]) == {"gpu.nvlink": "bad"}
    assert nodes["sakura"]["level"] == "bad"
    assert reasons(nodes["koishi"]) == {}
    assert code == 5


def test_a_healthy_demo_is_ok_and_every_check_that_applies_is_judged() -> None:
    cluster.start_demo()

    _, nodes = asked("health", 8)

    assert set(nodes) == set(NODES)
    for node in nodes.values():
        assert reasons(node) == {}
        assert node["evaluated"] == node["checks"]
        assert "unknown" not in {finding["state"] for finding in node["findings"]}
