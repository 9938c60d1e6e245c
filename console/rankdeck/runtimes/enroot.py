"""Enroot: `enroot start` per rank; the image's environment unless named."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.model.job import Container, Launch
from rankdeck.runtimes.common import FORWARD, RDMA_DEVICES, mounts, without_host_mpi

_START = (
    f'if [ -d {RDMA_DEVICES} ]; then set -- "--env=MELLANOX_VISIBLE_DEVICES=all" "$@"; fi; '
    f'{FORWARD}; exec enroot start "$@"'
)
_GPU = {
    "nvidia": (
        "--env=NVIDIA_VISIBLE_DEVICES=all",
        "--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
}
"""Unset, the first means no GPU and the second no CUDA. AMD's devices are in the host's /dev."""


class Enroot:
    """`enroot start`, one per rank, all in the host's namespaces but for mounts."""

    name: ClassVar[str] = "enroot"

    def wrap(
        self,
        argv: Sequence[str],
        container: Container,
        env: Mapping[str, str],
        launch: Launch,
    ) -> tuple[str, ...]:
        """Enroot has no option for the folder: a line of sh inside the image goes there."""
        options = [f"--mount={mount}" for mount in mounts(container, launch)]
        options += [f"--env={name}" for name in env]
        options += _GPU.get(container.gpu, ())
        inside = tuple(argv)
        if container.workdir:
            inside = ("sh", "-c", 'cd "$0" && exec "$@"', container.workdir, *argv)
        command = (*options, *container.args, container.image, *inside)
        prefix = without_host_mpi(launch)
        return (*prefix, "sh", "-c", _START, "enroot-start", *command)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Nothing: it is told the names, and finds the values in its environment."""
        return {}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """Nothing: ranks of a node share their namespaces."""
        return ()
