"""The `events` file: appended to by one process, read by any."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job.text import table

FULL = (errno.ENOSPC, errno.EDQUOT)
_RESERVE = 64 * 1024


class Journal:
    """Appends events; what a full disk refuses is kept and written later, in order."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._reserve = path.with_name("reserve")
        self._seq = next_seq(path)
        self._waiting = b""

    def reserve(self) -> None:
        """Take some space now, so that there is room to say that the disk is full."""
        try:
            self._reserve.write_bytes(os.urandom(_RESERVE))
        except OSError:
            self.spend_reserve()

    def spend_reserve(self) -> None:
        """Give the space back."""
        try:
            self._reserve.unlink()
        except FileNotFoundError:
            return

    def add(self, kind: str, **fields: object) -> None:
        """Write one event."""
        event: dict[str, Any] = {
            "seq": self._seq,
            "at": round(time.time(), 6),
            "kind": kind,
            **fields,
        }
        self._seq += 1
        self._waiting += json.dumps(event, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> bool:
        """Write what is waiting; False where the disk is still full."""
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
    """Whole events from a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """What was added since the last call, at most a megabyte of it."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read(1 << 20)
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = (table(line.decode("utf-8", "replace")) for line in lines if line)
        return [event for event in found if event is not None and _is_event(event)]


def _is_event(event: Mapping[str, Any]) -> bool:
    return isinstance(event.get("seq"), int) and isinstance(event.get("kind"), str)


def all_events(path: Path) -> list[dict[str, Any]]:
    """Every event of the file so far."""
    reader = EventReader(path)
    events: list[dict[str, Any]] = []
    while True:
        more = reader.read()
        if not more:
            return events
        events.extend(more)


def next_seq(path: Path) -> int:
    """The number that the next event of this file takes."""
    events = all_events(path)
    return int(events[-1]["seq"]) + 1 if events else 0


def is_closed(path: Path) -> bool:
    """Whether the supervisor said that nothing more will come."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return b'"kind":"closed"' in file.read()


def post_mortem(path: Path, exits: Mapping[int, int], why: Optional[str]) -> None:
    """Close the events of a node whose supervisor is gone; does nothing where they are closed."""
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_closed(path):
            return
        journal = Journal(path)
        for rank, status in sorted(_unrecorded(path, exits).items()):
            journal.add("exited", rank=rank, **outcome(status))
        if why:
            journal.add("trouble", text=why)
        journal.add("closed")
        journal.close()


def _unrecorded(path: Path, exits: Mapping[int, int]) -> dict[int, int]:
    recorded = {
        event.get("rank") for event in all_events(path) if event["kind"] == "exited"
    }
    return {rank: status for rank, status in exits.items() if rank not in recorded}


def outcome(status: int) -> dict[str, Optional[int]]:
    """`code` and `signal` of a shell's exit status: 129 to 192 mean a signal."""
    if 128 < status <= 192:
        return {"code": None, "signal": status - 128}
    return {"code": status, "signal": None}
