"""A user's own manifest in place of a job file: recognised, applied by the
real kubectl after a yes, and followed.
"""

import json
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.manifests import indexed_job, service
from tests.support.kubernetes.pretend import Script
from tests.support.kubernetes.site import Endpoints, Site
from tests.support.terminal import terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def site(tmp_path: Path, kubernetes, kubectl) -> Site:
    double = kubernetes(processes=False, namespaces=("default", "team"))
    double.script("train-.*", Script("{pod} step {n}", 0.3, 2))
    return Site(tmp_path / "site", Endpoints(double.kubeconfig(), double=double), kubectl)


def double_of(site: Site) -> Double:
    assert site.where.double is not None
    return site.where.double


def manifest(site: Site, *objects: dict, name: str = "train.yaml") -> str:
    (site.folder / name).write_text("---\n" + yaml.safe_dump_all(objects))
    return name


def pair() -> tuple[dict, dict]:
    return service("train"), indexed_job("train", ["x"], 2)


def test_a_manifest_is_applied_and_followed_only_after_a_yes(site: Site) -> None:
    file = manifest(site, *pair())

    refused = site.rankdeck("run", file)
    assert refused.returncode == 2
    assert "train.yaml is a manifest of Kubernetes (Service train, Job train)" in refused.stderr
    assert "`rankdeck run --yes` applies and follows it" in refused.stderr
    dry = site.rankdeck("run", "--dry-run", file)
    assert "job.batch/train would be applied" in dry.stdout, dry.stderr
    assert (double_of(site).all("jobs"), double_of(site).all("services")) == ([], [])

    done = site.rankdeck("run", "--yes", file)
    assert done.returncode == 0, done.stderr[-1500:]
    assert {line[:4] for line in done.stdout.splitlines()} == {"[0] ", "[1] "}
    assert "step 5" in done.stdout
    assert len(double_of(site).all("services")) == 1


@pytest.mark.parametrize(("answer", "made"), [("n", 0), ("y", 1)])
def test_in_a_terminal_it_asks_and_names_what_it_would_apply(
    answer: str, made: int, site: Site
) -> None:
    file = manifest(site, *pair())
    command = [
        sys.executable,
        "-m",
        "rankdeck",
        "-c",
        str(site.folder / "k8s.yaml"),
        "run",
        str(site.folder / file),
    ]

    with terminal(command, site.environment, width=300) as screen:
        screen.wait_for("Service train, Job train. Apply it in default and follow Job train? [y/N]")
        screen.press(f"{answer}\r")
        assert screen.process.wait(60) == (0 if made else 2)

    assert len(double_of(site).all("jobs")) == made


def test_check_knows_a_manifest_and_other_commands_say_what_to_do_with_it(site: Site) -> None:
    file = manifest(site, *pair())

    looked = site.rankdeck("check", file)
    assert looked.returncode == 0
    assert "a manifest of Kubernetes (Service train, Job train): `rankdeck run train.yaml`" in looked.stdout  # fmt: skip
    (row,) = json.loads(site.rankdeck("--json", "check", file).stdout)["files"]
    assert (row["kind"], row["ok"]) == ("manifest", True)
    for verb in ("preflight", "export-script"):
        said = site.rankdeck(verb, file)
        assert said.returncode == 2
        assert "this is a manifest of Kubernetes (Service train, Job train) and no job file" in said.stderr  # fmt: skip


def test_a_cluster_without_kubernetes_takes_no_manifest(site: Site) -> None:
    file = manifest(site, *pair())
    text = "cluster: lab\nnodes: [{name: a}]\n"
    (site.folder / "lab.yaml").write_text(text)

    said = site.rankdeck("-c", "lab.yaml", "run", "--yes", file)

    assert said.returncode == 2
    assert "cluster `lab` starts jobs by ssh: name one with `backend: kubernetes`" in said.stderr


def mpijob(name: str, role: str = "") -> dict:
    template = {"spec": {"containers": [{"name": "m", "image": "x", "command": ["x"]}]}}
    specs = {
        role: {"replicas": count, "restartPolicy": "Never", "template": template}
        for role, count in {"Launcher": 1, "Worker": 2}.items()
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": specs, "runPolicy": {"cleanPodPolicy": "Running"}},
    }  # fmt: skip


def test_the_output_of_an_mpijob_without_tags_is_shown_under_its_launcher(site: Site) -> None:
    double_of(site).script("pi-launcher-.*", Script("pi is about 3.{n}", 0.3, 6))
    double_of(site).script("pi-worker-.*", Script("Server listening", 9, 600))

    done = site.rankdeck("run", "--yes", manifest(site, mpijob("pi")))
    assert done.returncode == 0, done.stderr[-1500:]
    assert "[launcher] pi is about 3.1\n" in done.stdout

    for _ in range(2):
        said = site.rankdeck("logs", "mpijob/pi").stdout
        assert "[launcher] pi is about 3.1\n" in said
    assert "pi is about" not in site.rankdeck("logs", "mpijob/pi", "--rank", "0").stdout


def test_with_tags_the_launcher_stays_out_of_the_output(site: Site) -> None:
    double_of(site).script("pi-launcher-.*", Script("[1,3]<stdout>: of 3, {n}", 0.3, 2, 0, ("warning of mpirun",)))  # fmt: skip
    double_of(site).script("pi-worker-.*", Script("Server listening", 9, 600))

    done = site.rankdeck("run", "--yes", manifest(site, mpijob("pi")))

    assert "[3] of 3, 1\n" in done.stdout
    assert "launcher" not in done.stdout


# ---- cases that nobody listed -----------------------------------------------------------------


def test_a_name_that_the_server_makes_is_followed_and_one_in_another_namespace(site: Site) -> None:
    job = indexed_job("train", ["x"], 1)
    del job["metadata"]["name"]
    job["metadata"] |= {"generateName": "train-", "namespace": "team"}

    done = site.rankdeck("run", "--yes", manifest(site, job))

    assert done.returncode == 0, done.stderr[-1500:]
    assert "[0] train-" in done.stdout
    (made,) = double_of(site).all("jobs")
    assert made["metadata"]["namespace"] == "team"


def test_what_the_server_refuses_is_said_in_its_words(site: Site) -> None:
    job = indexed_job("train", ["x"], 1)
    job["spec"]["completionMode"] = "Indxed"

    said = site.rankdeck("run", "--yes", manifest(site, service("train"), job))

    assert said.returncode in (1, 2)
    assert "train.yaml: kubectl apply: " in said.stderr
    assert 'Unsupported value: "Indxed"' in said.stderr


def test_a_manifest_without_a_job_is_applied_and_that_is_all(site: Site) -> None:
    done = site.rankdeck("run", "--yes", manifest(site, service("train")))

    assert done.returncode == 0
    assert "no job in it that Rankdeck follows (Service train)" in done.stderr


def test_a_job_that_the_server_forgot_is_still_found_by_its_place(site: Site) -> None:
    assert site.rankdeck("run", "--yes", manifest(site, *pair())).returncode == 0
    double_of(site).delete("jobs", "train")

    said = site.rankdeck("logs", "job/train")

    assert said.returncode == 0, said.stderr
    assert "[1] train-1-" in said.stdout
