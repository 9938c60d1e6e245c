"""What Slurm says of a job: rows of squeue, scontrol and sacct, of releases 22.05 to 25.11, as one value. No I/O."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Optional

from rankdeck_agent.text import plain

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
    "Partition": 60,
    "NodeList": 400,
    "SchedNodes": 400,
    "WorkDir": 500,
}
"""Field of `squeue -O` -> columns that it gets: fixed places need no separator that a name may contain."""
_ASKED = ("squeue", "--local", "--noheader", "--states=all")
"""`--local`: the question to a federation is a call of its own."""


def _format(names: Iterable[str]) -> str:
    return "--Format=" + ",".join(f"{name}:{COLUMNS[name]}" for name in names)


SQUEUE = (*_ASKED, "--me", _format(COLUMNS))


def these_jobs(ids: Iterable[str]) -> tuple[str, ...]:
    """The same question for jobs of anybody. Not where they were submitted: a folder's name may hold lines that look like rows."""
    return (*_ASKED, _format(name for name in COLUMNS if name != "WorkDir"), f"--jobs={','.join(ids)}")  # fmt: skip


SACCT_FIELDS = (
    "JobIDRaw", "JobID", "State", "ExitCode", "Reason", "Submit", "Start", "End", "NodeList", "Partition",
)  # fmt: skip
_NOTHING = frozenset(
    {"", "N/A", "Unknown", "None", "NONE", "(null)", "n/a", "INVALID", "None assigned"}
)
_TIME = "%Y-%m-%dT%H:%M:%S"
_SPAN = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})\Z")
_LONGEST = 500


class SlurmJobRow(NamedTuple):
    """A job as Slurm reports it. Times are epoch seconds by Slurm's clock; None: not said."""

    id: str
    state: str
    """As Slurm writes it, long form: PENDING, RUNNING, COMPLETING, …"""
    reason: str = ""
    code: Optional[int] = None
    """Exit status of the batch script."""
    signal: int = 0
    restarts: int = 0
    submitted: Optional[float] = None
    start: Optional[float] = None
    """When it began, or may begin."""
    end: Optional[float] = None
    """When it ended, or must end by its time limit."""
    limit: Optional[float] = None
    """Seconds."""
    partition: str = ""
    nodes: str = ""
    """Where it runs, or is planned to run, as Slurm folds names."""
    failed_node: str = ""
    by: str = ""
    """Who cancelled it: a user id or name."""
    folder: str = ""
    """Where `sbatch` was called: our run folder."""
    array: str = ""
    """`4711_3` of a task of an array, `4711_[0-9]` of those that wait together."""
    user: str = ""
    name: str = ""
    tasks: int = 0
    """How many it asked for; 0: not said."""

    @property
    def job(self) -> str:
        """Its id, or that of the array whose task it is."""
        return self.array.partition("_")[0] or self.id


def queue_rows(text: str) -> Iterator[SlurmJobRow]:
    """The jobs in an answer to `SQUEUE`; other lines are left out."""
    for line in text.splitlines():
        if not line[: COLUMNS["JobID"]].strip().isdecimal():
            continue  # quickly: there may be megabytes of these
        cells = {_IN_QUEUE.get(name, name): text for name, text in cut(line, COLUMNS)}
        if seen := _seen(cells):
            yield seen


def cut(line: str, columns: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Name and text of each column of a line whose columns have these widths."""
    at = 0
    for name, width in columns.items():
        yield name, plain(line[at : at + width].strip(), _LONGEST)
        at += width


def _array(job: str, task: str) -> str:
    task = known(task)
    return f"{job}_{task}" if task and job.isdecimal() else ""


_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")


def shown_job(text: str) -> Optional[SlurmJobRow]:
    """The job in an answer to `scontrol --oneliner show job`; None if there is none.

    Of a key that stands twice the first counts: names and commands come later, but for the name of the job.
    """
    return next(shown_jobs(text), None)


def shown_jobs(text: str) -> Iterator[SlurmJobRow]:
    """The same of an array: one of each task that began, one of those that wait together."""
    lines = (line for line in text.splitlines() if line.startswith("JobId="))
    return (seen for line in lines if (seen := _seen(_pairs(line))) is not None)


_IN_QUEUE = {
    "JobID": "JobId",
    "ArrayJobID": "ArrayJobId",
    "ArrayTaskID": "ArrayTaskId",
    "State": "JobState",
    "exit_code": "ExitCode",
    "RestartCnt": "Restarts",
    "SchedNodes": "SchedNodeList",
}
"""Field of squeue -> its name in scontrol, where that is another."""
_IN_ACCOUNTS = {
    "JobIDRaw": "JobId",
    "State": "JobState",
    "Submit": "SubmitTime",
    "Start": "StartTime",
    "End": "EndTime",
}
"""Field of sacct -> its name in scontrol, where that is another."""


def _seen(cells: Mapping[str, str]) -> Optional[SlurmJobRow]:
    """The job in a row, under the names that scontrol gives its cells."""
    if not cells.get("JobId", "").isdecimal() or not cells.get("JobState"):
        return None
    code, signal = exit_code(cells.get("ExitCode", ""))
    return SlurmJobRow(
        id=cells["JobId"],
        state=cells["JobState"],
        reason=known(cells.get("Reason", "")),
        code=code,
        signal=signal,
        restarts=_count(cells.get("Restarts", "")),
        submitted=moment(cells.get("SubmitTime", "")),
        start=moment(cells.get("StartTime", "")),
        end=moment(cells.get("EndTime", "")),
        limit=span(cells.get("TimeLimit", "")),
        partition=cells.get("Partition", ""),
        nodes=known(cells.get("NodeList", "")) or known(cells.get("SchedNodeList", "")),
        failed_node=known(cells.get("FailedNode", "")),
        folder=cells.get("WorkDir", ""),
        array=_array(cells.get("ArrayJobId", ""), cells.get("ArrayTaskId", "")),
        user=cells.get("UserId", "").partition("(")[0],
        name=cells.get("JobName", ""),
        tasks=_count(cells.get("NumTasks", "")),
    )


_FILES = re.compile(r"\sStdErr=(.*?)\sStdIn=.*?\sStdOut=(.*?)(?=\s[A-Z][A-Za-z]*=|\s*$)")
_LONGEST_PATH = 4096


def output_files(text: str) -> tuple[str, str]:
    """Where stdout and stderr of the job go, in an answer to `scontrol --oneliner show job`; "" if that is not said.

    Slurm has put the job's own words in the place of its patterns; a path with one that is left is none.
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
        cells.setdefault(match[1], plain(line[match.end() : end].strip(), _LONGEST))
    return cells


def account_rows(text: str) -> Iterator[SlurmJobRow]:
    """The jobs, not their steps, in `sacct --parsable2 --noheader --format=…` of `SACCT_FIELDS`, oldest first.

    A job that was queued again has a row for each run with `--duplicates`.
    """
    for line in text.splitlines():
        words = line.split("|")
        if len(words) < len(SACCT_FIELDS) or not words[0].isdecimal():
            continue  # a step, or no row of ours
        cells = {
            _IN_ACCOUNTS.get(name, name): plain(word, _LONGEST)
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
        "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates",
        f"--format={','.join(SACCT_FIELDS)}", f"--jobs={','.join(ids)}",
    )  # fmt: skip


_CLOCKS = 120.0
"""Seconds by which the clocks of controller and file server may differ."""


def is_later(seen: SlurmJobRow, submitted: float) -> bool:
    """Whether this job was submitted after ours, at that time (epoch seconds); Slurm notes a new time for one queued again."""
    late = seen.submitted is not None and seen.submitted > submitted + _CLOCKS
    return late and not seen.restarts


def is_earlier(seen: SlurmJobRow, submitted: float) -> bool:
    """Whether this job was over when ours was submitted."""
    return seen.end is not None and seen.end < submitted - _CLOCKS


def known(text: str) -> str:
    """`text`, or "" if it is one of Slurm's words for nothing."""
    return "" if text in _NOTHING else text


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0


def exit_code(text: str) -> tuple[Optional[int], int]:
    """Status and signal in `7:0`; a number alone is what `wait` gives."""
    status, colon, signal = text.partition(":")
    if not status.isdecimal() or len(status) > 9 or (colon and not signal.isdecimal()):
        return None, 0
    if colon:
        return int(status), int(signal)
    return int(status) >> 8, int(status) & 0x7F


def moment(text: str) -> Optional[float]:
    """Epoch seconds in `1795358381`, or in local time as Slurm writes it where it cannot do that."""
    if text.isdecimal() and 0 < int(text) < 1 << 34:
        return float(text)
    try:
        return time.mktime(time.strptime(text, _TIME))
    except (ValueError, OverflowError):
        return None


def span(text: str) -> Optional[float]:
    """Seconds in `1-02:03:04`, `2:03:04` or `3:04`; None for UNLIMITED."""
    found = _SPAN.match(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
