"""Why a Slurm job waits, or how it ended and why, in sentences with what to do. No I/O."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Optional

from rankdeck_agent.schedulers.slurm.job_reports import SlurmJobRow

FINAL = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
        "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
    }
)  # fmt: skip
"""States in which a job is over.

In any other state, known to us or not, it waits, runs or is ending.
"""
TERM_STATUS = 128 + 15


class EndWords(NamedTuple):
    """What slurmstepd and srun wrote about the end of a job into the launcher's output."""

    cause: str = ""
    """What follows `DUE TO`: TIME LIMIT, NODE FAILURE, PREEMPTION, JOB REQUEUE, …"""
    failed: tuple[str, ...] = ()
    """Nodes that failed."""
    memory: tuple[str, ...] = ()
    """Nodes that were out of memory."""
    starved: tuple[int, ...] = ()
    """Ranks that were killed because of that."""
    unending: tuple[str, ...] = ()
    """Nodes on which processes did not end, even by SIGKILL."""
    lines: tuple[str, ...] = ()
    """The last lines of Slurm's programs."""


class SlurmVerdict(NamedTuple):
    """How a job ended."""

    state: str
    """Slurm's state, one of FINAL, or UNKNOWN."""
    text: str
    """Why, one sentence without a full stop; "" if the ranks' output says it."""
    do: str = ""
    """What to do now."""
    node: str = ""
    """The node that caused it, if one did."""
    rank: Optional[int] = None
    """The rank that caused it, if one did."""
    code: Optional[int] = None
    """Exit status of the whole job as in a shell; None: not known."""

    @property
    def well(self) -> bool:
        """Whether the job succeeded."""
        return self.state == "COMPLETED" and not self.code


_DUE = re.compile(
    r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO ([A-Z_ ]+?)[ ,:*]*(?:\*\*\*|SEE|$)"
)
"""The node in this line is the one that writes it; after a node
failure, that is not the node that failed.
"""
_UNENDING = re.compile(r"\*\*\* .* STEPD TERMINATED ON (\S+) AT \S+ DUE TO JOB NOT ENDING")
_FAILED_NODE = re.compile(r"srun: error: Node failure on (\S+)")
_OOM = re.compile(
    r"oom[-_ ]kill event|exceeded (?:job |step )?memory limit \(\d+ > \d+\)|OOM Killed",
    re.IGNORECASE,
)
_OOM_REPORT = re.compile(r"exceeded (?:job |step )?memory limit", re.IGNORECASE)
"""Written on every node of the step that is ended: its node counts
only if no other line names one.
"""
_OOM_HOST = re.compile(r"slurmstepd-(\S+): error")
_OOM_TASK = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): Out Of Memory")
_OURS = re.compile(r"(?:slurmstepd(?:-\S+)?|srun|sbatch|salloc): ")
_MOST_LINES, _MOST_NAMES = 12, 64


def read_slurm_words(lines: Iterable[str]) -> EndWords:
    """What Slurm's own programs wrote, in these lines of the launcher's output."""
    own = [line for line in lines if _OURS.match(line)]
    causes, failed, starved = list[str](), list[str](), list[int]()
    memory, victims = list[str](), list[str]()
    for line in own:
        due, lost = _DUE.search(line), _FAILED_NODE.search(line)
        task, host = _OOM_TASK.search(line), _OOM_HOST.match(line)
        if due:
            causes.append(due[1].strip())
        if lost:
            failed.append(lost[1].rstrip(".,"))
        if task:
            memory.append(task[1])
            starved += _ranks(task[2])
        elif host:
            memory += [host[1]] if _OOM.search(line) else []
            victims += [host[1]] if _OOM_REPORT.search(line) else []
    return EndWords(
        cause=causes[0] if causes else "",
        failed=tuple(dict.fromkeys(failed))[:_MOST_NAMES],
        memory=tuple(dict.fromkeys(memory or victims))[:_MOST_NAMES],
        starved=tuple(dict.fromkeys(starved))[:_MOST_NAMES],
        unending=tuple(dict.fromkeys(found[1] for found in map(_UNENDING.search, own) if found))[
            :_MOST_NAMES
        ],
        lines=tuple(own[-_MOST_LINES:]),
    )


def _ranks(text: str) -> list[int]:
    """The numbers in `0-2,5`."""
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            ranks += range(int(first), min(int(last or first), int(first) + _MOST_NAMES) + 1)
    return ranks


def judge_slurm_job(seen: SlurmJobRow, words: EndWords, *, ours: str = "") -> SlurmVerdict:
    """How this job, which is over, has ended.

    `ours`: who asked Rankdeck to cancel it ("user", "abort" or "system"); "" if nobody did.
    """
    told = _TELL.get(seen.state, _unknown)(seen, words, ours)
    if not words.unending:
        return told
    more = f"processes on {', '.join(words.unending[:4])} did not end, even by SIGKILL"
    return told._replace(text=f"{told.text}; {more}" if told.text else more, do=told.do or _HUNG)


_HUNG = "look there for processes in state D (a file system or a device that hangs): Slurm takes the node out of service"


def _own(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    if words.memory and seen.state == "FAILED":
        return _out_of_memory(seen, words, ours)
    why, do = _REASONS.get(seen.reason) or _NEVER_BEGAN.get(seen.signal) or ("", "")
    waits = _TABLE.get(seen.reason)
    if not why and seen.state == "FAILED" and waits is not None and waits.stuck:
        # Slurm gave it up for what kept it from starting: no rank has failed.
        why, do = waits.text, waits.do.replace("JOBID", seen.id)
    return SlurmVerdict(seen.state, why, do, code=slurm_exit_status(seen))


_NEVER_BEGAN = {
    53: (
        "it never began: its output file could not be opened on the node (exit 0:53), because the folder is missing there"
        " or not writable for its user",
        "make that folder before the job is submitted, where the nodes see it under the same path, or choose another `--output`",
    ),
}
"""The signal with which Slurm says that it could not start a batch
script -> (what it means, what to do).
"""


def slurm_exit_status(seen: SlurmJobRow) -> Optional[int]:
    """Exit status of the job as in a shell; None if not known."""
    if seen.signal:
        return 128 + seen.signal
    return seen.code


def _timeout(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    limit = f" of {span_text(seen.limit)}" if seen.limit else ""
    return SlurmVerdict(
        seen.state,
        f"its time limit{limit} was over",
        "ask for more time (`slurm: {time: …}`) or save checkpoints; `slurm: {signal: USR1@120}`"
        " warns the ranks before",
        code=TERM_STATUS,
    )


def _out_of_memory(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    where = f" on {', '.join(words.memory[:4])}" if words.memory else ""
    who = f", rank {words.starved[0]}" if words.starved else ""
    return SlurmVerdict(
        "OUT_OF_MEMORY",
        f"the memory that the job asked for was used up{where}{who}",
        "ask for more (`slurm: {mem: …}`, `mem-per-cpu` or `mem-per-gpu`), or use fewer ranks a node",
        node=words.memory[0] if words.memory else "",
        rank=words.starved[0] if words.starved else None,
        code=137,
    )


def _node_fail(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    failed = [seen.failed_node] if seen.failed_node else list(words.failed)
    names = ", ".join(failed[:4])
    return SlurmVerdict(
        seen.state,
        f"node {names} failed" if failed else "a node of the job failed; Slurm does not say which",
        "submit the job again; `slurm: {requeue: true}` has Slurm do that, and `scontrol show node "
        f"{failed[0] if failed else 'NAME'}` says what became of the node",
        node=failed[0] if failed else "",
        code=slurm_exit_status(seen) or 1,
    )


def _preempted(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    return SlurmVerdict(
        seen.state,
        "a job with higher priority took the nodes (preempted)",
        "submit it again; `slurm: {requeue: true}` has Slurm do that where the site allows it",
        code=TERM_STATUS,
    )


_BY = {
    "user": "cancelled by you, through Rankdeck",
    "abort": "stopped by Rankdeck, because a part of it had failed",
    "system": "cancelled through Rankdeck",
}


def _cancelled(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    if ours:
        return SlurmVerdict(seen.state, _BY.get(ours, _BY["system"]), code=TERM_STATUS)
    by = f"by {seen.by}" if seen.by else "with scancel, or by an administrator"
    why, do = _REASONS.get(seen.reason, ("", ""))
    if why:
        return SlurmVerdict(seen.state, f"cancelled by Slurm: {why}", do, code=TERM_STATUS)
    return SlurmVerdict(
        seen.state,
        f"cancelled {by}, not through Rankdeck",
        "" if seen.by else "who did it is only known where accounting is on (`sacct`)",
        code=TERM_STATUS,
    )


def _revoked(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    text = "another cluster of the federation started the job; here it was taken out of the queue"
    return SlurmVerdict(seen.state, text, "look for it there: `squeue --federation --me`", code=1)


def _deadline(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    text = "Slurm gave the job up: it could no longer end before its deadline"
    return SlurmVerdict(seen.state, text, "ask for a later `deadline`, or for less time", code=1)


def _boot_fail(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    where = f" {seen.failed_node or seen.nodes}" if seen.failed_node or seen.nodes else ""
    return SlurmVerdict(
        seen.state,
        f"a node could not be started for the job:{where}"
        if where
        else "the nodes could not be started",
        "submit it again, and tell the administrators which nodes these were",
        node=seen.failed_node,
        code=1,
    )


def _launch_failed(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    where = f" on {seen.nodes}" if seen.nodes else ""
    text = f"Slurm could not launch the job{where}{_first_error(words)}"
    return SlurmVerdict(
        seen.state,
        text,
        "`scontrol show node` of these nodes tells more; tell the administrators",
        code=1,
    )


def _first_error(words: EndWords) -> str:
    errors = [line.partition("error: ")[2] for line in words.lines if "error: " in line]
    return f": {errors[0][:200]}" if errors else ""


def _unknown(seen: SlurmJobRow, words: EndWords, ours: str) -> SlurmVerdict:
    reason = f" ({seen.reason})" if seen.reason else ""
    return SlurmVerdict(
        seen.state, f"Slurm says {seen.state}{reason}", code=slurm_exit_status(seen) or 1
    )


_TELL = {
    "COMPLETED": _own,
    "FAILED": _own,
    "TIMEOUT": _timeout,
    "OUT_OF_MEMORY": _out_of_memory,
    "NODE_FAIL": _node_fail,
    "PREEMPTED": _preempted,
    "CANCELLED": _cancelled,
    "REVOKED": _revoked,
    "DEADLINE": _deadline,
    "BOOT_FAIL": _boot_fail,
    "LAUNCH_FAILED": _launch_failed,
    "RECONFIG_FAIL": _launch_failed,
}
_REASONS = {
    "JobHoldMaxRequeue": (
        "it was queued again too often (MaxBatchRequeue)",
        "find out why it could not start, then `scontrol release JOBID`",
    ),
    "InactiveLimit": ("it was idle for longer than the site allows (InactiveLimit)", ""),
    "AssocGrpBillingRunMinutes": (
        "the budget of the account is used up",
        "ask who runs the account",
    ),
    "DependencyNeverSatisfied": (
        "a job that it depends on did not end as it asked for",
        "submit it again without that dependency, or after the other job has ended well",
    ),
}
"""Slurm's reason for a job that is over -> (what it means, what to do)."""


REUSED = "Slurm has given its number {number} to a later job: the controller lost its state, or began to count from the start"


def judge_lost_job(batch: Optional[int], why: str = "") -> SlurmVerdict:
    """The verdict on a job that Slurm no longer knows; `batch`: the exit
    status of its batch script, if known.

    `why`: a sentence about why Slurm does not know the job; "" if not known.
    """
    if batch is not None:
        state = "FAILED" if batch else "COMPLETED"
        return SlurmVerdict(state, "", code=batch)
    if why:
        return SlurmVerdict("UNKNOWN", f"{why}; how the job ended is not known")
    return SlurmVerdict(
        "UNKNOWN",
        "Slurm no longer knows the job, and how it ended is not known",
        "ask an administrator for accounting (`sacct`): without it Slurm forgets a job minutes after its end",
    )


def requeue_reason(seen: SlurmJobRow, words: EndWords, nodes: str) -> str:
    """Why Slurm queued the job again, in one sentence; `nodes`: those
    of the run that ended, may be "".
    """
    if seen.failed_node or words.failed or "NODE" in words.cause:
        failed = seen.failed_node or ", ".join(words.failed[:4]) or "a node"
        return f"{failed} failed: Slurm queued the job again"
    if "PREEMPT" in words.cause:
        return "a job with higher priority took the nodes: Slurm queued this one again"
    if "REQUEUE" in words.cause:
        return "it was queued again (`scontrol requeue`)"
    where = f" on {nodes}" if nodes else ""
    return f"Slurm ended its run{where} and queued the job again"


def span_text(seconds: float) -> str:
    """A time span as Slurm writes it: `01:30:00` or `2-00:00:00`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hours:02}:{minutes:02}:{rest:02}"


class WaitReason(NamedTuple):
    """Why a job does not run. `text` is one sentence without a full stop."""

    text: str
    do: str = ""
    """What to do; "" for nothing."""
    stuck: bool = False
    """Whether it will not start until somebody does something."""


_WAITING: tuple[tuple[str, WaitReason], ...] = (
    ("Resources", WaitReason("waits for nodes that are free")),
    ("Priority", WaitReason("waits behind jobs with higher priority")),
    ("None", WaitReason("waits to be looked at by Slurm's scheduler")),
    ("BeginTime", WaitReason("waits for the time at which it may begin")),
    ("DependencyNeverSatisfied", WaitReason(
        "a job that it depends on did not end as it asked for: it will never start",
        "cancel it, and submit it again without that dependency", stuck=True)),
    ("Dependency", WaitReason("waits for the jobs that it depends on")),
    ("JobHeldUser", WaitReason("held by its user", "`scontrol release JOBID` lets it go", stuck=True)),
    ("JobHeldAdmin", WaitReason("held by an administrator", "ask the administrators to release it", stuck=True)),
    ("JobHoldMaxRequeue", WaitReason(
        "held: it was queued again too often", "find out why it could not start, then `scontrol release JOBID`", stuck=True)),
    ("launch failed requeued held", WaitReason(
        "held: Slurm could not launch it, and queued it again",
        "a prolog or a node is broken: tell the administrators, then `scontrol release JOBID`", stuck=True)),
    ("job requeued in held state", WaitReason("held: it was queued again in held state", "`scontrol release JOBID` lets it go", stuck=True)),
    ("JobArrayTaskLimit", WaitReason("waits for other tasks of its array: `%` limits how many run at once")),
    ("ReservationDeleted", WaitReason("its reservation was deleted", "submit it again without `reservation`", stuck=True)),
    ("Reservation", WaitReason("waits for its reservation to begin")),
    ("Licenses", WaitReason("waits for a licence")),
    ("PartitionDown", WaitReason("its partition is down", "choose another `partition`, or ask the administrators", stuck=True)),
    ("PartitionInactive", WaitReason("its partition takes no jobs now", "choose another `partition`, or ask the administrators", stuck=True)),
    ("PartitionTimeLimit", WaitReason("asks for more time than its partition allows", "lower `time`", stuck=True)),
    ("PartitionNodeLimit", WaitReason("asks for more or fewer nodes than its partition allows", "change `nodes` or `partition`", stuck=True)),
    ("PartitionConfig", WaitReason("its partition cannot give what it asks for", "compare with `scontrol show partition`", stuck=True)),
    ("BadConstraints", WaitReason("no node can be what it asks for", "check `constraint`, `mem`, `gpus` and the node list", stuck=True)),
    ("AccountNotAllowed", WaitReason("its account may not use this partition", "choose another `account` or `partition`", stuck=True)),
    ("QOSNotAllowed", WaitReason("its QOS may not be used here", "choose another `qos`", stuck=True)),
    ("InvalidAccount", WaitReason("there is no such account", "choose another `account`", stuck=True)),
    ("InvalidQOS", WaitReason("there is no such QOS", "choose another `qos`", stuck=True)),
    ("NodeDown", WaitReason("a node that it asks for is down", "leave that node out of the list", stuck=True)),
    ("FrontEndDown", WaitReason("Slurm's front end is down")),
    ("SystemFailure", WaitReason("Slurm itself has failed", "ask the administrators", stuck=True)),
    ("JobLaunchFailure", WaitReason(
        "Slurm could not launch it on its nodes", "a prolog or a node is broken: tell the administrators, and submit it again", stuck=True)),
    ("Cleaning", WaitReason("waits until its earlier run has been cleaned up")),
    ("Prolog", WaitReason("its nodes are being prepared (prolog)")),
    ("BurstBufferStageIn", WaitReason("its data are being staged in")),
    ("BurstBufferResources", WaitReason("waits for burst buffer space")),
    ("FedJobLock", WaitReason("waits for the clusters of the federation to agree")),
    ("Constraints", WaitReason("waits for nodes with the features that it asks for")),
    ("MpiPortsBusy", WaitReason("waits for ports that srun keeps for MPI: all are taken on its nodes")),
    ("NvidiaImexChannels", WaitReason("waits for an NVIDIA IMEX channel that is free")),
    ("ReservationInvalid", WaitReason("its reservation is not valid", "choose another `reservation`, or none", stuck=True)),
    ("MaxPoweredUpNodes", WaitReason("waits for a node to be powered down: as many are on as may be")),
    ("PowerNotAvail", WaitReason("waits for electric power")),
    ("PowerReserved", WaitReason("waits for electric power that a reservation has")),
    ("SchedDefer", WaitReason("waits for Slurm's next round: it does not try jobs one by one")),
    ("BurstBufferOperation", WaitReason("a burst buffer could not be set up", "ask the administrators", stuck=True)),
    ("DeadLine", WaitReason("it can no longer end before its deadline", "submit it again with a later `deadline`", stuck=True)),
    ("QOSUsageThreshold", WaitReason("its account has used more than its QOS takes", "choose another `qos`, or wait until the use has aged")),
    ("AccountingPolicy", WaitReason("a limit of its account, user or QOS holds it", "`sacctmgr show assoc` lists the limits")),
    ("RequestedNodesUnavail", WaitReason("nodes that it asks for are not available", stuck=False)),
)  # fmt: skip
_TABLE: dict[str, WaitReason] = dict(_WAITING)
_PATTERNS: tuple[tuple[str, WaitReason], ...] = (
    (r"ReqNodeNotAvail", WaitReason("nodes that it asks for are down, drained, or kept by a reservation")),
    (r"Nodes[ _]required[ _]for[ _]job[ _]are[ _]DOWN", WaitReason("nodes that it needs are down, drained, or kept for higher partitions")),
    (r"launch[_ ]fail\w*(?: \w+)*[_ ]requeued[_ ]held", _TABLE["launch failed requeued held"]),
    (r"job_requeued_in_held_state", _TABLE["job requeued in held state"]),
    (r"MaxMemPerLimit", WaitReason("asks for more memory than a job may have", "lower `mem`", stuck=True)),
    (r"QOSMin", WaitReason("asks for less than its QOS demands of a job", "ask for more, or choose another `qos`", stuck=True)),
    (r"(?:QOS|Assoc)\w*Max\w+Per(?:Job|Node)|AssocMaxWallDuration|(?:QOS|Association)TimeLimit",
        WaitReason("asks for more than its account or QOS allows a job", "ask for less, or choose another `qos` or `account`", stuck=True)),
    # What was used, not what runs: the end of other jobs gives nothing back.
    (r"(?:QOS|Assoc)Grp(?:Wall|\w*(?<!Run)Minutes)", WaitReason(
        "the budget of its account or QOS is used up", "ask who runs the account for more, or choose another `account` or `qos`", stuck=True)),
    (r"(?:QOS|Assoc)Grp\w*", WaitReason("its account or QOS has all that it may have at once", "it starts when other jobs of the group end")),
    (r"Max\w*PerUser|Max\w*PerAccount|AssocMaxJobs|AssocMaxSubmit|QOSMaxJobs\w*|QOSJobLimit|AssocJobLimit|AssociationJobLimit|QOSResourceLimit|AssociationResourceLimit",
        WaitReason("you have as many jobs or resources as you may have at once", "it starts when others of yours end")),
    (r"(?i)(?<![a-z])held(?![a-z])", WaitReason("held", "`scontrol release JOBID` lets it go", stuck=True)),
)  # fmt: skip
_STATES = {
    "CONFIGURING": WaitReason("its nodes are being started"),
    "COMPLETING": WaitReason("it has ended: Slurm still cleans up on its nodes"),
    "SUSPENDED": WaitReason("suspended: its processes are stopped, and go on when Slurm lets them"),
    "STOPPED": WaitReason("stopped by a signal: its nodes stay reserved"),
    "SPECIAL_EXIT": WaitReason("held after an exit code that it named as special", "`scontrol release JOBID` lets it go", stuck=True),
    "REQUEUE_HOLD": WaitReason("held: it was queued again in held state", "`scontrol release JOBID` lets it go", stuck=True),
    "REQUEUED": WaitReason("is being queued again"),
    "EXPEDITING": WaitReason("it was queued again and comes before all others"),
    "STAGE_OUT": WaitReason("its data are being staged out"),
    "RESV_DEL_HOLD": WaitReason("held: its reservation was deleted", "submit it again without `reservation`", stuck=True),
    "REQUEUE_FED": WaitReason("is being queued again by the federation"),
    "POWER_UP_NODE": WaitReason("its nodes are being started"),
}  # fmt: skip


def slurm_wait_reason(seen: SlurmJobRow) -> WaitReason:
    """Why this job does not run; the text is "" if it runs."""
    if seen.state in _STATES:
        return _for(_STATES[seen.state], seen)
    if seen.state != "PENDING":
        return WaitReason("")
    reason = seen.reason or "None"
    word = re.split(r"[,;:(]", reason)[0].strip()
    chosen = _TABLE.get(word) or _TABLE.get(reason)
    chosen = chosen or next((row for form, row in _PATTERNS if re.search(form, reason)), None)
    return _for(chosen or WaitReason(f"waits: {reason}"), seen)


def _for(row: WaitReason, seen: SlurmJobRow) -> WaitReason:
    return WaitReason(row.text, row.do.replace("JOBID", seen.id), row.stuck)


PLACES = (
    "squeue", "--local", "--noheader", "--all", "--states=PENDING", "--sort=-p,i",
    "--Format=JobID:20,Partition:60",
)  # fmt: skip
"""The squeue command that lists all waiting jobs, highest priority first."""


def queue_places(text: str) -> dict[str, dict[str, int]]:
    """Job id -> {"position": from 1, "waiting": jobs that wait in that
    partition}, from the output of PLACES.
    """
    rows = [(line[:20].strip(), line[20:].strip()) for line in text.splitlines()]
    rows = [row for row in rows if row[0].isdecimal()]
    total = Counter(partition for _, partition in rows)
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, int]] = {}
    for number, partition in rows:
        seen[partition] += 1
        found[number] = {"position": seen[partition], "waiting": total[partition]}
    return found
