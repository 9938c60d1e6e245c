"""Contract tests of the planning of every backend."""

from pathlib import Path

import pytest
import yaml

from rankdeck import plugins
from rankdeck.backends.launchers import plan_job
from rankdeck.config.clusters import read_cluster
from rankdeck.model.capabilities import Capabilities, capabilities_of
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import Container, JobSpec, Launch
from rankdeck.model.plan import Plan

NODES = tuple(Node(name=f"n{i}", slots=4, gpus=4) for i in range(3))
DOCUMENTS = ["slurm", "kubernetes"]
BACKENDS = ["ssh", *DOCUMENTS]


def planned(backend: str, launch: Launch) -> Plan:
    cluster = Cluster(name="c", nodes=NODES, backend=backend)
    image = Container(image="i:1", runtime="enroot")
    spec = JobSpec(
        name="t",
        launch=launch,
        command=("app", "x"),
        nodes=2,
        files={"f": "a\n"},
        container=image,
    )
    if backend == "ssh":
        return plan_job(cluster, spec, "t-1")
    made = plugins.find_plugin("backends", backend)
    return made(None).plan(cluster, spec, "t-1")


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_is_complete_and_the_same_each_time(backend: str, launch: Launch) -> None:
    plan = planned(backend, launch)

    assert plan == planned(backend, launch)
    assert (plan.job, plan.name, plan.cluster, plan.backend) == (
        "t-1",
        "t",
        "c",
        backend,
    )
    assert plan.world_size == (2 if launch is Launch.TENSORFLOW else 8)
    assert [r for n in plan.nodes for r in n.ranks] == list(range(plan.world_size))
    assert bool(plan.text) is (backend in DOCUMENTS)


@pytest.mark.parametrize("launch", Launch)
def test_a_manifest_is_yaml_and_ends_with_the_job(launch: Launch) -> None:
    objects = list(yaml.safe_load_all(planned("kubernetes", launch).text))

    assert objects[-1]["kind"] == ("MPIJob" if launch is Launch.MPI else "Job")
    assert all(o["metadata"]["labels"]["rankdeck/job"] == "t-1" for o in objects)


@pytest.mark.parametrize("launch", Launch)
def test_an_sbatch_script_begins_with_its_interpreter(launch: Launch) -> None:
    assert planned("slurm", launch).text.startswith("#!/bin/bash\n#SBATCH ")


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_backend_can_do_is_known_by_its_name(backend: str) -> None:
    assert plugins.find_plugin("backends", backend).can is capabilities_of(backend)


def test_a_backend_of_another_package_is_asked_what_it_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "flux-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: flux\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[rankdeck.backends]\nflux = flux_backend:Flux\n")
    (tmp_path / "flux_backend.py").write_text(
        "from rankdeck.model.capabilities import Capabilities\n"
        "class Flux:\n"
        "    name = 'flux'\n"
        "    can = Capabilities(scheduler='Flux', chooses_nodes=True)\n"
    )
    (tmp_path / "c.yaml").write_text("cluster: c\nbackend: flux\n")
    monkeypatch.syspath_prepend(tmp_path)

    cluster = read_cluster(tmp_path / "c.yaml")

    assert (cluster.nodes, cluster.can.scheduler) == ((), "Flux")


def test_of_a_backend_that_is_not_installed_nothing_special_is_known() -> None:
    assert capabilities_of("was-removed") == Capabilities()
