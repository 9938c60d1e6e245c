"""Jobs of earlier sessions, in one SQLite file that survives a kill -9 at any time."""

import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rankdeck.model.insight import Explained, Progress
from rankdeck.model.job import (
    Abort,
    Container,
    FirstFailure,
    Job,
    JobSpec,
    Launch,
    MpiOptions,
    NodeEvent,
    Plan,
    RankState,
    State,
    TorchOptions,
)
from rankdeck.state import eventlog
from rankdeck_agent.wire import WireError, node_plan

log = logging.getLogger(__name__)
VERSION = 1
KEEP = 500
"""Jobs kept per cluster; running ones always."""
KEEP_HEALTH = 200
"""Pictures of the health of its nodes that are kept of a job."""
KEEP_EVENTS = 200_000
"""What supervisors recorded, of all jobs of a cluster: the oldest jobs lose theirs first."""
_BUSY_LIMIT = 5.0
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS job (
    id TEXT PRIMARY KEY, cluster TEXT NOT NULL, created REAL NOT NULL,
    state TEXT NOT NULL, plan TEXT NOT NULL, record TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_of_cluster ON job (cluster, created);
CREATE TABLE IF NOT EXISTS event (
    job TEXT NOT NULL, node TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL,
    kind TEXT NOT NULL, fields TEXT NOT NULL, PRIMARY KEY (job, node, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS health (job TEXT NOT NULL, at REAL NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS health_of_job ON health (job, at);
{eventlog.SCHEMA}
PRAGMA user_version = {VERSION};
"""


_FORGET = tuple(
    f"DELETE FROM {table} WHERE {key} = ?"
    for table, key in (("job", "id"), ("event", "job"), ("health", "job"))
)
_PRUNE_HEALTH = (
    "DELETE FROM health WHERE job = ? AND rowid <="
    " (SELECT rowid FROM health WHERE job = ? ORDER BY rowid DESC LIMIT 1 OFFSET ?)"
)
_FINAL = frozenset(state.value for state in State if state.final)


class History:
    """The file of one user; several consoles may have it open at once."""

    def __init__(self, path: Path) -> None:
        self._database = _open(path)
        self._saved: dict[str, Job] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def nodes_of(self, cluster: str) -> eventlog.EventLog:
        """What happened on the nodes of this cluster, in the same file."""
        return eventlog.EventLog(self._database, cluster)

    def save(self, job: Job) -> None:
        """Keep the job as it is now; where the disk refuses, say so and go on."""
        if self._saved.get(job.id) is job:
            return
        self._saved[job.id] = job
        row = (job.id, job.cluster, job.created, job.state.value)
        try:
            with self._database:
                self._database.execute(
                    "INSERT INTO job VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                    " state = excluded.state, record = excluded.record",
                    (*row, json.dumps(asdict(job.plan)), json.dumps(_record(job))),
                )
        except sqlite3.Error as error:
            log.warning("the history of jobs cannot be written: %s", error)

    def add_events(self, events: Sequence[NodeEvent]) -> None:
        """Keep what supervisors recorded, each event once."""
        rows = [
            (e.job, e.node, e.fields["seq"], e.at, e.kind, json.dumps(dict(e.fields)))
            for e in events
        ]
        if rows:
            self._write("INSERT OR REPLACE INTO event VALUES (?, ?, ?, ?, ?, ?)", rows)

    def events(self, job: str) -> tuple[NodeEvent, ...]:
        """What was kept of a job, by time."""
        query = "SELECT node, kind, at, fields FROM event WHERE job = ? ORDER BY at"
        rows = self._read(query, job)
        return tuple(
            NodeEvent(job, node, kind, at, json.loads(fields))
            for node, kind, at, fields in rows
        )

    def add_health(self, job: str, at: float, body: Mapping[str, Any]) -> None:
        """Keep how the nodes of a job were."""
        rows = [(job, at, json.dumps(dict(body), default=str))]
        self._write("INSERT INTO health VALUES (?, ?, ?)", rows)
        self._write(_PRUNE_HEALTH, [(job, job, KEEP_HEALTH)])

    def health(self, job: str) -> tuple[dict[str, Any], ...]:
        """How its nodes were at each turn of a job: `{at, turn, nodes}`."""
        rows = self._read("SELECT at, body FROM health WHERE job = ? ORDER BY at", job)
        return tuple({"at": at, **json.loads(body)} for at, body in rows)

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        try:
            with self._database:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            log.warning("the history of jobs cannot be written: %s", error)

    def _read(self, query: str, job: str) -> list[Any]:
        try:
            return self._database.execute(query, (job,)).fetchall()
        except sqlite3.Error as error:
            log.warning("the history of jobs cannot be read: %s", error)
            return []

    def prune(self, cluster: str) -> None:
        """Forget jobs that ended long ago, with all that was kept of them."""
        query = (
            "SELECT id, state, (SELECT count(*) FROM event WHERE job = id) FROM job"
            " WHERE cluster = ? ORDER BY created DESC"
        )
        events, old = 0, list[tuple[str]]()
        for place, (job, state, count) in enumerate(self._read(query, cluster)):
            events += count
            final = state in _FINAL
            if final and (place >= KEEP or (events > KEEP_EVENTS and place)):
                old.append((job,))
        for statement in _FORGET if old else ():
            self._write(statement, old)

    def load(self, cluster: str) -> tuple[Job, ...]:
        """The newest jobs of this cluster, newest first; rows that make no sense left out."""
        query = "SELECT plan, record, created FROM job WHERE cluster = ? ORDER BY created DESC LIMIT ?"
        try:
            rows = self._database.execute(query, (cluster, KEEP)).fetchall()
        except sqlite3.Error as error:
            log.warning("the history of jobs cannot be read: %s", error)
            return ()
        return tuple(job for row in rows if (job := _job(*row)) is not None)


def _open(path: Path) -> sqlite3.Connection:
    """The database; one that is broken or of another version is set aside, never deleted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _connect(path)
    except sqlite3.OperationalError as error:
        log.warning("%s cannot be opened (%s): jobs are not remembered", path, error)
        return _connect(Path(":memory:"))
    except sqlite3.DatabaseError as error:
        aside = _set_aside(path)
        log.warning("%s is not usable (%s); moved to %s", path, error, aside.name)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_BUSY_LIMIT)
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"version {version}, not {VERSION}")
        database.executescript(_SCHEMA)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.old{number}")).exists():
        number += 1
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside


def _record(job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "state": job.state.value,
        "ranks": [asdict(rank) for rank in job.ranks],
        "ended": job.ended,
        "exit_code": job.exit_code,
        "first_failure": asdict(job.first_failure) if job.first_failure else None,
        "troubles": list(job.troubles),
        "explained": [asdict(one) for one in job.explained],
        "progress": asdict(job.progress) if job.progress else None,
        "marks": dict(job.marks),
    }


def _job(plan_text: str, record_text: str, created: float) -> Job | None:
    try:
        plan = _plan(json.loads(plan_text))
        record = json.loads(record_text)
        return Job(
            id=plan.job,
            name=record["name"],
            cluster=plan.cluster,
            plan=plan,
            state=State(record["state"]),
            ranks=tuple(_rank(rank) for rank in record["ranks"]),
            created=created,
            ended=record["ended"],
            exit_code=record["exit_code"],
            first_failure=_failure(record["first_failure"]),
            troubles=tuple(record["troubles"]),
            explained=_explained(record.get("explained", ())),
            progress=_progress(record.get("progress")),
            marks=dict(record.get("marks", {})),
        )
    except (ValueError, TypeError, KeyError, WireError) as error:
        log.warning("a job in the history cannot be read: %s", error)
        return None


def _plan(raw: dict[str, Any]) -> Plan:
    raw["nodes"] = tuple(node_plan(node) for node in raw["nodes"])
    raw["abort"] = Abort(**raw["abort"])
    raw["spec"] = _spec(raw.get("spec"))
    return Plan(**raw)


def _spec(raw: dict[str, Any] | None) -> JobSpec | None:
    """The job file as it was launched; tuples come out of JSON as lists."""
    if raw is None:
        return None
    parts = {
        "container": Container,
        "mpi": MpiOptions,
        "torch": TorchOptions,
        "abort": Abort,
    }
    for key, make in parts.items():
        if raw[key] is not None:
            raw[key] = make(**_tuples(raw[key]))
    return JobSpec(**_tuples({**raw, "launch": Launch(raw["launch"])}))


def _tuples(raw: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _explained(raw: Iterable[dict[str, str]]) -> tuple[Explained, ...]:
    return tuple(Explained(**one) for one in raw)


def _progress(raw: dict[str, Any] | None) -> Progress | None:
    if raw is None:
        return None
    raw["series"] = _tuples(raw["series"])
    return Progress(**raw)


def _rank(raw: dict[str, Any]) -> RankState:
    raw["state"] = State(raw["state"])
    return RankState(**raw)


def _failure(raw: dict[str, Any] | None) -> FirstFailure | None:
    if raw is None:
        return None
    raw["explained"] = _explained(raw.get("explained", ()))
    return FirstFailure(**_tuples(raw))
