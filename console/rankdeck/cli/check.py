"""`rankdeck check` and `trust`: everything that is wrong with files, and what they may run."""

import argparse
from pathlib import Path

from rankdeck.cli import output
from rankdeck.cli.shapes import file_shape
from rankdeck.config.files import look_at
from rankdeck.config.trust import Use, allow
from rankdeck.errors import ConfigError, Problem
from rankdeck.model.cluster import Cluster


def check(options: argparse.Namespace, _open_console: object) -> int:
    """Read every file; the code says whether all of them can be used."""
    results = [(name, *_read(Path(name))) for name in options.files]
    if options.json:
        output.say_object({"files": [file_shape(*result) for result in results]})
    else:
        for name, kind, problems, uses in results:
            output.say("\n".join(map(str, problems)) or f"{name}: {kind} ok")
            for use in uses:
                agreed = "agreed" if use.allowed else "not agreed to: `rankdeck trust`"
                output.say(f"{use} ({agreed})")
    wrong = any(problems for _, _, problems, _ in results)
    return output.BAD_INPUT if wrong else output.OK


def _read(path: Path) -> tuple[str, tuple[Problem, ...], tuple[Use, ...]]:
    """What kind of file it is, its mistakes, and what it would run and read."""
    try:
        document, uses = look_at(path)
    except ConfigError as error:
        return "", error.problems, ()
    return ("cluster" if isinstance(document, Cluster) else "job"), (), uses


def trust(options: argparse.Namespace, _open_console: object) -> int:
    """Agree to all that these files would run and read, and say what that is."""
    for name in options.files:
        _, uses = look_at(Path(name))
        for use in uses:
            output.say(str(use))
        allow(uses)
        output.say(f"{name}: {len(uses) or 'nothing'} to agree to")
    return output.OK
