"""Who is stuck by what the processes of the ranks do, on looks made by hand."""

from collections.abc import Sequence

import pytest

from rankdeck.model.rank import Activity
from rankdeck.model.stall import Stall
from rankdeck.rules.rank_signs import QUIET, KnownOfJob
from rankdeck.rules.stall import BUSY, SPEECHLESS, UNSURE, find_stalls
from rankdeck.values import replace
from tests.unit.test_stall import job, rank

NOW = 1000.0
SINCE = NOW - QUIET - 1


def looks(state="S", wchan="ep_poll", cores=0.0, system=None, now=NOW, count=12):
    return tuple(
        Activity(state, wchan, cores, system, now - 5.0 * back) for back in reversed(range(count))
    )


WAITS = looks("S", "futex_wait_queue")
SLEEPS = looks("S", "hrtimer_nanosleep")
SPINS = looks("R", "", 1.0, 0.4)
COMPUTES = looks("R", "", 1.0, 0.0)
STOPPED = looks("T", "do_signal_stop")


def silent(number: int, since: float = SINCE, **more: object):
    return rank(number, since, lines=500, **more)


def judged(ranks, known, now=NOW, **more):
    return find_stalls(job(ranks, **more), now, known)


def all_but(usual, count, **odd):
    found = dict.fromkeys(range(count), usual)
    return {**found, **{int(name[1:]): what for name, what in odd.items()}}


def test_after_30_s_the_one_that_does_something_else_is_named() -> None:
    ranks = [silent(n) for n in range(16)]

    (found,) = judged(ranks, KnownOfJob(looks=all_but(WAITS, 16, r11=SLEEPS)))

    assert (found.kind, found.odd) == ("all", (11,))
    assert found.text == (
        "all 16 ranks silent for 30 s: 15 in futex_wait_queue (a lock or another thread), rank 11 on n2 in hrtimer_nanosleep (a sleep)"
    )


def test_ranks_that_fell_silent_together_are_not_named_as_they_reach_the_limit() -> None:
    ranks = [silent(n, SINCE + 2 * (n != 2)) for n in range(6)]

    assert not judged(ranks, KnownOfJob(looks=all_but(COMPUTES, 6)))


@pytest.mark.parametrize(("silence", "named"), [(45.0, ()), (65.0, (2,))])
def test_a_rank_that_works_may_be_silent_longer_than_the_others(silence, named) -> None:
    ranks = [silent(n, NOW - (silence if n == 2 else 1.0)) for n in range(6)]

    found = judged(ranks, KnownOfJob(looks=all_but(COMPUTES, 6)))

    assert tuple(rank for stall in found for rank in stall.ranks) == named


def test_the_load_of_the_nodes_changes_nothing_of_that() -> None:
    ranks = [silent(n) for n in range(4)]
    known = KnownOfJob(idle=lambda _: False, looks=all_but(SPINS, 4, r2=SLEEPS))

    (found,) = judged(ranks, known)

    assert found.text.endswith("3 compute, rank 2 on n1 in hrtimer_nanosleep (a sleep)")


def test_where_nobody_differs_it_is_said_with_who_fell_silent_first() -> None:
    ranks = [silent(n, SINCE - 3 * (n == 2)) for n in range(8)]

    (found,) = judged(ranks, KnownOfJob(looks=all_but(looks(), 8)))

    assert found.text == (
        "all 8 ranks in ep_poll (a socket or a timer), no CPU used, silent for 30 s; rank 2 on n1 fell silent first"
    )


@pytest.mark.parametrize(
    ("first", "system", "patience"),
    [(False, 0.0, BUSY), (True, 0.2, UNSURE), (True, 0.0, BUSY)],
)
def test_ranks_that_all_compute_may_be_silent_long(first, system, patience) -> None:
    ranks = [silent(n, 100.0 - 5 * (first and n == 2)) for n in range(4)]

    def found(after):
        now = 100.0 + after
        known = KnownOfJob(looks=all_but(looks("R", "", 1.0, system, now=now), 4))
        return judged(ranks, known, now)

    assert not found(patience - 1)
    assert found(patience + 1)


POLLS = tuple(replace(look, moves=0) for look in looks("R", "", 0.9, 0.4))


def test_where_all_only_poll_it_is_a_deadlock_and_nobody_is_to_blame() -> None:
    ranks = [silent(n, SINCE - 3 * (n == 2)) for n in range(6)]

    (found,) = judged(ranks, KnownOfJob(looks=all_but(POLLS, 6)))

    assert (found.kind, found.first, found.odd) == ("all", (), ())
    assert found.text == (
        "a deadlock, all 6 ranks wait for each other: they poll for messages, none computes, silent for 30 s;"
        " rank 2 on n1 fell silent first"
    )
    assert "deadlock" in found.explained[0].means


@pytest.mark.parametrize(
    "other",
    [
        tuple(replace(look, moves=400) for look in POLLS),
        tuple(replace(look, moves=None) for look in POLLS),
        tuple(replace(look, system=0.01) for look in POLLS),
    ],
    ids=["reads or writes", "an older agent", "its own code"],
)
def test_one_that_works_or_of_which_that_is_not_known_is_no_deadlock(other) -> None:
    ranks = [silent(n) for n in range(6)]

    found = judged(ranks, KnownOfJob(looks=all_but(POLLS, 6, r3=other)))

    assert all("wait for each other" not in stall.text for stall in found)


def test_on_a_machine_so_busy_that_some_looks_tell_no_share_it_is_a_deadlock_too() -> None:
    starved = tuple(replace(look, cores=0.01, system=None) for look in POLLS[::2])
    some = tuple(sorted((*starved, *POLLS[1::2]), key=lambda look: look.at))
    ranks = [silent(n, SINCE - 30) for n in range(6)]

    (found,) = judged(ranks, KnownOfJob(looks=all_but(some, 6)))

    assert "wait for each other" in found.text


def test_in_a_pause_of_all_nobody_is_silent_while_others_go_on() -> None:
    ranks = [silent(n, NOW - (38 if n == 2 else 26)) for n in range(6)]

    assert judged(ranks, KnownOfJob(looks=all_but(SLEEPS, 6))) == ()


def test_ranks_that_poll_for_busy_gpus_are_no_deadlock() -> None:
    ranks = [silent(n) for n in range(6)]

    assert judged(ranks, KnownOfJob(looks=all_but(POLLS, 6), gpus=lambda _: True)) == ()


def test_a_deadlock_stays_one_when_a_look_differs() -> None:
    ranks = [silent(n, SINCE - 3 * (n == 2)) for n in range(6)]
    said = judged(ranks, KnownOfJob(looks=all_but(POLLS, 6)))
    odd = (*POLLS[:-1], replace(POLLS[-1], moves=50))

    (still,) = judged(ranks, KnownOfJob(looks=all_but(POLLS, 6, r3=odd)), stalled=said)

    assert (still.first, still.odd) == ((), ())


def test_ranks_that_wait_for_busy_gpus_may_be_silent_long() -> None:
    ranks = [silent(n) for n in range(4)]
    known = KnownOfJob(looks=all_but(looks(), 4), gpus=lambda _: True)

    assert not judged(ranks, known)
    assert judged(ranks, replace(known, gpus=lambda _: None))


def test_a_job_that_never_wrote_has_longer() -> None:
    ranks = [rank(n, 0.0, lines=0) for n in range(4)]

    def found(now):
        known = KnownOfJob(looks=all_but(looks(now=now), 4))
        return judged(ranks, known, now)

    assert not found(SPEECHLESS - 1)
    assert found(SPEECHLESS + 1)


def test_looks_that_are_old_say_nothing_of_now() -> None:
    ranks = [silent(n) for n in range(4)]
    old = looks(now=NOW - 60.0)

    assert not judged(ranks, KnownOfJob(idle=lambda _: False, looks=all_but(old, 4)))


def test_what_is_said_stays_until_there_is_output_again() -> None:
    ranks = [silent(n) for n in range(4)]
    said = judged(ranks, KnownOfJob(looks=all_but(WAITS, 4, r1=SLEEPS)))
    busy = KnownOfJob(looks=all_but(COMPUTES, 4))

    still = judged(ranks, busy, stalled=said)
    ranks[3] = silent(3, NOW)
    after = judged(ranks, busy, stalled=said)

    assert not judged([silent(n) for n in range(4)], busy)
    assert [stall.kind for stall in still] == ["all"]
    assert after == ()


def test_the_text_does_not_change_every_second() -> None:
    ranks = [silent(n) for n in range(4)]
    texts = {
        judged(ranks, KnownOfJob(looks=all_but(looks(now=NOW + s), 4)), NOW + s)[0].text
        for s in range(60)
    }

    assert len(texts) <= 7


def test_a_single_rank_is_called_by_its_number() -> None:
    (found,) = judged([silent(0)], KnownOfJob(looks={0: looks()}))

    assert (
        found.text == "rank 0 on n1 in ep_poll (a socket or a timer), no CPU used, silent for 30 s"
    )


def test_a_minority_that_fell_silent_is_told_with_what_it_does() -> None:
    ranks = [silent(0, 900.0), *(silent(n, NOW - 1) for n in range(1, 8))]

    (found,) = judged(ranks, KnownOfJob(looks=all_but(COMPUTES, 8, r0=SLEEPS)))

    assert found.kind == "rank"
    assert found.text == (
        "rank 0 on n1 in hrtimer_nanosleep (a sleep), silent for 1 min 40 s while 7 others go on"
    )


# ---- halted ----------------------------------------------------------------------------------


def test_a_stopped_rank_is_named_at_once_with_what_lets_it_go_on() -> None:
    ranks = [silent(n, NOW - 8, pid=100 + n) for n in range(4)]
    stopped = (*COMPUTES[:-2], *STOPPED[-2:])

    (found,) = judged(ranks, KnownOfJob(looks=all_but(SPINS, 4, r3=stopped)))

    assert (found.kind, found.ranks, found.since) == ("stopped", (3,), NOW - 5)
    assert found.text == (
        "rank 3 on n1 is stopped (SIGSTOP or a debugger); `kill -CONT 103` lets it go on"
    )


def test_one_look_at_a_stopped_rank_is_not_enough() -> None:
    ranks = [silent(n, NOW - 8) for n in range(4)]
    stopped = (*COMPUTES[:-1], STOPPED[-1])

    assert judged(ranks, KnownOfJob(looks=all_but(SPINS, 4, r3=stopped))) == ()


def test_silence_counts_from_when_a_stopped_rank_goes_on() -> None:
    ranks = [silent(n, NOW - 300) for n in range(4)]
    goes_on = (*STOPPED[:-3], *WAITS[-3:])

    assert judged(ranks, KnownOfJob(looks=all_but(WAITS, 4, r3=goes_on))) == ()


def test_a_rank_that_waits_for_a_file_system_is_named() -> None:
    ranks = [silent(n, NOW - 12) for n in range(4)]
    hangs = (*COMPUTES[:-2], *looks("D", "nfs_wait_on_request")[-2:])

    (found,) = judged(ranks, KnownOfJob(looks=all_but(SPINS, 4, r1=hangs)))

    assert found.kind == "device"
    assert found.text == (
        "rank 1 on n1 waits for a device or a file system (state D, nfs_wait_on_request)"
    )


def test_a_rank_that_reads_much_and_speaks_does_not_hang() -> None:
    ranks = [silent(n, NOW - 1) for n in range(4)]
    reads = looks("D", "folio_wait_bit_common", 0.01)

    assert judged(ranks, KnownOfJob(looks=all_but(COMPUTES, 4, r1=reads))) == ()


# ---- raised ----------------------------------------------------------------------------------

WORDS = [
    "RuntimeError: boom",
    "[rank3]: torch.distributed.DistBackendError: NCCL error",
    "KeyError: 'x'",
    "AssertionError",
    "Abort(15) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Recv",
    "solver: solve.c:12: main: Assertion `dt > 0' failed.",
    "  what():  std::bad_alloc",
    "[n2:4711:0:4711] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
    "thread 'main' panicked at src/main.rs:4:5:",
    "panic: runtime error: index out of range [5] with length 3",
    "forrtl: severe (24): end-of-file during read, unit 10",
    "Fortran runtime error: End of file",
    "ERROR: LoadError: no sample 17",
    'Exception in thread "main" java.lang.NullPointerException',
    "Unhandled exception. System.InvalidOperationException: no sample 17",
    "Error in solve(x) : no sample 17",
]


@pytest.mark.parametrize("line", WORDS)
def test_a_rank_that_raised_and_runs_on_is_named_after_10_s(line) -> None:
    last = {"last_line": line}
    ranks = [silent(n, NOW - 11, **(last if n == 3 else {})) for n in range(4)]

    (found,) = judged(ranks, KnownOfJob(looks=all_but(SPINS, 4, r3=WAITS)))

    assert (found.kind, found.ranks) == ("raised", (3,))
    assert line.removeprefix("[rank3]: ").strip() in found.text
    assert found.text.endswith("and has not ended")


def test_a_rank_that_raised_is_named_also_where_a_library_warns_afterwards() -> None:
    words = [
        "Traceback (most recent call last):",
        '  File "train.py", line 1',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        "[rank3]:[W1127 02:22:01.1 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called",
    ]
    ranks = [silent(n, NOW - 11, **({"last_line": words[-1]} if n == 3 else {})) for n in range(4)]
    known = KnownOfJob(looks=all_but(POLLS, 4), words=lambda rank: words if rank == 3 else ())

    (found,) = judged(ranks, known)

    assert (found.kind, found.ranks) == ("raised", (3,))
    assert "raised torch.OutOfMemoryError: CUDA out of memory" in found.text


@pytest.mark.parametrize("line", ["epoch 3: loss 2.5", "Error rate: 0.1", "done", ""])
def test_other_last_words_are_no_exception(line) -> None:
    ranks = [silent(n, NOW - 11, last_line=line) for n in range(4)]

    assert judged(ranks, KnownOfJob(looks=all_but(SPINS, 4, r3=WAITS))) == ()


def test_an_exception_of_any_name_counts_where_its_traceback_is_known() -> None:
    ranks = [silent(n, NOW - 11, last_line="mylib.Boom: no") for n in range(2)]
    ends = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1',
        "mylib.Boom: no",
    ]

    assert judged(ranks, KnownOfJob()) == ()
    (found,) = judged(ranks[:1], KnownOfJob(words=lambda _: ends))
    assert found.text == "rank 0 on n1 raised mylib.Boom: no and has not ended"


TRACEBACK = [
    "step 40 residual 0.1",
    "[1] Traceback (most recent call last):",
    '[1]   File "prog.py", line 43, in <module>',
    "[1]     solver.setType('nonsense')",
    "[1] petsc4py.PETSc.Error: error code 86",
    "[1] [1] Unable to find requested KSP type nonsense",
    "[1] Exception ignored in atexit callback: <built-in function _pre_finalize>",
]


def told_by_rank_1(words: Sequence[str]) -> tuple[Stall, ...]:
    ranks = [silent(n, NOW - 11, **({"last_line": words[-1]} if n == 1 else {})) for n in range(3)]
    known = KnownOfJob(looks=all_but(POLLS, 3), words=lambda rank: words if rank == 1 else ())
    return judged(ranks, known)


def test_an_exception_counts_also_where_more_is_written_about_the_end() -> None:
    aborted = ["step 40", "terminate called without an active exception", "  frame 1: main"]

    julia = ["step 40", "ERROR: LoadError: no sample 17", "Stacktrace:", " [1] error(s::String)"]

    (found,), (other,) = told_by_rank_1(TRACEBACK), told_by_rank_1(aborted)
    (third,) = told_by_rank_1(julia)

    assert (third.kind, third.ranks) == ("raised", (1,))
    assert found.text == "rank 1 on n1 raised petsc4py.PETSc.Error: error code 86 and has not ended"
    assert (found.kind, found.ranks, other.kind, other.ranks) == ("raised", (1,), "raised", (1,))


@pytest.mark.parametrize(
    "more", ["step 41 residual 0.09", "step 41 residual 9e-2", "continuing without metrics"]
)
def test_an_exception_after_which_the_rank_went_on_was_handled(more: str) -> None:
    assert told_by_rank_1([*TRACEBACK, more]) == ()


def test_an_exception_after_which_the_others_go_on_was_handled() -> None:
    ranks = [silent(0, NOW - 25, last_line="ValueError: x"), silent(1, NOW - 11)]

    assert judged(ranks, KnownOfJob(looks=all_but(SPINS, 2))) == ()
