"""What goes wrong with a job while its output is printed: on stderr, as soon as it is known."""

import time
from dataclasses import replace

from rankdeck.cli import output
from rankdeck.rules.tidings import countdown, tidings
from rankdeck.session import Session

PERIOD = 0.25
"""Seconds between two looks: a snapshot of a large job costs more than a line."""
STOPS = "; Ctrl-C stops them now, twice leaves them running"


class Tidings:
    """Tells each thing once, also what had happened before it was made."""

    def __init__(self, session: Session, job_id: str, *, may_cancel: bool) -> None:
        self._session, self._job = session, job_id
        self._hint = STOPS if may_cancel else ""
        job = session.jobs.job(job_id)
        self._told = replace(job, first_failure=None, countdown=None, stalled=(), troubles=())
        self._due = 0.0

    def finish(self) -> None:
        """Say what the summary of a job that has ended leaves out."""
        self._due = 0.0
        self.look()

    def look(self) -> None:
        """Say what is new since the last look; of a job that is over only that it was stopped: its summary comes."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + PERIOD
        job = self._session.jobs.job(self._job)
        if job is self._told:
            return
        over = job.state.final and not job.output_coming
        news = countdown if over else tidings
        for line in news(self._told, job, time.time()):
            begins = job.countdown and not self._told.countdown
            hint = self._hint if begins and line.startswith("stopping") else ""
            output.progress(line + hint)
        self._told = job
