"""What is known of Slurm now: its queue, ended jobs and partitions."""

from collections.abc import Collection

from rankdeck.model.queue import Partition
from rankdeck.schedulers.slurm.values import SlurmJob
from rankdeck.values import replace

MOST_JOBS, MOST_PARTITIONS = 5_000, 1_000
_QUEUE_IS_OLD = 200.0
"""Seconds after which the age of Slurm's queue is told; while it answers, the
queue is read at least every two minutes.
"""


class SlurmCluster:
    """Slurm's queue, ended jobs and partitions; written only by
    `schedulers/slurm/client.py`, empty without Slurm.
    """

    def __init__(self) -> None:
        self.trouble = ""
        """Why Slurm sends nothing new, one sentence; "" if it does."""
        self.user = ""
        """The user's name in Slurm."""
        self.read_at: float | None = None
        """When Slurm told the queue that is here, epoch seconds; None: never."""
        self.left_out = 0
        """Jobs in the queue that are not here: it is longer than
        MOST_JOBS; one's own come first.
        """
        self._jobs: dict[str, SlurmJob] = {}
        self._ended: dict[str, SlurmJob] = {}
        """Ended jobs from Slurm's accounting."""
        self._partitions: dict[str, Partition] = {}

    def words(self, now: float) -> str:
        """A sentence if the queue is longer than what is shown, or if
        what is shown is old; "" if neither.
        """
        shown = len(self._jobs)
        cut = f"{shown:,} of {shown + self.left_out:,} jobs in Slurm's queue are shown, yours first"
        age = now - self.read_at if self.read_at is not None else 0.0
        old = f"Slurm's queue as it was {age / 60:.0f} min ago: it has not answered since"
        return "; ".join(
            filter(None, (cut if self.left_out else "", old if age > _QUEUE_IS_OLD else ""))
        )

    def put(self, job: SlurmJob) -> None:
        """Add or update a job in the queue."""
        if job.id and (job.id in self._jobs or len(self._jobs) < MOST_JOBS):
            self._jobs[job.id] = self._with_mine(job)

    def put_ended(self, job: SlurmJob) -> None:
        """Add or update an ended job."""
        if job.id and len(self._ended) < MOST_JOBS:
            self._ended[job.id] = self._with_mine(job)

    def _with_mine(self, job: SlurmJob) -> SlurmJob:
        return replace(job, mine=bool(job.user) and job.user == self.user)

    def drop(self, number: str) -> None:
        """Remove a job that has left the queue."""
        self._jobs.pop(number, None)

    def job(self, number: str) -> SlurmJob | None:
        """The job of this number in the queue, or among the ended ones; None if neither has it."""
        return self._jobs.get(number) or self._ended.get(number)

    def put_partition(self, partition: Partition) -> None:
        """Add or update a partition."""
        name = partition.name
        if name and (name in self._partitions or len(self._partitions) < MOST_PARTITIONS):
            self._partitions[name] = partition

    def drop_partition(self, name: str) -> None:
        self._partitions.pop(name, None)

    def partitions(self) -> tuple[Partition, ...]:
        """The default partition first, then by name."""
        return tuple(sorted(self._partitions.values(), key=lambda one: (not one.usual, one.name)))

    def jobs(self, known: Collection[str] = ()) -> tuple[SlurmJob, ...]:
        """Jobs in the queue, then ended ones; in each part the user's own first, then the newest.

        Without jobs whose Slurm id or `place` is in `known`.
        """
        found = {**self._ended, **self._jobs}.values()
        strange = (job for job in found if job.id not in known and job.place not in known)
        return tuple(
            sorted(strange, key=lambda job: (job.ended is not None, not job.mine, -job.created))
        )
