"""Containers of a job that a runtime still remembers once their processes are gone."""

import fcntl
import time
from typing import Any

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.outside import ask

_LIMIT = 20.0
"""Seconds in all: Podman alone waits 5 for a container whose conmon was killed."""
_PAUSE = 0.2
_REMOVE = {
    "podman": ("rm", "--force", "--ignore", "--time", "0"),
    "docker": ("rm", "--force"),
}


def remove(folder: RunFolder) -> list[dict[str, Any]]:
    """Remove every container that the job made here; what could not be removed, as `left` has it.

    A rank that starts a container leaves the file `container.<runtime>` in the run folder, and
    the folder's path is the container's label. A file with the container's id would not do:
    Podman deletes it first when it removes a container, and may be ended before the rest.
    """
    used = [name for name in _REMOVE if (folder / f"container.{name}").exists()]
    kept = [(name, why) for name in used if (why := _clear(name, folder))]
    return [{"pid": 0, "command": f"{name} containers: {why}"} for name, why in kept]


def _clear(runtime: str, folder: RunFolder) -> str:
    """Why containers are left, or ""; one at a time, for two `podman rm` hinder each other.

    Podman's first answer about a container whose conmon was killed is an error; then it knows.
    """
    deadline = time.monotonic() + _LIMIT
    look = ("ps", "--all", "--quiet", "--filter", f"label=rankdeck.run={folder.path}")
    with (folder / f"container.{runtime}").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while True:
            why, ids = _run((runtime, *look), deadline)
            if not why and not ids:
                return ""
            if ids:
                why, _ = _run((runtime, *_REMOVE[runtime], *ids), deadline)
            if time.monotonic() >= deadline:
                return why or " ".join(ids)
            time.sleep(_PAUSE)


def _run(argv: tuple[str, ...], deadline: float) -> tuple[str, list[str]]:
    """Why the command failed, or "", and the words it wrote where it did not."""
    why, said = ask(argv, max(1.0, deadline - time.monotonic()))
    return why, [] if why else said.split()
