"""`python -m benchmarks [NAME…] [--json]`: run benchmarks and print the results; `scale`, `faults`,
`corpus`, `acceptance_faults`, `matrix` and `fuzz` have their own options.
"""

import argparse
import sys
from importlib import import_module

from benchmarks.result import Benchmark, MissingError, Result, head, show

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
    "witness",
    "ssh_config",
    "ssh_start",
    "preflight",
    "images",
    "kubernetes",
    "acceptance",
    "slurm",
    "scrape",
    "lemons",
)
OF_THEIR_OWN = {
    "faults": "benchmarks.faults",
    "corpus": "benchmarks.fault_corpus",
    "matrix": "benchmarks.matrix.main",
    "fuzz": "benchmarks.matrix.fuzz",
    "house": "benchmarks.house",
    "scale": "benchmarks.scale",
    "acceptance_faults": "benchmarks.acceptance_faults",
}
"""Programs with their own options and tables."""


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
        print(head())
    missed = 0
    for name in options.names or NAMES:
        missed += show(_run(name), as_json=options.json)
    return 1 if missed else 0


def _run(name: str) -> list[Result]:
    benchmark: Benchmark = import_module(f"benchmarks.{name}").run
    try:
        return benchmark()
    except MissingError as missing:
        print(f"{name}: skipped: {missing}", file=sys.stderr, flush=True)
        return []


if __name__ == "__main__":
    sys.exit(main())
