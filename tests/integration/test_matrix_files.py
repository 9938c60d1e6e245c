"""Rows of the matrix about files of others and fuzzing, in their short form."""

from collections.abc import Iterator

import pytest
from benchmarks.matrix.files import ROWS as FILES
from benchmarks.matrix.fuzzing import ROWS as FUZZING
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from benchmarks.result import MissingError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    """Clusters that are brought up when a row asks for them."""
    with Sites() as places:
        yield places


@pytest.mark.parametrize(
    "row", [row for row in (*FILES, *FUZZING) if row.short], ids=lambda row: row.name
)
def test_the_row_holds(row: Row, sites: Sites) -> None:
    try:
        assert row.run(sites).untimed.faults == ()
    except MissingError as missing:
        pytest.skip(str(missing))
