"""The fault bench: plants every fault for real, again and again, and counts who was blamed.

`python -m benchmarks faults [--rounds N] [--only NAME,…] [--burners K] [--short] [--json]
[--record DIR]`
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks import fault_judge as judge
from benchmarks.fault_list import FAULTS, SHORT
from benchmarks.fault_model import Fault, Kind, Outcome
from benchmarks.fault_programs import MPICH
from benchmarks.fault_run import Run, Watching, watching
from benchmarks.fault_sites import AnySite, compile_c, demo_site, lab_site
from benchmarks.result import MissingError
from rankdeck.values import value_table

_BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100000))"
Results = list[tuple[Fault, Outcome]]


def main(words: Sequence[str]) -> int:
    """Run the faults and print the table; returns 1 if a fault was
    blamed on somebody else or on nobody.
    """
    options = _options(words)
    faults = [fault for fault in chosen(options) if _can(fault)]
    results: Results = []
    for number in (signal.SIGINT, signal.SIGTERM):  # whoever ends us: all is cleaned up
        signal.signal(number, signal.default_int_handler)
    try:
        with burning(options.burners), closing(run(faults, options.rounds, options.record)) as runs:
            for result in runs:
                results.append(result)
                _progress(*result)
    except KeyboardInterrupt:
        print("interrupted: the table has what was done until then", file=sys.stderr)
    _print(results, as_json=options.json)
    bad = {judge.WRONG, judge.SILENT}
    return 1 if any(one.verdict in bad for _, one in results) else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="times that each fault is planted")
    parser.add_argument(
        "--only", default="", metavar="NAME,…", help="names, or beginnings of names, of faults"
    )
    parser.add_argument(
        "--burners", type=int, default=0, metavar="K", help="busy processes beside it all"
    )
    parser.add_argument("--short", action="store_true", help="a few fast faults, no burners")
    parser.add_argument("--json", action="store_true", help="one object a run, then one a fault")
    parser.add_argument("--record", type=Path, metavar="DIR", help="record the failures there")
    options = parser.parse_args(words)
    if options.short:
        options.burners = 0
    if not chosen(options):
        parser.error("no such fault; there are: " + ", ".join(f.name for f in FAULTS))
    return options


def chosen(options: argparse.Namespace) -> list[Fault]:
    """The rows that the options name, in the order of the table."""
    given = [word for word in options.only.split(",") if word]
    wanted = [*given, *(SHORT if options.short else ())]
    if not wanted:
        return [*FAULTS]
    return [fault for fault in FAULTS if any(_means(word, fault.name) for word in wanted)]


def _means(word: str, name: str) -> bool:
    return name == word or name.startswith(f"{word}.")


def _can(fault: Fault) -> bool:
    why = fault.lacking()
    if why:
        print(f"{fault.name}: skipped: {why}", file=sys.stderr, flush=True)
    return not why


def run(
    faults: Sequence[Fault], rounds: int = 1, record: Path | None = None
) -> Generator[tuple[Fault, Outcome]]:
    """Plant each fault, with one cluster for all rounds; everything is
    ended afterwards. `record`: see `Run`.
    """
    places = ((demo_site, False), (lab_site, True))
    for make, lab in places:
        own = [fault for fault in faults if fault.lab is lab]
        if not own:
            continue
        try:
            with make() as site, watching(site) as watch:
                prepare(site, own)
                for _ in range(rounds):
                    yield from _round(own, site, watch, record)
        except MissingError as missing:
            names = ", ".join(fault.name for fault in own)
            print(f"{names}: skipped: {missing}", file=sys.stderr, flush=True)


def _round(
    faults: Iterable[Fault], site: AnySite, watch: Watching, record: Path | None
) -> Generator[tuple[Fault, Outcome]]:
    for fault in faults:
        yield fault, Run(fault, site, watch, record).go()


def prepare(site: AnySite, faults: Iterable[Fault]) -> None:
    """Compile what these faults need into the folder that every node sees."""
    if any(fault.launcher == "mpich" for fault in faults):
        compile_c(MPICH, site.place() / "prog", "mpicc.mpich")


@contextmanager
def burning(count: int) -> Generator[None]:
    """Keep this many busy processes running inside the block; they also end with this process."""
    busy = [
        subprocess.Popen([sys.executable, "-c", _BURN], start_new_session=True)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait(10)


# ---- what is printed ----------------------------------------------------------------------


def _progress(fault: Fault, one: Outcome) -> None:
    seconds = "" if one.seconds is None else f" after {one.seconds:.1f} s"
    load = Path("/proc/loadavg").read_text().split()[0]
    words = f"{fault.name}: {one.verdict}: {one.named}{seconds} (load {load})"
    print(words + (f"; {one.note}" if one.note else ""), file=sys.stderr, flush=True)


def _print(results: Results, *, as_json: bool) -> None:
    by_name = {fault.name: fault for fault, _ in results}
    rows = [
        judge.row(fault, [one for f, one in results if f.name == name])
        for name, fault in by_name.items()
    ]
    totals = [judge.total(kind, results) for kind in Kind]
    if as_json:
        for value in (*(value_table(one) for _, one in results), *rows, *totals):
            print(json.dumps(value))
        return
    print(table(rows))
    for one in totals:
        print(", ".join(f"{key} {value}" for key, value in one.items()))


def table(rows: Sequence[dict[str, object]]) -> str:
    """The rows under their heads, columns as wide as they must be."""
    cells = [judge.HEADS, *(tuple(_cell(row[head]) for head in judge.HEADS) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )  # fmt: skip


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
