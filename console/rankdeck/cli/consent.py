"""The question on the terminal before a file may run or read something."""

import sys
from collections.abc import Callable
from typing import TypeVar

from rankdeck.cli import output
from rankdeck.config.trust import allow
from rankdeck.errors import UntrustedError

Read = TypeVar("Read")


def agreed(read: Callable[[], Read]) -> Read:
    """What `read` gives; where consent is missing it is asked for, if there is a terminal."""
    try:
        return read()
    except UntrustedError as error:
        if not _yes(error):
            raise
        allow(error.problems)
    return read()


def _yes(error: UntrustedError) -> bool:
    if not sys.stdin.isatty():
        return False
    told = "\n".join(str(problem) for problem in error.problems)
    output.progress(f"{told}\nAgree to this and remember it? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
