"""Jobs of Slurm on the screen: what the queue says of them, filters, marks,
the page with Slurm's words, and changes.
"""

import time

import pytest

from rankdeck.model.queue import JobComponent, QueueStatus
from rankdeck.schedulers.orders import JobChange, JobEfficiency, SchedulerPage, SchedulerPages
from rankdeck.schedulers.slurm.values import SlurmJob
from rankdeck.values import replace
from tests.ui.support.stage import Stage
from tests.ui.test_screens import JOB, console, lacks, shows, text_of, type_in
from tests.ui.test_slurm_screens import CLUSTER

HELD = QueueStatus(
    id="4712", state="PENDING", reason="JobHeldUser", text="held by its user", stuck=True, partition="gpu,debug",
    account="research", qos="normal",
)  # fmt: skip
ARRAY = replace(HELD, id="48_[2-5%2]", reason="Priority", text="waits behind jobs with higher priority", stuck=False)  # fmt: skip
RUNS = QueueStatus(id="4800", state="RUNNING", nodes="n[1-2]", partition="gpu", account="ops")
PARTS = (
    JobComponent(id="4800+0", state="RUNNING", nodes="n1", cpus=4, memory=2048.0),
    JobComponent(id="4800+1", state="RUNNING", nodes="n2", partition="gpu", cpus=8, gpus=1),
)
LINE = "scontrol hold 4712,48_[2-5]"


def stage() -> Stage:
    made = Stage(CLUSTER)
    made.listed += [
        SlurmJob(id="4712", place="4712", name="train", user="ann", mine=True, created=time.time() - 60, status=HELD, gpus=8, memory=65536.0, priority=1200),
        SlurmJob(id="50", place="48_[2-5%2]", name="sweep", user="ann", mine=True, created=time.time() - 90, status=ARRAY),
        SlurmJob(id="4800", place="4800", name="het", user="bob", created=time.time() - 30, status=RUNS, components=PARTS),
    ]  # fmt: skip
    return made


async def filtered(app, pilot, text: str) -> None:
    await type_in(pilot, f"/{text}")
    await pilot.press("enter")


async def test_a_wide_screen_says_what_the_queue_says_of_each_job() -> None:
    async with console(stage(), size=(200, 40)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "Slurm job of bob, 2 components")
        shown = text_of(app)
        for word in ("USER", "PARTITION", "ACCOUNT", "QOS", "PRIO", "GPUS", "MEM", "research", "1200", "64G"):  # fmt: skip
            assert word in shown, word


async def test_a_narrow_screen_has_it_in_the_details_of_a_row() -> None:
    async with console(stage()) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "4712")
        await pilot.press("d")
        await shows(app, pilot, "research")
        await shows(app, pilot, "1200")


async def test_a_het_job_is_one_row_with_its_components_inside() -> None:
    async with console(stage()) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "4800")
        assert "4800+1" not in text_of(app)
        await pilot.press("G", "d")
        await shows(app, pilot, "running, n1, 4 CPUs, 2.0G")
        await shows(app, pilot, "running, n2, gpu, 8 CPUs, 1 GPU")


async def test_a_job_of_ours_has_what_the_queue_says_among_its_details() -> None:
    made = stage()
    made.start(JOB, 2, 1)
    node = made.jobs.job(JOB).plan.nodes[0].node
    made.tell(JOB, node, "slurm", id="4712", state="RUNNING", account="research")
    async with console(made) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, JOB)
        await filtered(app, pilot, f"account=research & {JOB}")
        await shows(app, pilot, JOB)
        await pilot.press("d")
        await shows(app, pilot, "1200")


@pytest.mark.long
async def test_jobs_are_found_by_user_partition_state_node_and_reason() -> None:
    found = {
        "user=ann": {"4712", "sweep"}, "partition=debug & reason=priority": {"sweep"}, "node=n2": {"4800"},
        "state=running": {"4800"}, "account=OPS | qos=normal": {"4712", "sweep", "4800"}, "user!=ann": {"4800"},
    }  # fmt: skip
    async with console(stage()) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "4712")
        for text, rows in found.items():
            await filtered(app, pilot, text)
            for row in ("4712", "sweep", "4800"):
                await (shows if row in rows else lacks)(app, pilot, row)
            await pilot.press("escape")
            await shows(app, pilot, "4800")


async def test_marked_jobs_are_held_by_the_line_that_was_shown_after_a_yes() -> None:
    made = stage()
    proposed = JobChange(line=LINE, jobs=("4712", "48_[2-5]"), hits=5, left_alone={"4800": "it is RUNNING: only a job that waits can be held"})  # fmt: skip
    made.job_changes += [
        proposed,
        proposed,
        replace(
            proposed, done=True, now={"4712": "PENDING, held by its user", "48_[2-5]": "PENDING"}
        ),
    ]
    async with console(made) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "4712")
        await pilot.press("asterisk", "colon")
        await type_in(pilot, "hold")
        await pilot.press("enter")
        await shows(app, pilot, LINE)
        await shows(app, pilot, "2 jobs, with 5 tasks or components")
        await shows(app, pilot, "4800 is left alone: it is RUNNING")
        await pilot.press("escape")
        assert [agreed for _, agreed in made.job_orders] == [""]
        await pilot.press("colon")
        await type_in(pilot, "hold")
        await pilot.press("enter")
        await shows(app, pilot, LINE)
        await pilot.press("y")
        await shows(app, pilot, "4712: PENDING, held by its user, and 1 more")
    asked, agreed = made.job_orders[-1]
    assert ({*asked.jobs}, agreed) == ({"4712", "48_[2-5]", "4800"}, LINE)


@pytest.mark.long
async def test_a_time_limit_needs_a_time_and_a_refusal_is_said() -> None:
    made = stage()
    made.job_changes.append(JobChange(error="Slurm does not answer: timed out"))
    async with console(made) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "4712")
        for text, says in (
            ("timelimit", "write `timelimit 02:00:00`"),
            ("timelimit 01:00:00", "not run: Slurm does not answer: timed out"),
        ):
            await pilot.press("colon")
            await type_in(pilot, text)
            await pilot.press("enter")
            await shows(app, pilot, says)
    (asked, _) = made.job_orders[0]
    assert (asked.do, asked.jobs, asked.to) == ("timelimit", ("4712",), "01:00:00")


async def test_what_slurm_says_of_a_job_is_one_key_away() -> None:
    made = stage()
    made.slurm_says = SchedulerPages(
        pages=(SchedulerPage(line="scontrol show job 4712", lines=("JobId=4712 \x1b[2JJobName=train", "   Priority=1200")), SchedulerPage(line="sprio --long", error="no such plug-in")),
        efficiency=(JobEfficiency(job="4000", state="FAILED", elapsed=600, cpus=8, nodes=1, cpu=0.125, memory=1000.0, memory_used=500.0, memory_share=0.5, gpus=4),),
    )  # fmt: skip
    async with console(made, size=(120, 40)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "4712")
        await pilot.press("Q")
        await shows(app, pilot, "Priority=1200")
        await shows(app, pilot, "12.5% of 1:20:00 on 8 CPUs")
        await shows(app, pilot, "50.0%: 500 MB of 1,000 MB")
        await shows(app, pilot, "not measured of 4 GPUs")
        await shows(app, pilot, "no such plug-in")
        await pilot.press("escape")
        await pilot.press("colon")
        await type_in(pilot, "slurm shares")
        await pilot.press("enter")
        await shows(app, pilot, "Priority=1200")
    assert made.slurm_asked == [("job", ("4712",)), ("shares", ())]


async def test_a_queue_that_is_old_says_so_above_the_table() -> None:
    made = stage()
    made.left_out = "Slurm's queue as it was 4 min ago: it has not answered since"
    async with console(made) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "as it was 4 min ago")
