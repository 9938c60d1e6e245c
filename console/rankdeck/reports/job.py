"""Reports of a job with secrets masked: an archive for a ticket, and a
page (failure, ranks, nodes, output).
"""

import asyncio
import json
import os
import platform
import re
import shlex
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from msgspec import field

import rankdeck_agent
from rankdeck.backends.base import Backend
from rankdeck.backends.plan_text import write_plan
from rankdeck.backends.remote_log import Recording, record_job
from rankdeck.config.files import replace_file
from rankdeck.errors import RankdeckError
from rankdeck.logs.collapse import Collapse, Folded, fold_groups
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, RankState
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.json_values import read_value
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.rank import State, how_it_ended
from rankdeck.model.rank_output import Chunk, Followed
from rankdeck.model.stall import Explained
from rankdeck.prometheus.site_past import JobNumbers, SitePast
from rankdeck.reports import html
from rankdeck.reports.html import Html, Part, element_html, join_html
from rankdeck.rules.job_news import note_words, reference_time, time_of_note
from rankdeck.rules.progress import job_phases
from rankdeck.rules.secrets import KEY_BEGINS, KEY_ENDS, Secrets
from rankdeck.state.black_box import WHY, NodeBox
from rankdeck.state.boxed_stalls import stalls_in_boxes
from rankdeck.state.fleet import Fleet
from rankdeck.state.history_thread import HistoryThread
from rankdeck.state.job_recorder import choose_recorded, node_health, troubled_nodes
from rankdeck.state.lines import RankLog
from rankdeck.values import Value, replace, value_table
from rankdeck_agent.rules.units import write_bits, write_celsius, write_duration, write_percent
from rankdeck_agent.wire import LAUNCHER

MOST_ROWS = 64
"""Most rows of the timeline: one per rank; with more ranks, one per
node; with more nodes, failures first.
"""
MOST_GROUPS = 300
MOST_EVENTS = 200
HEARD = "what consoles heard while they followed the job, and the black boxes of its nodes"


class BoxLines(Value):
    """One black box, in words."""

    node: str
    span: str
    readings: int
    gaps: int
    why: str
    """Why it was frozen, or could not be read."""


class JobPage(Value, kw_only=True):
    """The content of the page, with secrets already masked."""

    job: Job
    now: float
    """When the page was made, epoch seconds."""
    numbers: Sequence[Mapping[str, Any]] = ()
    """Numbers of the job's nodes while it ran: `{at, metrics, of,
    nodes}`, see `History.numbers`.
    """
    source: str = HEARD
    """Where the numbers come from."""
    gap: float = 0.0
    """No line is drawn between numbers that are more seconds apart;
    0: a twentieth of the job's time.
    """
    trouble: str = ""
    """Why numbers of the site's metrics are missing."""
    output: Sequence[Folded] = ()
    """The output of the ranks, equal lines once."""
    boxes: Sequence[BoxLines] = ()
    """What the black boxes of its nodes have."""
    frozen: Sequence[str] = ()
    """What was wrong when they were frozen."""
    last: Mapping[str, Sequence[str]]
    """Name -> its last lines: the rank that failed first, or those that may have, and the
    launchers.
    """
    missing: Mapping[str, str]
    """Node -> why it could not be read."""

    @property
    def end(self) -> float:
        """Epoch seconds at which the time axis ends."""
        return self.job.ended if self.job.ended is not None else self.now

    @property
    def axis(self) -> html.Axis:
        return html.Axis(self.job.created, max(self.end, self.job.created + 1.0))


def _job_page(one: JobPage) -> str:
    """The page as an HTML file."""
    job = one.job
    return html.page_html(
        f"{job.name}: {_state(job)}",
        html.facts_html(_facts(one)),
        html.section_html("What happened", *_what_happened(one)),
        html.section_html("Ranks and phases", _timeline(one)),
        html.section_html("Nodes during the job", *_plots(one)),
        html.section_html("Events on its nodes", _events(one)),
        html.section_html("Black boxes", *_boxes(one)),
        html.section_html("Output, equal lines once", *_output(one)),
        html.section_html("Commands", *_commands(job)),
    )


def _state(job: Job) -> str:
    return job.state.value if job.state.final else f"{job.state.value} (not over yet)"


def write_moment(at: float) -> str:
    """Epoch seconds as `2026-11-22 14:03:05 +0000`, in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))


def _facts(one: JobPage) -> Iterator[tuple[str, Part]]:
    job, spec = one.job, one.job.plan.spec
    yield "Job", job.id
    yield "State", _state(job)
    yield "Cluster", f"{job.cluster}, backend {job.plan.backend}"
    yield "Whose", job.plan.owner
    yield "Ranks", f"{len(job.ranks)}" + (f" on {fold_nodes(job.nodes)}" if job.nodes else "")
    if spec:
        container = f"{spec.container.runtime} {spec.container.image}" if spec.container else ""
        yield "Container", container
    yield "Created", write_moment(job.created)
    over = job.ended is not None
    yield "Ended", write_moment(one.end) if over else ""
    yield "Took", write_duration(one.end - job.created) + ("" if over else " until now")
    yield "Exit status", "" if job.exit_code is None else how_it_ended(job.exit_code, None)
    yield "Page made", f"{write_moment(one.now)} by Rankdeck {rankdeck_agent.__version__}"
    for node, why in list(one.missing.items())[:20]:
        yield "Not in it", f"{node}: {why}"


# ---- who failed first, and why


def _what_happened(one: JobPage) -> Iterator[Html]:
    job = one.job
    if job.first_failure is not None:
        yield from _failure(job.first_failure)
    elif job.state is State.DONE:
        yield _verdict("good", "Every rank ended well.")
    elif job.state.final:
        yield _verdict(
            "bad", f"The job is {job.state.value}; no rank is known to have failed first."
        )
    yield from (_verdict("slow", stall.sentence) for stall in job.stalled)
    yield from _meaning(job.explained)
    yield from (element_html("p", trouble) for trouble in job.troubles)


def _verdict(kind: str, sentence: Part) -> Html:
    return element_html("p", sentence, class_=f"verdict {kind}")


def _failure(first: FirstFailure) -> Iterator[Html]:
    yield _verdict("bad", f"First failure: {first.sentence}")
    if first.evidence:
        yield element_html("ul", *(element_html("li", sentence) for sentence in first.evidence))
    yield from _meaning(first.explained)
    if first.lines:
        yield element_html("h3", f"Last lines of {first.who}")
        yield html.block_html(first.lines)
    if first.others:
        yield element_html("h3", "Failed too")
        yield element_html(
            "ul", *(element_html("li", f"{other.who}: {other.why}") for other in first.others)
        )


def _meaning(explained: Iterable[Explained]) -> Iterator[Html]:
    for each in explained:
        yield element_html("p", element_html("b", "Means: "), each.means)
        yield element_html("p", element_html("b", "Try: "), each.remedy)


# ---- timeline

_KINDS: Mapping[State, str] = {
    State.PENDING: "none",
    State.RUNNING: "run",
    State.DONE: "good",
    State.FAILED: "bad",
    State.CANCELLED: "slow",
    State.LOST: "unknown",
}
_VICTIM = "slow"
"""Colour of ranks that ended because another one failed."""


def _timeline(one: JobPage) -> Html:
    job = one.job
    victims = job.first_failure.victims if job.first_failure else ()
    rows = [html.TimelineRow("phases", _phases(one))]
    if len(job.ranks) <= MOST_ROWS:
        rows += [_rank_row(rank, one.end, victim=rank.rank in victims) for rank in job.ranks]
    else:
        rows += _node_rows(one)
    drawn = html.timeline_html(rows, one.axis, _marks(one), "ranks over time")
    states = [state for state in State if any(rank.state is state for rank in job.ranks)]
    keys = [html.key_html(f"var(--{_KINDS[state]})", state.value) for state in states]
    if victims:
        keys.append(html.key_html(f"var(--{_VICTIM})", "ended by the first failure"))
    return join_html((element_html("p", *keys), drawn))


def _phases(one: JobPage) -> list[html.Span]:
    kinds = ("alt", "none")
    return [
        html.Span(
            phase.start,
            _until(phase.end, one.end),
            kinds[number % 2],
            f"{phase.name} {write_duration(_until(phase.end, one.end) - phase.start)}",
        )
        for number, phase in enumerate(job_phases(one.job))
    ]


def _until(at: float | None, end: float) -> float:
    return end if at is None else at


def _rank_row(rank: RankState, end: float, *, victim: bool) -> html.TimelineRow:
    name = f"rank {rank.rank}"
    if rank.started is None:
        return html.TimelineRow(name, ())
    ended = how_it_ended(rank.exit_code, rank.signal) if rank.ended is not None else ""
    state = "ended by it" if victim else rank.state.value
    text = ", ".join(filter(None, (rank.node, state, ended)))
    until = max(_until(rank.ended, end), rank.started)
    return html.TimelineRow(
        name, (html.Span(rank.started, until, _VICTIM if victim else _KINDS[rank.state], text),)
    )


def _node_rows(one: JobPage) -> list[html.TimelineRow]:
    """One row per node, from its first start to its last end; with too
    many nodes, those with failures first.
    """
    by_node: dict[str, list[RankState]] = {}
    for rank in one.job.ranks:
        by_node.setdefault(rank.node, []).append(rank)
    odd = {
        node
        for node, ranks in by_node.items()
        if any(rank.state is not State.DONE for rank in ranks)
    }
    first = one.job.first_failure.node if one.job.first_failure else ""
    order = sorted(by_node, key=lambda node: (node != first, node not in odd))[:MOST_ROWS]
    rows = [_node_row(node, by_node[node], one.end) for node in by_node if node in {*order}]
    left = len(by_node) - len(rows)
    return [*rows, html.TimelineRow(f"{left} more nodes", ())] if left else rows


_WORST = (State.FAILED, State.LOST, State.CANCELLED, State.RUNNING, State.PENDING, State.DONE)


def _node_row(node: str, ranks: Sequence[RankState], end: float) -> html.TimelineRow:
    began = [rank.started for rank in ranks if rank.started is not None]
    if not began:
        return html.TimelineRow(node, ())
    until = max(_until(rank.ended, end) for rank in ranks if rank.started is not None)
    worst = next(state for state in _WORST if any(rank.state is state for rank in ranks))
    count = sum(1 for rank in ranks if rank.state is worst)
    text = f"{count} of {len(ranks)} ranks {worst.value}"
    return html.TimelineRow(
        node, (html.Span(min(began), max(until, min(began)), _KINDS[worst], text),)
    )


def _marks(one: JobPage) -> list[html.PlotMark]:
    """Marks for the first failure, and for the node events, with their numbers in the table."""
    first = one.job.first_failure
    failed = [html.PlotMark(first.at, "first failure", "mark")] if first else []
    notes = enumerate(one.job.node_notes[:9], 1)
    inside = [(number, note) for number, note in notes if one.job.created <= note.at <= one.end]
    return [*(html.PlotMark(note.at, str(number)) for number, note in inside), *failed]


# ---- numbers of the nodes


class _Metric(Value):
    title: str
    name: str
    shown: Callable[[float | None], str]
    most: float | None = None


def _bit_rate(number: float | None) -> str:
    return write_bits(None if number is None else number * 8)


_METRICS = (
    _Metric("CPU", "cpu.used", write_percent, 100.0),
    _Metric("Memory", "mem.used", write_percent, 100.0),
    _Metric("GPU, all of a node", "gpu.used", write_percent, 100.0),
    _Metric("GPU memory", "gpu.mem_used", write_percent, 100.0),
    _Metric("Temperature, the hottest of a node", "gpu.temp", write_celsius),
    _Metric("Network, both ways", "net.rx", _bit_rate),
    _Metric("RDMA received", "rdma.rx", _bit_rate),
    _Metric("RDMA sent", "rdma.tx", _bit_rate),
)


def _plots(one: JobPage) -> Iterator[Html]:
    frames = [(float(row["at"]), row) for row in one.numbers if _sound(row)]
    drawn = [_plot(one, metric, frames) for metric in _METRICS]
    if one.trouble:
        yield element_html("p", one.trouble, class_="dim")
    if not any(drawn):
        yield element_html(
            "p", "No console heard these nodes while the job ran: there are no numbers."
        )
        return
    of = max(int(row.get("of", 0)) for _, row in frames)
    kept = len({node for _, row in frames for node in row["nodes"]})
    few = f" Numbers of {kept} of {of} nodes were kept." if kept < of else ""
    yield element_html("p", f"Source: {one.source}.{few} Red: the first failure.", class_="dim")
    yield from drawn


def _sound(row: Mapping[str, Any]) -> bool:
    shapes = (("at", int | float), ("metrics", list), ("nodes", dict))
    return all(isinstance(row.get(name), kind) for name, kind in shapes)


def _plot(one: JobPage, metric: _Metric, frames: Sequence[tuple[float, Mapping[str, Any]]]) -> Html:
    points: dict[str, list[tuple[float, float]]] = {}
    for at, row in frames:
        for node, value in _column(row, metric.name):
            points.setdefault(node, []).append((at, value))
    first = one.job.first_failure
    longest = one.gap or max((one.end - one.job.created) / 20, 15.0)
    plot = html.Plot(
        title=metric.title + _made_up(metric.name, frames),
        series=[html.PlotLine(node, points[node]) for node in sorted(points)],
        shown=metric.shown,
        most=metric.most,
        pointed=frozenset(
            {first.node, *(note.node for note in one.job.node_notes)} if first else ()
        ),
        gap=longest,
    )
    return html.plot_html(plot, one.axis, _marks(one))


def _made_up(metric: str, frames: Sequence[tuple[float, Mapping[str, Any]]]) -> str:
    """` · SIMULATED` if the numbers are simulated, else ""."""
    prefixes = {str(one) for _, row in frames for one in row.get("simulated", ())}
    return " · SIMULATED" if any(metric.startswith(f"{one}.") for one in prefixes) else ""


def _column(row: Mapping[str, Any], metric: str) -> Iterator[tuple[str, float]]:
    """(node, value) of one metric in a row."""
    metrics = cast("list[object]", row["metrics"])
    if metric not in metrics:
        return
    place = metrics.index(metric)
    for node, values in cast("dict[str, list[object]]", row["nodes"]).items():
        value = values[place] if place < len(values) else None
        if isinstance(value, int | float):
            yield node, float(value)


# ---- events, output, commands


def _events(one: JobPage) -> Html:
    job = one.job
    rows = (
        (number, write_moment(note.at), note.level.word, note_words(note), time_of_note(note, job))
        for number, note in enumerate(job.node_notes[:MOST_EVENTS], 1)
    )
    what = (
        "the failure"
        if job.first_failure
        else f"+{write_duration(reference_time(job) - job.created)}"
    )
    return html.table_html(("", "when", "level", "what", f"from {what}"), rows)


def _box_lines(box: NodeBox) -> BoxLines:
    ends = [write_moment(box.readings[place][0]) for place in (0, -1)] if box.readings else []
    whys = [f"{WHY[why]} ({write_moment(at)})" for at, why in box.frozen]
    odd = [f"{box.odd} rows made no sense"] if box.odd else []
    why = "; ".join(filter(None, [*whys, *odd, box.trouble]))
    return BoxLines(box.node, ", ".join(ends), len(box.readings), box.gaps, why)


def _boxes(one: JobPage) -> Iterator[Html]:
    yield from (_verdict("slow", sentence) for sentence in one.frozen)
    yield element_html(
        "p",
        "Numbers, health, kernel lines and looks at the ranks that the nodes kept by themselves."
        " They lie in the job's own folders, where its program could have changed them.",
        class_="dim",
    )
    rows = ((box.node, box.span, str(box.readings), str(box.gaps), box.why) for box in one.boxes)
    yield html.table_html(("node", "readings from, to", "readings", "gaps", "kept because"), rows)


def _output(one: JobPage) -> Iterator[Html]:
    if not one.output and not any(one.last.values()):
        yield element_html("p", "Nothing that was written could be read.")
        return
    if one.output:
        yield html.block_html(_folded_lines(one.output))
    for name, lines in one.last.items():
        if lines:
            yield html.details_html(f"The end of what {name} wrote", html.block_html(lines))


def _folded_lines(rows: Sequence[Folded]) -> Iterator[str]:
    for row in rows[:MOST_GROUPS]:
        yield f"{row.who} {row.text}"
        if row.missing:
            yield f"    missing: {fold_ranks(row.missing)}"
        odd = row.outliers[:3]
        yield from (f"    rank {o.rank}: {o.value:g}, median {o.median:g}" for o in odd)
    if len(rows) > MOST_GROUPS:
        yield f"… {len(rows) - MOST_GROUPS} more kinds of lines: `rankdeck logs --collapse` has them"


def _commands(job: Job) -> Iterator[Html]:
    if job.plan.spec and job.plan.spec.command:
        yield element_html("p", "The program of each rank:")
        yield html.block_html([shlex.join(job.plan.spec.command)])
    yield html.details_html(
        "Every file and every command, per node (secrets masked)",
        html.block_html(write_plan(job.plan).splitlines()),
    )


TAIL = 1 << 20
"""Bytes that are read from the end of each log."""
MOST_ON_PAGE = 64 << 20
"""Most bytes of the logs of all ranks together that are used for the page."""
_LAST = 200
"""Last lines that are shown of the rank that failed first and of each launcher."""
_LAUNCHERS = 8
_LONGEST_KEY = 1 << 16
_README = """Report of job {job} by Rankdeck {version}, {when}.

job.json     state, ranks, first failure, stalls, progress, phases, what its nodes said
plan.json    every file and every command, per node (secrets masked)
plan.txt     the same, as a shell would take it
events.jsonl what the supervisors of the nodes recorded, on the console's clock
blackbox.NODE.jsonl  what NODE kept by itself: the last ten minutes until the job failed or ended
health.json  how the nodes were at each turn of the job, and now
versions.json
report.html  what matters of it on one page; opens in any browser, needs no network
logs/        the end of what each rank and launcher wrote{missing}
"""


class ReportSource(Value):
    """What is known here for a report; the rest is read from the nodes."""

    job: Job
    events: Sequence[NodeEvent]
    """Events from the history, for nodes that do not answer."""
    health: Sequence[Mapping[str, Any]]
    """See `History.health`; the last one is the present health."""
    environment: Mapping[str, str]
    """`environment:` of the cluster file, which may have secrets."""
    numbers: JobNumbers = JobNumbers()
    """Numbers of its nodes while it ran; with `source` "", those that consoles received."""
    boxes: Mapping[str, NodeBox] = field(default_factory=dict[str, NodeBox])
    """Node -> its black box."""


async def report_source(
    job: Job, history: HistoryThread, fleet: Fleet, past: SitePast, environment: Mapping[str, str]
) -> ReportSource:
    """Collect what is known now; queries the site's Prometheus if the cluster has one."""
    now = time.time()
    nodes = choose_recorded(job.nodes, troubled_nodes(job))
    numbers = await past.of_job(nodes, job.created, job.ended or now, len(job.nodes))
    turn = {"at": now, "turn": "now", "nodes": node_health(fleet, job)}
    # It may have ended just now.
    await history.write()
    events, health, rows = await history.ask(
        lambda kept: (kept.events(job.id, job.plan), kept.health(job.id), kept.numbers(job.id))
    )
    return ReportSource(
        job,
        events,
        [*health, turn],
        environment,
        numbers if numbers.rows else replace(numbers, rows=rows),
    )


async def write_report(
    backend: Backend, source: ReportSource, path: Path, backlog: int | None = TAIL
) -> Recording:
    """Write the archive (.tar.gz, readable only by its owner), with the last
    `backlog` bytes of each log (None: all).

    Raises RankdeckError.
    """
    return await _write(backend, source, path, backlog, pack_report)


async def write_page(backend: Backend, source: ReportSource, path: Path) -> Recording:
    """Write the page (HTML, readable only by its owner); raises RankdeckError."""
    each = min(TAIL, MOST_ON_PAGE // max(2 * len(source.job.ranks), 1))
    return await _write(backend, source, path, each, write_html)


async def _write(
    backend: Backend,
    source: ReportSource,
    path: Path,
    backlog: int | None,
    make: "Callable[[ReportSource, Recording, Logs, BinaryIO], None]",
) -> Recording:
    try:
        with (
            replace_file(path) as file,
            tempfile.TemporaryDirectory(dir=path.parent, prefix=".report-") as name,
        ):
            logs = Logs(Path(name))
            recording = await record_job(backend, source.job, logs.take, backlog)
            logs.fill(source.boxes)
            await asyncio.to_thread(make, source, recording, logs, file)
    except OSError as error:
        raise RankdeckError(f"{path}: cannot be written: {error.strerror or error}") from error
    return recording


class Logs:
    """Files in a folder with the output of ranks and launchers, one per stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ends: set[str] = set()
        """Names of the files that hold only the end of a log."""

    def take(self, item: Followed) -> None:
        """Append a chunk of output to its file; other items are ignored."""
        if isinstance(item, Chunk):
            path = self.folder / f"{_log_name(item.rank, item.node)}.{item.stream}"
            if item.offset and not path.exists():
                self._ends.add(path.name)
            with path.open("ab") as file:
                file.write(item.data)

    def fill(self, boxes: Mapping[str, NodeBox]) -> None:
        """Take the end of each log that was not read from the black boxes."""
        for box in boxes.values():
            for (rank, stream), (offset, data) in box.tails.items():
                if data and not (self.folder / f"{_log_name(rank, box.node)}.{stream}").exists():
                    self.take(Chunk("", box.node, rank, stream, offset, 0.0, data))

    def lines(self, name: str, most: int) -> list[bytes]:
        """The whole lines in the last `most` bytes of a file; [] if there is no such file."""
        path = self.folder / name
        if not path.is_file():
            return []
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - most, 0))
            lines = file.read(most).splitlines()
        return lines[1:] if size > most else lines

    def mask(self, secrets: Secrets) -> list[Path]:
        """Mask secrets in all files; returns their paths."""
        for path in sorted(self.folder.iterdir()):
            clean = path.with_suffix(path.suffix + ".clean")
            with path.open("rb") as raw, clean.open("wb") as file:
                lines = _whole(raw) if path.name in self._ends else raw
                file.writelines(map(secrets.in_bytes, _pieces(lines)))
            clean.replace(path)
        return sorted(self.folder.iterdir())


def _log_name(rank: int, node: str) -> str:
    return f"launcher.{node}" if rank == LAUNCHER else f"rank.{rank}"


_OF_A_KEY = re.compile(rb"[A-Za-z0-9+/=]{1,80}\s*\Z")


def _whole(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of the end of a log, without the first parts that may be
    the rest of a cut line or private key.
    """
    next(lines, b"")
    held: list[bytes] = []
    for line in lines:
        held.append(line)
        if KEY_ENDS.search(line):
            held.clear()
        if not _OF_A_KEY.match(line):
            break
    yield from held
    yield from lines


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines; all lines of a private key as one piece, so that it can be masked."""
    key = b""
    for line in lines:
        if not key and not KEY_BEGINS.search(line):
            yield line
            continue
        key += line
        if KEY_ENDS.search(line) or len(key) > _LONGEST_KEY:
            yield key
            key = b""
    yield key


def secrets_of(source: ReportSource) -> Secrets:
    """The secrets in the plan, the job file and the cluster file."""
    plan = source.job.plan
    tables = [source.environment, *(node.env for node in plan.nodes)]
    tables += [process.env for node in plan.nodes for process in node.processes]
    texts = [file.text for node in plan.nodes for file in node.files]
    if plan.spec:
        tables.append(plan.spec.env)
        texts += plan.spec.files.values()
    return Secrets(tables, texts)


def pack_report(source: ReportSource, recording: Recording, logs: Logs, into: BinaryIO) -> None:
    """Write the archive, with secrets masked; raises OSError."""
    secrets = secrets_of(source)
    files = logs.mask(secrets)
    texts = _texts(source, recording, secrets)
    texts["report.html"] = _job_page(_page(source, recording, logs, secrets))
    folder = logs.folder / "texts"
    folder.mkdir()
    with tarfile.open(fileobj=into, mode="w:gz") as archive:
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
            archive.add(folder / name, f"{source.job.id}/{name}")
        for file in files:
            archive.add(file, f"{source.job.id}/logs/{file.name}")


def write_html(source: ReportSource, recording: Recording, logs: Logs, into: BinaryIO) -> None:
    """Write the page, with secrets masked; raises OSError."""
    secrets = secrets_of(source)
    logs.mask(secrets)
    into.write(_job_page(_page(source, recording, logs, secrets)).encode("utf-8", "replace"))


def _page(source: ReportSource, recording: Recording, logs: Logs, secrets: Secrets) -> JobPage:
    """The content of the page; `logs` must be masked already."""
    ranks = tuple(replace(rank, activity=None) for rank in source.job.ranks)
    # Masked as a tree, so that no field of a job is missed.
    job = read_value(secrets.in_tree(value_table(replace(source.job, ranks=ranks))), Job)
    return JobPage(
        job=job,
        now=time.time(),
        numbers=source.numbers.rows,
        source=source.numbers.source or HEARD,
        gap=source.numbers.gap,
        trouble=source.numbers.trouble,
        output=_collapsed(job, logs),
        boxes=[_box_lines(box) for _, box in sorted(source.boxes.items())],
        frozen=_frozen_sentences(source, secrets),
        last=_last_words(job, logs),
        missing=secrets.in_tree(dict(recording.missing)),
    )


def _frozen_sentences(source: ReportSource, secrets: Secrets) -> list[str]:
    """What a console would have said when the boxes were frozen."""
    stalls = stalls_in_boxes(source.job, source.boxes.values())
    return [
        secrets.in_text(f"{write_moment(one.since)}: {one.sentence} (black box)") for one in stalls
    ]


def _collapsed(job: Job, logs: Logs) -> list[Folded]:
    """The output of the ranks, equal lines once."""
    collapse = Collapse({rank.rank: RankLog(rank.rank) for rank in job.ranks})
    each = MOST_ON_PAGE // max(2 * len(job.ranks), 1)
    for rank in job.ranks:
        for stream in ("out", "err"):
            lines = logs.lines(f"rank.{rank.rank}.{stream}", each)
            collapse.add_lines(rank.rank, [(0.0, stream, 0, line) for line in lines])
    return fold_groups(collapse)


def _last_words(job: Job, logs: Logs) -> dict[str, list[str]]:
    """Name -> its last lines: the rank that failed first, or those that may have, and the
    launchers.
    """
    first = job.first_failure
    files = {f"launcher on {node}": f"launcher.{node}" for node in job.nodes[:_LAUNCHERS]}
    suspects = first.suspects if first is not None else ()
    ranks = {one.who: f"rank.{one.rank}" for one in suspects if one.rank is not None}
    files = {**ranks, **files}
    found = {
        f"{who} ({stream})": logs.lines(f"{name}.{stream}", TAIL)[-_LAST:]
        for who, name in files.items()
        for stream in ("err", "out")
    }
    return {who: [line.decode("utf-8", "replace") for line in some] for who, some in found.items()}


def _texts(source: ReportSource, recording: Recording, secrets: Secrets) -> dict[str, str]:
    job = source.job
    lacks = [f"\nnot here: {n}: {why}" for n, why in recording.missing.items()]
    when = write_moment(time.time())
    version = rankdeck_agent.__version__
    notes = [{**value_table(note), "level": note.level.word} for note in job.node_notes]
    parts = {"phases": [value_table(p) for p in job_phases(job)], "node_notes": notes}
    state = {**value_table(job), "plan": None, **parts}
    events = (secrets.in_tree(_event(e)) for e in _events_in_order(source, recording))
    return {
        "README.txt": _README.format(
            job=job.id, version=version, when=when, missing=secrets.in_text("".join(lacks))
        ),
        "job.json": _json(secrets.in_tree(state)),
        "plan.json": _json(secrets.in_tree(value_table(job.plan))),
        "plan.txt": secrets.in_text(write_plan(job.plan)),
        "events.jsonl": "".join(json.dumps(event) + "\n" for event in events),
        "health.json": _json(secrets.in_tree(list(source.health))),
        "versions.json": _json(_versions(job)),
        **{
            f"blackbox.{node}.jsonl": secrets.in_text(
                b"\n".join(box.rows).decode("utf-8", "replace")
            )
            for node, box in source.boxes.items()
        },
    }


def _events_in_order(source: ReportSource, recording: Recording) -> list[NodeEvent]:
    """Events read from the nodes, or from the history for nodes that do not answer; by time."""
    recorded = {event.node for event in recording.events}
    kept = [event for event in source.events if event.node not in recorded]
    return sorted((*recording.events, *kept), key=lambda event: event.at)


def _event(event: NodeEvent) -> dict[str, Any]:
    return {**event.row(), "node": event.node, "at": event.at}


def _versions(job: Job) -> dict[str, str]:
    return {
        "rankdeck": rankdeck_agent.__version__,
        "python": platform.python_version(),
        "console": platform.platform(),
        "backend": job.plan.backend,
        "cluster": job.cluster,
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"
