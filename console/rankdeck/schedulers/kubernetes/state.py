"""What is known of Kubernetes now: its jobs and the user's rights."""

from collections.abc import Collection

from rankdeck.schedulers.kubernetes.values import JOB, ClusterAbout, KubernetesJob

MOST_KUBERNETES_JOBS = 5_000


class KubernetesState:
    """Jobs and rights in Kubernetes; written only by
    `schedulers/kubernetes/client.py`, empty without Kubernetes.
    """

    def __init__(self) -> None:
        self.about: ClusterAbout | None = None
        """None: not asked yet."""
        self.trouble = ""
        """Why the API server sends nothing, one sentence; "" if it does."""
        self._jobs: dict[tuple[str, str], KubernetesJob] = {}

    def put(self, job: KubernetesJob) -> None:
        """Add or update a job."""
        key = (job.kind, f"{job.namespace}/{job.name}")
        if job.kind and job.name and (key in self._jobs or len(self._jobs) < MOST_KUBERNETES_JOBS):
            self._jobs[key] = job

    def drop(self, kind: str = "", name: str = "") -> None:
        """Remove the job `name` (as `namespace/name`) of this kind."""
        self._jobs.pop((kind, name), None)

    def jobs(self, known: Collection[str] = ()) -> tuple[KubernetesJob, ...]:
        """All jobs, newest first, without those whose Rankdeck id is in `known`."""
        others = [job for job in self._jobs.values() if not job.ours or job.ours not in known]
        return tuple(sorted(others, key=lambda job: -job.created))

    def kind_of(self, job_id: str) -> str:
        """The kind of the job with this Rankdeck id or place
        (`mpijob/pi`); "" if it is not listed.
        """
        found = (one.kind for one in self._jobs.values() if job_id in (one.ours, one.place))
        return next(found, "")

    def refused(self, *needs: str, kind: str = JOB) -> str:
        """Which rights for jobs of this kind the user lacks for these needs, one
        sentence; "" if none, or not known.
        """
        missing = self.about.missing(*needs, kind=kind) if self.about else ()
        if not missing:
            return ""
        return f"you may not {', '.join(missing)}: docs/kubernetes.md has the Role"
