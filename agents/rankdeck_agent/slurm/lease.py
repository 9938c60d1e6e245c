"""The lease on a user's Slurm jobs: one keeper process for all of them, on any login node, replaced when it is gone.

The state folder is shared by the login nodes. The keeper writes its name into `slurm/keeper` and touches that
file every few seconds. Whoever sees on its own clock that nobody touches it any more may take over.
"""

import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.files import Names, private_folder
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import RunFolder, good_name, run_folder, state_folder
from rankdeck_agent.text import table

BEAT = 5.0
"""Seconds between two touches."""
SILENT = 20.0
"""Seconds without a touch after which a keeper on another host is taken for gone."""
_POLL = 0.5
_OTHERS_MARKS = ("RANKDECK_JOB", "RANKDECK_NODE", "RANKDECK_RUN")


def place() -> Path:
    """The folder of the keeper, in the state folder."""
    return state_folder().absolute() / "slurm"


def _open_jobs() -> Path:
    return place() / "open"


def register(folder: RunFolder) -> None:
    """Have the keeper look after this job until it is over; if it does already, have it look at once. Raises OSError."""
    private_folder(_open_jobs())
    fresh = _open_jobs() / f".{os.getpid()}"
    fresh.touch(mode=0o600)
    fresh.replace(_open_jobs() / f"{folder.job}@{folder.node}")  # which changes the folder


def unregister(folder: RunFolder) -> None:
    """The job is over."""
    (_open_jobs() / f"{folder.job}@{folder.node}").unlink(missing_ok=True)


class OpenJobs:
    """The jobs to look after; cheap to ask once a second."""

    def __init__(self) -> None:
        self._names = Names(_open_jobs())
        self.rung = False
        """Whether a job came or has news."""

    def folders(self, now: float) -> list[RunFolder]:
        """Where they are; `now` is monotonic, in seconds."""
        try:
            names = sorted(self._names.read(now))
        except OSError:
            return []
        self.rung = self._names.changed
        pairs = (name.partition("@")[::2] for name in names)
        return [run_folder(job, node) for job, node in pairs if good_name(job) and good_name(node)]


class Lease:
    """What makes this process the keeper."""

    def __init__(self) -> None:
        self._token = os.urandom(8).hex()
        self._file = place() / "keeper"
        self._lock = -1
        self._beat = 0.0

    def take(self) -> bool:
        """Become the keeper; False if another one lives. Takes `SILENT` seconds where one on another host is gone."""
        private_folder(place())
        self._lock = os.open(place() / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system without locks: the touches decide
        if not _is_gone(self._file):
            return False
        fresh = self._file.with_name(f"keeper.{self._token}")
        fresh.write_text(json.dumps({"token": self._token, **_who()}))
        fresh.replace(self._file)
        self._beat = time.monotonic()
        return True

    def holds(self) -> bool:
        """Whether this process still is the keeper; touches the file where that is due."""
        if time.monotonic() - self._beat < BEAT:
            return True
        if _read(self._file).get("token") != self._token:
            return False
        os.utime(self._file)
        self._beat = time.monotonic()
        return True

    def leave(self) -> None:
        """Give the lease up, so that another keeper can follow at once."""
        if _read(self._file).get("token") == self._token:
            self._file.unlink(missing_ok=True)
        if self._lock >= 0:
            os.close(self._lock)


def _who() -> dict[str, Any]:
    row = processes.process(os.getpid())
    return {
        "host": os.uname().nodename,
        "boot": processes.boot(),
        "pid": os.getpid(),
        "start": row.start if row else 0,
    }


def _read(file: Path) -> dict[str, Any]:
    try:
        return table(file.read_text()) or {}
    except OSError:
        return {}


def _is_here(known: dict[str, Any]) -> bool:
    return known.get("host") == os.uname().nodename


def _lives_here(known: dict[str, Any]) -> bool:
    """Whether the keeper with this lease runs on this machine, which is its own."""
    pid, start = known.get("pid"), known.get("start")
    same = known.get("boot") == processes.boot()
    return (
        same and isinstance(pid, int) and isinstance(start, int) and processes.is_alive(pid, start)
    )


def _is_gone(file: Path) -> bool:
    """Whether no keeper lives; waits for a touch where it would be on another host."""
    known = _read(file)
    if not known:
        return True
    if _is_here(known):
        return not _lives_here(known)
    before, deadline = touched(file), time.monotonic() + SILENT
    while time.monotonic() < deadline:
        time.sleep(_POLL)
        if touched(file) != before:
            return False
    return True


def touched(file: Path) -> Optional[float]:
    """When the file was touched last, by the file server's clock; None if there is none."""
    try:
        # Opened first: NFS asks the server again only then.
        with file.open("rb") as handle:
            return os.fstat(handle.fileno()).st_mtime
    except OSError:
        return None


class KeeperWatch:
    """Makes sure that a keeper runs while a job is followed; cheap enough to call often."""

    def __init__(self) -> None:
        self._touched: Optional[float] = None
        self._since = 0.0

    def ensure(self) -> None:
        """Start a keeper on this host where none lives anywhere."""
        file, now = place() / "keeper", time.monotonic()
        known = _read(file)
        last = touched(file)
        if last != self._touched or not self._since:
            self._touched, self._since = last, now
        alive = (
            _lives_here(known) if _is_here(known) else bool(known) and now - self._since < SILENT
        )
        if not alive:
            self._since = now
            start()


def start() -> None:
    """Start a keeper that is detached from this process; it ends at once where one lives."""
    private_folder(place())
    env = {name: value for name, value in os.environ.items() if name not in _OTHERS_MARKS}
    # Without site-packages: it stays for days, and they cost memory.
    argv = [sys.executable, "-S", "-E", str(Path(sys.argv[0]).absolute()), "slurm", "keep"]
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _become(argv, env)
    finally:
        os._exit(0)


def _become(argv: list[str], env: dict[str, str]) -> None:
    """Become the keeper, with no file of the starting process left open."""
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(place() / "keeper.err", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.closerange(3, 1024)
    os.chdir("/")
    os.execve(argv[0], argv, {**env, "MALLOC_ARENA_MAX": "1"})
