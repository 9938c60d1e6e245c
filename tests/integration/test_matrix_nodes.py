"""Short rows of the matrix: hostile nodes, and other users of the machine."""

from collections.abc import Iterator

import pytest
from benchmarks.matrix import nodes, steered, users
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.steering import planted, reached

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SHORT = [row for row in (*nodes.ROWS, *steered.ROWS, *users.ROWS) if row.short]


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    with Sites() as found:
        yield found


@pytest.mark.parametrize("row", SHORT, ids=lambda row: row.name)
def test_it_holds(row: Row, sites: Sites) -> None:
    if why := row.lacking():
        pytest.skip(why)
    assert row.run(sites).untimed.faults == ()


def test_the_check_sees_everything_that_is_planted() -> None:
    missed = [text for text in planted() if not reached(text.encode(), screen=True)]

    assert [text for text in missed if not set(text) & set("\t\n\r")] == []


@pytest.mark.parametrize("byte", [0x80, 0x9B, 0xFF])
def test_the_check_sees_controls_of_eight_bits(byte: int) -> None:
    assert reached(b"text" + bytes((byte,)), screen=True)


@pytest.mark.parametrize(
    "ours", [b"\x1b[?2026h", b"\x1b[38;2;1;2;3m", b"\x1b[3;4H", b"\x1b]22;default\x07"]
)
def test_the_check_knows_what_textual_writes(ours: bytes) -> None:
    assert reached(ours + "ä·…".encode(), screen=True) == []
