"""All rows, in the order of the table."""

from benchmarks.matrix import space, wires
from benchmarks.matrix.model import Row

ROWS: tuple[Row, ...] = (*wires.ROWS, *space.ROWS)
