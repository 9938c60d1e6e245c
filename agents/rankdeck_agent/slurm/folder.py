"""The folders of a user's Slurm jobs: marks, id and settings in each run
folder, and the lease of the one keeper process.

The folder `marks` has empty files whose names say that a rank or the batch script began or ended.
Nodes and login node share only a file system, and listing one folder shows all that is new. A name
is written once and never changed.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

from rankdeck_agent.files import (
    Names,
    agent_state_folder,
    make_private_folder,
    read_json_table,
    replace_private,
)
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import SLURM_SETTINGS, RunFolder, good_name, post_mortem, run_folder
from rankdeck_agent.older_python import delete_file
from rankdeck_agent.slurm.commands import Slurm, slurm_in
from rankdeck_agent.slurm.job_reports import SlurmJobRow, is_later
from rankdeck_agent.text import plain_line
from rankdeck_agent.wire.job_events import JobEvent, Trouble

ID = "slurm.id"
"""File in the run folder with two lines: Slurm's id of the job,
and the PATH for Slurm's commands.
"""
MARKS = "marks"
"""Folder in the run folder that has the marks."""
_TAIL = 1 << 16
"""Bytes that are read from the end of a part of a log."""
BATCH = -1
"""Used as the rank of the batch script."""
ASKED, SEEN = "asked", "seen"
"""How the names that a cancel leaves begin: it was requested; what Slurm answered about the job."""


class RunMark(NamedTuple):
    """What the name of one mark says. `at`: epoch seconds by the file server's clock."""

    attempt: int
    """How often Slurm had queued the job again."""
    rank: int
    """BATCH for the batch script."""
    began: bool
    """True: it began; False: it ended."""
    at: float
    host: str = ""
    pid: int = 0
    status: Optional[int] = None


class Marks:
    """Reads the marks of a run folder, each once."""

    def __init__(self, run: Path) -> None:
        self._folder = run / MARKS
        self._names = Names(self._folder)
        self._known: set[str] = set()
        self.others: set[str] = set()
        """Names that a cancel left."""

    def look(self, now: float) -> list[RunMark]:
        """The new marks, oldest first; `now` in monotonic seconds. Raises OSError."""
        fresh = [name for name in self._names.read(now) if name not in self._known]
        self.others.update(name for name in fresh if name.startswith((ASKED, SEEN)))
        found = [mark for name in fresh for mark in self._read(name)]
        self._known.update(fresh)
        return sorted(found, key=lambda mark: (mark.attempt, mark.at, not mark.began))

    def _read(self, name: str) -> Iterator[RunMark]:
        mark = parse_run_mark(name)
        if mark is not None:
            yield mark._replace(at=(self._folder / name).stat().st_mtime)


def parse_run_mark(name: str) -> Optional[RunMark]:
    """The mark of this name: `0.3.began.4711.n1`, `0.3.ended.7`,
    `1.batch.began.n1`; None for other names.
    """
    words = name.split(".", 4)
    if len(words) < 4 or not words[0].isdecimal() or len(words[0]) > 6:
        return None
    who, what, rest = words[1], words[2], words[3:]
    rank = BATCH if who == "batch" else int(who) if who.isdecimal() and len(who) < 8 else None
    if rank is None or what not in ("began", "ended"):
        return None
    if what == "ended":
        status = int(rest[0]) if rest[0].isdecimal() and len(rest[0]) < 4 else None
        return RunMark(int(words[0]), rank, False, 0.0, status=status)
    pid, host = ("0", ".".join(rest)) if rank == BATCH else (rest[0], ".".join(rest[1:]))
    number = int(pid) if pid.isdecimal() and len(pid) < 10 else 0
    return RunMark(int(words[0]), rank, True, 0.0, host=plain_line(host, 64), pid=number)


def read_id(folder: RunFolder) -> tuple[str, str]:
    """(Slurm's id of the job, the PATH for Slurm's commands); two "" while the id is not known."""
    try:
        number, path = (folder / ID).read_text().splitlines()[:2]
    except (OSError, ValueError):
        return "", ""
    return (number, path) if number.isdecimal() else ("", "")


def slurm_of(folder: RunFolder) -> Slurm:
    """Slurm's commands with the environment that the cluster file gives to this job."""
    _, path = read_id(folder)
    slurm = slurm_in(read_job_settings(folder))
    return slurm._replace(variables={**slurm.variables, **({"PATH": path} if path else {})})


def submit_time(folder: RunFolder) -> float:
    """When Slurm accepted the job, by the file server's clock; NaN if not
    known, so that comparisons are false.
    """
    try:
        return (folder / ID).stat().st_mtime
    except OSError:
        return float("nan")


def is_from(folder: RunFolder, seen: SlurmJobRow) -> bool:
    """Whether this job has the run folder as working directory, as
    far as Slurm's answer shows it.
    """
    return seen.folder == plain_line(os.path.realpath(folder.path), 500)


def later_job(folder: RunFolder, seen: SlurmJobRow) -> bool:
    """Whether this is a later job with the same number, because the
    controller has begun to count again.

    Our job has its run folder as working directory, unless the user or the site changed that.
    """
    moved = bool(seen.folder) and not is_from(folder, seen)
    return moved and is_later(seen, submit_time(folder))


def write_id(folder: RunFolder, number: str, path: str) -> None:
    """Record the id; from now on the keeper writes the job's events."""
    replace_private(folder / ID, f"{number}\n{path}\n".encode())


def not_taken(folder: RunFolder) -> None:
    """Close a job that never reached Slurm."""
    why = "sbatch printed no job id, and Slurm has no job from this folder"
    post_mortem(folder / "events", [JobEvent(time.time(), Trouble(why))])


def read_job_settings(folder: RunFolder) -> dict[str, Any]:
    """The console's settings for this job; empty if they cannot be read."""
    return read_json_table(folder / SLURM_SETTINGS)


def attempt_log_starts(folder: RunFolder) -> list[dict[str, int]]:
    """For each attempt, log (`rank.3/out`) -> byte where the attempt's output
    begins; a log that is missing begins at 0.
    """
    found: dict[int, dict[str, int]] = {0: {}}
    for path in (*folder.path.glob("attempt.*"), *folder.path.glob("rank.*/attempt.*")):
        number = path.name.partition(".")[2]
        if number.isdecimal() and len(number) < 6:
            above = "" if path.parent == folder.path else f"{path.parent.name}/"
            sizes = _sizes(path).items()
            found.setdefault(int(number), {}).update({above + name: size for name, size in sizes})
    return [found.get(number, {}) for number in range(max(found) + 1)]


def _sizes(path: Path) -> dict[str, int]:
    """Name -> bytes, from the lines `NAME BYTES` of a file that a batch script wrote."""
    words = (row.rpartition(" ") for row in path.read_text(errors="replace").splitlines())
    return {name: int(size) for name, _, size in words if size.isdecimal()}


def launcher_start(folder: RunFolder, attempt: int) -> Optional[int]:
    """The byte where the launcher's output of an attempt begins; None
    if there is no such attempt yet.
    """
    if attempt == 0:
        return 0
    try:
        return _sizes(folder / f"attempt.{attempt}").get("launcher/out")
    except OSError:
        return None


def part_of_log(path: Path, begin: Optional[int], end: Optional[int]) -> list[str]:
    """The last lines of the log between these bytes; `end` None is the end of the file.

    Empty if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            stop = os.fstat(file.fileno()).st_size if end is None else end
            file.seek(max(begin or 0, stop - _TAIL))
            return file.read(max(0, stop - file.tell())).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def attached_settings(folder: RunFolder) -> Optional[dict[str, Any]]:
    """The settings of a job that Rankdeck did not submit; None if Rankdeck submitted it."""
    row = read_job_settings(folder)
    return row if "attached" in row else None


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
        self._names = Names(_open_jobs())
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


def start_keeper() -> None:
    """Start a keeper, detached from this process; it ends at once if another one is alive."""
    make_private_folder(keeper_folder())
    env = {name: value for name, value in os.environ.items() if name not in _OTHERS_MARKS}
    # Without site-packages, which cost memory: the keeper runs for days.
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
