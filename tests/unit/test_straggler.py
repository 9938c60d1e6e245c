"""Slow, not silent: the rank that the others wait for is named, and a balanced job never."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.model.rank import Activity
from rankdeck.rules.rank_signs import KnownOfJob
from rankdeck.rules.stall import find_stalls
from rankdeck.values import replace
from tests.unit.test_stall import job, rank
from tests.unit.test_stall_by_looks import NOW, looks

COMPUTES = looks("R", "", 0.98, 0.01, count=8)
WAITS = looks("S", "ep_poll", 0.2, 0.3, count=8)
POLLS = looks("R", "", 0.98, 0.7, count=8)


def judged(some, known=None, **more):
    ranks = [rank(n, NOW - 1) for n in range(len(some))]
    known = known or KnownOfJob(looks=dict(enumerate(some)))
    return find_stalls(job(ranks, **more), NOW, known)


def test_who_computes_while_the_others_sleep_is_named() -> None:
    (found,) = judged([WAITS, COMPUTES, WAITS, WAITS])

    assert (found.kind, found.ranks) == ("slow", (1,))
    assert found.text == ("rank 1 on n1 computes in 8 of 8 looks while the others wait in 8 of 8")


def test_who_computes_while_the_others_poll_in_the_system_is_named() -> None:
    (found,) = judged([POLLS, COMPUTES, POLLS])

    assert found.ranks == (1,)


def test_who_computes_while_the_others_poll_mostly_in_their_own_code_is_named() -> None:
    spins = looks("R", "", 0.98, 0.18, count=8)

    (found,) = judged([spins, COMPUTES, spins, spins])

    assert found.ranks == (1,)


def test_who_sleeps_while_the_others_poll_for_it_is_named() -> None:
    sleeps = looks("S", "hrtimer_nanosleep", 0.0, None, count=8)

    (found,) = judged([POLLS, POLLS, sleeps, POLLS])

    assert (found.kind, found.ranks) == ("slow", (2,))
    assert found.text == (
        "rank 2 on n1 is in hrtimer_nanosleep (a sleep) in 8 of 8 looks while the others wait in 8 of 8"
    )


def test_who_waits_for_its_disk_while_the_others_wait_for_it_is_named() -> None:
    reads = looks("D", "folio_wait_bit_common", 0.1, None, count=8)

    assert judged([WAITS, WAITS, WAITS, reads])[0].ranks == (3,)


def test_a_master_that_sleeps_while_its_workers_compute_is_not_slow() -> None:
    sleeps = looks("S", "hrtimer_nanosleep", 0.0, None, count=8)

    assert judged([sleeps, COMPUTES, COMPUTES, COMPUTES]) == ()


def test_of_two_ranks_one_may_be_slow() -> None:
    assert judged([COMPUTES, WAITS])[0].ranks == (0,)


def test_of_two_ranks_one_may_wait_for_time_as_its_work() -> None:
    sleeps = looks("S", "hrtimer_nanosleep", 0.0, None, count=8)

    assert judged([POLLS, sleeps]) == ()


def test_seven_looks_are_too_few() -> None:
    assert judged([some[1:] for some in (WAITS, COMPUTES, WAITS)]) == ()


def test_looks_with_a_gap_are_no_row() -> None:
    gap = [Activity(a.state, a.wchan, a.cores, a.system, a.at - 60) for a in COMPUTES[:3]]

    assert judged([WAITS, (*gap, *COMPUTES[3:]), WAITS]) == ()


def test_a_node_with_a_slow_clock_is_told() -> None:
    some = [WAITS] * 8 + [COMPUTES] + [WAITS] * 7
    clocks = {"n1": 3.5e9, "n2": 1.4e9}

    (found,) = judged(some, KnownOfJob(looks=dict(enumerate(some)), clock=clocks.get))

    assert found.text.startswith("rank 8 on n2 computes in 8 of 8 looks")
    assert found.text.endswith("; its node's cores run at 40 % of the others' clock")


def test_what_is_said_stays_while_it_is_nearly_so() -> None:
    rests = (*COMPUTES[:2], *WAITS[2:5], *COMPUTES[5:])
    said = judged([WAITS, COMPUTES, WAITS])

    assert judged([WAITS, rests, WAITS]) == ()
    assert judged([WAITS, rests, WAITS], stalled=said)[0].kind == "slow"


THROTTLED = tuple(replace(look, cores=0.1, throttled=0.9) for look in COMPUTES)
FREE = tuple(replace(look, throttled=0.0) for look in COMPUTES)


@pytest.mark.parametrize("others", [COMPUTES, FREE, POLLS, WAITS])
def test_who_is_held_back_by_a_cpu_quota_is_named_and_no_neighbour_that_polls_memory(
    others,
) -> None:
    waits_elsewhere = POLLS if others is COMPUTES else others
    (found,) = judged([others, THROTTLED, waits_elsewhere, waits_elsewhere])

    assert (found.kind, found.ranks) == ("slow", (1,))
    assert found.text == (
        "rank 1 on n1 is held back by a CPU quota: throttled in 90 % of its periods, in 8 of 8 looks"
    )
    assert "cpu.max" in found.explained[0].remedy


def test_who_only_polls_within_its_quota_is_not_held_back() -> None:
    within = tuple(replace(look, throttled=0.9) for look in POLLS)

    assert judged([POLLS, within, POLLS]) == ()


def test_where_all_have_a_quota_nobody_is_named_for_it() -> None:
    assert judged([THROTTLED] * 4) == ()


@st.composite
def balanced(draw):
    """Ranks that all do the same but for noise."""
    cores, share = draw(st.floats(0.0, 8.0)), draw(st.floats(0.0, 0.9))
    noise = st.tuples(st.floats(0.75, 1.25), st.floats(0.0, 0.05))

    def one(back):
        scale, more = draw(noise)
        return Activity("R", "", cores * scale, min(share + more, 1.0), NOW - 5 * back)

    count = draw(st.integers(2, 16))
    return [tuple(one(back) for back in reversed(range(8))) for _ in range(count)]


@given(balanced())
def test_in_a_balanced_job_nobody_is_slow(some) -> None:
    assert judged(some) == ()


CROWDED = tuple(replace(look, cores=0.1, wants=1.0, delayed=0.8) for look in COMPUTES)
CROWDED_WAIT = tuple(replace(look, wants=0.05, delayed=0.9) for look in WAITS)


def test_where_all_cores_are_crowded_a_short_phase_of_one_rank_is_not_slow() -> None:
    assert judged([CROWDED_WAIT, CROWDED, CROWDED_WAIT]) == ()


def test_where_all_cores_are_crowded_who_has_worked_much_is_named() -> None:
    works = tuple(replace(look, cores=0.2) for look in CROWDED)

    (found,) = judged([CROWDED_WAIT, works, CROWDED_WAIT])

    assert (found.kind, found.ranks, found.explained) == ("slow", (1,), ())


@pytest.mark.parametrize("others", [WAITS, tuple(replace(one, delayed=0.01) for one in WAITS)])
def test_whose_cores_alone_are_crowded_is_told_with_that_cause(others) -> None:
    (found,) = judged([others, CROWDED, others])

    assert found.ranks == (1,)
    assert found.text == (
        "rank 1 on n1 computes in 8 of 8 looks while the others wait in 8 of 8;"
        " for 80 % of its work it waits for a core, which others use"
    )
    assert "`rankdeck ps`" in found.explained[0].remedy
