"""`python -m benchmarks [NAME…] [--json]`: run them, print what came out; `faults`, `matrix` and `fuzz` have options of their own."""

import argparse
import json
import sys
from importlib import import_module

from benchmarks.result import Benchmark, MissingError, Result

NAMES = (
    "startup",
    "first_paint",
    "fleet_ui",
    "agent",
    "telemetry_private",
    "collapse",
    "big_log",
    "log_fanin",
    "key_paint",
    "launch",
    "preflight",
    "images",
    "kubernetes",
    "acceptance",
    "slurm",
)
OF_THEIR_OWN = {
    "faults": "benchmarks.faults",
    "matrix": "benchmarks.matrix.main",
    "fuzz": "benchmarks.matrix.fuzz",
    "house": "benchmarks.house",
}
"""Programs with options and a table of their own."""
HEADS = ("benchmark", "ours", "peer", "ratio", "budget", "ok")


def main() -> int:
    if own := OF_THEIR_OWN.get("".join(sys.argv[1:2])):
        return import_module(own).main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    if not options.json:
        print(_row(HEADS))
    missed = 0
    for name in options.names or NAMES:
        for result in _run(name):
            missed += result.ok is False
            print(
                json.dumps(result.shape()) if options.json else _text(result),
                flush=True,
            )
    return 1 if missed else 0


def _run(name: str) -> list[Result]:
    benchmark: Benchmark = import_module(f"benchmarks.{name}").run
    try:
        return benchmark()
    except MissingError as missing:
        print(f"{name}: skipped: {missing}", file=sys.stderr, flush=True)
        return []


def _text(result: Result) -> str:
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    peer = "" if result.peer_value is None else f"{result.peer_value:.4g} ({result.peer})"
    budget = "" if result.budget is None else f"{result.budget:g}{'x' if result.on_ratio else ''}"
    ok = {True: "ok", False: "OVER", None: "-"}[result.ok]
    line = _row((result.name, f"{result.value:.4g} {result.unit}", peer, ratio, budget, ok))
    return line + (f"  {result.note}" if result.note else "")


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(
        cell.ljust(width) for cell, width in zip(cells, (28, 16, 34, 7, 7, 4), strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
