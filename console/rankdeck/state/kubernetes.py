"""The jobs that the API server of Kubernetes lists, and what is known of the server and of our rights."""

from collections.abc import Collection

from rankdeck.model.kubernetes import JOB, ClusterAbout, KubernetesJob

MOST_JOBS = 5_000


class KubernetesState:
    """Written by the client of the cluster alone; empty where the cluster is none of Kubernetes."""

    def __init__(self) -> None:
        self.about: ClusterAbout | None = None
        """None: not asked yet."""
        self.trouble = ""
        """Why nothing comes from the server, one sentence; "" if it does."""
        self._jobs: dict[tuple[str, str], KubernetesJob] = {}

    def put(self, job: KubernetesJob) -> None:
        """A job as it is now."""
        key = (job.kind, f"{job.namespace}/{job.name}")
        if job.kind and job.name and (key in self._jobs or len(self._jobs) < MOST_JOBS):
            self._jobs[key] = job

    def drop(self, kind: str = "", name: str = "") -> None:
        """The job `namespace/name` of this kind is gone."""
        self._jobs.pop((kind, name), None)

    def jobs(self, known: Collection[str] = ()) -> tuple[KubernetesJob, ...]:
        """The newest first, without those of ours that the caller knows by their id."""
        others = [job for job in self._jobs.values() if not job.ours or job.ours not in known]
        return tuple(sorted(others, key=lambda job: -job.created))

    def kind_of(self, job_id: str) -> str:
        """The kind of the job that we call so; "" where it is not listed."""
        found = (one.kind for one in self._jobs.values() if job_id in (one.ours, one.place))
        return next(found, "")

    def refused(self, *needs: str, kind: str = JOB) -> str:
        """Why a feature that needs these rights for jobs of this kind is off, one sentence; "" where it is not, or not known."""
        missing = self.about.missing(*needs, kind=kind) if self.about else ()
        if not missing:
            return ""
        return f"you may not {', '.join(missing)}: docs/kubernetes.md has the Role"
