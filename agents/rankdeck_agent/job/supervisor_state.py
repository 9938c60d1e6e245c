"""The supervisor of a run folder as other processes see it: is it
alive, and what is known if it is gone.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent import LAUNCHER
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import (
    STREAMS,
    UNKNOWN,
    RunFolder,
    all_events,
    decode_end,
    exited_ranks,
    is_closed,
    post_mortem,
    wait_until,
)
from rankdeck_agent.job.last_words import RANK, read_last_words
from rankdeck_agent.machine import read_boot_time
from rankdeck_agent.private_files import replace_private
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import plain_line
from rankdeck_agent.values import Value
from rankdeck_agent.wire.job_events import (
    JobEvent,
    RankExited,
    SupervisorGone,
    SupervisorReady,
    Trouble,
)
from rankdeck_agent.wire.run_folder import STARTER_PID, SUPERVISOR_LOCK, SUPERVISOR_PID

Events = list[dict[str, Any]]
_COARSE = 0.02
"""Seconds by which the modification time of a file may lag behind the clock."""


_TAKE, _POLL = 2.0, 0.01


def note_supervisor(folder: RunFolder) -> None:
    """Record that this process is the supervisor, and lock the run folder until it ends.

    It stays without a lock where the file system has no locks, or no room.
    """
    with suppress(OSError):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(folder / SUPERVISOR_LOCK, flags, 0o600)
        wait_until(lambda: _take(handle), _TAKE, _POLL)
    _note(folder, SUPERVISOR_PID)


def note_starter(folder: RunFolder) -> None:
    """Record that this process is starting the supervisor and ends when it is ready."""
    _note(folder, STARTER_PID)


def supervisor_pid(folder: RunFolder) -> int:
    """The pid of the supervisor that runs on this machine, 0 if there is none."""
    return _alive(folder, SUPERVISOR_PID, _is_locked(folder / SUPERVISOR_LOCK))


def is_supervised(folder: RunFolder) -> bool:
    """Whether a supervisor runs, here or on another machine that has the same folder."""
    return bool(_is_locked(folder / SUPERVISOR_LOCK)) or bool(supervisor_pid(folder))


def killed_supervisor(folder: RunFolder) -> Optional[int]:
    """When the supervisor that was killed had begun, in clock ticks since boot;
    None if it runs or has closed the job.
    """
    if is_supervised(folder):
        return None
    events = folder.events
    if is_closed(events) and all(e["kind"] != SupervisorGone.KIND for e in all_events(events)):
        return None
    noted = _noted(folder, SUPERVISOR_PID)
    return noted[1] if noted else None


def is_starting(folder: RunFolder) -> bool:
    """Whether a supervisor is being started, so that none is expected yet."""
    return bool(_alive(folder, STARTER_PID, None))


def _take(handle: int) -> bool:
    """Lock the file; False if another process looks just now whether it is locked."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks here: trying again does not help
    return True


def _is_locked(lock: Path) -> Optional[bool]:
    """Whether a process holds the lock; None if that cannot be known: no such
    file, or no locks on the file system.
    """
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False


def _note(folder: RunFolder, name: str) -> None:
    row = processes.find_process(os.getpid())
    text = f"{os.getpid()} {row.start if row else 0} {os.uname().nodename}\n"
    replace_private(folder / name, text.encode())


def _alive(folder: RunFolder, name: str, locked: Optional[bool]) -> int:
    """The pid that was noted, if that process runs on this machine; `locked`: see `_is_locked`."""
    noted = _noted(folder, name)
    if noted is None:
        return 0
    pid, start = noted
    row = processes.find_process(pid)
    if row is not None:
        return pid if not row.gone and row.start == start else 0
    return pid if locked or (locked is None and _exists(pid)) else 0


def _noted(folder: RunFolder, name: str) -> Optional[tuple[int, int]]:
    """(pid, clock ticks since boot when it began) of the process of this
    machine that noted itself in this file.
    """
    try:
        words = (folder / name).read_text().split()
        pid, start = int(words[0]), int(words[1])
    except (OSError, ValueError, IndexError):
        return None
    return (pid, start) if words[2:3] in ([], [os.uname().nodename]) else None


def _exists(pid: int) -> bool:
    """Whether the user has a process with this pid, even one that /proc hides."""
    if pid <= 0:  # to kill, these are groups of processes
        return False
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


GONE = "the supervisor of this node is gone"
RESTARTED = "this machine was restarted while the job ran"


def close_for(folder: RunFolder, why: Optional[Trouble] = None) -> None:
    """Close the events on behalf of a supervisor that ended early,
    with the exits that shims recorded.

    `why`: None for a supervisor that was found gone.
    """
    events = all_events(folder.events)
    end = JobEvent(round(time.time(), 6), why or describe_lost_supervisor(folder, events))
    post_mortem(folder.events, [end, *_exits(folder, events)])


def describe_lost_supervisor(folder: RunFolder, events: Events) -> SupervisorGone:
    """The event that says that the supervisor is gone: when it last
    wrote here, and which ranks still run.
    """
    places = (folder.place(rank) for rank in folder.ranks())
    files = [folder.events, *(place / name for place in places for name in STREAMS)]
    running = tuple(sorted(_running(folder, events)))
    restarted = _is_restarted(folder, events)
    text = RESTARTED if restarted else GONE
    return SupervisorGone(text, round(max(map(_written, files)), 3), running, restarted)


def _is_restarted(folder: RunFolder, events: Events) -> bool:
    """Whether another kernel runs here than when the supervisor began on this machine."""
    if not events:
        # A crash empties what the kernel had not written to disk yet: names and times are left.
        booted = float(read_boot_time(Tree("/")) or 0)
        return 0 < _written(folder.plan) < booted
    boots = [str(e.get("boot") or "") for e in events if e["kind"] == SupervisorReady.KIND]
    now = processes.read_boot_id()
    here = _noted(folder, SUPERVISOR_PID) is not None or _is_emptied(folder / SUPERVISOR_PID)
    return here and bool(boots and boots[-1] and now) and boots[-1] != now


def _running(folder: RunFolder, events: Events) -> Iterator[int]:
    pids = {e["rank"]: e.get("pid") for e in events if e["kind"] == "started"}
    for rank in pids.keys() - exited_ranks(events):
        pid = pids[rank]
        # The mark distinguishes the rank from another process that has its pid now.
        if (
            isinstance(pid, int)
            and processes.is_alive(pid)
            and processes.is_marked(pid, folder.job, folder.node)
        ):
            yield rank


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_emptied(path: Path) -> bool:
    """Whether a crash took the content of this file: it is empty, or all zeros."""
    try:
        return not path.read_bytes().strip(b"\0")
    except OSError:
        return False


def _exits(folder: RunFolder, events: Events) -> list[JobEvent]:
    """Events for exits that shims recorded and the supervisor did not report, in order of time."""
    ranks = set(folder.ranks()) - {LAUNCHER} - exited_ranks(events)
    found = (_exit(folder.place(rank), rank, events) for rank in ranks)
    return sorted(filter(None, found), key=lambda end: end.at)


def _exit(place: Path, rank: int, events: Events) -> Optional[JobEvent]:
    try:
        status = int((place / "exit").read_text())
    except (OSError, ValueError):
        return None
    at = _written(place / "exit")
    began = [e["at"] for e in events if (e["kind"], e.get("rank")) == ("started", rank)]
    # If the rank was started again, the file may be of its earlier run.
    if len(began) > 1 and at < began[-1] - _COARSE:
        return None
    lines, end = tuple(read_last_words(place, RANK)) if status else (), decode_end(status)
    return JobEvent(at, RankExited(rank, end["code"], end["signal"], lines))


NOT_KNOWN = "unknown"
"""Written instead of an exit code that is not known."""
COMPLETE = "complete"
"""The file with which a launcher says that no more records of ranks will come."""


class Report(Value):
    """A rank on another machine began (`status` None) or ended.

    `at`: epoch seconds by the file server's clock.
    """

    rank: int
    host: str
    status: Optional[int]
    at: float


class SharedRunFolder:
    """Finds out from files which ranks on other machines began and ended, and
    writes the time index of their logs.
    """

    def __init__(self, folder: RunFolder, ranks: Iterable[int]) -> None:
        self._folder, self._ranks = folder, frozenset(ranks)
        self._hosts: dict[int, str] = {}
        self._waiting = set(self._ranks)
        self._sizes: dict[Path, int] = {}

    @property
    def complete(self) -> bool:
        """Whether the launcher noted that its records are complete."""
        return (self._folder / COMPLETE).exists()

    @property
    def waiting(self) -> bool:
        """Whether the end of some rank has not been reported yet."""
        return bool(self._waiting)

    def resume(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Skip what an earlier supervisor has reported, according to its `events`."""
        for event in events:
            if event["kind"] == "started":
                self._hosts[event["rank"]] = str(event.get("host", ""))
            elif event["kind"] == "exited":
                self._waiting.discard(event["rank"])
            elif event["kind"] == "again":
                self.begin_again()

    def begin_again(self) -> None:
        """Expect every rank again; the caller has removed their files."""
        self._hosts.clear()
        self._waiting = set(self._ranks)

    def look(self) -> list[Report]:
        """Reports since the last call, oldest first: the times say which rank failed first."""
        news = [report for rank in sorted(self._waiting) for report in self._news(rank)]
        self._waiting -= {report.rank for report in news if report.status is not None}
        return sorted(news, key=lambda report: report.at)

    def give_up(self) -> list[Report]:
        """Report the end, with status UNKNOWN, of every running
        rank; no more files are expected.
        """
        running, now = sorted(self._waiting & set(self._hosts)), time.time()
        self._waiting.clear()
        return [Report(rank, self._hosts[rank], UNKNOWN, now) for rank in running]

    def _news(self, rank: int) -> Iterator[Report]:
        place = self._folder.place(rank)
        # Listing a folder makes NFS ask the server; a single name may come from its cache.
        with os.scandir(place) as entries:
            times = {entry.name: entry.stat().st_mtime for entry in entries}
        for name in STREAMS:
            self._stamp(place / name)
        if rank not in self._hosts and "started" in times:
            self._hosts[rank] = _first_line(place / "started")
            yield Report(rank, self._hosts[rank], None, times["started"])
        word = _first_line(place / "exit") if "exit" in times else ""
        if word.isdigit() or word == NOT_KNOWN:
            status = int(word) if word.isdigit() else UNKNOWN
            yield Report(rank, self._hosts.get(rank, ""), status, times["exit"])

    def _stamp(self, log: Path) -> None:
        size = log.stat().st_size if log.exists() else 0
        known = self._sizes.get(log, 0)
        if size > known:
            self._sizes[log] = size
            with log.with_name(log.name + ".idx").open("a") as index:
                index.write(f"{known} {time.time():.6f}\n")


def _first_line(file: Path) -> str:
    try:
        return plain_line(file.read_text(errors="replace").partition("\n")[0], 64)
    except OSError:
        return ""
