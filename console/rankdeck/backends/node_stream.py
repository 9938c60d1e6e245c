"""Reads the frames that one node of a job sends, and notes the last event that was read. No I/O."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rankdeck.backends.clock_watch import ClockWatch
from rankdeck.backends.frames import FrameParser
from rankdeck.model.field_checks import is_integer, is_stamp
from rankdeck.model.job_events import Body, ClockSet, Closing, NodeEvent
from rankdeck.model.rank_output import Chunk, Followed, Tail
from rankdeck.state.lines import ReadPositions, ReadPositionsOf
from rankdeck_agent.wire import LAUNCHER, NodePlan
from rankdeck_agent.wire.job_events import (
    OUTPUT,
    TAIL,
    DaemonAnswered,
    DaemonAsked,
    EventError,
    JobUnknown,
    MessagesRefused,
    NodeClosed,
    Now,
    RankExited,
    may_say,
    origin_of,
    parse_event,
)

STREAMS = ("out", "err")
BEFORE_FAILURE = 16 << 10
"""Bytes that are fetched from the end of the output of a failed rank that was not watched."""
TAKEN_STEP = 8 << 10
"""The console acknowledges output to the node each time this many bytes were used."""
_MOST_FAILURES = 16
_MOST_SPAWNS = 4096


class NodeStream:
    """Reads the frames of one node of a job.

    It outlives reconnections; `positions` says how far each log was read.
    """

    def __init__(self, plan: NodePlan, seen: int, positions: ReadPositionsOf, backend: str) -> None:
        """`seen`: number of the last event that was read before; `backend`: what runs the job."""
        self.plan, self.node, self.seen = plan, plan.node, seen
        self.origin = origin_of(plan, backend)
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
        self.unknown = ""
        """Why the node says that it does not know the job; "" if it does."""
        self.spawns: dict[str, DaemonAsked] = {}
        """Id -> request for an MPI daemon that is not known to be answered."""
        self._known = frozenset((*plan.ranks, LAUNCHER))
        self._watched: dict[int, ReadPositions] = {}
        self._received = self._told_taken = 0
        """Bytes of output that arrived on this channel, and that were acknowledged to the node."""
        self._failed: set[int] = set()
        self._refused = 0
        """Number of frames that made no sense, or that the node may not send."""
        self._parser = FrameParser()
        if any(process.rank is None for process in plan.processes):
            self._watch_rank(LAUNCHER, None)

    # ---- watching

    def watch(self, ranks: Iterable[int], backlog: int | None) -> None:
        """Fetch the output of these ranks, including the last `backlog`
        bytes of earlier output (None: all).

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
        """The line that tells the follower how much output was used, so that it
        sends more; b"" if that changed little.

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
        """Begin a new stream with a newly measured clock; an incomplete frame
        is dropped, the node sends it again.
        """
        self.clock = ClockWatch(offset, uncertainty)
        self._parser = FrameParser()
        self._received = self._told_taken = 0
        self.broken = self.unknown = ""
        self.caught_up = False

    def feed(self, data: bytes) -> list[Followed]:
        """The events and output in these bytes; raises FrameError."""
        found: list[Followed] = []
        for head, payload in self._parser.feed(data):
            self._received += len(payload)
            try:
                found += self._read(head, payload)
            except EventError as error:
                found += self.refuse(str(error))
        if self._parser.strange:
            self._parser.strange = False
            found += self.refuse("a line that is no frame")
        return found

    def _read(self, head: Mapping[str, Any], payload: bytes) -> list[Followed]:
        """What one frame says; raises EventError."""
        kind, at = head["kind"], head.get("at")
        if kind not in (OUTPUT, TAIL):
            return self._read_event(head)
        if not is_stamp(at):
            raise EventError("output at an impossible time")
        if not may_say(self.origin.part, self.origin.backend, kind):
            raise EventError(f"`{kind}`, which it may not")
        read = self._chunk(head, payload, at) if kind == OUTPUT else self._tail(head, at)
        return [] if read is None else [read]

    @property
    def frames(self) -> int:
        """Number of frames since the connection was made."""
        return self._parser.count

    def _read_event(self, head: Mapping[str, Any]) -> list[Followed]:
        """A new event; [] for one that was read before. Raises EventError."""
        event = parse_event(head, self.origin)
        if isinstance(event.body, Now):
            return self._now(event.body, event.at)
        if event.seq is not None:
            if event.seq <= self.seen and not isinstance(event.body, NodeClosed):
                return []
            self.seen = max(self.seen, event.seq)
        if note := _NOTES.get(event.body.KIND):
            note(self, event.body)
        return [self._event(event.body, event.at - self.clock.offset, event.seq)]

    def _event(self, body: Body, at: float, seq: int | None = None) -> NodeEvent:
        return NodeEvent(self.plan.job, self.node, at, body, seq, self.clock.offset)

    def _now(self, now: Now, at: float) -> list[Followed]:
        """Up to when everything has arrived; with `closing` the job is over
        there, and its last events are to come.
        """
        found = self._clock_set(at)
        self.caught_up = not now.closing
        if self.caught_up or now.ended is None:
            return [*found, self._event(now, at - self.clock.offset)]
        return [*found, self._event(Closing(), now.ended - self.clock.offset)]

    def _clock_set(self, at: float) -> list[Followed]:
        """The event to report if this stamp shows that the node's clock was set."""
        arrived = time.time()
        before = self.clock.beside(arrived - time.monotonic())
        self.clock = before.after(at, arrived)
        step = self.clock.offset - before.offset
        return [self._event(ClockSet(step, self.clock.uncertainty), arrived)] if step else []

    def _key(self, head: Mapping[str, Any]) -> tuple[int, str, int]:
        """(rank, stream, offset) of a frame about a log; raises EventError."""
        rank, stream, offset = head.get("r"), head.get("s"), head.get("o")
        # Check the types first: an unhashable value cannot be looked up.
        if type(rank) is not int or rank not in self._known:
            raise EventError("output of a rank that is not on this node")
        if not isinstance(stream, str) or stream not in STREAMS:
            raise EventError("output of a stream that does not exist")
        if not is_integer(offset) or offset < 0:
            raise EventError("output at an impossible place")
        return rank, stream, offset

    def _chunk(self, head: Mapping[str, Any], data: bytes, at: float) -> Chunk | None:
        """Output of a watched rank; whoever stores the chunk finds out which part is new.

        Raises EventError.
        """
        rank, stream, offset = self._key(head)
        if rank not in self._watched:
            return None
        at -= self.clock.offset
        return Chunk(self.plan.job, self.node, rank, stream, offset, at, data)

    def _tail(self, head: Mapping[str, Any], at: float) -> Tail:
        """Size and last line of a log that is not watched. Raises EventError."""
        rank, stream, end = self._key(head)
        lines, last = head.get("lines"), head.get("last")
        if not is_integer(lines) or not isinstance(last, str):
            raise EventError("an impossible end of a log")
        at -= self.clock.offset
        return Tail(self.plan.job, self.node, rank, stream, end, lines, last, at)

    def refuse(self, what: str) -> list[Followed]:
        """Count a frame that was left out; the event that reports it, at the 1st, 10th, 100th, …"""
        self._refused += 1
        if str(self._refused).strip("0") != "1":
            return []
        refused = MessagesRefused(f"sent {what}: left out", self._refused)
        return [self._event(refused, time.time())]

    def note_spawn(self, body: DaemonAsked) -> None:
        """Keep a launcher's request for an MPI daemon."""
        if len(self.spawns) < _MOST_SPAWNS:
            self.spawns[body.id] = body

    def note_answered(self, body: DaemonAnswered) -> None:
        """Drop a request that was answered."""
        self.spawns.pop(body.id, None)

    def note_exited(self, body: RankExited) -> None:
        """Fetch the last output of a rank that failed, watched or not."""
        if body.code == 0 or len(self._failed) >= _MOST_FAILURES:
            return
        self._failed.add(body.rank)
        if body.rank not in self._watched:
            self._watch_rank(body.rank, BEFORE_FAILURE)

    def note_closed(self, _: NodeClosed) -> None:
        self.closed = True

    def note_unknown(self, body: JobUnknown) -> None:
        self.unknown = body.text

    def take_spawns(self) -> list[DaemonAsked]:
        """The requests to carry out now; [] until it is known which ones were answered earlier."""
        if not self.caught_up:
            return []
        taken = list(self.spawns.values())
        self.spawns.clear()
        return taken


_NOTES: Mapping[str, Callable[[NodeStream, Any], None]] = {
    DaemonAsked.KIND: NodeStream.note_spawn,
    DaemonAnswered.KIND: NodeStream.note_answered,
    RankExited.KIND: NodeStream.note_exited,
    NodeClosed.KIND: NodeStream.note_closed,
    JobUnknown.KIND: NodeStream.note_unknown,
}
"""Kind of event -> what the stream itself does with it."""
