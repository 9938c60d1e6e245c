"""The Rankdeck agent: reads a node and supervises ranks; Python 3.6 or newer.

This module has its version and constants that console and agent share.
"""

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
LAUNCHER = -1
"""The rank number under which the launcher's own output is sent."""
SIGNALS = ("TERM", "KILL", "INT", "HUP", "STOP", "CONT", "USR1", "USR2", "QUIT")
"""Signals that an operator may send to a process."""
