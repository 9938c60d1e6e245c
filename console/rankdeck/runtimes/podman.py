"""Podman: `podman run` per rank with the host's environment, network and processes."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.model.job import Container, Launch
from rankdeck.runtimes.common import (
    AMD_DEVICES,
    RDMA_DEVICES,
    mounts,
    no_single_copy,
    without_host_mpi,
)

# Root is root inside already, and Podman refuses to keep its number.
_START = (
    f'if [ -d {RDMA_DEVICES} ]; then set -- "--device={RDMA_DEVICES}" "$@"; fi; '
    'if [ "$(id -u)" != 0 ]; then set -- --userns=keep-id "$@"; fi; '
    ': >"$RANKDECK_RUN/container.podman"; '
    'exec podman run "--label=rankdeck.job=$RANKDECK_JOB" '
    '"--label=rankdeck.run=$RANKDECK_RUN" "$@"'
)
_ALWAYS = (
    "--rm", "--env-host", "--net=host", "--pid=host", "--ipc=host", "--ulimit=host",
    "--security-opt=label=disable",
)  # fmt: skip
_GPU = {
    "nvidia": ("--device=nvidia.com/gpu=all",),
    "amd": (*AMD_DEVICES, "--group-add=keep-groups"),
}


class Podman:
    """`podman run`, one per rank, of an ordinary user or of root."""

    name: ClassVar[str] = "podman"

    def wrap(
        self,
        argv: Sequence[str],
        container: Container,
        env: Mapping[str, str],
        launch: Launch,
    ) -> tuple[str, ...]:
        """`--env-host` passes the launcher's variables; the job's own, named, win over the image."""
        options = [
            *_ALWAYS,
            *(f"--volume={mount}" for mount in mounts(container, launch)),
        ]
        options += [f"--env={name}" for name in env]
        options += _GPU.get(container.gpu, ())
        if container.workdir:
            options.append(f"--workdir={container.workdir}")
        command = (*options, *container.args, container.image, *argv)
        prefix = without_host_mpi(launch)
        return (*prefix, "sh", "-c", _START, "podman-run", *command)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Nothing: it is told the names, and finds the values in its environment."""
        return {}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """No single-copy transfers: each rank has a user namespace of its own."""
        return no_single_copy(flavour)
