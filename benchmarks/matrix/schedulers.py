"""Rows with schedulers that break or lie: Slurm's commands, kubectl, and an
API server (the double of the tests).
"""

import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.site import Site
from tests.support.slurm import KINDS, lying_slurm

from benchmarks.fault_plants import processes
from benchmarks.fault_run import wait
from benchmarks.fault_sites import DemoSite
from benchmarks.matrix.lying import Ended, on_terminal, rankdeck
from benchmarks.matrix.meter import metered
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.scene import END_LIMIT, START_LIMIT, elapsed
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.steering import SHOWN, planted, reached
from rankdeck.config.document import write_documents

LOGIN = "sakuya"
LIMIT = 90.0


def lie(sites: Sites) -> Tally:
    """Each kind of answer to each command: a launch, its log, a cancel."""
    wrong: list[str] = []
    memory = 0.0
    for kind in KINDS:
        cluster = _cluster(sites.demo, kind)
        found, most = _tried(sites.demo, cluster)
        wrong += [f"{kind}: {one}" for one in found]
        memory = max(memory, most)
    return Tally(wrong=wrong, memory=memory, inputs=len(KINDS) * 3)


def _tried(site: DemoSite, cluster: str) -> tuple[list[str], float]:
    run = on_terminal(
        _words(site, cluster, "run", _job_file(site), "--no-preflight"), site.environment(), LIMIT
    )
    wrong = [*run.faults(), *reached(run.written, screen=False)]
    listed = on_terminal(_words(site, cluster, "jobs", "--json"), site.environment(), LIMIT)
    found = listed.objects()
    if not found:
        return [*wrong, "no job was kept"], run.memory
    job, memory = found[0]["job"], run.memory
    if found[0]["state"] != "failed":
        wrong.append(f"`jobs` says {found[0]['state']}, not failed")
    for words in (("logs", job, "--launcher"), ("cancel", job, "--grace", "1")):
        done = on_terminal(_words(site, cluster, *words), site.environment(), LIMIT)
        wrong += [
            f"{words[0]}: {x}" for x in (*done.faults(), *reached(done.written, screen=False))
        ]
        memory = max(memory, done.memory)
    left = [one.name for one in processes(job)]
    return [*wrong, *([f"left: {left}"] if left else [])], memory


def _words(site: DemoSite, cluster: str, *words: str) -> list[str]:
    """The command line of a verb, with this cluster file."""
    return [cluster if word == site.cluster else word for word in rankdeck(site, *words)]


def _cluster(site: DemoSite, kind: str) -> str:
    """The cluster file of the same nodes with a Slurm that answers so."""
    folder = site.place() / f"slurm-{kind}"
    shutil.rmtree(folder, ignore_errors=True)  # of the round before
    path = lying_slurm(folder, kind, planted())
    content = yaml.safe_load(Path(site.cluster).read_text())
    content["backend"] = "slurm"
    content["slurm"] = {"login": LOGIN, "rpcs_per_minute": 600}
    content["environment"] = {"PATH": path}
    file = Path(site.cluster).with_name(f"slurm-{kind}.yaml")
    file.write_text(write_documents([content]))
    return str(file)


def _job_file(site: DemoSite) -> str:
    file = site.place() / "slurmed.yaml"
    file.write_text(
        json.dumps(
            {
                "job": "slurmed",
                "launch": "mpi",
                "nodes": 1,
                "ranks_per_node": 1,
                "command": ["true"],
            }
        )
    )
    return str(file)


# ---- Kubernetes: what is killed or breaks in mid-job ------------------------------------------

RUN, HZ = 20, 5
"""Seconds for which a rank writes, and lines a second."""
RANKS = 2
FIRST_LINES = 10
Harm = Callable[[Site, Path], object]
"""Done to a site while a job with this run folder runs."""


def kill(find: Callable[[Site, Path], Sequence[int]], site: Site, folder: Path) -> None:
    """kill -9 of what is found; raises RuntimeError where it is not there."""
    if not wait(lambda: find(site, folder), START_LIMIT):
        raise RuntimeError("what is to be killed does not run")
    for pid in find(site, folder):
        os.kill(pid, signal.SIGKILL)


def process_of(*words: str) -> Harm:
    """kill -9 of the process whose command has these words."""
    return partial(kill, lambda site, _: site.processes(*words))


def supervisor(_: Site, folder: Path) -> Sequence[int]:
    return [int((folder / "supervisor.pid").read_text().split()[0])]


def break_server(site: Site, _: Path) -> None:
    """Cut every watch and log, forget what was, start it again."""
    for act in (Double.cut_watches, Double.cut_logs, Double.forget_history, Double.restart_server):
        act(_double(site))
        time.sleep(1)


def cut_each_second(site: Site, _: Path) -> None:
    """Cut every watch and every log once a second, ten times."""
    for _turn in range(10):
        _double(site).cut_watches()
        _double(site).cut_logs()
        time.sleep(1)


def throttle(site: Site, folder: Path) -> None:
    """Everything is refused with 429 for ten seconds, while watches and logs are cut."""
    _double(site).answer("GET|POST|PUT|PATCH|DELETE", EVERYTHING, 429, _THROTTLED)
    try:
        cut_each_second(site, folder)
    finally:
        _double(site).api.faults.answers.clear()


_THROTTLED = {
    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests",
    "message": "the server has received too many requests", "code": 429,
}  # fmt: skip


def broken(harm: Harm, sites: Sites) -> Tally:
    """A job of pods that pretend, harmed after its first lines: it ends as if nothing had been."""
    site, before = sites.kubernetes, _folders(sites.kubernetes)
    process = site.start("run", "--no-preflight", site.steps("harmed", run=RUN, hz=HZ))
    try:
        with metered(process.pid) as cost:
            wait(lambda: _folders(site) - before, START_LIMIT)
            (folder,) = _folders(site) - before
            again = _harmed(harm, site, folder)
            out, said = process.communicate(timeout=END_LIMIT)
    finally:
        process.kill()
    state = site.job(folder.parent.name)["state"]
    lost, doubled = _missing(out)
    wrong = [] if process.returncode == 0 else [f"`run` ended with {process.returncode}: {said}"]
    wrong += [] if again is not None else ["no rank was heard again"]
    return Tally(
        lost=lost, doubled=doubled, left=len(_left(site)), state=state, right=state == "done",
        seconds=again, wrong=wrong, memory=cost.memory, cpu=cost.cpu,
    )  # fmt: skip


def cancel_of_two(sites: Sites) -> Tally:
    """Cancel one of two jobs whose names begin alike: the pods of the other are as they were."""
    site = sites.kubernetes
    short, long = (site.detached(site.steps(name, run=600, hz=HZ)) for name in ("same", "same-0"))
    runs = lambda: {site.job(job)["state"] for job in (short, long)} == {"running"}  # noqa: E731
    if not wait(runs, START_LIMIT):
        raise RuntimeError("the two jobs do not run")
    before = _uids(site)
    done = site.rankdeck("cancel", short, "--grace", "1")
    gone, spared = before - _uids(site), {uid for uid in before if uid[0].startswith("same-0-")}
    wrong = [f"hit by mistake: {one}" for one in sorted(gone & spared)]
    wrong += [] if done.returncode == 0 else [f"exit code {done.returncode}: {done.stderr[-300:]}"]
    wrong += [] if site.job(long)["state"] == "running" else ["the other job does not run"]
    left = len({uid for uid in _uids(site) if uid[0].startswith("same-") and uid not in spared})
    site.rankdeck("cancel", long, "--grace", "1")
    return Tally(left=left + len(_cleared(site)), wrong=wrong)


def _uids(site: Site) -> set[tuple[str, str]]:
    """(name, uid) of each of our pods."""
    return {(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in site.pods()}


def _folders(site: Site) -> set[Path]:
    """The run folders of all jobs."""
    found = (site.folder / "home").glob(".local/state/rankdeck/jobs/*/*/events")
    return {file.parent for file in found}


def _harmed(harm: Harm, site: Site, folder: Path) -> float | None:
    """Seconds from the harm until every rank was heard again; None: they were not."""
    if not wait(lambda: min(_written(folder)) >= FIRST_LINES, START_LIMIT):
        raise RuntimeError("the ranks do not write")
    harm(site, folder)
    before = max(_written(folder))
    return elapsed(lambda: min(_written(folder)) > before, START_LIMIT)


def _written(folder: Path) -> list[int]:
    """The lines of each rank that the keeper has on disk."""
    files = [folder / f"rank.{number}/out" for number in range(RANKS)]
    return [file.read_bytes().count(b"\n") if file.exists() else 0 for file in files]


def _missing(out: str) -> tuple[int, int]:
    """Bytes of steps that `run` did not print, and of those that it printed twice."""
    wanted = {f"[rank {r}] step {n} loss 0.5" for r in range(RANKS) for n in range(1, RUN * HZ + 1)}
    shown = Counter(line.partition("] ")[2] for line in out.splitlines() if "] step " in line)
    lost = sum(len(line) + 1 for line in wanted if not shown[line])
    return lost, sum((n - (line in wanted)) * (len(line) + 1) for line, n in shown.items())


def _left(site: Site) -> list[str]:
    """Pods that run, and processes that keep a job."""
    pods: list[dict[str, Any]] = site.pods()
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    keepers = [*site.processes("kubernetes", "keep"), *site.processes("proxy")]
    return [*(pod["metadata"]["name"] for pod in running), *map(str, keepers)]


def _double(site: Site) -> Double:
    assert site.where.double is not None
    return site.where.double


# ---- Kubernetes: a server that lies -----------------------------------------------------------

JOB, FILE = "JOB", "FILE"
VERBS = (
    ("status", "--json", "--wait", "5"), ("jobs", "--json"), ("logs", JOB), ("inspect", JOB),
    ("preflight", FILE), ("run", "--no-preflight", "--detach", FILE), ("cancel", JOB, "--grace", "1"),
)  # fmt: skip
EVERYTHING = ".*"


def _steered() -> Mapping[str, Any]:
    """A list in which every text steers the terminal."""
    text = " ".join(planted())
    box = {"name": text, "image": text, "state": {"waiting": {"reason": text, "message": text}}}
    status = {"phase": text, "message": text, "reason": text, "containerStatuses": [box]}
    meta = {
        "name": text,
        "uid": text,
        "namespace": text,
        "labels": {text: text, "rankdeck/job": text},
    }
    item = {
        "metadata": meta,
        "status": status,
        "spec": {"nodeName": text},
        "message": text,
        "reason": text,
    }
    return {"kind": "List", "metadata": {"resourceVersion": text}, "items": [item] * 8}  # fmt: skip


def _refused() -> Mapping[str, Any]:
    text = "\n".join(planted())
    return {"kind": "Status", "status": "Failure", "reason": text, "message": text, "code": 422}


def _lied() -> Mapping[str, Any]:
    """Numbers and types that nobody expects, of the right kind of list."""
    box = {"name": "main", "restartCount": 10**30, "state": {"terminated": {"exitCode": -(10**20)}}}
    meta = {"name": "x-0-y", "uid": "1", "labels": {"batch.kubernetes.io/job-completion-index": "1e9"},
            "creationTimestamp": "99999-99-99T99:99:99Z"}  # fmt: skip
    status = {"phase": "Succeeded", "containerStatuses": [box], "succeeded": 10**30, "active": "7"}
    items: list[Any] = [
        {"metadata": meta, "status": status, "spec": []},
        7,
        None,
        [],
        {"metadata": []},
    ]
    return {"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": items}


LIES: Mapping[str, tuple[int, Callable[[], object]]] = {
    "controls": (200, _steered),
    "refused": (422, _refused),
    "numbers": (200, _lied),
    "half": (
        200,
        lambda: b'{"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [{"',
    ),
    "page": (200, lambda: b"<html>" + "\n".join(planted()).encode()),
    "deep": (200, lambda: b'{"items": ' + b"[" * 200_000),
    "endless": (200, lambda: b'{"kind": "PodList", "items": ["' + b"x" * (65 << 20)),
}
"""What the server answers to every question: status, and the body."""
TELLING = ("refused",)
"""Of these the words are shown, without what steers."""


def lied_to(sites: Sites) -> Tally:
    """Each verb while the server answers everything with each of these; then it is honest again."""
    site = sites.kubernetes
    wrong: list[str] = []
    memory = slowest = 0.0
    for kind, (status, body) in LIES.items():
        job = site.detached(site.steps("lied-to", run=600, hz=HZ))
        file, shown = site.steps("another", run=600, hz=HZ), False
        with _lying(site, status, body()):
            for verb in VERBS:
                done = _asked(site, [{JOB: job, FILE: file}.get(word, word) for word in verb])
                said = (*done.faults(), *reached(done.written, screen=False))
                wrong += [f"{kind}, {verb[0]}: {one}" for one in said]
                memory, slowest = max(memory, done.memory), max(slowest, done.seconds)
                shown = shown or SHOWN.encode() in done.written
        wrong += [] if shown or kind not in TELLING else [f"{kind}: nothing planted was shown"]
        wrong += [f"{kind}: left: {one}" for one in _cleared(site)]
    note = f"slowest {slowest:.0f} s"
    return Tally(wrong=wrong, memory=memory, inputs=len(LIES) * len(VERBS), note=note)


def _asked(site: Site, words: Sequence[str]) -> Ended:
    """A verb on a terminal."""
    argv = [sys.executable, "-m", "rankdeck", "-c", str(site.folder / "k8s.yaml"), *words]
    return on_terminal(argv, {**os.environ, **site.environment}, LIMIT, str(site.folder))


@contextmanager
def _lying(site: Site, status: int, body: object) -> Generator[None]:
    _double(site).answer("GET|POST|PUT|PATCH|DELETE", EVERYTHING, status, body)
    _double(site).cut_watches()
    try:
        yield
    finally:
        _double(site).api.faults.answers.clear()


def _cleared(site: Site) -> list[str]:
    """What runs after the server is honest again and every job was cancelled."""
    listed = site.rankdeck("--json", "jobs", "--all").stdout.splitlines()
    for one in map(json.loads, listed):
        if one["state"] in ("pending", "running", "cancelled"):
            site.rankdeck("cancel", one["job"], "--grace", "1")
    wait(lambda: not _left(site), START_LIMIT)
    return _left(site)


def _broken(name: str, does: str, harm: Harm) -> Row:
    return Row(name=f"kube.{name}", group=Group.NODES, does=does, run=partial(broken, harm))


ROWS = (
    Row(
        name="slurm",
        group=Group.NODES,
        does="sbatch, squeue and scontrol answer with controls, 10 MB and nonsense",
        run=lie,
    ),
    _broken("kubectl", "kill -9 of `kubectl proxy` in mid-job", process_of("proxy")),
    _broken("keeper", "kill -9 of what keeps the job", process_of("kubernetes", "keep")),
    _broken(
        "supervisor", "kill -9 of the supervisor on the control host", partial(kill, supervisor)
    ),
    _broken("server", "API server: watches and logs cut, history gone, restarted", break_server),
    _broken("watches", "API server: watches and logs cut each second, ten times", cut_each_second),
    _broken("throttled", "API server: 429 to everything for ten seconds, streams cut", throttle),
    Row(
        name="kube.two",
        group=Group.NODES,
        does="cancel of one of two jobs whose names begin alike",
        run=cancel_of_two,
    ),
    Row(
        name="kube.lies",
        group=Group.NODES,
        does="an API server that answers everything with controls, halves, 65 MB, nonsense: seven verbs",
        run=lied_to,
    ),
)
