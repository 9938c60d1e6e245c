"""The Rankdeck agent: reads a node and supervises ranks; Python 3.9 and up. Here: its version, and names that console and agent share."""

import errno

__version__ = "0.1.0"


LOG_CLOSED = {
    errno.EPERM: "the kernel log may not be read: set kernel.dmesg_restrict=0, or install the agent (it gets CAP_SYSLOG)",
    errno.EACCES: "the kernel log may not be read: add the user to the group of /dev/kmsg, often adm",
}
"""Why `kernel.events` is not there for want of a permission: less is checked, and nothing is wrong."""

SATURATED = "saturated at {}: counts no more, perfquery -R clears it"
"""Why an RDMA counter is blind: what it was part of goes on without it."""

JOB_VARIABLE = "RANKDECK_JOB"
"""In the environment of every process of a job: how cancel finds them."""
NODE_VARIABLE = "RANKDECK_NODE"
RUN_VARIABLE = "RANKDECK_RUN"
"""The run folder of this job on this node; `${RANKDECK_RUN}` in a plan stands for it."""
RUN_TOKEN = "${RANKDECK_RUN}"
AGENT_TOKEN = "${RANKDECK_AGENT}"
"""As the first word of a command in a plan: the agent's own, wherever it lies on that node."""
DRAIN_PREFIX = "rankdeck: "
"""How the reasons begin that Slurm has from us for nodes that are out of service."""
REFUSED = "refused: "
"""How what a cancel could not end begins where nothing was done: this user may not."""
NO_FOLDER = "has no run folder"
"""What an agent says of a job that it does not know: it was never started there, or its folder was removed."""
LAUNCHER = -1
"""The rank number under which the launcher's own output travels."""
SIGNALS = ("TERM", "KILL", "INT", "HUP", "STOP", "CONT", "USR1", "USR2", "QUIT")
"""What an operator may send to a process."""
NO_JOBS = ("down", "drain", "drng", "fail", "error", "inval")
"""Beginnings of the states in which a node of Slurm gets no jobs."""
