"""`slurm service`: nodes out of service and back, as the operator who typed it; a reason that another user set is never overwritten.

One line of JSON on stdin: {"do": "drain" | "resume", "nodes": […], "why": …, "anyway": …, "agreed": …, "path": …}.
Without `agreed` it only says what would be run. With it that is run, if it still is the same.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, cast

from rankdeck_agent.names import DRAIN_PREFIX as OURS
from rankdeck_agent.slurm.cluster import SINFO, Row, node_rows
from rankdeck_agent.slurm.commands import Slurm
from rankdeck_agent.text import plain, say, table

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
