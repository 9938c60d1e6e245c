"""Who made a job fail where all ranks of a node were killed in one moment."""

from rankdeck.rules.certainty_table import WEIGHTS
from rankdeck.rules.ends import End
from rankdeck.rules.failed_job import FailedJob
from rankdeck.rules.failure_evidence import weigh_failure
from rankdeck.rules.root_cause import find_cause
from tests.unit.test_root_cause import (
    LOST_PEER,
    MPICH,
    OPENMPI,
    PLAIN,
    TORCHRUN,
    blamed,
    case,
    launcher,
    rank,
)

KILLED = [rank(n, 10.0 + n / 50, signal=9) for n in (4, 5, 6, 7)]
LOST = [rank(n, 10.4 + n / 50, 1, said=(LOST_PEER,)) for n in range(4)]


def gone(number: int, at: float) -> End:
    """A rank whose end nobody saw."""
    return End(rank=number, node="n2", at=at, slack=0.005)


def test_the_node_is_named_whose_ranks_were_all_killed_before_others_lost_them() -> None:
    assert blamed(case(*KILLED, *LOST, ending=PLAIN)) == "node n2"
    assert blamed(case(*KILLED, *LOST, ending=TORCHRUN)) == "node n2"
    assert blamed(case(*KILLED, *LOST, ending=OPENMPI)) == "node n2"
    cause = find_cause(case(*KILLED, *LOST, ending=PLAIN))
    assert cause is not None
    assert (cause.victims, cause.others) == ((0, 1, 2, 3), ())
    weighed = weigh_failure(cause, WEIGHTS)
    assert (weighed.sure, weighed.between) == (None, ())


def test_ranks_that_vanished_with_their_shims_count_as_well() -> None:
    vanished = [gone(n, 10.0 + n / 50) for n in (4, 5, 6, 7)]

    assert blamed(case(*vanished, *LOST, ending=OPENMPI)) == "node n2"


def test_a_launcher_that_kills_at_once_may_have_emptied_the_node() -> None:
    assert blamed(case(*KILLED, *LOST, ending=MPICH)) != "node n2"


def test_where_another_rank_may_be_the_cause_no_node_is_named() -> None:
    cases: dict[str, FailedJob] = {
        "one of the node goes on": case(*KILLED[1:], *LOST, ending=PLAIN),
        "one by one": case(
            *(rank(n, 10.0 + n, signal=9) for n in (4, 5, 6, 7)), *LOST, ending=PLAIN
        ),
        "one crashed": case(rank(4, 10.0, signal=11), *KILLED[1:], *LOST, ending=PLAIN),
        "another raised": case(*KILLED, rank(0, 10.4, 1, said=("KeyError: 'x'",)), ending=PLAIN),
        "one of another was killed": case(
            *KILLED, rank(0, 10.1, signal=9), *LOST[1:], ending=PLAIN
        ),
        "nobody else failed": case(*KILLED, ending=PLAIN),
        "a launcher was killed": case(*KILLED, *LOST, launchers=(launcher("n2", 10.0, signal=9),)),
        "one rank there": case(KILLED[0], *LOST, ending=PLAIN, world=5),
    }
    for name, one in cases.items():
        assert blamed(one) != "node n2", name
