"""Answers of witnesses are collected in turns: some come late, some never."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.witness import WitnessQuestion, list_witnesses
from rankdeck_agent.wire.run_folder import INSIDE

SOON, LATER = 0.05, 1.0


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[list[socket.socket]]:
    (tmp_path / INSIDE).mkdir()
    some = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for rank, one in enumerate(some):
        one.bind(str(tmp_path / INSIDE / str(rank)))
        one.listen(4)
    yield some
    for one in some:
        one.close()


def answer(listener: socket.socket, text: str) -> None:
    link, _ = listener.accept()
    with link:
        link.sendall(text.encode())


def test_who_answers_late_is_heard_at_the_next_turn(
    tmp_path: Path, listeners: list[socket.socket]
) -> None:
    folder = RunFolder(tmp_path, "j", "n")
    assert [*list_witnesses(folder)] == [0, 1, 2]

    with WitnessQuestion(list_witnesses(folder)) as question:
        answer(listeners[0], json.dumps({"stack": []}))
        assert question.collect(SOON) == {0: {"stack": []}}
        answer(listeners[2], json.dumps({"recorded": {"g": []}}))

        assert question.collect(LATER) == {0: {"stack": []}, 2: {"recorded": {"g": []}}}


def test_half_an_answer_and_one_that_is_no_table_count_as_none(
    tmp_path: Path, listeners: list[socket.socket]
) -> None:
    places = {rank: tmp_path / INSIDE / str(rank) for rank in (0, 1, 7)}
    with WitnessQuestion(places) as question:
        answer(listeners[0], '{"stack": [')
        answer(listeners[1], "[1]")

        assert question.collect(LATER) == {}


def test_a_job_without_witnesses_answers_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "j", "n")

    assert list_witnesses(folder) == {}
    with WitnessQuestion({0: folder / INSIDE / "0"}) as question:
        assert question.collect(LATER) == {}
