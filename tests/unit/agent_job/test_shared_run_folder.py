"""Ranks that only share a folder with us: what their shims' files tell, and in which order."""

import os
from pathlib import Path

import pytest

from rankdeck_agent.job.folder import UNKNOWN, RunFolder
from rankdeck_agent.job.supervisor_state import SharedRunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    for rank in range(3):
        (tmp_path / f"rank.{rank}").mkdir()
    return RunFolder(tmp_path, "j-1", "login1")


def leave(folder: RunFolder, rank: int, name: str, text: str, at: float) -> None:
    file = folder.place(rank) / name
    file.write_text(text)
    os.utime(file, (at, at))


def test_each_rank_begins_and_ends_once_in_the_order_of_time(folder: RunFolder) -> None:
    ranks = SharedRunFolder(folder, range(3))
    for rank in range(3):
        leave(folder, rank, "started", f"gpu{rank}\n", 100 + rank)
    leave(folder, 2, "exit", "7\n", 110)
    leave(folder, 0, "exit", "143\n", 111)

    first, second = ranks.look(), ranks.look()

    assert [(r.rank, r.host, r.status, r.at) for r in first] == [
        (0, "gpu0", None, 100),
        (1, "gpu1", None, 101),
        (2, "gpu2", None, 102),
        (2, "gpu2", 7, 110),
        (0, "gpu0", 143, 111),
    ]
    assert second == []
    assert ranks.waiting


def test_an_exit_that_is_half_written_is_read_the_next_time(folder: RunFolder) -> None:
    ranks = SharedRunFolder(folder, [0])
    leave(folder, 0, "exit", "", 100)
    assert ranks.look() == []

    leave(folder, 0, "exit", "0\n", 101)

    assert [(r.rank, r.status) for r in ranks.look()] == [(0, 0)]
    assert not ranks.waiting


def test_ranks_that_nobody_tells_of_are_given_up_if_they_ran(folder: RunFolder) -> None:
    ranks = SharedRunFolder(folder, range(3))
    leave(folder, 1, "started", "gpu1\x1b[31m\n", 100)
    ranks.look()

    gone = ranks.give_up()

    assert [(r.rank, r.host, r.status) for r in gone] == [(1, "gpu1 [31m", UNKNOWN)]
    assert not ranks.waiting


def test_what_is_written_gets_times(folder: RunFolder) -> None:
    ranks = SharedRunFolder(folder, [0])
    leave(folder, 0, "out", "one\n", 100)
    ranks.look()
    leave(folder, 0, "out", "one\ntwo\n", 101)
    ranks.look()

    index = (folder.place(0) / "out.idx").read_text().splitlines()

    assert [line.split()[0] for line in index] == ["0", "4"]
