"""An agent that judges its node: what it sends is all that a console needs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.model.cluster import Cluster, Node
from rankdeck.state import sanitize
from rankdeck.state.fleet import Fleet
from rankdeck.state.fleet_history import MOST_AN_HOUR
from rankdeck.telemetry.fleet_updater import FleetUpdater
from rankdeck_agent.rules.levels import NODE_MORE, SUMMARY, Expected, Level
from rankdeck_agent.rules.report import expectations_fingerprint, health_of, shorten_report
from rankdeck_agent.sampler import NodeJudge, Reporter
from rankdeck_agent.seen_devices import SeenDevices
from rankdeck_agent.values import replace
from rankdeck_agent.wire import (
    BARE_LIMIT,
    REPORT_LIMIT,
    Event,
    HealthReport,
    Hello,
    Sample,
    WireError,
    decode_message,
    encode_message,
    split_time,
)
from rankdeck_simulator.devices import SimulatedGpus, SimulatedRdma

HEARTBEAT = 10.0
START = 2e9


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Pair:
    """One node and two consoles: one hears its full samples, the other only its health messages."""

    def __init__(self, expected=None, **node) -> None:
        self.clock, self.wall = Clock(), Clock()
        self.wall.now = START
        expect = dict(expected or {})
        cluster = Cluster(name="lab", nodes=(Node(name="n", **node),), expect=expect)
        self.full = Fleet(cluster, self.clock, self.wall)
        self.told = Fleet(cluster, self.clock, self.wall)
        self.intake = FleetUpdater("lab", self.told)
        wanted = Expected(node.get("gpus", 0), node.get("rdma", 0), "", expect)
        self.judge = NodeJudge(wanted, SeenDevices("b"), HEARTBEAT, clock=self.clock)
        self.reporter = Reporter(HEARTBEAT)
        self.sent: list[bytes] = []
        for fleet in (self.full, self.told):
            fleet.apply("n", Hello("n", True, START, "b", "1", 1.0, heartbeat=HEARTBEAT))
        self.seq = 0

    def beat(self, values, events=(), seconds=1.0, **holes) -> HealthReport | None:
        self.clock.now += seconds
        self.wall.now += seconds
        self.seq += 1
        sample = Sample(self.seq, self.wall.now, values, **holes)
        for event in events:
            self.full.apply("n", event)
            self.told.apply("n", event)
        whole = self.judge.judge(sample, tuple(events), {})
        self.full.apply("n", replace(sample, report=whole))
        said = self.reporter.due(whole, self.clock.now)
        if said is not None:
            self.reporter.sent(said, self.clock.now)
            self.sent.append(encode_message(said))
            self.intake.take("rankdeck/1/lab/n/health", self.sent[-1])
        self.full.take_changes()
        self.told.take_changes()
        return said

    @property
    def levels(self):
        return [fleet.node("n").health.level for fleet in (self.full, self.told)]


percent = st.floats(0, 100)
beats = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "disk.used": st.fixed_dictionaries({"/": st.floats(70, 99)}),
            "mem.used": st.fixed_dictionaries({"": st.floats(80, 100)}),
            "cpu.used": st.fixed_dictionaries({"": percent}),
            "gpu.temp": st.dictionaries(st.sampled_from(["0", "1"]), st.floats(60, 100)),
            "rdma.up": st.fixed_dictionaries({"mlx5_0/1": st.integers(0, 1)}),
            "gpu.ecc_uncorrected": st.fixed_dictionaries({"0": st.integers(0, 3)}),
            "gpu.mem_total": st.dictionaries(st.sampled_from(["0", "1"]), st.just(80e9)),
            "hwmon.fan": st.fixed_dictionaries({"a": st.integers(0, 1)}),
        },
    ),
    min_size=1,
    max_size=25,
)
READ = frozenset({"disk.used", "mem.used", "cpu.used", "gpu.temp", "rdma.up", "gpu.ecc_uncorrected", "gpu.mem_total", "hwmon.fan"})  # fmt: skip
xids = st.lists(st.sampled_from(["", "", "", "Xid 79: off the bus", "Xid 13: fault"]), max_size=25)


@given(beats, xids, st.sampled_from([1.0, 1.3, 7.0, 40.0]), st.sampled_from([0, 2]))
def test_levels_are_the_same_from_full_samples_and_from_what_is_sent(many, happens, step, gpus):
    """Whatever the deadband leaves out: no crossing of a threshold
    is hidden, not for one reading.
    """
    pair = Pair(gpus=gpus)
    for place, values in enumerate(many):
        text = happens[place] if place < len(happens) else ""
        events = [Event(pair.wall.now, "bad", "kernel.xid", text, "0")] if text else []
        failed = {"cpu.temp": "EIO"} if place % 5 == 4 else {}
        # A collector that is late says nothing in one sample; else each metric has its state.
        absent = () if place % 4 == 3 else tuple(READ - values.keys())
        lag = {"agent.lag": {"": 0.0}}
        pair.beat({**lag, **values}, events, step, failed=failed, absent=absent)
        assert pair.levels[0] is pair.levels[1]

    assert all(len(message) <= REPORT_LIMIT for message in pair.sent)


def test_reasons_evidence_and_coverage_are_those_of_the_samples() -> None:
    pair = Pair(gpus=2)
    pair.beat({"disk.used": {"/": 99.0}, "gpu.mem_total": {"0": 8e9}, "mem.used": {"": 5}})
    full, told = (fleet.node("n").health for fleet in (pair.full, pair.told))

    assert [(r.check, r.device, r.level, r.text) for r in told.reasons] == [
        (r.check, r.device, r.level, r.text) for r in full.reasons
    ]
    assert (told.evaluated, told.checks) == (full.evaluated, full.checks)


def test_a_heartbeat_of_a_node_that_is_well_differs_in_its_time_alone() -> None:
    pair = Pair()
    for used in (20.0, 21.0, 22.0) * 20:
        pair.beat({"cpu.used": {"": used}, "cpu.temp": {"": 50.0}})
    first, *beats = (split_time(payload) for payload in pair.sent[-3:])

    assert [said for _, said in beats] == [first[1]] * 2
    assert [at for at, _ in beats] == [first[0] + HEARTBEAT, first[0] + 2 * HEARTBEAT]
    pair.beat({"cpu.used": {"": 60.0}, "cpu.temp": {"": 50.0}})
    assert split_time(pair.sent[-1])[1] != first[1]
    assert pair.told.node("n").summary("cpu.used") == 60.0


def test_a_steady_node_says_it_as_a_heartbeat_only_and_far_less_than_its_samples() -> None:
    pair = Pair()
    for beat in range(100):
        noise = beat % 3
        pair.beat({"cpu.used": {"": 20.0 + noise}, "cpu.temp": {"": 50.0 + noise / 2}})

    assert 9 <= len(pair.sent) <= 12
    assert pair.levels == [Level.OK, Level.OK]


def test_it_is_said_at_once_but_never_more_than_once_a_second() -> None:
    pair = Pair()
    full = [{"disk.used": {"/": (1.0, 85.0, 99.0)[beat % 3]}} for beat in range(9)]
    said = [pair.beat(values, seconds=0.25) for values in full]

    assert [one is not None for one in said] == [b % 4 == 0 for b in range(9)]


def test_what_has_no_room_is_counted_and_its_level_stands() -> None:
    pair = Pair()
    mounts = {f"/mnt/a-rather-long-name-of-a-mount-{n:03d}": 99.0 for n in range(100)}
    pair.beat({"disk.used": mounts})
    told = decode_message("health", pair.sent[-1])
    health = pair.told.node("n").health

    assert len(pair.sent[-1]) <= REPORT_LIMIT
    assert len(told.reasons) + told.more == 100
    assert health.reasons[-1].check == NODE_MORE
    assert pair.levels == [Level.BAD, Level.BAD]


def test_many_of_one_check_leave_room_for_an_equally_bad_one_of_another() -> None:
    pair = Pair()
    mounts = {f"/mnt/a-rather-long-name-of-a-mount-{n:03d}": 99.0 for n in range(100)}
    pair.beat({"disk.used": mounts, "gpu.lost": {"3": 1, "4": 0}})
    reasons = pair.told.node("n").health.reasons

    assert {reason.check for reason in reasons} == {"disk.full", "gpu.lost", NODE_MORE}


SICK = {
    "gpu.temp": {str(n): 95.0 for n in range(8)},
    "gpu.ecc_uncorrected": {"1": 2},
    "gpu.remap_pending": {"1": 1},
    "gpu.recovery": {"1": 1},
    "gpu.nvlinks": {"1": 18},
    "gpu.nvlinks_active": {"1": 17},
    "rdma.up": {"mlx5_1/1": 0},
    "disk.used": {"/": 99.0, "/scratch": 90.0},
    "mem.used": {"": 99.5},
    "hwmon.fan": {"bmc": 1},
}


def test_a_sick_node_keeps_its_words() -> None:
    pair = Pair(gpus=8)
    for seconds in (1.0, 90.0, 1.0):
        pair.beat(SICK, seconds=seconds)
    full, told = (fleet.node("n").health.reasons for fleet in (pair.full, pair.told))

    assert len(full) > 12
    assert [r.text for r in told] == [r.text for r in full]
    assert 600 < len(pair.sent[-1]) <= REPORT_LIMIT


def journal(fleet: Fleet) -> list[tuple[str, str, str]]:
    return [(one.kind, one.check, one.device) for one in fleet.event_log.take()]


def test_a_demo_node_with_seven_faults_shows_the_words_of_each_and_ends_none() -> None:
    pair = Pair()
    made = (
        SimulatedGpus("n", ("hot", "ecc", "nvlink", "pcie")),
        SimulatedRdma("n", ("flap", "retx", "errors")),
    )
    steady = {"gpu.ecc", "gpu.nvlink", "gpu.pcie", "gpu.recovery", "gpu.temp", "link.flap"}
    for _ in range(400):
        readings = [one.collect(pair.clock.now) for one in made]
        pair.beat({m: d for r in readings for m, d in r.values.items()})
    reasons = pair.told.node("n").health.reasons
    lines = journal(pair.told)

    assert steady <= {reason.check for reason in reasons}
    assert all(reason.sentence.action and reason.check not in reason.text for reason in reasons)
    assert not any(kind == "ended" and check in steady for kind, check, _ in lines)
    assert NODE_MORE not in {check for _, check, _ in lines}
    assert len(lines) < MOST_AN_HOUR / 2


@pytest.mark.parametrize("many", [5, 41, 45, 60, 80, 200])
def test_what_is_listed_does_not_alternate_while_numbers_move(many: int) -> None:
    """Each reading has other digits, so other texts and lengths."""
    pair = Pair()
    listed = set[tuple[str, ...]]()
    for beat in range(60):
        used = 95.0 + (beat * 7 % 50) / 10
        mounts = {f"/m{'x' * (n % 9)}{n}": used for n in range(many)}
        pair.beat({"disk.used": mounts, "mem.used": {"": 96.0}}, seconds=1.0 if beat else 20.0)
        if beat >= 20:
            listed.add(tuple(r.device for r in pair.told.node("n").health.reasons))
    began = [row for row in journal(pair.told) if row[0] == "began"]

    assert len(listed) == 1
    assert len(began) == len(set(began)) <= 65
    assert not any(row[0] == "ended" for row in journal(pair.told))
    assert all(len(message) <= REPORT_LIMIT for message in pair.sent)


def test_what_loses_its_room_to_something_worse_has_not_ended() -> None:
    pair = Pair()
    mild = {f"/m{n:03d}": 85.0 for n in range(20)}
    worse = {f"/w{n:03d}": 99.0 for n in range(40)}
    pair.beat({"disk.used": mild})
    journal(pair.told)
    pair.beat({"disk.used": {**mild, **worse}})
    crowded = journal(pair.told)
    pair.beat({"disk.used": {**mild, **dict.fromkeys(worse, 10.0), "/m000": 10.0}})
    after = journal(pair.told)

    assert {row[0] for row in crowded} == {"began"}
    assert ("ended", "disk.full", "/m000") in after
    assert not any(row[2] in mild and row[2] != "/m000" for row in after)
    assert {row[2] for row in after if row[0] == "ended"} >= {row[2] for row in crowded}


def test_a_silent_node_has_ended_nothing() -> None:
    pair = Pair()
    pair.beat({"disk.used": {"/": 99.0}})
    journal(pair.told)
    pair.clock.now += 100
    pair.wall.now += 100
    pair.told.take_changes()
    silent = journal(pair.told)
    pair.beat({"disk.used": {"/": 99.0}}, seconds=20.0)
    heard = journal(pair.told)
    pair.beat({"disk.used": {"/": 10.0}}, seconds=20.0)

    assert silent == [("began", "node.silent", "")]
    assert heard == [("ended", "node.silent", "")]
    assert journal(pair.told) == [("ended", "disk.full", "/")]


def test_a_node_that_is_well_says_it_in_few_bytes() -> None:
    pair = Pair(gpus=8, rdma=8)
    for beat in range(30):
        well = {metric: {str(n): 12.345678 + beat for n in range(8)} for metric in SUMMARY}
        pair.beat(
            {**well, "disk.used": {"/": 50.0}, "gpu.temp": {"0": 40.0}, "cpu.cores": {"": 256}}
        )

    assert pair.levels == [Level.OK, Level.OK]
    assert max(map(len, pair.sent)) <= BARE_LIMIT


def test_more_reasons_than_a_reader_takes_are_counted() -> None:
    rows = [["disk.full", 3, f"/{n}", None, ""] for n in range(300)]
    told = decode_message(
        "health", json.dumps({"at": 1, "level": 3, "heartbeat": 9, "reasons": rows}).encode()
    )

    assert len(told.reasons) + told.more == 300
    kept = sanitize.checked_report(told)
    assert len(kept.reasons) + kept.more == 300


def test_a_sentence_that_was_cut_is_completed_from_our_own_table() -> None:
    row = ("disk.full", 3, "/", 5.0, "/ is 99% full")
    health = health_of(HealthReport(START, 3, 10.0, reasons=(row,)), 100.0)

    assert health.reasons[0].sentence.action == "free space"
    assert health.reasons[0].since == 95.0


def test_without_words_a_reason_still_says_what_and_where() -> None:
    row = ("new.check", 2, "x1", None, "")
    health = health_of(HealthReport(START, 2, 10.0, reasons=(row,)), 100.0)

    assert health.reasons[0].text == "new.check of x1"


def test_a_level_without_a_reason_is_believed() -> None:
    health = health_of(HealthReport(START, 3, 10.0), 100.0)

    assert (health.level, health.reasons[0].check) == (Level.BAD, NODE_MORE)


def test_the_message_has_three_states_of_a_number() -> None:
    pair = Pair()
    failed = {"mem.used": "EIO"}
    pair.beat({"cpu.used": {"": 12.0}}, failed=failed, absent=("gpu.temp",))
    node = pair.told.node("n")

    assert (node.summary("cpu.used"), node.summary("mem.used")) == (12.0, None)
    assert (node.lacks("mem.used"), node.lacks("gpu.temp")) == (True, False)


def test_expectations_have_a_fingerprint_that_the_order_does_not_change() -> None:
    one = Expected(8, 0, "", {"a": 1, "b": "x"})
    two = Expected(8, 0, "", {"b": "x", "a": 1})

    assert (
        expectations_fingerprint(one)
        == expectations_fingerprint(two)
        != expectations_fingerprint(replace(one, gpus=4))
    )
    assert expectations_fingerprint(Expected()) == ""


def test_whoever_looks_only_twice_is_told_what_is_wrong() -> None:
    clock = Clock()
    judge = NodeJudge(Expected(), SeenDevices("b"), HEARTBEAT, brief=True, clock=clock)
    hot = Sample(1, START, {"gpu.temp": {"0": 90.0}})
    first = judge.judge(hot, (), {})
    clock.now += 1
    second = judge.judge(replace(hot, at=START + 1), (), {})

    assert (first.level, second.level) == (Level.OK, Level.WARN)


def test_a_new_connection_is_told_at_once() -> None:
    pair = Pair()
    pair.beat({"cpu.used": {"": 1.0}})
    assert pair.beat({"cpu.used": {"": 1.0}}) is None
    pair.reporter.forget()

    assert pair.beat({"cpu.used": {"": 1.0}}) is not None


BAD = [
    b"{}", b"[]", b"null", b"\xff", b'{"at":1,"level":7,"heartbeat":1}', b'{"at":1,"level":0,"heartbeat":0}',
    b'{"at":1,"level":true,"heartbeat":9}', b'{"at":"x","level":0,"heartbeat":9}', b'{"at":NaN,"level":0,"heartbeat":9}',
    b'{"at":1,"level":0,"heartbeat":9,"reasons":{}}', b'{"at":1,"level":0,"heartbeat":9,"reasons":[[1,2,3,4,5]]}',
    b'{"at":1,"level":0,"heartbeat":9,"reasons":[["a",3,"",null,"worse than the level"]]}',
    b'{"at":1,"level":0,"heartbeat":9,"numbers":{"cpu.used":"1"}}', b'{"at":1,"level":0,"heartbeat":9,"numbers":[]}',
    b'{"at":1,"level":0,"heartbeat":9,"failed":[1]}', b'{"at":1,"level":0,"heartbeat":9,"more":-1}',
    b'{"at":1,"level":0,"heartbeat":9,"grown":{"a":1}}', b'{"at":1,"level":0,"heartbeat":9,"expect":3}',
]  # fmt: skip


@pytest.mark.parametrize("payload", BAD)
def test_a_health_message_with_one_wrong_field_is_refused(payload) -> None:
    with pytest.raises(WireError):
        decode_message("health", payload)


def test_a_key_of_a_later_version_is_ignored() -> None:
    told = decode_message("health", b'{"at":1.5,"level":0,"heartbeat":9,"new":[1]}')

    assert told == HealthReport(1.5, 0, 9)


@given(
    st.lists(
        st.tuples(st.text(max_size=64), st.text(max_size=64), st.text(max_size=300)), max_size=64
    )
)
def test_a_message_is_never_too_long(reasons) -> None:
    rows = tuple((check, 3, device, 1.5, text) for check, device, text in reasons)
    numbers = dict.fromkeys(SUMMARY, 123456789.0)
    whole = HealthReport(START, 3, 30.0, (1 << 26) - 1, (1 << 26) - 1, rows, 0, numbers)
    cut = shorten_report(whole)

    assert len(encode_message(cut)) <= REPORT_LIMIT
    assert len(cut.reasons) + cut.more == len(rows)
    assert json.loads(encode_message(cut))["level"] == 3
