"""One open Slurm job: writes `events` from the marks of its ranks and from what
Slurm reports, and time indexes of its logs.

A log that does not grow is checked less often.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent import LAUNCHER
from rankdeck_agent.job.folder import (
    STREAMS,
    UNKNOWN,
    Journal,
    RunFolder,
    all_events,
    decode_end,
    has_failed,
    is_closed,
)
from rankdeck_agent.job.last_words import LAUNCHER_BOUND, RANK, STOPPED, read_last_words
from rankdeck_agent.schedulers.slurm.attach import OutputCopy
from rankdeck_agent.schedulers.slurm.folder import (
    attached_settings,
    later_job,
    launcher_start,
    part_of_log,
    read_id,
    slurm_of,
    submit_time,
)
from rankdeck_agent.schedulers.slurm.job_reports import SlurmJobRow, is_earlier, is_later, shown_job
from rankdeck_agent.schedulers.slurm.marks import ASKED, BATCH, MARKS, SEEN, Marks, RunMark
from rankdeck_agent.schedulers.slurm.silence import SilenceWatch
from rankdeck_agent.schedulers.slurm.verdict import (
    FINAL,
    REUSED,
    EndWords,
    SlurmVerdict,
    judge_lost_job,
    judge_slurm_job,
    read_slurm_words,
    requeue_reason,
    slurm_wait_reason,
)
from rankdeck_agent.text import plain_line
from rankdeck_agent.wire.job_events import (
    CLASS_OF,
    AttemptBegan,
    CancelBegan,
    LauncherEnded,
    NodeClosed,
    SchedulerReport,
    Trouble,
)
from rankdeck_agent.wire.schedulers.slurm_states import OWN_ENDS

ESTIMATES = 120.0
"""Seconds between two records of the place in the queue and the estimated
start, since they change with every answer.
"""

Event = dict[str, Any]


class Track:
    """What is known about one job.

    Only the keeper writes to it; methods return the events that follow.
    """

    def __init__(self) -> None:
        self.ours = ""
        """Who asked Rankdeck to cancel it: one of wire.job_events.ASKERS; "" if nobody did."""
        self.last: Optional[SlurmJobRow] = None
        """What Slurm reported last."""
        self.status: Event = {}
        """The newest `slurm` event."""
        self.status_at = 0.0
        """When that event was made (epoch seconds)."""
        self.place: Mapping[str, int] = {}
        """For a job that waits: its `position` among the `waiting` jobs of its partition."""
        self.missed = 0
        """Answers of Slurm in a row without the end of the job, although it should have ended."""
        self.begin_attempt(0)

    # ---- marks

    def take_mark(self, mark: RunMark) -> list[Event]:
        """The events of a mark.

        A mark of a later attempt begins that attempt; one of an earlier attempt is ignored.
        """
        if mark.attempt < self.attempt:
            return []
        if mark.attempt > self.attempt:
            self.begin_attempt(mark.attempt)
        if mark.rank == BATCH:
            self._take_batch(mark)
            return []
        return self._began(mark) if mark.began else self._ended(mark)

    def begin_attempt(self, number: int) -> None:
        """Forget the attempt before; `number`: how often Slurm has queued the job again."""
        self.attempt = number
        self.hosts: dict[int, str] = {}
        """Rank -> node, for ranks that began in this attempt."""
        self.ended: set[int] = set()
        self.batch: Optional[int] = None
        """Exit status of the batch script in this attempt; None if not known."""
        self.batch_over = False
        """Whether the batch script of this attempt has ended."""

    def _take_batch(self, mark: RunMark) -> None:
        if not mark.began:
            self.batch_over, self.batch = True, mark.status

    def _began(self, mark: RunMark) -> list[Event]:
        if mark.rank in self.hosts:
            return []
        self.hosts[mark.rank] = mark.host
        row: Event = {"kind": "started", "rank": mark.rank, "host": mark.host, "at": mark.at}
        if mark.pid:
            row["pid"] = mark.pid
        return [{**row, **self._numbered()}]

    def _ended(self, mark: RunMark) -> list[Event]:
        if mark.rank in self.ended:
            return []
        self.ended.add(mark.rank)
        return [{"kind": "exited", "rank": mark.rank, "status": mark.status, "at": mark.at}]

    def _numbered(self) -> Event:
        return {"attempt": self.attempt} if self.attempt else {}

    # ---- Slurm

    def take_seen(self, seen: SlurmJobRow, now: float) -> list[Event]:
        """The events of what Slurm reports now; none if the job is over or nothing changed.

        `now` in epoch seconds.
        """
        self.last = seen
        if seen.state in FINAL:
            return []
        row = status_row(seen, self.attempt, self.place if seen.state == "PENDING" else {})
        small = {key: row.get(key) for key in _ESTIMATED}
        same = all(
            self.status.get(key) == value for key, value in row.items() if key not in _ESTIMATED
        )
        known = small == {key: self.status.get(key) for key in _ESTIMATED}
        if (
            same
            and row.keys() <= self.status.keys()
            and (known or now - self.status_at < ESTIMATES)
        ):
            return []
        self.status, self.status_at = row, now
        return [{"kind": "slurm", **row}]

    @property
    def over(self) -> bool:
        """Whether the job is over according to Slurm."""
        return self.last is not None and self.last.state in FINAL

    def unheard(self) -> list[int]:
        """Ranks that began and whose end was not reported."""
        return sorted(self.hosts.keys() - self.ended)


_ESTIMATED = ("position", "waiting", "start", "ends", "nodes")


def status_row(seen: SlurmJobRow, attempt: int, place: Optional[Mapping[str, int]] = None) -> Event:
    """The fields of a `slurm` event."""
    waiting = slurm_wait_reason(seen)
    runs = seen.state in ("RUNNING", "SUSPENDED")
    row: Event = {
        "id": seen.array or seen.id,
        "state": seen.state,
        "reason": seen.reason,
        "attempt": attempt,
        "partition": seen.partition,
        "account": seen.account,
        "qos": seen.qos,
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


def final_row(found: SlurmVerdict, seen: Optional[SlurmJobRow], attempt: int) -> Event:
    """The fields of the last `slurm` event of a job; it has `over`."""
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


def restore_track(events: Iterable[Mapping[str, Any]]) -> Track:
    """The track of a job, restored from the events that an earlier keeper wrote."""
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
            track.status = {k: v for k, v in event.items() if k not in ("seq", "at", "kind")}
            track.status_at = float(event.get("at", 0.0))
    return track


_SOON, _SHARE = 1.0, 6.0
_MARKS_SELDOM, _LOG_SELDOM = 7.0, 16.0
"""Most seconds between two looks: at the marks of a job, and at a log."""


class LookTimer:
    """When to look again: soon after news, else after a sixth of the time
    without news, at most `most` seconds.

    Times are in monotonic seconds.
    """

    __slots__ = ("_due", "_heard", "_most")

    def __init__(self, most: float) -> None:
        self._most = most
        self._heard: Optional[float] = None
        self._due = float("-inf")

    def due(self, now: float) -> bool:
        """Whether to look now."""
        return now >= self._due

    def looked(self, now: float, *, news: bool) -> None:
        """Note a look and whether it found news; the first look counts as news."""
        if news or self._heard is None:
            self._heard = now
        self._due = now + min(max((now - self._heard) / _SHARE, _SOON), self._most)


class _Log:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = _indexed(path)
        self.pace = LookTimer(_LOG_SELDOM)


class LogGrowth:
    """Writes the time index (`out.idx`) of these logs."""

    def __init__(self, logs: Iterable[Path]) -> None:
        self._logs = [_Log(path) for path in logs]

    def look(self, now: float) -> bool:
        """Look at the logs that are due; returns whether one has grown.

        `now` in monotonic seconds.
        """
        found = False
        for log in self._logs:
            if log.pace.due(now):
                grown = _stamp(log)
                log.pace.looked(now, news=grown)
                found = found or grown
        return found

    def finish(self) -> None:
        """Look at every log once more."""
        for log in self._logs:
            _stamp(log)


def _stamp(log: _Log) -> bool:
    """Record in the index when the log grew, by the file server's
    clock; returns whether it has grown.
    """
    try:
        seen = os.stat(log.path)  # noqa: PTH116  one call, no Path of its own
    except OSError:
        return False
    if seen.st_size <= log.size:
        return False
    with log.path.with_name(log.path.name + ".idx").open("a") as index:
        index.write(f"{log.size} {seen.st_mtime:.6f}\n")
    log.size = seen.st_size
    return True


def _indexed(path: Path) -> int:
    """The size from which the log must be indexed: its present one if an
    earlier keeper has begun the index, else 0.
    """
    index = path.with_name(path.name + ".idx")
    if not index.exists():
        return 0
    return path.stat().st_size if path.exists() else 0


SBATCH = "sbatch"
"""Name of the job as a whole in its `ended` event."""
_MOST_LONG = 20
"""Number of failed ranks whose last lines are recorded in full."""
_PATIENCE = 600.0
"""Seconds for accounting to answer again about a job that the controller no longer knows."""
UNSHARED = (
    "nothing was written in {place}: where do nodes and login node share a folder? "
    "Set RANKDECK_STATE to it at login"
)


class Run:
    """One open job. The keeper calls `turn` once a second, and `take` with what Slurm reports."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.id, _ = read_id(folder)
        self.slurm = slurm_of(folder)
        self.reused = False
        """Whether Slurm has given the job's number to a later job."""
        self._silent: Optional[float] = None
        """Since when accounting does not answer (monotonic seconds); None if it does."""
        events = all_events(folder.events)
        self.track: Track = restore_track(events)
        self.closed = is_closed(folder.events)
        self._journal = Journal(folder.events, successor=bool(events))
        self._marks = Marks(folder.path)
        found = attached_settings(folder)
        self._output = None if found is None else OutputCopy(folder, found)
        self._growth = LogGrowth(self._logs())
        self.silence = SilenceWatch(folder)
        self._wanted = len(folder.ranks()) - 1  # without the launcher
        self._failures = 0
        self._read: set[str] = set()
        """Names left by a cancel that have been handled."""
        self._pace = LookTimer(_MARKS_SELDOM)
        self._news = False
        """Whether Slurm, a log or a cancel had news since the last look at the marks."""

    def _logs(self) -> Iterator[Path]:
        """The log files; sbatch writes the launcher's output to one file."""
        for rank in self.folder.ranks():
            one = rank == LAUNCHER and not self.attached
            for name in STREAMS[:1] if one else STREAMS:
                yield self.folder.place(rank) / name

    # ---- marks

    def turn(self, now: float) -> bool:
        """Look at logs and marks if due (`now`: monotonic seconds); returns whether
        something ended, so that Slurm should be asked.

        Raises OSError.
        """
        before = (self.track.batch_over, len(self.track.ended))
        wrote = self._growth.look(now)
        self.silence.note(now, wrote=wrote, begun=len(self.track.hosts) >= self._wanted)
        self._news = wrote or self._news
        if self._news or self._pace.due(now):
            self._look(now)
        return (self.track.batch_over, len(self.track.ended)) != before

    def hurry(self) -> None:
        """Look at the marks at the next turn."""
        self._news = True

    def _look(self, now: float) -> None:
        marks = self._marks.look(now)
        # The cancel first: a rank that was told to end has not failed.
        for name in self._left_by_cancel(ASKED):
            words = name.split(".")
            if len(words) > 2:
                self._take_order(words, (self.folder / MARKS / name).stat().st_mtime)
        for mark in marks:
            self._take_mark(mark)
        for name in self._left_by_cancel(SEEN):
            self._take_answer((self.folder / MARKS / name).read_text(errors="replace"))
        self._copy_output()
        self._pace.looked(now, news=bool(marks) or self._news)
        self._news = False

    def _take_mark(self, mark: RunMark) -> None:
        attempt = self.track.attempt
        fresh = self.track.take_mark(mark)
        if self.track.attempt != attempt:
            self._again(attempt)
        self._add(fresh)

    @property
    def over(self) -> bool:
        """Whether the job is over according to Slurm."""
        return self.track.over

    @property
    def is_silent(self) -> bool:
        """Whether its ranks have been silent for so long that they are to be asked where they
        stand, and can be.
        """
        last = self.track.last
        runs = last is not None and last.state == "RUNNING" and bool(self.track.unheard())
        return runs and not self.attached and self.silence.due

    @property
    def attached(self) -> bool:
        """Whether somebody else submitted the job: then its ranks leave no marks."""
        return self._output is not None

    def owns(self, seen: SlurmJobRow) -> bool:
        """Whether this row is about our job; False (and noted) if it is
        about a later job with the same number.
        """
        later = not self.attached and later_job(self.folder, seen)
        self.reused = self.reused or later
        return not later

    def accounted(self, rows: Iterable[SlurmJobRow]) -> Optional[SlurmJobRow]:
        """The row of accounting about our job, of its last run; None if there is none."""
        at = submit_time(self.folder)
        own = [row for row in rows if row.id == self.id and not is_earlier(row, at)]
        own = [row for row in own if not (self.reused and is_later(row, at))]
        return own[-1] if own else None

    def is_behind(self, rows: Iterable[SlurmJobRow]) -> str:
        """A sentence if accounting does not know the end yet, as after an
        outage of slurmdbd; otherwise "".
        """
        row = next((row for row in self._missing(rows) if row.state not in FINAL), None)
        if row is None or self.reused:
            return ""
        return (
            f"Slurm's accounting still calls job {row.array or row.id} {row.state}, and the"
            " controller no longer knows it"
        )

    def _missing(self, rows: Iterable[SlurmJobRow]) -> Iterable[SlurmJobRow]:
        """The rows of accounting about what the queue no longer has."""
        return filter(None, [self.accounted(rows)])

    def waits_for_accounting(self, silent: str) -> bool:
        """Whether to ask accounting again; `silent`: why it has no
        answer ("" if it has), reported once.
        """
        if not silent:
            self._silent = None
            return False
        if self._silent is None:
            self._silent = time.monotonic()
            self.trouble(f"{silent}; it is asked again")
        return time.monotonic() - self._silent < _PATIENCE

    def _copy_output(self) -> None:
        if self._output is not None:
            for text in self._output.look(runs=bool(self.track.hosts)):
                self.trouble(text)

    def _begin_ranks(self, seen: SlurmJobRow) -> None:
        """Record the start of the ranks of a job without marks: they begin with the job.

        Their nodes are not known.
        """
        if seen.start is None or seen.state == "PENDING":
            return
        for rank in self.folder.ranks()[1:]:
            begin = RunMark(self.track.attempt, rank, True, seen.start, host=seen.nodes[:64])
            self._add(self.track.take_mark(begin))

    def _end_ranks(self, found: SlurmVerdict) -> None:
        """Record the end of the ranks: like the job's if it has one rank
        or ended well, otherwise not known.
        """
        ranks = self.track.unheard()
        known = found.code if found.well or len(ranks) == 1 else None
        self._add({"kind": "exited", "rank": rank, "status": known} for rank in ranks)

    def _add(self, events: Iterable[Event]) -> None:
        for event in events:
            row = dict(event)
            kind, at = row.pop("kind"), row.pop("at", None)
            if kind == "exited":
                row = self._exit(row)
            self._journal.add(CLASS_OF[kind](**row), at)

    def _exit(self, row: Event) -> Event:
        """The fields of an `exited` event: how the rank ended, and its last lines if it failed."""
        status: Any = row.pop("status")
        end = decode_end(UNKNOWN if status is None else status)
        lines: list[str] = []
        if has_failed(end):
            self._failures += 1
            bound = RANK if self._failures <= _MOST_LONG and not self.track.ours else STOPPED
            lines = read_last_words(self.folder.place(row["rank"]), bound)
        return {**row, **end, "said": tuple(lines)}

    def _left_by_cancel(self, kind: str) -> list[str]:
        """The new names that a cancel left: ASKED (it was requested)
        or SEEN (what Slurm answered it).
        """
        fresh = sorted(
            name for name in self._marks.others - self._read if name.split(".")[0] == kind
        )
        self._read.update(fresh)
        return fresh

    def _take_answer(self, text: str) -> None:
        """Handle what Slurm answered a cancel."""
        seen = shown_job(text)
        if seen is not None and seen.id == self.id:
            self.take(seen)

    def _take_order(self, words: list[str], at: float) -> None:
        """Record who asked for the cancel, when, and with which grace period."""
        if not self.track.ours:
            self.track.ours = words[1]
            grace = float(words[2]) if words[2].isdecimal() else 0.0
            self._journal.add(CancelBegan(grace, words[1]), at)

    # ---- Slurm

    def take(self, seen: SlurmJobRow) -> None:
        """Handle what Slurm reports about the job. Does not close it."""
        if seen.restarts > self.track.attempt:
            before = self.track.attempt
            self.track.begin_attempt(seen.restarts)
            self._again(before, seen)
        if self.attached:
            self._begin_ranks(seen)
        before = self.track.last
        fresh = self.track.take_seen(seen, time.time())
        # Only a new state suggests new marks, not a place in the queue or an estimate.
        self._news = self._news or before is None or before.state != seen.state
        self._add({**event, **self._about()} for event in fresh)

    def _again(self, before: int, seen: Optional[SlurmJobRow] = None) -> None:
        """Record that Slurm has queued the job again after attempt `before`."""
        why = requeue_reason(seen or self.track.last or SlurmJobRow("", ""), self.words(before), "")
        self._journal.add(AttemptBegan(self.track.attempt, why))
        self._journal.add(Trouble(f"run {before + 1} ended: {why}"))

    def words(self, attempt: int = -1) -> EndWords:
        """What Slurm's daemons wrote about this attempt; by default the newest one."""
        attempt = self.track.attempt if attempt < 0 else attempt
        begin, end = (launcher_start(self.folder, one) for one in (attempt, attempt + 1))
        return read_slurm_words(part_of_log(self.folder.place(LAUNCHER) / "out", begin, end))

    def close(self, found: Optional[SlurmVerdict] = None) -> None:
        """Record how the job ended (`found`, or what Slurm reported last),
        and that nothing more will come.
        """
        seen = self.track.last
        found = found or judge_slurm_job(
            seen or SlurmJobRow(self.id, ""), self.words(), ours=self.track.ours
        )
        self._look(time.monotonic())
        if self._output is not None:
            for text in self._output.finish():
                self.trouble(text)
        self._growth.finish()
        if self.attached:
            self._end_ranks(found)
        elif not found.well:
            unheard = self.track.unheard()
            self._add({"kind": "exited", "rank": rank, "status": None} for rank in unheard)
        self._journal.add(
            SchedulerReport(**final_row(found, seen, self.track.attempt), **self._about())
        )
        self._tell_end(found)
        self._journal.add(NodeClosed())
        self._journal.flush()
        self.closed = True

    def _about(self) -> Event:
        """Further fields of each `slurm` event."""
        return {}

    def _tell_end(self, found: SlurmVerdict) -> None:
        end = decode_end(UNKNOWN if found.code is None else min(max(found.code, 0), 255))
        lines = (
            read_last_words(self.folder.place(LAUNCHER), LAUNCHER_BOUND) if has_failed(end) else []
        )
        silent = not self.track.hosts and not lines and not found.text
        if has_failed(end) and found.state in OWN_ENDS and silent:
            lines = [UNSHARED.format(place=self.folder.path)]
            self._journal.add(Trouble(lines[0]))
        elif found.text and not self.track.ours and found.state in ("CANCELLED", "UNKNOWN"):
            self._journal.add(Trouble(found.text))
        self._journal.add(LauncherEnded(SBATCH, end["code"], end["signal"], tuple(lines)))

    def lose(self, why: str = "") -> None:
        """Close a job that Slurm no longer knows; `why`: why
        accounting does not know its end either.
        """
        batch = self.track.batch if self.track.batch_over else None
        self.close(judge_lost_job(batch, REUSED.format(number=self.id) if self.reused else why))

    def trouble(self, text: str) -> None:
        """Record a sentence for the operator."""
        self._journal.add(Trouble(plain_line(text)))

    def end(self) -> None:
        """Close the events file."""
        self._journal.close()
