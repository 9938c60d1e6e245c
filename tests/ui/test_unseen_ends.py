"""Jobs that end while the operator looks elsewhere are counted in the top bar until seen."""

import pytest

from tests.ui.support import scenes
from tests.ui.support.stage import Stage
from tests.ui.test_screens import console, shows, text_of, until

SHORT, LONG = "short-1121-150000-aaaa", "long-1121-150000-bbbb"


def running() -> Stage:
    """Two jobs of one rank, beside the training."""
    stage = scenes.training()
    for job in (SHORT, LONG):
        stage.start(job, 1, 1)
    return stage


def end(stage: Stage, job: str, code: int) -> None:
    stage.tell(job, "node01", "exited", rank=0, code=code, signal=None)
    stage.tell(job, "node01", "closed")


def bar(app) -> str:
    return text_of(app).splitlines()[0]


@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_ends_are_counted_by_how_they_ended_until_the_list_is_opened(size) -> None:
    stage = running()
    async with console(stage, size) as (app, pilot):
        await until(pilot, lambda: app.unseen_ends._open, "jobs that run")
        assert "2 Jobs  3 Launch" in bar(app)
        end(stage, SHORT, 0)
        end(stage, LONG, 3)
        await shows(app, pilot, "2 Jobs ✗1 ✓1  3 Launch")

        await pilot.press("2")

        await shows(app, pilot, "2 Jobs  3 Launch")


async def test_who_looks_at_a_job_has_seen_its_end_and_no_other() -> None:
    stage = running()
    async with console(stage, (200, 50)) as (app, pilot):
        await until(pilot, lambda: app.unseen_ends._open, "jobs that run")
        app.open_job(LONG)
        await shows(app, pilot, LONG)
        end(stage, SHORT, 0)
        end(stage, LONG, 3)

        await shows(app, pilot, "2 Jobs ✓1  3 Launch")
