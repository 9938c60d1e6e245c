"""Lists show at a glance what else takes a screen: how far a job is and what its ranks write, when
events were, how ranks compare; nothing that a row shows whole is told twice.
"""

import pytest

from rankdeck.acceptance.heatmap import cell_mark, heat_map
from rankdeck.acceptance.run import measured_cells
from rankdeck.ui.screens.job_glance import progress_cell
from rankdeck.ui.themes import UNICODE
from rankdeck.ui.widgets.vtable import Column, fitting_columns
from rankdeck.values import replace
from rankdeck_agent.wire import Event
from tests.support.acceptance_run import Port, made_run, slow_sender
from tests.ui.support import sample, scenes
from tests.ui.support.stage import Stage, cluster_of
from tests.ui.test_node_page import machine
from tests.ui.test_screens import console, shows, text_of, until

SIZES = [(200, 50), (120, 40), (80, 24)]
LONG = "a-job-with-a-name-that-is-long-20261130-222732-c31d"


def text_of_runs(runs) -> str:
    return "".join(text for text, _ in runs)


def row_with(app, word: str) -> str:
    return next(line for line in text_of(app).splitlines() if word in line)


# ---- jobs


async def test_a_running_job_has_its_bar_and_its_numbers_in_the_list() -> None:
    async with console(scenes.training(), (200, 50)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "step 300/1000  loss 1.16 ")

        assert "━━━───────  30%" in row_with(app, "▸train").replace("╸", "─")


@pytest.mark.parametrize(
    ("width", "shown"), [(16, "30%"), (40, "step 300/1000"), (90, "16 running")]
)
def test_of_the_progress_what_does_not_fit_is_left_out_from_the_end(width: int, shown: str) -> None:
    job = scenes.training().jobs.job(scenes.JOB)
    assert job.progress
    cell = text_of_runs(progress_cell(job.progress, job.rank_counts, UNICODE, width))

    assert shown in cell
    assert len(cell) == width


@pytest.mark.parametrize("size", SIZES)
async def test_below_the_list_are_the_ranks_and_their_newest_lines_the_odd_one_first(size) -> None:
    async with console(scenes.hanging(), size) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "▲  6 node02  step   300/1000" if size[1] > 24 else "▲ 6 node02")
        lines = text_of(app).splitlines()

    signs = next(line for line in lines if line.count("●") > 5)
    assert "▲" in signs
    newest = [line.split()[:2] for line in lines if "/1000  loss" in line and "▸" not in line]
    assert newest[0] == ["▲", "6"]
    assert newest[1] == ["●", "0"]


async def test_more_ranks_than_fit_are_counted() -> None:
    async with console(scenes.hanging(40, 16, 8), (80, 24)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "more")
        lines = text_of(app).splitlines()

    shown = [line for line in lines if "/1000  loss" in line and "▸" not in line]
    assert f"and {128 - len(shown)} more" in "".join(lines)


async def test_names_are_whole_where_there_is_room() -> None:
    stage = sample.fleet(3)[0]
    stage.start(LONG, 2, 4)
    async with console(stage, (200, 50)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, f"▸{LONG} ")


async def test_of_a_name_that_is_cut_both_ends_are_shown() -> None:
    stage = sample.fleet(3)[0]
    stage.start(LONG, 2, 4)
    async with console(stage, (80, 24)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "▸a-job-with-a-name")
        assert "…" in row_with(app, "▸a-job")
        assert "32-c31d " in row_with(app, "▸a-job")
        assert ("JOB", LONG) in app.screen.table.whole(LONG)


def test_a_column_takes_room_that_is_left_but_not_all() -> None:
    def cell(row: str, width: int):
        return [(row * width, "text")]

    name, rest = Column("A", 10, cell, most=30), Column("B", 10, cell, grow=True)

    assert [cells for _, cells in fitting_columns((name, rest), 40)] == [18, 19]
    assert [cells for _, cells in fitting_columns((name, rest), 120)] == [30, 87]
    assert [cells for _, cells in fitting_columns((name, rest), 23)] == [10, 10]


# ---- events


def told_late() -> Stage:
    stage, simulation = sample.fleet(3)
    for second, words in ((1_050.0, "Xid 79"), (1_010.0, "Xid 48")):
        text = f"{words} · the driver reports an error · reboot"
        stage.fleet.apply("node01", Event(second, "bad", "kernel.xid", text, words))
    del simulation
    return stage


async def test_events_are_in_the_order_of_their_times() -> None:
    async with console(told_late(), (120, 40)) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "Xid 48")
        times = [one.at for one in app.screen._rows.values()]

    assert times == sorted(times, reverse=True)


async def test_the_times_of_events_are_a_line_for_each_state() -> None:
    async with console(told_late(), (120, 40)) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, " now")
        lines = text_of(app).splitlines()

    bad = next(line for line in lines if line.startswith(" ✗ bad"))
    assert any("⠀" < sign <= "⣿" for sign in bad)
    assert lines.index(bad) < next(n for n, line in enumerate(lines) if "TIME↓" in line)


async def test_a_low_screen_has_the_list_alone() -> None:
    async with console(told_late(), (80, 24)) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "Xid 48")
        assert "TIME↓" in text_of(app).splitlines()[1]


async def test_below_the_events_is_what_it_means_and_what_else_the_node_told() -> None:
    async with console(told_late(), (160, 40)) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "do     reboot")
        await shows(app, pilot, "means  the driver reports an error")
        await shows(app, pilot, "also on node01")
        page = text_of(app)

    assert "\n   time" not in page  # the row shows it


# ---- ranks


async def test_ranks_are_compared_in_columns_and_the_odd_one_is_named() -> None:
    async with console(scenes.hanging(), (200, 50)) as (app, pilot):
        app.open_job(scenes.JOB)
        await shows(app, pilot, scenes.JOB)
        await pilot.press("h")
        await shows(app, pilot, "Ranks compared")
        await shows(app, pilot, "▲ stalled")
        silent = next(line for line in text_of(app).splitlines() if line.startswith("   SILENT"))

    assert "▲ rank 6" in silent
    assert len(set(silent[12:28])) > 1


@pytest.mark.parametrize("key", ["h", "i"])
async def test_what_belongs_to_a_job_has_the_tab_of_the_jobs(key: str) -> None:
    async with console(scenes.hanging(), (120, 40)) as (app, pilot):
        app.open_job(scenes.JOB)
        await shows(app, pilot, scenes.JOB)
        await pilot.press(key)
        await until(pilot, lambda: app.screen.screen_name != "job", "the screen did not open")
        runs = app.screen.top_bar.line(0, 120)

    assert (" 2 Jobs ", "title@selection") in runs


async def test_inspect_shows_among_all_ranks_which_are_elsewhere() -> None:
    async with console(scenes.hanging(), (120, 40)) as (app, pilot):
        app.open_job(scenes.JOB)
        await shows(app, pilot, scenes.JOB)
        await pilot.press("i")
        await shows(app, pilot, "answer")
        lines = text_of(app).splitlines()

    signs = next(line for line in lines if line.count("●") == 15)
    numbers = lines[lines.index(signs) - 1]
    assert signs.index("▲") == numbers.index(" 6 ") + 1


async def test_merged_lines_begin_below_each_other_whoever_wrote_them() -> None:
    async with console(scenes.hanging(), (120, 40)) as (app, pilot):
        app.open_job(scenes.JOB)
        await shows(app, pilot, scenes.JOB)
        await pilot.press("M")
        await shows(app, pilot, "0-5,7-15 [x15] step   320")
        lines = [line for line in text_of(app).splitlines() if "11800 tok/s" in line]

    assert any(line.startswith("0-15 [x16] ") for line in lines)
    assert len({line.index("/1000  loss") for line in lines}) == 1


def test_of_a_step_without_end_the_first_word_has_no_blank_before_it() -> None:
    job = scenes.training().jobs.job(scenes.JOB)
    assert job.progress
    endless = replace(job.progress, steps=None, values={})

    assert text_of_runs(progress_cell(endless, "6 running", UNICODE, 40)).startswith("step 300  6")


# ---- acceptance and nodes


def test_a_share_is_rounded_alike_in_cells_and_in_words() -> None:
    run = made_run(4, slow_sender("n3"))
    cell = next(one for one in measured_cells(run, "iperf3").values() if one.sender == "n3")

    assert cell_mark(replace(cell, share=0.599)) == "60"
    assert cell_mark(replace(cell, share=0.999)) == "99"


def test_the_numbers_of_a_map_have_the_same_decimals() -> None:
    assert heat_map(made_run(8, slow_sender("n3")), "iperf3").decimals == 2


async def test_the_map_and_the_list_of_odd_pairs_are_in_columns() -> None:
    stage = Stage(cluster_of(3))
    stage.acceptance = Port(current=made_run(8, slow_sender("n3")))
    async with console(stage, (200, 50)) as (app, pilot):
        await pilot.press("6")
        await shows(app, pilot, "9.40")
        commands = [line.index("rankdeck accept n3,") for line in text_of(app).splitlines() if "rankdeck accept n3,n" in line and "→" in line]  # fmt: skip
        await pilot.press("enter")
        await shows(app, pilot, "median")
        measured, usual = row_with(app, "measured"), row_with(app, "   median")

    assert len(commands) == 7
    assert len(set(commands)) == 1
    assert "━━━━━━━" in measured
    assert measured.index("━") == usual.index("━")


async def test_alike_devices_are_one_row_of_the_inventory_and_the_checks_one_strip() -> None:
    async with console(machine(), (200, 60)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "gpu.[0-3].model")
        assert "gpu.0.model" not in text_of(app)
        heading = next(line for line in text_of(app).splitlines() if " Checks " in line)

    assert sum(sign in "●◌▲✗·" for sign in heading[heading.index("Checks") :]) == 25
