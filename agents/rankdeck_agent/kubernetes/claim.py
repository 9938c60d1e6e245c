"""What ranks wrote on the volume claim of `logs`, compared with what was kept of it here: which lines are missing. No API.

The claim has `rank.N/out` and `rank.N/err` as the rank wrote them, and `start` and `exit` (a text, and epoch seconds
on a second line). A pod prints them in the line format of the ranks' shim, so that `split.Splitter` reads them.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.kubernetes.pods import Object, rows_of, table_of, text_of
from rankdeck_agent.kubernetes.split import ERR, EXIT, OUT, START, Key, Piece

VOLUME = "logs"
"""Of the claim in the job's pods."""
END = "rankdeck: end of the claim"
LINES = 20_000
"""Of a file that a pod prints: more would be rotated away before it was read."""
MOST_FILES = 1000
"""That one pod prints: their names are words of its command."""
_TEMPLATES = (("template", "spec"), ("mpiReplicaSpecs", "Worker", "template", "spec"))
_KEPT = (
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "serviceAccountName",
    "tolerations",
    "securityContext",
)
"""Of the job's pods, what says where and as whom a pod may run."""
_LIVES = 900
"""Seconds after which Kubernetes ends a pod that nobody reads any more."""
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
_NOTHING: Object = {}


def reader_pod(spec: Object, files: Iterable[str]) -> Optional[dict[str, Any]]:
    """The spec of a pod that prints these files of the claim; None where the job's spec has no claim.

    `files` are like `3/out:101`: rank, file, and the byte (from 1) to begin at.
    """
    pod = next((found for keys in _TEMPLATES if (found := _below(spec, keys))), _NOTHING)
    volumes = [one for one in rows_of(pod.get("volumes")) if one.get("name") == VOLUME]
    box = next(iter(rows_of(pod.get("containers"))), _NOTHING)
    mounts = [one for one in rows_of(box.get("volumeMounts")) if one.get("name") == VOLUME]
    if not volumes or not mounts or "persistentVolumeClaim" not in volumes[0]:
        return None
    folder = text_of(mounts[0], "mountPath")
    container: dict[str, Any] = {
        "name": "reader",
        "command": ["sh", "-c", _SCRIPT, "reader", folder, str(LINES), *files],
        "volumeMounts": [{**mounts[0], "readOnly": True}],
        **{key: box[key] for key in ("image", "imagePullPolicy") if key in box},
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": _LIVES,
        "containers": [container],
        "volumes": volumes,
        **{key: pod[key] for key in _KEPT if key in pod},
    }


def claim_name(spec: Object) -> str:
    """The name of the claim in a job's spec; "" where it has none."""
    pod = reader_pod(spec, ())
    volumes = rows_of(pod["volumes"]) if pod else []
    return text_of(table_of(volumes[0].get("persistentVolumeClaim")), "claimName") if pod else ""


def _below(spec: Object, keys: Iterable[str]) -> Object:
    found = spec
    for key in keys:
        found = table_of(found.get(key))
    return found


class _Copy:
    """One file of a rank: how far the claim was read, and which of its lines are here already."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.at, self._expected = _last_lines(path)
        self._there: Optional[Counter[bytes]] = None
        """Lines of the whole file here, where it is no beginning of what the claim has."""
        self.read = 0
        """Lines in this pass."""
        self.again = False

    @property
    def finished(self) -> bool:
        """Whether the pass that is over gave all there was."""
        return not self.again and self.read < LINES

    def begin(self) -> None:
        """Another pass."""
        self.read, self.again = 0, False

    def take(self, line: bytes) -> bytes:
        """A line of the claim without its end; what of it is to be appended here."""
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
        # Lines were lost in the middle: what is missing comes late, but it comes, and none twice.
        self._there = Counter(self._path.read_bytes().splitlines())
        self.at, self.again = 0, True
        return b""


def _last_lines(path: Path) -> "tuple[int, deque[bytes]]":
    """Where the last lines of a file begin, and these lines."""
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
    """Asks for the files of ranks until all of them were read. `places`: the folder of each rank here."""

    def __init__(
        self, places: Mapping[int, Path], began: Iterable[int], ended: Iterable[int]
    ) -> None:
        """`began` and `ended` are the ranks of which this is known here."""
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
        """What the next pod is to print, an empty list where nothing is left to ask for."""
        self._asked = self._waiting[:MOST_FILES]
        for key in self._asked:
            if key in self._copies:
                self._copies[key].begin()
            else:
                self._words[key] = []
        return [f"{rank}/{what}:{self._at((rank, what)) + 1}" for rank, what in self._asked]

    def _at(self, key: Key) -> int:
        return self._copies[key].at if key in self._copies else 0

    def take(self, piece: Piece) -> bytes:
        """A piece of what the pod printed; bytes to append to the rank's file."""
        key = (-1 if piece.rank is None else piece.rank, piece.what)
        if key in self._copies and key in self._asked:
            return self._copies[key].take(piece.text.removesuffix(b"\n"))
        if key in self._words:
            self._words[key].append(piece.text)
        return b""

    def passed(self) -> Iterator[tuple[int, str, bytes, Optional[float]]]:
        """The pod printed all it was asked for: (rank, START or EXIT, text, epoch seconds) of what it told."""
        over = {key for key in self._asked if key not in self._copies or self._copies[key].finished}
        self._waiting = [key for key in self._waiting if key not in over]
        for key in sorted(over - self._copies.keys()):
            text, *at = self._words[key] or [b""]
            if text:
                yield (*key, text, float(at[0]) if at and at[0].isdigit() else None)
