"""Draw docs/rankdeck.svg: the real screen on the embedded cluster, with a job that failed.

Run: `.venv/bin/python -m tests.ui.picture` while `rankdeck demo up`.
"""

import asyncio
import re
from functools import partial
from pathlib import Path

from rankdeck.config.clusters import read_cluster
from rankdeck.config.settings import UiSettings
from rankdeck.demo.cluster import status
from rankdeck.session import open_session
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.screens.job import JobScreen
from rankdeck.ui.session_protocol import Opening

LIMIT = 40.0


async def draw() -> str:
    cluster = read_cluster(status().file)
    app = RankdeckApp(Opening(cluster), UiSettings())
    app.open_with(partial(open_session, cluster))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause(4)
        await pilot.press("3", "j")
        await pilot.pause(1)
        await pilot.press("enter")
        async with asyncio.timeout(LIMIT):
            while not over(app):
                await pilot.pause(0.2)
        await pilot.pause(1)
        return plain_fonts(app.export_screenshot(title="rankdeck"))


def over(app: RankdeckApp) -> bool:
    """Whether the job that was started is on the screen, and has ended."""
    screen = app.screen
    return isinstance(screen, JobScreen) and screen.job is not None and screen.job.state.final


def plain_fonts(svg: str) -> str:
    """The picture with a font that everybody has, and no address to fetch one from."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    return svg.replace("<text ", '<text xml:space="preserve" ')


if __name__ == "__main__":
    Path("docs/rankdeck.svg").write_text(asyncio.run(draw()))
