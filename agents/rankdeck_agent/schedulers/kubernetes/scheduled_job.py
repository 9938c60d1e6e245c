"""A job that Kubernetes runs: a supervisor on this machine keeps it, and it goes on without one."""

from typing import Any

from rankdeck_agent.schedulers.job_scheduler import JobScheduler


class KubernetesJob(JobScheduler):
    """See JobScheduler."""

    SLACK = 6.0
    RESUMES = True

    def goes_on(self) -> bool:
        from rankdeck_agent.schedulers.kubernetes.target import GONE

        return not (self.folder / GONE).exists()

    def end_left(self, grace: float) -> "list[dict[str, Any]]":
        from rankdeck_agent.schedulers.kubernetes.target import end_without_keeper

        return end_without_keeper(self.folder, grace)
