"""What a job file asks for."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from rankdeck.values import Value


class Launch(StrEnum):
    """What starts the ranks."""

    MPI = "mpi"
    TORCHRUN = "torchrun"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    PLAIN = "plain"


GPUS = ("nvidia", "amd")
CLAIM = "pvc:"
"""Prefix of a mount from a Kubernetes volume claim."""


class Container(Value, kw_only=True):
    """The image a rank runs in."""

    image: str
    runtime: str = "apptainer"
    mounts: tuple[str, ...] = ()
    """`source:target[:ro]`; on Kubernetes also `pvc:CLAIM:target[:ro]`."""
    gpu: str = ""
    """Vendor of the GPUs that the container may use: one of `GPUS`, or ""."""
    workdir: str = ""
    args: tuple[str, ...] = ()
    """More arguments for the runtime, passed unchanged."""


class MpiOptions(Value, kw_only=True):
    """How mpirun is called."""

    flavour: str = "openmpi5"
    """openmpi5, openmpi4 or mpich."""
    detect: bool = False
    """The job file names no flavour: use that of the mpirun at `path` on the first node."""
    path: str = "mpirun"
    args: tuple[str, ...] = ()
    launcher: str = "rankdeck"
    """Who starts the remote daemons: "rankdeck", or "ssh" between the nodes."""


class TorchOptions(Value, kw_only=True):
    """How torchrun is called. `port` 0: a free port, found on the first node."""

    path: str = "torchrun"
    port: int = 0
    args: tuple[str, ...] = ()


class Abort(Value, kw_only=True):
    """Gang abort: whether the other ranks are ended when a rank fails or a node stops answering."""

    enabled: bool = True
    countdown: float = 10.0
    """Seconds until they are ended."""


class JobSpec(Value, kw_only=True):
    """A job file."""

    name: str
    launch: Launch
    command: tuple[str, ...]
    nodes: int = 1
    on: tuple[str, ...] = ()
    """Names of the nodes to use; empty: the first `nodes` of the cluster."""
    ranks_per_node: int = 0
    """0: the slots of the node."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> text of files to write into the run folder of every node, e.g. the program itself."""
    container: Container | None = None
    mpi: MpiOptions = field(default_factory=MpiOptions)
    torch: TorchOptions = field(default_factory=TorchOptions)
    grace: float = 10.0
    """Grace period: seconds between SIGTERM and SIGKILL."""
    abort: Abort = field(default_factory=Abort)
    tty: bool = True
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name (step, steps, loss, …) -> regular expression whose first group is the number."""
    file: str = ""
    part_of: str = ""
    """The acceptance run or scaling study that this job measures for; lists of jobs
    leave such jobs out unless asked for.
    """
