"""Cancels a Slurm job and proves it: scancel, the grace, SIGKILL, and a look that it is gone."""

import time
from collections.abc import Sequence
from typing import Any

from rankdeck_agent.job.folder import RunFolder, all_events, is_closed, wait_until
from rankdeck_agent.names import REFUSED
from rankdeck_agent.slurm import lease
from rankdeck_agent.slurm.array import covers, numbers
from rankdeck_agent.slurm.commands import Slurm, SlurmReply
from rankdeck_agent.slurm.folder import ASKED, MARKS, SEEN, attached, later_job, read_id
from rankdeck_agent.slurm.keeper import ask_for_job, is_unknown
from rankdeck_agent.slurm.rows import SlurmJobRow, queue_rows, shown_jobs, these_jobs
from rankdeck_agent.slurm.verdict import FINAL

_SLACK = 20.0
"""Seconds after the grace in which the job must leave Slurm."""
_PAUSES = (0.7, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Seconds between two looks: the first ones are quick, for most jobs end at once."""
_ID_LIMIT, _ASK = 10.0, 5.0
_TOLD = 3.0
"""Seconds for the keeper to write down that the job is over."""


def cancel(folder: RunFolder, grace: float, by: str, tasks: str = "") -> dict[str, Any]:
    """End the job, or only these tasks of an array (`3,5-7`); `left` names what would not go. `grace` is in seconds."""
    if is_closed(folder / "events"):
        return {"left": [], "ended": 0}
    if attached(folder):
        refused = _refused(folder, by)
        if refused:
            return {"left": [_left(f"{REFUSED}{refused}")], "ended": 0}
    for end in [f".{task}" for task in numbers(tasks)] or [""]:
        _note(folder, f"{ASKED}.{by}.{round(grace)}{end}")
    wait_until(lambda: read_id(folder)[0] or is_closed(folder / "events"), _ID_LIMIT)
    number, path = read_id(folder)
    if not number:
        closed = is_closed(folder / "events")
        left = [] if closed else [_left("sbatch has not told the id of the job yet")]
        return {"left": left, "ended": 0}
    lease.KeeperWatch().ensure()
    number = f"{number}_[{tasks}]" if tasks else number
    why = _end(folder, Slurm(path), number, grace)
    if not why and not tasks:
        wait_until(lambda: is_closed(folder / "events"), _TOLD)
    return {"left": [_left(f"Slurm job {number}: {why}")] if why else [], "ended": _count(folder)}


_DENIED = ("Access/permission denied", "Invalid user id", "Unauthorized")


def _refused(folder: RunFolder, by: str) -> str:
    """Why a job that somebody else submitted cannot be ended; "" if Slurm takes the order."""
    number, path = read_id(folder)
    if by != "user":
        return f"Slurm job {number} was not submitted here: nothing but an operator ends it"
    asked = Slurm(path).ask("scancel", number)
    if not any(word in asked.error for word in _DENIED):
        return ""
    return f"Slurm ends job {number} for its owner or an operator of Slurm only ({asked.error})"


def _left(text: str) -> dict[str, Any]:
    return {"pid": 0, "command": text}


def _note(folder: RunFolder, name: str, text: str = "") -> None:
    """Leave a mark for the keeper."""
    if not (folder / MARKS).is_dir():
        return
    fresh = folder / f".{name}"
    fresh.write_text(text)
    fresh.replace(folder / MARKS / name)
    lease.register(folder)


def _end(folder: RunFolder, slurm: Slurm, number: str, grace: float) -> str:
    """Have Slurm end it; what is left of it after the grace, "" if it is gone."""
    job, _, tasks = number.partition("_")
    if not attached(folder) and _is_reused(folder, ask_for_job(slurm, job, _ASK)):
        return ""
    asked = slurm.ask("scancel", number)
    began, forced, looks = time.monotonic(), False, 0
    while True:
        time.sleep(_PAUSES[min(looks, len(_PAUSES) - 1)])
        looks += 1
        reply, rows = _asked(folder, slurm, job)
        state = state_of(reply, rows, numbers(tasks.strip("[]")))
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
    """Whether the number belongs to a later job by now, which nobody wants to end."""
    rows = list(shown_jobs(reply.out)) if reply.well else []
    return bool(rows) and all(later_job(folder, row) for row in rows)


def _asked(folder: RunFolder, slurm: Slurm, job: str) -> tuple[SlurmReply, list[SlurmJobRow]]:
    """What Slurm says of the job now; of one of somebody else without its name, which may look like a state."""
    if attached(folder):
        reply = slurm.ask(*these_jobs([job]))
        return reply, list(queue_rows(reply.out))
    reply = ask_for_job(slurm, job)
    return reply, list(shown_jobs(reply.out))


def state_of(reply: SlurmReply, rows: Sequence[SlurmJobRow], tasks: Sequence[int] = ()) -> str:
    """The state in which it, or one of these tasks, still is, or why that is not known; "" once it is over."""
    if is_unknown(reply):
        return ""
    if reply.error:
        return reply.error
    if not rows:
        return "Slurm gives no answer about it"
    meant = [row for row in rows if not tasks or any(covers(row, task) for task in tasks)]
    return next((row.state for row in meant if row.state not in FINAL), "")


def _count(folder: RunFolder) -> int:
    """Ranks that ended."""
    return sum(1 for event in all_events(folder / "events") if event["kind"] == "exited")
