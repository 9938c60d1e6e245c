"""All rows, in the order of the table."""

from benchmarks.matrix import files, fuzzing, nodes, steered, users
from benchmarks.matrix.model import Row

ROWS: tuple[Row, ...] = (
    *nodes.ROWS,
    *steered.ROWS,
    *users.ROWS,
    *files.ROWS,
    *fuzzing.ROWS,
)
