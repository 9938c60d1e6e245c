"""The tour is walked by the keys that it names, on the real screens."""

import time
from pathlib import Path

import pytest

from rankdeck.model.job_spec import JobSpec
from rankdeck.ui.tour import DEMO, FILE, OVER, STEPS
from rankdeck.values import replace
from tests.ui.support import sample
from tests.ui.support.stage import Stage, cluster_of
from tests.ui.test_screens import console, shows, type_in

KEYS = {"enter": "enter", "esc": "escape"}


class Failing(Stage):
    """A stage on which what is launched fails."""

    async def launch(self, spec: JobSpec, tell=lambda _: None) -> str:
        self.start("fail-rank2-1", 2, 2)
        return "fail-rank2-1"

    def fail(self) -> None:
        now = time.time()
        for node, ranks in (("node01", (0, 1)), ("node02", (2, 3))):
            for rank in ranks:
                code, signal = (3, None) if rank == 2 else (None, 15)
                at = now + (rank != 2)
                self.tell("fail-rank2-1", node, "exited", at, rank=rank, code=code, signal=signal)
            self.tell("fail-rank2-1", node, "closed", now + 2)


@pytest.fixture
def stage(tmp_path: Path) -> Failing:
    made = Failing(replace(cluster_of(3), name=DEMO))
    sample.Simulation(made).step()
    files = [tmp_path / f"{name}.yaml" for name in ("chatty", FILE)]
    for file in files:
        file.write_text("x")
    made.files = tuple(files)
    return made


@pytest.mark.long
@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_the_ten_steps_are_done_by_the_keys_that_they_name(
    stage: Failing, size: tuple[int, int]
) -> None:
    async with console(stage, size) as (app, pilot):
        await pilot.press("question_mark", "t")
        for place, step in enumerate(STEPS, 1):
            await shows(app, pilot, f"tour {place} of {len(STEPS)}")
            await shows(app, pilot, step.why)
            for word in step.do.split():
                if word == "wait":
                    stage.fail()
                elif word in KEYS:
                    await pilot.press(KEYS[word])
                else:
                    await type_in(pilot, word)
        await shows(app, pilot, OVER[:70])
    assert len(STEPS) == 10


@pytest.mark.long
async def test_the_tour_is_ended_as_it_was_begun_and_only_the_demo_has_it(stage: Failing) -> None:
    async with console(stage, (120, 40)) as (app, pilot):
        await pilot.press("question_mark", "t")
        await shows(app, pilot, "tour 1 of")
        await pilot.press("question_mark", "t")
        await shows(app, pilot, "the tour is over")
    other = sample.fleet(3)[0]
    async with console(other, (120, 40)) as (app, pilot):
        await pilot.press("question_mark", "t")
        await shows(app, pilot, "it is for `rankdeck demo`")
