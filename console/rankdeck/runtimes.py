"""Container runtimes: each turns the command of a rank into one that runs it in a container."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from rankdeck import plugins
from rankdeck.model.job_spec import Container, Launch
from rankdeck_agent.wire import RANK_IN_SHELL, RUN_TOKEN


class Runtime(Protocol):
    """Turns the command of a rank into one that runs it inside an image. All methods are pure."""

    name: ClassVar[str]
    """The value of `runtime:` in a job file."""
    program: ClassVar[str]
    """The command that starts it, in PATH of the nodes; "" if there is none."""
    twin: ClassVar[str]
    """The runtime that takes the same options and images; "" if there is none."""
    tells_version: ClassVar[bool]
    """Whether its program prints its version when asked with `--version`."""
    in_srun: ClassVar[bool]
    """Whether Pyxis, the plug-in of Slurm, opens its images: then srun starts the container."""
    shuts_out: ClassVar[frozenset[str]]
    """Its options that keep the variables of the launcher out of the container."""
    user_namespaces: ClassVar[bool]
    """Whether ordinary users need user namespaces for it (unless it is installed setuid)."""
    has_store: ClassVar[bool]
    """Whether it keeps images in its own store; if not, images are files or folders."""
    has_server: ClassVar[bool]
    """Whether a server starts its containers, outside the cgroup
    of the process that requested it.
    """

    def wrap(
        self, argv: Sequence[str], container: Container, env: Mapping[str, str], launch: Launch
    ) -> tuple[str, ...]:
        """The command to run on the host. `env` has the variables that
        the job sets inside the container.

        The command must not contain values of `env`: every user of the node can read arguments.
        """
        ...

    def variables(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """More variables to set on the host, so that `env` reaches the container."""
        ...

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """Arguments for mpirun of this flavour (`openmpi5`, `mpich`, …)
        if its ranks run in containers.
        """
        ...

    def shell(self, container: Container, job: str, rank: int) -> tuple[str, ...]:
        """The command that opens a shell in the container of this rank;
        it needs a terminal on the node.

        () if there is none. A runtime that cannot enter a running container
        starts a new one of the same image.
        """
        ...

    def trial(self, image: str) -> str:
        """The shortest command by which a person can try whether the image starts on a node."""
        ...

    def pull(self, image: str) -> str:
        """The command that fetches an image from a registry, once for all ranks."""
        ...

    def create(self, image: str) -> str:
        """How a person makes the named container that a job file calls `image`, in words;
        "" for runtimes and images without that step.
        """
        ...


def find_runtime(name: str) -> Runtime:
    """The runtime with this name; raises UnknownPluginError."""
    return plugins.find_plugin("runtimes", name)()


def has_store(runtime: str) -> bool:
    """Whether this runtime keeps images in a store; False for "" (no runtime)."""
    return bool(runtime) and find_runtime(runtime).has_store


LAUNCHER_VARIABLES = (
    "(OMPI|PMIX|PMI|PRTE|MPI|MPIR|HYDI|SLURM|UCX|FI|NCCL|RCCL|GLOO|JAX|TORCHELASTIC|TORCH|RANKDECK)_[A-Za-z0-9_]*"
    "|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_RANK"
    "|ROLE_WORLD_SIZE|ROLE_NAME|MASTER_ADDR|MASTER_PORT|TF_CONFIG|OMP_NUM_THREADS"
    "|PYTHONUNBUFFERED|HWLOC_COMPONENTS|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES"
)
"""Pattern of variables that a launcher sets for each rank; their values
are known only when the rank starts.
"""
FORWARD = (
    f"for n in $(env | sed -nE 's/^({LAUNCHER_VARIABLES})=.*/\\1/p'); "
    'do set -- "--env=$n" "$@"; done'
)
"""sh: put `--env=NAME` before the arguments for each such variable that is set."""
RDMA_DEVICES = "/dev/infiniband"
AMD_DEVICES = ("--device=/dev/kfd", "--device=/dev/dri")
_HOST_MPI = (
    "OPAL_PREFIX", "PMIX_PREFIX", "PMIX_INSTALL_PREFIX", "PRTE_PREFIX", "OMPI_LIBDIR_LOC",
    "OMPI_MCA_mca_base_component_path",
)  # fmt: skip
"""Variables with paths of the host's MPI: set for every rank, and wrong for the MPI of an image."""
_NO_SINGLE_COPY = {"btl_vader_single_copy_mechanism": "none", "smsc": "^cma"}
"""The parameters of Open MPI 4 and of 5: the version in the
image may differ from the launcher's.
"""


def container_mounts(container: Container, launch: Launch) -> tuple[str, ...]:
    """The mounts (`source:target`) that every rank needs, and those of the job.

    MPI ranks connect to their daemon, and to each other, through files under /tmp.
    """
    needed = ["/tmp:/tmp"] if launch is Launch.MPI else []
    return (*needed, f"{RUN_TOKEN}:{RUN_TOKEN}", *container.mounts)


def without_host_mpi(launch: Launch) -> tuple[str, ...]:
    """`env -u …` to put before the runtime's command for MPI ranks; () for others."""
    away = [word for name in _HOST_MPI for word in ("-u", name)]
    return ("env", *away) if launch is Launch.MPI else ()


def no_single_copy(flavour: str) -> tuple[str, ...]:
    """Arguments of mpirun for ranks that cannot read each other's memory."""
    if not flavour.startswith("openmpi"):
        return ()
    return tuple(word for name, value in _NO_SINGLE_COPY.items() for word in ("--mca", name, value))


class Bare:
    """Runs a rank on the host."""

    name: ClassVar[str] = "none"
    program: ClassVar[str] = ""
    twin: ClassVar[str] = ""
    tells_version: ClassVar[bool] = False
    in_srun: ClassVar[bool] = False
    shuts_out: ClassVar[frozenset[str]] = frozenset()
    user_namespaces: ClassVar[bool] = False
    has_store: ClassVar[bool] = False
    has_server: ClassVar[bool] = False

    def wrap(
        self, argv: Sequence[str], container: Container, env: Mapping[str, str], launch: Launch
    ) -> tuple[str, ...]:
        """The command unchanged: the process already has the job's variables."""
        return tuple(argv)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """None: the program has the environment of its process."""
        return {}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """None."""
        return ()

    def shell(self, container: Container, job: str, rank: int) -> tuple[str, ...]:
        """(): the rank runs on the host."""
        return ()

    def trial(self, image: str) -> str:
        """ "": there is no image."""
        return ""

    def pull(self, image: str) -> str:
        """ "": there is no image."""
        return ""

    def create(self, image: str) -> str:
        """ "": there is no image."""
        return ""


_APPTAINER_GPU = {"nvidia": ("--nv",), "amd": ("--rocm",)}


def _file_name(image: str) -> str:
    """`docker://host/path/name:tag` as the name of a file: `name-tag`."""
    return image.rpartition("/")[2].replace(":", "-")


class Apptainer:
    """`apptainer exec`, one per rank; `/dev`, `/dev/shm` and memlock are the host's."""

    name: ClassVar[str] = "apptainer"
    program: ClassVar[str] = "apptainer"
    twin: ClassVar[str] = "singularity"
    tells_version: ClassVar[bool] = True
    in_srun: ClassVar[bool] = False
    shuts_out: ClassVar[frozenset[str]] = frozenset(
        ("-e", "--cleanenv", "-C", "--containall", "-c", "--contain")
    )
    user_namespaces: ClassVar[bool] = True
    has_store: ClassVar[bool] = False
    has_server: ClassVar[bool] = False
    prefix: ClassVar[str] = "APPTAINERENV_"

    def wrap(
        self, argv: Sequence[str], container: Container, env: Mapping[str, str], launch: Launch
    ) -> tuple[str, ...]:
        """The variables are passed through the environment, see `variables`."""
        options = [f"--bind={mount}" for mount in container_mounts(container, launch)]
        options += _APPTAINER_GPU.get(container.gpu, ())
        if container.workdir:
            options.append(f"--pwd={container.workdir}")
        # Without --quiet, every rank prints which optional programs the node lacks.
        command = (self.program, "--quiet", "exec", *options, *container.args)
        return (*without_host_mpi(launch), *command, container.image, *argv)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Each variable under its prefixed name, which overrides the
        image's; `--env` would show the values.
        """
        return {f"{self.prefix}{key}": value for key, value in env.items()}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """No single-copy transfers: each rank has its own user namespace."""
        return no_single_copy(flavour)

    def shell(self, container: Container, job: str, rank: int) -> tuple[str, ...]:
        """A new container of the same image: the container of a rank
        has no name by which to enter it.
        """
        binds = [f"--bind={mount}" for mount in container.mounts]
        gpu = _APPTAINER_GPU.get(container.gpu, ())
        return (self.program, "--quiet", "shell", *binds, *gpu, container.image)

    def trial(self, image: str) -> str:
        """`apptainer exec IMAGE true`."""
        return f"{self.program} exec {image} true"

    def pull(self, image: str) -> str:
        """A SIF file in this folder."""
        return f"{self.program} pull {_file_name(image)}.sif {image}"

    def create(self, image: str) -> str:
        """ "": an image is a file or a folder."""
        return ""


class Singularity(Apptainer):
    """`singularity exec`: the same options under the older name."""

    name: ClassVar[str] = "singularity"
    program: ClassVar[str] = "singularity"
    twin: ClassVar[str] = "apptainer"
    prefix: ClassVar[str] = "SINGULARITYENV_"


# For root, Podman refuses --userns=keep-id, and it is not needed.
_PODMAN_START = (
    f'if [ -d {RDMA_DEVICES} ]; then set -- "--device={RDMA_DEVICES}" "$@"; fi; '
    'if [ "$(id -u)" != 0 ]; then set -- --userns=keep-id "$@"; fi; '
    ': >"$RANKDECK_RUN/container.podman"; '
    'exec podman run "--label=rankdeck.job=$RANKDECK_JOB" '
    '"--label=rankdeck.run=$RANKDECK_RUN" "$@"'
)
_PODMAN_ALWAYS = (
    "--rm", "--env-host", "--net=host", "--pid=host", "--ipc=host", "--ulimit=host",
    "--security-opt=label=disable",
)  # fmt: skip
_PODMAN_GPU = {
    "nvidia": ("--device=nvidia.com/gpu=all",),
    "amd": (*AMD_DEVICES, "--group-add=keep-groups"),
}


_ENTER = (
    'for id in $("$1" ps --quiet --filter "label=$2"); do '
    f"""[ "$("$1" exec "$id" sh -c 'echo "{RANK_IN_SHELL}"')" = "$3" ] && """
    'exec "$1" exec --interactive --tty "$id" sh; done; '
    'echo "no container of rank $3 runs here" >&2; exit 1'
)
"""sh: enter the container of a rank."""


class _Engine:
    """What Podman and Docker have in common: one `run` per rank, with the same options."""

    name: ClassVar[str]
    program: ClassVar[str]
    twin: ClassVar[str] = ""
    tells_version: ClassVar[bool] = True
    in_srun: ClassVar[bool] = False
    shuts_out: ClassVar[frozenset[str]] = frozenset()
    has_store: ClassVar[bool] = True
    _start: ClassVar[str]
    """The shell script that adds options known only on the node, and runs the engine."""
    _always: ClassVar[tuple[str, ...]]
    _gpu: ClassVar[Mapping[str, tuple[str, ...]]]
    """Vendor of the GPUs -> options that hand them to the container."""

    def wrap(
        self, argv: Sequence[str], container: Container, env: Mapping[str, str], launch: Launch
    ) -> tuple[str, ...]:
        """All variables by name only: every user of the node can read arguments."""
        options = [
            *self._always,
            *(f"--volume={mount}" for mount in container_mounts(container, launch)),
        ]
        options += [f"--env={name}" for name in env]
        options += self._gpu.get(container.gpu, ())
        if container.workdir:
            options.append(f"--workdir={container.workdir}")
        command = (*options, *container.args, container.image, *argv)
        start = ("sh", "-c", self._start, f"{self.name}-run")
        return (*without_host_mpi(launch), *start, *command)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Nothing: it gets the names, and reads the values from its environment."""
        return {}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """No single-copy transfers: Podman gives each rank a user
        namespace, Docker's seccomp forbids them.
        """
        return no_single_copy(flavour)

    def shell(self, container: Container, job: str, rank: int) -> tuple[str, ...]:
        """Enters the rank's own container: the one with the job's label
        whose launcher variable has this rank.
        """
        return (
            "sh",
            "-c",
            _ENTER,
            f"{self.name}-exec",
            self.program,
            f"rankdeck.job={job}",
            str(rank),
        )

    def trial(self, image: str) -> str:
        """`podman run --rm IMAGE true`."""
        return f"{self.program} run --rm {image} true"

    def pull(self, image: str) -> str:
        """Into its store."""
        return f"{self.program} pull {image}"

    def create(self, image: str) -> str:
        """ "": every rank has a container of its own, which is made when it starts."""
        return ""


class Podman(_Engine):
    """`podman run`, one per rank, for an ordinary user or root.

    `--env-host` passes the launcher's variables; the job's own are named and override the image's.
    """

    name: ClassVar[str] = "podman"
    program: ClassVar[str] = "podman"
    user_namespaces: ClassVar[bool] = True
    has_server: ClassVar[bool] = False
    _start = _PODMAN_START
    _always = _PODMAN_ALWAYS
    _gpu = _PODMAN_GPU


_DOCKER_START = (
    f'if [ -d {RDMA_DEVICES} ]; then set -- "--device={RDMA_DEVICES}" '
    '--ulimit=memlock=-1 --cap-add=IPC_LOCK "$@"; fi; '
    f"{FORWARD}; "
    ': >"$RANKDECK_RUN/container.docker"; '
    'exec docker run "--user=$(id -u):$(id -g)" "--label=rankdeck.job=$RANKDECK_JOB" '
    '"--label=rankdeck.run=$RANKDECK_RUN" "$@"'
)
_DOCKER_ALWAYS = ("--rm", "--net=host", "--pid=host", "--ipc=host")
_DOCKER_GPU = {"nvidia": ("--gpus=all",), "amd": (*AMD_DEVICES, "--group-add=video")}


class Docker(_Engine):
    """`docker run`, one per rank; `--pid=host` lets cancel see the processes."""

    name: ClassVar[str] = "docker"
    program: ClassVar[str] = "docker"
    user_namespaces: ClassVar[bool] = False
    has_server: ClassVar[bool] = True
    _start = _DOCKER_START
    _always = _DOCKER_ALWAYS
    _gpu = _DOCKER_GPU


_ENROOT_START = (
    f'if [ -d {RDMA_DEVICES} ]; then set -- "--env=MELLANOX_VISIBLE_DEVICES=all" "$@"; fi; '
    f'{FORWARD}; exec enroot start "$@"'
)
_ENROOT_GPU = {
    "nvidia": (
        "--env=NVIDIA_VISIBLE_DEVICES=all",
        "--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    )
}
"""Without the first there is no GPU, without the second no CUDA.

AMD's devices are in the host's /dev.
"""


class Enroot:
    """`enroot start`, one per rank, all in the host's namespaces except for mounts."""

    name: ClassVar[str] = "enroot"
    program: ClassVar[str] = "enroot"
    twin: ClassVar[str] = ""
    tells_version: ClassVar[bool] = False
    in_srun: ClassVar[bool] = True
    shuts_out: ClassVar[frozenset[str]] = frozenset()
    user_namespaces: ClassVar[bool] = True
    has_store: ClassVar[bool] = False
    has_server: ClassVar[bool] = False

    def wrap(
        self, argv: Sequence[str], container: Container, env: Mapping[str, str], launch: Launch
    ) -> tuple[str, ...]:
        """Enroot has no option for the working folder, so a line of sh
        inside the image changes to it.
        """
        options = [f"--mount={mount}" for mount in container_mounts(container, launch)]
        options += [f"--env={name}" for name in env]
        options += _ENROOT_GPU.get(container.gpu, ())
        inside = tuple(argv)
        if container.workdir:
            inside = ("sh", "-c", 'cd "$0" && exec "$@"', container.workdir, *argv)
        command = (*options, *container.args, container.image, *inside)
        start = ("sh", "-c", _ENROOT_START, "enroot-start")
        return (*without_host_mpi(launch), *start, *command)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Nothing: it gets the names, and reads the values from its environment."""
        return {}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """None: the ranks of a node share their namespaces."""
        return ()

    def shell(self, container: Container, job: str, rank: int) -> tuple[str, ...]:
        """A new container of the same image."""
        binds = [f"--mount={mount}" for mount in container.mounts]
        return (self.program, "start", *binds, container.image, "sh")

    def trial(self, image: str) -> str:
        """`enroot start IMAGE true`."""
        return f"{self.program} start {image} true"

    def pull(self, image: str) -> str:
        """A squashfs file in this folder."""
        return f"{self.program} import -o {_file_name(image)}.sqsh {image}"

    def create(self, image: str) -> str:
        """From a file with the container's name, which is pushed first."""
        if "/" in image:
            return ""
        file = f"{image}.sqsh"
        return (
            f"push its file there, say {file}, then `{self.program} create --name {image} {file}`"
        )
