"""Docker: `docker run` per rank, with the host's network, processes and shared memory.

The variables that a launcher sets, the user and the RDMA devices are known only on the node,
so a line of sh adds them.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.model.job import Container, Launch
from rankdeck.runtimes.common import (
    AMD_DEVICES,
    FORWARD,
    RDMA_DEVICES,
    mounts,
    no_single_copy,
    without_host_mpi,
)

_START = (
    f'if [ -d {RDMA_DEVICES} ]; then set -- "--device={RDMA_DEVICES}" '
    '--ulimit=memlock=-1 --cap-add=IPC_LOCK "$@"; fi; '
    f"{FORWARD}; "
    ': >"$RANKDECK_RUN/container.docker"; '
    'exec docker run "--user=$(id -u):$(id -g)" "--label=rankdeck.job=$RANKDECK_JOB" '
    '"--label=rankdeck.run=$RANKDECK_RUN" "$@"'
)
_ALWAYS = ("--rm", "--net=host", "--pid=host", "--ipc=host")
_GPU = {"nvidia": ("--gpus=all",), "amd": (*AMD_DEVICES, "--group-add=video")}


class Docker:
    """`docker run`, one per rank; `--pid=host` lets cancel see the processes."""

    name: ClassVar[str] = "docker"

    def wrap(
        self,
        argv: Sequence[str],
        container: Container,
        env: Mapping[str, str],
        launch: Launch,
    ) -> tuple[str, ...]:
        """All variables by name: what stands in a command, everybody on the node can read."""
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
        return (*prefix, "sh", "-c", _START, "docker-run", *command)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Nothing: it is told the names, and finds the values in its environment."""
        return {}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """No single-copy transfers: Docker's seccomp profile forbids them."""
        return no_single_copy(flavour)
