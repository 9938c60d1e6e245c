"""Runs Slurm's commands, each with a time limit.

Without `subprocess`: the keeper runs for days on a login node, and
that module would take 2.6 MB of memory.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rankdeck_agent.descriptors import read_to_end
from rankdeck_agent.older_python import wait_status_code
from rankdeck_agent.schedulers.slurm.environment import login_environment, variables_in
from rankdeck_agent.text import plain_line

LIMIT = 30.0
"""Seconds to wait for an answer: a busy controller may take long."""
_MOST = 16 << 20
"""Most bytes of an answer: enough for a queue of 50,000 jobs."""
_BANNER = 20
_LONGEST_ROW = 1 << 16
"""Most characters of a cell: a node list is read before it is cut."""
BETWEEN = "\t"
"""Between the cells of a row; `one_line` leaves none in a cell."""
_MOST_PATIENCE = 60.0


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
    output = read_to_end((out, err), deadline, _MOST)
    os.close(out)
    os.close(err)
    late = time.monotonic() >= deadline
    status = _reap(pid, kill=late)
    text, complaints = (data.decode("utf-8", "replace") for data in output)
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


def _reap(pid: int, *, kill: bool) -> int:
    if kill:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return wait_status_code(status)


_OWN_ERROR = re.compile(r"(?:\S+ )?(?:error|fatal): ")
"""How Slurm's own errors begin; the modules of a site have sentences with this word."""


def slurm_complaint(text: str) -> str:
    """The error in a command's stderr, in one line: its lines that begin with
    `error:` or `PROGRAM: fatal:`, else those that have such a word, else the last one.

    Sites and wrappers print banners on stderr too. The name of the command,
    with which Slurm begins a line, is removed.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _OWN_ERROR.match(line)]
    errors = errors or [one for one in lines if " error: " in f" {one}" or " fatal: " in f" {one}"]
    chosen = list(dict.fromkeys(errors))[:_BANNER] or lines[-1:]
    words = (line.partition(": error: ")[2] or line for line in chosen)
    return plain_line("; ".join(words), 400)
