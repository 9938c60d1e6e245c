"""Follows the log of one container through broken connections, rotation
and restarts, and writes it to disk.
"""

import errno
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from rankdeck_agent.descriptors import write_all
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.older_python import delete_file
from rankdeck_agent.private_files import make_private_folder, read_json_table, write_private_file
from rankdeck_agent.schedulers.kubernetes.api import Api, HttpStream
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import SILENT, ApiError
from rankdeck_agent.schedulers.kubernetes.objects import (
    ERR,
    EXIT,
    OUT,
    START,
    Key,
    LogPiece,
    LogPosition,
    Splitter,
    pod_of,
    split_time_stamp,
)
from rankdeck_agent.text import plain_line
from rankdeck_agent.values import Value

_NAMES, _SHORT = re.compile(r"\.|[a-z-]+://"), 16
"""What separates uid and id of a container; most characters of what may be a word of a rank."""
POSITIONS = "kubernetes"
"""Folder in the run folder, with two files for each container,
written in turn: one is always intact.
"""
SAVE_PERIOD = 3.0
"""Seconds between two saves of the position; after a crash,
reading continues from the last save.
"""


class LogReceiver(Value):
    """Callbacks; called in the thread that reads the log."""

    say: Callable[[bytes], None]
    """Called with a line that no rank wrote."""
    tell: Callable[[LogPiece, float], None]
    """Called when a rank began or ended, with the time on the node's clock (epoch seconds)."""


class ContainerLog:
    """Appends the output of a container to the files of its ranks; use from one thread.

    The position is saved after the bytes. What came between a save and a crash is read again, and
    bytes that are on disk already are skipped: no line is lost or written twice.
    """

    def __init__(
        self,
        folder: RunFolder,
        container: str,
        ranks: Iterable[int],
        hearer: LogReceiver,
        form: str = "rankdeck",
    ) -> None:
        """`container` is `POD.ID`, with the uid and the container's id; `form` is one of
        objects.FORMATS. Raises OSError.
        """
        self._names = [one.encode() for one in _NAMES.split(container) if len(one) > _SHORT]
        self._folder, self._ranks, self._hearer = folder, tuple(ranks), hearer
        name = "".join(c if c.isalnum() else "_" for c in container)[-80:]
        self._slots = [folder / POSITIONS / f"{name}.{slot}.json" for slot in range(2)]
        make_private_folder(folder / POSITIONS)
        kept = _kept(self._slots)
        self._turn = int(kept.get("turn", 0))
        self.place = LogPosition(kept.get("second", 0), kept.get("seen", ()))
        parts: list[Key] = [(int(rank), str(what)) for rank, what in kept.get("parts", ())]
        first = self._ranks[0] if form == "torchrun" and self._ranks else 0
        self._splitter = Splitter(form, first, parts)
        self.marked = bool(kept.get("marked"))
        """Whether a rank's mark was seen in this log."""
        self._files: dict[Key, int] = {}
        self._skip: dict[Key, int] = {}
        self._saved, self._due = 0.0, False
        self._known = frozenset(self._ranks)
        self._sizes: dict[str, int] = dict(kept.get("sizes", {}))
        self.place.resume()
        if not kept:
            self._begin()

    def _begin(self) -> None:
        """Start after the bytes already in the files: an earlier container of
        the same ranks may have written them.
        """
        for key in ((rank, what) for rank in self._ranks for what in (OUT, ERR)):
            path = self._folder.place(key[0]) / key[1]
            self._sizes[_name(key)] = path.stat().st_size if path.exists() else 0
        self.save()

    def line(self, raw: bytes) -> bool:
        """Handle one line as the server sends it, with its time stamp; raises OSError.

        Returns whether it is one of the container: False for the server's own words, which
        it sends in place of a log that it cannot read.
        """
        moment, text = split_time_stamp(raw)
        if moment is None and (self.place.second or any(name in raw for name in self._names)):
            return False
        if moment is not None and not self.place.fresh(moment):
            return True
        at = time.time() if moment is None else moment / 1e9
        for piece in self._splitter.feed(text):
            self._take(piece, at)
        # Only after a whole line: within a line the position would be ahead of the bytes.
        if self._due or time.monotonic() - self._saved > SAVE_PERIOD:
            self.save()
        return True

    def _take(self, piece: LogPiece, at: float) -> None:
        rank = piece.rank
        if rank is None and not self.marked and len(self._ranks) == 1:
            # There are no marks in this log: the pod is the rank.
            self._append((self._ranks[0], OUT), piece.text)
        elif rank is None or rank not in self._known:
            self._hearer.say(piece.text)
            self._due = True
        elif piece.what in (START, EXIT):
            self.marked = True
            self._hearer.tell(piece, at)
        else:
            self.marked = True
            self._append((rank, piece.what), piece.text)

    def _append(self, key: Key, data: bytes) -> None:
        if key not in self._files:
            self._open(key)
        skip = self._skip.get(key, 0)
        if skip:
            self._skip[key] = max(0, skip - len(data))
            data = data[skip:]
        write_all(self._files[key], data)

    def _open(self, key: Key) -> None:
        rank, what = key
        path = self._folder.place(rank) / what
        self._files[key] = fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._skip[key] = max(0, os.fstat(fd).st_size - self._sizes.get(_name(key), 0))

    def save(self) -> None:
        """Save how far the log has been read; raises OSError."""
        self._saved, self._due = time.monotonic(), False
        for key, fd in self._files.items():
            # While bytes are being skipped, the file is ahead of the position.
            self._sizes[_name(key)] = os.fstat(fd).st_size - self._skip.get(key, 0)
        self._turn += 1
        row = {
            "turn": self._turn,
            "second": self.place.second,
            "seen": list(self.place.seen.items()),
            "parts": self._splitter.parts,
            "marked": self.marked,
            "sizes": self._sizes,
        }
        data = json.dumps(row, separators=(",", ":")).encode()
        _write_over(self._slots[self._turn % 2], data)

    def close(self) -> None:
        """Save the position and close the files; raises OSError."""
        self.save()
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def _write_over(file: Path, data: bytes) -> None:
    """Overwrite the file in place, padded to its old size: replacing a
    file costs a hundred times as much.
    """
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        whole = data.ljust(os.fstat(handle).st_size)
        if os.write(handle, whole) < len(whole):
            raise OSError(errno.ENOSPC, "the disk is full", str(file))
    finally:
        os.close(handle)


def _kept(slots: Iterable[Path]) -> Mapping[str, Any]:
    """The newest intact row; empty if there is none."""
    return max(map(read_json_table, slots), key=lambda row: row.get("turn", 0))


def record_rank_moment(
    folder: RunFolder, rank: int, what: str, text: str, at: Optional[float]
) -> bool:
    """Record that a rank began (`started`) or ended (`exit`) at `at` (epoch
    seconds; None: now); only the first call counts.

    Returns whether it was new. The time becomes that of the file, where the
    supervisor reads it. Raises OSError.
    """
    place = folder.place(rank)
    target = place / what
    if target.exists() or not place.is_dir():
        return False
    fresh = place / f".{what}"
    write_private_file(fresh, f"{text}\n".encode())
    if at is not None:
        os.utime(fresh, (at, at))
    fresh.replace(target)
    return True


def forget_rank_moments(folder: RunFolder, rank: int) -> None:
    """Remove what `record_rank_moment` wrote about a rank that starts again. Raises OSError."""
    for what in ("started", "exit"):
        delete_file(folder.place(rank) / what)


_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_FULL_PAUSE = 1.0
IDLE, LONGEST_IDLE = 10.0, 80.0
"""Kubelets before 1.30 stop a stream when they rotate the log, without ending it.

They look every ten seconds whether to.
"""
_STACK = 256 << 10
_REFUSED = (401, 403)


class LogSource(Value):
    """Whose log to follow: a container of a pod."""

    namespace: str
    pod: str
    container: str
    id: str = ""
    """Id of the container: a restarted one has the same name but another id."""
    pause: float = 0.0
    """Seconds between two reads of slow output; see `HttpStream`."""
    idle: float = IDLE
    """Seconds of silence after which the stream is opened again, from where
    it stood; doubled while nothing comes.
    """

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}/log"


class Turns:
    """Limits how many streams are opened again each second by all threads
    together: of 1,000 silent pods too many would be at a time.
    """

    def __init__(self, each_second: float) -> None:
        self._pause = 1.0 / each_second
        self._lock = threading.Lock()
        self._next = 0.0

    def take(self) -> float:
        """Take the next turn; returns in how many seconds it is."""
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            self._next = at + self._pause
            return at - now


class LogFollower:
    """A thread that reads all lines of one container; sets `over` when there will be no more.

    After the container has ended, the log is read once more from its last second. The end of the
    stream alone proves nothing: the server also ends it when it rotates the log or is restarted.
    """

    def __init__(
        self,
        api: Api,
        source: LogSource,
        log: Callable[[], ContainerLog],
        complain: Callable[[str], None],
        turns: Turns,
    ) -> None:
        """`log` opens the log on disk, and again after a full disk.

        `complain` is called with a sentence, in the thread. `turns`: when a silent stream is opened
        again.
        """
        self._api, self._source, self._open, self._complain = api, source, log, complain
        self._turns = turns
        self._ended, self._gone, self._closed = (threading.Event() for _ in range(3))
        self._previous = False
        self._idle = source.idle
        self._stream: Optional[HttpStream] = None
        self.over = threading.Event()
        self.marked = False
        """Whether a rank's mark was seen in the log so far."""

    def start(self) -> None:
        """Start the thread."""
        before = threading.stack_size(_STACK)
        threading.Thread(target=self._run, daemon=True).start()
        threading.stack_size(before)

    def ended(self, *, previous: bool = False) -> None:
        """Tell the follower that the container has ended; `previous`: a
        restarted one has replaced it in the pod.
        """
        self._previous = self._previous or previous
        self._ended.set()
        if self._stream is not None:
            self._stream.hurry()

    def gone(self) -> None:
        """Tell the follower that the pod is gone: what has not arrived by now never will."""
        self._gone.set()
        self.ended()

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._ended.set()
        if self._stream is not None:
            self._stream.close()

    def _run(self) -> None:
        try:
            while not self._closed.is_set() and not self._read_all():
                # The disk was full: continue from the position that was saved last.
                self._closed.wait(_FULL_PAUSE)
        finally:
            self.over.set()

    def _read_all(self) -> bool:
        """Read to the end; False if it could not be written to disk."""
        try:
            log = self._open()
            failures = 0
            while True:
                last, began = self._ended.is_set(), time.monotonic()
                why = self._pass(log)
                self.marked = log.marked
                if self._closed.is_set() or self._gone.is_set() or (last and not why):
                    break
                if why == SILENT:
                    self._ended.wait(self._turns.take())
                    continue
                short = time.monotonic() - began < _PAUSES[-1]
                failures = failures + 1 if why or short else 0
                if failures == len(_PAUSES) and why and not last:
                    self._complain(f"the log of {self._source.pod} cannot be read now: {why}")
                if last and failures > len(_PAUSES):
                    self._complain(f"the rest of the log of {self._source.pod} is lost: {why}")
                    break
                # Usually the stream ends before the watch reports the end of the container.
                waits = self._closed if last else self._ended
                waits.wait(_PAUSES[min(failures, len(_PAUSES)) - 1] if failures else 0)
                self._look_who_is_there()
            log.close()
        except OSError as error:
            self._complain(f"the output of {self._source.pod} cannot be written: {error}")
            return False
        return True

    def _look_who_is_there(self) -> None:
        """Check whether the container was restarted: the new one has its own
        log, and ours is the `previous` one.
        """
        if self._previous or self._gone.is_set() or self._closed.is_set():
            return
        path = self._source.path.rpartition("/")[0]
        try:
            there = pod_of(self._api.request("GET", path)).container.id
        except ApiError:
            return  # the next pass reports why
        if there and there != self._source.id:
            self.ended(previous=True)

    def _pass(self, log: ContainerLog) -> str:
        """Read until the stream ends; returns why it could not be
        read, SILENT if nothing came, or "".
        """
        log.place.resume()
        try:
            self._stream = stream = self._api.lines(
                self._source.path, self._asked(log), self._idle, self._source.pause
            )
            if self._closed.is_set():
                stream.close()
            for line in stream:
                if not log.line(line):
                    log.save()
                    return plain_line(line.decode("utf-8", "replace"), 300)
                self._idle = self._source.idle
        except ApiError as error:
            log.save()
            if error.reason == SILENT:
                self._idle = min(2 * self._idle, LONGEST_IDLE)
                return SILENT
            if error.status == 404:
                return "" if self._ended.is_set() else error.message
            if error.status in _REFUSED:
                self._complain(f"the log of {self._source.pod} may not be read: {error.message}")
            return error.message
        log.save()
        return ""

    def _asked(self, log: ContainerLog) -> Mapping[str, str]:
        return {
            "container": self._source.container,
            "follow": "" if self._previous else "true",
            "timestamps": "true",
            "previous": "true" if self._previous else "",
            "sinceTime": log.place.since,
        }
