"""What is known of jobs besides their nodes' records: the last word of the history, notes of node health."""

from dataclasses import replace

from rankdeck.model.insight import NodeNote
from rankdeck.model.job import Job
from rankdeck.rules.lastword import last_word
from rankdeck.rules.nodenotes import with_reasons


class Beside:
    """Written by `Jobs` alone."""

    def __init__(self) -> None:
        self._told: dict[str, Job] = {}
        """Jobs that have ended, as the history has them."""
        self._notes: dict[str, tuple[NodeNote, ...]] = {}
        self._shown: dict[str, tuple[Job, Job]] = {}
        """Job -> what its records alone made of it, and what is shown for that."""

    def shown(self, job: Job) -> Job:
        """The job of the records with all that is known besides; the same object for the same."""
        if job.id not in self._told and job.id not in self._notes:
            return job
        known = self._shown.get(job.id)
        if known is None or known[0] is not job:
            known = self._shown[job.id] = (job, self._joined(job))
        return known[1]

    def _joined(self, job: Job) -> Job:
        told = self._told.get(job.id)
        whole = job if told is None else last_word(job, told)
        notes = self._notes.get(job.id, ())
        return with_reasons(replace(whole, node_notes=notes)) if notes else whole

    def tell(self, job: Job) -> bool:
        """Take the word of the history; whether that is news."""
        if not job.state.final or self._told.get(job.id) == job:
            return False
        self._told[job.id] = job
        self._shown.pop(job.id, None)
        return True

    def note(self, job_id: str, notes: tuple[NodeNote, ...]) -> bool:
        """Keep what happened on the job's nodes; whether that is news."""
        if self._notes.get(job_id, ()) == notes:
            return False
        self._notes[job_id] = notes
        self._shown.pop(job_id, None)
        return True

    def doubt(self, job_id: str) -> None:
        """The nodes say that the job runs: the history was wrong about its end."""
        if self._told.pop(job_id, None):
            self._shown.pop(job_id, None)

    def forget(self, job_id: str) -> None:
        """Nothing is known of this job any more."""
        for table in (self._told, self._notes, self._shown):
            table.pop(job_id, None)
