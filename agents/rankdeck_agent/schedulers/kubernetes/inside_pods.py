"""Asks the ranks in the pods of a job where they are: `kubectl exec` runs this agent in each pod.

It needs the right to `create` (and for a kubectl from 1.31 on to `get`) `pods/exec`, and an image
with Python 3.6 or newer. The agent is sent once to each pod; it stays in the pod's memory.
"""

import io
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Callable

from rankdeck_agent.descriptors import read_to_end
from rankdeck_agent.job.folder import FolderError, RunFolder
from rankdeck_agent.schedulers.kubernetes.cluster import EXEC, ask_right
from rankdeck_agent.schedulers.kubernetes.json_values import object_rows
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    ApiError,
    ProxyError,
    describe_api_refusal,
    in_words,
    kubectl_complaint,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_proxy import Proxy
from rankdeck_agent.schedulers.kubernetes.objects import MPIJOB, RUNNING, WORKER, Pod, pod_of
from rankdeck_agent.schedulers.kubernetes.target import Target, place_target, read_target
from rankdeck_agent.text import parse_json_table, plain_line
from rankdeck_agent.values import Value

LIMIT, POD_LIMIT = 30.0, 20.0
"""Seconds for the answers of all pods, and for one command in a pod."""
MOST_PODS = 128
"""More pods are not asked: each is a kubectl of its own."""
_TOGETHER = 8
_MOST_BYTES = 2 << 20
_NOT_NEEDED = ("paho/", "pynvml", "rankdeck_agent/images/", "rankdeck_agent/schedulers/slurm/")
"""What of the agent no pod needs."""
_NO_PYTHON, _NO_AGENT, _NO_ROOM, _LATE = 95, 96, 97, -100
"""Exit codes of _IN_POD; and if it did not end in time."""
_IN_POD = rf"""
for folder in /dev/shm "${{TMPDIR:-/tmp}}" /var/tmp; do
    [ -w "$folder" ] && break
done
agent=$folder/$1 size=$2
python=$(command -v python3 || command -v python) || exit {_NO_PYTHON}
if ! [ -s "$agent" ]; then
    [ "$3" = send ] || exit {_NO_AGENT}
    umask 077
    head -c "$size" >"$agent.$$" && [ "$(wc -c <"$agent.$$")" -eq "$size" ] && mv "$agent.$$" "$agent" || {{
        rm -f "$agent.$$"
        exit {_NO_ROOM}
    }}
fi
exec "$python" "$agent" inside "$4"
"""
"""Run by `sh` in a pod with the name of the agent there, its size, `send` if it comes on stdin, and
the question.
"""
_NO_RIGHT = (
    "you may run nothing in pods: the rights to `get` and `create` `pods/exec` are missing"
    " (docs/kubernetes.md)"
)
_WHY = {
    _NO_PYTHON: "its image has no Python: only ranks in images with Python can be asked",
    _LATE: "the pod did not answer in time",
    _NO_ROOM: "the agent could not be written to /dev/shm, TMPDIR or /var/tmp there",
}


Reply = tuple[int, str, str]
"""Exit code, stdout and stderr of a command in a pod."""


class PodExec(Value):
    """How the agent is run in the pods of a job."""

    target: Target
    agent: Path
    """The file of the agent here; its name has a digest."""
    question: str
    until: float
    """Monotonic seconds at which everything must have been answered."""


def ask_inside_pods(folder: RunFolder, question: str) -> "dict[str, Any]":
    """Have the agent answer this question (`pod_ranks.py`) in every pod with ranks: {"inside": one
    row per pod with its `host`, "missing": node or pod -> why not}.

    Raises FolderError.
    """
    target = read_target(folder)
    if not target.ours:
        raise FolderError("Rankdeck did not start this job: nothing is run in its pods")
    target, pods = _list_pods(target)
    often = Counter(pod.node for pod in pods)
    hosts = {pod.uid: f"{pod.node} {pod.name}" if often[pod.node] > 1 else pod.node for pod in pods}
    replies = _run_in_pods(
        PodExec(target, Path(sys.argv[0]), question, time.monotonic() + LIMIT), pods[:MOST_PODS]
    )
    inside: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    placed = _placed_ranks(folder, target)
    for pod, (code, out, said) in zip(pods, replies):
        row = parse_json_table(out) if code == 0 else None
        if row:
            allowed = placed(pod)
            told = [one for one in object_rows(row.get("ranks")) if one.get("rank") in allowed]
            inside.append({**row, "ranks": told, "host": hosts[pod.uid]})
        else:
            missing[hosts[pod.uid]] = _why_silent(code, said)
    for pod in pods[MOST_PODS:]:
        missing[hosts[pod.uid]] = f"only {MOST_PODS} pods of a job are asked"
    return {"inside": inside, "missing": missing}


def _run_in_pods(ask: PodExec, pods: Sequence[Pod]) -> "list[Reply]":
    """What the agent says in each of these pods; it is sent to those that do not have it yet."""
    with ThreadPoolExecutor(_TOGETHER) as threads:
        replies = list(threads.map(partial(_run_in_pod, ask, b""), pods))
        lacking = [at for at, (code, _, _) in enumerate(replies) if code == _NO_AGENT]
        if lacking:
            send = partial(_run_in_pod, ask, pack_agent(ask.agent))
            sent = threads.map(send, [pods[at] for at in lacking])
            for at, reply in zip(lacking, sent):
                replies[at] = reply
    return replies


def _list_pods(target: Target) -> "tuple[Target, Sequence[Pod]]":
    """The target in its namespace, and its pods in which ranks run; raises FolderError."""
    try:
        with Proxy(target.context) as proxy:
            target = place_target(target, proxy)
            refused = [
                one for one in EXEC if not ask_right(proxy.api, target.namespace, one)["allowed"]
            ]
            if len(refused) == len(EXEC):
                raise FolderError(_NO_RIGHT)
            found, _ = proxy.api.items(target.collection("Pod"), {"labelSelector": target.selector})
    except (ProxyError, ApiError) as error:
        raise FolderError(describe_api_refusal(error)) from error
    role = WORKER if target.kind == MPIJOB.name else ""
    pods = [one for one in map(pod_of, found) if one.role == role]
    running = [pod for pod in pods if pod.container.state == RUNNING and not pod.leaving]
    if not running:
        raise FolderError("no rank of the job runs")
    return target, sorted(running, key=lambda pod: (pod.index or 0, pod.name))


def pack_agent(own: Path) -> bytes:
    """What pods need of the agent's file, as one file. Raises FolderError."""
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(own) as whole, zipfile.ZipFile(
            packed, "w", zipfile.ZIP_DEFLATED
        ) as part:
            for name in whole.namelist():
                if not name.startswith(_NOT_NEEDED):
                    part.writestr(zipfile.ZipInfo(name), whole.read(name), zipfile.ZIP_DEFLATED)
    except (OSError, zipfile.BadZipFile) as error:
        raise FolderError(f"the agent cannot be sent into pods: {error}") from error
    return packed.getvalue()


def _why_silent(code: int, said: str) -> str:
    """Why a pod has not answered, in a sentence."""
    why = _WHY.get(code) or in_words(kubectl_complaint(said)) or "there was no answer from the pod"
    return plain_line(why, 300)


def _run_in_pod(ask: PodExec, data: bytes, pod: Pod) -> Reply:
    """Run the agent in a pod; `data`: the agent's file, if it has to be sent."""
    target = ask.target
    context = ("--context", target.context) if target.context else ()
    where = ("--namespace", target.namespace, "exec", *(("--stdin",) if data else ()), pod.name)
    words = (f"rankdeck-{ask.agent.name}", str(len(data)), "send" if data else "run", ask.question)
    argv = ("kubectl", *context, *where, "--container", pod.container.name, "--", "sh", "-c", _IN_POD, "sh", *words)  # fmt: skip
    deadline = min(ask.until, time.monotonic() + POD_LIMIT)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return _run_until(argv, file, deadline)


def _run_until(argv: Sequence[str], stdin: "IO[bytes]", deadline: float) -> Reply:
    with subprocess.Popen(
        argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        handles = (process.stdout.fileno(), process.stderr.fileno())
        out, err = read_to_end(handles, deadline, _MOST_BYTES)
        try:
            code = process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            return _LATE, "", ""
    return code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _placed_ranks(folder: RunFolder, target: Target) -> "Callable[[Pod], Collection[int]]":
    """Tells for which ranks a pod may speak: by its number; of an MPIJob for those that began on
    its node.
    """
    if target.kind != MPIJOB.name:
        return target.numbered_ranks
    began: dict[str, set[int]] = {}
    for rank in range(target.ranks):
        with suppress(OSError):
            node = (folder.place(rank) / "started").read_text().strip()
            began.setdefault(node, set()).add(rank)
    return lambda pod: began.get(pod.node, set())
