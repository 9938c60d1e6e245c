"""What the black box of a node tells of a job: read without trust, and given to the history where
no console has listened.

It lies in a folder in which the job's own program may write. So it speaks of this job only: nothing
of it becomes health or an event of the node.
"""

import base64
import binascii
import json
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rankdeck.model.field_checks import is_integer, is_stamp
from rankdeck.model.health import Occurrence
from rankdeck.model.job import Job, NodeNote
from rankdeck.model.json_tables import Table, as_list, as_table, parse_table
from rankdeck.model.rank import Activity
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.job_news import MARGIN, NodeHistory, node_notes
from rankdeck.state.fleet_history import PICTURED
from rankdeck.state.record import activity_of
from rankdeck.state.sanitize import checked_event, checked_report, finite_number
from rankdeck.values import Value, replace
from rankdeck_agent.rules.levels import EVENT_LEVELS, Level
from rankdeck_agent.wire import LAUNCHER, Event, HealthReport, WireError, decode_message
from rankdeck_agent.wire.black_box import (
    CANCELLED,
    ENDED,
    FAILED,
    GONE,
    MOST_BOX_BYTES,
    PERIOD,
    SILENT,
)
from rankdeck_agent.wire.job_events import EventError, Looks, Origin, parse_event

_MOST_ROWS = 20_000
_MOST_TAIL = 64 << 10
_LONGEST_ROW = 1 << 20
_GAP = 2.5 * PERIOD
"""Readings that are more seconds apart have a gap between them."""
_MARK = " (black box)"
WHY: Mapping[str, str] = {
    FAILED: "a rank or launcher failed",
    CANCELLED: "the job was cancelled",
    SILENT: "no rank of the node wrote anything for a minute",
    ENDED: "the job ended",
    GONE: "its supervisor was killed",
}
"""Why it was frozen -> that in words."""
Numbers = Mapping[str, int | float]


class Silence(Value):
    """No rank of a node wrote anything for a minute."""

    at: float
    """When the box was frozen for that, epoch seconds on the console's clock."""
    heard: Mapping[int, float | None]
    """Rank of the node -> when it wrote last; None: never."""


@dataclass(slots=True)
class NodeBox:
    """The content of one black box; times in epoch seconds on the console's clock."""

    node: str
    readings: list[tuple[float, Numbers]] = field(default_factory=list[tuple[float, Numbers]])
    """(time, metric of PICTURED -> number), oldest first."""
    events: list[Occurrence] = field(default_factory=list[Occurrence])
    """Events, and reasons that began."""
    looks: dict[int, list[Activity]] = field(default_factory=dict[int, list[Activity]])
    frozen: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """(when, one of the keys of WHY)."""
    silences: list[Silence] = field(default_factory=list[Silence])
    standing: list[tuple[float, Table]] = field(default_factory=list[tuple[float, Table]])
    """(when, what the node answered where its silent ranks stand), see `rules/silent_job.py`."""
    resumed: list[float] = field(default_factory=list[float])
    """When ranks wrote again after a long silence."""
    tails: dict[tuple[int, str], tuple[int, bytes]] = field(
        default_factory=dict[tuple[int, str], tuple[int, bytes]]
    )
    """(rank, stream) -> (offset, bytes) of the end of a log."""
    rows: list[bytes] = field(default_factory=list[bytes])
    """All valid rows as they are, for an archive; times on the node's clock."""
    odd: int = 0
    """Rows that made no sense."""
    trouble: str = ""
    """Why it, or a part of it, could not be read."""

    @property
    def gaps(self) -> int:
        """How often readings are missing between others."""
        return sum(after - at > _GAP for (at, _), (after, _) in pairwise(self.readings))


def read_node_box(node: str, origin: Origin, offset: float, answer: Mapping[str, Any]) -> NodeBox:
    """The black box in the answer of a node; `origin` says of which ranks it may speak, `offset` by
    how many seconds its clock is ahead.
    """
    box = NodeBox(node, trouble=clean_line(answer.get("refused", ""), 200))
    reader = _Reader(box, origin, offset)
    for line in _unpacked(box, answer.get("rows"))[:_MOST_ROWS]:
        row = parse_table(line, _LONGEST_ROW)
        take = reader.takers.get(str(row.get("kind"))) if row else None
        if row is not None and take is not None and take(row):
            box.rows.append(line)
        else:
            box.odd += 1
    box.readings.sort(key=lambda one: one[0])
    box.events.sort(key=lambda one: one.at)
    box.frozen.sort(key=lambda one: one[0])
    for looks in box.looks.values():
        looks.sort(key=lambda one: one.at)
    return box


def _unpacked(box: NodeBox, packed: object) -> list[bytes]:
    if not isinstance(packed, str):
        box.trouble = box.trouble or "it has none"
        return []
    try:
        opened = zlib.decompressobj()
        data = opened.decompress(base64.b64decode(packed, validate=True), MOST_BOX_BYTES)
    except (zlib.error, binascii.Error, ValueError) as error:
        box.trouble = clean_line(f"it is damaged: {error}", 200)
        return []
    if opened.unconsumed_tail:
        box.trouble = "it is too large: the rest was left out"
    return [line for line in data.split(b"\n") if line]


class _Reader:
    """Puts rows into a box."""

    def __init__(self, box: NodeBox, origin: Origin, offset: float) -> None:
        self._box, self._origin, self._offset = box, origin, offset
        self._stands: set[tuple[str, str]] = set()
        """(check, device) of the reasons in the health report before."""
        self.takers: Mapping[str, Callable[[Table], bool]] = {
            "sample": lambda row: isinstance(row.get("body"), dict),
            "health": self._take_health,
            "event": self._take_event,
            "activity": self._take_looks,
            "frozen": self._take_frozen,
            "standing": self._take_standing,
            "resumed": self._take_resumed,
            "tail": self._take_tail,
        }

    def _take_health(self, row: Table) -> bool:
        report = _message("health", row)
        if not isinstance(report, HealthReport) or not is_stamp(report.at):
            return False
        at, report = report.at - self._offset, checked_report(report)
        self._box.readings.append((at, report.numbers))
        for check, level, device, held, text in report.reasons:
            if (check, device) not in self._stands and level >= Level.WARN:
                begun = at - (held or 0.0)
                one = Occurrence(begun, self._box.node, "began", Level(level), check, device, text)
                self._box.events.append(one)
        self._stands = {(reason[0], reason[2]) for reason in report.reasons}
        return True

    def _take_event(self, row: Table) -> bool:
        message = _message("event", row)
        if not isinstance(message, Event):
            return False
        event = checked_event(message)
        level = EVENT_LEVELS.get(event.level, Level.WARN)
        self._box.events.append(
            Occurrence(
                finite_number(event.at) - self._offset,
                self._box.node, "event", level, event.check, event.device, event.text,
            )
        )  # fmt: skip
        return True

    def _take_looks(self, row: Table) -> bool:
        try:
            event = parse_event(row, self._origin)
        except EventError:
            return False
        if not isinstance(event.body, Looks):
            return False
        for look in event.body.rows:
            one = activity_of(look, event.at - self._offset)
            self._box.looks.setdefault(look.rank, []).append(one)
        return True

    def _take_frozen(self, row: Table) -> bool:
        at, why = row.get("at"), row.get("why")
        if not is_stamp(at) or not isinstance(why, str) or why not in WHY:
            return False
        at = float(at) - self._offset
        self._box.frozen.append((at, why))
        if why == SILENT:
            self._box.silences.append(Silence(at, self._newest_outputs(row.get("heard"))))
        return True

    def _newest_outputs(self, said: object) -> dict[int, float | None]:
        found: dict[int, float | None] = dict.fromkeys(self._origin.ranks)
        for pair in as_list(said, len(self._origin.ranks)):
            rank, at = (*as_list(pair), None, None)[:2]
            # A node speaks for its own ranks only.
            if is_integer(rank) and rank in found and is_stamp(at):
                found[rank] = float(at) - self._offset
        return found

    def _take_standing(self, row: Table) -> bool:
        at, answer = row.get("at"), as_table(row.get("answer"))
        if not is_stamp(at) or not answer:
            return False
        self._box.standing.append((float(at) - self._offset, answer))
        return True

    def _take_resumed(self, row: Table) -> bool:
        at = row.get("at")
        if not is_stamp(at):
            return False
        self._box.resumed.append(float(at) - self._offset)
        return True

    def _take_tail(self, row: Table) -> bool:
        rank, stream, offset, data = (row.get(name) for name in ("rank", "stream", "o", "data"))
        if rank != LAUNCHER and rank not in self._origin.ranks:
            return False
        if not is_integer(rank) or stream not in ("out", "err") or not is_integer(offset):
            return False
        try:
            end = base64.b64decode(str(data), validate=True)[:_MOST_TAIL]
        except (binascii.Error, ValueError):
            return False
        self._box.tails[rank, str(stream)] = (max(offset, 0), end)
        return True


def _message(kind: str, row: Table) -> object:
    """The message in a row; None if it is none."""
    try:
        return decode_message(kind, json.dumps(row.get("body")).encode())
    except WireError:
        return None


def missing_numbers(
    job: Job, boxes: Iterable[NodeBox], kept: Iterable[Mapping[str, Any]]
) -> list[tuple[float, dict[str, Any]]]:
    """(time, row) of what the boxes have while the history (`kept`) has no number of the node."""
    known: defaultdict[str, list[float]] = defaultdict(list)
    for row in kept:
        for node in row.get("nodes", ()):
            known[node].append(float(row["at"]))
    rows: defaultdict[float, dict[str, list[float | None]]] = defaultdict(dict)
    until = float("inf") if job.ended is None else job.ended + MARGIN
    for box in boxes:
        times = sorted(known[box.node])
        for at, numbers in box.readings:
            if job.created - MARGIN <= at <= until and not _is_near(times, at):
                shown = [numbers.get(metric) for metric in PICTURED]
                rows[at // PERIOD * PERIOD][box.node] = shown
    about = {"metrics": list(PICTURED), "of": len(job.nodes), "simulated": list[str]()}
    return [(at, {**about, "nodes": nodes}) for at, nodes in sorted(rows.items())]


def _is_near(times: Sequence[float], at: float) -> bool:
    place = bisect_left(times, at - PERIOD)
    return place < len(times) and times[place] <= at + PERIOD


def notes_with_boxes(job: Job, boxes: Iterable[NodeBox]) -> tuple[NodeNote, ...]:
    """The notes of a job, with what only its boxes tell; these are marked, and replace no other."""
    boxes = tuple(boxes)
    noted = {(note.node, note.check) for note in job.node_notes}
    told = NodeHistory(
        events=[one for box in boxes for one in box.events],
        first_heard={box.node: box.readings[0][0] for box in boxes if box.readings},
    )
    fresh = [
        replace(note, text=note.text + _MARK)
        for note in node_notes(replace(job, node_notes=()), told)
        if (note.node, note.check) not in noted
    ]
    if not fresh:
        return job.node_notes
    return node_notes(replace(job, node_notes=(*job.node_notes, *fresh)), NodeHistory())
