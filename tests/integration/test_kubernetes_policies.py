"""Sites with policies: the same job is refused or waits without the cluster
file of sample-clusters/, and runs with it.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kubernetes.admission import ENFORCE
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.kinds import JOB, POD, Kind
from tests.support.kubernetes.pretend import Script
from tests.support.kubernetes.scheduler import node
from tests.support.kubernetes.site import Endpoints, Site

from rankdeck.config.files import find_shipped

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SAMPLES = find_shipped("sample-clusters")
Json = dict[str, Any]
MARKED = "[rank {n} exit] 0"


def restrict(double: Double) -> None:
    for space in ("training", "default"):
        double.change("namespaces", space, lambda one: one["metadata"]["labels"].update({ENFORCE: "restricted"}))  # fmt: skip


def demand_labels(double: Double) -> None:
    def team(kind: Kind, made: Json) -> str | None:
        # The Job of an MPIJob's launcher has none of its labels, so sites that have
        # the operator ask pods and users only.
        if kind is JOB and made["metadata"].get("ownerReferences"):
            return None
        missing = {"team", "cost-center"} - made["metadata"].get("labels", {}).keys()
        return f"[require-labels] missing: {sorted(missing)}" if missing else None

    double.hook("validation.gatekeeper.sh", team)


def limit(double: Double) -> None:
    hard = {"requests.cpu": "16", "requests.memory": "128Gi", "limits.cpu": "64", "limits.memory": "256Gi"}  # fmt: skip
    for space in ("training", "default"):
        double.create("resourcequotas", {"metadata": {"name": "all", "namespace": space}, "spec": {"hard": hard}})  # fmt: skip


def inject(double: Double) -> None:
    def add(kind: Kind, made: Json) -> None:
        if kind is POD and made["metadata"].get("labels", {}).get("sidecar.istio.io/inject") != "false":  # fmt: skip
            made["spec"]["containers"].append({"name": "istio-proxy", "image": "proxy", "resources": {}})  # fmt: skip

    double.hook("namespace.sidecar-injector.istio.io", add)


def schedule_by_volcano(double: Double) -> None:
    def demand(kind: Kind, made: Json) -> str | None:
        if kind is POD and made["spec"].get("schedulerName") != "volcano":
            return "pods of this namespace are scheduled by volcano"
        return None

    double.hook("pods.site.example.org", demand)


def demand_class(double: Double) -> None:
    double.create("runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})

    def demand(kind: Kind, made: Json) -> str | None:
        boxes = made["spec"]["containers"] if kind is POD else ()
        gpus = any("nvidia.com/gpu" in box.get("resources", {}).get("limits", {}) for box in boxes)
        bare = gpus and made["spec"].get("runtimeClassName") != "nvidia"
        return "no GPU is seen without runtimeClassName nvidia" if bare else None

    double.hook("gpu.k3s.example.org", demand)


SITES: dict[str, tuple[Callable[[Double], None], str]] = {
    "k8s-restricted": (restrict, 'violates PodSecurity "restricted:latest"'),
    "k8s-labels": (demand_labels, "[require-labels] missing: ['cost-center', 'team']"),
    "k8s-quota": (limit, "failed quota: all: must specify limits.cpu for: rank"),
    "k8s-volcano": (schedule_by_volcano, "pods of this namespace are scheduled by volcano"),
    "k3s-nvidia": (demand_class, "no GPU is seen without runtimeClassName nvidia"),
}


@pytest.fixture
def made(tmp_path: Path, kubernetes, kubectl) -> Callable[..., Site]:
    """`made(policy)`: a site with this policy, whose user may do all;
    its pods pretend to run a rank each.
    """

    def make(policy: Callable[[Double], None]) -> Site:
        nodes = [node("w1", gpus=1), node("w2", gpus=1)]
        double = kubernetes(processes=False, nodes=nodes, namespaces=("default", "training"))
        for rank in (0, 1):
            lines = (f"[rank {rank} start] x", f"[rank {rank} out] hello", f"[rank {rank} exit] 0")
            double.script(f"j-.*-{rank}-.....", Script("", 9, 1, 0, lines))
        every = tuple(line for rank in (0, 1) for line in (f"[rank {rank} start] m-{rank}", f"[rank {rank} exit] 0"))  # fmt: skip
        double.script("m-.*-launcher-.....", Script("", 9, 1, 0, every))
        double.script("m-.*-worker-.", Script("", 9, 600))
        policy(double)
        where = Endpoints(
            double.kubeconfig(), images={"plain": "x:1"}, double=double, pretends=True
        )
        return Site(tmp_path / "site", where, kubectl)

    return make


def use(site: Site, sample: str) -> None:
    """Take the cluster file of a sample as it is, with two nodes of one
    slot (an API server gives no slots).
    """
    content = yaml.safe_load((SAMPLES / f"{sample}.yaml").read_text())
    (site.folder / "k8s.yaml").write_text(yaml.safe_dump(content))


def double_of(site: Site) -> Double:
    assert site.where.double is not None
    return site.where.double


def job(site: Site, name: str = "j", launch: str = "plain") -> str:
    mpi = {"mpi": {"flavour": "openmpi5"}} if launch == "mpi" else {}
    return site.job_file(
        name, launch, ranks_per_node=1, command=["x"], kubernetes={"gpus": 1}, **mpi
    )


@pytest.mark.parametrize("sample", SITES)
@pytest.mark.parametrize("launch", ["plain", "mpi"])
def test_a_job_runs_at_a_site_with_a_policy_once_the_cluster_file_says_what_it_asks(
    sample: str, launch: str, made
) -> None:
    policy, words = SITES[sample]
    site = made(policy)
    name = {"plain": "j", "mpi": "m"}[launch]

    refused = site.rankdeck("run", job(site, name, launch))

    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert words in refused.stdout + refused.stderr
    assert double_of(site).all("pods") == []

    use(site, sample)
    done = site.rankdeck("run", job(site, name, launch))

    assert done.returncode == 0, (done.stdout + done.stderr)[-1500:]


def test_a_sidecar_that_is_kept_out_does_not_hold_the_job_up(made) -> None:
    site = made(inject)
    double_of(site).script("j-.*/istio-proxy", Script("", 9, 600))
    stays = site.detached(job(site))
    site.until(stays, lambda found: all(rank["exit_code"] == 0 for rank in found["ranks"]))
    assert site.job(stays)["state"] == "running"
    assert "container `istio-proxy` runs on" in site.rankdeck("logs", stays, "--launcher").stdout
    assert site.rankdeck("cancel", stays).returncode == 0

    use(site, "k8s-sidecar")
    done = site.rankdeck("run", job(site))

    assert done.returncode == 0, (done.stdout + done.stderr)[-1500:]


# ---- cases that nobody listed -----------------------------------------------------------------


def test_a_limit_range_is_told_before_the_job_is_created(made) -> None:
    def limits(double: Double) -> None:
        one = {"type": "Container", "max": {"memory": "16Gi"}}
        double.create("limitranges", {"metadata": {"name": "most", "namespace": "default"}, "spec": {"limits": [one]}})  # fmt: skip

    site = made(limits)
    site.cluster({"kubernetes": {"resources": {"memory": "32Gi"}}})

    refused = site.rankdeck("run", job(site))

    assert refused.returncode == 2
    assert "maximum memory usage per Container is 16Gi, but limit is 32Gi" in refused.stdout + refused.stderr  # fmt: skip
    assert double_of(site).all("jobs") == []


def test_a_runtime_class_that_is_not_there_is_told_of_an_mpijob_too(made) -> None:
    site = made(lambda _double: None)
    site.cluster({"kubernetes": {"runtime_class": "nvida"}})

    refused = site.rankdeck("run", job(site, "m", "mpi"))

    assert refused.returncode == 2
    assert 'RuntimeClass "nvida" not found' in refused.stdout + refused.stderr


def test_a_control_host_without_enough_files_is_a_finding_before_the_launch(
    tmp_path: Path, kubernetes, kubectl
) -> None:
    where = Endpoints(kubernetes(processes=False).kubeconfig(), images={"plain": "x"})
    site = Site(tmp_path / "site", where, kubectl)
    file = site.steps("many", nodes=40)
    words = [sys.executable, "-m", "rankdeck", "-c", str(site.folder / "k8s.yaml")]

    def said(*verb: str) -> str:
        done = subprocess.run(
            ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh", *words, *verb],
            cwd=site.folder, env=site.environment, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout + done.stderr

    for verb in (("preflight", file), ("run", "--dry-run", "--server", file)):
        text = " ".join(said(*verb).split())
        assert "the output of 40 pods cannot be kept here: this host lets a program open 200 files, enough for 33" in text  # fmt: skip
    assert site.left() == []
