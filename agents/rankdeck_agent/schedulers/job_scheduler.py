"""What runs a job, in the view of its run folder: nothing but this machine, or a scheduler."""

from importlib import import_module
from typing import Any, Optional

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.wire.schedulers.job_files import KUBERNETES_SETTINGS, SLURM_SETTINGS


class JobScheduler:
    """What runs a job. This class itself: no scheduler does, its processes are on this machine."""

    SLACK = 0.0
    """Seconds beyond the grace period in which a supervisor sees that nothing is left elsewhere."""
    RESUMES = False
    """Whether a job may go on when its supervisor is gone, so that a new one can take over."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def ensure_keeper(self) -> bool:
        """Start the keeper that writes the events of the job in place of a supervisor here, if none
        runs on any machine; False if the job has none. Called often.
        """
        return False

    def is_kept(self) -> bool:
        """Whether a keeper has the job among those it must keep."""
        return False

    def goes_on(self) -> bool:
        """Whether the job may still run although its supervisor is gone."""
        return False

    def cancel(self, grace: float, by: str, tasks: str) -> "Optional[dict[str, Any]]":
        """End a job whose ranks are on other machines, as `end_node_processes` describes it; None
        if its processes are to be ended here.
        """
        return None

    def end_left(self, grace: float) -> "list[dict[str, Any]]":
        """End what a killed supervisor left elsewhere; returns what could not be ended, as rows
        of `left` of a cancel.
        """
        return []

    def inspect(self) -> "dict[str, Any]":
        """Where the ranks are now. Raises FolderError, OSError."""
        from rankdeck_agent.job.inspect import inspect_node_ranks

        return inspect_node_ranks(self.folder)

    def ask_witnesses(self) -> "dict[str, Any]":
        """What the ranks of a silent job wait for. Raises FolderError, OSError."""
        from rankdeck_agent.job.standstill import look_at_standing_ranks

        return look_at_standing_ranks(self.folder)

    def attempt_log_starts(self) -> "list[dict[str, int]]":
        """For each time that the job was begun, log (`rank.3/out`) -> byte where the output of
        that time begins; a log that is missing begins at 0.
        """
        return [{}]


SCHEDULERS = {
    SLURM_SETTINGS: ("slurm.scheduled_job", "SlurmJob"),
    KUBERNETES_SETTINGS: ("kubernetes.scheduled_job", "KubernetesJob"),
}
"""File in the run folder with the settings of a job -> module and class of what runs it."""


def find_scheduler(folder: RunFolder) -> JobScheduler:
    """What runs the job of this run folder."""
    for settings, (module, name) in SCHEDULERS.items():
        if (folder / settings).exists():
            # Loaded here: most jobs need none of them.
            made: JobScheduler = getattr(import_module(f"{__package__}.{module}"), name)(folder)
            return made
    return JobScheduler(folder)
