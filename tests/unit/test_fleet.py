import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck.model.cluster import Cluster, Node
from rankdeck.state import sanitize
from rankdeck.state.fleet import LEAST, Fleet
from rankdeck.state.fleet_history import FEW
from rankdeck.state.node import ASKED
from rankdeck_agent.rules.levels import Level, highest_of, mean_of, sum_of
from rankdeck_agent.wire import Event, Hello, Sample, WireError, decode_message, encode_message
from tests.support.judged_fleet import JudgedFleet


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made(*names, expect=None, **node):
    clock = Clock()
    nodes = tuple(Node(name=name, **node) for name in names or ("n1",))
    fleet = JudgedFleet(Cluster(name="lab", nodes=nodes, expect=expect or {}), clock)
    fleet.want(None)
    clock.now += ASKED
    return fleet, clock


def hostile() -> Fleet:
    """A fleet whose node sends what no agent sends."""
    return Fleet(Cluster(name="lab", nodes=(Node(name="n1"),)), Clock())


def health(fleet, name="n1"):
    """How the node is judged now."""
    fleet.take_changes()
    return fleet.node(name).health


def sample(at=1.0, **values):
    named = {
        name.replace("__", "."): v if isinstance(v, dict) else {"": v} for name, v in values.items()
    }
    return Sample(0, at, named)


def test_a_node_that_was_never_heard_is_unknown_and_says_why() -> None:
    fleet, _ = made()
    fleet.troubled("n1", "port 22 refused")

    assert health(fleet).level is Level.UNKNOWN
    assert "port 22 refused" in health(fleet).reasons[0].text
    assert fleet.node("n1").heard_s() is None
    assert fleet.node("n1").failed_to_attach


def test_a_sample_makes_a_node_ok_and_changed_once() -> None:
    fleet, _ = made("n1", "n2")
    fleet.take_changes()
    fleet.apply("n1", sample(cpu__used=12))

    assert fleet.take_changes() == {"n1"}
    assert fleet.take_changes() == frozenset()
    assert fleet.node("n1").value("cpu.used") == 12


def test_silence_is_noticed_after_three_periods_and_ends_with_a_sample() -> None:
    fleet, clock = made()
    fleet.apply("n1", sample(mem__used=5, cpu__temp=40))
    fleet.take_changes()
    assert health(fleet).level is Level.OK
    clock.now += 3.1

    assert fleet.take_changes() == {"n1"}
    assert health(fleet).level is Level.UNKNOWN
    fleet.apply("n1", sample(2.0, mem__used=5, cpu__temp=40))
    assert health(fleet).level is Level.OK


def test_a_last_will_is_believed_at_once_and_keeps_the_inventory() -> None:
    fleet, _ = made()
    fleet.apply("n1", Hello("n1", True, inventory={"kernel": "6.1"}))
    fleet.apply("n1", sample(mem__used=5))
    fleet.apply("n1", Hello("n1", False))

    assert health(fleet).level is Level.UNKNOWN
    assert fleet.node("n1").hello.inventory == {"kernel": "6.1"}


def test_a_retained_hello_is_no_sign_of_life() -> None:
    fleet, _ = made()
    fleet.apply("n1", Hello("n1", True))

    assert health(fleet).level is Level.UNKNOWN


def test_counters_become_rates_by_the_clock_of_the_node() -> None:
    fleet, _ = made()
    for at, count in ((10.0, 1000), (12.0, 3000)):
        fleet.apply("n1", sample(at, net__rx={"eth0": count, "eth1": 0}))
    node = fleet.node("n1")

    assert node.rate("net.rx", "eth0") == 1000
    assert sum_of("net.rx")(node.current) == 1000
    assert node.devices("net.rx") == ("eth0", "eth1")
    assert [value for _, value in node.series("net.rx", "eth0")] == [1000]


@pytest.mark.parametrize(("at", "count"), [(11.0, 500), (10.0, 2000), (9.0, 2000), (300.0, 2000)])
def test_a_reset_a_step_back_in_time_and_a_gap_give_no_rate(at, count) -> None:
    fleet, _ = made()
    fleet.apply("n1", sample(10.0, net__rx={"eth0": 1000}))
    fleet.apply("n1", sample(at, net__rx={"eth0": count}))

    assert fleet.node("n1").rate("net.rx", "eth0") is None


def test_what_could_not_be_read_is_not_shown_as_an_old_number() -> None:
    fleet, _ = made()
    fleet.apply("n1", sample(1.0, mem__used=5, cpu__temp=40))
    fleet.apply(
        "n1",
        Sample(1, 2.0, {"mem.used": {"": 5}}, failed={"cpu.temp": "Input/output error"}),
    )
    node = fleet.node("n1")

    assert node.value("cpu.temp") is None
    assert health(fleet).level is Level.UNKNOWN
    assert "Input/output error" in health(fleet).reasons[0].text


def test_a_metric_that_stops_coming_is_dropped() -> None:
    fleet, clock = made()
    fleet.apply("n1", sample(0.0, mem__used=5, cpu__temp=40))
    fleet.apply("n1", sample(1.0, mem__used=5, cpu__temp=40))
    for at in range(2, 24):
        clock.now += 1
        fleet.apply("n1", sample(float(at), mem__used=5))
        fleet.take_changes()

    assert fleet.node("n1").value("cpu.temp") is None
    assert fleet.node("n1").failed == {"cpu.temp": "no new reading"}
    fleet.apply("n1", sample(24.0, mem__used=5, cpu__temp=41))
    assert fleet.node("n1").value("cpu.temp") == 41
    assert fleet.node("n1").failed == {}


@pytest.mark.parametrize("step", [0.0, 3600.0, -3600.0])
def test_a_metric_that_stops_coming_is_dropped_whatever_the_clock_of_the_node_does(
    step: float,
) -> None:
    fleet, clock = made()
    for at in range(60):
        clock.now += 1
        gone = {} if at > 30 else {"cpu__temp": 40}
        stamp = at + (step if at > 20 else 0.0) + 10_000
        fleet.apply("n1", sample(stamp, mem__used=5, **gone))
        fleet.take_changes()
        if at == 40:
            assert fleet.node("n1").value("cpu.temp") == 40

    assert fleet.node("n1").value("cpu.temp") is None
    assert fleet.node("n1").value("mem.used") == 5


def test_what_comes_every_half_minute_stays_in_between_and_has_a_rate() -> None:
    fleet, clock = made()
    for at in range(61):
        clock.now += 1
        slow = {"edac__ce": at} if at % 30 == 0 else {}
        fleet.apply("n1", sample(float(at), mem__used=5, **slow))
        fleet.take_changes()
        assert fleet.node("n1").value("edac.ce") is not None

    assert fleet.node("n1").rate("edac.ce") == 1.0
    assert fleet.node("n1").failed == {}


@pytest.mark.long
def test_a_hostile_node_cannot_fill_the_memory() -> None:
    fleet = hostile()
    devices = {f"d{number}" * 100: number for number in range(3000)}
    for start in range(6):
        flood = {f"m{start}.{number}": devices for number in range(200)}
        fleet.apply(
            "n1",
            Sample(
                start,
                float(start),
                flood,
                failed={f"f{n}": "x" * 9999 for n in range(5000)},
            ),
        )
        fleet.apply("n1", Event(1.0, "warn", "c" * 9999, "x" * 99999))
        for _ in range(20):
            fleet.apply("n1", Event(1.0, "warn", "c", "x"))
    node = fleet.node("n1")

    assert sum(len(by_device) for by_device in node.values.values()) <= sanitize.NUMBERS
    assert len(node.failed) <= sanitize.ENTRIES
    assert len(node.events) <= 100
    assert max(len(event.text) for event in node.events) <= 200
    assert all(len(text) <= 200 for text in node.failed.values())


def test_control_characters_of_a_node_reach_no_one() -> None:
    fleet = hostile()
    evil = "\x1b]0;owned\x07\x9b31m\u202e"
    fleet.apply("n1", Hello("n1", True, inventory={evil: evil}))
    fleet.apply("n1", Event(1.0, "bad", evil, evil, evil))
    fleet.apply("n1", Sample(0, 1.0, {"disk.used": {evil: 99}}, failed={evil: evil}))
    node = fleet.node("n1")
    shown = repr((node.hello, list(node.events), node.values, node.failed, health(fleet)))

    assert not any(escape in shown for escape in ("\\x1b", "\\x07", "\\x9b", "\\u202e"))


def test_numbers_that_are_none_are_left_out() -> None:
    fleet = hostile()
    for at in (1.0, 2.0):
        fleet.apply(
            "n1",
            sample(
                at,
                cpu__used=math.nan,
                cpu__temp=math.inf,
                mem__used=10**4000,
                cpu__load1=1,
            ),
        )

    assert set(fleet.node("n1").values) == {"cpu.load1"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = [
    "node", "up", "at", "boot", "agent", "period", "inventory", "simulated",
    "seq", "values", "absent", "failed", "level", "check", "text", "device",
]  # fmt: skip


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["hello", "sample", "event"]),
    st.dictionaries(st.sampled_from(FIELDS), JSON),
    st.booleans(),
)
def test_no_message_of_a_node_raises(kind, fields, known) -> None:
    fleet = hostile()
    required = {
        "hello": ["node", "up"],
        "sample": ["seq", "at", "values"],
        "event": ["at", "level", "check", "text"],
    }
    raw = {**({name: {} for name in required[kind]} if known else {}), **fields}
    try:
        message = decode_message(kind, json.dumps(raw).encode())
    except WireError:
        return
    fleet.apply("n1", message)
    fleet.apply("n1", sample(2.0, cpu__used=1))
    fleet.apply("n1", message)

    assert fleet.take_changes() == {"n1"}


def test_a_fired_rule_needs_its_time_and_its_distance_to_end() -> None:
    fleet, clock = made()
    levels = []
    for second, used in enumerate([96] * 12 + [94] * 3 + [91]):
        fleet.apply("n1", sample(float(second), mem__used=used))
        fleet.take_changes()
        levels.append(health(fleet).level)
        clock.now += 1

    assert levels == [Level.OK] * 10 + [Level.WARN] * 5 + [Level.OK]


def test_samples_survive_the_wire() -> None:
    fleet, _ = made()
    fleet.apply("n1", decode_message("sample", encode_message(sample(cpu__used=1.5))))

    assert mean_of("cpu.used")(fleet.node("n1").current) == 1.5
    assert highest_of("cpu.used")(fleet.node("n1").current) == 1.5


def test_silence_is_told_to_each_follower_once() -> None:
    fleet, clock = made()
    first, second = fleet.follow(), fleet.follow()
    fleet.apply("n1", sample(mem__used=5))
    fleet.take_changes()
    first.take()
    clock.now += 3.1
    fleet.take_changes()

    assert (first.take(), first.take(), second.take()) == ({"n1"}, frozenset(), {"n1"})
    assert fleet.take_changes() == frozenset()


def in_parts(fleet) -> list[int]:
    """How many nodes each look judges that has no time at all, until none is left."""
    told = [len(fleet.take_changes(0.0))]
    while fleet.behind:
        told.append(len(fleet.take_changes(0.0)))
    return told


def test_a_look_without_time_judges_a_few_and_the_next_one_goes_on() -> None:
    names = [f"n{place}" for place in range(LEAST * 2 + 3)]
    fleet, clock = made(*names)
    for name in names:
        fleet.apply(name, sample(mem__used=5))

    assert in_parts(fleet) == [LEAST, LEAST, 3]
    clock.now += 3.1
    assert in_parts(fleet) == [LEAST, LEAST, 3]
    assert all(fleet.node(name).health.level is Level.UNKNOWN for name in names)
    assert fleet.take_changes(0.0) == frozenset()


def test_a_picture_taken_in_parts_has_all_nodes_in_their_places() -> None:
    names = [f"n{place}" for place in range(LEAST * 2 + 3)]
    fleet, _ = made(*names)
    for place, name in enumerate(names):
        fleet.apply(name, sample(cpu__used=place))
    fleet.take_changes(0.0)
    assert fleet.past.span() is None, "a picture of a part of the nodes is none"
    fleet.take_changes(0.0)
    fleet.take_changes(0.0)

    span = fleet.past.span()
    assert span is not None
    frame = fleet.past.frame(span[1])
    assert frame is not None
    assert [frame.number(p, "cpu.used") for p in range(len(names))] == list(range(len(names)))


def test_a_small_fleet_has_a_picture_of_each_of_the_last_seconds_and_gaps() -> None:
    clock = Clock()
    fleet = JudgedFleet(Cluster(name="lab", nodes=(Node(name="n1"),)), clock, clock)
    for second in range(8):
        fleet.apply("n1", sample(cpu__used=second))
        if second not in (3, 4, 5):
            fleet.take_changes()
        clock.now += 1.0
    (_, end) = fleet.recent.span() or (0.0, 0.0)

    columns = fleet.recent.columns(end, 9)

    numbers = [None if one is None else one.number(0, "cpu.used") for one in columns]
    # A picture that came late stands in for at most two others.
    assert numbers == [None, 0, 1, 2, 2, 2, None, 6, 7]
    assert len([one for one in columns if one is columns[-1]]) == 1


def test_a_large_fleet_has_no_picture_each_second() -> None:
    fleet, clock = made(*(f"n{place}" for place in range(FEW + 1)))
    for _ in range(5):
        fleet.take_changes()
        clock.now += 1.0

    assert fleet.recent.span() is None
    assert fleet.past.span() is not None


def test_a_metric_that_stops_is_dropped_in_parts_too() -> None:
    names = [f"n{place}" for place in range(LEAST + 2)]
    fleet, clock = made(*names)
    for second in range(3):
        for name in names:
            fleet.apply(name, sample(float(second), mem__used=5, cpu__temp=40))
    in_parts(fleet)
    clock.now += 60
    for name in names:
        fleet.apply(name, sample(60.0, mem__used=5))
    for _ in range(3):
        in_parts(fleet)

    assert {fleet.node(name).value("cpu.temp") for name in names} == {None}


def told(skews, base=2e9):
    """The skew of a node after samples that arrived a second apart, so much ahead of our clock."""
    wall = Clock()
    fleet = Fleet(Cluster(name="lab", nodes=(Node(name="n1"),)), Clock(), wall)
    for number, skew in enumerate(skews):
        wall.now = base + number
        fleet.apply("n1", sample(base + number + skew, mem__used=5))
    return fleet.node("n1").skew


def test_samples_that_a_slow_link_held_up_are_no_clock_that_is_behind() -> None:
    assert told([0.0, -3.0, -8.0, -12.0, -20.0, -15.0]) == 0.0


def test_a_clock_that_was_set_is_noticed_in_both_directions() -> None:
    assert told([0.0, 30.0]) == 30.0
    assert told([0.0, *[-30.0] * 5]) == -30.0


def clocks_of(aheads, base=2e9):
    """A fleet whose nodes are so many seconds ahead of this machine, judged for a minute."""
    clock, wall = Clock(), Clock()
    names = [f"n{number}" for number in range(len(aheads))]
    nodes = tuple(Node(name=name) for name in names)
    fleet = JudgedFleet(Cluster(name="lab", nodes=nodes), clock, wall)
    for second in range(60):
        clock.now, wall.now = clock.now + 1, base + second
        for name, ahead in zip(names, aheads, strict=True):
            fleet.apply(name, sample(base + second + ahead, mem__used=5))
        fleet.take_changes()
    blamed = [n for n in names if any(r.check == "node.clock" for r in fleet.reasons_of(n))]
    return fleet, blamed


@pytest.mark.parametrize(
    ("aheads", "blamed", "told"),
    [
        ((0, 0, 0, 0), [], ""),
        ((3600, 3600.1, 3599.9), [], "the clock of this machine is 1 h 00 min behind its nodes'"),
        ((-500, -500, -500, -400), ["n3"], "is 8 min 20 s ahead of its nodes'"),
        ((3600, 3600), ["n0", "n1"], ""),
        ((3600, 20, -900, 0), ["n0", "n1", "n2"], ""),
        ((30, 0, 0, 0), ["n0"], ""),
    ],
)
def test_a_wrong_clock_of_this_machine_is_not_told_as_that_of_its_nodes(aheads, blamed, told):
    fleet, found = clocks_of(aheads)

    assert (found, told in fleet.clock_trouble) == (blamed, True)
    assert bool(fleet.clock_trouble) == bool(told)


def test_the_clock_of_this_machine_is_told_right_again():
    fleet, _ = clocks_of((60, 60, 60))
    clock, wall = fleet._clock, fleet._wall
    assert fleet.clock_trouble
    for second in range(60):
        clock.now, wall.now = clock.now + 1, wall.now + 1
        wall.now += 60 * (second == 0)
        for name in ("n0", "n1", "n2"):
            fleet.apply(name, sample(wall.now, mem__used=5))
        fleet.take_changes()

    assert fleet.clock_trouble == ""
    assert not any(fleet.reasons_of(name) for name in ("n0", "n1", "n2"))
