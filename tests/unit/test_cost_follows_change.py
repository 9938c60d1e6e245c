"""What a large fleet costs: work is counted, not timed, and must follow what changes."""

import asyncio
from math import inf
from pathlib import Path
from typing import ClassVar

import pytest
from textual.geometry import Size

from rankdeck.config import clusters
from rankdeck.model.cluster import Broker, Cluster, Node
from rankdeck.model.deadlines import Deadlines
from rankdeck.state.fleet import Fleet
from rankdeck.state.node import HEARTBEATS, LATE, NodeState
from rankdeck.telemetry import agent_configs, fleet_updater, link
from rankdeck.telemetry.fleet_updater import FleetUpdater
from rankdeck.telemetry.private_broker import Connection, PrivateBroker
from rankdeck.ui.snapshots import Arrangement
from rankdeck.ui.themes import Mark, most_urgent_mark
from rankdeck.ui.widgets import vtable
from rankdeck.ui.widgets.vtable import CellMap
from rankdeck.values import replace
from rankdeck_agent.wire import HealthReport, Sample, decode_message, encode_message, split_time
from rankdeck_simulator.fleet import BrokerLine, LineError
from tests.support.polling import until

NODES = 500
START = 2e9
WELL = HealthReport(START, 0, 30.0)
FULL = ("disk.full", 3, "/", 5.0, "/ is 99% full · jobs fail · free space")


class Fleeting:
    """A fleet on a clock that stands until it is told to go on, and what was judged of it."""

    def __init__(self, monkeypatch) -> None:
        self.now = 100.0
        self.judged: list[str] = []
        self.asked = 0
        nodes = tuple(Node(name=f"n{number:04}") for number in range(NODES))
        self.fleet = Fleet(Cluster(name="lab", nodes=nodes), lambda: self.now, lambda: START)
        judge, silent = NodeState.judge, NodeState.silent

        def counted(state: NodeState) -> None:
            self.judged.append(state.name)
            judge(state)

        def asked(state: NodeState) -> bool:
            self.asked += 1
            return silent.fget(state)

        monkeypatch.setattr(NodeState, "judge", counted)
        monkeypatch.setattr(NodeState, "silent", property(asked))
        for node in nodes:
            self.fleet.apply(node.name, WELL)
        self.fleet.take_changes()
        self.judged.clear()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.fleet.take_changes()


def test_only_what_changed_is_judged(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    lab.fleet.apply("n0007", replace(WELL, level=3, reasons=(FULL,)))
    lab.fleet.apply("n0011", WELL)
    lab.fleet.apply("n0013", replace(WELL, judged=1, applies=1))
    lab.wait(0.1)

    assert lab.judged == ["n0007", "n0013"]


def test_a_sample_that_is_judged_as_before_is_shown_and_not_judged_again(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    seen = lab.fleet.follow()
    seen.take()
    for load in (10.0, 20.0, 30.0):
        report = replace(WELL, numbers={"cpu.used": load})
        lab.fleet.apply("n0007", Sample(1, START, {"cpu.used": {"": load}}, report=report))
        lab.wait(1)

        assert seen.take() == {"n0007"}
        assert lab.fleet.node("n0007").summary("cpu.used") == load
    assert lab.judged == []


def test_a_node_whose_samples_stopped_is_heard_by_its_next_word_once_they_are_not_wanted(
    monkeypatch,
) -> None:
    lab = Fleeting(monkeypatch)
    lab.fleet.want(frozenset({"n0007"}))
    lab.wait(10)
    assert lab.fleet.node("n0007").health.level.word == "unknown"
    lab.fleet.want(frozenset())
    lab.fleet.heartbeat("n0007", START) or lab.fleet.apply("n0007", WELL)
    lab.wait(1)

    assert lab.fleet.node("n0007").health.level.word == "ok"


def test_a_heartbeat_that_says_the_same_is_not_read_and_keeps_the_node_alive(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    intake, read = FleetUpdater("lab", lab.fleet), []
    monkeypatch.setattr(
        fleet_updater, "decode_message", lambda *told: read.append(told) or decode_message(*told)
    )
    for turn in range(3):
        told = encode_message(replace(WELL, at=START + turn / 100))
        for number in range(NODES):
            intake.take(f"rankdeck/1/lab/n{number:04}/health", told)
        lab.wait(30)

    assert len(read) == NODES
    assert lab.judged == []
    assert lab.fleet.node("n0005").at == START + 0.02
    assert lab.fleet.node("n0005").health.level.word == "ok"


def test_a_heartbeat_that_says_something_else_is_read(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    intake = FleetUpdater("lab", lab.fleet)
    topic, levels = "rankdeck/1/lab/n0005/health", []
    ill = replace(WELL, level=3, reasons=(FULL,))
    for told in (WELL, ill, ill, WELL, WELL):
        intake.take(topic, encode_message(told))
        lab.wait(1)
        levels.append(lab.fleet.node("n0005").health.level.word)

    assert levels == ["ok", "bad", "bad", "ok", "ok"]


def test_a_silent_node_is_not_judged_again_and_again_because_its_clock_was_wrong(
    monkeypatch,
) -> None:
    lab = Fleeting(monkeypatch)
    for _ in range(3):
        lab.fleet.apply("n0007", replace(WELL, at=START + 3600))
        lab.wait(10)
    assert lab.fleet.node("n0007").health.level.word == "warn"
    lab.wait(60)
    lab.judged.clear()
    for _ in range(5):
        lab.wait(2)

    assert "n0007" not in lab.judged
    assert lab.fleet.node("n0007").health.level.word == "unknown"


def test_a_clock_that_is_right_may_move_without_being_judged_again(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    for ahead in (0.0, 0.2, 0.1, -0.1):
        lab.fleet.apply("n0007", replace(WELL, at=START + ahead))
        lab.wait(1)
    assert lab.judged == []
    lab.fleet.apply("n0007", replace(WELL, at=START + 0.6))
    lab.wait(1)

    assert lab.judged == ["n0007"]


def test_a_clock_that_moves_is_seen_though_heartbeats_say_the_same(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    intake = FleetUpdater("lab", lab.fleet)
    for _ in range(3):
        intake.take("rankdeck/1/lab/n0005/health", encode_message(WELL))
        lab.wait(10)
    assert lab.fleet.node("n0005").health.level.word == "ok"
    for _ in range(3):
        intake.take("rankdeck/1/lab/n0005/health", encode_message(replace(WELL, at=START + 3600)))
        lab.wait(10)

    reasons = [reason.check for reason in lab.fleet.node("n0005").health.reasons]
    assert "node.clock" in reasons


@pytest.mark.long
@pytest.mark.parametrize("at", [b"NaN", b"1e300", b'"2"', b"[2]", b"-1", b"9" * 30])
def test_a_heartbeat_with_an_odd_time_is_read_whole_and_judged_by_that(monkeypatch, at) -> None:
    lab = Fleeting(monkeypatch)
    intake = FleetUpdater("lab", lab.fleet)
    intake.take("rankdeck/1/lab/n0005/health", encode_message(WELL))
    said = encode_message(WELL).partition(b",")[2]
    intake.take("rankdeck/1/lab/n0005/health", b'{"at":' + at + b"," + said)

    assert split_time(b'{"at":' + at + b"," + said)[0] is None
    assert lab.fleet.node("n0005").at in (START, -1.0)


def test_a_node_that_fell_silent_is_judged_again_at_the_same_words(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    intake = FleetUpdater("lab", lab.fleet)
    intake.take("rankdeck/1/lab/n0005/health", encode_message(WELL))
    lab.wait(90)
    assert lab.fleet.node("n0005").health.level.word == "unknown"
    intake.take("rankdeck/1/lab/n0005/health", encode_message(replace(WELL, at=START + 90)))
    lab.wait(1)

    assert lab.fleet.node("n0005").health.level.word == "ok"


def test_a_fleet_in_which_nothing_happens_asks_no_node_whether_it_is_silent(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    lab.wait(0.6)
    lab.asked = 0
    for _ in range(20):
        lab.wait(0.6)

    assert (lab.judged, lab.asked) == ([], 0)


def test_every_silent_node_is_found_all_the_same_and_once(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    lab.wait(40)
    for name in ("n0001", "n0002"):
        lab.fleet.apply(name, WELL)
    lab.wait(30)
    levels = [lab.fleet.node(f"n{n:04}").health.level.word for n in range(NODES)]

    assert levels.count("unknown") == NODES - 2
    assert (levels[1], levels[2], len(lab.judged)) == ("ok", "ok", NODES - 2)
    lab.judged.clear()
    lab.wait(2)
    assert lab.judged == []


def test_a_node_that_was_silent_and_spoke_is_watched_again(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    lab.wait(70)
    lab.fleet.apply("n0005", WELL)
    lab.wait(1)
    assert lab.fleet.node("n0005").health.level.word == "ok"
    lab.wait(70)
    assert lab.fleet.node("n0005").health.level.word == "unknown"


def test_a_heartbeat_that_becomes_shorter_is_missed_sooner(monkeypatch) -> None:
    lab = Fleeting(monkeypatch)
    lab.fleet.apply("n0005", replace(WELL, heartbeat=10.0))
    lab.wait(26)

    assert lab.fleet.node("n0005").health.level.word == "unknown"
    assert lab.fleet.node("n0006").health.level.word == "ok"


class Name(str):
    """Notes when it is compared."""

    __slots__ = ()
    compared: ClassVar[list[str]] = []
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.compared.append(self)
        return str.__eq__(self, other)


def test_the_configuration_of_an_agent_does_not_cost_by_the_number_of_nodes() -> None:
    nodes = tuple(Node(name=Name(f"n{number}"), gpus=number) for number in range(NODES))
    cluster, broker = Cluster(name="lab", nodes=nodes), Broker(host="b", port=1883)
    Name.compared.clear()
    known = agent_configs.agent_config(cluster, broker, f"n{NODES - 1}")
    other = agent_configs.agent_config(cluster, broker, "other")

    assert (known["expect"]["gpus"], other["expect"]["gpus"]) == (NODES - 1, 0)
    assert len(Name.compared) < 10


def test_the_accounts_of_all_agents_are_read_again_only_where_they_are_others(
    tmp_path, monkeypatch
) -> None:
    read: list[Path] = []
    regular = clusters.read_regular

    def counted(path: Path, limit: int) -> bytes:
        read.append(path)
        return regular(path, limit)

    monkeypatch.setattr(clusters, "read_regular", counted)
    file = tmp_path / "agents"
    names = [f"n{number}" for number in range(NODES)]
    cluster = Cluster(name="lab", nodes=tuple(Node(name=name) for name in names))
    broker = Broker(host="b", port=1883, agents_file=str(file))
    clusters.write_accounts(str(file), {name: f"secret of {name}" for name in names})
    told = [agent_configs.agent_config(cluster, broker, name)["password"] for name in names]
    clusters.write_accounts(str(file), {name: f"another of {name}" for name in names})

    assert (told[-1], len(read)) == (f"secret of n{NODES - 1}", 1)
    assert agent_configs.agent_config(cluster, broker, "n7")["password"] == "another of n7"


@pytest.mark.parametrize("nodes", [3, agent_configs.FEW_NODES + 1])
def test_a_node_that_sends_heartbeats_to_our_broker_need_not_ping_it_as_well(nodes) -> None:
    cluster = Cluster(name="lab", nodes=tuple(Node(name=f"n{n}") for n in range(nodes)))
    told = link.PrivateLink(cluster, Fleet(cluster)).agent_config("n1")

    assert told["keepalive"] > told["heartbeat"]
    # The broker still ends a dead connection before the node would be unknown by silence.
    assert 1.5 * told["keepalive"] < HEARTBEATS * told["heartbeat"] + LATE


def test_whoever_is_due_is_told_once_and_the_last_time_counts() -> None:
    line: Deadlines[str] = Deadlines({"a": 1.0, "b": 2.0, "c": 3.0})
    line.set("a", 5.0)
    line.forget("b")

    assert (line.at("a"), line.at("b"), len(line)) == (5.0, None, 2)
    assert (line.due(3.0), line.due(4.0), line.due(9.0), line.due(9.0)) == ([], ["c"], ["a"], [])


def test_what_is_due_comes_to_the_moment_and_in_order() -> None:
    line: Deadlines[str] = Deadlines({"a": 1.3, "b": 1.1, "c": 1.2, "never": inf, "always": -inf})

    assert line.due(1.2) == ["always", "b"]
    assert line.due(1.25) == ["c"]
    assert (line.due(1e9), line.at("never")) == (["a"], inf)


def test_rows_are_asked_again_only_where_something_changed() -> None:
    levels = {f"n{number}": 0 for number in range(100)}
    asked: list[str] = []

    def key(name: str) -> tuple[object, ...]:
        asked.append(name)
        return -levels[name], int(name[1:])

    rows = Arrangement(levels, lambda name: levels[name] >= 0, key)
    asked.clear()
    levels |= {"n50": 3, "n60": -1}
    rows.again(("n50", "n60", "n7"))

    assert sorted(asked) == ["n50", "n7"]
    assert rows.names == ["n50", *(f"n{n}" for n in range(100) if n not in (50, 60))]
    levels["n60"] = 2
    rows.again(("n60",))
    assert rows.names[:3] == ["n50", "n60", "n0"]


def test_few_rows_that_moved_are_put_in_their_places_without_asking_for_the_others() -> None:
    class Counted(int):
        compared = 0

        def __lt__(self, other: int) -> bool:
            Counted.compared += 1
            return int(self) < int(other)

    places = {f"n{number}": Counted(number) for number in range(4000)}
    rows = Arrangement(places, lambda name: places[name] >= 0, lambda name: (places[name],))
    Counted.compared = 0
    places |= {"n7": Counted(9000), "n3000": Counted(-1), "n10": Counted(5000)}
    rows.again(("n7", "n3000", "n10"))

    assert rows.names == sorted(places.keys() - {"n3000"}, key=lambda name: int(places[name]))
    assert Counted.compared < 200


class Line12(CellMap):
    """A map of one line."""

    size = Size(12, 1)


def test_a_cell_for_several_nodes_is_worked_out_again_only_where_one_changed(monkeypatch) -> None:
    ok, bad = Mark("o", "ok"), Mark("x", "bad")
    asked: list[int] = []

    def counted(marks) -> Mark:
        asked.append(len(marks))
        return most_urgent_mark(marks)

    monkeypatch.setattr(vtable, "most_urgent_mark", counted)
    shown = Line12()
    shown.show([ok] * 100)
    shown.line(0, 12)
    assert asked == [10] * 10
    shown.change({37: bad, 38: ok})
    line = shown.line(0, 12)

    assert (asked[10:], "".join(text for text, _ in line)) == ([10], " oooxoooooo ")


async def test_a_quiet_client_is_not_asked_at_each_sweep(monkeypatch) -> None:
    asked: list[Connection] = []
    sweep = Connection.sweep

    def counted(connection: Connection, now: float) -> None:
        asked.append(connection)
        sweep(connection, now)

    monkeypatch.setattr(Connection, "sweep", counted)
    broker = PrivateBroker(lambda *_: None, "lab")
    await broker.start()
    lines = [
        BrokerLine(
            ("127.0.0.1", broker.port), f"n{n}", login=broker.credential(f"n{n}"), keepalive=60
        )
        for n in range(20)
    ]
    try:
        await until(lambda: all(_sent(line) for line in lines))
        turn = broker.turn
        await until(lambda: broker.turn > turn + 2)
        assert asked == []
    finally:
        for line in lines:
            line.close()
        await broker.close()
        await asyncio.sleep(0)


def _sent(line: BrokerLine) -> bool:
    if line.waits:
        line.flush()
    return not line.waits


async def test_a_client_whose_words_we_were_too_busy_to_read_is_not_cut_off(monkeypatch) -> None:
    joined: list[Connection] = []
    join = PrivateBroker.joined

    def noted(broker: PrivateBroker, connection: Connection) -> None:
        joined.append(connection)
        join(broker, connection)
        broker.listen(connection, on=False)

    monkeypatch.setattr(PrivateBroker, "joined", noted)
    broker = PrivateBroker(lambda *_: None, "lab")
    await broker.start()
    line = BrokerLine(("127.0.0.1", broker.port), "n1", login=broker.credential("n1"))
    quiet = BrokerLine(("127.0.0.1", broker.port), "n2", login=broker.credential("n2"))
    try:
        await until(lambda: len(joined) == 2)
        await until(lambda: _sent(line))
        for connection in joined:
            connection.sweep(asyncio.get_running_loop().time() + 60)
        await until(lambda: [bool(one.account) for one in joined].count(True) == 1)
        with pytest.raises(LineError):
            await until(lambda: quiet.read())
    finally:
        line.close()
        quiet.close()
        await broker.close()
