"""Rows of the matrix about files of others and fuzzing, in their short form."""

import pytest
from benchmarks.matrix.files import ROWS as FILES
from benchmarks.matrix.fuzzing import ROWS as FUZZING
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from tests.support.matrix import must_hold, sites

__all__ = ["sites"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]


@pytest.mark.parametrize(
    "row", [row for row in (*FILES, *FUZZING) if row.short], ids=lambda row: row.name
)
def test_the_row_holds(sites: Sites, row: Row) -> None:
    must_hold(row, sites)
