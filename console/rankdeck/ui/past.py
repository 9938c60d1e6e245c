"""A node as it was: numbers, the hours before, what had happened by then."""

from collections.abc import Mapping

from rankdeck.model.text import printable
from rankdeck.state.fleet import Fleet, NodeState
from rankdeck.state.past import SUMMARY, Frame
from rankdeck.ui import actions, words
from rankdeck.ui.columns import NUMBERS
from rankdeck.ui.glyphs import Glyphs
from rankdeck.ui.widgets.canvas import Runs, cut
from rankdeck.ui.widgets.gauges import sparkline

EVENTS = 30
LIVE = next(one.shown_key for one in actions.ACTIONS if one.id == "pause")
TITLES: Mapping[str, str] = {column.metric: column.title for column in NUMBERS}
SAY = {column.metric: column.say for column in NUMBERS}


def step(fleet: Fleet, moment: float | None, frames: int) -> float | None:
    """The instant so many pictures further; None where that is now."""
    span = fleet.past.span()
    if span is None:
        return None
    begin = span[1] if moment is None else moment
    at = max(begin + frames * fleet.past.period, span[0])
    return None if at > span[1] else at


def banner(moment: float, now: float, glyphs: Glyphs) -> Runs:
    """That this is not now."""
    text = f" PAUSED at {words.clock(moment)}, {words.age(now - moment)} ago "
    return [
        (text, "warn"),
        (f" {glyphs.dot} {LIVE} live  , . step  < > ten steps", "dim"),
    ]


def page(fleet: Fleet, node: NodeState, moment: float, width: int, glyphs: Glyphs) -> list[Runs]:
    """The lines of the node's page at an instant of the past."""
    frame = fleet.past.frame(moment)
    lines: list[Runs] = [banner(moment, fleet.wall(), glyphs), []]
    if frame is None:
        return [*lines, [(" nothing is remembered yet", "dim")]]
    place = fleet.place(node.name)
    level = frame.level(place)
    mark = glyphs.level(level)
    lines.append(
        [
            (f" {printable(node.name)}  ", "title"),
            (f"{mark.glyph} {level.word}", mark.role),
        ]
    )
    return [
        *lines,
        [],
        *_numbers(fleet, frame, place, width, glyphs),
        *_before(fleet, node, moment, width, glyphs),
    ]


def _numbers(fleet: Fleet, frame: Frame, place: int, width: int, glyphs: Glyphs) -> list[Runs]:
    wide = max(min(width - 26, 120), 10)
    lines: list[Runs] = []
    for metric in SUMMARY:
        value = frame.number(place, metric)
        series = fleet.past.series(place, metric, frame.at)
        if all(number is None for number in series):
            continue
        said = SAY[metric](value) or words.NOTHING
        spark = sparkline(series, wide, glyphs)
        lines.append(
            [
                (f"   {TITLES[metric]:<8}", "dim"),
                (f"{said:>9}  ", "text"),
                (spark, "accent"),
            ]
        )
    return lines


def _before(fleet: Fleet, node: NodeState, moment: float, width: int, glyphs: Glyphs) -> list[Runs]:
    """What had happened by then, newest first."""
    lines: list[Runs] = [[], [(" Until then", "title"), ("  newest first", "dim")]]
    for one in reversed(fleet.journal.newest):
        if one.node != node.name or one.at > moment or len(lines) > EVENTS:
            continue
        mark = glyphs.level(one.level)
        text = cut(printable(one.text, 600).split(" · ")[0], width - 26, glyphs.more)
        lines.append(
            [
                (f"   {words.clock(one.at)}  ", "dim"),
                (f"{mark.glyph} {one.kind:<6} ", mark.role),
                (text, "text"),
            ]
        )
    return lines if lines[2:] else [*lines, [("   nothing is remembered", "dim")]]
