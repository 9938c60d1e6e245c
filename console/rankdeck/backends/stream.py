"""What one node of a job tells, frame by frame, and how far it was read. No I/O."""

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from rankdeck.backends.clockwatch import Clockwatch
from rankdeck.backends.frames import Frame, FrameParser
from rankdeck.backends.looks import looks_of
from rankdeck.backends.shapes import event_of
from rankdeck.model.border import integer, stamp
from rankdeck.model.job import Chunk, Followed, NodeEvent, Tail
from rankdeck_agent.wire import LAUNCHER, NodePlan

STREAMS = ("out", "err")
BEFORE_FAILURE = 16 << 10
"""Bytes fetched of a rank that failed unwatched."""
_MOST_FAILURES = 16
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
"""Of a request, as the launch agent makes it: it is a word of the command that answers."""
Offsets = Mapping[int, Mapping[str, int]]


class NodeStream:
    """One node of one job; keeps sequence number and byte offsets over reconnections."""

    def __init__(self, plan: NodePlan, seen: int) -> None:
        self.plan, self.node, self.seen = plan, plan.node, seen
        self._clock = Clockwatch(0.0, 0.5)
        self.heard: float | None = None
        """When the last bytes came, in epoch seconds of the console's clock."""
        self.closed = False
        self.caught_up = False
        """What was there when we connected has been told."""
        self.fresh_watch = False
        """The watch line has changed since it was last sent."""
        self.spawns: dict[str, Mapping[str, Any]] = {}
        """Requests that nobody has answered, as far as told."""
        self._known = frozenset((*plan.ranks, LAUNCHER))
        self._positions: dict[tuple[int, str], int] = {}
        """The next byte wanted; below 0: counted from an end that only the node knows yet."""
        self._number = 0
        """Of the watch line that was sent last."""
        self._ends: dict[tuple[int, str], int] = {}
        self._failed: set[int] = set()
        self._odd = False
        """It has sent what makes no sense."""
        self._parser = FrameParser()
        if any(process.rank is None for process in plan.processes):
            self._watch_rank(LAUNCHER, 0)

    # ---- watching

    def watch(self, offsets: Offsets) -> None:
        """Read these ranks from there on (from the end where below 0); the launcher and what failed stay watched."""
        kept = {key: at for key, at in self._positions.items() if self._stays(key[0], offsets)}
        for rank, streams in offsets.items():
            if rank in self._known and rank != LAUNCHER:
                for stream in STREAMS:
                    kept[rank, stream] = int(streams.get(stream, 0))
        self.fresh_watch = self.fresh_watch or kept != self._positions
        self._positions = kept

    def _stays(self, rank: int, offsets: Offsets) -> bool:
        return rank == LAUNCHER or (rank in self._failed and rank not in offsets)

    def _watch_rank(self, rank: int, before: int) -> None:
        for stream in STREAMS:
            end = self._ends.get((rank, stream), 0)
            at = max(0, end - before) if end else -before
            self._positions.setdefault((rank, stream), at)
        self.fresh_watch = True

    def watch_line(self) -> bytes:
        """What to send to the follower on the node."""
        table: dict[str, dict[str, int]] = {}
        for (rank, stream), at in self._positions.items():
            table.setdefault(str(rank), {})[stream] = at
        self.fresh_watch = False
        self._number += 1
        return json.dumps({"watch": table, "number": self._number}).encode() + b"\n"

    @property
    def unread(self) -> bool:
        """Whether watched bytes are known to exist that have not come."""
        return any(at < self._ends.get(key, 0) for key, at in self._positions.items())

    # ---- reading

    @property
    def offset(self) -> float:
        """The node's clock is ours plus so many seconds."""
        return self._clock.offset

    def reconnected(self, offset: float = 0.0, uncertainty: float = 0.5) -> None:
        """A new stream begins, with the clock as measured: what was half read is read again."""
        self._clock = Clockwatch(offset, uncertainty)
        self._parser = FrameParser()
        self.caught_up = False

    def feed(self, data: bytes) -> list[Followed]:
        """What the bytes say; raises FrameError."""
        found: list[Followed] = []
        for frame in self._parser.feed(data):
            found += self._clock_set(frame[0])
            item = self._read(frame)
            if item is not None:
                found.append(item)
        return found

    def _clock_set(self, head: Mapping[str, Any]) -> list[Followed]:
        """What to tell where this `now` shows that the node's clock was set."""
        at, arrived, before = head.get("at"), time.time(), self._clock
        if head["kind"] != "now" or not stamp(at):
            return []
        self._clock = before.after(at, arrived)
        step = self._clock.offset - before.offset
        if not step:
            return []
        known = {"offset": self._clock.offset, "uncertainty": self._clock.uncertainty}
        text = f"the clock of the node was set by {step:+.1f} s: times before and after may not fit"
        job = self.plan.job
        return [
            NodeEvent(job, self.node, "clock", arrived, known),
            NodeEvent(job, self.node, "trouble", arrived, {"text": text}),
        ]

    def _read(self, frame: Frame) -> Followed | None:
        head, data = frame
        at = head.get("at")
        if not stamp(at):
            return self._doubt("a stamp that no clock gives")
        kind = head["kind"]
        if kind == "now":
            return self._now(head, at)
        if kind == "activity":
            return self._looks(head, at - self.offset)
        if kind == "data":
            return self._chunk(head, data, at - self.offset)
        if kind == "from":
            self._begin(head)
            return None
        if kind == "tail":
            return self._tail(head, at - self.offset)
        return self._event(head, at - self.offset)

    def _now(self, head: Mapping[str, Any], at: float) -> NodeEvent:
        # A job that is closing has its end still to tell.
        self.caught_up = head.get("closing") is not True
        ended = head.get("ended")
        if self.caught_up or not stamp(ended):
            return NodeEvent(self.plan.job, self.node, "now", at - self.offset, {})
        return NodeEvent(self.plan.job, self.node, "closing", ended - self.offset, {})

    def _key(self, head: Mapping[str, Any]) -> tuple[int, str, int] | None:
        rank, stream, offset = head.get("r"), head.get("s"), head.get("o")
        # Types first: what cannot be hashed cannot be looked up either.
        if type(rank) is not int or rank not in self._known:
            return None
        if not isinstance(stream, str) or stream not in STREAMS:
            return None
        if not integer(offset) or offset < 0:
            return None
        return rank, stream, offset

    def _begin(self, head: Mapping[str, Any]) -> None:
        """The node says where the end begins that was asked for, unless that was asked anew since."""
        key = self._key(head)
        if key is None or head.get("watch") != self._number:
            return
        rank, stream, offset = key
        if self._positions.get((rank, stream), 0) < 0:
            self._positions[rank, stream] = offset

    def _chunk(self, head: Mapping[str, Any], data: bytes, at: float) -> Chunk | None:
        """Only what continues where we are: more is of a watch that was replaced."""
        key = self._key(head)
        if key is None:
            return None
        rank, stream, offset = key
        wanted = self._positions.get((rank, stream))
        if wanted is None or wanted < 0 or offset > wanted:
            return None
        data, offset = data[wanted - offset :], wanted
        if not data:
            return None
        self._positions[rank, stream] = offset + len(data)
        self._saw(rank, stream, offset + len(data))
        return Chunk(self.plan.job, self.node, rank, stream, offset, at, data)

    def _tail(self, head: Mapping[str, Any], at: float) -> Tail | None:
        key = self._key(head)
        lines, last = head.get("lines"), head.get("last")
        if key is None or not integer(lines) or not isinstance(last, str):
            return None
        rank, stream, end = key
        self._saw(rank, stream, end)
        return Tail(self.plan.job, self.node, rank, stream, end, lines, last, at)

    def _looks(self, head: Mapping[str, Any], at: float) -> NodeEvent | None:
        looks = looks_of(head.get("rows"), self.plan.ranks, at)
        if not looks:
            return None
        return NodeEvent(self.plan.job, self.node, "activity", at, {"looks": looks})

    def _saw(self, rank: int, stream: str, end: int) -> None:
        self._ends[rank, stream] = max(end, self._ends.get((rank, stream), 0))

    def _event(self, head: Mapping[str, Any], at: float) -> NodeEvent | None:
        fields = event_of(head)
        if fields is None:
            return self._doubt("an event that makes no sense")
        seq, kind = fields["seq"], head["kind"]
        if seq <= self.seen and kind != "closed":
            return None
        self.seen = max(self.seen, seq)
        if handler := _NOTES.get(kind):
            handler(self, fields)
        return NodeEvent(self.plan.job, self.node, kind, at, fields)

    def _doubt(self, what: str) -> NodeEvent | None:
        """Say once of this node that it sends what cannot be; further such frames are left out."""
        if self._odd:
            return None
        self._odd = True
        told = {"text": f"sent {what}: left out"}
        return NodeEvent(self.plan.job, self.node, "trouble", time.time(), told)

    def note_spawn(self, head: Mapping[str, Any]) -> None:
        request = head.get("id")
        if isinstance(request, str) and _ID.match(request) and len(self.spawns) < 4096:
            self.spawns[request] = head

    def note_answered(self, head: Mapping[str, Any]) -> None:
        self.spawns.pop(str(head.get("id")), None)

    def note_exited(self, head: Mapping[str, Any]) -> None:
        """Fetch the last words of a rank that failed, watched or not."""
        rank, well = head.get("rank"), head.get("code") == 0
        if well or rank not in self._known:
            return
        if len(self._failed) < _MOST_FAILURES:
            self._failed.add(rank)
            if (rank, "out") not in self._positions:
                self._watch_rank(rank, BEFORE_FAILURE)

    def note_closed(self, _: Mapping[str, Any]) -> None:
        self.closed = True

    def take_spawns(self) -> list[Mapping[str, Any]]:
        """Requests to carry out now: none before we know which were answered long ago."""
        if not self.caught_up:
            return []
        taken = list(self.spawns.values())
        self.spawns.clear()
        return taken


_NOTES = {
    "spawn": NodeStream.note_spawn,
    "answered": NodeStream.note_answered,
    "exited": NodeStream.note_exited,
    "closed": NodeStream.note_closed,
}
