"""The job that somebody means by a few letters."""

from collections.abc import Sequence

from rankdeck.errors import UnknownJobError
from rankdeck.model.job import Job
from rankdeck.model.text import strip_controls


def find_job(text: str, jobs: Sequence[Job]) -> Job:
    """The job of this id, the first of this name, or the only one whose id begins so; raises UnknownJobError."""
    exact = [job for job in jobs if job.id == text] or [job for job in jobs if job.name == text]
    if exact:
        return exact[0]
    found = [job for job in jobs if text and job.id.startswith(text)]
    if len(found) == 1:
        return found[0]
    shown = strip_controls(text)[:60]
    if found:
        names = ", ".join(job.id for job in found[:5])
        raise UnknownJobError(f"`{shown}` begins more than one job: {names}")
    raise UnknownJobError(f"no job `{shown}`; `rankdeck jobs` lists them")
