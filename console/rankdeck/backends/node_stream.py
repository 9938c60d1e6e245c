"""Parses and checks the frames that one node of a job sends, and notes the last event that was read. No I/O."""

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rankdeck.model.job import Chunk, Followed, NodeEvent, Tail
from rankdeck.model.rank import Activity
from rankdeck.model.text import (
    Check,
    Table,
    as_list,
    fitting,
    flag,
    integer,
    number,
    or_null,
    rows,
    stamp,
    table,
    text,
)
from rankdeck.state.lines import ReadPositions, ReadPositionsOf
from rankdeck_agent.wire import LAUNCHER, NodePlan, is_request_id

Frame = tuple[Mapping[str, Any], bytes]
LONGEST_HEAD = 2 << 20
LONGEST_DATA = 16 << 20


_KIND = text(20)


class FrameError(ValueError):
    """The bytes cannot be a frame: the rest of the stream cannot be read."""


class FrameParser:
    """Splits a stream of bytes into frames (head, data); holds at most one incomplete frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: Mapping[str, Any] | None = None
        self._wanted = 0
        self.count = 0
        """Number of frames so far."""
        self.strange = False
        """Whether there was an invalid line after the first frame."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now; raises FrameError."""
        self._buffer += data
        frames: list[Frame] = []
        begin = 0
        while (end := self._end(begin)) >= 0:
            piece = bytes(self._buffer[begin:end])
            begin = end
            if self._head is None:
                self._begin(piece, frames)
            else:
                frames.append((self._head, piece))
                self._head = None
        del self._buffer[:begin]
        if self._head is None and len(self._buffer) > LONGEST_HEAD:
            raise FrameError("a line without an end")
        self.count += len(frames)
        return frames

    def _end(self, begin: int) -> int:
        """End of the line, or of the data of a frame, that begins at `begin`; -1 if it is incomplete."""
        if self._head is None:
            return self._buffer.find(b"\n", begin) + 1 or -1
        end = begin + self._wanted
        return end if end <= len(self._buffer) else -1

    def _begin(self, line: bytes, frames: list[Frame]) -> None:
        head = table(line, LONGEST_HEAD)
        if head is None or not _KIND(head.get("kind")):
            # Start-up files of a login shell may print lines before the agent does.
            self.strange = self.strange or bool(self.count or frames)
            return
        if head.get("kind") != "data":
            frames.append((head, b""))
            return
        length = head.get("n")
        if type(length) is not int or not 0 <= length <= LONGEST_DATA:
            raise FrameError(f"a data frame of {str(length)[:20]} bytes")
        if length:
            self._head, self._wanted = head, length


_LINES = rows(text(20_000), 1000)
_CODES: Mapping[str, Check] = {"code": or_null(integer), "signal": or_null(integer)}
_NUMBERED: Mapping[str, Check] = {"seq": integer, "at": stamp, "kind": text(20)}


def _scalar(value: object) -> bool:
    return isinstance(value, str) or number(value)


_EVENTS: Mapping[str, Mapping[str, Check]] = {
    "ready": {"pid": integer, "boot": text(200), "addresses": rows(text(300), 1000)},
    "started": {"rank": integer, "pid": integer, "host": text(300), "attempt": integer},
    "exited": {
        **_CODES,
        "rank": integer,
        "said": _LINES,
        "kernel": _LINES,
        "activity": rows(_scalar, 8),
    },
    "process": {"name": text(300), "pid": integer},
    "ended": {**_CODES, "name": text(300), "said": _LINES},
    "spawn": {"id": text(100), "host": text(300), "command": text(1 << 18)},
    "answered": {"id": text(100), "ok": flag, "text": text(20_000)},
    "trouble": {"text": text(20_000), "gone": or_null(stamp), "running": rows(integer, 1 << 20)},
    "again": {"text": text(20_000)},
    "cancel": {"grace": number, "by": text(20)},
    "slurm": {
        **dict.fromkeys(
            ("id", "state", "reason", "partition", "nodes", "node", "by", "array"), text(2000)
        ),
        **dict.fromkeys(("text", "do"), text(20_000)),
        **dict.fromkeys(("attempt", "position", "waiting", "rank", "code"), integer),
        **dict.fromkeys(("start", "ends", "end"), stamp),
        "limit": number,
        **dict.fromkeys(("stuck", "over"), flag),
    },
    "attempt": {"number": integer, "text": text(20_000)},
    "task": {
        **dict.fromkeys(("id", "state", "reason", "nodes", "node"), text(2000)),
        **dict.fromkeys(("text", "do"), text(20_000)),
        **dict.fromkeys(("rank", "attempt", "code"), integer),
        **dict.fromkeys(("start", "end"), stamp),
        "over": flag,
    },
    "closed": {},
}


def event_of(head: Mapping[str, Any]) -> Table | None:
    """The valid fields of a supervisor's event; None if the frame is not such an event."""
    shape = _EVENTS.get(head["kind"])
    seq = head.get("seq")
    if shape is None or not integer(seq) or seq < 0:
        return None
    return fitting(head, {**_NUMBERED, **shape})


MOST_ROWS = 4096
_STATES = frozenset("RSDTtZXIKWP")
_NAME = re.compile(r"[\w.\-+@]{0,64}\Z", re.ASCII)
_MOST_CORES = 1e5


def looks_of(rows: object, ranks: Collection[int], at: float) -> Mapping[int, Activity]:
    """Rank -> what it did at `at` (epoch seconds), for these ranks of the node; invalid rows are left out."""
    known = frozenset(ranks)
    found: dict[int, Activity] = {}
    for raw in as_list(rows, MOST_ROWS):
        look = _look(raw, known, at)
        if look is not None:
            found[look[0]] = look[1]
    return found


def _look(raw: object, known: frozenset[int], at: float) -> tuple[int, Activity] | None:
    row = as_list(raw)
    if len(row) < 5:
        return None
    rank, state, wchan, cores, share = row[:5]
    if type(rank) is not int or rank not in known:
        return None
    if not isinstance(state, str) or state not in _STATES:
        return None
    if not isinstance(wchan, str) or not _NAME.match(wchan):
        return None
    if not _within(cores, _MOST_CORES) or not (share is None or _within(share, 1.0)):
        return None
    share_of_core = None if share is None else float(share)
    return rank, Activity(state, wchan, float(cores), share_of_core, at)


def _within(number: object, most: float) -> bool:
    # Compared like this, NaN and integers too large for a float are refused too.
    return type(number) in (int, float) and 0 <= cast("float", number) <= most


LATE = 2.5
"""A stamp may arrive this many seconds late before the node's clock is doubted. More than the 2 seconds between
stamps; otherwise a link that delays all stamps equally would look like a clock that was set back."""
SURE = 0.25
"""Late stamps that agree within this many seconds show that the clock was set back, not that the link is slow."""
_AGREEING = 3
_APART = 1.5


@dataclass(frozen=True, slots=True)
class ClockWatch:
    """Detects by the stamps of `now` frames that a node's clock was set; immutable, see `after`."""

    offset: float
    """Seconds by which the node's clock is ahead of the console's, ± `uncertainty`."""
    uncertainty: float
    doubts: tuple[tuple[float, float], ...] = ()
    """(arrival, lag) in seconds of consecutive stamps that arrived too late."""

    def after(self, at: float, arrived: float) -> "ClockWatch":
        """The state after the node's stamp `at` arrived at `arrived`; both in epoch seconds.

        A stamp ahead of the console's clock proves that the node's clock was set forward. A late one
        may be due to a slow link; a clock that was set back shows the same lag repeatedly.
        """
        ahead = at - self.offset - arrived
        if ahead > self.uncertainty + SURE:
            return self._set(at - arrived)
        if ahead > -(self.uncertainty + LATE):
            return ClockWatch(self.offset, self.uncertainty)
        lags = [lag for _, lag in self.doubts] + [ahead]
        fits = max(lags) - min(lags) < SURE
        fits = fits and all(arrived - when >= _APART for when, _ in self.doubts[-1:])
        doubts = (*self.doubts, (arrived, ahead)) if fits else ((arrived, ahead),)
        if len(doubts) >= _AGREEING:
            return self._set(at - arrived)
        return ClockWatch(self.offset, self.uncertainty, doubts)

    def _set(self, offset: float) -> "ClockWatch":
        # The delay of the stamp is not known, so it adds to the uncertainty.
        return ClockWatch(offset, self.uncertainty + SURE)


STREAMS = ("out", "err")
BEFORE_FAILURE = 16 << 10
"""Bytes that are fetched from the end of the output of a failed rank that was not watched."""
TAKEN_STEP = 8 << 10
"""The console acknowledges output to the node each time this many bytes were used."""
_MOST_FAILURES = 16


class NodeStream:
    """Reads the frames of one node of a job. It outlives reconnections; `positions` says how far each log was read."""

    def __init__(self, plan: NodePlan, seen: int, positions: ReadPositionsOf) -> None:
        self.plan, self.node, self.seen = plan, plan.node, seen
        self._positions = positions
        self.clock = ClockWatch(0.0, 0.5)
        """How the node's clock differs from the console's, as far as known."""
        self.heard: float | None = None
        """When the last bytes arrived, epoch seconds on the console's clock."""
        self.closed = False
        self.broken = ""
        """Why the present channel must not be used any more, one sentence; "" if it may."""
        self.caught_up = False
        """Whether all events from before the connection was made have arrived."""
        self.fresh_watch = False
        """Whether `watch_line` has changed since it was last sent."""
        self.spawns: dict[str, Mapping[str, Any]] = {}
        """Id -> request for an MPI daemon that is not known to be answered."""
        self._known = frozenset((*plan.ranks, LAUNCHER))
        self._watched: dict[int, ReadPositions] = {}
        self._received = self._told_taken = 0
        """Bytes of output that arrived on this channel, and that were acknowledged to the node."""
        self._failed: set[int] = set()
        self._odd = False
        """Whether the node has sent something invalid."""
        self._parser = FrameParser()
        if any(process.rank is None for process in plan.processes):
            self._watch_rank(LAUNCHER, None)

    # ---- watching

    def watch(self, ranks: Iterable[int], backlog: int | None) -> None:
        """Fetch the output of these ranks, including the last `backlog` bytes of earlier output (None: all).

        The launcher and failed ranks stay watched.
        """
        asked = {rank for rank in ranks if rank in self._known and rank != LAUNCHER}
        before = self._watched.keys()
        self._watched = {
            rank: read
            for rank, read in self._watched.items()
            if rank == LAUNCHER or rank in self._failed | asked
        }
        self.fresh_watch = self.fresh_watch or self._watched.keys() != before
        for rank in asked:
            self._watch_rank(rank, backlog)

    def _watch_rank(self, rank: int, backlog: int | None) -> None:
        changed = rank not in self._watched
        read = self._watched[rank] = self._positions(self.node, rank)
        self.fresh_watch = read.resume(backlog) or changed or self.fresh_watch

    def watch_line(self) -> bytes:
        """The line that tells the follower on the node which output to send."""
        self.fresh_watch = False
        table = {str(rank): read.wanted() for rank, read in self._watched.items()}
        return json.dumps({"watch": table, "taken": self._told_taken}).encode() + b"\n"

    def taken_line(self, waiting: int) -> bytes:
        """The line that tells the follower how much output was used, so that it sends more; b"" if that changed little.

        `waiting` is how many bytes of this node's output have not been passed to the caller yet.
        """
        taken = max(self._received - waiting, 0)
        if taken < self._told_taken + TAKEN_STEP:
            return b""
        self._told_taken = taken
        return json.dumps({"taken": taken}).encode() + b"\n"

    @property
    def unread(self) -> bool:
        """Whether watched output is known to exist that has not arrived."""
        return any(read.behind for read in self._watched.values())

    # ---- reading

    def reconnected(self, offset: float = 0.0, uncertainty: float = 0.5) -> None:
        """Begin a new stream with a newly measured clock; an incomplete frame is dropped, the node sends it again."""
        self.clock = ClockWatch(offset, uncertainty)
        self._parser = FrameParser()
        self._received = self._told_taken = 0
        self.broken = ""
        self.caught_up = False

    def feed(self, data: bytes) -> list[Followed]:
        """The events and output in these bytes; raises FrameError."""
        found: list[Followed] = []
        for head, payload in self._parser.feed(data):
            self._received += len(payload)
            found += self._clock_set(head)
            at = head.get("at")
            if not stamp(at):
                item = self.doubt("an impossible time")
            elif head["kind"] == "data":
                item = self._chunk(head, payload, at - self.clock.offset)
            else:
                item = _READERS.get(head["kind"], NodeStream.read_event)(
                    self, head, at - self.clock.offset
                )
            if item is not None:
                found.append(item)
        if self._parser.strange and (doubt := self.doubt("a line that is no frame")):
            found.append(doubt)
        return found

    @property
    def frames(self) -> int:
        """Number of frames since the connection was made."""
        return self._parser.count

    def _clock_set(self, head: Mapping[str, Any]) -> list[Followed]:
        """The events to report if this `now` frame shows that the node's clock was set."""
        at, arrived, before = head.get("at"), time.time(), self.clock
        if head["kind"] != "now" or not stamp(at):
            return []
        self.clock = before.after(at, arrived)
        step = self.clock.offset - before.offset
        if not step:
            return []
        known = {"offset": self.clock.offset, "uncertainty": self.clock.uncertainty}
        text = f"the clock of the node was set by {step:+.1f} s: times before and after may not fit"
        job = self.plan.job
        return [
            NodeEvent(job, self.node, "clock", arrived, known),
            NodeEvent(job, self.node, "trouble", arrived, {"text": text}),
        ]

    def read_now(self, head: Mapping[str, Any], at: float) -> NodeEvent:
        """`now` frame -> "now", or "closing" if the job is over there; `at` is epoch seconds on the console's clock."""
        # `closing`: the job is over there, but its last events are still to come.
        self.caught_up = head.get("closing") is not True
        ended = head.get("ended")
        if self.caught_up or not stamp(ended):
            return NodeEvent(self.plan.job, self.node, "now", at, {})
        return NodeEvent(self.plan.job, self.node, "closing", ended - self.clock.offset, {})

    def _key(self, head: Mapping[str, Any]) -> tuple[int, str, int] | None:
        rank, stream, offset = head.get("r"), head.get("s"), head.get("o")
        # Check the types first: an unhashable value cannot be looked up.
        if type(rank) is not int or rank not in self._known:
            return None
        if not isinstance(stream, str) or stream not in STREAMS:
            return None
        if not integer(offset) or offset < 0:
            return None
        return rank, stream, offset

    def _chunk(self, head: Mapping[str, Any], data: bytes, at: float) -> Followed | None:
        """Output of a watched rank; whoever stores the chunk finds out which part is new."""
        key = self._key(head)
        if key is None:
            return self.doubt("output of a rank that is not on this node")
        rank, stream, offset = key
        if rank not in self._watched:
            return None
        return Chunk(self.plan.job, self.node, rank, stream, offset, at, data)

    def read_tail(self, head: Mapping[str, Any], at: float) -> Followed | None:
        """`tail` frame -> size and last line of a log that is not watched."""
        key = self._key(head)
        lines, last = head.get("lines"), head.get("last")
        if key is None or not integer(lines) or not isinstance(last, str):
            return self.doubt("an impossible end of a log")
        rank, stream, end = key
        return Tail(self.plan.job, self.node, rank, stream, end, lines, last, at)

    def read_activity(self, head: Mapping[str, Any], at: float) -> NodeEvent | None:
        """`activity` frame -> what the running ranks did; None if no row is valid."""
        looks = looks_of(head.get("rows"), self.plan.ranks, at)
        if not looks:
            return None
        return NodeEvent(self.plan.job, self.node, "activity", at, {"looks": looks})

    def read_event(self, head: Mapping[str, Any], at: float) -> NodeEvent | None:
        """Any other frame -> an event of the supervisor; None if it was seen before."""
        fields = event_of(head)
        if fields is None:
            return self.doubt("an event that makes no sense")
        seq, kind = fields["seq"], head["kind"]
        if seq <= self.seen and kind != "closed":
            return None
        self.seen = max(self.seen, seq)
        if handler := _NOTES.get(kind):
            handler(self, fields)
        return NodeEvent(self.plan.job, self.node, kind, at, fields)

    def doubt(self, what: str) -> NodeEvent | None:
        """The event that reports an invalid frame, once per node; None for further ones."""
        if self._odd:
            return None
        self._odd = True
        fields = {"text": f"sent {what}: left out"}
        return NodeEvent(self.plan.job, self.node, "trouble", time.time(), fields)

    def note_spawn(self, head: Mapping[str, Any]) -> None:
        """Keep a launcher's request for an MPI daemon."""
        request = head.get("id")
        if isinstance(request, str) and is_request_id(request) and len(self.spawns) < 4096:
            self.spawns[request] = head

    def note_answered(self, head: Mapping[str, Any]) -> None:
        """Drop a request that was answered."""
        self.spawns.pop(str(head.get("id")), None)

    def note_exited(self, head: Mapping[str, Any]) -> None:
        """Fetch the last output of a rank that failed, watched or not."""
        rank, well = head.get("rank"), head.get("code") == 0
        if well or rank not in self._known:
            return
        if len(self._failed) < _MOST_FAILURES:
            self._failed.add(rank)
            if rank not in self._watched:
                self._watch_rank(rank, BEFORE_FAILURE)

    def note_closed(self, _: Mapping[str, Any]) -> None:
        self.closed = True

    def take_spawns(self) -> list[Mapping[str, Any]]:
        """The requests to carry out now; [] until it is known which ones were answered earlier."""
        if not self.caught_up:
            return []
        taken = list(self.spawns.values())
        self.spawns.clear()
        return taken


_READERS: Mapping[str, Callable[[NodeStream, Mapping[str, Any], float], Followed | None]] = {
    "now": NodeStream.read_now,
    "activity": NodeStream.read_activity,
    "tail": NodeStream.read_tail,
}
_NOTES = {
    "spawn": NodeStream.note_spawn,
    "answered": NodeStream.note_answered,
    "exited": NodeStream.note_exited,
    "closed": NodeStream.note_closed,
}
