"""`slurm submit` and `slurm attach`: give a job to Slurm, or follow one that somebody else gave."""

import json
import os
import re
import sys
import time
from typing import Any, NamedTuple, Optional

from rankdeck_agent.descriptors import wait_readable
from rankdeck_agent.job import processes
from rankdeck_agent.job.daily_clean import clean_daily
from rankdeck_agent.job.folder import FolderError, FolderThereError, Journal, RunFolder, post_mortem
from rankdeck_agent.job.layout import make_run_folder, unlink_links
from rankdeck_agent.job.start import process_environment
from rankdeck_agent.machine import local_addresses
from rankdeck_agent.private_files import make_private_folder
from rankdeck_agent.schedulers.slurm.beside_ranks import share_agent
from rankdeck_agent.schedulers.slurm.commands import Slurm, SlurmReply, run_slurm_command
from rankdeck_agent.schedulers.slurm.environment import submit_environment
from rankdeck_agent.schedulers.slurm.folder import (
    attached_settings,
    is_from,
    later_job,
    read_job_settings,
    slurm_of,
    write_id,
)
from rankdeck_agent.schedulers.slurm.job_reports import (
    CLOCKS,
    SQUEUE,
    SlurmJobRow,
    queue_rows,
    shown_job,
)
from rankdeck_agent.schedulers.slurm.keeper import ask_for_job
from rankdeck_agent.schedulers.slurm.keeper_lease import register_job, start_keeper, unregister_job
from rankdeck_agent.schedulers.slurm.marks import MARKS
from rankdeck_agent.text import parse_json_table, print_json_line, shown_line
from rankdeck_agent.wire import NodePlan, WireError, node_plan
from rankdeck_agent.wire.job_events import JobEvent, SupervisorReady, Trouble
from rankdeck_agent.wire.run_folder import CONTROL

_LIMIT = 80.0
"""Seconds for sbatch, which tries again by itself while the controller is busy."""
_SBATCH_SLACK = 5.0
_LONGEST_PLAN = 64 << 20
_UNSURE = re.compile(
    r"timed out|Zero Bytes|receive failure|Unexpected message|Connection reset", re.IGNORECASE
)
"""Errors of sbatch after it has sent the job: the controller may have it all the same."""
_NOBODY = "Unable to contact slurm controller"
_TAKEN = re.compile(
    r"(?:.*\bSubmitted batch job )?([0-9]{1,11})(?:(?:;| on cluster )([A-Za-z0-9_.-]{1,40}))?\Z"
)
"""A line in which sbatch tells the number of a job: `4711`, `4711;cluster`,
`Submitted batch job 4711 on cluster c`.
"""
_LOOKS_IN_QUEUE = (0.0, 1.0, 3.0)
"""Seconds before each look for a job whose number sbatch has not told."""
_NO_NUMBER = "sbatch told no number of a job, and the queue has none from this folder; it said: {}"
_MOST_NUMBERS, _MOST_SAID, _LONGEST_SAID = 5, 20, 400


def submit_job() -> int:
    """Submit the job whose plan is on stdin; print one line of JSON: `ok`,
    and `id` ("" if not known) or `error`.

    What sbatch and the plug-ins of the site say of a job that is accepted goes to its events.
    """
    try:
        plan = _plan()
        folder = make_run_folder(plan)
        _prepare(folder)
        if read_job_settings(folder).get("preflight"):
            share_agent(folder)
    except (WireError, FolderError, OSError) as error:
        return print_json_line({"ok": False, "error": str(error)})
    status = print_json_line(_apart(plan, folder))
    clean_daily()
    return status


def attach_slurm_job() -> int:
    """Follow a job that somebody else submitted; its plan is on stdin.

    Prints `ok` (also if it is followed already) or `error`.
    """
    try:
        plan = _plan()
        folder = make_run_folder(plan)
        number = str((attached_settings(folder) or {}).get("attached", ""))
        if not number.isdecimal():
            raise FolderError("no id of a job")
        _prepare(folder)
        write_id(folder, number, plan.env.get("PATH") or os.environ.get("PATH", os.defpath))
    except FolderThereError:
        pass
    except (WireError, FolderError, OSError) as error:
        return print_json_line({"ok": False, "error": str(error)})
    start_keeper()
    return print_json_line({"ok": True})


def _plan() -> NodePlan:
    return node_plan(
        parse_json_table(sys.stdin.buffer.read(_LONGEST_PLAN).decode("utf-8", "replace"))
    )


def _prepare(folder: RunFolder) -> None:
    """Adapt the run folder to ranks on other machines: no control FIFO, no links,
    but a folder for marks; register the job.
    """
    (folder / CONTROL).unlink()
    unlink_links(folder)
    make_private_folder(folder / MARKS)
    journal = Journal(folder.events)
    journal.add(SupervisorReady(os.getpid(), processes.read_boot_id(), tuple(local_addresses())))
    journal.close()
    register_job(folder)


def _apart(plan: NodePlan, folder: RunFolder) -> dict[str, Any]:
    """Submit in a process of its own: the job's id must be recorded
    even if the SSH connection ends.
    """
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(reading)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        status = 1
        try:
            answer = json.dumps(_submit(plan, folder)).encode()
            os.write(writing, answer)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    ready = wait_readable([reading], _LIMIT + _SBATCH_SLACK)
    answer = os.read(reading, 65536) if ready else b""
    os.close(reading)
    return parse_json_table(answer.decode("utf-8", "replace")) or {
        "ok": False,
        "error": "sbatch did not answer; the job may be in the queue all the same: `squeue --me`",
    }


def _submit(plan: NodePlan, folder: RunFolder) -> dict[str, Any]:
    inherited = process_environment(plan, folder, {})
    env = submit_environment(inherited, {name: inherited[name] for name in plan.env})
    path = env.get("PATH", os.defpath)
    argv = tuple(folder.plan_text(word) for word in plan.processes[0].argv)
    reply = run_slurm_command(argv, env, limit=_LIMIT, cwd=str(folder.path))
    slurm = slurm_of(folder)._replace(variables={**slurm_of(folder).variables, "PATH": path})
    taken = _taken(folder, slurm, reply)
    unsure = reply.late or bool(_UNSURE.search(reply.error))
    if taken is None and (reply.well or unsure):
        taken, answered = _find_in_queue(folder, slurm)
        if taken is None and answered and reply.well:
            return _not_submitted(folder, _NO_NUMBER.format("; ".join(said_by(reply)) or "nothing"))
    if (
        taken is not None
        and taken.cluster
        and not _is_here(folder, ask_for_job(slurm, taken.number))
    ):
        return _not_submitted(folder, _taken_back(slurm, *taken))
    if taken is not None:
        _note_said(folder, reply)
        write_id(folder, taken.number, path)
        start_keeper()
        return {"ok": True, "id": taken.number}
    if reply.well or unsure:
        _note_said(folder, reply)
        start_keeper()  # which looks for the job in the queue
        return {"ok": True, "id": ""}
    why = "; ".join(said_by(reply)) or reply.error
    if _NOBODY in reply.error:
        return _not_submitted(folder, f"Slurm has not taken the job: {why}")
    return _not_submitted(folder, f"Slurm refused the job: {why}")


class TakenJob(NamedTuple):
    """A job that sbatch says it has submitted."""

    number: str
    cluster: str
    """"" for the cluster of this login node."""


def job_numbers(text: str) -> list[TakenJob]:
    """The jobs that lines of sbatch's output may tell, whatever a site's
    wrapper prints before and behind them.
    """
    lines = (_TAKEN.match(shown_line(line, _LONGEST_SAID).strip()) for line in text.splitlines())
    found = (TakenJob(hit[1], hit[2] or "") for hit in lines if hit)
    return list(dict.fromkeys(found))[:_MOST_NUMBERS]


def _taken(folder: RunFolder, slurm: Slurm, reply: SlurmReply) -> Optional[TakenJob]:
    """The job that Slurm has taken; None if it took none, or if that is not known.

    Where sbatch failed, or wrote more than a number, Slurm is asked: it is the job from the run
    folder, or if a site gives jobs another folder, one that was submitted just now.
    """
    found = job_numbers(reply.out) or job_numbers(reply.said)
    if reply.well and len(found) == 1 and len(reply.out.split()) == 1:
        return found[0]
    rows = {one: shown_job(ask_for_job(slurm, one.number).out) for one in found}
    here = [one for one, seen in rows.items() if seen is not None and is_from(folder, seen)]
    late = [one for one, seen in rows.items() if reply.well and seen and _is_new(seen)]
    return next(iter(here or late), None)


def _find_in_queue(folder: RunFolder, slurm: Slurm) -> "tuple[Optional[TakenJob], bool]":
    """(the job in the queue that has the run folder as working directory,
    or None; whether Slurm has answered).
    """
    for pause in _LOOKS_IN_QUEUE:
        time.sleep(pause)
        reply = slurm.ask(*SQUEUE)
        if not reply.well:
            return None, False
        found = next((seen.job for seen in queue_rows(reply.out) if is_from(folder, seen)), "")
        if found:
            return TakenJob(found, ""), True
    return None, True


def _is_new(seen: SlurmJobRow) -> bool:
    return seen.submitted is not None and abs(time.time() - seen.submitted) < CLOCKS


def said_by(reply: SlurmReply) -> list[str]:
    """All that sbatch, and plug-ins and wrappers of the site, wrote, but for
    the number of the job: a line each.
    """
    lines = (
        shown_line(line, _LONGEST_SAID).strip()
        for line in f"{reply.said}\n{reply.out}".splitlines()
    )
    words = (line.partition(": error: ")[2] or line for line in lines)
    said = [line for line in dict.fromkeys(words) if line and not _TAKEN.match(line)]
    more = len(said) - _MOST_SAID
    return [*said[:_MOST_SAID], *([f"and {more} more lines"] if more > 0 else [])]


def _note_said(folder: RunFolder, reply: SlurmReply) -> None:
    journal = Journal(folder.events)
    for line in said_by(reply):
        journal.add(Trouble(line))
    journal.close()


def _not_submitted(folder: RunFolder, why: str) -> dict[str, Any]:
    """Close the run folder of a job that Slurm does not have; returns the answer."""
    post_mortem(folder.events, [JobEvent(time.time(), Trouble(why))])
    unregister_job(folder)
    return {"ok": False, "error": why}


def _is_here(folder: RunFolder, reply: SlurmReply) -> bool:
    """Whether the cluster of this login node has the job."""
    seen = shown_job(reply.out) if reply.well else None
    return seen is not None and not later_job(folder, seen)


def _taken_back(slurm: Slurm, number: str, cluster: str) -> str:
    """End a job that sbatch sent to another cluster, where we cannot
    follow it; returns a sentence about it.
    """
    ended = slurm.ask("scancel", f"--clusters={cluster}", number)
    what = f"sbatch gave the job to the cluster {cluster}, which is not that of this login node"
    if not ended.well:
        return f"{what}, and it could not be taken back ({ended.error}): `scancel --clusters={cluster} {number}`"
    return f"{what}: it was taken back; a cluster file with a login node of {cluster} starts jobs there"
