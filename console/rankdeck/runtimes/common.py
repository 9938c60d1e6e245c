"""What containers of all kinds have in common: mounts, a launcher's variables, GPUs."""

from rankdeck.model.job import Container, Launch
from rankdeck_agent.wire import RUN_TOKEN

LAUNCHER_VARIABLES = (
    "(OMPI|PMIX|PMI|PRTE|MPI|MPIR|HYDI|SLURM|UCX|NCCL|RCCL|GLOO|TORCHELASTIC|TORCH|RANKDECK)_[A-Za-z0-9_]*"
    "|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_RANK"
    "|ROLE_WORLD_SIZE|ROLE_NAME|MASTER_ADDR|MASTER_PORT|TF_CONFIG|OMP_NUM_THREADS"
    "|PYTHONUNBUFFERED|HWLOC_COMPONENTS|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES"
)
"""Names that a launcher sets for each rank: known only when the rank starts."""
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
"""Where the host's MPI lies: set for every rank, and wrong for the MPI of an image."""
_NO_SINGLE_COPY = {
    "btl_vader_single_copy_mechanism": "none",
    "smsc": "^cma",
}
"""The parameter of Open MPI 4 and of 5: the one inside may be another than the launcher."""


def mounts(container: Container, launch: Launch) -> tuple[str, ...]:
    """`source:target` of what every rank needs and of what the job asks for.

    MPI ranks meet their daemon, and each other, in files under /tmp.
    """
    needed = ["/tmp:/tmp"] if launch is Launch.MPI else []
    return (*needed, f"{RUN_TOKEN}:{RUN_TOKEN}", *container.mounts)


def without_host_mpi(launch: Launch) -> tuple[str, ...]:
    """`env -u …` to put before the runtime of MPI ranks; nothing for others."""
    away = [word for name in _HOST_MPI for word in ("-u", name)]
    return ("env", *away) if launch is Launch.MPI else ()


def no_single_copy(flavour: str) -> tuple[str, ...]:
    """Arguments of mpirun for ranks that cannot read each other's memory."""
    if not flavour.startswith("openmpi"):
        return ()
    return tuple(word for name, value in _NO_SINGLE_COPY.items() for word in ("--mca", name, value))
