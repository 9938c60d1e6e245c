"""The exact text of every plan of every sample; RANKDECK_GOLDEN=write renews the files."""

import os
from pathlib import Path
from typing import cast

import pytest

from rankdeck import plugins
from rankdeck.backends.launchers import plan_job
from rankdeck.backends.plan_text import write_plan
from rankdeck.config.clusters import read_cluster
from rankdeck.config.files import find_shipped
from rankdeck.config.jobs import read_job
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import Container, JobSpec, Launch, MpiOptions
from rankdeck.model.plan import Plan
from rankdeck.remote.agent import Agents
from rankdeck.schedulers.slurm.backend import SlurmBackend
from rankdeck.values import replace

SAMPLES = find_shipped("sample-clusters")
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
JOBS = sorted(path.stem for path in (SAMPLES / "jobs").glob("*.yaml"))
IMAGE = Container(image="registry.example.org/hpc:1", runtime="enroot", gpu="nvidia")
RANKS = 2


def short(spec: JobSpec) -> JobSpec:
    """The programs are long and tested elsewhere."""
    return replace(spec, files=dict.fromkeys(spec.files, "# program\n"))


def planned(cluster: Cluster, spec: JobSpec) -> Plan:
    if cluster.backend == "ssh":
        return plan_job(cluster, spec, f"{spec.name}-1")
    spec = replace(spec, container=IMAGE, ranks_per_node=spec.ranks_per_node or RANKS)
    return plugins.find_plugin("backends", cluster.backend)(None).plan(
        cluster, spec, f"{spec.name}-1"
    )


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("RANKDECK_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("cluster", ["demo", "slurm-a100", "k8s"])
def test_a_sample_job_is_planned_to_the_letter(cluster: str, job: str) -> None:
    spec = short(read_job(SAMPLES / "jobs" / f"{job}.yaml"))

    compare(
        f"{cluster}.{job}",
        write_plan(planned(read_cluster(SAMPLES / f"{cluster}.yaml"), spec)),
    )


@pytest.mark.parametrize("flavour", ["openmpi5", "openmpi4", "mpich"])
@pytest.mark.parametrize("launcher", ["rankdeck", "ssh"])
def test_every_mpi_is_spoken_to_in_its_own_words(flavour: str, launcher: str) -> None:
    spec = short(read_job(SAMPLES / "jobs" / "mpi-hello.yaml"))
    spec = replace(spec, mpi=MpiOptions(flavour=flavour, launcher=launcher))
    cluster = read_cluster(SAMPLES / "two-pis.yaml")

    compare(f"mpi.{flavour}.{launcher}", write_plan(plan_job(cluster, spec, "hello-1")))


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("runtime", plugins.plugin_names("runtimes"))
def test_every_launcher_in_every_runtime_is_planned_to_the_letter(
    runtime: str, launch: Launch
) -> None:
    container = Container(
        image="app.sif",
        runtime=runtime,
        mounts=("/data:/data:ro",),
        gpu="amd" if launch is Launch.PLAIN else "nvidia",
        workdir="/work",
    )
    spec = JobSpec(
        name="cell",
        launch=launch,
        command=("python3", "${RANKDECK_RUN}/app.py", "it's"),
        nodes=2,
        ranks_per_node=1 if launch is Launch.TENSORFLOW else 2,
        env={"A": "1,2"},
        files={"app.py": "# program\n"},
        container=container,
    )
    cluster = read_cluster(SAMPLES / "roce-pair.yaml")

    compare(f"container.{launch}.{runtime}", write_plan(plan_job(cluster, spec, "cell-1")))


def test_nccl_tests_of_16_gpus_through_pyxis_are_planned_to_the_letter() -> None:
    container = Container(
        image="nvcr.io#nvidia/pytorch:24.06-py3",
        runtime="enroot",
        mounts=("/data:/data:ro",),
        gpu="nvidia",
        args=("--container-name=nccl:no_exec", "--container-remap-root"),
    )
    spec = JobSpec(
        name="nccl",
        launch=Launch.MPI,
        command=("all_reduce_perf", "-b", "8", "-e", "8G", "-f", "2", "-g", "1"),
        nodes=2,
        ranks_per_node=8,
        env={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"},
        options={"slurm.gpus": "a100:8", "slurm.exclusive": "user", "slurm.cpus-per-task": "16", "slurm.signal": "USR1@120"},
        container=container,
    )  # fmt: skip
    plan = SlurmBackend(cast("Agents", None)).plan(read_cluster(SAMPLES / "slurm-a100.yaml"), spec, "nccl-1")  # fmt: skip

    compare("slurm-a100.pyxis-nccl", write_plan(plan))


EVERY_OPTION = (
    "--container-name=work",
    "--no-container-mount-home",
    "--container-remap-root",
    "--container-writable",
)
ON_SLURM = {
    "pyxis": Container(
        image="/images/app.sqsh", runtime="enroot", gpu="nvidia", workdir="/work",
        mounts=("/data:/data:ro", "/scratch:/scratch"), args=EVERY_OPTION,
    ),
    "apptainer": Container(
        image="/images/app.sif", runtime="apptainer", gpu="nvidia", workdir="/work", mounts=("/data:/data:ro",)
    ),
    "podman": Container(
        image="registry.example.org/app:1", runtime="podman", gpu="nvidia", workdir="/work", mounts=("/data:/data:ro",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("runtime", ON_SLURM)
def test_every_runtime_on_slurm_is_planned_to_the_letter(runtime: str, launch: Launch) -> None:
    spec = JobSpec(
        name="app", launch=launch, command=("app.py", "--steps", "5"), nodes=2, ranks_per_node=8,
        env={"NCCL_IB_HCA": "=mlx5_0", "TOKEN": "a b"}, options={"slurm.gpus": "8"}, container=ON_SLURM[runtime],
    )  # fmt: skip
    plan = SlurmBackend(cast("Agents", None)).plan(read_cluster(SAMPLES / "slurm-a100.yaml"), spec, "app-1")  # fmt: skip
    (told,) = [file.text for file in plan.nodes[0].files if file.path == "job.sbatch"]

    compare(f"slurm-runtime.{runtime}.{launch}", told)


def test_a_parameter_that_the_job_sets_is_not_set_again() -> None:
    said = ("--mca", "btl_vader_single_copy_mechanism", "none")
    spec = short(read_job(SAMPLES / "jobs" / "mpi-hello.yaml"))
    container = Container(image="app.sif")
    spec = replace(spec, container=container, mpi=MpiOptions(args=said))
    plan = plan_job(read_cluster(SAMPLES / "two-pis.yaml"), spec, "hello-1")

    argv = plan.nodes[0].processes[0].argv
    assert argv.count(said[1]) == 1
    assert argv.count("smsc") == 1


@pytest.mark.parametrize("option", ["--bind-to", "-bind-to"])
def test_where_ranks_are_bound_is_what_the_user_says(option: str) -> None:
    spec = short(read_job(SAMPLES / "jobs" / "mpi-hello.yaml"))
    spec = replace(spec, mpi=MpiOptions(args=(option, "core")))

    argv = plan_job(read_cluster(SAMPLES / "two-pis.yaml"), spec, "hello-1").nodes[0].processes[0].argv  # fmt: skip

    assert [word for word in argv if word.lstrip("-") == "bind-to"] == [option]
    assert "none" not in argv
