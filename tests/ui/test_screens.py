"""Keys in, screen out, on the real state objects."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot

from rankdeck.config.user import UiSettings
from rankdeck.errors import HostKeyError
from rankdeck.model.cancel_report import CancelReport, RemainingProcess
from rankdeck.model.job import Countdown
from rankdeck.model.rank import State
from rankdeck.remote.questions import Answers, LoginQuestion, Prompt
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.screens.job import JobScreen
from rankdeck.ui.screens.modals import ALONE, PASTED
from rankdeck.ui.screens.node import NodeScreen
from rankdeck.ui.terminal import TOGETHER
from rankdeck.values import replace
from rankdeck_agent.wire import Sample
from tests.ui.support import sample
from tests.ui.support.stage import Stage

SIZES = [(200, 50), (80, 24), (60, 15)]
LIMIT = 30.0
"""Seconds until something is on the screen; machines are busy."""
JOB = "train-1121-143005-3f2a"
NAMES = {"/": "slash", ":": "colon", " ": "space", "&": "ampersand", ">": "greater_than_sign", "!": "exclamation_mark",
         "=": "equals_sign", ".": "full_stop", "-": "minus", "_": "underscore", ",": "comma", "\r": "enter"}  # fmt: skip


def text_of(app: RankdeckApp) -> str:
    """What is on the screen, as lines of text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


@contextlib.asynccontextmanager
async def console(stage, size=(120, 40), **settings) -> AsyncGenerator[tuple[RankdeckApp, Pilot]]:
    app = RankdeckApp(stage.cluster, UiSettings(theme_folders=(), **settings), stage)
    stage.fleet.take_changes()
    async with app.run_test(size=size) as pilot, keeping_time(stage):
        await shows(app, pilot, stage.cluster.name)
        yield app, pilot


@contextlib.asynccontextmanager
async def keeping_time(stage) -> AsyncGenerator[None]:
    """Judge what changes, as the task of a session does."""

    async def judge() -> None:
        while True:
            stage.fleet.take_changes()
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(judge())
        try:
            yield
        finally:
            work.cancel()


async def until(pilot: Pilot, is_so: Callable[[], object], what: str) -> None:
    """Wait until it is so; where that takes too long, `what` and the screen are told."""
    deadline = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < deadline, f"{what}; the screen is\n{text_of(pilot.app)}"
        await pilot.pause(0.02)


async def shows(app: RankdeckApp, pilot: Pilot, text: str) -> None:
    await until(pilot, lambda: text in text_of(app), f"no `{text}`")


async def lacks(app: RankdeckApp, pilot: Pilot, text: str) -> None:
    await until(pilot, lambda: text not in text_of(app), f"still `{text}`")


async def answered_yes(pilot: Pilot) -> None:
    """Answer the question that was just asked, as soon as a person could."""
    await pilot.pause(2 * TOGETHER)
    await pilot.press("y")


async def type_in(pilot: Pilot, text: str) -> None:
    await pilot.press(*(NAMES.get(c, c) for c in text))


@pytest.fixture
def stage() -> Stage:
    return sample.fleet(12)[0]


# ---- fleet


@pytest.mark.parametrize("size", SIZES)
async def test_the_fleet_shows_name_state_and_numbers_at_every_size(
    stage: Stage, size: tuple[int, int]
) -> None:
    async with console(stage, size) as (app, pilot):
        await shows(app, pilot, "◌ 1 unknown")
        screen = text_of(app)

    assert len(screen.splitlines()) == size[1]
    assert max(map(len, screen.splitlines())) <= size[0]
    for word in (
        "NODE",
        "STATE",
        "CPU",
        "node06",
        "◌ unknown",
        "◌ 1 unknown",
        "SIMULATED: gpu, rdma",
    ):
        assert word in screen


async def test_the_worst_node_comes_first_and_never_heard_is_not_ok(
    stage: Stage,
) -> None:
    async with console(stage) as (app, pilot):
        await shows(app, pilot, "● ok")
        first = next(line for line in text_of(app).splitlines() if re.search(r"node\d\d", line))

    assert first.startswith("▸node06")
    assert "unknown" in first
    assert "0%" not in first


async def test_a_filter_leaves_what_matches_and_escape_brings_all_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine all of them fall silent meanwhile.
    monkeypatch.setattr(Stage, "clock", staticmethod(lambda: 1000.0))
    async with console(sample.fleet(12)[0]) as (app, pilot):
        await pilot.press("slash")
        await type_in(pilot, "state!=ok")
        await pilot.press("enter")
        await shows(app, pilot, "1 of 12 nodes")
        await pilot.press("escape")
        await shows(app, pilot, "12 of 12 nodes")


async def test_a_filter_with_a_mistake_says_so(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("slash")
        await type_in(pilot, "gpu.tmp>80")
        await shows(app, pilot, "did you mean gpu.temp?")


async def test_the_cursor_stays_on_its_node_when_the_order_changes(
    stage: Stage,
) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("down", "down", "down")
        name = app.screen.table.cursor
        await pilot.press("o")
        await shows(app, pilot, "by NODE")

        assert app.screen.table.cursor == name


@pytest.mark.long
async def test_the_cursor_is_on_the_worst_node_until_it_is_moved(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await shows(app, pilot, "▸node06")
        full = {"disk.used": {"/": 99.5}}
        for seq in range(100, 104):
            stage.fleet.apply("node10", Sample(seq, 1000.0 + 99 * seq, full))
        await shows(app, pilot, "▸node10")
        await pilot.press("j", "k")
        stage.fleet.apply("node10", Sample(110, 1e6, {"disk.used": {"/": 1.0}}))
        await pilot.pause(1.5)

        assert "▸node10" in text_of(app)


async def test_a_click_on_a_heading_sorts_and_again_turns_the_order_round(stage: Stage) -> None:
    async with console(stage, (120, 14)) as (app, pilot):
        await shows(app, pilot, "by STATE")
        lines = text_of(app).splitlines()
        y = next(n for n, line in enumerate(lines) if "NODE" in line)
        place = (lines[y].index("NODE") + 1, y)
        assert re.search(r"1-\d+ of 12", lines[y])
        await pilot.click(offset=place)
        await shows(app, pilot, "by NODE")
        await pilot.click(offset=place)
        await shows(app, pilot, "by NODE reversed")


async def test_enter_opens_the_node_and_escape_comes_back(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("down", "enter")
        await shows(app, pilot, "NVIDIA A100-SXM4-80GB  SIMULATED")
        await shows(app, pilot, "Xid 63")
        assert isinstance(app.screen, NodeScreen)
        await pilot.press("escape")
        await shows(app, pilot, "12 of 12 nodes")


@pytest.mark.long
async def test_a_thousand_nodes_fit_on_the_map() -> None:
    async with console(sample.fleet(1000, 2)[0], (80, 24)) as (app, pilot):
        await shows(app, pilot, "1,000 of 1,000 nodes")
        await pilot.press("end")
        await shows(app, pilot, "node1000")


async def test_a_new_sample_repaints_the_row(stage: Stage) -> None:
    simulation = sample.Simulation(stage)
    async with console(stage) as (app, pilot):
        before = text_of(app)
        for _ in range(5):
            simulation.step()
        await until(pilot, lambda: text_of(app) != before, "nothing changed")


# ---- commands


async def test_a_command_can_be_completed_with_tab(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "no")
        await pilot.press("tab")
        await type_in(pilot, "node03")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen), "no node screen")
        await shows(app, pilot, "node03")


@pytest.mark.parametrize("key", ["q", "escape"])
@pytest.mark.long
async def test_every_main_screen_leads_back_to_the_fleet(stage: Stage, key: str) -> None:
    async with console(stage) as (app, pilot):
        for number, name in enumerate(("jobs", "launch", "messages", "events"), 2):
            await pilot.press(str(number))
            await until(pilot, lambda n=name: app.screen is app.home(n), name)
            await pilot.press(key)
            await until(pilot, lambda: app.screen is app.home("fleet"), f"not {name}")
        assert app.is_running


async def test_an_unknown_command_is_a_sentence(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "flet")
        await pilot.press("enter")
        await shows(app, pilot, "did you mean fleet?")


async def test_a_theme_can_be_chosen_while_running(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "theme light")
        await pilot.press("enter")
        await until(pilot, lambda: app.palette.name == "light", "not light")
        segments = [s for strip in app.screen._compositor.render_strips() for s in strip]

        assert all(
            s.style.bgcolor is None or s.style.bgcolor.get_truecolor().hex != "#121212"
            for s in segments
            if s.style
        )


async def test_a_theme_that_is_not_there_is_said_and_the_console_runs(
    stage: Stage,
) -> None:
    async with console(stage, theme="pink") as (app, pilot):
        await shows(app, pilot, "no theme `pink`")


# ---- jobs


@pytest.mark.parametrize("size", SIZES)
async def test_a_job_shows_a_pane_per_rank(stage: Stage, size: tuple[int, int]) -> None:
    sample.training_job(stage)
    async with console(stage, size) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, JOB)
        await pilot.press("enter")
        await shows(app, pilot, "● 0 node01 running")
        await shows(app, pilot, "step    39")

    job, ranks = stage.watched[-1]
    assert job == JOB
    assert 1 <= len(ranks) <= 16


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
async def test_the_way_to_help_is_always_among_the_keys(
    stage: Stage, size: tuple[int, int]
) -> None:
    sample.training_job(stage)
    async with console(stage, size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "enter zoom")
        await shows(app, pilot, ": command  ? help")


async def test_pages_show_the_other_ranks_and_only_those_are_fetched(
    stage: Stage,
) -> None:
    sample.training_job(stage)
    async with console(stage, (80, 24)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "page 1/")
        first = stage.watched[-1][1]
        await pilot.press("right_square_bracket")
        await shows(app, pilot, "page 2/")

        assert not set(first) & set(stage.watched[-1][1])


async def test_new_lines_appear_on_the_wall(stage: Stage) -> None:
    sample.training_job(stage)
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "step    39")
        stage.write(JOB, 0, "epoch done\nunfinished")
        await shows(app, pilot, "epoch done")
        await shows(app, pilot, "unfinished")


async def test_scrolling_up_stops_and_f_follows_again(stage: Stage) -> None:
    sample.training_job(stage, lines=200)
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "step   199")
        await pilot.press("enter")
        await shows(app, pilot, "following")
        await pilot.press("pageup")
        await shows(app, pilot, "stopped, f follows")
        before = [line for line in text_of(app).splitlines() if "step  " in line]
        sample.chat(stage, JOB, 0, 200, 25)
        await shows(app, pilot, "+25 new")
        assert [line for line in text_of(app).splitlines() if "step  " in line] == before
        await pilot.press("f")
        await shows(app, pilot, "step   224")
        await shows(app, pilot, "following")


@pytest.mark.long
async def test_a_search_counts_and_jumps(stage: Stage) -> None:
    sample.training_job(stage, lines=100)
    stage.write(JOB, 0, "ERROR one\nfine\nerror two\n")
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "ERROR one")
        await pilot.press("enter", "slash")
        await type_in(pilot, "error")
        await pilot.press("enter")
        await shows(app, pilot, "/error 2/2")
        await pilot.press("n")
        await shows(app, pilot, "/error 1/2")
        await pilot.press("N")
        await shows(app, pilot, "/error 2/2")


async def test_long_lines_wrap_and_lose_nothing(stage: Stage) -> None:
    stage.start(JOB, 1, 1)
    words = [f"word{n:03}" for n in range(60)]
    stage.write(JOB, 0, " ".join(words) + "\n")
    async with console(stage, (80, 24)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "word000")
        await pilot.press("enter")
        await lacks(app, pilot, "word059")
        await pilot.press("W")
        await until(
            pilot,
            lambda: all(w in text_of(app).replace("\n", "") for w in words),
            "something is lost",
        )


async def test_merged_shows_all_ranks_by_time(stage: Stage) -> None:
    stage.start(JOB, 2, 2)
    for place, rank in enumerate((3, 0, 2, 1)):
        stage.write(JOB, rank, f"hello from {rank}\n", at=1_000_000.0 + place)
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "hello from 3")
        await pilot.press("M")
        await shows(app, pilot, "ranks 0-3 by time")
        hellos = [line.split() for line in text_of(app).splitlines() if "hello" in line]

    assert hellos == [[str(rank), "hello", "from", str(rank)] for rank in (3, 0, 2, 1)]


async def test_the_first_failure_is_pinned_and_e_goes_there(stage: Stage) -> None:
    stage.start(JOB, 2, 4)
    stage.write(JOB, 5, "CUDA error: uncorrectable ECC\n", "err")
    stage.tell(JOB, "node02", "exited", rank=5, code=3, signal=None)
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "rank 5 on node02, exit 3")
        await pilot.press("e")
        await shows(app, pilot, "✗ 5 node02 exit 3")
        await shows(app, pilot, "following")


async def test_capital_k_keeps_the_others_running(stage: Stage) -> None:
    stage.start(JOB, 2, 2)
    stage.jobs.set_countdown(JOB, Countdown(why="rank 1 failed", deadline=time.time() + 30))
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "stopping the other ranks in")
        await pilot.press("K")
        await shows(app, pilot, "the other ranks keep running")

    assert stage.held == [JOB]


@pytest.mark.long
async def test_cancel_asks_first_and_then_says_what_is_left(stage: Stage) -> None:
    stage.start(JOB, 2, 2)
    stage.cancel_report = CancelReport(
        JOB,
        State.CANCELLED,
        (RemainingProcess("node01", 4711, "python train.py"),),
        {"node02": "no answer"},
    )
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "running")
        await pilot.press("x")
        await shows(app, pilot, "Cancel this job?")
        await shows(app, pilot, "4 of 4 not ended")
        await pilot.press("escape")
        await lacks(app, pilot, "Cancel this job?")
        assert stage.cancelled == []
        await pilot.press("x")
        await shows(app, pilot, "node[01-02]")
        await pilot.press("y")
        await shows(app, pilot, "node01 pid 4711")
        await shows(app, pilot, "node02: no answer")


@pytest.mark.long
async def test_a_clean_cancel_says_nothing_left(stage: Stage) -> None:
    stage.start(JOB, 2, 2)
    async with console(stage) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, JOB)
        await pilot.press("x")
        await shows(app, pilot, "Cancel this job?")
        await pilot.press("y")
        await shows(app, pilot, "nothing left")

    assert stage.cancelled == [JOB]


@pytest.mark.long
async def test_a_cancelled_job_of_which_something_may_be_left_can_be_cancelled_again(
    stage: Stage,
) -> None:
    stage.start(JOB, 2, 2)
    stage.jobs.cancelling(JOB, time.time() - 1, abort=False)
    lost = CancelReport(JOB, State.LOST, (), {"node02": "no answer"})
    for rank in (0, 1):
        stage.tell(JOB, "node01", "exited", rank=rank, signal=15)
    stage.tell(JOB, "node01", "closed")
    stage.jobs.cancelled(JOB, lost, 9.0)
    async with console(stage) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "cancelled")
        await pilot.press("x")
        await shows(app, pilot, "not proven that nothing is left on node02")
        stage.jobs.cancelled(JOB, CancelReport(JOB, State.CANCELLED), 9.0)
        await pilot.press("escape", "x")
        await shows(app, pilot, "has ended already")


async def test_escapes_in_a_log_never_reach_the_screen(stage: Stage) -> None:
    stage.start(JOB, 1, 1)
    stage.write(JOB, 0, b"\x1b[2J\x1b]0;gotcha\x07before\x9b\xff\xfe\x00after [bold]markup[/]\n")
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "[bold]markup[/]")
        screen = text_of(app)

    assert "gotcha" not in screen
    assert screen.replace("\n", "").isprintable()


async def command(pilot: Pilot, text: str) -> None:
    await pilot.press("colon")
    await type_in(pilot, text)
    await pilot.press("enter")


@pytest.mark.long
async def test_a_report_is_written_from_the_screen_and_never_over_a_file(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage.start(JOB, 2, 1)
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "collapsed")
        await command(pilot, "report a.html")
        await shows(app, pilot, "node02: it does not answer")
        await command(pilot, "report b.tar.gz")
        await until(pilot, (tmp_path / "b.tar.gz").is_file, "the archive")
        await command(pilot, "report a.html")
        await shows(app, pilot, "a.html is there already")
        await pilot.press("1")
        await shows(app, pilot, "12 of 12 nodes")
        await command(pilot, "report")
        await shows(app, pilot, "open a job first")

    assert (tmp_path / "a.html").read_text() == f"page of {JOB}"
    assert (tmp_path / "b.tar.gz").read_text() == f"archive of {JOB}"


@pytest.mark.long
async def test_the_job_on_launch_becomes_a_script_for_its_owner_alone(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello.yaml").write_text("job: hello")
    stage.files = (tmp_path / "hello.yaml",)
    script = tmp_path / "a.sh"
    async with console(stage) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun --hostfile")
        app.say("")
        await pilot.press("escape")
        await command(pilot, "script a.sh")
        await shows(app, pilot, "start it with")
        await command(pilot, "script a.sh")
        await shows(app, pilot, "File exists")

    assert script.read_text() == "#!/bin/sh\n# hello\n"
    assert script.stat().st_mode & 0o777 == 0o700


# ---- launch, keys, messages, opening


@pytest.mark.parametrize("size", SIZES)
async def test_the_plan_is_shown_before_enter_launches_it(
    stage: Stage, tmp_path: Path, size: tuple[int, int]
) -> None:
    (tmp_path / "hello.yaml").write_text("job: hello")
    stage.files = (tmp_path / "hello.yaml",)
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun --hostfile")
        assert stage.launched == []
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, JobScreen), "no job screen")
        await shows(app, pilot, "hello-1")

    assert stage.launched == ["hello"]


async def test_a_paste_ends_and_starts_nothing(stage: Stage) -> None:
    stage.start(JOB, 2, 2)
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "running")
        paste(app, "max loss 0.1\r")
        await shows(app, pilot, "Cancel this job?")
        await shows(app, pilot, PASTED)
        paste(app, "yes, it was fine\r")
        paste(app, "\ry")
        await shows(app, pilot, PASTED)
        await pilot.pause(2 * ALONE)
        assert stage.cancelled == []
        await pilot.press("enter")
        await lacks(app, pilot, "Cancel this job?")

    assert stage.cancelled == []


async def test_enter_is_the_safe_answer_and_y_the_other(stage: Stage) -> None:
    stage.start(JOB, 2, 2)
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "running")
        await pilot.press("x")
        await shows(app, pilot, "enter keep it running")
        await pilot.pause(2 * TOGETHER)
        await pilot.press("enter")
        await lacks(app, pilot, "Cancel this job?")
        assert stage.cancelled == []
        await pilot.press("x")
        await answered_yes(pilot)
        await until(pilot, lambda: stage.cancelled, "not cancelled")


async def test_escape_and_a_letter_close_together_are_two_keys(stage: Stage) -> None:
    stage.start(JOB, 2, 2)
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await pilot.press("enter")
        await shows(app, pilot, "following")
        app.post_message(Key("alt+c", "c"))
        await shows(app, pilot, "collapsed")
        app.post_message(Key("alt+shift+d", "D"))
        await shows(app, pilot, "majority")


def paste(app: RankdeckApp, text: str) -> None:
    """Keys as a terminal sends what was pasted, or typed while the line was slow."""
    for character in text:
        key = NAMES.get(character, character)
        app.post_message(Key(key, None if character == "\r" else character))


async def test_keys_that_come_at_once_reach_what_each_of_them_opened(
    stage: Stage, tmp_path: Path
) -> None:
    for name in ("hello", "fail-rank2", "kind"):
        (tmp_path / f"{name}.yaml").write_text(f"job: {name}")
    stage.files = tuple(tmp_path / f"{name}.yaml" for name in ("hello", "kind", "fail-rank2"))
    async with console(stage) as (app, pilot):
        paste(app, "3/fail-rank2\r\r")
        await shows(app, pilot, PASTED)
        assert stage.launched == []
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, JobScreen), "no job screen")

    assert stage.launched == ["fail-rank2"]


async def test_a_bad_job_file_is_shown_with_its_place_and_not_launched(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "b.yaml").write_text("bad")
    stage.files = (tmp_path / "b.yaml",)
    async with console(stage, (200, 50)) as (app, pilot):
        await pilot.press("3")
        await shows(
            app,
            pilot,
            "b.yaml:3:1: ranks_per_nod: not known; did you mean ranks_per_node?",
        )
        await pilot.press("enter")
        await shows(app, pilot, "nothing to start: fix the errors on the right first")

    assert stage.launched == []


async def test_a_refused_launch_is_one_sentence(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "refused.yaml").write_text("job: refused")
    stage.files = (tmp_path / "refused.yaml",)
    async with console(stage) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun --hostfile")
        await pilot.press("enter")
        await shows(app, pilot, "node02: no Python 3.9 there")


@pytest.mark.parametrize(("key", "answer"), [("y", ()), ("escape", None), ("n", None)])
async def test_an_unknown_host_key_is_asked_with_its_fingerprint(
    stage: Stage, key: str, answer: Answers
) -> None:
    async with console(stage) as (app, pilot):
        stage.pending = HostKeyError(
            "node03",
            "its key is not known",
            fingerprint="SHA256:abcdef",
            line="node03 ssh-ed25519 AAAA",
        )
        await shows(app, pilot, "SHA256:abcdef")
        await pilot.press("enter")
        await pilot.press(key)
        await lacks(app, pilot, "SHA256:abcdef")

    assert stage.answers == [answer]


TWO_PROMPTS = LoginQuestion(
    "node03", "me@node03", "Hello me\n 1. push", (Prompt("Password: "), Prompt("Code: ", echo=True)), again=True
)  # fmt: skip


async def test_what_a_server_asks_is_typed_one_prompt_after_the_other(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        stage.pending = TWO_PROMPTS
        await shows(app, pilot, "The last answer was refused")
        await shows(app, pilot, " 1. push")
        await pilot.press("s", "q", "x", "backspace")
        await shows(app, pilot, "Password: **")
        await pilot.press("enter", "4", "2")
        await shows(app, pilot, "Code: 42")
        await pilot.press("enter")
        await lacks(app, pilot, "Code: 42")

    assert stage.answers == [("sq", "42")]


async def test_the_dialog_says_how_many_logins_will_ask_and_what_stops_them(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        stage.pending = replace(TWO_PROMPTS, more=299)
        await shows(app, pilot, "up to 299 more will ask")
        await shows(app, pilot, "esc stop all questions")
        await pilot.press("escape")
        await lacks(app, pilot, "me@node03")

    assert stage.answers == [None]


async def test_no_answer_is_given_on_escape_and_a_question_that_nobody_waits_for_goes_away(
    stage: Stage,
) -> None:
    async with console(stage) as (app, pilot):
        stage.pending = TWO_PROMPTS
        await shows(app, pilot, "me@node03")
        stage.pending = None
        await lacks(app, pilot, "me@node03")
        stage.pending = replace(TWO_PROMPTS, whom="me@node04")
        await shows(app, pilot, "me@node04")
        await pilot.press("escape")
        await lacks(app, pilot, "me@node04")

    assert stage.answers == [None]


@pytest.mark.long
async def test_ascii_mode_paints_nothing_else_on_any_screen(stage: Stage) -> None:
    sample.training_job(stage)
    stage.write(JOB, 0, "漢字 ● … done\n")
    async with console(stage, ascii=True) as (app, pilot):
        for keys in (
            ["1"],
            ["enter"],
            ["escape", "2"],
            ["enter"],
            ["enter"],
            ["x"],
            ["escape", "3"],
            ["4"],
            ["question_mark"],
        ):
            await pilot.press(*keys)
            await pilot.pause(0.3)
            assert text_of(app).isascii(), text_of(app)


async def test_what_is_hidden_by_another_screen_is_not_painted(stage: Stage) -> None:
    painted: list[str] = []
    async with console(stage) as (app, pilot):
        for screen in (app.home("fleet"), app.home("jobs")):
            name, tick = screen.screen_name, screen.tick
            screen.tick = lambda name=name, tick=tick: (painted.append(name), tick())
        await until(pilot, lambda: "fleet" in painted, "the fleet is not painted")
        await pilot.press("2")
        await shows(app, pilot, "no job")
        painted.clear()
        await until(pilot, lambda: painted.count("jobs") > 3, "jobs are not painted")
        assert "fleet" not in painted
        await pilot.press("1")
        await until(pilot, lambda: "fleet" in painted, "the fleet is not painted")


async def test_behind_a_question_the_picture_goes_on(stage: Stage) -> None:
    painted: list[str] = []
    async with console(stage) as (app, pilot):
        stage.pending = HostKeyError("node01", "not known", line="node01 key")
        await until(pilot, lambda: app.screen.is_modal, "nobody asks")
        fleet = app.home("fleet")
        tick = fleet.tick
        fleet.tick = lambda: (painted.append("fleet"), tick())
        await until(pilot, lambda: len(painted) > 2, "the fleet stands still")


async def test_a_cancel_counts_down_to_the_kill_in_list_and_job(stage: Stage) -> None:
    stage.start(JOB, 2, 2)
    stage.jobs.cancelling(JOB, time.time(), abort=False, grace=60.0)
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "cancelling: told to end; what is left in")
        app.open_job(JOB)
        await shows(app, pilot, "cancelling: told to end; what is left in")
        stage.jobs.not_cancelled(JOB)
        await lacks(app, pilot, "cancelling")


@pytest.mark.long
async def test_the_palette_finds_commands_by_what_people_type(stage: Stage) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+p")
        await type_in(pilot, "report")
        await shows(app, pilot, "report         ")
        await pilot.press("escape", "escape", "ctrl+p")
        await type_in(pilot, "What happened on the nodes")
        await shows(app, pilot, "events  ")
        await pilot.press("down", "enter")
        await shows(app, pilot, "WHAT")


async def test_the_palette_names_each_thing_once_and_loses_no_bracket(stage: Stage) -> None:
    async with console(stage, (160, 60)) as (app, pilot):
        await pilot.press("ctrl+p")
        await shows(app, pilot, "FILE [PATH]; or from them, as NAME.NODE: `:FILE [FOLDER]`")
        lines = [line.strip() for line in text_of(app).splitlines()]

    told = [
        line
        for line in lines
        if line.endswith("Acceptance runs: which node or link is slow or faulty")
    ]
    assert len(told) == 1
    assert "acceptance   6  " in told[0]
