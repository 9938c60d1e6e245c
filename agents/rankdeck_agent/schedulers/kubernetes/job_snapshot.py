"""A Kubernetes job at one moment: what it waits for and how it ended, in words.

No I/O.
"""

import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Optional

from rankdeck_agent.job.folder import UNKNOWN
from rankdeck_agent.older_python import without_suffix
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict, VerdictKind
from rankdeck_agent.schedulers.kubernetes.objects import (
    GONE,
    LAUNCHER,
    MADE_UP,
    PULL_WAITS,
    RUNNING,
    STARTS,
    STARVED,
    TERMINATED,
    WAITING,
    WORKER,
    JobOutcome,
    Pod,
)
from rankdeck_agent.values import Value, field, replace

_NO_SHELL = re.compile(
    r'"(?:/bin/)?sh": (?:executable file not found|stat|no such file)|sh: not found'
)
_NO_CAUSE = (0, UNKNOWN, 128 + signal.SIGTERM)
_TOO_LONG = 3
"""Most reasons named in one line."""


class RankEnd(Value):
    """How a rank ended: its exit status as in a shell, when (epoch seconds), and on which node."""

    status: int
    at: float
    node: str = ""


class JobSnapshot(Value):
    """All that is known about a job at one moment."""

    name: str
    wanted: int
    """Pods with ranks: nodes of an Indexed Job, workers of an MPIJob."""
    pods: Sequence[Pod] = ()
    left: Sequence[Pod] = ()
    """Pods that are gone, as last seen.

    Neither this nor `pods` has pods that a newer one has replaced.
    """
    deleted_first: str = ""
    """The uid of the first pod that was deleted while nothing of the job had failed; "" if none."""
    outcome: JobOutcome = field(default_factory=JobOutcome)
    queue: str = ""
    """Kueue's message about why the job waits; "" if it does not."""
    refused: str = ""
    """The newest warning about the job itself: no pod could be created, the job is not valid."""
    began: frozenset[int] = frozenset()
    """Ranks that reported their start."""
    ends: Mapping[int, RankEnd] = field(default_factory=dict[int, RankEnd])
    hosts: frozenset[str] = frozenset()
    """Hosts on which a rank reported its start."""
    shim: bool = True
    """Whether our shim starts the ranks and reports their starts."""
    ranks: int = 0
    """Number of ranks."""
    operator: str = ""
    """The operator that has to act first; "" once it has, and for
    Jobs, which Kubernetes itself runs.
    """
    warnings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Uid of a pod -> the newest warning about it."""
    manager: str = ""
    """Who makes its pods in the place of its usual controller, maybe elsewhere; "" for that."""
    launchers: int = 0
    """Pods that the job has beside those with ranks: the launcher of an MPIJob."""
    needs_all: bool = True
    """Whether the job ends well only if every pod does: no `successPolicy` says else."""

    @property
    def total(self) -> int:
        """Pods that the job has when all run."""
        return self.wanted + self.launchers

    @property
    def ended_well(self) -> bool:
        """Whether every rank reported that it ended with 0, even if the job's object is gone."""
        return len(self.ends) >= self.ranks > 0 and not any(e.status for e in self.ends.values())


class JobVerdict(Value):
    """How the job ended.

    `code` is its exit code; `doubts` are sentences that cast doubt on a success.
    """

    code: int
    text: str
    """`found` in a sentence that names the job."""
    found: SchedulerVerdict
    doubts: tuple[str, ...] = ()


def describe_progress(view: JobSnapshot) -> str:
    """One line: what the job waits for, or how many of its pods run."""
    if view.outcome.state == "suspended" or (view.queue and not view.pods):
        return f"queued by Kueue: {view.queue}" if view.queue else "suspended: nothing of it runs"
    running = [pod for pod in view.pods if pod.container.state in (RUNNING, TERMINATED)]
    waits = (_wait_reason(view, pod) for pod in view.pods)
    reasons = Counter(why for why in waits if why)
    total = view.total
    if view.left or any(pod.leaving for pod in view.pods):
        still = f"ending: {len(view.pods)} of {total} pods are still there"
        return "; ".join(filter(None, (still, _why_ending(view))))
    if not view.pods:
        return f"pending: {view.refused or _awaited(view)}"
    if not reasons and len(running) >= total:
        return "; ".join((f"running: {total} of {total} pods", *_notes(view.pods)))
    waiting = total - len(running)
    parts = [
        f"{count} × {why}" if count > 1 else why for why, count in reasons.most_common(_TOO_LONG)
    ]
    if len(view.pods) < total and view.refused:
        parts.append(view.refused)
    return f"pending: {waiting} of {total} pods: {'; '.join(parts) or 'starting'}"


def _awaited(view: JobSnapshot) -> str:
    """Who has to act before the job has a pod."""
    if view.manager:
        return f"`{view.manager}` manages it (managedBy): its pods may be in another cluster"
    if view.operator:
        return f"{view.operator} has not looked at it yet; does it run?"
    return "no pod exists yet"


def _why_ending(view: JobSnapshot) -> str:
    """What has ended one of its pods from outside; "" if nothing is known to have."""
    everyone = [*view.pods, *view.left]
    taken = next((why for why in map(taken_away, everyone) if why), "")
    first = next((pod for pod in everyone if pod.uid == view.deleted_first), None)
    if taken or first is None:
        return taken
    where = f" on node {first.node}" if first.node else ""
    return f"pod {first.name}{where} was deleted first"


def _wait_reason(view: JobSnapshot, pod: Pod) -> str:
    """Why the pod does not run: its own word, else the newest warning about it (a volume, its
    sandbox: its status tells neither), else what prepares it.
    """
    own, box = pod_wait_reason(pod), pod.container
    warned = view.warnings.get(pod.uid, "")
    if own and warned and box.reason == PULL_WAITS and box.message.startswith(_ONLY_WAITS):
        return f"{PULL_WAITS}: {warned}"
    if own or pod.is_over or pod.container.state in (RUNNING, TERMINATED):
        return own
    return warned or pod.lacks or pod.prepares


_ONLY_WAITS = "Back-off pulling image"
"""So the kubelet's message begins; newer kubelets add the cause."""


def is_waiting(view: JobSnapshot) -> bool:
    """Whether parts of the job have not begun to run and may yet: `describe_progress` says why."""
    if view.outcome.state == "suspended" or (view.queue and not view.pods):
        return True
    ending = view.left or any(pod.leaving or pod.is_over for pod in view.pods)
    going = [pod for pod in view.pods if pod.container.state in (RUNNING, TERMINATED)]
    return not ending and len(going) < view.total


def silence_words(nodes: str) -> str:
    """The sentence if Kubernetes hears nothing of these nodes."""
    return f"Kubernetes hears nothing of node {nodes}"


def _notes(pods: Iterable[Pod]) -> Iterator[str]:
    """What is unusual about a job whose pods all run."""
    silent = sorted({pod.node for pod in pods if pod.is_silent})
    if silent:
        yield silence_words(_few(silent))
    yield from islice((why for why in map(taken_away, pods) if why), _TOO_LONG)
    lacks = next((pod.lacks for pod in pods if pod.lacks and not pod.is_over), "")
    if lacks:
        yield lacks
    held = [pod for pod in pods if pod.container.state == TERMINATED and pod.phase == "Running"]
    beside = next((pod.beside for pod in held if pod.beside), "")
    if beside:
        yield (
            f"the ranks of {len(held)} pods have ended, and container `{beside}` runs on: "
            "the job ends with it"
        )


def pod_wait_reason(pod: Pod) -> str:
    """Why the pod does not run and may never run without help; "" if it runs or is about to."""
    if pod.container.state in (RUNNING, TERMINATED):
        return ""
    if pod.phase == "Failed":
        return ""
    if not pod.node and pod.pending:
        return pod.pending
    box = pod.container
    if box.state == WAITING and box.reason not in STARTS:
        last = box.before.words if box.before is not None else ""
        return (
            f"{box.reason}: {box.message or box.image}{f' (its last run: {last})' if last else ''}"
        )
    return pod.initial


def pod_hopeless_reason(pod: Pod) -> str:
    """Why no rank can ever start in this pod, with what to do; "" if one can."""
    box = pod.container
    if _NO_SHELL.search(box.message):
        return (
            f"image {box.image} has no `sh`, and ranks are started by a small shell script: take an"
            " image with a shell"
        )
    if box.reason in (
        "StartError",
        "ContainerCannotRun",
        "CreateContainerConfigError",
        "InvalidImageName",
    ):
        return f"pod {pod.name} cannot start: {box.message or box.reason}"
    # Sidecars are init containers too: they end after the rank and may be killed then.
    if pod.initial and pod.phase == "Failed" and box.state != TERMINATED:
        return f"pod {pod.name} cannot start: its {pod.initial}"
    return ""


# ---- the end ----------------------------------------------------------------------------


def judge_ended_job(view: JobSnapshot) -> JobVerdict:
    """How a job that is over has ended."""
    ours = view.shim
    if view.outcome.state == "succeeded":
        return _well(view, SchedulerVerdict(VerdictKind.WELL, "succeeded", ours=ours))
    if view.ended_well and view.outcome.state != "failed":
        text = "is gone; all its ranks had ended with 0"
        return _well(view, SchedulerVerdict(VerdictKind.WELL, text, ours=ours))
    found, code = _failure(view)
    others = _taken(view, found.pod)
    more = f", {others} others deleted by Kubernetes" if others else ""
    found = replace(found, text=f"{found.text}{more}", ours=ours)
    how = "is gone" if found.kind is VerdictKind.GONE else "failed"
    return JobVerdict(code, f"Kubernetes job {view.name} {how}: {found.text}", found)


def _well(view: JobSnapshot, found: SchedulerVerdict) -> JobVerdict:
    return JobVerdict(
        0, f"Kubernetes job {view.name} {found.text}", found, tuple(find_contradictions(view))
    )


def find_contradictions(view: JobSnapshot) -> Iterable[str]:
    """Facts that contradict a success."""
    if view.shim and view.began and len(view.hosts) < view.wanted:
        yield f"succeeded on {len(view.hosts)} of {view.wanted} hosts: suspicious"
    if view.shim and not view.began and any(pod.role == LAUNCHER for pod in view.pods):
        yield "succeeded, but no rank said on which host it began: suspicious"
    if not view.needs_all:
        return
    missing = sorted(view.began - view.ends.keys())
    if missing:
        yield f"succeeded, but {len(missing)} ranks did not say how they ended: {_few(missing)}"
    bad = sorted(rank for rank, end in view.ends.items() if end.status != 0)
    if bad:
        yield f"succeeded, but {len(bad)} ranks did not end with 0: {_few(bad)}"


def describe_running_pods(pods: Iterable[Pod]) -> str:
    """A sentence about the pods that still run although their job is over; "" if there are none."""
    still = [pod for pod in pods if pod.phase in ("Pending", "Running") and not pod.leaving]
    if not still:
        return ""
    held: Counter[str] = Counter()
    for pod in still:
        held.update(pod.devices)
    devices = ", ".join(f"{count} {_device(name)}" for name, count in sorted(held.items()))
    what = "workers" if all(pod.role == WORKER for pod in still) else "pods"
    return f"{len(still)} {what} still {f'hold {devices}' if devices else 'run'}"


def _device(name: str) -> str:
    return "GPUs" if name.endswith("/gpu") else name


def _few(rows: Sequence[object]) -> str:
    shown = ", ".join(map(str, rows[:8]))
    return f"{shown}, …" if len(rows) > 8 else shown


def _failure(view: JobSnapshot) -> tuple[SchedulerVerdict, int]:
    """What failed first, and the exit code for it."""
    if view.outcome.reason.startswith(_TIME_LIMIT):
        text = f"its time limit (activeDeadlineSeconds) was over: {view.outcome.message}"
        text = "; ".join(filter(None, (text, _never_started(view)[1])))
        return SchedulerVerdict(VerdictKind.TIME_LIMIT, text), 128 + signal.SIGTERM
    everyone = [*view.pods, *view.left]
    lost = _lost(view, everyone)
    # A rank that got SIGTERM was probably ended by Kubernetes, because something else failed.
    failed = [(end.at, rank) for rank, end in view.ends.items() if end.status not in _NO_CAUSE]
    if failed and not lost:
        return _failed_rank(view, min(failed)[1])
    if lost:
        code = min((p.container.code or 1 for p in everyone if pod_hopeless_reason(p)), default=1)
        return lost, _code(code)
    pod = _first_failed(everyone)
    if pod is None:
        return _vanished(everyone) or _failed_beside(everyone) or _untold(view), 1
    code, reason = _end_of(pod)
    how = f"{_status(code or 1)}{f' ({reason})' if reason not in ('', 'Error') else ''}"
    text = f"{_who(pod)} {how}{f' on node {pod.node}' if pod.node else ''}"
    return SchedulerVerdict(VerdictKind.PART, text, pod.node, pod.name), _code(code or 1)


def _vanished(pods: Iterable[Pod]) -> Optional[SchedulerVerdict]:
    """The verdict if a node lost a container: how that ended is not known. None if none did."""
    lost = [p for p in pods if p.container.state == TERMINATED and p.container.reason in MADE_UP]
    pod = next(iter([p for p in lost if not p.leaving] or lost), None)
    if pod is None:
        return None
    where = f" by node {pod.node}" if pod.node else ""
    why = pod.container.message or f"its runtime says {pod.container.reason}"
    text = f"the container of pod {pod.name} was lost{where}, and how it ended is not known: {why}"
    return SchedulerVerdict(VerdictKind.TAKEN_AWAY, text, pod.node, pod.name)


def _failed_beside(pods: Iterable[Pod]) -> Optional[SchedulerVerdict]:
    """The verdict if a pod failed only for a container beside that of its ranks; else None."""
    pod = next((pod for pod in pods if pod.phase == "Failed" and pod.lacks), None)
    if pod is None:
        return None
    where = f" on node {pod.node}" if pod.node else ""
    text = f"pod {pod.name} failed{where}, though not by its ranks: its {pod.lacks}"
    return SchedulerVerdict(VerdictKind.PART, text, pod.node, pod.name)


def _lost(view: JobSnapshot, everyone: Sequence[Pod]) -> Optional[SchedulerVerdict]:
    """What ended a pod from outside, or keeps its ranks from starting; None if nothing did."""
    for pod in everyone:
        stuck, taken = pod_hopeless_reason(pod), taken_away(pod)
        if stuck:
            return SchedulerVerdict(VerdictKind.CANNOT_START, stuck, pod.node, pod.name)
        if taken:
            return SchedulerVerdict(_kind_of(pod), taken, pod.node, pod.name)
    deleted = next((pod for pod in everyone if pod.uid == view.deleted_first), None)
    if (
        deleted is None
        or view.outcome.state == GONE
        or _FAILED_BY_RULE.search(view.outcome.message)
    ):
        return None
    return SchedulerVerdict(VerdictKind.TAKEN_AWAY, _deleted(deleted), deleted.node, deleted.name)


_FAILED_BY_RULE = re.compile(r"\bpod (?:[^/ ]+/)?(?P<pod>\S+) failed with exit code \d+")
"""What a Job says if its podFailurePolicy ended it."""


def _kind_of(pod: Pod) -> VerdictKind:
    """The kind of verdict for a pod that was taken away."""
    if _is_starved(pod):
        return VerdictKind.NO_MEMORY
    return VerdictKind.TIME_LIMIT if pod.reason == _TIME_LIMIT else VerdictKind.TAKEN_AWAY


def _failed_rank(view: JobSnapshot, rank: int) -> tuple[SchedulerVerdict, int]:
    end = view.ends[rank]
    where = f" on node {end.node}" if end.node else ""
    text = f"rank {rank} {_status(end.status)}{where}"
    return SchedulerVerdict(VerdictKind.RANK, text, end.node, rank=rank), _code(end.status)


def _untold(view: JobSnapshot) -> SchedulerVerdict:
    """The verdict if no rank and no container tells why: what the job's
    object says, and which pod had not started.
    """
    outcome = view.outcome
    text = ": ".join(filter(None, (outcome.reason.rstrip("/"), outcome.message)))
    if outcome.state == GONE and not outcome.reason:
        return SchedulerVerdict(VerdictKind.GONE, text or "Kubernetes does not say why")
    named = _FAILED_BY_RULE.search(outcome.message)
    if named:
        return SchedulerVerdict(VerdictKind.PART, text, pod=named["pod"])
    pod, why = _never_started(view)
    if pod is not None:
        text = "; ".join(filter(None, (why, text)))
        return SchedulerVerdict(VerdictKind.CANNOT_START, text, pod.node, pod.name)
    return SchedulerVerdict(VerdictKind.UNKNOWN, text or "Kubernetes does not say why")


def _never_started(view: JobSnapshot) -> tuple[Optional[Pod], str]:
    """The first pod in which no rank had started when the job ended, and why; (None, "") if there
    is none, or nobody says why.
    """
    for pod in (*view.pods, *view.left):
        why = "" if pod.container.id else pod_wait_reason(pod) or view.warnings.get(pod.uid, "")
        if why:
            return pod, f"pod {pod.name} had not started: {why}"
    return None, ""


_TIME_LIMIT = "DeadlineExceeded"


def taken_away(pod: Pod) -> str:
    """Why the pod was ended from outside, in a sentence; "" if it was not."""
    where = f" on node {pod.node}" if pod.node else ""
    how = _REASONS.get(pod.reason)
    if how:
        return f"pod {pod.name} {how}{where}: {pod.message or pod.reason}"
    if pod.reason and pod.phase == "Failed":
        how = "was ended" if pod.container.id else "was refused"
        return without_suffix(f"pod {pod.name} {how}{where}: {pod.reason}: {pod.message}", ": ")
    if _is_starved(pod):
        # Kubernetes also says so of a container with exit code 0 in which a process was killed.
        what = f"a process of {_who(pod)}" if pod.container.code == 0 else _who(pod)
        return f"{what} was killed{where}: out of memory (OOMKilled); give the pods more memory"
    if pod.disruption:
        how = _DISRUPTIONS.get(pod.disruption, f"was ended from outside ({pod.disruption})")
        return f"pod {pod.name} {how}{where}: {pod.message or pod.disruption}"
    return ""


def _is_starved(pod: Pod) -> bool:
    """Whether a process of the pod was killed for its memory, and the
    pod itself was not ended as a whole.
    """
    whole = pod.reason in _REASONS or bool(pod.reason and pod.phase == "Failed")
    box = pod.container
    last = box.before.reason if box.is_between_runs and box.before is not None else ""
    return STARVED in (box.reason, last) and not whole


_REASONS = {
    **dict.fromkeys(("Evicted", "Preempting", "Preempted"), "was evicted"),
    **dict.fromkeys(("NodeLost", "NodeShutdown", "Terminated", "Shutdown"), "lost its node"),
}
"""Reasons of pods that failed as a whole -> words. With any other reason
(UnexpectedAdmissionError, …) the node refused or ended the pod.
"""
_DISRUPTIONS = {
    "PreemptionByScheduler": "made way for a pod of higher priority",
    "EvictionByEvictionAPI": "was evicted on request, as `kubectl drain` does,",
    "DeletionByTaintManager": "was deleted because its node was tainted",
    "DeletionByPodGC": "lost its node",
    "TerminationByKubelet": "was ended by its node",
}
"""Reasons of the condition DisruptionTarget (set by all control planes since 1.26) -> words."""


def _deleted(pod: Pod) -> str:
    where = f" on node {pod.node}" if pod.node else ""
    return f"pod {pod.name} was deleted{where}: neither its job nor Rankdeck did that"


def _first_failed(pods: Sequence[Pod]) -> Optional[Pod]:
    codes = (None, *_NO_CAUSE)
    failed = [p for p in pods if p.container.state == TERMINATED and p.container.code not in codes]
    if not failed:
        # Ended, and waits to be started again: so a Job leaves its pods that it gives up.
        failed = [p for p in pods if p.container.is_between_runs and _end_of(p)[0] not in codes]
    # The exit codes of pods that Kubernetes is deleting mean nothing.
    own = [pod for pod in failed if not pod.leaving] or failed
    return min(own, key=lambda pod: pod.container.finished or 0.0, default=None)


def _end_of(pod: Pod) -> tuple[Optional[int], str]:
    """(exit code, reason) of the newest run of the pod's container that has ended."""
    box = pod.container
    return (box.before.code, box.before.reason) if box.is_between_runs and box.before else (box.code, box.reason)  # fmt: skip


def _who(pod: Pod) -> str:
    if pod.role == LAUNCHER:
        return "the launcher"
    return f"pod {pod.name}"


def _status(status: int) -> str:
    return f"ended by signal {status - 128}" if 128 < status <= 192 else f"exit {status}"


def _code(status: int) -> int:
    return status if 0 < status < 256 else 1


def _taken(view: JobSnapshot, culprit: str) -> int:
    """How many pods Kubernetes deleted because another one, `culprit`, failed."""
    pods = [*view.left, *(pod for pod in view.pods if pod.leaving)]
    others = (pod for pod in pods if pod.role != LAUNCHER and pod.name != culprit)
    return sum(pod.leaving or not pod.is_over for pod in others)
