"""All rows, in the order of the table."""

from benchmarks.matrix import consoles, files, freezes, fuzzing, processes, telemetry, upgrades
from benchmarks.matrix.model import Row

ROWS: tuple[Row, ...] = (
    *processes.ROWS,
    *telemetry.ROWS,
    *freezes.ROWS,
    *consoles.ROWS,
    *upgrades.ROWS,
    *files.ROWS,
    *fuzzing.ROWS,
)
