"""Ends chains of processes below a subreaper.

In a chain each process forks, calls `setsid` and ends; its child does the same. Each is gone before
its pid has been read from /proc. But the newest is always a child of the subreaper, or below a
process that is just ending, and the kernel lists children within microseconds. SIGKILL to the
newest before it has forked ends the chain.
"""

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Collection, Generator, Iterable
from typing import Any, Callable

from rankdeck_agent.job.processes import (
    command_line,
    describe_left_process,
    is_marked,
    keep_alive_ones,
    list_processes,
)

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
        self._others.update(keep_alive_ones(rest))
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
        alive = keep_alive_ones(seen if seen == dead else seen - dead)
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
