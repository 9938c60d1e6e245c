"""The processes of this machine, and those that belong to a job, from /proc."""

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional

from rankdeck_agent.job.journal import plain
from rankdeck_agent.names import JOB_VARIABLE, NODE_VARIABLE

_PROC = Path("/proc")


class Process(NamedTuple):
    """One row of /proc. `start` (clock ticks since boot) tells a reused pid from the old one."""

    pid: int
    ppid: int
    pgid: int
    state: str
    start: int
    name: str = ""
    times: tuple[int, ...] = (0, 0, 0, 0)
    """CPU time in clock ticks: user, system, and the same of children that it has waited for."""

    @property
    def gone(self) -> bool:
        return self.state in "ZXx"

    @property
    def computed(self) -> int:
        """Clock ticks of CPU time that it took itself."""
        return self.times[0] + self.times[1]


def process(pid: int) -> Optional[Process]:
    """The process of that pid, or None."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    # The name in brackets may hold anything, brackets and blanks included.
    fields = text[text.rfind(")") + 2 :].split()
    if len(fields) < 20:
        return None
    name = text[text.find("(") + 1 : text.rfind(")")]
    return Process(
        pid,
        int(fields[1]),
        int(fields[2]),
        fields[0],
        int(fields[19]),
        name,
        tuple(map(int, fields[11:15])),
    )


def everything() -> dict[int, Process]:
    """All processes that are not zombies."""
    pids = (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())
    rows = (process(pid) for pid in pids)
    return {row.pid: row for row in rows if row is not None and not row.gone}


def is_alive(pid: int, start: Optional[int] = None) -> bool:
    """Whether that very process still runs."""
    row = process(pid)
    return row is not None and not row.gone and start in (None, row.start)


def exist(*pids: int) -> bool:
    """Whether one of these is there, be it dead and not yet waited for."""
    return any(process(pid) is not None for pid in pids)


def command(pid: int) -> str:
    """Its command line, fit to be shown; its name where it has none."""
    try:
        line = (_PROC / str(pid) / "cmdline").read_bytes()[:4096]
        name = line or b"[" + (_PROC / str(pid) / "comm").read_bytes()[:64] + b"]"
    except OSError:
        return ""
    return plain(name.replace(b"\0", b" ").decode("utf-8", "replace"), 200)


def environment(pid: int, names: Iterable[str]) -> Mapping[str, str]:
    """Those of its variables that are set; none where they may not be read."""
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    wanted = {name.encode() for name in names}
    pairs = (item.partition(b"=") for item in data.split(b"\0"))
    return {k.decode(): v.decode("utf-8", "replace") for k, _, v in pairs if k in wanted}


def is_marked(pid: int, job: str, node: str) -> bool:
    """Whether the variables of this job and node are in its environment."""
    marks = environment(pid, (JOB_VARIABLE, NODE_VARIABLE))
    return marks.get(JOB_VARIABLE) == job and marks.get(NODE_VARIABLE, node) == node


def word(path: Path) -> str:
    """The text of a small file of /proc, e.g. `wchan`; "" where it may not be read."""
    try:
        return plain(path.read_bytes()[:200].decode("utf-8", "replace"), 100)
    except OSError:
        return ""


def worker(rows: Iterable[Process]) -> Process:
    """The process that does the work: of those that live the one that has computed most."""
    return max(rows, key=lambda row: (not row.gone, row.computed, -row.pid))


def trees(rows: Mapping[int, Process], roots: Iterable[int]) -> dict[int, list[int]]:
    """Root -> itself and its descendants, of the roots that are there."""
    children = _children(rows)
    return {root: [root, *sorted(_walk(children, (root,)))] for root in roots if root in rows}


def below(rows: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """The descendants of `roots`, themselves left out."""
    return _walk(_children(rows), roots)


def _children(rows: Mapping[int, Process]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for row in rows.values():
        children.setdefault(row.ppid, []).append(row.pid)
    return children


def _walk(children: Mapping[int, list[int]], roots: Iterable[int]) -> set[int]:
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def boot() -> str:
    """The boot id of the machine; "" if it is not known."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def own_line(rows: Mapping[int, Process]) -> set[int]:
    """This process and its ancestors: what must never be killed."""
    line: set[int] = {1}
    pid = os.getpid()
    while pid in rows and pid not in line:
        line.add(pid)
        pid = rows[pid].ppid
    return line | {os.getpid()}


def belonging(job: str, node: str, supervisor: int) -> dict[int, Process]:
    """Every process of the job on this node, without its supervisor.

    A process is in when its environment is marked, or when an ancestor is in. `supervisor`
    is 0 where it is gone: then only marks count.
    """
    rows = everything()
    line = own_line(rows)
    marked = {pid for pid in rows if is_marked(pid, job, node)} - line - {supervisor}
    roots = marked | ({supervisor} - {0})
    return {pid: rows[pid] for pid in (marked | below(rows, roots)) - line - {supervisor}}


def send(rows: Mapping[int, Process], pids: Iterable[int], number: int) -> None:
    """Signal those of them that still are who they were; one that is stopped is woken to hear SIGTERM."""
    for pid in list(pids):
        if not is_alive(pid, rows[pid].start):
            continue
        try:
            os.kill(pid, number)
            if number == signal.SIGTERM:
                os.kill(pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            continue  # the look afterwards tells which of the two it was


_UNKILLABLE = " (state D: waits for a driver or a file system and cannot be killed; the node may need a reboot)"


def named(row: Process) -> dict[str, Any]:
    """A process that would not end: its pid, its command and why."""
    now = process(row.pid)
    why = _UNKILLABLE if now is not None and now.state == "D" else ""
    return {"pid": row.pid, "command": command(row.pid) + why}
