"""The verdict of a swap proof, on values: who is to blame after these runs, and how sure."""

from collections.abc import Sequence

import pytest

from rankdeck.swap.judge import BAR, judge_swap
from rankdeck.swap.service import is_needed, limit_by_earlier
from rankdeck.swap.table import plan_lines, result_line, start_question, swap_shape, verdict_lines
from rankdeck.swap.values import (
    Blame,
    FaultKind,
    JobFault,
    RunOutcome,
    RunWay,
    Swap,
    SwapPlan,
    SwapResult,
)
from rankdeck.values import replace
from tests.support.swap_proof import (
    Law,
    ended_swap,
    failed_job,
    of_node,
    of_rank,
    planned_swap,
    results_of,
    stalled_job,
)  # fmt: skip


def made(plan: SwapPlan, law: Law) -> Swap:
    """The swap proof as it is carried out: runs that are not needed are not made."""
    swap = Swap(id="w1", plan=plan)
    for number, run in enumerate(plan.runs, 1):
        if is_needed(run, swap):
            results = (*swap.results, *results_of(plan, law, (number,)))
            swap = replace(swap, results=results, verdict=judge_swap(plan, results))
    return swap


@pytest.mark.parametrize("rank", range(6))
def test_a_fault_that_stays_with_its_rank_is_the_programs(rank: int) -> None:
    verdict = made(planned_swap(failed_job(rank=rank)), of_rank(rank)).verdict

    assert verdict is not None
    assert (verdict.blame, verdict.rank, verdict.node) == (Blame.PROGRAM, rank, "")
    assert verdict.sure >= BAR


@pytest.mark.parametrize("rank", range(6))
def test_a_fault_that_goes_with_its_node_is_the_nodes(rank: int) -> None:
    node = f"n{rank // 2 + 1}"
    verdict = made(planned_swap(failed_job(rank=rank)), of_node(node)).verdict

    assert verdict is not None
    assert (verdict.blame, verdict.rank, verdict.node) == (Blame.NODE, None, node)
    assert verdict.sure >= BAR


@pytest.mark.parametrize(
    ("nodes", "each", "spares"),
    [(2, 1, 0), (2, 2, 0), (2, 4, 1), (4, 2, 0), (16, 8, 2), (64, 8, 1), (3, 4, 1)],
)
def test_jobs_of_all_sizes_are_told_apart(nodes: int, each: int, spares: int) -> None:
    job = failed_job(nodes, each, rank=nodes * each - 1)
    plan = _planned(job, nodes, spares)

    for law, blame in (
        (of_rank(nodes * each - 1), Blame.PROGRAM),
        (of_node(f"n{nodes}"), Blame.NODE),
    ):
        verdict = made(plan, law).verdict
        assert verdict is not None
        assert verdict.blame is blame, (verdict, plan.runs)


def _planned(job, nodes: int, spares: int) -> SwapPlan:
    free = tuple(f"n{nodes + 1 + at}" for at in range(spares))
    return planned_swap(job, nodes + spares, slots=8, free=free)


def test_a_fault_on_whichever_nodes_is_the_programs_with_no_rank_named() -> None:
    plan = planned_swap()
    ranks = iter((0, 5, 2, 4, 1))
    verdict = made(plan, lambda _: ((next(ranks),), ())).verdict

    assert verdict is not None
    assert (verdict.blame, verdict.rank) in ((Blame.PROGRAM, None), (Blame.UNDECIDED, None))
    assert max(verdict.shares, key=lambda name: verdict.shares[name]) == "any rank"


def test_a_fault_that_does_not_come_again_is_undecided() -> None:
    swap = made(planned_swap(), lambda _: None)

    assert [one.run.way for one in swap.results] == [RunWay.MOVED, RunWay.WITHOUT, RunWay.AGAIN]
    assert swap.verdict is not None
    assert swap.verdict.blame is Blame.UNDECIDED
    assert "did not come again" in swap.verdict.sentence


def test_a_fault_of_one_rank_on_one_node_only_accuses_neither() -> None:
    plan = planned_swap()
    verdict = made(plan, lambda run: ((3,), ()) if 3 in run.places.get("n2", ()) else None).verdict

    assert verdict is not None
    assert verdict.blame in (Blame.BOTH, Blame.UNDECIDED)


DEADLOCK = replace(
    stalled_job().stalled[0], kind="all", ranks=tuple(range(6)), text="all 6 ranks are silent"
)


def test_a_stall_that_names_nobody_is_looked_for_on_parts_of_the_nodes() -> None:
    plan = planned_swap(stalled_job(DEADLOCK))

    assert plan.fault == JobFault(kind=FaultKind.HANG, seconds=8.0, sentence=DEADLOCK.text)
    parts = [set(run.places) for run in plan.runs if run.way is RunWay.WITHOUT]
    assert set.intersection(*parts) == set()
    program = made(plan, lambda _: ((), ())).verdict
    node = made(plan, lambda run: ((), ()) if "n3" in run.places else None).verdict
    assert program is not None
    assert node is not None
    assert (program.blame, program.rank) == (Blame.PROGRAM, None)
    assert (node.blame, node.node) == (Blame.NODE, "n3")


def told(outcome: RunOutcome, plan: SwapPlan) -> Sequence[SwapResult]:
    fault = replace(plan.fault, exit_code=9) if outcome is RunOutcome.OTHER else None
    return [
        SwapResult(run=run, outcome=outcome, fault=fault, places=run.places, sentence="no port")
        for run in plan.runs
    ]


@pytest.mark.parametrize(
    ("outcome", "advice"),
    [
        (RunOutcome.SHORT, "start from a checkpoint"),
        (RunOutcome.OTHER, "mend the other fault first"),
        (RunOutcome.NOT_RUN, "mend why no run could start"),
    ],
)
def test_runs_that_tell_nothing_accuse_nobody(outcome: RunOutcome, advice: str) -> None:
    plan = planned_swap()
    verdict = judge_swap(plan, told(outcome, plan))

    assert verdict.blame is Blame.UNDECIDED
    assert advice in verdict.advice
    assert "no run tells anything" in verdict.sentence


def test_half_of_the_evidence_is_less_sure() -> None:
    plan = planned_swap()
    shares = [
        judge_swap(plan, results_of(plan, of_node("n2"), runs)).shares["node n2"]
        for runs in ((1,), (1, 2), (1, 2, 4))
    ]

    assert shares == sorted(shares)
    assert judge_swap(plan, ()).blame is Blame.UNDECIDED


def test_a_run_lasts_not_much_longer_than_it_took_to_tell_the_fault_before() -> None:
    plan = planned_swap(failed_job(after=300.0))
    first, second = plan.runs[:2]

    assert limit_by_earlier(second, ()) == second.limit == 600.0
    assert limit_by_earlier(second, results_of(plan, of_rank(3), (1,))) == 20.0
    assert limit_by_earlier(first, results_of(plan, lambda _: None, (1,))) == 600.0


def test_lines_and_json_say_the_same() -> None:
    swap = ended_swap()
    lines, shape = list(verdict_lines(swap)), swap_shape(swap)

    assert lines[0].startswith("the node: n2, 9")
    assert lines[1] == (
        "  because the fault went with node n2: rank 3 failed on n2 at first, rank 0 failed on n2 in run 1"
        " (ranks moved), it went well in run 2 (without n2)"
    )
    assert "`rankdeck accept n2`" in lines[2]
    assert result_line(2, swap.results[1]) == "run 2 (without n2): it went well, after 9 s"
    assert shape["verdict"]["blame"] == "node"
    assert [one["outcome"] for one in shape["runs"]] == ["the same fault", "no fault"]
    assert len(shape["planned"]) == 4


def test_the_plan_says_what_runs_where_and_how_long_before_it_starts() -> None:
    lines = list(plan_lines(planned_swap(stalled_job())))

    assert (
        lines[0]
        == "train-1: rank 3 hung on n2, 8 s after the start: is it the program or the node?"
    )
    assert lines[1] == "  first train-1, which still runs, is cancelled, with proof"
    assert (
        lines[2]
        == "  run 1, ranks moved: ranks 0-1 on n2, 2-3 on n3, 4-5 on n1, at most 1 min 46 s"
    )
    assert lines[3].startswith("  run 2, without n2: ranks 0-2 on n1, 3-5 on n3, ")
    assert start_question(planned_swap(stalled_job())) == (
        "Cancel train-1, then start up to 4 runs, one after the other, at most 7 min 04 s in all?"
    )
