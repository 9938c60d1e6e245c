"""What all backends read from a job to make its plan: sizes, options, the job's id. No I/O."""

import json
from collections.abc import Sequence
from datetime import datetime
from secrets import token_hex

from rankdeck.backends.plan_text import parts_text
from rankdeck.errors import LaunchError
from rankdeck.model.capabilities import capabilities_of
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.plan_part import PlanPart
from rankdeck_agent.wire import NodePlan


def new_job_id(name: str) -> str:
    """`himeno-20261121-143005-3f2a`: sorts by time, unique, safe as a folder name."""
    return f"{name}-{datetime.now():%Y%m%d-%H%M%S}-{token_hex(2)}"


def new_series_id(letter: str) -> str:
    """`s20261121-143005-3f2a`: id of a study, drill, swap proof or acceptance run, by letter."""
    return f"{letter}{datetime.now():%Y%m%d-%H%M%S}-{token_hex(2)}"


def planned_ranks_per_node(cluster: Cluster, spec: JobSpec) -> int:
    """Ranks per node: as the job says, else the slots of the cluster's nodes.

    Raises LaunchError if slots differ.
    """
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
    """GPUs to request per node: `asked` (the option), else all if the container uses any.

    Raises LaunchError.
    """
    if asked:
        return _count(asked)
    wants = spec.container is not None and bool(spec.container.gpu)
    return max((node.gpus for node in cluster.nodes), default=0) if wants else 0


def _count(text: str) -> int:
    if not text.isdigit():
        raise LaunchError("plan", f"`gpus: {text}` is not a number")
    return int(text)


def backend_options(cluster: Cluster, spec: JobSpec, backend: str) -> dict[str, str]:
    """The backend's options: those of the cluster file, overridden by those of the job file."""
    prefix = f"{backend}."
    own = {k.removeprefix(prefix): v for k, v in spec.options.items() if k.startswith(prefix)}
    both = own.keys() & cluster.options.keys() & capabilities_of(backend).added_options
    joined = {key: _joined(cluster.options[key], own[key]) for key in both}
    return {**cluster.options, **own, **joined}


def _joined(site: str, own: str) -> str:
    """Two options as JSON: of two tables each key, of two lists all
    elements; those of the job win.
    """
    first, second = json.loads(site), json.loads(own)
    return json.dumps(first + second if isinstance(first, list) else {**first, **second})


def document_plan(cluster: Cluster, spec: JobSpec, job: str, parts: Sequence[PlanPart]) -> Plan:
    """A plan whose content is one document, made of these parts; its nodes
    only state how many ranks each has.
    """
    each = planned_ranks_per_node(cluster, spec)
    nodes = tuple(
        NodePlan(job=job, node=f"{job}-node{i}", ranks=tuple(range(i * each, (i + 1) * each)))
        for i in range(spec.nodes)
    )
    return Plan(
        job=job,
        name=spec.name,
        cluster=cluster.name,
        backend=cluster.backend,
        nodes=nodes,
        text=parts_text(parts),
        parts=tuple(parts),
        grace=spec.grace,
        abort=spec.abort,
    )
