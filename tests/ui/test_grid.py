"""All screens share one grid, and no text is cut beside empty rows."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rankdeck.ui.screens import base
from rankdeck.ui.widgets.canvas import Runs, break_runs, measure_runs, spread_rows
from rankdeck_agent.wire import Event
from tests.ui.support import sample
from tests.ui.support.stage import Stage
from tests.ui.test_launch import Planning
from tests.ui.test_pictures import FOLDER, SIZES
from tests.ui.test_screens import console, lacks, shows, text_of, type_in

HEADINGS = (
    "Jobs", "Events", "Values", "Plan", "Checks", "Findings", "Odd pairs", "Commands", "Output", "Job", "Event",
    "Message", "Process", "Rank", "Everywhere", "Moving", "Signs", "Job file", "GPUs", "RDMA", "Inventory",
)  # fmt: skip
LONG = (
    "an address that nobody can read to its end because it is much longer than the screen is wide, "
    * 2
)
PICTURES = sorted(
    file
    for file in FOLDER.iterdir()
    if not file.name.startswith(("palette", "job-cancel", "job-swap"))
)


def rows_of(file: Path) -> list[str]:
    height = dict(SIZES)[int(file.stem.rpartition("-")[2])]
    return file.read_text().splitlines()[1 : height - 1]


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.stem)
def test_lines_begin_in_the_first_column_and_rows_below_a_heading_two_further(file: Path) -> None:
    rows = rows_of(file)

    assert not [row for row in rows if re.match(r"  [^ ]", row)]
    for at, row in enumerate(rows):
        for found in re.finditer(rf"(^|│| ) ({'|'.join(HEADINGS)})(?=  |$)", row):
            alone = "↓" not in row and (found.start(2) == 1 or row[found.start(2) - 2] in " │")
            below = rows[at + 1][found.start(2) :] if alone and at + 1 < len(rows) else ""
            assert not below.strip() or re.match(r"  [^ ]|   +\S", below), (row, rows[at + 1])


@given(
    st.lists(st.text("abc /漢", max_size=90), max_size=6), st.integers(21, 60), st.integers(0, 30)
)
def test_lines_are_whole_while_rows_are_empty(texts: list[str], width: int, height: int) -> None:
    lines: list[Runs] = [[("   name ", "dim"), (text, "text")] for text in texts]

    groups = spread_rows(lines, width, height)

    rows = [row for group in groups for row in group]
    assert len(rows) <= max(height, len(lines))
    for line, group in zip(lines, groups, strict=True):
        said = "".join(text for row in group for text, _ in row)
        assert said.replace(" ", "") == "".join(text for text, _ in line).replace(" ", "")
        needed = len(break_runs(line, width))
        assert len(group) in (1, needed)
        if len(group) < needed:
            assert needed - 1 > height - len(rows), "cut, though there is room"
        elif needed > 1:
            assert all(
                cell_len("".join(text for text, _ in row).rstrip()) <= width for row in group
            )


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_mistake_in_a_job_file_is_whole(tmp_path: Path, size: tuple[int, int]) -> None:
    stage = Planning(sample.fleet(4)[0].cluster)
    (tmp_path / "hello.yaml").write_text("x")
    stage.files = (tmp_path / "hello.yaml",)
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun -np 0 true")
        await pilot.press("tab")
        await type_in(pilot, "x" * 120)
        await shows(app, pilot, "none, because of this")
        rows = [row.partition("│")[2].strip() for row in text_of(app).splitlines()]
        assert "is not a whole number from 0 on" in " ".join(rows)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_what_is_typed_is_seen_where_it_is_typed(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    stage = Planning(sample.fleet(4)[0].cluster)
    (tmp_path / "hello.yaml").write_text("x")
    stage.files = (tmp_path / "hello.yaml",)
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun -np 0 true")
        await pilot.press("tab", "down", "down", "down")
        await type_in(pilot, " --data /a/long/path/to/the/data/of/this/run --epochs 7")
        await pilot.pause()
        rows = text_of(app).splitlines()[5:8]
        assert "true --data" in rows[0]
        assert any("--epochs 7" in row for row in rows)
        await type_in(pilot, " --more" * 30 + " --last")
        await pilot.pause()
        assert any("--last" in row for row in text_of(app).splitlines()[5:8])


async def test_what_is_copied_of_the_plan_has_each_command_on_one_line(tmp_path: Path) -> None:
    stage = Planning(sample.fleet(4)[0].cluster)
    (tmp_path / "hello.yaml").write_text("x")
    stage.files = (tmp_path / "hello.yaml",)
    async with console(stage, (80, 24)) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "mpirun -np 0 true")
        await pilot.press("tab", "down", "down", "down")
        await type_in(pilot, " --mca a b" * 20)
        await pilot.pause()
        lines = app.screen.plan.in_view

    assert sum("mpirun" in line for line in lines) == 1
    assert any(line.count("--mca a b") == 20 for line in lines)


def ill(size: int = 3) -> Stage:
    stage, _ = sample.fleet(size)
    stage.fleet.apply("node01", Event(time.time(), "bad", "kernel.xid", f"Xid 13, {LONG}WORD", "0"))
    return stage


@pytest.mark.parametrize("size", [(200, 50), (120, 40), (80, 24)])
async def test_reasons_and_kernel_lines_of_a_node_are_whole(size: tuple[int, int]) -> None:
    async with console(ill(), size) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "checks judged")
        rows = [*app.screen.page._lines]
        await shows(app, pilot, "WORD")

    assert max(map(measure_runs, rows)) <= size[0]
    assert sum("WORD" in text for row in rows for text, _ in row) == 2, "the reason and the event"


async def test_events_and_jobs_of_fleet_are_whole_while_rows_are_empty() -> None:
    async with console(ill(), (120, 70)) as (app, pilot):
        await shows(app, pilot, "Xid 13")
        await shows(app, pilot, "WORD")


async def test_a_filter_that_leaves_few_nodes_shows_why_the_chosen_one_is_ill() -> None:
    async with console(ill(100), (80, 24)) as (app, pilot):
        await shows(app, pilot, "node018")
        await lacks(app, pilot, "try to log in")
        await pilot.press("slash")
        await type_in(pilot, "node00[1-3]")
        await pilot.press("enter")
        await shows(app, pilot, "do    try to log in")
        assert "\n node001" in text_of(app)
        await pilot.press("escape")
        await lacks(app, pilot, "try to log in")


async def test_a_refusal_gives_its_place_back_to_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "REFUSAL", 0.5)
    async with console(ill(), (120, 40)) as (app, pilot):
        await shows(app, pilot, "enter open")
        await pilot.press("n")
        await shows(app, pilot, "does nothing here")
        await lacks(app, pilot, "does nothing here")
        await shows(app, pilot, "enter open")
        app.screen.say("saved", "ok")
        app.screen.refuse("no")
        app.screen.say("saved again", "ok")
        await pilot.pause(1.0)
        assert "saved again" in text_of(app)


async def test_events_are_filtered_by_time_and_begin_their_details_with_what_happened() -> None:
    async with console(ill(), (80, 24)) as (app, pilot):
        await pilot.press("5", "slash")
        await shows(app, pilot, "Xid 13")
        assert "\n Event\n   what " in text_of(app)
        await type_in(pilot, "age>1h")
        await shows(app, pilot, "no event matches the filter")
        await pilot.press(*["backspace"] * 3)
        await type_in(pilot, "<1h")
        await shows(app, pilot, "Xid 13")
