"""An agent that stands still is named, and none of the ranks that it no longer looks at."""

from rankdeck.model.job import Job, RankState
from rankdeck.model.plan import Plan
from rankdeck.model.rank import Activity, State
from rankdeck.rules.mute_agents import LATE
from rankdeck.rules.rank_signs import FRESH, KnownOfJob
from rankdeck.rules.stall import find_stalls
from rankdeck_agent.wire import NodePlan

NOW = 1000.0


def judged(
    newest: dict[int, float],
    reported: dict[str, float] | None = None,
    heard: float = 940.0,
    patience: float = 1.0,
) -> list[tuple[str, str, tuple[int, ...]]]:
    """(kind, node, ranks) of the stalls of six ranks on two nodes; `newest` is rank -> when it was
    last looked at; ranks 4 and 5 on n2 have written nothing since `heard`.
    """
    ranks = tuple(
        RankState(
            rank=n, node=f"n{n // 4 + 1}", state=State.RUNNING, started=0.0, lines=500,
            heard=NOW - 1 if n < 4 else heard,
        )
        for n in range(6)
    )  # fmt: skip
    nodes = tuple(NodePlan("j", name, ()) for name in ("n1", "n2"))
    plan = Plan(job="j", name="j", cluster="c", backend="ssh", nodes=nodes)
    job = Job(id="j", name="j", cluster="c", plan=plan, ranks=ranks, state=State.RUNNING, created=0.0)  # fmt: skip
    looks = {
        rank: tuple(Activity("S", "", 0.1, 0.0, at - back) for back in (10.0, 5.0, 0.0))
        for rank, at in newest.items()
    }
    known = KnownOfJob(looks=looks, reported=reported or {"n1": NOW, "n2": NOW}, patience=patience)
    return [(one.kind, one.node, one.ranks) for one in find_stalls(job, NOW, known)]


WELL = dict.fromkeys(range(6), NOW - 2)
FROZEN = {**WELL, 4: NOW - 60, 5: NOW - 60}


def test_the_node_is_named_and_its_silent_ranks_are_not() -> None:
    assert judged(FROZEN) == [("agent", "n2", (4, 5))]


def test_an_agent_on_a_slow_node_gets_more_time_before_it_counts_as_frozen() -> None:
    assert "agent" not in [kind for kind, *_ in judged(FROZEN, patience=10.0)]


def test_silent_ranks_that_are_looked_at_are_named_themselves() -> None:
    assert judged(WELL) == [("rank", "", (4, 5))]


def test_looks_that_are_a_little_late_are_no_frozen_agent() -> None:
    late = {**FROZEN, 4: NOW - LATE + 1, 5: NOW - LATE + 1}
    assert judged(late, heard=NOW - 12) == []


def test_an_agent_whose_ranks_still_write_is_at_work() -> None:
    assert judged(FROZEN, heard=NOW - 5) == []


def test_a_node_that_is_not_heard_is_another_thing() -> None:
    assert judged(FROZEN, {"n1": NOW, "n2": NOW - FRESH - 1, "n3": NOW}, heard=NOW - 25) == []


def test_an_agent_that_stood_still_before_its_first_look_is_named_by_the_looks_of_others() -> None:
    assert judged(dict.fromkeys(range(4), NOW - 2), heard=NOW - 25) == [("agent", "n2", (4, 5))]


def test_where_no_agent_looks_nothing_is_known() -> None:
    assert judged({}, heard=NOW - 25) == []
