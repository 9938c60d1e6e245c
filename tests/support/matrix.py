"""Runs short rows of the matrix as tests: their clusters, and what must hold."""

from collections.abc import Iterator

import pytest
from benchmarks.matrix.model import Row
from benchmarks.matrix.sites import Sites
from benchmarks.result import MissingError


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    """Clusters that start when a row needs them, shared by all rows of a file."""
    with Sites() as found:
        yield found


def must_hold(row: Row, sites: Sites) -> None:
    """Run a row once: nothing may be lost, left or wrongly reported; times are not asserted."""
    if why := row.lacking():
        pytest.skip(why)
    try:
        tally = row.run(sites)
    except MissingError as missing:
        pytest.skip(str(missing))

    assert tally.untimed.faults == (), tally
