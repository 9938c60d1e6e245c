"""`rankdeck accept --read RECIPE FILE…`: what outputs of acceptance tests say, and whether that is good."""

import argparse
import sys
from pathlib import Path

from rankdeck import plugins
from rankdeck.acceptance.reading import LARGEST, read_output
from rankdeck.acceptance.recipe import Reading, Recipe, Status
from rankdeck.cli import output
from rankdeck.cli.output import UsageError
from rankdeck.cli.shapes import reading_shape
from rankdeck.config.safe_files import read_regular

_BAD, _MISSING, _REFUSED = 1, 2, 3
_CODES = {
    Status.MEASURED: output.OK,
    Status.FAILED: _BAD,
    Status.NOT_MEASURED: _MISSING,
    Status.REFUSED: _REFUSED,
}
_GRAVEST = (_BAD, _MISSING, _REFUSED, output.OK)


def read(options: argparse.Namespace) -> int:
    """Read every file; the code is that of the gravest result."""
    recipe: Recipe = plugins.find("recipes", options.read)()
    if not options.words:
        raise UsageError("`accept --read` needs a file; - is stdin")
    # All files are looked at before the first result is said.
    outputs = [(name, _bytes_of(name)) for name in options.words]
    codes: set[int] = set()
    for name, raw in outputs:
        for reading in read_output(recipe, raw):
            _say(options, recipe, name, reading)
            codes.add(_code(reading))
    return next(code for code in _GRAVEST if code in codes)


def _say(options: argparse.Namespace, recipe: Recipe, name: str, reading: Reading) -> None:
    if options.json:
        output.say_object(reading_shape(recipe.name, reading))
    else:
        output.say(f"{name}: {recipe.name}: {reading.status}: {reading.text}")


def _code(reading: Reading) -> int:
    """A number below what it should be is bad, too."""
    return _BAD if reading.grade == "slow" else _CODES[reading.status]


def _bytes_of(name: str) -> bytes:
    """A file, or stdin; raises UsageError."""
    try:
        if name != "-":
            return read_regular(Path(name), LARGEST)
        raw = sys.stdin.buffer.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error
    if len(raw) > LARGEST:
        raise UsageError(f"-: larger than {LARGEST >> 10} KiB")
    return raw
