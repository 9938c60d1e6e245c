"""All rows, in the order of the table."""

from benchmarks.matrix import consoles, freezes, processes, telemetry, upgrades
from benchmarks.matrix.model import Row

ROWS: tuple[Row, ...] = (
    *processes.ROWS,
    *telemetry.ROWS,
    *freezes.ROWS,
    *consoles.ROWS,
    *upgrades.ROWS,
)
