"""Every input of the corpus, given to its reader: nothing comes out but the reader's own errors."""

import random
from contextlib import suppress
from itertools import islice

import pytest
from benchmarks.matrix.fuzz import Block, attempt
from benchmarks.matrix.mutator import block

from tests.support.cases import each
from tests.support.targets import CORPUS, TARGETS

CASES = [(name, file) for name, target in TARGETS.items() for file in target.seeds()]
SMALL = 16 << 10


@each(CASES)
@pytest.mark.long
def test_an_input_of_the_corpus_breaks_no_reader(name: str, file: str) -> None:
    target = TARGETS[name]
    take = target.begin()

    for _ in range(2):
        with suppress(*target.own):
            take(target.seeds()[file])


def test_every_reader_has_a_corpus_and_every_corpus_a_reader() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert all(target.seeds() for target in TARGETS.values())


def test_the_corpus_is_small() -> None:
    sizes = [path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()]

    assert max(sizes) <= SMALL
    assert sum(sizes) < 1 << 20


def test_the_same_seed_gives_the_same_inputs() -> None:
    seeds = [b"one 12", b"two"]
    first, again, other = (list(block(seeds, [b"w"], "s", n)) for n in (1, 1, 2))

    assert first == again
    assert first != other
    assert len(set(first)) > len(first) / 2


def test_an_error_that_is_not_a_readers_own_is_found_with_its_input() -> None:
    target = TARGETS["plan"]
    inputs = [b"{}", b'{"broken', random.Random(1).randbytes(50)]

    done = attempt(
        type(target)("broken", lambda: lambda raw: raw.decode()[5], (), target.made, ()),
        Block("broken", "changes", 0),
        islice(inputs, 3),
    )

    assert done.inputs == 3
    assert {one.what.split(" ")[0] for one in done.found} == {"IndexError", "UnicodeDecodeError"}
