"""What every container runtime must do."""

import pytest

from rankdeck import plugins
from rankdeck.model.job import Container, Launch
from rankdeck.runtimes.base import Runtime

NAMES = plugins.names("runtimes")
REAL = [name for name in NAMES if name != "none"]
ARGV = ("app", "a b", "it's", "$HOME", "", "--gpus")
GPU = {"apptainer": "--nv", "singularity": "--nv", "podman": "nvidia.com/gpu=all",
       "docker": "--gpus=all", "enroot": "NVIDIA_VISIBLE_DEVICES=all"}  # fmt: skip


def wrap(
    name: str, launch: Launch = Launch.PLAIN, **options: object
) -> tuple[str, ...]:
    runtime: Runtime = plugins.find("runtimes", name)()
    container = Container(image="img:1", runtime=name, **options)  # type: ignore[arg-type]
    return runtime.wrap(ARGV, container, {"A": "1,2 3"}, launch)


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("name", NAMES)
def test_the_command_comes_last_word_for_word(name: str, launch: Launch) -> None:
    assert wrap(name, launch)[-len(ARGV) :] == ARGV


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
    assert any(word.endswith("A=1,2 3") for word in argv)
    assert any(word == "/w x" or word.endswith("=/w x") for word in argv)


@pytest.mark.parametrize("name", REAL)
def test_gpus_are_given_only_when_asked_for(name: str) -> None:
    assert any(GPU[name] in word for word in wrap(name, gpu=True))
    assert not any(
        GPU[name] == word or word.endswith(f"={GPU[name]}") for word in wrap(name)
    )


@pytest.mark.parametrize("name", REAL)
def test_mpi_ranks_share_tmp_with_their_daemon(name: str) -> None:
    assert any(word.endswith("=/tmp:/tmp") for word in wrap(name, Launch.MPI))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("flavour", ["openmpi5", "openmpi4", "mpich", "unknown"])
def test_launcher_arguments_are_words(name: str, flavour: str) -> None:
    words = plugins.find("runtimes", name)().launcher_args(flavour)

    assert all(isinstance(word, str) for word in words)


def test_single_copy_is_switched_off_in_each_mpis_words() -> None:
    args = plugins.find("runtimes", "apptainer")().launcher_args

    assert args("openmpi4") == ("--mca", "btl_vader_single_copy_mechanism", "none")
    assert args("openmpi5") == ("--mca", "smsc", "^cma")
