"""What a rank waits for outside of its program, in words: a file, a peer, a signal, a quota. No
I/O.
"""

import re

from rankdeck.model.json_tables import as_table
from rankdeck.model.safe_text import clean_line
from rankdeck.values import Value

_REMOTE = re.compile(r"nfs|cifs|smb|lustre|ceph|gpfs|beegfs|9p|fuse|orangefs|pvfs|glusterfs|afs")
"""Kinds of file systems that lie on other machines, or in other programs."""
_THROTTLED = 0.5
_READS = frozenset(("read", "readv", "pread64"))
_WRITES = frozenset(("write", "writev", "pwrite64", "fsync", "fdatasync"))
_SLEEPS = frozenset(("nanosleep", "clock_nanosleep"))
_OTHERS = {
    "futex": "waits for a lock or a thread",
    "wait4": "waits for a child process",
    "waitid": "waits for a child process",
    "flock": "waits for a file lock",
    "accept": "waits for a connection",
    "accept4": "waits for a connection",
}


class Doing(Value):
    """Facts of what a rank waits for in the kernel; "" or None if not known."""

    state: str = ""
    """As in /proc."""
    call: str = ""
    file: str = ""
    kind: str = ""
    """Of the file system on which the file lies."""
    source: str = ""
    """Where that comes from: `10.0.0.9:/export`."""
    peer: str = ""
    """address:port."""
    throttled: float | None = None
    """Share of the periods in which a CPU quota holds it back."""


def read_doing(raw: object) -> Doing:
    """The same from the `does` of a rank in a node's (untrusted) answer."""
    row = as_table(raw)
    return Doing(
        state=clean_line(row.get("state"), 1),
        call=clean_line(row.get("call"), 30),
        file=clean_line(row.get("file"), 200),
        kind=clean_line(row.get("kind"), 30),
        source=clean_line(row.get("source"), 100),
        peer=clean_line(row.get("peer"), 60),
    )


def describe_doing(doing: Doing) -> str:
    """`reads /data/shard-17 (nfs4 10.0.0.9:/export)`, without a subject; "" if nothing is known."""
    if doing.state in ("T", "t"):
        return "is stopped (SIGSTOP or a debugger)"
    if (doing.throttled or 0.0) >= _THROTTLED:
        return "is held back by a CPU quota"
    if doing.peer:
        return f"waits for {doing.peer}"
    if doing.file:
        return _of_file(doing)
    if doing.call in _SLEEPS:
        return "sleeps"
    where = "is in state D: it waits for a device or a file system" if doing.state == "D" else ""
    return _OTHERS.get(doing.call, where)


def _of_file(doing: Doing) -> str:
    verb = "reads" if doing.call in _READS else "writes" if doing.call in _WRITES else "waits for"
    verb = "opens" if doing.call == "openat" else verb
    kind = f" ({doing.kind} {doing.source})" if _REMOTE.match(doing.kind) else ""
    name = {"pipe": "a pipe", "socket": "a socket"}.get(doing.file, doing.file)
    return f"{verb} {name}{kind}"
