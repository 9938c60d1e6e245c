"""What one node of a job tells, frame by frame, and how far it was read. No I/O."""

import json
from collections.abc import Mapping
from typing import Any

from rankdeck.backends.frames import Frame, FrameParser
from rankdeck.model.job import Chunk, Followed, NodeEvent, Tail
from rankdeck_agent.wire import LAUNCHER, NodePlan

STREAMS = ("out", "err")
BEFORE_FAILURE = 16 << 10
"""Bytes fetched of a rank that failed unwatched."""
_MOST_FAILURES = 16
_LATEST = 1e12
"""No stamp of a sane clock is later, in epoch seconds."""
Offsets = Mapping[int, Mapping[str, int]]


class NodeStream:
    """One node of one job; keeps sequence number and byte offsets over reconnections."""

    def __init__(self, plan: NodePlan, seen: int) -> None:
        self.plan, self.node, self.seen = plan, plan.node, seen
        self.offset = 0.0
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
        self._parser = FrameParser()
        if any(process.rank is None for process in plan.processes):
            self._watch_rank(LAUNCHER, 0)

    # ---- watching

    def watch(self, offsets: Offsets) -> None:
        """Read these ranks from there on (from the end where below 0); the launcher and what failed stay watched."""
        kept = {
            key: at
            for key, at in self._positions.items()
            if self._stays(key[0], offsets)
        }
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

    def reconnected(self) -> None:
        """A new stream begins: what was half read is read again."""
        self._parser = FrameParser()
        self.caught_up = False

    def feed(self, data: bytes) -> list[Followed]:
        """What the bytes say; raises FrameError."""
        found: list[Followed] = []
        for frame in self._parser.feed(data):
            item = self._read(frame)
            if item is not None:
                found.append(item)
        return found

    def _read(self, frame: Frame) -> Followed | None:
        head, data = frame
        at = head.get("at")
        # Written so that NaN and integers beyond any float are refused too.
        if not isinstance(at, int | float) or not abs(at) < _LATEST:
            return None
        kind = head["kind"]
        if kind == "now":
            # A job that is closing has its end still to tell.
            self.caught_up = head.get("closing") is not True
            return None
        if kind == "data":
            return self._chunk(head, data, at - self.offset)
        if kind == "from":
            self._begin(head)
            return None
        if kind == "tail":
            return self._tail(head, at - self.offset)
        return self._event(head, at - self.offset)

    def _key(self, head: Mapping[str, Any]) -> tuple[int, str, int] | None:
        rank, stream, offset = head.get("r"), head.get("s"), head.get("o")
        if rank not in self._known or stream not in STREAMS:
            return None
        if type(offset) is not int or offset < 0:
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
        if key is None or type(lines) is not int or not isinstance(last, str):
            return None
        rank, stream, end = key
        self._saw(rank, stream, end)
        return Tail(self.plan.job, self.node, rank, stream, end, lines, last, at)

    def _saw(self, rank: int, stream: str, end: int) -> None:
        self._ends[rank, stream] = max(end, self._ends.get((rank, stream), 0))

    def _event(self, head: Mapping[str, Any], at: float) -> NodeEvent | None:
        seq, kind = head.get("seq"), head["kind"]
        if type(seq) is not int or (seq <= self.seen and kind != "closed"):
            return None
        self.seen = max(self.seen, seq)
        if handler := _NOTES.get(kind):
            handler(self, head)
        return NodeEvent(self.plan.job, self.node, kind, at, head)

    def note_spawn(self, head: Mapping[str, Any]) -> None:
        request = head.get("id")
        if isinstance(request, str) and len(self.spawns) < 100_000:
            self.spawns[request] = head

    def note_answered(self, head: Mapping[str, Any]) -> None:
        self.spawns.pop(str(head.get("id")), None)

    def note_exited(self, head: Mapping[str, Any]) -> None:
        """Fetch the last words of a rank that failed, watched or not."""
        rank, well = head.get("rank"), head.get("code") == 0
        if well or not isinstance(rank, int) or rank not in self._known:
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
