"""The jobs screen: all jobs, running and ended."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from textual.widget import Widget

from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.plan import Plan
from rankdeck.model.queue import Partition, QueueJob, queue_words
from rankdeck.model.rank import State
from rankdeck.model.safe_text import printable_line
from rankdeck.rules import query
from rankdeck.ui import formatting
from rankdeck.ui.formatting import seconds_since
from rankdeck.ui.operations import ask_cancel, attach_job, forget_replay
from rankdeck.ui.screens.base import Details, ListFilter, MarkingScreen, SortedScreen, no_match
from rankdeck.ui.screens.job_glance import JobGlance, progress_cell
from rankdeck.ui.screens.job_head import (
    cancel_words,
    failure_text,
    job_description,
    job_duration,
    went_wrong,
)
from rankdeck.ui.screens.modals import row_lines
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage, cut_middle, measure_runs
from rankdeck.ui.widgets.vtable import Column, VTable

SORTS = ("AGE", "JOB", "STATE", "RANKS")
PARTS = " {} jobs of acceptance runs and studies are hidden: / and a name shows them; see 6 and 7"
PARTITION_LINES, TALL, LOW = 3, 36, 16
"""Lines for partitions on a screen of at least TALL lines; from
LOW lines on, they have one line.
"""
WIDEST = 40
"""Most cells of the nodes, where there is room."""
FILTER_HINT = (
    "words, or age<2h, state=failed, user=ann & partition=gpu, reason=Priority, node=n[1-4]"
)
NO_JOBS = "no jobs yet; press 3 to start one"
ORDER = {
    state: place
    for place, state in enumerate(
        (State.RUNNING, State.PENDING, State.LOST, State.FAILED, State.CANCELLED, State.DONE)
    )
}


_Listed = tuple[QueueJob, Job]
"""A job that the scheduler lists, and its row."""


class JobsScreen(MarkingScreen, SortedScreen):
    """The table of jobs, newest first."""

    screen_name: ClassVar[str] = "jobs"
    needs_session: ClassVar[bool] = True
    orders = SORTS
    order = "AGE"

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, Job] = {}
        self._others: dict[str, Job] = {}
        """Jobs in the scheduler's queue that this console does not follow, by their names there."""
        self._listed: dict[str, _Listed] = {}
        self._queued: dict[str, QueueJob] = {}
        """Row -> the job as the queue has it, also if this console follows it."""
        self._strangers: frozenset[str] = frozenset()
        """Keys of `_others` whose jobs belong to other users; listed after our own."""
        self.partitions = TextPage(id="partitions", can_focus=False)
        self.list_filter = ListFilter(self, FILTER_HINT, self._narrowed)
        self.main = self.table = VTable(self._columns(), empty=NO_JOBS)
        self.below = Details(self.table)
        self._glance = JobGlance(self)

    def body(self) -> Iterable[Widget]:
        return self.partitions, self.table

    def _columns(self) -> tuple[Column, ...]:
        jobs = self._jobs
        name = max(map(len, jobs), default=0)
        place = max((len(_where(job)) for job in jobs.values()), default=0)
        return (
            Column("JOB", min(max(12, name), 28), self._job_name, keep=11, most=name),
            Column("STATE", 11, lambda row, _: self._state(row), keep=10),
            Column("RANKS", 6, lambda row, _: [(_count(self._jobs[row]), "text")], right=True, keep=8),
            Column("AGE", 4, lambda row, _: [(formatting.format_age(seconds_since(self._jobs[row].created)), "dim")], right=True, keep=7),
            Column("STARTED", 16, lambda row, _: [(formatting.format_day(self._jobs[row].created), "dim")], keep=1),
            Column("TIME", 8, lambda row, _: [(formatting.format_duration(job_duration(self._jobs[row])), "text")], right=True, keep=5),
            *self._queue_columns(),
            Column("NODES", 18, lambda row, _: [(_where(self._jobs[row]), "text")], keep=6, most=min(place, WIDEST)),
            Column("FIRST FAILURE / PROGRESS", 16, self._outcome, keep=9, grow=True, least=30),
        )  # fmt: skip

    def _queue_columns(self) -> tuple[Column, ...]:
        """What the queue says of each job; only on a screen that is wide
        enough, and with all else of a row.
        """
        if not self._queued:
            return ()
        return tuple(
            Column(
                title,
                width,
                lambda row, _, words=words: [(self._in_queue(row, words), "text")],
                right=right,
                keep=keep,
            )
            for title, width, right, keep, words in _QUEUE_COLUMNS
        )

    def _in_queue(self, row: str, words: Callable[[QueueJob], str]) -> str:
        job = self._queued.get(row)
        return printable_line(words(job)) if job else ""

    def _job_name(self, row: str, width: int) -> Runs:
        name = printable_line(self._jobs[row].id)
        return [(cut_middle(name, width, self.console.glyphs.more), "title")]

    def _state(self, row: str) -> Runs:
        state = self._jobs[row].state
        mark = self.console.glyphs.state(state)
        return [(f"{mark.glyph} {state}", mark.role)]

    def _outcome(self, row: str, width: int) -> Runs:
        job = self._jobs[row]
        runs = _whose(job)
        if row in self._others:
            return [*runs, *_listed_words(job)]
        if words := cancel_words(job):
            return [*runs, (words, "warn")]
        if job.countdown:
            runs.append(
                (f"stops in {max(-seconds_since(job.countdown.deadline), 0):.0f} s ", "warn")
            )
        if wrong := failure_text(job) or printable_line(job.not_started):
            return [*runs, (wrong, "bad")]
        if job.stalled:
            stall = job.stalled[0]
            what = "slow" if stall.kind == "slow" else "stalled"
            return [*runs, (f"{what}: {printable_line(stall.sentence)}", "warn")]
        if waits := queue_words(job.in_scheduler, time.time()) if job.in_scheduler else job.waits:
            stuck = job.in_scheduler is not None and job.in_scheduler.stuck
            runs.append((f"{printable_line(waits)} ", "warn" if stuck else "text"))
        if job.progress is None or job.state.final:
            return [*runs, (job.rank_counts, "dim")]
        room = max(width - measure_runs(runs), 0)
        return [*runs, *progress_cell(job.progress, job.rank_counts, self.console.glyphs, room)]

    def tick(self) -> None:
        session = self.console.need_session()
        jobs = session.jobs
        jobs.take_changes()
        known = {name: job.state for name, job in self._jobs.items()}
        others = {one.place: one for one in session.queue.others(jobs.all())}
        # A queue may be long, and most of it is as it was a moment ago.
        self._listed = {name: self._row_of(name, one) for name, one in others.items()}
        self._others = {name: row for name, (_, row) in self._listed.items()}
        self._strangers = frozenset(name for name, one in others.items() if not one.mine)
        self._jobs = {**self._others, **{job.id: job for job in (*jobs.all(), *jobs.replays())}}
        in_queue, self._queued = bool(self._queued), self._find_queued(others)
        self._show_partitions()
        now = {name: job.state for name, job in self._jobs.items()}
        if now != known or in_queue != bool(self._queued):
            self.table.columns = self._columns()
            self.table.refresh()
        self._arrange()
        self.table.touch(frozenset(self._jobs))

    def _row_of(self, name: str, one: QueueJob) -> "_Listed":
        known = self._listed.get(name)
        return known if known is not None and known[0] is one else (one, _listed(one))

    def _find_queued(self, others: Mapping[str, QueueJob]) -> dict[str, QueueJob]:
        session = self.console.need_session()
        listed = {name: one for name, one in others.items() if one.status is not None}
        ours = (
            (job.id, session.queue.entry(job.in_scheduler.id))
            for job in self._jobs.values()
            if job.in_scheduler
        )
        return {**{name: one for name, one in ours if one}, **listed}

    def _show_partitions(self) -> None:
        """Show above the table what is free in each partition,
        and how many jobs are hidden.
        """
        width, height = self.size
        lines = pack_pieces(
            [partition_runs(one) for one in self.console.need_session().queue.partitions()], width
        )
        shown = lines[: PARTITION_LINES if height >= TALL else 1 if height >= LOW else 0]
        parts = sum(1 for job in self._jobs.values() if self._is_left_out(job))
        shown += [[(PARTS.format(parts), "dim")]] if parts else []
        queue = self.console.need_session().queue.words()
        shown += [[(f" {queue}", "warn")]] if queue else []
        self.partitions.display = bool(shown)
        self.partitions.styles.height = len(shown)
        self.partitions.show(shown)

    def _arrange(self) -> None:
        shown = [
            job
            for job in self._jobs.values()
            if self._is_wanted(job) and not self._is_left_out(job)
        ]
        shown.sort(key=self._key, reverse=self.turned)
        self.table.sorted_by, self.table.turned = (self.order,), self.turned
        self.table.show([job.id for job in shown])

    def _is_wanted(self, job: Job) -> bool:
        """Whether the filter, if there is one, keeps this job."""
        if not self.list_filter.text:
            return True
        subject = query.job_subject(job, self._queued.get(job.id), failure_text(job))
        return self.list_filter.matches(subject)

    def _is_left_out(self, job: Job) -> bool:
        """Whether this job is hidden: an acceptance run has hundreds of
        jobs, which only a filter shows.
        """
        return bool(job.plan.part_of) and not self.list_filter.text

    def _key(self, job: Job) -> tuple[float | str, ...]:
        return {
            "AGE": (float(job.id in self._strangers), -job.created),
            "JOB": (job.id,),
            "STATE": (float(ORDER[job.state]), -job.created),
            "RANKS": (float(-len(job.ranks)), -job.created),
        }[self.order]

    def turned_off(self) -> Iterable[str]:
        row, why_not = self.table.cursor, self.console.need_session().control.why_not
        if row in self._others and why_not("follow", row):
            yield "open"
        if row and why_not("cancel", row):
            yield "cancel"

    def without_effect(self) -> Iterable[str]:
        row = self.table.cursor
        job = self._jobs.get(row)
        if job is None:
            return (
                "open",
                "describe",
                "mark",
                "logs",
                "copy",
                "clone",
                "replay",
                "cancel",
                "inspect",
                "scheduler",
                "swap",
            )
        return (*self._idle_on(row, job), *(() if job.in_scheduler else ("scheduler",)))

    def _idle_on(self, row: str, job: Job) -> tuple[str, ...]:
        if row in self._others:
            return ("logs", "clone", "replay", "cancel", "inspect", "swap")
        if job.plan.replay_of:
            return ("clone", "swap")
        swap = () if went_wrong(job) else ("swap",)
        return (*(("cancel", "inspect") if job.state.final else ("replay", "clone")), *swap)

    def whole(self) -> tuple[str, Sequence[Runs]]:
        row = self.table.cursor
        if row in self._others or row not in self._jobs:
            cells = (
                [*self.table.whole(row), *_component_cells(self._queued.get(row))] if row else []
            )
            return row, row_lines(cells)
        known = job_description(self.console, self._jobs[row], self.size.width - 12)
        queued = self._queued.get(row)
        if queued is None:
            return row, known
        cells = [(title, words(queued)) for title, *_, words in _QUEUE_COLUMNS]
        return row, [*row_lines([*cells, *_component_cells(queued)]), [], *known]

    def details(self) -> tuple[str, Sequence[Runs]]:
        row = self.table.cursor
        if row in self._others or row not in self._jobs:
            return self.whole()
        return "Job", self._glance.lines(self._jobs[row])

    # ---- marks, and what is done with the marked jobs

    @property
    def chosen_jobs(self) -> tuple[str, ...]:
        """The scheduler's names of the marked jobs, in the order of the table,
        else of the one under the cursor.
        """
        marked = [row for row in self.table.rows if row in self.marks]
        chosen = (self._jobs.get(row) for row in marked or [self.table.cursor])
        return tuple(
            job.in_scheduler.name
            for job in chosen
            if job and job.in_scheduler and job.in_scheduler.id
        )

    # ---- actions

    def action_copy(self) -> None:
        if row := self.table.cursor:
            self.console.copy(row, printable_line(row))

    def on_vtable_opened(self, message: VTable.Opened) -> None:
        self._open(message.row)

    def action_open(self) -> None:
        if self.table.cursor:
            self._open(self.table.cursor)

    def _open(self, row: str) -> None:
        if row in self._others:
            attach_job(self.console, row)
        else:
            self.console.open_job(row)

    def action_cancel(self) -> None:
        if self.table.cursor in self._others:
            self.say("not started by Rankdeck: open it first (enter), then cancel it", "warn")
        elif self.table.cursor in self._jobs and self._jobs[self.table.cursor].plan.replay_of:
            forget_replay(self.console, self.table.cursor)
        elif self.table.cursor:
            ask_cancel(self.console, self.table.cursor)

    def rearrange(self) -> None:
        self._arrange()
        self.table.refresh()

    def _narrowed(self) -> None:
        text = self.list_filter.text
        self.table.empty = no_match("job") if text else NO_JOBS
        self._arrange()


def _component_cells(job: QueueJob | None) -> list[tuple[str, str]]:
    """A line for each component of a het job: its name, and what it is."""
    cells: list[tuple[str, str]] = []
    for part in job.components if job else ():
        gpus = f"{part.gpus} GPU{'s' if part.gpus > 1 else ''}" if part.gpus else ""
        memory = formatting.format_size(part.memory * (1 << 20)) if part.memory else ""
        words = (
            part.state.lower(),
            part.nodes,
            part.partition,
            f"{part.cpus} CPUs",
            gpus,
            memory,
            part.text,
        )
        cells.append((part.id, ", ".join(filter(None, words))))
    return cells


def _whose(job: Job) -> list[Run]:
    """For a replay, its time; the owner of a job that others started."""
    runs: list[Run] = []
    if job.plan.replay_of:
        moment = f" {formatting.format_clock(job.clock)}" if job.clock is not None else ""
        runs.append((f"REPLAY{moment} ", "simulated"))
    if job.plan.owner:
        runs.append((f"{printable_line(job.plan.owner)} ", "accent"))
    return runs


def _where(job: Job) -> str:
    """The nodes of the job; for a waiting job, those that it may get."""
    return printable_line(
        job.in_scheduler.nodes if job.in_scheduler and not job.nodes else fold_nodes(job.nodes)
    )


def _count(job: Job) -> str:
    """The number of ranks; a dash if it is not known."""
    return str(len(job.ranks)) if job.ranks else formatting.NOTHING


def _listed_words(job: Job) -> Runs:
    """What is known about a job that is listed but not followed."""
    if job.in_scheduler is None and job.plan.text:
        return [(printable_line(job.plan.text), "text")]
    if job.in_scheduler is None:
        return [("not followed: enter reads it", "dim")]
    if job.in_scheduler.over:
        return [(f"{printable_line(job.name)} ", "dim"), (printable_line(job.plan.text), "text")]
    waits = printable_line(queue_words(job.in_scheduler, time.time()))
    return [
        (f"{printable_line(job.name)} ", "dim"),
        (waits, "warn" if job.in_scheduler.stuck else "text"),
    ]


def pack_pieces(pieces: Iterable[Runs], width: int) -> list[Runs]:
    """The pieces in order, on as few lines as possible."""
    lines: list[Runs] = []
    for piece in pieces:
        if lines and measure_runs(lines[-1]) + measure_runs(piece) + 3 <= width:
            lines[-1] = [*lines[-1], ("   ", "dim"), *piece]
        else:
            lines.append([(" ", "dim"), *piece])
    return lines


def partition_runs(one: Partition) -> Runs:
    """`debug 2 idle of 4, at most 4:00:00`: the partition, its free nodes and its time limit."""
    free = one.idle and one.up
    out = one.nodes - one.usable
    parts = [f"{one.idle} idle of {one.nodes}", f"{out} out of service" if out else ""]
    parts += [
        "" if one.limit is None else f"at most {formatting.format_duration(one.limit)}",
        "" if one.up else "down",
    ]
    return [
        (printable_line(one.name), "title" if one.usual else "text"),
        (f" {', '.join(filter(None, parts))}", "ok" if free else "dim" if one.up else "warn"),
    ]


def _listed(one: QueueJob) -> Job:
    """A row for a job that is listed but not followed."""
    plan = Plan(
        job=one.place,
        name=one.name,
        cluster="",
        backend=one.backend,
        nodes=(),
        owner=one.whose,
        text=one.remark,
    )
    state = State(one.state)
    return Job(
        id=one.place,
        name=one.name,
        cluster="",
        plan=plan,
        state=state,
        ranks=(),
        created=one.created,
        ended=one.ended,
        in_scheduler=one.status,
    )


_QUEUE_COLUMNS: tuple[tuple[str, int, bool, int, Callable[[QueueJob], str]], ...] = (
    ("USER", 8, False, 4, lambda job: job.user),
    ("PARTITION", 9, False, 4, lambda job: job.status.partition if job.status else ""),
    ("ACCOUNT", 9, False, 2, lambda job: job.status.account if job.status else ""),
    ("QOS", 7, False, 1, lambda job: job.status.qos if job.status else ""),
    ("PRIO", 6, True, 2, lambda job: str(job.priority or "")),
    ("GPUS", 4, True, 3, lambda job: str(job.gpus or "")),
    (
        "MEM",
        6,
        True,
        1,
        lambda job: formatting.format_size(job.memory * (1 << 20)) if job.memory else "",
    ),
)
"""Title, width, whether it is aligned right, `keep`, and the words of a
job, of each column with what the queue says.
"""
