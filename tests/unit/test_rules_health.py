import errno
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck.values import replace
from rankdeck_agent.collectors.kernel_log import LOG_CLOSED
from rankdeck_agent.collectors.rdma_ports import SATURATED
from rankdeck_agent.rules.coverage import cover_checks, coverage_words, explain_checks
from rankdeck_agent.rules.derived import derive_numbers
from rankdeck_agent.rules.facts import Facts, Memory
from rankdeck_agent.rules.judge import assess_node
from rankdeck_agent.rules.levels import Expected, Level
from rankdeck_agent.rules.metric_words import WORDS
from rankdeck_agent.rules.table import CHECKS, RULES
from rankdeck_agent.wire import METRICS, Event
from tests.support.cases import each


def judged(**facts):
    return assess_node(Facts(now=0.0, **facts), Memory())[0]


def found(check, **facts):
    return [reason for reason in judged(**facts).reasons if reason.check == check]


def held(seconds, **facts):
    """Health after the same facts held for so long."""
    memory = Memory()
    for now in range(seconds + 1):
        health, memory = assess_node(Facts(now=float(now), **facts), memory)
    return health


def told(health, check):
    return [reason for reason in health.reasons if reason.check == check]


# ---- coverage


def test_a_node_without_any_known_number_is_unknown_not_ok() -> None:
    assert judged(values={}).level is Level.UNKNOWN
    assert judged(values={"shoe.size": {"": 1}}).level is Level.UNKNOWN


def test_there_are_25_checks_and_a_node_without_gpus_has_fewer() -> None:
    absent = frozenset(name for name in METRICS if name.startswith(("gpu", "rdma")))
    health = judged(values={"mem.used": {"": 5}}, absent=absent)

    assert [check.number for check in CHECKS] == list(range(1, 26))
    assert judged(values={"mem.used": {"": 5}}).checks == 25
    assert health.checks == 14
    assert health.evaluated == 1


def test_growth_is_not_judged_by_one_reading() -> None:
    facts = Facts(now=0.0, values={"rdma.retx": {"a": 5}, "mem.used": {"": 5}})
    first, memory = assess_node(facts, Memory())
    second, _ = assess_node(facts, memory)

    assert (first.evaluated, second.evaluated) == (1, 2)


@settings(suppress_health_check=list(HealthCheck))
@given(st.sets(st.sampled_from(sorted(METRICS))), st.sets(st.sampled_from(sorted(METRICS))))
def test_coverage_adds_up(there, absent) -> None:
    facts = Facts(
        now=0.0,
        values={name: {"": 0} for name in there - absent},
        absent=frozenset(absent),
    )
    covered = cover_checks(facts, settled=True)
    findings = explain_checks(facts, derive_numbers(facts), Memory(), covered, ())
    states = [finding.state for finding in findings]

    assert covered.judged <= covered.applicable
    assert states.count("n/a") == 25 - len(covered.applicable)
    assert states.count("ok") == len(covered.judged)
    assert states.count("unknown") == len(covered.applicable - covered.judged)


# ---- the table


DERIVED = frozenset({
    "gpu.hangs", "gpu.gone", "nvme.gone", "cpu.missing", "mem.missing", "gpu.missing", "gpu.unlisted", "gpu.action", "gpu.fabric_fault", "gpu.nvlinks_down", "gpu.slowed_now", "gpu.brake_now", "gpu.slow", "gpu.capped", "rdma.down", "rdma.odd", "rdma.missing", "rdma.slow", "net.down", "net.slow",
    "disk.unmounted", "node.skew", "node.unlike", "node.like",
})  # fmt: skip
"""Metrics of the table that `derive_numbers` makes; a row of any other is read from the wire."""


@each([row for row, rule in enumerate(RULES) if rule.metric not in DERIVED])
def test_every_row_fires_ends_and_speaks(row) -> None:
    rule = RULES[row]
    good, bad = (10.0**9, rule.enter) if rule.below else (0.0, rule.enter)
    device = "0" if rule.only or rule.over else ""

    def facts(now, number):
        whole = rule.at_least or 1
        values = {rule.metric: {device: number * whole}, "mem.available": {"": 1}}
        if rule.over:
            values[rule.over] = {device: whole}
        if rule.only:
            values[rule.only[0]] = {device: rule.only[1]}
        return Facts(now=now, values=values)

    memory, steps = Memory(), [(0.0, good if not rule.falls else 9)]
    if rule.falls:
        steps += [(n + 1.0, (n + 1) % 2) for n in range(int(2 * rule.enter))]
    else:
        steps += [
            (10.0, bad * (1.01 if not rule.below else 1)),
            (11.0 + rule.hold, bad * (1.01 if not rule.below else 1)),
        ]
    for now, number in steps:
        health, memory = assess_node(facts(now, number), memory)
    over = steps[-1][0] + rule.window + rule.linger + 1
    for now in (over, over + 1, over + 2 + rule.linger):
        ended, memory = assess_node(facts(now, good if not rule.window else steps[-1][1]), memory)

    assert any(r.check == rule.check and r.level >= rule.level for r in health.reasons)
    assert not [r for r in ended.reasons if r.check == rule.check and r.level is rule.level]
    assert rule.metric in METRICS
    assert all(r.text.count(" · ") == 2 for r in health.reasons)


@each((rule,) for rule in RULES)
def test_every_row_knows_its_metric_and_ends_on_the_good_side(rule) -> None:
    assert rule.metric in METRICS or rule.metric in DERIVED
    assert not rule.over or rule.over in METRICS
    assert (rule.clear >= rule.enter) if rule.below else (rule.clear <= rule.enter)


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(st.floats(80.01, 84.99), min_size=2, max_size=60))
def test_between_the_two_lines_nothing_changes(temperatures) -> None:
    """No flapping inside the hysteresis: 85 is hot, 80 is cool, what was stays."""

    def run(start):
        memory, levels = Memory(), []
        for now, value in enumerate([start] * 62 + temperatures):
            facts = Facts(now=float(now), values={"gpu.temp": {"0": value}})
            health, memory = assess_node(facts, memory)
            levels.append(bool(told(health, "gpu.temp")))
        return set(levels[62:])

    assert run(70.0) == {False}
    assert run(86.0) == {True}


@settings(suppress_health_check=list(HealthCheck))
@given(st.permutations(["disk.used", "gpu.temp", "mem.used", "gpu.ecc_uncorrected", "net.up"]))
def test_the_order_of_metrics_makes_no_difference(order) -> None:
    numbers = {
        "disk.used": {"/": 99, "/data": 85},
        "gpu.temp": {"0": 99, "1": 50},
        "mem.used": {"": 99},
        "gpu.ecc_uncorrected": {"0": 2},
        "net.up": {"eth0": 0},
    }
    seen = frozenset({("net.up", "eth0")})

    def run(names):
        memory = Memory()
        for now in (0.0, 100.0):
            facts = Facts(now=now, values={n: numbers[n] for n in names}, seen_up=seen)
            health, memory = assess_node(facts, memory)
        return health

    assert run(order) == run(sorted(numbers))


def test_only_the_worst_of_one_check_is_shown() -> None:
    reasons = judged(values={"disk.used": {"/": 99, "/data": 85, "/tmp": 10}}).reasons

    assert [(r.device, r.level) for r in reasons] == [
        ("/", Level.BAD),
        ("/data", Level.WARN),
    ]


def test_load_is_judged_per_core() -> None:
    cores = {"cpu.cores": {"": 8}}

    assert held(300, values={"cpu.load1": {"": 15.0}, **cores}).level is Level.OK
    assert held(300, values={"cpu.load1": {"": 17.0}, **cores}).level is Level.WARN


def test_pcie_is_judged_only_under_load() -> None:
    lanes = {"gpu.pcie_width": {"0": 8}, "gpu.pcie_width_max": {"0": 16}}

    assert not told(held(61, values={**lanes, "gpu.used": {"0": 0}}), "gpu.pcie")
    assert told(held(61, values={**lanes, "gpu.used": {"0": 90}}), "gpu.pcie")


GPUS = [str(n) for n in range(8)]
EQUAL = {f"gpu.{n}.model": "NVIDIA H100 80GB HBM3" for n in GPUS}


def eight(metric, others, **odd):
    """Eight GPUs of which those named `_N` differ."""
    return {metric: {n: odd.get(f"_{n}", others) for n in GPUS}}


@each(
    (
        (eight("gpu.clock", 1980e6, _3=345e6), 98, {("gpu.slow", "3")}),
        (eight("gpu.clock", 1980e6, _3=345e6), 3, set()),
        (eight("gpu.clock", 1980e6, _3=1200e6), 98, set()),
        (eight("gpu.clock", 345e6), 98, set()),
        (
            eight("gpu.clock", 1980e6, _1=345e6, _6=400e6),
            98,
            {("gpu.slow", "1"), ("gpu.slow", "6")},
        ),
        (eight("gpu.clock", 1980e6, _0=345e6, _1=345e6, _2=345e6, _3=345e6), 98, set()),
        (eight("gpu.power_limit", 700, _5=200), 0, {("gpu.capped", "5")}),
        (eight("gpu.power_limit", 700, _5=690), 0, set()),
    )
)
def test_one_of_equal_gpus_that_is_unlike_the_others_stands_out(numbers, used, odd) -> None:
    values = {**numbers, **eight("gpu.used", used)}
    health = held(61, values=values, inventory=EQUAL)

    assert {(r.check, r.device) for r in health.reasons} == odd
    assert health.level <= Level.WARN


def test_gpus_of_other_models_and_too_few_are_not_compared() -> None:
    limits = {"gpu.power_limit": {"0": 700, "1": 700, "2": 700, "3": 72}}
    mixed = {**EQUAL, "gpu.3.model": "NVIDIA L4"}

    assert not told(held(61, values=limits, inventory=mixed), "gpu.capped")
    pair = {"gpu.power_limit": {"0": 700, "1": 200}}
    assert not told(held(61, values=pair, inventory=EQUAL), "gpu.capped")
    (reason,) = told(held(61, values=limits, inventory=EQUAL), "gpu.capped")
    assert reason.text.startswith("GPU 3 may take 72 W, 3 of 4 like it at 700 W")


def test_memory_of_an_idle_gpu_is_a_leftover_after_half_an_hour() -> None:
    values = {
        "gpu.mem_used": {"0": 50e9}, "gpu.mem_total": {"0": 80e9}, "gpu.used": {"0": 0},
    }  # fmt: skip

    assert not told(held(1799, values=values), "gpu.held")
    assert told(held(1801, values=values), "gpu.held")


def test_the_picture_of_a_small_graphics_chip_is_no_leftover() -> None:
    values = {
        "gpu.mem_used": {"0": 60e6}, "gpu.mem_total": {"0": 512e6}, "gpu.used": {"0": 0},
    }  # fmt: skip

    assert not told(held(1801, values=values), "gpu.held")


# ---- growth


def counted(readings, metric="rdma.retries_exhausted", **facts):
    memory = Memory()
    for now, number in readings:
        values = {metric: {"mlx5_0/1": number}}
        health, memory = assess_node(Facts(now=float(now), values=values, **facts), memory)
    return health


def test_an_error_is_remembered_for_its_window_and_a_reset_is_no_error() -> None:
    assert told(counted([(0, 5), (10, 6), (200, 6)]), "rdma.retries")
    assert not told(counted([(0, 5), (10, 6), (320, 6)]), "rdma.retries")
    assert not told(counted([(0, 500), (10, 0)]), "rdma.retries")
    assert not told(counted([(0, 500)]), "rdma.retries")


def test_judging_the_same_sample_twice_counts_it_once() -> None:
    readings = [(0, 0), (1, 59), (1, 59), (2, 59)]

    assert not told(counted(readings, "rdma.retx"), "rdma.retx")
    assert told(counted([*readings, (3, 61)], "rdma.retx"), "rdma.retx")


def flapping(times, apart, **facts):
    readings = [(0, 1)]
    for n in range(times):
        readings += [(n * apart + 10, 0), (n * apart + 20, 1)]
    return told(counted(readings, "rdma.up", **facts), "link.flap")


def test_two_falls_in_an_hour_warn_and_three_in_twelve_are_bad() -> None:
    assert not flapping(1, 600)
    assert flapping(2, 600)[0].level is Level.WARN
    assert not flapping(2, 4000)
    assert flapping(3, 4000)[0].level is Level.BAD


def test_after_a_boot_links_may_come_and_go() -> None:
    assert not flapping(3, 60, uptime=600.0)
    assert flapping(3, 60, uptime=9000.0)


# ---- what was expected


def test_lost_gpus_are_bad_but_unread_ones_are_only_unknown() -> None:
    expected = Expected(gpus=8)
    eight = dict.fromkeys("01234567", 1)
    memory = {"mem.used": {"": 1}}

    lost = found("gpu.count", expected=expected, values={"gpu.used": {"0": 1}})
    assert (lost[0].level, lost[0].text.split(" · ")[0]) == (Level.BAD, "1 of 8 GPUs")
    absent = frozenset({"gpu.used", "gpu.mem_total"})
    gone = judged(expected=expected, absent=absent, values=memory)
    assert told(gone, "gpu.count")
    assert gone.evaluated == 2
    failed = {"gpu.used": "driver"}
    assert not found("gpu.count", expected=expected, failed=failed, values=memory)
    assert not found("gpu.count", expected=expected, values={"gpu.used": eight})
    other = Expected(other={"gpu_count": 8})
    assert found("gpu.count", expected=other, values={"gpu.used": {"0": 1}})


def down(seconds, **facts):
    return held(seconds, **facts).reasons


def test_a_link_is_bad_only_if_it_was_wanted_and_stays_down() -> None:
    links = {"net.up": {"eth0": 0, "eth1": 0}}

    assert not down(20, values=links)
    seen = frozenset({("net.up", "eth1")})
    assert not down(14, values=links, seen_up=seen)
    assert [r.device for r in down(15, values=links, seen_up=seen)] == ["eth1"]
    named = Expected(interface="eth0")
    assert [r.device for r in down(15, values=links, expected=named)] == ["eth0"]
    ports = {"rdma.up": {"mlx5_0/1": 1, "mlx5_1/1": 0}}
    assert [r.check for r in down(15, values=ports, expected=Expected(rdma=2))] == ["rdma.link"]
    assert not down(15, values=ports, expected=Expected(rdma=1))


def test_of_two_ports_and_where_enough_are_up_none_is_odd() -> None:
    def ports(up, links):
        return {"rdma.up": {f"mlx5_{n}/1": int(n < up) for n in range(links)}}

    assert not down(15, values=ports(1, 2))
    assert not down(15, values=ports(2, 4))
    assert not down(15, values=ports(8, 9), expected=Expected(rdma=8))
    assert {r.level for r in down(15, values=ports(8, 9))} == {Level.WARN}
    assert [r.level for r in down(15, values=ports(7, 9), expected=Expected(rdma=8))] == [
        Level.BAD,
        Level.BAD,
    ]


def test_gpus_on_the_bus_that_the_driver_does_not_list_are_told() -> None:
    values = {"gpu.on_bus": {"": 8}, "gpu.lost": {str(n): 0 for n in range(7)}}

    (reason,) = told(held(30, values=values), "gpu.count")

    assert reason.level is Level.WARN
    assert "7 of 8 GPUs" in reason.text
    assert not told(held(30, values={**values, "gpu.on_bus": {"": 7}}), "gpu.count")
    assert not told(held(30, values={"gpu.on_bus": {"": 8}}), "gpu.count")


def test_a_port_that_comes_back_is_good_only_after_two_minutes() -> None:
    memory, levels = Memory(), {}
    for now in range(200):
        facts = Facts(
            now=float(now),
            values={"rdma.up": {"a": int(now > 20)}},
            expected=Expected(rdma=1),
        )
        health, memory = assess_node(facts, memory)
        levels[now] = bool(told(health, "rdma.link"))

    assert [levels[now] for now in (14, 15, 30, 139, 141)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_rates_models_and_mounts_are_compared_with_the_cluster_file() -> None:
    expected = Expected(other={"rdma_rate_gbps": 100, "gpu_model": "A100", "mounts": "/, /scratch"})
    health = held(
        15,
        expected=expected,
        values={"rdma.rate": {"mlx5_0/1": 25e9}, "disk.used": {"/": 5}},
        inventory={"gpu.0.model": "NVIDIA A100-SXM4-80GB", "gpu.1.model": "Tesla T4"},
    )

    assert "25 Gbit/s, expected 100 Gbit/s" in told(health, "rdma.rate")[0].text
    assert "gpu.1.model is Tesla T4, expected A100" in told(health, "expect")[0].text
    assert [r.device for r in told(health, "disk.mounted")] == ["/scratch"]


def test_a_clock_that_is_off_is_said() -> None:
    reasons = told(held(11, skew=-30.0, values={"mem.used": {"": 1}}), "node.clock")

    assert "30 s behind" in reasons[0].text


@pytest.mark.parametrize(("action", "level"), [(0, None), (1, 3), (2, 3), (3, 2), (4, 3), (9, 3)])
def test_what_the_driver_asks_for_is_told_by_value(action, level) -> None:
    reasons = found("gpu.recovery", values={"gpu.recovery": {"0": action}})

    assert [r.level for r in reasons] == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("bits", "counted", "level", "check"),
    [
        (0x80, (), Level.BAD, "gpu.brake"),
        (0x48, (), Level.WARN, "gpu.slowdown"),
        (0x08, (), Level.WARN, "gpu.slowdown"),
        (0x88, (), Level.BAD, "gpu.brake"),
        (0x27, (), Level.OK, ""),
        (0x80, ("gpu.throttle_brake",), Level.OK, ""),
        (0x40, ("gpu.throttle_thermal",), Level.OK, ""),
    ],
)
def test_what_holds_the_clocks_down_is_told_where_nothing_counts_it(
    bits, counted, level, check
) -> None:
    values = {"gpu.throttle_reasons": {"0": bits}, **{name: {"0": 0} for name in counted}}

    health = held(31, values=values)

    assert health.level is level
    assert [r.check for r in health.reasons] == ([check] if check else [])
    assert held(5, values=values).level is Level.OK


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ({"gpu.fabric": 3, "gpu.fabric_status": 0}, Level.OK),
        ({"gpu.fabric": 2, "gpu.fabric_status": 0}, Level.BAD),
        ({"gpu.fabric": 1, "gpu.fabric_status": 0}, Level.BAD),
        ({"gpu.fabric": 3, "gpu.fabric_status": 999}, Level.BAD),
        ({"gpu.fabric": 3, "gpu.fabric_health": 0b01_10_10_10_10}, Level.OK),
        ({"gpu.fabric": 3, "gpu.fabric_health": 0b01}, Level.WARN),
        ({"gpu.fabric": 3, "gpu.fabric_health": 0b10000}, Level.BAD),
        ({"gpu.fabric": 3, "gpu.fabric_health": 5 << 8}, Level.BAD),
        ({"gpu.reset_required": 1}, Level.BAD),
    ],
)
def test_the_fabric_and_a_wanted_reset_are_judged(values, level) -> None:
    assert held(61, values={m: {"0": n} for m, n in values.items()}).level is level


@pytest.mark.parametrize(
    ("metric", "each_minute"),
    [("rdma.not_ready", 1000), ("rdma.xmit_wait", 10**9), ("rdma.congestion", 10**6)],
)
def test_a_full_fabric_is_a_warning_with_its_own_words_and_no_error(metric, each_minute) -> None:
    memory = Memory()
    for minute in range(6):
        values = {"rdma.errors": {"a/1": 0}, metric: {"a/1": minute * each_minute}}
        health, memory = assess_node(Facts(now=minute * 60.0, values=values), memory)

    (reason,) = health.reasons
    assert reason.level is Level.WARN
    assert "error" not in reason.text


# ---- events


def after(*events, later=0.0, boot="a", ends="a"):
    values = {"mem.used": {"": 1}}
    facts = Facts(now=0.0, at=2e9, values=values, events=events, boot=boot)
    _, memory = assess_node(facts, Memory())
    return assess_node(Facts(now=later, at=2e9 + later, values=values, boot=ends), memory)[0]


def xid(number, level="bad", at=2e9, device="0000:18:00"):
    return Event(at, level, "kernel.xid", f"Xid {number}, lost · reboot", device, number)


def test_an_xid_stays_until_a_reboot_or_three_days() -> None:
    assert after(xid(79), later=86400).level is Level.BAD
    assert after(xid(79), later=3 * 86400 + 1).level is Level.OK
    assert after(xid(79), later=60, ends="b").level is Level.OK
    assert [r.text for r in after(xid(79)).reasons] == [
        "Xid 79, lost · the driver reports an error of this GPU · reboot"
    ]


def test_what_an_application_did_says_nothing_against_the_node() -> None:
    assert after(xid(13, "info")).level is Level.OK


def test_two_xids_of_one_gpu_stand_beside_each_other_and_repeats_are_counted() -> None:
    health = after(xid(79), xid(63, "warn"), xid(63, "warn", at=2e9 + 5))

    assert health.level is Level.BAD
    texts = [r.text for r in after(xid(63, "warn"), xid(63, "warn", at=2e9 + 5)).reasons]
    assert texts[0].startswith("2 times: Xid 63")
    assert len(after(xid(63), xid(63)).reasons) == 1
    assert not after(xid(63), xid(63)).reasons[0].text.startswith("2 times")


@pytest.mark.parametrize(
    ("check", "worse", "milder"),
    [
        ("kernel.xid", ("NVLink NETIR error: Fatal", 149, 5), ("NVLink NETIR error: Nonfatal", 149, 6)),
        ("kernel.xid", ("NVLink NETIR error: Fatal", 149, 5), ("NVLink NETIR error: Nonfatal", 149, 5)),
        ("kernel.xid", ("NVLink error: fatal", 74, 3), ("NVLink error", 74, 7)),
        ("kernel.sxid", ("Fatal", 24007, 44), ("Data {0x1}", 24007, None)),
        ("kernel.edac", ("EDAC MC0: 1 UE on DIMM_A1", None, None), ("EDAC MC0: 1 CE on DIMM_A1", None, None)),
        ("kernel.disk", ("nvme nvme0: Disabling device after reset failure", None, None),
         ("nvme nvme0: I/O 7 QID 3 timeout, aborting", None, None)),
    ],
)  # fmt: skip
def test_a_milder_later_line_takes_back_no_worse_one(check, worse, milder) -> None:
    def event(later, level, seen):
        text, number, link = seen
        return Event(2e9 + later, level, check, text, "d", number, link)

    bad, warn = event(0, "bad", worse), event(0.4, "warn", milder)
    for events in ((bad, warn), (warn, bad), (bad, warn, bad)):
        health = after(*events)
        assert health.level is Level.BAD
        assert worse[0] in health.reasons[0].text
    assert after(bad, warn, event(1, "ok", worse)).level is not Level.BAD


def test_the_links_of_a_gpu_are_told_apart() -> None:
    def link(number, level):
        text = "Xid 149, NVLink NETIR error"
        return Event(2e9 + number, level, "kernel.xid", text, "0008:01:00", 149, number)

    older = Event(2e9, "bad", "kernel.xid", "Xid 74, NVLink error", "0008:01:00", 74, 3)
    reasons = after(older, link(5, "bad"), link(6, "warn"), link(14, "bad")).reasons

    assert [(r.device, r.level) for r in reasons] == [
        ("0008:01:00 link 14", Level.BAD),
        ("0008:01:00 link 3", Level.BAD),
        ("0008:01:00 link 5", Level.BAD),
        ("0008:01:00 link 6", Level.WARN),
    ]


def test_a_node_that_shouts_hides_no_worse_event() -> None:
    worst = Event(2e9, "bad", "kernel.xid", "Xid 79, lost", "0000:18:00")
    small = [Event(2e9 + n, "warn", "kernel.link", "down", f"eth{n}") for n in range(200)]

    assert after(worst, *small).level is Level.BAD


def test_an_ok_ends_what_the_same_check_said() -> None:
    def nfs(level):
        return Event(2e9, level, "kernel.nfs", "server not responding", "files")

    assert after(nfs("bad"), nfs("ok")).level is Level.BAD  # the same instant: told again
    ok = Event(2e9 + 9, "ok", "kernel.nfs", "server OK", "files")
    assert after(nfs("bad"), ok).level is Level.OK


def test_the_past_that_an_agent_tells_again_ages_as_it_should() -> None:
    old = Event(2e9 - 500, "warn", "kernel.oom", "killed a.out")

    assert after(old).level is Level.WARN
    assert after(old, later=101.0).level is Level.OK
    assert after(Event(2e9 - 700, "warn", "kernel.oom", "killed a.out")).level is Level.OK


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(st.builds(
    Event, st.floats(0, 4e9), st.sampled_from(["ok", "info", "warn", "bad", "?"]),
    st.text(max_size=20), st.text(max_size=40), st.text(max_size=10)), max_size=200))  # fmt: skip
def test_no_flood_of_events_fills_the_memory(events) -> None:
    facts = Facts(now=0.0, at=2e9, values={"mem.used": {"": 1}}, events=tuple(events))
    health, memory = assess_node(facts, Memory())

    assert len(memory.happened) <= 64
    assert len(health.reasons) <= 64


# ---- one node without a console


def test_one_function_judges_one_sample() -> None:
    values = {"disk.used": {"/": 99}, "mem.used": {"": 5}}
    health, memory = assess_node(Facts(now=0.0, values=values, boot="x"))

    assert (health.level, health.reasons[0].check) == (Level.BAD, "disk.full")
    assert memory.boot == "x"


def test_the_rules_run_on_the_oldest_python() -> None:
    old = Path.home() / ".pyenv/versions/3.9.18/bin/python"
    python = str(old) if old.exists() else sys.executable
    code = "import rankdeck_agent.rules.judge, rankdeck_agent.rules.judge, sys; print([m for m in sys.modules if m.startswith('rankdeck.')])"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [python, "-c", code], cwd=root / "agents", capture_output=True, text=True,
        timeout=300, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == "[]"


# ---- NVLinks


@pytest.mark.parametrize(
    ("model", "active", "words"),
    [
        ("NVIDIA H100 80GB HBM3", 18, ""),
        ("NVIDIA H100 80GB HBM3", 17, "17 of 18"),
        ("NVIDIA A100-SXM4-80GB", 0, "0 of 18"),
        ("", 0, "0 of 18"),
        ("NVIDIA A100 80GB PCIe", 0, ""),
        ("NVIDIA A100-PCIE-40GB", 4, ""),
        ("NVIDIA H100 NVL", 0, ""),
        ("NVIDIA RTX A6000", 0, ""),
        ("NVIDIA A40", 0, ""),
    ],
)
def test_nvlinks_that_are_down_are_bad_but_not_those_for_which_a_card_has_no_bridge(
    model, active, words
) -> None:
    values = {
        "gpu.nvlinks": {"0": 18, "1": 18},
        "gpu.nvlinks_active": {"0": active, "1": 18},
    }
    health = held(61, values=values, inventory={"gpu.0.model": model} if model else {})

    assert [words in reason.text for reason in told(health, "gpu.nvlink")] == [True] * bool(words)


# ---- what the agent is not permitted to read


GPU_NODE = {
    "values": {
        "gpu.mem_total": {"0": 1e9},
        "gpu.used": {"0": 1.0},
        "mem.used": {"": 1.0},
    }
}


@pytest.mark.parametrize("why", LOG_CLOSED.values())
def test_a_kernel_log_that_may_not_be_read_leaves_the_node_ok_and_says_what_to_do(
    why: str,
) -> None:
    health = judged(**GPU_NODE, failed={"kernel.events": why}, blind={"kernel.events"})
    free = judged(**GPU_NODE)

    assert health.level is Level.OK
    assert health.reasons == ()
    assert (health.evaluated, health.checks) == (free.evaluated - 1, free.checks)
    assert coverage_words(health) == coverage_words(replace(health, limits="")) + f"; {why}"


@pytest.mark.parametrize(
    ("failed", "blind"),
    [
        ({"kernel.events": "Input/output error (EIO)"}, set()),
        ({"kernel.events": LOG_CLOSED[errno.EPERM]}, set()),
        ({"disk.read": LOG_CLOSED[errno.EPERM]}, {"disk.read"}),
    ],
)
def test_no_other_error_passes_for_a_missing_permission(
    failed: dict[str, str], blind: set[str]
) -> None:
    health = judged(**GPU_NODE, failed=failed, blind=blind)

    assert health.level is Level.UNKNOWN
    assert health.limits == ""


CLEAN_PORT = {
    "rdma.up": {"mlx5_0/1": 1},
    "rdma.errors": {"mlx5_0/1": 15},
    "rdma.phys_errors": {"mlx5_0/1": 15},
}
STUCK = SATURATED.format(15)


def stuck(failed: Mapping[str, str]) -> frozenset[str]:
    """The keys whose counters are saturated."""
    return frozenset(key for key, why in failed.items() if why.endswith(STUCK))


@pytest.mark.parametrize(
    "failed",
    [
        {"rdma.counters.excessive_buffer_overrun_errors/mlx5_0/1": STUCK},
        {"rdma.counters.port_xmit_wait/mlx5_0/1": STUCK,
         "rdma.xmit_wait/mlx5_0/1": f"port_xmit_wait: {STUCK}"},
        {"rdma.counters.link_downed/mlx5_0/1": STUCK,
         "rdma.link_downs/mlx5_0/1": f"link_downed: {STUCK}"},
        {"rdma.counters.VL15_dropped/mlx5_0/1": "Invalid argument (EINVAL)"},
    ],
)  # fmt: skip
def test_a_counter_that_sticks_or_that_no_rule_reads_is_said_beside_a_good_node(failed) -> None:
    health = judged(values=CLEAN_PORT, failed=failed, blind=stuck(failed))

    assert (health.level, health.reasons) == (Level.OK, ())
    for key, why in failed.items():
        if "counters" in key:
            assert f"{key.split('/')[0].rpartition('.')[2]} of mlx5_0/1: {why}" in health.limits


def test_a_growing_error_counter_is_bad_beside_one_that_sticks() -> None:
    failed = {"rdma.counters.excessive_buffer_overrun_errors/mlx5_0/1": STUCK}
    memory = Memory()
    for now, errors in ((0.0, 15), (60.0, 915)):
        values = {**CLEAN_PORT, "rdma.phys_errors": {"mlx5_0/1": errors}}
        facts = Facts(now=now, values=values, failed=failed, blind=stuck(failed))
        health, memory = assess_node(facts, memory)

    assert health.level is Level.BAD
    assert "excessive_buffer_overrun_errors" in health.limits
    covered = cover_checks(facts, memory.settled)
    found = explain_checks(facts, derive_numbers(facts), memory, covered, health.reasons)
    assert "blind: excessive_buffer_overrun_errors of mlx5_0/1" in found[10].evidence


@pytest.mark.parametrize(
    "failed",
    [
        {"rdma.counters.symbol_error/mlx5_0/1": "Input/output error (EIO)"},
        {"rdma.phys_errors/mlx5_1/1": f"symbol_error: {STUCK}"},
        {"mem.used": STUCK},
        {"disk.used/mlx5_0/1": STUCK},
    ],
)
def test_what_a_rule_reads_and_nothing_replaces_leaves_the_node_unknown(failed) -> None:
    health = judged(values=CLEAN_PORT, failed=failed, blind=stuck(failed))

    assert health.level is Level.UNKNOWN
    assert health.limits == ""


def test_no_braces_in_a_name_stop_the_judge() -> None:
    failed = {"rdma.counters.{0.x}/{}": f"{STUCK}{{}}"}

    health = judged(values=CLEAN_PORT, failed=failed, blind=set(failed))

    assert "{0.x} of {}" in health.limits


def test_beside_a_kernel_log_that_may_not_be_read_other_errors_still_count() -> None:
    failed = {
        "kernel.events": LOG_CLOSED[errno.EPERM],
        "mem.free": "Input/output error",
    }

    (reason,) = found("agent.reads", **GPU_NODE, failed=failed, blind={"kernel.events"})

    assert "mem.free" in reason.text
    assert "kernel" not in reason.text


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ({"gpu.temp": {"0": 88}, "gpu.margin": {"0": 12}}, Level.OK),
        ({"gpu.temp": {"0": 88}}, Level.WARN),
        ({"gpu.mem_temp": {"0": 97}, "gpu.mem_margin": {"0": 11}}, Level.OK),
        ({"gpu.mem_temp": {"0": 93}, "gpu.mem_margin": {"0": 1}}, Level.WARN),
        ({"gpu.mem_temp": {"0": 97}}, Level.WARN),
        ({"gpu.temp": {"0": 70}, "gpu.margin": {"0": 0}}, Level.BAD),
        ({"cpu.temp": {"": 86}, "cpu.margin": {"": 19}}, Level.OK),
        ({"cpu.temp": {"": 96}}, Level.BAD),
        ({"nvme.live": {"nvme0": 0.5}}, Level.WARN),
        ({"nvme.live": {"nvme0": 0}}, Level.BAD),
    ],
)
def test_the_hardwares_own_limit_comes_before_ours(values, level) -> None:
    assert held(90, values={**values, "cpu.load1": {"": 1}}).level is level


def test_a_drive_may_start_again_for_a_moment() -> None:
    assert held(20, values={"nvme.live": {"nvme0": 0.5}}).level is Level.OK


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("gpu.used/1", "cannot read GPU 1 (gpu.used/1): no"),
        ("cpu.temp", "cannot read the processor (cpu.temp): no"),
        ("disk.used//data", "cannot read disk /data (disk.used//data): no"),
        ("gpu.power", "cannot read the GPUs (gpu.power): no"),
        ("mem.free", "cannot read memory (mem.free): no"),
    ],
)
def test_what_cannot_be_read_is_named_in_words_before_its_metric(key, said) -> None:
    (reason,) = found("agent.reads", **GPU_NODE, failed={key: "no"})

    assert reason.text.startswith(said)


def test_each_number_of_a_rule_has_words_and_no_evidence_shows_the_name_of_a_metric() -> None:
    read = {rule.metric for rule in RULES} | {rule.over for rule in RULES if rule.over}

    assert read == set(WORDS)
    assert not [
        words for words in WORDS.values() if words in METRICS or "." in words or "_" in words
    ]
