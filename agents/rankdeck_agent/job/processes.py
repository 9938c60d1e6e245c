"""The processes of a job on this machine: finds them in /proc, marks and signals them."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Optional

from rankdeck_agent import JOB_VARIABLE, NODE_VARIABLE
from rankdeck_agent.text import plain_line

_PROC = Path("/proc")
_TRACED, _TRACED_LIMIT = "t", 0.5
"""State of a process that is traced and stopped, and seconds after which a debugger does that."""


class Process(NamedTuple):
    """One process in /proc.

    `start` (clock ticks since boot) distinguishes it from a later one with the same pid.
    """

    pid: int
    ppid: int
    pgid: int
    state: str
    start: int
    name: str = ""
    times: tuple[int, ...] = (0, 0, 0, 0)
    """CPU time in clock ticks: user, system, and user and system of
    children that it has waited for.
    """
    faults: int = 0
    """Page faults so far."""

    @property
    def gone(self) -> bool:
        """Whether it has ended (zombie or dead)."""
        return self.state in "ZXx"

    @property
    def computed(self) -> int:
        """Its own CPU time in clock ticks."""
        return self.times[0] + self.times[1]


def find_process(pid: int) -> Optional[Process]:
    """The process with this pid (perhaps a zombie), or None."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    # The name in brackets may contain anything, even brackets and blanks.
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
        int(fields[7]) + int(fields[9]),
    )


def list_processes() -> dict[int, Process]:
    """pid -> process, without zombies; reads the highest pids first,
    because new processes may end soonest.
    """
    pids = sorted((int(path.name) for path in _PROC.iterdir() if path.name.isdigit()), reverse=True)
    return keep_alive_ones(pids)


def is_alive(pid: int, start: Optional[int] = None) -> bool:
    """Whether the process still runs; with `start`, only if it is
    not another one with a reused pid.
    """
    row = find_process(pid)
    return row is not None and not row.gone and start in (None, row.start)


def any_exists(*pids: int) -> bool:
    """Whether one of these processes exists, even as a zombie."""
    return any(find_process(pid) is not None for pid in pids)


def command_line(pid: int) -> str:
    """The command line, safe to show; `[name]` if it has none, "" if it cannot be read."""
    try:
        line = (_PROC / str(pid) / "cmdline").read_bytes()[:4096]
        name = line or b"[" + (_PROC / str(pid) / "comm").read_bytes()[:64] + b"]"
    except OSError:
        return ""
    return plain_line(name.replace(b"\0", b" ").decode("utf-8", "replace"), 200)


def read_environment(pid: int, names: Iterable[str]) -> Mapping[str, str]:
    """The values of these environment variables, of those that are
    set; empty if they cannot be read.
    """
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    wanted = {name.encode() for name in names}
    pairs = (item.partition(b"=") for item in data.split(b"\0"))
    return {k.decode(): v.decode("utf-8", "replace") for k, _, v in pairs if k in wanted}


_LIMIT = 10
"""RLIMIT_LOCKS, which Linux has not used since 2.4. All descendants of a process inherit it, even
those that clear their environment and leave their session.
"""


@lru_cache(maxsize=8)
def mark_of(job: str, node: str) -> int:
    """The value of that limit in the processes of this job on this node."""
    import hashlib  # here: it takes 4 MB, and the keeper of Slurm jobs does not need it

    return int.from_bytes(hashlib.sha256(f"{job} {node}".encode()).digest()[:7], "big")


def is_marked(pid: int, job: str, node: str) -> bool:
    """Whether the process has the limit of this job and node, or their names in its environment."""
    with contextlib.suppress(OSError):
        if resource.prlimit(pid, _LIMIT)[0] == mark_of(job, node):
            return True
    marks = read_environment(pid, (JOB_VARIABLE, NODE_VARIABLE))
    return marks.get(JOB_VARIABLE) == job and marks.get(NODE_VARIABLE, node) == node


def all_marks() -> set[int]:
    """The marks (`mark_of`) of all jobs of which a process runs on this machine."""
    found: set[int] = set()
    for pid in list_processes():
        with contextlib.suppress(OSError):
            found.add(resource.prlimit(pid, _LIMIT)[0])
        named = read_environment(pid, (JOB_VARIABLE, NODE_VARIABLE))
        if JOB_VARIABLE in named:
            found.add(mark_of(named[JOB_VARIABLE], named.get(NODE_VARIABLE, "")))
    return found


def read_proc_word(path: Path) -> str:
    """The text of a small file of /proc, e.g. `wchan`; "" if it cannot be read."""
    try:
        return plain_line(path.read_bytes()[:200].decode("utf-8", "replace"), 100)
    except OSError:
        return ""


def kernel_function(word: str) -> str:
    """The name alone in `poll_schedule_timeout.constprop.0+0x4a/0x70`: compilers make variants of a
    function.
    """
    return word.partition("+")[0].partition(".")[0]


def read_state(place: Path) -> str:
    """The letter of a process or thread, by its folder in /proc; "" if it is gone."""
    try:
        text = (place / "stat").read_bytes()
    except OSError:
        return ""
    # The name in brackets may contain anything, even brackets and blanks.
    return text[text.rfind(b")") + 2 :][:1].decode("ascii", "replace")


def read_own_state(pid: int) -> str:
    """The same of a process. Who reads its stack (another console may ask as well) stops it for a
    moment: that is waited for, but not a debugger.
    """
    place = _PROC / str(pid)
    until = time.monotonic() + _TRACED_LIMIT
    state = read_state(place)
    while state == _TRACED and time.monotonic() < until:
        time.sleep(0.002)
        state = read_state(place)
    return state


def busiest_process(rows: Iterable[Process]) -> Process:
    """The process that does the work: the running one that has used most CPU time."""
    return max(rows, key=lambda row: (not row.gone, row.computed, -row.pid))


def process_trees(rows: Mapping[int, Process], roots: Iterable[int]) -> dict[int, list[int]]:
    """Root -> pids of itself and its descendants, for the roots that are in `rows`."""
    children = _children(rows)
    return {root: [root, *sorted(_walk(children, (root,)))] for root in roots if root in rows}


def descendants_of(rows: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """The pids of the descendants of `roots`."""
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


def read_boot_id() -> str:
    """The boot id of the machine; "" if it is not known."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def own_line(rows: Mapping[int, Process]) -> set[int]:
    """The pids of this process and its ancestors, which must never be killed."""
    line: set[int] = {1}
    pid = os.getpid()
    while pid in rows and pid not in line:
        line.add(pid)
        pid = rows[pid].ppid
    return line | {os.getpid()}


def find_job_processes(job: str, node: str, supervisor: int) -> dict[int, Process]:
    """pid -> every process of the job on this node, without its supervisor and our own ancestors.

    These are the marked processes, and the descendants of marked ones and of the
    supervisor. `supervisor` is its pid, 0 if it is gone.
    """
    rows = list_processes()
    line = own_line(rows)
    marked = {pid for pid in rows if is_marked(pid, job, node)} - line - {supervisor}
    roots = marked | ({supervisor} - {0})
    return {pid: rows[pid] for pid in (marked | descendants_of(rows, roots)) - line - {supervisor}}


def signal_processes(rows: Mapping[int, Process], pids: Iterable[int], number: int) -> None:
    """Send signal `number` to those of `pids` that are still the process in
    `rows`; after SIGTERM also SIGCONT.
    """
    for pid in list(pids):
        if not is_alive(pid, rows[pid].start):
            continue
        try:
            os.kill(pid, number)
            if number == signal.SIGTERM:
                os.kill(pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            continue  # the next look shows whether it still runs


def kill_groups(rows: Iterable[Process], keep: Iterable[int]) -> None:
    """Send SIGKILL to their process groups except `keep`: some processes
    fork faster than they can be found.
    """
    for group in {row.pgid for row in rows} - {0, 1, *keep}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


_UNKILLABLE = " (state D: waits for a driver or a file system and cannot be killed; the node may need a reboot)"


def describe_left_process(row: Process) -> dict[str, Any]:
    """A row of `left` for a process that did not end: {"pid": …, "command": the
    command, and why if it cannot be killed}.
    """
    now = find_process(row.pid)
    why = _UNKILLABLE if now is not None and now.state == "D" else ""
    return {"pid": row.pid, "command": command_line(row.pid) + why}


def take_mark(mark: int) -> int:
    """Mark the calling process, as far as possible; returns the mark that it had.

    The mark or the cgroup is enough to find a process of a job later.
    """
    before, most = resource.getrlimit(_LIMIT)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_LIMIT, (mark, most))
    return before


def keep_alive_ones(pids: Iterable[int]) -> dict[int, Process]:
    """pid -> process, for those of `pids` that have not ended."""
    rows = map(find_process, pids)
    return {row.pid: row for row in rows if row is not None and not row.gone}
