"""What stands below a short table of nodes: how the nodes fared, the jobs that run, what happened last."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from math import inf

from rankdeck.model.blame import how, who
from rankdeck.model.health import Level, Occurrence
from rankdeck.model.job import Job, State
from rankdeck.model.nodeset import fold
from rankdeck.model.text import printable
from rankdeck.state.fleet import Fleet, NodeState
from rankdeck.ui import formatting
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, chart, fit, fitted, sparkline

_NAME, _MOST_NAME = 10, 20
_TREND, _MOST_TREND = 30, 80
"""Cells of one trend with its number."""
_NUMBER = 9
_HIGHEST = 8
"""Lines of the plot of all nodes together."""
_BESIDE = 140
"""Cells from which on jobs and events stand side by side."""
_JOBS = 6
Series = list[float | None]
Room = tuple[int, int]
"""Cells and lines."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A number over time: the metrics that are added up, and what stands for all nodes."""

    title: str
    metrics: tuple[str, ...]
    say: Callable[[float | None], str]
    mean: bool = False
    """Nodes together are their mean, else their sum."""
    top: float = 0.0
    """The end of the scale; 0: the highest number of all nodes."""


TRENDS = (
    Trend("CPU", ("cpu.used",), formatting.percent, mean=True, top=100.0),
    Trend("GPU", ("gpu.used",), formatting.percent, mean=True, top=100.0),
    Trend("GPU POWER", ("gpu.power",), formatting.watts),
    Trend("RDMA rx+tx", ("rdma.rx", "rdma.tx"), formatting.rate),
    Trend("NETWORK rx+tx", ("net.rx",), formatting.rate),
    Trend("MEMORY", ("mem.used",), formatting.percent, mean=True, top=100.0),
    Trend("GPU MEMORY", ("gpu.mem_used",), formatting.percent, mean=True, top=100.0),
)
"""The most telling first: as many are shown as there is room for."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is told of: these nodes in this order, and these jobs; now, or at an earlier time."""

    fleet: Fleet
    nodes: tuple[NodeState, ...]
    jobs: tuple[Job, ...]
    others: int = 0
    """Jobs of others, or that nobody follows here."""
    moment: float | None = None
    """Epoch seconds; None: now."""

    def events(self, most: int) -> list[Occurrence]:
        """The newest of these nodes."""
        names = {node.name for node in self.nodes}
        told = (one for one in reversed(self.fleet.event_log.newest) if one.node in names)
        return list(islice((one for one in told if one.at <= self._until), most))

    def series(self, node: NodeState, metric: str, most: int) -> Series:
        """At most so many numbers, oldest first; the last one is that of the moment."""
        now = [] if self.moment is not None else [self.now(node, metric)]
        place = self.fleet.place(node.name)
        return [*self.fleet.past.series(place, metric, self._until, most - len(now)), *now]

    def now(self, node: NodeState, metric: str) -> float | None:
        return None if node.silent else node.summary(metric)

    def span_words(self) -> str:
        """How far the trends go back: `last 8m`."""
        span = self.fleet.past.span()
        return (
            "now" if span is None else f"last {formatting.age(min(self._until, span[1]) - span[0])}"
        )

    @property
    def _until(self) -> float:
        return inf if self.moment is None else self.moment


def overview(scene: Scene, room: Room, glyphs: Glyphs) -> list[Runs]:
    """What there is room for."""
    width, height = room
    happened = scene.events(height)
    below = 2 + min(max(_JOBS, len(happened)), height // 3)
    each = len(scene.nodes) if len(scene.nodes) <= height - below - 2 else 0
    high = min(max(height - below - each - 2, 1), _HIGHEST)
    lines = trends(scene, (width, high), glyphs)[: 1 + high + each]
    lines += [[]] if lines else []
    left = height - len(lines)
    wide = width if width < _BESIDE else width // 2
    jobs = job_lines(scene, wide - 2, glyphs) if scene.moment is None else []
    if width < _BESIDE:
        gap: list[Runs] = [[]] if jobs else []
        jobs = [*jobs[: left // 2], *gap]
        return [*lines, *jobs, *event_lines(happened, width, glyphs)][:height]
    beside = zip_longest(jobs, event_lines(happened, width - wide, glyphs), fillvalue=())
    lines += [[*fitted(one, wide, glyphs.more), *other] for one, other in beside]
    return lines[:height]


# ---- trends


def trends(scene: Scene, room: Room, glyphs: Glyphs) -> list[Runs]:
    """All nodes together, as high as `room` says, and a line for each; of trends with numbers."""
    width, high = room
    names = [printable(node.name) for node in scene.nodes]
    name_width = min(max([_NAME, *map(len, names)]), _MOST_NAME)
    told = [trend for trend in TRENDS if _is_told(scene, trend)]
    chosen = told[: max((width - name_width - 2) // _TREND, 1)]
    if not chosen:
        return []
    cells = min((width - name_width - 2) // len(chosen), _MOST_TREND)
    drawn = [_drawn(scene, trend, (cells, high), glyphs) for trend in chosen]
    together = [*[""] * (high - 1), f"all {len(names)}"] if len(names) > 1 else []
    return [
        [(f" {fit(name, name_width, glyphs.more)} ", "text"), *chain.from_iterable(line)]
        for name, line in zip(
            [scene.span_words(), *together, *names], zip(*drawn, strict=True), strict=True
        )
    ]


def _is_told(scene: Scene, trend: Trend) -> bool:
    return any(scene.now(node, m) is not None for node in scene.nodes for m in trend.metrics)


def _drawn(scene: Scene, trend: Trend, room: Room, glyphs: Glyphs) -> list[Runs]:
    """The title, the plot of all nodes together where there are several, the line of each."""
    cells, high = room
    wide = cells - _NUMBER - 3
    rows = [_stretched(_series(scene, node, trend, wide), wide) for node in scene.nodes]
    lines: list[Runs] = [[(fit(trend.title.rjust(cells - 2), cells), "dim")]]
    if len(rows) > 1:
        whole = [_together(column, trend) for column in zip(*rows, strict=True)]
        *above, last = chart(whole, wide, high, glyphs, trend.top)
        lines += [[(line.ljust(cells), "accent")] for line in above]
        lines.append(_numbered(last, trend, whole, "title"))
    top = trend.top or max((v for row in rows for v in row if v is not None), default=0.0)
    lines += [_numbered(sparkline(row, wide, glyphs, top), trend, row, "text") for row in rows]
    return lines


def _numbered(plot: str, trend: Trend, row: Series, role: str) -> Runs:
    said = trend.say(row[-1] if row else None) or formatting.NOTHING
    return [(plot, "accent"), (f" {said:>{_NUMBER}}  ", role)]


def _series(scene: Scene, node: NodeState, trend: Trend, most: int) -> Series:
    """As many numbers for each node."""
    rows = [scene.series(node, metric, most) for metric in trend.metrics]
    return [_sum(column) for column in zip(*rows, strict=True)]


def _stretched(row: Series, wide: int) -> Series:
    """A short past fills the plot as well: each number stands several times."""
    return [number for number in row for _ in range(wide // max(len(row), 1))]


def _sum(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _together(numbers: Sequence[float | None], trend: Trend) -> float | None:
    total = _sum(numbers)
    if total is None or not trend.mean:
        return total
    return total / sum(number is not None for number in numbers)


# ---- jobs and events


def job_lines(scene: Scene, width: int, glyphs: Glyphs) -> list[Runs]:
    """The jobs that are not over, newest first; where there is none, the last one."""
    newest = sorted(scene.jobs, key=lambda job: -job.created)
    active = [job for job in newest if not job.state.final]
    shown = active[:_JOBS] or newest[:1]
    said = formatting.many(len(active), "job") if active else "no job"
    beside = f", {formatting.many(scene.others, 'job')} not followed here" if scene.others else ""
    head: Runs = [(" Jobs", "title"), (f"  {said} running or waiting{beside}", "dim")]
    if not shown:
        return [head, [("   3 starts one", "dim")]]
    return [head, *(_job_line(job, width, glyphs) for job in shown)]


def _job_line(job: Job, width: int, glyphs: Glyphs) -> Runs:
    mark = glyphs.state(job.state)
    ago = f", {formatting.age(formatting.since(job.ended))} ago" if job.ended else ""
    runs: list[Run] = [
        (f"   {mark.glyph} {job.state}{ago}  ", mark.role),
        (f"{printable(job.id)}  ", "text"),
    ]
    if job.first_failure:
        runs.append((f"{printable(who(job.first_failure))}, {how(job.first_failure)}  ", "bad"))
    if job.stalled:
        runs.append((f"{printable(job.stalled[0].text)}  ", "warn"))
    if job.state is State.RUNNING:
        runs.append((f"{formatting.lasted(formatting.since(job.created))}  ", "text"))
        if job.progress and job.progress.share is not None:
            runs.append((f"{job.progress.share:.0%}  ", "ok"))
    where = printable(fold(job.nodes))
    on = f" on {where}" if where else ""
    runs.append((f"{formatting.many(len(job.ranks), 'rank')}{on}", "dim"))
    return fitted(runs, width, glyphs.more)


def event_lines(happened: Iterable[Occurrence], width: int, glyphs: Glyphs) -> list[Runs]:
    """What happened on the nodes, in the order given."""
    head: Runs = [(" Events", "title"), ("  newest first", "dim")]
    lines = [_event_line(one, width, glyphs) for one in happened]
    return [head, *(lines or [[("   nothing has happened yet", "dim")]])]


def _event_line(one: Occurrence, width: int, glyphs: Glyphs) -> Runs:
    quiet = one.level is Level.OK
    mark = glyphs.level(one.level)
    over = "over: " if one.kind == "ended" else ""
    runs: list[Run] = [
        (f"   {formatting.clock(one.at)}  ", "dim"),
        (f"{glyphs.dot if quiet else mark.glyph} ", "dim" if quiet else mark.role),
        (f"{printable(one.node)}  ", "title"),
        (f"{over}{formatting.told(one.device, one.seen)}", "dim" if quiet else "text"),
    ]
    return fitted(runs, width, glyphs.more)
