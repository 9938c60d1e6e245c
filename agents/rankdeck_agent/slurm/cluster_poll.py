"""Asks Slurm for all nodes and everybody's jobs, once for all consoles that show them, and leaves the answers in files.

Who shows the cluster touches `slurm/wanted`; the keeper then leaves each answer as Slurm gave it in the same folder,
below a line that says when it was asked and what went wrong.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from rankdeck_agent.files import private_folder
from rankdeck_agent.job.journal import table
from rankdeck_agent.slurm import claim, cluster_rows
from rankdeck_agent.slurm.budget import QUEUE_CALLS, Budget, Rhythm, calls_a_minute, cluster_period
from rankdeck_agent.slurm.commands import Slurm

WANTED, NODES, QUEUE = "wanted", "cluster.nodes", "cluster.queue"
QUESTIONS: Mapping[str, tuple[str, ...]] = {NODES: cluster_rows.SINFO, QUEUE: cluster_rows.QUEUE}
"""File -> the command whose answer it holds."""
TOUCH = 10.0
"""Seconds between two touches of who wants the answers."""
FORGOTTEN = 35.0
"""Seconds without a touch after which nobody wants them any more."""


class Answer(NamedTuple):
    """What Slurm said last. `at`: epoch seconds; `error` is one sentence, "" where it answered."""

    at: float
    text: str
    error: str = ""


class ClusterPoll:
    """The keeper's part; it asks only while somebody wants to know."""

    def __init__(self) -> None:
        self._touched: Optional[float] = None
        self._wanted_at = float("-inf")
        self._rhythms = {name: Rhythm() for name in QUESTIONS}
        self.path = ""
        """The PATH on which Slurm's commands are, as who asks says."""
        self.most = calls_a_minute({})
        """Calls a minute that who asks allows."""

    def wanted(self, now: float) -> bool:
        """Whether anybody wants the answers; `now` is monotonic, in seconds."""
        touched = claim.touched(claim.place() / WANTED)
        if touched is not None and touched != self._touched:
            # Of a file that is as old as its last keeper the first look tells nothing.
            if self._touched is not None or time.time() - touched < FORGOTTEN:
                self._wanted_at = now
            self._touched = touched
            self._read_settings()
        return now - self._wanted_at < FORGOTTEN

    def _read_settings(self) -> None:
        try:
            row = table((claim.place() / WANTED).read_text()) or {}
        except OSError:
            return
        path = row.get("path")
        self.path = path if isinstance(path, str) else ""
        self.most = calls_a_minute(row)

    def ask(self, slurm: Slurm, budget: Budget, now: float, *, reserve: int) -> str:
        """Ask what is due, so that `reserve` calls are left; the new text of everybody's jobs, "" where it was not asked."""
        news = ""
        for name in sorted(QUESTIONS, key=lambda name: self._rhythms[name].last):
            rhythm = self._rhythms[name]
            rhythm.period = cluster_period(budget.most)
            if not rhythm.due(now) or not budget.allows(QUEUE_CALLS + reserve, now):
                continue
            budget.spend(QUEUE_CALLS, now)
            reply = slurm.ask(*QUESTIONS[name])
            rhythm.asked(now, well=reply.well)
            leave(name, Answer(time.time(), reply.out if reply.well else "", reply.error))
            news = reply.out if reply.well and name == QUEUE else news
        return news


def leave(name: str, answer: Answer) -> None:
    """Put an answer where consoles look for it; what cannot be written is asked again later."""
    fresh = claim.place() / f"{name}.new"
    head = json.dumps({"at": answer.at, "error": answer.error})
    try:
        fresh.write_text(f"{head}\n{answer.text}", errors="replace")
        fresh.replace(claim.place() / name)
    except OSError:
        return


def read(name: str) -> Optional[Answer]:
    """The answer that was left last; None where there is none."""
    try:
        head, _, text = (claim.place() / name).read_text(errors="replace").partition("\n")
    except OSError:
        return None
    row = table(head) or {}
    at, error = row.get("at"), row.get("error")
    if not isinstance(at, float) or not isinstance(error, str):
        return None
    return Answer(at, text, error)


def want(settings: Mapping[str, object]) -> None:
    """Say that the answers are wanted; raises OSError."""
    private_folder(claim.place())
    fresh: Path = claim.place() / f"{WANTED}.new"
    fresh.write_text(json.dumps(dict(settings)))
    fresh.replace(claim.place() / WANTED)
