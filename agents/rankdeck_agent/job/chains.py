"""Ends chains: processes that are gone before a look through /proc finds them; proves that none is left.

Each forks, calls `setsid` and ends; its child does the same. None lives until its pid has been read
from /proc, but the newest is always a child of the subreaper, or below one that is just ending, and
the kernel lists children within microseconds. SIGKILL before it has forked ends the chain.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections import deque
from collections.abc import Collection, Generator, Iterable
from typing import Any, Callable

from rankdeck_agent.job import processes
from rankdeck_agent.job.processes import Process

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.01
_FRESH = 0.05
"""A pid that was read at most so many seconds ago still names that process: the kernel reuses all others first."""
_AGREE = 3
"""Looks in a row that must agree on the dead children: one look may miss some while others are waited for."""
_TRIES = 2000
_GOES_ON = "a process that forks and ends before it can be killed; it goes on"

Left = list[dict[str, Any]]
"""Processes that would not end, as in the answer of `job cancel`."""
_List = Callable[[], list[int]]


def adopt_orphans() -> None:
    """Make this process the parent of all processes below it that lose theirs."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Its children, the newest last, with dead ones that it has not waited for."""
    with _list_of(pid) as listed:
        return listed()


def end_below(
    reaper: int, spare: Collection[int], limit: float, number: int = signal.SIGKILL
) -> Left:
    """Signal everything below `reaper` until nothing is left; returns what is left after `limit` seconds.

    `spare` are neither signalled nor counted. Signal 0 only looks.
    """
    with _list_of(reaper) as listed:
        return _end(listed, spare, time.monotonic() + limit, number)


def end_marked(job: str, node: str, adopters: Collection[int], limit: float, number: int) -> Left:
    """The same of a job whose subreaper is gone: its processes below those to whom orphans go."""
    with contextlib.ExitStack() as stack:
        lists = [stack.enter_context(_list_of(pid)) for pid in adopters]
        return _end(_Marked(job, node, lists), adopters, time.monotonic() + limit, number)


class _Marked:
    """Lists children that have the marks of a job, and new ones that were gone before that was known."""

    def __init__(self, job: str, node: str, lists: Collection[_List]) -> None:
        self._job, self._node, self._lists = job, node, lists
        self._others: set[int] = set()
        self._dead: set[int] = set()
        """Not waited for yet: an adopter may leave hundreds, and to look at each again gives the chain its time."""

    def __call__(self) -> list[int]:
        there = [pid for listed in self._lists for pid in listed()]
        self._others.intersection_update(there)
        self._dead.intersection_update(there)
        new = set(there) - self._others - self._dead
        rest = {pid for pid in new if not processes.is_marked(pid, self._job, self._node)}
        self._others.update(_alive(rest))
        self._dead |= rest - self._others
        return [pid for pid in there if pid not in self._others]


@contextlib.contextmanager
def _list_of(pid: int) -> Generator[_List, None, None]:
    """Lists the children of a single-threaded process; the file stays open, because opening it takes most of the time."""
    try:
        file = _open(pid)
    except OSError:
        yield lambda: _scan(pid)
        return
    try:
        yield lambda: _read(file)
    finally:
        os.close(file)


def _open(pid: int) -> int:
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY)


def _read(file: int) -> list[int]:
    text = b""
    while more := os.pread(file, 1 << 16, len(text)):
        text += more
    return [int(word) for word in text.split()]


def _scan(pid: int) -> list[int]:
    """The same of a process that is gone, or on a kernel that was built without these lists."""
    return [row.pid for row in processes.everything().values() if row.ppid == pid]


def _end(listed: _List, spare: Collection[int], deadline: float, number: int) -> Left:
    known: set[int] = set()
    dead: set[int] = set()
    agreed = 0
    while True:
        seen = _signal(listed(), dead, spare, number)
        # Who is listed on and was dead is dead; before that is the answer, all are looked at again.
        alive = _alive(seen if seen == dead else seen - dead)
        agreed = agreed + 1 if seen == dead and not alive else 0
        if not seen or agreed == _AGREE:
            return []
        if time.monotonic() >= deadline:
            stay = [processes.named(alive[pid]) for pid in alive.keys() & known]
            return stay + _passing(listed, spare, seen - known)
        if seen <= known:
            time.sleep(_PAUSE)
        known |= seen
        dead = seen - alive.keys()


def _alive(pids: Iterable[int]) -> dict[int, Process]:
    rows = map(processes.process, pids)
    return {row.pid: row for row in rows if row is not None and not row.gone}


def _signal(
    first: list[int], dead: Collection[int], spare: Collection[int], number: int
) -> set[int]:
    """Signal these and all below them, parents first, because they may fork again; returns the processes."""
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
    """The newest of a chain that goes on; its command, where it lived until that was read."""
    if not pids:
        return []
    for _ in range(_TRIES):
        for pid in reversed(listed()):
            text = "" if pid in spare else processes.command(pid)
            if text and not text.startswith("["):  # the dead have a name in brackets
                return [{"pid": pid, "command": f"{text} ({_GOES_ON})"}]
    return [{"pid": max(pids), "command": _GOES_ON}]
