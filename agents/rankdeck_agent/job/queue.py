"""The Slurm job of a run folder, once whoever submitted it is gone."""

import os
import time
from typing import Any

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.outside import ask
from rankdeck_agent.job.text import plain

_LIMIT = 20.0
_PAUSE = 0.5
_OVER = "Invalid job id"


def remove(folder: RunFolder) -> list[dict[str, Any]]:
    """Take the job out of Slurm, by force; what would not go, as `left` of a cancel has it.

    `slurm.id` has the id and the PATH on which Slurm's commands were found.
    """
    try:
        number, path = (folder / "slurm.id").read_text().splitlines()
    except (OSError, ValueError):
        return []
    deadline = time.monotonic() + _LIMIT
    while state := _state(number, path):
        if time.monotonic() >= deadline:
            return [{"pid": 0, "command": f"Slurm job {number}: {state}"}]
        _run(path, "scancel", "--signal=KILL", number)
        _run(path, "scancel", number)
        time.sleep(_PAUSE)
    return []


def _state(number: str, path: str) -> str:
    """What squeue says of the job; "" once it is no longer there."""
    error, said = _run(path, "squeue", "--noheader", "--job", number, "--format=%T")
    return plain(said, 200) or ("" if not error or _OVER in error else error)


def _run(path: str, *argv: str) -> tuple[str, str]:
    return ask(argv, _LIMIT, {**os.environ, "PATH": path})
