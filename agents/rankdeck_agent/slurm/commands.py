"""Runs Slurm's commands, each with a limit, and no more often than a large site allows.

Not by `subprocess`: the keeper stays for days on a login node, and that module alone takes 2.6 MB of its memory.
"""

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

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
        return run(argv, environment(os.environ, self.path), limit=limit)

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


def environment(own: Mapping[str, str], path: str = "") -> dict[str, str]:
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
PERIOD, _SHORTEST, _LONGEST = 30.0, 1.0, 300.0
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
            return now - self._asked >= min(self.period * 2 ** (self._failures - 1), _LONGEST)
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
