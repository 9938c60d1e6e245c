"""Every key that a footer offers does something: each screen, each state, each key is pressed."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankdeck.backends.remote_log import as_replay
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.process import CommandEnd
from rankdeck.model.rank import State
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.screens.job_head import job_duration
from rankdeck.ui.widgets.canvas import in_ascii
from rankdeck.values import replace
from rankdeck_agent.wire import Event
from tests.support.acceptance_run import Port, judged, made_run
from tests.support.scaling_study import ScalingPort, falling
from tests.ui.support import sample, scenes
from tests.ui.support.stage import Stage, cluster_of, plan_of
from tests.ui.test_processes import with_processes
from tests.ui.test_screens import console, lacks, shows, text_of, type_in, until

Pressed = Sequence[str]


@dataclass(frozen=True)
class Place:
    """A screen in some state: what is behind it, the keys that lead there, what it shows then."""

    stage: Callable[[], Stage]
    keys: Pressed
    shows: str
    job: bool = False
    """Whether the job screen is opened first."""


def ended() -> Stage:
    stage = Stage(cluster_of(3))
    plan = replace(
        plan_of(scenes.JOB, 2, 2),
        spec=JobSpec(name="train", launch=Launch.PLAIN, command=("true",)),
    )
    stage.start(scenes.JOB, 2, 2)
    stage.jobs.planned(plan)
    for rank in range(4):
        node = f"node{rank // 2 + 1:02}"
        stage.write(scenes.JOB, rank, "a line\nanother\n")
        stage.tell(scenes.JOB, node, "exited", rank=rank, code=int(rank == 2))
    for node in ("node01", "node02"):
        stage.tell(scenes.JOB, node, "closed")
    assert stage.jobs.job(scenes.JOB).state is State.FAILED
    return stage


def replayed() -> Stage:
    stage = scenes.training(1, 4)
    stage.jobs.planned(replace(stage.jobs.job(scenes.JOB).plan, replay_of="train-1"))
    stage.jobs.set_clock(scenes.JOB, time.time() - 20)
    return stage


def sick() -> Stage:
    stage = sample.fleet(3)[0]
    stage.fleet.troubled("node03", "it is hot")
    stage.fleet.apply(
        "node01", Event(1010.0, "bad", "kernel.xid", "Xid 79, GPU is off the bus", "0")
    )
    return stage


def accepted(run=None) -> Stage:
    stage = Stage(cluster_of(3))
    stage.acceptance = Port(current=run)
    return stage


def scaled() -> Stage:
    stage = Stage(cluster_of(3))
    stage.scaling = ScalingPort(current=falling())
    return stage


def commanded(*, over: bool) -> Stage:
    stage = sample.fleet(2)[0]
    run = stage.run_command(("node01",), "uname")
    if over:
        run.state.ended("node01", CommandEnd(0))
    return stage


PLACES = {
    "fleet": Place(lambda: sample.fleet(3)[0], (), "node01"),
    "fleet with trouble": Place(sick, (), "it is hot"),
    "fleet without nodes": Place(lambda: Stage(cluster_of(0)), (), "of 0 nodes"),
    "fleet paused": Place(lambda: sample.fleet(3)[0], ("P",), "PAUSED"),
    "node": Place(lambda: sample.fleet(3)[0], ("j", "enter"), "Processor"),
    "node in trouble": Place(sick, ("enter",), "Processor"),
    "jobs": Place(scenes.failing, ("2",), "rank 5"),
    "jobs ended": Place(ended, ("2",), "rank 2"),
    "no jobs": Place(lambda: Stage(cluster_of(2)), ("2",), "no jobs yet"),
    "launch without files": Place(lambda: Stage(cluster_of(2)), ("3",), "no job files yet"),
    "messages": Place(lambda: Stage(cluster_of(2)), ("4",), "nothing to report"),
    "events": Place(sick, ("5",), "Xid 79"),
    "no events": Place(lambda: Stage(cluster_of(2)), ("5",), "nothing has happened"),
    "no acceptance": Place(lambda: accepted(), ("6",), "no acceptance run"),
    "acceptance": Place(lambda: accepted(judged(made_run(4))), ("6",), "n1"),
    "no scaling": Place(lambda: Stage(cluster_of(3)), ("7",), "no scaling study"),
    "scaling": Place(scaled, ("7",), "stencil"),
    "processes": Place(with_processes, ("h",), "processes on"),
    "no processes": Place(lambda: sample.fleet(3)[0], ("h",), "0 processes on"),
    "ranks": Place(with_processes, ("h",), "16 ranks on", job=True),
    "command": Place(lambda: commanded(over=False), (":", "s", "h", "enter"), "0 of 1 node"),
    "command over": Place(lambda: commanded(over=True), (":", "s", "h", "enter"), "1 of 1 node"),
    "inspect": Place(scenes.hanging, ("i",), "answer", job=True),
    "wall": Place(lambda: scenes.training(16, 8), (), "page 1/", job=True),
    "wall of a page": Place(lambda: scenes.training(1, 2), (), "node01 running", job=True),
    "one rank": Place(scenes.failing, ("enter",), "following", job=True),
    "one rank, searched": Place(scenes.training, ("enter", "/", "l", "enter"), "/l", job=True),
    "merged": Place(scenes.training, ("M",), "by time", job=True),
    "collapsed": Place(scenes.hanging, ("c",), "all 16", job=True),
    "diff": Place(scenes.hanging, ("D",), "majority", job=True),
    "wall of an ended job": Place(ended, (), "2 node02 exit 1", job=True),
    "one rank of an ended job": Place(ended, ("enter",), "another", job=True),
    "replay": Place(replayed, (), "REPLAY", job=True),
}  # fmt: skip
SAME_AGAIN = ("redraw", "inspect")
"""They look anew, and may find the same."""
NAMED = {":": "colon", "/": "slash"}


def look(app: RankdeckApp, stage: Stage) -> tuple[object, ...]:
    """What can be seen, without what is another at every look, and what the session was asked."""
    passing = re.compile(r"\d+(?=[smhd]\b)|\d+:\d\d(:\d\d)?|±\d+")
    strips = app.screen._compositor.render_strips()
    seen = [(passing.sub("#", one.text), one.style) for strip in strips for one in strip]
    asked = (stage.replayed, stage.wound, stage.cancelled, stage.commands, stage.copied_files)
    return app.screen, seen, app.moment, *map(len, asked)


async def go(app: RankdeckApp, pilot, place: Place) -> None:
    """To that screen, wherever one is."""
    app.moment = None
    while app.screen is not app.home("fleet") or app.screen.prompt.display:
        app.screen.prompt.end() if isinstance(app.screen, BaseScreen) else None
        if len(app.screen_stack) > 1:
            app.pop_screen()
        await pilot.pause()
    if place.job:
        app.open_job(scenes.JOB)
        await pilot.pause(0.2)
    await pilot.press(*(NAMED.get(key, key) for key in place.keys))
    await shows(app, pilot, place.shows)
    await pilot.pause(0.15)


@pytest.mark.left_out(
    "one rank, searched",
    "one rank of an ended job",
    "merged",
    "replay",
    "wall of an ended job",
    "collapsed",
    "diff",
    "wall of a page",
    "fleet paused",
    "fleet with trouble",
    "jobs ended",
)
@pytest.mark.long
@pytest.mark.parametrize("name", PLACES)
async def test_each_key_of_the_footer_does_something(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused: list[str] = []
    monkeypatch.setattr(BaseScreen, "refuse", lambda _, why: refused.append(why))
    monkeypatch.chdir(tmp_path)
    # Nobody sends samples here: on a slow machine the nodes would fall silent before a key.
    monkeypatch.setattr(Stage, "clock", staticmethod(lambda: time.monotonic() / 100))
    place = PLACES[name]
    stage = place.stage()
    async with console(stage, (200, 30)) as (app, pilot):
        await go(app, pilot, place)
        for action in app.screen.key_bar.offered:
            await go(app, pilot, place)
            if action not in app.screen.key_bar.offered:
                continue  # the cursor is on another row now
            before = look(app, stage)
            await pilot.press(action.keys.split(",")[0])

            def did(before: tuple[object, ...] = before) -> bool:
                return look(app, stage) != before or not app.is_running

            if action.id not in SAME_AGAIN:
                await until(pilot, did, f"{action.shown_key} ({action.id}) does nothing on {name}")
            assert not refused, f"{action.shown_key} on {name}: {refused}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "absent", "present"),
    [
        ("jobs ended", {"cancel"}, {"open", "replay"}),
        ("wall of an ended job", {"cancel", "pause", "step(1)"}, {"replay"}),
        ("replay", {"cancel"}, {"pause", "step(-1)", "step(1)"}),
        ("wall", {"pause"}, {"cancel", "next_page"}),
        ("wall of a page", {"next_page"}, {"cancel"}),
        ("one rank", {"follow", "next_match"}, {"search", "goto"}),
        ("no acceptance", {"again", "resume", "exclude", "cancel", "failure", "open"}, {"plan"}),
        ("no scaling", {"resume", "cancel", "open", "save", "copy"}, {"plan"}),
        ("scaling", {"resume", "cancel", "open"}, {"plan", "save", "copy", "part"}),
        ("command over", {"cancel"}, {"save", "copy"}),
        ("command", set(), {"cancel"}),
        ("launch without files", {"launch", "preflight"}, {"filter"}),
        ("fleet", {"acknowledge"}, {"open", "shell"}),
        ("fleet with trouble", set(), {"acknowledge"}),
        ("no processes", {"signal", "copy"}, {"filter"}),
        ("processes", set(), {"signal"}),
    ],
)
async def test_a_footer_has_what_can_be_done_now(
    name: str, absent: set[str], present: set[str]
) -> None:
    place = PLACES[name]
    async with console(place.stage(), (200, 50)) as (app, pilot):
        await go(app, pilot, place)
        bar = app.screen.key_bar
        everything = {action.id for action in bar._all}
        offered = {action.id for action in bar.offered}

    assert not absent & offered
    assert present & everything <= offered


async def test_a_key_that_is_none_is_told_once_and_where_it_is_one() -> None:
    async with console(sample.fleet(3)[0]) as (app, pilot):
        await pilot.press("percent_sign")
        await shows(app, pilot, "% does nothing here; ? lists the keys")
        app.screen.say("")
        await pilot.press("percent_sign")
        await pilot.pause(0.1)
        assert "% is no key" not in text_of(app)
        await pilot.press("D")
        await shows(app, pilot, "D (diff) does nothing here; it works on job, launch")
        await pilot.press("e")
        await shows(app, pilot, "`:edit` opens the job file of Launch")


@pytest.mark.long
@pytest.mark.parametrize("key", "12345")
async def test_a_filter_stays_in_sight_and_a_new_one_takes_its_place(key: str) -> None:
    async with console(sick(), (80, 24)) as (app, pilot):
        await pilot.press(key, "slash", *"zebra", "enter")
        await shows(app, pilot, " filter zebra")
        await pilot.press("slash", *"node01", "enter")
        await shows(app, pilot, " filter node01")
        await pilot.press("escape")
        await lacks(app, pilot, " filter node01")


async def test_a_sorted_column_has_an_arrow_that_turns_with_the_order() -> None:
    async with console(sample.fleet(3)[0]) as (app, pilot):
        await pilot.press("colon", *"sort", "space", *"cpu", "space", *"mem", "enter")
        await shows(app, pilot, "CPU↓")
        await shows(app, pilot, "MEM↓")
        await pilot.press("I")
        await shows(app, pilot, "CPU↑")
        await shows(app, pilot, "MEM↑")
        await pilot.press("5")
        await shows(app, pilot, "TIME↓")


async def test_a_replay_in_the_list_of_jobs_says_so_and_of_what_moment() -> None:
    stage = replayed()
    clock = time.strftime("%H:%M:%S", time.localtime(stage.jobs.job(scenes.JOB).clock))
    async with console(stage) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, f"REPLAY {clock}")


def test_a_replay_beyond_the_end_of_its_job_lasts_no_longer_than_the_job() -> None:
    job = replayed().jobs.job(scenes.JOB)
    over = replace(job, ended=job.created + 8, clock=job.created + 600)
    assert job_duration(over) == 8
    assert job_duration(replace(over, clock=job.created + 2)) == 2


async def test_an_ended_job_has_no_ranks_to_inspect() -> None:
    async with console(ended(), (80, 24)) as (app, pilot):
        for keys in (("2", "i"), ("enter", "i")):
            await pilot.press(*keys)
            await shows(app, pilot, "has ended: none of its ranks runs now")
            assert app.screen.screen_name != "inspect"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("goto", "write a line (1200), a time"),
        ("goto abc", "not understood: abc; write a line (1200)"),
        ("cancel", "write `cancel JOB`, or choose a job on Jobs"),
        ("silence off", "no longer silenced"),
    ],
)
async def test_a_command_without_what_it_needs_says_what_to_write(typed: str, said: str) -> None:
    async with console(sample.fleet(3)[0]) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, typed)
        await pilot.press("enter")
        await shows(app, pilot, said)
        assert app.screen.screen_name == "fleet"


async def test_a_replay_of_an_earlier_session_is_read_again_when_it_is_opened_and_x_forgets_it() -> (
    None
):
    stage = ended()
    shown = as_replay(stage.jobs.job(scenes.JOB))
    stage.jobs.restore(shown)
    async with console(stage, (160, 30)) as (app, pilot):
        await pilot.press("2", "o", "g")
        await shows(app, pilot, "REPLAY rank 2")
        assert app.screen.table.cursor == shown.id
        await pilot.press("enter")
        await shows(app, pilot, f"REPLAY {clock_of(stage, shown.id)}")
        assert stage.replayed == [(shown.id, 4.0)]
        await pilot.press("escape")
        await shows(app, pilot, "FIRST FAILURE")
        await pilot.press("x")
        await shows(app, pilot, "the replay is forgotten, the job itself is not")
        await lacks(app, pilot, "REPLAY")
    assert [job.id for job in stage.jobs.all()] == [scenes.JOB]


def clock_of(stage: Stage, job_id: str) -> str:
    """The moment that a replay shows in `Stage.replay`."""
    return time.strftime("%H:%M:%S", time.localtime(stage.jobs.job(job_id).created + 9))


async def test_in_ascii_a_degree_is_no_second_letter() -> None:
    assert [in_ascii(text) for text in ("95 °C", "61°", "±5 ms", "cut…")] == [
        "95  C",
        "61C",
        "~5 ms",
        "cut~",
    ]


async def test_the_whole_text_of_a_cut_line_is_one_key_away() -> None:
    stage = Stage(cluster_of(2))
    long = "Xid 79, " + "the GPU has fallen off the bus and " + "END-OF-IT"
    stage.fleet.apply("node01", Event(1010.0, "bad", "kernel.xid", long, "0"))
    async with console(stage, (80, 10)) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "Xid 79")
        assert "END-OF-IT" not in text_of(app)
        await pilot.press("d")
        await shows(app, pilot, "END-OF-IT")
        await pilot.press("escape")
        await lacks(app, pilot, "END-OF-IT")


@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_a_short_list_says_below_it_what_there_is_to_say_of_the_row(size) -> None:
    async with console(ended(), size) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "first failure")
        await shows(app, pilot, "another")
        await pilot.press("5")
        await lacks(app, pilot, "first failure")


async def test_a_list_that_fills_the_screen_says_nothing_below_it() -> None:
    stage = Stage(cluster_of(40))
    for number in range(40):
        stage.fleet.apply(f"node{number + 1:02}", Event(1010.0, "bad", "kernel.xid", "Xid 79", "0"))
    async with console(stage, (80, 24)) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "Xid 79")
        assert not app.screen.below.display


async def test_describe_on_jobs_has_the_failure_and_the_plan() -> None:
    async with console(ended(), (120, 40)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "rank 2")
        await pilot.press("d")
        await shows(app, pilot, "first failure")
        await shows(app, pilot, "mpirun --hostfile hosts")


async def test_whatever_is_said_in_the_last_line_steers_no_terminal() -> None:
    async with console(scenes.training(1, 4), (100, 24)) as (app, pilot):
        app.say("n1: \x1b[2J\u202ebad\rnode\nsays more", "warn")
        await shows(app, pilot, "n1: <U+202E>bad node  says more")
