"""The rows of jobs in the console's SQLite file, and in which order consoles wrote them."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from rankdeck.model.job import Job, Plan
from rankdeck.state.saved import read

SCHEMA = """
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
"""Each write of a row takes the next number: triggers, so that consoles older than this table count too."""
KEEP_TURNS = 100_000
FORGET_TURNS = (
    "DELETE FROM turn WHERE number < (SELECT max(number) FROM turn) - ?"
    " AND job NOT IN (SELECT id FROM job)"
)
_PUT = (
    "INSERT INTO job VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " state = excluded.state, record = excluded.record"
)
_PLAN = "UPDATE job SET plan = ? WHERE id = ?"
_COLUMNS = "job.id, job.plan, job.record, job.created"
_APART = frozenset({"id", "cluster", "plan", "created", "countdown", "clock", "output_coming"})
"""In columns of their own, or true of one console at one moment only."""

Complain = Callable[[str, str], None]
"""Told which job cannot be read, and why."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One row as it was written last. `job` None: removed, or of no use."""

    number: int
    id: str
    cluster: str
    """Empty where the row is gone."""
    job: Job | None

    @property
    def gone(self) -> bool:
        return not self.cluster


def put(database: sqlite3.Connection, job: Job) -> None:
    """Write the row of a job."""
    # What a rank did a moment ago is of no use later.
    table = asdict(replace(job, ranks=tuple(replace(r, activity=None) for r in job.ranks)))
    plan = json.dumps(table["plan"])
    record = json.dumps({k: v for k, v in table.items() if k not in _APART})
    row = (job.id, job.cluster, job.created, job.state.value, plan, record)
    database.execute(_PUT, row)


def put_plan(database: sqlite3.Connection, plan: Plan) -> None:
    """Write the plan alone: a row is first written before it is carried out."""
    database.execute(_PLAN, (json.dumps(asdict(plan)), plan.job))


def turn_of(database: sqlite3.Connection, job: str) -> int | None:
    """When the row was written last, as a number that only grows; None where there is none."""
    found = database.execute("SELECT max(number) FROM turn WHERE job = ?", (job,))
    return found.fetchone()[0]


def newest_turn(database: sqlite3.Connection) -> int:
    """The number of the last write of all."""
    return database.execute("SELECT max(number) FROM turn").fetchone()[0] or 0


def one(database: sqlite3.Connection, job: str, complain: Complain) -> Job | None:
    """The job as it is kept; None where it is not, or makes no sense."""
    query = f"SELECT {_COLUMNS} FROM job WHERE id = ?"
    row = database.execute(query, (job,)).fetchone()
    return _job(row, complain) if row else None


def newest(
    database: sqlite3.Connection, cluster: str, most: int, complain: Complain
) -> Iterator[Job]:
    """The jobs of a cluster, newest first."""
    query = f"SELECT {_COLUMNS} FROM job WHERE cluster = ? ORDER BY created DESC LIMIT ?"
    for row in database.execute(query, (cluster, most)).fetchall():
        if (job := _job(row, complain)) is not None:
            yield job


def since(database: sqlite3.Connection, number: int, complain: Complain) -> tuple[Turn, ...]:
    """Every row that was written after this turn, in the order of writing."""
    query = (
        f"SELECT turn.number, turn.job, job.cluster, {_COLUMNS} FROM turn"
        " LEFT JOIN job ON job.id = turn.job WHERE turn.number > ? ORDER BY turn.number"
    )
    return tuple(
        Turn(turn, name, cluster or "", _job(row, complain) if cluster else None)
        for turn, name, cluster, *row in database.execute(query, (number,)).fetchall()
    )


def _job(row: Any, complain: Complain) -> Job | None:  # noqa: ANN401 - a row of SQLite
    name, plan_text, record_text, created = row
    try:
        plan, record = json.loads(plan_text), json.loads(record_text)
        apart = {"id": name, "cluster": plan["cluster"], "created": created}
        return _sane(read(Job, {**record, **apart, "plan": plan}))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        complain(str(name), str(error))
        return None


def _sane(job: Job) -> Job:
    """The job, if its ranks are on its nodes; raises ValueError."""
    nodes = {node.node for node in job.plan.nodes}
    ranks = {rank.rank for rank in job.ranks}
    if not all(job.plan.keeper(rank.node) in nodes for rank in job.ranks):
        raise ValueError("a rank is on none of its nodes")
    if len(ranks) != len(job.ranks):
        raise ValueError("a rank is there twice")
    return job
