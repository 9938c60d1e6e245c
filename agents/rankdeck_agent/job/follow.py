"""`job follow`: sends the events and output of a job on this node to the console. Only reads files.

Imports nothing that starts or ends jobs, so that the first line comes soon.
"""

import time
from collections.abc import Mapping
from typing import Any, Callable, Optional, cast

from rankdeck_agent.job.activity import LookReader
from rankdeck_agent.job.browse import serve_log_requests
from rankdeck_agent.job.folder import (
    STREAMS,
    EventReader,
    FolderError,
    NoFolderError,
    RunFolder,
    all_events,
    find_run_folder,
    run_folder,
)
from rankdeck_agent.job.logs import (
    Input,
    LogReader,
    TailReader,
    data_frame,
    encode_frame,
    log_size,
    write_to_stdout,
)
from rankdeck_agent.job.processes import find_job_processes
from rankdeck_agent.job.resuming import goes_on
from rankdeck_agent.job.supervisor_state import (
    close_for,
    describe_lost_supervisor,
    is_starting,
    is_supervised,
)
from rankdeck_agent.schedulers.job_scheduler import find_scheduler
from rankdeck_agent.text import parse_json_table, print_complaint
from rankdeck_agent.wire.job_events import JobUnknown, NodeClosed, Now, as_row
from rankdeck_agent.wire.run_folder import ACTIVITY

_FLUSH = 0.05
_TAIL_PERIOD = 0.5
_NOW_PERIOD = 2.0
_ALIVE_PERIOD = 1.0
_LOOK_PERIOD = 1.0
_FIRST_WATCH = 1.0
_ROUND = 1 << 20
"""Most bytes of output in one round, so that events never wait long behind a backlog."""
_LITTLE = 4 << 10
"""A stream with at most this many bytes waiting counts as quiet and is sent before the others."""
_COUNT_ROUND = 8 << 20

Key = tuple[int, str]

_FIRST, _LEAST, _MOST = 256 << 10, 32 << 10, 4 << 20
"""Bytes of output that may be in flight: at first, at least, at most."""
_QUICK, _SLOW = 0.1, 0.3
"""Seconds until the console has processed what was sent: below the first, more
may be in flight; above the second, less.
"""


class Window:
    """Limits the bytes of output in flight: sent, but not yet processed by the console.

    The next line of a quiet rank has to wait behind them. So for a console that is slower than a
    rank, only what it processes in a fraction of a second is in flight; the rest stays on disk,
    where no quiet rank waits behind it.
    """

    def __init__(self) -> None:
        self._size = _FIRST
        self._sent = 0
        self._taken: Optional[int] = None
        """Bytes that the console has processed; None: it has not
        reported any, and there is no limit.
        """
        self._mark: Optional[tuple[int, float]] = None
        """(bytes sent in all, when), noted when more was waiting than could
        be sent; None while not measuring.
        """

    @property
    def room(self) -> int:
        """Bytes that may be sent now; 0 until a quarter of the window is free, so
        that they are not sent a few at a time.
        """
        if self._taken is None:
            return _ROUND
        left = self._size - self._sent + self._taken
        return 0 if left < self._size // 4 else min(left, _ROUND)

    def sent(self, count: int, waits: bool, now: float) -> None:
        """Note that `count` bytes were sent, and whether more are waiting; `now` as for `take`."""
        self._sent += count
        if waits and self._mark is None:
            self._mark = self._sent, now

    def take(self, total: object, now: float) -> None:
        """Note that the console has processed `total` bytes since the start;
        adapt the window to the time that took.

        `total` is from the console: invalid values are ignored. `now`
        is in seconds of a monotonic clock.
        """
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
    """Makes the frames of `job follow` for one console; `after`: the seq of
    the last event that it already has.
    """

    def __init__(self, folder: RunFolder, after: int) -> None:
        self._folder = folder
        self._after = after
        self._events = EventReader(folder.events)
        self._ranks = folder.ranks()
        self._watched: dict[Key, LogReader] = {}
        self._window = Window()
        self._tails: dict[Key, TailReader] = {}
        self._looks = LookReader(folder / ACTIVITY)
        self._due = {"tail": 0.0, "looks": 0.0, "now": 0.0, "alive": 0.0}
        self._closed: Optional[Mapping[str, Any]] = None
        self.done = False
        """Whether `closed` and everything before it have been returned by `round`."""
        self._last_seq = -1
        self._scheduler = find_scheduler(folder)
        self._first_watch_by = time.monotonic() + _FIRST_WATCH
        """Until then a console may ask for output before `closed` is sent,
        even if the job closed long ago.
        """

    def take(self, line: bytes) -> None:
        """Handle one line of stdin; invalid lines are ignored."""
        request = parse_json_table(line.decode("utf-8", "replace")) or {}
        self._window.take(request.get("taken"), time.monotonic())
        asked = request.get("watch")
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
                offset = max(log_size(log) + offset, 0)
            found[rank, stream] = LogReader(log, offset)
        return found

    def round(self, now: float) -> list[bytes]:
        """The frames to send now: events, output, tails, activity; `now`
        in seconds of a monotonic clock.
        """
        frames = [encode_frame(event) for event in self._new_events()]
        frames += self._data(now)
        if self._closed is not None or self._is_due("tail", now, _TAIL_PERIOD):
            frames += self._tail_frames()
        if self._closed is None and self._is_due("looks", now, _LOOK_PERIOD):
            frames += map(encode_frame, self._looks.read())
        if self._is_due("now", now, _NOW_PERIOD):
            # With `closed` the job is over on this node, even if output is still to be sent.
            at = self._closed["at"] if self._closed is not None else None
            state = as_row(Now(self._closed is not None, at))
            frames.append(encode_frame({"at": time.time(), **state}))
        if self._closed is None and self._is_due("alive", now, _ALIVE_PERIOD):
            frames += self._check_alive()
        if self.over and self._closed is not None:
            frames.append(encode_frame(self._closed))
            self.done = True
        return frames

    @property
    def behind(self) -> bool:
        """Whether output of watched ranks is waiting on disk."""
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
            if event["kind"] == NodeClosed.KIND:
                self._closed = event
            elif event["seq"] > self._after:
                fresh.append(event)
        return fresh

    def _data(self, now: float) -> list[bytes]:
        """Frames of output as far as there is room: all of quiet streams,
        equal shares in turn of the others.
        """
        waiting = {key: reader.waiting for key, reader in self._watched.items() if reader.waiting}
        frames: list[bytes] = []
        left = room = self._window.room
        for count, key in enumerate(sorted(waiting, key=lambda key: waiting[key] > _LITTLE)):
            if not left:
                break
            # Move it to the end, so that others come first the next time.
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
                    state = {"o": tail.end, "lines": tail.lines, "last": tail.last, "at": tail.at}
                    frames.append(encode_frame({"kind": "tail", "r": rank, "s": stream, **state}))
        return frames

    def _check_alive(self) -> list[bytes]:
        """If the supervisor is gone, resume a job that still runs, else
        close it; returns the frames to send.

        It is closed in the events file, or if that cannot be written, only for this console.
        """
        if self._scheduler.ensure_keeper():
            return []  # the keeper closes the job
        if is_starting(self._folder) or is_supervised(self._folder):
            return []

        if goes_on(self._folder):
            from rankdeck_agent.job.supervisor_start import resume_supervisor

            if resume_supervisor(self._folder):
                return []

        frames = [encode_frame(event) for event in self._new_events()]
        if self._closed is not None:
            return frames
        try:
            close_for(self._folder)
        except OSError:
            now, end = (
                time.time(),
                describe_lost_supervisor(self._folder, all_events(self._folder.events)),
            )
            frames.append(encode_frame({"seq": self._last_seq + 1, "at": now, **as_row(end)}))
            self._closed = {"seq": self._last_seq + 2, "at": now, **as_row(NodeClosed())}
        return frames


def stream_frames(folder: RunFolder, after: int) -> int:
    """Send frames to stdout until the job has closed here, or stdin ends or
    nobody reads; returns the exit code.
    """
    follower = NodeFollower(folder, after)
    source = Input(0)
    # Read the first request before the first round: a console has sent it already.
    for request in source.lines(_FLUSH):
        follower.take(request)
    while not source.ended:
        began = time.monotonic()
        frames = follower.round(began)
        if not write_to_stdout(b"".join(frames)) or follower.done:
            return 0
        for request in source.lines(0 if follower.hurries else _FLUSH):
            follower.take(request)
        spent = time.monotonic() - began
        if not follower.behind and spent < _FLUSH:
            time.sleep(_FLUSH - spent)
    return 0


_AFTER = "--after"


def main(argv: list[str]) -> int:
    """Run `job follow` or `job browse`; returns the exit code."""
    verb, *words = argv
    try:
        return _VERBS[verb](words)
    except NoFolderError as error:
        write_to_stdout(encode_frame({"at": time.time(), **as_row(JobUnknown(str(error)))}))
        return print_complaint(f"rankdeck: {error}", 1)
    except (FolderError, OSError) as error:
        return print_complaint(f"rankdeck: {error}", 1)


def _follow(words: list[str]) -> int:
    job, node, *rest = words if len(words) > 1 else ("", "")
    after = rest[1] if len(rest) == 2 and rest[0] == _AFTER else "-1"
    if len(rest) not in (0, 2) or not after.lstrip("-").isdigit():
        raise FolderError("usage: job follow JOB NODE [--after SEQ]")
    return stream_frames(_folder(job, node), int(after))


def _browse(words: list[str]) -> int:
    if len(words) != 2:
        raise FolderError("usage: job browse JOB NODE")
    return serve_log_requests(_folder(*words))


def _folder(job: str, node: str) -> RunFolder:
    """The run folder of the job; raises FolderError, which says so if the job
    still runs although its folder is gone.
    """
    folder = run_folder(job, node)
    if not folder.events.is_file() and find_job_processes(job, node, 0):
        why = "removed, or its file system is not mounted"
        raise FolderError(f"job {job} runs on, but {folder.path} is gone ({why})")
    return find_run_folder(job, node)


_VERBS: dict[str, Callable[[list[str]], int]] = {"follow": _follow, "browse": _browse}
