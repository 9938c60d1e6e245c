"""Apptainer and Singularity: an image file, the host's environment, home and network."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.model.job import Container, Launch
from rankdeck.runtimes.common import mounts, no_single_copy, without_host_mpi

_GPU = {"nvidia": ("--nv",), "amd": ("--rocm",)}


class Apptainer:
    """`apptainer exec`, one per rank; `/dev`, `/dev/shm` and memlock are the host's."""

    name: ClassVar[str] = "apptainer"
    prefix: ClassVar[str] = "APPTAINERENV_"

    def wrap(
        self,
        argv: Sequence[str],
        container: Container,
        env: Mapping[str, str],
        launch: Launch,
    ) -> tuple[str, ...]:
        """The variables go by the environment, see `variables`."""
        options = [f"--bind={mount}" for mount in mounts(container, launch)]
        options += _GPU.get(container.gpu, ())
        if container.workdir:
            options.append(f"--pwd={container.workdir}")
        # Quiet: else every rank says which optional programs the node lacks.
        command = (self.name, "--quiet", "exec", *options, *container.args)
        prefix = without_host_mpi(launch)
        return (*prefix, *command, container.image, *argv)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Each by its prefixed name, which wins over the image; `--env` would show the values."""
        return {f"{self.prefix}{key}": value for key, value in env.items()}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """No single-copy transfers: each rank has a user namespace of its own."""
        return no_single_copy(flavour)


class Singularity(Apptainer):
    """`singularity exec`: the same words under the older name."""

    name: ClassVar[str] = "singularity"
    prefix: ClassVar[str] = "SINGULARITYENV_"
