"""A container's log on disk: no line lost and none doubled, whenever the keeper is killed."""

import json
import os
import queue
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.schedulers.kubernetes import container_log
from rankdeck_agent.schedulers.kubernetes.api import Api
from rankdeck_agent.schedulers.kubernetes.container_log import (
    ContainerLog,
    LogFollower,
    LogReceiver,
    LogSource,
    Turns,
    record_rank_moment,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import ApiError


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return made(tmp_path)


def made(path: Path, ranks: int = 2) -> RunFolder:
    for rank in range(ranks):
        (path / f"rank.{rank}").mkdir()
    return RunFolder(path, "j", "n")


def log_of(folder: RunFolder, ranks=(0, 1), said=None, told=None, name="c1") -> ContainerLog:
    said, told = [] if said is None else said, [] if told is None else told
    return ContainerLog(
        folder, name, ranks, LogReceiver(said.append, lambda p, at: told.append((p, at)))
    )


def stamp(number: int) -> bytes:
    return b"2026-11-21T11:16:%02d.%09dZ " % (19 + number // 5, number % 5)


def test_ranks_and_streams_have_files_and_the_rest_is_passed_on(folder: RunFolder) -> None:
    said, told = [], []
    log = log_of(folder, said=said, told=told)
    lines = (
        b"[rank 0 start] h",
        b"[rank 0 out] a",
        b"[rank 1 err] b",
        b"mpirun",
        b"[rank 9 out] x",
    )
    for number, line in enumerate(lines):
        log.line(stamp(number) + line)
    log.close()

    assert (folder.place(0) / "out").read_bytes() == b"a\n"
    assert (folder.place(1) / "err").read_bytes() == b"b\n"
    assert said == [b"mpirun\n", b"x\n"]
    assert [(p.rank, p.what, at) for p, at in told] == [(0, "start", 1795259779.0)]


def test_a_pod_without_marks_is_the_rank(folder: RunFolder) -> None:
    log = log_of(folder, ranks=(1,))
    log.line(stamp(0) + b"synthetic")
    log.close()

    assert (folder.place(1) / "out").read_bytes() == b"synthetic\n"


def test_a_second_container_goes_on_after_the_first(folder: RunFolder) -> None:
    for name in ("c1", "c2"):
        log = log_of(folder, name=name)
        log.line(stamp(0) + b"[rank 0 out] " + name.encode())
        log.close()

    assert (folder.place(0) / "out").read_bytes() == b"c1\nc2\n"


LINES = [
    b"[rank %d %s] text %d" % (n % 2, (b"out", b"err")[n % 3 == 0], n)
    if n % 4
    else b"[rank 0 out] part[rank 1 out] whole %d" % n
    for n in range(40)
]


def tear(folder: RunFolder) -> None:
    """As after a loss of power: of the place that was saved last only a part is on disk."""
    slots = sorted(
        (folder / "kubernetes").iterdir(), key=lambda file: json.loads(file.read_text())["turn"]
    )
    if len(slots) == 2:
        slots[-1].write_bytes(slots[-1].read_bytes()[:20])


def read_until(folder: RunFolder, last: int, saves: set[int]) -> None:
    """Go on with the log up to a line, then be killed: nothing is saved nor closed at the end."""
    log = log_of(folder)
    since = log.place.since.encode()
    for number, line in enumerate(LINES[:last]):
        if stamp(number)[:19] >= since[:19]:
            log.line(stamp(number) + line)
        if number in saves:
            log.save()
    # The kernel closes them with the process.
    for fd in log._files.values():
        os.close(fd)


@given(
    killed=st.lists(st.integers(0, 39), max_size=4),
    saves=st.sets(st.integers(0, 39)),
    torn=st.booleans(),
)
def test_a_keeper_that_is_killed_anywhere_loses_and_doubles_nothing(
    tmp_path_factory: pytest.TempPathFactory, killed: list[int], saves: set[int], torn: bool
) -> None:
    whole = made(tmp_path_factory.mktemp("whole"))
    reference = log_of(whole)
    for number, line in enumerate(LINES):
        reference.line(stamp(number) + line)
    reference.close()

    folder = made(tmp_path_factory.mktemp("killed"))
    for last in [*sorted(killed), len(LINES)]:
        read_until(folder, last, saves)
        if torn:
            tear(folder)

    for rank in (0, 1):
        for stream in ("out", "err"):
            kept = folder.place(rank) / stream
            assert kept.read_bytes() == (whole.place(rank) / stream).read_bytes()


def test_only_the_first_word_on_a_rank_counts(folder: RunFolder) -> None:
    assert record_rank_moment(folder, 0, "exit", "3", 1000.5)
    assert not record_rank_moment(folder, 0, "exit", "0", 2000.0)
    assert not record_rank_moment(folder, 7, "exit", "0", None)
    assert (folder.place(0) / "exit").read_text() == "3\n"
    assert (folder.place(0) / "exit").stat().st_mtime == 1000.5


GONE = b"unable to retrieve container logs for containerd://" + b"ab" * 32


@pytest.mark.parametrize("before", [b"", b"2026-11-30T08:00:00.1Z a"])
def test_what_the_node_says_in_place_of_a_log_is_no_output_of_the_rank(
    folder: RunFolder, before: bytes
) -> None:
    log = log_of(folder, (0,), name=f"pod-uid.containerd://{'ab' * 32}")

    assert all(log.line(line) for line in (before,) if line)
    assert log.line(GONE) is False
    assert log.line(b"2026-11-30T08:00:00.2Z about containerd://" + b"ab" * 32) is True
    log.close()
    assert b"unable" not in (folder.place(0) / "out").read_bytes()


def test_lines_of_a_server_that_stamps_none_are_kept(folder: RunFolder) -> None:
    log = log_of(folder, (0,), name=f"pod-uid.containerd://{'ab' * 32}")

    assert [log.line(line) for line in (b"epoch 1", b"epoch 2")] == [True, True]
    log.close()
    assert (folder.place(0) / "out").read_bytes() == b"epoch 1\nepoch 2\n"


class Refusing(Api):
    """A server that cannot reach the node of a pod; the pod runs on."""

    def __init__(self) -> None:
        super().__init__("/nowhere")

    def lines(self, path: str, params: object, idle: object = None, pause: float = 0.0) -> NoReturn:
        raise ApiError(500, "InternalError", "remote error: tls: internal error")

    def request(self, method: str, path: str, params: object = None, body: object = None) -> dict:
        return {"status": {}}


def test_a_log_that_cannot_be_read_is_told_while_the_pod_runs(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_log, "_PAUSES", (0.01,) * 6)
    told: queue.Queue[str] = queue.Queue()
    source = LogSource("ns", "j-0", "main", "c1")
    follower = LogFollower(Refusing(), source, lambda: log_of(folder), told.put, Turns(40.0))

    follower.start()

    assert told.get(timeout=10.0) == "the log of j-0 cannot be read now: remote error: tls: internal error"  # fmt: skip
    follower.close()
    assert follower.over.wait(10.0)
    assert told.empty()
