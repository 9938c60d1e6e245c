"""The scaling screen: list, plan, plots, table and sentences, at every size and alphabet."""

from pathlib import Path

import pytest

from rankdeck.errors import RankdeckError
from rankdeck.scaling.study import Study, StudyState
from rankdeck.scaling.values import WALL
from rankdeck.values import replace
from tests.support.scaling_study import (
    ScalingPort,
    amdahl,
    falling,
    made_study,
    plan_of,
    planned,
    point,
    trials_of,
)
from tests.ui.support.stage import Stage, cluster_of
from tests.ui.test_screens import answered_yes, console, lacks, shows, text_of, type_in, until


def stage_of(*kept: Study, current: Study | None = None) -> tuple[Stage, ScalingPort]:
    stage = Stage(cluster_of(4))
    stage.scaling = port = ScalingPort(current=current, kept=list(kept))
    return stage, port


@pytest.mark.parametrize(
    ("size", "plots"), [((200, 50), 3), ((120, 40), 2), ((80, 24), 1), ((60, 15), 0)]
)
async def test_plots_table_and_sentences_are_on_one_screen(
    size: tuple[int, int], plots: int
) -> None:
    stage, _ = stage_of(current=falling())
    async with console(stage, size) as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "ranks  nodes")
        screen = text_of(app)

    assert sum(name in screen for name in ("speed-up by", "efficiency by", "mflops by")) == plots
    if size[1] >= 24:
        assert "pays up to 4 ranks" in screen


async def test_the_reason_and_the_failed_run_are_said() -> None:
    stage, _ = stage_of(current=falling())
    async with console(stage, (200, 50)) as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "with 8 ranks: all 4 cores of the busiest node are in use (98 %)")
        await shows(app, pilot, "! failed: 1 run with 4 ranks on 1 node: rank 2 on n1, exit 3")
        await shows(app, pilot, "2 of 3")


async def test_a_bar_is_as_high_as_its_number_and_says_so_in_ascii() -> None:
    plan = plan_of(*map(point, (1, 2)), repeats=1)
    study = made_study(plan, trials_of(plan, lambda one, _: {WALL: 8.0 / one.ranks}))
    stage, _ = stage_of(current=study)
    async with console(stage, (80, 24), ascii=True, theme="mono") as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "speed-up by ranks")
        screen = text_of(app)

    assert screen.isascii()
    rows = [line[9:76] for line in screen.splitlines() if line.startswith("|")]
    heights = [sum(row[at] != " " for row in rows) for at in (4, 20, 38, 55)]
    assert heights == [5, 5, 8, 8]


async def test_m_begins_with_the_next_plot_where_not_all_fit() -> None:
    stage, _ = stage_of(current=falling())
    async with console(stage, (80, 24)) as (app, pilot):
        await pilot.press("7")
        for name in ("speed-up by ranks", "efficiency by ranks", "mflops by ranks", "speed-up by"):
            await shows(app, pilot, name)
            await pilot.press("m")


async def test_without_a_study_the_screen_says_how_to_begin() -> None:
    stage, _ = stage_of()
    async with console(stage, (80, 24)) as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "no scaling study yet: A plans one")


async def test_a_typed_study_is_planned_shown_and_starts_only_after_a_question(
    tmp_path: Path,
) -> None:
    file = tmp_path / "stencil.yaml"
    file.write_text("job: stencil\ncommand: [./bmt]\n")
    stage, port = stage_of()
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("7", "A")
        await type_in(pilot, f"{file} --ranks 1,2,4,8 --repeat 3")
        await pilot.press("enter")
        await shows(app, pilot, "8 ranks on 2 nodes, 4 on each")
        await shows(app, pilot, "it takes from what is measured")
        assert [(one.file, one.ranks) for one in port.asked] == [(str(file), (1, 2, 4, 8))]
        await pilot.press("enter")
        await shows(app, pilot, "Start this study?")
        assert port.started == []
        await answered_yes(pilot)
        await until(pilot, lambda: port.started, "never started")
        await shows(app, pilot, "pays up to 4 ranks")


@pytest.mark.parametrize(
    ("typed", "said"),
    [("nowhere --ranks 1,2", "nowhere"), ("x --ranks 1,y", "y"), ("x --rank 1", "rank")],
)
async def test_a_wrong_line_is_said_and_nothing_is_planned(typed: str, said: str) -> None:
    stage, port = stage_of()
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("7", "A")
        await type_in(pilot, typed)
        await pilot.press("enter")
        await shows(app, pilot, said)

    assert port.asked == []


async def test_an_error_of_a_study_is_said(monkeypatch) -> None:
    stage, port = stage_of(current=planned())

    async def fails() -> Study:
        raise RankdeckError("stencil.yaml has changed since s1 began")

    monkeypatch.setattr(port, "start", fails)
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "12, one after the other")
        await pilot.press("enter")
        await answered_yes(pilot)
        await shows(app, pilot, "has changed since s1 began")


async def test_a_study_is_stopped_only_after_a_question_and_goes_on() -> None:
    running = replace(falling(), progress=StudyState.RUNNING, running="block 2, 4 ranks on 1 node")
    stage, port = stage_of(current=running)
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "running: block 2, 4 ranks on 1 node")
        await pilot.press("A")
        await shows(app, pilot, "a study is in progress: x stops it")
        await pilot.press("x")
        await shows(app, pilot, "Stop this study?")
        assert port.stops == 0
        await answered_yes(pilot)
        await shows(app, pilot, "stopped; nothing is left on any node")
        port.kept = [port.current]
        await pilot.press("U")
        await until(pilot, lambda: port.started, "never continued")


async def test_a_kept_study_is_opened_from_the_list_and_esc_goes_back() -> None:
    old = replace(falling(), id="s0")
    stage, port = stage_of(old)
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "s0")
        await pilot.press("enter")
        await shows(app, pilot, "with 8 ranks")
        await pilot.press("escape")
        await shows(app, pilot, "OUTCOME")
        await lacks(app, pilot, "speed-up by ranks")
        assert port.started == []
        await pilot.press("U")
        await shows(app, pilot, "only a stopped study can be continued")


async def test_several_curves_stand_side_by_side_with_their_names() -> None:
    points = [replace(point(ranks), values={"env.T": t}) for t in "12" for ranks in (1, 2, 4)]
    plan = plan_of(*points)
    study = made_study(plan, trials_of(plan, amdahl(0.1)))
    stage, _ = stage_of(current=study)
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "env.T=2")
        await shows(app, pilot, "their runs overlap, so this may be chance")


async def test_a_report_is_written(tmp_path: Path) -> None:
    stage, _ = stage_of(current=falling())
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("7")
        await shows(app, pilot, "pays up to")
        await pilot.press("O")
        await pilot.press("ctrl+u")
        await type_in(pilot, str(tmp_path / "out"))
        await pilot.press("enter")
        await shows(app, pilot, "3 files in")

    assert {one.name for one in (tmp_path / "out").iterdir()} == {
        "report.html",
        "report.json",
        "runs.csv",
    }


async def test_the_command_line_leads_here() -> None:
    stage, _ = stage_of(current=falling())
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "scaling")
        await pilot.press("enter")
        await shows(app, pilot, "pays up to")
