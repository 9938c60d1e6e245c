"""What fleet_ui measures, a process each: `python -m benchmarks.fleet_app deck|table NODES FILE`.

FILE gets, once a second: clock, CPU seconds of everything, of
taking samples in, of judging; samples.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator
from math import inf
from pathlib import Path
from typing import Any, ClassVar, cast

from tests.ui.support import sample
from tests.ui.support.stage import Stage, cluster_of
from textual.app import App, ComposeResult
from textual.widgets import DataTable

import rankdeck.session
from benchmarks.publishers import CHECKS
from rankdeck.config.user import UiSettings
from rankdeck.state.fleet import Fleet
from rankdeck.ui import fleet_views, formatting
from rankdeck.ui.app import run_console
from rankdeck_agent.wire import HealthReport, Sample

assert rankdeck.session, "held in memory as in the real console"
WORK = rankdeck.session.WORK
SHARES = 20
"""Parts of a second in which different nodes send: agents do not all send at once."""
DIFFERENT = 50
"""Nodes with their own numbers; the others repeat them, because making
numbers would cost more than the rest.
"""
PAINT = 0.25


class Metered(Fleet):
    """The fleet, and the CPU seconds that judging took."""

    judging = 0.0

    def take_changes(self, seconds: float = inf) -> frozenset[str]:
        begin = time.thread_time()
        changed = super().take_changes(seconds)
        self.judging += time.thread_time() - begin
        return changed


class Feed:
    """Send every node's sample once a second, spread over the second."""

    def __init__(self, count: int, file: Path) -> None:
        self.stage, self._simulation = sample.fleet(count, cluster=cluster_of(count))
        self.fleet = Metered(self.stage.cluster)
        self.stage.fleet = self.fleet
        self._file = file
        self._seq = self._taken = 0
        self._taking = 0.0

    async def run(self) -> None:
        names = [node.name for node in self.stage.cluster.nodes]
        due = time.monotonic()
        while True:
            begin = time.thread_time()
            self._seq += 1
            made = [self._simulation.values(n, names[n]) for n in range(DIFFERENT)]
            self._taking += time.thread_time() - begin
            for share in range(SHARES):
                self._send(names, share, made)
                self.fleet.take_changes(WORK)
                due += 1 / SHARES
                await asyncio.sleep(max(due - time.monotonic(), 0))
            self._write()
            due = max(due, time.monotonic() - 1)

    def _write(self) -> None:
        now = (time.monotonic(), time.process_time(), self._taking)
        words = (*now, self.fleet.judging, self._taken)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(" ".join(map(str, words)))
        fresh.rename(self._file)

    def _send(self, names: list[str], share: int, made: list[sample.Values]) -> None:
        begin = time.thread_time()
        report = HealthReport(1e3 + self._seq, 0, 10.0, CHECKS, CHECKS)
        for place in range(share, len(names), SHARES):
            values = made[place % DIFFERENT]
            self.fleet.apply(names[place], Sample(self._seq, report.at, values, report=report))
            self._taken += 1
        self._taking += time.thread_time() - begin


class Table(App[None]):
    """The peer: the same rows in Textual's own table."""

    BINDINGS: ClassVar = []

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed, self.stage = feed, feed.stage
        self._changes = feed.fleet.follow()
        self.table: DataTable[str] = DataTable()

    def compose(self) -> ComposeResult:
        yield self.table

    def on_mount(self) -> None:
        for title in ("NODE", "STATE", *fleet_views.BY_TITLE, "SEEN", "WHY"):
            self.table.add_column(title, key=title, width=9)
        for node in self.stage.fleet.nodes():
            self.table.add_row(node.name, *[""] * (len(fleet_views.BY_TITLE) + 3), key=node.name)
        self.set_interval(PAINT, self.paint)
        self.run_worker(self.feed.run())

    def paint(self) -> None:
        for name in self._changes.take():
            node = self.stage.fleet.node(name)
            self.table.update_cell(name, "STATE", node.health.level.word)
            for title, column in fleet_views.BY_TITLE.items():
                self.table.update_cell(name, title, column.say(column.number(node)))
            self.table.update_cell(name, "SEEN", formatting.format_age(node.heard_s()))
            self.table.update_cell(name, "WHY", formatting.describe_worst_reason(node))


def deck(feed: Feed) -> None:
    """Ours, on its fleet screen."""

    @contextlib.asynccontextmanager
    async def open_session(_: object) -> AsyncGenerator[Stage]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(feed.run())
            yield feed.stage
            task.cancel()

    opener = cast("Any", open_session)
    run_console(opener, UiSettings(theme_folders=()), cluster=feed.stage.cluster)


def main() -> None:
    what, count, file = sys.argv[1:]
    feed = Feed(int(count), Path(file))
    if what == "deck":
        deck(feed)
    else:
        Table(feed).run()


if __name__ == "__main__":
    main()
