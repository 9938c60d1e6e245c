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

    def inspect(self) -> "dict[str, Any]":
        from rankdeck_agent.job.inspect import newest_line
        from rankdeck_agent.schedulers.kubernetes.inside_pods import ask_inside_pods
        from rankdeck_agent.schedulers.kubernetes.pod_ranks import INSPECT

        found = ask_inside_pods(self.folder, INSPECT)
        for row in (row for pod in found["inside"] for row in pod["ranks"]):
            row["last"] = newest_line(self.folder, row["rank"])
        return found

    def ask_witnesses(self) -> "dict[str, Any]":
        from rankdeck_agent.job.standstill import add_last_words
        from rankdeck_agent.schedulers.kubernetes.inside_pods import ask_inside_pods
        from rankdeck_agent.schedulers.kubernetes.pod_ranks import WITNESS

        found = ask_inside_pods(self.folder, WITNESS)
        add_last_words(self.folder, [row for pod in found["inside"] for row in pod["ranks"]])
        return found

    def end_left(self, grace: float) -> "list[dict[str, Any]]":
        from rankdeck_agent.schedulers.kubernetes.target import end_without_keeper

        return end_without_keeper(self.folder, grace)
