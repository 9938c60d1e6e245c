"""Saved views, chosen columns, several keys of order, and lists
in the past: keys in, screen out.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
from textual.geometry import Region

from rankdeck.model.health import Occurrence
from rankdeck.ui import fleet_views
from rankdeck.ui.fleet_views import FleetView, ViewError, Views, check_view
from rankdeck.ui.node_devices import draw_gpu_bars
from rankdeck.ui.themes import UNICODE, Mark, most_urgent_mark
from rankdeck.ui.widgets.vtable import CellMap
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import HealthReport, Sample
from tests.ui.support import sample
from tests.ui.support.stage import Stage, cluster_of
from tests.ui.test_screens import console, lacks, shows, text_of, type_in, until


async def command(pilot, text: str) -> None:
    await pilot.press("colon")
    await type_in(pilot, text)
    await pilot.press("enter")


def row_of(app, name: str) -> str:
    return next(line for line in text_of(app).splitlines() if f"{name} " in line)


@pytest.mark.long
async def test_a_view_is_kept_and_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "views.json"
    stage, _ = sample.fleet(12)
    async with console(stage, views_file=file) as (app, pilot):
        await pilot.press("slash")
        await type_in(pilot, "node01")
        await pilot.press("enter", "o", "m")
        await shows(app, pilot, "by NODE")
        await command(pilot, "columns cpu mem.available")
        await shows(app, pilot, "mem.available")
        await lacks(app, pilot, "RDMA rx")
        await command(pilot, "view save one")
        await shows(app, pilot, "view one")
        await pilot.press("escape")
        await shows(app, pilot, "view one (changed)")
        await command(pilot, "view")
        await shows(app, pilot, "RDMA rx")
        await lacks(app, pilot, "view one")

    stage, _ = sample.fleet(12)
    async with console(stage, views_file=file) as (app, pilot):
        await command(pilot, "view one")
        await shows(app, pilot, "1 of 12 nodes   view one   by NODE")
        await shows(app, pilot, " filter node01")
        await shows(app, pilot, "mem.available")
        await command(pilot, "view delete one")
        await shows(app, pilot, "view one deleted")
        await command(pilot, "view one")
        await shows(app, pilot, "no view `one`")

    assert json.loads(file.read_text()) == {}


@pytest.mark.long
async def test_names_of_views_are_completed(tmp_path: Path) -> None:
    views = Views(tmp_path / "views.json")
    views.save("hot", FleetView(sort=("TEMP",)))
    stage, _ = sample.fleet(3)
    async with console(stage, views_file=tmp_path / "views.json") as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "view ho")
        await pilot.press("tab", "enter")
        await shows(app, pilot, "view hot   by TEMP")


async def test_the_second_key_of_order_decides_among_equals() -> None:
    stage, _ = sample.fleet(4)
    for node, load, cores in zip(stage.cluster.nodes, (1, 3, 3, 2), (9, 4, 8, 9), strict=True):
        values = {"cpu.load1": {"": load}, "cpu.cores": {"": cores}}
        stage.fleet.apply(node.name, Sample(99, 1_099.0, values))
    async with console(stage) as (app, pilot):
        await command(pilot, "sort load cpu.cores")
        await shows(app, pilot, "by LOAD, cpu.cores")
        text = text_of(app)

    places = [text.index(f"{name} ") for name in ("node03", "node02", "node04", "node01")]
    assert places == sorted(places)


async def test_an_unknown_column_is_refused() -> None:
    stage, _ = sample.fleet(3)
    async with console(stage) as (app, pilot):
        await command(pilot, "columns cpu nonsense")
        await shows(app, pilot, "no column or metric `nonsense`")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"a": 1}',
        '{"a": {"filter": "gpu.tmp>1"}}',
        '{"a": {"columns": ["x"]}}',
        '{"a": {"map": "x"}}',
        '{"a": {"sort": 7}}',
    ],
)
def test_a_broken_file_of_views_is_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "views.json"
    file.write_text(text)
    with pytest.raises(ViewError, match=r"views\.json"):
        Views(file).all()


@pytest.mark.parametrize("name", ["", "two words", "x" * 41, "save", "a\x1b"])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ViewError):
        Views(tmp_path / "views.json").save(name, FleetView())


def test_a_view_of_known_things_is_allowed() -> None:
    view = FleetView("gpu>5", ("SEEN", "gpu.power"), True, ("CPU", "rdma.rx"), "GPU")
    assert check_view(view) == view


def steady(stage: Stage) -> None:
    """So that no node falls silent while a slow machine tests."""
    for node in stage.fleet.nodes():
        if node.hello:
            stage.fleet.apply(node.name, replace(node.hello, period=60.0))


async def test_order_and_filter_in_the_past_use_what_was_shown_then() -> None:
    stage, _ = sample.fleet(4)
    steady(stage)
    busy = {"node01": 10.0, "node02": 90.0, "node03": 20.0, "node04": 30.0}
    for name, used in busy.items():
        stage.fleet.apply(name, Sample(50, 1_050.0, {"cpu.used": {"": used}}))
    async with console(stage) as (app, pilot):
        await shows(app, pilot, "90%")
        await until(pilot, stage.fleet.past.span, "no picture of the past yet")
        await pilot.press("P")
        await shows(app, pilot, "PAUSED")
        for name in busy:
            stage.fleet.apply(name, Sample(51, 1_051.0, {"cpu.used": {"": 1.0}}))
        await pilot.press("slash")
        await type_in(pilot, "cpu>25")
        await pilot.press("enter")
        await command(pilot, "sort cpu")
        await lacks(app, pilot, "node01 ")
        assert "90%" in row_of(app, "node02")
        assert text_of(app).index("node02 ") < text_of(app).index("node04 ")


async def test_the_why_of_a_paused_picture_is_of_that_moment_as_its_state_is() -> None:
    stage, _ = sample.fleet(4)
    steady(stage)
    full = HealthReport(2e9, 3, 60.0, 7, 7, (("disk.full", 3, "/", 5.0, "/ is 99% full"),))
    stage.fleet.apply("node02", full)
    # What an earlier console saw begin there, and nobody saw end.
    old = Occurrence(1.0, "node03", "began", Level.BAD, "gpu.lost", "1", "GPU 1 is gone")
    stage.fleet.event_log.restore([old])
    async with console(stage, (200, 50)) as (app, pilot):
        await until(pilot, stage.fleet.past.span, "no picture of the past yet")
        stage.fleet.apply("node02", replace(full, level=0, reasons=()))
        await pilot.press("P")
        await shows(app, pilot, "PAUSED")
        assert "bad" in row_of(app, "node02")
        assert "/ is 99% full" in row_of(app, "node02")
        assert "bad" not in row_of(app, "node03")
        assert "GPU 1 is gone" not in row_of(app, "node03")


@pytest.mark.parametrize(
    ("count", "width", "most", "lines"),
    [
        (3, 80, 8, 1),
        (1000, 120, 8, 5),
        (1000, 200, 12, 6),
        (5000, 80, 4, 4),
        (0, 80, 4, 1),
    ],
)
def test_a_map_has_no_empty_lines(count, width, most, lines) -> None:
    cells = CellMap()
    assert cells.lines_for(count, width, most) == lines


async def test_on_the_map_only_lines_with_another_mark_are_painted_again() -> None:
    asked: list[int] = []

    class Watched(CellMap):
        def refresh(self, *regions: Region, **more: bool) -> Self:
            asked.extend(region.y for region in regions)
            return super().refresh(*regions, **more)

    stage, _ = sample.fleet(3)
    async with console(stage, (120, 30)) as (app, pilot):
        cells = Watched()
        cells.styles.height = 4
        await app.screen.mount(cells)
        await until(pilot, lambda: cells.size.height == 4, "never laid out")
        fine, sick = Mark("o", "ok"), Mark("x", "bad")
        cells.show([fine] * 400, 0)
        asked.clear()
        cells.choose(150)
        assert {*asked} == {0, 1}, "where it was, and where it is"
        asked.clear()
        cells.show([*[fine] * 350, sick, *[fine] * 49], 150)
        assert asked == [3]


async def test_a_cluster_without_gpus_has_no_columns_for_them() -> None:
    stage = Stage(cluster_of(2))
    values = {"cpu.used": {"": 12.0}, "cpu.temp": {"": 51.0}, "cpu.load1": {"": 0.4}}
    for node in stage.cluster.nodes:
        stage.fleet.apply(node.name, Sample(1, 1_000.0, values))
    async with console(stage, (160, 30)) as (app, pilot):
        await shows(app, pilot, "LOAD")
        await lacks(app, pilot, "GMEM")
        await lacks(app, pilot, "RDMA")
        await shows(app, pilot, "51°")


@pytest.mark.long
async def test_a_large_fleet_that_is_well_is_quiet_and_says_its_means_and_sums() -> None:
    # The clock stands still: on a busy machine all would be silent before they are painted.
    stage = Stage(cluster_of(1000), clock=lambda: 1_000.0)
    simulation = sample.Simulation(stage)
    for _ in range(4):
        simulation.step()
    async with console(stage, (200, 50)) as (app, pilot):
        await shows(app, pilot, "mean 50%")
        lines = text_of(app).splitlines()

    signs = "".join(lines[1:8]).replace(" ", "")
    assert (signs.count("·"), signs.count("◌")) == (995, 5 + 5), "on the map, and counted beside it"
    summed = next(line for line in lines if "of 1,000 nodes" in line)
    assert re.search(r"GPU POWER .+ sum \d+kW .+ RDMA rx\+tx .+ sum \d+Tb/s", summed)


@pytest.mark.long
async def test_a_map_whose_signs_stand_for_several_nodes_says_so_whatever_is_made_up() -> None:
    stage = Stage(cluster_of(1000))
    made_up = ("cpu", "disk", "gpu", "mem", "net", "rdma")
    sample.Simulation(stage, simulated=made_up).step()
    async with console(stage, (80, 24)) as (app, pilot):
        await shows(app, pilot, "map worst of 4")
        await shows(app, pilot, "SIMULATED")


class Clock:
    """Moves only with the samples."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def fill(stage: Stage, clock: Clock, percent: float, nodes: Sequence[str]) -> None:
    """Use so much memory of these nodes, so long that it counts."""
    values = {"mem.used": {"": percent}, "gpu.used": GPUS}
    for _ in range(70):
        clock.now += 1.0
        for name in nodes:
            stage.fleet.apply(name, Sample(int(clock.now), clock.now, values))
        stage.fleet.take_changes()


GPUS = {"0": 100.0, "1": 0.0, "2": 50.0, "10": 100.0}


async def test_what_most_of_a_crowd_have_in_common_is_said_with_its_filter() -> None:
    clock = Clock()
    stage = Stage(cluster_of(60), clock=clock)
    names = [node.name for node in stage.cluster.nodes]
    async with console(stage, (160, 40)) as (app, pilot):
        await shows(app, pilot, "60 of 60 nodes")
        await lacks(app, pilot, "check=")
        fill(stage, clock, 98.0, names)
        await shows(app, pilot, "▲ 60 nodes  memory 98% used · use fewer ranks")
        await shows(app, pilot, "/check=mem.low")
        fill(stage, clock, 20.0, names)
        await lacks(app, pilot, "check=")


async def test_each_gpu_has_a_small_bar_in_natural_order() -> None:
    clock = Clock()
    stage = Stage(cluster_of(2), clock=clock)
    async with console(stage, (200, 50)) as (app, pilot):
        fill(stage, clock, 20.0, ["node01"])
        await until(pilot, lambda: "▇ ▁ ▄ ▇  62%" in row_of(app, "node01"), "bars of 4 GPUs")


def test_a_gpu_that_is_lost_has_the_sign_of_it_and_neighbours_share_a_bar() -> None:
    stage = Stage(cluster_of(1), clock=lambda: 1_000.0)
    steady(stage)
    busy = {str(place): 100.0 for place in range(16)}
    lost = {**dict.fromkeys(busy, 0.0), "3": 1.0}
    values = {"gpu.used": {**busy, "0": 0.0, "1": 0.0}, "gpu.lost": lost}
    stage.fleet.apply("node01", Sample(101, 1_101.0, values))
    stage.fleet.take_changes()
    drawn = draw_gpu_bars(stage.fleet.node("node01"), 15, UNICODE)

    assert "".join(text for text, _ in drawn) == "▁ ✗ ▇ ▇ ▇ ▇ ▇ ▇"
    assert drawn[2] == ("✗", "bad")


def test_the_map_of_a_number_is_filled_by_a_scale_that_is_not_the_alarm_colour() -> None:
    scale = fleet_views.map_scale(fleet_views.BY_TITLE["POWER"], [None, 310.0, 720.0])
    well, ill = Mark("●", "ok"), Mark("✗", "bad")

    assert (scale.foot, scale.top) == (0.0, 800.0)
    assert fleet_views.heat_role(720.0, scale, well) == Mark("9", "cell/calm5")
    assert fleet_views.heat_role(0.0, scale, well) == Mark("0", "cell/calm0")
    assert fleet_views.heat_role(310.0, scale, ill).glyph == "✗"
    assert fleet_views.heat_role(None, scale, well) == Mark("●", "unknown")
    assert fleet_views.map_scale(fleet_views.BY_TITLE["TEMP"], [31.0]).ramp == "hot"
    rdma = fleet_views.map_column("RDMA")
    assert rdma is fleet_views.BY_TITLE["RDMA rx"]
    assert "cell/calm" in str(fleet_views.map_legend(rdma, fleet_views.map_scale(rdma, ())))
    assert fleet_views.map_column("STATE") is None
    assert all(fleet_views.map_column(name) for name in fleet_views.MAPS[1:])


@pytest.mark.long
async def test_the_map_of_a_thousand_nodes_names_its_rows_and_counts_what_is_not_well() -> None:
    stage, _ = sample.fleet(1000)
    async with console(stage, (200, 50)) as (app, pilot):
        await shows(app, pilot, "node[0001-0150]")
        first = text_of(app).splitlines()[1]
        assert re.search(r"node\[0001-0150\] ◌1", first)
        await pilot.press("m", "m", "m")
        await shows(app, pilot, "map GPU 0% 013568 100%")
        numbers = text_of(app).splitlines()[1]

    assert len(set(numbers[1:160]) & set("0123456789")) > 5


def test_a_cell_of_several_shows_the_most_urgent_whatever_the_map_is_of() -> None:
    order = ["bad", "warn", "unknown", "hot5", "calm4", "calm1", "dim", "ok", "accent"]

    for at, role in enumerate(order):
        group = [Mark("x", one) for one in reversed(order[at:])]
        assert most_urgent_mark(group).role == role
