"""The simulated fleet: many agents in one process, heard through the real private broker."""

import argparse
from collections import Counter
from pathlib import Path

import pytest
from tests.support.polling import until

from rankdeck.cli import demo
from rankdeck.cli.output import UsageError
from rankdeck.demo.fleet import FleetProcess, fleet_cluster
from rankdeck.errors import AgentError
from rankdeck.opening import Reach, open_session_on
from rankdeck.remote.shell import run_program

NODES = 20
LIMIT = 60.0


def levels(session) -> Counter[str]:
    return Counter(node.health.level.word for node in session.fleet.nodes())


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.long
async def test_a_fleet_is_heard_marked_as_made_up_and_falls_ill_on_demand() -> None:
    cluster = fleet_cluster(NODES)
    async with (
        FleetProcess(change=0.0) as fleet,
        open_session_on(cluster, Reach(fleet.reach)) as session,
    ):
        await until(lambda: levels(session)["ok"] == NODES, LIMIT)
        first = session.fleet.node("sim001")
        assert set(first.simulated) >= {"cpu", "gpu", "rdma", "mem"}
        assert not first.detailed

        session.hearing.want(frozenset({"sim001"}))
        await until(lambda: first.detailed, LIMIT)
        assert not session.fleet.node("sim002").detailed

        fleet.command({"ill": 0.5, "seconds": 0.5, "longest": 600.0})
        await until(lambda: levels(session)["bad"] == NODES // 2, LIMIT)
        told = await fleet.ask()
        assert told["levels"] == [NODES // 2, 0, 0, NODES // 2]
        assert 0 < told["bytes"]["health"] <= 600 * told["sent"]["health"]
        with pytest.raises(AgentError, match="it is simulated: nothing can be run there"):
            await run_program(fleet, "sim001", ("true",))
    assert not lives(fleet.pid)


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.long
async def test_faults_come_and_go_by_chance() -> None:
    cluster = fleet_cluster(NODES)
    plan = {"change": 1.0, "faults": 0.5, "shortest": 1.0, "longest": 2.0, "seed": 7}
    async with (
        FleetProcess(**plan) as fleet,
        open_session_on(cluster, Reach(fleet.reach)) as session,
    ):
        await until(lambda: levels(session)["bad"] > 0, LIMIT)
        fleet.command({"change": 0.0})
        await until(lambda: session.fleet.event_log.total > 0, LIMIT)
        ended = session.fleet.event_log.newest
        await until(lambda: any(one.kind == "ended" for one in ended), LIMIT)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"nodes": 10_000_000}, "from 1 to"),
        ({"nodes": -1}, "from 1 to"),
        ({"nodes": 5, "action": "up"}, "goes with nothing else"),
        ({"nodes": 5, "fault": ["gpu:hot"]}, "goes with nothing else"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused_in_one_sentence(more, why) -> None:
    plain = {"action": None, "fault": [], "json": False}
    with pytest.raises(UsageError, match=why):
        demo.run_demo(argparse.Namespace(**{**plain, **more}), lambda *_, **__: 0)
