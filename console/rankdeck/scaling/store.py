"""Scaling studies in an SQLite file beside the job history: their plans, and each run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankdeck.model.json_values import json_of, read_value
from rankdeck.state.database import Store
from rankdeck.values import Value

if TYPE_CHECKING:
    from rankdeck.scaling.values import StudyPlan, Trial

VERSION = 1
"""Version of the tables."""
KEEP = 100
"""Studies kept per cluster."""
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS study (
    id TEXT PRIMARY KEY, cluster TEXT NOT NULL, started REAL NOT NULL, operator TEXT NOT NULL,
    body TEXT NOT NULL, state TEXT NOT NULL, ended REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trial (
    study TEXT NOT NULL, block INTEGER NOT NULL, point INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (study, block, point)
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""


class KeptStudy(Value, kw_only=True):
    """One study in the file."""

    id: str
    plan: "StudyPlan"
    started: float
    """Epoch seconds."""
    operator: str = ""
    state: str = "running"
    """`running`, `stopped` or `done`."""
    ended: float = 0.0
    """Epoch seconds; 0: not ended."""


class ScalingStudies:
    """The file with one user's studies, opened at first use; several consoles may have it open at
    once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: Store | None = None

    @property
    def _store(self) -> Store:
        if self._opened is None:
            least = "SELECT 1 FROM study, trial LIMIT 1"
            self._opened = Store(self._path, _SCHEMA, VERSION, least)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def begin(self, study: KeptStudy) -> None:
        """Save a study before its first run, and delete the oldest beyond KEEP.

        Raises HistoryError.
        """
        row = (
            study.id,
            study.plan.cluster,
            study.started,
            study.operator,
            json_of(study.plan),
            study.state,
            study.ended,
        )
        self._store.must_put("INSERT OR REPLACE INTO study VALUES (?, ?, ?, ?, ?, ?, ?)", [row])
        query = "SELECT id FROM study WHERE cluster = ? ORDER BY started DESC LIMIT -1 OFFSET ?"
        gone = self._store.rows(query, study.plan.cluster, KEEP)
        self._store.put("DELETE FROM trial WHERE study = ?", gone)
        self._store.put("DELETE FROM study WHERE id = ?", gone)

    def end(self, study: str, state: str, ended: float) -> None:
        """Save the state of a study, and when it ended (epoch seconds). Raises HistoryError."""
        self._store.must_put(
            "UPDATE study SET state = ?, ended = ? WHERE id = ?", [(state, ended, study)]
        )

    def add(self, study: str, trial: "Trial") -> None:
        """Save a run; a saved run is not changed. Raises HistoryError."""
        row = (study, trial.block, trial.point, json_of(trial))
        self._store.must_put("INSERT OR IGNORE INTO trial VALUES (?, ?, ?, ?)", [row])

    def studies(self, cluster: str) -> tuple[KeptStudy, ...]:
        """The studies of a cluster, newest first; those that cannot be read are left out."""
        query = (
            "SELECT id, started, operator, state, ended, body FROM study WHERE cluster = ?"
            " ORDER BY started DESC"
        )
        return tuple(self._kept(self._store.rows(query, cluster)))

    def _kept(self, rows: list[Any]) -> Iterator[KeptStudy]:
        # Loading the values takes time, and most sessions have the file only at hand.
        from rankdeck.scaling.values import StudyPlan

        for name, started, operator, state, ended, body in rows:
            try:
                plan = read_value(json.loads(body), StudyPlan)
            except (ValueError, TypeError):
                continue
            yield KeptStudy(
                id=name, plan=plan, started=started, operator=operator, state=state, ended=ended
            )

    def trials(self, study: str) -> "tuple[Trial, ...]":
        """The runs of a study in their order; those that cannot be read are left out."""
        from rankdeck.scaling.values import Trial

        query = "SELECT body FROM trial WHERE study = ?"
        found: list[Trial] = []
        for (body,) in self._store.rows(query, study):
            try:
                found.append(read_value(json.loads(body), Trial))
            except (ValueError, TypeError):
                continue
        return tuple(sorted(found, key=lambda one: (one.block, one.at)))
