"""The lines over a job's ranks: its state, what failed first, what is about to happen."""

from collections.abc import Iterable

from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold, fold_ranks
from rankdeck.ui import words
from rankdeck.ui.clean import clean
from rankdeck.ui.glyphs import Mark
from rankdeck.ui.readings import since
from rankdeck.ui.screens.jobs import duration, rank_counts
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs
from rankdeck.ui.widgets.text import cropped


class JobHead(Canvas):
    """State, first failure, countdown: what one has to know before reading logs."""

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
        if y or not self._right:
            return self.lines[y]
        note = f"  {self._right} "
        return [*cropped(self.lines[y], width - len(note)), (note, "key")]


def head_lines(job: Job, mark: Mark, height: int) -> list[Runs]:
    """The lines over the ranks: first the state, then what went wrong."""
    first: list[Run] = [
        (f" {clean(job.id)}  ", "title"),
        (f"{mark.glyph} {job.state}", mark.role),
        (f"  {words.lasted(duration(job))}  ", "text"),
        (f"{words.many(len(job.ranks), 'rank')}: {rank_counts(job)}  ", "dim"),
        (f"{clean(fold(job.nodes))}  ", "dim"),
    ]
    lines: list[Runs] = [first]
    if job.first_failure is not None:
        lines += _failure_lines(job, room=2 if height >= 24 else 0)
    if job.countdown is not None:
        left = max(-since(job.countdown.deadline), 0.0)
        lines.append([
            (f" stopping the other ranks in {left:.0f} s ", "warn"), (f" {clean(job.countdown.why)}  ", "text"), ("k", "key"), (" keeps them running", "dim"),
        ])  # fmt: skip
    if job.troubles:
        lines.append([(f" {clean(job.troubles[-1])}", "warn")])
    return lines


def _failure_lines(job: Job, room: int) -> list[Runs]:
    failure = job.first_failure
    assert failure is not None
    who = "the launcher" if failure.rank is None else f"rank {failure.rank}"
    head: list[Run] = [
        (" first failure ", "bad"),
        (
            f" {who} on {clean(failure.node)}, {words.ending(failure.exit_code, failure.signal)}, {words.clock(failure.at)}",
            "text",
        ),
    ]
    if failure.tied:
        head.append((f"  (at the same time: {fold_ranks(failure.tied)})", "dim"))
    last = [line for line in failure.lines if line.strip()]
    return [
        head,
        *([("   ", "dim"), (clean(line), "stderr")] for line in last[-room:] if room),
    ]
