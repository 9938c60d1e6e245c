"""Short rows of the matrix: hostile nodes, and other users of the machine."""

import pytest
from benchmarks.matrix import forged, nodes, steered, users
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from tests.support.matrix import must_hold, sites

__all__ = ["sites"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
SHORT = [row for row in (*nodes.ROWS, *forged.ROWS, *steered.ROWS, *users.ROWS) if row.short]


@pytest.mark.parametrize("row", SHORT, ids=lambda row: row.name)
def test_it_holds(sites: Sites, row: Row) -> None:
    must_hold(row, sites)
