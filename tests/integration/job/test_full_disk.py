"""A node whose disk is full: the ranks wait, and "space again" is said when they really go on."""

import os
import selectors
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tinydisk import TinyDisk, tiny_disk

from rankdeck.rules.messages import explain_end
from rankdeck_agent.job.folder import Journal, all_events
from rankdeck_agent.job.logs import DiskFullError, Space, Stream, pipe_stream

from .conftest import Node, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LINES = 20_000
WRITES = f"import sys\nfor n in range({LINES}): sys.stdout.write(f'line {{n:060d}}\\n')"
NO_SPACE, SPACE = "no space left", "there is space again"


class TinyNode(Node):
    """A node whose state lies on the tiny disk."""

    def __init__(self, disk: TinyDisk) -> None:
        super().__init__("n1", disk.path / "state", tuple(disk.words()))
        self.disk = disk

    def folder(self, job: str) -> Path:
        return self.disk.seen / "state/jobs" / job / self.name

    def troubles(self, job: str) -> list[str]:
        return [event["text"] for event in self.events(job, "space")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TinyNode]:
    with tiny_disk(tmp_path / "disk", "size=2m") as disk:
        one = TinyNode(disk)
        yield one
        for job in one.jobs:
            one.cancel(job, 0.0)


def start(node: TinyNode, job: str) -> None:
    """A rank that writes more than the disk has, once the disk is full."""
    go = node.disk.path.parent / "go"
    wait = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    argv = [sys.executable, "-u", "-c", wait + WRITES]
    said = node.run(job, [0], [{"name": "rank 0", "argv": argv, "rank": 0}])
    assert said["ok"], said
    until(lambda: node.events(job, "started"))
    node.disk.fill()
    go.touch()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[TinyDisk, Journal, Space, Stream, int]]:
    """A stream that the full disk refuses; only the journal's reserve was given back."""
    with tiny_disk(tmp_path / "disk") as disk:
        journal = Journal(disk.seen / "events")
        assert journal.reserve()
        stream, end = pipe_stream(disk.seen / "out")
        os.set_blocking(end, False)
        selector = selectors.DefaultSelector()
        selector.register(stream.fd, selectors.EVENT_READ, stream)
        space = Space(disk.path, journal, selector)
        disk.fill()
        os.write(end, b"x" * 4096 * 8)
        with pytest.raises(DiskFullError):
            stream.drain(10.0)
        space.block(stream)
        yield disk, journal, space, stream, end


def said(disk: TinyDisk) -> list[bool]:
    """For each trouble in order whether it says that there is space."""
    events = all_events(disk.seen / "events")
    return [SPACE in event["text"] for event in events]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("size=1m", "No space left on device; make room there, then try again"),
        ("ro", "Read-only file system; mount it for writing, or name another folder"),
    ],
    ids=["full", "read-only"],
)
def test_a_job_that_cannot_be_kept_is_refused_with_what_to_do(tmp_path, options, why) -> None:
    with tiny_disk(tmp_path / "disk", options) as disk:
        if options != "ro":
            disk.fill()
        node = TinyNode(disk)
        said = node.run("refused", [0], [{"name": "r", "argv": ["true"], "rank": 0}])

        assert said["error"].startswith(f"{disk.path}")
        assert f"cannot be written: {why}" in said["error"]
        assert "Errno" not in said["error"]
        assert explain_end([said["error"]]), "the console does not know these words"


def test_the_room_of_the_reserve_is_not_taken_for_space(full) -> None:
    disk, _, space, stream, _ = full

    for _ in range(5):
        space.retry()

    assert space.waits(stream)
    assert said(disk) == [False]


def test_space_is_told_when_a_whole_period_refused_nothing(full) -> None:
    disk, _, space, stream, end = full
    disk.free()

    space.retry()
    assert (space.short, said(disk)) == (False, [False])
    os.write(end, b"y" * 100)
    stream.pump()
    space.retry()

    assert said(disk) == [False, True]
    assert (disk.seen / "out").read_bytes() == b"x" * 4096 * 8 + b"y" * 100


def _tried(folder: Path, times: int) -> None:
    """Wait until the supervisor has taken its reserve so often, or given it back."""
    seen: set[int] = set()
    until(lambda: seen.add(folder.stat().st_mtime_ns) or len(seen) > times, 40)


def test_with_space_again_nothing_was_lost_and_it_is_said_once(node: TinyNode) -> None:
    job = f"full-{os.getpid()}-{time.time_ns()}"
    start(node, job)
    until(lambda: any(NO_SPACE in text for text in node.troubles(job)))
    _tried(node.folder(job), 4)
    node.disk.remount("size=16m")

    node.closed(job, 40)

    words = [NO_SPACE in text for text in node.troubles(job)]
    assert words == [True, False], node.troubles(job)
    assert node.log(job, 0).count(b"\n") == LINES
