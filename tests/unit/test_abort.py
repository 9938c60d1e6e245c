"""When the others are stopped."""

from dataclasses import replace

import pytest

from rankdeck.model.job import Abort, Job, Plan, RankState, State
from rankdeck.rules.abort import countdown_for
from rankdeck_agent.wire import NodePlan

PLAN = Plan(
    job="j",
    name="j",
    cluster="c",
    backend="ssh",
    nodes=(NodePlan("j", "n1", (0,)), NodePlan("j", "n2", (1,))),
    abort=Abort(countdown=7),
)
JOB = Job(
    id="j",
    name="j",
    cluster="c",
    plan=PLAN,
    state=State.RUNNING,
    created=0.0,
    ranks=(
        RankState(rank=0, node="n1", state=State.RUNNING),
        RankState(rank=1, node="n2", state=State.RUNNING),
    ),
)


def with_rank(job: Job, rank: int, **changes: object) -> Job:
    ranks = list(job.ranks)
    ranks[rank] = replace(ranks[rank], **changes)
    return replace(job, ranks=tuple(ranks))


def test_a_healthy_job_runs_on() -> None:
    assert countdown_for(JOB, 100.0) is None


def test_a_failed_rank_stops_the_others_after_the_countdown() -> None:
    job = with_rank(JOB, 1, state=State.FAILED, exit_code=3)

    countdown = countdown_for(job, 100.0)

    assert countdown is not None
    assert countdown.deadline == 107.0
    assert countdown.why == "rank 1 on n2 failed (exit code 3)"


def test_a_lost_node_stops_the_others() -> None:
    countdown = countdown_for(with_rank(JOB, 0, state=State.LOST), 0.0)

    assert countdown is not None
    assert "n1 stopped answering" in countdown.why


@pytest.mark.parametrize("left", [State.DONE, State.FAILED, State.CANCELLED])
def test_nobody_left_means_nothing_to_stop(left: State) -> None:
    job = with_rank(with_rank(JOB, 0, state=left), 1, state=State.FAILED, exit_code=3)

    assert countdown_for(job, 0.0) is None


def test_a_job_that_asked_for_no_abort_is_left_alone() -> None:
    job = with_rank(JOB, 1, state=State.FAILED, exit_code=3)
    plan = replace(PLAN, abort=Abort(enabled=False))

    assert countdown_for(replace(job, plan=plan), 0.0) is None
