"""Runs Slurm's commands, each with a time limit and no more often than a
large site allows, and parses their output.

Without `subprocess`: the keeper runs for days on a login node, and
that module would take 2.6 MB of memory.
"""

import contextlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Optional, cast

from rankdeck_agent.files import wait_readable
from rankdeck_agent.older_python import wait_status_code
from rankdeck_agent.text import plain_line

LIMIT = 30.0
"""Seconds to wait for an answer: a busy controller may take long."""
_MOST = 16 << 20
"""Most bytes of an answer: enough for a queue of 50,000 jobs."""
_UNWANTED = ("SQUEUE_", "SINFO_", "SACCT_", "SBATCH_DEBUG", "SLURM_BITSTR_LEN", "SLURM_DEBUG")
"""Environment variables (beginnings of names) that would change what the commands print."""
_OF_SITE = ("SLURM_CONF", "SLURM_CLUSTERS")
"""Beginnings of the names of Slurm's variables that do not belong to an allocation."""
_DEFAULTS = frozenset(
    {
        "SBATCH_ACCOUNT", "SBATCH_CONSTRAINT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION",
        "SBATCH_TIMELIMIT", "SBATCH_WCKEY",
    }
)  # fmt: skip
"""Variables of sbatch by which a site says what holds where a job file says
nothing; the others change what is run.
"""
_BANNER = 20
_LONGEST_ROW = 1 << 16
"""Most characters of a cell: a node list is read before it is cut."""


class SlurmReply(NamedTuple):
    """The answer of a command.

    `error` is one line; "" if it ended with 0, no matter what it wrote to stderr.
    """

    out: str
    error: str = ""
    late: bool = False
    """Whether it was ended because it did not answer in time."""
    said: str = ""
    """What it wrote to stderr, as it came."""

    @property
    def well(self) -> bool:
        """Whether the command ended with 0."""
        return not self.error


class Slurm(NamedTuple):
    """Runs Slurm's commands as this user, with what the cluster file says of the environment."""

    variables: Mapping[str, str] = {}
    """The variables of the cluster file, such as PATH and SLURM_CONF;
    they come before those of the login.
    """
    patience: float = 1.0
    """By how much longer than usual Slurm has to answer; the cluster
    file's `connect_limit` says so.
    """

    def ask(self, *argv: str, limit: float = LIMIT) -> SlurmReply:
        """Run one command; never raises."""
        env = login_environment(os.environ, self.variables)
        return run_slurm_command(argv, env, limit=limit * self.patience)

    def ask_columns(self, *argv: str, columns: Sequence[str]) -> SlurmReply:
        """Run squeue for these columns, none of them cut: a line for
        each job, with a tab between cells.

        Each cell ends with a random mark: names of other users' jobs, the last column, may contain
        newlines and text that looks like rows of any job.
        """
        mark = f"|{os.urandom(8).hex()}|"
        reply = self.ask(*argv, f"--Format={','.join(f'{name}:0{mark}' for name in columns)}")
        rows = (line.split(mark)[: len(columns)] for line in reply.out.split("\n"))
        lines = (BETWEEN.join(map(one_line, row)) for row in rows if len(row) == len(columns))
        return reply._replace(out="\n".join(lines))


BETWEEN = "\t"
"""Between the cells of a row; `one_line` leaves none in a cell."""


def one_line(row: str) -> str:
    """The row without characters that another reader might take for
    a newline or the end of a cell.
    """
    return row if row.isprintable() else plain_line(row, _LONGEST_ROW)


def slurm_in(row: Mapping[str, Any]) -> Slurm:
    """Slurm's commands as a question, or the settings of a job, want them
    asked: its `environment` and `patience`.
    """
    return Slurm(variables_in(row), patience_in(row))


def patience_in(row: Mapping[str, Any]) -> float:
    """The `patience` of a question or of the settings of a job, from 1."""
    given = row.get("patience")
    return min(max(float(given), 1.0), _MOST_PATIENCE) if isinstance(given, (int, float)) else 1.0


_MOST_PATIENCE = 60.0


def variables_in(row: Mapping[str, Any]) -> dict[str, str]:
    """The variables that a question, or the settings of a job, has under
    `environment`; what is no text is left out.
    """
    given = row.get("environment")
    pairs = cast("dict[Any, Any]", given).items() if isinstance(given, dict) else ()
    return {
        name: value
        for name, value in pairs
        if isinstance(name, str) and isinstance(value, str) and _VARIABLE.match(name)
    }


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def login_environment(own: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The environment for a command of Slurm: prints times as epoch seconds,
    and nothing else changes its output.
    """
    kept = {**outside_allocation(own), **variables}
    wanted = {name: value for name, value in kept.items() if not name.startswith(_UNWANTED)}
    return {**wanted, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def submit_environment(own: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The environment for sbatch, which a job inherits: a login's own
    wishes for other jobs are left out.
    """
    kept = outside_allocation(own)
    wanted = {n: v for n, v in kept.items() if not n.startswith("SBATCH_") or n in _DEFAULTS}
    return {**wanted, **variables}


def outside_allocation(own: Mapping[str, str]) -> dict[str, str]:
    """These variables without those of the allocation in which we happen to
    run (`salloc`), which srun would obey.
    """
    if "SLURM_JOB_ID" not in own:
        return dict(own)
    return {n: v for n, v in own.items() if not n.startswith("SLURM_") or n.startswith(_OF_SITE)}


def run_slurm_command(
    argv: tuple[str, ...], env: Mapping[str, str], *, limit: float = LIMIT, cwd: str = "/"
) -> SlurmReply:
    """Run a command for at most `limit` seconds (then it is killed); returns
    its stdout as text, and why it failed.
    """
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    try:
        pid = _start(argv, env, cwd, out_end, err_end)
    finally:
        os.close(out_end)
        os.close(err_end)
    deadline = time.monotonic() + limit
    output = _read({out: bytearray(), err: bytearray()}, deadline)
    late = time.monotonic() >= deadline
    status = _reap(pid, kill=late)
    text, complaints = (bytes(output[fd]).decode("utf-8", "replace") for fd in (out, err))
    if late:
        return SlurmReply("", f"{argv[0]} did not answer within {limit:.0f} s", late=True)
    error = "" if status == 0 else slurm_complaint(complaints) or f"{argv[0]} ended with {status}"
    return SlurmReply(text, error, said=complaints)


def _start(argv: tuple[str, ...], env: Mapping[str, str], cwd: str, out: int, err: int) -> int:
    """Start the command in a process group of its own; returns its pid."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child was faster and has run the command already
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


def _read(output: dict[int, bytearray], deadline: float) -> dict[int, bytearray]:
    """Read both streams to their end or the deadline, and close
    them; drops what exceeds _MOST bytes.
    """
    waiting = set(output)
    while waiting and time.monotonic() < deadline:
        for fd in wait_readable(waiting, max(0.0, deadline - time.monotonic())):
            data = os.read(fd, 1 << 16)
            if not data:
                waiting.discard(fd)
            elif len(output[fd]) < _MOST:
                output[fd] += data
    for fd in output:
        os.close(fd)
    return output


def _reap(pid: int, *, kill: bool) -> int:
    if kill:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return wait_status_code(status)


def slurm_complaint(text: str) -> str:
    """The error in a command's stderr, in one line: its lines with
    `error:` or `fatal:`, else the last one.

    Sites and wrappers print banners on stderr too. The name of the command,
    with which Slurm begins a line, is removed.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if " error: " in f" {line}" or " fatal: " in f" {line}"]
    chosen = list(dict.fromkeys(errors))[:_BANNER] or lines[-1:]
    words = (line.partition(": error: ")[2] or line for line in chosen)
    return plain_line("; ".join(words), 400)


WINDOW = 60.0
PERIOD, _SHORTEST, _LONGEST_BREAK = 30.0, 1.0, 300.0
"""Seconds between two looks at the queue: while nothing happens; at least;
at most, while Slurm does not answer.
"""
USUAL, _MOST_CALLS = 6, 6000
"""Calls (RPCs) to the controller per minute: usual, and the most that
`slurm: {rpcs_per_minute: …}` can allow.
"""
QUEUE_CALLS = 2
"""Calls that one `squeue` makes: for jobs and for partitions. Seen in sdiag of 24.11."""
JOB_CALLS = 1
"""Calls that one `scontrol --local show job ID` makes."""


class Budget:
    """Limits the calls to the controller to `most` in any minute; `now` is in
    seconds of the caller's monotonic clock.
    """

    def __init__(self, most: int = USUAL) -> None:
        self.most = most
        self._spent: deque[float] = deque()

    def allows(self, calls: int, now: float) -> bool:
        """Whether `calls` more calls stay within the limit."""
        while self._spent and now - self._spent[0] >= WINDOW:
            self._spent.popleft()
        return len(self._spent) + calls <= max(self.most, calls)

    def spend(self, calls: int, now: float) -> None:
        """Note that `calls` calls are made now."""
        self._spent.extend([now] * calls)


class QueueTimer:
    """When to ask for the queue next: soon after something happened, else every
    `period` seconds, less often after failures.
    """

    def __init__(self) -> None:
        self.period = PERIOD
        self.last = float("-inf")
        """When Slurm was asked last."""
        self.failures = 0
        """How many times in a row Slurm did not answer."""
        self._wanted = float("inf")

    def want(self, at: float) -> None:
        """Ask no later than at this time, if Slurm answers and the budget allows it."""
        self._wanted = min(self._wanted, at)

    def due(self, now: float) -> bool:
        """Whether to ask now (monotonic seconds)."""
        if self.failures:
            return now - self.last >= min(self.period * 2 ** (self.failures - 1), _LONGEST_BREAK)
        return now >= self._wanted or now - self.last >= self.period

    def asked(self, now: float, *, well: bool) -> None:
        """Note that Slurm was asked, and whether it answered."""
        self.last, self._wanted = now, float("inf")
        self.failures = 0 if well else self.failures + 1


def look_period(most: int) -> float:
    """Seconds between two looks at the queue if `most` calls per minute
    are allowed; uses two thirds of them.
    """
    return max(_SHORTEST, min(PERIOD, WINDOW * QUEUE_CALLS * 1.5 / max(most, 1)))


_CLUSTER_SHORTEST = 2.0


def cluster_period(most: int) -> float:
    """Seconds between two looks at all nodes, and between two at everybody's jobs;
    together they use two thirds of the calls.
    """
    return max(_CLUSTER_SHORTEST, WINDOW * 2 * QUEUE_CALLS * 1.5 / max(most, 1))


def calls_a_minute(settings: Mapping[str, object]) -> int:
    """Calls per minute that the cluster file allows, from the
    settings of a job (`rpcs_per_minute`).
    """
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


def _format(names: Iterable[str]) -> str:
    return "--Format=" + ",".join(f"{name}:{COLUMNS[name]}" for name in names)


SQUEUE = (*_ASKED, "--me", _format(COLUMNS))
"""The command for the user's own jobs."""


def these_jobs(ids: Iterable[str]) -> tuple[str, ...]:
    """SQUEUE for these jobs of any user; without WorkDir, since a folder's name
    may contain lines that look like rows.
    """
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
_LONGEST_NODES = 2000
"""Most characters of a node list that is kept of a job."""
_LONGEST = {"NodeList": _LONGEST_NODES, "SchedNodeList": _LONGEST_NODES}
"""Field as scontrol names it -> most characters of it, where that is not _LONGEST_CELL."""


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


def cut_nodes(text: str) -> str:
    """A node list of at most _LONGEST_NODES characters; a longer one
    ends after a whole name, with `…`.
    """
    if len(text) <= _LONGEST_NODES:
        return text
    return f"{text[: _LONGEST_NODES - 2].rpartition(',')[0]},…"


def _until_comma(cell: str) -> str:
    """A cell that fills its column, and may have been cut: of a list
    (`gpu:a100:1`) its last entry may be half a one.
    """
    kept, comma, _ = cell.rpartition(",")
    return f"{kept},…" if comma else cell


NO_TASK = frozenset({"4294967294", "4294967295"})
"""Slurm's numbers for no value, which some versions print as the number of a task."""


def _array(job: str, task: str) -> str:
    task = "" if task in NO_TASK else known_text(task)
    return f"{job}_{task}" if task and job.isdecimal() else ""


_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")


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


_FILES = re.compile(r"\sStdErr=(.*?)\sStdIn=.*?\sStdOut=(.*?)(?=\s[A-Z][A-Za-z]*=|\s*$)")
_LONGEST_PATH = 4096


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
        "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates",
        f"--format={','.join(SACCT_FIELDS)}", f"--jobs={','.join(ids)}",
    )  # fmt: skip


CLOCKS = 120.0
"""Most seconds by which the clocks of controller and file server may differ."""


def is_later(seen: SlurmJobRow, submitted: float) -> bool:
    """Whether this job was submitted after ours (at `submitted`, epoch seconds).

    False for a job that was queued again: Slurm gives it a new time.
    """
    late = seen.submitted is not None and seen.submitted > submitted + CLOCKS
    return late and not seen.restarts


def is_earlier(seen: SlurmJobRow, submitted: float) -> bool:
    """Whether this job had ended when ours was submitted (at `submitted`, epoch seconds)."""
    return seen.end is not None and seen.end < submitted - CLOCKS


def known_text(text: str) -> str:
    """`text`, or "" if it is one of Slurm's words for nothing."""
    return "" if text in _NOTHING else text


_GPUS = re.compile(
    r"(?:^|,)(?:gres[/:])?gpu(:(?![0-9]+(?:[,(]|$))[^,:=(]+)?(?:[:=]([0-9]{1,7}))?(?=[,(]|$)"
)
"""An entry such as `gres/gpu:a100=2`, `gpu:a100:2`, `gres/gpu=2` or `gpu`, which is one."""
_MEMORY = re.compile(r"(?:^|,)mem=([0-9]{1,15}(?:\.[0-9]+)?)([KMGTP]?)")
_MEGABYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def parse_count(text: str) -> int:
    """The number in this text; 0 if it is none."""
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def parse_number_ranges(text: str) -> list[int]:
    """The numbers in `0-2,7,10-20:5`, at most 10,000; raises ValueError."""
    steps = (part.partition(":") for part in text.split(",") if part)
    spans = ((span.partition("-"), int(step or 1) or 1) for span, _, step in steps)
    every = (n for (a, _, b), step in spans for n in range(int(a), int(b or a) + 1, step))
    return list(islice(every, _MOST_NUMBERS))


_MOST_NUMBERS = 10_000
"""Most tasks named at once."""


def gpus_of(tres: str) -> int:
    """The number of GPUs in a list of trackable resources, where they may
    stand with their type and without.
    """
    found = [(kind, int(count or 1)) for kind, count in _GPUS.findall(tres)]
    return sum(n for kind, n in found if not kind) or sum(n for _, n in found)


def requested_megabytes(tres: str) -> float:
    """Megabytes of memory in a list of trackable resources such as
    `cpu=4,mem=1800M,node=1`; 0.0 if it has none.
    """
    found = _MEMORY.search(tres)
    return round(float(found[1]) * _MEGABYTES[found[2]], 3) if found else 0.0


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0


def parse_exit_code(text: str) -> tuple[Optional[int], int]:
    """(code, signal) in `7:0`, or in a single number, which is a status as
    from `wait`; (None, 0) for anything else.
    """
    status, colon, signal = text.partition(":")
    if not status.isdecimal() or len(status) > 9 or (colon and not signal.isdecimal()):
        return None, 0
    if colon:
        return int(status), int(signal)
    return int(status) >> 8, int(status) & 0x7F


def parse_moment(text: str) -> Optional[float]:
    """Epoch seconds in `1795358381`, or in local time
    `2026-11-25T13:37:00`; None for anything else.
    """
    if text.isdecimal() and 0 < int(text) < 1 << 34:
        return float(text)
    try:
        return time.mktime(time.strptime(text, _TIME))
    except (ValueError, OverflowError):
        return None


def parse_span(text: str) -> Optional[float]:
    """Seconds in `1-02:03:04`, `2:03:04` or `3:04`; None for anything else, such as UNLIMITED."""
    found = _SPAN.match(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
