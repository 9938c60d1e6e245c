"""A job that goes on without its supervisor: whether another supervisor may take over, and which
process starts it.
"""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager

from rankdeck_agent.job.folder import RunFolder, all_events, is_closed
from rankdeck_agent.job.supervisor_state import COMPLETE
from rankdeck_agent.schedulers.job_scheduler import find_scheduler

_MOST_STARTS = 50
"""Most supervisors of one job, so that one that always dies is not started again for ever."""


def goes_on(folder: RunFolder) -> bool:
    """Whether the job still runs without a supervisor, so that a new one can resume it."""
    if is_closed(folder.events) or not find_scheduler(folder).goes_on():
        return False
    if any((folder / name).exists() for name in (COMPLETE, _ENDING)):
        return False
    kinds = [event["kind"] for event in all_events(folder.events)]
    return "cancel" not in kinds and kinds.count("process") < _MOST_STARTS


_RESUMING, _ENDING = "resuming", "ending"


@contextmanager
def hold_resume_lock(folder: RunFolder) -> Generator[bool, None, None]:
    """Hold this lock while starting another supervisor; yields False if
    another process does so or ends the job.
    """
    with (folder / _RESUMING).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield not (folder / _ENDING).exists()


def stop_resuming(folder: RunFolder) -> None:
    """Forbid new supervisors, because the job is being ended;
    waits for one that is being started.
    """
    if not find_scheduler(folder).RESUMES:
        return
    (folder / _ENDING).touch(mode=0o600)
    with (folder / _RESUMING).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
