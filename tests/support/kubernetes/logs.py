"""Logs of containers as the kubelet keeps them, and the `log` subresource that reads them."""

import asyncio
import datetime
import time
from dataclasses import dataclass, field

from tests.support.kubernetes import status
from tests.support.kubernetes.http import CutError, Reply, Request
from tests.support.kubernetes.kinds import POD

Json = dict
_FOLLOW_LOOK = 0.5


@dataclass
class ContainerLog:
    """Lines of one run of a container: (time in ns, text without its newline)."""

    lines: list[tuple[int, bytes]] = field(default_factory=list)
    over: bool = False
    """The container has ended: no more lines come."""
    rotated: int = 0
    """How often the file was rotated; older lines are gone and a follow ended, as before 1.32."""
    silent: bool = False
    """The node is lost: new lines do not arrive, and streams do not end."""
    dropped: int = 0
    """Lines that were removed by rotation."""
    ahead: float = 0.0
    """Seconds that the clock of the node is ahead."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, *texts: bytes) -> None:
        """Add lines with the present time; no two lines of a log have the same time."""
        stamp = time.time_ns() + round(self.ahead * 10**9)
        if self.lines:
            stamp = max(stamp, self.lines[-1][0] + 1)
        self.lines.extend((stamp + at, text) for at, text in enumerate(texts))
        self.wake()

    def end(self) -> None:
        self.over = True
        self.wake()

    def rotate(self) -> None:
        self.dropped += len(self.lines)
        self.lines.clear()
        self.rotated += 1
        self.wake()

    def wake(self) -> None:
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()

    async def wait(self) -> None:
        """Wait until something is written, for a limited time."""
        try:
            await asyncio.wait_for(self._changed.wait(), _FOLLOW_LOOK)
        except TimeoutError:
            return


@dataclass
class PodLog:
    """Logs of a pod: of each container the runs so far, the newest
    last; `ahead`: see ContainerLog.
    """

    uid: str
    runs: dict[str, list[ContainerLog]] = field(default_factory=dict)
    ahead: float = 0.0

    def start(self, container: str) -> ContainerLog:
        self.runs.setdefault(container, []).append(ContainerLog(ahead=self.ahead))
        return self.runs[container][-1]


def stamp(at: int) -> bytes:
    """RFC 3339 with nanoseconds, as `timestamps=true` shows it."""
    whole, part = divmod(at, 10**9)
    moment = datetime.datetime.fromtimestamp(whole, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{part:09d}Z".encode()


async def serve_log(request: Request, reply: Reply, pod: Json, logs: dict, faults) -> None:
    """Answer `GET …/pods/POD/log`; raises RefusedError as the API server and the kubelet do."""
    container = _container(request, pod)
    if request.one("stream") not in ("", "All"):
        cause = ("FieldValueForbidden", "stream", "Forbidden: may not be specified")
        raise status.invalid(POD, pod["metadata"]["name"], [cause])
    if not pod["spec"].get("nodeName"):
        await reply.send(204, b"")
        return
    log = _log(request, pod, container, logs)
    if not request.flag("follow"):
        await reply.send(200, _text(request, log.lines, _first(request, log)))
        return
    await reply.begin("text/plain")
    await _follow(request, reply, log, faults)


async def _follow(request: Request, reply: Reply, log: ContainerLog, faults) -> None:
    cuts, rotated, sticks = faults.log_cuts, log.rotated, faults.log_sticks
    sent = _first(request, log)
    while True:
        if not log.silent and sticks == faults.log_sticks:
            await reply.part(_text(request, log.lines, sent))
            sent = len(log.lines)
        if cuts != faults.log_cuts:
            raise CutError
        if sticks != faults.log_sticks:
            if log.over:
                return
        elif rotated != log.rotated or (log.over and not log.silent and sent == len(log.lines)):
            return
        await log.wait()


def _container(request: Request, pod: Json) -> str:
    names = [container["name"] for container in pod["spec"]["containers"]]
    name = request.one("container") or names[0]
    if name not in names:
        meta = pod["metadata"]
        raise status.RefusedError(
            400, "BadRequest", f"container {name} is not valid for pod {meta['name']}"
        )
    return name


def _log(request: Request, pod: Json, container: str, logs: dict) -> ContainerLog:
    meta = pod["metadata"]
    kept = logs.get((meta["namespace"], meta["name"]))
    runs = kept.runs.get(container, []) if kept and kept.uid == meta["uid"] else []
    if request.flag("previous"):
        if len(runs) < 2:
            raise status.RefusedError(
                400,
                "BadRequest",
                f'previous terminated container "{container}" in pod "{meta["name"]}" not found',
            )
        return runs[-2]
    if not runs:
        raise status.RefusedError(400, "BadRequest", _waiting(pod, container))
    return runs[-1]


def _waiting(pod: Json, container: str) -> str:
    """Why a container that never ran has no log, in the kubelet's words."""
    for known in pod["status"].get("containerStatuses", []):
        reason = known.get("state", {}).get("waiting", {}).get("reason", "")
        if known["name"] == container and "Pull" in reason:
            why = "trying and failing to pull image"
            return f'container "{container}" in pod "{pod["metadata"]["name"]}" is waiting to start: {why}'
    where = f'container "{container}" in pod "{pod["metadata"]["name"]}"'
    return f"{where} is waiting to start: ContainerCreating"


def _first(request: Request, log: ContainerLog) -> int:
    """Index of the first requested line, by time and by number."""
    first = 0
    if since := request.one("sinceTime"):
        moment = datetime.datetime.fromisoformat(since)
        # Whole seconds, as in the API.
        oldest = int(moment.timestamp()) * 10**9
        first = sum(1 for at, _ in log.lines if at < oldest)
    if seconds := request.one("sinceSeconds"):
        oldest = time.time_ns() - int(seconds) * 10**9
        first = sum(1 for at, _ in log.lines if at < oldest)
    if tail := request.one("tailLines"):
        first = max(first, len(log.lines) - int(tail))
    return first


def _text(request: Request, lines: list[tuple[int, bytes]], first: int) -> bytes:
    if request.flag("timestamps"):
        return b"".join(stamp(at) + b" " + text + b"\n" for at, text in lines[first:])
    return b"".join(text + b"\n" for _, text in lines[first:])
