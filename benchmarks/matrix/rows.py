"""All rows, in the order of the table."""

from benchmarks.matrix.model import Row

ROWS: tuple[Row, ...] = ()
