"""The short rows of the matrix with full disks and floods, each for real."""

import pytest
from benchmarks.matrix import removed, space
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from tests.support.matrix import must_hold, sites

__all__ = ["sites"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
SHORT = [row for row in (*space.ROWS, *removed.ROWS) if row.short]


@pytest.mark.parametrize("row", SHORT, ids=lambda row: row.name)
def test_nothing_is_lost_and_nothing_untrue_is_said(sites: Sites, row: Row) -> None:
    must_hold(row, sites)
