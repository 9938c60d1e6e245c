"""A log of 1 GB on its node: time to its first screen, to a search result,
and the longest freeze of the screen.
"""

import asyncio
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.ui.test_screens import text_of
from textual.events import Key
from textual.pilot import Pilot

from benchmarks.log_ssh import demo
from benchmarks.result import MissingError, Result
from rankdeck.config.jobs import read_job
from rankdeck.config.user import UiSettings
from rankdeck.model.cluster import Cluster
from rankdeck.opening import open_cluster_session
from rankdeck.ui.app import RankdeckApp

SIZE = 1 << 30
NEEDLE = "the needle is here"
LIMIT = 60.0
JOB = """
job: big
launch: plain
nodes: 1
ranks_per_node: 1
command: [awk, 'BEGIN { for (i = 0; i < 80000; i++) print "step " i " of the job itself" }']
"""


def run() -> list[Result]:
    """Seconds from key to text, and the longest stall of the event loop in that time."""
    if shutil.which("less") is None:
        raise MissingError("less (apt-get install less)")
    with tempfile.TemporaryDirectory() as folder, demo(Path(folder)) as lab:
        return asyncio.run(_measure(Path(folder), lab))


async def _measure(folder: Path, lab: Cluster) -> list[Result]:
    file = folder / "big.yaml"
    file.write_text(JOB)
    async with open_cluster_session(lab, telemetry=False) as session:
        job = await session.control.launch(read_job(file))
        await asyncio.wait_for(session.following.finished(job), LIMIT)
        out = await asyncio.to_thread(_grow, folder, job)
        app = RankdeckApp(lab, UiSettings(theme_folders=()), session)
        async with app.run_test(size=(200, 50)) as pilot:
            stalls = Stalls()
            watcher = asyncio.create_task(stalls.watch())
            first = await _its_end(app, pilot, job)
            top = await _its_beginning(app, pilot)
            search = await _search(app, pilot)
            watcher.cancel()
        grep = await asyncio.to_thread(_wall, "grep", "-ci", NEEDLE, str(out))
        tail = await asyncio.to_thread(_wall, "less", "-n", "+G", "-E", str(out))
    return [
        Result(name="1 GB log, its end", value=first, unit="s", peer="less +G, here", peer_value=tail, budget=0.06, on_ratio=False),
        Result(name="1 GB log, its beginning", value=top, unit="s", budget=0.1, on_ratio=False),
        Result(name="1 GB log, search", value=search, unit="s", peer="grep -ci, here", peer_value=grep, budget=1.1, limit="bytes.lower() takes a byte at a time"),
        Result(name="1 GB log, longest stall", value=stalls.longest * 1000, unit="ms CPU", budget=20, on_ratio=False),
    ]  # fmt: skip


class Stalls:
    """The longest time that the event loop was busy with one callback."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        # CPU of this thread, not wall time: others use the machine too.
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - before)
            await asyncio.sleep(0.002)


def _grow(folder: Path, job: str) -> Path:
    """The file of the rank, with 1 GB more; the needle stands near the end."""
    (out,) = folder.glob(f"**/jobs/{job}/*/rank.0/out")
    block = b"".join(b"step %d loss 2.5 tok/s 11800 and so on\n" % n for n in range(25_000))
    with out.open("ab") as file:
        while file.tell() < SIZE:
            file.write(block)
        file.write(f"{NEEDLE}\n".encode() + block)
    return out


async def _until(app: RankdeckApp, pilot: Pilot[int], text: str) -> None:
    deadline = time.monotonic() + LIMIT
    while text not in text_of(app):
        if time.monotonic() > deadline:
            raise RuntimeError(f"`{text}` never came on the screen:\n{text_of(app)}")
        # Looking at the screen takes CPU time from the agent: not too often.
        await pilot.pause(0.02)


async def _its_end(app: RankdeckApp, pilot: Pilot[int], job: str) -> float:
    """Seconds from opening the job, of which nothing was read before, to its newest lines."""
    begin = time.monotonic()
    app.open_job(job)
    await _until(app, pilot, "so on")
    return time.monotonic() - begin


async def _its_beginning(app: RankdeckApp, pilot: Pilot[int]) -> float:
    """Seconds from the key that goes to the beginning to the text there."""
    await pilot.press("enter")
    await _until(app, pilot, "following")
    await asyncio.sleep(0.5)
    begin = time.monotonic()
    _press(app, "g")
    await _until(app, pilot, "step 0 of the job itself")
    return time.monotonic() - begin


async def _search(app: RankdeckApp, pilot: Pilot[int]) -> float:
    """Seconds from the last key of a search to the line that it found."""
    await pilot.press("slash", *"needle")
    begin = time.monotonic()
    _press(app, "enter")
    await asyncio.sleep(0.05)  # closes the prompt; keys go to the log again
    _press(app, "n")
    await _until(app, pilot, NEEDLE)
    return time.monotonic() - begin


def _press(app: RankdeckApp, key: str) -> None:
    """Send a key without waiting; `Pilot.press` waits up to a second for an idle process."""
    app.post_message(Key(key, key if len(key) == 1 else None))


def _wall(*argv: str) -> float:
    begin = time.monotonic()
    subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=LIMIT
    )
    return time.monotonic() - begin
