"""Jobs as squeue, scontrol and sacct report them: the questions, and their output
as rows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Optional

from rankdeck_agent.schedulers.slurm.values import (
    LONGEST_NODES,
    NO_TASK,
    cut_nodes,
    known_text,
    parse_exit_code,
    parse_moment,
    parse_span,
)
from rankdeck_agent.text import plain_line

COLUMNS = {
    "JobID": 20,
    "ArrayJobID": 20,
    "ArrayTaskID": 80,
    "State": 24,
    "Reason": 100,
    "exit_code": 12,
    "RestartCnt": 8,
    "SubmitTime": 24,
    "StartTime": 24,
    "EndTime": 24,
    "TimeLimit": 20,
    "Partition": 200,
    "Account": 60,
    "QOS": 60,
    "NodeList": 2000,
    "SchedNodes": 2000,
    "WorkDir": 500,
}
"""Field of `squeue -O` -> its width: with fixed widths no separator is
needed, which a name might contain.
"""
_ASKED = ("squeue", "--local", "--noheader", "--states=all")
"""`--local`, because asking a federation costs a further call."""
SACCT_FIELDS = (
    "JobIDRaw", "JobID", "State", "ExitCode", "Reason", "Submit", "Start", "End", "NodeList", "Partition",
)  # fmt: skip
_LONGEST_CELL = 500
_LONGEST = {"NodeList": LONGEST_NODES, "SchedNodeList": LONGEST_NODES}
"""Field as scontrol names it -> most characters of it, where that is not _LONGEST_CELL."""
_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")
_IN_QUEUE = {
    "JobID": "JobId",
    "ArrayJobID": "ArrayJobId",
    "ArrayTaskID": "ArrayTaskId",
    "State": "JobState",
    "exit_code": "ExitCode",
    "RestartCnt": "Restarts",
    "SchedNodes": "SchedNodeList",
}
"""Field of squeue -> its name in scontrol, if that differs."""
_IN_ACCOUNTS = {
    "JobIDRaw": "JobId",
    "State": "JobState",
    "Submit": "SubmitTime",
    "Start": "StartTime",
    "End": "EndTime",
}
"""Field of sacct -> its name in scontrol, if that differs."""
_FILES = re.compile(r"\sStdErr=(.*?)\sStdIn=.*?\sStdOut=(.*?)(?=\s[A-Z][A-Za-z]*=|\s*$)")
_LONGEST_PATH = 4096
CLOCKS = 120.0
"""Most seconds by which the clocks of controller and file server may differ."""


def _format(names: Iterable[str]) -> str:
    return "--Format=" + ",".join(f"{name}:{COLUMNS[name]}" for name in names)


SQUEUE = (*_ASKED, "--me", _format(COLUMNS))
"""The command for the user's own jobs."""


def these_jobs(ids: Iterable[str]) -> tuple[str, ...]:
    """SQUEUE for these jobs of any user; without WorkDir, since a folder's name
    may contain lines that look like rows.
    """
    return (
        *_ASKED,
        _format(name for name in COLUMNS if name != "WorkDir"),
        f"--jobs={','.join(ids)}",
    )


class SlurmJobRow(NamedTuple):
    """A job as Slurm reports it. Times are epoch seconds by Slurm's clock; None: not reported."""

    id: str
    state: str
    """Slurm's long form: PENDING, RUNNING, COMPLETING, …"""
    reason: str = ""
    code: Optional[int] = None
    """Exit code of the batch script."""
    signal: int = 0
    restarts: int = 0
    """How often Slurm has queued it again."""
    submitted: Optional[float] = None
    start: Optional[float] = None
    """When it began, or is expected to begin."""
    end: Optional[float] = None
    """When it ended, or must end by its time limit."""
    limit: Optional[float] = None
    """Time limit in seconds; None if there is none."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: str = ""
    """The nodes where it runs or is planned to run, as a Slurm host list."""
    failed_node: str = ""
    by: str = ""
    """Who cancelled it: a user id or name."""
    folder: str = ""
    """Working directory; for our jobs the run folder."""
    array: str = ""
    """`4711_3` for a task of an array, `4711_[0-9]` for tasks that
    wait together; "" for other jobs.
    """
    user: str = ""
    name: str = ""
    tasks: int = 0
    """Number of tasks that it asked for; 0: not reported."""

    @property
    def job(self) -> str:
        """The job's id; for a task of an array, the id of the array."""
        return self.array.partition("_")[0] or self.id


def queue_rows(text: str) -> Iterator[SlurmJobRow]:
    """The jobs in the output of SQUEUE or `these_jobs`; other lines are skipped."""
    for line in text.splitlines():
        if not line[: COLUMNS["JobID"]].strip().isdecimal():
            continue  # a quick check, because there may be megabytes of lines
        cells = {_IN_QUEUE.get(name, name): text for name, text in cut_columns(line, COLUMNS)}
        seen = _seen(cells)
        if seen:
            yield seen


def cut_columns(line: str, columns: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """(name, text) of each column of a line with these column widths."""
    at = 0
    for name, width in columns.items():
        cell = line[at : at + width]
        whole = cell if cell[-1:].isspace() or len(cell) < width else _until_comma(cell)
        yield name, plain_line(whole.strip(), max(width, _LONGEST_CELL))
        at += width


def _cell(field: str, text: str) -> str:
    """The text of a field, safe to keep; a node list that is too long ends after a whole name."""
    if field in _LONGEST:
        return plain_line(cut_nodes(text.strip()), _LONGEST[field])
    return plain_line(text.strip(), _LONGEST_CELL)


def _until_comma(cell: str) -> str:
    """A cell that fills its column, and may have been cut: of a list
    (`gpu:a100:1`) its last entry may be half a one.
    """
    kept, comma, _ = cell.rpartition(",")
    return f"{kept},…" if comma else cell


def _array(job: str, task: str) -> str:
    task = "" if task in NO_TASK else known_text(task)
    return f"{job}_{task}" if task and job.isdecimal() else ""


def shown_job(text: str) -> Optional[SlurmJobRow]:
    """The job in the output of `scontrol --oneliner show job`; None if there is none.

    If a key comes twice, the first counts: text that users choose comes
    later, except the name of the job.
    """
    return next(shown_jobs(text), None)


def shown_jobs(text: str) -> Iterator[SlurmJobRow]:
    """The rows in that output for an array: one for each task that has
    begun, one for those that wait together.
    """
    lines = (line for line in text.splitlines() if line.startswith("JobId="))
    return (seen for seen in map(_seen, map(_pairs, lines)) if seen is not None)


def _seen(cells: Mapping[str, str]) -> Optional[SlurmJobRow]:
    """The job in a row, whose cells have scontrol's names; None if the row is not valid."""
    if not cells.get("JobId", "").isdecimal() or not cells.get("JobState"):
        return None
    code, signal = parse_exit_code(cells.get("ExitCode", ""))
    return SlurmJobRow(
        id=cells["JobId"],
        state=cells["JobState"],
        reason=known_text(cells.get("Reason", "")),
        code=code,
        signal=signal,
        restarts=_count(cells.get("Restarts", "")),
        submitted=parse_moment(cells.get("SubmitTime", "")),
        start=parse_moment(cells.get("StartTime", "")),
        end=parse_moment(cells.get("EndTime", "")),
        limit=parse_span(cells.get("TimeLimit", "")),
        partition=cells.get("Partition", ""),
        account=known_text(cells.get("Account", "")),
        qos=known_text(cells.get("QOS", "")),
        nodes=known_text(cells.get("NodeList", "")) or known_text(cells.get("SchedNodeList", "")),
        failed_node=known_text(cells.get("FailedNode", "")),
        folder=cells.get("WorkDir", ""),
        array=_array(cells.get("ArrayJobId", ""), cells.get("ArrayTaskId", "")),
        user=cells.get("UserId", "").partition("(")[0],
        name=cells.get("JobName", ""),
        tasks=_count(cells.get("NumTasks", "")),
    )


def output_files(text: str) -> tuple[str, str]:
    """(stdout, stderr): files of the job, from the output of `scontrol
    --oneliner show job`; "" if not known.

    Slurm has replaced patterns such as `%j`; a path that still has one is not used.
    """
    line = next((line for line in text.splitlines() if line.startswith("JobId=")), "")
    *_, found = (None, *_FILES.finditer(line))
    paths = (found[2], found[1]) if found else ("", "")
    out, err = (path if _is_path(path) else "" for path in paths)
    return out, err


def _is_path(text: str) -> bool:
    safe = text.isprintable() and len(text) <= _LONGEST_PATH
    return safe and text.startswith("/") and "%" not in text and text != "/dev/null"


def _pairs(line: str) -> dict[str, str]:
    found = list(_KEY.finditer(line))
    ends = [match.start() for match in found[1:]] + [len(line)]
    cells: dict[str, str] = {}
    for match, end in zip(found, ends):
        cells.setdefault(match[1], _cell(match[1], line[match.end() : end]))
    return cells


def account_rows(text: str) -> Iterator[SlurmJobRow]:
    """The jobs (without their steps) in the output of `account_question`, oldest first.

    A job that was queued again has a row for each run.
    """
    for line in text.splitlines():
        words = line.split("|")
        if len(words) < len(SACCT_FIELDS) or not words[0].isdecimal():
            continue  # a step, or no row
        cells = {
            _IN_ACCOUNTS.get(name, name): _cell(name, word)
            for name, word in zip(SACCT_FIELDS, words)
        }
        state, _, by = cells.pop("JobState").partition(" by ")
        seen = _seen({**cells, "JobState": state})
        if seen is not None:
            task = cells["JobID"]
            yield seen._replace(by=by, array=task if "_" in task else "")


def account_question(ids: Iterable[str]) -> tuple[str, ...]:
    """The sacct command for these jobs; slurmdbd answers it, not the controller."""
    return (
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        "--duplicates",
        f"--format={','.join(SACCT_FIELDS)}",
        f"--jobs={','.join(ids)}",
    )


def is_later(seen: SlurmJobRow, submitted: float) -> bool:
    """Whether this job was submitted after ours (at `submitted`, epoch seconds).

    False for a job that was queued again: Slurm gives it a new time.
    """
    late = seen.submitted is not None and seen.submitted > submitted + CLOCKS
    return late and not seen.restarts


def is_earlier(seen: SlurmJobRow, submitted: float) -> bool:
    """Whether this job had ended when ours was submitted (at `submitted`, epoch seconds)."""
    return seen.end is not None and seen.end < submitted - CLOCKS


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0
