"""Planning a swap proof: which ranks run where, and jobs for which there is none."""

import pytest

from rankdeck.model.cluster import Node
from rankdeck.model.first_failure import FirstFailure, Suspect
from rankdeck.model.job import Job
from rankdeck.model.job_spec import Launch
from rankdeck.model.queue import QueueStatus
from rankdeck.model.rank import State
from rankdeck.swap.fault import fault_in
from rankdeck.swap.planning import Around, SwapError, plan_swap
from rankdeck.swap.trial import STANDS, RunWatch, conclude_run
from rankdeck.swap.values import FaultKind, JobFault, RunOutcome, RunWay, SwapPlan, SwapResult
from rankdeck.values import replace
from tests.support.swap_proof import START, cluster_with, failed_job, planned_swap, stalled_job


def ways(plan: SwapPlan) -> list[tuple[RunWay, dict[str, tuple[int, ...]]]]:
    return [(run.way, dict(run.places)) for run in plan.runs]


def test_each_rank_moves_and_the_rest_takes_its_ranks_without_the_node() -> None:
    assert ways(planned_swap()) == [
        (RunWay.MOVED, {"n2": (0, 1), "n3": (2, 3), "n1": (4, 5)}),
        (RunWay.WITHOUT, {"n1": (0, 1, 2), "n3": (3, 4, 5)}),
        (RunWay.AGAIN, {"n1": (0, 1), "n2": (2, 3), "n3": (4, 5)}),
        (RunWay.MOVED, {"n3": (0, 1), "n1": (2, 3), "n2": (4, 5)}),
    ]


def test_a_free_node_stands_in_for_the_one_that_is_left_out() -> None:
    plan = planned_swap(count=4, free=("n4",))

    assert ways(plan)[1] == (RunWay.WITHOUT, {"n1": (0, 1), "n4": (2, 3), "n3": (4, 5)})
    assert plan.runs[1].without == ("n2",)


def test_a_job_of_one_node_runs_on_another_one() -> None:
    plan = planned_swap(failed_job(1, 2, rank=1), 2, free=("n2",))

    assert ways(plan) == [
        (RunWay.WITHOUT, {"n2": (0, 1)}),
        (RunWay.AGAIN, {"n1": (0, 1)}),
    ]


def test_nodes_with_different_slots_are_moved_so_that_the_named_rank_is_elsewhere() -> None:
    cluster = replace(cluster_with(3), nodes=tuple(Node(name=f"n{n}", slots=s) for n, s in ((1, 2), (2, 4), (3, 2))))  # fmt: skip
    job = failed_job(3, 2, rank=3)
    places = {0: "n1", 1: "n1", 2: "n2", 3: "n2", 4: "n2", 5: "n2", 6: "n3", 7: "n3"}
    ranks = tuple(replace(job.ranks[0], rank=rank, node=node) for rank, node in places.items())
    assert job.plan.spec is not None
    job = replace(job, ranks=ranks, plan=replace(job.plan, spec=replace(job.plan.spec, ranks_per_node=0)))  # fmt: skip

    plan = plan_swap(cluster, job, fault_in(job), Around())

    moved = [run for run in plan.runs if run.way is RunWay.MOVED]
    assert moved
    assert all(
        3 not in run.places["n2"] and sum(map(len, run.places.values())) == 8 for run in moved
    )


def test_no_run_is_longer_than_the_user_says_and_a_late_fault_is_told() -> None:
    late = failed_job(after=30 * 3600.0)
    plan = plan_swap(cluster_with(), late, fault_in(late), Around(), 900.0)

    assert {run.limit for run in plan.runs} == {900.0}
    assert plan.notes[0] == (
        "the fault came late, after 1 d 6 h: a run is stopped after 15 min 00 s, before that time."
        " Better start from a checkpoint shortly before it, or give --limit 61h"
    )


def refused(job: Job, cluster=None, **more: object) -> str:
    with pytest.raises(SwapError) as error:
        plan_swap(cluster or cluster_with(), job, fault_in(job), Around(**more))  # type: ignore[arg-type]
    return str(error.value)


def test_each_job_without_a_swap_proof_has_its_sentence() -> None:
    well = failed_job(first_failure=None, state=State.DONE)
    assert refused(well) == "train-1 ended well: there is no fault to look for"
    running = replace(stalled_job(), stalled=())
    assert "nothing is wrong with it" in refused(running)
    cancelled = failed_job(first_failure=None, state=State.CANCELLED)
    assert (
        refused(cancelled) == "train-1 was cancelled and shows no fault: there is none to look for"
    )
    job = failed_job()
    assert "replay: name the job itself, old" in refused(
        replace(job, plan=replace(job.plan, replay_of="old"))
    )
    assert "job file of train-1 is not known" in refused(
        replace(job, plan=replace(job.plan, spec=None))
    )
    never = replace(job, ranks=tuple(replace(one, started=None) for one in job.ranks))
    assert "no rank of train-1 began" in refused(never)
    nowhere = replace(job, ranks=tuple(replace(one, node="") for one in job.ranks))
    assert "not known on which nodes" in refused(nowhere)
    assert "ran on n3, which `c` no longer has" in refused(job, cluster_with(2))
    assert "n2 does not answer now (no route)" in refused(job, silent={"n2": "no route"})
    assert "ran on n1 alone, and no other free node" in refused(failed_job(1, 2, rank=1))
    assert "is an array" in refused(replace(job, in_scheduler=QueueStatus(array="0-5")))


def test_where_a_scheduler_places_ranks_the_node_is_left_out_and_taken_again() -> None:
    for backend in ("slurm", "kubernetes"):
        cluster = replace(cluster_with(), backend=backend)
        job = failed_job()
        plan = plan_swap(cluster, job, fault_in(job), Around())

        assert [run.way for run in plan.runs] == [RunWay.WITHOUT, RunWay.AGAIN, RunWay.WITHOUT]
        first, second = plan.runs[0].spec, plan.runs[1].spec
        assert (first.on, first.options[f"{backend}.exclude"]) == ((), "n2")
        assert second.on == ("n1", "n2", "n3")
        assert any("the scheduler places the ranks" in note for note in plan.notes)


def test_tensorflow_jobs_keep_one_rank_on_each_node() -> None:
    job = failed_job(3, 1, rank=1)
    assert job.plan.spec is not None
    spec = replace(job.plan.spec, launch=Launch.TENSORFLOW, ranks_per_node=0)
    plan = planned_swap(replace(job, plan=replace(job.plan, spec=spec)))

    assert all(len(ranks) == 1 for run in plan.runs for ranks in run.places.values())
    assert any("no run without n2" in note for note in plan.notes)


# ---- the fault of a run


def test_what_is_told_of_a_job_is_its_fault() -> None:
    job = failed_job()
    assert fault_in(job) == JobFault(
        kind=FaultKind.FAILED, ranks=(3,), exit_code=3, seconds=8.0,
        sentence="rank 3 on n2, exit 3 (how sure: not calibrated)",
    )  # fmt: skip
    lost = FirstFailure(what="node", rank=None, node="n2", exit_code=None, signal=None, at=START)
    found = fault_in(failed_job(first_failure=lost))
    assert found is not None
    assert (found.ranks, found.nodes) == ((), ("n2",))
    between = tuple(
        Suspect(what="rank", rank=rank, node=node, why="") for rank, node in ((3, "n2"), (5, "n3"))
    )
    undecided = replace(lost, what="undecided", node="", between=between)
    found = fault_in(failed_job(first_failure=undecided))
    assert found is not None
    assert (found.ranks, found.nodes) == ((3, 5), ())
    found = fault_in(failed_job(first_failure=replace(lost, what="all", node="", exit_code=1)))
    assert found is not None
    assert (found.ranks, found.nodes, found.exit_code) == ((), (), 1)
    slow = fault_in(stalled_job(replace(stalled_job().stalled[0], kind="slow")))
    assert slow is not None
    assert (slow.kind, slow.ranks) == (FaultKind.SLOW, (3,))


def test_a_run_goes_on_until_the_same_are_named_for_a_while_or_its_time_is_over() -> None:
    job = stalled_job()
    wanted = fault_in(job)
    assert wanted is not None
    watch = RunWatch(wanted, 60.0)
    watch.take_in(job, START + 20)
    assert not watch.is_decided(job, START + 20 + STANDS - 0.1)
    assert watch.is_decided(job, START + 20 + STANDS)

    quiet = replace(job, stalled=())
    watch = RunWatch(wanted, 60.0)
    watch.take_in(quiet, START + 20)
    assert not watch.is_decided(quiet, START + 59)
    assert watch.is_decided(quiet, START + 61)


def outcome(job: Job, seconds: float = 30.0) -> RunOutcome:
    plan = planned_swap()
    watch = RunWatch(plan.fault, 60.0)
    watch.take_in(job, START)
    blank = SwapResult(run=plan.runs[0], outcome=RunOutcome.NOT_RUN, job="j", seconds=seconds)
    return conclude_run(plan, blank, job, watch).outcome


def test_what_a_run_showed() -> None:
    well = failed_job(first_failure=None, state=State.DONE, after=2.0)
    assert outcome(failed_job()) is RunOutcome.AGAIN
    assert outcome(failed_job(rank=5)) is RunOutcome.AGAIN
    signal = FirstFailure(rank=3, node="n2", exit_code=None, signal=9, at=START)
    assert outcome(failed_job(first_failure=signal)) is RunOutcome.OTHER
    assert outcome(stalled_job()) is RunOutcome.OTHER
    assert outcome(well) is RunOutcome.NONE
    assert outcome(replace(well, state=State.CANCELLED, ended=START + 9)) is RunOutcome.NONE
    assert outcome(replace(well, state=State.CANCELLED, ended=START + 7)) is RunOutcome.SHORT
    unbegun = replace(well, ranks=tuple(replace(one, started=None) for one in well.ranks))
    assert outcome(unbegun) is RunOutcome.NOT_RUN
