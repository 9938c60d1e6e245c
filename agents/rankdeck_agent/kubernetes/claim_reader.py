"""Reads from a job's volume claim what the API no longer has: by a small pod, which is deleted again with proof."""

import os
import time
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Any, Callable, Optional

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.kubernetes import target as objects
from rankdeck_agent.kubernetes.api import Api, ApiError, Stream
from rankdeck_agent.kubernetes.claim import END, Missing, claim_name, reader_pod
from rankdeck_agent.kubernetes.kinds import BY_NAME, OURS_LABEL
from rankdeck_agent.kubernetes.pods import READER, ROLE_LABEL, RUNNING, TERMINATED, Object, pod_of
from rankdeck_agent.kubernetes.split import Piece, Splitter
from rankdeck_agent.kubernetes.target import Target
from rankdeck_agent.kubernetes.verdict import hopeless, waits_for

START_LIMIT = 120.0
"""Seconds for the pod to begin: its image is on some node already, but not on every one."""
_IDLE_LIMIT = 30.0
_GONE_LIMIT = 30.0
_POLL = 0.3
_MOST_PASSES = 500
_TRIES = 3
Told = tuple[int, str, bytes, Optional[float]]


class ClaimError(Exception):
    """The claim cannot be read; the text says why."""


class ClaimReader:
    """Copies what is missing of a job's ranks into the run folder; used by one thread, `stop` from any."""

    def __init__(self, api: Api, folder: RunFolder, target: Target, spec: Object, uid: str) -> None:
        """`spec` is the job's; `uid` is its uid, "" where its object is gone."""
        self._api, self._folder, self._target = api, folder, target
        self._spec, self._uid = spec, uid
        self.claim = claim_name(spec)
        """"" where the job has none."""
        self._stream: Optional[Stream] = None
        self._stopped = False

    def stop(self) -> None:
        """Read no more; the pod is deleted all the same."""
        self._stopped = True
        if self._stream is not None:
            self._stream.close()

    def read(self, missing: Missing, tell: Callable[[Told], None]) -> None:
        """Read all that is missing; `tell` is called with each rank that began or ended. Raises ClaimError, OSError."""
        tries = 0
        for _ in range(_MOST_PASSES):
            files = missing.ask()
            if not files or self._stopped:
                return
            if self._pass(missing, files):
                tries = 0
                for told in missing.passed():
                    tell(told)
                continue
            tries += 1
            if tries >= _TRIES and not self._stopped:
                raise ClaimError("what the pod that reads it printed broke off")

    def _pass(self, missing: Missing, files: Sequence[str]) -> bool:
        """One pod; whether all that it was asked for came."""
        name = f"{self._target.name}-logs-{token_hex(3)}"
        path = self._target.collection("Pod")
        try:
            self._api.request("POST", path, {"fieldValidation": "Strict"}, self._pod(name, files))
        except ApiError as error:
            raise ClaimError(error.message) from error
        try:
            return self._take(missing, self._lines(f"{path}/{name}"))
        finally:
            self._delete(f"{path}/{name}")

    def _pod(self, name: str, files: Sequence[str]) -> dict[str, Any]:
        labels = {
            "app.kubernetes.io/managed-by": "rankdeck",
            OURS_LABEL: self._target.name,
            ROLE_LABEL: READER,
        }
        meta: dict[str, Any] = {"name": name, "labels": labels}
        if self._uid:
            kind = BY_NAME[self._target.kind]
            owner = {"apiVersion": kind.api_version, "kind": kind.name}
            # What a keeper that is killed leaves behind goes with the job.
            meta["ownerReferences"] = [{**owner, "name": self._target.name, "uid": self._uid}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": reader_pod(self._spec, files),
        }

    def _lines(self, path: str) -> Iterator[bytes]:
        self._await_start(path)
        if self._stopped:
            return
        try:
            self._stream = self._api.lines(f"{path}/log", {"follow": "true"}, _IDLE_LIMIT)
            yield from self._stream
        except ApiError:
            return  # another pod prints what is still missing

    def _await_start(self, path: str) -> None:
        """Return once the container has begun; raises ClaimError where it does not."""
        deadline, why = time.monotonic() + START_LIMIT, "it does not start"
        while not self._stopped:
            try:
                pod = pod_of(self._api.request("GET", path))
            except ApiError as error:
                raise ClaimError(error.message) from error
            if pod.container.state in (RUNNING, TERMINATED):
                return
            never = hopeless(pod)
            why = never or waits_for(pod) or why
            if never or time.monotonic() > deadline:
                raise ClaimError(f"the pod that reads it: {why}")
            time.sleep(_POLL)

    def _take(self, missing: Missing, lines: Iterator[bytes]) -> bool:
        splitter = Splitter()
        files: dict[tuple[int, str], int] = {}
        try:
            for line in lines:
                if line == END.encode():
                    return True
                for piece in splitter.feed(line):
                    self._append(files, piece, missing.take(piece))
        finally:
            for handle in files.values():
                os.close(handle)
        return False

    def _append(self, files: dict[tuple[int, str], int], piece: Piece, data: bytes) -> None:
        if not data or piece.rank is None:
            return
        key = piece.rank, piece.what
        if key not in files:
            path = self._folder.place(piece.rank) / piece.what
            files[key] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(files[key], view) :]

    def _delete(self, path: str) -> None:
        """Delete the pod and see it go; raises ClaimError with its name where it stays."""
        deadline = time.monotonic() + _GONE_LIMIT
        why = "it is still there"
        while time.monotonic() < deadline:
            try:
                self._api.request("DELETE", path, {"gracePeriodSeconds": "1"})
                self._api.request("GET", path)
            except ApiError as error:
                if error.status == 404:
                    return
                why = error.message
            time.sleep(_POLL)
        raise ClaimError(f"pod {path.rpartition('/')[2]} is left: {why}")


def missing_of(
    folder: RunFolder, ranks: int, began: Sequence[int], ended: Sequence[int]
) -> Missing:
    """What is asked of the claim for ranks of which `began` and `ended` are known here."""
    places = {rank: folder.place(rank) for rank in range(ranks)}
    return Missing({r: place for r, place in places.items() if place.is_dir()}, began, ended)


def seen_spec(folder: RunFolder, seen: Object) -> Object:
    """The job's spec: as the server has it, or as we created it."""
    if seen or not (folder / objects.MANIFEST).exists():
        return seen
    made = objects.read_objects(folder / objects.MANIFEST)
    return made[-1].get("spec") or {} if made else {}
