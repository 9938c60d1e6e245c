"""Who is right, wrong or silent in the fault bench, and the table of faults."""

from pathlib import Path

import pytest
from benchmarks import fault_judge as judge
from benchmarks.fault_list import FAULTS, SHORT
from benchmarks.fault_model import Answer, Fault, Kind, Seen

from rankdeck.config.jobs import read_job
from rankdeck.drill.judge import launcher_named

RANK_4 = Answer(ranks=frozenset({4}), word="SIGSEGV")
DAEMON = Answer(node="n2", what="launcher|node")


def a_fault(right: Answer = RANK_4, kind: Kind = Kind.FAILURE) -> Fault:
    return Fault(name="f", launcher="plain", job="", right=right, kind=kind)


def failed(rank: int | None, node: str = "n2", **more: object) -> dict[str, object]:
    first = {"rank": rank, "node": node, "exit_code": None, "signal": 11, "lines": ["SIGSEGV"]}
    return {"state": "failed", "first_failure": {**first, **more}}


def stalled(**stall: object) -> dict[str, object]:
    return {"state": "running", "first_failure": None, "stalled": [{"text": "", **stall}]}


QUIET: dict[str, object] = {"state": "running", "first_failure": None, "stalled": []}


def judged(*jobs: dict[str, object], fault: Fault | None = None, at: float | None = 10.0):
    seen = [Seen(11.0 + place, job) for place, job in enumerate(jobs)]
    return judge.outcome(fault or a_fault(), seen, at, "nobody", alike=True)


@pytest.mark.parametrize(
    ("job", "right", "verdict"),
    [
        (failed(4), RANK_4, "right"),
        (failed(2), RANK_4, "wrong"),
        (failed(None), RANK_4, "wrong"),
        (failed(None), DAEMON, "right"),
        (failed(None, "n1"), DAEMON, "wrong"),
        (failed(None, what="rank"), DAEMON, "wrong"),
        (failed(4), DAEMON, "wrong"),
        (stalled(kind="rank", ranks=[4]), RANK_4, "right"),
        (stalled(kind="rank", ranks=[4, 5]), RANK_4, "wrong"),
        (stalled(kind="all", ranks=[0, 1, 4], first=[4]), RANK_4, "right"),
        (stalled(kind="all", ranks=[0, 1, 4]), RANK_4, "silent"),
        (QUIET, RANK_4, "silent"),
    ],
)
def test_only_the_culprit_alone_is_right(job, right: Answer, verdict: str) -> None:
    assert judged(job, fault=a_fault(right)).verdict == verdict


def test_a_fault_that_never_came_is_no_verdict() -> None:
    assert judged(failed(2), at=None).verdict == "unplanted"


def test_a_healthy_job_may_not_be_blamed_even_for_a_moment() -> None:
    healthy = a_fault(Answer(), Kind.HEALTHY)

    assert judged(QUIET, fault=healthy, at=None).verdict == "right"
    shown = judged(QUIET, stalled(kind="rank", ranks=[1]), QUIET, fault=healthy)
    assert (shown.verdict, shown.named) == ("wrong", "rank 1")


def test_of_a_healthy_job_what_is_right_may_be_said_while_it_lasts() -> None:
    healthy = a_fault(Answer(ranks=frozenset({1})), Kind.HEALTHY)
    said = stalled(kind="rank", ranks=[1])

    assert judged(QUIET, said, QUIET, fault=healthy, at=None).verdict == "right"
    assert judged(QUIET, said, fault=healthy, at=None).verdict == "wrong"


def test_the_answer_counts_from_when_it_stood() -> None:
    outcome = judged(QUIET, failed(4), failed(2), failed(4), failed(4))

    assert (outcome.seconds, outcome.changed) == (4.0, True)


def test_a_guess_that_says_so_may_change() -> None:
    outcome = judged(failed(2, settled=False), failed(4))

    assert (outcome.verdict, outcome.changed) == ("right", False)


def test_the_right_name_without_the_reason_is_not_explained() -> None:
    assert judged(failed(4)).explained
    assert not judged(failed(4, lines=["bye"])).explained
    assert judged(failed(4, lines=[], evidence=["ended by SIGSEGV"])).explained


@pytest.mark.parametrize(
    ("code", "other", "alike"),
    [(139, failed(4), True), (1, failed(4), False), (139, failed(2), False)],
)
def test_every_console_has_to_say_the_same(code: int, other, alike: bool) -> None:
    assert judge.same(failed(4), code, [other]) is alike


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("   Process name: [prterun-sakuya-32@1,4]\n   Exit code:    139\n", "rank 4"),
        ("mpirun noticed that process rank 3 with PID 123 on node n2 exited", "rank 3"),
        ("Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-22_03:44\n"
         "  host      : sakura\n  rank      : 3 (local_rank: 1)\n", "rank 3"),
        ("Abort(7) on node 3 (rank 3 in comm 0): application called MPI_Abort", "rank 3"),
        ("=   PID 44 RUNNING AT sakura\n=   EXIT CODE: 139\n", "sakura"),
        ("Terminated\n", "nobody"),
    ],
)  # fmt: skip
def test_what_a_launcher_said_is_read(text: str, named: str) -> None:
    assert (launcher_named(text) or judge.NOBODY) == named


def test_the_job_of_every_fault_can_be_read_and_its_program_compiles(tmp_path: Path) -> None:
    for fault in FAULTS:
        file = tmp_path / f"{fault.name}.yaml"
        file.write_text(fault.job)

        job = read_job(file)

        assert job.name == "fault", fault.name
        for name, text in job.files.items():
            if name.endswith(".py"):
                compile(text, f"{fault.name}: {name}", "exec")


def test_every_fault_has_a_name_of_its_own_and_the_short_form_knows_it() -> None:
    names = [fault.name for fault in FAULTS]

    assert len(set(names)) == len(names)
    assert set(SHORT) <= set(names)


def test_where_nobody_is_to_blame_it_must_be_said_that_all_wait() -> None:
    deadlock = a_fault(Answer(what="nobody", word="wait for each other"), Kind.HANG)
    said = stalled(kind="all", ranks=[0, 1], text="all 2 ranks wait for each other")

    assert judged(QUIET, said, fault=deadlock).verdict == "right"
    assert judged(QUIET, said, fault=deadlock).seconds == 2.0
    assert judged(QUIET, fault=deadlock).verdict == "silent"
    assert judged(stalled(kind="all", ranks=[0, 1], odd=[1]), fault=deadlock).verdict == "wrong"


def test_where_nobody_is_to_blame_undecided_is_right_too() -> None:
    mismatch = a_fault(Answer(what="nobody", word="apart"))
    undecided = failed(None, what="undecided", decides="what sets them apart")

    assert judged(undecided, fault=mismatch).explained
    assert judged(failed(2), fault=mismatch).verdict == "wrong"


def test_a_job_that_is_done_needs_a_note_where_a_program_in_it_failed() -> None:
    wrapped = a_fault(Answer(what="note", word="SIGSEGV"))
    note = "rank 1 on n2 ended with exit 0, but the program in its shell ended with SIGSEGV"

    assert judged({**QUIET, "troubles": [note]}, fault=wrapped).explained
    assert judged({**QUIET, "troubles": ["n2: slow"]}, fault=wrapped).verdict == "silent"
