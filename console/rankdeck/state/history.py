"""The history of jobs, in one SQLite file that all consoles of a
user share and that survives kill -9.
"""

import json
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from rankdeck.model.cancel_report import ProofState
from rankdeck.model.job import Job
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.json_values import fields_of, json_of, read_value
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.model.safe_text import strip_controls
from rankdeck.rules.job_versions import merge_versions
from rankdeck.state.database import Store
from rankdeck.state.node_event_log import NODE_SCHEMA, SharedEventLog
from rankdeck.values import Value, replace
from rankdeck_agent.wire.job_events import EventError, origin_of, parse_event

log = logging.getLogger(__name__)
_TURNS = """
CREATE TABLE IF NOT EXISTS turn (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS turn_of_job ON turn (job);
CREATE TRIGGER IF NOT EXISTS job_added AFTER INSERT ON job BEGIN
    DELETE FROM turn WHERE job = new.id;
    INSERT INTO turn (job) VALUES (new.id);
END;
CREATE TRIGGER IF NOT EXISTS job_changed AFTER UPDATE ON job BEGIN
    DELETE FROM turn WHERE job = new.id;
    INSERT INTO turn (job) VALUES (new.id);
END;
CREATE TRIGGER IF NOT EXISTS job_gone AFTER DELETE ON job BEGIN
    DELETE FROM turn WHERE job = old.id;
    INSERT INTO turn (job) VALUES (old.id);
END;
"""
"""Each write of a job's row takes the next number.

Triggers do this, so that it works for older consoles too.
"""
_MOST_NAMED = 8
KEEP_TURNS = 100_000
FORGET_TURNS = (
    "DELETE FROM turn WHERE number < (SELECT max(number) FROM turn) - ?"
    " AND job NOT IN (SELECT id FROM job)"
)
_PUT_EVENT = "INSERT OR REPLACE INTO event VALUES (?, ?, ?, ?, ?, ?)"
_PUT = (
    "INSERT INTO job VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " state = excluded.state, record = excluded.record"
)
_COLUMNS = "job.id, job.plan, job.record, job.created"
_APART = frozenset({"id", "cluster", "plan", "created", "countdown", "clock", "output_coming"})
"""Fields of a job that are not in its JSON: they have columns, or are
valid only in one console at the moment.
"""
VERSION = 1
KEEP = 500
"""Ended jobs kept per cluster; running jobs are always kept."""
KEEP_HEALTH = 200
"""Health records of its nodes that are kept per job."""
KEEP_EVENTS = 200_000
"""Most supervisor events of all jobs of a cluster; if there are
more, the oldest jobs are deleted.
"""
FIRST_BYTES = 4 << 20
"""Most bytes of events of one node of one job that are saved while the job runs."""
NEWEST_EVENTS = 200
"""Events of a node beyond FIRST_BYTES that are saved when the job has ended."""
MOST_BYTES = 256 << 20
"""Most bytes of the file: beyond this, the oldest ended jobs of the cluster are deleted."""
_LOOSE_BYTES = 16 << 20
"""Unused bytes from which on the file is written anew, if they are a quarter of it."""
SCHEMA = f"""
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
CREATE TABLE IF NOT EXISTS numbers (job TEXT NOT NULL, at REAL NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS numbers_of_job ON numbers (job, at);
{_TURNS}
{NODE_SCHEMA}
PRAGMA user_version = {VERSION};
"""


_LEAST = "SELECT max(number) FROM turn"
_FORGET = tuple(
    f"DELETE FROM {table} WHERE {key} = ?"
    for table, key in (("job", "id"), ("event", "job"), ("health", "job"), ("numbers", "job"))
)
_PRUNE_HEALTH = (
    "DELETE FROM health WHERE job = ? AND rowid <="
    " (SELECT rowid FROM health WHERE job = ? ORDER BY rowid DESC LIMIT 1 OFFSET ?)"
)
_FINAL = frozenset(state.value for state in State if state.final)
_EventRow = tuple[str, str, int | None, float, str, str]
"""(job, node, number, time, kind, fields) of an event."""
Complain = Callable[[str, str], None]
"""Called with (id of a job that cannot be read, why)."""


class HistoryState(Value):
    """What is wrong with the history; each field is one sentence, or ""."""

    trouble: str
    """Why it cannot be written now."""
    unread: str
    """Why something that is kept could not be read."""
    mended: str
    """What was repaired in the file, and what of it is lost."""


class WrittenJob(Value):
    """The last write of one row. `job` is None if the row was removed or is invalid."""

    number: int
    """The turn in which it was written."""
    id: str
    cluster: str
    """"" if the row was removed."""
    job: Job | None

    @property
    def gone(self) -> bool:
        """Whether the row was removed."""
        return not self.cluster


def put_job(database: sqlite3.Connection, job: Job) -> None:
    """Write the whole row of a job."""
    # Activity is not saved: it is not needed later.
    ranks = tuple(r if r.activity is None else replace(r, activity=None) for r in job.ranks)
    table = fields_of(replace(job, ranks=ranks))
    plan = json_of(table["plan"])
    record = json_of({k: v for k, v in table.items() if k not in _APART})
    row = (job.id, job.cluster, job.created, job.state.value, plan, record)
    database.execute(_PUT, row)


def turn_of(database: sqlite3.Connection, job: str) -> int | None:
    """The turn (a number that only grows) in which the job's row was
    last written; None if it never was.
    """
    found = database.execute("SELECT max(number) FROM turn WHERE job = ?", (job,))
    return found.fetchone()[0]


def newest_turn(database: sqlite3.Connection) -> int:
    """The turn of the newest write."""
    return database.execute("SELECT max(number) FROM turn").fetchone()[0] or 0


def read_job_row(database: sqlite3.Connection, job: str, complain: Complain) -> Job | None:
    """The job with this id; None if it has no row or an invalid one."""
    query = f"SELECT {_COLUMNS} FROM job WHERE id = ?"
    row = database.execute(query, (job,)).fetchone()
    return _job(row, complain) if row else None


def rows_since(
    database: sqlite3.Connection, number: int, complain: Complain
) -> tuple[WrittenJob, ...]:
    """The rows written after this turn, in the order of writing."""
    query = (
        f"SELECT turn.number, turn.job, job.cluster, {_COLUMNS} FROM turn"
        " LEFT JOIN job ON job.id = turn.job WHERE turn.number > ? ORDER BY turn.number"
    )
    return tuple(
        WrittenJob(turn, name, cluster or "", _job(row, complain) if cluster else None)
        for turn, name, cluster, *row in database.execute(query, (number,)).fetchall()
    )


def _job(row: Any, complain: Complain) -> Job | None:  # noqa: ANN401 - a row of SQLite
    name, plan_text, record_text, created = row
    try:
        plan, record = json.loads(plan_text), json.loads(record_text)
        apart = {"id": name, "cluster": plan["cluster"], "created": created}
        return _sane(read_value({**_migrated(record), **apart, "plan": plan}, Job))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        complain(str(name), str(error))
        return None


_OLD_PROOFS = (
    ("not verified: ", ProofState.UNVERIFIED),
    ("could not be ended: ", ProofState.LEFT),
    ("was asked again: nothing", ProofState.EMPTY),
)
"""How the sentences began in which an older version kept what a cancel had found."""


def _migrated(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a job as this version writes it: an older one kept
    facts as sentences (`troubles`).
    """
    if "troubles" not in record:
        return record
    notes: list[str] = []
    proofs: dict[str, Any] = {}
    for text in record["troubles"]:
        node, _, what = str(text).partition(": ")
        state = next((state for begin, state in _OLD_PROOFS if what.startswith(begin)), None)
        if state is None:
            notes.append(text)
        else:
            proofs[node] = {"state": state.value, "at": 0.0, "why": what.partition(": ")[2]}
    return {**record, "notes": notes, "proofs": proofs}


def _sane(job: Job) -> Job:
    """The job, after checking that its ranks are unique and on its nodes; raises ValueError."""
    nodes = {node.node for node in job.plan.nodes}
    ranks = {rank.rank for rank in job.ranks}
    if not all(job.plan.supervising_node(rank.node) in nodes for rank in job.ranks):
        raise ValueError("a rank is on none of its nodes")
    if len(ranks) != len(job.ranks):
        raise ValueError("a rank is there twice")
    return job


class History:
    """The history file of one user; several consoles may have it open at once."""

    def __init__(self, path: Path) -> None:
        self._store = Store(path, SCHEMA, VERSION, _LEAST)
        self._saved: dict[str, Job] = {}
        self._due: dict[str, Job] = {}
        """Jobs that could not be written when they were saved."""
        self._renewed = self._store.renewed
        self._turns: dict[str, int] = {}
        """Job -> the turn in which this console wrote its row, if it was the last to do so."""
        self._heard = newest_turn(self._store.database)
        self._version: object = None
        self._spent: dict[tuple[str, str], int] = {}
        """(job, node) -> bytes of its events in the file."""
        self._newest: dict[tuple[str, str], deque[_EventRow]] = {}
        """(job, node) -> the newest rows of one that has had its share."""
        self._odd: set[str] = set()
        """Jobs with a row that is not valid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def nodes_of(self, cluster: str) -> SharedEventLog:
        """The event log of this cluster's nodes, in the same file."""
        return SharedEventLog(self._store, cluster)

    @property
    def state(self) -> HistoryState:
        """What is wrong with the file."""
        some = ", ".join(sorted(self._odd)[:_MOST_NAMED])
        odd = f"{len(self._odd)} jobs in the history cannot be read: {some}" if some else ""
        unread = "; ".join(filter(None, (self._store.unread, odd)))
        return HistoryState(self._store.trouble, unread, self._store.mended)

    def save(self, job: Job) -> None:
        """Save the job as it is now; if writing fails, set `trouble`: `save_due` tries again.

        If another console wrote the job meanwhile, both versions are merged: see `merge_versions`.
        """
        if self._saved.get(job.id) is not job:
            self._due[job.id] = job
            self.save_due()
        if job.state.final:
            # The newest events of nodes that sent too many.
            for key in [key for key in self._newest if key[0] == job.id]:
                if self._store.put(_PUT_EVENT, list(self._newest[key])):
                    del self._newest[key]

    def save_due(self) -> None:
        """Write the jobs that could not be written before, and all again if
        another file took the place of ours.
        """
        if self._renewed != self._store.renewed:
            self._renewed = self._store.renewed
            self._due = {**self._saved, **self._due}
            self._turns.clear()
            self._heard, self._version = 0, None
        for job in list(self._due.values()):
            if not self._store.write(partial(self._put, job=job)):
                return
            self._saved[job.id] = self._due.pop(job.id)

    def _put(self, database: sqlite3.Connection, job: Job) -> None:
        """Write the row; if another console wrote it last, merge with its version."""
        # No other console may write between our read and our write.
        database.execute("BEGIN IMMEDIATE")
        turn = turn_of(database, job.id)
        kept = None
        if turn is not None and turn != self._turns.get(job.id):
            kept = read_job_row(database, job.id, self._complain)
        word = job if kept is None else merge_versions(job, kept)
        if word != kept:
            put_job(database, word)
        if word is job:
            # Nothing was merged: `news` need not return our own write.
            self._turns[job.id] = turn_of(database, job.id) or 0

    def plan(self, plan: Plan) -> None:
        """Save the plan as it was carried out, with its port; if writing
        fails, set `trouble` and go on.
        """
        self._store.put("UPDATE job SET plan = ? WHERE id = ?", [(json_of(plan), plan.job)])

    def knows(self, job: str) -> bool:
        """Whether there is a row for this job id, in any cluster."""
        return bool(self._store.rows("SELECT 1 FROM job WHERE id = ?", job))

    def add_events(self, events: Sequence[NodeEvent]) -> bool:
        """Save events of supervisors, each once; False if writing fails.

        Of a node that sends more than FIRST_BYTES for a job, the first are saved
        at once, and the newest when it ends.
        """
        first, beyond = list[_EventRow](), list[_EventRow]()
        for e in events:
            row = (e.job, e.node, e.seq, e.at, e.kind, json.dumps(e.row()))
            (beyond if self._is_beyond(row) else first).append(row)
        if first and not self._store.put(_PUT_EVENT, first):
            return False
        for row in first:
            self._spent[row[:2]] += len(row[-1])
        for row in beyond:
            if row[:2] not in self._newest:
                log.warning(
                    "%s sends more events than are kept: the first and the newest stay",
                    row[1],
                    extra={"source": row[0]},
                )
            self._newest.setdefault(row[:2], deque(maxlen=NEWEST_EVENTS)).append(row)
        return True

    def _is_beyond(self, row: _EventRow) -> bool:
        """Whether the node of this event has had its share of the file."""
        if row[:2] not in self._spent:
            query = "SELECT sum(length(fields)) FROM event WHERE job = ? AND node = ?"
            known = self._store.rows(query, *row[:2])
            self._spent[row[:2]] = (known[0][0] if known else 0) or 0
        return self._spent[row[:2]] > FIRST_BYTES

    def events(self, job: str, plan: Plan) -> tuple[NodeEvent, ...]:
        """The saved events of a job with this plan, oldest first, without
        those that its nodes may not send.
        """
        query = "SELECT node, at, fields FROM event WHERE job = ? ORDER BY at"
        origins = {node.node: origin_of(node, plan.backend) for node in plan.nodes}
        found: list[NodeEvent] = []
        for node, at, text in self._store.rows(query, job):
            row = self._table(job, text)
            if row is None or node not in origins:
                continue
            try:
                event = parse_event(row, origins[node])
            except EventError as error:
                self._complain(job, f"it has {error}")
                continue
            found.append(NodeEvent(job, node, at, event.body, event.seq, event.at - at))
        return tuple(found)

    def add_health(self, job: str, at: float, body: Mapping[str, Any]) -> None:
        """Save the health of a job's nodes at `at` (epoch seconds)."""
        rows = [(job, at, json.dumps(dict(body), default=str))]
        self._store.put("INSERT INTO health VALUES (?, ?, ?)", rows)
        self._store.put(_PRUNE_HEALTH, [(job, job, KEEP_HEALTH)])

    def health(self, job: str) -> tuple[dict[str, Any], ...]:
        """The health of a job's nodes at each change of its state,
        oldest first: `{at, turn, nodes}`.
        """
        return self._kept("health", job)

    def add_numbers(self, job: str, at: float, body: Mapping[str, Any]) -> None:
        """Save the numbers of a job's nodes at `at` (epoch seconds)."""
        self._store.put("INSERT INTO numbers VALUES (?, ?, ?)", [(job, at, json.dumps(dict(body)))])

    def numbers(self, job: str) -> tuple[dict[str, Any], ...]:
        """Numbers of a job's nodes while it ran, oldest first: `at` and the
        fields of `job_recorder.node_numbers`.
        """
        return self._kept("numbers", job)

    def _kept(self, table: str, job: str) -> tuple[dict[str, Any], ...]:
        rows = self._store.rows(f"SELECT at, body FROM {table} WHERE job = ? ORDER BY at", job)
        read = ((at, self._table(job, text)) for at, text in rows)
        return tuple({"at": at, **body} for at, body in read if body is not None)

    def _table(self, job: str, text: str) -> dict[str, Any] | None:
        """The JSON object in a column; None if it is invalid (invalid
        JSON is logged, once per job).
        """
        try:
            found = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            self._complain(job, str(error))
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def prune(self, cluster: str) -> None:
        """Delete the oldest ended jobs beyond KEEP, KEEP_EVENTS and
        MOST_BYTES, with everything saved for them.
        """
        query = (
            "SELECT id, state, (SELECT count(*) FROM event WHERE job = id) FROM job"
            " WHERE cluster = ? ORDER BY created DESC"
        )
        sizes = self._sizes_of(cluster)
        events, size, old = 0, 0, list[str]()
        for place, (job, state, count) in enumerate(self._store.rows(query, cluster)):
            events, size = events + count, size + sizes.get(job, 0)
            many = place >= KEEP or (place and (events > KEEP_EVENTS or size > MOST_BYTES))
            if many and state in _FINAL:
                old.append(job)
        self.forget(*old)
        self._store.put(FORGET_TURNS, [(KEEP_TURNS,)])
        self._store.shrink(_LOOSE_BYTES)

    def _sizes_of(self, cluster: str) -> dict[str, int]:
        """Job -> length of what is saved of it; {} while all of the file is below
        MOST_BYTES: each command would read it all.
        """
        whole, free = self._store.sizes()
        if whole - free <= MOST_BYTES:
            return {}
        query = (
            "SELECT id, coalesce(sum(length(fields)), 0) + length(plan) + length(record)"
            " FROM job LEFT JOIN event ON event.job = id WHERE cluster = ? GROUP BY id"
        )
        return dict(self._store.rows(query, cluster))

    def forget(self, *jobs: str) -> None:
        """Delete these jobs with everything saved for them."""
        for statement in _FORGET if jobs else ():
            self._store.put(statement, [(job,) for job in jobs])
        for job in jobs:
            self._saved.pop(job, None)
            self._due.pop(job, None)

    def load(self, cluster: str) -> tuple[Job, ...]:
        """The newest jobs of this cluster, newest first, without invalid rows."""
        query = f"SELECT {_COLUMNS} FROM job WHERE cluster = ? ORDER BY created DESC LIMIT ?"
        found = (_job(row, self._complain) for row in self._store.rows(query, cluster, KEEP))
        return tuple(job for job in found if job is not None)

    def names(self, cluster: str, most: int) -> tuple[str, ...]:
        """The ids of the newest jobs of this cluster, newest first."""
        query = "SELECT id FROM job WHERE cluster = ? ORDER BY created DESC LIMIT ?"
        return tuple(name for (name,) in self._store.rows(query, cluster, most))

    def news(self, cluster: str) -> tuple[WrittenJob, ...]:
        """What other consoles wrote about this cluster's jobs since the last call, each job once.

        Takes only some microseconds while no other console writes.
        """
        self.save_due()
        version = self._store.rows("PRAGMA data_version")
        if version == self._version:
            return ()
        turns = self._store.read(lambda base: rows_since(base, self._heard, self._complain), None)
        if turns is None:
            return ()
        self._version = version
        self._heard = max((turn.number for turn in turns), default=self._heard)
        return tuple(
            turn
            for turn in turns
            if turn.cluster in (cluster, "") and turn.number != self._turns.get(turn.id)
        )

    def last_seen(self, job: str) -> dict[str, int]:
        """Node -> number of the last saved event of a job."""
        rows = self._store.rows("SELECT node, max(seq) FROM event WHERE job = ? GROUP BY node", job)
        return dict(rows)

    def _complain(self, job: str, why: str) -> None:
        """Log once per job that a row is invalid."""
        if job not in self._odd:
            self._odd.add(strip_controls(job)[:100])
            log.warning("job %s in the history cannot be read: %s", job[:80], why)
