"""Containers of a job that a runtime still remembers once their processes are gone."""

import re
import subprocess
from typing import Any

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.text import plain

_LIMIT = 8.0
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
        if ids and (why := _run((*command, *ids))):
            left.append({"pid": 0, "command": f"{runtime} containers: {why}"})
    return left


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
