"""The black box of a job on a node: numbers, health, events and looks of the last ten minutes, kept
in a ring of files and frozen when the job fails, falls silent, is cancelled or ends.

A process of its own writes it, so that a device or file system that hangs holds up no supervisor.
The job's own program may write in the folder too: nothing here is believed when it is read.
"""

import base64
import contextlib
import json
import os
import shutil
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent import LAUNCHER
from rankdeck_agent.descriptors import wait_readable, write_all
from rankdeck_agent.job.activity import LookReader
from rankdeck_agent.job.folder import STREAMS, FolderError, RunFolder, all_events
from rankdeck_agent.job.pauses import Pauses
from rankdeck_agent.text import parse_json_table
from rankdeck_agent.wire import Message, encode_message
from rankdeck_agent.wire.black_box import (
    BOX_VERSION,
    CANCELLED,
    ENDED,
    FAILED,
    GONE,
    LONGEST_SILENCE,
    MOST_BOX_BYTES,
    PERIOD,
    SILENT,
)
from rankdeck_agent.wire.run_folder import ACTIVITY, BLACK_BOX

_SLOTS = ("silent", "end")
"""Folders of frozen rings: of the newest silence, and of the first failure, the cancel or end."""
_SEGMENT_SPAN, _SEGMENT_BYTES, _SEGMENTS = 150.0, 1 << 20, 5
"""Seconds and bytes of one file of the ring, and how many are kept: the newest is not full."""
_TAILS = "tails"
_TAIL, _ALL_TAILS = 64 << 10, 2 << 20
"""Most bytes of the end of one log, and of all logs of the node together."""
_MOST_PACKED = 5 << 20
_FIRST = 2.0
"""Seconds until the first reading: a job that ends at once costs nothing."""
_READING = 2.0
"""Seconds that a reading waits for collectors."""
_MOST_WATCHED = 64
"""Most ranks whose logs are watched for that."""
QUESTIONS = 2
"""How often the ranks of a silent job are asked where they stand before the ring is frozen: by two
answers a console can tell a deadlock.
"""
_NICE = 10


class BlackBox:
    """The recorder of one supervisor: starts it, and tells it what happens to the job."""

    def __init__(self, folder: RunFolder, ranks: Sequence[int], *, here: bool) -> None:
        """`here`: the ranks run on this machine, so that its numbers say something about them."""
        self._folder, self._ranks, self._here = folder, tuple(ranks), here
        self._pipe: Optional[int] = None

    def start(self) -> None:
        """Start the recorder; without one (no process, no descriptor) the job runs all the same.

        It is no descendant of the supervisor, which every process of the job is: so this is called
        before the supervisor adopts orphans.
        """
        with contextlib.suppress(OSError):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                if os.fork() == 0:
                    _live(_Recorder(self._folder, self._ranks, self._here, reading), reading)
                os._exit(0)
            os.close(reading)
            os.waitpid(child, 0)
            os.set_blocking(writing, False)
            self._pipe = writing

    def freeze(self, why: str) -> None:
        """Keep what is in the ring now; `why` is one of the words in `wire/black_box.py`."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # it is gone, or has not read a thousand words
                os.write(self._pipe, why.encode() + b"\n")

    def close(self) -> None:
        """The job is over here: the recorder writes the last row and ends."""
        self.freeze(ENDED)
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


def _live(recorder: "_Recorder", keep: int) -> None:
    """The recorder's whole life, in a fork of the supervisor; never returns."""
    try:
        # Above all the lock that says that the supervisor lives, and the ends of pipes.
        for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
            if fd > 2 and fd != keep:
                with contextlib.suppress(OSError):
                    os.close(fd)
        os.nice(_NICE)
        recorder.run()
    finally:
        os._exit(0)


class _Recorder:
    """Fills the ring, in a process of its own."""

    def __init__(self, folder: RunFolder, ranks: Sequence[int], here: bool, pipe: int) -> None:
        self._folder, self._ranks, self._pipe, self._here = folder, ranks, pipe, here
        self._ring = Ring(folder)
        self._looks = LookReader(folder / ACTIVITY)
        self._silence = RankSilence(folder, ranks)
        self._questions = 0
        """How often the ranks are still to be asked in this silence."""
        self._reader: Optional[_Reader] = None
        self._rest = b""

    def run(self) -> None:
        """Record until the supervisor says that the job has ended, or is gone."""
        due = time.monotonic() + _FIRST
        while True:
            if wait_readable([self._pipe], max(0.0, due - time.monotonic())):
                said = self._hear()
                if said is None:
                    return
                continue
            self._read()
            due += PERIOD * (1 + int((time.monotonic() - due) // PERIOD))
            self._notice_silence()

    def _hear(self) -> Optional[bool]:
        """Do what the supervisor says; None if it says no more."""
        data = os.read(self._pipe, 4096)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for why in [line.decode("ascii", "replace") for line in lines] if data else [GONE]:
            if why in (FAILED, CANCELLED):
                self._read()
            self._freeze(why)
            if why in (ENDED, GONE):
                return None
        return True

    def _notice_silence(self) -> None:
        """Ask silent ranks where they stand, then freeze what is known of their silence."""
        was = self._silence.depth
        self._silence.look(time.monotonic())
        if was > self._silence.depth:
            self._questions = 0
            self._ring.note_resumed()
        elif was < self._silence.depth:
            self._questions = QUESTIONS
        if self._questions:
            self._ask_ranks()
            self._questions -= 1
            if not self._questions:
                self._take_looks()
                self._ring.freeze_silence(self._ranks)

    def _ask_ranks(self) -> None:
        try:
            from rankdeck_agent.schedulers.job_scheduler import find_scheduler

            answer = find_scheduler(self._folder).ask_witnesses()
        except (ImportError, OSError, FolderError):
            return  # our own file was removed, or the ranks cannot be asked: the rest is recorded
        self._ring.note_standing(round(time.time(), 3), answer)

    def _freeze(self, why: str) -> None:
        self._take_looks()
        self._ring.freeze(why, self._ranks)

    def _take_looks(self) -> None:
        for look in self._looks.read():
            self._ring.add(_row(**look))

    def _read(self) -> None:
        """Add what there is to know now."""
        self._take_looks()
        if not self._here:
            return
        if self._reader is None:
            try:
                self._reader = _Reader()
            except ImportError:
                self._here = False  # our own file was removed: looks and logs are all that is left
                return
        for kind, message in self._reader.read():
            self._ring.add(_message_row(kind, message))


def _message_row(kind: str, message: Message) -> bytes:
    return b'{"kind":"' + kind.encode() + b'","body":' + encode_message(message) + b"}"


def _row(**fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _newest_outputs(folder: RunFolder, ranks: Sequence[int]) -> list[list[float]]:
    """[rank, epoch seconds of its newest output] for each rank that has written."""
    found: list[list[float]] = []
    for rank in ranks:
        written = [one.st_mtime for one in _logs_of(folder, rank) if one.st_size]
        if written:
            found.append([rank, round(max(written), 3)])
    return found


def _logs_of(folder: RunFolder, rank: int) -> Iterator[os.stat_result]:
    for name in STREAMS:
        with contextlib.suppress(OSError):
            yield (folder.place(rank) / name).lstat()


class _Reader:
    """Reads and judges this machine as the telemetry agent does, without expectations."""

    def __init__(self) -> None:
        # A job that ends at once needs none of this; loading it takes a third of a second.
        from rankdeck_agent.collectors import make_collectors
        from rankdeck_agent.rules.levels import Expected
        from rankdeck_agent.sampler import NodeJudge, Sampler
        from rankdeck_agent.seen_devices import SeenDevices

        self._sampler = Sampler(make_collectors())
        self._judge = NodeJudge(Expected(), SeenDevices("", None), PERIOD)

    def read(self) -> Iterator["tuple[str, Message]"]:
        """(kind, message) of all that is new."""
        collected = self._sampler.take(limit=_READING)
        report = self._judge.judge(collected.sample, tuple(collected.events), collected.inventory)
        yield "sample", collected.sample
        yield "health", report
        for event in collected.events:
            yield "event", event


class RankSilence:
    """How long the ranks of this node have been silent, by the sizes of their logs."""

    def __init__(self, folder: RunFolder, ranks: Sequence[int]) -> None:
        step = -(-len(ranks) // _MOST_WATCHED) or 1
        self._folder, self._ranks = folder, frozenset(ranks)
        self._logs = [folder.place(r) / name for r in ranks[::step] for name in STREAMS]
        self._size: int = 0
        self._begun = False
        self._pauses = Pauses(LONGEST_SILENCE)

    @property
    def depth(self) -> int:
        """See Pauses."""
        return self._pauses.depth

    def look(self, now: float) -> None:
        """See whether they have written; `now` in monotonic seconds."""
        size = sum(map(_size_of, self._logs))
        self._begun = self._begun or size > 0 or self._ranks <= _begun_ranks(self._folder)
        self._pauses.note(now, wrote=size != self._size, begun=self._begun)
        self._size = size


def _begun_ranks(folder: RunFolder) -> "set[int]":
    events = all_events(folder.events)
    return {int(event["rank"]) for event in events if event["kind"] == "started"}


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Ring:
    """The files of a black box. Only the recorder writes them, one at a time."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._place = folder / BLACK_BOX
        self._handle: Optional[int] = None
        self._size = 0
        self._began = 0.0
        self._told: set[str] = set()

    def add(self, row: bytes) -> None:
        """Append a row; on a full disk the oldest file makes room, or the row is left out."""
        if len(row) >= _SEGMENT_BYTES:
            return
        now = time.monotonic()
        full = self._size + len(row) >= _SEGMENT_BYTES or now - self._began >= _SEGMENT_SPAN
        try:
            if self._handle is None or full:
                self._next(now)
            self._write(row + b"\n")
        except OSError:
            self._leave()
            with contextlib.suppress(OSError):
                for path in _segments(self._place)[:1]:
                    path.unlink()

    def note_standing(self, at: float, answer: "dict[str, Any]") -> None:
        """Append where silent ranks stood, asked at `at` (epoch seconds)."""
        # A row for each node or pod: all together they may be longer than a row may be.
        for part in [{**answer, "inside": [one]} for one in answer.get("inside", ())] or [answer]:
            self.add(_row(kind="standing", at=at, answer=part))

    def note_resumed(self) -> None:
        """Append that ranks write again after a silence."""
        self.add(_row(kind="resumed", at=round(time.time(), 3)))

    def freeze_silence(self, ranks: Sequence[int]) -> None:
        """Keep a copy of the ring for a silence of these ranks, with when each wrote last."""
        self.freeze(SILENT, ranks, heard=_newest_outputs(self._folder, ranks))

    def freeze(self, why: str, ranks: Sequence[int], **more: object) -> None:
        """Keep a copy of the ring, with the end of all logs: the first time for each reason.

        `more`: what else its row says.
        """
        if why in self._told:
            return
        if why != SILENT:
            self._told.add(why)
        self.add(_row(kind="frozen", at=round(time.time(), 3), why=why, **more))
        slot = self._place / _SLOTS[why != SILENT]
        if why != SILENT and slot.exists():
            return  # the first failure says more than what follows from it
        self._leave()
        with contextlib.suppress(OSError):
            shutil.rmtree(slot, ignore_errors=True)
            slot.mkdir(0o700)
            for path in _segments(self._place):
                _link(path, slot / path.name)
            self._keep_tails(slot / _TAILS, ranks)

    def _next(self, now: float) -> None:
        """Begin another file, and remove those that are older than the ring."""
        self._leave()
        self._place.mkdir(0o700, exist_ok=True)
        there = _segments(self._place)
        number = int(there[-1].name) + 1 if there else 0
        for path in there[: max(0, len(there) - _SEGMENTS + 1)]:
            path.unlink()
        self._handle = _create(self._place / f"{number:08}")
        self._size, self._began = 0, now
        self._write(_head(self._folder))

    def _write(self, data: bytes) -> None:
        if self._handle is not None:
            write_all(self._handle, data)
            self._size += len(data)

    def _leave(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _keep_tails(self, place: Path, ranks: Sequence[int]) -> None:
        each = min(_TAIL, _ALL_TAILS // (2 * len(ranks) + 2))
        handle = _create(place)
        try:
            write_all(handle, _head(self._folder))
            for rank in (LAUNCHER, *ranks):
                for stream in STREAMS:
                    row = _tail(self._folder.place(rank) / stream, each)
                    if row:
                        row.update(kind="tail", rank=rank, stream=stream)
                        write_all(handle, json.dumps(row).encode() + b"\n")
        finally:
            os.close(handle)


def _head(folder: RunFolder) -> bytes:
    head = {"kind": "box", "version": BOX_VERSION, "job": folder.job, "node": folder.node}
    return json.dumps(head).encode() + b"\n"


def _create(path: Path) -> int:
    """A new file; OSError where there is one already, also a link that the job has put there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def _link(path: Path, to: Path) -> None:
    """Make the file appear there too; a file system without hard links needs a copy."""
    try:
        os.link(path, to)
    except OSError:
        write = _create(to)
        try:
            write_all(write, read_part(path, 0, 2 * _SEGMENT_BYTES))
        finally:
            os.close(write)


def _tail(path: Path, most: int) -> dict[str, Any]:
    """The end of a log, and where it begins; empty if there is none."""
    size = _size_of(path)
    offset = max(0, size - most)
    data = read_part(path, offset, most)
    return {"o": offset, "data": base64.b64encode(data).decode()} if data else {}


def read_part(path: Path, offset: int, most: int) -> bytes:
    """A part of a regular file; empty for anything else: a pipe would block, a link leads away."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, most)
    except OSError:
        return b""
    finally:
        os.close(handle)


def _segments(place: Path) -> list[Path]:
    """The files of a ring, oldest first."""
    try:
        found = [path for path in place.iterdir() if path.name.isdecimal() and len(path.name) == 8]
    except OSError:
        return []
    return sorted(found)


def pack_box(folder: RunFolder) -> dict[str, Any]:
    """What the black box of this job has, each row once: `rows` compressed, in base64; `refused`:
    why a file was left out, "" if none was.
    """
    place = folder / BLACK_BOX
    slots = [place / name for name in _SLOTS]
    files = [path for part in (*slots, place) for path in _segments(part)[-_SEGMENTS:]]
    files += [slot / _TAILS for slot in slots]
    rows: dict[bytes, None] = {}
    size, refused = 0, ""
    for path in files:
        # Hard links lead to the same rows, which are taken once.
        head, *lines = read_part(path, 0, 8 * _SEGMENT_BYTES).split(b"\n")
        why = _unlike(head, folder)
        refused = refused or (why if head else "")
        for line in lines[:-1] if not why else ():
            if line not in rows and size + len(line) < MOST_BOX_BYTES:
                rows[line] = None
                size += len(line) + 1
    kept = list(rows)  # the ends of logs are the last
    packed = zlib.compress(b"\n".join(kept), 6)
    while len(packed) > _MOST_PACKED:
        refused = refused or "it is too large: a part was left out"
        kept = kept[: len(kept) // 2]
        packed = zlib.compress(b"\n".join(kept), 6)
    return {"rows": base64.b64encode(packed).decode(), "refused": refused}


def _unlike(head: bytes, folder: RunFolder) -> str:
    """Why a file with this first line is not one of this job's black box; "" if it is."""
    row = parse_json_table(head.decode("utf-8", "replace")) or {}
    if row.get("kind") != "box":
        return "a file in it is not one of a black box"
    if row.get("version") != BOX_VERSION:
        return "another version of Rankdeck has written it"
    same = (row.get("job"), row.get("node")) == (folder.job, folder.node)
    return "" if same else "it is of another job"
