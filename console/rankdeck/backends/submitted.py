"""What slurm and kubernetes have in common: ranks without nodes yet, and what is missing."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.backends.base import Follower
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import CancelReport, JobSpec, Launch, Plan
from rankdeck_agent.wire import NodePlan


class Submitted:
    """A backend that only plans: its document is the user's to submit."""

    name: ClassVar[str]

    def __init__(self, *_links: object) -> None:
        """Needs no connection and no agent; the session offers them to every backend."""

    async def launch(self, plan: Plan) -> Plan:
        raise _not_yet("launching", self.name)

    def follow(self, plan: Plan, seen: Mapping[str, int]) -> Follower:
        raise _not_yet("following", self.name)

    async def cancel(self, plan: Plan, grace: float) -> CancelReport:
        raise _not_yet("cancelling", self.name)


def _not_yet(what: str, backend: str) -> LaunchError:
    """Why a job cannot be driven on this backend, and what can be done instead."""
    return LaunchError(
        "start",
        f"{what} {backend} jobs is not yet possible from Rankdeck; "
        "`run --dry-run` prints the script to submit by hand",
    )


def ranks_per_node(cluster: Cluster, spec: JobSpec) -> int:
    """What the job says, else the slots of the cluster's nodes."""
    if spec.launch is Launch.TENSORFLOW:
        return 1
    slots = {node.slots for node in cluster.nodes}
    if spec.ranks_per_node or len(slots) == 1:
        return spec.ranks_per_node or slots.pop()
    raise LaunchError(
        "plan",
        f"job `{spec.name}` needs `ranks_per_node`: the nodes of `{cluster.name}`"
        f" have {' or '.join(map(str, sorted(slots))) or 'no'} slots",
    )


def gpus_per_node(cluster: Cluster, spec: JobSpec, asked: str) -> int:
    """GPUs to ask for: as the options say, else those of a node if the container wants them."""
    if asked:
        return _count(asked)
    wants = spec.container is not None and bool(spec.container.gpu)
    return max((node.gpus for node in cluster.nodes), default=0) if wants else 0


def _count(text: str) -> int:
    if not text.isdigit():
        raise LaunchError("plan", f"`gpus: {text}` is not a number")
    return int(text)


def options(cluster: Cluster, spec: JobSpec, backend: str) -> dict[str, str]:
    """The backend's options: the cluster's, and the job's over them."""
    prefix = f"{backend}."
    own = {
        k.removeprefix(prefix): v
        for k, v in spec.options.items()
        if k.startswith(prefix)
    }
    return {**cluster.options, **own}


def document_plan(
    cluster: Cluster, spec: JobSpec, job: str, names: Sequence[str], text: str
) -> Plan:
    """A plan that is one document; its nodes are only the shape of the job."""
    each = ranks_per_node(cluster, spec)
    nodes = tuple(
        NodePlan(job=job, node=name, ranks=tuple(range(i * each, (i + 1) * each)))
        for i, name in enumerate(names)
    )
    return Plan(
        job=job,
        name=spec.name,
        cluster=cluster.name,
        backend=cluster.backend,
        nodes=nodes,
        text=text,
        grace=spec.grace,
        abort=spec.abort,
    )
