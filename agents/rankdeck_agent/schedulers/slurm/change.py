"""`slurm change`: holds, releases and requeues jobs, and changes their time limits.

Takes one line of JSON on stdin: {"do": "hold" | "release" | "requeue" | "timelimit", "jobs": […],
"to": …, "agreed": …, "environment": {…}}. Without `agreed` it only answers which command it would
run. With it the command is run, if it is still the same, and the queue is read again, for all
consoles of the user.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, cast

from rankdeck_agent.schedulers.slurm.answers import QUEUE, answer_to, leave_answer
from rankdeck_agent.schedulers.slurm.commands import Slurm, slurm_in
from rankdeck_agent.schedulers.slurm.job_cancel import DENIED
from rankdeck_agent.schedulers.slurm.keeper import is_unknown
from rankdeck_agent.schedulers.slurm.keeper_lease import note_change
from rankdeck_agent.schedulers.slurm.queue import (
    QUEUE_COLUMNS,
    QUEUE_FIELDS,
    Row,
    job_rows,
    jobs_in,
    tasks_named,
)
from rankdeck_agent.schedulers.slurm.values import JOB_OR_TASKS
from rankdeck_agent.schedulers.slurm.verdict import FINAL, span_text
from rankdeck_agent.text import parse_json_table, plain_line, print_json_line

HOLD, RELEASE, REQUEUE, TIMELIMIT = "hold", "release", "requeue", "timelimit"
_LONGEST, _MOST_JOBS = 1 << 20, 1000
_SPAN = re.compile(
    r"[+-]?(?:[0-9]{1,5}-)?[0-9]{1,9}(?::[0-9]{1,2}){0,2}\Z|UNLIMITED\Z", re.IGNORECASE
)


class JobOrder(NamedTuple):
    """A request of a user to change jobs."""

    do: str
    """HOLD, RELEASE, REQUEUE or TIMELIMIT."""
    jobs: "tuple[str, ...]"
    to: str = ""
    """The new time limit, in Slurm's syntax."""
    agreed: str = ""
    """The command line that the user agreed to; "": only show it."""


def job_order(row: Mapping[str, Any]) -> Optional[JobOrder]:
    """The JobOrder in a line of stdin; None if it is not valid."""
    found, do = row.get("jobs"), row.get("do")
    given: list[object] = list(cast("list[object]", found)) if isinstance(found, list) else []
    jobs = [name for name in given if isinstance(name, str) and JOB_OR_TASKS.match(name)]
    words = (row.get("to"), row.get("agreed"))
    to, agreed = (word if isinstance(word, str) else "" for word in words)
    if not isinstance(do, str) or do not in _POSSIBLE or not 0 < len(given) <= _MOST_JOBS:
        return None
    if len(jobs) < len(given) or (do == TIMELIMIT and not _SPAN.match(to)):
        return None
    return JobOrder(do, tuple(dict.fromkeys(jobs)), to, agreed)


class _Possible(NamedTuple):
    """Whether a row of the queue can be changed in one way, and why not if it cannot."""

    test: Callable[[Row], bool]
    why_not: str


def _waits(row: Row) -> bool:
    return row["state"] == "PENDING"


def _began(row: Row) -> bool:
    return not _waits(row)


def _goes_on(row: Row) -> bool:
    return row["state"] not in FINAL


_POSSIBLE: Mapping[str, _Possible] = {
    HOLD: _Possible(_waits, "only a job that waits can be held"),
    RELEASE: _Possible(_waits, "only a job that waits can be released"),
    REQUEUE: _Possible(_began, "it is in the queue already"),
    TIMELIMIT: _Possible(_goes_on, "it is over"),
}


def refused_job_change(asked: JobOrder, rows: Sequence[Row]) -> str:
    """Why a job, whose rows in Slurm these are, must not be changed; "" if it may be."""
    if not rows:
        return "Slurm has no job of this number"
    test, why_not = _POSSIBLE[asked.do]
    return "" if any(map(test, rows)) else f"it is {rows[0]['state']}: {why_not}"


def rows_of_job(name: str, rows: Sequence[Row]) -> list[Row]:
    """The rows in the queue that a job, a task of an array or a range of tasks stands for."""
    job, tasks = tasks_named(name)
    split = ((row, *tasks_named(row["shown"])) for row in rows)
    return [row for row, base, here in split if base == job and (not tasks or tasks & here)]


def job_change_command(asked: JobOrder, jobs: Sequence[str]) -> "tuple[str, ...]":
    """The scontrol command that changes these jobs."""
    if asked.do == TIMELIMIT:
        return ("scontrol", "update", f"jobid={','.join(jobs)}", f"timelimit={asked.to}")
    return ("scontrol", asked.do, ",".join(jobs))


def job_change_complaint(error: str) -> str:
    """A sentence for an error with which Slurm refused the command."""
    if any(word in error for word in DENIED):
        return f"you may not do this to these jobs: that takes their owner or an operator of Slurm ({error})"
    return f"Slurm refused it: {error}"


def change_jobs() -> int:
    """Answer the order on stdin with one line of JSON; returns the exit code."""
    row = parse_json_table(sys.stdin.readline(_LONGEST)) or {}
    asked = job_order(row)
    if asked is None:
        return print_json_line({"error": "this order makes no sense"})
    return print_json_line(_answer(asked, slurm_in(row)))


def _answer(asked: JobOrder, slurm: Slurm) -> Row:
    bases = dict.fromkeys(name.partition("_")[0] for name in asked.jobs)
    reply = slurm.ask_columns(
        *QUEUE_FIELDS, "--states=all", f"--jobs={','.join(bases)}", columns=QUEUE_COLUMNS
    )
    if not reply.well and not is_unknown(reply):
        return {"error": f"Slurm does not answer: {reply.error}"}
    rows = list(job_rows(reply.out))
    reasons = {name: refused_job_change(asked, rows_of_job(name, rows)) for name in asked.jobs}
    left = {name: why for name, why in reasons.items() if why}
    jobs = [name for name in asked.jobs if name not in left]
    answer: Row = {"jobs": jobs, "left": left, "line": "", "done": False, "error": "", "hits": 0}
    if not jobs:
        return answer
    argv = job_change_command(asked, jobs)
    answer["line"] = " ".join(argv)
    hit = {row["shown"]: row for name in jobs for row in rows_of_job(name, rows)}
    answer["hits"] = sum(map(jobs_in, hit.values()))
    if not asked.agreed:
        return answer
    if asked.agreed != answer["line"]:
        return {**answer, "error": "Slurm says something else of these jobs by now: look again"}
    return {**answer, **_carry_out(jobs, slurm, argv)}


def _carry_out(jobs: Sequence[str], slurm: Slurm, argv: "tuple[str, ...]") -> Row:
    result = slurm.ask(*argv)
    fresh = answer_to(QUEUE, slurm)
    leave_answer(QUEUE, fresh)
    note_change()
    rows = list(job_rows(fresh.text))
    now = {name: _words(rows_of_job(name, rows)) for name in jobs}
    if not result.well:
        return {"error": job_change_complaint(result.error), "now": now}
    return {"done": True, "said": plain_line(result.out.strip(), 400), "now": now}


def _words(rows: Sequence[Row]) -> str:
    """What the queue says of a job: `PENDING, held by its user; time limit 01:00:00`."""
    if not rows:
        return "no longer in the queue"
    first = rows[0]
    limit = f"; time limit {span_text(first['limit'])}" if first["limit"] else ""
    return ", ".join(filter(None, (first["state"], first["text"]))) + limit
