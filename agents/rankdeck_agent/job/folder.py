"""The run folder of one job on one node: its paths, its `events`
file, and how ends are recorded.
"""

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from rankdeck_agent import LAUNCHER, RUN_TOKEN
from rankdeck_agent.older_python import delete_file, find_paths
from rankdeck_agent.private_files import make_private_folder
from rankdeck_agent.state_folder import agent_state_folder
from rankdeck_agent.text import parse_json_table
from rankdeck_agent.wire.job_events import EventBody, JobEvent, NodeClosed, as_row
from rankdeck_agent.wire.run_folder import (
    CANCELLED,
    EVENTS,
    PLAN,
    RANK_PREFIX,
    RESERVE,
    name_rank_folder,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
STREAMS = ("out", "err")


class FolderError(Exception):
    """A run folder that cannot be made or found; the text is a sentence."""


class NoFolderError(FolderError):
    """This node does not know the job: it was never started here, or its run folder was removed."""


class CancelledEarlierError(FolderError):
    """The job was cancelled on this node and cannot be started here any more."""


class FolderThereError(FolderError):
    """The job has been started on this node before."""


def good_name(name: str) -> bool:
    """Whether `name` is safe as one part of a path: no `/`, no
    leading dot, at most 128 characters.
    """
    return bool(_NAME.match(name))


class RunFolder(NamedTuple):
    """Paths of one run folder."""

    path: Path
    job: str
    node: str

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def plan(self) -> Path:
        return self.path / PLAN

    @property
    def events(self) -> Path:
        """What happened to the job on this node; nobody sees a job without it."""
        return self.path / EVENTS

    def place(self, rank: int) -> Path:
        """The folder of one rank's output; LAUNCHER has one too."""
        return self.path / name_rank_folder(rank)

    def ranks(self) -> list[int]:
        """Every rank that has a folder here, LAUNCHER first."""
        found = (p.name[len(RANK_PREFIX) :] for p in find_paths(self.path, f"{RANK_PREFIX}*"))
        return [LAUNCHER, *sorted(int(name) for name in found if name.isdigit())]

    @property
    def links(self) -> Path:
        """The folder with links to the run folder; its path is the same on every node."""
        return Path(f"/tmp/rankdeck.{self.job}")

    def plan_text(self, text: str) -> str:
        """`text` with RUN_TOKEN replaced by the run folder's path."""
        return text.replace(RUN_TOKEN, str(self.path))


def wait_until(condition: Callable[[], object], limit: float, pause: float = 0.05) -> None:
    """Wait until `condition` returns something true, at most `limit`
    seconds; asks every `pause` seconds.
    """
    deadline = time.monotonic() + limit
    while not condition() and time.monotonic() < deadline:
        time.sleep(pause)


def run_folder(job: str, node: str) -> RunFolder:
    """The run folder of that job on that node, which may not exist; raises
    FolderError if a name is not valid.
    """
    for name in (job, node):
        if not good_name(name):
            raise FolderError(f"{name[:60]!r} is not a name of a job or node")
    return RunFolder(agent_state_folder().absolute() / "jobs" / job / node, job, node)


def find_run_folder(job: str, node: str) -> RunFolder:
    """The run folder of that job on that node; raises NoFolderError if it has none."""
    folder = run_folder(job, node)
    if not folder.events.is_file():
        how = "cancelled before it was" if is_start_forbidden(folder) else "never"
        raise NoFolderError(
            f"job {job} has no run folder on node {node}: {how} started there, or removed"
        )
    return folder


def forbid_start(folder: RunFolder, limit: float) -> bool:
    """Let the job never start on this node; False if it has been started,
    waiting `limit` seconds for one that is being.

    A console that was killed may have asked for a start that arrives after the
    cancel: on a slow node, seconds later.
    """
    try:
        make_private_folder(folder.path.parent)
        folder.path.mkdir(mode=0o700)
        (folder / CANCELLED).touch(mode=0o600)
    except FileExistsError:
        # Somebody may be making it: others see the job once it has its events.
        wait_until(lambda: _is_decided(folder), limit)
    except OSError:
        pass  # where no folder can be made, no job can be started either
    return not folder.events.is_file()


def _is_decided(folder: RunFolder) -> bool:
    """Whether nobody is making this run folder."""
    made = folder.events.is_file()
    return made or is_start_forbidden(folder) or not folder.path.exists()


def is_start_forbidden(folder: RunFolder) -> bool:
    """Whether `forbid_start` was called for a job without a run folder."""
    return (folder / CANCELLED).exists()


def all_folders() -> Iterator[RunFolder]:
    """The run folder of every job on this machine."""
    for events in find_paths(agent_state_folder().absolute() / "jobs", f"*/*/{EVENTS}"):
        yield RunFolder(events.parent, events.parent.parent.name, events.parent.name)


FULL = (errno.ENOSPC, errno.EDQUOT)
UNKNOWN = -1
"""Exit status of a rank whose end nobody saw."""
_RESERVE = 64 * 1024

End = dict[str, Optional[int]]
"""{"code": …, "signal": …} of something that ended: one of them is
None; both if the end is not known.
"""


_ROOM = 1_000_000
"""More events than a supervisor writes before the kernel has them on disk."""


class Journal:
    """Appends events to an `events` file; what does not fit on a full disk
    is kept and written later, in order.
    """

    def __init__(self, path: Path, *, successor: bool = False) -> None:
        """`successor`: whether another process wrote the file before. If its machine crashed, its
        last events are lost here and half a line may be left, but a console may have them: the
        numbers of later events leave room for them.
        """
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._reserve = path.with_name(RESERVE)
        self._seq = next_seq(path) + (_ROOM if successor else 0)
        self._waiting = b"" if _ends_a_line(path) else b"\n"

    def reserve(self) -> bool:
        """Reserve disk space for the event that reports a full disk; False if there was none."""
        try:
            self._reserve.write_bytes(os.urandom(_RESERVE))
        except OSError:
            self.spend_reserve()
            return False
        return True

    def spend_reserve(self) -> None:
        """Free the reserved space, so that events can be written."""
        delete_file(self._reserve)

    def add(self, event: EventBody, at: Optional[float] = None) -> None:
        """Write one event with the next `seq`; `at`: when it happened
        in epoch seconds, None for now.
        """
        when = round(time.time(), 6) if at is None else at
        row = {"seq": self._seq, "at": when, **as_row(event)}
        self._seq += 1
        self._waiting += json.dumps(row, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> bool:
        """Write the events that are waiting; False if the disk is still full."""
        while self._waiting:
            try:
                written = os.write(self._fd, self._waiting)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                return False
            self._waiting = self._waiting[written:]
        return True

    def close(self) -> None:
        os.close(self._fd)


class EventReader:
    """Reads events from a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """The complete events added since the last call, at most a megabyte;
        lines that are no event are skipped.
        """
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read(1 << 20)
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = (parse_json_table(line.decode("utf-8", "replace")) for line in lines if line)
        return [event for event in found if event is not None and _is_event(event)]


def _is_event(event: Mapping[str, Any]) -> bool:
    return isinstance(event.get("seq"), int) and isinstance(event.get("kind"), str)


def all_events(path: Path) -> list[dict[str, Any]]:
    """Every event in the file so far."""
    reader = EventReader(path)
    events: list[dict[str, Any]] = []
    while True:
        more = reader.read()
        if not more:
            return events
        events.extend(more)


def next_seq(path: Path) -> int:
    """The `seq` of the next event in this file."""
    events = all_events(path)
    return int(events[-1]["seq"]) + 1 if events else 0


def _ends_a_line(path: Path) -> bool:
    """Whether what is appended to the file begins a line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() in (b"", b"\n")


def is_closed(path: Path) -> bool:
    """Whether the `events` file ends with `closed`: nothing more will come."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return b'"kind":"closed"' in file.read()


def post_mortem(path: Path, events: Iterable[JobEvent]) -> None:
    """Append `events` and `closed` to the file of a supervisor that is gone;
    does nothing if it is closed already.
    """
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_closed(path):
            return
        journal = Journal(path, successor=True)
        for event in events:
            journal.add(event.body, event.at)
        journal.add(NodeClosed())
        journal.close()


def exited_ranks(events: Iterable[Mapping[str, Any]]) -> set[Any]:
    """The ranks whose last event is `exited`."""
    ended: dict[Any, bool] = {}
    for event in events:
        if event["kind"] in ("started", "exited"):
            ended[event.get("rank")] = event["kind"] == "exited"
        elif event["kind"] == "again":
            ended.clear()
    return {rank for rank, has in ended.items() if has}


def decode_end(status: int) -> End:
    """The End for an exit status of a shell: 129 to 192 mean a signal;
    UNKNOWN gives neither code nor signal.
    """
    if status == UNKNOWN:
        return {"code": None, "signal": None}
    if 128 < status <= 192:
        return {"code": None, "signal": status - 128}
    return {"code": status, "signal": None}


def shell_status(status: int) -> int:
    """The exit status that a shell reports for a status of `waitpid`:
    the code, or 128 plus the signal.
    """
    killed = os.WIFSIGNALED(status)
    return 128 + os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)


def exact_outcome(status: int) -> End:
    """The End for a status of `waitpid`: unlike for `decode_end`, code 137 stays
    a code (a launcher's child was killed).
    """
    if os.WIFSIGNALED(status):
        return {"code": None, "signal": os.WTERMSIG(status)}
    return {"code": os.WEXITSTATUS(status), "signal": None}


def has_failed(end: End) -> bool:
    """Whether it ended with anything but code 0."""
    return end["code"] != 0
