"""What the history and the notes about nodes add to the snapshots of jobs."""

from rankdeck.model.job import Job, NodeNote
from rankdeck.rules.job_news import best_notes, with_reasons
from rankdeck.rules.job_versions import merge_versions
from rankdeck.values import replace


class Additions:
    """What the history and the notes about nodes add to the snapshots of jobs."""

    def __init__(self) -> None:
        self._ended: dict[str, Job] = {}
        """Jobs that have ended according to the history."""
        self._notes: dict[str, tuple[NodeNote, ...]] = {}
        self._shown: dict[str, tuple[Job, Job]] = {}
        """Job -> its snapshot made from events only, and the one that is shown."""

    def shown(self, job: Job) -> Job:
        """The snapshot with the additions; the same object if nothing changed."""
        if job.id not in self._ended and job.id not in self._notes:
            return job
        known = self._shown.get(job.id)
        if known is None or known[0] is not job:
            known = self._shown[job.id] = (job, self._joined(job))
        return known[1]

    def _joined(self, job: Job) -> Job:
        before = self._ended.get(job.id)
        whole = job if before is None else merge_versions(job, before)
        notes = self._notes.get(job.id, ())
        return with_reasons(replace(whole, node_notes=notes)) if notes else whole

    def tell(self, job: Job) -> bool:
        """Take the end of a job from the history; returns whether it is new.

        A job that still runs there is ignored.
        """
        if not job.state.final or self._ended.get(job.id) == job:
            return False
        self._ended[job.id] = job
        self._notes[job.id] = best_notes(self._notes.get(job.id, ()), job.node_notes)
        self._shown.pop(job.id, None)
        return True

    def note(self, job_id: str, notes: tuple[NodeNote, ...]) -> bool:
        """Keep notes on the job's nodes; returns whether they are new."""
        if self._notes.get(job_id, ()) == notes:
            return False
        self._notes[job_id] = notes
        self._shown.pop(job_id, None)
        return True

    def doubt(self, job_id: str) -> None:
        """Drop the end that the history has, because the nodes report that the job runs."""
        if self._ended.pop(job_id, None):
            self._shown.pop(job_id, None)

    def forget(self, job_id: str) -> None:
        """Drop all additions for this job."""
        for table in (self._ended, self._notes, self._shown):
            table.pop(job_id, None)
