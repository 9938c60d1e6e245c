"""Writes all about one job into an archive to attach to a ticket, or onto one page, with secrets masked."""

import asyncio
import json
import os
import platform
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import rankdeck_agent
from rankdeck.backends.base import Backend
from rankdeck.backends.plans import render
from rankdeck.backends.remote_log import Recording, record
from rankdeck.config.files import write_private
from rankdeck.errors import RankdeckError
from rankdeck.logs.collapse import Collapse, Folded, folded
from rankdeck.model.job import Chunk, Followed, Job, NodeEvent
from rankdeck.prometheus.site_past import JobNumbers, SitePast
from rankdeck.reports.job_page import HEARD, JobPage, job_page, moment
from rankdeck.rules.progress import phases
from rankdeck.rules.secrets import KEY_BEGINS, KEY_ENDS, Secrets
from rankdeck.state.fleet import Fleet
from rankdeck.state.history import History, read
from rankdeck.state.job_recorder import chosen, node_health, troubled_nodes
from rankdeck.state.lines import RankLog
from rankdeck_agent.wire import LAUNCHER

TAIL = 1 << 20
"""Bytes from the end of each log."""
MOST_ON_PAGE = 64 << 20
"""Bytes of the logs of all ranks that the page is made of."""
_LAST = 200
"""Lines of the culprit and of each launcher."""
_LAUNCHERS = 8
_LONGEST_KEY = 1 << 16
_README = """Report of job {job} by Rankdeck {version}, {when}.

job.json     state, ranks, first failure, stalls, progress, phases, what its nodes said
plan.json    every file and every command, per node (secrets masked)
plan.txt     the same, as a shell would take it
events.jsonl what the supervisors of the nodes recorded, on the console's clock
health.json  how the nodes were at each turn of the job, and now
versions.json
report.html  what matters of it on one page; opens in any browser, needs no network
logs/        the end of what each rank and launcher wrote{missing}
"""


@dataclass(frozen=True, slots=True)
class ReportSource:
    """What goes into a report."""

    job: Job
    events: Sequence[NodeEvent]
    """From the history: used for nodes that do not answer."""
    health: Sequence[Mapping[str, Any]]
    environment: Mapping[str, str]
    """Of the cluster file."""
    numbers: JobNumbers = JobNumbers()  # noqa: RUF009 - it is frozen
    """Of its nodes while it ran; without a source they are what consoles heard."""


async def report_source(
    job: Job, history: History, fleet: Fleet, past: SitePast, environment: Mapping[str, str]
) -> ReportSource:
    """All that is known now; the site's metrics are asked where there are some."""
    now = time.time()
    nodes = chosen(job.nodes, troubled_nodes(job))
    numbers = await past.of_job(nodes, job.created, job.ended or now, len(job.nodes))
    turn = {"at": now, "turn": "now", "nodes": node_health(fleet, job)}
    return ReportSource(
        job,
        history.events(job.id),
        [*history.health(job.id), turn],
        environment,
        numbers if numbers.rows else replace(numbers, rows=history.numbers(job.id)),
    )


async def write_report(
    backend: Backend, source: ReportSource, path: Path, backlog: int | None = TAIL
) -> Recording:
    """Write the archive (.tar.gz, readable by its owner only); raises RankdeckError."""
    return await _write(backend, source, path, backlog, pack)


async def write_page(backend: Backend, source: ReportSource, path: Path) -> Recording:
    """Write the page (HTML, readable by its owner only); raises RankdeckError."""
    each = min(TAIL, MOST_ON_PAGE // max(2 * len(source.job.ranks), 1))
    return await _write(backend, source, path, each, write_html)


async def _write(
    backend: Backend,
    source: ReportSource,
    path: Path,
    backlog: int | None,
    make: "Callable[[ReportSource, Recording, Logs, Path], None]",
) -> Recording:
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".report-") as name:
            logs = Logs(Path(name))
            recording = await record(backend, source.job, logs.take, backlog)
            await asyncio.to_thread(make, source, recording, logs, path)
    except OSError as error:
        raise RankdeckError(f"{path}: cannot be written: {error.strerror or error}") from error
    return recording


class Logs:
    """What ranks wrote, one file per stream, as it comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ends: set[str] = set()
        """Names of the files that are the end of what was written, and not all of it."""

    def take(self, item: Followed) -> None:
        if isinstance(item, Chunk):
            who = f"launcher.{item.node}" if item.rank == LAUNCHER else f"rank.{item.rank}"
            path = self.folder / f"{who}.{item.stream}"
            if item.offset and not path.exists():
                self._ends.add(path.name)
            with path.open("ab") as file:
                file.write(item.data)

    def lines(self, name: str, most: int) -> list[bytes]:
        """The whole lines in the last `most` bytes of a file; none if there is no such file."""
        path = self.folder / name
        if not path.is_file():
            return []
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - most, 0))
            lines = file.read(most).splitlines()
        return lines[1:] if size > most else lines

    def mask(self, secrets: Secrets) -> list[Path]:
        """The files, without secrets."""
        for path in sorted(self.folder.iterdir()):
            clean = path.with_suffix(path.suffix + ".clean")
            with path.open("rb") as raw, clean.open("wb") as file:
                lines = _whole(raw) if path.name in self._ends else raw
                file.writelines(map(secrets.in_bytes, _pieces(lines)))
            clean.replace(path)
        return sorted(self.folder.iterdir())


_OF_A_KEY = re.compile(rb"[A-Za-z0-9+/=]{1,80}\s*\Z")


def _whole(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of the end of a log, without what may be the rest of a secret in a cut line or private key."""
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
    """Lines; a private key, which has many, as one."""
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
    """All that is secret in the plan, the job file and the cluster file."""
    plan = source.job.plan
    tables = [source.environment, *(node.env for node in plan.nodes)]
    tables += [process.env for node in plan.nodes for process in node.processes]
    texts = [file.text for node in plan.nodes for file in node.files]
    if plan.spec:
        tables.append(plan.spec.env)
        texts += plan.spec.files.values()
    return Secrets(tables, texts)


def pack(source: ReportSource, recording: Recording, logs: Logs, path: Path) -> None:
    """Write what was read into the archive, masked; raises OSError."""
    secrets = secrets_of(source)
    files = logs.mask(secrets)
    texts = _texts(source, recording, secrets)
    texts["report.html"] = job_page(_page(source, recording, logs, secrets))
    folder = logs.folder / "texts"
    folder.mkdir()
    part = logs.folder / "archive"
    part.touch(mode=0o600)
    with tarfile.open(part, "w:gz") as archive:
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
            archive.add(folder / name, f"{source.job.id}/{name}")
        for file in files:
            archive.add(file, f"{source.job.id}/logs/{file.name}")
    part.replace(path)


def write_html(source: ReportSource, recording: Recording, logs: Logs, path: Path) -> None:
    """Write what was read as a page, masked; raises OSError."""
    secrets = secrets_of(source)
    logs.mask(secrets)
    part = logs.folder / "page"
    write_private(part, job_page(_page(source, recording, logs, secrets)))
    part.replace(path)


def _page(source: ReportSource, recording: Recording, logs: Logs, secrets: Secrets) -> JobPage:
    """The page's value; `logs` are masked already."""
    ranks = tuple(replace(rank, activity=None) for rank in source.job.ranks)
    # Masked as a tree, so that no field of a job is ever forgotten.
    job = read(Job, secrets.in_tree(asdict(replace(source.job, ranks=ranks))))
    return JobPage(
        job=job,
        now=time.time(),
        numbers=source.numbers.rows,
        source=source.numbers.source or HEARD,
        gap=source.numbers.gap,
        trouble=source.numbers.trouble,
        output=_collapsed(job, logs),
        last=_last_words(job, logs),
        missing=secrets.in_tree(dict(recording.missing)),
    )


def _collapsed(job: Job, logs: Logs) -> list[Folded]:
    """What the ranks wrote, equal lines once."""
    collapse = Collapse({rank.rank: RankLog(rank.rank) for rank in job.ranks})
    each = MOST_ON_PAGE // max(2 * len(job.ranks), 1)
    for rank in job.ranks:
        for stream in ("out", "err"):
            for line in logs.lines(f"rank.{rank.rank}.{stream}", each):
                collapse.add(rank.rank, 0.0, stream, line)
    return folded(collapse)


def _last_words(job: Job, logs: Logs) -> dict[str, list[str]]:
    """Who -> the end of what it wrote: the rank that failed first, and the launchers."""
    first = job.first_failure
    files = {f"launcher on {node}": f"launcher.{node}" for node in job.nodes[:_LAUNCHERS]}
    if first is not None and first.rank is not None:
        files = {f"rank {first.rank} on {first.node}": f"rank.{first.rank}", **files}
    found = {
        f"{who} ({stream})": logs.lines(f"{name}.{stream}", TAIL)[-_LAST:]
        for who, name in files.items()
        for stream in ("err", "out")
    }
    return {who: [line.decode("utf-8", "replace") for line in some] for who, some in found.items()}


def _texts(source: ReportSource, recording: Recording, secrets: Secrets) -> dict[str, str]:
    job = source.job
    lacks = [f"\nnot here: {n}: {why}" for n, why in recording.missing.items()]
    when = moment(time.time())
    version = rankdeck_agent.__version__
    notes = [{**asdict(note), "level": note.level.word} for note in job.node_notes]
    parts = {"phases": [asdict(p) for p in phases(job)], "node_notes": notes}
    state = {**asdict(job), "plan": None, **parts}
    events = (secrets.in_tree(_event(e)) for e in _events(source, recording))
    return {
        "README.txt": _README.format(
            job=job.id, version=version, when=when, missing=secrets.in_text("".join(lacks))
        ),
        "job.json": _json(secrets.in_tree(state)),
        "plan.json": _json(secrets.in_tree(asdict(job.plan))),
        "plan.txt": secrets.in_text(render(job.plan)),
        "events.jsonl": "".join(json.dumps(event) + "\n" for event in events),
        "health.json": _json(secrets.in_tree(list(source.health))),
        "versions.json": _json(_versions(job)),
    }


def _events(source: ReportSource, recording: Recording) -> list[NodeEvent]:
    """Events from the nodes; for nodes that do not answer, those of the history."""
    told = {event.node for event in recording.events}
    kept = [event for event in source.events if event.node not in told]
    return sorted((*recording.events, *kept), key=lambda event: event.at)


def _event(event: NodeEvent) -> dict[str, Any]:
    return {**event.fields, "node": event.node, "kind": event.kind, "at": event.at}


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
