"""Who wants to be looked at, and in which order ranks come."""

from rankdeck.logs.rank_order import order_ranks, rank_statuses
from rankdeck.model.rank import RankStatus
from rankdeck.model.stall import Stall
from tests.ui.support import scenes
from tests.ui.support.scenes import JOB


def test_the_first_failure_is_told_from_those_it_pulled_down() -> None:
    found = rank_statuses(scenes.failing().jobs.job(JOB))

    assert [r for r, one in found.items() if one is RankStatus.FIRST] == [5]
    victims = sorted(r for r, one in found.items() if one is RankStatus.VICTIM)
    assert victims == [0, 1, 2, 4, 6, 8, 9, 10, 12, 13, 14]
    assert 3 not in found


def test_where_all_are_silent_only_who_fell_silent_first_stands_out() -> None:
    stage = scenes.training()
    everybody = tuple(range(16))
    stall = Stall(kind="all", ranks=everybody, since=0.0, text="", first=(7,))
    stage.jobs.set_stalled(JOB, (stall,))

    assert rank_statuses(stage.jobs.job(JOB)) == {7: RankStatus.STALLED}


def test_who_failed_first_comes_first_and_victims_keep_their_places() -> None:
    job = scenes.failing().jobs.job(JOB)
    order = order_ranks(job.ranks, "unusual", lambda rank: 0, rank_statuses(job))

    assert [one.rank for one in order] == [5, *(r for r in range(16) if r != 5)]


def test_without_trouble_the_unusual_order_is_that_of_the_numbers() -> None:
    job = scenes.training().jobs.job(JOB)
    order = order_ranks(job.ranks, "unusual", lambda rank: 0, rank_statuses(job))

    assert [one.rank for one in order] == list(range(16))
