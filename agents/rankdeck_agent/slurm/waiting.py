"""Why a Slurm job waits and what to do about it: Slurm's reasons in sentences. No I/O."""

import re
from typing import NamedTuple

from rankdeck_agent.slurm.rows import Seen


class Waiting(NamedTuple):
    """Why a job does not run. `text` is one sentence without a full stop."""

    text: str
    do: str = ""
    stuck: bool = False
    """It will not start until somebody does something."""


_RAISE = "ask for less, or ask the administrators"
_REASONS: tuple[tuple[str, Waiting], ...] = (
    ("Resources", Waiting("waits for nodes that are free")),
    ("Priority", Waiting("waits behind jobs with higher priority")),
    ("None", Waiting("waits to be looked at by Slurm's scheduler")),
    ("BeginTime", Waiting("waits for the time at which it may begin")),
    ("DependencyNeverSatisfied", Waiting(
        "a job that it depends on did not end as it asked for: it will never start",
        "cancel it, and submit it again without that dependency", stuck=True)),
    ("Dependency", Waiting("waits for the jobs that it depends on")),
    ("JobHeldUser", Waiting("held by its user", "`scontrol release JOBID` lets it go", stuck=True)),
    ("JobHeldAdmin", Waiting("held by an administrator", "ask the administrators to release it", stuck=True)),
    ("JobHoldMaxRequeue", Waiting(
        "held: it was queued again too often", "find out why it could not start, then `scontrol release JOBID`", stuck=True)),
    ("launch failed requeued held", Waiting(
        "held: Slurm could not launch it, and queued it again",
        "a prolog or a node is broken: tell the administrators, then `scontrol release JOBID`", stuck=True)),
    ("job requeued in held state", Waiting("held: it was queued again in held state", "`scontrol release JOBID` lets it go", stuck=True)),
    ("JobArrayTaskLimit", Waiting("waits for other tasks of its array: `%` limits how many run at once")),
    ("ReservationDeleted", Waiting("its reservation was deleted", "submit it again without `reservation`", stuck=True)),
    ("Reservation", Waiting("waits for its reservation to begin")),
    ("Licenses", Waiting("waits for a licence")),
    ("PartitionDown", Waiting("its partition is down", "choose another `partition`, or ask the administrators", stuck=True)),
    ("PartitionInactive", Waiting("its partition takes no jobs now", "choose another `partition`, or ask the administrators", stuck=True)),
    ("PartitionTimeLimit", Waiting("asks for more time than its partition allows", "lower `time`", stuck=True)),
    ("PartitionNodeLimit", Waiting("asks for more or fewer nodes than its partition allows", "change `nodes` or `partition`", stuck=True)),
    ("PartitionConfig", Waiting("its partition cannot give what it asks for", "compare with `scontrol show partition`", stuck=True)),
    ("BadConstraints", Waiting("no node can be what it asks for", "check `constraint`, `mem`, `gpus` and the node list", stuck=True)),
    ("AccountNotAllowed", Waiting("its account may not use this partition", "choose another `account` or `partition`", stuck=True)),
    ("QOSNotAllowed", Waiting("its QOS may not be used here", "choose another `qos`", stuck=True)),
    ("InvalidAccount", Waiting("there is no such account", "choose another `account`", stuck=True)),
    ("InvalidQOS", Waiting("there is no such QOS", "choose another `qos`", stuck=True)),
    ("NodeDown", Waiting("a node that it asks for is down", "leave that node out of the list", stuck=True)),
    ("FrontEndDown", Waiting("Slurm's front end is down")),
    ("SystemFailure", Waiting("Slurm itself has failed", "ask the administrators", stuck=True)),
    ("Cleaning", Waiting("waits until its earlier run has been cleaned up")),
    ("Prolog", Waiting("its nodes are being prepared (prolog)")),
    ("BurstBufferStageIn", Waiting("its data are being staged in")),
    ("BurstBufferResources", Waiting("waits for burst buffer space")),
    ("FedJobLock", Waiting("waits for the clusters of the federation to agree")),
    ("RequestedNodesUnavail", Waiting("nodes that it asks for are not available", stuck=False)),
)  # fmt: skip
_TABLE: dict[str, Waiting] = dict(_REASONS)
_PATTERNS: tuple[tuple[str, Waiting], ...] = (
    (r"ReqNodeNotAvail", Waiting("nodes that it asks for are down, drained, or kept by a reservation")),
    (r"Nodes[ _]required[ _]for[ _]job[ _]are[ _]DOWN", Waiting("nodes that it needs are down, drained, or kept for higher partitions")),
    (r"launch_failed_requeued_held|launch failed requeued held", _TABLE["launch failed requeued held"]),
    (r"job_requeued_in_held_state", _TABLE["job requeued in held state"]),
    (r"MaxMemPerLimit", Waiting("asks for more memory than a job may have", "lower `mem`", stuck=True)),
    (r"(?:QOS|Assoc).*(?:MaxWall|MaxNode|MaxCpu|MaxTRES|MaxMem|MaxGRES)\w*Per(?:Job|Node)|AssocMax\w+PerJob|AssocMaxWallDuration|QOSMin",
        Waiting("asks for more than its account or QOS allows a job", "ask for less, or choose another `qos` or `account`", stuck=True)),
    (r"(?:QOS|Assoc)Grp\w*", Waiting("its account or QOS has all that it may have at once", "it starts when other jobs of the group end")),
    (r"QOSMax\w*PerUser|QOSMax\w*PerAccount|AssocMaxJobs|QOSMaxJobs\w*|QOSJobLimit|AssocJobLimit|AssociationJobLimit|QOSResourceLimit|AssociationResourceLimit",
        Waiting("you have as many jobs or resources as you may have at once", "it starts when others of yours end")),
    (r"(?i)\bheld\b", Waiting("held", "`scontrol release JOBID` lets it go", stuck=True)),
)  # fmt: skip
_STATES = {
    "CONFIGURING": Waiting("its nodes are being started"),
    "SUSPENDED": Waiting("suspended: its processes are stopped, and go on when Slurm lets them"),
    "STOPPED": Waiting("stopped by a signal: its nodes stay reserved"),
    "SPECIAL_EXIT": Waiting("held after an exit code that it named as special", "`scontrol release JOBID` lets it go", stuck=True),
    "REQUEUE_HOLD": Waiting("held: it was queued again in held state", "`scontrol release JOBID` lets it go", stuck=True),
    "REQUEUED": Waiting("is being queued again"),
    "STAGE_OUT": Waiting("its data are being staged out"),
    "RESV_DEL_HOLD": Waiting("held: its reservation was deleted", "submit it again without `reservation`", stuck=True),
    "REQUEUE_FED": Waiting("is being queued again by the federation"),
    "POWER_UP_NODE": Waiting("its nodes are being started"),
}  # fmt: skip


def waits_for(seen: Seen) -> Waiting:
    """Why this job does not run; of a job that runs, or ends, the text is ""."""
    if seen.state in _STATES:
        return _for(_STATES[seen.state], seen)
    if seen.state != "PENDING":
        return Waiting("")
    reason = seen.reason or "None"
    word = re.split(r"[,;:(]", reason)[0].strip()
    chosen = _TABLE.get(word) or _TABLE.get(reason)
    chosen = chosen or next((row for form, row in _PATTERNS if re.search(form, reason)), None)
    return _for(chosen or Waiting(f"waits: {reason}"), seen)


def _for(row: Waiting, seen: Seen) -> Waiting:
    return Waiting(row.text, row.do.replace("JOBID", seen.id), row.stuck)
