"""What slurm and kubernetes have in common: options, and a plan whose ranks have no nodes yet."""

from collections.abc import Sequence

from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import JobSpec, Launch, Plan
from rankdeck_agent.wire import NodePlan


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
    own = {k.removeprefix(prefix): v for k, v in spec.options.items() if k.startswith(prefix)}
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
