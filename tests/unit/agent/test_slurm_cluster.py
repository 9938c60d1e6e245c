"""What the agent reads of Slurm's nodes and everybody's jobs, how
often it asks, and what of it is told.
"""

import json
import os
import time
from pathlib import Path

import pytest

from rankdeck_agent.schedulers.slurm import ended_jobs
from rankdeck_agent.schedulers.slurm.answers import (
    NODES,
    QUEUE,
    ClusterPoll,
    SlurmAnswer,
    answer_to,
    leave_answer,
    read_answer,
    want_answers,
)
from rankdeck_agent.schedulers.slurm.call_budget import QUEUE_CALLS, USUAL, WINDOW, Budget
from rankdeck_agent.schedulers.slurm.cluster import SlurmView
from rankdeck_agent.schedulers.slurm.commands import BETWEEN, Slurm
from rankdeck_agent.schedulers.slurm.host_list import unfold_hosts
from rankdeck_agent.schedulers.slurm.job_reports import SlurmJobRow
from rankdeck_agent.schedulers.slurm.keeper import is_same
from rankdeck_agent.schedulers.slurm.keeper_lease import keeper_folder
from rankdeck_agent.schedulers.slurm.queue import MOST_JOBS, QUEUE_COLUMNS, job_rows, shown_jobs_of
from rankdeck_agent.schedulers.slurm.sinfo import NODE_COLUMNS, node_rows, place_jobs

IDLE = {
    "NodeHost": "n1", "PartitionName": "debug", "Partition": "debug*", "StateLong": "mixed", "Gres": "gpu:a100:4",
    "GresUsed": "gpu:a100:1(IDX:0)", "features_act": "a100,ib", "CPUsState": "3/1/0/4", "AllocMem": "1350",
    "Memory": "2000", "User": "Unknown", "Timestamp": "Unknown", "Available": "up", "Time": "infinite",
    "Size": "1-infinite", "Reason": "none",
}  # fmt: skip
"""A line that sinfo of 24.11 wrote, by its columns."""
DRAINED = {
    **IDLE, "NodeHost": "n2", "StateLong": "draining*", "CPUsState": "1/0/3/4", "User": "root",
    "Timestamp": "1795371818", "Reason": "bad: cable | x",
}  # fmt: skip


def queued(number: int, **more: str) -> str:
    """A row of everybody's queue."""
    cells = dict.fromkeys(QUEUE_COLUMNS, "N/A")
    cells |= {
        "JobID": str(number), "ArrayJobID": str(number), "State": "RUNNING", "UserName": "ann", "Partition": "debug",
        "NumNodes": "1", "NumCPUs": "1", "TimeLimit": "1:00", "Reason": "None", "NodeList": "n1", "Name": "a",
        "SubmitTime": "1795371815", "Account": "(null)", "HetJobID": "0", **more,
    }  # fmt: skip
    return BETWEEN.join(cells.values())


WAITS = {"State": "PENDING", "UserName": "lab", "NodeList": "", "Name": "wrap"}
QUEUED = "\n".join([
    queued(3, **WAITS, ArrayTaskID="0-3%2", NumNodes="2", NumCPUs="2", TimeLimit="UNLIMITED", Reason=(
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions")),
    queued(2, **WAITS, StartTime="1795371900", TimeLimit="1-00:00:00", Reason="Resources"),
    queued(7, ArrayJobID="3", ArrayTaskID="5", StartTime="1795371815", NodeList="n2"),
    queued(1, UserName="lab", NumNodes="2", NumCPUs="4", EndTime="1795372000", NodeList="n[1-2]", Name="train|x"),
    "squeue: a banner | of the site",
])  # fmt: skip


def sinfo(*rows: dict[str, str]) -> str:
    """Lines as `sinfo --Format` pads them."""
    lines = ("".join(row[name].ljust(n)[:n] for name, n in NODE_COLUMNS.items()) for row in rows)
    return "\n".join(lines)


# ---- rows


def test_a_node_has_its_state_reason_partitions_and_what_is_in_use() -> None:
    low = {**IDLE, "PartitionName": "low", "Partition": "low"}

    (first, second), _ = node_rows(sinfo(IDLE, DRAINED, low) + "\nsinfo: a banner of the site\n")

    assert (first["state"], first["also"], first["reason"]) == ("mixed", [], "")
    assert (first["partitions"], first["features"]) == (["debug", "low"], "a100,ib")
    assert (first["gres"], first["gres_used"]) == ({"gpu:a100": 4}, {"gpu:a100": 1})
    assert (first["cpus"], first["cpus_used"]) == (4, 3)
    assert (first["memory"], first["memory_used"]) == (2000, 1350)
    assert (second["state"], second["also"]) == ("draining", ["not responding"])
    assert (second["reason"], second["by"], second["since"]) == ("bad: cable | x", "root", 1795371818.0)  # fmt: skip


@pytest.mark.parametrize(("word", "state", "also"), [
    ("idle~", "idle", ["powered down"]),
    ("idle#", "idle", ["powering up"]),
    ("mixed-", "mixed", ["planned for a job"]),
    ("drained*", "drained", ["not responding"]),
    ("down$", "down", ["reserved for maintenance"]),
    ("allocated+", "allocated", []),
])  # fmt: skip
def test_the_signs_at_a_state_are_told_in_words(word: str, state: str, also: list[str]) -> None:
    (row,), _ = node_rows(sinfo({**IDLE, "StateLong": word}))

    assert (row["state"], row["also"]) == (state, also)


@pytest.mark.parametrize(("text", "counts"), [
    ("(null)", {}),
    ("gpu:8", {"gpu": 8}),
    ("gpu:h100:8(S:0-1),nic:2", {"gpu:h100": 8, "nic": 2}),
    ("gpu:h100:3(IDX:0-1,7),gpu:a30:1(IDX:2)", {"gpu:h100": 3, "gpu:a30": 1}),
    ("gres/none", {}),
])  # fmt: skip
def test_gres_are_counted_by_name(text: str, counts: dict[str, int]) -> None:
    (row,), _ = node_rows(sinfo({**IDLE, "Gres": text}))

    assert row["gres"] == counts


def test_partitions_count_what_is_idle_and_what_is_out_of_service() -> None:
    free = {**IDLE, "NodeHost": "n3", "StateLong": "idle", "Time": "4:00:00"}

    _, (debug,) = node_rows(sinfo(free, IDLE, DRAINED))

    assert (debug["nodes"], debug["idle"], debug["usable"]) == (3, 1, 2)
    assert (debug["usual"], debug["up"], debug["limit"]) == (True, True, 14400.0)


def test_everybodys_jobs_have_places_tasks_and_reasons() -> None:
    array, waits, task, runs = job_rows(QUEUED)

    assert (array["shown"], array["position"], array["waiting"]) == ("3_[0-3%2]", 1, 2)
    assert "down, drained" in array["text"]
    assert (waits["position"], waits["start"], waits["limit"]) == (2, 1795371900.0, 86400.0)
    assert (task["shown"], task["user"], task["nodes"]) == ("3_5", "ann", "n2")
    assert (runs["name"], runs["end"], runs["text"]) == ("train|x", 1795372000.0, "")


def test_nodes_know_the_jobs_that_run_there() -> None:
    nodes, _ = node_rows(sinfo(IDLE, DRAINED))

    place_jobs(nodes, list(job_rows(QUEUED)))

    assert [row["jobs"] for row in nodes] == [["1 lab"], ["3_5 ann", "1 lab"]]


@pytest.mark.parametrize(("text", "names"), [
    ("n[1-2],gpu7", ["n1", "n2", "gpu7"]),
    ("n[08-10,12]-ib", ["n08-ib", "n09-ib", "n10-ib", "n12-ib"]),
    ("", []),
    ("n[1-x]", []),
    ("n[1-", ["n", "1-"]),
])  # fmt: skip
def test_sets_of_nodes_are_unfolded(text: str, names: list[str]) -> None:
    assert unfold_hosts(text) == names


def test_a_set_without_end_is_cut() -> None:
    assert len(unfold_hosts("n[0-99999999999]")) == 20_000


def test_rubbish_gives_no_rows() -> None:
    for text in ("", "\x1b[2J", "|" * 40, "7\t" * 13, "x" * 5000):
        assert node_rows(text) == ([], [])
        assert list(job_rows(text)) == []


# ---- what is told


def test_only_what_changed_is_told() -> None:
    view = SlurmView()
    view.take(NODES, SlurmAnswer(1.0, sinfo(IDLE, DRAINED), told=1.0))
    view.take(QUEUE, SlurmAnswer(1.0, QUEUED, told=1.0))

    assert [next(iter(row)) for row in view.news()] == [
        "partition", "node", "node", "job", "job", "job", "job", "queue_age",
    ]  # fmt: skip
    assert list(view.news()) == []

    view.take(NODES, SlurmAnswer(2.0, sinfo({**IDLE, "StateLong": "idle"}), told=2.0))
    (gone, partition, node) = view.news()
    assert gone == {"node_gone": "n2"}
    assert partition["partition"]["nodes"] == 1
    assert (node["node"]["state"], node["node"]["jobs"]) == ("idle", ["1 lab"])


def test_an_answer_that_did_not_come_leaves_what_is_known_and_is_told_once() -> None:
    view = SlurmView()
    view.take(QUEUE, SlurmAnswer(1.0, QUEUED, told=1.0))
    list(view.news())

    view.take(QUEUE, SlurmAnswer(2.0, "", "Unable to contact slurm controller"))
    view.take(NODES, SlurmAnswer(2.0, "", "Unable to contact slurm controller"))

    assert list(view.news()) == [
        {"trouble": "Slurm does not answer: Unable to contact slurm controller"}
    ]
    assert list(view.news()) == []
    assert view.complete


def test_a_job_is_the_same_while_everybodys_queue_says_what_was_told_of_it() -> None:
    array, *_ = job_rows(QUEUED)
    about = {key: array[key] for key in ("partition", "limit", "nodes")}
    seen = SlurmJobRow("3", "PENDING", array["reason"][:95], **about)

    assert is_same(array, seen)
    changes = {"reason": "Priority", "state": "RUNNING", "limit": 7200.0, "partition": "other"}
    for key, value in changes.items():
        assert not is_same(array, seen._replace(**{key: value}))
    assert not is_same(None, seen)

    runs = {**array, "state": "RUNNING", "nodes": "n[1-2]"}
    assert is_same(runs, seen._replace(state="RUNNING", nodes="n[1-2]"))
    assert not is_same(runs, seen._replace(state="RUNNING", nodes="n[1-4]"))


# ---- how often Slurm is asked


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Commands that write down that they were called."""
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path / "state"))
    answers(tmp_path, "sinfo", "answer")
    answers(tmp_path, "squeue", queued(1))
    return Slurm({"PATH": f"{tmp_path}:{os.environ['PATH']}"})


def answers(tmp_path: Path, name: str, *rows: str) -> None:
    """A command that answers with these rows; squeue puts the mark of
    its `--Format` in place of each tab.
    """
    text = tmp_path / f"{name}.rows"
    text.write_text("".join(f"{row}\n" for row in rows))
    program = tmp_path / name
    program.write_text(
        f"#!/bin/sh\necho {name} >>{tmp_path}/asked\nmark=\n"
        "for word; do case $word in --Format=*:0*) mark=${word#*:0}; mark=${mark%%,*} ;; esac; done\n"
        f'exec sed "s/\t/$mark/g" {text}\n'
    )
    program.chmod(0o755)


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\u2028"])
def test_the_name_of_a_job_of_others_cannot_look_like_the_row_of_another_job(
    slurm: Slurm, tmp_path: Path, end: str
) -> None:
    keeper_folder().mkdir(parents=True)
    fake = queued(999, UserName="root").replace(BETWEEN, "|")
    answers(tmp_path, "squeue", f"{queued(7)}{BETWEEN}", queued(8, Name=f"x{end}{fake}") + BETWEEN)

    text = ClusterPoll().ask(slurm, Budget(), 0.0, reserve=0)

    assert [row["id"] for row in job_rows(text)] == ["7", "8"]
    kept = read_answer(QUEUE)
    assert kept is not None
    assert [row["user"] for row in job_rows(kept.text)] == ["ann", "ann"]


def test_nor_in_what_accounting_tells_of_everybodys_jobs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path / "state"))
    words = "7|7|COMPLETED|0:0|None|1|2|3|n1|debug|ann|1|1|x".replace("|", "${d}")
    fake = "9|9|FAILED|1:0|None|1|2|3|n1|debug|root|1|1|fake"
    program = tmp_path / "sacct"
    program.write_text(
        "#!/bin/sh\nfor word; do case $word in --delimiter=*) d=${word#*=} ;; esac; done\n"
        f'printf "%s\\n" "{words}" "{fake}"\n'
    )
    program.chmod(0o755)

    answer = ended_jobs._ask(Slurm({"PATH": f"{tmp_path}:{os.environ['PATH']}"}))

    assert [row["id"] for row in ended_jobs.ended_rows(answer.text)] == ["7"]


def asked(tmp_path: Path) -> list[str]:
    file = tmp_path / "asked"
    return file.read_text().split() if file.exists() else []


def test_nobody_is_asked_while_nobody_wants_to_know(slurm: Slurm) -> None:
    del slurm
    poll = ClusterPoll()
    assert not poll.wanted(1000.0)

    want_answers({"environment": {"PATH": "/opt/slurm/bin"}, "rpcs_per_minute": 12})

    assert poll.wanted(1001.0)
    assert (poll.slurm.variables, poll.most) == ({"PATH": "/opt/slurm/bin"}, 12)
    assert poll.wanted(1030.0)
    assert not poll.wanted(1040.0)


def test_a_wish_that_is_long_past_does_not_count(slurm: Slurm) -> None:
    del slurm
    want_answers({})
    long_ago = time.time() - 3600
    os.utime(keeper_folder() / "wanted", (long_ago, long_ago))

    assert not ClusterPoll().wanted(1000.0)


@pytest.mark.long
@pytest.mark.parametrize("reserve", [0, QUEUE_CALLS])
def test_an_hour_costs_no_more_calls_than_are_allowed(
    slurm: Slurm, tmp_path: Path, reserve: int
) -> None:
    private = keeper_folder()
    private.mkdir(parents=True)
    poll, budget, spent = ClusterPoll(), Budget(USUAL), []

    for now in range(0, 600, 5):
        before = len(asked(tmp_path))
        poll.ask(slurm, budget, float(now), reserve=reserve)
        spent += [now] * (len(asked(tmp_path)) - before)

    busiest = max(sum(at <= other < at + WINDOW for other in spent) for at in spent)
    assert busiest * QUEUE_CALLS <= USUAL - reserve
    assert set(asked(tmp_path)) == {"sinfo", "squeue"}


def test_the_answer_lies_where_consoles_look(slurm: Slurm) -> None:
    keeper_folder().mkdir(parents=True)

    text = ClusterPoll().ask(slurm, Budget(), 0.0, reserve=0)

    left = read_answer(QUEUE)
    assert [row["id"] for row in job_rows(text)] == ["1"]
    assert left is not None
    assert (left.text, left.error, left.told) == (text, "", left.at)
    (keeper_folder() / NODES).write_text(json.dumps({"at": "soon"}) + "\nx")
    assert read_answer(NODES) is None


def test_a_job_on_many_scattered_nodes_stands_at_each_of_them() -> None:
    names = [f"gpu-{number:05}" for number in range(0, 1500, 2)]
    (row,) = job_rows(queued(7, NodeList=",".join(names)))
    nodes = [{"name": name, "jobs": []} for name in names]

    place_jobs(nodes, [row])
    (shown,), left_out = shown_jobs_of([row], "bob")

    assert all(node["jobs"] == ["7 ann"] for node in nodes)
    assert (shown["nodes"][-11:], len(shown["nodes"]) <= 2000, left_out) == (f"{shown['nodes'][-11:-2]},…", True, 0)  # fmt: skip


def test_ones_own_jobs_are_first_in_a_queue_that_is_too_long() -> None:
    rows = [
        *job_rows("\n".join([*(queued(n) for n in range(1, 6001)), queued(6001, UserName="bob")]))
    ]

    shown, left_out = shown_jobs_of(rows, "bob")

    assert (shown[0]["id"], len(shown), left_out) == ("6001", MOST_JOBS, 1001)


def test_a_job_that_waits_in_several_partitions_waits_in_each() -> None:
    text = "\n".join([
        queued(1, State="PENDING", Partition="gpu"), queued(2, State="PENDING", Partition="gpu,debug"),
        queued(3, State="PENDING", Partition="debug"),
    ])  # fmt: skip

    assert [(row["position"], row["waiting"]) for row in job_rows(text)] == [(1, 2), (2, 2), (2, 2)]


def test_what_fills_its_column_loses_what_may_be_half_an_entry() -> None:
    gres = ",".join(f"gpu:type{n:03}:12" for n in range(40))
    (row,), _ = node_rows(sinfo({**IDLE, "Gres": gres}))

    assert row["gres"]
    assert {*row["gres"].values()} == {12}


def test_the_number_for_no_task_is_no_task() -> None:
    (row,) = job_rows(queued(7, ArrayTaskID="4294967294"))

    assert row["shown"] == "7"


def test_a_het_job_is_one_row_with_what_all_its_components_have() -> None:
    text = "\n".join([
        queued(8, HetJobID="7", HetJobOffset="1", NodeList="n2", NumCPUs="8", **{"tres-per-node": "gres/gpu:2", "tres-alloc": "cpu=8,mem=1G"}),
        queued(7, HetJobID="7", HetJobOffset="0", NumCPUs="2", **{"tres-alloc": "cpu=2,mem=500M"}),
        queued(9),
    ])  # fmt: skip

    het, other = job_rows(text)

    assert (het["id"], het["shown"], het["nodes"], het["cpus"]) == ("7", "7", "n1,n2", 10)
    assert (het["gpus"], het["memory"], het["count"]) == (2, 1524.0, 2)
    parts = [(part["id"], part["nodes"], part["gpus"]) for part in het["components"]]
    assert parts == [("7+0", "n1", 0), ("7+1", "n2", 2)]
    assert (other["id"], other["offset"], "components" in other) == ("9", None, False)


def test_a_component_that_is_left_alone_stands_for_its_het_job() -> None:
    (het,) = job_rows(queued(8, HetJobID="7", HetJobOffset="1"))

    assert (het["id"], [part["id"] for part in het["components"]]) == ("7", ["7+1"])


@pytest.mark.parametrize(("cells", "gpus"), [
    ({"tres-alloc": "cpu=4,gres/gpu=2,gres/gpu:a100=2", "tres-per-node": "gres/gpu:a100:1"}, 2),
    ({"tres-per-node": "gres/gpu:a100:4", "NumNodes": "3"}, 12), ({"tres-per-job": "gres/gpu:5", "NumNodes": "3"}, 5),
    ({"tres-per-task": "gres/gpu=1", "NumTasks": "6"}, 6), ({"tres-per-node": "gres/nic:2"}, 0), ({}, 0),
])  # fmt: skip
def test_gpus_are_those_of_all_nodes_however_they_were_asked_for(
    cells: dict[str, str], gpus: int
) -> None:
    (row,) = job_rows(queued(7, **cells))

    assert row["gpus"] == gpus


def test_what_was_known_stays_with_its_age_when_slurm_does_not_answer(
    slurm: Slurm, tmp_path: Path
) -> None:
    keeper_folder().mkdir(parents=True)
    answers(tmp_path, "squeue", f"{queued(7)}\t")
    poll = ClusterPoll()
    poll.ask(slurm, Budget(), 0.0, reserve=0)
    before = read_answer(QUEUE)
    assert before is not None
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'squeue: error: timed out' >&2; exit 1\n")

    leave_answer(QUEUE, answer_to(QUEUE, slurm))

    now = read_answer(QUEUE)
    assert now is not None
    assert (now.error, now.told, now.text) == ("timed out", before.told, before.text)
    assert now.at > before.at
    view = SlurmView()
    view.take(QUEUE, now)
    rows = {next(iter(row)): row for row in view.news()}
    assert rows["job"]["job"]["id"] == "7"
    assert 0 <= rows["queue_age"]["queue_age"] < 60
    assert rows["trouble"]["trouble"] == "Slurm does not answer: timed out"


def test_after_a_change_of_ours_the_queue_is_asked_at_once_within_the_budget(
    slurm: Slurm, tmp_path: Path
) -> None:
    keeper_folder().mkdir(parents=True)
    poll, budget = ClusterPoll(), Budget(USUAL)
    poll.ask(slurm, budget, 0.0, reserve=0)
    first = asked(tmp_path).count("squeue")

    poll.ask(slurm, budget, 5.0, reserve=0)
    assert asked(tmp_path).count("squeue") == first
    poll.want_queue(6.0)
    poll.ask(slurm, budget, 6.0, reserve=0)
    assert asked(tmp_path).count("squeue") == first + 1
    poll.want_queue(7.0)
    poll.ask(slurm, budget, 7.0, reserve=0)
    assert asked(tmp_path).count("squeue") == first + 1, "the budget of the minute is spent"
