"""Acceptance runs in an SQLite file beside the job history: measurements,
facts about nodes, baselines, exclusions.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rankdeck.acceptance.values import GROUPED, Outcome, Result, Stage
from rankdeck.errors import ConfigError, Problem
from rankdeck.model.field_checks import Check, is_integer, is_number, is_stamp, is_text
from rankdeck.model.json_tables import is_list, is_table, parse_table
from rankdeck.model.nodeset import expand_nodes, fold_nodes
from rankdeck.model.text import day_time
from rankdeck.state.database import Store
from rankdeck.values import Value, field_names, value_table

VERSION = 2
"""Version of the tables."""
EXPORTED = 1
"""Version of the exported file."""
KEEP = 100
"""Runs kept per cluster; runs with a declared baseline are always kept."""
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS run (
    id TEXT PRIMARY KEY, cluster TEXT NOT NULL, started REAL NOT NULL, plan TEXT NOT NULL,
    operator TEXT NOT NULL, note TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL, ended REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS measurement (
    run TEXT NOT NULL, stage TEXT NOT NULL, recipe TEXT NOT NULL, params TEXT NOT NULL,
    sender TEXT NOT NULL, receiver TEXT NOT NULL, rail INTEGER NOT NULL, port INTEGER NOT NULL,
    round INTEGER NOT NULL, repeat INTEGER NOT NULL, value REAL, unit TEXT NOT NULL,
    status TEXT NOT NULL, seconds REAL NOT NULL, raw TEXT NOT NULL, text TEXT NOT NULL,
    job TEXT NOT NULL,
    PRIMARY KEY (run, stage, recipe, params, sender, receiver, rail, port, round, repeat)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS identity (
    run TEXT NOT NULL, node TEXT NOT NULL, fact TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (run, node, fact)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS baseline (
    cluster TEXT NOT NULL, recipe TEXT NOT NULL, params TEXT NOT NULL, hardware TEXT NOT NULL,
    kind TEXT NOT NULL, subject TEXT NOT NULL, median REAL NOT NULL, mad REAL NOT NULL,
    count INTEGER NOT NULL, run TEXT NOT NULL, accepted_by TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (cluster, recipe, params, hardware, kind, subject)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS exclusion (
    cluster TEXT NOT NULL, node TEXT NOT NULL, why TEXT NOT NULL, run TEXT NOT NULL, at REAL NOT NULL,
    until REAL NOT NULL, PRIMARY KEY (cluster, node)
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""


class KeptRun(Value):
    """One acceptance run."""

    id: str
    cluster: str
    started: float
    """Epoch seconds."""
    plan: str
    """Hash of the plan: a run is resumed only with the same plan."""
    operator: str = ""
    note: str = ""
    body: str = ""
    """The plan itself, as JSON."""
    state: str = "running"
    """`running`, `stopped` or `done`."""
    ended: float = 0.0
    """Epoch seconds; 0: not ended."""


class Baseline(Value, kw_only=True):
    """Values that an operator declared to be normal, for one subject or for all."""

    cluster: str
    recipe: str
    params: str
    hardware: str = ""
    """Hardware of the nodes; only nodes with the same hardware are compared."""
    kind: str = ""
    """`inside` or `crossing`; "" for both."""
    subject: str = ""
    """A node or a path; "" for all."""
    median: float
    mad: float
    """Median absolute deviation."""
    count: int
    run: str
    accepted_by: str
    at: float
    """Epoch seconds."""


class Exclusion(Value, kw_only=True):
    """A node that jobs must not use, until the exclusion expires or a later run passes the node."""

    cluster: str
    node: str
    why: str
    run: str = ""
    """The acceptance run that proposed it."""
    at: float
    until: float
    """Epoch seconds."""

    @property
    def sentence(self) -> str:
        """Why, by which run, and how long."""
        return f"excluded until {day_time(self.until)}: {self.why}" + (
            f" (run {self.run})" if self.run else ""
        )


Kept = TypeVar("Kept", KeptRun, Baseline, Exclusion)
_WORDS = ("recipe", "params", "hardware", "kind", "subject", "run", "accepted_by")
_BASELINE: dict[str, Check] = {
    **dict.fromkeys(_WORDS, is_text(200)),
    "median": is_number,
    "mad": is_number,
    "count": is_integer,
    "at": is_stamp,
}
"""Fields of a baseline in an exported file, without the cluster."""


_COLUMNS = (
    "stage", "recipe", "sender", "receiver", "rail", "port", "round", "repeat", "value", "unit", "status", "seconds", "raw",
    "text", "job",
)  # fmt: skip
"""Columns of a measurement besides run and params.

Of a group, `receiver` holds the whole node set.
"""


def _row(one: Result) -> dict[str, object]:
    """Column -> value of a result."""
    own = {name: getattr(one, name) for name in _COLUMNS if name != "status"}
    return {**own, "status": one.outcome, "receiver": one.receiver or fold_nodes(one.group)}


def _result(row: dict[str, Any]) -> Result:
    """The result of these columns."""
    stage, outcome = Stage(row.pop("stage")), Outcome(row.pop("status"))
    if stage in GROUPED:
        row |= {"receiver": "", "group": expand_nodes(row["receiver"]) if row["receiver"] else ()}
    return Result(**row, stage=stage, outcome=outcome)


class AcceptanceRuns:
    """The file with one user's acceptance runs; several consoles may have it open at once."""

    def __init__(self, path: Path) -> None:
        self._store = Store(path, _SCHEMA, VERSION, "SELECT 1 FROM run, baseline LIMIT 1")

    def close(self) -> None:
        self._store.close()

    @property
    def troubles(self) -> tuple[str, ...]:
        """Why nothing can be written now, what could not be read, what
        was repaired: one sentence each.
        """
        store = self._store
        return tuple(filter(None, (store.trouble, store.unread, store.mended)))

    # ---- runs

    def begin(self, run: KeptRun) -> tuple[str, ...]:
        """Save a run before its first measurement, and delete the oldest
        runs beyond KEEP; returns their ids.

        Raises HistoryError.
        """
        self._put("run", [run])
        old = "SELECT id FROM run WHERE cluster = ? ORDER BY started DESC LIMIT -1 OFFSET ?"
        declared = "SELECT 1 FROM baseline WHERE run = ? LIMIT 1"
        gone = [
            one
            for (one,) in self._store.rows(old, run.cluster, KEEP)
            if not self._store.rows(declared, one)
        ]
        for name, key in (("measurement", "run"), ("identity", "run"), ("run", "id")):
            self._store.put(f"DELETE FROM {name} WHERE {key} = ?", [(one,) for one in gone])
        return tuple(gone)

    def runs(self, cluster: str) -> tuple[KeptRun, ...]:
        """The runs of a cluster, newest first."""
        return self._read(KeptRun, "run WHERE cluster = ? ORDER BY started DESC", cluster)

    def end(self, run: str, state: str, ended: float) -> None:
        """Save the final `state` of a run and when it ended (epoch seconds).

        Raises HistoryError.
        """
        self._store.must_put(
            "UPDATE run SET state = ?, ended = ? WHERE id = ?", [(state, ended, run)]
        )

    def add(self, run: str, results: Iterable[tuple[Result, str]]) -> None:
        """Save (result, hash of its parameters) pairs; a saved result is
        not changed. Raises HistoryError.

        Results with different parameters are not compared.
        """
        rows = [{"run": run, "params": params, **_row(one)} for one, params in results]
        self._insert("measurement", rows, "OR IGNORE")

    def measurements(self, run: str) -> tuple[Result, ...]:
        """All results of a run, in the order of rounds."""
        query = (
            f"SELECT {', '.join(_COLUMNS)} FROM measurement WHERE run = ? ORDER BY round, sender,"
            " receiver, rail, repeat"
        )
        return tuple(
            _result(dict(zip(_COLUMNS, row, strict=True))) for row in self._store.rows(query, run)
        )

    # ---- identity

    def identify(self, run: str, facts: Mapping[str, Mapping[str, str]]) -> None:
        """Save the facts of the nodes: node -> fact -> value. Raises HistoryError."""
        rows = [
            (run, node, fact, value)
            for node, table in facts.items()
            for fact, value in table.items()
        ]
        self._store.must_put("INSERT OR REPLACE INTO identity VALUES (?, ?, ?, ?)", rows)

    def identity(self, run: str) -> dict[str, dict[str, str]]:
        """The facts of a run's nodes: node -> fact -> value."""
        found: dict[str, dict[str, str]] = {}
        query = "SELECT node, fact, value FROM identity WHERE run = ?"
        for node, fact, value in self._store.rows(query, run):
            found.setdefault(node, {})[fact] = value
        return found

    # ---- baselines

    def declare(self, baselines: Iterable[Baseline]) -> None:
        """Save these baselines; only an operator decides this. Raises HistoryError."""
        self._put("baseline", baselines)

    def baselines(self, cluster: str) -> tuple[Baseline, ...]:
        """All baselines declared for a cluster."""
        order = "recipe, params, hardware, kind, subject"
        return self._read(Baseline, f"baseline WHERE cluster = ? ORDER BY {order}", cluster)

    def exported(self, cluster: str) -> str:
        """The baselines of a cluster as JSON, with the facts of their nodes."""
        rows = self.baselines(cluster)
        runs = sorted({one.run for one in rows})
        conditions = {run: self.identity(run) for run in runs}
        body = {
            "version": EXPORTED,
            "cluster": cluster,
            "conditions": conditions,
            "baselines": [value_table(one) for one in rows],
        }
        return json.dumps(body, indent=1, sort_keys=True, allow_nan=False)

    def imported(self, cluster: str, file: str, raw: bytes) -> tuple[Baseline, ...]:
        """Declare the baselines of an exported file for a cluster;
        raises ConfigError and HistoryError.
        """
        found = read_baselines(cluster, file, raw)
        self.declare(found)
        return found

    # ---- exclusions

    def exclude(self, exclusions: Iterable[Exclusion]) -> None:
        """Save exclusions; a new one replaces an older one of the same node.

        Raises HistoryError.
        """
        self._put("exclusion", exclusions)

    def readmit(self, cluster: str, nodes: Iterable[str]) -> None:
        """Delete the exclusions of these nodes. Raises HistoryError."""
        rows = [(cluster, node) for node in nodes]
        self._store.must_put("DELETE FROM exclusion WHERE cluster = ? AND node = ?", rows)

    def exclusions(self, cluster: str, now: float) -> tuple[Exclusion, ...]:
        """The exclusions of a cluster that are valid at `now` (epoch seconds), by node."""
        these = "exclusion WHERE cluster = ? AND until > ? ORDER BY node"
        return self._read(Exclusion, these, cluster, now)

    # ----

    def _read(self, make: type[Kept], these: str, *values: object) -> tuple[Kept, ...]:
        """The rows of a table, whose columns are the fields of a
        dataclass; `these`: the query after FROM.
        """
        names = field_names(make)
        rows = self._store.rows(f"SELECT {', '.join(names)} FROM {these}", *values)
        return tuple(make(**dict(zip(names, row, strict=True))) for row in rows)

    def _put(self, name: str, rows: Iterable[KeptRun | Baseline | Exclusion]) -> None:
        self._insert(name, [value_table(row) for row in rows], "OR REPLACE")

    def _insert(self, name: str, values: Sequence[Mapping[str, object]], how: str) -> None:
        if values:
            columns = ", ".join(values[0])
            places = ", ".join(f":{column}" for column in values[0])
            self._store.must_put(f"INSERT {how} INTO {name} ({columns}) VALUES ({places})", values)


def read_baselines(cluster: str, file: str, raw: bytes) -> tuple[Baseline, ...]:
    """The baselines in an exported file, for this cluster; raises
    ConfigError with every mistake.
    """
    found = parse_table(raw)
    if found is None or not is_list(rows := found.get("baselines")):
        raise ConfigError([Problem(file, 1, 1, "baselines", "no file that Rankdeck exported")])
    if found.get("version") != EXPORTED:
        why = f"is not {EXPORTED}: exported by another Rankdeck"
        raise ConfigError([Problem(file, 1, 1, "version", why)])
    wrong = [
        Problem(file, 1, 1, f"baselines[{place}].{name}", "is missing or wrong")
        for place, row in enumerate(rows)
        if (name := _wrong(row))
    ]
    if wrong:
        raise ConfigError(wrong)
    return tuple(Baseline(cluster=cluster, **{key: row[key] for key in _BASELINE}) for row in rows)


def _wrong(row: object) -> str:
    """The name of the first invalid field; "" if all are valid."""
    if not is_table(row):
        return "?"
    return next((name for name, check in _BASELINE.items() if not check(row.get(name))), "")
