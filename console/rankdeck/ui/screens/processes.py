"""The screen of processes on some nodes, or of the ranks of a job, like htop."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from textual.widget import Widget

from rankdeck.errors import RankdeckError
from rankdeck.logs.rank_order import rank_statuses
from rankdeck.model.job import Job, RankState
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.process import NodeProcess, RankUse, rank_uses
from rankdeck.model.rank import RankStatus
from rankdeck.model.safe_text import printable_line
from rankdeck.remote.command import FoundProcesses
from rankdeck.rules.progress import odd_ones, step_pace
from rankdeck.ui import formatting
from rankdeck.ui.operations import nodes_phrase
from rankdeck.ui.screens.base import Details, ListFilter, SortedScreen, no_match
from rankdeck.ui.screens.job_glance import rank_marks
from rankdeck.ui.screens.modals import ChangeQuestion, row_lines
from rankdeck.ui.themes import Glyphs, Mark
from rankdeck.ui.widgets.canvas import MARGIN, Run, Runs, TextPage, fit_runs
from rankdeck.ui.widgets.grid import INDENT
from rankdeck.ui.widgets.plots import Scale, draw_columns
from rankdeck.ui.widgets.vtable import Column, VTable
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import SIGNALS

PERIOD = 3.0
"""Seconds between two requests to the nodes while the screen is shown."""
ASK = "signal "
MOST_ASKED = 8
PACED = 200
"""How many of the newest lines of a rank are searched for steps."""
STATE = 11
"""Cells of the longest state with its sign."""
TITLE = 9
"""Cells before the columns of a comparison."""
COMPARED = TITLE + 40
"""Cells of a comparison beside the columns of the ranks."""
COUNTED = 11
"""Lines per second are counted over this many looks, which is half a minute."""
Counts = tuple[float, Mapping[int, int]]
"""Time of one look at the ranks in seconds, and rank -> lines that it had written by then."""
TEXTS = ("NODE", "USER", "STATE", "GPU", "JOB", "COMMAND", "LAST LINE")
GROW = ("COMMAND", "LAST LINE")
ASCENDING = ("RANK", "PID")
"""Columns with numbers that are sorted from the smallest up."""
ODD = {
    "CPU": 20.0,
    "RSS": 128.0 * (1 << 20),
    "USE": 10.0,
    "GMEM": 256.0 * (1 << 20),
    "POWER": 25.0,
    "LINES": 20.0,
    "LINES/S": 1.0,
    "STEP": 2.0,
    "S/STEP": 0.02,
    "SILENT": 15.0,
}
"""Column -> by how much a rank must differ from the others to stand out: %, bytes, %, bytes, W,
lines, lines/s, steps, seconds per step, seconds.
"""
PROCESS_COLUMNS = (
    ("NODE", 10, 7), ("PID", 8, 9), ("USER", 8, 5), ("STATE", 5, 3), ("CPU", 6, 10), ("RSS", 6, 8), ("GPU", 4, 6),
    ("GMEM", 5, 6), ("I/O", 7, 4), ("RANK", 5, 4), ("JOB", 12, 2), ("COMMAND", 12, 9),
)  # fmt: skip
RANK_COLUMNS = (
    ("RANK", 5, 11), ("NODE", 10, 9), ("PID", 8, 4), ("STATE", 9, 7), ("CPU", 6, 10), ("RSS", 6, 8), ("GPU", 4, 5),
    ("USE", 5, 8), ("GMEM", 5, 5), ("POWER", 6, 3), ("I/O", 7, 4), ("LINES", 9, 3), ("LINES/S", 7, 5), ("STEP", 7, 7), ("S/STEP", 6, 6), ("SILENT", 6, 8), ("LAST LINE", 12, 2),
)  # fmt: skip


class ProcessLine(Value):
    """A row of the table: a process, or a rank with all of its processes."""

    name: str
    node: str
    processes: tuple[NodeProcess, ...]
    cells: Mapping[str, str]
    numbers: Mapping[str, float]
    """Column -> number to sort by."""


def lines_per_second(looks: Sequence[Counts], rank: int) -> float | None:
    """Lines per second that this rank wrote between the first and the
    last of these looks; None: not known.
    """
    if len(looks) < 2:
        return None
    (began, before), (ended, after) = looks[0], looks[-1]
    if ended <= began or not (rank in before and rank in after):
        return None
    return max(after[rank] - before[rank], 0) / (ended - began)


class ProcessesScreen(SortedScreen):
    """The processes on some nodes, or the ranks of a job."""

    screen_name: ClassVar[str] = "processes"
    paint_period: ClassVar[float] = 1.0

    def __init__(self, nodes: Sequence[str], job_id: str = "") -> None:
        super().__init__()
        self._looked_at, self._job_id = tuple(nodes), job_id
        self._found: FoundProcesses | None = None
        self._lines: dict[str, ProcessLine] = {}
        self._unlike: dict[str, frozenset[str]] = {}
        self._marks: dict[str, tuple[Mark, str]] = {}
        """Rank -> its sign, and what to say instead of its state; {} for processes."""
        self._counts: deque[Counts] = deque(maxlen=COUNTED)
        self._next = 0.0
        self._asking = False
        kinds = RANK_COLUMNS if job_id else PROCESS_COLUMNS
        self.orders = [title for title, *_ in kinds]
        self.order = "RANK" if job_id else "CPU"
        self.list_filter = ListFilter(self, "words", self.rearrange, language=False)
        self.info = TextPage(id="info", can_focus=False)
        self.info.styles.height = 1
        self.main = self.table = VTable(
            tuple(self._column(*kind) for kind in kinds), empty="looking …"
        )
        self.below = Details(self.table)
        self.top_bar.choose("job" if job_id else "node")

    def body(self) -> Iterable[Widget]:
        return self.info, self.table

    @property
    def targets(self) -> tuple[str, ...]:
        line = self._lines.get(self.table.cursor)
        return (line.node,) if line else ()

    def _column(self, title: str, width: int, keep: int) -> Column:
        grow = title in GROW
        return Column(
            title,
            width,
            lambda row, _: self._cell(title, row),
            right=title not in TEXTS,
            keep=keep,
            grow=grow,
            least=30 if grow else 0,
            most=STATE if title == "STATE" and self._job_id else 0,
        )

    def _cell(self, title: str, row: str) -> Runs:
        line = self._lines[row]
        text = line.cells.get(title, "") or formatting.NOTHING
        if title == "STATE" and row in self._marks:
            mark, word = self._marks[row]
            told = word if word and not line.processes else text
            return [(f"{mark.glyph} {told}", mark.role)]
        odd = row in self._unlike.get(title, ())
        sign = self.console.glyphs.level(Level.WARN).glyph if odd else ""
        role = "warn" if odd else "dim" if text == formatting.NOTHING else "text"
        return [(f"{sign}{text}", role)]

    # ---- looking

    def tick(self) -> None:
        now = time.monotonic()
        if not self._asking and now >= self._next:
            self._asking = True
            self.run_worker(self._look(), name="processes", group="processes", exclusive=True)
        self._show_info()

    async def _look(self) -> None:
        try:
            self._found = await self.console.need_session().nodes.find_processes(self._looked_at)
        except RankdeckError as error:
            self.say(str(error), "bad")
            self.table.empty = "nothing is known"
        finally:
            self._asking, self._next = False, time.monotonic() + PERIOD
        if self._found is not None:
            self._take(self._found)

    def _take(self, found: FoundProcesses) -> None:
        job = self.console.need_session().jobs.job(self._job_id) if self._job_id else None
        if job is not None:
            self._counts.append((time.monotonic(), {one.rank: one.lines for one in job.ranks}))
            uses = rank_uses(job, found.processes)
            lines = [self._rank_line(rank, uses[rank.rank]) for rank in job.ranks]
            self._marks = _marks_of(job, self.console.glyphs)
        else:
            lines = [_process_line(one) for one in found.processes]
        self._lines = {line.name: line for line in lines}
        self._unlike = _odd_cells(lines) if job is not None else {}
        self.table.empty = no_match("process")
        self.rearrange()

    def _rank_line(self, rank: RankState, use: RankUse) -> ProcessLine:
        silent = None
        if not rank.state.final and (heard := rank.heard or rank.started):
            silent = formatting.seconds_since(heard)
        percent = None if use.cpu is None else 100 * use.cpu
        busy = self._of_gpus(use, "gpu.used", max)
        power = self._of_gpus(use, "gpu.power", sum)
        step, took = self._pace(rank.rank)
        lines = None if rank.state.final else lines_per_second(self._counts, rank.rank)
        cells = {
            "RANK": str(rank.rank), "NODE": printable_line(rank.node), "PID": str(use.pid or ""),
            "STATE": use.state if use.processes else rank.state.value, "CPU": formatting.format_percent(percent),
            "RSS": formatting.format_size(use.rss), "GPU": ",".join(use.gpus), "USE": formatting.format_percent(busy),
            "GMEM": formatting.format_size(use.gpu_memory), "POWER": "" if power is None else f"{power:.0f}W",
            "I/O": formatting.format_rate(use.traffic), "LINES": f"{rank.lines:,}", "LINES/S": "" if lines is None else f"{lines:,.3g}",
            "STEP": "" if step is None else f"{step:,.0f}", "S/STEP": "" if took is None else f"{took:.3g}",
            "SILENT": "" if silent is None else formatting.format_age(silent), "LAST LINE": printable_line(rank.last_line),
        }  # fmt: skip
        values = {
            "RANK": float(rank.rank), "CPU": percent, "RSS": use.rss, "USE": busy, "GMEM": use.gpu_memory,
            "POWER": power, "I/O": use.traffic, "LINES": float(rank.lines), "LINES/S": lines, "STEP": step, "S/STEP": took, "SILENT": silent,
        }  # fmt: skip
        return ProcessLine(str(rank.rank), rank.node, use.processes, cells, _known(values))

    def _pace(self, rank: int) -> tuple[float | None, float | None]:
        """The newest step of this rank and the seconds per step, from the
        lines on this machine; None: not known.
        """
        newest = self.console.need_session().jobs.log(self._job_id, rank).newest(PACED)
        found = step_pace((line.at, line.text) for line in newest)
        if found[0] is None:
            state = self.console.need_session().jobs.job(self._job_id).ranks
            found = step_pace((0.0, one.last_line) for one in state if one.rank == rank)
        return found

    def _of_gpus(
        self, use: RankUse, metric: str, join: Callable[[list[float]], float]
    ) -> float | None:
        fleet = self.console.fleet
        if not fleet.knows(use.node):
            return None
        values = [fleet.node(use.node).value(metric, gpu) for gpu in use.gpus]
        known = [float(value) for value in values if value is not None]
        return join(known) if known else None

    # ---- showing

    def rearrange(self) -> None:
        words = self.list_filter.text.lower().split()
        shown = [line for line in self._lines.values() if _matches(line, words)]
        up = self.order in ASCENDING
        if self.order in TEXTS:
            shown.sort(key=lambda line: line.cells.get(self.order, ""), reverse=self.turned)
        else:
            nothing = float("inf") if up else float("-inf")
            shown.sort(
                key=lambda line: line.numbers.get(self.order, nothing),
                reverse=up is self.turned,
            )
        self.table.sorted_by, self.table.turned = (self.order,), self.turned
        self.table.show([line.name for line in shown])
        self.table.refresh()
        self._show_info()

    def _show_info(self) -> None:
        number = len(self.table.rows)
        noun = formatting.format_many(number, "rank") if self._job_id else _number(number)
        runs: list[Run] = [
            (f" {noun}", "text"),
            (" on ", "dim"),
            (nodes_phrase(self._looked_at), "text"),
        ]
        if self._job_id:
            runs.append((f"   {printable_line(self._job_id)}", "title"))
        turned = " reversed" if self.turned else ""
        runs += [("   by ", "dim"), (f"{self.order}{turned}", "text")]
        found = self._found
        if found is not None and found.missing:
            runs.append((f"   not asked: {nodes_phrase(tuple(found.missing))}", "warn"))
        if found is not None and found.notes:
            runs.append((f"   {printable_line(found.notes[0])}", "dim"))
        self.info.show([fit_runs(runs, max(self.size.width, 1), self.console.glyphs.more)])

    def without_effect(self) -> Iterable[str]:
        line = self._lines.get(self.table.cursor)
        if line is None:
            return ("describe", "copy", "signal")
        return () if line.processes else ("signal",)

    def whole(self) -> tuple[str, Sequence[Runs]]:
        row = self.table.cursor
        return "Rank" if self._job_id else "Process", row_lines(
            self.table.whole(row)
        ) if row else ()

    def details(self) -> tuple[str, Sequence[Runs]]:
        """What the row cuts; of a job, also all ranks side by side in each number."""
        row = self.table.cursor
        if row not in self._lines:
            return "", ()
        told = [cell for cell in self.table.unseen(row) if cell[1] != formatting.NOTHING]
        cut = row_lines(told)
        if not self._job_id:
            return "Process", cut
        compared = self._compared_lines(self.size.width - len(INDENT) - 2 * MARGIN)
        return "Ranks compared", [*compared, *([[], *cut] if cut and compared else cut)]

    def _compared_lines(self, width: int) -> list[Runs]:
        """For each number that at least two ranks have: a column for each rank, the least, the
        median and the most, and who is unlike the others.
        """
        many = len(self._lines)
        if many > width - COMPARED:
            return []
        titles = [t for t in ODD if sum(t in line.numbers for line in self._lines.values()) > 1]
        head: Runs = [(f"{'':<{TITLE + many}}{'least':>10}{'median':>10}{'most':>10}", "dim")]
        return [head, *map(self._compared_line, titles)] if titles else []

    def _compared_line(self, title: str) -> Runs:
        lines, odd = list(self._lines.values()), self._unlike.get(title, frozenset())
        known = sorted(
            (line for line in lines if title in line.numbers), key=lambda line: line.numbers[title]
        )
        most, glyphs = known[-1].numbers[title] or 1.0, self.console.glyphs
        columns = (
            draw_columns([line.numbers.get(title)], glyphs, Scale(most, ramp=_odd_role(line, odd)))
            for line in lines
        )
        ends = [known[place].cells[title] for place in (0, len(known) // 2, -1)]
        runs: list[Run] = [(f"{title:<{TITLE}}", "dim"), *(run for one in columns for run in one)]
        runs.append(("".join(f"{end:>10}" for end in ends), "text"))
        if odd:
            sign = glyphs.level(Level.WARN).glyph
            runs.append((f"  {sign} rank {fold_ranks([int(name) for name in odd])}", "warn"))
        return runs

    # ---- keys

    def action_copy(self) -> None:
        row = self.table.cursor
        if row in self._lines:
            cells = (text for _, text in self.table.whole(row))
            self.console.copy("  ".join(filter(None, cells)), "this row")

    def action_signal(self) -> None:
        line = self._lines.get(self.table.cursor)
        if line is None or not line.processes:
            self.refuse("no process here")
        else:
            self.prompt.ask(ASK, "TERM", " ".join(SIGNALS))

    def answered(self, text: str | None) -> None:
        name = (text or "").strip().upper().removeprefix("SIG")
        line = self._lines.get(self.table.cursor)
        if not name or line is None:
            return
        if name not in SIGNALS:
            self.say(f"no signal `{name}`; there are {' '.join(SIGNALS)}", "warn")
            return

        def send() -> None:
            self.run_worker(self._signal(name, line.processes), name="signal", group="signal")

        self.console.ask(_signal_question(name, line.processes), send)

    async def _signal(self, name: str, some: Sequence[NodeProcess]) -> None:
        failed = await self.console.need_session().nodes.send_signal(name, some)
        self._next = 0.0
        if failed:
            where, why = next(iter(failed.items()))
            self.say(f"{name} not sent to {where}: {why}", "warn")
        else:
            self.say(f"{name} sent to {_number(len(some))}", "ok")


def _signal_question(name: str, some: Sequence[NodeProcess]) -> ChangeQuestion:
    """The question whether to send this signal; it names the processes."""
    lines: list[Runs] = [
        [(f"{one.node} {one.pid}  ", "title"), (f"{one.user}  ", "dim"), (one.command, "text")]
        for one in some[:MOST_ASKED]
    ]
    if more := len(some) - MOST_ASKED:
        lines += [[(f"and {more} more", "warn")]] if more > 0 else []
    if jobs := dict.fromkeys(one.job for one in some if one.job):
        lines += [[], [("of job ", "warn"), (printable_line(", ".join(jobs)), "text")]]
    title = f"Send {name} to {_number(len(some))}?"
    return ChangeQuestion(title, lines, f"send {name}", "send nothing")


def _process_line(one: NodeProcess) -> ProcessLine:
    cells = {
        "NODE": printable_line(one.node), "PID": str(one.pid), "USER": one.user, "STATE": one.state,
        "CPU": formatting.format_percent(100 * one.cpu), "RSS": formatting.format_size(one.rss), "GPU": ",".join(one.gpus),
        "GMEM": formatting.format_size(one.gpu_memory) if one.gpus else "", "I/O": formatting.format_rate(one.traffic),
        "RANK": "" if one.rank is None else str(one.rank), "JOB": one.job, "COMMAND": one.command,
    }  # fmt: skip
    values = {
        "PID": float(one.pid), "CPU": one.cpu, "RSS": one.rss, "GMEM": one.gpu_memory if one.gpus else None,
        "I/O": one.traffic, "RANK": one.rank,
    }  # fmt: skip
    return ProcessLine(f"{one.node} {one.pid} {one.start}", one.node, (one,), cells, _known(values))


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {title: float(value) for title, value in values.items() if value is not None}


def _odd_cells(lines: Sequence[ProcessLine]) -> dict[str, frozenset[str]]:
    numbers = {
        title: {one.name: one.numbers[title] for one in lines if title in one.numbers}
        for title in ODD
    }
    return {title: odd_ones(numbers[title], least) for title, least in ODD.items()}


def _marks_of(job: Job, glyphs: Glyphs) -> dict[str, tuple[Mark, str]]:
    stalled = {r for r, status in rank_statuses(job).items() if status is RankStatus.STALLED}
    return {
        str(rank): (mark, RankStatus.STALLED.value if rank in stalled else "")
        for rank, mark in rank_marks(job, glyphs).items()
    }


def _odd_role(line: ProcessLine, odd: frozenset[str]) -> str:
    return "warn" if line.name in odd else "ok"


def _matches(line: ProcessLine, words: Sequence[str]) -> bool:
    text = " ".join(line.cells.values()).lower()
    return all(word in text for word in words)


def _number(number: int) -> str:
    return "1 process" if number == 1 else f"{number:,} processes"
