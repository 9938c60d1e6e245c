"""The `slurm` commands of the agent: submit, keep, watch, list, service, look, attach, ended.

One line of JSON on stdin: {"do": "drain" | "resume", "nodes": […], "why": …, "anyway": …, "agreed": …, "path": …}.
Without `agreed` it only says what would be run. With it that is run, if it still is the same.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Optional, cast

from rankdeck_agent.files import keep_private, private_folder, readable
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import (
    FolderError,
    FolderThereError,
    Journal,
    RunFolder,
    plain,
    post_mortem,
    table,
)
from rankdeck_agent.job.starting import environment, make, unlink_links
from rankdeck_agent.machine import local_addresses
from rankdeck_agent.names import DRAIN_PREFIX as OURS
from rankdeck_agent.slurm import claim, commands
from rankdeck_agent.slurm.attach import attached
from rankdeck_agent.slurm.cluster import SINFO, Row, node_rows
from rankdeck_agent.slurm.commands import Slurm
from rankdeck_agent.slurm.run import FOLDER, write_id
from rankdeck_agent.wire import NodePlan, WireError, node_plan

_VERBS = {
    "submit": "submit",
    "keep": "keeper",
    "watch": "cluster_watch",
    "list": "cluster_watch",
    "service": "service",
    "attach": "submit",
    "look": "attach",
    "beside": "inside",
    "ended": "history",
}
"""Command -> the module that has it, which is loaded only then: the keeper must stay small."""
_NAMES = {"list": "list_all"}
"""What a command is called there, where that is another word."""


def main(argv: list[str]) -> int:
    """Run one command; returns its exit status."""
    keep_private()
    verb, arguments = argv[0] if argv else "", argv[1:]
    if verb not in _VERBS or len(arguments) != (verb == "beside"):
        print(f"rankdeck-agent: slurm takes one of: {', '.join(_VERBS)}", file=sys.stderr)
        return 2
    module = import_module(f"rankdeck_agent.slurm.{_VERBS[verb]}")
    return int(getattr(module, _NAMES.get(verb, verb))(*arguments))


SCRIPT = "job.sbatch"
_LIMIT = 80.0
"""Seconds for sbatch: it tries again by itself while the controller is busy."""
_SLACK = 5.0
_LONGEST_PLAN = 64 << 20


def submit() -> int:
    """Submit the job whose plan is on stdin; print one line of JSON: `ok`, and `id` or `error`."""
    try:
        plan = _plan(sys.stdin.buffer.read(_LONGEST_PLAN))
        folder = make(plan)
        _prepare(folder)
    except (WireError, FolderError, OSError) as error:
        return _say({"ok": False, "error": str(error)})
    return _say(_apart(plan, folder))


def attach() -> int:
    """Follow the job whose plan is on stdin, which somebody else submitted; one that is followed already stays so."""
    try:
        plan = _plan(sys.stdin.buffer.read(_LONGEST_PLAN))
        folder = make(plan)
        number = str((attached(folder) or {}).get("attached", ""))
        if not number.isdigit():
            raise FolderError("no id of a job")
        _prepare(folder)
        write_id(folder, number, plan.env.get("PATH") or os.environ.get("PATH", os.defpath))
    except FolderThereError:
        pass
    except (WireError, FolderError, OSError) as error:
        return _say({"ok": False, "error": str(error)})
    claim.start()
    return _say({"ok": True})


def _plan(data: bytes) -> NodePlan:
    raw = table(data.decode("utf-8", "replace"))
    if raw is None:
        raise WireError("bad plan: not a JSON object")
    return node_plan(raw)


def _say(answer: dict[str, Any]) -> int:
    print(json.dumps(answer), flush=True)
    return 0 if answer["ok"] else 1


def _prepare(folder: RunFolder) -> None:
    """Make of the folder one whose ranks are elsewhere: no pipe, no links, a place for their marks."""
    (folder / "control").unlink()
    unlink_links(folder)
    private_folder(folder / FOLDER)
    journal = Journal(folder / "events")
    journal.add("ready", pid=os.getpid(), boot=processes.boot(), addresses=local_addresses())
    journal.close()
    claim.register(folder)


def _apart(plan: NodePlan, folder: RunFolder) -> dict[str, Any]:
    """Have a process of its own submit it: what sbatch was told may not be forgotten where SSH ends."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(reading)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        status = 1
        try:
            told = json.dumps(_submit(plan, folder)).encode()
            os.write(writing, told)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    ready = readable([reading], _LIMIT + _SLACK)
    said = os.read(reading, 65536) if ready else b""
    os.close(reading)
    return table(said.decode("utf-8", "replace")) or {
        "ok": False,
        "error": "sbatch did not answer; the job may be in the queue all the same: `squeue --me`",
    }


def _submit(plan: NodePlan, folder: RunFolder) -> dict[str, Any]:
    env = environment(plan, folder, {})
    reply = commands.run(
        ("sbatch", "--parsable", "--export=ALL", SCRIPT), env, limit=_LIMIT, cwd=str(folder.path)
    )
    number = job_number(reply.out)
    if number:
        write_id(folder, number, env.get("PATH", os.defpath))
        claim.start()
        return {"ok": True, "id": number}
    if "did not answer" in reply.error or "timed out" in reply.error:
        claim.start()  # which looks for the job in the queue
        return {"ok": True, "id": ""}
    why = reply.error or f"sbatch told no number of a job: {plain(reply.out, 200)!r}"
    post_mortem(folder / "events", [{"kind": "trouble", "text": f"Slurm refused the job: {why}"}])
    claim.unregister(folder)
    return {"ok": False, "error": f"Slurm refused the job: {why}"}


def job_number(text: str) -> str:
    """The id in what `sbatch --parsable` wrote, `4711` or `4711;cluster`; "" where there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    word = lines[-1].partition(";")[0] if lines else ""
    return word if word.isdigit() and word.isascii() and len(word) < 12 else ""


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
    """The line that the operator agreed to; "" where it is only asked for."""


def order(row: Mapping[str, Any]) -> Optional[Order]:
    """What a line of stdin asks for; None where it makes no sense."""
    found, do = row.get("nodes"), row.get("do")
    given: list[object] = list(cast("list[object]", found)) if isinstance(found, list) else []
    names = [name for name in given if isinstance(name, str) and _NAME.match(name)]
    if do not in (DRAIN, RESUME) or not 0 < len(given) <= _MOST_NODES or len(names) < len(given):
        return None
    words = (row.get("why"), row.get("agreed"))
    why, agreed = (word if isinstance(word, str) else "" for word in words)
    return Order(do, tuple(dict.fromkeys(names)), why, row.get("anyway") is True, agreed)


def refused(asked: Order, row: Optional[Row]) -> str:
    """Why this node is left alone; "" where it is not."""
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
    print(json.dumps(answer), flush=True)
    return 0


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
