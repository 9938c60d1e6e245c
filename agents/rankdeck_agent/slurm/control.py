"""Changes in Slurm: a job cancelled, with proof that it is gone; nodes out of service and back, as the operator who typed it.

`slurm service` takes one line of JSON on stdin: {"do": "drain" | "resume", "nodes": […], "why": …, "anyway": …, "agreed": …, "path": …}.
Without `agreed` it only says what would be run. With it that is run, if it still is the same.
"""

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, cast

from rankdeck_agent.job.folder import RunFolder, all_events, is_closed, wait_until
from rankdeck_agent.names import DRAIN_PREFIX as OURS
from rankdeck_agent.names import REFUSED
from rankdeck_agent.slurm.array import covers, numbers
from rankdeck_agent.slurm.cluster import SINFO, Row, node_rows
from rankdeck_agent.slurm.commands import (
    Slurm,
    SlurmJobRow,
    SlurmReply,
    queue_rows,
    shown_jobs,
    these_jobs,
)
from rankdeck_agent.slurm.folder import (
    ASKED,
    MARKS,
    SEEN,
    KeeperWatch,
    attached,
    later_job,
    read_id,
    register_job,
)
from rankdeck_agent.slurm.keeper import ask_for_job, is_unknown
from rankdeck_agent.slurm.verdict import FINAL
from rankdeck_agent.text import plain, say, table

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
    KeeperWatch().ensure()
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
    register_job(folder)


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


DRAIN, RESUME = "drain", "resume"
_NO_WHY = "taken out of service by hand"
_OUT = ("down", "drain", "drng", "fail", "error", "inval")
_LONGEST_WHY, _MOST_NODES, _LONGEST = 160, 5000, 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}\Z")
_RIGHTS = ("Invalid user id", "Access/permission denied", "Unauthorized")


class Order(NamedTuple):
    """What an operator asks for."""

    do: str
    nodes: tuple[str, ...]
    why: str = ""
    anyway: bool = False
    """Give back also what others took out of service."""
    agreed: str = ""
    """The line that the operator agreed to; "" if it is only asked for."""


def order(row: Mapping[str, Any]) -> Optional[Order]:
    """What a line of stdin asks for; None if it makes no sense."""
    found, do = row.get("nodes"), row.get("do")
    given: list[object] = list(cast("list[object]", found)) if isinstance(found, list) else []
    names = [name for name in given if isinstance(name, str) and _NAME.match(name)]
    if do not in (DRAIN, RESUME) or not 0 < len(given) <= _MOST_NODES or len(names) < len(given):
        return None
    words = (row.get("why"), row.get("agreed"))
    why, agreed = (word if isinstance(word, str) else "" for word in words)
    return Order(do, tuple(dict.fromkeys(names)), why, row.get("anyway") is True, agreed)


def refused(asked: Order, row: Optional[Row]) -> str:
    """Why this node is left alone; "" if it is not."""
    if row is None:
        return "Slurm has no node of this name"
    out, ours = row["state"].startswith(_OUT), row["reason"].startswith(OURS)
    whose = (
        f"{row['state']} by {row['by'] or 'somebody else'} ({row['reason'] or 'no reason given'})"
    )
    if asked.do == DRAIN:
        return whose if out and row["reason"] and not ours else ""
    if not out:
        return f"it is in service: {row['state']}"
    return "" if ours or asked.anyway else whose


def command(asked: Order, names: str) -> tuple[str, ...]:
    """The command for these nodes, as Slurm folds their names."""
    if asked.do == RESUME:
        return ("scontrol", "update", f"nodename={names}", "state=resume")
    return ("scontrol", "update", f"nodename={names}", "state=drain", f"reason={reason(asked.why)}")


def reason(why: str) -> str:
    """The reason as Slurm keeps it: ours, short, and of no letter that a shell would obey."""
    safe = "".join(c if (c.isascii() and c.isalnum()) or c in " .,:-_/()+=" else " " for c in why)
    words = " ".join(safe.removeprefix(OURS).split())
    return f"{OURS}{words[:_LONGEST_WHY].strip() or _NO_WHY}"


def line(argv: Sequence[str]) -> str:
    """The command as it is typed in a shell; only the reason has blanks."""
    *words, last = argv
    key, equals, value = last.partition("=")
    return " ".join((*words, f'{key}{equals}"{value}"' if key == "reason" else last))


def complaint(asked: Order, error: str) -> str:
    """Slurm's refusal in a sentence."""
    if any(word in error for word in _RIGHTS):
        verb = "take nodes out of service" if asked.do == DRAIN else "give nodes back"
        return f"you may not {verb}: that takes an operator or administrator of Slurm ({error})"
    return f"Slurm refused it: {error}"


def service() -> int:
    """Answer one order with one line of JSON."""
    row = table(sys.stdin.readline(_LONGEST)) or {}
    path = row.get("path")
    asked = order(row)
    if asked is None:
        answer: Row = {"error": "this order makes no sense"}
    else:
        answer = _serve(asked, Slurm(path if isinstance(path, str) else os.environ.get("PATH", "")))
    return say(answer)


def _serve(asked: Order, slurm: Slurm) -> Row:
    rows, error = _look(asked, slurm)
    if error:
        return {"error": f"Slurm does not answer: {error}"}
    left = {name: why for name in asked.nodes if (why := refused(asked, rows.get(name)))}
    nodes = [name for name in asked.nodes if name not in left]
    answer: Row = {"nodes": nodes, "left": left, "line": "", "done": False, "error": ""}
    if not nodes:
        return answer
    folded = slurm.ask("scontrol", "show", "hostlist", ",".join(nodes))
    argv = command(asked, folded.out.strip() if folded.well else ",".join(nodes))
    answer["line"] = line(argv)
    if not asked.agreed:
        return answer
    if asked.agreed != answer["line"]:
        return {**answer, "error": "Slurm says something else of these nodes by now: look again"}
    return {**answer, **_carry_out(asked._replace(nodes=tuple(nodes)), slurm, argv)}


def _carry_out(asked: Order, slurm: Slurm, argv: tuple[str, ...]) -> Row:
    said = slurm.ask(*argv)
    if not said.well:
        return {"error": complaint(asked, said.error)}
    rows, _ = _look(asked, slurm)
    return {"done": True, "said": plain(said.out.strip(), 400), "now": list(rows.values())}


def _look(asked: Order, slurm: Slurm) -> tuple[dict[str, Row], str]:
    """What Slurm says of these nodes now, and why it did not say it."""
    reply = slurm.ask(*SINFO, f"--nodes={','.join(asked.nodes)}")
    found, _ = node_rows(reply.out)
    return {row["name"]: row for row in found}, "" if reply.well else reply.error
