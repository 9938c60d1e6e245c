"""The processes of a job on this machine: finds them in /proc, keeps
them in a cgroup, ends chains of them.

In a chain each process forks, calls `setsid` and ends; its child does the same. Each is gone before
its pid has been read from /proc. But the newest is always a child of the subreaper, or below a
process that is just ending, and the kernel lists children within microseconds. SIGKILL to the
newest before it has forked ends the chain.
"""

import contextlib
import errno
import os
import re
import resource
import signal
import time
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from rankdeck_agent import JOB_VARIABLE, NODE_VARIABLE
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.text import plain_line
from rankdeck_agent.wire.run_folder import CGROUP

_PROC = Path("/proc")


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
    return _alive(pids)


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


_REMOVE_TRIES = 20
_FREEZES = 1.0
"""Seconds to wait for a cgroup to freeze: a process that waits for a disk freezes later."""


def _own(hierarchy: str) -> tuple[Optional[Path], Optional[Path]]:
    """(mount point of cgroups, our own cgroup), or two Nones; `hierarchy`: ""
    for cgroup v2, or a controller of v1.
    """
    point = mount_point(hierarchy)
    own = group_of("self", hierarchy, point) if point else None
    return (point, own) if own else (None, None)


def mount_point(hierarchy: str) -> Optional[Path]:
    """Where the cgroups of a hierarchy are mounted, None if nowhere; "": cgroup v2,
    else a controller of v1. Raises OSError.
    """
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    point = next((row.split()[4] for row in mounts if _is_of(row, hierarchy)), None)
    return Path(point) if point else None


def group_of(pid: object, hierarchy: str, point: Path) -> Optional[Path]:
    """The cgroup of a process below a mount point; None if it is in none of that hierarchy.

    Raises OSError.
    """
    groups = (_PROC / str(pid) / "cgroup").read_text(errors="replace").splitlines()
    for row in groups:
        _, names, path = [*row.split(":", 2), "", ""][:3]
        if hierarchy in names.split(","):
            return Path(str(point) + path)
    return None


def _is_of(mount: str, hierarchy: str) -> bool:
    kind, _, options = mount.partition(" - ")[2].partition(" ")
    if not hierarchy:
        return kind == "cgroup2"
    return kind == "cgroup" and hierarchy in re.split(r"[ ,]", options)


def memory_files(group: Optional[Path]) -> Iterator[Path]:
    """Files that may count the job's out-of-memory kills: of its
    cgroup first, then of those above it.
    """
    for hierarchy, name in (("", "memory.events"), ("memory", "memory.oom_control")):
        try:
            point, own = _own(hierarchy)
        except OSError:
            continue
        if point is None or own is None:
            continue
        begin = own if hierarchy or group is None else group
        for folder in (begin, *begin.parents):
            if point in (folder, *folder.parents):
                yield folder / name


def make_cgroup(folder: RunFolder) -> Optional[Path]:
    """A new cgroup v2 for the job below our own, recorded in the run
    folder; None if it cannot be made.
    """
    try:
        _, own = _own("")
        if own is None:
            return None
        group = own / f"rankdeck.{folder.job}.{folder.node}"
        group.mkdir()
        if not os.access(group / "cgroup.procs", os.W_OK):
            group.rmdir()
            return None
        (folder / CGROUP).write_text(str(group))
    except OSError:
        return None
    return group


def take_mark(mark: int) -> int:
    """Mark the calling process, as far as possible; returns the mark that it had.

    The mark or the cgroup is enough to find a process of a job later.
    """
    before, most = resource.getrlimit(_LIMIT)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_LIMIT, (mark, most))
    return before


def enter_cgroup(group: Optional[Path]) -> None:
    """Move the calling process into the cgroup, as far as possible."""
    with contextlib.suppress(OSError):
        if group is not None:
            (group / "cgroup.procs").write_text("0")


def kill_cgroup(folder: RunFolder) -> None:
    """Kill everything in the job's cgroup, if it has one."""
    try:
        group = Path((folder / CGROUP).read_text())
        if (group / "cgroup.kill").exists():
            (group / "cgroup.kill").write_text("1")
        else:
            kill_frozen(group)
    except OSError:
        return


def kill_frozen(group: Path) -> None:
    """Kill everything in a cgroup on a kernel before 5.14, frozen so that
    nothing can fork meanwhile. Raises OSError.
    """
    (group / "cgroup.freeze").write_text("1")
    try:
        deadline = time.monotonic() + _FREEZES
        while "frozen 1" not in (group / "cgroup.events").read_text():
            if time.monotonic() >= deadline:
                break
            time.sleep(0.01)
        for file in group.rglob("cgroup.procs"):
            for pid in file.read_text().split():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(pid), signal.SIGKILL)
    finally:
        (group / "cgroup.freeze").write_text("0")


def is_cgroup_populated(folder: RunFolder) -> bool:
    """Whether anything runs in the job's cgroup, even processes too
    short-lived to be found in /proc.
    """
    try:
        group = Path((folder / CGROUP).read_text())
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:
        return False


def remove_cgroup(folder: RunFolder) -> None:
    """Remove the job's cgroup; tries again for a second, because killed
    processes may need a moment to end.
    """
    for _ in range(_REMOVE_TRIES):
        try:
            Path((folder / CGROUP).read_text()).rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        else:
            return
        time.sleep(0.05)


_PR_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.01
_FRESH = 0.05
"""For this many seconds a pid that was read still means the same process:
the kernel uses all other pids first.
"""
_AGREE = 3
"""Looks in a row that must see the same dead children: one look may
miss some while others are reaped.
"""
_TRIES = 2000
_GOES_ON = "a process that forks and ends before it can be killed; it goes on"

Left = list[dict[str, Any]]
"""Rows for processes that did not end, as in the answer of `job cancel`."""
_List = Callable[[], list[int]]
"""Returns the pids of the children of one process, or of several."""


def adopt_orphans() -> None:
    """Become the subreaper: the parent of all descendants whose own parent ends."""
    import ctypes  # here: it takes 0.6 MB, and a keeper of Slurm jobs does not need it

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def list_children(pid: int) -> list[int]:
    """The pids of its children, newest last, including zombies."""
    with _list_of(pid) as listed:
        return listed()


def end_below(
    reaper: int, spare: Collection[int], limit: float, number: int = signal.SIGKILL
) -> Left:
    """Send `number` to everything below `reaper` until nothing is left;
    returns what is left after `limit` seconds.

    Processes in `spare` are neither signalled nor counted. Signal 0 only looks.
    """
    with _list_of(reaper) as listed:
        return _end(listed, spare, time.monotonic() + limit, number)


def end_marked(job: str, node: str, adopters: Collection[int], limit: float, number: int) -> Left:
    """The same for a job whose subreaper is gone: its processes below
    `adopters`, which inherit the orphans.
    """
    with contextlib.ExitStack() as stack:
        lists = [stack.enter_context(_list_of(pid)) for pid in adopters]
        return _end(_Marked(job, node, lists), adopters, time.monotonic() + limit, number)


class _Marked:
    """Lists the children that have the marks of a job, and new ones that
    ended before their marks could be read.
    """

    def __init__(self, job: str, node: str, lists: Collection[_List]) -> None:
        self._job, self._node, self._lists = job, node, lists
        self._others: set[int] = set()
        self._dead: set[int] = set()
        """Zombies: an adopter may leave hundreds, and reading each again
        would give the chain time to go on.
        """

    def __call__(self) -> list[int]:
        there = [pid for listed in self._lists for pid in listed()]
        self._others.intersection_update(there)
        self._dead.intersection_update(there)
        new = set(there) - self._others - self._dead
        rest = {pid for pid in new if not is_marked(pid, self._job, self._node)}
        self._others.update(_alive(rest))
        self._dead |= rest - self._others
        return [pid for pid in there if pid not in self._others]


@contextlib.contextmanager
def _list_of(pid: int) -> Generator[_List, None, None]:
    """A function that lists the children of a single-threaded process; keeps the
    file open, since opening it takes longest.
    """
    try:
        file = _open(pid)
    except OSError:
        # The process is gone, or the kernel was built without lists of children.
        yield lambda: [row.pid for row in list_processes().values() if row.ppid == pid]
        return
    try:
        yield lambda: _read(file)
    finally:
        os.close(file)


def _open(pid: int) -> int:
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY)


def _read(file: int) -> list[int]:
    text = more = os.pread(file, 1 << 16, 0)
    while more:
        more = os.pread(file, 1 << 16, len(text))
        text += more
    return [int(word) for word in text.split()]


def _end(listed: _List, spare: Collection[int], deadline: float, number: int) -> Left:
    known: set[int] = set()
    dead: set[int] = set()
    agreed = 0
    while True:
        seen = _signal(listed(), dead, spare, number)
        # A listed process that was dead is still dead; all are read again only before returning.
        alive = _alive(seen if seen == dead else seen - dead)
        agreed = agreed + 1 if seen == dead and not alive else 0
        if not seen or agreed == _AGREE:
            return []

        if time.monotonic() >= deadline:
            stay = [describe_left_process(alive[pid]) for pid in alive.keys() & known]
            return stay + _passing(listed, spare, seen - known)
        if seen <= known:
            time.sleep(_PAUSE)
        known |= seen
        dead = seen - alive.keys()


def _alive(pids: Iterable[int]) -> dict[int, Process]:
    rows = map(find_process, pids)
    return {row.pid: row for row in rows if row is not None and not row.gone}


def _signal(
    first: list[int], dead: Collection[int], spare: Collection[int], number: int
) -> set[int]:
    """Signal these processes and all below them, parents first, since they may
    fork; returns their pids without `spare`.
    """
    read, seen = time.monotonic(), set[int]()
    waiting = deque(reversed(first))
    while waiting:
        pid = waiting.popleft()
        seen.add(pid)
        if pid in dead:
            continue
        if pid not in spare and time.monotonic() - read < _FRESH:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        waiting += [child for child in _below(pid) if child not in seen]
    return seen.difference(spare)


def _below(pid: int) -> list[int]:
    try:
        file = _open(pid)
    except OSError:
        return []
    try:
        return _read(file)
    except OSError:
        return []
    finally:
        os.close(file)


def _passing(listed: _List, spare: Collection[int], pids: Iterable[int]) -> Left:
    """One row of `left` for a chain that goes on: its newest process, with the
    command if that could be read in time.
    """
    if not pids:
        return []
    for _ in range(_TRIES):
        for pid in reversed(listed()):
            text = "" if pid in spare else command_line(pid)
            if text and not text.startswith("["):  # `[name]` is a zombie
                return [{"pid": pid, "command": f"{text} ({_GOES_ON})"}]
    return [{"pid": max(pids), "command": _GOES_ON}]
