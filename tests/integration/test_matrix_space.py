"""The short rows of the matrix with full disks and floods, each for real."""

from collections.abc import Iterator

import pytest
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.space import ROWS
from benchmarks.result import MissingError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SHORT = [row for row in ROWS if row.short]


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    with Sites() as up:
        yield up


@pytest.mark.parametrize("row", SHORT, ids=lambda row: row.name)
def test_nothing_is_lost_and_nothing_untrue_is_said(sites: Sites, row: Row) -> None:
    if why := row.lacking():
        pytest.skip(why)
    try:
        tally = row.run(sites)
    except MissingError as missing:
        pytest.skip(str(missing))

    assert tally.untimed.faults == ()
