"""The short rows of the matrix that cut links and move clocks, each for real in the lab."""

import pytest
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.wires import ROWS
from tests.support.matrix import must_hold, sites

__all__ = ["sites"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
SHORT = [row for row in ROWS if row.short]


@pytest.mark.parametrize("row", SHORT, ids=lambda row: row.name)
def test_nothing_is_lost_and_nothing_untrue_is_said(sites: Sites, row: Row) -> None:
    must_hold(row, sites)
