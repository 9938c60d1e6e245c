"""What a run folder says about a supervisor: does it live, and what if it does not."""

from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.journal import post_mortem
from rankdeck_agent.names import LAUNCHER


def supervisor_pid(folder: RunFolder) -> int:
    """The pid of the living supervisor, 0 where there is none."""
    try:
        pid, start = (
            int(word) for word in (folder / "supervisor.pid").read_text().split()
        )
    except (OSError, ValueError):
        return 0
    return pid if processes.is_alive(pid, start) else 0


def close_for(folder: RunFolder, why: str) -> None:
    """Close the events on behalf of a supervisor that is gone, with the exits that shims left."""
    post_mortem(folder / "events", _exits(folder), why)


def _exits(folder: RunFolder) -> dict[int, int]:
    found: dict[int, int] = {}
    for rank in folder.ranks():
        if rank == LAUNCHER:
            continue
        try:
            found[rank] = int((folder.place(rank) / "exit").read_text())
        except (OSError, ValueError):
            continue
    return found
