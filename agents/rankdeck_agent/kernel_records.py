"""Records of the kernel log: read from its ring, and freed from the prefixes of dmesg, journal
and syslog.
"""

import os
import re
from collections.abc import Iterator
from typing import Callable, Optional

from rankdeck_agent.values import Value

RING = "/dev/kmsg"
_LONGEST = 8192


def open_ring(path: str = RING) -> int:
    """A non-blocking descriptor of the kernel's ring buffer; raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def read_kernel_records(handle: int) -> Iterator[bytes]:
    """The records in the ring buffer now, without their further fields; raises OSError."""
    return (record.partition(b"\n")[0] for record in raw_records(handle, lambda: None))


def raw_records(handle: int, lost: Callable[[], None]) -> Iterator[bytes]:
    """The records in the ring buffer now; calls `lost` when some were overwritten
    before they were read. Raises OSError.
    """
    while True:
        try:
            data = os.read(handle, _LONGEST)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The next read continues with the oldest that is left.
            lost()
            continue
        if not data:
            return
        yield data


_RECORD = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,20}),[^;]{0,64};")
_DMESG = re.compile(
    # Talos Linux writes `NODE: kern: warning: [TIME]: `.
    r"(?:\S{1,80}: (?=kern: +[a-z]+: \[))?"
    r"(?:<(?P<number>\d{1,4})>)?(?:(?P<facility>[a-z0-9]{1,8}) *:(?:[a-z]{1,8} *: ?| +[a-z]+: (?=\[\d{4}-)))?"
    r"(?:\[ *(?P<since>\d{1,10}(?:\.\d{1,9})?)\]|\[(?:[A-Z][a-z]{2} |\d{4}-)[^\]]{1,40}\]|\d{4}-\d\d-\d\dT[\d:,.+Z-]{8,30}|)"
    r"(?: ?\[ *[CT]\d+\])?:? ?"
)
_JOURNAL = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.,]{8,15}(?:Z|[+-][\d:]{4,5})?) \S+ "
    r"(?P<program>[^\s:\[]+)(?:\[\d+\])?: "
)
_SOURCE = re.compile(r"(?:[\w.-]+ )?kernel: (?=\S)")
_REPEATED = re.compile(r"message repeated \d+ times: \[ ?(.*)\]\s*$")


class KernelLine(Value):
    """A line without its prefix.

    `since`: seconds since boot; `level`: 0 (emergency) to 7 (debug); None if the prefix does not
    say.
    """

    message: str
    since: Optional[float] = None
    level: Optional[int] = None


def strip_log_prefix(line: str) -> Optional[KernelLine]:
    """The kernel's message in a line of /dev/kmsg, dmesg, journal or
    syslog; None if another program wrote it.
    """
    record = _RECORD.match(line)
    if record:
        # Above 7 it has a facility: a program wrote it to /dev/kmsg, not the kernel.
        spoken = int(record[1]) < 8
        message = line[record.end() :]
        return KernelLine(message, int(record[3]) / 1e6, int(record[1])) if spoken else None
    journal = _JOURNAL.match(line)
    if journal:
        return _bare(line[journal.end() :]) if journal["program"] == "kernel" else None
    return _bare(line)


def _bare(text: str) -> Optional[KernelLine]:
    prefix = _DMESG.match(text)
    if prefix and _is_written(prefix["facility"] or "", prefix["number"] or ""):
        return None
    since = prefix and prefix["since"]
    message = text[prefix.end() :] if prefix else text
    source = _SOURCE.match(message)
    message = message[source.end() :] if source else message
    repeated = _REPEATED.match(message)
    return KernelLine(repeated[1] if repeated else message, float(since) if since else None)


_FACILITIES = frozenset({
    "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
})  # fmt: skip
"""The names of facilities in `dmesg -x` that are not the kernel's."""


def _is_written(facility: str, number: str) -> bool:
    """Whether a prefix of dmesg says that a program wrote the line to /dev/kmsg: by the name of
    its facility, or by a priority above 7.
    """
    return facility in _FACILITIES or facility.startswith("local") or int(number or 0) > 7
