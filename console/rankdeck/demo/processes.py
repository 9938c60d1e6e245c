"""Which processes of the embedded cluster live: records safe from reused numbers, and a sweep."""

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rankdeck.config.safe_files import write_private


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What a running node left on disk."""

    pid: int
    start: int
    """Clock ticks after boot at which `pid` began: another process has another number."""
    port: int
    way: str
    """How it is separated: "root", "user", or "" for not at all."""
    why: str = ""
    """Why it is not separated better."""

    def write(self, path: Path) -> None:
        """Put the record there in one step."""
        fresh = path.with_suffix(".new")
        write_private(fresh, json.dumps(asdict(self)))
        fresh.rename(path)

    @property
    def alive(self) -> bool:
        return self.start == start_time(self.pid)


def read_record(path: Path) -> ProcessRecord | None:
    """The record of the last start, or None where there is none to be read."""
    try:
        return ProcessRecord(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def start_time(pid: int) -> int | None:
    """When the process began, in clock ticks after boot; None: it is gone or a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])


def marked(variable: str, value: str) -> Iterator[int]:
    """Every other process of ours that has this variable in its environment."""
    wanted = f"{variable}={value}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            found = wanted in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if found:
            yield int(entry.name)


def end_all(records: Sequence[ProcessRecord], mark: tuple[str, str], limit: float) -> bool:
    """Kill the recorded and the marked until there is none; False where some outlive the limit."""
    deadline = time.monotonic() + limit
    while left := [*(one.pid for one in records if one.alive), *marked(*mark)]:
        if time.monotonic() > deadline:
            return False
        for pid in left:
            kill(pid)
        time.sleep(0.02)
    return True


def kill(pid: int) -> None:
    """End the process now; one that is gone already is fine."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
