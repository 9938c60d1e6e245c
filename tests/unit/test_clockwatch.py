"""A node whose clock is set in mid-job gives times by the new clock, and
a slow link is no clock that was set.
"""

import json
import time

from hypothesis import assume, given
from hypothesis import strategies as st

from rankdeck.backends.clock_watch import ClockWatch
from rankdeck.backends.node_stream import NodeStream
from rankdeck.model.plan import Plan
from rankdeck.state.jobs import Jobs
from rankdeck_agent.wire import NodePlan

NODE = NodePlan("j", "n1", (0,))


def told(stream, jobs, **head):
    found = stream.feed(json.dumps(head).encode() + b"\n")
    for event in found:
        jobs.apply(event)
    return [event for event in found if event.kind != "now"]


def test_what_happens_after_a_step_has_its_time_on_our_clock():
    jobs, now = Jobs(), time.time()
    jobs.add(Plan(job="j", name="t", cluster="c", backend="ssh", nodes=(NODE,)), now)
    stream = NodeStream(NODE, -1, jobs.positions_of("j"), "ssh")
    stream.reconnected(0.0, 0.01)
    assert told(stream, jobs, kind="now", at=now) == []
    (clock,) = told(stream, jobs, kind="now", at=time.time() + 30)
    end = told(stream, jobs, kind="exited", seq=0, rank=0, code=3, at=time.time() + 30)[0]

    assert abs(end.at - time.time()) < 1
    assert 0.01 < clock.body.uncertainty < 1
    assert "set by +30.0 s" in jobs.job("j").troubles[0]


def test_a_clock_set_back_is_known_after_some_stamps_that_agree():
    watch = ClockWatch(5.0, 0.02)
    for arrived in (100.0, 102.0, 104.0, 106.0, 108.0):
        watch = watch.after(arrived + 5.0 - 30.0 - 0.01, arrived)

    assert -25.1 < watch.offset < -24.9
    assert watch.uncertainty < 0.5


@given(st.floats(-4e7, 4e7), st.floats(-100, 100))
def test_a_step_of_our_own_clock_is_none_of_the_node(step, offset):
    """The node's clock and the steady one go on alike; ours jumps between two stamps."""
    # Times of today are known to a tenth of a microsecond: just at the limit both are right.
    assume(abs(abs(step) - 0.1) > 1e-6)
    watch, uncertainty = ClockWatch(offset, 0.02), 0.02
    for steady in range(0, 20, 2):
        ours = 1e9 + steady + (step if steady >= 10 else 0.0)
        watch = watch.beside(ours - steady).after(1e9 + steady + offset, ours)

    own = step if abs(step) > 0.1 else 0.0
    assert abs(watch.offset - (offset - own)) < 1e-6
    assert watch.uncertainty == uncertainty


@given(st.lists(st.floats(0, 60), min_size=1, max_size=30))
def test_stamps_that_a_link_held_up_and_then_let_go_are_no_step(stalls):
    watch, now = ClockWatch(0.0, 0.02), 100.0
    for stall in stalls:
        sent = [now + 2.0 * i for i in range(int(stall / 2) + 1)]
        now += stall
        for at in sent:
            watch = watch.after(min(at, now), now)
        now += 2.0

    assert watch.offset == 0.0


@given(st.lists(st.floats(0, 0.9), min_size=1, max_size=30), st.floats(-9, 9))
def test_a_clock_that_is_not_set_is_left_alone(delays, offset):
    watch = ClockWatch(offset, 0.02)
    for i, delay in enumerate(delays):
        watch = watch.after(2.0 * i + offset, 2.0 * i + delay)

    assert watch.offset == offset
