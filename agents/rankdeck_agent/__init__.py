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
