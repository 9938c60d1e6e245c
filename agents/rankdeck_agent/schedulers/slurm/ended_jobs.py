"""`slurm ended`: prints everybody's jobs that ended in the last day, as lines of JSON.

Settings are one line on stdin: {"environment": {…}}. It asks sacct, which asks slurmdbd and not
the controller; its answer is used by all consoles for a minute.
"""

import os
import time
from collections.abc import Iterator

from rankdeck_agent.private_files import make_private_folder
from rankdeck_agent.schedulers.slurm.answers import (
    SlurmAnswer,
    leave_answer,
    read_answer,
    read_question_settings,
)
from rankdeck_agent.schedulers.slurm.commands import Slurm, one_line, slurm_in
from rankdeck_agent.schedulers.slurm.job_reports import SACCT_FIELDS, account_rows
from rankdeck_agent.schedulers.slurm.keeper_lease import keeper_folder
from rankdeck_agent.schedulers.slurm.queue import Row
from rankdeck_agent.schedulers.slurm.values import known_text
from rankdeck_agent.schedulers.slurm.verdict import (
    FINAL,
    EndWords,
    judge_slurm_job,
    slurm_exit_status,
)
from rankdeck_agent.text import plain_line, print_json_line

ENDED = "cluster.ended"
"""File with the answer to SACCT."""
_ENDED_FRESH, _LIMIT, _MOST = 60.0, 60.0, 2000
_MORE = ("User", "NNodes", "AllocCPUS", "JobName")
"""Fields after SACCT_FIELDS.

The name is last: it may contain anything, even text that looks like rows.
"""
SACCT = (
    "sacct", "--noheader", "--parsable2", "--allocations", "--allusers", "--starttime=now-1days", "--endtime=now",
    f"--state={','.join(sorted(FINAL - {'RECONFIG_FAIL', 'LAUNCH_FAILED'}))}",
    f"--format={','.join((*SACCT_FIELDS, *_MORE))}",
)  # fmt: skip
"""The command for everybody's jobs that ended in the last day; with
`PrivateData=jobs` Slurm shows only one's own.
"""
_OFF = "accounting storage is disabled"
NO_HISTORY = (
    "this Slurm keeps no history (its accounting is off): of jobs that ended only those that Rankdeck followed are known"
)  # fmt: skip


def print_ended_jobs() -> int:
    """Print the jobs that ended in the last day as lines of JSON; returns the exit code.

    Settings on stdin: {"environment": {…}}.
    """
    settings = read_question_settings()
    answer = read_answer(ENDED)
    if answer is None or not 0 <= time.time() - answer.at < _ENDED_FRESH:
        answer = _ask(slurm_in(settings))
    for found in ended_rows(answer.text):
        print_json_line({"ended": found})
    print_json_line({"trouble": _sentence(answer.error)})
    return 0


def _ask(slurm: Slurm) -> SlurmAnswer:
    mark = os.urandom(8).hex()
    reply = slurm.ask(*SACCT, f"--delimiter={mark}", limit=_LIMIT)
    rows = (line.replace(mark, "|") for line in reply.out.split("\n") if mark in line)
    now = time.time()
    answer = (
        SlurmAnswer(now, "\n".join(map(one_line, rows)), "", now)
        if reply.well
        else SlurmAnswer(now, "", reply.error)
    )
    make_private_folder(keeper_folder())
    leave_answer(ENDED, answer)
    return answer


def _sentence(error: str) -> str:
    if not error:
        return ""
    return NO_HISTORY if _OFF in error else f"Slurm's accounting does not answer: {error}"


def ended_rows(text: str) -> Iterator[Row]:
    """The jobs that are over in the output of SACCT, newest first; other lines are skipped."""
    found = [row for row in map(_row, text.splitlines()) if row is not None]
    found.sort(key=lambda row: -(row["end"] or 0.0))
    yield from found[:_MOST]


def _row(line: str) -> "Row | None":
    words = line.split("|", len(SACCT_FIELDS) + len(_MORE) - 1)
    seen = next(account_rows(line), None)
    if seen is None or len(words) < len(SACCT_FIELDS) + len(_MORE) or seen.state not in FINAL:
        return None
    user, nodes, cpus, name = words[len(SACCT_FIELDS) :]
    state = judge_slurm_job(seen, EndWords())
    return {
        "id": seen.id,
        "shown": seen.array or seen.id,
        "state": seen.state,
        "user": plain_line(known_text(user), 64),
        "name": plain_line(name, 300),
        "partition": seen.partition,
        "nodes": seen.nodes,
        "count": int(nodes) if nodes.isdecimal() and len(nodes) < 8 else 0,
        "cpus": int(cpus) if cpus.isdecimal() and len(cpus) < 10 else 0,
        "start": seen.start,
        "end": seen.end,
        "submitted": seen.submitted,
        "text": state.text,
        "code": slurm_exit_status(seen),
    }
