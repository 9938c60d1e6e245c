"""What is known of one Slurm job, and which events its news make. No I/O."""

from collections.abc import Iterable, Mapping
from typing import Any, Optional

from rankdeck_agent.slurm.marks import BATCH, Mark
from rankdeck_agent.slurm.rows import Seen
from rankdeck_agent.slurm.verdict import FINAL, Verdict
from rankdeck_agent.slurm.waiting import waits_for

ESTIMATES = 120.0
"""Seconds between two records of a place in the queue and of a start that is estimated: they change with every look."""

Event = dict[str, Any]


class Track:
    """One job; written by the keeper alone."""

    def __init__(self) -> None:
        self.ours = ""
        """By whom Rankdeck was asked to cancel it; "" where it was not."""
        self.last: Optional[Seen] = None
        """What Slurm said last."""
        self.told: Event = {}
        """The newest `slurm` event."""
        self.told_at = 0.0
        self.place: Mapping[str, int] = {}
        """`position` among the `waiting` jobs of its partition, of one that waits."""
        self.missed = 0
        """Looks at Slurm in a row that did not tell its end, though it should have come."""
        self.begin_attempt(0)

    # ---- marks

    def take_mark(self, mark: Mark) -> list[Event]:
        """The events of a mark; it begins an attempt where it is of a later one."""
        if mark.attempt < self.attempt:
            return []
        if mark.attempt > self.attempt:
            self.begin_attempt(mark.attempt)
        if mark.rank == BATCH:
            self._take_batch(mark)
            return []
        return self._began(mark) if mark.began else self._ended(mark)

    def begin_attempt(self, number: int) -> None:
        """Forget what was of the run before; `number`: how often Slurm queued the job again."""
        self.attempt = number
        self.hosts: dict[int, str] = {}
        """Rank -> node, of those that began in this attempt."""
        self.ended: set[int] = set()
        self.batch: Optional[int] = None
        """Status that the batch script of this attempt left."""
        self.batch_over = False

    def _take_batch(self, mark: Mark) -> None:
        if not mark.began:
            self.batch_over, self.batch = True, mark.status

    def _began(self, mark: Mark) -> list[Event]:
        if mark.rank in self.hosts:
            return []
        self.hosts[mark.rank] = mark.host
        row: Event = {"kind": "started", "rank": mark.rank, "host": mark.host, "at": mark.at}
        if mark.pid:
            row["pid"] = mark.pid
        return [{**row, **self._numbered()}]

    def _ended(self, mark: Mark) -> list[Event]:
        if mark.rank in self.ended:
            return []
        self.ended.add(mark.rank)
        return [{"kind": "exited", "rank": mark.rank, "status": mark.status, "at": mark.at}]

    def _numbered(self) -> Event:
        return {"attempt": self.attempt} if self.attempt else {}

    # ---- Slurm

    def take_seen(self, seen: Seen, now: float) -> list[Event]:
        """The events of what Slurm says now, of a job that is not over; `now` in epoch seconds."""
        self.last = seen
        if seen.state in FINAL:
            return []
        row = status_row(seen, self.attempt, self.place if seen.state == "PENDING" else {})
        small = {key: row.get(key) for key in _ESTIMATED}
        same = all(
            self.told.get(key) == value for key, value in row.items() if key not in _ESTIMATED
        )
        known = small == {key: self.told.get(key) for key in _ESTIMATED}
        if same and row.keys() <= self.told.keys() and (known or now - self.told_at < ESTIMATES):
            return []
        self.told, self.told_at = row, now
        return [{"kind": "slurm", **row}]

    @property
    def over(self) -> bool:
        """Whether Slurm said that it is over."""
        return self.last is not None and self.last.state in FINAL

    def unheard(self) -> list[int]:
        """Ranks that began and did not say how they ended."""
        return sorted(self.hosts.keys() - self.ended)


_ESTIMATED = ("position", "waiting", "start", "ends", "nodes")


def status_row(seen: Seen, attempt: int, place: Optional[Mapping[str, int]] = None) -> Event:
    """The fields of a `slurm` event."""
    waiting = waits_for(seen)
    runs = seen.state in ("RUNNING", "COMPLETING", "SUSPENDED")
    row: Event = {
        "id": seen.array or seen.id,
        "state": seen.state,
        "reason": seen.reason,
        "attempt": attempt,
        "partition": seen.partition,
        "text": waiting.text,
        "do": waiting.do,
        "stuck": waiting.stuck,
        "nodes": seen.nodes,
        "limit": seen.limit,
        "start": seen.start,
        "ends": seen.end if runs else None,
    }
    row.update(place or {})
    return {key: value for key, value in row.items() if value not in (None, "", False)}


def final_row(found: Verdict, seen: Optional[Seen], attempt: int) -> Event:
    """The fields of the last `slurm` event: `over` says that there is no further one."""
    row: Event = {
        "id": (seen.array or seen.id) if seen else "",
        "state": found.state,
        "reason": seen.reason if seen else "",
        "attempt": attempt,
        "over": True,
        "text": found.text,
        "do": found.do,
        "node": found.node,
        "rank": found.rank,
        "code": found.code,
        "by": seen.by if seen else "",
        "nodes": seen.nodes if seen else "",
        "end": seen.end if seen else None,
    }
    return {key: value for key, value in row.items() if value not in (None, "", False)}


def restored(events: Iterable[Mapping[str, Any]]) -> Track:
    """The track of a job that an earlier keeper wrote these events of."""
    track = Track()
    for event in events:
        kind, attempt = event["kind"], event.get("attempt")
        if kind == "attempt" and isinstance(event.get("number"), int):
            track.begin_attempt(event["number"])
        elif kind == "started":
            if isinstance(attempt, int) and attempt > track.attempt:
                track.begin_attempt(attempt)
            track.hosts[event["rank"]] = str(event.get("host", ""))
        elif kind == "exited":
            track.ended.add(event["rank"])
        elif kind == "cancel":
            track.ours = str(event.get("by", "user"))
        elif kind == "slurm":
            track.told = {k: v for k, v in event.items() if k not in ("seq", "at", "kind")}
            track.told_at = float(event.get("at", 0.0))
    return track
