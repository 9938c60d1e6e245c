"""Jobs that others started on Kubernetes: listed, read, cancelled;
by the command line on the double.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.support.commands import COMMANDS
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.manifests import indexed_job
from tests.support.kubernetes.pretend import Script
from tests.support.kubernetes.scheduler import node
from tests.support.polling import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.left_out]


class Console:
    """The command line of one user, with folders of its own."""

    def __init__(self, folder: Path, kubectl: Path, double: Double) -> None:
        self.file = folder / "k.yaml"
        self.file.write_text("cluster: k\nbackend: kubernetes\n")
        path = f"{kubectl.parent}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "KUBECONFIG": str(double.kubeconfig())}

    def __call__(self, *argv: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = COMMANDS.run(("-c", str(self.file), *argv), self.env, 120)
        assert done.returncode == code, (done.stderr + done.stdout)[-800:]
        return done

    def kubectl(self, *argv: str, stdin: str = "") -> None:
        """Somebody else does this."""
        subprocess.run(
            ("kubectl", *argv), input=stdin, env=self.env, text=True, timeout=300, check=True
        )


@pytest.fixture
def console(tmp_path: Path, kubernetes, kubectl) -> tuple[Console, Double]:
    """A job of alice with two pods that go on for ten minutes, and a console."""
    double = kubernetes(processes=False, nodes=[node("w0"), node("w1")])
    double.script("train-.*", Script(text="step {n}", every=0.5, lasting=600))
    made = Console(tmp_path, kubectl, double)
    job = indexed_job("train", ["x"], 2, gpus=1)
    job["metadata"]["labels"] = {"user": "alice"}
    made.kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    wait_until(lambda: all("startTime" in p["status"] for p in double.all("pods")), 60)
    return made, double


@pytest.mark.kept
def test_a_job_of_others_is_listed_read_and_cancelled_once_its_owner_was_named(console) -> None:
    ask, double = console

    (row,) = [json.loads(line) for line in ask("jobs", "--json").stdout.splitlines()]
    assert (row["job"], row["kind"], row["owner"], row["ranks"]) == ("job/train", "Job", "alice", 2)
    assert "Job of alice" in ask("jobs").stdout

    said = ask("logs", "job/train").stdout
    assert "[0] step 1\n" in said
    assert "[1] step 1\n" in said
    (row,) = [json.loads(line) for line in ask("jobs", "--json").stdout.splitlines()]
    assert (row["owner"], row["state"]) == ("Job of alice", "running")
    assert [rank["node"] for rank in row["ranks"]]
    live = ask("jobs", "--json", "--live")
    assert json.loads(live.stdout)["job"] == row["job"]
    assert "what ranks take is not known: nodes of a Kubernetes cluster" in live.stderr

    refused = ask("cancel", row["job"], code=2).stderr
    assert "Job of alice" in refused
    assert double.all("jobs")

    assert "nothing of it is left" in ask("cancel", row["job"], "--yes").stdout
    assert (double.all("jobs"), double.all("pods")) == ([], [])


# ---- jobs of operators: their pods as their controllers make them -------------------------

PODS = {"jobsets": "JobSet", "trainjobs": "TrainJob", "pytorchjobs": "PyTorchJob"}
VERSIONS = {"jobsets": "jobset.x-k8s.io/v1alpha2", "trainjobs": "trainer.kubeflow.org/v1alpha1", "pytorchjobs": "kubeflow.org/v1"}  # fmt: skip


def of_jobset(part: str, job_index: int, each: int) -> list[tuple[str, dict[str, str]]]:
    """Names and labels of the pods of one Job of a JobSet, as jobset
    0.10 and the Job controller set them.
    """
    job = f"pi-{part}-{job_index}"
    common = {
        "jobset.sigs.k8s.io/jobset-name": "pi",
        "jobset.sigs.k8s.io/replicatedjob-name": part,
        "jobset.sigs.k8s.io/job-index": str(job_index),
        "jobset.sigs.k8s.io/restart-attempt": "0",
        "batch.kubernetes.io/job-name": job,
        "job-name": job,
    }
    index = "batch.kubernetes.io/job-completion-index"
    return [(f"{job}-{n}-x7k2p", {**common, index: str(n)}) for n in range(each)]


def of_pytorchjob(role: str, count: int) -> list[tuple[str, dict[str, str]]]:
    """As the training operator 1.9 sets them: only the master has a role."""
    common = {
        "training.kubeflow.org/job-name": "pi",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": role,
    }
    more = {"training.kubeflow.org/job-role": "master"} if role == "master" else {}
    index = "training.kubeflow.org/replica-index"
    return [(f"pi-{role}-{n}", {**common, **more, index: str(n)}) for n in range(count)]


def replicated(name: str, jobs: int, each: int) -> dict:
    spec = {"completionMode": "Indexed", "completions": each, "parallelism": each}
    return {"name": name, "replicas": jobs, "template": {"spec": spec}}


KINDS = {
    "jobsets": (
        {"replicatedJobs": [replicated("lead", 1, 1), replicated("work", 2, 2)]},
        [of_jobset("lead", 0, 1), of_jobset("work", 0, 2), of_jobset("work", 1, 2)],
    ),
    "trainjobs": (
        {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 3}},
        [of_jobset("dataset-initializer", 0, 1), of_jobset("node", 0, 3)],
    ),
    "pytorchjobs": (
        {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}, "Master": {"replicas": 1}}},
        [of_pytorchjob("master", 1), of_pytorchjob("worker", 2)],
    ),
}


@pytest.fixture
def others(tmp_path: Path, kubernetes, kubectl) -> tuple[Console, Double]:
    """A console on a double that has all kinds of jobs."""
    kinds = ("mpijobs", "jobsets", "trainjobs", "pytorchjobs")
    double = kubernetes(processes=False, kinds=kinds)
    double.script(".*", Script(text="{pod} step {n}", every=0.5, lasting=600))
    return Console(tmp_path, kubectl, double), double


def started(double: Double, plural: str) -> list[str]:
    """Somebody's job `pi` with its pods, which run; names of the pods
    with ranks, in the order of the ranks.
    """
    spec, groups = KINDS[plural]
    meta = {"name": "pi", "namespace": "default", "labels": {"user": "alice"}}
    kind = {"apiVersion": VERSIONS[plural], "kind": PODS[plural]}
    made = double.create(plural, {**kind, "metadata": meta, "spec": spec, "status": {}})
    uid = made["metadata"]["uid"]
    owner = {**kind, "name": "pi", "uid": uid, "controller": True, "blockOwnerDeletion": True}
    pods = [one for group in groups for one in group]
    for name, labels in pods:
        box = {"name": "node", "image": "x", "command": ["x"]}
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [box]}
        meta = {"name": name, "labels": labels, "ownerReferences": [owner]}
        double.post("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
    wait_until(lambda: all("startTime" in p["status"] for p in double.all("pods")), 60)
    return [name for name, _ in pods if "initializer" not in name]


@pytest.mark.parametrize("plural", KINDS)
def test_a_job_of_an_operator_has_a_pane_per_pod_and_ends_after_its_owner_was_named(
    plural: str, others
) -> None:
    ask, double = others
    names = started(double, plural)
    place = f"{PODS[plural].lower()}/pi"

    (row,) = [json.loads(line) for line in ask("jobs", "--json").stdout.splitlines()]
    assert (row["job"], row["owner"], row["ranks"]) == (place, "alice", len(names))

    said = ask("logs", place).stdout
    for rank, name in enumerate(names):
        assert f"[{rank}] {name} step 1\n" in said
    assert "initializer" not in said
    (row,) = [json.loads(line) for line in ask("jobs", "--json").stdout.splitlines()]
    assert len(row["ranks"]) == len(names)
    assert f"{PODS[plural]} of alice" in ask("cancel", row["job"], code=2).stderr
    assert len(double.all("pods")) >= len(names)

    assert "nothing of it is left" in ask("cancel", row["job"], "--yes").stdout
    assert (double.all(plural), double.all("pods")) == ([], [])


def mpijob(console: Console, double: Double) -> None:
    """alice's MPIJob `pi` with two workers of two slots; the launcher says what mpirun would."""
    lines = [f"[1,{n}]<stdout>: hello of {n}" for n in range(4)]
    double.script("pi-launcher-.*", Script("[1,0]<stdout>: step {n}", 0.5, 600, 0, tuple(lines)))
    double.script("pi-worker-.*", Script("Accepted publickey for root", 5.0, 600))
    box = {"name": "m", "image": "x", "command": ["x"]}
    template = {"spec": {"containers": [box], "terminationGracePeriodSeconds": 2}}
    replicas = {"Launcher": (1, "Never"), "Worker": (2, "Never")}
    specs = {
        name: {"replicas": count, "restartPolicy": policy, "template": template}
        for name, (count, policy) in replicas.items()
    }
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi", "labels": {"user": "alice"}},
        "spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": specs},
    }
    console.kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    wait_until(lambda: len(double.all("pods")) == 3, 60, "its pods")


def test_an_mpijob_of_others_is_read_by_rank_and_its_workers_are_heard(others) -> None:
    ask, double = others
    mpijob(ask, double)

    said = ask("logs", "mpijob/pi").stdout
    assert [line for line in said.splitlines() if "hello" in line] == [
        f"[{n}] hello of {n}" for n in range(4)
    ]
    (row,) = [json.loads(line) for line in ask("jobs", "--json").stdout.splitlines()]
    assert (
        "worker-0: Accepted publickey"
        in ask("logs", row["job"], "--launcher", "--stream", "out").stdout
    )
    double.oom("pi-worker-1")
    wait_until(lambda: "OOMKilled" in ask("jobs", "--json").stdout, 30, "a word about the worker")

    assert "MPIJob of alice" in ask("cancel", row["job"], code=2).stderr
    assert "nothing of it is left" in ask("cancel", row["job"], "--yes").stdout
    assert (double.all("mpijobs"), double.all("pods"), double.all("jobs")) == ([], [], [])
