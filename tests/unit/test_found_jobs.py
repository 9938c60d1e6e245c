"""What nodes say runs on them, as plans; what makes no sense is left out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.backends.ssh import found_jobs

JOB = "train-1121-143005-3f2a"


def row(node: str = "n1", **changes: Any) -> dict[str, Any]:
    ranks = [0, 1] if node == "n1" else [2, 3]
    plan = {
        "ranks": ranks, "grace": 4.0, "elsewhere": False,
        "processes": [{"name": f"rank {r}", "argv": ["sleep", "9"], "rank": r} for r in ranks],
    }  # fmt: skip
    told = {"job": JOB, "node": node, "closed": False, "created": 50.0, "alive": True}
    return {**told, "plan": plan, **changes}


def test_the_parts_that_nodes_tell_make_one_plan() -> None:
    plan, created = found_jobs("c", {"n2": [row("n2")], "n1": [row()]}, 99.0)[JOB]

    assert (plan.name, plan.cluster, plan.grace, created) == ("train", "c", 4.0, 50.0)
    assert [(node.node, node.ranks) for node in plan.nodes] == [
        ("n1", (0, 1)),
        ("n2", (2, 3)),
    ]
    assert plan.nodes[0].processes[1].argv == ("sleep", "9")
    assert not plan.abort.enabled


def test_a_job_that_is_over_is_found_where_its_plan_was_asked_for() -> None:
    over = row(closed=True, alive=False)

    assert JOB in found_jobs("c", {"n1": [over]}, 99.0)
    assert found_jobs("c", {"n1": [{**over, "plan": None}]}, 99.0) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"alive": False},
        {"node": "n2"},
        {"job": "../../etc"},
        {"job": "probe-12345678"},
        {"job": 7},
        {"plan": None},
        {"plan": {"ranks": [0, 0]}},
        {"plan": {"ranks": [-1]}},
        {"plan": {"ranks": [True]}},
        {"plan": {"ranks": list(range(5000))}},
        {"plan": {"ranks": [0], "elsewhere": True}},
    ],
)
def test_a_row_that_makes_no_sense_is_no_job(changes: dict[str, Any]) -> None:
    assert found_jobs("c", {"n1": [row(**changes)]}, 99.0) == {}


def test_a_node_cannot_claim_the_ranks_of_another() -> None:
    false = {**row("n2"), "plan": row()["plan"]}

    plan, _ = found_jobs("c", {"n1": [row()], "n2": [false]}, 99.0)[JOB]

    assert [node.node for node in plan.nodes] == ["n1"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    max_leaves=8,
)


@pytest.mark.long
@given(st.dictionaries(st.sampled_from([*row(), "more"]), JSON), JSON, JSON)
def test_whatever_a_node_sends_is_a_plan_or_nothing(
    changes: dict[str, Any], ranks: Any, processes: Any
) -> None:
    plan = {"ranks": ranks, "processes": processes, "grace": ranks}
    for told in (row(**changes), row(plan=plan)):
        for found, created in found_jobs("c", {"n1": [told]}, 99.0).values():
            assert created <= 99.0
            assert "\x1b" not in json.dumps(found.nodes[0].processes, default=str)
