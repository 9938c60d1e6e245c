"""The processes of nodes and the rank table of a job, at three sizes."""

import re

import pytest

from rankdeck.model.process import NodeProcess
from rankdeck.ui.screens import processes
from tests.ui.support import sample, scenes
from tests.ui.support.stage import Stage
from tests.ui.test_screens import console, lacks, shows, text_of, type_in, until

SIZES = [(200, 50), (120, 40), (80, 24)]
MIB = 1 << 20


def process(pid: int, node: str = "node01", **more) -> NodeProcess:
    return NodeProcess(
        node=node, pid=pid, start=1, **{"user": "ml", "state": "S", "read": 0, "write": 0, **more}
    )


@pytest.fixture
def stage() -> Stage:
    stage = sample.fleet(2)[0]
    stage.running = [
        process(4242, command="python train.py", cpu=7.9, rss=9000 * MIB, gpus={"0": 70 << 30}),
        process(77, command="sshd: ml", user="root", rss=5 * MIB),
        process(88, "node02", command="md5sum big", cpu=0.97, rss=2 * MIB, state="R"),
    ]
    return stage


@pytest.mark.parametrize("size", SIZES)
async def test_the_busiest_process_is_first(stage: Stage, size: tuple[int, int]) -> None:
    async with console(stage, size) as (app, pilot):
        await pilot.press("o", "g", "h")
        await shows(app, pilot, "2 processes on node01   by CPU")
        rows = [line.split() for line in text_of(app).splitlines() if "node01 " in line][1:]

    assert [row[1] for row in rows] == ["4242", "77"]
    assert "790%" in rows[0]
    assert "8.8G" in rows[0]


async def test_processes_are_sorted_and_filtered(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("asterisk", "h")
        await shows(app, pilot, "3 processes on node[01-02]")
        await pilot.press("slash")
        await type_in(pilot, "md5")
        await pilot.press("enter")
        await shows(app, pilot, "1 process on node[01-02]")
        await shows(app, pilot, "filter md5")
        await lacks(app, pilot, "train.py")
        await pilot.press("escape")
        await shows(app, pilot, "3 processes")
        await pilot.press("o")
        await shows(app, pilot, "by RSS")
        await pilot.press("I")
        await shows(app, pilot, "by RSS reversed")
        assert app.screen.table.rows[0].startswith("node02 88")


async def test_marked_nodes_are_looked_at_together(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("asterisk", "h")
        await shows(app, pilot, "md5sum big")
        await shows(app, pilot, "python train.py")


@pytest.mark.long
async def test_a_signal_is_sent_after_a_question_that_names_what_it_hits(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "h")
        await shows(app, pilot, "python train.py")
        await pilot.press("X", "enter")
        await shows(app, pilot, "Send TERM to 1 process?")
        await shows(app, pilot, "node01 4242  ml  python train.py")
        await pilot.press("escape")
        await lacks(app, pilot, "Send TERM")
        assert stage.signalled == []
        await pilot.press("X", "ctrl+u")
        await type_in(pilot, "sigkill")
        await pilot.press("enter")
        await shows(app, pilot, "Send KILL to 1 process?")
        await pilot.press("y")
        await until(pilot, lambda: stage.signalled, "nothing sent")

    assert stage.signalled == [("KILL", (4242,))]


async def test_a_word_that_is_no_signal_is_refused(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "h")
        await shows(app, pilot, "python train.py")
        await pilot.press("X", "ctrl+u")
        await type_in(pilot, "BANG")
        await pilot.press("enter")
        await shows(app, pilot, "no signal `BANG`")


async def test_a_node_that_does_not_tell_is_named(stage: Stage) -> None:
    stage.not_asked = {"node02": "does not answer"}
    async with console(stage) as (app, pilot):
        await pilot.press("asterisk", "h")
        await shows(app, pilot, "not asked: node02")


PICTURES = {
    (200, 50): """
 16 ranks on node[01-04]   train-1121-143005-3f2a   by RANK
 RANK↓  NODE             PID  STATE           CPU     RSS  GPU     USE   GMEM   POWER      I/O      LINES  LINES/S     STEP  S/STEP  SILENT  LAST LINE
▸    0  node01           100  ● R             99%    1.0G  0       61%    60G    243W     0B/s         32        –      320  0.0645 SIL  step   320/1000  loss 1.1154  11800 tok/s  ok
     1  node01           101  ● R             99%    1.0G  1       68%    60G    265W     0B/s         32        –      320  0.0645 SIL  step   320/1000  loss 1.1154  11800 tok/s  ok
     2  node01           102  ● R             99%    1.0G  2       64%    60G    251W     0B/s         32        –      320  0.0645 SIL  step   320/1000  loss 1.1154  11800 tok/s  ok
     3  node01           103  ● R             99%    1.0G  3       61%    60G    242W     0B/s         32        –      320  0.0645 SIL  step   320/1000  loss 1.1154  11800 tok/s  ok
     4  node02           104  ● R             99%    1.0G  0      100%    60G    360W     0B/s         32        –      320  0.0645 SIL  step   320/1000  loss 1.1154  11800 tok/s  ok
     5  node02           105  ● R             99%    1.0G  1       96%    60G    347W     0B/s         32        –      320  0.0645 SIL  step   320/1000  loss 1.1154  11800 tok/s  ok
     6  node02           106  ▲ S             ▲0%    1.0G  2       99%    60G    356W     0B/s         30        –      300       – ▲SIL  step   300/1000  loss 1.1600  11800 tok/s  ok
""",
    (120, 40): """
 16 ranks on node[01-04]   train-1121-143005-3f2a   by RANK
 RANK↓  NODE             PID  STATE          CPU     RSS  GPU     USE   GMEM      I/O  LINES/S     STEP  S/STEP  SILENT
▸    0  node01           100  ● R            99%    1.0G  0       61%    60G     0B/s        –      320  0.0645 SIL
     1  node01           101  ● R            99%    1.0G  1       68%    60G     0B/s        –      320  0.0645 SIL
     2  node01           102  ● R            99%    1.0G  2       64%    60G     0B/s        –      320  0.0645 SIL
     3  node01           103  ● R            99%    1.0G  3       61%    60G     0B/s        –      320  0.0645 SIL
     4  node02           104  ● R            99%    1.0G  0      100%    60G     0B/s        –      320  0.0645 SIL
     5  node02           105  ● R            99%    1.0G  1       96%    60G     0B/s        –      320  0.0645 SIL
     6  node02           106  ▲ S            ▲0%    1.0G  2       99%    60G     0B/s        –      300       – ▲SIL
""",
    (80, 24): """
 16 ranks on node[01-04]   train-1121-143005-3f2a   by RANK
 RANK↓  NODE        STATE          CPU     RSS    USE     STEP  S/STEP  SILENT
▸    0  node01      ● R            99%    1.0G    61%      320  0.0645 SIL
     1  node01      ● R            99%    1.0G    68%      320  0.0645 SIL
     2  node01      ● R            99%    1.0G    64%      320  0.0645 SIL
     3  node01      ● R            99%    1.0G    61%      320  0.0645 SIL
     4  node02      ● R            99%    1.0G   100%      320  0.0645 SIL
     5  node02      ● R            99%    1.0G    96%      320  0.0645 SIL
     6  node02      ▲ S            ▲0%    1.0G    99%      300       – ▲SIL
""",
}


def steady(text: str) -> str:
    """Seconds of silence pass."""
    return re.sub(r" +(▲?)\d+[sm]( |$)", r" \1SIL\2", text, flags=re.MULTILINE)


def with_processes() -> Stage:
    stage = scenes.hanging()
    for rank in range(16):
        name = f"node{rank // 4 + 1:02}"
        stuck = rank == 6
        stage.running.append(
            process(
                100 + rank,
                name,
                job=scenes.JOB,
                state="S" if stuck else "R",
                rss=1024 * MIB,
                cpu=0.0 if stuck else 0.99,
                gpus={str(rank % 4): 60 << 30},
            )
        )
    return stage


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
async def test_the_rank_that_is_unlike_the_others_stands_out(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One look: a second one counts the lines since the first.
    monkeypatch.setattr(processes, "PERIOD", 3600.0)
    stage = with_processes()
    async with console(stage, size) as (app, pilot):
        app.open_job(scenes.JOB)
        await shows(app, pilot, "6 node02 silent")
        await pilot.press("h")
        await shows(app, pilot, "16 ranks on node[01-04]")
        await shows(app, pilot, "▲0%")
        wanted = PICTURES[size].strip("\n")
        await until(pilot, lambda: wanted in steady(text_of(app)), f"no `{wanted}`")


@pytest.mark.long
async def test_the_rank_that_writes_no_more_stands_out_by_its_lines_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "PERIOD", 0.2)
    stage = with_processes()
    async with console(stage, (200, 50)) as (app, pilot):
        app.open_job(scenes.JOB)
        await pilot.press("h")
        await shows(app, pilot, "16 ranks on node[01-04]")
        table = app.screen.table

        def written(rank: int) -> str:
            runs = table.whole(str(rank)) if table.rows else ()
            return dict(runs).get("LINES/S", "")

        await until(pilot, lambda: written(6) == "0", "no second look")
        for rank in range(16):
            if rank != 6:
                stage.write(scenes.JOB, rank, "a line\n" * 100)
        await until(pilot, lambda: written(6) == "▲0", "rank 6 does not stand out")
        assert all(written(rank).strip("–0▲") for rank in range(16) if rank != 6)


@pytest.mark.parametrize(
    ("looks", "rate"),
    [
        ([], None),
        ([(5.0, {0: 10})], None),
        ([(5.0, {0: 10}), (5.0, {0: 20})], None),
        ([(5.0, {0: 10}), (7.0, {0: 20})], 5.0),
        ([(5.0, {0: 10}), (7.0, {0: 20}), (9.0, {0: 30})], 5.0),
        ([(5.0, {0: 10}), (7.0, {0: 4})], 0.0),
        ([(5.0, {}), (7.0, {0: 4})], None),
    ],
)
def test_lines_are_counted_from_the_first_look_to_the_last(looks, rate: float | None) -> None:
    assert processes.lines_per_second(looks, 0) == rate
