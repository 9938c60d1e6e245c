"""The words that a user types to plan a study on a screen: as after `rankdeck scale`."""

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rankdeck.scaling.planning import ScaleRequest, ScalingError, parse_counts, parse_values


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ScalingError(message)


def read_typed_study(text: str, find: Callable[[str], Path]) -> ScaleRequest:
    """The request in `JOB --ranks 1,2,4 --set KEY=V,V`; `find` finds a job file by its name.

    Raises ScalingError.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("file")
    for name in ("ranks", "nodes", "number", "on"):
        parser.add_argument(f"--{name}", default="")
    for name in ("set", "weak"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--repeat", type=int, default=3)
    try:
        found = parser.parse_args(shlex.split(text))
    except ValueError as error:
        raise ScalingError(str(error)) from error
    return ScaleRequest(
        file=str(find(found.file)),
        on=found.on,
        ranks=parse_counts(found.ranks, "--ranks"),
        nodes=parse_counts(found.nodes, "--nodes"),
        sets=join_values(found.set, "--set"),
        weak=join_values(found.weak, "--weak"),
        repeats=found.repeat,
        number=found.number,
    )


def join_values(changes: list[str], option: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(key, values) of these options; a key that is given twice has the values of both."""
    found: dict[str, tuple[str, ...]] = {}
    for change in changes:
        key, values = parse_values(change, option)
        found[key] = (*found.get(key, ()), *values)
    return tuple(found.items())
