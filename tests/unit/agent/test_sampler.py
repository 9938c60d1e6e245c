"""The beat goes on, whatever a collector does."""

import threading

import pytest

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.sampler import Sampler
from rankdeck_agent.wire import Event


class Scripted:
    """A collector that does what the test says."""

    period = 0.0

    def __init__(self, name, act, period=0.0):
        self.name = self.lane = name
        self.metrics = (f"{name}.a", f"{name}.b")
        self.doing = ""
        self.period = period
        self._act = act

    def collect(self, now):
        reading = Reading()
        self._act(self, reading)
        return reading


def put(collector, reading):
    reading.put(collector.metrics[0], 1)


def test_what_is_present_absent_and_failed_is_kept_apart():
    def act(collector, reading):
        reading.put("x.a", 2)

    def broken(collector, reading):
        raise OSError(5, "Input/output error")

    sampler = Sampler([Scripted("x", act), Scripted("y", broken)])
    beat = sampler.take(limit=5)

    assert beat.sample.values["x.a"] == {"": 2}
    assert beat.sample.absent == ("x.b",)
    assert beat.sample.failed == {
        "y.a": "Input/output error (EIO)",
        "y.b": "Input/output error (EIO)",
    }


@pytest.mark.parametrize(
    "error", [ValueError("odd"), OSError(5, "I/O"), KeyError("k"), ZeroDivisionError()]
)
def test_a_collector_that_raises_loses_its_own_values_and_tells_once(error):
    def broken(collector, reading):
        raise error

    sampler = Sampler([Scripted("good", put), Scripted("bad", broken)])

    first, second = sampler.take(limit=5), sampler.take(limit=5)

    assert first.sample.values["good.a"] == second.sample.values["good.a"] == {"": 1}
    assert [(e.level, e.check) for e in first.events] == [("warn", "agent.bad")]
    assert second.events == []
    assert second.sample.seq == first.sample.seq + 1


def test_a_collector_that_hangs_is_named_once_and_again_when_it_answers():
    free, clock = threading.Event(), [0.0]

    def hang(collector, reading):
        collector.doing = "GPU 3"
        free.wait(30)
        put(collector, reading)

    sampler = Sampler(
        [Scripted("good", put), Scripted("gpu", hang)],
        clock=lambda: clock[0],
        patience=10,
    )
    late = sampler.take(limit=0.05)
    clock[0] = 12.0
    lost, still = sampler.take(limit=0.05), sampler.take(limit=0.05)
    free.set()
    back = sampler.take(limit=5)
    while "gpu.a" not in back.sample.values:
        back = sampler.take(limit=5)
        lost.events.extend(back.events)

    assert late.sample.values["good.a"] == {"": 1}
    assert "gpu.a" not in late.sample.failed
    assert "gpu.a" not in late.sample.absent
    assert lost.sample.failed["gpu.a"] == "no answer for 12 s, asking GPU 3"
    assert lost.events[0].text == "gpu: no answer for 12 s, asking GPU 3"
    assert still.events == []
    assert {e.level for e in [*lost.events, *back.events]} == {"warn", "ok"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_counts_as_hanging():
    clock = [0.0]

    def die(collector, reading):
        raise SystemExit

    sampler = Sampler(
        [Scripted("good", put), Scripted("dead", die)],
        clock=lambda: clock[0],
        patience=10,
    )
    sampler.take(limit=0.05)
    clock[0] = 11.0

    beat = sampler.take(limit=0.05)

    assert beat.sample.values["good.a"] == {"": 1}
    assert beat.sample.failed["dead.a"].startswith("no answer")


def test_a_slow_collector_is_read_at_its_own_period_and_its_last_numbers_stay():
    count, clock = [0], [0.0]

    def act(collector, reading):
        count[0] += 1
        reading.put("slow.a", count[0])

    sampler = Sampler([Scripted("slow", act, period=10.0)], clock=lambda: clock[0])

    values = [sampler.take(limit=5).sample.values["slow.a"] for _ in range(3)]

    assert values == [{"": 1}] * 3


def test_what_came_too_late_for_one_beat_is_in_the_next():
    slow, count = threading.Event(), [0]

    def act(collector, reading):
        count[0] += 1
        if count[0] == 1:
            slow.wait(30)
            reading.put("x.a", 1)
        else:
            reading.pending.add("x.a")
        reading.put("x.b", count[0])

    sampler = Sampler([Scripted("x", act)])
    late = sampler.take(limit=0.05)
    slow.set()
    while sampler._workers[0].busy:
        pass
    next_one, after = sampler.take(limit=5), sampler.take(limit=5)

    assert late.sample.values.keys() == {"agent.lag"}
    assert next_one.sample.values["x.a"] == {"": 1}
    assert next_one.sample.values["x.b"] == {"": 2}
    assert "x.a" not in after.sample.values


def test_a_metric_is_failed_or_pending_and_never_both():
    def act(collector, reading):
        reading.pending |= {"x.a", "x.b"}
        reading.fail(("x.a",), OSError(5, "Input/output error"), "0")

    taken = Sampler([Scripted("x", act)]).take(limit=5)

    assert taken.sample.failed == {"x.a/0": "Input/output error (EIO)"}
    assert taken.pending == {"x.b"}


def test_an_event_is_told_once_also_by_a_collector_that_is_read_seldom():
    def act(collector, reading):
        put(collector, reading)
        reading.events.append(Event(1.0, "bad", "kernel.xid", "Xid 79"))

    sampler = Sampler([Scripted("kernel", act, period=10.0)])

    told = [len(sampler.take(limit=5).events) for _ in range(3)]

    assert told == [1, 0, 0]


def test_an_event_that_came_while_nobody_waited_is_told_later():
    free, count = threading.Event(), [0]

    def act(collector, reading):
        free.wait(30)
        count[0] += 1
        put(collector, reading)
        reading.events.append(Event(count[0], "bad", "kernel.xid", "Xid 79"))

    sampler = Sampler([Scripted("kernel", act)])
    missed = sampler.take(limit=0.05)
    free.set()
    told = []
    while len(told) < 3:
        told += sampler.take(limit=5).events

    assert missed.events == []
    assert [e.at for e in told] == list(range(1, len(told) + 1))


def test_collectors_of_one_lane_have_periods_of_their_own():
    reads = {"often": 0, "seldom": 0}

    def act(collector, reading):
        reads[collector.name] += 1
        put(collector, reading)

    often, seldom = Scripted("often", act), Scripted("seldom", act, period=1000.0)
    seldom.lane = "often"
    sampler = Sampler([often, seldom])

    for _ in range(5):
        values = sampler.take(limit=5).sample.values

    assert reads == {"often": 5, "seldom": 1}
    assert values["seldom.a"] == {"": 1}
