"""A job that Slurm runs: its ranks are on other machines, and a keeper of all jobs writes its
events, perhaps on another login node.
"""

from typing import Any

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.schedulers.job_scheduler import JobScheduler
from rankdeck_agent.schedulers.slurm.folder import attempt_log_starts
from rankdeck_agent.schedulers.slurm.keeper_lease import KeeperWatch, is_registered


class SlurmJob(JobScheduler):
    """See JobScheduler."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self._keeper = KeeperWatch()

    def ensure_keeper(self) -> bool:
        self._keeper.ensure()
        return True

    def is_kept(self) -> bool:
        return is_registered(self.folder)

    def cancel(self, grace: float, by: str, tasks: str) -> "dict[str, Any]":
        from rankdeck_agent.schedulers.slurm.job_cancel import cancel_slurm_job

        return cancel_slurm_job(self.folder, grace, by, tasks)

    def inspect(self) -> "dict[str, Any]":
        from rankdeck_agent.schedulers.slurm.beside_ranks import inspect_slurm_ranks

        return inspect_slurm_ranks(self.folder)

    def ask_witnesses(self) -> "dict[str, Any]":
        from rankdeck_agent.schedulers.slurm.beside_ranks import ask_slurm_witnesses

        return ask_slurm_witnesses(self.folder)

    def attempt_log_starts(self) -> "list[dict[str, int]]":
        return attempt_log_starts(self.folder)
