"""The lines of a node's page that draw hours and days from the site's Prometheus."""

from collections.abc import Mapping, Sequence

from rankdeck.model.past import PastNumbers, PastSeries, PastView, Times
from rankdeck.model.text import printable
from rankdeck.ui import actions, formatting
from rankdeck.ui.fleet_views import NUMBERS
from rankdeck.ui.glyphs import Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, cut, sparkline

HOURS: Mapping[float, str] = {1: "hour", 6: "6 hours", 24: "24 hours", 168: "7 days"}
"""How far back one may look -> the word for it."""
_WIDEST = 121
_FULL = 100.0
"""Percentages are drawn up to here; other numbers up to their highest."""


def next_hours(hours: float) -> float:
    """The next length, and after the last the first."""
    known = [*HOURS]
    return known[(known.index(hours) + 1) % len(known)]


def lines(view: PastView | None, node: str, width: int, glyphs: Glyphs) -> list[Runs]:
    """A chart of each number that the server has; nothing where the cluster file names no server."""
    if view is None:
        return []
    found = view.numbers
    head: list[Run] = [
        (f" The last {HOURS.get(view.hours, f'{view.hours:g} hours')}", "title"),
        (f"  {_when(found.times)}" if found else "", "dim"),
        (f"  from {printable(view.server)}   {actions.key('hours')} another length", "dim"),
    ]
    troubles = filter(None, (view.trouble, found.warning if found else ""))
    body: list[Runs] = [
        [],
        head,
        *([(f"   {cut(printable(text), width - 4, glyphs.more)}", "warn")] for text in troubles),
    ]
    if found is None:
        asked = [] if view.trouble else [[("   asked; its answer is awaited", "dim")]]
        return [*body, *asked]
    return [*body, *_charts(found, node, width, glyphs)]


def _when(times: Times) -> str:
    """From when to when."""
    begin = times.start - times.step
    if times.end - begin > 86400:
        return f"{formatting.day(begin)} to {formatting.day(times.end)}"
    return f"{formatting.clock(begin)} to {formatting.clock(times.end)}"


def _charts(found: PastNumbers, node: str, width: int, glyphs: Glyphs) -> list[Runs]:
    wide = max(min(width - 34, _WIDEST), 10)
    rows: list[Runs] = []
    sources: dict[str, list[str]] = {}
    for column in NUMBERS:
        series = found.series.get((node, column.metric))
        if series is None:
            continue
        sources.setdefault(_source(series), []).append(column.title)
        cells = shrunk(series.values, wide)
        most = max((value for value in series.values if value is not None), default=0.0)
        top = _FULL if column.say is formatting.percent else 0.0
        rows.append([
            (f"   {column.title:<8}", "dim"),
            (f"{column.say(series.values[-1]) or formatting.NOTHING:>8}  ", "text"),
            (sparkline(cells, len(cells), glyphs, top), "simulated" if series.simulated else "accent"),
            (f"  most {column.say(most)}", "dim"),
        ])  # fmt: skip
    if not rows:
        text = "it has no numbers of this node then: are `label`, `gpu_label` and `labels` in `metrics:` right?"
        return [[(f"   {cut(text, width - 4, glyphs.more)}", "dim")]]
    return [*rows, *(_said(source, titles, width, glyphs) for source, titles in sources.items())]


def _source(series: PastSeries) -> str:
    return f"{series.source}{', SIMULATED' if series.simulated else ''}"


def _said(source: str, titles: Sequence[str], width: int, glyphs: Glyphs) -> Runs:
    text = f"{', '.join(titles)}: series of {printable(source)}"
    return [(f"   {cut(text, width - 4, glyphs.more)}", "dim")]


def shrunk(values: Sequence[float | None], cells: int) -> list[float | None]:
    """As many values as there are cells at most: of neighbours the highest, a gap where none has one."""
    each = -(-len(values) // cells)
    first = len(values) % each
    parts = [values[:first]] if first else []
    parts += [values[at : at + each] for at in range(first, len(values), each)]
    return [max((v for v in part if v is not None), default=None) for part in parts]
