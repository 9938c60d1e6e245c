"""`job follow`: sends the events and output of a job on this node to the console. Only reads files.

Loads nothing that starts or ends jobs: somebody waits for the first line.
"""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Optional, cast

from rankdeck_agent.job.browse import browse
from rankdeck_agent.job.folder import (
    STREAMS,
    EventReader,
    FolderError,
    RunFolder,
    all_events,
    existing,
    is_slurm,
    run_folder,
)
from rankdeck_agent.job.logs import Input, LogReader, TailReader, data_frame, line, send, size_of
from rankdeck_agent.job.processes import PLACE, LookReader, belonging
from rankdeck_agent.job.supervisor_state import (
    close_for,
    goes_on,
    gone,
    is_starting,
    supervisor_pid,
)
from rankdeck_agent.text import table

if TYPE_CHECKING:
    from rankdeck_agent.slurm.folder import KeeperWatch

_FLUSH = 0.05
_TAIL_PERIOD = 0.5
_NOW_PERIOD = 2.0
_ALIVE_PERIOD = 1.0
_LOOK_PERIOD = 1.0
_FIRST_WATCH = 1.0
_ROUND = 1 << 20
"""Bytes of output in one round, so that events never wait long behind a backlog."""
_LITTLE = 4 << 10
"""Bytes up to which a stream counts as quiet: it goes before those that have more to send."""
_COUNT_ROUND = 8 << 20

Key = tuple[int, str]

_FIRST, _LEAST, _MOST = 256 << 10, 32 << 10, 4 << 20
"""Bytes of output that may be under way: at first, at least, at most."""
_QUICK, _SLOW = 0.1, 0.3
"""Seconds from sending to taking, below which more may be under way, and above which less."""


class Window:
    """Limits how much output is under way before the console has taken it.

    Whatever is under way is ahead of the next line of a quiet rank. So a console that is slower than
    a rank has as much under way as it takes in a fraction of a second; the rest waits on disk, where
    a quiet rank does not wait behind it.
    """

    def __init__(self) -> None:
        self._size = _FIRST
        self._sent = 0
        self._taken: Optional[int] = None
        """None: the console has not reported how much it took."""
        self._mark: Optional[tuple[int, float]] = None
        """Bytes sent when something had to wait, and when that was."""

    @property
    def room(self) -> int:
        """Bytes that may be sent now; not a few at a time."""
        if self._taken is None:
            return _ROUND
        left = self._size - self._sent + self._taken
        return 0 if left < self._size // 4 else min(left, _ROUND)

    def sent(self, count: int, waits: bool, now: float) -> None:
        """Note that so many bytes were sent, and whether more would have been."""
        self._sent += count
        if waits and self._mark is None:
            self._mark = self._sent, now

    def take(self, total: object, now: float) -> None:
        """Note that the console has taken `total` bytes since the beginning, and learn from the time."""
        if type(total) is not int or not (self._taken or 0) <= total <= self._sent:
            return
        self._taken = total
        if self._mark is None or total < self._mark[0]:
            return
        delay = now - self._mark[1]
        self._mark = None
        if delay < _QUICK:
            self._size = min(self._size * 2, _MOST)
        elif delay > _SLOW:
            self._size = max(self._size // 2, _LEAST)


class NodeFollower:
    """One look at one job."""

    def __init__(self, folder: RunFolder, after: int) -> None:
        self._folder = folder
        self._after = after
        self._events = EventReader(folder / "events")
        self._ranks = folder.ranks()
        self._watched: dict[Key, LogReader] = {}
        self._window = Window()
        self._tails: dict[Key, TailReader] = {}
        self._looks = LookReader(folder / PLACE)
        self._due = {"tail": 0.0, "looks": 0.0, "now": 0.0, "alive": 0.0}
        self._closed: Optional[Mapping[str, Any]] = None
        self.done = False
        """Whether `closed` has been given out with everything before it."""
        self._last_seq = -1
        self._keeper = _keeper_of(folder)
        self._first_watch_by = time.monotonic() + _FIRST_WATCH
        """Time to ask for the output of a job that closed long ago, before it counts as over."""

    def take(self, said: bytes) -> None:
        """Take one line of stdin; invalid lines are ignored."""
        told = table(said.decode("utf-8", "replace")) or {}
        self._window.take(told.get("taken"), time.monotonic())
        asked = told.get("watch")
        if not isinstance(asked, dict):
            return
        fresh: dict[Key, LogReader] = {}
        for rank in self._ranks:
            offsets = cast("dict[str, Any]", asked).get(str(rank))
            if isinstance(offsets, dict):
                fresh.update(self._readers(rank, cast("dict[str, Any]", offsets)))
        self._watched = fresh
        self._first_watch_by = 0.0

    def _readers(self, rank: int, offsets: dict[str, Any]) -> dict[Key, LogReader]:
        found: dict[Key, LogReader] = {}
        for stream in STREAMS:
            offset = offsets.get(stream)
            if not isinstance(offset, int):
                continue
            log = self._folder.place(rank) / stream
            if offset < 0:
                offset = max(size_of(log) + offset, 0)
            found[rank, stream] = LogReader(log, offset)
        return found

    def round(self, now: float) -> list[bytes]:
        """The frames of one round."""
        frames = [line(event) for event in self._new_events()]
        frames += self._data(now)
        if self._closed is not None or self._is_due("tail", now, _TAIL_PERIOD):
            frames += self._tail_frames()
        if self._closed is None and self._is_due("looks", now, _LOOK_PERIOD):
            frames += map(line, self._looks.read())
        if self._is_due("now", now, _NOW_PERIOD):
            frames.append(line(self._now_frame()))
        if self._closed is None and self._is_due("alive", now, _ALIVE_PERIOD):
            frames += self._check_alive()
        if self.over and self._closed is not None:
            frames.append(line(self._closed))
            self.done = True
        return frames

    def _now_frame(self) -> Mapping[str, Any]:
        if self._closed is None:
            return {"kind": "now", "at": time.time(), "closing": False}
        # The job is over here, whatever of its output is still to be sent.
        ended = self._closed["at"]
        return {"kind": "now", "at": time.time(), "closing": True, "ended": ended}

    @property
    def behind(self) -> bool:
        """Whether watched bytes are waiting on disk."""
        return any(reader.waiting for reader in self._watched.values())

    @property
    def hurries(self) -> bool:
        """Whether the next round can send what is waiting."""
        return self.behind and self._window.room > 0

    @property
    def over(self) -> bool:
        """Whether nothing is left to send but `closed`."""
        waits = time.monotonic() < self._first_watch_by
        return self._closed is not None and not self.behind and not waits

    def _is_due(self, what: str, now: float, period: float) -> bool:
        if now < self._due[what]:
            return False
        self._due[what] = now + period
        return True

    def _new_events(self) -> list[Mapping[str, Any]]:
        """Events after the one asked for; `closed` is held until the output is sent."""
        fresh: list[Mapping[str, Any]] = []
        for event in self._events.read():
            self._last_seq = event["seq"]
            if event["kind"] == "closed":
                self._closed = event
            elif event["seq"] > self._after:
                fresh.append(event)
        return fresh

    def _data(self, now: float) -> list[bytes]:
        """Output as far as there is room: of quiet streams all, of the others equal shares in turn."""
        waiting = {key: reader.waiting for key, reader in self._watched.items() if reader.waiting}
        frames: list[bytes] = []
        left = room = self._window.room
        for count, key in enumerate(sorted(waiting, key=lambda key: waiting[key] > _LITTLE)):
            if not left:
                break
            # The next time it is the turn of those that come after it now.
            reader = self._watched[key] = self._watched.pop(key)
            for piece in reader.read(min(left, max(_LITTLE, left // (len(waiting) - count)))):
                frames += data_frame({"r": key[0], "s": key[1]}, piece)
                left -= len(piece.data)
        self._window.sent(room - left, sum(waiting.values()) > room - left, now)
        return frames

    def _tail_frames(self) -> list[bytes]:
        frames: list[bytes] = []
        budget = _COUNT_ROUND // (2 * len(self._ranks))
        for rank in self._ranks:
            for stream in STREAMS:
                watched = self._watched.get((rank, stream))
                if watched is not None and not watched.waiting:
                    continue
                tail = self._tails.get((rank, stream))
                if tail is None:
                    tail = self._tails[rank, stream] = TailReader(self._folder.place(rank) / stream)
                if tail.look(budget):
                    frames.append(_tail_frame(rank, stream, tail))
        return frames

    def _is_kept(self) -> bool:
        """Whether Slurm runs the job: then Slurm decides when it is over, and a keeper is started if none runs."""
        if self._keeper is not None:
            self._keeper.ensure()
        return self._keeper is not None

    def _check_alive(self) -> list[bytes]:
        """Take up a job that goes on, or close for a supervisor that is gone: in the file if it can be written, otherwise only here."""
        if self._is_kept() or is_starting(self._folder) or supervisor_pid(self._folder):
            return []
        if goes_on(self._folder) and _resume(self._folder):
            return []
        frames = [line(event) for event in self._new_events()]
        if self._closed is not None:
            return frames
        why = "the supervisor of this node is gone"
        try:
            close_for(self._folder, why)
        except OSError:
            stamp = {"seq": self._last_seq + 1, "at": time.time()}
            facts = gone(self._folder, all_events(self._folder / "events"))
            trouble = {**stamp, "kind": "trouble", "text": why, **facts}
            frames.append(line(trouble))
            self._closed = {**stamp, "seq": self._last_seq + 2, "kind": "closed"}
        return frames


def _keeper_of(folder: RunFolder) -> "Optional[KeeperWatch]":
    """The watch on the keeper of a job that Slurm runs."""
    if not is_slurm(folder):
        return None
    from rankdeck_agent.slurm.folder import KeeperWatch

    return KeeperWatch()


def _resume(folder: RunFolder) -> bool:
    from rankdeck_agent.job.control_cli import resume

    return resume(folder)


def _tail_frame(rank: int, stream: str, tail: TailReader) -> bytes:
    row = {
        "kind": "tail",
        "r": rank,
        "s": stream,
        "o": tail.end,
        "lines": tail.lines,
        "last": tail.last,
    }
    return line({**row, "at": tail.at})


def follow(folder: RunFolder, after: int) -> int:
    """Stream to stdout until the job has closed here, or stdin ends."""
    follower = NodeFollower(folder, after)
    source = Input(0)
    # What is looked at comes first: who asks has done so already.
    for said in source.lines(_FLUSH):
        follower.take(said)
    while not source.ended:
        began = time.monotonic()
        frames = follower.round(began)
        if not send(b"".join(frames)) or follower.done:
            return 0
        for said in source.lines(0 if follower.hurries else _FLUSH):
            follower.take(said)
        spent = time.monotonic() - began
        if not follower.behind and spent < _FLUSH:
            time.sleep(_FLUSH - spent)
    return 0


_AFTER = "--after"


def main(argv: list[str]) -> int:
    """Run `job follow` or `job browse`; returns the exit status."""
    verb, *words = argv
    try:
        return _VERBS[verb](words)
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _follow(words: list[str]) -> int:
    job, node, *rest = words if len(words) > 1 else ("", "")
    after = rest[1] if len(rest) == 2 and rest[0] == _AFTER else "-1"
    if len(rest) not in (0, 2) or not after.lstrip("-").isdigit():
        raise FolderError("usage: job follow JOB NODE [--after SEQ]")
    return follow(_folder(job, node), int(after))


def _browse(words: list[str]) -> int:
    if len(words) != 2:
        raise FolderError("usage: job browse JOB NODE")
    return browse(_folder(*words))


def _folder(job: str, node: str) -> RunFolder:
    """Its run folder; raises FolderError, which says so where the job runs on without one."""
    folder = run_folder(job, node)
    if not (folder / "events").is_file() and belonging(job, node, 0):
        why = "removed, or its file system is not mounted"
        raise FolderError(f"job {job} runs on, but {folder.path} is gone ({why})")
    return existing(job, node)


_VERBS: dict[str, Callable[[list[str]], int]] = {"follow": _follow, "browse": _browse}
