"""The plots above a job's ranks: its own numbers, as its output tells them, and those
of the nodes it runs on.
"""

import time
from collections.abc import Mapping, Sequence

from rankdeck.model.job import Job, Progress
from rankdeck.model.safe_text import printable_line
from rankdeck.state.fleet import Fleet
from rankdeck.ui.fleet_views import Overview, trend_figures
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import Runs, join_blocks
from rankdeck.ui.widgets.plots import LABEL, Figure, Scale, columns_of, draw_frame, round_up
from rankdeck.values import replace

LEAST, MOST = 36, 66
"""Cells of one figure, at least and at most."""
LOWEST, HIGHEST = 5, 7
"""Lines of the figures, at least and at most."""
LARGE = 30
"""Screens of fewer lines have no room for figures."""
OWN = 2
"""So many numbers of the job come before those of its nodes."""
_NAMES: Mapping[str, str] = {
    "tokens_s": "tokens/s",
    "samples_s": "samples/s",
    "images_s": "images/s",
    "steps_s": "steps/s",
    "grad_norm": "gradient norm",
    "tflops": "TFLOP/s per GPU",
    "busbw_gb": "bus bandwidth, GB/s",
    "avg_busbw_gb": "mean bus bandwidth, GB/s",
    "mflops": "MFLOPS",
    "gosa": "residual (Gosa)",
    "size": "message, bytes",
}
"""Number that a trainer prints -> its words."""


def number_words(name: str) -> str:
    """How the title of a number of a job is written."""
    return _NAMES.get(name) or printable_line(name)


def say_number(value: float | None) -> str:
    """A number of a job in at most seven cells."""
    if value is None:
        return ""
    text = f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return text if len(text) < LABEL else f"{value:.1e}".replace("e+0", "e").replace("e+", "e")


def progress_figures(progress: Progress | None) -> list[Figure]:
    """A figure of each number that the job printed more than twice, in its order."""
    shown = progress.series.items() if progress else ()
    return [
        _figure(name, values)
        for name, values in shown
        if name not in ("step", "steps") and len(values) > 2
    ]


def _figure(name: str, values: Sequence[float]) -> Figure:
    foot = -round_up(-min(values)) if min(values) < 0 else 0.0
    scale = Scale(max(round_up(max(values)), 0.0), foot=foot)
    return Figure(number_words(name), say_number(values[-1]), values, say_number, 0.0, scale)


class JobFigures:
    """Draws the figures of one job; once a second, or when its numbers change."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._drawn: list[Runs] = []

    def lines(self, job: Job, fleet: Fleet, room: tuple[int, int], glyphs: Glyphs) -> list[Runs]:
        """The lines of all figures that fit beside each other in `room` (cells, lines)."""
        over, numbers = job.state.final, job.progress
        names = tuple(numbers.series) if numbers else ()
        now = numbers if over else int(time.time() if job.clock is None else job.clock)
        key = (job.id, over, names, now, room, glyphs.braille, glyphs.more)
        if key != self._key:
            self._key, self._drawn = key, _drawn(job, fleet, room, glyphs)
        return self._drawn


def _drawn(job: Job, fleet: Fleet, room: tuple[int, int], glyphs: Glyphs) -> list[Runs]:
    width, height = room
    many = max(width // LEAST, 1)
    own = progress_figures(job.progress)
    here: list[Figure] = []
    if not job.state.final and job.clock is None:
        nodes = tuple(fleet.node(name) for name in job.nodes if fleet.knows(name))
        left = max(many - len(own), many - OWN, 0)
        here = trend_figures(Overview(fleet, nodes, ()), left, columns_of(MOST, glyphs))
    shown = own[: max(many - len(here), 0)]
    if not (shown or here) or height < LOWEST:
        return []
    cells = min((width + 1) // len([*shown, *here]) - 1, MOST)
    columns = columns_of(cells - LABEL - 2, glyphs)
    figures = [*(_stretched(one, columns) for one in shown), *here]
    frames = [draw_frame(one, (cells, min(height, HIGHEST)), glyphs) for one in figures]
    return join_blocks(frames, cells, glyphs.more)


def _stretched(figure: Figure, columns: int) -> Figure:
    """The figure with each of a few numbers as wide as it needs to fill the columns."""
    each = max(columns // max(len(figure.values), 1), 1)
    return replace(figure, values=[one for one in figure.values for _ in range(each)])
