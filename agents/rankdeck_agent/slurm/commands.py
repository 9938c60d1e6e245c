"""Runs Slurm's commands, each with a limit and no more often than a large site allows, and reads the rows that they print.

Not by `subprocess`: the keeper stays for days on a login node, and that module alone takes 2.6 MB of its memory.
"""

import contextlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Optional

from rankdeck_agent.files import readable
from rankdeck_agent.text import plain

LIMIT = 30.0
"""Seconds for an answer: a controller that is busy takes its time."""
_MOST = 16 << 20
"""Bytes of an answer: a queue of 50,000 jobs."""
_UNWANTED = ("SQUEUE_", "SINFO_", "SACCT_", "SBATCH_DEBUG", "SLURM_BITSTR_LEN", "SLURM_DEBUG")
"""Variables of the login that would change what the commands print."""
_BANNER = 20
_LONGEST_ROW = 4096


class SlurmReply(NamedTuple):
    """What a command answered. `error` is one line, "" if it ended with 0, whatever stood on its stderr."""

    out: str
    error: str = ""

    @property
    def well(self) -> bool:
        return not self.error


class Slurm(NamedTuple):
    """Slurm as one user sees it; `path` is the PATH on which its commands are."""

    path: str = ""

    def ask(self, *argv: str, limit: float = LIMIT) -> SlurmReply:
        """Run one command; never raises."""
        return run(argv, login_environment(os.environ, self.path), limit=limit)

    def ask_rows(self, *argv: str) -> SlurmReply:
        """The same for a question with `--format=…`; only lines are kept that begin with a mark of this question alone.

        The names of other users' jobs may have several lines, which look like rows of any job.
        """
        mark = f"{os.urandom(8).hex()}|"
        marked = (word.replace("--format=", f"--format={mark}", 1) for word in argv)
        reply = self.ask(*marked)
        rows = (line[len(mark) :] for line in reply.out.split("\n") if line.startswith(mark))
        return reply._replace(out="\n".join(map(one_line, rows)))


def one_line(row: str) -> str:
    """A row without anything that another reader takes for the end of a line."""
    return row if row.isprintable() else plain(row, _LONGEST_ROW)


def login_environment(own: Mapping[str, str], path: str = "") -> dict[str, str]:
    """The variables for a command of Slurm: times as epoch seconds, nothing that changes its output."""
    kept = {name: value for name, value in own.items() if not name.startswith(_UNWANTED)}
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C", **({"PATH": path} if path else {})}


def run(
    argv: tuple[str, ...], env: Mapping[str, str], *, limit: float = LIMIT, cwd: str = "/"
) -> SlurmReply:
    """Run a command for at most `limit` seconds; its stdout as text, and why it failed if it did."""
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    try:
        pid = _start(argv, env, cwd, out_end, err_end)
    finally:
        os.close(out_end)
        os.close(err_end)
    deadline = time.monotonic() + limit
    said = _read({out: bytearray(), err: bytearray()}, deadline)
    late = time.monotonic() >= deadline
    status = _reap(pid, kill=late)
    text, complaints = (bytes(said[fd]).decode("utf-8", "replace") for fd in (out, err))
    if late:
        return SlurmReply("", f"{argv[0]} did not answer within {limit:.0f} s")
    if status == 0:
        return SlurmReply(text)
    return SlurmReply(text, complaint(complaints) or f"{argv[0]} ended with {status}")


def _start(argv: tuple[str, ...], env: Mapping[str, str], cwd: str, out: int, err: int) -> int:
    """The pid of the command, which is the leader of a process group."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # The child was first, and runs the command already.
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        os.chdir(cwd)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, out), (2, err)):
            os.dup2(source, target)
        os.execvpe(argv[0], argv, dict(env))
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}".encode())
    finally:
        os._exit(127)


def _read(said: dict[int, bytearray], deadline: float) -> dict[int, bytearray]:
    """What comes until both streams end or the time is over; what is too much is thrown away."""
    waiting = set(said)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for fd in readable(waiting, left):
            data = os.read(fd, 1 << 16)
            if not data:
                waiting.discard(fd)
            elif len(said[fd]) < _MOST:
                said[fd] += data
    for fd in said:
        os.close(fd)
    return said


def _reap(pid: int, *, kill: bool) -> int:
    if kill:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def complaint(text: str) -> str:
    """What a command complains of, in one line: its lines with `error`, else the last one.

    Sites print banners on stderr, and wrappers print more; the words of Slurm itself begin
    with the name of the command.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if " error: " in f" {line}" or " fatal: " in f" {line}"]
    chosen = list(dict.fromkeys(errors))[:_BANNER] or lines[-1:]
    words = (line.partition(": error: ")[2] or line for line in chosen)
    return plain("; ".join(words), 400)


WINDOW = 60.0
PERIOD, _SHORTEST, _LONGEST_BREAK = 30.0, 1.0, 300.0
"""Seconds between two looks at the queue: while nothing happens, with a large budget, while Slurm does not answer."""
USUAL, _MOST_CALLS = 6, 6000
"""Calls to the controller a minute, unless the cluster file says otherwise (`slurm: {rpcs_per_minute: …}`)."""
QUEUE_CALLS = 2
"""What `squeue` costs: the jobs, and the partitions. Seen in sdiag of 24.11."""
JOB_CALLS = 1
"""What `scontrol --local show job ID` costs."""


class Budget:
    """Counts the calls of the last minute; `now` is the caller's monotonic clock, in seconds."""

    def __init__(self, most: int = USUAL) -> None:
        self.most = most
        self._spent: deque[float] = deque()

    def allows(self, calls: int, now: float) -> bool:
        """Whether so many calls stay within the limit."""
        while self._spent and now - self._spent[0] >= WINDOW:
            self._spent.popleft()
        return len(self._spent) + calls <= max(self.most, calls)

    def spend(self, calls: int, now: float) -> None:
        self._spent.extend([now] * calls)


class QueueTimer:
    """When to look at the queue next: soon after something happened, else every `PERIOD`, later after failures."""

    def __init__(self) -> None:
        self.period = PERIOD
        self._asked, self._wanted = float("-inf"), float("inf")
        self._failures = 0

    def want(self, at: float) -> None:
        """Look at the latest at this time, if Slurm answers and the budget allows it."""
        self._wanted = min(self._wanted, at)

    def due(self, now: float) -> bool:
        if self._failures:
            return now - self._asked >= min(self.period * 2 ** (self._failures - 1), _LONGEST_BREAK)
        return now >= self._wanted or now - self._asked >= self.period

    def asked(self, now: float, *, well: bool) -> None:
        self._asked, self._wanted = now, float("inf")
        self._failures = 0 if well else self._failures + 1

    @property
    def last(self) -> float:
        """When it was asked last."""
        return self._asked

    @property
    def failures(self) -> int:
        """How often in a row Slurm did not answer."""
        return self._failures


def period(most: int) -> float:
    """Seconds between two looks where so many calls a minute are allowed: two thirds of them are used."""
    return max(_SHORTEST, min(PERIOD, WINDOW * QUEUE_CALLS * 1.5 / max(most, 1)))


_CLUSTER_SHORTEST = 2.0


def cluster_period(most: int) -> float:
    """Seconds between two looks at all nodes, and between two at everybody's jobs: both take two thirds of the calls."""
    return max(_CLUSTER_SHORTEST, WINDOW * 2 * QUEUE_CALLS * 1.5 / max(most, 1))


def calls_a_minute(settings: Mapping[str, object]) -> int:
    """What the cluster file allows, as the settings of a job carry it."""
    asked = settings.get("rpcs_per_minute")
    return asked if isinstance(asked, int) and 0 < asked <= _MOST_CALLS else USUAL


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
_LONGEST_CELL = 500


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
        yield name, plain(line[at : at + width].strip(), _LONGEST_CELL)
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
        cells.setdefault(match[1], plain(line[match.end() : end].strip(), _LONGEST_CELL))
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
            _IN_ACCOUNTS.get(name, name): plain(word, _LONGEST_CELL)
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
