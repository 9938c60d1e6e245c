"""Reads with a small pod what ranks wrote to the volume claim of
`logs`, and adds what is missing here.

The claim has `rank.N/out` and `rank.N/err` as the rank wrote them, and `start` and `exit` (a text,
and epoch seconds on a second line). A pod prints them in the line format of the ranks' shim, so
that `objects.Splitter` can read them.
"""

import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, Callable, Optional

from rankdeck_agent.descriptors import write_all
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.older_python import without_suffix
from rankdeck_agent.schedulers.kubernetes.api import Api, HttpStream
from rankdeck_agent.schedulers.kubernetes.job_snapshot import pod_hopeless_reason, pod_wait_reason
from rankdeck_agent.schedulers.kubernetes.json_values import Object, object_rows
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import ApiError
from rankdeck_agent.schedulers.kubernetes.objects import (
    BY_NAME,
    ERR,
    EXIT,
    OURS_LABEL,
    OUT,
    READER,
    ROLE_LABEL,
    RUNNING,
    START,
    TERMINATED,
    Key,
    LogPiece,
    Splitter,
    part_of_object,
    pod_of,
    string_value,
)
from rankdeck_agent.schedulers.kubernetes.target import Target, read_objects, templates_of
from rankdeck_agent.wire.schedulers.job_files import MANIFEST

VOLUME = "logs"
"""Name of the claim's volume in the job's pods."""
END = "rankdeck: end of the claim"
LINES = 20_000
"""Most lines of a file that one pod prints: more would be lost to
log rotation before they were read.
"""
MOST_FILES = 1000
"""Most files that one pod prints: their names are arguments of its command."""
_KEPT = (
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "serviceAccountName",
    "tolerations",
    "schedulerName",
    "securityContext",
)
"""Fields copied from the job's pods: where and as which user a pod may run."""
_KEPT_OF_BOX = ("image", "imagePullPolicy", "securityContext")
_OF_CONTROLLERS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/",
    "training.kubeflow.org/",
    "rankdeck/",
)
_LIVES = 900
"""Seconds after which Kubernetes ends the reader pod, in case nobody deletes it."""
_SCRIPT = f"""folder=$1 lines=$2
shift 2
for one; do
    at=${{one##*:}} file=${{one%:*}}
    [ -r "$folder/rank.$file" ] || continue
    tail -c "+$at" "$folder/rank.$file" | head -n "$lines" | LC_ALL=C sed "s/^/[rank ${{file%/*}} ${{file#*/}}] /"
    echo
done
echo "{END}"
"""
_OVERLAP = 64 << 10
_LONGEST_TIME = 11
"""Most digits of epoch seconds: others may write to the claim, and longer
numbers cannot be set as a file's time.
"""
_NOTHING: Object = {}


def reader_pod(spec: Object, files: Iterable[str]) -> Optional[dict[str, Any]]:
    """The spec of a pod that prints these files of the claim; None if the job's spec has no claim.

    `files` look like `3/out:101`: rank, file, and the byte to begin at (counted from 1).
    """
    pod = part_of_object(_template(spec), "spec")
    volumes = [one for one in object_rows(pod.get("volumes")) if one.get("name") == VOLUME]
    box = next(iter(object_rows(pod.get("containers"))), _NOTHING)
    mounts = [one for one in object_rows(box.get("volumeMounts")) if one.get("name") == VOLUME]
    if not volumes or not mounts or "persistentVolumeClaim" not in volumes[0]:
        return None
    folder = string_value(mounts[0], "mountPath")
    container: dict[str, Any] = {
        "name": "reader",
        "command": ["sh", "-c", _SCRIPT, "reader", folder, str(LINES), *files],
        "volumeMounts": [{**mounts[0], "readOnly": True}],
        **{key: box[key] for key in _KEPT_OF_BOX if key in box},
        **_shared(part_of_object(box, "resources")),
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": _LIVES,
        "containers": [container],
        "volumes": volumes,
        **{key: pod[key] for key in _KEPT if key in pod},
    }


def _template(spec: Object) -> Object:
    """The template of the job's pods; that of the launcher for an MPIJob."""
    return next(iter(templates_of(spec)), _NOTHING)


def _shared(given: Object) -> dict[str, Any]:
    """The field `resources` without devices, which would only keep them from
    others: under a quota a pod must have one.
    """
    kept = {
        what: {
            name: value for name, value in part_of_object(given, what).items() if "/" not in name
        }
        for what in ("limits", "requests")
    }
    kept = {what: values for what, values in kept.items() if values}
    return {"resources": kept} if kept else {}


def _labels_of_site(labels: Object) -> dict[str, Any]:
    """The labels that the job file gives its pods: with those of its controller,
    it would take the reader for one of them.
    """
    return {name: value for name, value in labels.items() if not name.startswith(_OF_CONTROLLERS)}


def claim_name(spec: Object) -> str:
    """The name of the claim in a job's spec; "" if it has none."""
    pod = reader_pod(spec, ())
    volumes = object_rows(pod["volumes"]) if pod else []
    return (
        string_value(part_of_object(volumes[0], "persistentVolumeClaim"), "claimName")
        if volumes
        else ""
    )


class _Copy:
    """One output file of a rank: how far it was read from the claim, and
    which of its lines are here already.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.at, self._expected = _last_lines(path)
        self._there: Optional[Counter[bytes]] = None
        """Line -> how often it is in the file here; used if that file is not
        a prefix of the one on the claim.
        """
        self.read = 0
        """Lines read in this pass."""
        self.again = False

    @property
    def finished(self) -> bool:
        """Whether the last pass has read everything there was."""
        return not self.again and self.read < LINES

    def begin(self) -> None:
        """Begin another pass."""
        self.read, self.again = 0, False

    def take(self, line: bytes) -> bytes:
        """Compare a line of the claim (without newline); returns the
        bytes to append to the file here.
        """
        if self.again:
            return b""
        self.read += 1
        self.at += len(line) + 1
        if self._there is not None:
            self._there[line] -= 1
            return b"" if self._there[line] >= 0 else line + b"\n"
        if not self._expected:
            return line + b"\n"
        known = self._expected.popleft()
        if line + b"\n" == known:
            return b""
        if not self._expected and not known.endswith(b"\n") and line.startswith(known):
            return line[len(known) :] + b"\n"
        # Lines are missing in the middle: read all again and append those that are not here.
        self._there = Counter(self._path.read_bytes().splitlines())
        self.at, self.again = 0, True
        return b""


def _last_lines(path: Path) -> "tuple[int, deque[bytes]]":
    """(offset of the last lines of a file, these lines)."""
    if not path.exists():
        return 0, deque()
    with path.open("rb") as file:
        size = file.seek(0, 2)
        at = file.seek(max(0, size - _OVERLAP))
        data = file.read()
    if at:
        skipped = data.find(b"\n") + 1
        at, data = at + skipped, data[skipped:]
    return at, deque(data.splitlines(keepends=True))


class Missing:
    """Decides which files to ask for until all were read, and what of them is missing here.

    `places`: rank -> its folder here.
    """

    def __init__(
        self, places: Mapping[int, Path], began: Iterable[int], ended: Iterable[int]
    ) -> None:
        """`began` and `ended`: the ranks whose start and end are known here."""
        self._copies = {
            (rank, what): _Copy(place / what)
            for rank, place in places.items()
            for what in (OUT, ERR)
        }
        self._words: dict[Key, list[bytes]] = {
            **{(rank, START): [] for rank in places.keys() - set(began)},
            **{(rank, EXIT): [] for rank in places.keys() - set(ended)},
        }
        self._waiting = [*self._words, *self._copies]
        self._asked: list[Key] = []

    def ask(self) -> list[str]:
        """The files that the next pod must print (see reader_pod);
        empty if nothing is left to ask for.
        """
        self._asked = self._waiting[:MOST_FILES]
        for key in self._asked:
            if key in self._copies:
                self._copies[key].begin()
            else:
                self._words[key] = []
        return [f"{rank}/{what}:{self._at((rank, what)) + 1}" for rank, what in self._asked]

    def _at(self, key: Key) -> int:
        return self._copies[key].at if key in self._copies else 0

    def take(self, piece: LogPiece) -> bytes:
        """Handle a piece that the pod printed; returns the bytes to append to the rank's file."""
        key = (-1 if piece.rank is None else piece.rank, piece.what)
        if key in self._copies and key in self._asked:
            return self._copies[key].take(without_suffix(piece.text, b"\n"))
        if key in self._words:
            self._words[key].append(piece.text)
        return b""

    def passed(self) -> Iterator[tuple[int, str, bytes, Optional[float]]]:
        """Call when the pod has printed everything: yields (rank, START or EXIT, text,
        epoch seconds or None) for what is new.
        """
        over = {key for key in self._asked if key not in self._copies or self._copies[key].finished}
        self._waiting = [key for key in self._waiting if key not in over]
        for key in sorted(over - self._copies.keys()):
            text, *at = self._words[key] or [b""]
            if text:
                known = at and at[0].isdigit() and len(at[0]) <= _LONGEST_TIME
                yield (*key, text, float(at[0]) if known else None)


START_LIMIT = 120.0
"""Seconds for the pod to start: its node may have to pull the image."""
_IDLE_LIMIT = 30.0
_GONE_LIMIT = 30.0
_POLL = 0.3
_MOST_PASSES = 500
_TRIES = 3
MissingPiece = tuple[int, str, bytes, Optional[float]]
"""(rank, START or EXIT, text, epoch seconds or None)."""


class ClaimError(Exception):
    """The claim cannot be read; the text says why."""


class ClaimReader:
    """Copies what is missing of the ranks' output into the run folder.

    Use from one thread; `stop` from any.
    """

    def __init__(self, api: Api, folder: RunFolder, target: Target, spec: Object, uid: str) -> None:
        """`spec`: the job's spec; `uid`: the job's uid, "" if its object is gone."""
        self._api, self._folder, self._target = api, folder, target
        self._spec, self._uid = spec, uid
        self.claim = claim_name(spec)
        """Name of the claim; "" if the job has none."""
        self._stream: Optional[HttpStream] = None
        self._stopped = False

    def stop(self) -> None:
        """Stop reading; the pod is deleted nevertheless."""
        self._stopped = True
        if self._stream is not None:
            self._stream.close()

    def read(self, missing: Missing, tell: Callable[[MissingPiece], None]) -> None:
        """Read all that is missing; calls `tell` for each start or end of a rank.

        Raises ClaimError, OSError.
        """
        tries = 0
        for _ in range(_MOST_PASSES):
            files = missing.ask()
            if not files or self._stopped:
                return
            if self._pass(missing, files):
                tries = 0
                for piece in missing.passed():
                    tell(piece)
                continue
            tries += 1
            if tries >= _TRIES and not self._stopped:
                raise ClaimError("what the pod that reads it printed broke off")

    def _pass(self, missing: Missing, files: Sequence[str]) -> bool:
        """Run one pod; returns whether everything that it was asked for arrived."""
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
        marks = part_of_object(_template(self._spec), "metadata")
        labels = {
            **_labels_of_site(part_of_object(marks, "labels")),
            "app.kubernetes.io/managed-by": "rankdeck",
            OURS_LABEL: self._target.name,
            ROLE_LABEL: READER,
        }
        meta: dict[str, Any] = {"name": name, "labels": labels}
        if "annotations" in marks:
            meta["annotations"] = marks["annotations"]
        if self._uid:
            kind = BY_NAME[self._target.kind]
            owner = {"apiVersion": kind.api_version, "kind": kind.name}
            # If the keeper is killed, Kubernetes deletes the pod with the job.
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
            return  # the next pod prints what is still missing

    def _await_start(self, path: str) -> None:
        """Wait until the container has started; raises ClaimError if it does not."""
        deadline, why = time.monotonic() + START_LIMIT, "it does not start"
        while not self._stopped:
            try:
                pod = pod_of(self._api.request("GET", path))
            except ApiError as error:
                raise ClaimError(error.message) from error
            if pod.container.state in (RUNNING, TERMINATED):
                return
            never = pod_hopeless_reason(pod)
            why = never or pod_wait_reason(pod) or why
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

    def _append(self, files: dict[tuple[int, str], int], piece: LogPiece, data: bytes) -> None:
        if not data or piece.rank is None:
            return
        key = piece.rank, piece.what
        if key not in files:
            path = self._folder.place(piece.rank) / piece.what
            files[key] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        write_all(files[key], data)

    def _delete(self, path: str) -> None:
        """Delete the pod and wait until it is gone; raises
        ClaimError with its name if it is not.
        """
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
    """The Missing of a job; `began` and `ended`: the ranks whose start and end are known here."""
    places = {rank: folder.place(rank) for rank in range(ranks)}
    return Missing({r: place for r, place in places.items() if place.is_dir()}, began, ended)


def seen_spec(folder: RunFolder, seen: Object) -> Object:
    """The job's spec: `seen`, as the server has it, else as we created it."""
    if seen or not (folder / MANIFEST).exists():
        return seen
    made = read_objects(folder / MANIFEST)
    return made[-1].get("spec") or {} if made else {}
