"""The Job controller of the double: pods per index, counting,
survivors deleted, conditions as recorded.
"""

import copy
import datetime
import time

from tests.support.kubernetes import defaults, status
from tests.support.kubernetes.admission import Admit
from tests.support.kubernetes.garbage import end
from tests.support.kubernetes.kinds import JOB, POD
from tests.support.kubernetes.store import Store, deleting, is_true, now, owned, owner

Json = dict
INDEX = "batch.kubernetes.io/job-completion-index"
TRACKING = "batch.kubernetes.io/job-tracking"
BY = "job-controller"
_REASONS = {
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "DeadlineExceeded": "Job was active longer than specified deadline",
}


class Jobs:
    """Brings Jobs one step further on each call."""

    def __init__(self, store: Store, admit: Admit) -> None:
        self._store, self._admit = store, admit
        self.settle = 0.1
        """Seconds after its end until a pod is counted; the real controller waits one second."""
        self.late = 0.0
        """Seconds from a Job's creation to that of its pods."""
        self.minor = 36
        """Of the version 1.x."""
        self._seen: dict[str, float] = {}

    def reconcile(self) -> None:
        """One round over all Jobs."""
        known = self._store.by_uid()
        self._release([p for p in self._store.all(POD) if not _kept(p, known)])
        for job in self._store.all(JOB):
            pods = [p for p in self._store.all(POD, job["metadata"]["namespace"]) if owned(p, job)]
            if deleting(job) or _finished(job):
                self._release(pods)
                self._after(job)
            elif job["spec"]["suspend"]:
                self._suspend(job, pods)
            elif self._since(job["metadata"]["uid"]) >= self.late:
                self._run(job, pods)

    def _since(self, key: str) -> float:
        """Seconds since something was first seen."""
        return time.monotonic() - self._seen.setdefault(key, time.monotonic())

    def _release(self, pods: list[Json]) -> None:
        def change(pod: Json) -> None:
            held = pod["metadata"].get("finalizers", [])
            pod["metadata"]["finalizers"] = [name for name in held if name != TRACKING]
            if not pod["metadata"]["finalizers"]:
                del pod["metadata"]["finalizers"]

        for pod in pods:
            if TRACKING in pod["metadata"].get("finalizers", []):
                self._store.change(POD, pod, change)

    def _after(self, job: Json) -> None:
        """Delete a finished Job when its time to live is over."""
        limit = job["spec"].get("ttlSecondsAfterFinished")
        if limit is None or deleting(job):
            return
        at = job["status"]["conditions"][-1]["lastTransitionTime"]
        ended = datetime.datetime.fromisoformat(at).timestamp()
        if time.time() - ended >= limit:
            self._store.delete(JOB, job, "foregroundDeletion")

    def _delete(self, job: Json, pods: list[Json]) -> None:
        for pod in pods:
            if not deleting(pod):
                end(self._store, POD, pod)
                told = f"Deleted pod: {pod['metadata']['name']}"
                self._store.event(JOB, job, "SuccessfulDelete", told, by=BY)

    def _suspend(self, job: Json, pods: list[Json]) -> None:
        def change(new: Json) -> None:
            known = new["status"]
            for name in ("startTime", "active", "terminating", "ready"):
                known.pop(name, None)
            left = [pod for pod in pods if not _ended(pod)]
            known |= {"terminating": len(left), "uncountedTerminatedPods": {}, "ready": 0}
            _condition(new, "Suspended", "True", "JobSuspended", "Job suspended")

        self._release(pods)
        self._delete(job, [pod for pod in pods if not _ended(pod)])
        if not is_true(job, "Suspended"):
            self._store.event(JOB, job, "Suspended", "Job suspended", by=BY)
        self._store.change(JOB, job, change)

    # ---- a Job that runs --------------------------------------------------------------

    def _run(self, job: Json, pods: list[Json]) -> None:
        counted = [p for p in pods if (_ended(p) or deleting(p)) and self._settled(p)]
        succeeded = sorted({_index(p) for p in counted if p["status"]["phase"] == "Succeeded"})
        failed = [p for p in counted if p["status"]["phase"] != "Succeeded" and _tracked(p)]
        active = [p for p in pods if not _ended(p) and not deleting(p)]
        reason = self._why_failed(job, pods, len(failed))
        new = copy.deepcopy(job)
        known = new["status"]
        known.setdefault("startTime", now())
        known["uncountedTerminatedPods"] = {}
        if is_true(job, "Suspended"):
            _condition(new, "Suspended", "False", "JobResumed", "Job resumed")
            self._store.event(JOB, job, "Resumed", "Job resumed", by=BY)
        known["failed"] = known.get("failed", 0) + len(failed)
        if reason:
            known["failed"] += self._fail(new, job, active, pods, reason)
            active = []
        elif len(succeeded) >= job["spec"]["completions"]:
            self._succeed(new, succeeded)
        else:
            waiting = [p for p in pods if p not in counted and p not in active]
            active += self._fill(job, [*active, *waiting], succeeded)
        _count(new, active, pods, len(succeeded))
        if job["spec"]["completionMode"] == "Indexed" and succeeded:
            known["completedIndexes"] = _ranges(succeeded)
        self._store.change(JOB, job, lambda old: old.update(new))
        self._release(failed)

    def _settled(self, pod: Json) -> bool:
        return self._since(pod["metadata"]["uid"]) >= self.settle

    def _why_failed(self, job: Json, pods: list[Json], fresh: int) -> str:
        target = [c for c in job["status"].get("conditions", []) if c["type"] == "FailureTarget"]
        if target:
            return target[0]["reason"]
        restarts = sum(
            known.get("restartCount", 0)
            for pod in pods
            for known in pod["status"].get("containerStatuses", [])
            if pod["spec"]["restartPolicy"] == "OnFailure"
        )
        if job["status"].get("failed", 0) + fresh + restarts > job["spec"]["backoffLimit"]:
            return "BackoffLimitExceeded"
        limit = job["spec"].get("activeDeadlineSeconds")
        started = job["status"].get("startTime")
        if limit is not None and started:
            begun = datetime.datetime.fromisoformat(started).timestamp()
            return "DeadlineExceeded" if time.time() - begun >= limit else ""
        return ""

    def _fail(self, new: Json, job: Json, active: list[Json], pods: list[Json], why: str) -> int:
        """Delete the remaining pods; set Failed when they are gone.

        Returns how many were deleted.
        """
        self._delete(job, active)
        self._release(active)
        _condition(new, "FailureTarget", "True", why, _REASONS[why])
        if is_true(job, "FailureTarget") and all(_ended(pod) for pod in pods):
            _condition(new, "Failed", "True", why, _REASONS[why])
            self._store.event(JOB, job, why, _REASONS[why], by=BY, warning=True)
        return len(active)

    def _succeed(self, new: Json, succeeded: list[int]) -> None:
        words = ("True", "CompletionsReached", "Reached expected number of succeeded pods")
        if is_true(new, "SuccessCriteriaMet"):
            _condition(new, "Complete", *words)
            new["status"]["completionTime"] = now()
            self._store.event(JOB, new, "Completed", "Job completed", by=BY)
        _condition(new, "SuccessCriteriaMet", *words)

    def _fill(self, job: Json, there: list[Json], succeeded: list[int]) -> list[Json]:
        """Create pods for indexes without one; a pod that ended and is not
        yet counted still counts as one.
        """
        spec = job["spec"]
        taken = {_index(pod) for pod in there} | set(succeeded)
        free = [i for i in range(spec["completions"]) if i not in taken]
        if spec["completionMode"] != "Indexed":
            free = list(range(max(0, spec["completions"] - len(succeeded) - len(there))))
        made = [
            self._create(job, index) for index in free[: max(0, spec["parallelism"] - len(there))]
        ]
        return [pod for pod in made if pod]

    def as_of(self, pod: Json) -> Json:
        """The pod as a server of this version makes it: the index is a label from 1.28
        on, the new names of labels from 1.27.
        """
        names = pod["metadata"]["labels"]
        old = [n for n in names if n.startswith("batch.kubernetes.io/")] if self.minor < 27 else []
        for name in (*old, *([INDEX] if self.minor < 28 else [])):
            names.pop(name, None)
        return pod

    def _create(self, job: Json, index: int) -> Json | None:
        wanted = self.as_of(pod_of(job, index))
        try:
            wanted = defaults.completed(POD, wanted, job["metadata"]["namespace"])
            wanted = self._admit(POD, wanted)
            defaults.check_quota(POD, wanted, self._store)
            pod = self._store.create(POD, wanted)
        except status.RefusedError as refusal:
            words = f"Error creating: {refusal}"
            self._store.event(JOB, job, "FailedCreate", words, by=BY, warning=True)
            return None
        told = f"Created pod: {pod['metadata']['name']}"
        self._store.event(JOB, job, "SuccessfulCreate", told, by=BY)
        return pod


def pod_of(job: Json, index: int) -> Json:
    """The pod of an index as the controller makes it."""
    template = copy.deepcopy(job["spec"]["template"])
    name, spec = job["metadata"]["name"], template["spec"]
    meta = template.setdefault("metadata", {})
    meta.pop("ownerReferences", None)
    meta["generateName"] = f"{name}-"
    if job["spec"]["completionMode"] == "Indexed":
        meta["generateName"] += f"{index}-"
        meta.setdefault("labels", {})[INDEX] = str(index)
        meta.setdefault("annotations", {})[INDEX] = str(index)
        spec["hostname"] = f"{name}-{index}"
        field = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
        for container in spec["containers"]:
            own = {"name": "JOB_COMPLETION_INDEX", "valueFrom": field}
            container["env"] = [*container.get("env", []), own]
    meta["ownerReferences"] = [owner(JOB, job)]
    meta["finalizers"] = [TRACKING]
    return {"metadata": meta, "spec": spec}


def _kept(pod: Json, known: dict[str, Json]) -> bool:
    """Whether the owner of this pod exists."""
    return any(ref["uid"] in known for ref in pod["metadata"].get("ownerReferences", []))


def _index(pod: Json) -> int:
    return int(pod["metadata"].get("annotations", {}).get(INDEX, 0))


def _ended(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _tracked(pod: Json) -> bool:
    return TRACKING in pod["metadata"].get("finalizers", [])


def _finished(job: Json) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")


def _count(new: Json, active: list[Json], pods: list[Json], succeeded: int) -> None:
    going = [pod for pod in pods if deleting(pod) and not _ended(pod)]
    going += [pod for pod in active if deleting(pod)]
    counts = {"active": len(active), "succeeded": succeeded, "failed": new["status"]["failed"]}
    for name, count in counts.items():
        if count:
            new["status"][name] = count
        else:
            new["status"].pop(name, None)
    new["status"]["terminating"] = len(going)
    new["status"]["ready"] = sum(is_true(pod, "Ready") for pod in active)


def _condition(job: Json, name: str, value: str, reason: str, message: str) -> None:
    known = job["status"].setdefault("conditions", [])
    same = [c for c in known if c["type"] == name]
    if same and same[0]["status"] == value:
        return
    at = {"lastProbeTime": now(), "lastTransitionTime": now()}
    new = {"type": name, "status": value, **at, "reason": reason, "message": message}
    if same:
        known[known.index(same[0])] = new
    else:
        known.append(new)


def _ranges(indexes: list[int]) -> str:
    """`0,1`, `0-2,5`: as completedIndexes writes them."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    told = [f"{r[0]}-{r[-1]}" if len(r) > 2 else ",".join(map(str, r)) for r in runs]
    return ",".join(told)
