"""What stands below a short table of nodes: trends, jobs, events; never more than there is."""

import re

import pytest

from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.rank import State
from rankdeck.state.fleet_history import PICTURED
from rankdeck.ui.fleet_views import TRENDS, Overview, overview_lines
from rankdeck.ui.themes import ASCII, UNICODE
from rankdeck.ui.widgets.canvas import measure_runs
from rankdeck.values import replace
from rankdeck_agent.wire import Sample
from tests.ui.support import sample, scenes
from tests.ui.test_fleet_views import steady
from tests.ui.test_screens import console, lacks, shows, text_of, type_in, until


def lines_of(scene: Overview, width: int = 160, height: int = 30) -> list[str]:
    drawn = overview_lines(scene, (width, height), UNICODE)
    return ["".join(text for text, _ in runs) for runs in drawn]


def scene_of(stage, **more) -> Overview:
    return Overview(stage.fleet, stage.fleet.nodes(), stage.jobs.all(), **more)


def test_all_nodes_and_each_have_a_line_with_mean_or_sum() -> None:
    stage, _ = sample.fleet(2)
    stage.fleet.take_changes()
    for node, used, watts in (("node01", 20.0, 300.0), ("node02", 60.0, 900.0)):
        values = {"cpu.used": {"": used}, "gpu.power": {"0": watts}}
        stage.fleet.apply(node, Sample(90, 1_090.0, values))
    stage.fleet.take_changes()

    lines = lines_of(scene_of(stage))

    together = next(line for line in lines if line.startswith(" all 2"))
    assert "40%" in together
    assert "1.2kW" in together
    assert any(line.startswith(" node02") and "60%" in line and "900W" in line for line in lines)


def test_a_silent_node_has_no_number_and_no_part_in_the_mean() -> None:
    stage, _ = sample.fleet(6)
    stage.fleet.take_changes()
    silent = next(node for node in stage.fleet.nodes() if node.silent)
    heard = next(node for node in stage.fleet.nodes() if not node.silent)
    for node in stage.fleet.nodes():
        if node is not silent:
            stage.fleet.apply(node.name, Sample(90, 1_090.0, {"cpu.used": {"": 50.0}}))

    lines = lines_of(Overview(stage.fleet, (silent, heard), ()))

    row = next(line for line in lines if line.startswith(f" {silent.name}"))
    assert "–" in row
    assert "%" not in row.partition("CPU")[0]
    assert "50%" in next(line for line in lines if line.startswith(" all 2"))


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize(("width", "height"), [(200, 40), (80, 14), (60, 7), (140, 9)])
def test_it_never_takes_more_than_its_room(glyphs, width: int, height: int) -> None:
    stage = scenes.hanging()
    stage.fleet.take_changes()

    drawn = overview_lines(scene_of(stage), (width, height), glyphs)

    assert 0 < len(drawn) <= height
    assert all(measure_runs(runs) <= width for runs in drawn)


def test_jobs_of_an_acceptance_run_are_counted_and_not_listed() -> None:
    stage = scenes.training(1, 4)
    (job,) = stage.jobs.all()
    spec = JobSpec(name="accept", launch=Launch.PLAIN, command=("sh",), part_of="a1122-152616-8f6d")
    part = replace(job, plan=replace(job.plan, spec=spec))

    def jobs(*known) -> list[str]:
        lines = lines_of(Overview(stage.fleet, stage.fleet.nodes(), known), 200)
        head = next(at for at, line in enumerate(lines) if line.startswith(" Jobs"))
        return [line[:75].strip() for line in lines[head : head + 2]]

    assert jobs(job)[0].startswith("Jobs  1 job running or waiting")
    assert job.id in jobs(job)[1]
    assert jobs(part) == [
        "Jobs  no job running or waiting, 1 job of acceptance or scaling (6, 7)",
        "3 starts one",
    ]
    assert jobs(replace(part, state=State.DONE)) == [
        "Jobs  no job running or waiting",
        "3 starts one",
    ]


async def test_three_nodes_share_the_page_with_trends_jobs_and_events() -> None:
    stage, _ = sample.fleet(3)
    async with console(stage, (200, 50)) as (app, pilot):
        for title in ("CPU", "GPU POWER", "all 3", "Jobs", "Events", "memory row remapped"):
            await shows(app, pilot, title)


@pytest.mark.parametrize(("size", "titles"), [((200, 50), 8), ((120, 40), 6), ((80, 24), 2)])
async def test_trends_take_the_room_that_there_is(size: tuple[int, int], titles: int) -> None:
    stage, _ = sample.fleet(3)
    async with console(stage, size) as (app, pilot):
        await shows(app, pilot, "all 3")
        page = text_of(app)
        lines = page.splitlines()

    shown = [trend.title for trend in TRENDS if re.search(rf"\b{re.escape(trend.title)}\b", page)]
    heads = next(at for at, line in enumerate(lines) if line.startswith(" last") or " now" in line)
    assert [trend.title for trend in TRENDS[:titles]] == shown
    assert sum(line.startswith(" node03") for line in lines[heads:]) == -(
        -titles // (size[0] // 40)
    )
    assert sum(not line for line in lines) <= size[1] // 3


async def test_a_table_that_needs_the_page_has_it() -> None:
    stage, _ = sample.fleet(100)
    async with console(stage, (200, 50)) as (app, pilot):
        await shows(app, pilot, "100 nodes")
        assert "newest first" not in text_of(app)


async def test_the_overview_follows_the_filter_and_the_paused_moment() -> None:
    stage, _ = sample.fleet(3)
    steady(stage)
    stage.fleet.apply("node02", Sample(50, 1_050.0, {"cpu.used": {"": 87.0}}))
    async with console(stage, (200, 50)) as (app, pilot):
        await until(pilot, stage.fleet.past.span, "no picture of the past yet")
        await pilot.press("P")
        await shows(app, pilot, "PAUSED")
        stage.fleet.apply("node02", Sample(51, 1_051.0, {"cpu.used": {"": 3.0}}))
        await lacks(app, pilot, "Jobs  no job")
        row = next(line for line in text_of(app).splitlines() if line.startswith(" node02"))
        assert "87%" in row
        await pilot.press("slash")
        await type_in(pilot, "node02")
        await pilot.press("enter")
        await lacks(app, pilot, "memory row remapped")


def test_every_trend_is_remembered() -> None:
    assert {metric for trend in TRENDS for metric in trend.metrics} <= set(PICTURED)


def test_while_nodes_are_still_connected_nobody_says_that_there_is_nothing() -> None:
    stage, _ = sample.fleet(2)
    stage.fleet.event_log.newest.clear()

    opening = "\n".join(lines_of(scene_of(stage, opening="connecting to 1 more nodes")))

    assert "no job" not in opening
    assert "nothing has happened" not in opening
    assert opening.count("connecting to 1 more nodes") == 2
    assert "no job running or waiting" in "\n".join(lines_of(scene_of(stage)))
