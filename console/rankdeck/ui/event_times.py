"""When events were: a line for each state, with a column for each piece of time."""

from collections.abc import Sequence

from rankdeck.model.health import Occurrence
from rankdeck.ui.themes import Glyphs, Mark
from rankdeck.ui.widgets.canvas import MARGIN, Runs
from rankdeck.ui.widgets.plots import Scale, columns_of, draw_spark, draw_time_axis
from rankdeck_agent.rules.levels import Level

LABEL = 18
"""Cells before a line: the state and how many events have it."""
SPANS = (60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400)
"""The times that the lines can show, in seconds."""
LEVELS = (Level.BAD, Level.WARN, Level.UNKNOWN)


def fitting_span(events: Sequence[Occurrence], now: float) -> float:
    """The shortest time, in seconds until now, in which all events were; else the longest."""
    age = now - min((one.at for one in events), default=now)
    return float(next((span for span in SPANS if span >= age), SPANS[-1]))


def draw_event_times(
    events: Sequence[Occurrence], now: float, width: int, glyphs: Glyphs
) -> list[Runs]:
    """How many events of each state were when, with the time below; [] if there are none."""
    cells = width - LABEL - MARGIN
    if not events or cells < LABEL:
        return []
    span = fitting_span(events, now)
    columns = columns_of(cells, glyphs)
    groups = [(level, [one for one in events if one.level is level]) for level in LEVELS]
    well = [one for one in events if one.level not in LEVELS]
    named = [(glyphs.level(level), level.word, some) for level, some in groups if some]
    named += [(Mark(glyphs.dot, "dim"), "over or info", well)] if well else []
    counted = [(*row, _counts(row[-1], now, span, columns)) for row in named]
    most = max(max(counts) for *_, counts in counted)
    lines = [
        _level_line(mark, word, len(some), _draw_counts(counts, cells, glyphs, most, mark.role))
        for mark, word, some, counts in counted
    ]
    return [*lines, [(" " * LABEL, "text"), *draw_time_axis(span, cells, glyphs)]]


def _level_line(mark: Mark, word: str, count: int, plot: Runs) -> Runs:
    room = LABEL - 4
    number = f"{count:,}"
    text = f"{word[: room - len(number) - 1]:<{room - len(number)}}{number}"
    return [(f" {mark.glyph} ", mark.role), (f"{text} ", "text"), *plot]


def _counts(events: Sequence[Occurrence], now: float, span: float, columns: int) -> list[int]:
    """How many events were in each piece of the time, the newest last."""
    counts = [0] * columns
    for one in events:
        back = int((now - one.at) / span * columns)
        counts[columns - 1 - min(max(back, 0), columns - 1)] += 1
    return counts


def _draw_counts(counts: Sequence[int], cells: int, glyphs: Glyphs, most: int, role: str) -> Runs:
    """A plot of counts on one line; a piece of time without an event is blank."""
    return draw_spark([one or None for one in counts], cells, glyphs, Scale(most, ramp=role))
