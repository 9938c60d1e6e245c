"""What Slurm answers at sites: states, resources, reasons and names as its sources of 20.11 to
26.05 print them, and what is made of them. Written by hand, from those sources and from reports.
"""

from typing import Any

import pytest

from rankdeck.model.queue import QueueStatus, queue_words
from rankdeck.schedulers.slurm.node import SlurmNode
from rankdeck.schedulers.slurm.rows import slurm_node_of
from rankdeck_agent.schedulers.slurm.commands import Slurm, SlurmReply, slurm_complaint
from rankdeck_agent.schedulers.slurm.host_list import unfold_hosts
from rankdeck_agent.schedulers.slurm.job_reports import SlurmJobRow
from rankdeck_agent.schedulers.slurm.node_change import Order, answer_node_order
from rankdeck_agent.schedulers.slurm.sinfo import node_rows
from rankdeck_agent.schedulers.slurm.verdict import (
    EndWords,
    judge_slurm_job,
    read_slurm_words,
    slurm_wait_reason,
)
from tests.unit.agent.test_slurm_cluster import IDLE, sinfo


def node(**cells: str) -> tuple[SlurmNode, dict[str, Any]]:
    """(the console's node, its partition) from a line of sinfo."""
    (row,), (partition,) = node_rows(sinfo({**IDLE, **cells}))
    return slurm_node_of(row)[1], partition


@pytest.mark.parametrize(("there", "used", "words"), [
    ("gpu:8(S:0-1)", "gpu:(null):3(IDX:0-2)", "gpu 3/8"),
    ("gpu:8", "gpu:(null):0(IDX:N/A)", "gpu 0/8"),
    ("gpu:8(S:0-1)", "gpu:3(IDX:0-2)", "gpu 3/8"),
    ("gpu:h100:8(S:0-1),shard:h100:32(S:0-1)", "gpu:h100:3(IDX:0-1,5),shard:h100:5(1/4,4/4,-/4,0/4)",
        "gpu:h100 3/8, shard:h100 5/32"),
    ("gpu:1g.10gb:7(S:0),gpu:3g.40gb:2", "gpu:1g.10gb:2(IDX:0-1),gpu:3g.40gb:0(IDX:N/A)", "gpu:1g.10gb 2/7, gpu:3g.40gb 0/2"),
])  # fmt: skip
def test_devices_in_use_are_counted_however_a_release_prints_their_type(
    there: str, used: str, words: str
) -> None:
    assert node(Gres=there, GresUsed=used)[0].gres_words == words


@pytest.mark.parametrize(
    "state",
    ["maint", "maint*", "reboot", "reboot^", "reboot*", "future", "unknown", "unknown*", "powering_down", "idle%", "idle^"],
)  # fmt: skip
def test_a_node_that_takes_no_jobs_for_now_is_not_offered(state: str) -> None:
    view, partition = node(StateLong=state)

    assert view.why_closed(shared=False)
    assert (partition["usable"], partition["idle"]) == (0, 0)


@pytest.mark.parametrize(
    "state", ["idle~", "idle#", "idle!", "planned", "blocked", "mixed-", "allocated+"]
)
def test_a_node_that_saves_energy_or_is_planned_can_be_used(state: str) -> None:
    view, partition = node(StateLong=state)

    assert not view.out
    assert partition["usable"] == 1


@pytest.mark.parametrize(("text", "names"), [
    ("rack[1-2]n[01-02]", ["rack1n01", "rack1n02", "rack2n01", "rack2n02"]),
    ("r[1,3]c[0-1]s[7]-ib,login", ["r1c0s7-ib", "r1c1s7-ib", "r3c0s7-ib", "r3c1s7-ib", "login"]),
    ("a[1]b[1]c[1]d[1]e[1],n1", ["n1"]),
])  # fmt: skip
def test_names_with_several_numbers_are_unfolded(text: str, names: list[str]) -> None:
    assert unfold_hosts(text) == names


@pytest.mark.parametrize(
    "reason",
    ["AssocGrpCPUMinutesLimit", "AssocGrpGRESMinutes", "QOSGrpBillingMinutes", "QOSGrpMemoryMinutes", "AssocGrpWallLimit"],
)  # fmt: skip
def test_a_budget_that_is_used_up_does_not_come_back_with_the_end_of_other_jobs(
    reason: str,
) -> None:
    why = slurm_wait_reason(SlurmJobRow("7", "PENDING", reason))

    assert "budget" in why.text
    assert why.stuck


@pytest.mark.parametrize(
    "reason",
    ["AssocGrpCPURunMinutesLimit", "QOSGrpMemoryRunMinutes", "QOSGrpNodeLimit", "AssocGrpGRES"],
)
def test_what_running_jobs_hold_comes_back_with_their_end(reason: str) -> None:
    why = slurm_wait_reason(SlurmJobRow("7", "PENDING", reason))

    assert "other jobs of the group end" in why.do
    assert not why.stuck


@pytest.mark.parametrize("reason", ["QOSMinGRES", "QOSMinCpuNotSatisfied", "QOSMinNode"])
def test_who_asks_for_less_than_a_qos_demands_is_told_to_ask_for_more(reason: str) -> None:
    why = slurm_wait_reason(SlurmJobRow("7", "PENDING", reason))

    assert "less" in why.text
    assert "ask for more" in why.do


@pytest.mark.parametrize("reason", [
    "user env retrieval failed requeued held", "user_env_retrieval_failed_requeued_held",
    "launch_failure_limit_exceeded_requeued_held", "launch failed requeued held",
])  # fmt: skip
def test_a_held_job_is_told_in_both_spellings(reason: str) -> None:
    why = slurm_wait_reason(SlurmJobRow("7", "PENDING", reason))

    assert (why.stuck, "scontrol release 7" in why.do) == (True, True)
    assert ("could not launch" in why.text) is ("launch" in reason)


@pytest.mark.parametrize(("reason", "words"), [
    ("JobLaunchFailure", "could not launch"), ("BadConstraints", "no node can be"), ("NonZeroExitCode", ""), ("Priority", ""),
])  # fmt: skip
def test_a_job_that_failed_before_any_rank_is_told_by_slurms_reason(
    reason: str, words: str
) -> None:
    told = judge_slurm_job(SlurmJobRow("7", "FAILED", reason, code=1), EndWords())

    assert words in told.text
    assert bool(told.text) is bool(words)


def test_a_job_that_is_cleaned_up_for_hours_says_so_and_a_suspended_one_too() -> None:
    ends = slurm_wait_reason(SlurmJobRow("7", "COMPLETING", nodes="n3"))
    stopped = QueueStatus(state="SUSPENDED", text="suspended: …", ends=160.0)

    assert (ends.text, ends.stuck) == ("it has ended: Slurm still cleans up on its nodes", False)
    assert queue_words(QueueStatus(state="COMPLETING", text=ends.text), 0.0) == ends.text
    assert queue_words(stopped, 100.0) == "suspended: …, 60 s left"


@pytest.mark.parametrize(("state", "before"), [("TIMEOUT", "its time limit"), ("FAILED", "")])
def test_a_node_where_processes_would_not_end_is_named(state: str, before: str) -> None:
    line = "slurmstepd: error: *** JOB 7 STEPD TERMINATED ON n3 AT 2026-11-30T08:00:00 DUE TO JOB NOT ENDING WITH SIGNALS ***"  # fmt: skip

    told = judge_slurm_job(SlurmJobRow("7", state, code=1), read_slurm_words([line, line]))

    assert told.text.startswith(before)
    assert told.text.endswith("processes on n3 did not end, even by SIGKILL")
    assert told.do


def test_what_modules_of_a_site_call_an_error_is_not_slurms() -> None:
    said = "Lmod has detected the following error: slurm/23 is deprecated\nslurm_load_jobs error: no controller\n"

    assert slurm_complaint(said) == "slurm_load_jobs error: no controller"


class Wrapped(Slurm):
    """A Slurm whose commands are wrappers that print a banner to stdout first."""

    def ask(self, *argv: str, limit: float = 0.0) -> SlurmReply:
        cells = sinfo({**IDLE, "NodeHost": "n1"}, {**IDLE, "NodeHost": "n2"})
        answer = cells if argv[0] == "sinfo" else "n[1-2]\n"
        return SlurmReply(f"*** n[1-9] are out on Monday ***\n{answer}")


def test_a_banner_of_the_site_is_no_part_of_a_command() -> None:
    told = answer_node_order(Order("drain", ("n1", "n2"), "fan"), Wrapped())

    assert told["line"] == 'scontrol update nodename=n[1-2] state=drain reason="rankdeck: fan"'
