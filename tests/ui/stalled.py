"""The console on a terminal, with a chatty job; tells what its
model knows, once a line comes on stdin.

Run by test_stopped_terminal.py: `python -m tests.ui.stalled
FILE`, the number of lines goes to FILE.
"""

import asyncio
import sys
from pathlib import Path

from rankdeck.config.user import UiSettings
from rankdeck.ui.app import RankdeckApp
from tests.ui.support import sample

LINES = 50
JOB = "chatty-1"


def tell(file: Path, text: str) -> None:
    """Who reads the file meanwhile has the last text or this one, never an empty file."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


async def chat(stage, app: RankdeckApp, file: Path) -> None:
    await asyncio.sleep(0.5)
    app.call_later(app.open_job, JOB)
    at = 0
    while True:
        for rank in range(16):
            sample.chat(stage, JOB, rank, at, LINES)
        at += LINES
        total = sum(stage.jobs.log(JOB, rank).total for rank in range(16))
        await asyncio.to_thread(tell, file, f"{at * 16} {total}")
        await asyncio.sleep(0.05)


async def main() -> None:
    stage, _ = sample.fleet(4)
    stage.start(JOB, 4, 4)
    stage.files = (Path(sys.argv[1]).with_name("job.yaml"),)
    app = RankdeckApp(stage.cluster, UiSettings(theme_folders=()), stage)
    talking = asyncio.create_task(chat(stage, app, Path(sys.argv[1])))
    await app.run_async()
    talking.cancel()


if __name__ == "__main__":
    asyncio.run(main())
