"""The short rows of the matrix that kill processes and set two consoles on one job."""

from collections.abc import Iterator

import pytest
from benchmarks.matrix import consoles, freezes, processes
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ROWS = [row for row in (*processes.ROWS, *freezes.ROWS, *consoles.ROWS) if row.short]


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    """One embedded cluster for all rows."""
    with Sites() as sites:
        yield sites


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_it_holds(sites: Sites, row: Row) -> None:
    if why := row.lacking():
        pytest.skip(why)

    tally = row.run(sites)

    assert tally.faults == (), tally
