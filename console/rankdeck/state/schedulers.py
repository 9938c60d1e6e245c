"""Everybody's jobs as Slurm and the API server of Kubernetes list them; partitions and rights."""

from collections.abc import Collection
from dataclasses import replace

from rankdeck.model.schedulers import JOB, ClusterAbout, KubernetesJob, SlurmJob, SlurmPartition

MOST_JOBS, MOST_PARTITIONS = 5_000, 1_000


class SlurmCluster:
    """Written only by `telemetry/slurm.py`; empty without Slurm."""

    def __init__(self) -> None:
        self.trouble = ""
        """Why nothing new comes from Slurm, one sentence; "" if it does."""
        self.user = ""
        """Who we are there."""
        self._jobs: dict[str, SlurmJob] = {}
        self._ended: dict[str, SlurmJob] = {}
        """Jobs that Slurm's accounting remembers."""
        self._partitions: dict[str, SlurmPartition] = {}

    def put(self, job: SlurmJob) -> None:
        """A job as it is now."""
        if job.id and (job.id in self._jobs or len(self._jobs) < MOST_JOBS):
            self._jobs[job.id] = self._with_mine(job)

    def put_ended(self, job: SlurmJob) -> None:
        """A job that ended."""
        if job.id and len(self._ended) < MOST_JOBS:
            self._ended[job.id] = self._with_mine(job)

    def _with_mine(self, job: SlurmJob) -> SlurmJob:
        return replace(job, mine=bool(job.user) and job.user == self.user)

    def drop(self, number: str) -> None:
        """The job has left the queue."""
        self._jobs.pop(number, None)

    def put_partition(self, partition: SlurmPartition) -> None:
        """A partition as it is now."""
        name = partition.name
        if name and (name in self._partitions or len(self._partitions) < MOST_PARTITIONS):
            self._partitions[name] = partition

    def drop_partition(self, name: str) -> None:
        self._partitions.pop(name, None)

    def partitions(self) -> tuple[SlurmPartition, ...]:
        """The default partition first, then by name."""
        return tuple(sorted(self._partitions.values(), key=lambda one: (not one.usual, one.name)))

    def jobs(self, known: Collection[str] = ()) -> tuple[SlurmJob, ...]:
        """Jobs of the queue, then those that ended; in each part our own first, then the newest.

        Without those whose Slurm id the caller knows.
        """
        found = {**self._ended, **self._jobs}.values()
        strange = (job for job in found if job.id not in known and job.place not in known)
        return tuple(
            sorted(strange, key=lambda job: (job.ended is not None, not job.mine, -job.created))
        )


MOST_KUBERNETES_JOBS = 5_000


class KubernetesState:
    """Written only by `telemetry/kubernetes.py`; empty without Kubernetes."""

    def __init__(self) -> None:
        self.about: ClusterAbout | None = None
        """None: not asked yet."""
        self.trouble = ""
        """Why nothing comes from the server, one sentence; "" if it does."""
        self._jobs: dict[tuple[str, str], KubernetesJob] = {}

    def put(self, job: KubernetesJob) -> None:
        """A job as it is now."""
        key = (job.kind, f"{job.namespace}/{job.name}")
        if job.kind and job.name and (key in self._jobs or len(self._jobs) < MOST_KUBERNETES_JOBS):
            self._jobs[key] = job

    def drop(self, kind: str = "", name: str = "") -> None:
        """The job `namespace/name` of this kind is gone."""
        self._jobs.pop((kind, name), None)

    def jobs(self, known: Collection[str] = ()) -> tuple[KubernetesJob, ...]:
        """The newest first, without those of ours that the caller knows by their id."""
        others = [job for job in self._jobs.values() if not job.ours or job.ours not in known]
        return tuple(sorted(others, key=lambda job: -job.created))

    def kind_of(self, job_id: str) -> str:
        """The kind of the job with this id of ours; "" if it is not listed."""
        found = (one.kind for one in self._jobs.values() if job_id in (one.ours, one.place))
        return next(found, "")

    def refused(self, *needs: str, kind: str = JOB) -> str:
        """Why a feature that needs these rights for jobs of this kind is off, one sentence; "" if it is not, or not known."""
        missing = self.about.missing(*needs, kind=kind) if self.about else ()
        if not missing:
            return ""
        return f"you may not {', '.join(missing)}: docs/kubernetes.md has the Role"
