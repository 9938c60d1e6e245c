"""Network mounts: asked in a child each, because a dead server never lets go of who asks."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import clean, reason

_STAT = "/usr/bin/stat" if os.access("/usr/bin/stat", os.X_OK) else "/bin/stat"
COMMAND = (_STAT, "-f", "-c", "%b %f %a %S %c %d", "--")
"""Blocks in all, free, free for users, their size, inodes in all, free."""
_EVERY = 15.0
_DEADLINE = 5.0
"""Seconds after which the last answer is too old to be shown."""
_MOUNTS = 32
_SAID = 4096
SPACE = ("disk.used", "disk.size", "disk.free", "disk.inodes_used")


@dataclass(frozen=True)
class MountSpace:
    """What statvfs says of a file system."""

    blocks: int
    free: int
    available: int
    size: int
    inodes: int
    inodes_free: int

    def put(self, reading: Reading, path: str) -> None:
        """Store it as shares and bytes; as df: what root keeps for itself is not free for a job."""
        used = self.blocks - self.free
        usable = used + self.available
        if usable > 0:
            reading.put("disk.used", round(100.0 * used / usable, 2), path)
            reading.put("disk.size", self.blocks * self.size, path)
            reading.put("disk.free", self.available * self.size, path)
        if self.inodes > 0:
            share = 100.0 * (self.inodes - self.inodes_free) / self.inodes
            reading.put("disk.inodes_used", round(share, 2), path)


class Probe:
    """One question to one mount, in a child of its own; raises OSError where none can be made."""

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
        """What the mount said, or why it refused; None while it says nothing."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return None
        said = os.read(self._out, _SAID)
        os.close(self._out)
        if status:
            return ValueError(_last_words(said))
        try:
            return MountSpace(*map(whole, said.split()))
        except (ValueError, TypeError) as error:
            return ValueError(reason(error))


def _spawn(command: tuple[str, ...], out: int) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, out, 2),
    ]
    return os.posix_spawn(command[0], command, {"LC_ALL": "C"}, file_actions=actions)


def _last_words(complaint: bytes) -> str:
    """ "stat: cannot read file system information for '/x': Stale file handle": the end of it."""
    text = complaint.decode("utf-8", "replace").strip().rpartition(": ")[2]
    return clean(text, 160) or "cannot be asked"


class NetworkMounts:
    """Asks each mount now and then, never twice at once; a child that hangs is left alone."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._probes: dict[str, Probe] = {}
        self._asked: dict[str, float] = {}
        self._answers: dict[str, Union[MountSpace, ValueError]] = {}

    def put(self, reading: Reading, paths: Sequence[str], now: float) -> None:
        """Store what is known of the mounts, and ask those whose turn it is."""
        for path in paths[:_MOUNTS]:
            reading.put("disk.mounted", 1, path)
            self._hear(path)
            self._ask(path, now)
            self._put(reading, path, now)
        self._forget(paths)

    def _hear(self, path: str) -> None:
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
            self._answers[path] = ValueError(f"{self._command[0]} cannot be run: {reason(error)}")

    def _put(self, reading: Reading, path: str, now: float) -> None:
        probe, answer = self._probes.get(path), self._answers.get(path)
        waited = now - probe.since if probe else 0.0
        if answer is None and waited < _DEADLINE:
            # By mount too: others may have answered.
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
            # A probe in flight stays known: the same mount may come back, and still hang.
            self._asked.pop(path)
            self._answers.pop(path, None)
