"""The matrix: does every row for real, and counts bytes, processes, states and wrong statements.

`python -m benchmarks matrix [--rounds N] [--only NAME,…] [--burners K] [--short] [--json]`
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.support.programs import search_path

from benchmarks.faults import burning
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.rows import ROWS
from benchmarks.matrix.sites import Sites
from benchmarks.result import MissingError
from rankdeck.values import value_table

HEADS = (
    "row",
    "held",
    "lost",
    "doubled",
    "left",
    "state",
    "s",
    "wrong",
    "MiB",
    "cpu",
    "key ms",
    "inputs",
)
Done = list[tuple[Row, Tally]]


def main(words: Sequence[str]) -> int:
    """Run the rows and print the table; 1 where a row did not hold."""
    options = _options(words)
    os.environ["PATH"] = search_path()
    done: Done = []
    for number in (signal.SIGINT, signal.SIGTERM):  # whoever ends us: all is cleaned up
        signal.signal(number, signal.default_int_handler)
    try:
        with burning(options.burners), Sites() as sites:
            for row, tally in run(chosen(options), sites, options.rounds):
                done.append((row, tally))
                _progress(row, tally)
    except KeyboardInterrupt:
        print("interrupted: the table has what was done until then", file=sys.stderr)
    _print(done, as_json=options.json)
    return 1 if any(tally.faults for _, tally in done) else 0


def run(rows: Sequence[Row], sites: Sites, rounds: int = 1) -> Iterator[tuple[Row, Tally]]:
    """Each row, `rounds` times; rows that cannot be run here are named on standard error."""
    for row in rows:
        try:
            if why := row.lacking():
                raise MissingError(why)
            for _ in range(rounds):
                yield row, _once(row, sites)
        except MissingError as missing:
            print(f"{row.name}: skipped: {missing}", file=sys.stderr, flush=True)


def _once(row: Row, sites: Sites) -> Tally:
    """Run it; one that breaks has not held, and the others go on."""
    try:
        return row.run(sites)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return Tally(wrong=(f"the row broke: {type(error).__name__}: {error}",))


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks matrix", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="times that each row is run")
    parser.add_argument(
        "--only", default="", metavar="NAME,…", help=f"rows, or groups: {', '.join(Group)}"
    )
    parser.add_argument(
        "--burners", type=int, default=0, metavar="K", help="busy processes beside it all"
    )
    parser.add_argument("--short", action="store_true", help="the rows that take a few seconds")
    parser.add_argument("--json", action="store_true", help="one object a run")
    options = parser.parse_args(words)
    if not chosen(options):
        parser.error("no such row; there are: " + ", ".join(row.name for row in ROWS))
    return options


def chosen(options: argparse.Namespace) -> list[Row]:
    """The rows that the options name, in the order of the table."""
    wanted = {word for word in options.only.split(",") if word}
    rows = [row for row in ROWS if not wanted or wanted & {row.name, row.group.value}]
    return [row for row in rows if row.short or not options.short]


def _progress(row: Row, tally: Tally) -> None:
    load = Path("/proc/loadavg").read_text().split()[0]
    what = "; ".join(tally.faults) or "held"
    note = f"; {tally.note}" if tally.note else ""
    print(f"{row.name}: {what} (load {load}){note}", file=sys.stderr, flush=True)


def _print(done: Done, *, as_json: bool) -> None:
    if as_json:
        for row, tally in done:
            print(json.dumps({"row": row.name, **value_table(tally), "faults": tally.faults}))
        return
    print(table(done))


def table(done: Done) -> str:
    """One line a row, the worst of its runs in each column."""
    rows = {row.name: [tally for one, tally in done if one is row] for row, _ in done}
    cells = [HEADS, *(_cells(name, tallies) for name, tallies in rows.items())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _cells(name: str, tallies: Sequence[Tally]) -> tuple[str, ...]:
    held = sum(not tally.faults for tally in tallies)
    return (
        name,
        f"{held} of {len(tallies)}",
        _worst(tally.lost for tally in tallies),
        _worst(tally.doubled for tally in tallies),
        _worst(tally.left for tally in tallies),
        " ".join(sorted({tally.state for tally in tallies if tally.state})) or "-",
        _worst((tally.seconds for tally in tallies), ".1f"),
        str(sum(len(tally.wrong) for tally in tallies)),
        _worst((tally.memory for tally in tallies), ".0f"),
        _worst((tally.cpu for tally in tallies), ".2f"),
        _worst((tally.key for tally in tallies), ".0f"),
        _worst(tally.inputs for tally in tallies),
    )


def _worst(values: Iterable[float | None], form: str = "d") -> str:
    known = [value for value in values if value is not None]
    return format(max(known), form) if known else "-"
