"""Jobs of earlier sessions, in one SQLite file that survives a kill -9 at any time."""

import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rankdeck.model.job import Job, NodeEvent, Plan, State
from rankdeck.rules.lastword import last_word
from rankdeck.state import eventlog, jobrows
from rankdeck.state.jobrows import Turn
from rankdeck.state.store import Store

log = logging.getLogger(__name__)
VERSION = 1
KEEP = 500
"""Jobs kept per cluster; running ones always."""
KEEP_HEALTH = 200
"""Pictures of the health of its nodes that are kept of a job."""
KEEP_EVENTS = 200_000
"""What supervisors recorded, of all jobs of a cluster: the oldest jobs lose theirs first."""
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
{jobrows.SCHEMA}
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
        self._store = Store(path, _SCHEMA, VERSION)
        self._saved: dict[str, Job] = {}
        self._turns: dict[str, int] = {}
        """Job -> the turn in which this console wrote its row, if it was the last to do so."""
        self._heard = jobrows.newest_turn(self._store.database)
        self._version: object = None
        self._odd: set[str] = set()
        """Jobs whose row makes no sense, as was said."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.close()

    def nodes_of(self, cluster: str) -> eventlog.EventLog:
        """What happened on the nodes of this cluster, in the same file."""
        return eventlog.EventLog(self._store, cluster)

    @property
    def trouble(self) -> str:
        """Why nothing can be kept now, as a sentence; "" where it can."""
        return self._store.trouble

    def save(self, job: Job) -> None:
        """Keep the job as it is now; where the disk refuses, say so and go on.

        What another console wrote of it meanwhile is not lost: see `rules.lastword`.
        """
        if self._saved.get(job.id) is job:
            return
        if self._store.write(lambda database: self._put(database, job)):
            self._saved[job.id] = job

    def _put(self, database: sqlite3.Connection, job: Job) -> None:
        """Write the row; where another console wrote it last, what both know."""
        # Two consoles that follow one job must not write between our look and our word.
        database.execute("BEGIN IMMEDIATE")
        turn = jobrows.turn_of(database, job.id)
        kept = None
        if turn is not None and turn != self._turns.get(job.id):
            kept = jobrows.one(database, job.id, self._complain)
        word = job if kept is None else last_word(job, kept)
        if word != kept:
            jobrows.put(database, word)
        if word is job:
            # Ours alone: `news` need not tell it to us.
            self._turns[job.id] = jobrows.turn_of(database, job.id) or 0

    def plan(self, plan: Plan) -> None:
        """Keep the plan of a job as it was carried out; where the disk refuses, say so and go on."""
        self._store.write(lambda database: jobrows.put_plan(database, plan))

    def knows(self, job: str) -> bool:
        """Whether there is a row of this job, of any cluster."""
        return bool(self._read("SELECT 1 FROM job WHERE id = ?", job))

    def add_events(self, events: Sequence[NodeEvent]) -> bool:
        """Keep what supervisors recorded, each event once; False where the disk refuses."""
        rows = [
            (e.job, e.node, e.fields["seq"], e.at, e.kind, json.dumps(dict(e.fields)))
            for e in events
        ]
        put = "INSERT OR REPLACE INTO event VALUES (?, ?, ?, ?, ?, ?)"
        return not rows or self._write(put, rows)

    def events(self, job: str) -> tuple[NodeEvent, ...]:
        """What was kept of a job, by time."""
        query = "SELECT node, kind, at, fields FROM event WHERE job = ? ORDER BY at"
        rows = self._read(query, job)
        return tuple(
            NodeEvent(job, node, kind, at, json.loads(fields)) for node, kind, at, fields in rows
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

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> bool:
        return self._store.write(lambda database: database.executemany(statement, rows))

    def _read(self, query: str, job: str) -> list[Any]:
        try:
            return self._store.database.execute(query, (job,)).fetchall()
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
        self._write(jobrows.FORGET_TURNS, [(jobrows.KEEP_TURNS,)])

    def load(self, cluster: str) -> tuple[Job, ...]:
        """The newest jobs of this cluster, newest first; rows that make no sense left out."""
        try:
            database = self._store.database
            found = tuple(jobrows.newest(database, cluster, KEEP, self._complain))
        except sqlite3.Error as error:
            log.warning("the history of jobs cannot be read: %s", error)
            return ()
        return found

    def news(self, cluster: str) -> tuple[Turn, ...]:
        """What other consoles wrote of this cluster's jobs since the last call, each job once.

        Costs one question of some microseconds while nobody writes.
        """
        try:
            database = self._store.database
            version = database.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return ()
            turns = jobrows.since(database, self._heard, self._complain)
        except sqlite3.Error as error:
            log.warning("the history of jobs cannot be read: %s", error)
            return ()
        self._version = version
        self._heard = max((turn.number for turn in turns), default=self._heard)
        return tuple(
            turn
            for turn in turns
            if turn.cluster in (cluster, "") and turn.number != self._turns.get(turn.id)
        )

    def last_seen(self, job: str) -> dict[str, int]:
        """Per node the number of the last event that is kept of a job."""
        rows = self._read("SELECT node, max(seq) FROM event WHERE job = ? GROUP BY node", job)
        return dict(rows)

    def _complain(self, job: str, why: str) -> None:
        """Say once that a row is of no use."""
        if job not in self._odd:
            self._odd.add(job)
            log.warning("job %s in the history cannot be read: %s", job[:80], why)
