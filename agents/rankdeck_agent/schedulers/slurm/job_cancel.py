"""Ends a job of Slurm: scancel, then questions until Slurm says that it is over."""

import re
import time
from collections.abc import Sequence
from typing import Any

from rankdeck_agent.job.folder import RunFolder, all_events, is_closed, wait_until
from rankdeck_agent.schedulers.slurm.array import covers_task
from rankdeck_agent.schedulers.slurm.commands import Slurm, SlurmReply
from rankdeck_agent.schedulers.slurm.folder import attached_settings, later_job, read_id, slurm_of
from rankdeck_agent.schedulers.slurm.job_reports import (
    SlurmJobRow,
    queue_rows,
    shown_jobs,
    these_jobs,
)
from rankdeck_agent.schedulers.slurm.keeper import ask_for_job, is_unknown
from rankdeck_agent.schedulers.slurm.keeper_lease import KeeperWatch, register_job
from rankdeck_agent.schedulers.slurm.marks import ASKED, MARKS, SEEN
from rankdeck_agent.schedulers.slurm.values import parse_number_ranges
from rankdeck_agent.schedulers.slurm.verdict import FINAL

_SLACK = 20.0
"""Seconds after the grace period in which the job must end."""
_PAUSES = (0.7, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Seconds between two questions to Slurm: short at first, because most jobs end at once."""
_ID_LIMIT, _ASK = 10.0, 5.0
_RECORDED = 3.0
"""Seconds for the keeper to record that the job is over."""


def cancel_slurm_job(folder: RunFolder, grace: float, by: str, tasks: str = "") -> dict[str, Any]:
    """End the job, or only these tasks of an array (`3,5-7`); returns
    `left`, what did not end, and `ended`.

    Of an array that somebody else submitted only the tasks are ended that the console follows, if
    it says which. An entry of `left` has `refused` if nothing was done, because this user is not
    allowed to cancel the job. `grace`: seconds until SIGKILL. `by`: one of wire.job_events.ASKERS.
    """
    if is_closed(folder.events):
        return {"left": [], "ended": 0}
    if attached_settings(folder):
        refused = _refused(folder, by)
        if refused:
            return {"left": [{**_left(refused), "refused": True}], "ended": 0}
    for end in [f".{task}" for task in parse_number_ranges(tasks)] or [""]:
        _note(folder, f"{ASKED}.{by}.{round(grace)}{end}")
    wait_until(lambda: read_id(folder)[0] or is_closed(folder.events), _ID_LIMIT)
    number, _ = read_id(folder)
    if not number:
        closed = is_closed(folder.events)
        left = [] if closed else [_left("sbatch has not told the id of the job yet")]
        return {"left": left, "ended": 0}
    KeeperWatch().ensure()
    number = _followed_tasks(folder) or (f"{number}_[{tasks}]" if tasks else number)
    why = _end(folder, slurm_of(folder), number, grace)
    if not why and not tasks:
        wait_until(lambda: is_closed(folder.events), _RECORDED)
    return {"left": [_left(f"Slurm job {number}: {why}")] if why else [], "ended": _count(folder)}


DENIED = ("Access/permission denied", "Invalid user id", "Unauthorized")
"""Errors of scancel and scontrol that mean: this user is not permitted."""


def _refused(folder: RunFolder, by: str) -> str:
    """Ask Slurm to end a job that somebody else submitted; returns why
    that is refused, "" if it is not.
    """
    number, _ = read_id(folder)
    if by != "user":
        return f"Slurm job {number} was not submitted here: nothing but an operator ends it"
    asked = slurm_of(folder).ask("scancel", _followed_tasks(folder) or number)
    if not any(word in asked.error for word in DENIED):
        return ""
    return f"Slurm ends job {number} for its owner or an operator of Slurm only ({asked.error})"


_TASKS = re.compile(r"[0-9]{1,11}_(?:[0-9]{1,9}|\[[0-9,:-]{1,4096}\])\Z")


def _followed_tasks(folder: RunFolder) -> str:
    """The tasks of an array of somebody else that this job stands for,
    `48_[2-5]`; "" for all that has its number.
    """
    tasks = (attached_settings(folder) or {}).get("tasks")
    return tasks if isinstance(tasks, str) and _TASKS.match(tasks) else ""


def _left(text: str) -> dict[str, Any]:
    return {"pid": 0, "command": text}


def _note(folder: RunFolder, name: str, text: str = "") -> None:
    """Leave a mark for the keeper."""
    if not (folder / MARKS).is_dir():
        return
    fresh = folder / f".{name}"
    fresh.write_text(text)
    fresh.replace(folder / MARKS / name)
    register_job(folder)


def _end(folder: RunFolder, slurm: Slurm, number: str, grace: float) -> str:
    """Have Slurm end the job `number` (or `ID_[TASKS]`); returns "" once it is gone,
    or its state if it does not end in time.
    """
    job, _, tasks = number.partition("_")
    if not attached_settings(folder) and _is_reused(folder, ask_for_job(slurm, job, _ASK)):
        return ""
    asked = slurm.ask("scancel", number)
    began, forced, looks = time.monotonic(), False, 0
    while True:
        time.sleep(_PAUSES[min(looks, len(_PAUSES) - 1)])
        looks += 1
        reply, rows = _asked(folder, slurm, job)
        state = state_of(reply, rows, parse_number_ranges(tasks.strip("[]")))
        if not state:
            _note(folder, f"{SEEN}.{looks}", reply.out)
            return ""
        late = time.monotonic() - began
        if late > grace + _SLACK:
            return f"{state}; scancel says: {asked.error}" if asked.error else state
        if late >= grace and (not forced or state == "RUNNING"):
            forced = True
            asked = slurm.ask("scancel", "--signal=KILL", "--full", number)
            slurm.ask("scancel", number)


def _is_reused(folder: RunFolder, reply: SlurmReply) -> bool:
    """Whether the number belongs to a later job by now, which must not be ended."""
    rows = list(shown_jobs(reply.out)) if reply.well else []
    return bool(rows) and all(later_job(folder, row) for row in rows)


def _asked(folder: RunFolder, slurm: Slurm, job: str) -> tuple[SlurmReply, list[SlurmJobRow]]:
    """What Slurm reports about the job now.

    Somebody else's job is asked for without its name, which may imitate a state.
    """
    if attached_settings(folder):
        reply = slurm.ask(*these_jobs([job]))
        return reply, list(queue_rows(reply.out))
    reply = ask_for_job(slurm, job)
    return reply, list(shown_jobs(reply.out))


def state_of(reply: SlurmReply, rows: Sequence[SlurmJobRow], tasks: Sequence[int] = ()) -> str:
    """The state of the job, or of one of these tasks; why it is not
    known; or "" once all have ended.
    """
    if is_unknown(reply):
        return ""
    if reply.error:
        return reply.error
    if not rows:
        return "Slurm gives no answer about it"
    meant = [row for row in rows if not tasks or any(covers_task(row, task) for task in tasks)]
    return next((row.state for row in meant if row.state not in FINAL), "")


def _count(folder: RunFolder) -> int:
    """The number of ranks that have ended."""
    return sum(1 for event in all_events(folder.events) if event["kind"] == "exited")
