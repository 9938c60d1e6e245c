"""The short rows of the matrix that kill processes and set two consoles on one job."""

from collections.abc import Iterator

import pytest
from benchmarks.matrix import consoles, freezes, processes, telemetry
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
MODULES = (processes, telemetry, freezes, consoles)
ROWS = [row for module in MODULES for row in module.ROWS if row.short]


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

    assert tally.untimed.faults == (), tally
