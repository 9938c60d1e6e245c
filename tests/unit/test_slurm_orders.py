"""What the console makes of the agent's answers about jobs in
Slurm's queue, also if they are odd.
"""

import pytest

from rankdeck.cli.jobs import job_resources
from rankdeck.model.queue import QueueStatus, queue_words
from rankdeck.schedulers.orders import JobChange, JobEfficiency
from rankdeck.schedulers.slurm.rows import components_of, job_change_of, pages_of, slurm_job_of
from rankdeck.schedulers.slurm.state import SlurmCluster
from rankdeck.schedulers.slurm.values import SlurmJob


def test_a_change_has_only_a_line_that_can_be_shown_whole() -> None:
    well = job_change_of({"line": "scontrol hold 1", "jobs": ["1"], "hits": 1, "left": {"2": "no\x1b[2J"}, "done": True, "now": {"1": "PENDING"}, "said": 7})  # fmt: skip
    odd = job_change_of({"line": "scontrol hold 1\n; rm -rf /", "jobs": "1", "hits": "x", "left": [], "error": "\x1b]0;x\x07"})  # fmt: skip

    assert (well.line, well.jobs, well.done, well.said) == ("scontrol hold 1", ("1",), True, "")
    assert well.left_alone["2"].isprintable()
    assert (odd.line, odd.jobs, odd.hits, odd.done) == ("", (), 0, False)
    assert odd.error.isprintable()


@pytest.mark.parametrize(("jobs", "hits", "words"), [
    (("1",), 1, "1 job"), (("1", "2"), 2, "2 jobs"), (("48",), 100, "1 job, with 100 tasks or components"),
])  # fmt: skip
def test_a_change_counts_what_it_would_hit(jobs: tuple[str, ...], hits: int, words: str) -> None:
    assert JobChange(jobs=jobs, hits=hits).hit_words == words


def test_pages_of_slurm_are_made_safe_and_what_is_no_page_is_empty() -> None:
    told = pages_of({
        "pages": [{"line": "sdiag", "lines": ["a\x1b[2Jb", "  c"], "error": ""}, {"lines": 7}],
        "efficiency": [{"job": "1", "cpu": 0.5, "elapsed": 10.0, "cpus": 2}, {"cpu": "x"}], "error": 3,
    })  # fmt: skip

    first, second = told.pages
    assert (first.line, first.lines[1], second.lines, told.error) == ("sdiag", "  c", (), "3")
    assert first.lines[0].isprintable()
    assert [one.cpu for one in told.efficiency] == [0.5, None]


def test_what_was_not_measured_is_said_and_never_nothing() -> None:
    unknown = JobEfficiency(job="1", state="FAILED", elapsed=10, cpus=4, nodes=1, gpus=2)
    never = JobEfficiency(job="2", state="CANCELLED", cpus=1)

    assert unknown.lines[1:] == (
        "CPU     not measured of 0:00:40 on 4 CPUs", "memory  not measured: not measured", "GPU     not measured of 2 GPUs",
    )  # fmt: skip
    assert never.lines[1] == "CPU     not measured"


def test_components_and_numbers_that_are_odd_are_left_out() -> None:
    row = {"id": "7", "shown": "7", "state": "RUNNING", "gpus": -1, "memory": "1G", "priority": 4294967295,
           "components": [{"id": "7+0", "gpus": 2, "state": 5}, "x"]}  # fmt: skip

    job = slurm_job_of(row)

    assert (job.memory, job.priority) == (0.0, 4294967295)
    assert [(part.id, part.gpus, part.state) for part in job.components] == [("7+0", 2, "")]
    assert job.whose == "Slurm job of unknown, 1 component"
    assert components_of({"components": 7}) == ()


def test_a_row_says_what_the_job_has_or_asks_for() -> None:
    status = QueueStatus(id="1", state="PENDING", partition="gpu", account="ops", qos="high", text="waits", reason="Priority")  # fmt: skip
    job = SlurmJob(id="1", place="1", status=status, gpus=8, memory=65536.0, priority=1200)

    assert job_resources(job) == "gpu, account ops, QOS high, priority 1200, 8 GPUs, 64 GiB"
    assert queue_words(status, 0.0) == "waits (Priority)"


def test_the_age_of_a_queue_is_told_once_it_is_older_than_a_healthy_one_can_be() -> None:
    state = SlurmCluster()
    assert state.words(1000.0) == ""
    state.read_at = 1000.0
    state.put(slurm_job_of({"id": "7", "state": "RUNNING"}))

    assert state.words(1120.0) == ""
    assert state.words(1600.0) == "Slurm's queue as it was 10 min ago: it has not answered since"
    state.left_out = 4
    assert state.words(1120.0) == "1 of 5 jobs in Slurm's queue are shown, yours first"
    assert "; Slurm's queue as it was" in state.words(1600.0)
