"""Draw docs/rankdeck.svg: the real screen on the embedded cluster, with a job that failed.

Run: `.venv/bin/python -m tests.ui.picture` while `rankdeck demo up`. With a file of recorded pairs
(`../shared/data/acceptance/pairs/slow-transmit-n5.jsonl`) it draws docs/heatmap.svg instead: the
acceptance screen on what real iperf3 measured between namespace nodes.
"""

import asyncio
import json
import re
import sys
from functools import partial
from pathlib import Path

from rankdeck.config.clusters import read_cluster
from rankdeck.config.user import UiSettings
from rankdeck.demo.cluster import demo_status
from rankdeck.model.cluster import Cluster, Node
from rankdeck.opening import open_cluster_session
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.screens.job import JobScreen
from rankdeck.values import replace
from tests.support.acceptance_run import Port, judged, made_run, result
from tests.ui.support.stage import Stage

LIMIT = 40.0


async def draw() -> str:
    cluster = read_cluster(demo_status().file)
    app = RankdeckApp(cluster, UiSettings())
    app.open_with(partial(open_cluster_session, cluster))
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


async def draw_heat_map(recorded: str) -> str:
    rows = [json.loads(line) for line in recorded.splitlines()]
    results = tuple(
        result(
            row["client"], row["server"], row["mbit_received"] / 1000, round=row["round"], repeat=row["repeat"],
            seconds=row["seconds"], text=f"{row['mbit_received']} Mbit/s, {row['retransmits']} retransmits",
        )
        for row in rows
    )  # fmt: skip
    run = made_run(8)
    pairs = replace(run.plan.stages[1], note="", tests=len(results))
    plan = replace(run.plan, left_out={}, stages=(pairs,), notes=())
    view = replace(run.stages[1], plan=pairs, done=len(results))
    took = sum(
        max(r["seconds"] for r in rows if r["round"] == n) for n in {r["round"] for r in rows}
    )
    run = replace(
        run, id="slow-transmit", results=results, plan=plan, stages=(view,), ended=run.started + 4 * took,
        differing={}, identity={}, drift=(), changed="", baseline="",
    )  # fmt: skip
    stage = Stage(Cluster(name="lab", nodes=tuple(Node(name=node) for node in run.plan.nodes)))
    stage.acceptance = Port(current=judged(run))
    app = RankdeckApp(stage.cluster, UiSettings(), stage)
    async with app.run_test(size=(100, 18)) as pilot:
        await pilot.pause(0.5)
        await pilot.press("6", "e")
        await pilot.pause(0.5)
        return plain_fonts(app.export_screenshot(title="rankdeck"))


def plain_fonts(svg: str) -> str:
    """The picture with a font that everybody has, and no address to fetch one from."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    return svg.replace("<text ", '<text xml:space="preserve" ')


if __name__ == "__main__":
    if sys.argv[1:]:
        Path("docs/heatmap.svg").write_text(
            asyncio.run(draw_heat_map(Path(sys.argv[1]).read_text()))
        )
    else:
        Path("docs/rankdeck.svg").write_text(asyncio.run(draw()))
