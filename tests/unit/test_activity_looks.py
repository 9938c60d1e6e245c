"""What nodes say that their ranks do: hostile rows cost only themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.model.rank import Activity
from rankdeck_agent.wire.job_events import Look, Origin, Part, parse_event
from tests.support.node_events import node_event
from tests.unit.test_jobs_state import Feed
from tests.unit.test_node_stream import head, stream

GOOD = [0, "S", "ep_poll", 0.25, 0.5]
FIELDS = ("state", "wchan", "cores", "system")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda some: st.lists(some, max_size=6) | st.dictionaries(st.text(max_size=3), some),
    max_leaves=30,
)


def look(at=1.0, state="S"):
    return Activity(state, "ep_poll", 0.25, 0.5, at)


def looks_of(rows, ranks=(0, 1)):
    """The looks in these rows, from a node that has these ranks."""
    origin = Origin("n1", Part.SUPERVISOR, "ssh", ranks)
    found = parse_event({"kind": "activity", "at": 1.0, "rows": rows}, origin).body.rows
    return {one.rank: one for one in found}


def test_a_row_is_read() -> None:
    assert looks_of([GOOD]) == {0: Look(*GOOD)}


@pytest.mark.parametrize(
    ("place", "junk"),
    [(0, 7), (0, True), (0, "0"), (0, -1), (1, ""), (1, "SS"), (1, "q"), (1, 5), (2, "x" * 65), (2, "\x1b[2J"),
     (2, "a b"), (2, None), (3, -1), (3, float("nan")), (3, float("inf")), (3, 10**400), (3, "1"), (3, True),
     (4, 1.5), (4, -0.1), (4, "0"), (4, False)],
)  # fmt: skip
def test_a_row_that_cannot_be_costs_only_itself(place, junk) -> None:
    bad = [*GOOD[:place], junk, *GOOD[place + 1 :]]

    assert looks_of([bad, [1, *GOOD[1:]]]) == {1: Look(1, *GOOD[1:])}


@given(JSON)
def test_any_rows_give_looks_or_nothing(rows) -> None:
    found = looks_of(rows)

    assert found.keys() <= {0, 1}
    assert all(0 <= one.cores < 1e6 for one in found.values())


def test_a_frame_becomes_looks_without_a_place_in_the_record() -> None:
    one = stream()

    (event,) = one.feed(head(kind="activity", at=5, rows=[GOOD], seq=99))

    assert (event.kind, event.at, event.body.rows) == ("activity", 5, (Look(*GOOD),))
    assert one.seen == -1


def tell(feed, node, looks, at=1.0):
    rows = [[rank, *(getattr(one, name) for name in FIELDS)] for rank, one in looks.items()]
    for when in {one.at for one in looks.values()} or {at}:
        feed.jobs.apply(node_event("t-1", node, "activity", when, rows=rows))


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
    foreign = Origin("n1", Part.SUPERVISOR, "ssh", (0, 1))
    row = [3, "S", "ep_poll", 0.25, 0.5]
    feed.jobs.apply(node_event("t-1", "n1", "activity", 1.0, origin=foreign, rows=[row]))

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
