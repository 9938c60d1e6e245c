"""The swap proof on screen: one key shows its plan and asks, then how far it is, then stops it."""

from rankdeck.values import replace
from tests.support.swap_proof import ended_swap, of_rank
from tests.ui.support import scenes
from tests.ui.test_screens import command, console, shows, until


async def test_one_key_shows_the_plan_and_starts_only_after_a_yes() -> None:
    stage = scenes.failing()
    stage.swaps.after = ended_swap()
    async with console(stage) as (app, pilot):
        await pilot.press("2", "Z")
        await shows(app, pilot, "Is it the program or the node?")
        await shows(app, pilot, "run 2, without n2: ranks 0-2 on n1, 3-5 on n3")
        await pilot.press("enter")
        assert stage.swaps.started == 0
        await pilot.press("Z")
        await shows(app, pilot, "Start up to 4 runs")
        await pilot.press("y")
        await shows(app, pilot, "the node: n2")
        await shows(app, pilot, "run 2 (without n2): it went well")
        assert stage.swaps.started == 1
        assert {job for job, _ in stage.swaps.planned} == {scenes.JOB}


async def test_the_same_key_shows_how_far_it_is_and_stops_it() -> None:
    stage = scenes.hanging()
    swap = replace(ended_swap(of_rank(3), (1,)), ended=0.0, going=True, running=2)
    stage.swaps.current = swap
    async with console(stage) as (app, pilot):
        app.open_job(scenes.JOB)
        await pilot.press("Z")
        await shows(app, pilot, "run 2 of at most 4")
        await shows(app, pilot, "run 1 (ranks moved): rank 3 failed on n3")
        await pilot.press("y")
        await shows(app, pilot, "stopped; nothing is left on any node")
        assert stage.swaps.stopped == 1


async def test_a_job_without_a_swap_proof_says_why_and_a_span_limits_the_runs() -> None:
    stage = scenes.failing()
    stage.swaps.refused = "train-1 ended well: there is no fault to look for"
    async with console(stage) as (app, pilot):
        await pilot.press("2", "Z")
        await shows(app, pilot, "there is no fault to look for")
        stage.swaps.refused = ""
        await command(pilot, "swap 2h")
        await until(pilot, lambda: stage.swaps.planned == [(scenes.JOB, 7200.0)], "not planned")
        await pilot.press("escape")
        await command(pilot, "swap soon")
        await shows(app, pilot, "soon")
        assert len(stage.swaps.planned) == 1
