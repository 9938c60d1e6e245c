"""`rankdeck check`: everything that is wrong with files."""

import argparse
from pathlib import Path

from rankdeck.cli import codes, output
from rankdeck.cli.shapes import file_shape
from rankdeck.config.files import read_document
from rankdeck.errors import ConfigError, Problem
from rankdeck.model.cluster import Cluster


def check(options: argparse.Namespace, _open_console: object) -> int:
    """Read every file; the code says whether all of them can be used."""
    results = [(name, *_read(Path(name))) for name in options.files]
    if options.json:
        output.say_object({"files": [file_shape(*result) for result in results]})
    else:
        for name, kind, problems in results:
            output.say("\n".join(map(str, problems)) or f"{name}: {kind} ok")
    return codes.BAD_INPUT if any(problems for _, _, problems in results) else codes.OK


def _read(path: Path) -> tuple[str, tuple[Problem, ...]]:
    """What kind of file it is, and its mistakes."""
    try:
        document = read_document(path)
    except ConfigError as error:
        return "", error.problems
    return ("cluster" if isinstance(document, Cluster) else "job"), ()
