"""Processes of this machine: children, descendants, command lines; those of a lab too, whose nodes
are namespaces.
"""

from pathlib import Path


def children(pid: int) -> list[int]:
    """The living children of a process, of all its threads; none if it is gone."""
    try:
        lists = [
            (task / "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return []
    return sorted(int(child) for words in lists for child in words)


def descendants(pid: int) -> list[int]:
    """A process, then all its descendants, as they are now."""
    return [pid, *(one for child in children(pid) for one in descendants(child))]


def exists(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def read(pid: int, name: str) -> bytes:
    """`environ` or `cmdline` of a process; empty if it is gone or may not be read."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def marked(first: int, marker: bytes) -> list[int]:
    """Descendants of `first` that have the marker in their environment or command line."""
    return [
        pid
        for pid in descendants(first)
        if pid != first and exists(pid) and marker in read(pid, "environ") + read(pid, "cmdline")
    ]


def described(pid: int) -> str:
    """Its pid, its command line and the kernel function in which it waits."""
    command = read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return f"{pid} {command} ({read(pid, 'wchan').decode() or 'running'})"
