"""Everything about one job in one archive, to attach to a ticket; no secrets in it."""

import asyncio
import json
import platform
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rankdeck_agent
from rankdeck.backends.base import Backend
from rankdeck.backends.plans import render
from rankdeck.backends.recording import Recording, record
from rankdeck.errors import RankdeckError
from rankdeck.model.job import Chunk, Followed, Job, NodeEvent
from rankdeck.rules.progress import phases
from rankdeck.rules.secrets import KEY_BEGINS, KEY_ENDS, Secrets
from rankdeck_agent.wire import LAUNCHER

TAIL = 1 << 20
"""Bytes from the end of each log."""
_LONGEST_KEY = 1 << 16
_README = """Report of job {job} by Rankdeck {version}, {when}.

job.json     state, ranks, first failure, stalls, progress, phases, what its nodes said
plan.json    every file and every command, per node (secrets masked)
plan.txt     the same, as a shell would take it
events.jsonl what the supervisors of the nodes recorded, on the console's clock
health.json  how the nodes were at each turn of the job, and now
versions.json
logs/        the end of what each rank and launcher wrote{missing}
"""


@dataclass(frozen=True, slots=True)
class ReportSource:
    """What is known of the job besides its logs."""

    job: Job
    events: Sequence[NodeEvent]
    """From the history: used for nodes that do not answer."""
    health: Sequence[Mapping[str, Any]]
    environment: Mapping[str, str]
    """Of the cluster file."""


async def write_report(
    backend: Backend, source: ReportSource, path: Path, backlog: int | None = TAIL
) -> Recording:
    """Write the archive (.tar.gz, readable by its owner only); raises RankdeckError."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".report-") as name:
            logs = Logs(Path(name))
            recording = await record(backend, source.job, logs.take, backlog)
            await asyncio.to_thread(pack, source, recording, logs, path)
    except OSError as error:
        raise RankdeckError(f"{path}: cannot be written: {error.strerror or error}") from error
    return recording


class Logs:
    """What ranks wrote, one file per stream, as it comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, item: Followed) -> None:
        if isinstance(item, Chunk):
            who = f"launcher.{item.node}" if item.rank == LAUNCHER else f"rank.{item.rank}"
            with (self.folder / f"{who}.{item.stream}").open("ab") as file:
                file.write(item.data)

    def mask(self, secrets: Secrets) -> list[Path]:
        """The files, without secrets."""
        for path in sorted(self.folder.iterdir()):
            clean = path.with_suffix(path.suffix + ".clean")
            with path.open("rb") as raw, clean.open("wb") as file:
                file.writelines(map(secrets.in_bytes, _pieces(raw)))
            clean.replace(path)
        return sorted(self.folder.iterdir())


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines; a private key, which has many, in one piece."""
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


def _texts(source: ReportSource, recording: Recording, secrets: Secrets) -> dict[str, str]:
    job = source.job
    lacks = [f"\nnot here: {n}: {why}" for n, why in recording.missing.items()]
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    version = rankdeck_agent.__version__
    notes = [{**asdict(note), "level": note.level.word} for note in job.node_notes]
    parts = {"phases": [asdict(p) for p in phases(job)], "node_notes": notes}
    state = {**asdict(job), "plan": None, **parts}
    events = (secrets.in_tree(_event(e)) for e in _events(source, recording))
    return {
        "README.txt": _README.format(
            job=job.id,
            version=version,
            when=when,
            missing=secrets.in_text("".join(lacks)),
        ),
        "job.json": _json(secrets.in_tree(state)),
        "plan.json": _json(secrets.in_tree(asdict(job.plan))),
        "plan.txt": secrets.in_text(render(job.plan)),
        "events.jsonl": "".join(json.dumps(event) + "\n" for event in events),
        "health.json": _json(secrets.in_tree(list(source.health))),
        "versions.json": _json(_versions(job)),
    }


def _events(source: ReportSource, recording: Recording) -> list[NodeEvent]:
    """What the nodes say now; of those that say nothing what was kept."""
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
