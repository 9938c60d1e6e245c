"""The small verbs: spawn and answer hand something to a supervisor, remove tidies up, list and port only look."""

import contextlib
import json
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job.control import tell
from rankdeck_agent.job.daemons import good_id
from rankdeck_agent.job.folder import FolderError, RunFolder, all_folders
from rankdeck_agent.job.journal import is_closed
from rankdeck_agent.job.remains import supervisor_pid
from rankdeck_agent.job.text import table

_LONGEST = 1 << 18
_START_LIMIT = 15.0
_POLL = 0.01


def spawn(folder: RunFolder) -> dict[str, Any]:
    """Have the supervisor here start the daemon of the request on stdin."""
    raw = table(sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace"))
    if raw is None or not good_id(str(raw.get("id"))) or not isinstance(raw.get("command"), str):
        raise FolderError('spawn needs {"id": …, "command": …} on stdin')
    request = str(raw["id"])
    place = folder / "spawn" / f"{request}.json"
    place.write_text(json.dumps(raw), encoding="utf-8")
    if not tell(folder / "control", f"daemon {request}"):
        raise FolderError(f"the supervisor of job {folder.job} on {folder.node} is gone")
    said = _await(folder / "spawn" / f"{request}.started")
    return {"ok": True} if said == "ok" else {"ok": False, "error": said}


def _await(path: Path) -> str:
    deadline = time.monotonic() + _START_LIMIT
    while time.monotonic() < deadline:
        if path.exists():
            return path.read_text()
        time.sleep(_POLL)
    return f"the supervisor did not answer within {_START_LIMIT:.0f} s"


def answer(folder: RunFolder, request: str, text: str) -> dict[str, Any]:
    """Hand the console's answer to the launch agent that waits for it."""
    if not good_id(request):
        raise FolderError(f"{request[:60]!r} is not the id of a request")
    if not tell(folder / "control", f"answer {request} {' '.join(text.split())}"):
        raise FolderError(f"the supervisor of job {folder.job} on {folder.node} is gone")
    return {"ok": True}


def remove(folder: RunFolder) -> dict[str, Any]:
    """Delete what a job that is over left here."""
    if not is_closed(folder / "events"):
        raise FolderError(f"job {folder.job} is not over on {folder.node}")
    shutil.rmtree(folder.path)
    with contextlib.suppress(OSError):
        folder.path.parent.rmdir()
    return {"ok": True}


def listing(*, plans: bool) -> None:
    """One line of JSON for every job known here; with what was planned of those that run, if asked."""
    for folder in all_folders():
        row: dict[str, Any] = {
            "job": folder.job,
            "node": folder.node,
            "closed": is_closed(folder / "events"),
            "created": round((folder / "plan.json").stat().st_mtime, 3),
        }
        if plans and not row["closed"]:
            row["alive"] = bool(supervisor_pid(folder))
            row["plan"] = _planned(folder)
        print(json.dumps(row))


def _planned(folder: RunFolder) -> Optional[dict[str, Any]]:
    """Its ranks and commands, without files and environments: they are large, and nobody's business."""
    raw = table((folder / "plan.json").read_text(encoding="utf-8"))
    if raw is None:
        return None
    told = {name: raw.get(name) for name in ("ranks", "grace", "elsewhere")}
    processes = [
        {name: process.get(name) for name in ("name", "argv", "rank")}
        for process in raw.get("processes", ())
    ]
    return {**told, "processes": processes}


def free_port() -> int:
    """A TCP port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
