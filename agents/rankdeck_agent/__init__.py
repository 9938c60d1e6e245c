"""The Rankdeck agent: reads a node and supervises ranks; Python 3.6 or newer.

This module has its version and constants that console and agent share.
"""

from enum import Enum

__version__ = "0.1.0"

JOB_VARIABLE = "RANKDECK_JOB"
"""Environment variable of every process of a job: the job's name;
cancel finds the processes by it.
"""
NODE_VARIABLE = "RANKDECK_NODE"
"""Environment variable of every process of a job: the node's name."""
RUN_VARIABLE = "RANKDECK_RUN"
"""Environment variable of every process of a job: the job's run folder on this node."""
RANK_VARIABLE = "RANKDECK_RANK"
RANK_VARIABLES = (
    RANK_VARIABLE, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "SLURM_PROCID",
)  # fmt: skip
"""Environment variables in which we or a launcher put the number of a rank; the first that is
set counts.
"""
RANK_IN_SHELL = "".join(f"${{{name}:-" for name in RANK_VARIABLES) + "}" * len(RANK_VARIABLES)
"""The number of a rank in the words of a shell; empty in a process that is no rank."""
RUN_TOKEN = "${RANKDECK_RUN}"
"""In a plan: replaced by the path of the run folder on the node."""
ADDRESS_TOKEN, INTERFACE_TOKEN, DEVICES_TOKEN = (
    "${RANKDECK_ADDRESS}",
    "${RANKDECK_INTERFACE}",
    "${RANKDECK_DEVICES}",
)
"""In a plan: replaced by what the node has in the job network."""
AGENT_TOKEN = "${RANKDECK_AGENT}"
"""As the first word of a command in a plan: run the agent itself,
wherever its file is on that node.
"""
DRAIN_PREFIX = "rankdeck: "
"""How a drain reason that Rankdeck set in Slurm begins."""
LAUNCHER = -1
"""The rank number under which the launcher's own output is sent."""
SIGNALS = ("TERM", "KILL", "INT", "HUP", "STOP", "CONT", "USR1", "USR2", "QUIT")
"""Signals that an operator may send to a process."""
NO_JOBS = ("down", "drain", "drng", "fail", "error", "inval")
"""How the Slurm node states begin in which a node gets no jobs."""
OWN_ENDS = frozenset({"COMPLETED", "FAILED"})
"""Slurm's states of a job that ended by itself: its ranks say more about why than Slurm does."""


class SlurmFlag(str, Enum):
    """Flags of a Slurm node's state by which the console judges."""

    NOT_RESPONDING = "not responding"
    POWERED_DOWN = "powered down"
