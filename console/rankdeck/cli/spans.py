"""Options that are spans of time: seconds to wait, and spans such as `30m`."""

import argparse

from rankdeck.cli import output
from rankdeck.model.health import parse_duration

WAIT_LIMIT = 600.0


def seconds_of_option(options: argparse.Namespace, name: str) -> float:
    """The seconds of `--wait` or `--watch`; raises UsageError."""
    seconds: float = getattr(options, name)
    if not 0 <= seconds <= WAIT_LIMIT:
        raise output.UsageError(f"--{name}: seconds, at most {WAIT_LIMIT:.0f}")
    return seconds


def parse_option_span(text: str, option: str) -> float:
    """Seconds of `30m`, `4h`, `2d`; raises UsageError that names the option, such as `--limit`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise output.UsageError(f"{option}: {error}") from error
