"""Finds by name what each backend, container runtime or recipe is, importing only that one."""

import difflib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankdeck.errors import UnknownPluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

BACKENDS = {
    "ssh": "rankdeck.backends.ssh:SshBackend",
    "slurm": "rankdeck.schedulers.slurm.backend:SlurmBackend",
    "kubernetes": "rankdeck.schedulers.kubernetes.backend:KubernetesBackend",
}
QUEUES = {
    "slurm": "rankdeck.schedulers.slurm.queue:SlurmQueue",
    "kubernetes": "rankdeck.schedulers.kubernetes.queue:KubernetesQueue",
}
"""What is asked about the jobs and nodes of a scheduler."""
SECTIONS = {
    "slurm": "rankdeck.schedulers.slurm.options:slurm_options",
    "kubernetes": "rankdeck.schedulers.kubernetes.options:kubernetes_options",
}
"""Sections of cluster and job files that belong to a scheduler -> what reads each."""
RUNTIMES = {
    "none": "rankdeck.runtimes:Bare",
    "apptainer": "rankdeck.runtimes:Apptainer",
    "singularity": "rankdeck.runtimes:Singularity",
    "podman": "rankdeck.runtimes:Podman",
    "docker": "rankdeck.runtimes:Docker",
    "enroot": "rankdeck.runtimes:Enroot",
}
_RECIPES = "rankdeck.acceptance.recipes"
RECIPES = {
    "nccl-tests": f"{_RECIPES}.nccl:AllReduce",
    "nccl-all_gather": f"{_RECIPES}.nccl:AllGather",
    "nccl-reduce_scatter": f"{_RECIPES}.nccl:ReduceScatter",
    "nccl-alltoall": f"{_RECIPES}.nccl:AllToAll",
    "nccl-broadcast": f"{_RECIPES}.nccl:Broadcast",
    "nccl-sendrecv": f"{_RECIPES}.nccl:SendReceive",
    "rccl-tests": f"{_RECIPES}.nccl:RcclTests",
    "ib_write_bw": f"{_RECIPES}.network:WriteBandwidth",
    "ib_read_bw": f"{_RECIPES}.network:ReadBandwidth",
    "ib_send_bw": f"{_RECIPES}.network:SendBandwidth",
    "ib_write_lat": f"{_RECIPES}.network:WriteLatency",
    "ib_read_lat": f"{_RECIPES}.network:ReadLatency",
    "ib_send_lat": f"{_RECIPES}.network:SendLatency",
    "rping": f"{_RECIPES}.network:Rping",
    "iperf3": f"{_RECIPES}.network:Iperf3",
    "mpi4py.bench": f"{_RECIPES}.mpi:Mpi4py",
    "osu": f"{_RECIPES}.mpi:Osu",
    "imb": f"{_RECIPES}.mpi:Imb",
    "hpcc": f"{_RECIPES}.node:Hpcc",
    "himeno": f"{_RECIPES}.node:Himeno",
    "hpcg": f"{_RECIPES}.mpi:Hpcg",
    "npb": f"{_RECIPES}.mpi:Npb",
    "stream": f"{_RECIPES}.node:StreamTriad",
    "sysbench": f"{_RECIPES}.node:Sysbench",
    "stress-ng": f"{_RECIPES}.node:StressNg",
    "torch-gloo": f"{_RECIPES}.nccl:Gloo",
    "torch-nccl": f"{_RECIPES}.nccl:Nccl",
    "dcgmi": f"{_RECIPES}.node:Dcgm",
    "fio": f"{_RECIPES}.fio:Fio",
}
_TABLES = {
    "backends": BACKENDS,
    "queues": QUEUES,
    "sections": SECTIONS,
    "runtimes": RUNTIMES,
    "recipes": RECIPES,
}


def plugin_names(kind: str) -> tuple[str, ...]:
    """All names of one kind ("backends", "sections", "runtimes", "recipes"),
    including those from other packages.
    """
    extra = (point.name for point in _points(kind))
    return tuple(dict.fromkeys((*_TABLES[kind], *extra)))


def find_plugin(kind: str, name: str) -> Any:  # noqa: ANN401 - the caller knows the Protocol
    """The class or function registered as `name` in this kind ("backends",
    "sections", "runtimes", "recipes"); raises UnknownPluginError.
    """
    target = _TABLES[kind].get(name)
    if target is not None:
        module, attribute = target.split(":")
        return getattr(import_module(module), attribute)
    for point in _points(kind):
        if point.name == name:
            return point.load()
    known, word = plugin_names(kind), name[:60].casefold()
    near = difflib.get_close_matches(word, known, 1) or [one for one in known if one in word]
    hint = f"did you mean `{near[0]}`? " if near else ""
    raise UnknownPluginError(f"no {kind[:-1]} `{name[:60]}`; {hint}there are: {', '.join(known)}")


def _points(kind: str) -> "EntryPoints":
    """The plugins that other packages register; slow, because it reads the
    metadata of all installed packages.
    """
    from importlib.metadata import entry_points

    return entry_points(group=f"rankdeck.{kind}")
