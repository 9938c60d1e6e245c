"""How sure a verdict is: shares are what they say on timelines that were kept apart from the fit,
and where the evidence does not decide, nobody is accused.
"""

from pathlib import Path

import pytest
from benchmarks.certainty import check_shares, gather_samples, told_shares
from benchmarks.recorded_ends import PLAYS

from rankdeck.model.stall import Explained, Stall
from rankdeck.rules.certainty import BAR, HIGHEST, Sign, rivals_of, share_blame, tell_share
from rankdeck.rules.certainty_table import WEIGHTS
from rankdeck.rules.deadlock import OF_DEADLOCK
from rankdeck.rules.ends import LAUNCHER_ENDINGS, End
from rankdeck.rules.failure_evidence import CLOCKS, KERNEL, NETWORK, WORDS, weigh_failure
from rankdeck.rules.root_cause import find_cause
from rankdeck.rules.stall_evidence import weigh_stalls
from tests.unit.test_root_cause import LOST_PEER, MPICH, OPENMPI, PLAIN, case, launcher, rank

ABSENT = Path("absent")
FEW = 500
NO_SAMPLE = ("Traceback (most recent call last):", "ValueError: no sample 17")


def weighed(*ends, ending=PLAIN, **more):
    return weigh_failure(find_cause(case(*ends, ending=ending, **more)), WEIGHTS)


def between(*ends, **more) -> set[int]:
    return {one.rank for one in weighed(*ends, **more).between}


def stall(kind: str, *ranks: int, **more) -> Stall:
    return Stall(kind=kind, ranks=ranks, since=1.0, text="they wait", **more)


def weigh(*stalls: Stall) -> tuple[Stall, ...]:
    return weigh_stalls(stalls, WEIGHTS)


@pytest.fixture(scope="module")
def samples():
    return gather_samples(ABSENT, FEW)


def test_of_what_was_kept_apart_shares_are_what_they_say(samples) -> None:
    found = check_shares(told_shares([one for one in samples if one.kept_apart], WEIGHTS))

    assert found.told > FEW / 2
    assert found.error <= 0.05
    assert found.sure_wrong <= 0.01 * found.sure


def test_of_the_corpus_of_this_repository_nothing_sure_is_wrong(samples) -> None:
    found = check_shares(told_shares([one for one in samples if one.recorded], WEIGHTS))

    assert found.told >= 20
    assert (found.told - found.right, found.sure_wrong) == (0, 0)


@pytest.mark.skipif(not PLAYS.is_dir(), reason="no plays of public failures beside this repository")
def test_of_played_public_failures_nothing_told_is_wrong() -> None:
    found = check_shares(told_shares([one for one in gather_samples(PLAYS, 0) if one.recorded], WEIGHTS))  # fmt: skip

    assert found.told == found.right


def test_shares_add_up_and_equal_evidence_has_equal_shares() -> None:
    shares = share_blame([{Sign.OWN}, {Sign.OWN}, set()], WEIGHTS)

    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] == shares[1] > shares[2]


def test_ninety_percent_is_told_only_of_what_is_hardly_ever_wrong() -> None:
    assert (tell_share(0.95), tell_share(0.985), tell_share(0.9999)) == (0.89, 0.98, HIGHEST)


def test_at_most_three_are_named_where_it_is_undecided() -> None:
    assert rivals_of([0.2, 0.25, 0.19, 0.18, 0.01], [0]) == (1, 0, 2)
    assert rivals_of([0.1, 0.02], [1]) == (0, 1)


def test_a_rank_that_alone_has_a_fault_of_its_own_is_accused_and_it_is_sure() -> None:
    found = weighed(rank(5, 10.0, 1, said=NO_SAMPLE), rank(1, 10.4, 1, said=(LOST_PEER,)))

    assert found.sure is not None
    assert found.sure >= 0.9


def test_two_ranks_with_equal_evidence_whose_clocks_differ_by_more_are_undecided() -> None:
    ends = (rank(2, 10.0, signal=9, slack=0.5), rank(6, 10.3, signal=9, slack=0.5))
    found = weighed(*ends)

    assert (found.sure, {one.rank for one in found.between}) == (None, {2, 6})
    assert (found.decides, found.signal) == (CLOCKS, 9)


def test_with_exact_clocks_the_first_of_the_same_two_is_accused() -> None:
    found = weighed(rank(2, 10.0, signal=11, slack=0.01), rank(6, 13.0, signal=11, slack=0.01))

    assert not found.between


def test_two_ranks_of_one_node_that_end_alike_in_the_same_moment_are_undecided() -> None:
    assert between(rank(1, 10.0, 1), rank(2, 10.003, 1)) == {1, 2}


def test_two_ranks_of_one_node_that_end_by_the_same_words_are_accused_together() -> None:
    ends = [rank(n, 10.0 + n / 1000, 3, said=("my last words",)) for n in (2, 3)]
    found = weighed(*ends, *(rank(n, 10.7, 9, node="n2") for n in (4, 5)))

    assert found.tied == (3,)
    assert found.sure is not None
    assert found.sure >= 0.7


def test_evidence_that_contradicts_itself_is_undecided() -> None:
    """A program that returns the code of a lost peer: all look like victims."""
    ends = [rank(n, 10.0 + n / 1000, 14) for n in range(8)]

    assert len(between(*ends[:5], rank(5, 10.2, signal=15), ending=OPENMPI)) > 1


def test_where_all_ranks_only_lost_each_other_nobody_is_accused() -> None:
    """A switch that fails: the first to say so is no more to blame than the others."""
    gave_up = ("ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15)",)
    ends = [rank(n, 10.0 + n / 10, signal=6, said=gave_up, node=f"n{n % 2 + 1}") for n in range(8)]
    found = weighed(*ends)

    assert (found.sure, len(found.between), found.decides) == (None, 3, NETWORK)


def test_where_some_lost_a_peer_and_the_launcher_ended_the_rest_nobody_is_accused() -> None:
    said = ("DistBackendError: NCCL error: remote process exited or there was a network error",)
    lost = [rank(n, 10.0 + n / 200, 1, said=said) for n in range(4)]
    found = weighed(*lost, *(rank(n, 10.4, signal=15) for n in range(4, 8)), ending=OPENMPI)

    assert (found.sure, len(found.between), found.decides) == (None, 3, NETWORK)


@pytest.mark.parametrize("ending", [PLAIN, OPENMPI])
def test_where_several_ranks_were_told_to_end_in_the_same_moment_nobody_is_accused(ending) -> None:
    ends = [rank(n, 10.0 + n / 500, signal=15) for n in range(8)]

    assert len(between(*ends, ending=ending)) == 3
    same = [rank(n, 10.0 + n / 500, signal=2, said=("KeyboardInterrupt",)) for n in range(4)]
    assert len(between(*same, ending=ending, world=4)) == 3
    assert len(between(*ends[4:], *(rank(n, 10.4, 14) for n in range(4)), ending=ending)) == 3


def test_ranks_that_tell_the_same_fault_are_accused_together_though_they_were_told_to_end() -> None:
    said = ("OFI fi_getinfo() failed (ofi_init.c:2757:open_fabric:No data available)",)
    ends = [rank(n, 10.0 + n / 500, signal=15, said=said) for n in (4, 5)]
    found = weighed(*ends, *(rank(n, 10.4, signal=15) for n in range(4)), ending=OPENMPI)

    assert found.between == ()
    assert found.tied == (5,)


def test_where_all_ranks_were_killed_one_is_accused_only_if_a_launcher_tells_more() -> None:
    ends = [rank(n, 10.0 + n / 100, signal=9) for n in range(8)]

    def told(line: str) -> int:
        said = launcher("n1", 11.0, (line,), name="srun", code=1)
        return len(between(*ends, ending=LAUNCHER_ENDINGS["slurm"], launchers=(said,)))

    assert told("srun: error: n1: task 3: Killed") == 3
    assert told("srun: error: n1: task 3: Segmentation fault (core dumped)") == 0


def test_of_ranks_that_were_all_killed_the_one_that_was_surely_first_is_told() -> None:
    def ended(late: float) -> int:
        others = [rank(n, 10.0 + late + n / 500, signal=9) for n in (0, 1, 2, 4, 5, 6, 7)]
        return len(between(rank(3, 10.0, signal=9), *others, ending=MPICH))

    assert ended(late=0.3) == 0
    assert ended(late=0.01) > 1


def test_a_killed_rank_that_mpiexec_names_is_not_outweighed_by_an_unexplained_end() -> None:
    said = ("=   RANK 3 PID 11 RUNNING AT n1", "=   KILLED BY SIGNAL: 9 (Killed)")
    killed = [rank(n, 10.1, signal=9) for n in (0, 1, 2, 4, 6, 7)]
    mpiexec = launcher("n1", 10.5, said, name="mpiexec", code=9)
    ends = (rank(5, 10.02, 1), rank(3, 10.05, signal=9), *killed)

    assert between(*ends, ending=MPICH, launchers=(mpiexec,)) == {3, 5}


def test_of_ranks_that_all_gave_up_waiting_the_one_that_is_behind_is_accused() -> None:
    said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE)"
    ends = [rank(n, 30.0 + n / 100, signal=6, said=(said.format(90 - (n == 2)),)) for n in range(8)]
    found = weighed(*ends)

    assert found.sure is not None
    assert found.between == ()


def test_where_all_ranks_look_alike_the_one_that_most_name_is_accused() -> None:
    line = "Detected mismatch between collectives on ranks. Rank {} is running collective: A, but Rank {} is running collective: B"
    ends = [rank(n, 10.0 + n / 10, 1, said=(line.format(n, 4 if n != 4 else 0),)) for n in range(8)]
    found = weighed(*ends)

    assert (found.between, found.sure is None) == ((), False)


def test_what_would_decide_is_told() -> None:
    quiet = weighed(rank(1, 10.0, 1), rank(2, 10.003, 1))
    killed = weighed(rank(1, 10.0, signal=9), rank(2, 10.003, signal=9))

    assert (quiet.decides, killed.decides) == (WORDS, KERNEL)


def test_the_one_that_is_stopped_is_accused_and_how_sure_that_is() -> None:
    (found,) = weigh(stall("stopped", 3))

    assert found.accused == (3,)
    assert BAR <= (found.sure or 0.0) <= HIGHEST
    assert found.sentence == f"they wait ({found.sure:.0%}".replace("%", " % sure)")


def test_where_who_fell_silent_first_is_not_who_does_something_else_nobody_is_accused() -> None:
    (found,) = weigh(stall("all", *range(8), odd=(5,), first=(2,)))

    assert (found.accused, found.between, found.sure) == ((), (2, 5), None)
    assert "it is undecided who of ranks 2,5 is to blame" in found.sentence


def test_where_both_agree_that_one_is_accused() -> None:
    (found,) = weigh(stall("all", *range(8), odd=(5,), first=(5,)))

    assert found.accused == (5,)


def test_two_stalls_that_accuse_different_ranks_accuse_nobody() -> None:
    found = weigh(stall("stopped", 1), stall("stopped", 2))

    assert [one.accused for one in found] == [(), ()]
    assert [one.between for one in found] == [(1, 2), (1, 2)]


def test_of_a_deadlock_it_is_told_how_sure_it_is_that_nobody_is_to_blame() -> None:
    (found,) = weigh(stall("all", 0, 1, explained=(OF_DEADLOCK,)))

    assert (found.accused, found.between) == ((), ())
    assert found.sure is not None


def test_where_all_are_silent_and_nobody_is_named_nothing_is_weighed() -> None:
    one = stall("all", 0, 1, explained=(Explained("they wait", "look"),))

    assert weigh(one) == (one,)


def test_a_node_whose_agent_stands_still_is_accused_and_no_rank() -> None:
    (found,) = weigh(stall("agent", 2, 3, node="n2"))

    assert found.accused == ()
    assert found.sure is not None


@pytest.mark.parametrize(
    ("ending", "later"),
    [*((name, 0.02) for name in LAUNCHER_ENDINGS), ("kubernetes", 1.0), ("torchrun", 1.0), ("", 0)],
)
def test_where_all_are_killed_at_once_nobody_is_accused(ending: str, later: float) -> None:
    """Somebody outside did that: of pods only the whole second of their end is known."""
    ends = [rank(n, 10.0 + later * (n > 0), 137, node=f"n{n}", slack=0.5) for n in range(4)]

    assert between(*ends, ending=LAUNCHER_ENDINGS[ending], world=4)


def test_the_one_that_was_killed_long_before_the_others_is_accused() -> None:
    ends = [rank(n, 10.0 + 9 * (n > 0), 137, node=f"n{n}", slack=0.5) for n in range(4)]
    found = weighed(*ends, ending=LAUNCHER_ENDINGS["kubernetes"], world=4)

    assert found.sure is not None
    assert found.sure >= BAR


def raised(number: int, at: float) -> End:
    said = ("lightgbm.basic.LightGBMError: Size of feature_names error, should equal with",)
    return rank(number, at, 1, said=said, node=f"n{number % 2 + 1}")


def ended(*numbers: int) -> list[End]:
    return [rank(number, 25.0, signal=15, stopped=True) for number in numbers]


def test_where_most_ranks_raise_alike_in_one_moment_nobody_is_accused() -> None:
    found = weighed(raised(0, 20.02), raised(1, 20.0), *ended(2), world=3)

    assert found.sure is None
    assert {one.rank for one in found.between} == {0, 1}
    assert "sets these ranks apart" in found.decides


def test_one_of_them_that_was_surely_first_is_accused_and_so_is_one_of_a_few() -> None:
    first = weighed(raised(0, 20.0), raised(1, 23.0), *ended(2), world=3)
    few = weighed(raised(0, 20.0), raised(1, 20.3), *ended(2, 3, 4), world=5)

    assert (first.between, few.between) == ((), ())


CUT = ("[n1:01168] *** An error occurred in MPI_Waitsome", "[n1:01168] *** MPI_ERR_TRUNCATE: message truncated")  # fmt: skip


def test_where_most_ranks_got_messages_that_are_too_long_none_of_them_is_accused() -> None:
    ends = [rank(0, 20.03, 15), rank(1, 20.0, 15, node="n2"), rank(2, 20.1, signal=15)]
    mpirun = launcher("n1", 20.5, CUT, name="mpirun", code=15)

    found = weighed(*ends, launchers=(mpirun,), ending=OPENMPI, world=3)
    assert {0, 1} <= {one.rank for one in found.between}
    assert not weighed(*ends, ending=OPENMPI, world=3).between, "without its word"


@pytest.mark.parametrize(("more", "accused"), [("1 more process has", False), ("", True)])
def test_of_several_that_got_them_mpirun_may_show_one_only(more: str, accused: bool) -> None:
    """One alone is told, but not as sure: the other end of that message may be to blame."""
    told = (*CUT, f"[n1:00037] {more} sent help message help-mpi-errors.txt / mpi_errors_are_fatal")
    ends = [rank(n, 20.1, signal=15) for n in (0, 2)]
    mpirun = launcher("n1", 20.5, told, name="mpirun", code=15)

    found = weighed(rank(1, 20.0, 15), *ends, launchers=(mpirun,), ending=OPENMPI, world=3)
    assert (not found.between) is accused
    assert found.sure is None


@pytest.mark.parametrize(("more", "everybody"), [(2, True), (1, False)])
def test_where_mpirun_counts_all_ranks_that_aborted_nobody_is_accused(more, everybody) -> None:
    said = ("MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
            f"[n1:00463] {more} more processes have sent help message help-mpi-api.txt / mpi-abort")  # fmt: skip
    ends = [rank(0, 20.03, signal=15), *(rank(n, 20.0, 1, said=("no file",)) for n in (1, 2))]
    mpirun = launcher("n1", 20.5, said, name="mpirun", code=1)

    found = weighed(*ends, launchers=(mpirun,), ending=OPENMPI, world=3)
    assert found.everybody is everybody


def test_who_left_may_end_a_moment_after_those_that_it_left() -> None:
    lost = ("- [loop.cc:102|02:41:09]: Encountered EOF. The other end is likely closed.",)
    victims = [rank(n, 20.0, 1, said=lost) for n in (0, 2)]

    assert find_cause(case(rank(1, 20.4), *victims, ending=PLAIN, world=3)).end.rank == 1
    assert find_cause(case(rank(1, 22.4), *victims, ending=PLAIN, world=3)).finder != "left"
    # Its launcher may have told it to end, and it has a handler for that.
    assert find_cause(case(rank(1, 20.4), *victims, ending=OPENMPI, world=3)).finder != "left"


STACK = tuple(f"  [bt] ({n}) /lib/libsolve.so(+0x2c1a8c) [0x7f1de3ac1a8c]" for n in range(9))


def test_ranks_whose_stacks_look_alike_have_not_failed_by_the_same_words() -> None:
    unknown = ("solve.Error: Unknown objective function: `squareerror`", *STACK)
    victims = [
        rank(n, 20.0 + n / 100, 1, said=(f"solve.Error: step {n} was not shared", *STACK))
        for n in (0, 2)
    ]

    found = weighed(rank(1, 20.0, 1, said=unknown), *victims, world=3)
    assert not found.everybody


def test_ranks_that_raise_the_same_before_their_stacks_have() -> None:
    same = ("solve.Error: Unknown objective function: `squareerror`", *STACK)

    assert weighed(*(rank(n, 20.0, 1, said=same) for n in range(3)), world=3).everybody


def test_the_same_words_about_folders_of_their_own_nodes_are_the_same() -> None:
    ends = [
        rank(number, 20.0 + number, 2, node=node, said=(f"python: can't open file '/scratch/{node}/run.py': [Errno 2] No such file or directory",))
        for number, node in enumerate(("sakuya", "sakura", "koishi"))
    ]  # fmt: skip

    assert weighed(*ends, world=3).everybody


def test_the_frame_of_a_stack_is_no_word_by_which_a_rank_stands_out() -> None:
    lost = "- [allgather.cc:50|02:41:09]: Ring allgather failed, current iteration:1"
    frames = ("  [bt] (1) /lib/libsolve.so(run+0x77) [0x7f1d]", "  [bt] (2) /usr/bin/python [0x3a]")
    ends = [rank(n, 20.0, 1, said=("step 7", lost, frames[n // 2])) for n in (0, 1, 2)]

    assert find_cause(case(*ends, ending=PLAIN, world=3)).finder == "lost"
