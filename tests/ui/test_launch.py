"""The launch screen, the lens and what stands over a job: keys in, screen out."""

import contextlib
import time
from pathlib import Path

import pytest

from rankdeck.cli.check import look_at
from rankdeck.config.jobs import fill_form, form_of, read_job
from rankdeck.config.user import UiSettings
from rankdeck.images.copy import CopyState
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.stall import Stall
from rankdeck.preflight.findings import Finding
from rankdeck.rules.inspect import Look
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.screens.job import JobScreen
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import HealthReport, ProcessPlan
from tests.ui.support import sample
from tests.ui.support.stage import Stage, plan_of
from tests.ui.test_screens import JOB, console, lacks, shows, text_of, type_in, until

SIZES = [(200, 50), (80, 24)]
STUCK = (("load_batch", "train.py", 3), ("<module>", "train.py", 19))
REDUCE = (("all_reduce", "distributed_c10d.py", 99), ("step", "train.py", 8))


class Planning(Stage):
    """A stage whose plan says what the job asks for."""

    def plan(self, spec: JobSpec):
        self.wanted_spec = spec
        plan = super().plan(spec)
        words = ("mpirun", "-np", f"{spec.nodes * spec.ranks_per_node}", *spec.command)
        first = replace(plan.nodes[0], processes=(ProcessPlan("mpirun", words),))
        return replace(plan, nodes=(first, *plan.nodes[1:]))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Planning(sample.fleet(4)[0].cluster)
    (tmp_path / "hello.yaml").write_text("x")
    made.files = (tmp_path / "hello.yaml",)
    return made


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_that_cannot_run_here_says_what_is_missing(stage: Stage, size) -> None:
    stage.lacks = {str(stage.files[0]): "no torchrun"}
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "hello  no torchrun")


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
async def test_the_commands_change_as_one_types(stage: Stage, size) -> None:
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun -np 0 true")
        await pilot.press("tab", "backspace", "3", "down", "2")
        await shows(app, pilot, "mpirun -np 6 true")
        await pilot.press("down", "down", "space", "x", "left", "y")
        await shows(app, pilot, "mpirun -np 6 true yx")
        await pilot.press("escape", "enter")
        await shows(app, pilot, "hello-1")
    assert stage.launched == ["hello"]
    assert (stage.wanted_spec.nodes, stage.wanted_spec.ranks_per_node) == (3, 2)


@pytest.mark.parametrize("size", SIZES)
async def test_the_copy_of_an_image_is_seen_until_the_job_is(stage: Stage, size) -> None:
    half = {"n1": 3 << 30, "n2": 4 << 30}
    stage.copies = [CopyState(half, total=6 << 30, sent=7 << 30, seconds=70.0)]
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun")
        await pilot.press("enter")
        await shows(app, pilot, "hello: image 3 GiB of 6 GiB to n[1-2]")
        await shows(app, pilot, "102 MiB/s, 50 s left")
        stage.copied.set()
        await shows(app, pilot, "hello-1")


async def test_nonsense_in_the_form_is_said_and_nothing_starts(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun")
        await pilot.press("tab", "q", "escape")
        await shows(app, pilot, "is not a whole number from 0 on")
        await pilot.press("enter")
        await shows(app, pilot, "nothing to start")
    assert stage.launched == []


async def test_the_plan_is_compared_with_the_last_run(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun")
        await pilot.press("D")
        await shows(app, pilot, "no earlier run of this name")
        before = stage.plan(replace(stage.wanted_spec, name="hello"))
        stage.jobs.add(
            replace(
                before, job="hello-7", nodes=tuple(replace(n, job="hello-7") for n in before.nodes)
            ),
            time.time(),
        )
        await pilot.press("D", "D")
        await shows(app, pilot, "identical")


async def test_a_job_is_started_again_as_it_was(stage: Stage) -> None:
    spec = JobSpec(
        name="old",
        launch=Launch.PLAIN,
        command=("sleep", "7"),
        nodes=2,
        ranks_per_node=4,
    )
    plan = stage.plan(spec)
    stage.jobs.add(
        plan.__class__(
            **{
                **{f: getattr(plan, f) for f in plan.__slots__},
                "job": "old-9",
                "spec": spec,
            }
        ),
        time.time(),
    )
    async with console(stage) as (app, pilot):
        await pilot.press("2", "C")
        await shows(app, pilot, "again  old-9")
        await shows(app, pilot, "mpirun -np 8 sleep 7")
        await pilot.press("escape")
        await shows(app, pilot, "mpirun -np 0 true")


def test_a_form_left_alone_changes_nothing() -> None:
    spec = JobSpec(
        name="a",
        launch=Launch.MPI,
        command=("sh", "-c", "echo 'a b' $X"),
        env={"A": "x y"},
        on=("n2", "n1"),
        nodes=2,
    )

    assert fill_form(spec, form_of(spec)) == spec
    assert fill_form(spec, {**form_of(spec), "on": "n[3-5]"}).nodes == 3
    assert fill_form(spec, {**form_of(spec), "env": "A=1 B='2 3'"}).env == {
        "A": "1",
        "B": "2 3",
    }


@pytest.mark.parametrize("size", SIZES)
async def test_the_lens_says_who_is_elsewhere(stage: Stage, size) -> None:
    sample.training_job(stage, nodes=2, per_node=8)
    stage.looks = [
        Look(
            rank=n,
            node=f"node{n // 8 + 1:02}",
            threads={},
            stacks=((STUCK if n == 2 else REDUCE),),
            last="step 9",
        )
        for n in range(16)
    ]
    async with console(stage, size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "step")
        await pilot.press("i")
        await shows(
            app,
            pilot,
            "15 in all_reduce (train.py:8), 1 in load_batch (train.py:3): rank 2",
        )
        await pilot.press("escape")
        await shows(app, pilot, "16 ranks")


@pytest.mark.parametrize("size", SIZES)
async def test_a_stall_and_a_failure_stand_over_the_ranks(stage: Stage, size) -> None:
    sample.training_job(stage, nodes=2, per_node=8)
    stage.jobs.set_stalled(
        JOB,
        (
            Stall(
                kind="rank",
                ranks=(2,),
                since=1.0,
                text="rank 2 on node01 silent for 40 s",
            ),
        ),
    )
    async with console(stage, size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "stalled")
        await shows(app, pilot, "rank 2 on node01 silent for 40 s")
        stage.write(JOB, 2, "OSError: [Errno 28] No space left on device\n")
        stage.tell(JOB, "node01", "exited", rank=2, code=1, signal=None)
        stage.tell(JOB, "node01", "exited", rank=3, code=None, signal=15)
        await shows(app, pilot, "first failure")
        await shows(app, pilot, "rank 2 on node01, exit 1")
        await shows(app, pilot, "a disk is full on that node")
        if size[0] == 200:
            await shows(app, pilot, "1 rank ended by it: 3")
            assert "±" in text_of(app)
        await type_in(pilot, "e")
        await shows(app, pilot, "No space left on device")


async def test_preflight_is_shown_beside_the_plan(stage: Stage) -> None:
    stage.findings = [
        Finding(check="port", level=Level.OK, text="a port is free"),
        Finding(
            check="program",
            level=Level.BAD,
            text="`true` is not there",
            node="node02",
            fix="install it on node02",
        ),
    ]
    async with console(stage) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun")
        await pilot.press("T")
        await shows(app, pilot, "program  node02: `true` is not there")
        await shows(app, pilot, "try install it on node02")
        await shows(app, pilot, "well  port")
        await shows(app, pilot, "1 would make it fail")


BAD = Finding(check="program", level=Level.BAD, text="`true` is not there", node="node02")


@pytest.mark.parametrize("size", SIZES)
async def test_a_launch_asks_the_nodes_first_and_stops_at_what_would_fail(
    stage: Stage, size
) -> None:
    stage.findings = [BAD]
    stage.asked.clear()
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun")
        await pilot.press("enter")
        await shows(app, pilot, "preflight 1 of 2, trying")
        stage.asked.set()
        await shows(app, pilot, "1 would make it fail; not started, enter once more")
        await shows(app, pilot, "program  node02: `true` is not there")
        assert stage.launched == []
        await pilot.press("enter")
        await shows(app, pilot, "hello-1")
    assert stage.launched == ["hello"]


async def test_escape_while_the_nodes_are_asked_starts_nothing(stage: Stage) -> None:
    stage.asked.clear()
    async with console(stage) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun")
        await pilot.press("enter")
        await shows(app, pilot, "asking the nodes")
        await pilot.press("escape")
        await shows(app, pilot, "not started")
        stage.asked.set()
        await pilot.press("T")
        await shows(app, pilot, "preflight: ready")
    assert stage.launched == []


async def test_letters_go_into_the_form_and_the_way_to_a_command_is_told(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun")
        await pilot.press("tab", "colon")
        await shows(app, pilot, "keys type into the form; esc leaves it, then : takes a command")
        await shows(app, pilot, "is not a whole number from 0 on")
        await pilot.press("escape", "2")
        await lacks(app, pilot, "is not a whole number")
        await pilot.press("3")
        await shows(app, pilot, "mpirun -np 0 true")
        assert app.screen.form.values["nodes"] == "1"


async def test_the_place_of_a_bad_node_is_told_with_why(stage: Stage) -> None:
    full = (("disk.full", 3, "/", 5.0, "/ is 99% full · jobs fail · free space"),)
    stage.fleet.apply("node01", HealthReport(2e9, 3, 60.0, 7, 7, full))
    stage.plan = lambda spec: replace(plan_of("hello-1", 3, 1), nodes=plan_of("h", 3, 1).nodes[1:])
    async with console(stage, (160, 40)) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "node01 bad  left out: / is 99% full")


async def test_a_replay_is_opened_and_says_that_it_is_one(stage: Stage) -> None:
    stage.start("old-1")
    stage.jobs.set_clock("old-1", stage.jobs.job("old-1").created + 9)
    async with console(stage) as (app, pilot):
        await pilot.press("2", "R")
        await shows(app, pilot, "REPLAY")
        await shows(app, pilot, "0:09")
    assert stage.replayed == [("old-1", 4.0)]


async def test_the_parts_of_a_run_are_compared_with_the_last(stage: Stage) -> None:
    now = time.time()
    for job_id, begin, started in (
        ("old-1", now - 900, 4.0),
        ("old-2", now - 60, 20.0),
    ):
        stage.jobs.add(plan_of(job_id, 1, 2), begin)
        stage.tell(job_id, "node01", "ready", begin + 1, pid=1, boot="b")
        for rank in range(2):
            stage.tell(job_id, "node01", "started", begin + started, rank=rank, pid=9)
    for rank in range(2):
        stage.tell("old-1", "node01", "exited", now - 800, rank=rank, code=0, signal=None)
    stage.tell("old-1", "node01", "closed", now - 799)
    async with console(stage, (160, 50)) as (app, pilot):
        app.open_job("old-2")
        await shows(app, pilot, "copy 1 s (last 1 s) · start 19 s (last 3 s) · running now")


async def test_a_job_that_could_not_be_started_says_why_in_the_list(stage: Stage) -> None:
    stage.jobs.add(plan_of("old-1", 1, 2), time.time())
    stage.jobs.refused("old-1", "node01: refused the connection")
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "old-1")
        await shows(app, pilot, "node01: refused the connection")
        await shows(app, pilot, "2 ranks: 2 not started")
        await lacks(app, pilot, "2 pending")


async def test_progress_is_drawn_with_bar_and_line_and_in_ascii_without_question_marks(
    stage: Stage,
) -> None:
    stage.start("train-1", 1, 1)
    for step in range(1, 9):
        stage.write("train-1", 0, f"step {step} of 16 loss {9 - step}.0\n")
    async with console(stage, (120, 40), ascii=True) as (app, pilot):
        app.open_job("train-1")
        await shows(app, pilot, "step 8/16 ##########---------- 50%")
        await shows(app, pilot, "+- loss ---")
        await shows(app, pilot, "^^^^^^^-------_______")


@pytest.mark.parametrize(
    ("asked", "shown"), [("train", "train-1"), ("nothing", "no job `nothing`")]
)
@pytest.mark.long
async def test_the_console_opens_on_the_job_it_is_asked_for(
    stage: Stage, asked: str, shown: str
) -> None:
    stage.start("train-1", 1, 2)

    @contextlib.asynccontextmanager
    async def opened():
        yield stage

    app = RankdeckApp(stage.cluster, UiSettings(theme_folders=()))
    app.first_job = asked
    app.open_with(opened)
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(app, pilot, shown)
        there = asked == "train"
        await until(pilot, lambda: isinstance(app.screen, JobScreen) is there, "the wrong screen")
        app.leave()


class Guarded(Planning):
    """A stage whose job file reads something that nobody has agreed to."""

    def read_job(self, path: Path) -> JobSpec:
        return read_job(path)


@pytest.mark.long
@pytest.mark.parametrize(("key", "agreed"), [("y", True)])
async def test_a_file_that_reads_elsewhere_is_asked_about_before_it_does(
    tmp_path: Path, key: str, agreed: bool
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    (tmp_path / "sent").mkdir()
    file = tmp_path / "sent" / "f.yaml"
    file.write_text('job: x\nlaunch: plain\ncommand: ["true"]\nfiles: {copy: {from: ../secret}}\n')
    stage = Guarded(sample.fleet(4)[0].cluster)
    stage.files = (file,)

    async with console(stage) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "This file would run or read")
        await pilot.press("enter")
        await pilot.press(key)
        await shows(app, pilot, "mpirun -np" if agreed else "reads ")

    assert all(use.allowed is agreed for use in look_at(file)[1])


@pytest.mark.parametrize("size", SIZES)
async def test_a_long_command_is_on_several_lines_beside_empty_rows(stage: Stage, size) -> None:
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun -np 0 true")
        await pilot.press("tab", "down", "down", "down")
        await type_in(pilot, " " + "--data /a/long/path " * 5 + "--last-word")
        await pilot.press("escape")
        rows = text_of(app).splitlines()[7:]

    assert any("--last-word" in row for row in rows), "the argument just typed"
    assert sum(row.count("--data") for row in rows) == 5
