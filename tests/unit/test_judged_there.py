"""Nodes that their own agent judges, on the console: what it adds,
what it believes, what it asks for.
"""

import json

import pytest

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.health import UNHEARD, Ack, Occurrence
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.fleet_updater import FleetUpdater
from rankdeck.telemetry.node_telemetry import Telemetry
from rankdeck.ui.formatting import describe_worst_cause
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Expected, Level
from rankdeck_agent.rules.report import expectations_fingerprint
from rankdeck_agent.rules.table import CHECKS
from rankdeck_agent.telemetry import samples_wanted
from rankdeck_agent.wire import Event, HealthReport, Hello, Sample, encode_message

START = 2e9
FULL = ("disk.full", 3, "/", 5.0, "/ is 99% full · jobs fail when they write · free space")
HELD = ("gpu.held", 2, "0", 5.0, "GPU 0: 9% held")


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Lab:
    """Nodes, and what arrives of them."""

    def __init__(self, *names, expect=None) -> None:
        self.clock, self.wall = Clock(100.0), Clock(START)
        nodes = tuple(Node(name=name) for name in names or ("n1",))
        self.cluster = Cluster(name="lab", nodes=nodes, expect=expect or {})
        self.fleet = Fleet(self.cluster, self.clock, self.wall)

    def wait(self, seconds) -> None:
        self.clock.now += seconds
        self.wall.now += seconds

    def hear(self, *reasons, name="n1", ahead=0.0, retained=False, **more) -> None:
        level = max((row[1] for row in reasons), default=0)
        at = self.wall.now + ahead
        told = HealthReport(at, level, 10.0, 1 << 20 | 6, 6, reasons, **more)
        self.fleet.apply(name, told, retained=retained)

    def health(self, name="n1"):
        self.fleet.take_changes()
        return self.fleet.node(name).health

    def checks(self, name="n1"):
        return [reason.check for reason in self.health(name).reasons]


def test_before_anything_is_heard_all_checks_wait() -> None:
    assert Fleet(Cluster(name="c", nodes=(Node(name="n1"),))).node("n1").health == UNHEARD
    assert (UNHEARD.level, UNHEARD.evaluated, UNHEARD.checks) == (Level.UNKNOWN, 0, len(CHECKS))


def test_the_word_of_the_agent_is_the_health_without_any_sample() -> None:
    lab = Lab()
    lab.hear(FULL, numbers={"cpu.used": 12.5})

    assert (lab.health().level, lab.checks()) == (Level.BAD, ["disk.full"])
    assert lab.fleet.node("n1").summary("cpu.used") == 12.5
    assert lab.fleet.node("n1").held_s(lab.health().reasons[0]) == 5.0
    assert lab.fleet.node("n1").was_heard


def test_a_heartbeat_may_be_late_but_after_20_seconds_the_node_is_unknown() -> None:
    lab = Lab()
    lab.hear()
    levels = []
    for seconds in (10, 8, 2):
        lab.wait(seconds)
        levels.append(lab.health().level)

    assert levels == [Level.OK, Level.OK, Level.UNKNOWN]
    lab.hear()
    assert lab.health().level is Level.OK


def test_where_samples_are_asked_for_silence_is_noticed_as_soon_as_ever() -> None:
    lab = Lab()
    lab.fleet.apply("n1", Hello("n1", True, START, "b", "1", 1.0, heartbeat=10.0))
    lab.hear()
    lab.wait(9)
    lab.fleet.want(frozenset({"n1"}))
    assert lab.health().level is Level.OK, "what was just asked for takes a moment"
    lab.wait(6)

    assert lab.checks() == ["node.silent"]


def test_what_a_broker_had_kept_is_never_ok_but_what_was_wrong_stands() -> None:
    lab = Lab("n1", "n2")
    lab.hear(retained=True, numbers={"cpu.used": 1.0})
    lab.hear(FULL, name="n2", retained=True)

    assert (lab.health("n1").level, lab.health("n2").level) == (Level.UNKNOWN, Level.BAD)
    assert "node.remembered" in lab.checks("n1")
    assert lab.fleet.node("n1").summary("cpu.used") is None
    lab.hear(name="n2")
    assert lab.health("n2").level is Level.OK


def test_a_kept_message_that_comes_late_changes_nothing() -> None:
    lab = Lab()
    lab.hear(FULL)
    lab.hear(retained=True)

    assert lab.health().level is Level.BAD


def test_the_last_will_ends_what_was_remembered() -> None:
    lab = Lab()
    lab.hear(FULL, retained=True)
    lab.fleet.apply("n1", Hello("n1", False, heartbeat=10.0))

    assert lab.health().level is Level.UNKNOWN


HOT = ("gpu.temp", 3, "1", 5.0, "GPU 1 is at 95 °C · it throttles · look at fans")


def reopened(*told: tuple[str, str]) -> Lab:
    """A console that was closed while `HOT` was wrong, and is open again."""
    lab = Lab()
    rows = [
        Occurrence(START - 90, "n1", "began", Level.BAD, check, dev, HOT[4]) for check, dev in told
    ]
    lab.fleet.event_log.restore(rows)
    lab.fleet.recall()
    return lab


def kinds(lab: Lab) -> list[tuple[str, str]]:
    return [(one.kind, one.check) for one in lab.fleet.event_log.take()]


def test_what_was_bad_when_the_console_was_closed_stands_as_remembered_until_it_is_judged() -> None:
    lab = reopened(("gpu.temp", "1"))
    before = lab.health()
    lab.hear()
    begun = lab.health()
    for _ in range(9):
        lab.wait(8)
        lab.hear()

    assert (before.level, before.reasons[0].check) == (Level.BAD, "gpu.temp")
    assert (begun.level, describe_worst_cause(begun.reasons)) == (
        Level.BAD,
        "remembered: GPU 1 is at 95 °C",
    )
    assert [one.check for one in begun.reasons] == ["gpu.temp", "node.remembered"]
    lab.wait(8)
    lab.hear()
    assert lab.health().level is Level.OK
    assert kinds(lab) == [("ended", "gpu.temp")]


def test_a_node_that_was_heard_and_falls_silent_is_unknown_whatever_is_remembered_of_it() -> None:
    lab = reopened(("gpu.temp", "1"))
    lab.health()
    lab.hear()
    lab.health()
    lab.wait(26)

    assert (lab.health().level, lab.checks()) == (Level.UNKNOWN, ["node.silent"])
    lab.hear()
    assert (lab.health().level, lab.checks()) == (Level.BAD, ["gpu.temp", "node.remembered"])


def test_what_still_stands_after_reopening_is_neither_new_nor_remembered() -> None:
    lab = reopened(("gpu.temp", "1"))
    lab.health()
    lab.hear(HOT)

    assert lab.checks() == ["gpu.temp"]
    assert kinds(lab) == []


def test_what_an_installed_agent_says_counts_at_once() -> None:
    lab = reopened(("gpu.temp", "1"))
    lab.fleet.apply("n1", Hello("n1", True, START, "b", "1", 1.0, installed=True, heartbeat=10.0))
    lab.hear()

    assert lab.health().level is Level.OK
    assert kinds(lab) == [("ended", "gpu.temp")]


def test_that_a_node_was_not_reached_is_not_remembered_but_its_end_is_told() -> None:
    lab = reopened(("node.silent", ""))
    lab.hear()

    assert lab.health().level is Level.OK
    assert kinds(lab) == [("ended", "node.silent")]


def test_a_lost_message_is_made_good_by_the_next_heartbeat() -> None:
    lab = Lab()
    lab.hear()
    lab.wait(10)
    lab.hear(FULL)

    assert lab.health().level is Level.BAD


FULL_DISK = {"disk.used": {"/": 99.0}}


def test_numbers_without_a_health_report_leave_a_node_unknown_and_it_says_why() -> None:
    lab = Lab()
    lab.fleet.apply("n1", Sample(1, START, FULL_DISK))

    assert (lab.health().level, lab.checks()) == (Level.UNKNOWN, ["node.coverage"])
    assert "no health report" in lab.health().reasons[0].text
    assert lab.fleet.node("n1").value("disk.used", "/") == 99.0
    assert {one.state for one in lab.fleet.node("n1").findings()} == {"unknown"}
    lab.wait(4)
    assert lab.checks() == ["node.silent"]


def test_a_sample_without_a_report_takes_back_what_was_reported_before_it() -> None:
    lab = Lab()
    for retained in (True, False):
        lab.hear(retained=retained)
        lab.fleet.apply("n1", Sample(1, START, FULL_DISK))
        assert lab.checks() == ["node.coverage"]
    lab.hear()

    assert lab.health().level is Level.OK


@pytest.mark.parametrize("heartbeat", [0, -1, None, "x", 1e300])
def test_whatever_heartbeat_a_hello_names_only_the_health_counts(heartbeat) -> None:
    lab = Lab()
    lab.hear(FULL)
    lab.fleet.apply("n1", Hello("n1", True, START, "b", "1", 1.0, heartbeat=heartbeat))
    assert lab.checks() == ["disk.full"]
    lab.wait(20)

    assert lab.checks() == ["node.silent"]


def test_a_kind_of_message_that_is_not_known_is_refused_and_the_node_stays_as_it_is() -> None:
    lab = Lab()
    intake = FleetUpdater("lab", lab.fleet)
    lab.hear(FULL)
    intake.take("rankdeck/1/lab/n1/later", encode_message(HealthReport(START, 0, 10.0)))

    assert (lab.checks(), intake.refused) == (["disk.full"], {"n1": 1})


def test_other_expectations_are_said_and_never_leave_a_node_ok() -> None:
    lab = Lab(expect={"gpu_model": "A100"})
    lab.hear(expect="12345678")
    assert (lab.health().level, lab.checks()) == (Level.UNKNOWN, ["agent.expect"])
    assert lab.fleet.node("n1").older_expectations

    lab.hear(expect=expectations_fingerprint(Expected(other={"gpu_model": "A100"})))
    assert lab.health().level is Level.OK


def test_where_we_expect_nothing_what_the_agent_expects_is_only_told() -> None:
    lab = Lab()
    lab.hear(expect="12345678")

    assert lab.health().level is Level.OK
    assert lab.fleet.node("n1").older_expectations


def test_a_clock_that_is_an_hour_wrong_is_found_here() -> None:
    lab = Lab()
    for _ in range(3):
        lab.hear(ahead=3600.0)
        lab.health()
        lab.wait(8)

    assert lab.checks() == ["node.clock"]
    assert "1 h 00 min ahead" in lab.health().reasons[0].text


def test_whoever_looks_only_twice_finds_a_wrong_clock_too() -> None:
    lab = Lab()
    for _ in range(2):
        lab.hear(ahead=3600.0)
        lab.health()
        lab.wait(1)
    lab.fleet.take_as_lasting()

    assert lab.checks() == ["node.clock"]


def test_drift_and_coverage_are_added_here() -> None:
    lab = Lab("n1", "n2", "n3", "n4")
    for name in ("n1", "n2", "n3", "n4"):
        kernel = {"kernel": "5" if name == "n4" else "6"}
        lab.fleet.apply(name, Hello(name, True, START, "b", "1", 1.0, kernel, heartbeat=10.0))
        lab.hear(name=name)
    lab.fleet.compare_peers()

    assert (lab.checks("n4"), lab.checks("n1")) == (["drift"], [])
    assert lab.health("n1").evaluated == 3, "two by the agent, and the clock"


def test_what_a_job_of_ours_holds_is_not_left_over() -> None:
    lab = Lab()
    lab.hear(HELD)
    lab.fleet.set_busy(frozenset({"n1"}))
    assert lab.health().level is Level.OK
    lab.fleet.set_busy(frozenset())

    assert lab.health().level is Level.WARN


def test_an_acknowledgement_ends_although_nothing_is_heard_in_between() -> None:
    lab = Lab()
    lab.hear(FULL)
    lab.fleet.set_acks([Ack("n1", "disk.full", START + 10, "ann")])
    assert lab.health().level is Level.OK
    lab.wait(11)

    assert lab.health().level is Level.BAD


def test_a_boot_is_found_here_and_what_the_agent_saw_counts_once() -> None:
    lab = Lab()
    for boot in ("a", "b"):
        lab.fleet.apply("n1", Hello("n1", True, START, boot, "1", 1.0, heartbeat=10.0))
        lab.hear(("kernel.oom", 2, "", 1.0, "killed a.out"))
        lab.fleet.apply("n1", Event(START, "warn", "kernel.oom", "killed a.out"))

    assert sorted(lab.checks()) == ["kernel.oom", "node.reboot"]


def test_a_silent_node_keeps_what_happened_and_drops_what_was_so() -> None:
    lab = Lab()
    lab.hear(FULL, ("kernel.oom", 2, "", 1.0, "killed a.out"))
    lab.wait(60)

    assert lab.checks() == ["node.silent", "kernel.oom"]
    assert lab.health().level is Level.UNKNOWN


def test_numbers_of_samples_end_when_they_are_no_longer_asked_for() -> None:
    lab = Lab()
    lab.fleet.want(frozenset({"n1"}))
    told = HealthReport(START, 0, 10.0, numbers={"cpu.used": 50.0})
    for _ in range(3):
        lab.fleet.apply("n1", Sample(1, lab.wall.now, {"cpu.used": {"": 51.0}}, report=told))
        lab.wait(1)
    assert (lab.fleet.node("n1").value("cpu.used"), lab.fleet.node("n1").detailed) == (51.0, True)
    lab.fleet.want(frozenset())
    for _ in range(3):
        lab.wait(4)
        lab.hear(numbers={"cpu.used": 50.0})
        lab.health()

    node = lab.fleet.node("n1")
    assert (node.summary("cpu.used"), node.detailed, node.health.level) == (50.0, False, Level.OK)


class Wire:
    """A link that notes what is asked of it."""

    asked: frozenset[str] | None = frozenset()

    def want(self, names) -> None:
        self.asked = names


def test_agents_learn_by_their_lease_whether_samples_are_wanted() -> None:
    lab = Lab("n1", "n2")
    written: list[tuple[str, bool]] = []
    link = Wire()
    telemetry = Telemetry(None, link, lab.fleet)

    def writer(name):
        return lambda line: written.append((name, samples_wanted(json.loads(line), before=False)))

    for name in ("n1", "n2"):
        telemetry.started(name, writer(name))
    for names in (frozenset({"n1"}), frozenset({"n1"}), None, frozenset({"n2"})):
        lab.fleet.want(names)
        telemetry.want(names)
    telemetry.ended("n1")
    telemetry.started("n1", writer("n1"))

    assert written == [("n1", True), ("n2", True), ("n1", False)]
    assert link.asked == {"n2"}


class SiteWire(Wire):
    """A site's broker that is connected."""

    private, trouble, address = False, "", ("mqtt.site", 8883)


def test_an_agent_that_runs_but_is_never_heard_is_told_once_until_it_is_heard() -> None:
    lab = Lab("n1", "n2")
    now = [0.0]
    telemetry = Telemetry(None, SiteWire(), lab.fleet, clock=lambda: now[0])
    for name in ("n1", "n2"):
        telemetry.started(name, lambda _: None)
        telemetry.report(name, "its telemetry has started", well=True)
    lab.fleet.apply("n2", HealthReport(START, 0, 10.0))

    def troubles():
        telemetry.look()
        return [lab.fleet.node(name).failed_to_attach for name in ("n1", "n2")]

    assert troubles() == [False, False]
    now[0] = 31.0
    assert troubles() == [True, False]
    assert "mqtt.site:8883" in lab.fleet.node("n1").attach
    assert lab.fleet.node("n1").attach.endswith("there (ACL)?")
    lab.fleet.apply("n1", HealthReport(START, 0, 10.0))
    assert troubles() == [False, False]


def test_a_line_of_the_lease_that_says_nothing_changes_nothing() -> None:
    requests = ({}, {"samples": 1}, {"other": True})

    assert {(samples_wanted(one, True), samples_wanted(one, False)) for one in requests} == {
        (True, False)
    }


def test_a_heartbeat_that_is_too_long_hides_no_silence() -> None:
    lab = Lab()
    lab.fleet.apply("n1", replace(HealthReport(START, 0, 10.0), heartbeat=3600.0))
    assert lab.health().level is Level.OK
    lab.wait(130)

    assert lab.health().level is Level.UNKNOWN
