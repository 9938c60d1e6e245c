"""What an operator knows of is listed, but colours nothing until
it gets worse or the time is over.
"""

import pytest

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.health import Ack, Occurrence, parse_duration
from rankdeck.state.fleet import Fleet
from rankdeck.state.fleet_history import FLOOD, HOUR, MOST_AN_HOUR
from rankdeck.state.history import History
from rankdeck.state.judgement import apply_acknowledgements
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.wire import Event, Hello, Sample
from tests.support.judged_fleet import JudgedFleet

FULL = Reason("disk.full", Level.BAD, "/ is 99% full · a · b", "/")
HOT = Reason("cpu.temp", Level.WARN, "CPU at 88 °C · a · b")


def health(*reasons: Reason) -> Health:
    return Health(max(r.level for r in reasons), reasons, 20, 22)


def test_an_acknowledged_reason_is_listed_last_and_no_longer_counted() -> None:
    muted = apply_acknowledgements(
        health(FULL, HOT), (Ack("n1", "disk.full", 100, "ann", "ordered"),), 50
    )

    assert muted.level is Level.WARN
    assert [r.check for r in muted.reasons] == ["cpu.temp", "disk.full"]
    assert muted.reasons[1].acknowledged_until == 100
    assert muted.reasons[1].acknowledged_by == "ann: ordered"


@pytest.mark.parametrize(
    ("ack", "counts"),
    [
        (Ack("n1", "disk.full", 40, "ann"), True),  # over
        (Ack("n1", "disk.inodes", 100, "ann"), True),  # another check
        (Ack("n1", "disk.full", 100, "ann", device="/data"), True),
        (Ack("n1", "disk.full", 100, "ann", level=Level.WARN), True),  # it got worse
        (Ack("n1", "disk.full", 100, "ann", device="/"), False),
        (Ack("n1", "", 100, "ann"), False),  # silenced
    ],
)
def test_an_acknowledgement_covers_what_it_names(ack: Ack, counts: bool) -> None:
    assert (apply_acknowledgements(health(FULL), (ack,), 50).level is Level.BAD) is counts


def test_a_silenced_node_that_is_silent_is_not_ok() -> None:
    gone = Reason("node.silent", Level.UNKNOWN, "silent for 9 s · a · b")

    assert (
        apply_acknowledgements(health(gone), (Ack("n1", "", 100, "ann"),), 50).level
        is Level.UNKNOWN
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("4h", 14400), ("2d", 172800)]
)
def test_a_span_of_time_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "0h", "h", "-1h", "99999h"])
def test_what_is_no_span_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no time from 1s"):
        parse_duration(text)


# ---- kept in SQLite


def test_acknowledgements_are_kept_and_end(tmp_path) -> None:
    path = tmp_path / "history.db"
    with History(path) as one, History(path) as other:
        mine, theirs = one.nodes_of("lab"), other.nodes_of("lab")
        assert theirs.changed()
        assert not theirs.changed()
        mine.acknowledge(Ack("n1", "disk.full", 100, "ann", "x", "/", Level.WARN))
        mine.acknowledge(Ack("n2", "", 200, "bob"))

        assert theirs.changed()
        assert set(theirs.acks(50)) == {
            Ack("n1", "disk.full", 100, "ann", "x", "/", Level.WARN),
            Ack("n2", "", 200, "bob"),
        }
        assert [ack.node for ack in mine.acks(150)] == ["n2"]
        mine.acknowledge(Ack("n2", "", 0, "bob"))
        assert mine.acks(50) == (Ack("n1", "disk.full", 100, "ann", "x", "/", Level.WARN),)
        assert one.nodes_of("other").acks(0) == ()


def test_what_happened_is_kept_once_and_in_order(tmp_path) -> None:
    lines = [
        Occurrence(float(n), "n1", "event", Level.WARN, "kernel.oom", "", f"text {n}")
        for n in range(5)
    ]
    with History(tmp_path / "history.db") as history:
        log = history.nodes_of("lab")
        log.add(lines)
        log.add(lines[2:])

        assert log.recent(3) == tuple(lines[2:])
        assert history.nodes_of("other").recent(3) == ()


# ---- the journal


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def fleet() -> tuple[Fleet, Clock]:
    clock = Clock()
    return JudgedFleet(Cluster(name="lab", nodes=(Node(name="n1"),)), clock, clock), clock


def use(fleet: Fleet, clock: Clock, percent: float) -> None:
    clock.now += 1
    fleet.apply("n1", Sample(0, clock.now, {"disk.used": {"/": percent}}))
    fleet.take_changes()


def test_reasons_that_come_and_go_are_written_down_once() -> None:
    nodes, clock = fleet()
    nodes.take_changes()
    for percent in (10, 85, 86, 99, 99, 10, 10):
        use(nodes, clock, percent)

    told = [(o.kind, o.level, o.check) for o in nodes.event_log.take()]
    assert told == [
        ("began", Level.WARN, "disk.full"),
        ("began", Level.BAD, "disk.full"),
        ("ended", Level.OK, "disk.full"),
    ]
    assert nodes.event_log.take() == ()


def test_what_an_earlier_console_saw_is_not_told_twice() -> None:
    nodes, clock = fleet()
    event = Event(900.0, "warn", "kernel.oom", "killed a.out")
    nodes.apply("n1", event)
    use(nodes, clock, 99)
    kept = nodes.event_log.take()
    again, clock = fleet()
    again.event_log.restore(kept)
    again.apply("n1", event)
    use(again, clock, 99)
    use(again, clock, 10)

    assert [o.kind for o in kept] == ["event", "began", "began"]
    assert sorted((o.kind, o.check) for o in again.event_log.take()) == [("ended", "disk.full")]


def test_a_node_that_was_booted_again_says_so_and_forgets_its_xids() -> None:
    nodes, clock = fleet()
    nodes.apply("n1", Hello("n1", True, boot="a"))
    nodes.apply("n1", Event(2e9, "bad", "kernel.xid", "Xid 79, lost · reboot", "0"))
    use(nodes, clock, 10)
    assert nodes.node("n1").health.level is Level.BAD
    nodes.apply("n1", Hello("n1", True, boot="b"))
    use(nodes, clock, 10)

    assert [r.check for r in nodes.node("n1").health.reasons] == ["node.reboot"]


def test_an_acknowledgement_reaches_the_node_and_ends_by_itself() -> None:
    nodes, clock = fleet()
    use(nodes, clock, 99)
    nodes.set_acks([Ack("n1", "disk.full", clock.now + 10, "ann")])
    assert nodes.take_changes() == {"n1"}
    assert nodes.node("n1").health.level is Level.OK
    for _ in range(11):
        use(nodes, clock, 99)

    assert nodes.node("n1").health.level is Level.BAD


def test_the_past_is_remembered_in_pictures() -> None:
    nodes, clock = fleet()
    start = clock.now
    for n in range(40):
        use(nodes, clock, 99 if n >= 20 else 10)
        nodes.apply("n1", Sample(0, clock.now, {"mem.used": {"": float(n)}}))

    begin, end = nodes.past.span()
    assert begin <= start + 2
    assert end - begin >= 20
    assert nodes.past.frame(start + 2).level(0) is Level.OK
    assert nodes.past.frame(end).level(0) is Level.BAD
    assert nodes.past.frame(end).number(0, "gpu.used") is None
    numbers = nodes.past.series(0, "mem.used", end)
    assert numbers[-1] == nodes.past.frame(end).number(0, "mem.used") > 0
    assert nodes.past.frame(0.0) is nodes.past.frame(begin)


def test_a_node_that_floods_the_events_is_told_of_once_and_the_others_stay() -> None:
    nodes, _ = fleet()
    log = nodes.event_log
    log.event("n2", Event(900.0, "warn", "kernel.oom", "killed a.out"), 900.0)
    for n in range(3 * MOST_AN_HOUR):
        log.event("n1", Event(1000.0 + n, "warn", f"made.up.{n}", "so it goes"), 1000.0 + n)

    of_one = [one for one in log.newest if one.node == "n1"]
    assert len(of_one) == MOST_AN_HOUR + 1
    assert (of_one[-1].check, of_one[-1].level) == (FLOOD, Level.WARN)
    assert [one.node for one in log.newest].count("n2") == 1

    log.event("n1", Event(1000.0 + 2 * HOUR, "bad", "gpu.lost", "gone"), 1000.0 + 2 * HOUR)
    assert log.newest[-1].check == "gpu.lost"
