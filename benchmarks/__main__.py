"""`python -m benchmarks [NAME…] [--json] [--keep]`: run benchmarks and print the results; `scale`,
`faults`, `healthy`, `corpus`, `acceptance_faults`, `swap`, `matrix` and `fuzz` have own options.

It fails if a ratio is lost: more than 15 % above that in `benchmarks/figures.json`, twice in
succession; or if a value that has no peer misses its goal.
"""

import argparse
import sys
from importlib import import_module

from benchmarks.result import Benchmark, MissingError, Result, head, keep_ratios, kept_ratios, show

NAMES = (
    "startup",
    "commands",
    "supervisor",
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
    "black_box",
    "slow_price",
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
    "healthy": "benchmarks.healthy",
    "corpus": "benchmarks.fault_corpus",
    "certainty": "benchmarks.certainty",
    "matrix": "benchmarks.matrix.main",
    "fuzz": "benchmarks.matrix.fuzz",
    "house": "benchmarks.house",
    "scale": "benchmarks.scale",
    "acceptance_faults": "benchmarks.acceptance_faults",
    "swap": "benchmarks.swap",
}
"""Programs with their own options and tables."""


def main() -> int:
    if own := OF_THEIR_OWN.get("".join(sys.argv[1:2])):
        return import_module(own).main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--keep", action="store_true", help="write the ratios to figures.json")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    if not options.json:
        print(head())
    lost, kept = False, {} if options.keep else kept_ratios()
    for name in options.names or NAMES:
        results = _run(name)
        if any(result.fails(kept) for result in results):
            # Others use the machine too: what they spoilt is measured once more.
            results = _better(results, _run(name))
        show(results, kept, as_json=options.json)
        lost = lost or any(result.fails(kept) for result in results)
        if options.keep:
            keep_ratios(results)
    return 1 if lost else 0


def _better(first: list[Result], again: list[Result]) -> list[Result]:
    """Of each row the run with the smaller figure."""
    second = {one.row: one for one in again}
    pairs = ((one, second.get(one.row, one)) for one in first)
    return [min(pair, key=lambda one: one.judged or 0.0) for pair in pairs]


def _run(name: str) -> list[Result]:
    benchmark: Benchmark = import_module(f"benchmarks.{name}").run
    try:
        return benchmark()
    except MissingError as missing:
        print(f"{name}: skipped: {missing}", file=sys.stderr, flush=True)
        return []


if __name__ == "__main__":
    sys.exit(main())
