"""What is written down while a job runs, and stalls noticed with what telemetry says."""

import logging
from pathlib import Path

import pytest

from rankdeck.following import notice_stalls
from rankdeck.model.rank_output import Chunk
from rankdeck.state.fleet import Fleet
from rankdeck.state.history import History
from rankdeck.state.history_thread import open_history
from rankdeck.state.job_recorder import JobRecorder
from rankdeck.state.jobs import Jobs
from rankdeck_agent.wire import Hello, Sample
from tests.support.judged_fleet import JudgedFleet
from tests.support.node_events import node_event
from tests.ui.support.stage import cluster_of, plan_of


def fleet(used: float) -> Fleet:
    made = JudgedFleet(cluster_of(2))
    for name in ("node01", "node02"):
        made.apply(name, Hello(name, True, 1.0))
        made.apply(name, Sample(1, 1.0, {"cpu.used": {"": used}, "cpu.cores": {"": 16}}))
    return made


def running(jobs: Jobs, begin: float = 1000.0) -> str:
    """Eight ranks that wrote a line a second for ten seconds."""
    plan = plan_of("train-1", 2, 4)
    jobs.add(plan, begin)
    for node in plan.nodes:
        for seq, rank in enumerate(node.ranks):
            fields = {"seq": seq, "rank": rank, "pid": 9}
            jobs.apply(node_event("train-1", node.node, "started", begin, **fields))
            for second in range(10):
                at, offset = begin + 1 + second, 7 * second
                jobs.apply(Chunk("train-1", node.node, rank, "out", offset, at, b"step 1\n"))
    return "train-1"


def told(jobs: Jobs, now: float) -> None:
    """Both nodes have told everything until now."""
    for node in ("node01", "node02"):
        jobs.apply(node_event("train-1", node, "now", now))


def test_a_node_that_is_cut_off_from_the_console_is_not_silent() -> None:
    jobs, nodes = Jobs(), fleet(0.5)
    job_id = running(jobs)
    told(jobs, 1012.0)

    notice_stalls(jobs, nodes, (job_id,), 1900.0)
    assert jobs.job(job_id).stalled == ()

    told(jobs, 1900.0)
    notice_stalls(jobs, nodes, (job_id,), 1900.0)
    assert jobs.job(job_id).stalled


@pytest.mark.parametrize(
    ("used", "after", "noticed"),
    [(0.5, 50, True), (90.0, 50, False), (90.0, 330, True)],
)
def test_idle_nodes_make_a_silence_a_stall_sooner(used: float, after: float, noticed: bool) -> None:
    jobs = Jobs()
    job_id = running(jobs)

    told(jobs, 1010.0 + after)
    notice_stalls(jobs, fleet(used), (job_id,), 1010.0 + after)

    assert bool(jobs.job(job_id).stalled) is noticed


def test_a_stall_is_told_once_and_taken_back_when_ranks_write_again(caplog) -> None:
    jobs, nodes = Jobs(), fleet(0.5)
    job_id = running(jobs)

    with caplog.at_level(logging.WARNING, "rankdeck"):
        for now in (1060.0, 1061.0, 1070.0):
            told(jobs, now)
            notice_stalls(jobs, nodes, (job_id,), now)
    assert len(caplog.records) == 1
    assert "all 8 ranks silent" in caplog.text

    for node in jobs.job(job_id).plan.nodes:
        for rank in node.ranks:
            jobs.apply(Chunk(job_id, node.node, rank, "out", 70, 1071.0, b"step 2\n"))
    notice_stalls(jobs, nodes, (job_id,), 1072.0)
    assert jobs.job(job_id).stalled == ()


def test_a_line_that_a_terminal_brings_late_does_not_hide_the_exception_after_it() -> None:
    jobs, nodes = Jobs(), fleet(0.5)
    job_id = running(jobs)
    raised = b"Traceback (most recent call last):\n  File 'x.py'\nValueError: no sample 17\n"
    jobs.apply(Chunk(job_id, "node02", 5, "err", 0, 1010.5, raised))
    jobs.apply(Chunk(job_id, "node02", 5, "out", 70, 1010.6, b"step 2\n"))
    told(jobs, 1022.0)

    notice_stalls(jobs, nodes, (job_id,), 1022.0)

    (found,) = jobs.job(job_id).stalled
    assert (found.kind, found.ranks) == ("raised", (5,))


async def test_events_and_the_health_at_every_turn_are_written(tmp_path: Path) -> None:
    jobs = Jobs()
    job_id = running(jobs)
    event = node_event(job_id, "node01", "exited", 1011.0, seq=9, rank=0, code=3)
    async with open_history(tmp_path / "h.db") as thread:
        chronicle = JobRecorder(thread, fleet(50.0), "c")
        chronicle.save(jobs.job(job_id), 1.0)
        chronicle.save(jobs.job(job_id), 2.0)
        jobs.apply(event)
        chronicle.take(event)
        chronicle.take(node_event(job_id, "node01", "connected", 1.0, offset=0.0))
        chronicle.save(jobs.job(job_id), 3.0)
    with History(tmp_path / "h.db") as history:
        assert history.events(job_id, plan_of(job_id, 2, 4)) == (event,)
        turns = history.health(job_id)
    assert [turn["at"] for turn in turns] == [1.0, 3.0]
    assert turns[0]["nodes"].keys() == {"node01", "node02"}
    assert turns[0]["nodes"]["node01"]["values"]["cpu.used"] == {"": 50.0}
