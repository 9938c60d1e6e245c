"""Rows of the matrix about what the head remembers."""

import pytest
from benchmarks.matrix.model import Row
from benchmarks.matrix.records import ROWS
from benchmarks.matrix.sites import Sites
from tests.support.matrix import must_hold, sites

__all__ = ["sites"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("row", [row for row in ROWS if row.short], ids=lambda row: row.name)
def test_the_row_holds(sites: Sites, row: Row) -> None:
    must_hold(row, sites)
