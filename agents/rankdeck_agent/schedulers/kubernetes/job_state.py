"""All that is known about one Kubernetes job, from what the API server reports.

No I/O.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from rankdeck_agent.schedulers.kubernetes.job_snapshot import (
    JobSnapshot,
    RankEnd,
    pod_wait_reason,
    silence_words,
    taken_away,
)
from rankdeck_agent.schedulers.kubernetes.json_values import Object, object_rows, table_of
from rankdeck_agent.schedulers.kubernetes.objects import (
    BY_NAME,
    GONE,
    JOB,
    LAUNCHER,
    MPIJOB,
    PULL_WAITS,
    READER,
    RUNNING,
    SCHEDULING,
    START,
    TERMINATED,
    WORKER,
    JobOutcome,
    LogPiece,
    Pod,
    event_message,
    event_uid,
    is_winding_up,
    job_outcome,
    manager_of,
    pod_of,
    string_value,
)
from rankdeck_agent.schedulers.kubernetes.target import MOST_FOLLOWED, Target
from rankdeck_agent.schedulers.kubernetes.watch import LISTED
from rankdeck_agent.values import Value, replace

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


_PULL_FAILED = "ErrImagePull"
_MOST_WARNINGS = 4096


def _with_cause(pod: Pod, before: Optional[Pod]) -> Pod:
    """The pod, with why its image was not pulled while it waits to try again: kubelets before 1.31
    tell that only in between.
    """
    box = pod.container
    if before is None or box.reason != PULL_WAITS or _PULL_FAILED in box.message:
        return pod
    known = before.container.reason in (_PULL_FAILED, PULL_WAITS)
    return replace(pod, container=replace(box, message=before.container.message)) if known else pod


_OVER = ("succeeded", "failed")
DELETED = "DELETED"
_KUEUE = ("QuotaReserved", "Admitted")
"""Conditions that a Workload must fulfil before its job is released."""


def _queue_words(status: Object) -> str:
    """Why a Workload of Kueue waits: its quota, else the checks that its queue demands, else
    that it is not admitted; "" if it does not wait.
    """
    rows = object_rows(status.get("conditions"))
    open_ = {row.get("type"): string_value(row, "message", 400) for row in rows if row.get("status") == "False"}  # fmt: skip
    checks = (one for one in object_rows(status.get("admissionChecks")) if one.get("state") != "Ready")  # fmt: skip
    words = [open_.get(_KUEUE[0], ""), *map(_check_words, checks), open_.get(_KUEUE[1], "")]
    return next(filter(None, words), "")


def _check_words(check: Object) -> str:
    name, state = string_value(check, "name", 100), string_value(check, "state", 20)
    said = string_value(check, "message", 300)
    if state == "Rejected":
        return f"admission check {name} has rejected it{f': {said}' if said else ''}"
    return f"waits for admission check {name}: {said or state}"


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
        self.deleted = self.ending = self._winds_up = False
        """Whether the job's object is gone; whether we are deleting it; whether Kubernetes has
        decided how it ends, and deletes its last pods.
        """
        self.uid = ""
        self.spec: Object = {}
        """Spec of the job's object, as last seen."""
        self._refused = self._queue = ""
        self.warnings: dict[str, str] = {}
        """Uid of a pod -> the newest warning about it."""
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
            self._winds_up = is_winding_up(rows[0])
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
            self._queue = "" if kind == DELETED else _queue_words(table_of(row.get("status")))
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
        # A list has no order in time: first those that failed, for which others may be deleted.
        pods.sort(key=lambda pod: pod.leaving)
        return [notice for pod in pods for notice in self._see(pod)]

    def _see(self, pod: Pod) -> list[Notice]:
        before = self.pods.get(pod.uid)
        pod = _with_cause(pod, before)
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
        if pod.is_silent and (before is None or not before.is_silent):
            notices.append(Notice(f"{silence_words(pod.node)}: its ranks may run on, unseen"))
        return notices

    def _note_deletion(self, pod: Pod) -> None:
        """Remember the first pod that is deleted, unless something had
        failed: then its job may have deleted it.
        """
        if not pod.leaving or self._deleted_first or self.ending or self.over or self._winds_up:
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
            about = table_of(row.get("involvedObject"))
            name = string_value(about, "name")
            # The MPI Operator appends `/` before words of a pod that it may not have.
            reason = string_value(row, "reason", 63).rstrip("/")
            message = event_message(row)
            if kind == DELETED or row.get("type") == "Normal" or not (message or reason):
                continue
            if name == self._target.name:
                self._refused = message
                notices.append(Notice(f"{reason}: {message}"))
            elif name.startswith(f"{self._target.name}-"):
                if about.get("kind") == JOB.name:  # a part of it, as an MPIJob's launcher is
                    self._refused = message
                if message and reason != SCHEDULING and len(self.warnings) < _MOST_WARNINGS:
                    self.warnings[event_uid(row)] = f"{reason}: {message}"
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
        return range(0) if pod.role == WORKER else self._target.numbered_ranks(pod)

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
            warnings=self.warnings,
            manager=manager_of(self.spec),
            launchers=self._target.kind == MPIJOB.name
            and self.spec.get("runLauncherAsWorker") is not True,
            needs_all=not self._is_partial(),
        )

    def _is_partial(self) -> bool:
        """Whether the job may be done well although some of its pods are not."""
        policy = table_of(self.spec.get("successPolicy"))
        if self._target.kind == "JobSet":
            return policy.get("operator") == "Any" or bool(policy.get("targetReplicatedJobs"))
        return bool(policy) or self.outcome.reason == "SuccessPolicy"
