"""The one process that keeps a user's Slurm jobs: which jobs it must keep, who it is, and how it is
started.

Login nodes share the state folder. The keeper writes its identity to `slurm/keeper` and touches
that file every few seconds. A process that sees, by its own clock, that the file is no longer
touched may take over.
"""

import contextlib
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.folder_names import FolderNames
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import RunFolder, good_name, run_folder
from rankdeck_agent.older_python import delete_file
from rankdeck_agent.private_files import make_private_folder, read_json_table
from rankdeck_agent.state_folder import agent_state_folder

BEAT = 5.0
"""Seconds between two touches of the keeper's file."""
SILENT = 20.0
"""Seconds without a touch after which a keeper on another host counts as gone."""
_POLL = 0.5
_OTHERS_MARKS = ("RANKDECK_JOB", "RANKDECK_NODE", "RANKDECK_RUN")


def keeper_folder() -> Path:
    """The keeper's folder in the state folder."""
    return agent_state_folder().absolute() / "slurm"


def _open_jobs() -> Path:
    return keeper_folder() / "open"


def register_job(folder: RunFolder) -> None:
    """Have the keeper keep this job until it is over; if it does already, make it look at once.

    Raises OSError.
    """
    make_private_folder(_open_jobs())
    fresh = _open_jobs() / f".{os.getpid()}"
    fresh.touch(mode=0o600)
    fresh.replace(_open_jobs() / f"{folder.job}@{folder.node}")  # which changes the folder


def note_change() -> None:
    """Have the keeper ask Slurm soon about the user's jobs, some of
    which were changed; errors are ignored.
    """
    with contextlib.suppress(OSError):
        make_private_folder(_open_jobs())
        (keeper_folder() / _CHANGED).touch(mode=0o600)
        bell = _open_jobs() / f".{os.getpid()}"
        bell.touch(mode=0o600)
        delete_file(bell)  # the folder has changed, which the keeper sees


def take_change() -> bool:
    """Whether jobs were changed since the last call."""
    noted = (keeper_folder() / _CHANGED).exists()
    if noted:
        delete_file(keeper_folder() / _CHANGED)
    return noted


_CHANGED = "changed"


def unregister_job(folder: RunFolder) -> None:
    """Have the keeper drop this job, which is over."""
    delete_file(_open_jobs() / f"{folder.job}@{folder.node}")


def is_registered(folder: RunFolder) -> bool:
    """Whether the keeper keeps this job, or will once it runs again."""
    return (_open_jobs() / f"{folder.job}@{folder.node}").exists()


class OpenJobs:
    """The jobs that the keeper must keep; cheap to ask once a second."""

    def __init__(self) -> None:
        self._names = FolderNames(_open_jobs())
        self.rung = False
        """Whether a job was added, or registered again because it has news,
        before the last call of `folders`.
        """

    def folders(self, now: float) -> list[RunFolder]:
        """Their run folders; `now` in monotonic seconds."""
        try:
            names = sorted(self._names.read(now))
        except OSError:
            return []
        self.rung = self._names.changed
        pairs = (name.partition("@")[::2] for name in names)
        return [run_folder(job, node) for job, node in pairs if good_name(job) and good_name(node)]


class Lease:
    """The lease that makes this process the only keeper."""

    def __init__(self) -> None:
        self._token = os.urandom(8).hex()
        self._file = keeper_folder() / "keeper"
        self._lock = -1
        self._beat = 0.0

    def take(self) -> bool:
        """Become the keeper; False if another one is alive.

        Takes up to SILENT seconds if the last one was on another host.
        """
        make_private_folder(keeper_folder())
        self._lock = os.open(
            keeper_folder() / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the file system has no locks: the touches decide
        if not _is_gone(self._file):
            return False
        fresh = self._file.with_name(f"keeper.{self._token}")
        fresh.write_text(json.dumps({"token": self._token, **_who()}))
        fresh.replace(self._file)
        self._beat = time.monotonic()
        return True

    def holds(self) -> bool:
        """Whether this process is still the keeper; touches the file if due."""
        if time.monotonic() - self._beat < BEAT:
            return True
        if read_json_table(self._file).get("token") != self._token:
            return False
        os.utime(self._file)
        self._beat = time.monotonic()
        return True

    def leave(self) -> None:
        """Give up the lease, so that another keeper can start at once."""
        if read_json_table(self._file).get("token") == self._token:
            delete_file(self._file)
        if self._lock >= 0:
            os.close(self._lock)


def _who() -> dict[str, Any]:
    row = processes.find_process(os.getpid())
    return {
        "host": os.uname().nodename,
        "boot": processes.read_boot_id(),
        "pid": os.getpid(),
        "start": row.start if row else 0,
    }


def _is_here(known: dict[str, Any]) -> bool:
    return known.get("host") == os.uname().nodename


def _lives_here(known: dict[str, Any]) -> bool:
    """Whether the keeper with this lease is alive, if this is its machine."""
    pid, start_keeper = known.get("pid"), known.get("start")
    same = known.get("boot") == processes.read_boot_id()
    return (
        same
        and isinstance(pid, int)
        and isinstance(start_keeper, int)
        and processes.is_alive(pid, start_keeper)
    )


def _is_gone(file: Path) -> bool:
    """Whether no keeper is alive; if the last one was on another host,
    waits up to SILENT seconds for a touch.
    """
    known = read_json_table(file)
    if not known:
        return True
    if _is_here(known):
        return not _lives_here(known)
    before, deadline = touched_time(file), time.monotonic() + SILENT
    while time.monotonic() < deadline:
        time.sleep(_POLL)
        if touched_time(file) != before:
            return False
    return True


def touched_time(file: Path) -> Optional[float]:
    """When the file was touched last, by the file server's clock; None if there is none."""
    try:
        # Open the file: only then does NFS ask the server.
        with file.open("rb") as handle:
            return os.fstat(handle.fileno()).st_mtime
    except OSError:
        return None


class KeeperWatch:
    """Makes sure that a keeper runs; cheap enough to call often."""

    def __init__(self) -> None:
        self._touched: Optional[float] = None
        self._since = 0.0

    def ensure(self) -> None:
        """Start a keeper on this host if none is alive on any host."""
        file, now = keeper_folder() / "keeper", time.monotonic()
        known = read_json_table(file)
        last = touched_time(file)
        if last != self._touched or not self._since:
            self._touched, self._since = last, now
        alive = (
            _lives_here(known) if _is_here(known) else bool(known) and now - self._since < SILENT
        )
        if not alive:
            self._since = now
            start_keeper()


def slurm_command(*words: str) -> list[str]:
    """What runs a `slurm` command of this agent, without site-packages, which cost memory: the
    keeper runs for days.
    """
    return [sys.executable, "-S", "-E", str(Path(sys.argv[0]).absolute()), "slurm", *words]


def start_keeper() -> None:
    """Start a keeper, detached from this process; it ends at once if another one is alive."""
    make_private_folder(keeper_folder())
    env = {name: value for name, value in os.environ.items() if name not in _OTHERS_MARKS}
    argv = slurm_command("keep")
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
    """Replace this process by the keeper, with all files of the starting process closed.

    If it ends with the login all the same, the next console starts another: Slurm keeps the jobs.
    """
    # Loaded here: the keeper itself, which stays for days, does not need what it loads.
    from rankdeck_agent.logout import leave_session

    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(keeper_folder() / "keeper.err", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.closerange(3, 1024)
    os.chdir("/")
    leave_session("slurm-keeper")
    os.execve(argv[0], argv, {**env, "MALLOC_ARENA_MAX": "1"})
