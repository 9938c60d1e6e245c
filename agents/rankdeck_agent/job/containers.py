"""Containers of a job that a runtime still remembers once their processes are gone."""

import re
import subprocess
from typing import Any

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.text import plain

_LIMIT = 5.0
_TRIES = 3
_REMOVE = {
    "podman": ("podman", "rm", "--force", "--ignore", "--time", "0"),
    "docker": ("docker", "rm", "--force"),
}
_ID = re.compile(r"[0-9a-f]{12,64}")


def remove(folder: RunFolder) -> list[dict[str, Any]]:
    """Remove every container that the job made; what could not be removed, as `left` has it.

    A runtime writes each container's id to `container.<runtime>.<pid>` in the run folder.
    """
    left: list[dict[str, Any]] = []
    for runtime, command in _REMOVE.items():
        ids = [
            text
            for path in sorted(folder.path.glob(f"container.{runtime}.*"))
            if _ID.fullmatch(text := path.read_text(errors="replace").strip()[:64])
        ]
        if ids and (why := _insist((*command, *ids))):
            left.append({"pid": 0, "command": f"{runtime} containers: {why}"})
    return left


def _insist(argv: tuple[str, ...]) -> str:
    """Why the command failed each time, or "".

    Podman's first answer about a container whose conmon was killed is an error; then it knows.
    """
    why = ""
    for _ in range(_TRIES):
        why = _run(argv)
        if not why:
            break
    return why


def _run(argv: tuple[str, ...]) -> str:
    """Why the command failed, or ""."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return plain(str(error), 200)
    said = done.stderr.decode("utf-8", "replace").strip()
    return plain(said, 200) or f"exit {done.returncode}" if done.returncode else ""
