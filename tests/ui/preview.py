"""Open the console on made-up nodes and a chatty job: `python -m
tests.ui.preview [NODES] [THEME] [--ascii] [--patient]`.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator

from rankdeck.config.user import UiSettings
from rankdeck.ui import terminal
from rankdeck.ui.app import run_console
from tests.ui.support import sample
from tests.ui.support.stage import Stage, cluster_of

LINES = 20
"""That a rank writes at once, ten times a second."""
PARTS = 100
"""Of a second: neither agents nor ranks all speak at once."""


async def live(stage: Stage, simulation: sample.Simulation, job: str) -> None:
    """A second after the other, and lines here and there in between."""
    at, due = 40, time.monotonic()
    while True:
        for part in range(PARTS):
            simulation.step(part, PARTS)
            for rank in range(part % 10, 16, 10):
                sample.chat(stage, job, rank, at, LINES)
            at += LINES * (part % 10 == 9)
            due = max(due + 1 / PARTS, time.monotonic() - 1)
            await asyncio.sleep(max(due - time.monotonic(), 0))


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    theme = next((word for word in sys.argv[2:] if not word.startswith("-")), "")
    cluster = cluster_of(count, "preview")
    if "--patient" in sys.argv:
        # It must end by itself: on a busy machine that may come too late
        # for the alarm that ends it otherwise.
        terminal.LIMIT = 60.0

    @contextlib.asynccontextmanager
    async def open_session() -> AsyncGenerator[Stage]:
        stage, simulation = sample.fleet(count, cluster=cluster)
        job = sample.training_job(stage)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(live(stage, simulation, job))
            yield stage
            task.cancel()

    return run_console(
        lambda _: open_session(),
        UiSettings(theme=theme, ascii="--ascii" in sys.argv),
        cluster=cluster,
    )


if __name__ == "__main__":
    sys.exit(main())
