"""All that is known of one Kubernetes job: what watches and logs tell, and what follows from it. No I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from rankdeck_agent.kubernetes.api import LISTED
from rankdeck_agent.kubernetes.pods import (
    LAUNCHER,
    READER,
    RUNNING,
    TERMINATED,
    WORKER,
    Object,
    Outcome,
    Pod,
    outcome_of,
    pod_of,
    rows_of,
    table_of,
    text_of,
)
from rankdeck_agent.kubernetes.split import START, Piece
from rankdeck_agent.kubernetes.target import Target
from rankdeck_agent.kubernetes.verdict import RankEnd, View, taken_away, waits_for

MOST_FOLLOWED = 256
DELETED = "DELETED"
_KUEUE = ("QuotaReserved", "Admitted")
"""Conditions of a Workload without which its job stays suspended."""


@dataclass(frozen=True)
class Saying:
    """A sentence; `alarm`: the operator has to see it, whatever he looks at."""

    text: str
    alarm: bool = True


@dataclass(frozen=True)
class RankRecord:
    """What Kubernetes says of a rank that did not say it itself. Times are epoch seconds, None: not known."""

    rank: int
    node: str
    started: Optional[float]
    status: Optional[int]
    """None where nobody saw it."""
    ended: Optional[float]


class JobState:
    """One owner: the keeper's main thread. Each `take_…` returns what there is to say about the news."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.name = f"{target.namespace}/{target.name}"
        self.pods: dict[str, Pod] = {}
        """By uid."""
        self.left: dict[str, Pod] = {}
        """Those that are gone, as they were seen last."""
        self.nodes: dict[str, str] = {}
        """Host name in a pod -> node."""
        self.began: dict[int, str] = {}
        """Rank -> host on which it said that it began."""
        self.ends: dict[int, RankEnd] = {}
        self.outcome = Outcome()
        self.deleted = False
        """The job's object is gone."""
        self.ending = False
        """Whether we are deleting it."""
        self.uid = ""
        self.spec: Object = {}
        """Of the job's object, as it was seen last."""
        self._refused = self._queue = ""

    # ---- what comes

    def take_job(self, kind: str, found: Object) -> list[Saying]:
        """The job's object, or that it is gone."""
        rows = rows_of(found.get("items")) if kind == LISTED else [found]
        if kind == DELETED or not rows:
            self.deleted = True
            if self.ending or self.outcome.state in ("succeeded", "failed"):
                return []
            text = (
                f"Kubernetes job {self.name} is gone: somebody deleted it, and it was not Rankdeck"
            )
            self.outcome = replace(self.outcome, message="somebody deleted the job")
            return [Saying(text)]
        self.outcome = outcome_of(rows[0])
        self.uid = text_of(table_of(rows[0].get("metadata")), "uid", 63)
        self.spec = table_of(rows[0].get("spec"))
        return []

    def take_workload(self, kind: str, found: Object) -> list[Saying]:
        """What Kueue says of the job: the message of what it has not yet got."""
        for row in rows_of(found.get("items")) if kind == LISTED else [found]:
            conditions = rows_of(table_of(row.get("status")).get("conditions"))
            waits = [one for one in conditions if one.get("type") in _KUEUE and one.get("status") == "False"]  # fmt: skip
            self._queue = text_of(waits[0], "message", 400) if waits else ""
        return []

    def take_pod(self, kind: str, found: Object) -> list[Saying]:
        """All pods, or one that is new, changed or gone."""
        rows = rows_of(found.get("items")) if kind == LISTED else [found]
        pods = [pod for pod in map(pod_of, rows) if pod.role != READER]
        if kind == DELETED:
            for pod in pods:
                self._lose(pod)
            return []
        if kind != LISTED:
            return [saying for pod in pods for saying in self._see(pod)]
        for uid in self.pods.keys() - {pod.uid for pod in pods}:
            self._lose(self.pods[uid])
        return [saying for pod in pods for saying in self._see(pod)]

    def _see(self, pod: Pod) -> list[Saying]:
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        if pod.node:
            self.nodes[pod.host] = pod.node
        told: list[Saying] = []
        why = waits_for(pod)
        if why and (before is None or waits_for(before) != why):
            # Without its name: what all pods wait for is said once.
            told.append(Saying(f"a pod waits: {why}"))
        if pod.reason and (before is None or before.reason != pod.reason):
            told.append(Saying(f"pod {pod.name}: {pod.reason}: {pod.message}"))
        elif (lost := taken_away(pod)) and (before is None or taken_away(before) != lost):
            told.append(Saying(lost))
        return told

    def _lose(self, pod: Pod) -> None:
        self.pods.pop(pod.uid, None)
        self.left[pod.uid] = pod

    def take_event(self, kind: str, found: Object) -> list[Saying]:
        """Warnings of the namespace; of others nothing is said."""
        told: list[Saying] = []
        for row in rows_of(found.get("items")) if kind == LISTED else [found]:
            name = text_of(table_of(row.get("involvedObject")), "name")
            reason, message = text_of(row, "reason", 63), text_of(row, "message", 400)
            if kind == DELETED or row.get("type") == "Normal":
                continue
            if name == self._target.name:
                self._refused = message
                told.append(Saying(f"{reason}: {message}"))
            elif name.startswith(f"{self._target.name}-"):
                told.append(Saying(f"{name}: {reason}: {message}", alarm=False))
        return told

    def take_piece(self, piece: Piece, at: float, node: str) -> list[Saying]:
        """A rank said that it began, or how it ended."""
        assert piece.rank is not None
        if piece.what == START:
            self.began[piece.rank] = piece.text.decode("utf-8", "replace")
        elif piece.text.isdigit():
            self.ends.setdefault(piece.rank, RankEnd(int(piece.text[:6]), at, node))
        return []

    # ---- what follows

    @property
    def over(self) -> bool:
        """Whether the job can do no more; of its ranks there may be more to come."""
        return self.deleted or self.outcome.state in ("succeeded", "failed")

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
        """The pods whose logs are to be read; above MOST_FOLLOWED the first, the last and those that fail."""
        all_of_them = self._target.wanted <= MOST_FOLLOWED
        ends = (None, 0, self._target.wanted - 1)
        for pod in self.pods.values():
            if not pod.container.id:
                continue
            if all_of_them or pod.index in ends or pod.phase == "Failed":
                yield pod

    def aside(self) -> Iterator[Pod]:
        """Pods that may run on when the job is over: the workers of an MPIJob."""
        return (p for p in (*self.pods.values(), *self.left.values()) if p.role == WORKER)

    def ranks_of(self, pod: Pod) -> Sequence[int]:
        """The ranks whose output is in this pod's log; none of a worker of an MPIJob, where `sshd` alone writes."""
        if pod.role == LAUNCHER:
            return range(self._target.ranks)
        number = self._target.number_of(pod)
        if pod.role == WORKER or number is None:
            return range(0)
        first = number * self._target.each
        return range(first, min(first + self._target.each, self._target.ranks))

    def node_of(self, host: str, pod: Pod) -> str:
        """The node of a rank that says that it is on this host."""
        return self.nodes.get(host, pod.node)

    def unrecorded(self) -> Iterator[RankRecord]:
        """Ranks that did not say how they ended, by the containers that they were in."""
        for pod in (*self.pods.values(), *self.left.values()):
            box = pod.container
            if pod.role == WORKER or not box.id:
                continue
            launcher = pod.role == LAUNCHER
            ended = box.state == TERMINATED and box.code is not None and box.code >= 0
            # That the launcher failed says nothing of a rank.
            known = ended and not (launcher and box.code)
            for rank in self.ranks_of(pod):
                if rank not in self.ends and (rank in self.began or not launcher):
                    status = box.code if known else None
                    yield RankRecord(rank, pod.node, box.started, status, box.finished)

    def unmarked(self, pod: Pod) -> Iterator[int]:
        """Ranks of a pod that runs and whose shim, if there is one, has not said that they began."""
        if pod.role not in (WORKER, LAUNCHER) and pod.container.state == RUNNING:
            yield from (rank for rank in self.ranks_of(pod) if rank not in self.began)

    def close_records(self) -> list[RankRecord]:
        """Take `unrecorded` for what these ranks did; returns it."""
        records = list(self.unrecorded())
        for one in records:
            self.began.setdefault(one.rank, one.node)
            if one.status is not None:
                self.ends.setdefault(one.rank, RankEnd(one.status, one.ended or 0.0, one.node))
        return records

    def view(self) -> View:
        """All of it, to be put into words."""
        return View(
            name=self.name,
            wanted=self._target.wanted,
            pods=tuple(self.pods.values()),
            left=tuple(self.left.values()),
            outcome=self.outcome,
            queue=self._queue,
            refused=self._refused,
            began=frozenset(self.began),
            ends=self.ends,
            hosts=frozenset(self.began.values()),
            shim=self._target.ours,
        )
