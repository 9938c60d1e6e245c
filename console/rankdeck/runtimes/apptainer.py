"""Apptainer and Singularity: an image file, the host's environment, home and network."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.model.job import Container, Launch
from rankdeck.runtimes.common import NO_SINGLE_COPY, mounts


class Apptainer:
    """`apptainer exec`, one per rank."""

    name: ClassVar[str] = "apptainer"
    prefix: ClassVar[str] = "APPTAINERENV_"

    def wrap(
        self,
        argv: Sequence[str],
        container: Container,
        env: Mapping[str, str],
        launch: Launch,
    ) -> tuple[str, ...]:
        """Variables go by prefix, which wins over the image; `--env` would split at commas."""
        variables = tuple(f"{self.prefix}{key}={value}" for key, value in env.items())
        options: list[str] = [f"--bind={mount}" for mount in mounts(container, launch)]
        if container.gpu:
            options.append("--nv")
        if container.workdir:
            options.append(f"--pwd={container.workdir}")
        command = (self.name, "exec", *options, *container.args, container.image, *argv)
        return ("env", *variables, *command) if variables else command

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """No single-copy transfers: each rank has a user namespace of its own."""
        return NO_SINGLE_COPY.get(flavour, ())


class Singularity(Apptainer):
    """`singularity exec`: the same words under the older name."""

    name: ClassVar[str] = "singularity"
    prefix: ClassVar[str] = "SINGULARITYENV_"
