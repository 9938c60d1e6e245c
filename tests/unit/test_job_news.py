"""What `run` says of a job before it ends."""

from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Countdown, Job, RankState
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.model.stall import Stall
from rankdeck.rules.job_news import news_between
from rankdeck.values import replace
from rankdeck_agent.wire import NodePlan

PLAN = Plan(
    job="t-1", name="t", cluster="c", backend="ssh",
    nodes=(NodePlan("t-1", "n1", (0, 1)), NodePlan("t-1", "n2", (2, 3))),
)  # fmt: skip
RANKS = tuple(
    RankState(rank=rank, node=f"n{1 + rank // 2}", state=State.RUNNING) for rank in range(4)
)
RUNS = Job(
    id="t-1", name="t", cluster="c", plan=PLAN, state=State.RUNNING, ranks=RANKS,
    created=1.0,
)  # fmt: skip
SEGV = FirstFailure(rank=2, node="n2", exit_code=None, signal=11, at=5.0, settled=False)
COUNTS = Countdown(why="rank 2", deadline=110.0)
STALL = Stall(kind="rank", ranks=(3,), since=1.0, text="rank 3 is silent for 30 s")


def test_the_first_failure_is_told_once_with_how_it_ended() -> None:
    failed = replace(RUNS, first_failure=SEGV)
    with_victims = replace(RUNS, first_failure=replace(SEGV, victims=(0, 1)))

    assert news_between(RUNS, failed, 100.0) == (
        "first failure so far: rank 2 on n2, signal 11 (SIGSEGV)",
    )
    assert news_between(failed, with_victims, 100.0) == ()


def test_a_correction_is_told_as_one() -> None:
    before = replace(RUNS, first_failure=SEGV)
    after = replace(RUNS, first_failure=replace(SEGV, rank=0, node="n1"))

    assert news_between(before, after, 100.0) == (
        "corrected: first failure so far: rank 0 on n1, signal 11 (SIGSEGV)",
    )


def test_the_countdown_and_its_end_are_told() -> None:
    counts = replace(RUNS, countdown=COUNTS)

    assert news_between(RUNS, counts, 100.0) == ("stopping the other ranks in 10 s",)
    assert news_between(counts, RUNS, 110.1) == ("stopping the other ranks now",)
    assert news_between(counts, RUNS, 104.0) == ("the other ranks are kept running",)


def test_a_stall_is_told_when_it_begins_and_when_it_ends() -> None:
    stalls = replace(RUNS, stalled=(STALL,))
    wider = replace(RUNS, stalled=(replace(STALL, ranks=(1, 3), text="two of them"),))

    assert news_between(RUNS, stalls, 100.0) == ("stalled: rank 3 is silent for 30 s",)
    assert news_between(stalls, wider, 100.0) == ()
    assert news_between(wider, RUNS, 100.0) == ("no longer stalled: 1,3",)


def test_a_node_that_is_lost_and_comes_back_is_told() -> None:
    lost = tuple(replace(r, state=State.LOST) if r.rank > 1 else r for r in RANKS)
    gone = replace(RUNS, ranks=lost, mute={"n2": "no route"})
    back = RUNS

    assert news_between(RUNS, gone, 100.0) == ("n2: does not answer: no route",)
    assert news_between(gone, back, 100.0) == ("n2: answers again",)


def test_a_node_that_does_not_answer_is_no_failure_while_the_job_goes_on() -> None:
    gone = FirstFailure(what="node", rank=None, node="n2", exit_code=None, signal=None, at=90.0)
    silent = replace(RUNS, first_failure=gone, mute={"n2": "no route"})

    assert news_between(RUNS, silent, 100.0) == ("n2: does not answer: no route",)
    assert news_between(silent, RUNS, 100.0) == ()


def test_a_rank_that_failed_stays_failed_when_a_node_falls_silent() -> None:
    rank = FirstFailure(what="rank", rank=0, node="n1", exit_code=5, signal=None, at=95.0)
    node = replace(rank, what="node", rank=None, node="n2", exit_code=None, at=90.0)
    failed, silent = (replace(RUNS, first_failure=first) for first in (rank, node))

    assert news_between(failed, silent, 100.0) == ()
    assert news_between(failed, RUNS, 100.0) == (
        "corrected: rank 0 on n1, exit 5: not a failure after all",
    )


def test_nothing_is_told_of_a_job_in_which_nothing_happened() -> None:
    assert news_between(RUNS, replace(RUNS, output_coming=True), 100.0) == ()
