"""What will be done for a job: every file and every command, per node."""

from msgspec import field

from rankdeck.model.capabilities import Capabilities, capabilities_of
from rankdeck.model.job_spec import Abort, JobSpec
from rankdeck.model.plan_part import PlanPart
from rankdeck.values import Value
from rankdeck_agent.wire import NodePlan

UNTAGGED_WAIT = 3.0
"""Seconds for a rank of an untagged job to be heard before its
launcher's output is shown in its place.
"""


class Plan(Value, kw_only=True):
    """Exactly what will be done: every file and every command, per node."""

    job: str
    name: str
    cluster: str
    backend: str
    nodes: tuple[NodePlan, ...]
    """In rank order; the launcher of an MPI job runs on the first."""
    text: str = ""
    """The document that the backend submits (sbatch script, Kubernetes manifest); "" for ssh."""
    parts: tuple[PlanPart, ...] = ()
    """The same document in parts, as it is shown; () for ssh, and in
    a history older than this field.
    """
    grace: float = 10.0
    abort: Abort = field(default_factory=Abort)
    port_on: str = ""
    """Node on which a free port must be found, for
    `${RANKDECK_PORT}` in the plan; "": none needed.
    """
    spec: JobSpec | None = None
    """The job file of the plan; None in a history older than this field."""
    owner: str = ""
    """Kind and owner of a job that somebody else started: `MPIJob of alice`."""
    replay_of: str = ""
    """For a replay: the id of the job that is replayed; else ""."""
    found: bool = False
    """Whether the nodes have told it and not a launch: a node that did
    not answer may have ranks of it too.
    """

    untagged: bool = False
    """All ranks write into their launcher's output: they can be told apart
    only if somebody started it with `--tag-output`.
    """

    @property
    def elsewhere(self) -> bool:
        """Whether its ranks run on other nodes than those of the plan: a scheduler places them."""
        return any(node.elsewhere for node in self.nodes)

    @property
    def part_of(self) -> str:
        """The acceptance run or scaling study that this job measures for; "" for any other."""
        return self.spec.part_of if self.spec else ""

    @property
    def can(self) -> Capabilities:
        """What the backend that runs it can do."""
        return capabilities_of(self.backend)

    @property
    def world_size(self) -> int:
        return sum(len(node.ranks) for node in self.nodes)

    def supervising_node(self, node: str) -> str:
        """The node whose supervisor reports the ranks of `node`: `node`
        itself, or on Slurm the login node.
        """
        # Called for every rank and every piece of output, so it checks only the first node.
        return self.nodes[0].node if self.nodes and self.nodes[0].elsewhere else node
