"""Who made a job fail: ends as real programs left them, and the rank that was at fault."""

import pytest

from rankdeck.model.stall import Stall
from rankdeck.rules.certainty_table import WEIGHTS
from rankdeck.rules.ends import LAUNCHER_ENDINGS, End
from rankdeck.rules.failed_job import FailedJob
from rankdeck.rules.failure_evidence import weigh_failure
from rankdeck.rules.root_cause import find_cause
from rankdeck_agent.rules.scheduler_verdict import OUTSIDE, SchedulerVerdict, VerdictKind
from rankdeck_agent.schedulers.kubernetes import job_snapshot as kubernetes
from rankdeck_agent.schedulers.kubernetes.objects import JobOutcome, Pod, RankContainer
from rankdeck_agent.wire.job_events import ProgramEnd
from tests.support.cases import each

OPENMPI, MPICH, TORCHRUN, PLAIN = (
    LAUNCHER_ENDINGS[name] for name in ("openmpi5", "mpich", "torchrun", "")
)
LOST_PEER = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:542] Connection closed by peer [10.0.0.2]:4567"
)
WAITED = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81]"
    " Timed out waiting 8000ms for recv operation to complete"
)
NAMES = {"10.0.0.1": "n1", "10.0.0.2": "n2", "n1": "n1", "n2": "n2"}


def rank(number: int, at: float | None = None, code: int | None = None, **more) -> End:
    """Ranks 0 to 3 are on n1, 4 to 7 on n2."""
    fields = {"node": "n1" if number < 4 else "n2", "slack": 0.005, **more}
    lines = fields.pop("said", ())
    if at is not None and code is None and "signal" not in fields:
        code = 0
    return End(rank=number, at=at, code=code, lines=tuple(lines), **fields)


def case(*ends: End, ending=OPENMPI, world: int = 8, **more) -> FailedJob:
    known = {end.rank: end for end in ends}
    every = tuple(known.get(number, rank(number)) for number in range(world))
    return FailedJob(ends=every, ending=ending, names=NAMES, **more)


def launcher(node: str, at: float, said=(), name="torchrun", **more) -> End:
    return End(what="launcher", name=name, node=node, at=at, lines=tuple(said), **more)


def lost(node: str, heard: float) -> End:
    return End(what="node", node=node, at=heard, slack=2.0)


def blamed(one: FailedJob) -> int | str | None:
    verdict = find_cause(one)
    if verdict is None:
        return None
    end = verdict.end
    return end.rank if end.what == "rank" else f"{end.what} {end.node}"


def test_nothing_failed_where_all_ended_well_or_go_on() -> None:
    assert blamed(case(rank(0, 5.0), rank(1, 5.1))) is None


def test_a_crash_is_the_cause_though_a_neighbour_lost_its_peer_milliseconds_earlier() -> None:
    one = case(rank(1, 10.000, 14), rank(5, 10.003, signal=11), rank(2, 10.1, signal=15))
    verdict = find_cause(one)

    assert blamed(one) == 5
    assert verdict.victims == (1, 2)
    assert (
        "rank 1 ended 3 ms earlier (exit 14, Open MPI's code for a lost peer)" in verdict.evidence
    )


def test_ranks_that_ended_with_the_supervisor_of_their_node_followed_it() -> None:
    here = [rank(4, 9.99, 1), rank(5, 10.01, 1)]
    others = [rank(0, 10.2, 14), rank(1, 10.3, signal=15)]
    gone = launcher("n2", 10.0, name="supervisor")

    verdict = find_cause(case(*here, *others, launchers=(gone,)))
    assert (verdict.end.what, verdict.end.node, verdict.victims) == ("launcher", "n2", (0, 1, 4, 5))
    assert blamed(case(*here, *others)) == 4  # its supervisor was there
    before = rank(4, 7.0, 1)
    assert blamed(case(before, *others, launchers=(gone,))) == 4


def test_a_program_that_crashed_in_a_shell_that_ended_well_is_the_cause() -> None:
    crashed = ProgramEnd("python3 prog.py", None, 11)
    one = case(rank(5, 10.0, 0, inside=crashed), rank(0, 10.2, 14), rank(1, 10.3, signal=15))

    assert blamed(one) == 5
    assert find_cause(one).evidence[0] == (
        "it ended with exit 0, but the program in its shell (python3 prog.py)"
        " ended with signal 11 (SIGSEGV)"
    )


def test_a_program_that_failed_in_a_shell_is_no_failure_of_a_job_in_which_nothing_failed() -> None:
    one = case(rank(0, 10.0), rank(5, 10.0, 0, inside=ProgramEnd("", 3, None)))

    assert blamed(one) is None


def test_the_one_rank_that_sigpipe_ended_is_the_cause_though_mpirun_saw_a_victim_first() -> None:
    mpirun = launcher("n1", 10.6, ("   Process name: [prterun-n1-7@1,1]",), name="mpirun", code=14)
    told = [rank(n, 10.5, signal=15) for n in (0, 2, 3)]
    one = case(rank(1, 10.0, 14), rank(4, 10.3, signal=13), *told, launchers=(mpirun,), world=5)

    assert blamed(one) == 4


def test_where_the_others_lost_a_peer_the_first_that_was_told_to_end_was_told_from_outside() -> (
    None
):
    mpirun = launcher("n1", 10.6, ("   Process name: [prterun-n1-7@1,2]",), name="mpirun", code=14)
    told = [rank(n, 10.1 + n / 10, signal=15) for n in (3, 4, 5)]
    one = case(rank(2, 10.0, 14), rank(1, 10.1, signal=15), *told, launchers=(mpirun,), world=6)

    assert blamed(one) == 1


def test_sigkill_and_sigabrt_are_causes_where_the_others_lost_their_peer() -> None:
    for number in (9, 6):
        assert blamed(case(rank(1, 10.0, 14), rank(5, 10.004, signal=number))) == 5


def test_a_rank_that_the_launcher_killed_later_is_a_victim() -> None:
    one = case(rank(3, 10.0, 3), rank(5, 12.0, signal=9), rank(6, 12.0, signal=9))

    assert blamed(one) == 3
    assert find_cause(one).victims == (5, 6)


def test_mpich_kills_at_once_so_the_rank_that_says_it_aborted_is_the_cause() -> None:
    said = (
        "Abort(7) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 3",
    )
    ends = [rank(n, 10.0 + n / 1000, signal=9) for n in range(8) if n != 3]

    assert blamed(case(*ends, rank(3, 10.2, signal=9, said=said), ending=MPICH)) == 3


def test_words_count_also_where_nobody_saw_how_a_rank_ended() -> None:
    said = (
        "Abort(7) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 3",
    )
    unseen = End(rank=3, node="n1", at=12.1, slack=3.0, lines=said)

    assert blamed(case(rank(5, 10.0, signal=9), unseen, ending=MPICH)) == 3


def test_a_rank_whose_collective_failed_is_no_cause_where_another_ended_by_itself() -> None:
    said = (
        "Abort(340333327) on node 4 (rank 4 in comm 0): Fatal error in internal_Allreduce: Other MPI error, error stack:",
        "MPIR_Bcast_intra_binomial(174): Failure during collective",
    )
    unseen = End(rank=4, node="n2", at=11.9, slack=3.0, lines=said)
    killed = [rank(n, 10.1, signal=9) for n in (3, 5)]

    assert blamed(case(rank(2, 10.0, 3), unseen, *killed, ending=MPICH)) == 2


def test_the_rank_that_mpirun_says_called_abort_is_the_cause() -> None:
    said = ("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD",)
    mpirun = launcher("n1", 10.5, said, name="mpirun", code=7)
    one = case(rank(1, 10.0, 7), rank(2, 10.1, 7), launchers=(mpirun,))

    assert blamed(one) == 2


def test_a_rank_that_left_with_exit_0_is_the_cause_where_others_still_needed_it() -> None:
    one = case(rank(2, 10.0, 0), *(rank(n, 10.2, signal=15) for n in (0, 1, 3, 4, 5, 6, 7)))

    assert blamed(one) == 2
    assert "exit 0 while 7 ranks still needed it" in find_cause(one).evidence[0]


# As a busy machine left them: mpirun kills a shim that is slow to take
# SIGTERM, and nobody sees its rank end.
GONE = End(rank=0, node="n1", at=839.88, slack=0.005)
LEFT_BEHIND = (rank(1, 838.31, signal=15), *(rank(n, 838.1, 14) for n in (2, 3, 5)))


def test_a_rank_that_mpirun_killed_with_its_shim_is_not_blamed_for_one_that_left() -> None:
    assert blamed(case(rank(4, 838.02, 0), GONE, *LEFT_BEHIND, world=6)) == 4


def test_a_rank_whose_shim_was_killed_is_the_cause_where_nobody_left() -> None:
    assert blamed(case(GONE, *LEFT_BEHIND, rank(4, 838.1, 14), world=6)) == 0


def test_ranks_that_ended_well_long_before_are_not_blamed_for_a_later_error() -> None:
    raised = ("Traceback (most recent call last):", "ValueError: no such file")
    one = case(rank(0, 5.0, 0), rank(7, 600.0, 1, said=raised))

    assert blamed(one) == 7


def test_one_complaint_after_nearly_all_left_well_is_the_complaining_ranks_own() -> None:
    ends = [rank(n, 10.0, 0) for n in range(7)]

    assert blamed(case(*ends, rank(7, 10.1, 1, said=(LOST_PEER,)), ending=TORCHRUN)) == 7


def test_of_a_gloo_time_out_the_rank_that_never_came_is_the_cause() -> None:
    waited = [rank(n, 18.0 + n / 100, 1, said=(WAITED,)) for n in (0, 1, 2, 3, 4, 5, 6)]
    told = rank(7, 18.5, signal=15)

    assert blamed(case(*waited, told, ending=TORCHRUN)) == 7


SEEKS = "[W1130 16:47:12.675 socket.cpp:764] [c10d] The IPv6 network addresses of (gone.example, 29500) cannot be retrieved (gai error: -2)."
NOT_FOUND = "torch.distributed.DistNetworkError: The client socket has timed out after 15000ms while trying to connect to (gone.example, 29500)."


def test_where_all_sought_one_host_in_vain_no_rank_is_accused_though_some_were_told_to_end() -> (
    None
):
    gave_up = [rank(n, 18.0 + n / 100, 1, said=(SEEKS, NOT_FOUND)) for n in (0, 4)]
    told = [rank(1, 18.2, signal=15, said=(SEEKS, NOT_FOUND)), rank(5, 18.2, signal=15, said=(SEEKS,))]  # fmt: skip
    ends = {one.rank: one for one in (*gave_up, *told)}
    one = FailedJob(ends=tuple(ends[n] for n in (0, 1, 4, 5)), ending=TORCHRUN, names=NAMES)

    cause = find_cause(one)

    assert cause is not None
    assert "every rank sought the others at gone.example in vain" in cause.evidence[0]
    assert weigh_failure(cause, WEIGHTS).everybody


def test_who_did_not_seek_the_host_of_the_others_keeps_them_waiting() -> None:
    gave_up = [rank(n, 18.0, 1, said=(SEEKS, NOT_FOUND)) for n in (1, 2, 3, 4, 5, 6)]
    told = [rank(7, 18.2, signal=15, said=(SEEKS,)), rank(0, 18.2, signal=15)]

    assert blamed(case(*gave_up, *told, ending=TORCHRUN)) == 0


def test_a_rank_that_still_runs_while_the_others_timed_out_is_the_cause() -> None:
    waited = [rank(n, 18.0, 1, said=(WAITED,)) for n in range(7)]

    assert blamed(case(*waited, ending=TORCHRUN)) == 7


def test_siblings_that_torchrun_ended_while_they_waited_are_told_apart_by_what_they_did() -> None:
    waited = [rank(0, 18.0, 1, said=(WAITED,), doing="S ep_poll")]
    told = [rank(n, 18.3, signal=15, doing="S ep_poll") for n in (1, 3)]
    asleep = rank(2, 18.3, signal=15, doing="S hrtimer_nanosleep")
    one = case(*waited, *told, asleep, world=4, ending=TORCHRUN)

    assert blamed(one) == 2
    assert find_cause(one).tied == ()
    assert "it was in S hrtimer_nanosleep, they in S ep_poll" in find_cause(one).evidence


def test_a_barrier_that_names_the_missing_rank_is_believed() -> None:
    said = ("RuntimeError: Rank 6 failed to pass monitoredBarrier in 8000 ms", WAITED)
    one = case(
        rank(0, 18.0, 1, said=said),
        rank(5, 18.1, signal=15),
        rank(6, 18.1, signal=15),
        ending=TORCHRUN,
    )

    assert blamed(one) == 6


def test_a_rank_that_the_watchdog_stopped_at_an_earlier_collective_is_the_cause() -> None:
    def said(number: int) -> tuple[str, ...]:
        return (
            f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE)",
        )

    ends = [rank(n, 30.0, signal=6, said=said(12 if n == 5 else 13)) for n in range(8)]

    assert blamed(case(*ends, ending=TORCHRUN)) == 5


def test_numbers_of_collective_operations_are_compared_within_one_group() -> None:
    def said(group: str, number: int) -> tuple[str, ...]:
        where = f"[PG ID 1 PG GUID {group} Rank 0]"
        return (
            f"{where} Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE)",
        )

    def stopped(late: int) -> FailedJob:
        tp = [rank(n, 30.0, signal=6, said=said("7(tp)", 89 + (n != late))) for n in range(4)]
        dp = [rank(n, 30.0, signal=6, said=said("9(dp)", 4000)) for n in range(4, 8)]
        return case(*tp, *dp, ending=TORCHRUN)

    assert find_cause(stopped(late=1)).finder == "absent"
    assert blamed(stopped(late=1)) == 1
    assert find_cause(stopped(late=-1)).finder == "lost"


def test_a_killed_rank_that_srun_names_is_no_cause_beside_one_that_failed_by_itself() -> None:
    said = ("srun: error: n2: task 6: Killed", "srun: error: n1: task 2: Exited with exit code 1")
    killed = [rank(n, 10.0 + n / 100, signal=9) for n in (0, 1, 3, 4, 5, 6, 7)]
    sbatch = launcher("n1", 11.0, said[:1], name="sbatch", code=1)
    ending = LAUNCHER_ENDINGS["slurm"]

    for own in (rank(2, 10.2, 1, said=("KeyError: 'x'",)), rank(2, 9.9, 3)):
        assert blamed(case(own, *killed, ending=ending, launchers=(sbatch,))) == 2
    gone = case(*killed[:3], ending=ending, lost=(lost("n2", 9.8),), launchers=(sbatch,))
    assert blamed(gone) == "node n2"


def test_a_rank_that_raised_and_waited_until_it_was_ended_is_the_cause() -> None:
    def stopped(ago: float, *more: str, others=()) -> int | str | None:
        said = ("step 3", "ValueError: no sample 17", *more)
        own = rank(2, 20.1, signal=15, said=said, ago=(ago + 1, *(ago,) * (len(said) - 1)))
        told = [rank(n, 20.0 + n / 100, signal=9) for n in (0, 1, 3, 4, 5, 6, 7)]
        known = {one.rank for one in others}
        rest = [one for one in told if one.rank not in known]
        return blamed(case(own, *rest, *others, ending=LAUNCHER_ENDINGS["slurm"]))

    assert stopped(9.0) == 2
    assert stopped(0.05) != 2
    assert stopped(9.0, "step 4") != 2
    assert stopped(9.0, others=(rank(6, 20.0, signal=11),)) == 6


def test_a_rank_is_not_believed_that_another_one_called_mpi_abort() -> None:
    said = ("from an old log: MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD",)
    told = [rank(n, 10.3, signal=15) for n in (4, 5, 6, 7)]
    one = case(rank(2, 10.0, 3), rank(1, 10.05, 14, said=said), *told)

    assert blamed(one) == 2
    assert find_cause(one).view.aborted == frozenset()


def test_a_lost_node_corrects_the_survivor_that_ended_first() -> None:
    ends = [rank(1, 10.2, 14), rank(0, 10.5, signal=15)]
    before = blamed(case(*ends))
    after = case(*ends, lost=(lost("n2", 9.1),))

    assert before == 1
    assert blamed(after) == "node n2"
    assert "rank 1 ended 1.1 s later" in find_cause(after).evidence[1]


def test_a_node_that_goes_away_long_after_the_failure_is_not_blamed() -> None:
    raised = ("KeyError: 'lr'",)

    assert blamed(case(rank(3, 10.0, 1, said=raised), lost=(lost("n2", 40.0),))) == 3


def test_killing_mpirun_blames_mpirun() -> None:
    killed = launcher("n1", 10.0, name="mpirun", signal=9)
    ends = [rank(n, 10.1, 1) for n in range(4)]

    assert blamed(case(*ends, launchers=(killed,))) == "launcher n1"


def test_an_exit_code_that_a_launcher_took_from_its_rank_is_no_signal_of_its_own() -> None:
    mpirun = launcher("n1", 9.9, name="mpirun", code=137)

    assert blamed(case(rank(4, 10.0, signal=9), launchers=(mpirun,))) == 4


def test_a_launcher_that_fails_because_its_ranks_did_is_not_the_cause() -> None:
    mpirun = launcher("n1", 10.2, name="mpirun", code=143)

    assert blamed(case(rank(2, 10.3, 3), launchers=(mpirun,))) == 2


def test_of_two_launchers_the_one_with_a_fault_of_its_own_is_the_cause() -> None:
    waited = launcher(
        "n2",
        9.0,
        ("torch.distributed.DistNetworkError: The client socket has timed out after 60000ms",),
        code=1,
    )
    port = launcher(
        "n1",
        10.0,
        ("DistNetworkError: The server socket has failed to listen. code: -98, name: EADDRINUSE",),
        code=1,
    )

    assert blamed(case(launchers=(waited, port), ending=TORCHRUN)) == "launcher n1"


def test_a_torchrun_that_was_killed_is_the_cause_of_the_peers_lost_on_the_other_node() -> None:
    killed = launcher("n2", 10.0, signal=9)
    ends = [rank(n, 10.1, 1, said=(LOST_PEER,)) for n in range(4)]

    assert blamed(case(*ends, launchers=(killed,), ending=TORCHRUN)) == "launcher n2"


def test_the_out_of_memory_killer_names_the_rank() -> None:
    killed = ("Memory cgroup out of memory: Killed process 123 (python)",)
    one = case(
        rank(0, 9.8, 1, said=("RuntimeError: something broke",)),
        rank(5, 10.0, signal=9, kernel=killed),
    )

    assert blamed(one) == 5
    assert "the kernel says: Memory cgroup" in find_cause(one).evidence[0]


def test_the_odd_error_is_the_cause_and_many_alike_are_not() -> None:
    alike = [rank(n, 10.0, 1, said=("RuntimeError: lost contact",)) for n in (0, 1, 3)]

    assert blamed(case(*alike, rank(2, 10.2, 3))) == 2


def test_an_import_error_on_one_node_is_the_cause_and_not_the_peers_elsewhere() -> None:
    said = ("ModuleNotFoundError: No module named 'apex'",)
    broken = [rank(n, 10.0 + n / 100, 1, said=said) for n in (4, 5, 6, 7)]
    peers = [rank(n, 9.99, 1, said=(LOST_PEER,)) for n in range(4)]

    assert blamed(case(*broken, *peers, ending=TORCHRUN)) == 4


def test_where_all_lost_their_peers_the_node_that_they_name_is_the_cause() -> None:
    ends = [rank(n, 10.0 + n / 10, 1, said=(LOST_PEER,)) for n in range(4)]
    one = case(*ends, ending=TORCHRUN)

    assert blamed(one) == "node n2"
    assert "4 ranks on other nodes name n2" in find_cause(one).evidence[0]


def test_ranks_that_ended_after_a_cancel_are_nobodys_fault() -> None:
    assert (
        blamed(case(rank(0, 10.0, signal=15, stopped=True), rank(1, 10.0, 1, stopped=True))) is None
    )


KEEPER = launcher("localhost", 11.0, name="the job", code=143)


def kept(*pods: Pod, reason: str = "") -> SchedulerVerdict:
    """What the keeper of a Kubernetes job that failed notes about its end."""
    view = kubernetes.JobSnapshot("ns/t", 2, pods=pods, outcome=JobOutcome("failed", reason, "why"))
    return kubernetes.judge_ended_job(view).found


@pytest.mark.parametrize(
    "why",
    [
        *({"disruption": reason} for reason in (*kubernetes._DISRUPTIONS, "NewerWord")),
        *({"reason": reason} for reason in kubernetes._REASONS),
        {"reason": "UnexpectedAdmissionError", "phase": "Failed"},
        {"container": RankContainer("rank", state="terminated", reason="OOMKilled", code=137)},
    ],
    ids=str,
)
def test_what_kubernetes_did_to_a_pod_is_the_cause_and_no_rank_that_ended_by_it(why: dict) -> None:
    found = kept(Pod("t-1-y", "uid", node="n2", **why))
    one = case(rank(0, 10.0, 1), rank(4, 10.5, signal=9), launchers=(KEEPER,), scheduler=found)

    assert blamed(one) == 4
    assert find_cause(one).evidence[0].startswith("pod t-1-y ")


def test_beside_a_time_limit_it_is_told_who_held_up_the_others() -> None:
    found = SchedulerVerdict(VerdictKind.TIME_LIMIT, "its time was up", node="n1")
    stall = Stall(kind="absent", ranks=(5,), since=1.0, text="rank 5 on n2 never came", sure=0.9)
    told = case(rank(0, 10.0, signal=15), rank(5, 10.0, signal=15), scheduler=found, held_up=stall)

    assert find_cause(told).evidence == (
        "its time was up",
        "before that: rank 5 on n2 never came (90 % sure)",
    )


def test_a_verdict_about_a_node_without_an_ended_rank_blames_the_launcher() -> None:
    found = kept(Pod("t-1-y", "uid", node="n9", reason="Evicted"))
    one = case(rank(0, 10.0, 1), launchers=(KEEPER,), scheduler=found)

    assert blamed(one) == "launcher localhost"


def test_a_line_that_only_reads_like_a_verdict_of_kubernetes_decides_nothing() -> None:
    said = (
        "Kubernetes job ns/t failed: pod t-1-y was evicted on node n2: by whoever printed this",
    )
    keeper = launcher("localhost", 11.0, said, name="the job", code=143)
    one = case(rank(0, 10.0, 1), rank(4, 10.5, signal=9), launchers=(keeper,))

    assert blamed(one) == 0


@pytest.mark.parametrize("kind", [k for k in VerdictKind if k not in OUTSIDE])
def test_a_verdict_on_what_the_ranks_know_better_leaves_the_word_to_them(kind: VerdictKind) -> None:
    found = SchedulerVerdict(kind, "why", node="n2")
    one = case(rank(0, 10.0, 1), rank(4, 10.5, signal=9), launchers=(KEEPER,), scheduler=found)

    assert blamed(one) == 0


def test_a_time_limit_of_a_kubernetes_job_is_the_cause_and_no_rank_that_it_killed() -> None:
    found = kept(reason="DeadlineExceeded")
    one = case(rank(0, 10.0, signal=9), rank(4, 10.0, 1), launchers=(KEEPER,), scheduler=found)

    assert blamed(one) == "launcher localhost"
    assert find_cause(one).evidence[0].startswith("its time limit (activeDeadlineSeconds) was over")


def test_ranks_that_somebody_else_told_to_end_are_named_as_such() -> None:
    one = case(rank(4, 10.0, signal=15), rank(5, 10.5, signal=15))

    assert blamed(one) == 4
    assert "not by Rankdeck" in find_cause(one).evidence[0]


def test_within_the_clocks_uncertainty_equals_are_tied() -> None:
    one = case(rank(0, 10.000, 4), rank(5, 10.002, 5))

    assert (blamed(one), find_cause(one).tied) == (0, (5,))


def test_a_launcher_that_blames_another_rank_is_quoted() -> None:
    said = ("process rank 0 with PID 9 on node n1 calling abort",)
    one = case(rank(5, 10.0, 3), launchers=(launcher("n1", 10.2, said, name="mpirun", code=3),))

    assert "mpirun itself names rank 0" in find_cause(one).evidence


TRACE = ("Traceback (most recent call last):",)
MISMATCH = "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running collective: X(OpType={}), but Rank {} is running collective: X(OpType={})"
MODELS = "RuntimeError: DDP expects same model across all ranks, but Rank {} has 9 params, while rank {} has inconsistent 8 params."
JAX = (
    "F client.h:77] Terminating process because the JAX distributed service detected fatal errors.",
    "/job:jax_worker/replica:0/task:2",
)


def raised(number: int, at: float, wrote: float, text: str, code: int = 1, **more) -> End:
    """A rank that ended at `at` and wrote the text at `wrote`."""
    return rank(number, at, code, said=(text,), ago=(at - wrote,), **more)


def mpirun(*said: str) -> End:
    return launcher("n1", 10.9, said, name="mpirun", code=1)


PARTED = (
    "Traceback (most recent call last):", "CheckpointException: CheckpointException ranks:dict_keys([3])",
    "Traceback (most recent call last): (RANK 3)", "OSError: [Errno 28] No space left on device: '/ckpt/__3_0'",
)  # fmt: skip
FIRST_OF_ALL = {
    "a clean-up that fails after the launcher told it to end, on the same node and on another": (
        case(
            rank(5, 10.0, 3),
            raised(6, 10.06, 10.05, "KeyError: 'loader'"),
            raised(0, 10.1, 10.06, "ValueError: I/O operation on closed file"),
        ),
        5,
    ),
    "an error of its own, written before others noticed and recorded after them": (
        case(raised(5, 10.7, 10.0, "ValueError: bad shard"), *(rank(n, 10.3, 1) for n in (0, 1, 2))),
        5,
    ),
    "a silent exit, then ranks that catch what happened and give up": (
        case(rank(3, 10.0, 1), *(raised(n, 10.1, 10.05, "training failed, giving up") for n in (0, 1))),
        3,
    ),
    "mpirun names the one of several that ended without a word": (
        case(
            *(rank(n, 10.0 + n / 1000, 1) for n in range(8)),
            launchers=(mpirun("prterun noticed that process rank 4 with PID 7 on node n2 exited on signal 9"),),
        ),
        4,
    ),
    "what mpirun names loses against an end that the clocks prove earlier": (
        case(
            raised(6, 10.0, 9.5, "ValueError: bad shard"),
            rank(1, 10.0, 1),
            launchers=(mpirun("prterun noticed that process rank 1 with PID 7 on node n1 exited on"),),
        ),
        6,
    ),
    "torchrun names its rank under Root Cause, not the first of the others": (
        case(
            rank(1, 10.0, 1),
            rank(2, 10.01, 1),
            ending=TORCHRUN,
            launchers=(
                launcher(
                    "n1",
                    10.4,
                    (
                        "Failures:",
                        "  rank      : 1 (local_rank: 1)",
                        "Root Cause (first observed failure):",
                        "  rank      : 2 (local_rank: 2)",
                    ),
                    code=1,
                ),
            ),
        ),
        2,
    ),
    "a rank that somebody sent SIGTERM, and whose end mpirun noticed": (
        case(
            rank(1, 10.1, 14),
            rank(5, 10.2, signal=15),
            launchers=(mpirun("prterun noticed that process rank 5 with PID 7 on node n2 exited on"),),
        ),
        5,
    ),
    "a rank that somebody sent SIGTERM where no launcher ends ranks": (
        case(*(rank(n, 10.1, 1, said=(LOST_PEER,)) for n in (0, 1)), rank(6, 10.2, signal=15), ending=PLAIN),
        6,
    ),
    "a rank that somebody sent SIGTERM, and others that catch what happened and give up": (
        case(rank(6, 10.0, signal=15), *(raised(n, 10.2, 10.1, "giving up") for n in (0, 1)), ending=PLAIN),
        6,
    ),
    "SIGTERM and an exit so close that the clocks cannot tell: nobody sends SIGTERM for nothing": (
        case(rank(1, 10.0, signal=15), rank(6, 10.008, 3)),
        6,
    ),
    "the only one that did not time out, though it waits as all others did": (
        case(*(rank(n, 18.0, 1, said=(WAITED,), doing="S ep_poll") for n in (0, 1, 2)), rank(3, doing="S ep_poll"), ending=PLAIN, world=4),
        3,
    ),
    "a rank that has raised and waits as all others do": (
        case(
            *(rank(n, 18.0, 1, said=(WAITED,), doing="S ep_poll") for n in (0, 1, 2)),
            rank(3, said=("torch.OutOfMemoryError: CUDA out of memory. Tried 1 GiB",), doing="S ep_poll"),
            ending=PLAIN,
            world=4,
        ),
        3,
    ),
    "SIGPIPE before anything else": (
        case(rank(3, 10.0, signal=13), *(rank(n, 10.1, 14) for n in (0, 1)), ending=OPENMPI),
        3,
    ),
    "exit 0 before MPI_Finalize under MPICH, which kills the others at once": (
        case(rank(2, 10.0, 0), *(rank(n, 10.1, signal=9) for n in (0, 1, 3, 4, 5, 6, 7)), ending=MPICH),
        2,
    ),
    "Intel's mpiexec lists every rank, and one was not killed by it": (
        case(
            *(rank(n, 10.0, signal=9) for n in (0, 1, 2)),
            rank(3, 10.1, 3),
            ending=MPICH,
            launchers=(
                mpirun(
                    "=   RANK 0 PID 7 RUNNING AT n1",
                    "=   KILLED BY SIGNAL: 9 (Killed)",
                    "=   RANK 3 PID 9 RUNNING AT n1",
                    "=   EXIT STATUS: 3",
                ),
            ),
        ),
        3,
    ),
    "a code that MPI returned is no signal": (
        case(rank(4, 10.0, 143, said=("Abort(9) on node 4 (rank 4 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:", "open_fabric(2): OFI fi_getinfo() failed")), rank(0, 10.1, signal=15)),
        4,
    ),
    "ranks that name the one in another collective operation": (
        case(
            *(rank(n, 10.0 + n / 50, 1, said=(MISMATCH.format(n, "ALLREDUCE", 6, "ALLGATHER"),)) for n in range(6)),
            rank(6, 10.5, 1, said=(MISMATCH.format(6, "ALLGATHER", 0, "ALLREDUCE"),)),
            ending=PLAIN,
        ),
        6,
    ),
    "ranks that name the one with another model": (
        case(
            *(rank(n, 10.0, 1, said=(MODELS.format(n, 2),)) for n in (0, 1, 3, 4)),
            rank(2, 9.9, 1, said=(MODELS.format(2, 0),)),
            ending=PLAIN,
        ),
        2,
    ),
    "tasks of JAX name the one that died, which left no word": (
        case(*(rank(n, 10.0, signal=6, said=JAX) for n in (0, 1, 3)), rank(2, 10.4, 0), ending=PLAIN, world=4),
        2,
    ),
    "ranks that repeat what one of them raised at its checkpoint": (
        case(*(rank(n, 10.0 + n / 50, 1, said=PARTED) for n in range(8)), ending=PLAIN),
        3,
    ),
    "ranks that PETSc tells of their end": (
        case(
            *(rank(n, 10.0, 59, said=("[1]PETSC ERROR: Caught signal number 15 Terminate: told to end", "[1]PETSC ERROR: to get more information on the crash.")) for n in range(3)),
            rank(3, 10.01, 59, said=("[3]PETSC ERROR: Caught signal number 11 SEGV: Segmentation Violation",)),
        ),
        3,
    ),
    "ranks that could not open a file because another could not": (
        case(
            *(rank(n, 10.0, 19, said=("Fatal error in PMPI_File_open: Other I/O error , error stack:", "ADIO_OPEN(246): open failed on a remote node")) for n in (0, 1, 3)),
            rank(2, 10.02, 30, said=("Fatal error in PMPI_File_open: File does not exist, error stack:", "ADIOI_UFS_OPEN(53): File /data/in.nc does not exist")),
            ending=PLAIN,
        ),
        2,
    ),
    "a rank that is still loading while the others wait for the id of NCCL's communicator": (
        case(*(rank(n, 605.0 + n / 9, 1, said=("retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms",)) for n in range(1, 8)), ending=PLAIN),
        0,
    ),
    "a rank that ended well long after all others had given up, and slept as they did": (
        case(
            *(rank(n, 10.0, 1, said=(WAITED,), doing="hrtimer_nanosleep") for n in range(1, 8)),
            rank(0, 99.0, 0, doing="hrtimer_nanosleep"),
            ending=PLAIN,
        ),
        0,
    ),
    "a rank without memory on its GPU, after those that NCCL's proxy told": (
        case(
            *(rank(n, 10.0, 1, said=("Traceback (most recent call last):", "DistBackendError: NCCL error in: x.hpp:1, internal error, NCCL version 2.26.2", "Socket recv failed while polling for opId=0x55a5")) for n in (0, 1, 2)),
            rank(3, 10.1, 1, said=("Traceback (most recent call last):", "RuntimeError: CUDA error: out of memory")),
            ending=PLAIN,
        ),
        3,
    ),
    "Horovod's victims ended before the rank that lost its data": (
        case(
            *(rank(n, 10.0, 1, said=("UnknownError: Horovod has been shut down. This was caused by an exception",)) for n in range(5)),
            rank(5, 13.0, 1, said=("errors_impl.DataLossError: truncated record at 7",)),
            ending=PLAIN,
        ),
        5,
    ),
}  # fmt: skip


@each(list(FIRST_OF_ALL.values()))
def test_the_first_clear_end_is_the_cause(one: FailedJob, culprit: int) -> None:
    assert blamed(one) == culprit, find_cause(one)


def test_nothing_but_lost_peers_points_at_the_network() -> None:
    ends = [rank(n, 10.0 + n, 1, said=("RuntimeError: Socket Timeout",)) for n in range(2)]

    assert "look at the network" in find_cause(case(*ends, ending=PLAIN, world=2)).evidence[-1]


def test_beside_a_sure_answer_stand_at_most_two_suspects() -> None:
    ends = [rank(n, 10.0 + n / 100, 1, said=("KeyError: 'x'",)) for n in range(6)]

    assert len(find_cause(case(*ends)).others) == 2


def test_a_rank_that_aborted_later_is_the_cause_where_the_others_only_had_an_unknown_error() -> (
    None
):
    said = ("[n1:11425] *** An error occurred in MPI_Recv", "[n1:11425] *** MPI_ERR_OTHER: known error not in list")  # fmt: skip
    ends = [rank(n, 10.0, 16, said=said) for n in (0, 1, 2, 3, 5)]

    assert blamed(case(*ends, rank(4, 10.4, signal=6), ending=PLAIN, world=6)) == 4


def test_ranks_that_could_not_reach_a_loopback_address_are_told_apart_from_their_victims() -> None:
    failed = "[rank{}]: RuntimeError: Gloo connectFullMesh failed with "
    own = "[socket.cc:84] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:1"
    ends = [rank(n, 10.0, 1, said=(failed.format(n) + "[pair.cc:144] no error",)) for n in (0, 1)]

    verdict = find_cause(
        case(*ends, rank(4, 10.3, 1, said=(failed.format(4) + own,)), ending=PLAIN)
    )

    assert verdict is not None
    assert (verdict.end.rank, verdict.victims) == (4, (0, 1))


def test_of_those_that_did_not_time_out_the_one_that_raised_is_the_cause_though_it_ended_well() -> (
    None
):
    waited = [rank(n, 19.0 + n / 1000, signal=6, said=(WAITED,)) for n in range(5)]
    raised = (
        "Traceback (most recent call last):",
        "torch.AcceleratorError: CUDA error: unspecified launch failure",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    )
    for at in (12.0, 160.0):
        assert blamed(case(*waited, rank(5, at, 0, said=raised), ending=PLAIN, world=6)) == 5


def test_of_ranks_with_one_exit_code_it_is_the_one_with_last_words_that_no_other_wrote() -> None:
    steps = tuple(f"step {n} residual 0.{n}" for n in range(13, 16))
    lost = [rank(n, 10.0 + n / 100, 14, said=steps) for n in (2, 0, 1, 3)]
    mpirun = launcher("n1", 10.6, ("   Process name: [prterun-n1-7@1,2]",), name="mpirun", code=14)
    own = (*steps, "cannot read mesh.h5")
    assert blamed(case(*lost, rank(5, 10.3, 14, said=own), launchers=(mpirun,), world=6)) == 5

    # What every rank says, or says again and again, or of a peer, tells nothing.
    for last in ("step 16 residual 0.1", "ConnectionResetError: [Errno 104] Connection reset"):
        one = case(*lost, rank(5, 10.3, 14, said=(*steps, last)), launchers=(mpirun,), world=6)
        assert blamed(one) == 0


def test_a_program_in_a_shell_that_only_lost_its_peer_is_a_victim() -> None:
    lost, crashed = ProgramEnd("python3 prog.py", 14, None), ProgramEnd("python3 prog.py", None, 11)
    mpirun = launcher("n1", 10.6, ("   Process name: [prterun-n1-7@1,3]",), name="mpirun", code=1)
    victims = [rank(3, 10.0, 0, inside=lost), rank(0, 10.2, signal=15)]
    one = case(*victims, rank(5, 10.3, 0, inside=crashed), launchers=(mpirun,))

    assert blamed(one) == 5
    # Where the crash was not seen, the first that gave up is as good an answer as any.
    assert blamed(case(*victims, launchers=(mpirun,))) in (0, 3)


def test_the_words_of_one_rank_count_also_where_the_others_were_told_to_end() -> None:
    steps = tuple(f"step {n} residual 0.{n}" for n in range(13, 16))
    told = [rank(n, 10.1 + n / 100, signal=15, said=steps) for n in (1, 2, 3)]
    mpirun = launcher("n1", 10.6, ("   Process name: [prterun-n1-7@1,0]",), name="mpirun", code=14)
    own = (*steps, "cannot read mesh.h5")
    ends = [rank(0, 10.02, 14, said=steps), *told, rank(5, 10.0, 14, said=own)]

    assert blamed(case(*ends, launchers=(mpirun,), world=6)) == 5


def test_a_rank_that_vanished_with_its_shim_after_the_one_that_mpirun_names_followed_it() -> None:
    steps = ("step 14 residual 0.1", "step 15 residual 0.1")
    own = rank(5, 10.0, 14, said=(*steps, "cannot read mesh.h5"))
    lost = [rank(n, 10.1, 14, said=steps) for n in (2, 3)]
    gone = rank(0, 11.8, None, signal=None, said=steps)
    mpirun = launcher("n1", 12.0, ("   Process name: [prterun-n1-7@1,5]",), name="mpirun", code=14)

    assert blamed(case(own, *lost, gone, launchers=(mpirun,), world=6)) == 5
    told = weigh_failure(find_cause(case(own, *lost, gone, launchers=(mpirun,), world=6)), WEIGHTS)
    assert (told.sure, told.between) == (None, ())
    assert blamed(case(own, *lost, gone, world=6)) == 0  # nobody names another one


def test_a_rank_that_prints_a_report_of_others_accuses_none_of_them_by_it() -> None:
    report = (
        "[rank3]: ValueError: no sample 17",
        "[rank3]: Ranks 3 failed to pass monitoredBarrier",
    )
    waited = [rank(n, 30.0 + n / 100, 1, said=(WAITED,)) for n in (1, 2, 3)]
    crashed = rank(5, 10.0, signal=11)

    assert blamed(case(rank(0, 10.1, 1, said=report), crashed, ending=PLAIN)) == 5
    assert blamed(case(rank(0, 30.5, 1, said=report), *waited, ending=PLAIN, world=5)) != 3


NVRX = (
    "[2026-11-29 07:18:21,738] [WARNING] [RankMonServer17050@n1:0] Did not get subsequent heartbeat. Waited 15.00 seconds.",
    "[2026-11-29 07:18:22,527] [ERROR] [ft_launcher162@n1] failed (exitcode: -9) local_rank: 0 (pid: 17068) of binary: python3",
    "[2026-11-29 07:18:23,409] [ERROR] [ft_launcher162@n1] Some rank(s) exited with non-zero exit code: {0: ProcessFailure(local_rank=0, pid=17068, exitcode=-9, error_file='<N/A>')}",
)  # fmt: skip


def test_a_rank_that_nvrx_killed_because_it_sent_no_heartbeat_may_have_waited_for_another() -> None:
    others = [rank(n, 20.3 + n / 100, signal=15, doing="do_poll") for n in (1, 2)]
    asleep = rank(3, 20.4, signal=15, doing="hrtimer_nanosleep")
    killed = rank(0, 20.0, signal=9, doing="do_poll")
    launchers = (launcher("n1", 22.0, NVRX, code=1),)
    one = case(killed, *others, asleep, ending=TORCHRUN, launchers=launchers, world=4)

    assert blamed(one) == 3
    crashed = case(rank(0, 20.0, signal=9, kernel=("Out of memory: Killed process 7",)), *others, ending=TORCHRUN, launchers=launchers, world=3)  # fmt: skip
    assert blamed(crashed) == 0
