"""Nodes, partitions and everybody's jobs of Slurm on the screens."""

import time

import pytest

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.queue import Attempt, LogRun, Partition, QueueStatus
from rankdeck.schedulers.orders import ServiceChange
from rankdeck.schedulers.slurm.node import SlurmNode
from rankdeck.schedulers.slurm.values import SlurmJob
from rankdeck.ui.operations import attempt_words
from rankdeck.values import replace
from tests.ui.support import sample
from tests.ui.support.stage import Stage
from tests.ui.test_screens import JOB, console, lacks, shows, text_of, type_in

CLUSTER = Cluster(name="s", nodes=(Node(name="n1"),), backend="slurm", options={"login": "login"})
VIEW = SlurmNode(
    state="draining", reason="bad cable", by="root", since=1795371818.0, partitions=("debug", "low"), features="a100,ib",
    gres={"gpu:a100": 8}, gres_used={"gpu:a100": 3}, cpus=64, cpus_used=24, jobs=("4711 ann",),
)  # fmt: skip
WAITS = QueueStatus(id="4712", state="PENDING", reason="Priority", text="waits behind jobs with higher priority", position=3, waiting=12)  # fmt: skip


def stage() -> Stage:
    made = Stage(CLUSTER)
    made.fleet.scheduler_says("n1", VIEW)
    made.parts.append(Partition(name="debug", usual=True, nodes=4, idle=2, usable=3, limit=14400.0))  # fmt: skip
    made.listed += [
        SlurmJob(id="4712", place="4712", name="train", user="ann", mine=True, created=time.time()-60, status=WAITS),
        SlurmJob(id="4800", place="4800", user="bob", created=time.time(), status=QueueStatus(id="4800", state="RUNNING", nodes="n[1-2]")),
    ]  # fmt: skip
    return made


async def test_a_node_shows_slurms_word_and_its_page_all_of_it() -> None:
    async with console(stage()) as (app, pilot):
        await shows(app, pilot, "draining")
        await shows(app, pilot, "gpu:a100 3/8")
        await shows(app, pilot, "it gets no new jobs")
        await pilot.press("enter")
        await shows(app, pilot, "bad cable (by root, ")
        await shows(app, pilot, "24/64")
        await shows(app, pilot, "4711 ann")


LINE = 'scontrol update nodename=n1 state=drain reason="rankdeck: a fan stands still and the node is too hot for work"'
PROPOSED = ServiceChange(line=LINE, nodes=("n1",), left_alone={"n2": "drained by root (bad cable)"})


async def drains(app, pilot) -> None:
    await pilot.press("enter", "colon")
    await type_in(pilot, "drain a fan stands still")
    await pilot.press("enter")
    await shows(app, pilot, "scontrol update nodename=n1 state=drain")
    await shows(app, pilot, "too hot for work")
    await shows(app, pilot, "n2 is left alone: drained by root (bad cable)")


@pytest.mark.long
async def test_a_node_is_drained_only_after_its_name_was_typed() -> None:
    made = stage()
    made.changes += [PROPOSED, replace(PROPOSED, done=True, now={"n1": "draining"})]
    async with console(made) as (app, pilot):
        await drains(app, pilot)
        await pilot.press("enter", "y", "enter")
        await shows(app, pilot, "type n1: y")
        assert [agreed for _, agreed in made.ordered] == [""]
        await pilot.press("backspace")
        await type_in(pilot, "n1")
        await pilot.press("enter")
        await shows(app, pilot, "n1: draining")
    (asked, _), (_, agreed) = made.ordered
    assert (asked.do, asked.nodes, asked.why) == ("drain", ("n1",), "a fan stands still")
    assert agreed == LINE


@pytest.mark.long
async def test_escape_drains_nothing_and_a_refusal_is_said() -> None:
    made = stage()
    made.changes += [
        PROPOSED,
        PROPOSED,
        replace(PROPOSED, error="you may not take nodes out of service"),
    ]
    async with console(made) as (app, pilot):
        await drains(app, pilot)
        await pilot.press("n", "1", "escape")
        await pilot.pause()
        assert len(made.ordered) == 1
        await pilot.press("escape")
        await drains(app, pilot)
        await pilot.press("n", "1", "enter")
        await shows(app, pilot, "not run: you may not take nodes out of service")


@pytest.mark.long
async def test_a_drain_of_others_is_lifted_only_by_the_word_anyway() -> None:
    made = stage()
    made.changes += [ServiceChange(left_alone={"n1": "drained by root (bad cable)"}), PROPOSED]
    async with console(made) as (app, pilot):
        for text, anyway in (("resume", False), ("resume anyway", True)):
            await pilot.press("colon")
            await type_in(pilot, text)
            await pilot.press("enter")
            await shows(app, pilot, "n1: drained by root (bad cable)" if not anyway else "type n1")
            assert made.ordered[-1][0].anyway is anyway


async def test_a_service_without_a_command_says_that_there_is_nothing_to_do() -> None:
    made = stage()
    made.changes.append(ServiceChange())
    async with console(made) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "resume")
        await pilot.press("enter")
        await shows(app, pilot, "not run: nothing to do")


async def test_the_filter_finds_nodes_by_what_slurm_says_of_them() -> None:
    async with console(stage()) as (app, pilot):
        await type_in(pilot, "/a100,ib")
        await pilot.press("enter")
        await shows(app, pilot, "1 of 1 nodes")
        await type_in(pilot, "/zzz")
        await pilot.press("enter")
        await shows(app, pilot, "no node matches")


async def test_jobs_that_ended_are_listed_once_they_were_asked_for() -> None:
    made = stage()
    over = QueueStatus(id="4000", state="FAILED", over=True, code=7, nodes="n1")
    made.ended.append(SlurmJob(id="4000", place="4000", name="prep", user="bob", created=time.time() - 600, ended=time.time() - 540, status=over))  # fmt: skip
    async with console(made) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "4800")
        assert "4000" not in text_of(app)
        await pilot.press("colon")
        await type_in(pilot, "ended")
        await pilot.press("enter")
        await shows(app, pilot, "prep exit code 7")
        await shows(app, pilot, "1:00")


async def test_a_slurm_that_keeps_no_history_says_so() -> None:
    made = stage()
    made.no_history = "this Slurm keeps no history"
    async with console(made) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "ended")
        await pilot.press("enter")
        await shows(app, pilot, "this Slurm keeps no history")


async def test_everybodys_queue_is_listed_ours_first_with_why_it_waits() -> None:
    async with console(stage()) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "debug 2 idle of 4, 1 out of service, at most 4:00:00")
        await shows(app, pilot, "waits behind jobs")
        await shows(app, pilot, "Slurm job of bob")
        shown = text_of(app)
        assert shown.index("4712") < shown.index("4800")


@pytest.mark.long
async def test_the_output_of_one_run_is_shown_with_how_that_run_ended() -> None:
    made = sample.fleet(2)[0]
    made.start(JOB, 2, 1)
    for rank in range(2):
        made.write(JOB, rank, "first run\nsecond run\n", at=1000.0)
    starts = {(rank, "out"): len("first run\n") for rank in range(2)}
    made.runs = [LogRun({}, starts), LogRun(starts, {})]
    async with console(made) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "second run")
        await pilot.press("enter")
        await shows(app, pilot, "first run")
        await pilot.press("colon")
        await type_in(pilot, "attempt 1")
        await pilot.press("enter")
        await lacks(app, pilot, "first run")
        assert "second run" in text_of(app)
        await pilot.press("colon")
        await type_in(pilot, "attempt 7")
        await pilot.press("enter")
        await shows(app, pilot, "has the runs 0 to 1")
        await pilot.press("colon")
        await type_in(pilot, "attempt")
        await pilot.press("enter")
        await shows(app, pilot, "first run")


def test_a_run_that_ended_is_told_with_its_nodes_and_exit() -> None:
    ended = Attempt(number=0, text="n2 failed: Slurm queued the job again", nodes=("n1", "n2"), failed=(3,), exit_code=1)  # fmt: skip

    assert attempt_words(ended) == (
        "attempt 0 on n[1-2]: n2 failed: Slurm queued the job again; rank 3 failed, exit code 1"
    )
