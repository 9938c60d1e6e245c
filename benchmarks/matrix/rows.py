"""All rows, in the order of the table."""

from benchmarks.matrix import (
    consoles,
    files,
    forged,
    freezes,
    fuzzing,
    health,
    hearing,
    nodes,
    processes,
    records,
    removed,
    schedulers,
    space,
    steered,
    telemetry,
    upgrades,
    users,
    wires,
)
from benchmarks.matrix.model import Row

ROWS: tuple[Row, ...] = (
    *processes.ROWS,
    *telemetry.ROWS,
    *freezes.ROWS,
    *consoles.ROWS,
    *upgrades.ROWS,
    *wires.ROWS,
    *hearing.ROWS,
    *space.ROWS,
    *removed.ROWS,
    *nodes.ROWS,
    *forged.ROWS,
    *health.ROWS,
    *schedulers.ROWS,
    *steered.ROWS,
    *users.ROWS,
    *files.ROWS,
    *records.ROWS,
    *fuzzing.ROWS,
)
