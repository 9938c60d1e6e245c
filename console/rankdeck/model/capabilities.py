"""What a backend can do: the rest of the program asks this, never a backend's name."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import field

from rankdeck import plugins
from rankdeck.errors import UnknownPluginError
from rankdeck.model.nodeset import fold_nodes
from rankdeck.values import Value


class Capabilities(Value, kw_only=True):
    """What a backend does by itself; the defaults are those of the ssh backend."""

    scheduler: str = ""
    """Name of the scheduler for people; "" without one."""
    chooses_nodes: bool = False
    """A scheduler chooses the nodes when the job starts: they cannot be
    checked before, and jobs may wait.
    """
    needs_login: bool = True
    """Jobs run only on nodes that the user can log in to."""
    allows_login: bool = True
    """The nodes are reached over SSH."""
    asked_from_here: bool = False
    """If the cluster file names no login node, the scheduler's commands run on this machine."""
    states_rights: bool = False
    """It can tell which rights a user has."""
    pods: bool = False
    """Ranks run in pods: host names and addresses differ from job to job."""
    requeues: bool = False
    """The scheduler may queue a job again."""
    ends_ranks: frozenset[str] = frozenset()
    """Values of `Launch` for which the scheduler ends the other ranks when one
    fails; "" stands for jobs of others.
    """
    document: bool = False
    """`Plan.text` is all that a launch creates."""
    queue: bool = False
    """Queue, partitions and node states are read on the login node; nodes are drained there too."""
    program: str = ""
    """The program by which the scheduler takes jobs; "" if there is none."""
    own_words: tuple[str, ...] = ()
    """How lines begin that the scheduler itself writes into the output of a job."""
    ending: str = ""
    """How the other ranks end if it ends them: the key in `rules.ends.LAUNCHER_ENDINGS`."""
    added_options: frozenset[str] = frozenset()
    """Options of a job file that come on top of the cluster file's: what the site asks of all jobs
    stays.
    """
    drain_lines: tuple[str, ...] = ()
    """Commands that drain nodes, with `{folded}` or `{nodes}` and `{why}`;
    the last returns the nodes to service.
    """
    whole_nodes: tuple[str, ...] = ()
    """Options for a job that must not share its nodes."""
    soon_removed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options for one of many short jobs, whose output the console has: it is removed soon."""
    node_check: str = ""
    """Line for a job file that has its nodes checked once the scheduler
    has chosen them; "": there is none.
    """
    proof: tuple[str, str] = ("every node is searched", "for processes of the job that are left.")
    """Two lines for the screen: how a cancel proves that the job is over."""

    def out_of_service(self, nodes: Sequence[str], why: str) -> list[str]:
        """Commands that take these nodes out of service; the last returns them.

        [] if the backend has none.
        """
        words = {"folded": fold_nodes(nodes), "nodes": " ".join(nodes), "why": why}
        return [line.format_map(words) for line in self.drain_lines]


BACKENDS = {
    "ssh": Capabilities(),
    "slurm": Capabilities(
        scheduler="Slurm",
        chooses_nodes=True,
        needs_login=False,
        requeues=True,
        ends_ranks=frozenset(("", "mpi", "torchrun", "tensorflow", "jax", "plain")),
        queue=True,
        program="sbatch",
        own_words=("slurmstepd", "srun:"),
        ending="slurm",
        drain_lines=(
            'scontrol update nodename={folded} state=drain reason="{why}"',
            "scontrol update nodename={folded} state=resume",
        ),
        whole_nodes=("slurm.exclusive",),
        node_check="slurm: {preflight: true}",
        proof=("Slurm is asked", "whether the job is over (scancel, run as you)."),
    ),
    "kubernetes": Capabilities(
        scheduler="Kubernetes",
        chooses_nodes=True,
        needs_login=False,
        allows_login=False,
        asked_from_here=True,
        states_rights=True,
        pods=True,
        ends_ranks=frozenset(("torchrun", "tensorflow", "jax", "plain")),
        document=True,
        program="kubectl",
        ending="kubernetes",
        added_options=frozenset(("labels", "annotations", "pod_security", "security", "patch")),
        soon_removed={"kubernetes.ttl": "60"},
        drain_lines=(
            "kubectl cordon {nodes}",
            "kubectl drain --ignore-daemonsets {nodes}   # also moves what runs there",
            "kubectl uncordon {nodes}",
        ),
        proof=("the API server is asked", "whether all pods of the job are gone."),
    ),
}
"""Capabilities of Rankdeck's own backends: callers need not import a backend to read them."""
SCHEDULED = tuple(name for name, can in BACKENDS.items() if can.scheduler)
"""The backends with a scheduler: cluster and job files have a part for each, of that name."""


@lru_cache(64)
def capabilities_of(backend: str) -> Capabilities:
    """What the backend of this name can do; the defaults if it is not installed here."""
    if backend in BACKENDS:
        return BACKENDS[backend]
    try:
        return plugins.find_plugin("backends", backend).can
    except UnknownPluginError:
        return Capabilities()
