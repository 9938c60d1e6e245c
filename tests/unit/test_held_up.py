"""Who made a job fail that hung before: the rank that held up the others, as it was seen then."""

import pytest

from rankdeck.model.stall import Stall
from rankdeck.rules.ends import End
from rankdeck.values import replace
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict, VerdictKind
from tests.support.reported import SCHEDULER, ends, play_report, report
from tests.unit.test_certainty import weighed
from tests.unit.test_jobs_state import Feed
from tests.unit.test_root_cause import NVRX, OPENMPI, TORCHRUN, WAITED, blamed, case, launcher, rank

STALL = Stall(
    kind="absent", ranks=(2,), since=10.0, sure=0.89,
    text="rank 2 on n1 never entered all_reduce 16 (ranks 0-1,3 wait there since 9 s)",
)  # fmt: skip
KILLED = rank(0, 20.0, signal=9)
TOLD = [rank(n, 20.3, signal=15) for n in (1, 2, 3)]
"""The launcher killed a rank that waited, and told the others to end."""


def test_of_ranks_that_were_only_ended_the_one_that_held_up_the_others_is_named() -> None:
    more = {"launchers": (launcher("n1", 22.0, NVRX, code=1),), "ending": TORCHRUN, "world": 4}

    assert blamed(case(KILLED, *TOLD, held_up=STALL, **more)) == 2
    assert weighed(KILLED, *TOLD, held_up=STALL, **more).sure == 0.89
    assert weighed(KILLED, *TOLD, **more).sure is None  # nobody saw it hang


@pytest.mark.parametrize(
    "own",
    [rank(1, 19.0, signal=11), rank(1, 19.0, 1, said=("ValueError: no sample 17",))],
    ids=["crashed", "raised"],
)
def test_a_rank_that_failed_by_itself_is_named_all_the_same(own: End) -> None:
    others = [rank(n, 20.3, signal=15) for n in (2, 3)]

    assert blamed(case(KILLED, own, *others, ending=TORCHRUN, world=4, held_up=STALL)) == 1


@pytest.mark.parametrize(
    "own",
    [
        rank(0, 20.0, signal=14),
        rank(0, 20.0, 3, said=("step 15", "no answer from rank 2 for 60 s"), ago=(70.0, 0.1)),
        rank(0, 20.0, 1, said=("TimeoutError: halo of step 16",)),
        rank(0, 20.0, 3, said=("step 15",), ago=(70.0,)),
    ],
    ids=["alarm", "words", "exception", "without a word"],
)
def test_a_rank_that_gave_up_waiting_by_its_own_clock_followed_the_one_that_held_it_up(
    own: End,
) -> None:
    others = [rank(n, 20.3, signal=15) for n in (1, 2, 3)]
    more = {"ending": OPENMPI, "world": 4, "held_up": STALL}
    said = "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD"
    aborted = launcher("n1", 22.0, (said,), name="mpirun", code=1)

    assert blamed(case(own, *others, **more)) == 2
    assert blamed(case(own, *others, **more, launchers=(aborted,))) == 2
    assert blamed(case(own, *others, ending=OPENMPI, world=4)) == 0  # nobody saw it hang


def test_a_rank_that_fails_by_other_words_at_its_end_did_not_give_up() -> None:
    own = rank(0, 20.0, 3, said=("watchdog armed", "cannot read sample 17"), ago=(70.0, 0.1))
    others = [rank(n, 20.3, signal=15) for n in (1, 2, 3)]

    assert blamed(case(own, *others, ending=OPENMPI, world=4, held_up=STALL)) == 0


def test_it_is_told_before_the_scheduler_that_ended_the_job() -> None:
    line = "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 10:00 DUE TO TIME LIMIT ***"
    told = [rank(n, 20.3, signal=15) for n in range(4)]
    more = {"launchers": (launcher("n1", 22.0, (line,), code=1),), "ending": TORCHRUN, "world": 4}

    assert blamed(case(*told, held_up=STALL, **more)) == 2
    assert blamed(case(*told, **more)) == "scheduler n1"


def test_beside_a_scheduler_its_own_word_is_explained_and_not_that_sentence() -> None:
    stall = replace(
        STALL, text="rank 2 on n2 reads /data (OSError: [Errno 28] No space left on device)"
    )
    over = SchedulerVerdict(VerdictKind.TIME_LIMIT, "its time limit was over", node="n1")
    told = report(
        SCHEDULER, *ends(range(4), 60, signal=15), launch="kubernetes", verdict=over, held_up=stall
    )  # fmt: skip

    first = play_report(told)

    assert first is not None
    assert first.evidence[-1].startswith("before that: rank 2 on n2 reads /data")
    assert not any("space" in one.means + one.line for one in first.explained)


def test_a_job_that_only_hangs_has_not_failed() -> None:
    assert blamed(case(ending=TORCHRUN, world=4, held_up=STALL)) is None
    stopped = [rank(n, 20.0, signal=15, stopped=True) for n in range(4)]
    assert blamed(case(*stopped, ending=TORCHRUN, world=4, held_up=STALL)) is None


def given_up_after(*stalls: tuple[Stall, ...]) -> Feed:
    """A job in which this was judged, one after the other, until the ranks gave up."""
    feed = Feed()
    feed.start_all()
    for found in stalls:
        feed.jobs.set_stalled("t-1", found)
    for n in range(4):
        feed.tell("n1" if n < 2 else "n2", "exited", 2.0 + n / 10, rank=n, code=1, said=[WAITED])
        feed.jobs.set_stalled("t-1", ())  # what has ended waits for nobody
    feed.close()
    return feed


def test_while_it_hangs_nothing_has_failed() -> None:
    feed = Feed()
    feed.start_all()
    feed.jobs.set_stalled("t-1", (STALL,))

    assert feed.job.first_failure is None


def test_what_was_said_when_the_first_rank_failed_counts() -> None:
    first = given_up_after((STALL,)).job.first_failure

    assert first is not None
    assert (first.rank, first.sure) == (2, 0.89)
    assert first.evidence[0] == f"before any rank failed: {STALL.text}"
    assert [one.means for one in first.explained] == ["the others waited for it until they gave up"]


def test_what_a_black_box_tells_of_the_silence_counts_unless_a_console_saw_it() -> None:
    unseen, seen = given_up_after(), given_up_after((STALL,))
    for feed in (unseen, seen):
        feed.jobs.learn_held_up("t-1", replace(STALL, ranks=(3,), text="rank 3 on n2 waits"))

    ranks = [feed.job.first_failure and feed.job.first_failure.rank for feed in (unseen, seen)]
    assert ranks == [3, 2]


@pytest.mark.parametrize(
    "stalls",
    [((STALL,), ()), ((replace(STALL, kind="slow"),),), ((replace(STALL, between=(1, 2)),),), ((replace(STALL, sure=None),),)],
    ids=["it went on", "only slow", "undecided", "not weighed"],
)  # fmt: skip
def test_who_is_not_accused_of_holding_up_the_others_is_not_named(
    stalls: tuple[tuple[Stall, ...], ...],
) -> None:
    first = given_up_after(*stalls).job.first_failure

    assert first is not None
    assert first.what == "undecided" or not any("before any" in one for one in first.evidence)
