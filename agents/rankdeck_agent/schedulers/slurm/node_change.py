"""`slurm service`: drains and resumes nodes.

It takes one line of JSON on stdin: {"do": "drain" | "resume", "nodes": […], "why": …, "anyway": …,
"agreed": …, "environment": {…}}. Without `agreed` it only answers which command it would run. With
it the command is run, if it is still the same.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, cast

from rankdeck_agent.older_python import is_ascii, without_prefix
from rankdeck_agent.schedulers.slurm.commands import Slurm, slurm_in
from rankdeck_agent.schedulers.slurm.host_list import unfold_hosts
from rankdeck_agent.schedulers.slurm.job_cancel import DENIED
from rankdeck_agent.schedulers.slurm.queue import Row
from rankdeck_agent.schedulers.slurm.sinfo import SINFO, node_rows
from rankdeck_agent.text import parse_json_table, plain_line, print_json_line
from rankdeck_agent.wire.schedulers.slurm_states import DRAIN_PREFIX as OURS
from rankdeck_agent.wire.schedulers.slurm_states import NO_JOBS

DRAIN, RESUME = "drain", "resume"
_NO_WHY = "taken out of service by hand"
_LONGEST_WHY, _MOST_NODES, _LONGEST = 160, 5000, 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}\Z")


class Order(NamedTuple):
    """A request of an operator to drain or resume nodes."""

    do: str
    """DRAIN or RESUME."""
    nodes: tuple[str, ...]
    why: str = ""
    """The reason for a drain."""
    anyway: bool = False
    """Also resume nodes that others have drained."""
    agreed: str = ""
    """The command line that the operator agreed to; "": only show it."""


def parse_node_order(row: Mapping[str, Any]) -> Optional[Order]:
    """The Order in a line of stdin; None if it is not valid."""
    found, do = row.get("nodes"), row.get("do")
    given: list[object] = list(cast("list[object]", found)) if isinstance(found, list) else []
    names = [name for name in given if isinstance(name, str) and _NAME.match(name)]
    if do not in (DRAIN, RESUME) or not 0 < len(given) <= _MOST_NODES or len(names) < len(given):
        return None
    words = (row.get("why"), row.get("agreed"))
    why, agreed = (word if isinstance(word, str) else "" for word in words)
    return Order(do, tuple(dict.fromkeys(names)), why, row.get("anyway") is True, agreed)


def refused_node_change(asked: Order, row: Optional[Row]) -> str:
    """Why this node must not be changed; "" if it may be.

    `row`: the node in Slurm, None if there is none.
    """
    if row is None:
        return "Slurm has no node of this name"
    out, ours = row["state"].startswith(NO_JOBS), row["reason"].startswith(OURS)
    whose = (
        f"{row['state']} by {row['by'] or 'somebody else'} ({row['reason'] or 'no reason given'})"
    )
    if asked.do == DRAIN:
        return whose if out and row["reason"] and not ours else ""
    if not out:
        return f"it is in service: {row['state']}"
    return "" if ours or asked.anyway else whose


def node_change_command(asked: Order, names: str) -> tuple[str, ...]:
    """The scontrol command for these nodes; `names` as a Slurm host list."""
    if asked.do == RESUME:
        return ("scontrol", "update", f"nodename={names}", "state=resume")
    return (
        "scontrol",
        "update",
        f"nodename={names}",
        "state=drain",
        f"reason={drain_reason(asked.why)}",
    )


def drain_reason(why: str) -> str:
    """The drain reason for Slurm: with our prefix, short, without
    characters that are special to a shell.
    """
    safe = "".join(c if (is_ascii(c) and c.isalnum()) or c in " .,:-_/()+=" else " " for c in why)
    words = " ".join(without_prefix(safe, OURS).split())
    return f"{OURS}{words[:_LONGEST_WHY].strip() or _NO_WHY}"


def typed_command(argv: Sequence[str]) -> str:
    """The command as typed in a shell; only the reason has blanks."""
    *words, last = argv
    key, equals, value = last.partition("=")
    return " ".join((*words, f'{key}{equals}"{value}"' if key == "reason" else last))


def node_change_complaint(asked: Order, error: str) -> str:
    """A sentence for an error with which Slurm refused the command."""
    if any(word in error for word in DENIED):
        verb = "take nodes out of service" if asked.do == DRAIN else "give nodes back"
        return f"you may not {verb}: that takes an operator or administrator of Slurm ({error})"
    return f"Slurm refused it: {error}"


def change_nodes() -> int:
    """Answer the order on stdin with one line of JSON; returns the exit code."""
    row = parse_json_table(sys.stdin.readline(_LONGEST)) or {}
    asked = parse_node_order(row)
    if asked is None:
        answer: Row = {"error": "this order makes no sense"}
    else:
        answer = answer_node_order(asked, slurm_in(row))
    return print_json_line(answer)


def answer_node_order(asked: Order, slurm: Slurm) -> Row:
    """The command of this order, which nodes it leaves alone and why, and what became of it."""
    rows, error = _look(asked, slurm)
    if error:
        return {"error": f"Slurm does not answer: {error}"}
    reasons = {name: refused_node_change(asked, rows.get(name)) for name in asked.nodes}
    left = {name: why for name, why in reasons.items() if why}
    nodes = [name for name in asked.nodes if name not in left]
    answer: Row = {"nodes": nodes, "left": left, "line": "", "done": False, "error": ""}
    if not nodes:
        return answer
    argv = node_change_command(asked, _folded(slurm, nodes))
    answer["line"] = typed_command(argv)
    if not asked.agreed:
        return answer
    if asked.agreed != answer["line"]:
        return {**answer, "error": "Slurm says something else of these nodes by now: look again"}
    return {**answer, **_carry_out(asked._replace(nodes=tuple(nodes)), slurm, argv)}


def _folded(slurm: Slurm, nodes: Sequence[str]) -> str:
    """The nodes as a host list: the line of Slurm's answer that means them, since wrappers
    print more; else their names.
    """
    lines = slurm.ask("scontrol", "show", "hostlist", ",".join(nodes)).out.split()
    return next((one for one in lines if set(unfold_hosts(one)) == {*nodes}), ",".join(nodes))


def _carry_out(asked: Order, slurm: Slurm, argv: tuple[str, ...]) -> Row:
    result = slurm.ask(*argv)
    if not result.well:
        return {"error": node_change_complaint(asked, result.error)}
    rows, _ = _look(asked, slurm)
    return {"done": True, "said": plain_line(result.out.strip(), 400), "now": list(rows.values())}


def _look(asked: Order, slurm: Slurm) -> tuple[dict[str, Row], str]:
    """(node name -> its row in Slurm now, why Slurm did not answer or "")."""
    reply = slurm.ask(*SINFO, f"--nodes={','.join(asked.nodes)}")
    found, _ = node_rows(reply.out)
    return {row["name"]: row for row in found}, "" if reply.well else reply.error
