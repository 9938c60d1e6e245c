"""The kubelet of the double: starts and ends the containers of pods, and keeps status and logs."""

import asyncio
import itertools
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.kubernetes.kinds import NODE, POD
from tests.support.kubernetes.logs import ContainerLog, PodLog
from tests.support.kubernetes.scheduler import pod_condition, ready
from tests.support.kubernetes.status import RefusedError
from tests.support.kubernetes.store import Store, deleting, now

Json = dict[str, Any]
BY = "kubelet"


@dataclass(frozen=True)
class Exit:
    """How a container ended."""

    code: int
    reason: str
    message: str = ""


class Running(Protocol):
    """A container that runs."""

    async def wait(self) -> Exit: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Runner(Protocol):
    """Runs containers: as real processes, or as a script of output lines."""

    def missing(self, pod: Json) -> str:
        """Why the pod's volumes cannot be mounted now, or ""."""
        ...

    async def start(self, pod: Json, container: Json, address: str, log: ContainerLog) -> Running:
        """Start a container of the pod at `address`; its output goes to `log`."""
        ...

    def refresh(self) -> None:
        """Update host names to the pods that exist now."""
        ...


@dataclass
class _Life:
    """A pod on its node."""

    task: asyncio.Task
    address: str
    running: dict[str, Running] = field(default_factory=dict)
    stopping: bool = False
    forced: Exit | None = None
    """The exit status to report for the next container end, if a fault ends it."""
    again: bool = False
    """Restart the container in its pod, whatever the restart policy."""


class Kubelet:
    """The kubelets of all nodes."""

    def __init__(self, store: Store, logs: dict, runner: Runner) -> None:
        self._store, self._logs, self._runner = store, logs, runner
        self._lives: dict[str, _Life] = {}
        self._addresses = (f"10.244.{n // 250}.{n % 250 + 2}" for n in itertools.count(0))
        self.start_delay: Callable[[Json], float] = lambda pod: 0.0
        self.clock_ahead: Callable[[Json], float] = lambda pod: 0.0
        """Seconds from a pod's assignment to a node to the start of its containers."""
        self.bad_images: dict[str, str] = {}
        """Image pattern -> why it cannot be pulled: the message of ErrImagePull."""
        self.shellless = ""
        """Pattern of images that have no shell."""
        self.lost: set[str] = set()
        """Nodes that are lost: their kubelet is silent."""

    def reconcile(self) -> None:
        """Start new pods, end deleted ones."""
        there = {}
        for pod in self._store.all(POD):
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            there[uid] = pod
            if not node or node in self.lost:
                continue
            if uid not in self._lives:
                self._begin(pod)
            elif deleting(pod):
                self._stop(pod, self._lives[uid])
        for uid in list(self._lives):
            if uid not in there:
                self._kill(self._lives.pop(uid))
        self._runner.refresh()

    def close(self) -> None:
        """End every container at once."""
        for life in self._lives.values():
            self._kill(life)

    async def start_beside(
        self, pod: Json, container: str, command: Sequence[str]
    ) -> asyncio.subprocess.Process:
        """Run a command in a container, as `kubectl exec` does."""
        life = self._lives.get(pod["metadata"]["uid"])
        running: Any = life.running.get(container) if life else None
        if running is None:
            raise RefusedError(
                500,
                "InternalError",
                f'unable to upgrade connection: container not found ("{container}")',
            )
        return await running.start_beside(command)

    # ---- faults -----------------------------------------------------------------------

    def end_container(self, pod: Json, how: Exit, *, again: bool = False) -> None:
        """Kill a pod's containers and report this exit status; `again` restarts them in the pod."""
        life = self._lives[pod["metadata"]["uid"]]
        life.forced, life.again = how, again
        for running in life.running.values():
            running.kill()

    def evict(self, pod: Json, message: str) -> None:
        """As under memory pressure: the pod fails and its containers are killed."""
        life = self._lives[pod["metadata"]["uid"]]
        life.forced = Exit(137, "Error")

        def change(new: Json) -> None:
            new["status"] |= {"phase": "Failed", "reason": "Evicted", "message": message}

        self._store.event(POD, pod, "Evicted", message, by=BY, warning=True)
        self._store.change(POD, pod, change)
        for running in life.running.values():
            running.kill()

    def lose(self, node: str) -> None:
        """The kubelet of a node falls silent: Ready becomes Unknown,
        streams give neither data nor an end.
        """
        self.lost.add(node)
        found = self._store.need(NODE, "", node)
        self._store.change(NODE, found, lambda new: _node_ready(new, "Unknown"))
        for pod in self._on(node):
            self._store.change(POD, pod, lambda new: _set(new, {"Ready": "False"}))
            words = "Node is not ready"
            self._store.event(POD, pod, "NodeNotReady", words, by="node-controller", warning=True)
            for log in self._logs_of(pod):
                log.silent = True

    def find(self, node: str) -> None:
        """The node is back."""
        self.lost.discard(node)
        found = self._store.need(NODE, "", node)
        self._store.change(NODE, found, lambda new: _node_ready(new, "True"))
        for pod in self._on(node):
            for log in self._logs_of(pod):
                log.silent = False
                log.wake()

    def _on(self, node: str) -> list[Json]:
        return [pod for pod in self._store.all(POD) if pod["spec"].get("nodeName") == node]

    def _logs_of(self, pod: Json) -> list[ContainerLog]:
        kept = self._logs.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
        return [log for runs in kept.runs.values() for log in runs] if kept else []

    # ---- one pod ----------------------------------------------------------------------

    def _begin(self, pod: Json) -> None:
        meta = pod["metadata"]
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            return
        self._logs[meta["namespace"], meta["name"]] = PodLog(
            meta["uid"], ahead=self.clock_ahead(pod)
        )
        life = _Life(asyncio.ensure_future(self._live(pod)), next(self._addresses))
        self._lives[meta["uid"]] = life

    def _stop(self, pod: Json, life: _Life) -> None:
        """End a pod as its deletion asks: TERM, the grace, KILL."""
        if life.stopping:
            return
        life.stopping = True
        if not life.running and not life.task.done():
            life.task.cancel()
        if life.task.done() or not life.running:
            self._gone(pod)
            return
        self._store.event(POD, pod, "Killing", "Stopping container", by=BY)
        for running in life.running.values():
            running.terminate()
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 30)
        asyncio.get_running_loop().call_later(grace, self._kill_containers, life)

    def _kill_containers(self, life: _Life) -> None:
        for running in life.running.values():
            running.kill()

    def _kill(self, life: _Life) -> None:
        self._kill_containers(life)
        life.task.cancel()

    def _gone(self, pod: Json) -> None:
        """Report that nothing of the pod is left on the node."""

        def change(new: Json) -> None:
            new["metadata"]["deletionGracePeriodSeconds"] = 0

        kept = self._store.get(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if kept and kept["metadata"]["uid"] == pod["metadata"]["uid"] and deleting(kept):
            self._store.change(POD, kept, change)

    async def _live(self, pod: Json) -> None:
        await asyncio.sleep(self.start_delay(pod))
        if not await self._ready_to_start(pod):
            return
        address = self._lives[pod["metadata"]["uid"]].address
        self._store.change(POD, pod, lambda new: _addressed(new, address))
        self._runner.refresh()
        containers = pod["spec"]["containers"]
        ends = await asyncio.gather(*(self._container(pod, each) for each in containers))
        phase = "Failed" if any(ends) else "Succeeded"
        life = self._lives.get(pod["metadata"]["uid"])
        if life is None:
            return
        self._store.change(POD, pod, lambda new: _ended(new, phase))
        self._gone(pod)

    async def _ready_to_start(self, pod: Json) -> bool:
        """Wait for images and volumes."""
        while True:
            if reason := self._image_reason(pod):
                self._waits(pod, "ErrImagePull", reason, "Failed")
                await asyncio.sleep(0.3)
                self._waits(pod, "ImagePullBackOff", f"Back-off pulling image: {reason}", "BackOff")
            elif missing := self._runner.missing(pod):
                self._waits(pod, "ContainerCreating", missing, "FailedMount")
            else:
                return True
            await asyncio.sleep(0.3)

    def _image_reason(self, pod: Json) -> str:
        for container in pod["spec"]["containers"]:
            for pattern, reason in self.bad_images.items():
                if re.fullmatch(pattern, container["image"]):
                    return reason
        return ""

    def _waits(self, pod: Json, reason: str, message: str, event: str) -> None:
        told = {"reason": reason, **({"message": message} if "Pull" in reason else {})}
        for container in pod["spec"]["containers"]:
            self._state(pod, container, {"waiting": told})
        self._store.event(POD, pod, event, message, by=BY, warning=True)

    async def _container(self, pod: Json, container: Json) -> int:
        """Run a container, again if the restart policy says so; returns its last exit code."""
        uid, restarts = pod["metadata"]["uid"], 0
        last: Json = {}
        kept = self._logs[pod["metadata"]["namespace"], pod["metadata"]["name"]]
        while True:
            life, ident = self._lives[uid], f"double://{uuid.uuid4().hex}{uuid.uuid4().hex}"
            log, begun = kept.start(container["name"]), now()
            how = await self._once(pod, container, life, log, (ident, restarts, begun, last))
            log.end()
            how, life.forced = life.forced or how, None
            ended: Json = {"exitCode": how.code, "reason": how.reason, "startedAt": begun}
            ended |= {"finishedAt": now(), "containerID": ident}
            last = {"terminated": ended | ({"message": how.message} if how.message else {})}
            again = self._again(pod, life, how)
            state = {"waiting": {"reason": "CrashLoopBackOff"}} if again else last
            about = (ident, restarts, begun, last if again else {})
            self._state(pod, container, state, about)
            if not again:
                return how.code
            restarts += 1
            await asyncio.sleep(0.2)

    def _again(self, pod: Json, life: _Life, how: Exit) -> bool:
        policy, again = pod["spec"]["restartPolicy"], life.again
        life.again = False
        if life.stopping:
            return False
        return again or policy == "Always" or (policy == "OnFailure" and how.code != 0)

    async def _once(
        self, pod: Json, container: Json, life: _Life, log: ContainerLog, about: tuple
    ) -> Exit:
        name = container["name"]
        command = [*container.get("command", []), *container.get("args", [])]
        shellless = bool(self.shellless) and re.fullmatch(self.shellless, container["image"])
        if shellless and command and command[0].rpartition("/")[2] in ("sh", "bash"):
            return start_error(command[0])
        running = await self._runner.start(pod, container, life.address, log)
        life.running[name] = running
        self._state(pod, container, {"running": {"startedAt": about[2]}}, about)
        try:
            return await running.wait()
        finally:
            life.running.pop(name, None)

    def _state(
        self, pod: Json, container: Json, state: Json, about: tuple = ("", 0, "", {})
    ) -> None:
        """Record a container's state, and the resulting state of the pod."""
        ident, restarts, _, last = about
        runs = "running" in state
        told: Json = {"name": container["name"], "state": state, "lastState": last}
        told |= {"ready": runs, "restartCount": restarts, "image": container["image"]}
        told |= {"imageID": container["image"] if ident else "", "containerID": ident}
        told |= {"started": runs}

        def change(new: Json) -> None:
            known = new["status"].setdefault("containerStatuses", [])
            rest = [each for each in known if each["name"] != container["name"]]
            new["status"]["containerStatuses"] = [*rest, told]
            if runs and new["status"]["phase"] in ("Pending", "Running"):
                new["status"]["phase"] = "Running"
            value = "True" if runs else "False"
            _set(new, {"Initialized": "True", "ContainersReady": value, "Ready": value})

        self._store.change(POD, pod, change)


def start_error(command: str) -> Exit:
    """The runtime's message if the command is not in the image."""
    message = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
        "runc create failed: unable to start container process: error during container init: exec: "
        f'"{command}": executable file not found in $PATH: unknown'
    )
    return Exit(128, "StartError", message)


def _addressed(pod: Json, address: str) -> None:
    known = {"hostIP": "127.0.0.1", "podIP": address, "podIPs": [{"ip": address}]}
    pod["status"] |= {**known, "startTime": now()}


def _ended(pod: Json, phase: str) -> None:
    if pod["status"]["phase"] not in ("Succeeded", "Failed"):
        pod["status"]["phase"] = phase
    _set(pod, {"ContainersReady": "False", "Ready": "False"})


def _set(pod: Json, values: dict[str, str]) -> None:
    """Set conditions, in the order of the recordings."""
    known = {c["type"]: c for c in pod["status"].get("conditions", [])}
    for name, value in values.items():
        if name not in known or known[name]["status"] != value:
            known[name] = pod_condition(name, value)
    order = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    first = [known.pop(name) for name in order if name in known]
    pod["status"]["conditions"] = [*first, *known.values()]


def _node_ready(node: Json, value: str) -> None:
    rest = [c for c in node["status"]["conditions"] if c["type"] != "Ready"]
    node["status"]["conditions"] = [*rest, ready(value)]
