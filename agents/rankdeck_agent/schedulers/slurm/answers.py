"""Slurm's answers about the whole cluster: asked for all consoles at once while one
wants them, and kept in files that every console reads.

A console that shows the cluster touches `slurm/wanted`. Then the keeper asks Slurm and writes
each answer to a file in the same folder, after a line with the time and the error.
"""

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from rankdeck_agent.private_files import make_private_folder, replace_private
from rankdeck_agent.schedulers.slurm.call_budget import (
    QUEUE_CALLS,
    Budget,
    QueueTimer,
    calls_a_minute,
    cluster_period,
)
from rankdeck_agent.schedulers.slurm.commands import Slurm, slurm_in
from rankdeck_agent.schedulers.slurm.keeper_lease import keeper_folder, touched_time
from rankdeck_agent.schedulers.slurm.queue import QUEUE_COLUMNS, QUEUE_FIELDS
from rankdeck_agent.schedulers.slurm.sinfo import SINFO
from rankdeck_agent.text import parse_json_table

WANTED, NODES, QUEUE = "wanted", "cluster.nodes", "cluster.queue"
QUESTIONS = (QUEUE, NODES)
"""Files with the answers of Slurm, that to squeue first: it is what most people wait for."""
TOUCH = 10.0
"""Seconds between two touches by a console that wants the answers."""
FORGOTTEN = 35.0
"""Seconds without a touch after which nobody wants the answers any more."""
_LONGEST_LINE = 1 << 20
"""Most bytes of the line with the settings of a question."""


class SlurmAnswer(NamedTuple):
    """An answer of Slurm. `at`: epoch seconds; `error`: one sentence, "" if Slurm answered."""

    at: float
    text: str
    """With an error: what Slurm answered last."""
    error: str = ""
    told: float = 0.0
    """When Slurm told the text; 0.0: never."""


class ClusterPoll:
    """The keeper's part: asks Slurm while a console wants the answers."""

    def __init__(self) -> None:
        self._touched: Optional[float] = None
        self._wanted_at = float("-inf")
        self._rhythms = {name: QueueTimer() for name in QUESTIONS}
        self.slurm = Slurm()
        """Slurm's commands, with the environment in the console's settings."""
        self.most = calls_a_minute({})
        """Calls per minute, from the console's settings."""

    def wanted(self, now: float) -> bool:
        """Whether any console wants the answers; `now` in monotonic seconds."""
        at = touched_time(keeper_folder() / WANTED)
        if at is not None and at != self._touched:
            # At the first look the file may be old, from the time of an earlier keeper.
            if self._touched is not None or time.time() - at < FORGOTTEN:
                self._wanted_at = now
            self._touched = at
            self._read_settings()
        return now - self._wanted_at < FORGOTTEN

    def _read_settings(self) -> None:
        try:
            row = parse_json_table((keeper_folder() / WANTED).read_text()) or {}
        except OSError:
            return
        self.slurm = slurm_in(row)
        self.most = calls_a_minute(row)

    def want_queue(self, at: float) -> None:
        """Ask for everybody's jobs no later than at this time, as far as the
        budget allows: one of ours has changed.
        """
        self._rhythms[QUEUE].want(at)

    def ask(self, slurm: Slurm, budget: Budget, now: float, *, reserve: int) -> str:
        """Ask what is due while `reserve` calls remain; returns the new text of
        everybody's jobs, "" if not asked for.
        """
        news = ""
        for name in sorted(QUESTIONS, key=lambda name: self._rhythms[name].last):
            rhythm = self._rhythms[name]
            rhythm.period = cluster_period(budget.most)
            if not rhythm.due(now) or not budget.allows(QUEUE_CALLS + reserve, now):
                continue
            budget.spend(QUEUE_CALLS, now)
            answer = answer_to(name, slurm)
            rhythm.asked(now, well=not answer.error)
            leave_answer(name, answer)
            news = answer.text if name == QUEUE else news
        return news


def answer_to(name: str, slurm: Slurm) -> SlurmAnswer:
    """Ask Slurm one of QUESTIONS, by name."""
    if name == QUEUE:
        reply = slurm.ask_columns(*QUEUE_FIELDS, columns=QUEUE_COLUMNS)
    else:
        reply = slurm.ask(*SINFO)
    now = time.time()
    return SlurmAnswer(now, reply.out, "", now) if reply.well else SlurmAnswer(now, "", reply.error)


def leave_answer(name: str, answer: SlurmAnswer) -> None:
    """Write an answer to the file where consoles read it, with an error the text of the last one.

    Errors of the file system are ignored, since Slurm is asked again later.
    """
    before = read_answer(name) if answer.error else None
    if before is not None:
        answer = answer._replace(text=before.text, told=before.told)
    head = json.dumps({"at": answer.at, "error": answer.error, "told": answer.told})
    with contextlib.suppress(OSError):
        replace_private(keeper_folder() / name, f"{head}\n{answer.text}".encode("utf-8", "replace"))


def read_answer(name: str) -> Optional[SlurmAnswer]:
    """The newest answer in the file; None if there is none."""
    try:
        head, _, text = (keeper_folder() / name).read_text("utf-8", "replace").partition("\n")
    except OSError:
        return None
    row = parse_json_table(head) or {}
    at, error, told = row.get("at"), row.get("error"), row.get("told")
    if not isinstance(at, float) or not isinstance(error, str) or not isinstance(told, float):
        return None
    return SlurmAnswer(at, text, error, told)


def want_answers(settings: Mapping[str, object]) -> None:
    """Tell the keeper that the answers are wanted; raises OSError."""
    make_private_folder(keeper_folder())
    replace_private(keeper_folder() / WANTED, json.dumps(dict(settings)).encode())


def read_question_settings() -> dict[str, Any]:
    """The settings of a question, from its line on stdin; empty if it is no JSON object."""
    return parse_json_table(sys.stdin.readline(_LONGEST_LINE)) or {}
