"""What containers of all kinds have in common: mounts, and a launcher's variables."""

from rankdeck.model.job import Container, Launch
from rankdeck_agent.wire import RUN_TOKEN

LAUNCHER_VARIABLES = (
    "(OMPI|PMIX|PMI|PRTE|MPI|MPIR|HYDI|SLURM|UCX|NCCL|GLOO|TORCHELASTIC|TORCH|RANKDECK)_[A-Za-z0-9_]*"
    "|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_RANK"
    "|ROLE_WORLD_SIZE|ROLE_NAME|MASTER_ADDR|MASTER_PORT|TF_CONFIG|OMP_NUM_THREADS"
)
"""Names that a launcher sets for each rank: known only when the rank starts."""
FORWARD = (
    f"for n in $(env | sed -nE 's/^({LAUNCHER_VARIABLES})=.*/\\1/p'); "
    'do set -- "--env=$n" "$@"; done'
)
"""sh: put `--env=NAME` before the arguments for each such variable that is set."""
RDMA_DEVICES = "/dev/infiniband"
NO_SINGLE_COPY = {
    "openmpi4": ("--mca", "btl_vader_single_copy_mechanism", "none"),
    "openmpi5": ("--mca", "smsc", "^cma"),
}
"""Ranks in user namespaces of their own cannot read each other's memory."""


def mounts(container: Container, launch: Launch) -> tuple[str, ...]:
    """`source:target` of what every rank needs and of what the job asks for.

    MPI ranks meet their daemon, and each other, in files under /tmp.
    """
    needed = ["/tmp:/tmp"] if launch is Launch.MPI else []
    return (*needed, f"{RUN_TOKEN}:{RUN_TOKEN}", *container.mounts)
