"""The views of a job's output, by keys, at every size."""

import re
import time
from datetime import datetime
from datetime import time as dt_time
from pathlib import Path

import pytest

from rankdeck.model.health import Occurrence
from rankdeck.model.rank_output import Chunk
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import Event
from tests.support.node_events import node_event
from tests.ui.support import sample
from tests.ui.support.stage import Stage
from tests.ui.test_screens import JOB, console, lacks, shows, text_of, type_in, until

SIZES = [(200, 50), (100, 30), (80, 24), (60, 15)]


@pytest.fixture
def stage() -> Stage:
    """16 ranks: rank 5 died with a traceback, rank 9 never came to the barrier."""
    stage = sample.fleet(4)[0]
    stage.start(JOB, 4, 4)
    for rank in range(16):
        text = f"hello from {rank}\n" + "".join(f"step {n} loss 2.{n}\n" for n in range(5))
        stage.write(JOB, rank, text, at=1_000.0)
        if rank == 5:
            stage.write(JOB, rank, "Traceback: \x1b[31mOSError\x1b[0m\n", "err", at=1_001.0)
        elif rank != 9:
            stage.write(JOB, rank, "barrier reached\n", at=1_002.0)
    stage.tell(JOB, "node02", "exited", rank=5, code=1, signal=None)
    return stage


@pytest.mark.parametrize("size", SIZES)
async def test_collapsed_names_the_odd_ranks_at_every_size(
    stage: Stage, size: tuple[int, int]
) -> None:
    async with console(stage, size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("c")
        await shows(app, pilot, "kinds")
        screen = text_of(app)

    assert len(screen.splitlines()) == size[1]
    assert max(map(len, screen.splitlines())) <= size[0]
    odd = [line for line in screen.splitlines() if "Traceback: OSError" in line]
    assert odd[-1].split()[0] == "5"


@pytest.mark.long
async def test_collapsed_lists_the_ranks_that_are_missing(stage: Stage) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("c")
        await shows(app, pilot, "missing: 5,9")
        await shows(app, pilot, "hello from 0..15")


async def test_r_on_a_row_opens_its_ranks_as_a_wall(stage: Stage) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("c")
        await shows(app, pilot, "missing: 5,9")
        await pilot.press("r")
        await shows(app, pilot, "ranks 5")
        await lacks(app, pilot, "● 0 node01")


async def test_one_key_shows_stderr_of_the_rank_alone_and_it_is_marked_without_colour(
    stage: Stage,
) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "▏Traceback: OSError")
        await pilot.press("vertical_line")
        await shows(app, pilot, "stderr  1 of 7 lines")
        await lacks(app, pilot, "hello from 5")
        await pilot.press("vertical_line")
        await shows(app, pilot, "stdout  6 of 7 lines")
        await lacks(app, pilot, "▏Traceback")
        await pilot.press("escape")
        await shows(app, pilot, "▏Traceback: OSError")
        await shows(app, pilot, "hello from 5")


async def test_a_filtered_merged_log_names_who_wrote_each_line_and_counts_only_new_ones(
    stage: Stage,
) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("M")
        await shows(app, pilot, "14 ranks [x14] barrier reached")
        await pilot.press("g", "vertical_line")
        await until(pilot, lambda: re.search(r" 5 +▏Traceback: OSError", text_of(app)), "no rank 5")
        await lacks(app, pilot, "new")
        stage.write(JOB, 3, "not for this filter\n", at=1_003.0)
        stage.write(JOB, 3, "second\n", "err", at=1_003.0)
        await shows(app, pilot, "+1 new")


async def test_diff_says_who_leaves_the_majority(stage: Stage) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("D")
        await shows(app, pilot, "14 of 16 like the majority")
        await shows(app, pilot, "Traceback: OSError")
        await shows(app, pilot, "nothing more")


@pytest.mark.long
async def test_a_set_of_ranks_limits_the_wall_and_nonsense_is_said(
    stage: Stage,
) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "● 0 node01")
        await pilot.press("r")
        await type_in(pilot, "node=node02")
        await pilot.press("enter")
        await lacks(app, pilot, "● 0 node01")
        await shows(app, pilot, "● 4 node02")
        assert stage.watched[-1][1] == (5, 4, 6, 7)
        await pilot.press("r")
        await type_in(pilot, ",99")
        await pilot.press("enter")
        await shows(app, pilot, "there is no rank 99")


async def test_the_failed_rank_comes_first_until_another_order_is_wanted(
    stage: Stage,
) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ✗ 5 node02 exit 1  failed first")
        assert stage.watched[-1][1][0] == 5
        await pilot.press("o")
        await shows(app, pilot, "ordered by rank")
        await until(pilot, lambda: stage.watched[-1][1][0] == 0, "0 is not first")


@pytest.mark.long
async def test_what_a_node_said_stands_in_the_merged_log_and_at_leads_there(
    stage: Stage,
) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        at = stage.jobs.job(JOB).created + 1
        stage.fleet.apply("node02", Event(at, "bad", "gpu.xid", "Xid 79: lost", "0"))
        await pilot.press("M")
        await shows(app, pilot, " node02: GPU 0: Xid 79: lost")
        await pilot.press("slash")
        await type_in(pilot, "Xid 79")
        await pilot.press("enter", "at")
        await shows(app, pilot, "the log line was read at")
        await shows(app, pilot, "+0.0 s  GPU 0: Xid 79: lost")
        await pilot.press("escape")
        await shows(app, pilot, "ranks 0-15 by time")


@pytest.mark.long
async def test_lines_are_filtered_in_and_out_and_escape_brings_all_back(
    stage: Stage,
) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        app.screen.zoom(0)
        await pilot.press("ampersand")
        await type_in(pilot, "step")
        await pilot.press("enter")
        await lacks(app, pilot, "hello from 0")
        await shows(app, pilot, "5 of 7")
        await pilot.press("V")
        await type_in(pilot, "step 3")
        await pilot.press("enter")
        await lacks(app, pilot, "step 3 loss")
        await pilot.press("escape")
        await shows(app, pilot, "hello from 0")


async def test_the_view_is_saved_as_it_is_shown(stage: Stage, tmp_path: Path) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        app.screen.zoom(0)
        await shows(app, pilot, "following")
        app.screen._save(str(tmp_path / "x.log"))
        await shows(app, pilot, "saved 7 lines of rank 0")
        app.screen._save(str(tmp_path / "x.log"))
        await shows(app, pilot, "not saved")

    assert (tmp_path / "x.log").read_text().splitlines()[0] == "hello from 0"


@pytest.mark.long
async def test_a_log_is_read_from_its_node_and_searched_there(stage: Stage, tmp_path: Path) -> None:
    lines = [f"line {n:06} of a long log" for n in range(120_000)]
    lines[77] = "the needle is here"
    text = "\n".join(lines) + "\n"
    (tmp_path / "out").write_text(text)
    stage.on_node[3] = tmp_path / "out"
    stage._offsets[JOB, 3, "out"] = len(text) - 2600
    stage.write(JOB, 3, text[-2600:])
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        app.screen.zoom(3)
        await shows(app, pilot, "line 119999")
        await pilot.press("g")
        await shows(app, pilot, "line 000000")
        await shows(app, pilot, "out, 0% of")
        await pilot.press("G")
        await shows(app, pilot, "following")
        await pilot.press("slash")
        await type_in(pilot, "needle")
        await pilot.press("enter")
        await shows(app, pilot, "match 1 of 1 in all of out")
        await shows(app, pilot, "the needle is here")


async def test_a_search_goes_through_the_whole_output_of_all_ranks_and_says_where_it_looked(
    stage: Stage, tmp_path: Path
) -> None:
    for rank in range(16):
        lines = [f"rank {rank} line {n:06}" for n in range(3_000)]
        if rank in (6, 11):
            lines[5] = f"the needle of {rank}"
        (tmp_path / f"{rank}").write_text("\n".join(lines) + "\n")
        stage.on_node[rank] = tmp_path / f"{rank}"
    del stage.on_node[14]
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("slash")
        await shows(app, pilot, "all ranks shown")
        await type_in(pilot, "needle")
        await pilot.press("enter")
        await shows(app, pilot, "`needle` in out of rank 11")
        await shows(app, pilot, "the needle of 11")
        await pilot.press("N")
        await shows(app, pilot, "the needle of 6")
        await pilot.press("escape", "escape", "M", "slash")
        await type_in(pilot, "haystack")
        await pilot.press("enter")
        await shows(app, pilot, "no `haystack` in all output of 16 ranks; not searched: ranks 14")


@pytest.mark.long
@pytest.mark.parametrize(
    ("typed", "line"),
    [("77778", 77777), ("1", 0), ("50%", 60_000), ("14:30:05", 90_000), ("119000", 118_999)],
)
async def test_one_goes_to_a_line_a_time_or_a_place_of_a_log_that_lies_on_its_node(
    stage: Stage, tmp_path: Path, typed: str, line: int
) -> None:
    at = datetime.combine(datetime.fromtimestamp(time.time()), dt_time(14, 30, 5)).timestamp()
    at -= 86400 * (at > time.time())
    text = "".join(f"line {n:06} of a long log\n" for n in range(120_000))
    (tmp_path / "out").write_text(text)
    size = len(text) // 120_000
    index = (f"{n * size} {at + (n - 90_000) / 100:.3f}\n" for n in range(0, 120_000, 50))
    (tmp_path / "out.idx").write_text("".join(index))
    stage.on_node[3] = tmp_path / "out"
    stage._offsets[JOB, 3, "out"] = len(text) - 2600
    stage.write(JOB, 3, text[-2600:], at=at + 300)
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        app.screen.zoom(3)
        await shows(app, pilot, "line 119999")
        await pilot.press("number_sign")
        await type_in(pilot, typed)
        await pilot.press("enter")

        def there() -> bool:
            now = app.screen.view.current_line
            number = int(now.text.split()[1]) if now else -1
            return abs(number - line) <= (1 if typed.endswith("%") else 0)

        await until(pilot, there, "not there")


@pytest.mark.parametrize("size", SIZES)
async def test_plain_shows_nothing_but_the_lines(stage: Stage, size: tuple[int, int]) -> None:
    async with console(stage, size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        app.screen.zoom(0)
        await pilot.press("L")
        await lacks(app, pilot, "following")
        assert text_of(app).splitlines()[0] == "hello from 0"
        await pilot.press("escape")
        await shows(app, pilot, "following")


async def test_what_an_earlier_console_saw_of_the_nodes_stands_in_the_log_of_a_finished_job(
    stage: Stage,
) -> None:
    begun = stage.jobs.job(JOB).created
    for place, (node, after, text) in enumerate(
        [("node02", 1, "Xid 79: lost"), ("node02", 120, "some seconds later")]
    ):
        one = Occurrence(begun + after, node, "event", Level.BAD, "gpu.xid", f"{place}", text)
        stage.fleet.event_log.restore([one])
    for node in range(1, 5):
        stage.tell(JOB, f"node{node:02}", "closed", at=begun + 5)
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("M")
        await shows(app, pilot, " node02: GPU 0: Xid 79: lost")
        await lacks(app, pilot, "some seconds later")


async def test_a_replay_shows_what_nodes_had_said_by_then_and_at_leads_there(
    stage: Stage,
) -> None:
    begun = stage.jobs.job(JOB).created
    told = [
        Occurrence(begun + 5, "node02", "event", Level.BAD, "gpu.xid", "0", "Xid 79"),
        Occurrence(begun + 9, "node02", "event", Level.BAD, "gpu.xid", "0", "Xid 31"),
    ]
    stage.fleet.event_log.restore(told)
    stage.jobs.set_clock(JOB, begun + 6)
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("M")
        await shows(app, pilot, " node02: GPU 0: Xid 79")
        assert "Xid 31" not in text_of(app)
        stage.jobs.set_clock(JOB, begun + 9.5)
        await shows(app, pilot, " node02: GPU 0: Xid 31")
        await pilot.press("at")
        await shows(app, pilot, "+0.0 s  GPU 0: Xid 31")
        await shows(app, pilot, "-4.0 s  GPU 0: Xid 79")


@pytest.mark.long
async def test_512_ranks_are_compared_in_turns_and_the_odd_one_is_named() -> None:
    stage = sample.fleet(64)[0]
    stage.start(JOB, 64, 8)
    for rank in range(512):
        text = "".join(f"step {n} loss 2.{n}\n" for n in range(60))
        stage.write(JOB, rank, text + ("" if rank == 77 else "barrier\n"), at=1_000.0)
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "512 ranks")
        await pilot.press("D")
        await shows(app, pilot, "511 of 512 like the majority")
        await shows(app, pilot, "1 rank, after 60 equal lines of out")


async def test_a_log_that_begins_anew_while_one_reads_further_up_is_shown_again(
    stage: Stage,
) -> None:
    log = stage.jobs.log(JOB, 0)
    log.add(Chunk(JOB, "node01", 0, "out", 5_000, 1.0, b"later\n" * 500))
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "later")
        app.screen.zoom(0)
        await pilot.press("up")
        await shows(app, pilot, "stopped, f follows")
        log.read.resume(None)
        await pilot.pause(0.3)
        log.add(Chunk(JOB, "node01", 0, "out", 0, 1.0, b"from the beginning\n"))
        await shows(app, pilot, "from the beginning")


COLLAPSED = """
 5                   ▏Traceback: OSError
 0-4,6-8,10-15       barrier reached
                     missing: 5,9
 all ranks
 all 16              hello from 0..15
 all 16        x12   step  11 loss 2.11
"""


@pytest.mark.parametrize("size", [(80, 24), (60, 15)])
async def test_collapsed_looks_as_it_did_when_somebody_looked(
    size: tuple[int, int],
) -> None:
    stage = sample.fleet(4)[0]
    stage.start(JOB, 4, 4)
    for rank in range(16):
        steps = "".join(f"step {n:3} loss 2.{n}\n" for n in range(12))
        stage.write(JOB, rank, f"hello from {rank}\n{steps}", at=1_000.0)
        if rank == 5:
            stage.write(JOB, rank, "Traceback: OSError\n", "err", at=1_001.0)
        elif rank != 9:
            stage.write(JOB, rank, "barrier reached\n", at=1_002.0)
    async with console(stage, size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "barrier")
        await pilot.press("c")
        await shows(app, pilot, COLLAPSED)


@pytest.mark.long
async def test_a_tile_says_how_long_its_rank_is_silent_also_where_all_are() -> None:
    stage, now = sample.fleet(4)[0], time.time()
    stage.start("quiet-1", 2, 2)
    for rank in range(4):
        stage.write("quiet-1", rank, "step 1\n", at=now - 48)
    for node in ("node01", "node02"):
        stage.jobs.apply(node_event("quiet-1", node, "now", now))
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job("quiet-1")
        for rank, node in enumerate(("node01", "node01", "node02", "node02")):
            await shows(app, pilot, f"{rank} {node} silent ")


async def test_a_tile_says_that_there_are_more_lines_where_only_the_end_was_fetched() -> None:
    stage = sample.fleet(4)[0]
    stage.start("long-1", 1, 2)
    stage.write("long-1", 0, "step 1\nstep 2\n")
    end = b"step 8\nstep 9\n"
    stage.jobs.apply(Chunk("long-1", "node01", 1, "out", 9_000, time.time(), end))
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job("long-1")
        await shows(app, pilot, "2 lines")
        await shows(app, pilot, "2+ lines")


async def test_several_bars_of_a_rank_are_live_rows_in_every_view(stage: Stage) -> None:
    stage.start(JOB, 1, 2)
    for rank in (0, 1):
        stage.write(JOB, rank, "start\n\x1b[?25lload  10%|#|\nfit   20%|##|")
        stage.write(JOB, rank, f"\r\x1b[2K\x1b[1A\x1b[2Kload  5{rank}%|###|\nfit   60%|####|")
    async with console(stage) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "│ start")
        rows = [line for line in text_of(app).splitlines() if "load" in line or "fit" in line]
        assert ["50%" in rows[0], "60%" in rows[1], len(rows)] == [True, True, 4]
        stage.write(JOB, 0, "\r\x1b[2K\x1b[1A\x1b[2Kload  70%|###|\nfit   60%|####|")
        await shows(app, pilot, "load  70%")
        await pilot.press("c")
        await shows(app, pilot, "2 of 2  fit  60%")
        await shows(app, pilot, "2 of 2  load  51 to 70%")
        await pilot.press("M")
        await shows(app, pilot, "(2 ranks: ")


async def test_all_bars_of_a_rank_are_below_its_lines_also_alone_and_merged(stage: Stage) -> None:
    stage.start(JOB, 1, 3)
    for rank in range(3):
        stage.write(JOB, rank, "start\n\x1b[?25lload  10%|#|\nfit   20%|##|")
        stage.write(JOB, rank, f"\r\x1b[2K\x1b[1A\x1b[2Kload  5{rank}%|###|\nfit   60%|####|")
    async with console(stage, (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "load  50%|###|")
        await pilot.press("enter")
        await shows(app, pilot, "following")
        rows = [row.strip() for row in text_of(app).splitlines()]
        at = rows.index("load  50%|###|")
        assert rows[at + 1] == "fit   60%|####|"
        stage.write(JOB, 0, "\r\x1b[2K\x1b[1A\x1b[2Kload  70%|###|\nfit   80%|####|")
        await shows(app, pilot, "load  70%|###|")
        await shows(app, pilot, "fit   80%|####|")
        await pilot.press("M")
        await shows(app, pilot, "load  51%|###|  (3 ranks: 51 to 70%)")
        await shows(app, pilot, "fit   60%|####|  (3 ranks: 60 to 80%)")
