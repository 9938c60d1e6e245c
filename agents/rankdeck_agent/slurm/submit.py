"""`slurm submit` and `slurm attach`: lay out a run folder, give its script to sbatch, and hand the job to the keeper."""

import json
import os
import sys
from typing import Any

from rankdeck_agent.files import private_folder, readable
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
from rankdeck_agent.slurm import claim, commands
from rankdeck_agent.slurm.attach import attached
from rankdeck_agent.slurm.inside import shared_agent
from rankdeck_agent.slurm.run import FOLDER, settings, write_id
from rankdeck_agent.wire import NodePlan, WireError, node_plan

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
        if settings(folder).get("preflight"):
            shared_agent(folder)
    except (WireError, FolderError, OSError) as error:
        return _say({"ok": False, "error": str(error)})
    return _say(_apart(plan, folder))


def attach() -> int:
    """Follow the job whose plan is on stdin, which somebody else submitted; one that is followed already stays so."""
    try:
        plan = _plan(sys.stdin.buffer.read(_LONGEST_PLAN))
        folder = make(plan)
        number = str((attached(folder) or {}).get("attached", ""))
        if not number.isdecimal():
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
    return word if word.isdecimal() and word.isascii() and len(word) < 12 else ""
