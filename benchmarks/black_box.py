"""What the black box of a job costs on its node: CPU and bytes of the recorder of eight ranks."""

import os
import tempfile
import time
from pathlib import Path

from benchmarks.measure import cpu_of, slower
from benchmarks.result import MissingError, Result
from rankdeck_agent.job.black_box import BlackBox
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.wire.black_box import PERIOD
from rankdeck_agent.wire.run_folder import BLACK_BOX

RANKS = range(8)
SETTLE, SECONDS = 9.0, 60.0
"""Seconds until it has loaded its modules and read twice, and of the measurement."""
TEN_MINUTES = 600.0
MOST_CORE, MOST_BYTES = 0.3, 32.0
"""Budgets in percent of a core, and in MiB."""


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place), "bench", "n1")
        for rank in RANKS:
            folder.place(rank).mkdir()
        box = BlackBox(folder, RANKS, here=True)
        box.start()
        try:
            time.sleep(SETTLE)
            pid = _recorder(folder / BLACK_BOX)
            begun, size = cpu_of(pid), _size(folder)
            time.sleep(SECONDS)
            used, grown = cpu_of(pid) - begun, _size(folder) - size
        finally:
            box.close()
    whole = (begun + used / SECONDS * (TEN_MINUTES - SETTLE)) / TEN_MINUTES
    budget = MOST_CORE * slower()
    kept = 2 * grown * TEN_MINUTES / SECONDS / (1 << 20)  # a frozen copy beside the ring
    rows = (
        ("black_box.steady", 100 * used / SECONDS, "% of a core", budget, "once it runs"),
        ("black_box.cpu", 100 * whole, "% of a core", budget, "of ten minutes, with its start"),
        ("black_box.size", kept, "MiB", MOST_BYTES, f"ten minutes, a reading every {PERIOD:g} s"),
    )
    return [
        Result(name=name, value=value, unit=unit, budget=most, on_ratio=False, note=note)
        for name, value, unit, most, note in rows
    ]


def _size(folder: RunFolder) -> int:
    return sum(path.stat().st_size for path in (folder / BLACK_BOX).rglob("*") if path.is_file())


def _recorder(place: Path) -> int:
    """The process that has a file of this black box open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()).startswith(str(place)):
                return int(link.parts[2])
        except OSError:
            continue
    raise MissingError(f"a recorder of {place}, which runs as user {os.geteuid()}")
