"""Nodes that fail jobs more often than others do, by jobs made by hand."""

from collections.abc import Sequence

import pytest
from benchmarks.lemons import judge_fleets
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, NodeNote, RankState
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.preflight.findings import Change
from rankdeck.preflight.lemons import lemon_findings
from rankdeck.rules.lemons import NodeRecord, chance_of, find_lemons, node_records, wilson_interval
from rankdeck.state.node_records import NodeRecords
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import NodePlan

NAMES = tuple(f"n{i}" for i in range(1, 9))


def job(number: int, nodes: Sequence[str] = NAMES, **more: object) -> Job:
    name = str(more.pop("name", f"job{number}"))
    spec = JobSpec(name=name, launch=Launch.PLAIN, command=("x",), part_of=str(more.pop("part_of", "")))  # fmt: skip
    plans = tuple(NodePlan("j", node, ()) for node in nodes)
    plan = Plan(job=f"j{number}", name=name, cluster="c", backend="ssh", nodes=plans, spec=spec)
    ranks = tuple(RankState(rank=i, node=node) for i, node in enumerate(nodes))
    fields = {"state": State.DONE, "created": float(number), "ranks": ranks, **more}
    return Job(id=f"j{number}", name=name, cluster="c", plan=plan, **fields)  # type: ignore[arg-type]


def failure(node: str, what: str = "node", **more: object) -> dict[str, object]:
    fields = {"rank": 0 if what == "rank" else None, "exit_code": None, "signal": None, "at": 100.0}
    first = FirstFailure(what=what, node=node, **{**fields, **more})  # type: ignore[arg-type]
    return {"state": State.FAILED, "first_failure": first}


def faults(jobs: Sequence[Job]) -> dict[str, int]:
    return {name: one.faults for name, one in node_records(jobs).items() if one.faults}


def note(node: str, at: float, level: Level = Level.BAD, **more: object) -> NodeNote:
    return NodeNote(at=at, node=node, level=level, check="gpu.xid", text="Xid 79", **more)  # type: ignore[arg-type]


ILL = (note("n5", 90.0),)


@pytest.mark.parametrize(
    ("failed", "blamed"),
    [
        (failure("n5"), {"n5": 1}),
        (failure("n5", "launcher", signal=9), {"n5": 1}),
        (failure("n5", "launcher", exit_code=1), {}),
        (failure("n5", "rank", exit_code=1), {}),
        (failure("n5", "rank", signal=11), {}),
        ({**failure("n5", "rank", exit_code=1), "node_notes": ILL}, {"n5": 1}),
        ({**failure("n4", "rank", exit_code=1), "node_notes": ILL}, {}),
        ({**failure("n5", "rank"), "node_notes": (note("n5", 200.0),)}, {}),
        ({**failure("n5", "rank"), "node_notes": (note("n5", 90.0, Level.WARN),)}, {}),
        ({**failure("n5", "rank"), "node_notes": (note("n5", 90.0, simulated=True),)}, {}),
        (failure("n5", "job"), {}),
        (failure("n5", tied=(3,)), {}),
        ({**failure("n5"), "state": State.CANCELLED}, {}),
        ({**failure("n5"), "part_of": "d1"}, {}),
    ],
)
def test_what_is_a_fault_of_the_node_itself(
    failed: dict[str, object], blamed: dict[str, int]
) -> None:
    assert faults([job(1), job(2, **failed)]) == blamed


def crashes(count: int, name: str = "solver") -> list[Job]:
    return [job(10 + i, name=name, **failure("n5", "rank", signal=11)) for i in range(count)]


OTHERS = tuple(name for name in NAMES if name != "n5")


def test_a_crash_counts_if_the_same_job_ends_well_only_without_the_node_and_once() -> None:
    well = [job(i, OTHERS, name="solver") for i in (1, 2)]

    assert faults([*well, *crashes(5)]) == {"n5": 1}
    assert faults([*well[:1], *crashes(5)]) == {}
    assert faults([*well, job(3, name="solver"), *crashes(5)]) == {}
    assert faults([*well, *crashes(2), *[replace(one, name="other") for one in crashes(2)]]) == {"n5": 1}  # fmt: skip


def history(bad: int, good: int, node: str = "n5", others_bad: int = 0) -> list[Job]:
    """Jobs on all nodes: so many lost this node, so many ended well, so many lost another."""
    jobs = [job(i, **failure(node)) for i in range(bad)]
    jobs += [job(100 + i) for i in range(good)]
    return jobs + [job(1000 + i, **failure(NAMES[i % 4])) for i in range(others_bad)]


def test_the_sentence_counts_faults_uses_interval_and_others() -> None:
    record = node_records(history(4, 26, others_bad=1))["n5"]

    assert (record.faults, record.uses) == (4, 31)
    assert record.jobs == ("j3", "j2", "j1", "j0")
    said = "4 of 31 jobs failed there by its own fault (5 to 29 %), on others 0.46 %"
    assert record.sentence == said


def test_the_lemon_is_found_and_no_other() -> None:
    assert list(find_lemons(node_records(history(4, 26, others_bad=1)))) == ["n5"]


def test_one_fault_makes_no_lemon_and_faults_everywhere_make_none() -> None:
    assert find_lemons(node_records(history(1, 30))) == {}
    everywhere = [job(i, **failure(NAMES[i % 8])) for i in range(32)]
    assert find_lemons(node_records(everywhere)) == {}
    assert find_lemons(node_records([])) == {}


def test_one_node_alone_cannot_be_compared() -> None:
    alone = [job(i, ("n1",), **failure("n1")) for i in range(9)]
    assert find_lemons(node_records(alone)) == {}


def test_intervals_and_chances_are_those_of_the_books() -> None:
    # Wilson: 4 of 31; binomial: scipy.stats.binom.sf(3, 31, 0.01).
    assert wilson_interval(4, 31) == pytest.approx((0.0513, 0.2885), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert chance_of(1, 1, 0.25) == pytest.approx(0.25)
    assert chance_of(2, 3, 0.5) == pytest.approx(0.5)
    assert chance_of(0, 9, 0.1) == 1.0


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_share_lies_in_its_interval(count: int, more: int) -> None:
    low, high = wilson_interval(count, count + more)
    assert 0 <= low <= high <= 1
    if count + more:
        assert low <= count / (count + more) <= high


@pytest.mark.long
def test_of_the_lemons_of_simulated_fleets_nineteen_in_twenty_are_right() -> None:
    right, wrong, missed = judge_fleets(find_lemons, 12)

    assert right / (right + wrong) >= 0.95
    assert right / (right + missed) >= 0.6


# ---- what is done with it

CLUSTER = Cluster(name="c", nodes=tuple(Node(name=name, slots=4) for name in NAMES))
SPEC = JobSpec(name="s", launch=Launch.PLAIN, command=("x",), nodes=3, on=("n4", "n5", "n6"))
LEMON = NodeRecord(node="n5", faults=4, uses=31, others=0.004, chance=1e-6)


def test_a_launch_proposes_another_node_for_the_lemon() -> None:
    (found,) = lemon_findings(CLUSTER, SPEC, {"n5": LEMON}, lambda name: name not in ("n1", "n2"))

    assert (found.level, found.node, found.text) == (Level.WARN, "n5", LEMON.sentence)
    assert found.patch == (Change("on", ["n4", "n3", "n6"]),)
    assert "leave it out: `on: n[3-4,6]`" in found.fix


def test_without_a_free_node_it_says_so_and_changes_nothing() -> None:
    (found,) = lemon_findings(CLUSTER, SPEC, {"n5": LEMON}, lambda _: False)
    assert found.patch == ()
    assert "fewer nodes" in found.fix


def test_a_job_without_the_lemon_is_left_alone() -> None:
    spec = replace(SPEC, on=("n1", "n2", "n3"))
    assert lemon_findings(CLUSTER, spec, {"n5": LEMON}, lambda _: True) == []


def test_slurm_is_asked_to_exclude_it_beside_what_the_job_excludes() -> None:
    slurm = Cluster(name="c", backend="slurm", nodes=())
    spec = replace(SPEC, on=(), options={"slurm.exclude": "n1"})
    (found,) = lemon_findings(slurm, spec, {"n5": LEMON}, lambda _: True)

    assert found.patch == (Change("slurm.exclude", "n1,n5"),)
    assert lemon_findings(slurm, replace(spec, options={"slurm.exclude": "n5"}), {"n5": LEMON}, lambda _: True) == []  # fmt: skip


def test_records_are_judged_anew_only_when_an_ended_job_is_new() -> None:
    known = NodeRecords()
    known.judge(history(4, 26))
    before = known.records
    known.judge([])
    assert known.records == {}
    jobs = history(4, 26)
    known.judge(jobs)
    assert known.records == before
    kept = known.records
    known.judge([job(9, state=State.RUNNING), *jobs])
    assert known.records is kept
    assert list(known.lemons) == ["n5"]
