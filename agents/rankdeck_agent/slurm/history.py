"""`slurm ended`: everybody's jobs that ended within a day, by one question to Slurm's accounting.

sacct asks slurmdbd, not the controller. The answer is left in the state folder and serves every console for a minute.
"""

import json
import os
import sys
import time
from collections.abc import Iterator

from rankdeck_agent.files import private_folder
from rankdeck_agent.job.folder import plain, table
from rankdeck_agent.slurm import claim
from rankdeck_agent.slurm.cluster import Answer, Row, leave, read
from rankdeck_agent.slurm.commands import Slurm, one_line
from rankdeck_agent.slurm.rows import SACCT_FIELDS, account_rows, known
from rankdeck_agent.slurm.verdict import FINAL, Words, status, verdict

ENDED = "cluster.ended"
"""The file with the answer."""
_ENDED_FRESH, _LIMIT, _MOST = 60.0, 60.0, 2000
_MORE = ("User", "NNodes", "AllocCPUS", "JobName")
"""After the fields of our own jobs. The name is last: it may hold anything, also what looks like other rows."""
SACCT = (
    "sacct", "--noheader", "--parsable2", "--allocations", "--allusers", "--starttime=now-1days", "--endtime=now",
    f"--state={','.join(sorted(FINAL - {'RECONFIG_FAIL', 'LAUNCH_FAILED'}))}",
    f"--format={','.join((*SACCT_FIELDS, *_MORE))}",
)  # fmt: skip
"""Slurm shows a user what it may see: of others nothing where `PrivateData` has jobs."""
_OFF = "accounting storage is disabled"
NO_HISTORY = (
    "this Slurm keeps no history (its accounting is off): of jobs that ended only those that Rankdeck followed are known"
)  # fmt: skip


def ended() -> int:
    """Tell of them as lines of JSON; the settings are one line on stdin: {"path": …}."""
    row = table(sys.stdin.readline(1 << 16)) or {}
    path = row.get("path")
    answer = read(ENDED)
    if answer is None or not 0 <= time.time() - answer.at < _ENDED_FRESH:
        answer = _ask(Slurm(path if isinstance(path, str) else ""))
    for found in ended_rows(answer.text):
        _say_ended({"ended": found})
    _say_ended({"trouble": _sentence(answer.error)})
    return 0


def _ask(slurm: Slurm) -> Answer:
    mark = os.urandom(8).hex()
    reply = slurm.ask(*SACCT, f"--delimiter={mark}", limit=_LIMIT)
    rows = (line.replace(mark, "|") for line in reply.out.split("\n") if mark in line)
    answer = Answer(time.time(), "\n".join(map(one_line, rows)) if reply.well else "", reply.error)
    private_folder(claim.place())
    leave(ENDED, answer)
    return answer


def _sentence(error: str) -> str:
    if not error:
        return ""
    return NO_HISTORY if _OFF in error else f"Slurm's accounting does not answer: {error}"


def ended_rows(text: str) -> Iterator[Row]:
    """The jobs in an answer to `SACCT` that are over, the newest first; other lines are left out."""
    found = [row for line in text.splitlines() if (row := _row(line)) is not None]
    found.sort(key=lambda row: -(row["end"] or 0.0))
    yield from found[:_MOST]


def _row(line: str) -> "Row | None":
    words = line.split("|", len(SACCT_FIELDS) + len(_MORE) - 1)
    seen = next(account_rows(line), None)
    if seen is None or len(words) < len(SACCT_FIELDS) + len(_MORE) or seen.state not in FINAL:
        return None
    user, nodes, cpus, name = words[len(SACCT_FIELDS) :]
    told = verdict(seen, Words())
    return {
        "id": seen.id,
        "shown": seen.array or seen.id,
        "state": seen.state,
        "user": plain(known(user), 64),
        "name": plain(name, 300),
        "partition": seen.partition,
        "nodes": seen.nodes,
        "count": int(nodes) if nodes.isdecimal() and len(nodes) < 8 else 0,
        "cpus": int(cpus) if cpus.isdecimal() and len(cpus) < 10 else 0,
        "start": seen.start,
        "end": seen.end,
        "submitted": seen.submitted,
        "text": told.text,
        "code": status(seen),
    }


def _say_ended(row: Row) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
