"""A node on which jobs fail more often than on others: its own page, and the plan of a job."""

from pathlib import Path

import pytest

from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.rank import State
from rankdeck.ui.screens.node import NodeScreen
from tests.ui.support import sample
from tests.ui.support.stage import Stage, plan_of
from tests.ui.test_screens import console, lacks, shows, until

SIZES = [(200, 50), (80, 24)]


def ended(stage: Stage, number: int, lost: str) -> Job:
    names = [node.name for node in stage.cluster.nodes]
    plan = plan_of(f"solver-{number}", len(names), 1)
    failure = FirstFailure(what="node", rank=None, node=lost, exit_code=None, signal=None, at=float(number))  # fmt: skip
    state = State.FAILED if lost else State.DONE
    return Job(
        id=plan.job, name="solver", cluster=plan.cluster, plan=plan, state=state, ranks=(),
        created=float(number), ended=float(number), first_failure=failure if lost else None,
    )  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(sample.fleet(4)[0].cluster)
    (tmp_path / "hello.yaml").write_text("x")
    made.files = (tmp_path / "hello.yaml",)
    second = made.cluster.nodes[1].name
    for number in range(24):
        made.jobs.restore(ended(made, number, second if number < 4 else ""))
    return made


@pytest.mark.parametrize("size", SIZES)
async def test_the_page_of_the_node_has_its_record_and_that_of_another_has_none(
    stage: Stage, size: tuple[int, int]
) -> None:
    first, second, *_ = (node.name for node in stage.cluster.nodes)
    async with console(stage, size) as (app, pilot):
        app.push_screen(NodeScreen(second))
        await until(pilot, lambda: isinstance(app.screen, NodeScreen), "no node screen")
        await shows(app, pilot, "4 of 24 jobs failed there by its own fault")
        await shows(app, pilot, "leave it out")
        app.push_screen(NodeScreen(first))
        await lacks(app, pilot, "by its own fault")


@pytest.mark.parametrize("size", SIZES)
async def test_the_plan_of_a_job_on_it_says_so(stage: Stage, size: tuple[int, int]) -> None:
    second = stage.cluster.nodes[1].name
    stage.spec = JobSpec(name="hello", launch=Launch.PLAIN, command=("x",), nodes=4, ranks_per_node=1)  # fmt: skip
    async with console(stage, size) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, f"{second}  4 of 24 jobs failed there")
