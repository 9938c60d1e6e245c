"""`rankdeck jobs` on the double: why pods are missing, what else holds GPUs, other namespaces."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes.admission import ENFORCE
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.kinds import POD, Kind
from tests.support.kubernetes.manifests import indexed_job
from tests.support.kubernetes.pretend import Script
from tests.support.kubernetes.roles import smallest_role
from tests.support.kubernetes.scheduler import node
from tests.support.kubernetes.site import Endpoints, Site
from tests.support.polling import seen_until, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
Json = dict[str, Any]


@pytest.fixture
def site(tmp_path: Path, kubernetes, kubectl) -> Site:
    nodes = [node("w0", gpus=8), node("w1", gpus=8)]
    double = kubernetes(processes=False, nodes=nodes, namespaces=("default", "team"))
    double.script(".*", Script("{pod} step {n}", 0.5, 600))
    where = Endpoints(double.kubeconfig(), double=double)
    made = Site(tmp_path / "site", where, kubectl)
    made.cluster({})
    return made


def double_of(site: Site) -> Double:
    assert site.where.double is not None
    return site.where.double


def rows(site: Site, *options: str) -> dict[str, Json]:
    done = site.rankdeck("--json", *options)
    assert done.returncode == 0, done.stderr
    return {row["job"]: row for row in map(json.loads, done.stdout.splitlines())}


def quota(double: Double) -> None:
    hard = {"requests.nvidia.com/gpu": "1"}
    double.create("resourcequotas", {"metadata": {"name": "gpus", "namespace": "default"}, "spec": {"hard": hard}})  # fmt: skip


def ranges(double: Double) -> None:
    one = {"type": "Container", "max": {"nvidia.com/gpu": "1"}}
    double.create("limitranges", {"metadata": {"name": "most", "namespace": "default"}, "spec": {"limits": [one]}})  # fmt: skip


def restrict(double: Double) -> None:
    double.change("namespaces", "default", lambda one: one["metadata"]["labels"].update({ENFORCE: "restricted"}))  # fmt: skip


def refuse(double: Double) -> None:
    def no(kind: Kind, made: Json) -> str | None:
        return "no team" if kind is POD and "team" not in made["metadata"]["labels"] else None

    double.hook("teams.example.org", no)


REFUSALS = {
    "quota": (quota, "exceeded quota: gpus, requested: requests.nvidia.com/gpu=2"),
    "LimitRange": (ranges, "maximum nvidia.com/gpu usage per Container is 1, but limit is 2"),
    "PodSecurity": (restrict, 'violates PodSecurity "restricted:latest"'),
    "webhook": (refuse, 'admission webhook "teams.example.org" denied the request: no team'),
}


@pytest.mark.parametrize("policy", REFUSALS)
def test_jobs_says_why_a_job_of_others_has_no_pods(policy: str, site: Site) -> None:
    make, words = REFUSALS[policy]
    make(double_of(site))
    double_of(site).post("jobs", indexed_job("train", ["x"], 2, gpus=2))

    row = seen_until(lambda: rows(site, "jobs")["job/train"], lambda one: words in one["why"], 60)

    assert row["state"] == "pending"
    assert row["why"].startswith("FailedCreate: Error creating: ")
    assert words in site.rankdeck("jobs").stdout


def test_why_the_launcher_of_an_mpijob_is_missing_is_told_of_the_mpijob(site: Site) -> None:
    def no_launcher(kind: Kind, made: Json) -> str | None:
        role = made["metadata"].get("labels", {}).get("training.kubeflow.org/job-role")
        return "no launchers" if kind is POD and role == "launcher" else None

    double_of(site).hook("launchers.example.org", no_launcher)
    template = {"spec": {"containers": [{"name": "m", "image": "x", "command": ["x"]}]}}
    specs = {role: {"replicas": 1, "restartPolicy": "Never", "template": template} for role in ("Launcher", "Worker")}  # fmt: skip
    double_of(site).post("mpijobs", {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "pi"}, "spec": {"mpiReplicaSpecs": specs}})  # fmt: skip

    seen_until(lambda: rows(site, "jobs")["mpijob/pi"], lambda one: "no launchers" in one["why"], 60)  # fmt: skip


def test_a_refusal_that_is_over_is_no_longer_told(site: Site) -> None:
    quota(double_of(site))
    double_of(site).post("jobs", indexed_job("train", ["x"], 1, gpus=2))
    seen_until(lambda: rows(site, "jobs")["job/train"], lambda one: "exceeded quota" in one["why"], 60)  # fmt: skip

    double_of(site).delete("resourcequotas", "gpus")

    seen_until(lambda: rows(site, "jobs")["job/train"], lambda one: one["why"] == "", 60)


def gpu_pod(name: str, gpus: int, owner: Json | None = None, **labels: str) -> Json:
    box = {"name": "x", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    meta: Json = {"name": name, "labels": labels}
    if owner:
        meta["ownerReferences"] = [{"controller": True, **owner}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [box]}}


def test_what_else_holds_gpus_is_listed_with_what_it_holds(site: Site) -> None:
    double = double_of(site)
    # Kinds that are not served here; an owner of that uid must be there,
    # else the collector deletes the pods.
    kept = double.create("configmaps", {"metadata": {"name": "owner", "namespace": "default"}})
    uid = {"uid": kept["metadata"]["uid"]}
    ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "train-x7k2p", **uid}
    volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "v", **uid}
    tf = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", **uid}
    pods = [
        gpu_pod("train-head", 2, ray, user="alice"),
        gpu_pod("train-work", 4, ray, user="alice"),
        gpu_pod("v-0", 1, volcano),
        gpu_pod("mnist-worker-0", 1, tf, **{"training.kubeflow.org/job-name": "mnist"}),
        gpu_pod("notebook", 1),
        gpu_pod("web", 0),
    ]
    for pod in pods:
        double.post("pods", pod)
    wait_until(lambda: all(p["spec"].get("nodeName") for p in double.all("pods")), 60, "nodes")

    found = rows(site, "jobs")

    assert found.keys() == {"raycluster/train-x7k2p", "job.batch.volcano.sh/v", "tfjob/mnist", "pod/notebook"}  # fmt: skip
    ray_row = found["raycluster/train-x7k2p"]
    assert (ray_row["held"], ray_row["pods"], ray_row["owner"]) == ({"nvidia.com/gpu": 6}, 2, "alice")  # fmt: skip
    assert set(ray_row["nodes"]) <= {"w0", "w1"}
    said = site.rankdeck("jobs").stdout
    assert "RayCluster of alice; holds 6 nvidia.com/gpu in 2 pods" in said
    refused = site.rankdeck("logs", "raycluster/train-x7k2p")
    assert refused.returncode != 0
    assert "Rankdeck follows no RayCluster: `kubectl -n default get raycluster/train-x7k2p`" in refused.stderr  # fmt: skip


def test_what_a_job_of_ours_waits_for_is_told_until_it_runs(site: Site) -> None:
    double = double_of(site)
    for name in ("w0", "w1"):
        double.change("nodes", name, lambda found: found["spec"].update(unschedulable=True))
    where = {"command": ["x"], "container": {"image": "x:1"}, "ranks_per_node": 1}
    site.where = Endpoints(site.where.kubeconfig, images={"plain": "x:1"}, double=double)
    job = site.detached(site.job_file("waits", **where))

    found = site.until(job, lambda one: "unschedulable" in one["waits"])
    assert found["stalled"] == []
    assert "unschedulable" in site.rankdeck("jobs").stdout
    for name in ("w0", "w1"):
        double.change("nodes", name, lambda found: found["spec"].update(unschedulable=False))
    site.until(job, lambda one: one["waits"] == "")
    assert site.rankdeck("cancel", job).returncode == 0


def test_a_server_that_is_too_old_is_named_before_a_job_is_created(site: Site) -> None:
    double = double_of(site)
    double.be_version(23)
    site.where = Endpoints(site.where.kubeconfig, images={"plain": "x:1"}, double=double)
    words = "this server is Kubernetes v1.23.0-double, and Rankdeck needs 1.24 or newer"

    looked = site.rankdeck("check", "--live", "k8s.yaml")
    assert looked.returncode == 1
    assert f"server: {words}" in looked.stdout
    refused = site.rankdeck("run", site.job_file("old", command=["x"], ranks_per_node=1))
    assert refused.returncode == 2
    assert words in refused.stdout + refused.stderr
    assert double.all("jobs") == []


def test_a_job_of_others_on_an_older_server_is_read_by_rank(site: Site) -> None:
    double_of(site).be_version(26)
    double_of(site).post("jobs", indexed_job("train", ["x"], 2))
    wait_until(lambda: all("startTime" in p["status"] for p in double_of(site).all("pods")), 60, "starts")  # fmt: skip

    said = site.rankdeck("logs", "job/train").stdout

    assert "[0] train-0-" in said
    assert "[1] train-1-" in said


def test_namespaces_can_be_switched_and_listed_all(site: Site) -> None:
    double = double_of(site)
    double.post("jobs", indexed_job("here", ["x"], 1))
    double.post("jobs", indexed_job("there", ["x"], 1), "team")

    assert rows(site, "jobs").keys() == {"job/here"}
    assert rows(site, "--namespace", "team", "jobs").keys() == {"job/there"}
    assert rows(site, "jobs", "--all-namespaces").keys() == {"job/here", "job/there"}
    said = site.rankdeck("jobs", "--all-namespaces")
    assert "in namespace team" in said.stdout
    assert "rankdeck --namespace NAME logs" in said.stderr
    wait_until(lambda: all("startTime" in p["status"] for p in double.all("pods")), 60, "starts")
    assert "[0] there-0-" in site.rankdeck("--namespace", "team", "logs", "job/there").stdout
    assert "is not the name of a namespace" in site.rankdeck("--namespace", "A_b", "jobs").stderr


def test_who_may_not_list_all_namespaces_is_told_so(site: Site) -> None:
    double = double_of(site)
    config = double.user("alice", [smallest_role()])
    site.where = Endpoints(config, double=double)

    said = site.rankdeck("jobs", "--all-namespaces")

    assert "you may not list jobs.batch" in said.stderr
