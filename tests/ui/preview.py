"""Open the console on made-up nodes and a chatty job: `python -m tests.ui.preview [NODES] [THEME]`."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator

from rankdeck.ui.app import run
from rankdeck.ui.settings import UiSettings
from tests.ui.support import sample
from tests.ui.support.stage import Stage, cluster_of

LINES_PER_TICK = 20


async def live(stage: Stage, simulation: sample.Simulation, job: str) -> None:
    """A second after the other, and a line here and there in between."""
    at = 40
    while True:
        for part in range(10):
            simulation.step(part, 10)
            await asyncio.sleep(0.1)
            for rank in range(16):
                sample.chat(stage, job, rank, at, LINES_PER_TICK)
            at += LINES_PER_TICK


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    theme = sys.argv[2] if len(sys.argv) > 2 else ""
    cluster = cluster_of(count, "preview")

    @contextlib.asynccontextmanager
    async def open_session() -> AsyncGenerator[Stage]:
        stage, simulation = sample.fleet(count, cluster=cluster)
        job = sample.training_job(stage)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(live(stage, simulation, job))
            yield stage
            task.cancel()

    return run(
        open_session,
        UiSettings(theme=theme, ascii="--ascii" in sys.argv),
        cluster=cluster,
    )


if __name__ == "__main__":
    sys.exit(main())
