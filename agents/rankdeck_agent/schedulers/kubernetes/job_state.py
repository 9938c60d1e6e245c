"""All that is known about one Kubernetes job; its state, why it waits and how it ended, in words.

No I/O.
"""

import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Optional

from rankdeck_agent.job.folder import UNKNOWN
from rankdeck_agent.older_python import without_suffix
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict, VerdictKind
from rankdeck_agent.schedulers.kubernetes.json_values import Object, object_rows, table_of
from rankdeck_agent.schedulers.kubernetes.objects import (
    BY_NAME,
    GONE,
    LAUNCHER,
    READER,
    RUNNING,
    START,
    STARTS,
    TERMINATED,
    WAITING,
    WORKER,
    JobOutcome,
    LogPiece,
    Pod,
    job_outcome,
    pod_of,
    string_value,
)
from rankdeck_agent.schedulers.kubernetes.target import MOST_FOLLOWED, Target
from rankdeck_agent.schedulers.kubernetes.watch import LISTED
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
    waits = (pod_wait_reason(pod) for pod in view.pods)
    reasons = Counter(why for why in waits if why)
    total = view.wanted + any(pod.role == LAUNCHER for pod in view.pods)
    if view.left or any(pod.leaving for pod in view.pods):
        return f"ending: {len(view.pods)} of {total} pods are still there"
    if not view.pods:
        awaited = f"{view.operator} has not looked at it yet; does it run?" if view.operator else ""
        return f"pending: {view.refused or awaited or 'no pod exists yet'}"
    if not reasons and len(running) >= total:
        return "; ".join((f"running: {total} of {total} pods", *_notes(view.pods)))
    waiting = total - len(running)
    parts = [
        f"{count} × {why}" if count > 1 else why for why, count in reasons.most_common(_TOO_LONG)
    ]
    if len(view.pods) < total and view.refused:
        parts.append(view.refused)
    return f"pending: {waiting} of {total} pods: {'; '.join(parts) or 'starting'}"


def is_waiting(view: JobSnapshot) -> bool:
    """Whether parts of the job have not begun to run and may yet: `describe_progress` says why."""
    if view.outcome.state == "suspended" or (view.queue and not view.pods):
        return True
    ending = view.left or any(pod.leaving or pod.is_over for pod in view.pods)
    going = [pod for pod in view.pods if pod.container.state in (RUNNING, TERMINATED)]
    return not ending and len(going) < view.wanted + any(pod.role == LAUNCHER for pod in view.pods)


def _silent(pod: Pod) -> bool:
    """Whether the pod's node is silent and the pod has not ended."""
    return pod.unheard and bool(pod.node) and not pod.is_over


def _hears_nothing(nodes: str) -> str:
    return f"Kubernetes hears nothing of node {nodes}"


def _notes(pods: Iterable[Pod]) -> Iterator[str]:
    """What is unusual about a job whose pods all run."""
    silent = sorted({pod.node for pod in pods if _silent(pod)})
    if silent:
        yield _hears_nothing(_few(silent))
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
        return f"{box.reason}: {box.message or box.image}"
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
    if view.ended_well:
        text = "is gone; all its ranks had ended with 0"
        return _well(view, SchedulerVerdict(VerdictKind.WELL, text, ours=ours))
    found, code = _failure(view)
    others = _taken(view)
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
        return _untold(view.outcome), 1
    box = pod.container
    how = f"{_status(box.code or 1)}{f' ({box.reason})' if box.reason not in ('', 'Error') else ''}"
    text = f"{_who(pod)} {how}{f' on node {pod.node}' if pod.node else ''}"
    return SchedulerVerdict(VerdictKind.PART, text, pod.node, pod.name), _code(box.code or 1)


def _lost(view: JobSnapshot, everyone: Sequence[Pod]) -> Optional[SchedulerVerdict]:
    """What ended a pod from outside, or keeps its ranks from starting; None if nothing did."""
    for pod in everyone:
        stuck, taken = pod_hopeless_reason(pod), taken_away(pod)
        if stuck:
            return SchedulerVerdict(VerdictKind.CANNOT_START, stuck, pod.node, pod.name)
        if taken:
            kind = VerdictKind.NO_MEMORY if _is_starved(pod) else VerdictKind.TAKEN_AWAY
            return SchedulerVerdict(kind, taken, pod.node, pod.name)
    deleted = next((pod for pod in everyone if pod.uid == view.deleted_first), None)
    if deleted is None or view.outcome.state == GONE:
        return None
    return SchedulerVerdict(VerdictKind.TAKEN_AWAY, _deleted(deleted), deleted.node, deleted.name)


def _failed_rank(view: JobSnapshot, rank: int) -> tuple[SchedulerVerdict, int]:
    end = view.ends[rank]
    where = f" on node {end.node}" if end.node else ""
    text = f"rank {rank} {_status(end.status)}{where}"
    return SchedulerVerdict(VerdictKind.RANK, text, end.node, rank=rank), _code(end.status)


def _untold(outcome: JobOutcome) -> SchedulerVerdict:
    """The verdict if neither a rank nor a pod tells why: what the job's object says."""
    gone = outcome.state == GONE and not outcome.reason
    text = ": ".join(filter(None, (outcome.reason.rstrip("/"), outcome.message)))
    kind = VerdictKind.GONE if gone else VerdictKind.UNKNOWN
    return SchedulerVerdict(kind, text or "Kubernetes does not say why")


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
    return pod.container.reason == "OOMKilled" and not whole


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


def _first_failed(pods: Iterable[Pod]) -> Optional[Pod]:
    codes = (None, *_NO_CAUSE)
    failed = [p for p in pods if p.container.state == TERMINATED and p.container.code not in codes]
    # The exit codes of pods that Kubernetes is deleting mean nothing.
    own = [pod for pod in failed if not pod.leaving] or failed
    return min(own, key=lambda pod: pod.container.finished or 0.0, default=None)


def _who(pod: Pod) -> str:
    if pod.role == LAUNCHER:
        return "the launcher"
    return f"pod {pod.name}"


def _status(status: int) -> str:
    return f"ended by signal {status - 128}" if 128 < status <= 192 else f"exit {status}"


def _code(status: int) -> int:
    return status if 0 < status < 256 else 1


def _taken(view: JobSnapshot) -> int:
    """How many pods Kubernetes deleted because another one failed."""
    pods = [*view.left, *(pod for pod in view.pods if pod.leaving)]
    return sum(pod.role != LAUNCHER and (pod.leaving or not pod.is_over) for pod in pods)


_CLOCKS = 10.0
"""A smaller difference, in seconds, may be the time that a line takes to arrive."""


class Clocks:
    """Corrects times of nodes whose clocks are off, learnt from when their lines
    arrive; which rank failed first depends on it.
    """

    def __init__(self) -> None:
        self.late = False
        """Old lines are being read: then only a clock that is ahead can be recognised."""
        self._off: dict[str, float] = {}
        self._named: set[str] = set()

    def ours(self, node: str, at: float, now: float) -> tuple[float, str]:
        """(the time `at` of this node by our clock, a sentence the first time that its
        clock is off, else ""); epoch seconds.
        """
        off = self._off[node] = min(now - at, self._off.get(node, now - at))
        if abs(off) <= _CLOCKS or (off > 0 and self.late):
            return at, ""
        side = "behind" if off > 0 else "ahead of"
        text = f"the clock of node {node} is {abs(off):.0f} s {side} the one here: the times of its ranks are corrected"
        fresh = node not in self._named
        self._named.add(node)
        return at + off, text if fresh else ""


_OVER = ("succeeded", "failed")
DELETED = "DELETED"
_KUEUE = ("QuotaReserved", "Admitted")
"""Conditions that a Workload must fulfil before its job is released."""


class Notice(Value):
    """A sentence for the operator; `alarm`: show it on every screen."""

    text: str
    alarm: bool = True


class PodRank(Value):
    """What Kubernetes knows about a rank that did not report it itself.

    Times in epoch seconds; None: not known.
    """

    rank: int
    node: str
    started: Optional[float]
    status: Optional[int]
    """Exit status as in a shell; None if not known."""
    ended: Optional[float]


class JobState:
    """The keeper's state of one job; used only by its main thread.

    Each `take_…` returns notices for the operator.
    """

    def __init__(self, target: Target, most: int = MOST_FOLLOWED) -> None:
        """`most`: pods whose logs can be followed at once; with more, only some are."""
        self._target, self.most_followed = target, most
        self.name = f"{target.namespace}/{target.name}"
        self._operator = BY_NAME[target.kind].operator
        self.pods: dict[str, Pod] = {}
        """By uid."""
        self.left: dict[str, Pod] = {}
        """Pods that are gone, as last seen; by uid."""
        self.nodes: dict[str, str] = {}
        """Host name in a pod -> node."""
        self.began: dict[int, str] = {}
        """Rank -> host on which it reported its start."""
        self.ends: dict[int, RankEnd] = {}
        self.outcome = JobOutcome()
        self.deleted = False
        """Whether the job's object is gone."""
        self.ending = False
        """Whether we are deleting it."""
        self.uid = ""
        self.spec: Object = {}
        """Spec of the job's object, as last seen."""
        self._refused = self._queue = ""
        self._ended: set[str] = set()
        """Pods that ended before somebody deleted them, by uid."""
        self._deleted_first = ""
        """The uid of the first pod that was deleted while nothing of the job had failed."""
        self.earlier: set[str] = set()
        """Uids of pods of earlier runs: what their ranks do no longer counts."""
        self.runs_before = 0
        """How many times the queue has taken the job's nodes back."""

    # ---- what comes

    def take_job(self, kind: str, found: Object) -> list[Notice]:
        """The job's object has changed or is gone; `kind` and `found` as
        yielded by `Watch`, also below.
        """
        rows = object_rows(found.get("items")) if kind == LISTED else [found]
        # DELETED has the last state: for a job whose time to live is over, how it ended.
        if rows and (kind != DELETED or job_outcome(found).state in _OVER):
            self.outcome = job_outcome(rows[0])
            if object_rows(table_of(rows[0].get("status")).get("conditions")):
                self._operator = ""
            self.uid = string_value(table_of(rows[0].get("metadata")), "uid", 63) or self.uid
            self.spec = table_of(rows[0].get("spec")) or self.spec
        self.deleted = self.deleted or kind == DELETED or not rows
        if not self.deleted or self.ending or self.outcome.state in _OVER:
            return []
        known = self.pods.keys() | self.left.keys()
        if known and known <= self._ended:
            why = "its pods had ended, and what became of it was not seen"
        elif not self.uid and kind == LISTED:
            why = "somebody deleted it, or its time to live (ttl) after its end was over; how it ended is not known"
        else:
            why = "somebody deleted it, and it was not Rankdeck"
        self.outcome = JobOutcome(GONE, message=why)
        return [Notice(f"Kubernetes job {self.name} is gone: {why}")]

    @property
    def put_aside(self) -> bool:
        """Whether the queue has suspended the job after a container had started."""
        if self.spec.get("suspend") is not True or self.over:
            return False
        known = (*self.pods.values(), *self.left.values())
        return any(pod.container.id and pod.uid not in self.earlier for pod in known)

    def begin_again(self) -> None:
        """Forget what the ranks did: when the queue releases the job
        they start again, in other pods.
        """
        self.earlier |= self.pods.keys() | self.left.keys()
        self.runs_before += 1
        self._deleted_first = ""
        for known in (self.began, self.ends, self.left):
            known.clear()

    def take_workload(self, kind: str, found: Object) -> list[Notice]:
        """Kueue's Workload of the job: keep the message of the first
        condition that is not fulfilled.
        """
        for row in object_rows(found.get("items")) if kind == LISTED else [found]:
            conditions = object_rows(table_of(row.get("status")).get("conditions"))
            waits = [
                one
                for one in conditions
                if one.get("type") in _KUEUE and one.get("status") == "False"
            ]
            self._queue = string_value(waits[0], "message", 400) if waits else ""
        return []

    def take_pod(self, kind: str, found: Object) -> list[Notice]:
        """The list of all pods, or one that is new, changed or gone."""
        rows = object_rows(found.get("items")) if kind == LISTED else [found]
        pods = [pod for pod in map(pod_of, rows) if pod.role != READER]
        if kind == DELETED:
            for pod in pods:
                self._lose(pod)
            return []
        if kind != LISTED:
            return [notice for pod in pods for notice in self._see(pod)]
        for uid in self.pods.keys() - {pod.uid for pod in pods}:
            self._lose(self.pods[uid])
        return [notice for pod in pods for notice in self._see(pod)]

    def _see(self, pod: Pod) -> list[Notice]:
        before = self.pods.get(pod.uid)
        self._note_deletion(pod)
        self.pods[pod.uid] = pod
        if pod.is_over and not pod.leaving:
            self._ended.add(pod.uid)
        if pod.node:
            self.nodes[pod.host] = pod.node
        notices: list[Notice] = []
        why = pod_wait_reason(pod)
        if why and (before is None or pod_wait_reason(before) != why):
            # Without the pod's name, so that what all pods wait for is said only once.
            notices.append(Notice(f"a pod waits: {why}"))
        lost = taken_away(pod)
        if lost and (before is None or taken_away(before) != lost):
            notices.append(Notice(lost))
        if _silent(pod) and (before is None or not _silent(before)):
            notices.append(Notice(f"{_hears_nothing(pod.node)}: its ranks may run on, unseen"))
        return notices

    def _note_deletion(self, pod: Pod) -> None:
        """Remember the first pod that is deleted, unless something had
        failed: then its job may have deleted it.
        """
        if not pod.leaving or self._deleted_first or self.ending or self.over:
            return
        known = (*self.pods.values(), *self.left.values())
        failed = any(p.container.code or p.phase == "Failed" for p in known)
        failed = failed or any(p.container.again for p in (pod, *known))
        if not failed and not any(end.status for end in self.ends.values()):
            self._deleted_first = pod.uid

    def _lose(self, pod: Pod) -> None:
        self._note_deletion(replace(pod, leaving=True))
        self.pods.pop(pod.uid, None)
        if pod.uid not in self.earlier:
            self.left[pod.uid] = pod

    def take_event(self, kind: str, found: Object) -> list[Notice]:
        """A warning about the job or one of its objects; others are ignored."""
        notices: list[Notice] = []
        for row in object_rows(found.get("items")) if kind == LISTED else [found]:
            name = string_value(table_of(row.get("involvedObject")), "name")
            # The MPI Operator appends `/` and `: ` before words of a pod that it may not have.
            reason = string_value(row, "reason", 63).rstrip("/")
            message = string_value(row, "message", 400).rstrip(": ")
            if kind == DELETED or row.get("type") == "Normal":
                continue
            if name == self._target.name:
                self._refused = message
                notices.append(Notice(f"{reason}: {message}"))
            elif name.startswith(f"{self._target.name}-"):
                notices.append(Notice(f"{name}: {reason}: {message}", alarm=False))
        return notices

    def take_piece(self, piece: LogPiece, at: float, node: str, pod: str = "") -> list[Notice]:
        """A rank reported its start, or how it ended (at epoch seconds
        `at`); `pod` is the uid of its pod.
        """
        assert piece.rank is not None
        if pod in self.earlier:
            return []
        if piece.what == START:
            # A rank starts again if its queue took the nodes back and then released the job.
            if piece.rank in self.began:
                self.ends.pop(piece.rank, None)
            self.began[piece.rank] = piece.text.decode("utf-8", "replace")
        elif piece.text.isdigit():
            self.ends.setdefault(piece.rank, RankEnd(int(piece.text[:6]), at, node))
        return []

    # ---- what follows

    @property
    def over(self) -> bool:
        """Whether the job has ended; output of its ranks may still come."""
        return self.deleted or self.outcome.state in _OVER

    @property
    def runs(self) -> bool:
        """Whether a pod with ranks is still there and has not ended."""
        return any(
            pod.role != WORKER
            and pod.phase in ("Pending", "Running")
            and pod.container.state != TERMINATED
            for pod in self.pods.values()
        )

    def followed(self) -> Iterator[Pod]:
        """The pods whose logs are read: all, or if there are over `most_followed`
        the first, the last and failed ones.
        """
        all_of_them = self._target.wanted <= self.most_followed
        ends = (None, 0, self._target.wanted - 1)
        for pod in self.pods.values():
            if not pod.container.id or pod.uid in self.earlier:
                continue
            if all_of_them or pod.index in ends or pod.phase == "Failed":
                yield pod

    def aside(self) -> Iterator[Pod]:
        """Pods that may still run when the job is over: the workers of an MPIJob."""
        return (p for p in (*self.pods.values(), *self.left.values()) if p.role == WORKER)

    def ranks_of(self, pod: Pod) -> Sequence[int]:
        """The ranks whose output is in this pod's log; none for a worker of
        an MPIJob, where only `sshd` writes.
        """
        if pod.role == LAUNCHER:
            return range(self._target.ranks)
        number = self._target.number_of(pod)
        if pod.role == WORKER or number is None:
            return range(0)
        first = number * self._target.each
        return range(first, min(first + self._target.each, self._target.ranks))

    def node_of(self, host: str, pod: Pod) -> str:
        """The node of this host name, else that of `pod`."""
        return self.nodes.get(host, pod.node)

    def unrecorded(self) -> Iterator[PodRank]:
        """Ranks that did not report how they ended, with what their containers say about it."""
        for pod in (*self._standing(self.pods), *self._standing(self.left)):
            box = pod.container
            if pod.role == WORKER or not box.id or pod.uid in self.earlier:
                continue
            launcher = pod.role == LAUNCHER
            ended = box.state == TERMINATED and box.code is not None and box.code >= 0
            # The code of a launcher that failed is not the code of a rank.
            known = ended and not (launcher and box.code)
            for rank in self.ranks_of(pod):
                if rank not in self.ends and (rank in self.began or not launcher):
                    status = box.code if known else None
                    yield PodRank(rank, pod.node, box.started, status, box.finished)

    def _standing(self, some: Mapping[str, Pod]) -> tuple[Pod, ...]:
        """Those of `some` that no newer pod has replaced, as happens when a job is tried again."""
        newest: dict[tuple[object, ...], Pod] = {}
        for pod in (*self.left.values(), *self.pods.values()):
            place = self._place(pod)
            last = newest.get(place)
            if last is None or (pod.created or 0.0) >= (last.created or 0.0):
                newest[place] = pod
        uids = {pod.uid for pod in newest.values()}
        return tuple(pod for pod in some.values() if pod.uid in uids)

    def _place(self, pod: Pod) -> tuple[object, ...]:
        if pod.role == LAUNCHER:
            return (LAUNCHER,)
        if pod.index is None:
            return (pod.uid,)
        return pod.role, pod.part, pod.part_index, pod.index

    def unmarked(self, pod: Pod) -> Iterator[int]:
        """Ranks of a running pod that have not reported their start;
        there may be no shim to do so.
        """
        if pod.role not in (WORKER, LAUNCHER) and pod.container.state == RUNNING:
            yield from (rank for rank in self.ranks_of(pod) if rank not in self.began)

    def close_records(self) -> list[PodRank]:
        """Note `unrecorded` as what these ranks did, and return it."""
        records = list(self.unrecorded())
        for one in records:
            self.began.setdefault(one.rank, one.node)
            if one.status is not None:
                self.ends.setdefault(one.rank, RankEnd(one.status, one.ended or 0.0, one.node))
        return records

    def view(self) -> JobSnapshot:
        """A snapshot of all that is known."""
        return JobSnapshot(
            name=self.name,
            wanted=self._target.wanted,
            pods=self._standing(self.pods),
            left=self._standing(self.left),
            deleted_first=self._deleted_first,
            outcome=self.outcome,
            queue=self._queue,
            refused=self._refused,
            began=frozenset(self.began),
            ends=self.ends,
            hosts=frozenset(self.began.values()),
            shim=self._target.ours,
            ranks=self._target.ranks,
            operator=self._operator,
        )
