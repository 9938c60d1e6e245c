"""What a slow rank costs: by the others' waits, and by the counters of its CPU quota."""

import os
from pathlib import Path

import pytest

from rankdeck.model.job import Job
from rankdeck.model.rank import Activity
from rankdeck.model.stall import Stall
from rankdeck.rules.price import lost_share, low_clocks, price_stalls
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent.job.activity import (
    ThreadShares,
    ThreadTime,
    held_share,
    quota_in,
    thread_shares,
)
from tests.unit.test_job_recorder import running

SLOW = Stall(kind="slow", ranks=(5,), since=2000.0, text="rank 5 on node02 computes")
RANKS = range(8)


def looks(
    wants: float | None, held: float | None = None, *, mine: float | None = 1.0
) -> dict[int, tuple[Activity, ...]]:
    """Rank 5 wants a core for `mine` of the time, of which a quota takes `held`; others `wants`."""

    def row(rank: int, at: float) -> Activity:
        if rank == 5:
            return Activity("R", "", 0.5, 0.0, at, None, None, mine, held)
        return Activity("S", "ep_poll", 0.5, 0.0, at, None, None, wants, None)

    return {rank: tuple(row(rank, 2000.0 + 5 * turn) for turn in range(12)) for rank in RANKS}


@pytest.fixture
def job() -> Job:
    jobs = Jobs()
    return jobs.job(running(jobs))


def test_the_others_waits_are_what_would_be_saved() -> None:
    assert lost_share([5], looks(0.9)) == pytest.approx(0.1)


def test_the_busiest_of_the_others_sets_the_pace_then() -> None:
    some = looks(0.5)
    some[2] = looks(0.9)[2]
    assert lost_share([5], some) == pytest.approx(0.1)


def test_a_quota_tells_what_it_takes_while_the_others_poll() -> None:
    assert lost_share([5], looks(1.0, 0.4)) == pytest.approx(0.4)
    assert lost_share([5], looks(1.0)) is None


def test_a_quota_saves_no_more_than_until_the_others_set_the_pace() -> None:
    assert lost_share([5], looks(0.7, 0.4)) == pytest.approx(0.3)
    assert lost_share([5], looks(0.5, 0.4)) == pytest.approx(0.4)


def test_a_quota_that_hardly_holds_is_not_why_the_others_wait() -> None:
    assert lost_share([5], looks(0.5, 0.0)) == pytest.approx(0.5)
    assert lost_share([5], looks(0.5, 0.01, mine=0.9)) == pytest.approx(0.41)


def test_time_in_which_all_wait_alike_is_not_lost() -> None:
    assert lost_share([5], looks(0.2, mine=0.3)) == pytest.approx(0.1)


def test_a_rank_that_rests_costs_at_most_all_of_the_others_wait() -> None:
    assert lost_share([5], looks(0.8, mine=0.1)) == pytest.approx(0.2)


def test_nothing_is_said_where_too_little_is_known() -> None:
    assert lost_share([5], looks(None)) is None
    assert lost_share([5], {5: looks(0.5)[5]}) is None
    assert lost_share([5], {rank: some[:3] for rank, some in looks(0.5).items()}) is None
    assert lost_share([4, 5], looks(1.0, 0.4)) is None


def test_the_sentence_has_the_share_and_the_time_since_it_was_first_seen(job: Job) -> None:
    job = replace(job, stalled=(replace(SLOW, since=1000.0),))

    (found,) = price_stalls(job, [SLOW], looks(0.9), 1000.0 + 36_000, {})

    assert found.since == 1000.0
    assert found.price is not None
    assert found.price.longer == pytest.approx(1 / 9)
    assert found.price.seconds == pytest.approx(3600)
    assert found.text == (
        "rank 5 on node02 computes; it makes every step about 11 % longer:"
        " 1 h 00 min of the 10 h 00 min that this job has run"
    )


def test_a_low_clock_of_its_gpu_is_named_with_the_brake(job: Job) -> None:
    clocks = low_clocks({rank: (1.98e9 if rank != 5 else 1.155e9, rank == 5) for rank in RANKS})

    (found,) = price_stalls(job, [SLOW], looks(None), 3000.0, clocks)

    assert found.price is None
    assert found.text.endswith("; its GPU is at 1,155 of 1,980 MHz (power brake)")
    assert low_clocks({0: (1e9, False), 1: (2e9, False)}) == {}


def test_where_no_step_was_made_none_can_be_shorter() -> None:
    assert lost_share([5], looks(0.0, mine=0.0)) is None
    assert lost_share([5], looks(0.05, mine=0.0)) == pytest.approx(0.95)


def test_a_rank_that_costs_next_to_nothing_is_not_told_as_slow(job: Job) -> None:
    assert price_stalls(job, [SLOW], looks(0.96), 3000.0, {}) == ()
    assert price_stalls(job, [SLOW], looks(0.9), 3000.0, {})


def test_other_stalls_cost_nothing(job: Job) -> None:
    other = replace(SLOW, kind="rank")
    assert price_stalls(job, [other], looks(0.5), 3000.0, {}) == (other,)


@pytest.mark.parametrize("counter", ["throttled_usec 3000000", "throttled_time 3000000000"])
def test_both_versions_of_control_groups_tell_how_long_a_quota_held(
    tmp_path: Path, counter: str
) -> None:
    (tmp_path / "cpu.stat").write_text("nr_periods 10\nnr_throttled 5\nthrottled_usec 0\n")
    before = quota_in(tmp_path)
    (tmp_path / "cpu.stat").write_text(f"nr_periods 60\nnr_throttled 55\n{counter}\n")

    assert held_share(before, quota_in(tmp_path), 5.0) == pytest.approx(0.6)
    assert held_share(None, quota_in(tmp_path), 5.0) is None


def test_what_another_process_wanted_is_not_compared() -> None:
    before, now = ThreadTime(7, 0, 0), ThreadTime(7, 1_000_000_000, 1_500_000_000)

    assert thread_shares(before, now, 5.0)[:2] == (pytest.approx(0.5), pytest.approx(0.6))
    assert thread_shares(now, now, 5.0) == ThreadShares(0.0)
    assert thread_shares(before, now._replace(pid=8), 5.0) == ThreadShares()
    assert thread_shares(None, now, 5.0) == ThreadShares()


def test_waits_for_disks_are_known_only_where_they_were_counted_at_both_looks() -> None:
    before, now = ThreadTime(7, 0, 0, 50), ThreadTime(7, 0, 0, 50 + os.sysconf("SC_CLK_TCK"))

    assert thread_shares(before, now, 5.0).blocked == pytest.approx(0.2)
    assert thread_shares(before._replace(blocked=None), now, 5.0).blocked is None


def test_a_rank_that_waits_for_its_disk_costs_what_it_waits_longer_than_the_busiest() -> None:
    slow = [replace(one, blocked=0.5) for one in looks(0.2, mine=0.1)[5]]
    some = {**looks(0.2, mine=0.1), 5: slow}

    assert lost_share([5], some) == pytest.approx(0.4)
