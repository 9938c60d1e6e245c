"""The tasks of a Slurm job array: for Slurm each is a job of its own; in the run
folder it is the rank with the task's number.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Callable, Optional

from rankdeck_agent.job.folder import RunFolder, all_events
from rankdeck_agent.schedulers.slurm.job_reports import SlurmJobRow, shown_jobs
from rankdeck_agent.schedulers.slurm.marks import BATCH, RunMark
from rankdeck_agent.schedulers.slurm.run import Event, Run, Track, status_row
from rankdeck_agent.schedulers.slurm.values import cut_nodes
from rankdeck_agent.schedulers.slurm.verdict import (
    FINAL,
    EndWords,
    SlurmVerdict,
    judge_lost_job,
    judge_slurm_job,
    requeue_reason,
)

_MISSES = 2
"""A task must be missing from this many answers of Slurm in a row
before we ask accounting for it.
"""


class Task:
    """What is known about one task."""

    def __init__(self) -> None:
        self.track = Track()
        self.ours = ""
        """Who asked Rankdeck to cancel it: one of wire.job_events.ASKERS; "" if nobody did."""
        self.end: Optional[SlurmVerdict] = None
        """How it ended according to Slurm; None while it waits or runs."""
        self.status: Optional[int] = None
        """Exit status from its rank's mark; None if not known."""
        self.missed = 0
        """Answers of Slurm in a row without this task."""


class Tasks:
    """All tasks of an array; methods return the events that follow.

    `events` restores what an earlier keeper wrote. No I/O.
    """

    def __init__(self, numbers: Iterable[int], events: Iterable[Mapping[str, Any]] = ()) -> None:
        self._tasks = {number: Task() for number in numbers}
        for event in events:
            task = self._tasks.get(event.get("rank", -1))
            if task is not None:
                _restore(task, event)

    def take_mark(self, mark: RunMark) -> list[Event]:
        """The events of a mark; none once Slurm has reported how the task ended."""
        task = self._tasks.get(mark.rank)
        if task is None or task.end is not None or mark.rank == BATCH:
            return []
        before = task.track.attempt
        fresh = task.track.take_mark(mark)
        task.status = None if mark.began else mark.status
        queued = _queued_again(mark.rank, task) if task.track.attempt != before else []
        return [*queued, *fresh]

    def take_rows(self, rows: Collection[SlurmJobRow]) -> list[Event]:
        """The events of what Slurm reports: a row for each task that runs or
        ran, one for those that wait together.
        """
        row_of = _by_task(rows)
        events: list[Event] = []
        for number, task in self._open():
            row = row_of(number)
            task.missed = 0 if row else task.missed + 1
            if row and (task_number(row) is not None or row.state in FINAL):
                events += self._take_row(number, task, row)
        return events

    def cancelled_by_others(self, rows: Iterable[SlurmJobRow]) -> bool:
        """Whether one of these rows ends a task that was cancelled, but not through Rankdeck."""
        row_of = _by_task(row for row in rows if row.state == "CANCELLED")
        return any(row_of(number) and not task.ours for number, task in self._open())

    def _take_row(self, number: int, task: Task, row: SlurmJobRow) -> list[Event]:
        events: list[Event] = []
        if row.restarts > task.track.attempt:
            task.track.begin_attempt(row.restarts)
            events = _queued_again(number, task, row)
        task.track.last = row
        if row.state in FINAL:
            return [*events, self._end(number, task, row)]
        status = _status(row, task)
        if status != task.track.status:
            task.track.status = status
            events.append({"kind": "task", "rank": number, **status})
        return events

    def _end(self, number: int, task: Task, row: SlurmJobRow) -> Event:
        host = task.track.hosts.get(number, "")
        known = row._replace(failed_node=row.failed_node or host)
        return self._ended(number, task, judge_slurm_job(known, EndWords(), ours=task.ours), row)

    def _ended(
        self, number: int, task: Task, found: SlurmVerdict, row: Optional[SlurmJobRow]
    ) -> Event:
        task.end = found
        times = (
            {"start": row.start, "end": row.end, "id": row.id, "nodes": row.nodes} if row else {}
        )
        status = {**found._asdict(), **times, "attempt": task.track.attempt, "over": True}
        del status["rank"]
        kept = {key: value for key, value in status.items() if value not in (None, "")}
        return {"kind": "task", "rank": number, **kept}

    # ---- tasks that Slurm's queue no longer has

    def unsure(self) -> bool:
        """Whether accounting must be asked, because Slurm's queue lacks some tasks."""
        return any(self.missing(()))

    def missing(
        self, rows: Iterable[SlurmJobRow]
    ) -> Iterator[tuple[int, Task, Optional[SlurmJobRow]]]:
        """The tasks that Slurm's queue no longer has, with their rows of accounting."""
        row_of = _by_task(rows)
        for number, task in self._open():
            if task.missed >= _MISSES:
                yield number, task, row_of(number)

    def settle(self, rows: Iterable[SlurmJobRow], *, patient: bool) -> list[Event]:
        """The ends of missing tasks according to accounting; if it does not know one
        and not `patient`, by its rank's mark.
        """
        events: list[Event] = []
        for number, task, row in self.missing(rows):
            if row is not None and row.state in FINAL:
                events.append(self._end(number, task, row))
            elif not patient and task.missed > _MISSES:
                events.append(self._ended(number, task, judge_lost_job(task.status), None))
        return events

    def cancelled(self, by: str, number: Optional[int] = None) -> None:
        """Note that `by` asked Rankdeck to cancel all tasks, or the task `number`."""
        for each, task in self._open():
            if number in (None, each):
                task.ours = task.ours or by

    @property
    def over(self) -> bool:
        """Whether the end of every task is known."""
        return not self._open()

    def verdict(self) -> SlurmVerdict:
        """How the array as a whole ended."""
        return of_tasks({number: task.end for number, task in self._tasks.items() if task.end})

    def _open(self) -> list[tuple[int, Task]]:
        return [(number, task) for number, task in self._tasks.items() if task.end is None]


def _status(row: SlurmJobRow, task: Task) -> Event:
    """The fields of a `task` event for a task that is not over."""
    status = status_row(row, task.track.attempt)
    return {
        key: status[key] for key in ("state", "reason", "attempt", "text", "do") if key in status
    } | {"id": row.id}


def _queued_again(number: int, task: Task, row: Optional[SlurmJobRow] = None) -> list[Event]:
    why = requeue_reason(row or task.track.last or SlurmJobRow("", ""), EndWords(), "")
    task.track.status = {}
    return [{"kind": "task", "rank": number, "attempt": task.track.attempt, "text": why}]


def _restore(task: Task, event: Mapping[str, Any]) -> None:
    """Restore a task from an event that an earlier keeper wrote."""
    kind, attempt = event["kind"], event.get("attempt")
    if isinstance(attempt, int) and attempt > task.track.attempt:
        task.track.begin_attempt(attempt)
    if kind == "started":
        task.track.hosts[event["rank"]] = str(event.get("host", ""))
    elif kind == "exited":
        task.track.ended.add(event["rank"])
        code, by_signal = event.get("code"), event.get("signal")
        task.status = 128 + by_signal if by_signal else code
    elif kind == "task" and event.get("over"):
        code = event.get("code")
        task.end = SlurmVerdict(
            str(event.get("state", "")),
            str(event.get("text", "")),
            code=code if isinstance(code, int) else None,
        )


def task_number(row: SlurmJobRow) -> Optional[int]:
    """The number in `4711_3`; None for tasks that wait together
    (`4711_4-9%2`) and for other jobs.
    """
    word = row.array.partition("_")[2]
    return int(word) if word.isdecimal() else None


def _by_task(rows: Iterable[SlurmJobRow]) -> Callable[[int], Optional[SlurmJobRow]]:
    """A function that finds the row of a task: its own, else that of
    tasks that wait together, else None.
    """
    own: dict[int, SlurmJobRow] = {}
    together: list[SlurmJobRow] = []
    for row in rows:
        number = task_number(row)
        if number is None:
            together.append(row)
        else:
            own[number] = row
    return lambda number: (
        own.get(number) or next((row for row in together if covers_task(row, number)), None)
    )


def covers_task(row: SlurmJobRow, number: int) -> bool:
    """Whether this row of several tasks includes task `number`; a list that
    Slurm has cut (`...`) may include any.
    """
    text = row.array.partition("_")[2].partition("%")[0].strip("[]")
    return "." in text or any(_within(part, number) for part in text.split(","))


def _within(part: str, number: int) -> bool:
    span, _, step = part.partition(":")
    first, _, last = span.partition("-")
    if not all(word.isdecimal() for word in (first, last or first, step or "1")):
        return False
    every = int(step or 1) or 1
    return int(first) <= number <= int(last or first) and not (number - int(first)) % every


def join_array_rows(rows: Collection[SlurmJobRow], number: str) -> SlurmJobRow:
    """The array as one job: it runs while one task runs, and waits
    while all remaining tasks wait.
    """
    busy = [row for row in rows if row.state not in FINAL]
    runs = [row for row in busy if row.state != "PENDING"]
    first = (runs or busy or [SlurmJobRow(number, "PENDING")])[0]
    nodes = ",".join(dict.fromkeys(row.nodes for row in runs if row.nodes))
    return first._replace(
        id=number,
        array="",
        nodes=cut_nodes(nodes),
        restarts=0,
        start=min((row.start for row in rows if row.start), default=None),
        end=None,
        failed_node="",
    )


def of_tasks(ends: Mapping[int, SlurmVerdict]) -> SlurmVerdict:
    """How an array ended, from the ends of its tasks: failed if one failed,
    otherwise cancelled if one was cancelled.
    """
    bad = {number: end for number, end in ends.items() if not end.well}
    if not bad:
        return SlurmVerdict("COMPLETED", "", code=0)
    failed = {number: end for number, end in bad.items() if end.state != "CANCELLED"}
    state = "FAILED" if failed else "CANCELLED"
    by_state: dict[str, list[int]] = {}
    for number, end in sorted(bad.items()):
        by_state.setdefault(end.state, []).append(number)
    named = ", ".join(
        f"{state} {fold_task_numbers(numbers)}" for state, numbers in sorted(by_state.items())
    )
    code = next((end.code for end in bad.values() if end.code), None)
    alike = {end.text for end in bad.values()}
    if state == "CANCELLED" and len(alike) == 1:
        where = "" if len(bad) == len(ends) else f": tasks {fold_task_numbers(sorted(bad))}"
        return SlurmVerdict(state, f"{alike.pop()}{where}", code=code)
    return SlurmVerdict(
        state, f"{len(bad)} of {len(ends)} tasks did not end well: {named}", code=code
    )


def fold_task_numbers(numbers: Iterable[int]) -> str:
    """`0-3,7` for these numbers, which must be in order."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


class ArrayRun(Run):
    """One open job array."""

    def __init__(self, folder: RunFolder, array: str) -> None:
        super().__init__(folder)
        self._array = array
        self.tasks = Tasks(folder.ranks()[1:], all_events(folder.events))
        if self.track.ours:
            self.tasks.cancelled(self.track.ours)

    def _take_mark(self, mark: RunMark) -> None:
        fresh = self.tasks.take_mark(mark)
        self._add(fresh)
        # For the array as a whole only this matters: something ran, something ended.
        if fresh and mark.began:
            self.track.hosts[mark.rank] = mark.host
            self.track.ended.discard(mark.rank)
        elif fresh:
            self.track.ended.add(mark.rank)

    def _take_order(self, words: list[str], at: float) -> None:
        if len(words) > 3 and words[3].isdecimal():
            self.tasks.cancelled(words[1], int(words[3]))
            return
        super()._take_order(words, at)
        self.tasks.cancelled(words[1])

    def _take_answer(self, text: str) -> None:
        self.take_rows([seen for seen in shown_jobs(text) if seen.job == self.id])

    def take_rows(self, rows: Collection[SlurmJobRow]) -> None:
        """Handle what Slurm reports about the tasks; no rows if Slurm no longer knows them."""
        self._add(self.tasks.take_rows(rows))
        if rows and not self.tasks.over:
            self.take(join_array_rows(rows, self.id))

    def _missing(self, rows: Iterable[SlurmJobRow]) -> Iterable[SlurmJobRow]:
        return (row for _, _, row in self.tasks.missing(rows) if row is not None)

    def settle(self, rows: Iterable[SlurmJobRow], *, patient: bool) -> None:
        """Handle what accounting reports about missing tasks; `patient`: it may know more later."""
        self._add(self.tasks.settle(rows, patient=patient))

    @property
    def over(self) -> bool:
        """Whether all its tasks have ended."""
        return self.tasks.over

    @property
    def is_silent(self) -> bool:
        """False: its tasks are jobs of their own, which do not wait for each other."""
        return False

    def close(self, found: Optional[SlurmVerdict] = None) -> None:
        """Record how the array ended, and that nothing more will come."""
        # The end of each task has been recorded already.
        self.track.ended.update(self.track.hosts)
        super().close(found or self.tasks.verdict())

    def _about(self) -> Event:
        return {"array": self._array}
