"""Processes of a lab, seen from outside of it."""

from collections.abc import Iterator
from pathlib import Path


def children(pid: int) -> list[int]:
    """The living children of a process."""
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(child) for child in tasks.read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> Iterator[int]:
    """A process and all that came from it."""
    yield pid
    for child in children(pid):
        yield from descendants(child)


def exists(pid: int) -> bool:
    """Not gone, and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def read(pid: int, name: str) -> bytes:
    """`environ` or `cmdline` of a process; empty where it is gone or not ours to read."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def marked(first: int, marker: bytes) -> list[int]:
    """Descendants of `first` with the marker in environment or command line."""
    return [
        pid
        for pid in descendants(first)
        if pid != first and exists(pid) and marker in read(pid, "environ") + read(pid, "cmdline")
    ]


def described(pid: int) -> str:
    """Its pid, its command line and what the kernel has it wait in."""
    command = read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return f"{pid} {command} ({read(pid, 'wchan').decode() or 'running'})"
