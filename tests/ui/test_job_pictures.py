"""The job screen as it looked when somebody looked: who is in
trouble stands first, at every size.
"""

import re

import pytest

from tests.ui.support import scenes
from tests.ui.support.scenes import JOB
from tests.ui.test_screens import console, lacks, shows, text_of, until

SIZES = [(200, 50), (100, 30), (80, 24), (60, 15)]
WANDERING = (
    (re.compile(r"\d\d:\d\d:\d\d\.\d\d\d"), "HH:MM:SS.mmm"),
    (re.compile(r"\b1:[23]\d\b"), "1:2s"),
    (re.compile(r"silent \d\ds"), "silent SSs"),
)
FAILED = {
    (80, 24): """
 train-1121-143005-3f2a  ● running  1:2s  16 ranks: 4 running, …  page 1/3  [ ]
 first failure  rank 5 on node02, exit 1  HH:MM:SS.mmm ±5 ms  89 % sure
   11 ranks ended by it: 0-2,4,6,8-10,12-14  may still be corrected
   says    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50
           GiB.
   means   the GPU is out of memory
   try     a smaller batch; `nvidia-smi` shows who else is on that GPU
 ↓↓↓●↓✗↓●↓↓ ↓●↓↓↓●
╭━ ✗ 5 node02 exit 1  failed first ━━━━ ╭─ ↓ 0 node01 SIGTERM  ended by it ────
""",
    (60, 15): """
 train-1121-143005-3f2a  ● running  1:2s …    page 1/8  [ ]
 first failure  rank 5 on node02, exit 1  the GPU is out of…
 ↓↓↓●↓✗↓●↓↓ ↓●↓↓↓●
╭━ ✗ 5 node02 exit 1  failed first  34 lines ━━━━━━━━━━━━━━
""",
}
STUCK = {
    (80, 24): """
 train-1121-143005-3f2a  ● running  1:2s  16 ranks  node[01-04]   page 1/2  [ ]
 stalled  rank 6 is silent for 20 s; the 15 others go on
   means   one rank stands still
   try     look where it is, then at its node
 ●●●●●●▲●●● ●●●●●●
╭━ ▲ 6 node02 silent SSs  stalled ━━━━━ ╭─ ● 0 node01 running  32 lines ───────
""",
    (60, 15): """
 train-1121-143005-3f2a  ● running  1:2s …    page 1/8  [ ]
 stalled  rank 6 is silent for 20 s; the 15 others go on
 ●●●●●●▲●●● ●●●●●●
╭━ ▲ 6 node02 silent SSs  stalled  30 lines ━━━━━━━━━━━━━━
""",
}

LENS = """
 answer  15 in all_reduce (train.py:190), 1 in load_batch (train.py:88): rank 6
         on node02
 ●●●●●●▲●●● ●●●●●●

 rank 6  load_batch (train.py:88)  on node02
   load_batch  train.py:88
   main  train.py:181
   rank 6 node02 pid 4006  silent SSs, CPU 0%, sleeps in pipe_read  step
          300/1000  loss 1.1600  11800 tok/s  ok

 15 ranks 0-5,7-15  all_reduce (train.py:190)  on node[01-04]
   all_reduce  dist.py:2501
   main  train.py:190
   rank 0 node01 pid 4000  silent 1s, CPU 100%, runs  step   320/1000  loss
          1.1154  11800 tok/s  ok
   rank 1 node01 pid 4001  silent 1s, CPU 100%, runs  step   320/1000  loss
          1.1154  11800 tok/s  ok
   and 13 more
"""
COLLAPSED = """
 all 16 x31   step 300..320/1000  loss 1.1154..1.1600  11800 tok/s  ok
              rank 6: 300 (median 320)
"""
DIFFERENT = """
 6  1 rank, after 30 equal lines of out
       these nothing more
        most HH:MM:SS.mmm step   310/1000  loss 1.1373  11800 tok/s  ok
 0-5,7-15  15 of 16 like the majority
"""


def steady(screen: str) -> str:
    """The screen without what is another at every look."""
    for pattern, sign in WANDERING:
        screen = pattern.sub(sign, screen)
    return screen


@pytest.mark.parametrize("size", FAILED)
async def test_the_rank_that_failed_first_stands_first(size: tuple[int, int]) -> None:
    async with console(scenes.failing(), size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ✗ 5 node02 exit 1")

        assert FAILED[size].strip("\n") in steady(text_of(app))


@pytest.mark.parametrize("size", STUCK)
async def test_the_rank_that_stands_still_stands_first(size: tuple[int, int]) -> None:
    async with console(scenes.hanging(), size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ▲ 6 node02 silent")

        assert STUCK[size].strip("\n") in steady(text_of(app))


@pytest.mark.long
@pytest.mark.parametrize(("key", "picture"), [("i", LENS), ("c", COLLAPSED), ("D", DIFFERENT)])
async def test_each_view_names_the_rank_that_stands_still(key: str, picture: str) -> None:
    async with console(scenes.hanging(), (80, 24)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ▲ 6 node02 silent")
        await pilot.press(key)
        wanted = picture.strip("\n")
        await until(pilot, lambda: wanted in steady(text_of(app)), f"no `{wanted}`")


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
async def test_a_filter_a_search_and_a_mark_say_so_at_every_size(
    size: tuple[int, int],
) -> None:
    async with console(scenes.training(1, 1), size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ● 0 node01 running")
        await pilot.press("enter", "ampersand", *"20", "enter")
        await shows(app, pilot, "&20  6 of 30 lines")
        await pilot.press("slash", *"loss", "enter", "space")
        await shows(app, pilot, "/loss 6/6")
        await shows(app, pilot, "*step   280/1000")
        await pilot.press("slash", *"xx", "enter")
        await shows(app, pilot, "/xx no match")


async def test_of_512_ranks_the_one_that_stands_still_is_on_the_first_page() -> None:
    async with console(scenes.hanging(200, 64, 8), (60, 15)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ▲ 200 node26 silent")
        strip = next(line for line in text_of(app).splitlines() if "▲" in line)

        assert strip.count("▲") == 1


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES[2:])
@pytest.mark.parametrize("key", ["w", "c", "D", "M", "e", "i"])
async def test_no_line_of_any_view_is_wider_than_the_screen_or_cut_without_a_sign(
    size: tuple[int, int], key: str
) -> None:
    long = "x" * 300
    stage = scenes.failing()
    stage.write(JOB, 5, f"RuntimeError: {long}\n", "err")
    async with console(stage, size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "failed first")
        await pilot.press(key)
        await pilot.pause(0.3)
        lines = text_of(app).splitlines()

    assert len(lines) == size[1]
    for line in lines:
        assert len(line) <= size[0]
        assert not line.endswith("xxx"), line


@pytest.mark.long
async def test_while_lines_are_still_read_nobody_is_said_to_be_missing() -> None:
    stage = scenes.training(4, 4, steps=1500)
    seen: list[str] = []

    def all_read() -> bool:
        seen.append(text_of(app))
        return "16 ranks, 24,000 lines, 1 kind" in seen[-1]

    async with console(stage, (100, 30)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ● 0 node01 running")
        await pilot.press("c")
        await until(pilot, all_read, "not all was read")

    assert any("collapsed  reading 16 of 16 ranks" in screen for screen in seen)
    assert "reading" not in seen[-1]
    assert not any("nothing yet from" in screen for screen in seen)


async def test_nobody_is_compared_before_the_output_of_all_is_here() -> None:
    stage = scenes.training(4, 4, steps=20)
    for rank in range(16):
        stage.write(JOB, rank, "epoch 1\n" if rank not in (5, 9) else "")
    late = [stage.jobs.log(JOB, rank).read for rank in (5, 9)]
    for one in late:
        one.saw("out", one.at()["out"] + len("epoch 1\n"))
    async with console(stage, (100, 30)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ● 0 node01 running")
        await pilot.press("c")
        await shows(app, pilot, "collapsed  reading 14 of 16 ranks")
        assert "missing" not in text_of(app)
        assert "unlike" not in text_of(app)
        for rank in (5, 9):
            stage.write(JOB, rank, "epoch 1\n")
        await lacks(app, pilot, "reading")
        await shows(app, pilot, "all 16")
        assert "missing" not in text_of(app)


async def test_who_reads_the_merged_log_stays_there_when_a_rank_fails() -> None:
    stage = scenes.training()
    async with console(stage, (100, 30)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ● 0 node01 running")
        await pilot.press("M", "g")
        await shows(app, pilot, "stopped, f follows")
        stage.tell(JOB, "node02", "exited", rank=5, code=1, signal=None)
        await shows(app, pilot, "first failure  rank 5")
        await pilot.pause(0.3)

        assert "stopped, f follows" in text_of(app)
