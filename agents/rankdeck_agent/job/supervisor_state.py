"""What a run folder says about a supervisor: does it live, and what if it does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import STREAMS, RunFolder
from rankdeck_agent.job.journal import all_events, exits, outcome, post_mortem
from rankdeck_agent.job.last_words import RANK, last_words
from rankdeck_agent.names import LAUNCHER

Events = list[dict[str, Any]]
_COARSE = 0.02
"""Seconds by which the time of a file may lag behind the clock."""


def supervisor_pid(folder: RunFolder) -> int:
    """The pid of the living supervisor, 0 where there is none."""
    try:
        pid, start = (int(word) for word in (folder / "supervisor.pid").read_text().split())
    except (OSError, ValueError):
        return 0
    return pid if processes.is_alive(pid, start) else 0


def close_for(folder: RunFolder, why: str) -> None:
    """Close the events on behalf of a supervisor that is gone, with the exits that shims left."""
    events = all_events(folder / "events")
    trouble = {"kind": "trouble", "text": why, **gone(folder, events)}
    post_mortem(folder / "events", [trouble, *_exits(folder, events)])


def gone(folder: RunFolder, events: Events) -> dict[str, Any]:
    """When the supervisor last wrote anything here, and the ranks that still run."""
    places = (folder.place(rank) for rank in folder.ranks())
    files = [folder / "events", *(place / name for place in places for name in STREAMS)]
    return {
        "gone": round(max(map(_written, files)), 3),
        "running": sorted(_running(folder, events)),
    }


def _running(folder: RunFolder, events: Events) -> Iterator[int]:
    pids = {e["rank"]: e.get("pid") for e in events if e["kind"] == "started"}
    for rank in pids.keys() - exits(events):
        pid = pids[rank]
        # The mark tells the rank from another process that got its pid since.
        if (
            isinstance(pid, int)
            and processes.is_alive(pid)
            and processes.is_marked(pid, folder.job, folder.node)
        ):
            yield rank


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _exits(folder: RunFolder, events: Events) -> list[dict[str, Any]]:
    """What shims left of ranks that the supervisor did not hear of, in the order of time."""
    ranks = set(folder.ranks()) - {LAUNCHER} - exits(events)
    found = [end for rank in ranks if (end := _exit(folder.place(rank), rank, events))]
    return sorted(found, key=lambda end: end["at"])


def _exit(place: Path, rank: int, events: Events) -> Optional[dict[str, Any]]:
    try:
        status = int((place / "exit").read_text())
    except (OSError, ValueError):
        return None
    at = _written(place / "exit")
    began = [e["at"] for e in events if (e["kind"], e.get("rank")) == ("started", rank)]
    # Of a rank that was started again the file may tell of the time before.
    if len(began) > 1 and at < began[-1] - _COARSE:
        return None
    said = {"said": last_words(place, RANK)} if status else {}
    return {"kind": "exited", "at": at, "rank": rank, **outcome(status), **said}
