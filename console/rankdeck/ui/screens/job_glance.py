"""A job at a glance, below a list: its head, its ranks, and the newest line of each."""

import time
from collections.abc import Sequence

from textual.geometry import Size

from rankdeck.logs.rank_order import order_ranks, rank_statuses
from rankdeck.model.job import Job, Progress, RankState
from rankdeck.model.safe_text import printable_line
from rankdeck.ui.job_figures import JobFigures, number_words
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.screens.job_head import Figures, head_lines, instrument_lines
from rankdeck.ui.themes import Glyphs, Mark
from rankdeck.ui.widgets.canvas import (
    MARGIN,
    Run,
    Runs,
    cut_text,
    draw_share,
    fit_text,
    optional_run,
    shift_runs,
    squeeze_runs,
)
from rankdeck.ui.widgets.grid import INDENT
from rankdeck.ui.widgets.plots import Scale, columns_of, draw_spark
from rankdeck.ui.widgets.rank_strip import draw_ranks

ROOMY, WIDE = 26, 100
"""A glance of at least so many lines and columns has frames and plots."""
STRIP = 4
"""Most lines of the ranks."""
LEAST_LINES = 3
"""Newest lines are shown if at least so many fit."""
NODE = 16
"""Most cells of a node's name before a line."""
BAR, SPARK = 10, 8
NUMBERS = 2
"""Numbers of a trainer in one row of the list."""


class JobGlance:
    """Draws a job at a glance below the list of a screen; anew only where it may have changed."""

    def __init__(self, screen: BaseScreen) -> None:
        self._screen = screen
        self._figures = JobFigures()
        self._drawn: tuple[object, list[Runs]] = (), []
        """What the lines were drawn from, and the lines."""

    def lines(self, job: Job, above: int = 0) -> list[Runs]:
        """The lines of this job, in the room below the list and `above` other lines."""
        screen, console = self._screen, self._screen.console
        room, second = screen.below_room - above, int(time.monotonic())
        # Of 512 ranks it takes some milliseconds; what it shows has a second as its unit.
        key = (job.id, job.state, screen.size, room, console.ascii, second)
        if key != self._drawn[0]:
            # The details are indented, and would break longer lines once more.
            size = Size(screen.size.width - len(INDENT) + MARGIN, screen.size.height)
            glyphs, fleet = console.glyphs, console.fleet
            figures: Figures = lambda room: self._figures.lines(job, fleet, room, glyphs)  # noqa: E731
            self._drawn = key, glance_lines(job, glyphs, size, room, figures)
        return self._drawn[1]


def glance_lines(job: Job, glyphs: Glyphs, screen: Size, room: int, figures: Figures) -> list[Runs]:
    """What to know of a job before it is opened, in at most `room` lines: as much as fits, what
    went wrong first.
    """
    width = screen.width - 2 * MARGIN
    if room >= ROOMY and width >= WIDE:
        head = instrument_lines(job, glyphs, Size(width, room), None, figures)
    else:
        head = head_lines(job, glyphs, Size(width, screen.height))
    lines: list[Runs] = [_without_margin(line) for line in head]
    marks = rank_marks(job, glyphs)
    ranks = [(rank.rank, rank.node) for rank in job.ranks]
    most = min(STRIP, room - len(lines) - 1)
    strip = draw_ranks(ranks, [marks[rank] for rank, _ in ranks], (width, most), glyphs)
    lines += [[], *map(_without_margin, strip)] if strip else []
    newest = _newest_lines(job, marks, (width, room - len(lines) - 1), glyphs)
    return [*lines, *([[], *newest] if newest else [])]


def _without_margin(line: Runs) -> Runs:
    """The line without the blank before it; a frame has none."""
    return shift_runs(line, MARGIN) if line and line[0][0].startswith(" ") else line


def rank_marks(job: Job, glyphs: Glyphs) -> dict[int, Mark]:
    """Rank -> the sign of its status, else of its state."""
    known = rank_statuses(job)
    return {
        one.rank: glyphs.status(known[one.rank]) if one.rank in known else glyphs.state(one.state)
        for one in job.ranks
    }


def _newest_lines(
    job: Job, marks: dict[int, Mark], room: tuple[int, int], glyphs: Glyphs
) -> list[Runs]:
    """The last line of each rank that wrote one, the unusual ranks first, in `room` (cells, lines);
    [] if too few lines are left.
    """
    width, height = room
    told = [one for one in job.ranks if one.last_line.strip()]
    if height < min(LEAST_LINES, len(told)):
        return []
    ordered = order_ranks(told, "unusual", lambda _: 0, rank_statuses(job))
    shown = ordered if len(ordered) <= height else ordered[: height - 1]
    digits = max((len(str(one.rank)) for one in shown), default=0)
    node = min(max((len(one.node) for one in shown), default=0), NODE)
    lines = [
        squeeze_runs(_newest_line(one, marks[one.rank], digits, node, glyphs), width, glyphs.more)
        for one in shown
    ]
    more = len(ordered) - len(shown)
    return [*lines, *([[(f"and {more:,} more", "dim")]] if more else [])]


def _newest_line(one: RankState, mark: Mark, digits: int, node: int, glyphs: Glyphs) -> Runs:
    return [
        (f"{mark.glyph} ", mark.role),
        (f"{one.rank:>{digits}} ", "title"),
        (f"{fit_text(cut_text(printable_line(one.node), node, glyphs.more), node)}  ", "dim"),
        (printable_line(one.last_line), "text"),
    ]


def progress_cell(progress: Progress, counts: str, glyphs: Glyphs, width: int) -> list[Run]:
    """`━━━───── 32%  step 320/1000  loss 1.11 PLOT  8 running` in `width` cells: how far a job is,
    and what its ranks do.
    """
    runs: list[Run] = []
    if progress.share is not None:
        runs += draw_share(progress.share, BAR, glyphs)
    if progress.step is not None:
        of = f"/{progress.steps:g}" if progress.steps else ""
        runs.append(optional_run(f"step {progress.step:g}{of}", "text"))
    for name, value in list(progress.values.items())[:NUMBERS]:
        runs.append(optional_run(f"{number_words(name)} ", "dim"))
        runs += [(f"{value:,.6g}", "text"), *_short_plot(progress.series.get(name, ()), glyphs)]
    runs.append(optional_run(counts, "dim"))
    runs[0] = (runs[0][0].lstrip(), runs[0][1])
    return squeeze_runs(runs, width, glyphs.more)


def _short_plot(numbers: Sequence[float], glyphs: Glyphs) -> list[Run]:
    if len(numbers) < 3:
        return []
    shown = numbers[-columns_of(SPARK, glyphs) :]
    room = -(-len(shown) // columns_of(1, glyphs))
    scale = Scale(max(shown), foot=min(shown))
    return [(" ", "text"), *draw_spark(shown, room, glyphs, scale)]
