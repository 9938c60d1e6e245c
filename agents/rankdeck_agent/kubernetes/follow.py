"""Follows the log of one container from its first line, in a thread: through breaks, rotation and restarts."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Optional

from rankdeck_agent.kubernetes.api import Api, ApiError, Stream
from rankdeck_agent.kubernetes.container_log import ContainerLog
from rankdeck_agent.kubernetes.pods import pod_of

_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_FULL_PAUSE = 1.0
_STACK = 256 << 10
_REFUSED = (401, 403)


@dataclass(frozen=True)
class LogSource:
    """Whose log to follow: a container of a pod."""

    namespace: str
    pod: str
    container: str
    id: str = ""
    """Of the container: another one may take its place in the pod, and then has its name."""
    pause: float = 0.0
    """Seconds between two looks at it."""

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}/log"


class Follower:
    """One thread that takes all lines of one container; `over` is set when there will be no more.

    The log is read once more from its last second after the container has ended: an end of the stream
    alone says nothing, for the server ends it also when it rotates the log or is itself restarted.
    """

    def __init__(
        self,
        api: Api,
        source: LogSource,
        log: Callable[[], ContainerLog],
        complain: Callable[[str], None],
    ) -> None:
        """`log` opens the container's log on disk, again after the disk was full. `complain` takes a sentence."""
        self._api, self._source, self._open, self._complain = api, source, log, complain
        self._ended, self._gone, self._closed = (threading.Event() for _ in range(3))
        self._previous = False
        self._stream: Optional[Stream] = None
        self.over = threading.Event()
        self.marked = False
        """Whether a rank was named in the log so far."""

    def start(self) -> None:
        before = threading.stack_size(_STACK)
        threading.Thread(target=self._run, daemon=True).start()
        threading.stack_size(before)

    def ended(self, *, previous: bool = False) -> None:
        """The container has ended; `previous`: another one took its place in the pod."""
        self._previous = self._previous or previous
        self._ended.set()

    def gone(self) -> None:
        """The pod is no longer there: what has not come by now will not come."""
        self._gone.set()
        self._ended.set()

    def close(self) -> None:
        """Read no more."""
        self._closed.set()
        self._ended.set()
        if self._stream is not None:
            self._stream.close()

    def _run(self) -> None:
        try:
            while not self._closed.is_set() and not self._read_all():
                # The disk was full: from the place that was saved last.
                self._closed.wait(_FULL_PAUSE)
        finally:
            self.over.set()

    def _read_all(self) -> bool:
        """Read to the end; False where the disk refused it."""
        try:
            log = self._open()
            failures = 0
            while True:
                last, began = self._ended.is_set(), time.monotonic()
                why = self._pass(log)
                self.marked = log.marked
                if self._closed.is_set() or self._gone.is_set() or (last and not why):
                    break
                short = time.monotonic() - began < _PAUSES[-1]
                failures = failures + 1 if why or short else 0
                if last and failures > len(_PAUSES):
                    self._complain(f"the rest of the log of {self._source.pod} is lost: {why}")
                    break
                # A stream that ends before the watch tells of the container's end is the usual case.
                waits = self._closed if last else self._ended
                waits.wait(_PAUSES[min(failures, len(_PAUSES)) - 1] if failures else 0)
                self._look_who_is_there()
            log.close()
        except OSError as error:
            self._complain(f"the output of {self._source.pod} cannot be written: {error}")
            return False
        return True

    def _look_who_is_there(self) -> None:
        """A container that was started anew has a log of its own: ours is then the `previous` one."""
        if self._previous or self._gone.is_set() or self._closed.is_set():
            return
        path = self._source.path.rpartition("/")[0]
        try:
            there = pod_of(self._api.request("GET", path)).container.id
        except ApiError:
            return  # the next pass tells why
        if there and there != self._source.id:
            self.ended(previous=True)

    def _pass(self, log: ContainerLog) -> str:
        """Read until the stream ends; why it could not be read, "" where it could."""
        log.place.resume()
        try:
            self._stream = stream = self._api.lines(
                self._source.path, self._asked(log), pause=self._source.pause
            )
            if self._closed.is_set():
                stream.close()
            for line in stream:
                log.line(line)
        except ApiError as error:
            log.save()
            if error.status == 404:
                return "" if self._ended.is_set() else error.message
            if error.status in _REFUSED:
                self._complain(f"the log of {self._source.pod} may not be read: {error.message}")
            return error.message
        log.save()
        return ""

    def _asked(self, log: ContainerLog) -> Mapping[str, str]:
        return {
            "container": self._source.container,
            "follow": "" if self._previous else "true",
            "timestamps": "true",
            "previous": "true" if self._previous else "",
            "sinceTime": log.place.since,
        }
