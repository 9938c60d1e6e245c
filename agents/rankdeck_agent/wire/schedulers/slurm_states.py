"""Words of Slurm for the states of nodes and jobs, by which console and agent judge."""

from enum import Enum

DRAIN_PREFIX = "rankdeck: "
"""How a drain reason that Rankdeck set in Slurm begins."""
NO_JOBS = ("down", "drain", "drng", "fail", "error", "inval")
"""How the Slurm node states begin in which a node gets no jobs."""
AWAY = ("maint", "reboot", "future", "unk", "powering_down")
"""How the states begin in which a node gets no jobs for a time, although nobody has drained it."""
OWN_ENDS = frozenset({"COMPLETED", "FAILED"})
"""Slurm's states of a job that ended by itself: its ranks say more about why than Slurm does."""


class SlurmFlag(str, Enum):
    """Flags of a Slurm node's state by which the console judges."""

    NOT_RESPONDING = "not responding"
    POWERED_DOWN = "powered down"
    POWERING_DOWN = "powering down"
    REBOOTING = "rebooting"
