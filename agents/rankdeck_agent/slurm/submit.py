"""`slurm submit` and `slurm attach`: lay out a run folder, give its script to sbatch, and hand the job to the keeper."""

import json
import os
import re
import sys
from typing import Any

from rankdeck_agent.files import private_folder, readable
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import FolderError, FolderThereError, Journal, RunFolder, post_mortem
from rankdeck_agent.job.starting import environment, make, unlink_links
from rankdeck_agent.machine import local_addresses
from rankdeck_agent.slurm import commands, lease
from rankdeck_agent.slurm.folder import MARKS, attached, later_job, settings, write_id
from rankdeck_agent.slurm.inside import shared_agent
from rankdeck_agent.slurm.keeper import ask_for_job
from rankdeck_agent.slurm.rows import shown_job
from rankdeck_agent.text import plain, say, table
from rankdeck_agent.wire import NodePlan, WireError, node_plan

SCRIPT = "job.sbatch"
_LIMIT = 80.0
"""Seconds for sbatch: it tries again by itself while the controller is busy."""
_SLACK = 5.0
_LONGEST_PLAN = 64 << 20
_NOBODY = "Unable to contact slurm controller"
_CLUSTER = re.compile(r"[^A-Za-z0-9_.-]")


def submit() -> int:
    """Submit the job whose plan is on stdin; print one line of JSON: `ok`, and `id` or `error`."""
    try:
        plan = _plan(sys.stdin.buffer.read(_LONGEST_PLAN))
        folder = make(plan)
        _prepare(folder)
        if settings(folder).get("preflight"):
            shared_agent(folder)
    except (WireError, FolderError, OSError) as error:
        return say({"ok": False, "error": str(error)})
    return say(_apart(plan, folder))


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
        return say({"ok": False, "error": str(error)})
    lease.start()
    return say({"ok": True})


def _plan(data: bytes) -> NodePlan:
    raw = table(data.decode("utf-8", "replace"))
    if raw is None:
        raise WireError("bad plan: not a JSON object")
    return node_plan(raw)


def _prepare(folder: RunFolder) -> None:
    """Make of the folder one whose ranks are elsewhere: no pipe, no links, a place for their marks."""
    (folder / "control").unlink()
    unlink_links(folder)
    private_folder(folder / MARKS)
    journal = Journal(folder / "events")
    journal.add("ready", pid=os.getpid(), boot=processes.boot(), addresses=local_addresses())
    journal.close()
    lease.register(folder)


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
    number, cluster = job_number(reply.out)
    slurm = commands.Slurm(env.get("PATH", os.defpath))
    if number and cluster and not _is_here(folder, ask_for_job(slurm, number)):
        return _refused(folder, _taken_back(slurm, number, cluster))
    if number:
        write_id(folder, number, env.get("PATH", os.defpath))
        lease.start()
        return {"ok": True, "id": number}
    if "did not answer" in reply.error or "timed out" in reply.error:
        lease.start()  # which looks for the job in the queue
        return {"ok": True, "id": ""}
    if _NOBODY in reply.error:
        return _refused(folder, f"Slurm has not taken the job: {reply.error}")
    why = reply.error or f"sbatch told no number of a job: {plain(reply.out, 200)!r}"
    return _refused(folder, f"Slurm refused the job: {why}")


def _refused(folder: RunFolder, why: str) -> dict[str, Any]:
    """Close the folder of a job that Slurm does not have."""
    post_mortem(folder / "events", [{"kind": "trouble", "text": why}])
    lease.unregister(folder)
    return {"ok": False, "error": why}


def _is_here(folder: RunFolder, reply: commands.SlurmReply) -> bool:
    """Whether the cluster of this login node has the job."""
    seen = shown_job(reply.out) if reply.well else None
    return seen is not None and not later_job(folder, seen)


def _taken_back(slurm: commands.Slurm, number: str, cluster: str) -> str:
    """End a job that went to another cluster, which nobody could follow from here; returns a sentence about it."""
    ended = slurm.ask("scancel", f"--clusters={cluster}", number)
    what = f"sbatch gave the job to the cluster {cluster}, which is not that of this login node"
    if not ended.well:
        return f"{what}, and it could not be taken back ({ended.error}): `scancel --clusters={cluster} {number}`"
    return f"{what}: it was taken back; a cluster file with a login node of {cluster} starts jobs there"


def job_number(text: str) -> tuple[str, str]:
    """The id in what `sbatch --parsable` wrote, `4711` or `4711;cluster`, and that cluster; "" if there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    word, _, cluster = lines[-1].partition(";") if lines else ("", "", "")
    good = word.isdecimal() and word.isascii() and len(word) < 12
    return (word, _CLUSTER.sub("", cluster)[:40]) if good else ("", "")
