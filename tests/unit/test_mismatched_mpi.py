"""A job of which every rank believes that it is alone."""

import pytest

from rankdeck.rules.messages import believes_alone, lone_line

WORDS = (
    "Hello from rank 0 of 1",
    "Hello world from processor n1, rank 0 out of 1 processors",
    "rank 0/1 on n2",
    "Rank: 0, size 1",
    "Process 0 of 1 is on n1",
    "world size: 1",
    "WORLD_SIZE=1",
    "MPI size 1",
    "number of processes: 1",
    "Parallel version (MPI), running on     1 processors",
    "Using 1 MPI process",
)
"""The last two are lines of Quantum ESPRESSO and GROMACS, from their manuals."""
OTHERS = (
    "rank 0 of 16",
    "rank 0 of 1000",
    "local rank 0 of 1",
    "data parallel rank 0 of 1",
    "tensor-model-parallel world size 1",
    "local_world_size=1",
    "world size 128",
    "rank 0/1.5 s",
    "running on 1 node",
    "step 1 loss 1",
)


@pytest.mark.parametrize("line", WORDS)
def test_two_ranks_that_say_so_are_each_alone(line: str) -> None:
    assert believes_alone({0: ["start", line], 1: [line, "done"]})
    assert lone_line({1: ["start", line]}) == line


@pytest.mark.parametrize("line", OTHERS)
def test_other_words_are_no_sign_of_it(line: str) -> None:
    assert not believes_alone({0: [line], 1: [line]})


def test_one_rank_is_not_enough() -> None:
    assert not believes_alone({0: ["rank 0 of 1"], 1: [], 2: ["  "]})


def test_a_silent_rank_takes_nothing_back() -> None:
    assert believes_alone({0: ["rank 0 of 1"], 1: ["rank 0 of 1"], 2: []})


def test_a_rank_that_writes_of_other_things_takes_it_back() -> None:
    assert not believes_alone({0: ["rank 0 of 1"], 1: ["rank 0 of 1"], 2: ["step 1"]})


def test_a_rank_that_sees_others_takes_it_back() -> None:
    lines = ["rank 3 of 4", "pipeline: rank 0 of 1"]

    assert not believes_alone({0: lines, 1: lines})
