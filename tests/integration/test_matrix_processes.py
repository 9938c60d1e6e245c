"""The short rows of the matrix that kill processes and set two consoles on one job."""

import pytest
from benchmarks.matrix import consoles, freezes, processes, telemetry
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from tests.support.matrix import must_hold, sites

__all__ = ["sites"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
MODULES = (processes, telemetry, freezes, consoles)
ROWS = [row for module in MODULES for row in module.ROWS if row.short]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_it_holds(sites: Sites, row: Row) -> None:
    must_hold(row, sites)
