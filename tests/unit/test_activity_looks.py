"""What nodes say that their ranks do: hostile rows cost only themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.backends.node_stream import looks_of
from rankdeck.model.job import NodeEvent
from rankdeck.model.rank import Activity
from tests.unit.test_jobs_state import Feed
from tests.unit.test_node_stream import head, stream

GOOD = [0, "S", "ep_poll", 0.25, 0.5]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda some: st.lists(some, max_size=6) | st.dictionaries(st.text(max_size=3), some),
    max_leaves=30,
)


def look(at=1.0, state="S"):
    return Activity(state, "ep_poll", 0.25, 0.5, at)


def test_a_row_is_read() -> None:
    assert looks_of([GOOD], (0, 1), 1.0) == {0: look()}


@pytest.mark.parametrize(
    ("place", "junk"),
    [(0, 7), (0, True), (0, "0"), (0, -1), (1, ""), (1, "SS"), (1, "q"), (1, 5), (2, "x" * 65), (2, "\x1b[2J"),
     (2, "a b"), (2, None), (3, -1), (3, float("nan")), (3, float("inf")), (3, 10**400), (3, "1"), (3, True),
     (4, 1.5), (4, -0.1), (4, "0"), (4, False)],
)  # fmt: skip
def test_a_row_that_cannot_be_costs_only_itself(place, junk) -> None:
    bad = [*GOOD[:place], junk, *GOOD[place + 1 :]]

    assert looks_of([bad, [1, *GOOD[1:]]], (0, 1), 1.0) == {1: look()}


@given(JSON)
def test_any_rows_give_looks_or_nothing(rows) -> None:
    found = looks_of(rows, (0, 1), 1.0)

    assert found.keys() <= {0, 1}
    assert all(0 <= one.cores < 1e6 for one in found.values())


def test_a_frame_becomes_looks_without_a_place_in_the_record() -> None:
    one = stream()

    (event,) = one.feed(head(kind="activity", at=5, rows=[GOOD], seq=99))

    assert (event.kind, event.at, dict(event.fields)) == (
        "activity",
        5,
        {"looks": {0: look(5)}},
    )
    assert one.seen == -1


def tell(feed, node, looks, at=1.0):
    feed.jobs.apply(NodeEvent("t-1", node, "activity", at, {"looks": looks}))


def test_the_newest_look_is_shown_of_a_rank_that_runs() -> None:
    feed = Feed()
    feed.start_all()
    tell(feed, "n1", {0: look(1.0), 1: look(1.0)})
    tell(feed, "n1", {0: look(6.0, "T")})
    feed.exit(1)

    assert feed.job.ranks[0].activity == look(6.0, "T")
    assert feed.job.ranks[1].activity is None
    assert feed.jobs.looks("t-1")[0] == (look(1.0), look(6.0, "T"))


def test_a_node_says_nothing_of_the_ranks_of_others() -> None:
    feed = Feed()
    feed.start_all()
    tell(feed, "n1", {3: look()})

    assert feed.job.ranks[3].activity is None


def test_looks_told_again_are_kept_once_and_only_the_last_minute() -> None:
    feed = Feed()
    feed.start_all()
    for at in (*range(0, 100, 5), *range(40, 100, 5)):
        tell(feed, "n1", {0: look(float(at))})

    assert [one.at for one in feed.jobs.looks("t-1")[0]] == list(range(40, 100, 5))


def test_a_rank_that_starts_again_has_no_past() -> None:
    feed = Feed()
    feed.start_all()
    tell(feed, "n1", {0: look()})
    feed.tell("n1", "started", rank=0, pid=99)

    assert feed.job.ranks[0].activity is None


def test_that_a_node_is_heard_makes_no_new_state_of_the_job() -> None:
    feed = Feed()
    feed.jobs.take_changes()
    feed.made("n1", "now", 7.0)

    assert feed.jobs.take_changes() == frozenset()
    assert feed.jobs.reported("t-1") == {"n1": 7.0}
