"""Space of network mounts: each is asked by a process of its own, because it may hang."""

import os
import sys
from collections.abc import Sequence
from typing import Union

from rankdeck_agent.collectors.base import Reading, parse_unsigned
from rankdeck_agent.text import clean_text, failure_reason
from rankdeck_agent.values import Value

_STAT = "/usr/bin/stat" if os.access("/usr/bin/stat", os.X_OK) else "/bin/stat"
COMMAND = (_STAT, "-f", "-c", "%b %f %a %S %c %d", "--")
"""The command for a mount; prints blocks: total, free, free for
users, size; inodes: total, free.
"""
_EVERY = 15.0
"""Seconds between two questions to a network mount."""
_DEADLINE = 5.0
"""Seconds of waiting after which the last answer is too old to be shown."""
_MOUNTS = 32
_LONGEST = 4096
SPACE = (
    "disk.used", "disk.size", "disk.free", "disk.free_all", "disk.inodes_used", "disk.inodes",
    "disk.inodes_free",
)  # fmt: skip


class MountSpace(Value):
    """The numbers of statvfs for a file system; `size` is bytes per block."""

    blocks: int
    free: int
    available: int
    size: int
    inodes: int
    inodes_free: int

    def put(self, reading: Reading, path: str) -> None:
        """Store the metrics of a mount; as in df, space reserved
        for root does not count as free.
        """
        used = self.blocks - self.free
        usable = used + self.available
        if usable > 0:
            reading.put("disk.used", round(100.0 * used / usable, 2), path)
            reading.put("disk.size", self.blocks * self.size, path)
            reading.put("disk.free", self.available * self.size, path)
            reading.put("disk.free_all", self.free * self.size, path)
        if self.inodes > 0:
            reading.put("disk.inodes", self.inodes, path)
            reading.put("disk.inodes_free", self.inodes_free, path)
            share = 100.0 * (self.inodes - self.inodes_free) / self.inodes
            reading.put("disk.inodes_used", round(share, 2), path)


class Probe:
    """One question to one mount, asked by a child process; raises
    OSError if that cannot be started.
    """

    def __init__(self, command: tuple[str, ...], path: str, now: float) -> None:
        self.since = now
        self._out, writing = os.pipe()
        try:
            self._pid = _spawn((*command, path), writing)
        except OSError:
            os.close(self._out)
            raise
        finally:
            os.close(writing)

    def answer(self) -> Union[MountSpace, ValueError, None]:
        """The answer of the mount, or a ValueError that says why it
        failed; None while it has not answered.
        """
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return None
        output = os.read(self._out, _LONGEST)
        os.close(self._out)
        if status:
            return ValueError(_last_words(output))
        try:
            return MountSpace(*map(parse_unsigned, output.split()))
        except (ValueError, TypeError) as error:
            return ValueError(failure_reason(error))


def _spawn(command: tuple[str, ...], out: int) -> int:
    if sys.version_info < (3, 8):
        return _fork(command, out)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, out, 2),
    ]
    return os.posix_spawn(command[0], command, {"LC_ALL": "C"}, file_actions=actions)


def _fork(command: tuple[str, ...], out: int) -> int:
    """The same for Python 3.6 and 3.7."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execve(command[0], command, {"LC_ALL": "C"})
    finally:
        os._exit(127)


def _last_words(complaint: bytes) -> str:
    """The end of "stat: cannot read file system information for '/x': Stale file handle"."""
    text = complaint.decode("utf-8", "replace").strip().rpartition(": ")[2]
    return clean_text(text, 160) or "cannot be asked"


class NetworkMounts:
    """Asks each network mount every _EVERY seconds, never twice at once;
    a child that hangs is not touched.
    """

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._probes: dict[str, Probe] = {}
        self._asked: dict[str, float] = {}
        self._answers: dict[str, Union[MountSpace, ValueError]] = {}

    def put(self, reading: Reading, paths: Sequence[str], now: float) -> None:
        """Store what is known about the mounts, and ask those that are
        due; `now` in monotonic seconds.
        """
        for path in paths[:_MOUNTS]:
            reading.put("disk.mounted", 1, path)
            self._take_answer(path)
            self._ask(path, now)
            self._put(reading, path, now)
        self._forget(paths)

    def _take_answer(self, path: str) -> None:
        probe = self._probes.get(path)
        answer = probe and probe.answer()
        if answer is not None:
            self._answers[path] = answer
            del self._probes[path]

    def _ask(self, path: str, now: float) -> None:
        if path in self._probes or now - self._asked.get(path, -_EVERY) < _EVERY:
            return
        self._asked[path] = now
        try:
            self._probes[path] = Probe(self._command, path, now)
        except OSError as error:
            self._answers[path] = ValueError(
                f"{self._command[0]} cannot be run: {failure_reason(error)}"
            )

    def _put(self, reading: Reading, path: str, now: float) -> None:
        probe, answer = self._probes.get(path), self._answers.get(path)
        waited = now - probe.since if probe else 0.0
        if answer is None and waited < _DEADLINE:
            # Also for this mount: others may have answered.
            reading.pending |= {*SPACE, f"disk.used/{path}"}
        if waited >= _DEADLINE:
            answer = ValueError(f"no answer for {waited:.0f} s")
        if isinstance(answer, ValueError):
            reading.fail(SPACE, answer, path)
        elif answer is not None:
            answer.put(reading, path)
        reading.put("disk.stuck", round(waited, 1), path)

    def _forget(self, paths: Sequence[str]) -> None:
        for path in set(self._asked) - set(paths) - set(self._probes):
            # Keep a probe that has not ended: the mount may come back and still hang.
            self._asked.pop(path)
            self._answers.pop(path, None)
