"""Contract tests of the container runtimes."""

import os
import subprocess
from pathlib import Path

import pytest

from rankdeck import plugins
from rankdeck.model.job_spec import GPUS, Container, Launch
from rankdeck.preflight.doctor import list_tools
from rankdeck.runtimes import Runtime, find_runtime, has_store
from rankdeck_agent.container_engines import ENGINES

NAMES = plugins.plugin_names("runtimes")
REAL = [name for name in NAMES if name != "none"]
ENV = {"A": "1,2 3"}
ARGV = ("app", "a b", "it's", "$HOME", "", "--gpus")
GPU = {
    ("apptainer", "nvidia"): "--nv",
    ("apptainer", "amd"): "--rocm",
    ("singularity", "nvidia"): "--nv",
    ("singularity", "amd"): "--rocm",
    ("podman", "nvidia"): "--device=nvidia.com/gpu=all",
    ("podman", "amd"): "--device=/dev/kfd",
    ("docker", "nvidia"): "--gpus=all",
    ("docker", "amd"): "--device=/dev/kfd",
    ("enroot", "nvidia"): "--env=NVIDIA_VISIBLE_DEVICES=all",
    ("enroot", "amd"): "",  # the host's /dev is there already
}
PROGRAM = {name: find_runtime(name).program for name in REAL}
PREFIXED = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}
"""Runtimes that take variables under another name from their environment."""
RECORD = '#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\necho "PREFIX=$OPAL_PREFIX"\n'
RANK = {
    "OMPI_COMM_WORLD_RANK": "3", "PMIX_SERVER_URI2": "a;tcp4://10.0.0.1:5", "MASTER_ADDR": "n1",
    "NCCL_IB_HCA": "=mlx5_0", "RANKDECK_JOB": "j-1", "PYTHONUNBUFFERED": "1",
}  # fmt: skip
"""Some of what a rank finds in its environment on the host."""


def wrap(name: str, launch: Launch = Launch.PLAIN, **options: object) -> tuple[str, ...]:
    runtime: Runtime = plugins.find_plugin("runtimes", name)()
    container = Container(image="img:1", runtime=name, **options)  # type: ignore[arg-type]
    return runtime.wrap(ARGV, container, ENV, launch)


@pytest.fixture
def told(tmp_path: Path):
    """Run a wrapped command; the runtime is a program that records its arguments."""

    def run(name: str, launch: Launch, **options: object) -> list[str]:
        program = tmp_path / PROGRAM[name]
        program.write_text(RECORD)
        program.chmod(0o755)
        env = {
            **RANK,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "OPAL_PREFIX": "/opt/mpi",
            "RANKDECK_RUN": str(tmp_path),
        }
        done = subprocess.run(
            wrap(name, launch, **options), env=env, capture_output=True, text=True, check=True
        )  # fmt: skip
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("name", NAMES)
def test_the_command_comes_last_word_for_word(name: str, launch: Launch) -> None:
    assert wrap(name, launch)[-len(ARGV) :] == ARGV


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("name", REAL)
def test_the_runtime_hears_every_word_as_it_was(told, name: str, launch: Launch) -> None:
    words = told(name, launch)

    assert words[-1 - len(ARGV) : -1] == list(ARGV)
    assert words[-2 - len(ARGV)] == "img:1"


@pytest.mark.parametrize("name", REAL)
def test_where_the_hosts_mpi_lies_is_kept_from_the_image(told, name: str) -> None:
    assert told(name, Launch.MPI)[-1] == "PREFIX="


@pytest.mark.parametrize("name", ["docker", "enroot"])
def test_what_the_launcher_tells_a_rank_goes_in_by_name(told, name: str) -> None:
    words = told(name, Launch.MPI)

    assert {f"--env={variable}" for variable in RANK} <= set(words)
    assert "--env=PATH" not in words


@pytest.mark.parametrize("name", ["podman", "docker"])
def test_a_container_carries_its_job_and_folder_as_labels(told, name: str, tmp_path: Path) -> None:
    said = told(name, Launch.PLAIN)

    assert {"--label=rankdeck.job=j-1", f"--label=rankdeck.run={tmp_path}"} <= set(said)
    assert (tmp_path / f"container.{name}").exists()


@pytest.mark.parametrize("name", REAL)
def test_the_image_stands_before_the_command_and_options_before_the_image(
    name: str,
) -> None:
    argv = wrap(name, args=("--extra",))
    image = argv.index("img:1")

    assert argv[image + 1 :] == ARGV
    assert argv.index("--extra") < image


@pytest.mark.parametrize("name", REAL)
def test_mounts_variables_and_the_folder_are_passed(name: str) -> None:
    argv = wrap(name, mounts=("/data:/data:ro",), workdir="/w x")

    assert any(word.endswith("=/data:/data:ro") for word in argv)
    assert any(word.endswith("=${RANKDECK_RUN}:${RANKDECK_RUN}") for word in argv)
    assert name in PREFIXED or "--env=A" in argv
    assert any(word == "/w x" or word.endswith("=/w x") for word in argv)


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("name", NAMES)
def test_no_command_shows_the_value_of_a_variable(name: str, launch: Launch) -> None:
    assert "1,2 3" not in " ".join(wrap(name, launch))


@pytest.mark.parametrize("name", NAMES)
def test_a_runtime_that_wants_other_names_says_so(name: str) -> None:
    wanted = {f"{PREFIXED[name]}A": "1,2 3"} if name in PREFIXED else {}

    assert plugins.find_plugin("runtimes", name)().variables(ENV) == wanted


@pytest.mark.parametrize("vendor", GPUS)
@pytest.mark.parametrize("name", REAL)
def test_gpus_are_given_only_when_asked_for(name: str, vendor: str) -> None:
    word = GPU[name, vendor]

    assert not word or word in wrap(name, gpu=vendor)
    assert word not in wrap(name)[:-3]


@pytest.mark.parametrize("name", REAL)
def test_mpi_ranks_share_tmp_with_their_daemon(name: str) -> None:
    assert any(word.endswith("=/tmp:/tmp") for word in wrap(name, Launch.MPI))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("flavour", ["openmpi5", "openmpi4", "mpich", "unknown"])
def test_launcher_arguments_are_words(name: str, flavour: str) -> None:
    words = plugins.find_plugin("runtimes", name)().launcher_args(flavour)

    assert all(isinstance(word, str) for word in words)


@pytest.mark.parametrize("flavour", ["openmpi4", "openmpi5"])
def test_single_copy_is_switched_off_in_both_mpis_words(flavour: str) -> None:
    words = " ".join(plugins.find_plugin("runtimes", "apptainer")().launcher_args(flavour))

    assert "--mca btl_vader_single_copy_mechanism none" in words
    assert "--mca smsc ^cma" in words


def test_console_and_agent_agree_whose_images_are_in_a_store() -> None:
    assert {name for name in ("", *NAMES) if has_store(name)} == set(ENGINES)


@pytest.mark.parametrize("name", REAL)
def test_its_container_is_found_by_the_agent_that_ends_the_job(name: str) -> None:
    """The rank leaves a file with the engine's name, by which the agent knows what to remove."""
    marks = f"container.{name}" in " ".join(wrap(name))

    assert marks == (name in ENGINES)


@pytest.mark.parametrize("name", REAL)
def test_a_person_can_try_and_fetch_the_image_by_its_own_program(name: str) -> None:
    runtime = find_runtime(name)

    assert runtime.trial("img:1").split()[0] == runtime.program
    assert runtime.pull("docker://host/path/img:1").split()[0] == runtime.program
    assert not runtime.twin or find_runtime(runtime.twin).twin == name


@pytest.mark.parametrize("name", REAL)
def test_the_pages_and_the_examination_of_nodes_know_it(name: str) -> None:
    page = Path("docs/containers.md").read_text()

    assert name in next(line for line in page.splitlines() if "runtime: " in line)
    assert find_runtime(name).program in {word for tool in list_tools() for word in tool.programs}
