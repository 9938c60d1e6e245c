"""What fleet_ui measures, a process each: `python -m benchmarks.fleet_app deck|model|table NODES`."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator
from typing import ClassVar

from tests.ui.support import sample
from tests.ui.support.stage import Stage, cluster_of
from textual.app import App, ComposeResult
from textual.widgets import DataTable

from rankdeck.ui import columns, readings
from rankdeck.ui.app import run
from rankdeck.ui.settings import UiSettings

SHARES = 20
"""Parts of a second: agents do not all send at once."""
PAINT = 0.25
READY = "READY"


async def feed(simulation: sample.Simulation) -> None:
    """Every node's sample once a second, spread over it."""
    at, share = time.monotonic(), 0
    while True:
        simulation.share(share, SHARES)
        share = (share + 1) % SHARES
        at = max(at + 1 / SHARES, time.monotonic() - 1)
        await asyncio.sleep(max(at - time.monotonic(), 0))


async def model(stage: Stage, simulation: sample.Simulation) -> None:
    """What the console knows, judged at 4 Hz and shown to nobody."""
    sys.stdout.write(READY)
    sys.stdout.flush()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(feed(simulation))
        while True:
            for name in stage.fleet.take_changes():
                assert stage.fleet.node(name).health.level >= 0
            await asyncio.sleep(PAINT)


class Table(App[None]):
    """The peer: the same rows in Textual's own table."""

    BINDINGS: ClassVar = []

    def __init__(self, stage: Stage, simulation: sample.Simulation) -> None:
        super().__init__()
        self.stage, self.simulation = stage, simulation
        self.table: DataTable[str] = DataTable()

    def compose(self) -> ComposeResult:
        yield self.table

    def on_mount(self) -> None:
        for title in ("NODE", "STATE", *columns.BY_TITLE, "SEEN", "WHY"):
            self.table.add_column(title, key=title, width=9)
        for node in self.stage.fleet.nodes():
            self.table.add_row(
                node.name, *[""] * (len(columns.BY_TITLE) + 3), key=node.name
            )
        self.title = READY
        self.set_interval(PAINT, self.paint)
        self.run_worker(feed(self.simulation))

    def paint(self) -> None:
        for name in self.stage.fleet.take_changes():
            node = self.stage.fleet.node(name)
            self.table.update_cell(name, "STATE", node.health.level.word)
            for title, column in columns.BY_TITLE.items():
                self.table.update_cell(name, title, column.say(column.number(node)))
            self.table.update_cell(name, "SEEN", readings.seen(node))
            self.table.update_cell(name, "WHY", readings.why(node))


def deck(stage: Stage, simulation: sample.Simulation) -> None:
    """Ours, on its fleet screen."""

    @contextlib.asynccontextmanager
    async def open_session() -> AsyncGenerator[Stage]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(feed(simulation))
            yield stage
            task.cancel()

    run(open_session, UiSettings(theme_folders=()), cluster=stage.cluster)


def main() -> None:
    what, count = sys.argv[1], int(sys.argv[2])
    stage, simulation = sample.fleet(count, cluster=cluster_of(count))
    match what:
        case "deck":
            deck(stage, simulation)
        case "table":
            Table(stage, simulation).run()
        case _:
            asyncio.run(model(stage, simulation))


if __name__ == "__main__":
    main()
