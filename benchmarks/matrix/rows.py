"""All rows, in the order of the table."""

from benchmarks.matrix import consoles, freezes, processes
from benchmarks.matrix.model import Row

ROWS: tuple[Row, ...] = (*processes.ROWS, *freezes.ROWS, *consoles.ROWS)
