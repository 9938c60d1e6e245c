"""The command `kernel-log`: what a kernel log says about the health of its node."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

from rankdeck_agent.kernel_lines import LINE_LIMIT, Found, KernelLines
from rankdeck_agent.kernel_records import RING, open_ring, read_kernel_records
from rankdeck_agent.text import clean_text, failure_reason, print_complaint

_READ_LIMIT = 65536


def kernel_log(path: str, *, as_json: bool) -> int:
    """Print the events in a file, in standard input ("-") or in this
    machine's log (""); returns the exit code.
    """
    try:
        with contextlib.ExitStack() as stack:
            source = _open(path, stack)
            _print_events(source, as_json=as_json)
    except BrokenPipeError:
        # The reader has closed the pipe. Redirect stdout, or Python would complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return print_complaint(
            f"rankdeck-agent: {clean_text(path or RING, 200)}: {failure_reason(error)}", 2
        )
    return 0


def _open(path: str, stack: contextlib.ExitStack) -> Iterator[bytes]:
    if path == "-":
        return _lines(sys.stdin.buffer)
    if path in ("", RING):
        handle = open_ring()
        stack.callback(os.close, handle)
        return read_kernel_records(handle)
    return _lines(stack.enter_context(open(path, "rb")))  # noqa: PTH123  a Path costs an import


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; the rest of an overlong line is dropped."""
    while True:
        line = file.readline(_READ_LIMIT)
        if not line:
            return
        yield line
        while not line.endswith(b"\n") and len(line) == _READ_LIMIT:
            line = file.readline(_READ_LIMIT)


def _print_events(source: Iterator[bytes], *, as_json: bool) -> None:
    lines = KernelLines()
    for number, raw in enumerate(source, 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        _, found = lines.take(line)
        if found is not None:
            shown = _object(number, line, found) if as_json else _row(number, found)
            print(shown, flush=True)


def _object(number: int, line: str, found: Found) -> str:
    return json.dumps(
        {
            "line": clean_text(line, LINE_LIMIT),
            "number": number,
            "kind": found.kind,
            "xid": found.xid,
            "device": found.device,
            "level": found.level,
            "text": found.text,
        }
    )


def _row(number: int, found: Found) -> str:
    return f"{number:>8} {found.level:<4} {found.kind:<8} {found.device:<14} {found.text}"
