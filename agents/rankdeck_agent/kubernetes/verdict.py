"""What state a Kubernetes job is in and why, in words: from its conditions, its pods and its ranks. No I/O."""

import re
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from rankdeck_agent.job.journal import UNKNOWN
from rankdeck_agent.kubernetes.pods import (
    LAUNCHER,
    RUNNING,
    TERMINATED,
    WAITING,
    WORKER,
    Outcome,
    Pod,
)

_NO_SHELL = re.compile(
    r'"(?:/bin/)?sh": (?:executable file not found|stat|no such file)|sh: not found'
)
_STARTS = ("", "ContainerCreating", "PodInitializing")
"""Reasons to wait that are no trouble."""
_NO_CAUSE = (0, UNKNOWN, 128 + signal.SIGTERM)
_TOO_LONG = 3
"""Different reasons that are told in one line."""


@dataclass(frozen=True)
class RankEnd:
    """How a rank ended: its status as a shell has it, epoch seconds, and the node."""

    status: int
    at: float
    node: str = ""


@dataclass(frozen=True)
class View:
    """All that is known of a job at one moment."""

    name: str
    wanted: int
    """Pods with ranks: nodes of an Indexed Job, workers of an MPIJob."""
    pods: Sequence[Pod] = ()
    left: Sequence[Pod] = ()
    """Pods that are no longer there, as they were seen last."""
    outcome: Outcome = field(default_factory=Outcome)
    queue: str = ""
    """What Kueue says of it."""
    refused: str = ""
    """The newest warning about the job itself: no pod could be created, the job is not valid."""
    began: frozenset[int] = frozenset()
    """Ranks that said that they began."""
    ends: Mapping[int, RankEnd] = field(default_factory=dict[int, RankEnd])
    hosts: frozenset[str] = frozenset()
    """Hosts on which a rank said that it began."""
    shim: bool = True
    """Whether ranks are started by our shim, and so have to say that they begin."""


@dataclass(frozen=True)
class Verdict:
    """How the job ended. `code` is its exit status; `doubts` are sentences that need attention."""

    code: int
    text: str
    doubts: tuple[str, ...] = ()


def progress(view: View) -> str:
    """What the job waits for, or how many of its pods run; one line."""
    if view.outcome.state == "suspended" or (view.queue and not view.pods):
        return f"queued by Kueue: {view.queue}" if view.queue else "suspended: nothing of it runs"
    running = [pod for pod in view.pods if pod.container.state in (RUNNING, TERMINATED)]
    reasons = Counter(why for pod in view.pods if (why := waits_for(pod)))
    total = view.wanted + any(pod.role == LAUNCHER for pod in view.pods)
    if view.left or any(pod.leaving for pod in view.pods):
        return f"ending: {len(view.pods)} of {total} pods are still there"
    if not view.pods:
        return f"pending: {view.refused}" if view.refused else "pending: no pod exists yet"
    if not reasons and len(running) >= total:
        return f"running: {total} of {total} pods"
    waiting = total - len(running)
    told = [
        f"{count} × {why}" if count > 1 else why for why, count in reasons.most_common(_TOO_LONG)
    ]
    if len(view.pods) < total and view.refused:
        told.append(view.refused)
    return f"pending: {waiting} of {total} pods: {'; '.join(told) or 'starting'}"


def waits_for(pod: Pod) -> str:
    """Why the pod does not run yet and may not without help; "" where it runs or is about to."""
    if pod.container.state in (RUNNING, TERMINATED):
        return ""
    if pod.phase == "Failed":
        return ""
    if not pod.node and pod.pending:
        return pod.pending
    box = pod.container
    if box.state == WAITING and box.reason not in _STARTS:
        return f"{box.reason}: {box.message or box.image}"
    return ""


def hopeless(pod: Pod) -> str:
    """Why no rank can ever start in this pod, with what to do; "" where one can."""
    box = pod.container
    if _NO_SHELL.search(box.message):
        return f"image {box.image} has no `sh`, and ranks are started by a small shell script: take an image with a shell"
    if box.reason in (
        "StartError",
        "ContainerCannotRun",
        "CreateContainerConfigError",
        "InvalidImageName",
    ):
        return f"pod {pod.name} cannot start: {box.message or box.reason}"
    return ""


# ---- the end ----------------------------------------------------------------------------


def verdict(view: View) -> Verdict:
    """How a job that is over ended."""
    if view.outcome.state == "succeeded":
        return Verdict(0, f"Kubernetes job {view.name} succeeded", tuple(doubts(view)))
    why, code = _failure(view)
    others = _taken(view)
    more = f", {others} others deleted by Kubernetes" if others else ""
    return Verdict(code, f"Kubernetes job {view.name} failed: {why}{more}")


def doubts(view: View) -> Iterable[str]:
    """What does not fit a success."""
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


def holding(pods: Iterable[Pod]) -> str:
    """Pods of a job that is over and that still run; "" where there are none."""
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


def _few(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, …" if len(ranks) > 8 else shown


def _failure(view: View) -> tuple[str, int]:
    """What failed first, and its exit status."""
    everyone = [*view.pods, *view.left]
    lost = next((why for pod in everyone if (why := hopeless(pod) or taken_away(pod))), "")
    # SIGTERM comes to those that Kubernetes deletes because something else failed.
    failed = [(end.at, rank) for rank, end in view.ends.items() if end.status not in _NO_CAUSE]
    if failed and not lost:
        rank = min(failed)[1]
        end = view.ends[rank]
        where = f" on node {end.node}" if end.node else ""
        return f"rank {rank} {_status(end.status)}{where}", _code(end.status)
    if lost:
        return lost, _code(min((p.container.code or 1 for p in everyone if hopeless(p)), default=1))
    pod = _first_failed(everyone)
    if pod is None:
        reason = ": ".join(filter(None, (view.outcome.reason.rstrip("/"), view.outcome.message)))
        return reason or "Kubernetes does not say why", 1
    box = pod.container
    how = f"{_status(box.code or 1)}{f' ({box.reason})' if box.reason not in ('', 'Error') else ''}"
    return f"{_who(pod)} {how}{f' on node {pod.node}' if pod.node else ''}", _code(box.code or 1)


def taken_away(pod: Pod) -> str:
    """Why the pod was ended from outside; "" where its program ended by itself."""
    where = f" on node {pod.node}" if pod.node else ""
    if pod.reason in ("Evicted", "Preempting", "Preempted"):
        return f"pod {pod.name} was evicted{where}: {pod.message or pod.reason}"
    if pod.reason in ("NodeLost", "NodeShutdown", "Terminated", "Shutdown"):
        return f"pod {pod.name} lost its node{where}: {pod.message or pod.reason}"
    if pod.container.reason == "OOMKilled":
        return (
            f"{_who(pod)} was killed{where}: out of memory (OOMKilled); give the pods more memory"
        )
    return ""


def _first_failed(pods: Iterable[Pod]) -> Optional[Pod]:
    codes = (None, *_NO_CAUSE)
    failed = [p for p in pods if p.container.state == TERMINATED and p.container.code not in codes]
    # Of those that Kubernetes ended because of the first, the code says nothing.
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


def _taken(view: View) -> int:
    """Pods that Kubernetes deleted because another one failed."""
    pods = [*view.left, *(pod for pod in view.pods if pod.leaving)]
    return sum(1 for pod in pods if pod.role != LAUNCHER and not _own_failure(pod))


def _own_failure(pod: Pod) -> bool:
    return pod.phase in ("Failed", "Succeeded") and not pod.leaving
