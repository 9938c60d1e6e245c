"""What the agent reads of Slurm's answers, 22.05 to 25.11, and what it makes of them."""

import itertools
import os
import time
from functools import partial
from pathlib import Path

import pytest

from rankdeck_agent.folder_names import FolderNames
from rankdeck_agent.job.folder import RunFolder, all_events
from rankdeck_agent.schedulers.slurm.array import ArrayRun, Tasks, covers_task, join_array_rows
from rankdeck_agent.schedulers.slurm.call_budget import (
    QUEUE_CALLS,
    USUAL,
    Budget,
    QueueTimer,
    look_period,
)
from rankdeck_agent.schedulers.slurm.commands import SlurmReply, run_slurm_command, slurm_complaint
from rankdeck_agent.schedulers.slurm.folder import write_id
from rankdeck_agent.schedulers.slurm.job_reports import (
    COLUMNS,
    SlurmJobRow,
    account_rows,
    queue_rows,
    shown_job,
    shown_jobs,
)
from rankdeck_agent.schedulers.slurm.keeper import is_silent
from rankdeck_agent.schedulers.slurm.marks import BATCH, Marks, RunMark, parse_run_mark
from rankdeck_agent.schedulers.slurm.run import LookTimer, Run, Track, restore_track
from rankdeck_agent.schedulers.slurm.submit import job_numbers
from rankdeck_agent.schedulers.slurm.values import parse_moment, parse_number_ranges, parse_span
from rankdeck_agent.schedulers.slurm.verdict import (
    FINAL,
    judge_lost_job,
    judge_slurm_job,
    queue_places,
    read_slurm_words,
    requeue_reason,
    slurm_wait_reason,
)


def queue_line(**cells: str) -> str:
    """A line as `squeue --Format` pads it."""
    return "".join(cells.get(name, "N/A").ljust(width)[:width] for name, width in COLUMNS.items())


# ---- rows


def test_a_row_of_squeue_is_read_by_its_columns() -> None:
    line = queue_line(
        JobID="4711", State="PENDING", Reason="Resources", exit_code="0:0", RestartCnt="2",
        SubmitTime="1795358381", StartTime="1795358500", TimeLimit="1-02:00:00", Partition="gpu", SchedNodes="n[3-4]",
        NodeList="", WorkDir="/home/a user/x",
    )  # fmt: skip

    (seen,) = queue_rows(f"{line}\nsqueue: warning: a banner of the site\n")

    assert seen == SlurmJobRow(
        id="4711", state="PENDING", reason="Resources", code=0, restarts=2, submitted=1795358381.0,
        start=1795358500.0, limit=93600.0, partition="gpu", nodes="n[3-4]", folder="/home/a user/x",
    )  # fmt: skip


def test_tasks_of_an_array_have_ids_of_their_own() -> None:
    rows = [
        queue_line(JobID="12", ArrayJobID="10", ArrayTaskID=task, State="PENDING")
        for task in ("3", "4-9%2", "N/A")
    ]

    assert [seen.array for seen in queue_rows("\n".join(rows))] == ["10_3", "10_4-9%2", ""]


SHOWN = {
    "22.05": "JobId=7 JobName=x UserId=lab(3000) GroupId=lab(3000) MCS_label=N/A Priority=1 Nice=0 Account=(null) QOS=(null) "
    "JobState=NODE_FAIL Reason=NodeDown Dependency=(null) Requeue=0 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:09 "
    "TimeLimit=00:10:00 TimeMin=N/A SubmitTime=2026-11-22T14:39:41 EligibleTime=2026-11-22T14:39:41 StartTime=2026-11-22T14:39:42 "
    "EndTime=2026-11-22T14:49:42 Partition=debug NodeList=n[1-2] BatchHost=n1 Command=/home/lab/a job.sh WorkDir=/home/lab",
    "24.11": "JobId=7 ArrayJobId=7 ArrayTaskId=3 JobName=x UserId=lab(3000) Priority=1 JobState=NODE_FAIL Reason=NodeDown FailedNode=n2 "
    "Dependency=(null) Requeue=0 Restarts=1 ExitCode=0:0 RunTime=00:00:09 TimeLimit=00:10:00 SubmitTime=1795358381 StartTime=1795358382 "
    "EndTime=1795358982 Partition=debug AllocNode:Sid=n4:100 ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2] BatchHost=n1 WorkDir=/home/lab",
}


@pytest.mark.parametrize("release", SHOWN)
def test_scontrol_is_read_in_every_release(release: str) -> None:
    seen = shown_job(SHOWN[release] + "\n")

    assert seen is not None
    assert (seen.id, seen.state, seen.reason, seen.restarts) == ("7", "NODE_FAIL", "NodeDown", 1)
    assert (seen.nodes, seen.partition, seen.limit, seen.user) == ("n[1-2]", "debug", 600.0, "lab")
    assert seen.failed_node == ("n2" if release == "24.11" else "")
    assert seen.start is not None
    assert seen.end == pytest.approx(seen.start + 600)


def test_what_is_no_answer_gives_no_job() -> None:
    for text in (
        "",
        "\x1b[2J",
        "JobId=",
        "JobId=x JobState=Y",
        "slurm_load_jobs error: Invalid job id specified",
    ):
        assert shown_job(text) is None


def test_accounting_tells_who_cancelled_and_every_run() -> None:
    text = (
        "7|7|NODE_FAIL|0:0|NodeDown|1795358381|1795358382|1795358390|n[1-2]|debug\n"
        "7.batch|7.batch|CANCELLED||||||n1|\n"
        "7|7|CANCELLED by 1001|0:15|None|1795358381|1795358400|1795358410|n1|debug\n"
        "a banner | of the site\n"
    )

    first, last = account_rows(text)

    assert (first.state, first.nodes) == ("NODE_FAIL", "n[1-2]")
    assert (last.state, last.by, last.signal) == ("CANCELLED", "1001", 15)


def test_times_are_read_as_seconds_and_as_slurm_writes_them() -> None:
    assert parse_moment("1795358381") == 1795358381.0
    assert (
        parse_moment(time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1795358381))) == 1795358381.0
    )
    assert [parse_moment(word) for word in ("N/A", "Unknown", "", "now", "99999999999999")] == [
        None
    ] * 5
    assert [parse_span(word) for word in ("1:00", "2:03:04", "1-00:00:00", "UNLIMITED", "")] == [
        60.0,
        7384.0,
        86400.0,
        None,
        None,
    ]


@pytest.mark.parametrize("odd", ["\u00b2", "\u2460", "9" * 400])
def test_a_number_that_is_none_breaks_no_row(odd: str) -> None:
    shown = f"JobId=7 ArrayJobId=7 ArrayTaskId={odd} JobState=FAILED Restarts={odd} ExitCode={odd}:{odd} TimeLimit={odd}:00 SubmitTime={odd}"
    accounted = f"7|7_{odd}|FAILED|{odd}:0|None|{odd}|{odd}|{odd}|n1|debug"

    for (seen,) in (list(shown_jobs(shown)), list(account_rows(accounted))):
        assert (seen.id, seen.submitted, seen.restarts, seen.limit) == ("7", None, 0, None)
        assert seen.code is None
        Tasks(range(2)).take_rows([seen])


# ---- verdicts


def ended(state: str, **more: object) -> SlurmJobRow:
    return SlurmJobRow("7", state, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", sorted(FINAL - {"COMPLETED", "FAILED"}))
def test_every_end_that_slurm_decides_has_a_sentence_of_its_own(state: str) -> None:
    found = judge_slurm_job(ended(state), read_slurm_words(()))

    others = {judge_slurm_job(ended(other), read_slurm_words(())).text for other in FINAL - {state}}
    assert found.text
    assert found.text not in others or state in ("LAUNCH_FAILED", "RECONFIG_FAIL")
    assert not found.well


def test_a_job_that_ended_by_itself_is_left_to_its_ranks() -> None:
    assert judge_slurm_job(ended("COMPLETED", code=0), read_slurm_words(())).well
    failed = judge_slurm_job(ended("FAILED", code=7), read_slurm_words(()))
    assert (failed.text, failed.code) == ("", 7)
    assert judge_slurm_job(ended("FAILED", code=0, signal=9), read_slurm_words(())).code == 137


def test_the_time_limit_is_named() -> None:
    assert "01:30:00" in judge_slurm_job(ended("TIMEOUT", limit=5400.0), read_slurm_words(())).text


WORDS = [
    "srun: error: Node failure on n2",
    "srun: error: Nodes n2 are still not ready",
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T15:06:56 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
]
MEMORY = [
    "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
    "srun: error: n1: task 2: Out Of Memory",
]


def test_the_node_that_used_too_much_is_named_though_all_nodes_of_the_step_say_that_it_is_ended():
    ended_for_it = "slurmstepd-n1: error: Exceeded job memory limit"
    used = "slurmstepd-n2: error: StepId=7.0 exceeded memory limit (325177344 > 83886080), being killed"  # fmt: skip

    both = judge_slurm_job(
        ended("OUT_OF_MEMORY"), read_slurm_words((ended_for_it, used, ended_for_it))
    )
    alone = judge_slurm_job(ended("OUT_OF_MEMORY"), read_slurm_words((ended_for_it,)))

    assert (both.node, both.text.endswith("used up on n2")) == ("n2", True)
    assert alone.node == "n1"


def test_the_daemons_lines_name_the_node_and_the_rank() -> None:
    assert judge_slurm_job(ended("NODE_FAIL"), read_slurm_words(WORDS)).node == "n2"
    starved = judge_slurm_job(ended("OUT_OF_MEMORY"), read_slurm_words(MEMORY))
    assert (starved.node, starved.rank) == ("n1", 2)
    assert (
        judge_slurm_job(ended("FAILED", code=1), read_slurm_words(MEMORY)).state == "OUT_OF_MEMORY"
    )


def test_the_node_that_writes_of_a_node_failure_is_none_that_failed() -> None:
    """Whichever line comes first; a dead node writes nothing."""
    step = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T15:06:56 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"

    assert read_slurm_words([step, *WORDS]).failed == ("n2",)
    alone = judge_slurm_job(ended("NODE_FAIL"), read_slurm_words([step]))
    assert (alone.node, alone.text) == ("", "a node of the job failed; Slurm does not say which")


def test_what_a_rank_prints_is_not_taken_for_slurms_word() -> None:
    assert read_slurm_words(
        ["rank 0: srun: error: Node failure on n2", "oom_kill event", "x" * 100_000]
    ) == read_slurm_words(())


def test_who_cancelled_is_told_as_far_as_it_is_known() -> None:
    assert "alice" in judge_slurm_job(ended("CANCELLED", by="alice"), read_slurm_words(())).text
    assert "not through Rankdeck" in judge_slurm_job(ended("CANCELLED"), read_slurm_words(())).text
    assert "you" in judge_slurm_job(ended("CANCELLED"), read_slurm_words(()), ours="user").text


def test_a_job_that_slurm_forgot_ends_as_its_script_did() -> None:
    assert judge_lost_job(0).well
    assert judge_lost_job(3).code == 3
    assert judge_lost_job(None).state == "UNKNOWN"


def test_why_a_job_is_queued_again_is_told() -> None:
    assert "n2 failed" in requeue_reason(
        ended("PENDING", failed_node="n2"), read_slurm_words(()), ""
    )
    preempted = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T15:06:56 DUE TO PREEMPTION ***"
    assert "higher priority" in requeue_reason(ended("PENDING"), read_slurm_words([preempted]), "")


# ---- waiting

NEWER_REASONS = """
Constraints MpiPortsBusy NvidiaImexChannels ReservationInvalid MaxPoweredUpNodes PowerNotAvail SchedDefer BurstBufferOperation DeadLine
QOSUsageThreshold AccountingPolicy AssocMaxSubmitJobLimit AssocMaxBBPerNode AssociationTimeLimit QOSTimeLimit QOSMaxBillingPerJob
QOSMaxEnergyMinutesPerJob QOSMaxLicensePerJob QOSMaxUnknownPerNode MaxJobsPerAccount MaxSubmitJobsPerAccount MaxCpuPerAccount
MaxNodeRunMinsPerUser MaxGRESRunMinsPerAccount MaxMemoryPerAccount QOSGrpJobsLimit AssocGrpJobsLimit
"""
"""Words of 22.05 to 26.05 beside the common ones, from the table of
reasons in the source of each release.
"""


@pytest.mark.parametrize("reason", NEWER_REASONS.split())
def test_a_reason_of_any_release_has_a_sentence(reason: str) -> None:
    assert not slurm_wait_reason(SlurmJobRow("7", "PENDING", reason=reason)).text.startswith(
        "waits: "
    )


STATES = """
BOOT_FAIL CANCELLED COMPLETED COMPLETING CONFIGURING DEADLINE EXPEDITING FAILED NODE_FAIL OUT_OF_MEMORY PENDING PREEMPTED REQUEUED
REQUEUE_FED REQUEUE_HOLD RESIZING RESV_DEL_HOLD REVOKED RUNNING SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT
"""
"""All that `squeue -O State` prints in 22.05 to 26.05: EXPEDITING came with 25.11."""
GOES_ON = {
    "COMPLETING", "CONFIGURING", "EXPEDITING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING",
    "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED",
}  # fmt: skip


def test_a_state_of_any_release_ends_a_job_or_does_not() -> None:
    assert {state for state in STATES.split() if state not in FINAL} == GOES_ON


@pytest.mark.parametrize(("state", "words"), [
    ("DEADLINE", "deadline"), ("BOOT_FAIL", "could not be started"), ("REVOKED", "other cluster"), ("PREEMPTED", "higher priority"),
])  # fmt: skip
def test_an_end_that_a_recorded_row_tells_has_its_sentence(state: str, words: str) -> None:
    account = f"7|7|{state}|0:0|None|1795358381|1795358382|1795358390|n1|debug\n"
    queue = queue_line(JobID="7", State=state, exit_code="0:0", NodeList="n1")
    shown = SHOWN["22.05"].replace("NODE_FAIL", state)

    rows = [*account_rows(account), *queue_rows(queue), *shown_jobs(shown)]

    assert [row.state for row in rows] == [state] * 3
    assert {words in judge_slurm_job(row, read_slurm_words(())).text for row in rows} == {True}, (
        judge_slurm_job(rows[0], read_slurm_words(())).text
    )


@pytest.mark.parametrize(("reason", "stuck", "words"), [
    ("Priority", False, "higher priority"),
    ("(Resources)", False, "waits"),
    ("DependencyNeverSatisfied", True, "never start"),
    ("JobHeldUser", True, "held"),
    ("JobHeldAdmin", True, "administrator"),
    ("launch_failed_requeued_held", True, "could not launch"),
    ("QOSMaxGRESPerUser", False, "you have as many"),
    ("AssocGrpGRES", False, "account or QOS"),
    ("AssocMaxWallDurationPerJobLimit", True, "more than its account"),
    ("ReqNodeNotAvail, UnavailableNodes:cs[100,101,102]", False, "down, drained"),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", False, "down, drained"),
    ("SomethingNew", False, "SomethingNew"),
])  # fmt: skip
def test_a_reason_has_its_sentence(reason: str, stuck: bool, words: str) -> None:
    found = slurm_wait_reason(SlurmJobRow("7", "PENDING", reason.strip("()")))

    assert words in found.text
    assert found.stuck is stuck


def test_what_runs_waits_for_nothing() -> None:
    assert slurm_wait_reason(SlurmJobRow("7", "RUNNING", "None")).text == ""
    assert "scontrol release 7" in slurm_wait_reason(SlurmJobRow("7", "REQUEUE_HOLD")).do


def test_the_place_counts_within_the_partition() -> None:
    rows = [("3", "gpu"), ("9", "cpu"), ("5", "gpu"), ("no", "gpu")]

    found = queue_places("\n".join(number.ljust(20) + name for number, name in rows))

    assert found["5"] == {"position": 2, "waiting": 2}
    assert found["9"] == {"position": 1, "waiting": 1}


# ---- how often


def test_no_minute_has_more_calls_than_the_budget() -> None:
    budget, asked = Budget(), list[float]()
    for now in range(0, 600, 1):
        if budget.allows(QUEUE_CALLS, now):
            budget.spend(QUEUE_CALLS, now)
            asked += [now] * QUEUE_CALLS

    most = max(sum(1 for at in asked if begin <= at < begin + 60) for begin in range(540))
    assert most == USUAL


def test_slurm_is_asked_less_often_while_it_does_not_answer() -> None:
    rhythm, asked = QueueTimer(), list[float]()
    for now in range(3600):
        if rhythm.due(now):
            asked.append(now)
            rhythm.asked(now, well=False)

    assert [b - a for a, b in itertools.pairwise(asked)][:5] == [30, 60, 120, 240, 300]


def test_an_end_brings_the_next_look_forward() -> None:
    rhythm = QueueTimer()
    rhythm.asked(0.0, well=True)
    rhythm.want(5.0)

    assert [rhythm.due(at) for at in (4.0, 5.0)] == [False, True]
    assert (look_period(USUAL), look_period(120)) == (30.0, 1.5)


# ---- marks and the track


def test_names_tell_what_began_and_ended(tmp_path) -> None:
    (tmp_path / "marks").mkdir()
    for name in (
        "0.3.began.4711.n1.cluster",
        "0.3.ended.7",
        "1.batch.began.n2",
        "asked.user.5",
        "x",
        "0.3.ended.no",
    ):
        (tmp_path / "marks" / name).touch()
    marks = Marks(tmp_path)

    found = marks.look(0.0)

    assert {(m.attempt, m.rank, m.began, m.host, m.pid, m.status) for m in found} >= {
        (0, 3, True, "n1.cluster", 4711, None), (0, 3, False, "", 0, 7), (1, BATCH, True, "n2", 0, None),
    }  # fmt: skip
    assert marks.others == {"asked.user.5"}
    assert marks.look(1.0) == []
    assert parse_run_mark("../../etc") is None


@pytest.mark.parametrize("kind", [Run, partial(ArrayRun, array="0-1")])
def test_an_order_to_end_comes_before_the_ends_that_follow_it(tmp_path, kind) -> None:
    """Both are read in one look where the keeper was kept from looking."""
    folder = RunFolder(tmp_path, "j", "login")
    for name in ("rank.0", "rank.1", "marks"):
        (tmp_path / name).mkdir()
    (tmp_path / "events").touch()
    names = ("0.0.began.1.n1", "0.1.began.2.n1", "asked.user.5", "0.0.ended.143", "0.1.ended.137")
    for second, name in enumerate(names):
        (tmp_path / "marks" / name).touch()
        os.utime(tmp_path / "marks" / name, (1000 + second, 1000 + second))
    opened = kind(folder)

    opened.turn(0.0)
    opened.end()

    told = [(event["kind"], event["at"]) for event in all_events(tmp_path / "events")]
    assert ("cancel", 1002) in told
    ends = [place for place, (kind, _) in enumerate(told) if kind == "exited"]
    assert len(ends) == 2
    assert told.index(("cancel", 1002)) < min(ends)


def test_a_folder_is_listed_only_where_it_has_changed(tmp_path, monkeypatch) -> None:
    listed: list[float] = []
    list_folder = os.listdir
    monkeypatch.setattr(os, "listdir", lambda place: listed.append(now) or list_folder(place))
    names = FolderNames(tmp_path)

    for now in range(10):
        assert names.read(now) == []
    (tmp_path / "late").touch()
    for now in range(10, 20):
        assert names.read(now) == ["late"]

    # Also for a while after a change: the file server's clock may be coarse.
    assert listed == [0, 1, 2, 10, 11, 12]


def test_a_name_of_the_same_moment_as_the_last_one_is_seen(tmp_path) -> None:
    (tmp_path / "first").touch()
    then = tmp_path.stat().st_mtime_ns
    names = FolderNames(tmp_path)
    assert names.read(0.0) == ["first"]
    (tmp_path / "second").touch()
    os.utime(tmp_path, ns=(then, then))

    assert sorted(names.read(1.0)) == ["first", "second"]


def test_what_is_silent_is_looked_at_after_a_share_of_its_silence() -> None:
    pace, looks = LookTimer(5.0), []
    for now in range(120):
        if pace.due(now):
            looks.append(now)
            pace.looked(now, news=now == 0)

    gaps = [after - before for before, after in itertools.pairwise(looks)]
    assert gaps[:6] == [1] * 6
    assert gaps == sorted(gaps)
    assert gaps[-1] == 5
    pace.looked(120.0, news=True)
    assert pace.due(121.0)


def test_a_later_run_forgets_the_earlier_one() -> None:
    track = Track()
    track.take_mark(RunMark(0, 0, True, 1.0, host="n1", pid=5))
    track.take_mark(RunMark(0, 0, False, 2.0, status=143))

    (began,) = track.take_mark(RunMark(1, 0, True, 9.0, host="n2", pid=6))

    assert (began["kind"], began["host"], began["attempt"]) == ("started", "n2", 1)
    assert track.take_mark(RunMark(0, 1, False, 3.0, status=143)) == []
    assert track.unheard() == [0]


def test_estimates_that_change_with_every_look_are_not_all_recorded() -> None:
    track = Track()
    rows = [SlurmJobRow("7", "PENDING", "Priority", start=1e9 + look) for look in range(10)]

    told = [event for look, row in enumerate(rows) for event in track.take_seen(row, 30.0 * look)]

    assert len(told) == 3
    assert track.take_seen(rows[-1]._replace(reason="Resources"), 300.0)


def test_a_new_keeper_knows_what_the_last_one_wrote() -> None:
    track = restore_track(
        [
            {"seq": 0, "at": 1.0, "kind": "started", "rank": 0, "host": "n1"},
            {"seq": 1, "at": 2.0, "kind": "attempt", "number": 1, "text": "again"},
            {"seq": 2, "at": 3.0, "kind": "started", "rank": 0, "host": "n2", "attempt": 1},
            {"seq": 3, "at": 4.0, "kind": "cancel", "by": "user", "grace": 3},
        ]
    )

    assert (track.attempt, track.hosts, track.ours) == (1, {0: "n2"}, "user")
    assert track.take_mark(RunMark(1, 0, True, 3.0, host="n2")) == []


# ---- commands


def test_a_line_on_stderr_of_a_command_that_ended_well_is_no_error() -> None:
    env = {"PATH": "/usr/bin:/bin"}

    assert run_slurm_command(("sh", "-c", "echo 7; echo a banner >&2"), env) == SlurmReply(
        "7\n", said="a banner\n"
    )
    assert (
        run_slurm_command(
            ("sh", "-c", "echo sbatch: error: no >&2; echo bye >&2; exit 1"), env
        ).error
        == "no"
    )
    assert run_slurm_command(("sh", "-c", "exit 3"), env).error == "sh ended with 3"
    assert "no-such-program" in run_slurm_command(("no-such-program",), env).error


def test_a_command_that_does_not_answer_is_ended() -> None:
    reply = run_slurm_command(("sleep", "100"), {"PATH": "/usr/bin:/bin"}, limit=0.2)

    assert reply.late
    assert "did not answer within" in reply.error


def test_slurms_own_words_are_found_among_banners() -> None:
    assert (
        slurm_complaint("*** Welcome ***\nsbatch: error: invalid partition\n*** Bye ***")
        == "invalid partition"
    )
    assert slurm_complaint("only this\n") == "only this"


@pytest.mark.parametrize(("text", "found"), [
    ("4711\n", [("4711", "")]), ("4711;c2\n", [("4711", "c2")]), ("67108865\n", [("67108865", "")]),
    ("a banner\n4711\n", [("4711", "")]), ("4711\nsbatch: have a nice day\n", [("4711", "")]),
    ("Submitted batch job 4711\n", [("4711", "")]), ("site: Submitted batch job 4711 on cluster c2\r\n", [("4711", "c2")]),
    ("\x1b[32m4711\x1b[0m\n", [("4711", "")]), ("budget left:\n1200\n4711\n", [("1200", ""), ("4711", "")]),
    ("4711;--x y\x1b\n", []), ("", []), ("\x1b[2J", []), ("9" * 40, []),
])  # fmt: skip
def test_the_number_may_stand_on_any_line_of_sbatch(
    text: str, found: list[tuple[str, str]]
) -> None:
    assert job_numbers(text) == found


def kept_run(path: Path) -> Run:
    """A job of one rank that Slurm has just taken as number 7."""
    folder = RunFolder(path, "j", "login")
    for name in ("rank.0", "marks"):
        (path / name).mkdir()
    (path / "events").touch()
    write_id(folder, "7", "/usr/bin")
    return Run(folder)


def test_a_job_is_asked_only_in_silences_that_are_twice_as_long_as_all_before(tmp_path) -> None:
    run, out = kept_run(tmp_path), tmp_path / "rank.0/out"
    running = SlurmJobRow("7", "RUNNING")
    run.take(running)

    def silent(now: float, *, wrote: bool = False) -> bool:
        with out.open("a") as file:
            file.write("step\n" * wrote)
        run.turn(now)
        return run.is_silent

    assert [silent(0.0), silent(50.0)] == [False, False]  # its ranks have not begun
    run.track.hosts[0] = "n1"
    assert [silent(60.0), silent(74.0), silent(75.0)] == [False, False, True]
    assert [silent(100.0, wrote=True), silent(110.0), silent(130.0)] == [False, False, True]
    assert [silent(700.0, wrote=True), silent(1700.0), silent(1917.0)] == [False, False, True]

    run.take(running._replace(state="SUSPENDED"))
    assert not run.is_silent
    run.take(running)
    run.track.ended.add(0)
    assert not run.is_silent


@pytest.mark.parametrize(("folder", "later", "restarts", "ours"), [
    ("same", 86_400, 0, True),
    ("/moved/by/the/site", 5, 0, True),
    ("/moved/by/the/site", 86_400, 1, True),
    ("", 86_400, 0, True),
    ("/of/another/job", 86_400, 0, False),
])  # fmt: skip
def test_a_later_job_with_the_number_of_ours_is_not_ours(
    tmp_path, folder: str, later: float, restarts: int, ours: bool
) -> None:
    run = kept_run(tmp_path)
    place = str(tmp_path.resolve()) if folder == "same" else folder
    row = SlurmJobRow(
        "7", "RUNNING", folder=place, submitted=time.time() + later, restarts=restarts
    )

    assert run.owns(row) is ours


def test_accounting_of_an_earlier_job_with_our_number_is_not_believed(tmp_path) -> None:
    run = kept_run(tmp_path)
    earlier = SlurmJobRow("7", "COMPLETED", submitted=1.0, end=2.0)
    own = SlurmJobRow("7", "FAILED", submitted=time.time(), end=time.time())
    later = SlurmJobRow("7", "COMPLETED", submitted=time.time() + 86_400, end=time.time() + 86_500)

    assert run.accounted([earlier]) is None
    assert run.accounted([earlier, own]) == own
    run.owns(later._replace(folder="/of/another/job"))
    assert run.accounted([earlier, own, later]) == own


@pytest.mark.parametrize(("error", "silent"), [
    ("", False), ("Slurm accounting storage is disabled", False), ("sacct: No such file or directory", False),
    ("Problem talking to the database: Connection refused", True), ("sacct did not answer within 30 s", True),
])  # fmt: skip
def test_accounting_that_does_not_answer_is_told_from_none(error: str, silent: bool) -> None:
    assert bool(is_silent(SlurmReply("", error))) is silent


# ---- arrays


def task(number: str, state: str, **more: object) -> SlurmJobRow:
    """A row of one task of array 10, or of those that wait together."""
    return SlurmJobRow(f"1{number}"[:4], state, array=f"10_{number}", **more)  # type: ignore[arg-type]


def test_an_array_tells_each_task_by_itself() -> None:
    tasks = Tasks(range(4))
    rows = [
        task("0", "RUNNING"),
        task("1", "COMPLETED", code=0),
        task("2-3%1", "PENDING", reason="JobArrayTaskLimit"),
    ]

    first, second = tasks.take_rows(rows), tasks.take_rows(rows)

    assert [(row["rank"], row["state"], row.get("over")) for row in first] == [
        (0, "RUNNING", None),
        (1, "COMPLETED", True),
    ]
    assert second == []
    assert not tasks.over
    assert join_array_rows(rows, "10")[:3] == ("10", "RUNNING", "")


def test_tasks_that_waited_together_end_together() -> None:
    tasks = Tasks(range(3))
    ends = tasks.take_rows([task("0-2%1", "CANCELLED", by="alice")])

    assert [row["rank"] for row in ends] == [0, 1, 2]
    assert tasks.over
    assert tasks.verdict().text == "cancelled by alice, not through Rankdeck"


def test_a_list_of_tasks_that_was_cut_short_may_have_any() -> None:
    assert [covers_task(task(text, "PENDING"), 7) for text in ("1,3,5,...", "[1-9:2%2]", "1-9:3", "7", "8-", "x", "1-9:0")] == [
        True, True, True, True, False, False, True,
    ]  # fmt: skip


def test_a_long_list_of_tasks_keeps_the_mark_that_slurm_cut_it_short() -> None:
    odd = ",".join(str(number) for number in range(1, 99, 2))
    line = queue_line(JobID="10", ArrayJobID="10", ArrayTaskID=f"{odd[:64]}...", State="PENDING")

    (row,) = queue_rows(line)
    tasks = Tasks(range(1, 99, 2))
    for _ in range(5):
        tasks.take_rows([row])

    assert not tasks.unsure()


def test_slurms_word_on_a_task_comes_before_what_its_rank_left() -> None:
    tasks = Tasks([5])
    tasks.take_mark(RunMark(0, 5, True, 1.0, host="n1", pid=3))
    tasks.take_mark(RunMark(0, 5, False, 2.0, status=143))
    (end,) = tasks.take_rows([task("5", "TIMEOUT", limit=60.0)])

    assert "time limit of 00:01:00" in end["text"]
    assert tasks.take_mark(RunMark(0, 5, False, 3.0, status=0)) == []
    assert (tasks.verdict().state, tasks.verdict().code) == ("FAILED", 143)
    assert tasks.verdict().text == "1 of 1 tasks did not end well: TIMEOUT 5"


def test_only_the_task_that_was_queued_again_begins_anew() -> None:
    tasks = Tasks(range(2))
    for number in (0, 1):
        tasks.take_mark(RunMark(0, number, True, 1.0, host="n1", pid=3))
    again_, began = tasks.take_mark(RunMark(1, 1, True, 5.0, host="n2", pid=4))

    assert (again_["kind"], again_["rank"], again_["attempt"]) == ("task", 1, 1)
    assert (began["kind"], began["rank"], began["attempt"]) == ("started", 1, 1)
    (ended,) = tasks.take_mark(RunMark(0, 0, False, 6.0, status=0))
    assert (ended["rank"], ended["status"]) == (0, 0)


def test_a_task_that_slurm_forgot_is_told_by_accounting_or_by_what_it_left() -> None:
    tasks = Tasks(range(3))
    tasks.take_mark(RunMark(0, 1, True, 1.0, host="n1", pid=3))
    tasks.take_mark(RunMark(0, 1, False, 2.0, status=7))
    for _ in range(2):
        tasks.take_rows([])

    assert tasks.unsure()
    kept = tasks.settle([task("0", "NODE_FAIL", nodes="n2")], patient=False)
    assert [(row["rank"], row["state"]) for row in kept] == [(0, "NODE_FAIL")]
    still = [task("1", "RUNNING"), task("2", "RUNNING")]
    tasks.take_rows([])
    assert tasks.settle(still, patient=True) == []
    lost_ = tasks.settle([], patient=False)
    assert [(row["rank"], row["state"], row.get("code")) for row in lost_] == [
        (1, "FAILED", 7),
        (2, "UNKNOWN", None),
    ]
    assert tasks.over


def test_tasks_that_were_cancelled_while_they_waited_together_end_so_in_accounting() -> None:
    tasks = Tasks(range(4))
    tasks.take_rows([task("0", "RUNNING")])
    for _ in range(2):
        tasks.take_rows([task("0", "RUNNING")])

    told = tasks.settle([task("[1-3%4]", "CANCELLED", by="root")], patient=False)

    assert [(row["rank"], row["state"], row["text"]) for row in told] == [
        (number, "CANCELLED", "cancelled by root, not through Rankdeck") for number in (1, 2, 3)
    ]


def test_who_cancelled_a_task_is_asked_once_and_not_of_those_that_rankdeck_cancelled() -> None:
    tasks = Tasks(range(3))
    tasks.cancelled("user", 0)
    ended_ = [task("0", "CANCELLED"), task("1", "COMPLETED")]

    assert not tasks.cancelled_by_others(ended_)
    theirs = [*ended_, task("2", "CANCELLED")]
    assert tasks.cancelled_by_others(theirs)
    tasks.take_rows(theirs)
    assert not tasks.cancelled_by_others(theirs)


def test_what_an_earlier_keeper_wrote_of_tasks_is_not_told_again() -> None:
    events = [
        {"kind": "started", "rank": 0, "host": "n1", "attempt": 1},
        {"kind": "exited", "rank": 0, "code": 0, "signal": None},
        {"kind": "task", "rank": 1, "state": "FAILED", "code": 3, "over": True, "text": ""},
    ]
    tasks = Tasks(range(2), events)

    assert tasks.take_rows([task("1", "FAILED", code=3)]) == []
    (end,) = tasks.take_rows([task("0", "COMPLETED", code=0, restarts=1)])
    assert (end["rank"], end["attempt"], end["state"]) == (0, 1, "COMPLETED")


def test_one_answer_of_scontrol_has_every_task() -> None:
    text = (
        SHOWN["24.11"].replace("JobId=7", "JobId=8", 1)
        + "\n"
        + SHOWN["24.11"].replace("ArrayTaskId=3", "ArrayTaskId=4-9%2")
        + "\n"
    )

    assert [(row.job, row.array) for row in shown_jobs(text)] == [("7", "7_3"), ("7", "7_4-9%2")]


def test_a_span_of_tasks_without_end_is_cut_before_it_is_made() -> None:
    assert len(parse_number_ranges("0-99999999999")) == 10_000
    assert parse_number_ranges("0-2,7") == [0, 1, 2, 7]
