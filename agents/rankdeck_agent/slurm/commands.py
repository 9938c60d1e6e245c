"""Runs Slurm's commands, each with a limit: what they answer and what they complain of are kept apart."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from rankdeck_agent.job.journal import plain

LIMIT = 30.0
"""Seconds for an answer: a controller that is busy takes its time."""
_MOST = 16 << 20
"""Bytes of an answer: a queue of 50,000 jobs."""
_UNWANTED = ("SQUEUE_", "SINFO_", "SACCT_", "SBATCH_DEBUG", "SLURM_BITSTR_LEN", "SLURM_DEBUG")
"""Variables of the login that would change what the commands print."""
_BANNER = 20


@dataclass(frozen=True)
class Reply:
    """What a command answered. `error` is one line, "" where it ended with 0, whatever stood on its stderr."""

    out: str
    error: str = ""

    @property
    def well(self) -> bool:
        return not self.error


@dataclass(frozen=True)
class Slurm:
    """Slurm as one user sees it; `path` is the PATH on which its commands are."""

    path: str = ""

    def ask(self, *argv: str, limit: float = LIMIT) -> Reply:
        """Run one command; never raises."""
        return run(argv, environment(os.environ, self.path), limit=limit)


def environment(own: Mapping[str, str], path: str = "") -> dict[str, str]:
    """The variables for a command of Slurm: times as epoch seconds, nothing that changes its output."""
    kept = {name: value for name, value in own.items() if not name.startswith(_UNWANTED)}
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C", **({"PATH": path} if path else {})}


def run(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    *,
    limit: float = LIMIT,
    cwd: Optional[str] = None,
    stdin: bytes = b"",
) -> Reply:
    """Run a command; its stdout as text, and why it failed if it did."""
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            cwd=cwd,
            input=stdin,
            capture_output=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Reply("", f"{argv[0]} did not answer within {limit:.0f} s")
    except OSError as error:
        return Reply("", plain(f"{argv[0]}: {error.strerror or error}", 200))
    out = done.stdout[:_MOST].decode("utf-8", "replace")
    if done.returncode == 0:
        return Reply(out)
    return Reply(out, complaint(done.stderr[-65536:].decode("utf-8", "replace")) or _ended(done))


def _ended(done: "subprocess.CompletedProcess[bytes]") -> str:
    return f"{done.args[0]} ended with {done.returncode}"


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
