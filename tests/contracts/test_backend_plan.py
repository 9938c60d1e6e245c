"""What the planning of every backend must do."""

import pytest
import yaml

from rankdeck import plugins
from rankdeck.backends.plans import plan_job
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job import Container, JobSpec, Launch, Plan

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
    made = plugins.find("backends", backend)
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
