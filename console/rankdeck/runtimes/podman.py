"""Podman, rootless: `podman run` per rank with the host's environment, network and processes."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.model.job import Container, Launch
from rankdeck.runtimes.common import NO_SINGLE_COPY, RDMA_DEVICES, mounts

_START = (
    f'if [ -d {RDMA_DEVICES} ]; then set -- "--device={RDMA_DEVICES}" "$@"; fi; '
    'exec podman run "--label=rankdeck.job=$RANKDECK_JOB" "$@"'
)
_ALWAYS = (
    "--rm", "--env-host", "--userns=keep-id", "--net=host", "--pid=host", "--ipc=host",
    "--ulimit=host", "--security-opt=label=disable",
)  # fmt: skip


class Podman:
    """`podman run`, one per rank."""

    name: ClassVar[str] = "podman"

    def wrap(
        self,
        argv: Sequence[str],
        container: Container,
        env: Mapping[str, str],
        launch: Launch,
    ) -> tuple[str, ...]:
        """`--env-host` passes the launcher's variables; the job's own win over the image."""
        options = [
            *_ALWAYS,
            *(f"--volume={mount}" for mount in mounts(container, launch)),
        ]
        options += [f"--env={key}={value}" for key, value in env.items()]
        if container.gpu:
            options.append("--device=nvidia.com/gpu=all")
        if container.workdir:
            options.append(f"--workdir={container.workdir}")
        command = (*options, *container.args, container.image, *argv)
        return ("sh", "-c", _START, "podman-run", *command)

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """No single-copy transfers: each rank has a user namespace of its own."""
        return NO_SINGLE_COPY.get(flavour, ())
