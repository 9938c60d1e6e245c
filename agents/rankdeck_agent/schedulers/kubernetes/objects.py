"""Pods, jobs, events and lines of logs as the API sends them, and the
kinds of jobs that Rankdeck knows. No I/O.
"""

import calendar
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from rankdeck_agent.older_python import without_suffix
from rankdeck_agent.schedulers.kubernetes.api import Api
from rankdeck_agent.schedulers.kubernetes.json_values import (
    Object,
    object_rows,
    table_of,
    texts_of,
    whole_or_zero,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import ApiError
from rankdeck_agent.text import plain_line
from rankdeck_agent.values import Value, field, replace

OUT, ERR, START, EXIT = "out", "err", "start", "exit"
_STREAMS = {b"stdout": OUT, b"stderr": ERR, b"stddiag": ERR}
_FORMATS = {
    "rankdeck": re.compile(rb"\[rank (?P<rank>\d{1,7}) (?P<what>start|exit|(?:out|err)\+?)\] ?"),
    "openmpi": re.compile(rb"\[(?:\d+,)?(?P<rank>\d{1,7})\](?:\[[^][]*\])?<(?P<what>std\w+)>: ?"),
    "torchrun": re.compile(rb"^\[[^][]*?(?P<rank>\d{1,7})\]:(?P<what>)"),
}
"""The mark before a rank's text, as written by our shim, `mpirun
--tag-output` (4 and 5), `torchrun --tee 3`.
"""
FORMATS = tuple(_FORMATS)
"""Names of these formats."""
Key = tuple[int, str]


class LogPiece(Value):
    """A piece of a log: output of a rank, or its start or end.

    `rank` is None if no rank wrote it. `what` is OUT, ERR, START (`text` is the
    host) or EXIT (`text` is the exit status).
    """

    rank: Optional[int]
    what: str
    text: bytes


class Splitter:
    """Separates the output of the ranks in one log.

    mpirun may write parts of lines of several ranks on one line, and the rest of a long line on the
    next. So a part without an end stays open, and the next text without a mark continues it.
    """

    def __init__(self, form: str = "rankdeck", first: int = 0, parts: Iterable[Key] = ()) -> None:
        """`form`: one of FORMATS. `first` is added to the (local) ranks in the log.

        `parts` are still open from earlier.
        """
        self._mark = _FORMATS[form]
        self._first = first
        self.parts = list(parts)

    def feed(self, line: bytes) -> list[LogPiece]:
        """The pieces of `line`, which comes without its newline."""
        marks = self._marks_in(line)
        pieces: list[LogPiece] = []
        before = line[: marks[0].start()] if marks else line
        if before or not marks:
            pieces += self._unmarked(before, whole=not marks)
        for mark, following in zip(marks, [*marks[1:], None]):
            text = line[mark.end() : following.start() if following else len(line)]
            pieces += self._marked(mark, text, whole=following is None)
        return pieces

    def _marks_in(self, line: bytes) -> "list[re.Match[bytes]]":
        """The marks before the parts of this line. One that follows another at once is text of that
        rank: it prints what others wrote, and no launcher marks nothing.
        """
        marks: list[re.Match[bytes]] = []
        end = -1
        for mark in self._mark.finditer(line):
            if mark.start() != end:
                marks.append(mark)
            end = mark.end()
        return marks

    def _unmarked(self, text: bytes, *, whole: bool) -> list[LogPiece]:
        end = b"\n" if whole else b""
        if not self.parts:
            return [LogPiece(None, OUT, text + b"\n")]
        rank, what = self.parts[-1]
        if whole:
            self.parts.pop()
        return [LogPiece(rank, what, text + end)]

    def _marked(self, mark: "re.Match[bytes]", text: bytes, *, whole: bool) -> list[LogPiece]:
        rank, word = int(mark["rank"]) + self._first, mark["what"]
        if word.endswith(b"+"):
            # A part of a long line; the next part has a mark too.
            return [LogPiece(rank, word[:-1].decode(), text)]
        what = _STREAMS.get(word, word.decode() or OUT)
        if what in (START, EXIT):
            return [*self._ended(rank, (OUT, ERR)), LogPiece(rank, what, text.strip())]
        ended = self._ended(rank, (what,))
        if not whole:
            self.parts.append((rank, what))
        return [*ended, LogPiece(rank, what, text + (b"\n" if whole else b""))]

    def _ended(self, rank: int, streams: tuple[str, ...]) -> list[LogPiece]:
        """Close open parts of this rank that will not be continued: a newline for each."""
        over = [part for part in self.parts if part[0] == rank and part[1] in streams]
        self.parts = [part for part in self.parts if part not in over]
        return [LogPiece(*part, b"\n") for part in over]


_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d)) ?", re.ASCII
)
_second: dict[bytes, int] = {}


def split_time_stamp(line: bytes) -> tuple[Optional[int], bytes]:
    """(when the line was written in epoch nanoseconds, None if it has no
    time stamp; the text after the stamp).
    """
    found = _STAMP.match(line)
    if found is None:
        return None, line
    text, fraction, sign, hours, minutes = found.groups()
    seconds = _seconds(text)
    if seconds is None:
        return None, line
    if sign:
        zone = int(hours) * 3600 + int(minutes) * 60
        seconds -= zone if sign == b"+" else -zone
    return seconds * 10**9 + int((fraction or b"0").ljust(9, b"0")), line[found.end() :]


def _seconds(text: bytes) -> Optional[int]:
    known = _second.get(text)
    if known is None:
        try:
            known = calendar.timegm(time.strptime(text.decode(), "%Y-%m-%dT%H:%M:%S"))
        except ValueError:
            return None
        # Kept, because lines of all ranks have the same few seconds and
        # parsing costs a third of all time.
        if len(_second) > 64:
            _second.clear()
        _second[text] = known
    return known


def parse_object_time(text: object) -> Optional[float]:
    """The epoch seconds of a time in an object; None if it is no valid time."""
    moment = split_time_stamp(text.encode())[0] if isinstance(text, str) else None
    return None if moment is None else moment / 1e9


class LogPosition:
    """How far a log has been read: its newest second, and the lines seen with that second.

    The server accepts only whole seconds (`sinceTime`), and then
    sends all lines of that second again.
    """

    def __init__(self, second: int = 0, seen: Iterable[tuple[int, int]] = ()) -> None:
        self.second = second
        self.seen = dict(seen)
        """Nanoseconds within that second -> number of lines seen with this time."""
        self._again: dict[int, int] = {}

    @property
    def since(self) -> str:
        """The value of `sinceTime`; "" to read from the beginning."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.second)) if self.second else ""

    def resume(self) -> None:
        """Call before asking the server again from `since`: lines of
        that second will come once more.
        """
        self._again = dict(self.seen)

    def fresh(self, moment: int) -> bool:
        """Whether a line with this time (epoch nanoseconds) is new; notes it as seen."""
        second, part = divmod(moment, 10**9)
        if second == self.second and self._again.get(part):
            self._again[part] -= 1
            return False
        if second > self.second:
            self.second, self.seen, self._again = second, {}, {}
        if second == self.second:
            self.seen[part] = self.seen.get(part, 0) + 1
        return True


WAITING, RUNNING, TERMINATED = "waiting", "running", "terminated"
STARVED = "OOMKilled"
FINISHED = ("Succeeded", "Failed")
"""Phases of a pod that has ended."""
_NONE: Object = {}
_INDEX = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
_PART = ("jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type")
_PART_INDEX = ("jobset.sigs.k8s.io/job-index",)
_ROLE = ("rankdeck/role", "training.kubeflow.org/job-role", "job-role")
STARTS = ("", "ContainerCreating", "PodInitializing")
"""Reasons to wait that are normal at the start of a container."""
PULL_WAITS = "ImagePullBackOff"
"""Reason to wait after an image could not be pulled."""
OWN_CONTAINER = "rank"
"""Name of the rank's container in pods that we create."""
LAUNCHER, WORKER, READER = "launcher", "worker", "reader"
ROLE_LABEL = "rankdeck/role"
"""Our label on a pod that is not one of the job's own: READER prints
what is on the job's volume claim.
"""


MADE_UP = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Reasons with which a node says that it lost a container: the exit code (137, 255) is its own."""


class EndedRun(Value):
    """A run of a container that has ended, before the newest one in the same pod."""

    code: Optional[int]
    reason: str = ""

    @property
    def words(self) -> str:
        """`exit 3`, `out of memory (OOMKilled)`; "" if the node does not know how it ended."""
        if self.reason == STARVED:
            return f"out of memory ({STARVED})"
        return "" if self.code is None else f"exit {self.code}"


class RankContainer(Value):
    """The newest run of a rank's container. Times are epoch seconds of the node's clock."""

    name: str
    id: str = ""
    state: str = ""
    reason: str = ""
    message: str = ""
    code: Optional[int] = None
    started: Optional[float] = None
    finished: Optional[float] = None
    image: str = ""
    again: bool = False
    """Whether the container had ended before and was restarted in its pod."""
    before: Optional[EndedRun] = None
    """The run before this one, if it is known how that ended."""

    @property
    def is_between_runs(self) -> bool:
        """Whether it ended and waits to be started again (CrashLoopBackOff)."""
        return self.state == WAITING and self.before is not None


class Pod(Value):
    """One pod of a job, as far as Rankdeck needs it."""

    name: str
    uid: str
    node: str = ""
    host: str = ""
    """The host name inside the pod (`uname -n`)."""
    index: Optional[int] = None
    part: str = ""
    """The replicated job of a JobSet or TrainJob, the replica type of a PyTorchJob."""
    part_index: int = 0
    """Number of the Job within the part, from 0."""
    role: str = ""
    """LAUNCHER or WORKER for an MPIJob; READER for our reader of
    the volume claim; "" for others.
    """
    phase: str = ""
    reason: str = ""
    message: str = ""
    pending: str = ""
    """Why it has no node, in the scheduler's words."""
    initial: str = ""
    """What is wrong with an init container."""
    prepares: str = ""
    """What comes before the rank's container: an init container that runs, a scheduler."""
    beside: str = ""
    """Name of another running container, such as one that a webhook
    added; the pod does not end before it.
    """
    lacks: str = ""
    """Another container that does not start, and why: the pod never is whole."""
    disruption: str = ""
    """Why the control plane or Kueue removes the pod: PreemptionByScheduler, …"""
    unheard: bool = False
    """Whether Kubernetes hears nothing of the pod, because its node is silent."""
    leaving: bool = False
    """Whether it is being deleted."""
    created: Optional[float] = None
    """Epoch seconds of the server's clock."""
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    """Extended resource -> how many the rank's container has."""
    container: RankContainer = field(default_factory=lambda: RankContainer(""))

    @property
    def is_over(self) -> bool:
        """Whether the pod has ended."""
        return self.phase in FINISHED

    @property
    def is_silent(self) -> bool:
        """Whether its node is silent and the pod has not ended."""
        return self.unheard and bool(self.node) and not self.is_over


GONE = "gone"


class JobOutcome(Value):
    """What a job's conditions say.

    `state`: "", "suspended", "succeeded" or "failed"; GONE if the job no longer exists.
    """

    state: str = ""
    reason: str = ""
    message: str = ""


def string_value(row: Object, name: str, limit: int = 253) -> str:
    """One string value as a line that is safe to show; "" if it is no string."""
    value = row.get(name)
    return plain_line(value, limit) if isinstance(value, str) else ""


SCHEDULING = "FailedScheduling"
"""Reason of warnings that a pod's own condition tells too, and only as long as they hold."""


def event_uid(event: Object) -> str:
    """The uid of what an event is about."""
    return string_value(table_of(event.get("involvedObject")), "uid", 64)


_UNUSABLE = re.compile(
    r'provider "[^"]{1,253}": Forbidden: not usable by user or serviceaccount(?:, )?'
)
"""OpenShift lists dozens of rules that are not the user's before those that the pod breaks."""
_REPEATED = re.compile(r"Error: \w+")


def event_message(event: Object) -> str:
    """The message of an event as a line, without what only hides its cause; "" if it only repeats
    the state of a container, which its pod tells too.
    """
    said = event.get("message")
    if not isinstance(said, str) or _REPEATED.fullmatch(said):
        return ""
    # The MPI Operator appends `: ` before words of a pod that it may not have.
    return plain_line(_UNUSABLE.sub("", said[:_LONGEST_MESSAGE]), 400).rstrip(": ")


_LONGEST_MESSAGE = 10_000


def _number(value: object) -> Optional[int]:
    return value if type(value) is int and abs(value) < 1 << 31 else None


def _labelled(labels: Object, names: Iterable[str]) -> str:
    return next(filter(None, (string_value(labels, name, 63) for name in names)), "")


def _index(labels: Object, names: Iterable[str]) -> Optional[int]:
    text = _labelled(labels, names)
    return int(text) if text.isdecimal() and len(text) < 8 else None


def _place_in_job(labels: Object, annotations: Object) -> Optional[int]:
    """The pod's number in its job; servers before 1.28 write it as an annotation only."""
    found = _index(labels, _INDEX)
    return _index(annotations, _INDEX) if found is None else found


_TARGETS = ("DisruptionTarget", "TerminationTarget")
"""Conditions with which a control plane and Kueue say that they end a pod."""


def pod_of(found: Object) -> Pod:
    """The Pod of an API object; values that are invalid are left empty."""
    meta, spec, status = (table_of(found.get(key)) for key in ("metadata", "spec", "status"))
    labels = table_of(meta.get("labels"))
    name = string_value(meta, "name")
    conditions = {
        string_value(row, "type", 63): row for row in object_rows(status.get("conditions"))
    }
    targets = (conditions.get(name, _NONE) for name in _TARGETS)
    target = next((row for row in targets if row.get("status") == "True"), _NONE)
    disruption = string_value(target, "reason", 63)
    statuses = object_rows(status.get("containerStatuses"))
    own = _own_container(table_of(meta.get("annotations")), object_rows(spec.get("containers")))
    first = object_rows(status.get("initContainerStatuses"))
    return Pod(
        name=name,
        uid=string_value(meta, "uid", 63),
        node=string_value(spec, "nodeName", 63),
        host=string_value(spec, "hostname", 63) or name,
        index=_place_in_job(labels, table_of(meta.get("annotations"))),
        part=_labelled(labels, _PART).lower(),
        part_index=_index(labels, _PART_INDEX) or 0,
        role=_labelled(labels, _ROLE),
        phase=string_value(status, "phase", 20),
        reason=string_value(status, "reason", 63),
        message=string_value(status, "message", 400) or string_value(target, "message", 400),
        pending=_unscheduled(conditions.get("PodScheduled", _NONE), spec),
        initial=_initial(first, "init container"),
        prepares=_prepares(first, spec) or _unseen(conditions, spec),
        beside=_beside(string_value(own, "name", 63), statuses),
        lacks=_initial(row for row in statuses if row.get("name") != own.get("name")),
        disruption=disruption,
        unheard=status.get("phase") == "Unknown" or _unheard(conditions),
        leaving=bool(meta.get("deletionTimestamp")),
        created=parse_object_time(meta.get("creationTimestamp")),
        devices=_devices(own),
        container=_container(own, statuses),
    )


def _own_container(annotations: Object, containers: Sequence[Object]) -> Object:
    """The rank's container: by name, else the first. (A webhook may have put others before it.)"""
    names = (OWN_CONTAINER, annotations.get("kubectl.kubernetes.io/default-container"))
    named = [box for name in names for box in containers if name and box.get("name") == name]
    return next(iter((*named, *containers)), _NONE)


def _beside(own: str, statuses: Iterable[Object]) -> str:
    others = (row for row in statuses if RUNNING in table_of(row.get("state")))
    names = (string_value(row, "name", 63) for row in others)
    return next((name for name in names if name != own), "")


def _initial(statuses: Iterable[Object], what: str = "container") -> str:
    """What is wrong with the first of these containers that does not start or has failed."""
    for row in statuses:
        state = table_of(row.get("state"))
        waiting, over = table_of(state.get(WAITING)), table_of(state.get(TERMINATED))
        name = f"{what} `{string_value(row, 'name', 63)}`"
        reason, code = string_value(waiting, "reason", 63), _number(over.get("exitCode"))
        if reason not in STARTS:
            said = f"{name}: {reason}: {string_value(waiting, 'message', 400)}"
            last = table_of(table_of(row.get("lastState")).get(TERMINATED))
            return without_suffix(said, ": ") + _last_run(_ended_run(last))
        if code:
            return f"{name} ended with {_ended_run(over).words or f'exit {code}'}"
    return ""


def _ended_run(state: Object) -> EndedRun:
    return EndedRun(_exit_code(state), string_value(state, "reason", 63))


def _last_run(run: EndedRun) -> str:
    return f" (its last run: {run.words})" if run.words else ""


def sidecars_of(spec: Object) -> list[Object]:
    """The init containers of a pod that run beside the others."""
    return [row for row in object_rows(spec.get("initContainers")) if row.get("restartPolicy") == "Always"]  # fmt: skip


_USUAL_SCHEDULER = "default-scheduler"


def _unseen(conditions: Mapping[str, Object], spec: Object) -> str:
    """The sentence if a scheduler that the site has added has not looked at the pod."""
    scheduler = string_value(spec, "schedulerName", 63)
    seen = bool(spec.get("nodeName")) or "PodScheduled" in conditions
    if seen or scheduler in ("", _USUAL_SCHEDULER):
        return ""
    return f"scheduler `{scheduler}` has not looked at it yet; does it run?"


def _prepares(statuses: Iterable[Object], spec: Object) -> str:
    beside = {string_value(row, "name", 63) for row in sidecars_of(spec)}
    running = (row for row in statuses if RUNNING in table_of(row.get("state")))
    names = (string_value(row, "name", 63) for row in running)
    found = next((name for name in names if name not in beside), "")
    return f"init container `{found}` runs" if found else ""


def _unheard(conditions: Mapping[str, Object]) -> bool:
    """Whether the node controller has set Ready to False without a
    reason, as it does for silent nodes.
    """
    ready, boxes = (conditions.get(name, _NONE) for name in ("Ready", "ContainersReady"))
    taken = ready.get("status") == "False" and not ready.get("reason")
    return taken and boxes.get("status") == "True"


def _unscheduled(condition: Object, spec: Object) -> str:
    if condition.get("status") != "False":
        return ""
    said = string_value(condition, "message", 400) or string_value(condition, "reason", 63)
    gates = ", ".join(string_value(one, "name") for one in object_rows(spec.get("schedulingGates")))
    # Only whoever put a gate there takes it away, and the message names none.
    return f"{said}: {plain_line(gates, 300)}" if gates else said


def _devices(container: Object) -> dict[str, int]:
    limits = table_of(table_of(container.get("resources")).get("limits"))
    counts = {plain_line(name, 63): str(value) for name, value in limits.items() if "/" in name}
    return {
        name: int(count) for name, count in counts.items() if count.isdecimal() and len(count) < 10
    }


def _container(spec: Object, statuses: Iterable[Object]) -> RankContainer:
    name = string_value(spec, "name", 63)
    status = next((row for row in statuses if row.get("name") == name), _NONE)
    states = table_of(status.get("state"))
    kind = next((kind for kind in (TERMINATED, RUNNING, WAITING) if kind in states), "")
    state = table_of(states.get(kind))
    last = table_of(table_of(status.get("lastState")).get(TERMINATED))
    return RankContainer(
        name=name,
        id=string_value(status, "containerID", 200),
        state=kind,
        reason=string_value(state, "reason", 63),
        message=string_value(state, "message", 400),
        code=_exit_code(state),
        started=parse_object_time(state.get("startedAt")),
        finished=parse_object_time(state.get("finishedAt")),
        image=string_value(spec, "image", 200),
        again=whole_or_zero(status.get("restartCount")) > 0,
        before=_ended_run(last) if last else None,
    )


def _exit_code(state: Object) -> Optional[int]:
    """The exit code of a container; None if it has none, or the node made one up."""
    return None if state.get("reason") in MADE_UP else _number(state.get("exitCode"))


_ENDS = {"Complete": "succeeded", "Succeeded": "succeeded", "Completed": "succeeded", "Failed": "failed"}  # fmt: skip


def job_outcome(found: Object) -> JobOutcome:
    """How a job of any kind ended, or that it is suspended, according to its conditions."""
    conditions = object_rows(table_of(found.get("status")).get("conditions"))
    true = [row for row in conditions if row.get("status") == "True"]
    for row in true:
        state = _ENDS.get(string_value(row, "type", 63))
        if state:
            return JobOutcome(
                state, string_value(row, "reason", 100), string_value(row, "message", 400)
            )
    for row in true:
        if row.get("type") == "Suspended":
            return JobOutcome(
                "suspended", string_value(row, "reason", 100), string_value(row, "message", 400)
            )
    return JobOutcome()


_OWN_MANAGERS = re.compile(
    r"kubernetes\.io/job-controller|kubeflow\.org/(?:mpi|training)-operator"
    r"|jobset\.sigs\.k8s\.io/jobset-controller|trainer\.kubeflow\.org/trainjob-controller"
)


def manager_of(spec: Object) -> str:
    """Who makes the job's pods, in the place of its usual controller; "" for that."""
    named = string_value(spec, "managedBy") or string_value(
        table_of(spec.get("runPolicy")), "managedBy"
    )
    return "" if _OWN_MANAGERS.fullmatch(named) else named


def is_winding_up(found: Object) -> bool:
    """Whether Kubernetes has decided how the job ends, and ends its last pods."""
    rows = object_rows(table_of(found.get("status")).get("conditions"))
    return any(row.get("type") in _DECIDED and row.get("status") == "True" for row in rows)


_DECIDED = ("FailureTarget", "SuccessCriteriaMet")
_OWN_FINALIZERS = frozenset({"foregroundDeletion", "orphan", "batch.kubernetes.io/job-tracking"})
"""Kubernetes takes these away itself."""


def held_by(meta: Object) -> str:
    """Who keeps an object that was deleted: only those who wrote a finalizer take it away.

    `meta` is its metadata.
    """
    names = [plain_line(one, 100) for one in texts_of(meta.get("finalizers"))]
    foreign = [name for name in names if name not in _OWN_FINALIZERS]
    if foreign:
        return f"held by finalizer {', '.join(foreign[:3])}"
    return "has finalizers" if names else ""


OURS_LABEL = "rankdeck/job"
ID_ANNOTATION, SPEC_ANNOTATION = "rankdeck/job-id", "rankdeck/spec"


class JobKind(Value):
    """One kind of job. `label` is the label of its pods that has the job's name."""

    name: str
    group: str
    version: str
    plural: str
    label: str
    operator: str = ""
    """Value of OPERATOR_LABEL on its pods, for kinds that share `label`:
    their jobs may have the same name.
    """

    @property
    def api_version(self) -> str:
        """`apiVersion` of objects of this kind."""
        return f"{self.group}/{self.version}"

    @property
    def place(self) -> str:
        """The API path of the group and version."""
        return f"/apis/{self.api_version}"

    def path(self, namespace: str) -> str:
        """The API path of the jobs of a namespace; of all for ""."""
        inside = f"namespaces/{namespace}/" if namespace else ""
        return f"{self.place}/{inside}{self.plural}"


OPERATOR_LABEL = "training.kubeflow.org/operator-name"
_NEW_JOB_LABEL = "batch.kubernetes.io/job-name"
JOB = JobKind("Job", "batch", "v1", "jobs", "job-name")
"""Its label is the old one, which all servers set; the new one is there from 1.27 on."""
MPIJOB = JobKind(
    "MPIJob", "kubeflow.org", "v2beta1", "mpijobs", "training.kubeflow.org/job-name", "mpi-operator"
)
KINDS = (
    JOB,
    MPIJOB,
    JobKind("PyTorchJob", "kubeflow.org", "v1", "pytorchjobs", "training.kubeflow.org/job-name", "pytorchjob-controller"),
    JobKind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", "jobset.sigs.k8s.io/jobset-name"),
    JobKind("TrainJob", "trainer.kubeflow.org", "v1alpha1", "trainjobs", "jobset.sigs.k8s.io/jobset-name"),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
POD_LABELS = (*dict.fromkeys(kind.label for kind in reversed(KINDS)), _NEW_JOB_LABEL)
"""Labels that name the job of a pod, the outermost job first: a JobSet's
pods also have the label of their Job.
"""
KUEUE = JobKind("Workload", "kueue.x-k8s.io", "v1beta1", "workloads", "")


_FORBIDDEN, _BROKEN = 403, (500, 503)
OLDEST = 24
"""The oldest minor version of Kubernetes 1 for which Rankdeck is made."""


def ask_version(api: Api) -> Object:
    """The server's version; empty if it tells that nobody but administrators. Raises ApiError."""
    try:
        return api.request("GET", "/version")
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return {}


def too_old(version: Object) -> str:
    """The sentence if a server is too old, from its answer to /version; else ""."""
    major, minor = (
        re.match(r"\d{0,4}", string_value(version, key, 10)) for key in ("major", "minor")
    )
    if not (major and minor and major[0] and minor[0]) or (int(major[0]), int(minor[0])) >= (
        1,
        OLDEST,
    ):
        return ""
    name = string_value(version, "gitVersion", 60)
    return (
        f"this server is Kubernetes {name}, and Rankdeck needs 1.{OLDEST} or newer: ranks may stay"
        " without output there"
    )


def find_kueue(api: Api) -> Optional[JobKind]:
    """Kueue's Workload in the version that this server prefers; None if it has no Kueue.

    Raises ApiError.
    """
    try:
        found = api.request("GET", f"/apis/{KUEUE.group}")
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    version = (
        string_value(part_of_object(found, "preferredVersion"), "version", 20) or KUEUE.version
    )
    kind = replace(KUEUE, version=version)
    return kind if serves_kind(api, kind) else None


def list_job_kinds(api: Api) -> tuple[JobKind, ...]:
    """The kinds of jobs that this server has; raises ApiError if it does not answer."""
    return tuple(kind for kind in KINDS if serves_kind(api, kind))


def serves_kind(api: Api, kind: JobKind) -> bool:
    """Whether the server has this kind, and can answer for it; raises ApiError
    if it does not answer at all.
    """
    try:
        found = api.request("GET", kind.place)
    except ApiError as error:
        # A group of an operator may be broken while Kubernetes itself is well.
        broken = error.status in _BROKEN and kind is not JOB
        if broken or error.status in (_FORBIDDEN, 404):
            return False
        raise
    return kind.plural in {row.get("name") for row in object_rows(found.get("resources"))}


# ---- parts of objects, none of them trusted ---------------------------------------------


def part_of_object(found: object, *keys: str) -> Object:
    """The object below these keys; empty if there is none."""
    for key in keys:
        found = table_of(found).get(key)
    return table_of(found)


def job_of_pod(pod: Object) -> str:
    """`namespace/job` of a pod; "" if it belongs to no job."""
    given = part_of_object(pod, "metadata", "labels")
    name = next(filter(None, (string_value(given, label) for label in POD_LABELS)), "")
    return f"{string_value(part_of_object(pod, 'metadata'), 'namespace')}/{name}" if name else ""
