"""The acceptance screen: plan, map, sentences and raw outputs, at
every size and in every alphabet.
"""

import time
from pathlib import Path

import pytest

from rankdeck.acceptance.run import AcceptanceRun, RunState
from rankdeck.acceptance.values import Outcome
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.ui.app import RankdeckApp
from rankdeck.values import replace
from tests.support.acceptance_run import Port, healthy, made_run, names, result, slow_sender
from tests.ui.support.stage import Stage, cluster_of, plan_of
from tests.ui.test_screens import answered_yes, console, lacks, shows, text_of, type_in, until

LEAVES = {node: "AB"[number // 4] for number, node in enumerate(names(8))}
MAP = {
    (200, 50): """
 r1  done  accepted except n3 (not good), n99 (left out)  8 nodes  2 min 30 s
 single sysbench ok  pairs iperf3 ok
 n1 → n2: 9.44 Gb/s, 100% of the median: good  2 measurements  9.44 Gb/s
       n1       n2       n3       n4        n5       n6       n7       n8      iperf3     good ≥ 8.478 Gb/s      slow < 8.478 Gb/s   F  failed   ?  not measured
                                        │
 n1    –       9.44     9.40     9.43   │  9.46     9.42     9.45     9.41     Findings
                                        │                                        ▲ n3 sends at 5.68 Gb/s (others 9.42 Gb/s) with 7 of 7 partners: it receives at full speed: cable or optic of one
                                        │                                          direction, pause frames, duplex
                                        │                                        - swap the cable of n3 with that of n1, then `rankdeck accept n3,n1,n2,n4 --only pairs,confirm`
 n2   9.41      –       9.40     9.43   │  9.46     9.42     9.45     9.41       - n7→n1: suspected; u measures it again (iperf3)
                                        │                                        - changed since the baseline: driver 550.90 → 570.12 on n1
                                        │                                        - −6.0 % on 8 of 8
                                        │                                        - n2: its driver is 550.90, 7 of 8 have 570.12
 n3   5.65     5.66      –       5.66   │  5.68     5.65     5.67     5.65       - n99: busy: job 4711 of alice
      60%      60%               60%    │  60%      60%      60%      60%
                                        │                                      Odd pairs  9, and what measures each again
                                        │                                        n3 → n1: 5.646 Gb/s, 60% of the median: slow   rankdeck accept n3,n1 --only pairs
 n4   9.41     9.44     9.40      –     │  9.46     9.42     9.45     9.41       n3 → n2: 5.664 Gb/s, 60% of the median: slow   rankdeck accept n3,n2 --only pairs
                                        │                                        n3 → n4: 5.658 Gb/s, 60% of the median: slow   rankdeck accept n3,n4 --only pairs
                                        │                                        n3 → n5: 5.676 Gb/s, 60% of the median: slow   rankdeck accept n3,n5 --only pairs
                                                                                 n3 → n6: 5.652 Gb/s, 60% of the median: slow   rankdeck accept n3,n6 --only pairs
                                        │                                        n3 → n7: 5.67 Gb/s, 60% of the median: slow    rankdeck accept n3,n7 --only pairs
 n5   9.41     9.44     9.40     9.43   │   –        ?       9.45     9.41       n3 → n8: 5.646 Gb/s, 60% of the median: slow   rankdeck accept n3,n8 --only pairs
                                        │                                        n5 → n6: not measured                          rankdeck accept n5,n6 --only pairs
                                        │                                        n7 → n1: failed                                rankdeck accept n7,n1 --only pairs
                                        │
 n6   9.41     9.44     9.40     9.43   │  9.46      –       9.45     9.41
                                        │
""",
    (120, 40): """
      n1     n2     n3     n4      n5     n6     n7     n8     iperf3     good ≥ 8.478 Gb/s      slow < 8.478 Gb/s
                                │                               F  failed   ?  not measured
 n1   –     9.44   9.40   9.43  │ 9.46   9.42   9.45   9.41
                                │                              Findings
                                │                                ▲ n3 sends at 5.68 Gb/s (others 9.42 Gb/s) with 7 of
 n2  9.41    –     9.40   9.43  │ 9.46   9.42   9.45   9.41        7 partners: it receives at full speed: cable or
                                │                                  optic of one direction, pause frames, duplex
                                │                                - swap the cable of n3 with that of n1, then
 n3  5.65   5.66    –     5.66  │ 5.68   5.65   5.67   5.65        `rankdeck accept n3,n1,n2,n4 --only pairs,confirm`
     60%    60%           60%   │ 60%    60%    60%    60%       - n7→n1: suspected; u measures it again (iperf3)
                                │                                - changed since the baseline: driver 550.90 → 570.12
 n4  9.41   9.44   9.40    –    │ 9.46   9.42   9.45   9.41        on n1
                                │                                - −6.0 % on 8 of 8
                                                                 - n2: its driver is 550.90, 7 of 8 have 570.12
                                │                                - n99: busy: job 4711 of alice
 n5  9.41   9.44   9.40   9.43  │  –      ?     9.45   9.41
                                │                              Odd pairs  9, and what measures each again
                                │                                n3 → n1: 5.646 Gb/s, 60% of the median: slow
""",
    (80, 24): """
     n1 n2 n3 n4  n5 n6 n7 n8  iperf3  ·  good ≥ 8.478 Gb/s
 n1   –  ·  ·  ·│  ·  ·  ·  ·   62  slow < 8.478 Gb/s, % of the median
 n2   ·  –  ·  ·│  ·  ·  ·  ·   F  failed   ?  not measured
 n3  60 60  – 60│ 60 60 60 60
 n4   ·  ·  ·  –│  ·  ·  ·  ·  Findings
                                 ▲ n3 sends at 5.68 Gb/s (others 9.42 Gb/s)
 n5   ·  ·  ·  ·│  –  ?  ·  ·      with 7 of 7 partners: it receives at full
 n6   ·  ·  ·  ·│  ·  –  ·  ·      speed: cable or optic of one direction,
 n7   F  ·  ·  ·│  ·  ·  –  ·      pause frames, duplex
 n8   ·  ·  ·  ·│  ·  ·  ·  –    - swap the cable of n3 with that of n1, then
                                   `rankdeck accept n3,n1,n2,n4 --only
                                   pairs,confirm`
                                 - n7→n1: suspected; u measures it again
                                   (iperf3)
                                 - changed since the baseline: driver 550.90 →
                                   570.12 on n1
""",
}


def faulty(sender: str, receiver: str) -> float | None:
    """n3 sends slowly, one pair failed, one was not measured."""
    odd = {("n5", "n6"): None, ("n7", "n1"): -1.0}
    return odd.get((sender, receiver), slow_sender("n3")(sender, receiver))


def stage_of(*kept: AcceptanceRun, current: AcceptanceRun | None = None) -> tuple[Stage, Port]:
    stage = Stage(cluster_of(4))
    stage.acceptance = port = Port(*kept, current=current)
    return stage, port


def sick(count: int = 8, **more: object) -> AcceptanceRun:
    return made_run(count, faulty, LEAVES if count == 8 else None, **more)


def planned() -> AcceptanceRun:
    run = made_run(8)
    stages = tuple(replace(one, progress=RunState.PENDING, done=0) for one in run.stages)
    return replace(
        run, progress=RunState.PENDING, started=0.0, ended=0.0, results=(), verdicts=(), judgements={}, stages=stages
    )  # fmt: skip


async def opened(app: RankdeckApp, pilot, text: str = "n3") -> None:
    await pilot.press("6")
    await shows(app, pilot, text)


# ---- the map


@pytest.mark.parametrize("size", MAP)
async def test_the_map_and_its_sentences_stand_side_by_side(size: tuple[int, int]) -> None:
    stage, _ = stage_of(current=sick())
    async with console(stage, size) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        screen = text_of(app)

    assert MAP[size].strip("\n") in screen


async def test_in_ascii_and_without_colour_every_cell_says_the_same() -> None:
    stage, _ = stage_of(current=sick())
    async with console(stage, (80, 24), ascii=True, theme="mono") as (app, pilot):
        await opened(app, pilot, "n3 sends")
        screen = text_of(app)

    assert screen.isascii()
    assert "n3  60 60  - 60| 60 60 60 60" in screen
    assert "n5   .  .  .  .|  -  ?  .  ." in screen
    assert "n7   F  .  .  .|  .  .  -  ." in screen


@pytest.mark.long
async def test_64_nodes_have_a_cell_a_pair_at_80_columns() -> None:
    stage, _ = stage_of(current=made_run(64, slow_sender("n3")))
    async with console(stage, (80, 24)) as (app, pilot):
        await opened(app, pilot, "tenths of the median")
        rows = text_of(app).splitlines()

    row = next(one for one in rows if one.startswith("  n3 "))
    assert len(row[5:].rstrip()) == 64
    assert set(row[5:].rstrip()) == {"6", "–"}


@pytest.mark.long
async def test_above_64_nodes_each_has_a_cell_and_suspects_a_row() -> None:
    stage, _ = stage_of(current=made_run(140, slow_sender("n33")))
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n33 sends")
        rows = text_of(app).splitlines()

    assert " .......... .......... .......... ..S......." in "\n".join(rows)
    assert [one.split()[0] for one in rows if one.startswith(("n", " n"))][-1] == "n33"


@pytest.mark.long
async def test_the_map_fills_while_pairs_end() -> None:
    run = made_run(8)
    began = replace(run, progress=RunState.RUNNING, ended=0.0)
    first = result("n1", "n2", None, outcome=Outcome.RUNNING, text="")
    stage, port = stage_of(current=replace(began, results=(first,)))
    async with console(stage, (80, 24)) as (app, pilot):
        await opened(app, pilot, "*  running")
        assert "n1   –  *" in text_of(app)
        port.current = replace(began, results=(result("n1", "n2", 9.4), result("n2", "n1", 5.0)))
        await shows(app, pilot, "n2  53  –")

    assert healthy("n1", "n2")


async def test_the_cursor_says_what_is_under_it_and_goes_to_the_next_bad_cell() -> None:
    stage, _ = stage_of(current=sick())
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n1 → n2: 9.44 Gb/s")
        await pilot.press("down", "right")
        await shows(app, pilot, " n2 → n3: ")
        await pilot.press("e")
        await shows(app, pilot, " n3 → n1: 5.646 Gb/s, 60% of the median: slow")
        await pilot.press("G", "left", "left", "left", "up")
        await shows(app, pilot, " n7 → n1")
        await pilot.press("up", "up", "e")
        await shows(app, pilot, "n5 → n6: not measured")


@pytest.mark.long
async def test_a_map_larger_than_the_screen_follows_the_cursor() -> None:
    stage, _ = stage_of(current=made_run(64))
    async with console(stage, (60, 15)) as (app, pilot):
        await opened(app, pilot, "n1 ")
        assert "n64" not in text_of(app)
        await pilot.press("G")
        await shows(app, pilot, "n64 → ")
        assert any(row.startswith(" n64 ") for row in text_of(app).splitlines())


async def test_enter_shows_both_directions_with_commands_and_raw_outputs() -> None:
    stage, port = stage_of(current=sick())
    port.text = "first \x1b[2Jline\nlast line\n"
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("e", "enter")
        await shows(app, pilot, "$ ssh n3 iperf3 -c n1")
        screen = text_of(app)
        await pilot.press("escape")
        await shows(app, pilot, "n3 sends")

    assert "n3 → n1: 5.646 Gb/s" in screen
    assert "n1 → n3: 9.4" in screen
    assert screen.count("last line") == 2
    assert "job accept-n3" in screen


# ---- plan, start, stop, go on


async def test_without_a_run_the_screen_says_how_to_begin() -> None:
    stage, _ = stage_of()
    async with console(stage, (80, 24)) as (app, pilot):
        await opened(app, pilot, "no acceptance run yet: A asks the nodes")


@pytest.mark.long
async def test_a_plan_is_shown_whole_and_starts_only_after_a_question() -> None:
    stage, port = stage_of()
    port.planned = planned()
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "no acceptance run yet")
        await pilot.press("A")
        await type_in(pilot, "n")
        await pilot.press("1", "enter")
        await shows(app, pilot, "$ iperf3 -s -1 -p 5201")
        for text in ("about 2 min 48 s", "about 30 GiB over the network", "n99: busy", "TCP: no RDMA and no GPU"):  # fmt: skip
            assert text in text_of(app)
        await pilot.press("enter")
        await shows(app, pilot, "Start this acceptance run?")
        await pilot.press("escape")
        await lacks(app, pilot, "Start this acceptance run?")
        assert port.asked == [("plan", ("n1",))]
        await pilot.press("enter")
        await answered_yes(pilot)
        await until(pilot, lambda: ("start",) in port.asked, "not started")
        await shows(app, pilot, "running")


async def test_an_error_of_the_plan_is_said() -> None:
    stage, port = stage_of()
    port.trouble = LaunchError("plan", "no node answers")
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "no acceptance run yet")
        await pilot.press("A", "enter")
        await shows(app, pilot, "no node answers")


@pytest.mark.long
async def test_a_run_is_stopped_only_after_a_question() -> None:
    stage, port = stage_of(current=replace(sick(), progress=RunState.RUNNING))
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("x")
        await shows(app, pilot, "Stop this acceptance run?")
        await pilot.press("escape")
        await lacks(app, pilot, "Stop this acceptance run?")
        assert port.asked == []
        await pilot.press("x")
        await answered_yes(pilot)
        await shows(app, pilot, "nothing is left on any node")

    assert port.asked == [("stop",)]


async def test_a_stopped_run_goes_on_and_a_finished_one_does_not() -> None:
    run = sick()
    stage, port = stage_of(replace(run, id="r0", progress=RunState.STOPPED), run)
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "r0")
        await pilot.press("j", "U")
        await shows(app, pilot, "only a stopped run can be continued")
        await pilot.press("k", "U")
        await until(pilot, lambda: ("start",) in port.asked, "not started")

    assert port.asked == [("resume", "r0"), ("start",)]


async def test_a_kept_run_in_the_list_is_not_judged_without_its_results() -> None:
    stage, _ = stage_of(replace(sick(), answers={}, verdicts=(), results=()))
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "8 nodes; enter shows the outcome")
        assert "not accepted" not in text_of(app)


async def test_a_stopped_run_in_the_list_does_not_count_results_that_it_comes_without() -> None:
    stopped = replace(made_run(8), progress=RunState.STOPPED)
    stage, _ = stage_of(stopped)
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "stopped: 8 nodes, it can go on")
        screen = text_of(app)

    assert "0 measurements" not in screen


async def test_a_kept_run_is_opened_from_the_list_without_measuring() -> None:
    stage, port = stage_of(sick())
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "accepted except n3")
        await pilot.press("enter")
        await shows(app, pilot, "n3 sends")
        await pilot.press("escape")
        await lacks(app, pilot, "n3 sends")

    assert port.asked == [("open", "r1")]


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_a_pair_is_measured_again_after_a_question_that_shows_the_commands(size) -> None:
    stage, port = stage_of(current=sick())
    async with console(stage, size, ascii=size == (80, 24)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("e", "u")
        await shows(app, pilot, "Measure this again?")
        await shows(app, pilot, "iperf3: n3 ")
        await shows(app, pilot, "$ ssh n3 iperf3 -c n1")
        await pilot.press("escape")
        await lacks(app, pilot, "Measure this again?")
        assert port.asked == []
        await pilot.press("u")
        await answered_yes(pilot)
        await shows(app, pilot, "n1: measured again; accepted except n3")

    assert port.asked == [("again", ("n3", "n1"), "iperf3")]


@pytest.mark.long
async def test_a_node_is_measured_again_where_its_row_meets_its_column() -> None:
    stage, port = stage_of(current=sick())
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("e", "right", "right", "u")
        await shows(app, pilot, "sysbench: n3")
        for pair in ("iperf3: n3 – n1", "iperf3: n3 – n2"):
            await shows(app, pilot, pair)
        await pilot.press("y")
        await shows(app, pilot, "n3: measured again")

    assert port.asked == [("again", ("n3",), "iperf3")]


@pytest.mark.long
async def test_while_a_run_goes_on_a_pair_waits_for_the_end_of_its_round() -> None:
    stage, port = stage_of(sick(), current=replace(sick(), id="r2", progress=RunState.RUNNING))
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("e", "u")
        await shows(app, pilot, "Measured after the round that runs")
        await pilot.press("y")
        await shows(app, pilot, "n3 – n1: measured when this round has ended")
        await pilot.press("tab", "tab", "tab")
        await shows(app, pilot, "OUTCOME")
        await pilot.press("enter", "u")
        await shows(
            app, pilot, "another run is in progress: measure this one again when it has ended"
        )

    assert port.asked == [("again", ("n3", "n1"), "iperf3"), ("open", "r1")]


@pytest.mark.long
async def test_a_pair_of_a_kept_run_is_measured_again_and_an_error_is_said() -> None:
    stage, port = stage_of(sick())
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "accepted except n3")
        await pilot.press("enter")
        await shows(app, pilot, "n3 sends")
        await pilot.press("e", "u")
        await answered_yes(pilot)
        await shows(app, pilot, "n3 – n1: measured again")
        port.trouble = LaunchError("plan", "nothing was measured: n1: busy: train-1 runs there")
        await pilot.press("u")
        await answered_yes(pilot)
        await shows(app, pilot, "n1: busy: train-1 runs there")

    assert port.asked[:3] == [("open", "r1"), ("resume", "r1"), ("again", ("n3", "n1"), "iperf3")]


@pytest.mark.left_out("size0")
@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_jobs_are_kept_away_from_a_node_with_a_reason_for_a_while_and_let_back(size) -> None:
    stage, port = stage_of(current=sick())
    async with console(stage, size, ascii=size == (80, 24)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("e", "B")
        await shows(app, pilot, "7d n3 sends at")
        await pilot.press("ctrl+u")
        await type_in(pilot, "2d")
        await pilot.press("enter")
        await shows(app, pilot, "give a reason, for other users")
        await pilot.press("B", "ctrl+u")
        await type_in(pilot, "soon its cable")
        await pilot.press("enter")
        await until(pilot, lambda: not app.screen.prompt.display, "still asking")
        assert port.asked == []
        await pilot.press("B", "ctrl+u")
        await type_in(pilot, "2d its cable is being swapped")
        await pilot.press("enter")
        await shows(app, pilot, "n3: kept free of jobs for 2d; B again takes that back")
        await pilot.press("tab", "j", "j", "j")
        await shows(app, pilot, "n3: excluded until")
        await shows(app, pilot, "(run r1)")
        await pilot.press("tab", "tab", "tab", "B")
        await shows(app, pilot, "Let jobs run on this node again?")
        await pilot.press("y")
        await shows(app, pilot, "n3: jobs may run there again")
        await lacks(app, pilot, "n3: excluded until")

    why = "its cable is being swapped"
    assert port.asked == [("exclude", "n3", why, "r1"), ("readmit", "n3")]


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_on_the_page_of_a_pair_it_is_measured_again_and_jobs_are_kept_away(size) -> None:
    stage, port = stage_of(sick())
    async with console(stage, size) as (app, pilot):
        await opened(app, pilot, "accepted except n3")
        await pilot.press("enter")
        await shows(app, pilot, "n3 sends")
        await pilot.press("e", "enter")
        await shows(app, pilot, "tab next part")
        await pilot.press("u")
        await shows(app, pilot, "$ ssh n3 iperf3 -c n1")
        await pilot.press("y")
        await shows(app, pilot, "n3 – n1: measured again")
        await pilot.press("tab", "B")  # the way back: n1 sends
        await shows(app, pilot, "exclude n1")
        await pilot.press("ctrl+u")
        await type_in(pilot, "2d its cable is being swapped")
        await pilot.press("enter")
        await shows(app, pilot, "n1: kept free of jobs for 2d; B again takes that back")
        await pilot.press("B")
        await shows(app, pilot, "Let jobs run on this node again?")
        await pilot.press("y")
        await shows(app, pilot, "n1: jobs may run there again")
        await pilot.press("tab", "u")
        await shows(app, pilot, "iperf3: n3 – n1")
        await pilot.press("escape", "escape", "u")
        await answered_yes(pilot)
        await shows(app, pilot, "n3 – n1: measured again")

    again, why = ("again", ("n3", "n1"), "iperf3"), "its cable is being swapped"
    assert port.asked == [
        ("open", "r1"), ("resume", "r1"), again, ("exclude", "n1", why, "r1"), ("readmit", "n1"), again,
    ]  # fmt: skip


@pytest.mark.long
async def test_commands_and_outputs_of_a_pair_are_written_to_a_file(tmp_path: Path) -> None:
    stage, _ = stage_of(current=sick())
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("e", "enter")
        await shows(app, pilot, "$ ssh n3 iperf3 -c n1")
        await pilot.press("O")
        app.screen.prompt.value = str(tmp_path / "pair.txt")
        await pilot.press("enter")
        await shows(app, pilot, "pair.txt")

    written = (tmp_path / "pair.txt").read_text()
    for text in ("n3 → n1: 5.646 Gb/s", "$ ssh n1 iperf3 -c n3", "9.41 Gbits/sec"):
        assert text in written


@pytest.mark.long
async def test_reports_are_written_where_one_says(tmp_path: Path) -> None:
    stage, _ = stage_of(current=sick())
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("O")
        app.screen.prompt.value = str(tmp_path / "out")
        await pilot.press("enter")
        await shows(app, pilot, "open report.html")

    assert (tmp_path / "out/bad.txt").read_text() == "n3\n"


async def test_tab_goes_from_map_to_sentences_plan_and_runs() -> None:
    stage, _ = stage_of(sick(), current=sick())
    async with console(stage, (120, 40)) as (app, pilot):
        await opened(app, pilot, "n3 sends")
        await pilot.press("tab", "tab")
        await shows(app, pilot, "minutes")
        await pilot.press("tab")
        await shows(app, pilot, "OUTCOME")
        await pilot.press("tab")
        await shows(app, pilot, "n3 sends")


async def test_the_palette_and_the_command_line_lead_here() -> None:
    stage, _ = stage_of(current=sick())
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "acc")
        await pilot.press("enter")
        await shows(app, pilot, "n3 sends")


async def test_jobs_leaves_out_the_measurements_of_runs_and_the_filter_shows_them() -> None:
    made = Stage(Cluster(name="c", nodes=(Node(name="n1"),)))
    made.start("himeno-1")
    spec = JobSpec(name="accept", launch=Launch.PLAIN, command=("sh",), part_of="a1122-1")
    for number in range(3):
        plan = replace(plan_of(f"accept-{number}", 2, 1), name="accept", spec=spec)
        made.jobs.add(plan, time.time())
    async with console(made) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "himeno-1")
        await shows(app, pilot, "3 jobs of acceptance runs and studies are hidden")
        assert "accept-1" not in text_of(app)
        await type_in(pilot, "/a1122-1")
        await pilot.press("enter")
        await shows(app, pilot, "accept-1")
        assert "left out" not in text_of(app)


@pytest.mark.parametrize("size", [(200, 50), (120, 40), (80, 24)])
async def test_the_page_of_a_pair_cuts_no_line_while_it_has_empty_rows(
    size: tuple[int, int],
) -> None:
    stage = Stage(cluster_of(3))
    stage.acceptance = Port(current=made_run(8, slow_sender("n3")))
    async with console(stage, size) as (app, pilot):
        await pilot.press("6")
        await shows(app, pilot, "n3")
        await pilot.press("enter")
        await shows(app, pilot, "Commands")
        await lacks(app, pilot, "…")


async def test_a_number_in_a_cell_is_rounded_until_it_fits_and_never_cut() -> None:
    def slow(sender: str, receiver: str) -> float | None:
        return (slow_sender("n5")(sender, receiver) or 0.0) / 98.3

    stage, _ = stage_of(current=made_run(8, slow))
    async with console(stage, (100, 18)) as (app, pilot):
        await opened(app, pilot, "n5 sends")
        rows = text_of(app).splitlines()[4:13]

    assert sum(row.count("0.096") for row in rows) > 20
    assert not any("…" in row[:50] for row in rows)
