"""When the others are stopped."""

import pytest

from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, RankState
from rankdeck.model.job_spec import Abort
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.rules.gang_abort import abort_reason, countdown_for
from rankdeck.values import replace
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

FAILURE = FirstFailure(rank=1, node="n2", exit_code=3, signal=None, at=1.0)
LOST = FirstFailure(what="node", rank=None, node="n1", exit_code=None, signal=None, at=1.0)


def with_rank(job: Job, rank: int, **changes: object) -> Job:
    ranks = list(job.ranks)
    ranks[rank] = replace(ranks[rank], **changes)
    return replace(job, ranks=tuple(ranks))


def test_a_healthy_job_runs_on() -> None:
    assert countdown_for(JOB, 100.0) is None


def test_a_failed_rank_stops_the_others_after_the_countdown() -> None:
    job = replace(with_rank(JOB, 1, state=State.FAILED, exit_code=3), first_failure=FAILURE)

    countdown = countdown_for(job, 100.0)

    assert countdown is not None
    assert countdown.deadline == 107.0
    assert countdown.why == "rank 1 on n2: exit 3"


def test_a_lost_node_stops_the_others() -> None:
    lost = with_rank(JOB, 0, state=State.LOST)
    countdown = countdown_for(replace(lost, first_failure=LOST), 0.0)

    assert countdown is not None
    assert countdown.why == "node n1: stopped answering"


def test_a_job_of_which_no_node_answers_is_left_alone() -> None:
    lost = with_rank(with_rank(JOB, 0, state=State.LOST), 1, state=State.LOST)

    assert countdown_for(replace(lost, first_failure=LOST), 0.0) is None


def test_the_countdown_names_the_culprit_and_not_the_rank_that_ended_first() -> None:
    job = replace(with_rank(JOB, 0, state=State.FAILED, exit_code=14), first_failure=FAILURE)

    assert abort_reason(job) == "rank 1 on n2: exit 3"


@pytest.mark.parametrize("left", [State.DONE, State.FAILED, State.CANCELLED])
def test_nobody_left_means_nothing_to_stop(left: State) -> None:
    job = with_rank(with_rank(JOB, 0, state=left), 1, state=State.FAILED, exit_code=3)

    assert countdown_for(replace(job, first_failure=FAILURE), 0.0) is None


def test_a_job_that_asked_for_no_abort_is_left_alone() -> None:
    job = with_rank(JOB, 1, state=State.FAILED, exit_code=3)
    plan = replace(PLAN, abort=Abort(enabled=False))

    silent = replace(job, plan=plan, first_failure=FAILURE)
    assert countdown_for(silent, 0.0) is None
