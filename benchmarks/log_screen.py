"""16 panes at 100,000 lines a second in a terminal: `python -m benchmarks.log_screen WHAT FILE`.

WHAT is `deck` (our job screen), `richlog` (16 of Textual's), or `decode` (no screen at all).
The CPU seconds and the lines of the measured time are written to FILE as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from rich.text import Text
from tests.ui.support.stage import Stage, cluster_of
from textual.app import App, ComposeResult
from textual.containers import Grid
from textual.widgets import RichLog

from rankdeck.backends.node_stream import NodeStream
from rankdeck.config.user import UiSettings
from rankdeck.model.rank_output import Chunk, Followed
from rankdeck.ui.app import RankdeckApp

JOB = "fanin-1"
RANKS, RATE, BEAT = 16, 100_000, 0.05
WARM, SECONDS = 2.0, 8.0
TURNS = 37
"""Different texts, so that every beat looks unlike the one before."""


class Feed:
    """The frames of one node's follower, as fast as the clock says."""

    def __init__(self, stage: Stage) -> None:
        node = stage.jobs.job(JOB).plan.nodes[0]
        self._stream = NodeStream(node, -1, stage.jobs.positions_of(JOB), "ssh")
        self._stream.watch(range(RANKS), None)
        self._offsets = [0] * RANKS
        each = int(RATE * BEAT / RANKS)
        self._texts = [[_text(turn, rank, each) for rank in range(RANKS)] for turn in range(TURNS)]
        self._beats = 0
        self.lines_per_beat = each * RANKS

    def beat(self) -> list[Followed]:
        """The lines of 50 ms, through the real parser."""
        at = time.time()
        parts: list[bytes] = []
        self._beats += 1
        for rank, text in enumerate(self._texts[self._beats % TURNS]):
            head = {
                "kind": "data",
                "r": rank,
                "s": "out",
                "o": self._offsets[rank],
                "n": len(text),
                "at": at,
            }
            parts += [json.dumps(head).encode(), b"\n", text]
            self._offsets[rank] += len(text)
        return self._stream.feed(b"".join(parts))


def _text(turn: int, rank: int, lines: int) -> bytes:
    return "".join(
        f"step {turn * lines + n:6}  loss {2.3 / (1 + n + turn / 9):.4f}  {11_800 + n} tok/s  rank {rank}\n"
        for n in range(lines)
    ).encode()


async def pour(stage: Stage, file: Path, take: Callable[[Followed], object]) -> None:
    """Feed lines at the wanted rate and record the cost."""
    feed = Feed(stage)
    loop = asyncio.get_running_loop()
    begin, beats, cpu, first, start = loop.time(), 0, 0.0, 0, 0.0
    while (gone := loop.time() - begin) < WARM + SECONDS:
        if gone >= WARM and not first:
            first, cpu, start = beats, time.process_time(), gone
        # A program that cannot keep up gets one beat after the other,
        # and is judged by what it handled.
        if beats * BEAT < gone:
            for item in feed.beat():
                take(item)
            beats += 1
        await asyncio.sleep(max(beats * BEAT - (loop.time() - begin), 0.001))
    spent = time.process_time() - cpu
    lines = (beats - first) * feed.lines_per_beat
    told = {"cpu": spent / (gone - start), "rate": lines / (gone - start), "seconds": gone}
    await asyncio.to_thread(file.write_text, json.dumps(told))


async def decode(stage: Stage, file: Path) -> None:
    await pour(stage, file, stage.jobs.apply)


async def deck(stage: Stage, file: Path) -> None:
    app = RankdeckApp(stage.cluster, UiSettings(theme_folders=()), cast("Any", stage))

    async def work() -> None:
        await asyncio.sleep(1.0)
        app.call_later(app.open_job, JOB)
        await pour(stage, file, stage.jobs.apply)
        app.exit(0)

    await asyncio.gather(app.run_async(), work())


class Panes(App[int]):
    """The peer: what a developer would write without us."""

    CSS = "Grid { grid-size: 4 4; }"

    def __init__(self) -> None:
        super().__init__()
        self.logs = [RichLog(max_lines=10_000) for _ in range(RANKS)]

    def compose(self) -> ComposeResult:
        yield Grid(*self.logs)


async def richlog(stage: Stage, file: Path) -> None:
    app = Panes()

    def take(item: Followed) -> None:
        if isinstance(item, Chunk):
            for line in item.data.decode().splitlines():
                app.logs[item.rank].write(Text(line))

    async def work() -> None:
        await asyncio.sleep(1.0)
        await pour(stage, file, take)
        app.exit(0)

    await asyncio.gather(app.run_async(), work())


WHATS: dict[str, Callable[[Stage, Path], Awaitable[None]]] = {
    "deck": deck,
    "richlog": richlog,
    "decode": decode,
}


def main() -> None:
    stage = Stage(cluster_of(2))
    stage.start(JOB, 1, RANKS)
    what: Callable[[Stage, Path], Awaitable[None]] = WHATS[sys.argv[1]]

    async def run() -> None:
        await what(stage, Path(sys.argv[2]))

    asyncio.run(run())


if __name__ == "__main__":
    main()
