"""The lines above a job's ranks: its state, what failed first, what will happen next."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.geometry import Size

from rankdeck.backends.plan_text import write_plan_lines
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.health import leading_events
from rankdeck.model.job import Countdown, Job, Phase, Progress
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.plan import Plan
from rankdeck.model.plan_part import LineKind
from rankdeck.model.queue import queue_words
from rankdeck.model.rank import State
from rankdeck.model.safe_text import printable_line
from rankdeck.model.stall import Explained, Stall
from rankdeck.rules.job_news import note_words, time_of_note
from rankdeck.rules.progress import job_phases
from rankdeck.schedulers.slurm.settings import granted_instead
from rankdeck.ui import actions, formatting
from rankdeck.ui.formatting import seconds_since
from rankdeck.ui.job_figures import number_words
from rankdeck.ui.themes import Glyphs, Mark
from rankdeck.ui.widgets.canvas import (
    Canvas,
    Run,
    Runs,
    box_edge,
    break_parts,
    break_runs,
    draw_box,
    join_blocks,
    measure_runs,
    optional_run,
    squeeze_runs,
)
from rankdeck.ui.widgets.grid import INDENT, indent_rows
from rankdeck.ui.widgets.plots import Scale, columns_of, draw_spark
from rankdeck.values import Value
from rankdeck_agent.rules import units

if TYPE_CHECKING:
    from rankdeck.ui.protocols import Console

MEDIUM = 24
"""On screens of at least this many lines there is room for more than the state."""
LARGE = 30
"""On screens of at least this many lines the phases of the run are shown too."""
SLOWER = 1.5
"""A phase is marked as slow if it took this many times as long as in the last run."""
WIDE = 100
"""On screens of at least this many columns, bars and plots have their full length."""
BAR, SPARK = 20, 16
_PLAN_ROLES = {
    LineKind.NODE: "accent",
    LineKind.NOTE: "dim",
    LineKind.SETUP: "dim",
    LineKind.FILE: "text",
    LineKind.FIELD: "title",
    LineKind.COMMAND: "title",
}
"""Kind of a line of a plan -> role; commands stand out."""


def failure_text(job: Job) -> str:
    """The first failure in one line; "" if there is none."""
    return blamed_phrase(job.first_failure) if job.first_failure else ""


def went_wrong(job: Job) -> bool:
    """Whether something went wrong in the job, so that a swap proof can look for it."""
    if job.clock is not None or job.plan.replay_of:
        return False
    ended_badly = job.state.final and job.state is not State.DONE
    return ended_badly or bool(job.stalled or job.first_failure)


def blamed_phrase(failure: FirstFailure) -> str:
    """`rank 2 on n2, exit 3`: who failed first and how."""
    ending = formatting.describe_ending(failure.exit_code, failure.signal)
    own_words = failure.what in ("rank", "launcher") and ending
    return f"{printable_line(failure.who)}, {own_words or failure.how}"


def job_duration(job: Job) -> float:
    """Seconds from the launch to the end, or until now; of a replay, until the moment it shows."""
    if job.ended is not None and (job.clock is None or job.clock >= job.ended):
        return job.ended - job.created
    return seconds_since(job.created) if job.clock is None else max(job.clock - job.created, 0.0)


MOST_LINES = 4
"""Most lines of the head that one sentence takes."""
LABEL = 8
"""Cells of the labels `because`, `says`, `means`, `try`."""
BOX = 4
"""Cells of a frame and the blanks inside it."""
BESIDE = 160
"""On screens of at least this many columns, plots stand beside what went wrong."""
LINES_PER_ROW = 7
"""One in so many lines of the screen is for plots."""
_LABEL = re.compile(r"^\s*\[[^\]]{1,30}\](?:<\w+>)?:?")
"""Before a line of a rank, if its launcher or PyTorch writes who it is."""
Figures = Callable[[tuple[int, int]], Sequence[Runs]]


class JobHead(Canvas):
    """State, first failure, countdown: what to know before reading logs."""

    lines: tuple[Runs, ...] = ()
    _right = ""

    def show(self, lines: Iterable[Runs], right: str = "") -> None:
        shown = tuple(lines)
        if shown != self.lines or right != self._right:
            self._right = right
            if len(shown) != len(self.lines):
                self.styles.height = len(shown)
            self.lines = shown
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        if y >= len(self.lines):
            return []
        note = f"  {self._right} " if self._right and y == 0 else ""
        room = max(width - cell_len(note), 0)
        return [*squeeze_runs(self.lines[y], room, self.glyphs.more), (note, "key")]


class Notice(Value):
    """What went wrong: who and how, and in rows why, what it says, what it means, what to try."""

    title: str
    role: str
    head: Runs
    rows: Sequence[tuple[str, str, str]]
    """(label, text, role)"""
    note: str = ""
    """When it was, and how sure that is."""
    hint: str = ""
    """A key that helps; shown only where there is room."""


def head_lines(job: Job, glyphs: Glyphs, size: Size, before: Job | None = None) -> list[Runs]:
    """The lines above the ranks: first the state, then the progress, then what went wrong.

    `before` is an earlier run of the same name, to compare with. In each line, the
    optional part that is left out first comes last.
    """
    roomy, large = size.height >= MEDIUM, size.height >= LARGE
    lines = _state_lines(job, glyphs, size, before)
    for notice in _notices(job, large=large):
        lines += _plain_lines(notice, size)
    lines += _row_lines(_meaning(job.explained) if roomy else (), 3, size.width)
    return [*lines, *_late_lines(job, size)]


def instrument_lines(
    job: Job, glyphs: Glyphs, size: Size, before: Job | None, figures: Figures
) -> list[Runs]:
    """The same on a large screen: what went wrong in frames, beside or above plots.

    `figures` draws plots in a room of so many cells and lines.
    """
    notices, width = _notices(job, large=True), size.width
    lines = _state_lines(job, glyphs, size, before, plots=False)
    boxed = width * 3 // 5
    boxes = _boxes(notices, boxed, glyphs) if width >= BESIDE else []
    beside = figures((width - boxed - 1, len(boxes))) if boxes else ()
    if beside:
        lines += join_blocks([boxes, beside], boxed, glyphs.more)
    else:
        boxes = _boxes(notices, width, glyphs)
        room = size.height // 2 - len(lines) - len(boxes)
        lines += [*boxes, *figures((width, min(room, size.height // LINES_PER_ROW)))]
    lines += _row_lines(_meaning(job.explained), 1, width)
    return [*lines, *_late_lines(job, size)]


def _boxes(notices: Iterable[Notice], width: int, glyphs: Glyphs) -> list[Runs]:
    return [line for one in notices for line in _boxed_lines(one, width, glyphs)]


def _notices(job: Job, *, large: bool) -> list[Notice]:
    failure = job.first_failure
    first = [_failure_notice(failure, large=large)] if failure is not None else []
    return [*first, *map(_stall_notice, job.stalled[:2])]


def _state_lines(
    job: Job, glyphs: Glyphs, size: Size, before: Job | None, *, plots: bool = True
) -> list[Runs]:
    """The state of the job, how far it is, and what it waits for."""
    lines: list[Runs] = [_state_line(job, glyphs.state(job.state))]
    large, roomy = size.height >= LARGE, size.height >= MEDIUM
    ill = job.first_failure is not None or bool(job.stalled)
    if (large or (roomy and not ill)) and job.progress and not job.state.final:
        lines.append(_progress_line(job.progress, glyphs, wide=size.width >= WIDE, plots=plots))
    if large and job_phases(job):
        lines.append(_phase_line(job, before, size.width))
    lines += [
        *_scheduler_lines(job),
        *_granted_lines(job),
        *_owner_lines(job, roomy=roomy),
    ]
    lines += [[(f" {printable_line(one)}", "text")] for one in (job.waits,) if one]
    if job.countdown is not None:
        lines.append(_countdown_line(job.countdown))
    lines += [[(f" {words}", "warn")] for words in (cancel_words(job),) if words]
    return lines


def _late_lines(job: Job, size: Size) -> list[Runs]:
    """What happened on the job's nodes, and the last trouble of following it."""
    lines = _node_lines(job, 2 if size.height >= LARGE else int(size.height >= MEDIUM))
    if job.troubles:
        lines.append([(f" {printable_line(job.troubles[-1])}", "warn")])
    return lines


def _owner_lines(job: Job, *, roomy: bool) -> list[Runs]:
    """For a job that Rankdeck did not submit: its owner and where its output goes."""
    if not roomy or not job.plan.owner:
        return []
    owner, files = printable_line(job.plan.owner), printable_line(job.plan.text)
    return [[(f" {owner}", "accent"), (f"  {files}", "dim")]]


def _scheduler_lines(job: Job) -> list[Runs]:
    """The scheduler's id of the job, what it waits for or how long it may run, and how often it was
    queued again.
    """
    status = job.in_scheduler
    if status is None:
        return []
    ill = status.stuck or (status.over and status.text)
    words = queue_words(status, time.time()) or status.text
    again = f"run {status.attempt + 1}, {status.attempts[-1].text}" if status.attempts else ""
    if not words and not again and status.over:
        return []
    title = f" {job.plan.can.scheduler} {printable_line(status.id)} {status.state}"
    line: list[Run] = [(title, "title"), (f"  {printable_line(words)}", "warn" if ill else "text")]
    if status.stuck or (status.over and status.do):
        line.append(optional_run(printable_line(status.do), "dim"))
    return [line, *([[(f" {printable_line(again)}", "warn")]] if again else [])]


def _granted_lines(job: Job) -> list[Runs]:
    """What the scheduler granted where the job file asked for something else."""
    found = granted_instead(job.plan, job.in_scheduler) if job.in_scheduler is not None else ()
    words = [f"{one.option} {one.granted} (asked: {one.asked})" for one in found]
    return (
        [[(f" {job.plan.can.scheduler} gave {printable_line(', '.join(words))}", "warn")]]
        if words
        else []
    )


def _node_lines(job: Job, room: int) -> list[Runs]:
    """What happened on the job's nodes; the last line says how many more events there are."""
    notes = leading_events(job.node_notes)[:room]
    more = len(job.node_notes) - len(notes)
    lines: list[Runs] = []
    for note in notes:
        role = "simulated" if note.simulated else note.level.word
        lines.append(
            [
                (f" {printable_line(note_words(note))}", role),
                optional_run(time_of_note(note, job), "dim"),
            ]
        )
    if lines and more > 0:
        lines[-1] = [*lines[-1], optional_run(f"and {more} more", "dim")]
    return lines


def _state_line(job: Job, mark: Mark) -> list[Run]:
    shown: list[Run] = (
        [(f" REPLAY {formatting.format_clock(job.clock)} ", "warn")] if job.clock else []
    )
    coming = job.output_coming and job.state.final
    mixed = any(rank.state is not job.state for rank in job.ranks)
    counts = f": {job.rank_counts}" if mixed else ""
    return [
        *shown,
        (f" {printable_line(job.plan.replay_of or job.id)} ", "title"),
        (f" {mark.glyph} {job.state}", mark.role),
        (" output still coming" if coming else "", "dim"),
        optional_run(formatting.format_duration(job_duration(job)), "text"),
        optional_run(f"{formatting.format_many(len(job.ranks), job.unit)}{counts}", "dim"),
        optional_run(printable_line(fold_nodes(job.nodes)), "dim"),
    ]


def _countdown_line(countdown: Countdown) -> Runs:
    left = max(-seconds_since(countdown.deadline), 0.0)
    return [
        (f" stopping the other ranks in {left:.0f} s", "warn"),
        optional_run(actions.action_key("keep"), "key"),
        (" keeps them running", "dim"),
        optional_run(printable_line(countdown.why), "text"),
    ]


def cancel_words(job: Job) -> str:
    """What a cancel that is under way does and until when; "" if there is none."""
    if job.kill_at is None:
        return ""
    left = max(-seconds_since(job.kill_at), 0.0)
    return (
        f"cancelling: told to end; what is left in {left:.0f} s is killed"
        if left
        else "cancelling: killing what is left"
    )


def _phase_line(job: Job, before: Job | None, width: int) -> list[Run]:
    """`copy 1.2 s · start 3.0 s (last 1.1 s) · …`: phases of the run, slower ones marked.

    Where that is too long, only slower ones are compared with the last run.
    """
    last = {phase.name: _length(phase) for phase in job_phases(before)} if before else {}
    phases = job_phases(job)
    whole = [run for phase in phases for run in _phase(phase, last, slow_only=False)]
    if measure_runs(whole) > width:
        whole = [run for phase in phases for run in _phase(phase, last, slow_only=True)]
    return [(" ", "text"), *whole[1:]]


def _phase(phase: Phase, last: Mapping[str, float | None], *, slow_only: bool) -> list[Run]:
    runs: list[Run] = [(" · ", "dim"), (f"{phase.name} ", "dim")]
    took, usual = _length(phase), last.get(phase.name)
    if took is None:
        return [*runs, ("now", "ok")]
    slow = usual is not None and took > SLOWER * usual + 1 and phase.name != "running"
    runs.append((units.write_duration(took), "warn" if slow else "text"))
    if usual is not None and (slow or not slow_only):
        runs.append((f" (last {units.write_duration(usual)})", "dim"))
    return runs


def _length(phase: Phase) -> float | None:
    return None if phase.end is None else round(phase.end - phase.start, 1)


def _progress_line(progress: Progress, glyphs: Glyphs, *, wide: bool, plots: bool) -> list[Run]:
    """`step 120/1000 ▓▓▓░░░ 12%  loss 2.31 ▃▂▁  tokens/s 11,800`, with short plots or without."""
    bar, cells = (BAR, SPARK) if wide else (BAR // 2, SPARK // 2)
    runs: list[Run] = [(" ", "text")]
    if progress.step is not None:
        of = f"/{progress.steps:g}" if progress.steps else ""
        runs.append((f"step {progress.step:g}{of} ", "title"))
    if progress.share is not None:
        full = round(progress.share * bar)
        runs += [("━" * full, "ok"), ("─" * (bar - full), "border")]
        runs.append((f" {progress.share:.0%}", "text"))
    for name, value in list(progress.values.items())[:4]:
        runs.append(optional_run(f"{number_words(name)} ", "dim"))
        runs.append((f"{value:,.6g}", "text"))
        if plots and len(numbers := progress.series.get(name, ())) > 2:
            shown = numbers[-columns_of(cells, glyphs) :]
            scale = Scale(max(shown), foot=min(shown))
            room = -(-len(shown) // columns_of(1, glyphs))
            runs += [(" ", "text"), *draw_spark(shown, room, glyphs, scale)]
    return runs


def _stall_notice(stall: Stall) -> Notice:
    title = "slow" if stall.kind == "slow" else "stalled"
    head: Runs = [(printable_line(stall.sentence), "text")]
    hint = f"{actions.action_key('inspect')} looks where every rank is"
    return Notice(title, "warn", head, _meaning(stall.explained), hint=hint)


def _failure_notice(failure: FirstFailure, *, large: bool) -> Notice:
    give = f" ±{failure.uncertainty * 1000:.0f} ms" if failure.uncertainty else ""
    head: list[Run] = [(blamed_phrase(failure), "text")]
    if not failure.between:
        head.append(optional_run(failure.certainty, "text"))
    if failure.decides:
        head.append((f"; it could be decided by {failure.decides}", "text"))
    if failure.tied:
        head.append(optional_run(f"at the same time: {fold_ranks(failure.tied)}", "dim"))
    if failure.victims:
        many = formatting.format_many(len(failure.victims), "rank")
        head.append(optional_run(f"{many} ended by it: {fold_ranks(failure.victims)}", "dim"))
    if not failure.settled:
        head.append(optional_run("may still be corrected", "dim"))
    says = _evidence(failure, 2 if large else 1)
    others = [f"{printable_line(one.who)}: {printable_line(one.why)}" for one in failure.others]
    rows = [
        *_because(failure, large=large),
        *(("" if place else "says", line, "stderr") for place, line in enumerate(says)),
        *_meaning(failure.explained),
        *(("else", one, "dim") for one in others[: int(large)]),
    ]
    note = f"{formatting.format_clock(failure.at, millis=True)}{give}"
    return Notice("first failure", "bad", head, rows, note)


def _meaning(explained: Sequence[Explained]) -> list[tuple[str, str, str]]:
    """What the first message means and what to try."""
    return [
        row
        for one in explained[:1]
        for row in (
            ("means", printable_line(one.means), "text"),
            ("try", printable_line(one.remedy), "accent"),
        )
    ]


def _because(failure: FirstFailure, *, large: bool) -> list[tuple[str, str, str]]:
    """Why this rank is blamed, if there is more to say than that it failed."""
    if len(failure.evidence) < 2 and failure.what == "rank" and failure.exit_code:
        return []
    evidence = "; ".join(map(printable_line, failure.evidence[: 3 if large else 2]))
    return [("because", evidence, "text")] if evidence else []


def _row_lines(rows: Iterable[tuple[str, str, str]], margin: int, width: int) -> list[Runs]:
    """Each row whole, on up to MOST_LINES lines; its label once."""
    lines: list[Runs] = []
    for label, text, role in rows:
        head: Run = (" " * margin + label.ljust(LABEL), "dim")
        lines += _paragraph([head, (text, role)], width)
    return lines


def _paragraph(runs: Runs, width: int) -> list[Runs]:
    """A label with its text, on up to MOST_LINES lines."""
    pieces = break_runs(runs, width)
    rest = [run for piece in pieces[MOST_LINES - 1 :] for run in piece]  # cut where it is painted
    return [*pieces[: MOST_LINES - 1], *([rest] if rest else [])]


def _plain_lines(notice: Notice, size: Size) -> list[Runs]:
    """A notice without a frame; on small screens only its head."""
    first: list[Run] = [(f" {notice.title} ", notice.role), (" ", "text"), *notice.head[:1]]
    note = [optional_run(notice.note, "text")] if notice.note else []
    rest = [*note, *notice.head[1:]]
    if size.height < MEDIUM:
        means = [text for label, text, _ in notice.rows if label == "means"]
        return [[*first, *(optional_run(text, "accent") for text in means[: len(note)]), *rest]]
    above, *further = break_parts([*first, *rest], size.width - len(INDENT))
    lines = [above, *indent_rows(further)]
    hint = optional_run(notice.hint, "key")
    if notice.hint and measure_runs([*lines[-1], hint]) < size.width:
        lines[-1] = [*lines[-1], hint]
    return [*lines, *_row_lines(notice.rows, 3, size.width)]


def _boxed_lines(notice: Notice, width: int, glyphs: Glyphs) -> list[Runs]:
    """A notice in a frame of its colour."""
    inner, role = width - BOX, notice.role
    first: Runs = [(text, "title") for text, _ in notice.head[:1]]
    upper = box_edge(notice.title, notice.note or notice.hint, width, glyphs, (role, role))
    head = break_parts([*first, *notice.head[1:]], inner)
    return draw_box(upper, [*head, *_row_lines(notice.rows, 0, inner)], width, glyphs, role)


def _evidence(failure: FirstFailure, room: int) -> list[str]:
    """The last lines of the rank that failed first, always
    including the line that was recognized.
    """
    # Python's ^^^^ below a line of code tell nothing by themselves, nor after `[rank3]:`.
    last = [one for one in failure.lines if any(map(str.isalnum, _LABEL.sub("", one)))]
    telling = next((one.line for one in failure.explained if one.line.strip()), "")
    if telling and telling not in last[-room:]:
        return [telling, *last[-room + 1 :]] if room > 1 else [telling]
    return last[-room:]


def job_description(console: "Console", job: Job, width: int) -> list[Runs]:
    """Everything about a job: its state or end, and the plan by which it was started."""
    lines = head_lines(job, console.glyphs, Size(width, 50))
    times: Runs = [(" started ", "dim"), (formatting.format_day(job.created), "text")]
    if job.ended:
        times = [*times, ("  ended ", "dim"), (formatting.format_day(job.ended), "text")]
    plan = [] if job.plan.owner else plan_runs(job.plan, folded=True)
    return [*lines, times, [], *plan]


def plan_runs(plan: Plan, *, folded: bool) -> list[Runs]:
    """The lines of a plan with highlighted commands; `folded` leaves one line of each file."""
    return [
        [(printable_line(line.text), _PLAN_ROLES[line.kind])]
        for line in write_plan_lines(plan, folded=folded)
    ]
