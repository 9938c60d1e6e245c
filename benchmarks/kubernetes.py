"""200 pods of 5 lines a second on a double of Kubernetes: our keeper beside `kubectl logs -f`.

No container is run and no cluster is asked: pods pretend, the API server is
`tests/support/kubernetes`. kubectl and its proxy are real.
"""

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.kubernetes import kubectl_or_why
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.kept import JOB, Kept
from tests.support.processes import descendants

from benchmarks.measure import cpu_of, must_live, proportional_of
from benchmarks.result import MissingError, Result

PODS = 200
EVERY = 0.2
"""Seconds between the lines of a pod."""
MEASURED = 15.0
START_LIMIT = 90.0
CPU_BUDGET = 0.10
"""Of a core, for the keeper."""
MEMORY_BUDGET = 60.0
"""MiB."""
FIRST_LINE_BUDGET = 2.0
CANCEL_BUDGET = 2.0
"""Seconds after the end of the last pod."""
SINGLE = 32
"""How many `kubectl logs -f` run, one per pod: a small machine cannot start 200 at once."""
_SELECTOR = f"batch.kubernetes.io/job-name={JOB}"


@dataclass(frozen=True)
class Cost:
    """Cost of following: share of a core, MiB, seconds until every pod
    was heard, pods heard, processes.
    """

    cpu: float
    memory: float
    heard_after: float
    heard: int
    processes: int = 1


def run() -> list[Result]:
    """Measure the peers, then our keeper, each on 200 such pods."""
    kubectl, why = kubectl_or_why()
    if kubectl is None:
        raise MissingError(why)
    with tempfile.TemporaryDirectory() as folder, _kept(Path(folder), kubectl) as kept:
        kept.double.post("jobs", kept.manifest())
        _all_run(kept)
        all_at_once = _peer(kept, [_many(kubectl)], PODS)
        single = _peer(kept, [_one(kubectl, pod) for pod in _running(kept)[:SINGLE]], SINGLE)
    with tempfile.TemporaryDirectory() as folder, _kept(Path(folder), kubectl) as kept:
        ours, proxy, late = _ours(kept)
        proof = _cancel(kept)
    each = single.cpu / single.processes * PODS
    weight = single.memory / single.processes * PODS
    one, many = "one kubectl logs -f -l", f"200 kubectl logs -f, from {single.processes}"
    return [
        Result(name="keeper, 200 pods x 5 lines/s", value=ours.cpu, unit="cores", budget=CPU_BUDGET,
               on_ratio=False, peer=one, peer_value=all_at_once.cpu, note=f"its kubectl proxy {proxy:.2f}"),
        Result(name="with its kubectl proxy", value=ours.cpu + proxy, unit="cores", peer=many, peer_value=each),
        Result(name="resident, keeper", value=ours.memory, unit="MiB", budget=MEMORY_BUDGET, on_ratio=False,
               peer=many, peer_value=weight),
        Result(name="last pod heard", value=ours.heard_after, unit="s", peer=one,
               peer_value=all_at_once.heard_after, note=_heard(all_at_once)),
        Result(name="pod there to line on disk", value=late, unit="s", budget=FIRST_LINE_BUDGET, on_ratio=False,
               note="the slowest of 200"),
        Result(name="cancel proven after last pod", value=proof, unit="s", budget=CANCEL_BUDGET, on_ratio=False),
    ]  # fmt: skip


def _heard(cost: Cost) -> str:
    return "" if cost.heard == PODS else f"the peer heard {cost.heard} of {PODS}"


@contextlib.contextmanager
def _kept(folder: Path, kubectl: Path) -> Generator[Kept]:
    home = folder / "keeper"
    home.mkdir()
    with Double(folder / "double", processes=False) as double:
        kept = Kept(double, kubectl, home, pods=PODS)
        kept.speak(every=EVERY, lasting=3600.0)
        try:
            yield kept
        finally:
            kept.down()


def _ours(kept: Kept) -> tuple[Cost, float, float]:
    """The cost of the keeper, its proxy's share of a core, and seconds
    to the slowest pod's first line.
    """
    begun = time.monotonic()
    kept.start()
    first = _first_lines(kept)
    heard = time.monotonic() - begun
    process = kept.process
    assert process is not None
    proxies = kept.kubectls()
    own = [pid for pid in descendants(process.pid) if pid not in proxies]
    before = [_spent(own), _spent(proxies)]
    time.sleep(MEASURED)
    must_live("the keeper", process)
    shares = [(_spent(p) - was) / MEASURED for p, was in zip((own, proxies), before, strict=True)]
    memory = sum(proportional_of(pid) for pid in own)
    return Cost(shares[0], memory, heard, PODS), shares[1], max(first)


def _spent(pids: Sequence[int]) -> float:
    return sum(cpu_of(pid) for pid in pids)


def _first_lines(kept: Kept) -> list[float]:
    """Seconds from each pod's creation to its first line on disk; raises if one stays silent."""
    seen: dict[int, float] = {}
    deadline = time.monotonic() + START_LIMIT
    while len(seen) < PODS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {len(seen)} of {PODS} pods were heard: {kept.said()[-500:]}")
        for rank in set(range(PODS)) - set(seen):
            file = kept.folder.place(rank) / "out"
            if file.exists() and file.stat().st_size:
                seen[rank] = time.time()
        time.sleep(0.02)
    born = {
        change.object["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: change.at
        for change in kept.double.store.history
        if change.kind.plural == "pods" and change.type == "ADDED"
    }
    return [at - born[str(rank)] for rank, at in seen.items()]


def _running(kept: Kept) -> list[str]:
    pods = kept.double.all("pods")
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]


def _all_run(kept: Kept) -> None:
    deadline = time.monotonic() + START_LIMIT
    while len(_running(kept)) < PODS:
        if time.monotonic() > deadline:
            raise RuntimeError("the pods do not start")
        time.sleep(0.1)


def _many(kubectl: Path) -> list[str]:
    return [str(kubectl), "logs", "-f", "-l", _SELECTOR, "--prefix", "--max-log-requests", "400", "--tail=1"]  # fmt: skip


def _one(kubectl: Path, pod: str) -> list[str]:
    return [str(kubectl), "logs", "-f", pod, "--prefix", "--tail=1"]


def _peer(kept: Kept, commands: Sequence[list[str]], wanted: int) -> Cost:
    """Follow by kubectl until all pods were heard, then measure as long as we were."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for argv in commands:
                processes.append(_started(argv, kept.environment, out.fileno()))
                # If all started at once, their handshakes would time out.
                time.sleep(0.1)
            heard = _until_heard(out.fileno(), wanted, begun + START_LIMIT)
            after = time.monotonic() - begun
            # On a busy machine some fail in their handshake; only those that follow are measured.
            living = [each for each in processes if each.poll() is None]
            before = _spent([each.pid for each in living])
            time.sleep(MEASURED)
            spent = _spent([each.pid for each in living]) - before
            memory = sum(proportional_of(each.pid) for each in living)
            for each in living:
                must_live("kubectl", each)
        finally:
            for each in processes:
                each.kill()
                each.wait(10)
    if not living:
        raise RuntimeError("no kubectl went on following")
    return Cost(spent / MEASURED, memory, after, heard, len(living))


def _started(argv: list[str], environment: dict[str, str], out: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL
    )


def _until_heard(file: int, wanted: int, deadline: float) -> int:
    """How many pods are in the output, once all are or the time is over."""
    names: set[bytes] = set()
    at = 0
    while len(names) < wanted and time.monotonic() < deadline:
        text = os.pread(file, 1 << 22, at)
        names |= set(re.findall(rb"\[pod/([^/]+)/", text))
        at += max(0, len(text) - 200)
        time.sleep(0.1)
    return len(names)


def _cancel(kept: Kept) -> float:
    """Seconds from the end of the last pod to the keeper's proof, with all streams open."""
    status = kept.term(limit=60)
    ended = time.time()
    left = kept.double.all("pods") + kept.double.all("jobs")
    if left or not status:
        raise RuntimeError(f"the cancel left {len(left)} objects: {kept.said()[-500:]}")
    gone = [
        c.at for c in kept.double.store.history if c.kind.plural == "pods" and c.type == "DELETED"
    ]
    return ended - max(gone)
