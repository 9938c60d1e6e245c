"""The names of what Rankdeck makes in the run folder of a job, which no file of a job may have."""

from rankdeck_agent.wire.schedulers.job_files import RESERVED_FILES

PLAN = "plan.json"
EVENTS = "events"
"""The events of the job on this node, one JSON object a line; a job that has none is not seen."""
CONTROL, ORDERS = "control", "orders"
"""A FIFO and a socket: who may tell the supervisor something writes to one of them."""
SUPERVISOR_PID, STARTER_PID = "supervisor.pid", "starter.pid"
SUPERVISOR_LOCK = "supervisor.lock"
"""Locked while the supervisor lives. With hidepid on /proc no process sees a supervisor, because it
may not be dumped (`supervisor_start.py`); and a pid says nothing on another machine that has the
same folder.
"""
SUPERVISOR_LOG = "supervisor.err"
SELF = "self"
"""The path of the folder, the job and the node, a line each."""
SHIM = "rank-shim"
"""The program that starts one rank with its own terminal and files."""
INSIDE = "inside"
"""A folder on the ranks' PYTHONPATH."""
POD_PID, POD_WITNESS = "pid", "witness"
"""In the folder that the shim of a pod makes for a rank: the pid of the rank's program, and where
its witness waits.
"""
SPAWN = "spawn"
"""Requests to start MPI daemons."""
RESERVE = "reserve"
"""Disk space for the event that reports a full disk."""
VERDICT = "verdict.json"
ACTIVITY, BLACK_BOX = "activity", "box"
CGROUP = "cgroup"
"""The path of the job's control group."""
HOSTFILE, SSH_CONFIG = "hostfile", "ssh_config"
"""What an MPI launcher is given."""
LAUNCHER_FOLDER, RANK_PREFIX = "launcher", "rank."
CANCELLED = "cancelled-before-start"
"""The only file in the run folder of a job that was cancelled on a node before it was
started there, or after its folder was removed.
"""

RESERVED = RESERVED_FILES | {
    PLAN, EVENTS, CONTROL, ORDERS, SUPERVISOR_PID, STARTER_PID, SUPERVISOR_LOCK, SUPERVISOR_LOG, SELF, SHIM, INSIDE, SPAWN,
    RESERVE, VERDICT, ACTIVITY, BLACK_BOX, CGROUP, HOSTFILE, SSH_CONFIG, LAUNCHER_FOLDER, CANCELLED,
}  # fmt: skip
"""Names that no file of a job may have; those of ranks' folders begin with RANK_PREFIX."""
_BY_TERMINAL = 0.25
"""Seconds by which a busy node may deliver what is written to a terminal (stdout) later than what
goes through a pipe (stderr).
"""


def order_time(arrived: float, *, terminal: bool) -> float:
    """The time by which lines of stdout and stderr are put in the order in which they were
    written, as far as that can be known, from when they arrived (epoch seconds).
    """
    return arrived - _BY_TERMINAL if terminal else arrived


def name_rank_folder(rank: int) -> str:
    """The name of the folder with one rank's output; below 0 it is the launcher's."""
    return LAUNCHER_FOLDER if rank < 0 else f"{RANK_PREFIX}{rank}"
