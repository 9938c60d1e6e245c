"""Records and lines of the kernel log, read and freed of what stands before the message."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

RING = "/dev/kmsg"
_LONGEST = 8192


def open_ring(path: str = RING) -> int:
    """A handle on the kernel's ring of records that never waits; raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def records(handle: int) -> Iterator[bytes]:
    """What the ring holds now, one record each."""
    while True:
        try:
            data = os.read(handle, _LONGEST)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # Overwritten while we read: the next read goes on at the oldest that is left.
            continue
        if not data:
            return
        yield data.partition(b"\n")[0]


_RECORD = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,20}),[^;]{0,64};")
_DMESG = re.compile(
    r"(?:<\d{1,4}>)?(?:[a-z0-9]{1,8} *:[a-z]{1,8} *: ?)?"
    r"(?:\[ *(?P<since>\d{1,10}(?:\.\d{1,9})?)\]|\[[A-Z][a-z]{2} [^\]]{1,40}\]|\d{4}-\d\d-\d\dT[\d:,.+Z-]{8,30}|)"
    r"(?: ?\[ *[CT]\d+\])?:? ?"
)
_JOURNAL = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.,]{8,15}(?:Z|[+-][\d:]{4,5})?) \S+ "
    r"(?P<program>[^\s:\[]+)(?:\[\d+\])?: "
)
_SOURCE = re.compile(r"(?:[\w.-]+ )?kernel: (?=\S)")
_REPEATED = re.compile(r"message repeated \d+ times: \[ ?(.*)\]\s*$")


@dataclass(frozen=True)
class Line:
    """A line without its prefix; `since` is seconds since boot where the prefix tells."""

    message: str
    since: Optional[float] = None


def strip(line: str) -> Optional[Line]:
    """What the kernel said, whatever tool has written it down; None where another program spoke."""
    record = _RECORD.match(line)
    if record:
        # Above 7 there is a facility: a program wrote it to /dev/kmsg, not the kernel.
        spoken = int(record[1]) < 8
        message = line[record.end() :]
        return Line(message, int(record[3]) / 1e6) if spoken else None
    journal = _JOURNAL.match(line)
    if journal:
        return _bare(line[journal.end() :]) if journal["program"] == "kernel" else None
    return _bare(line)


def _bare(text: str) -> Line:
    prefix = _DMESG.match(text)
    since = prefix and prefix["since"]
    message = text[prefix.end() :] if prefix else text
    message = message[_end(_SOURCE.match(message)) :]
    repeated = _REPEATED.match(message)
    return Line(repeated[1] if repeated else message, float(since) if since else None)


def _end(found: "Optional[re.Match[str]]") -> int:
    return found.end() if found else 0
