"""All rows, in the order of the table."""

from benchmarks.matrix import files, fuzzing
from benchmarks.matrix.model import Row

ROWS: tuple[Row, ...] = (*files.ROWS, *fuzzing.ROWS)
