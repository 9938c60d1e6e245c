"""One Slurm job as its run folder has it: reads the marks of its ranks, and writes what happened into `events`."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job.folder import SLURM_SETTINGS, STREAMS, RunFolder
from rankdeck_agent.job.journal import (
    UNKNOWN,
    Journal,
    all_events,
    failed,
    is_closed,
    outcome,
    plain,
    post_mortem,
    table,
)
from rankdeck_agent.job.last_words import LAUNCHER_BOUND, RANK, TOLD, last_words
from rankdeck_agent.names import LAUNCHER
from rankdeck_agent.slurm import marks as names
from rankdeck_agent.slurm.attach import Output, attached
from rankdeck_agent.slurm.growth import Growth
from rankdeck_agent.slurm.marks import Mark, Marks
from rankdeck_agent.slurm.rows import Seen, shown_job
from rankdeck_agent.slurm.track import Event, Track, final_row, restored
from rankdeck_agent.slurm.verdict import OWN, Verdict, Words, again, lost, read_words, verdict

ID = "slurm.id"
"""A file of the run folder: Slurm's id of the job, and the PATH on which its commands are, one a line."""
SBATCH = "sbatch"
"""The name under which the job as a whole ends in the events."""
_MOST_TOLD = 20
"""Ranks whose last words are told at length."""
_TAIL = 1 << 16
UNSHARED = (
    "nothing was written in {place}: where do nodes and login node share a folder? "
    "Set RANKDECK_STATE to it at login"
)


class Run:
    """One job that is open. The keeper calls `look` once a second, and `take` with what Slurm says."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.id, self.path = read_id(folder)
        events = all_events(folder / "events")
        self.track: Track = restored(events)
        self.closed = is_closed(folder / "events")
        self._journal = Journal(folder / "events")
        self._marks = Marks(folder.path)
        found = attached(folder)
        self._output = None if found is None else Output(folder, found)
        places = [folder.place(rank) for rank in folder.ranks()]
        self._growth = Growth(places, STREAMS)
        self._failures = 0
        self._asked: set[str] = set()

    # ---- marks

    def look(self, now: float) -> bool:
        """Read what ranks wrote; whether something ended, so that Slurm should be asked. Raises OSError."""
        before = (self.track.batch_over, len(self.track.ended))
        for mark in self._marks.look():
            self._take_mark(mark)
        self._read_orders()
        self._copy_output()
        self._growth.look(now)
        return (self.track.batch_over, len(self.track.ended)) != before

    def _take_mark(self, mark: Mark) -> None:
        attempt = self.track.attempt
        fresh = self.track.take_mark(mark)
        if self.track.attempt != attempt:
            self._again(attempt)
        self._add(fresh)

    @property
    def over(self) -> bool:
        """Whether Slurm said that it is over."""
        return self.track.over

    @property
    def attached(self) -> bool:
        """Whether somebody else submitted it: no rank leaves marks."""
        return self._output is not None

    def _copy_output(self) -> None:
        if self._output is not None:
            for text in self._output.look(runs=bool(self.track.hosts)):
                self.trouble(text)

    def _begin_ranks(self, seen: Seen) -> None:
        """The ranks of a job without marks begin and end with it. Which of its nodes they are on is not told."""
        if seen.start is None or seen.state == "PENDING":
            return
        for rank in self.folder.ranks()[1:]:
            begin = Mark(self.track.attempt, rank, True, seen.start, host=seen.nodes[:64])
            self._add(self.track.take_mark(begin))

    def _end_ranks(self, found: Verdict) -> None:
        """What became of the job became of its one rank; of several only a good end is known."""
        ranks = self.track.unheard()
        known = found.code if found.well or len(ranks) == 1 else None
        self._add({"kind": "exited", "rank": rank, "status": known} for rank in ranks)

    def _add(self, events: Iterable[Event]) -> None:
        for event in events:
            row = dict(event)
            kind = row.pop("kind")
            if kind == "exited":
                row = self._exit(row)
            self._journal.add(kind, **row)

    def _exit(self, row: Event) -> Event:
        """How a rank ended, with its last words if it failed."""
        status: Any = row.pop("status")
        end = outcome(UNKNOWN if status is None else status)
        said: list[str] = []
        if failed(end):
            self._failures += 1
            bound = RANK if self._failures <= _MOST_TOLD and not self.track.ours else TOLD
            said = last_words(self.folder.place(row["rank"]), bound)
        return {**row, **end, **({"said": said} if said else {})}

    def _read_orders(self) -> None:
        """What a cancel left: that it was asked for, and what Slurm told it."""
        for name in sorted(self._marks.others - self._asked):
            self._asked.add(name)
            words = name.split(".")
            if words[0] == names.ASKED and len(words) > 2:
                self._take_order(words)
            if words[0] == names.SEEN:
                self._take_answer((self.folder / names.FOLDER / name).read_text(errors="replace"))

    def _take_answer(self, text: str) -> None:
        """Take what Slurm told a cancel."""
        seen = shown_job(text)
        if seen is not None and seen.id == self.id:
            self.take(seen)

    def _take_order(self, words: list[str]) -> None:
        """Note who asked for the cancel, and with which grace."""
        if not self.track.ours:
            self.track.ours = words[1]
            grace = float(words[2]) if words[2].isdigit() else 0.0
            self._journal.add("cancel", grace=grace, by=words[1])

    # ---- Slurm

    def take(self, seen: Seen) -> None:
        """Take what Slurm says of the job; closes it where it is over."""
        if seen.restarts > self.track.attempt:
            before = self.track.attempt
            self.track.begin_attempt(seen.restarts)
            self._again(before, seen)
        if self.attached:
            self._begin_ranks(seen)
        fresh = self.track.take_seen(seen, time.time())
        self._add({**event, **self._about()} for event in fresh)

    def _again(self, before: int, seen: Optional[Seen] = None) -> None:
        """Record that Slurm queued the job again."""
        why = again(seen or self.track.last or Seen("", ""), self.words(before), "")
        self._journal.add("attempt", number=self.track.attempt, text=why)
        self._journal.add("trouble", text=f"run {before + 1} ended: {why}")

    def words(self, attempt: int = -1) -> Words:
        """What Slurm's daemons wrote about this attempt, or the newest one."""
        attempt = self.track.attempt if attempt < 0 else attempt
        begin = launcher_start(self.folder, attempt)
        return read_words(
            _lines(
                self.folder.place(LAUNCHER) / "out", begin, launcher_start(self.folder, attempt + 1)
            )
        )

    def close(self, found: Optional[Verdict] = None) -> None:
        """Write how the job ended, by what Slurm said last or by `found`, and that nothing more will come."""
        seen = self.track.last
        found = found or verdict(seen or Seen(self.id, ""), self.words(), ours=self.track.ours)
        self.look(time.monotonic())
        if self._output is not None:
            for text in self._output.finish():
                self.trouble(text)
        self._growth.finish()
        if self.attached:
            self._end_ranks(found)
        elif not found.well:
            unheard = self.track.unheard()
            self._add({"kind": "exited", "rank": rank, "status": None} for rank in unheard)
        self._journal.add("slurm", **final_row(found, seen, self.track.attempt), **self._about())
        self._tell_end(found)
        self._journal.add("closed")
        self._journal.flush()
        self.closed = True

    def _about(self) -> Event:
        """What each `slurm` event has besides."""
        return {}

    def _tell_end(self, found: Verdict) -> None:
        end = outcome(UNKNOWN if found.code is None else min(max(found.code, 0), 255))
        said = last_words(self.folder.place(LAUNCHER), LAUNCHER_BOUND) if failed(end) else []
        if failed(end) and found.state in OWN and not self.track.hosts and not said:
            said = [UNSHARED.format(place=self.folder.path)]
            self._journal.add("trouble", text=said[0])
        elif found.text and not self.track.ours and found.state in ("CANCELLED", "UNKNOWN"):
            self._journal.add("trouble", text=found.text)
        self._journal.add("ended", name=SBATCH, **end, **({"said": said} if said else {}))

    def lose(self) -> None:
        """Close a job that Slurm no longer knows."""
        self.close(lost(self.track.batch if self.track.batch_over else None))

    def trouble(self, text: str) -> None:
        """Tell the operator something about the job."""
        self._journal.add("trouble", text=plain(text))

    def end(self) -> None:
        """Let go of its files."""
        self._journal.close()


def read_id(folder: RunFolder) -> tuple[str, str]:
    """Slurm's id of the job, and the PATH on which its commands are; "" while it is not known."""
    try:
        number, path = (folder / ID).read_text().splitlines()[:2]
    except (OSError, ValueError):
        return "", ""
    return (number, path) if number.isdigit() else ("", "")


def write_id(folder: RunFolder, number: str, path: str) -> None:
    """Note the id: from now on the keeper owns the events of the job."""
    fresh = folder / f"{ID}.new"
    fresh.write_text(f"{number}\n{path}\n")
    fresh.replace(folder / ID)


def not_taken(folder: RunFolder) -> None:
    """Close a job that Slurm has never had."""
    why = "sbatch did not tell an id, and Slurm has no job from this folder"
    post_mortem(folder / "events", [{"kind": "trouble", "text": why}])


def settings(folder: RunFolder) -> dict[str, Any]:
    """What the console set for this job; empty where that cannot be read."""
    try:
        return table((folder / SLURM_SETTINGS).read_text()) or {}
    except OSError:
        return {}


def log_starts(folder: RunFolder) -> list[dict[str, int]]:
    """Of each attempt where its output begins: `rank.3/out` -> bytes; a log that is not named began empty."""
    found: dict[int, dict[str, int]] = {0: {}}
    for path in (*folder.path.glob("attempt.*"), *folder.path.glob("rank.*/attempt.*")):
        number = path.name.partition(".")[2]
        if number.isdigit() and len(number) < 6:
            above = "" if path.parent == folder.path else f"{path.parent.name}/"
            sizes = _sizes(path).items()
            found.setdefault(int(number), {}).update({above + name: size for name, size in sizes})
    return [found.get(number, {}) for number in range(max(found) + 1)]


def _sizes(path: Path) -> dict[str, int]:
    """The lines `NAME BYTES` of a file that a batch script left."""
    words = (row.rpartition(" ") for row in path.read_text(errors="replace").splitlines())
    return {name: int(size) for name, _, size in words if size.isdigit()}


def launcher_start(folder: RunFolder, attempt: int) -> Optional[int]:
    """Where the launcher's output of an attempt begins, in bytes; None where there is no such attempt yet."""
    if attempt == 0:
        return 0
    try:
        return _sizes(folder / f"attempt.{attempt}").get("launcher/out")
    except OSError:
        return None


def _lines(path: Path, begin: Optional[int], end: Optional[int]) -> list[str]:
    """The last lines of a part of a log."""
    try:
        with path.open("rb") as file:
            stop = os.fstat(file.fileno()).st_size if end is None else end
            file.seek(max(begin or 0, stop - _TAIL))
            return file.read(max(0, stop - file.tell())).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
