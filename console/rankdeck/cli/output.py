"""What the command line writes: text and JSON on stdout, progress on stderr."""

import io
import json
import os
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rankdeck.errors import (
    ConfigError,
    RankdeckError,
    UnknownJobError,
    UnknownPluginError,
    UnknownRunError,
)
from rankdeck.model.safe_text import show_invisible, strip_codes, strip_controls
from rankdeck_agent.rules.visible import count_cells

OK = 0
TROUBLE = 1
BAD_INPUT = 2
INTERRUPTED = 130
"""128 + SIGINT."""
NOBODY_READS = 141
"""128 + SIGPIPE, as the shell reports it of other programs."""


class UsageError(RankdeckError):
    """An invalid option or name on the command line."""


INPUT_ERRORS = (UsageError, ConfigError, UnknownJobError, UnknownPluginError, UnknownRunError)
"""Errors in the user's input, not of the cluster: exit code `BAD_INPUT`."""


class OutputError(RankdeckError):
    """The output cannot be written."""


_RESET = "\x1b[0m"


def _safe(text: str, *, terminal: bool, colours: bool = False) -> str:
    """The text without control sequences; for a terminal with code points of
    what is invisible, and with `colours`.

    Programs that read a pipe or a file get invisible characters as they
    came, except marks of text direction.
    """
    if text.isascii() and text.isprintable():
        return text
    if not terminal:
        return strip_controls(text)
    safe = show_invisible(strip_codes(text, colour=colours))
    return safe + _RESET if "\x1b" in safe else safe


def print_text(text: str = "") -> None:
    """Print Rankdeck's own text on stdout."""
    terminal = is_terminal()
    for line in text.split("\n"):
        _put(_safe(line, terminal=terminal))


def say_line(prefix: str, text: str) -> None:
    """Print a line of a rank, with its colours if stdout is a terminal."""
    line = prefix + text
    # Most lines are plain: what stdout is need not be asked a hundred thousand times a second.
    if not (line.isascii() and line.isprintable()):
        terminal = is_terminal()
        colours = terminal and "NO_COLOR" not in os.environ
        line = _safe(prefix, terminal=terminal) + _safe(text, terminal=terminal, colours=colours)
    _put(line)


_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\n"


def is_plain(lines: bytes) -> bool:
    """Whether these lines are printed as they are: ASCII without control characters."""
    return not lines.translate(None, _PLAIN)


def say_plain_lines(prefix: str, lines: bytes) -> None:
    """Print lines for which `is_plain` holds, each with its line end, as `say_line` does."""
    text = lines[:-1].decode("ascii").replace("\n", f"\n{prefix}")
    _put(prefix + text)


def say_object(value: Mapping[str, Any]) -> None:
    """Print a JSON object on one line."""
    _put(json.dumps(value, allow_nan=False))


def say_result(shape: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result of a command: as a JSON object, or as text for people."""
    if as_json:
        say_object(shape)
    else:
        print_text(text)


def say_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; columns are as wide as their widest cell, and the last is not padded."""
    terminal = is_terminal()
    lines = [tuple(_safe(cell, terminal=terminal) for cell in row) for row in (heads, *rows)]
    widths = [max(count_cells(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        cells = (
            cell + " " * (width - count_cells(cell))
            for cell, width in zip(line, widths, strict=True)
        )
        _put("  ".join(cells).rstrip())


def flush_stdout() -> None:
    """Flush stdout, so that a reader of a pipe sees all of it."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError as error:
            raise _failed(error) from error


def require_reader() -> None:
    """Raise BrokenPipeError if stdout is not read any more; while a job is
    silent, no write would notice that.
    """
    if not _is_read():
        raise BrokenPipeError


def print_progress(text: str) -> None:
    """Print progress on stderr; dropped if stderr is closed."""
    if sys.stderr is None:  # closed by the caller: `2>&-`
        return
    try:
        for line in text.split("\n"):
            print(_safe(line, terminal=_is_terminal(sys.stderr)), file=sys.stderr, flush=True)
    except OSError:
        _close(sys.stderr)


def close_quietly() -> None:
    """Discard all further output: stdout is not read any more, and must not fail at exit."""
    _close(sys.stdout)


def _close(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_read() -> bool:
    """Whether the reader of a pipe, or the terminal, still exists; returns at once."""
    if sys.stdout is None:
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except io.UnsupportedOperation:  # stdout was replaced by an object without a descriptor
        return True
    return not poll.poll(0)


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return _is_terminal(sys.stdout)


def _put(line: str) -> None:
    if sys.stdout is None:  # closed by the caller: `>&-`
        raise OutputError("stdout is closed: the answer has nowhere to go")
    try:
        sys.stdout.write(line + "\n")
    except OSError as error:
        raise _failed(error) from error


def _failed(error: OSError) -> OSError | OutputError:
    """What to raise for a failed write, such as on a full disk: an OutputError; a reader or
    terminal that went away is no error.
    """
    if isinstance(error, BrokenPipeError):
        return error
    require_reader()
    close_quietly()
    return OutputError(f"stdout cannot be written: {error.strerror}")


BARE = frozenset({"dumb", "unknown"})
"""Values of TERM for terminals that can only print lines."""


def require_terminal(environment: Mapping[str, str]) -> None:
    """Raise an error, which says what works instead, if the terminal cannot show the console."""
    kind = environment.get("TERM", "")
    if kind in BARE:
        raise UsageError(
            f"the console needs a terminal that can move its cursor, and TERM is `{kind}`; try"
            " TERM=xterm-256color, or `rankdeck status`"
        )
    if not (can_ask() and is_terminal()):
        raise UsageError(
            "the console needs a terminal, and this is none; for scripts there is `rankdeck status --json`"
        )


def can_ask() -> bool:
    """Whether there is a terminal on which to ask the user."""
    return _is_terminal(sys.stdin)


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return isatty is not None and isatty()
