"""Makes the plans of the ssh backend; job ids, options and the text of plans for all backends."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from secrets import token_hex

from rankdeck.backends.launchers import (
    Placement,
    lay_out,
    plan_mpi,
    plan_plain,
    plan_tensorflow,
    plan_torch,
)
from rankdeck.backends.tokens import (
    file_lines,
    needs_port,
    process_line,
    shell_line,
    with_port,
)
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster, capabilities
from rankdeck.model.job import JobSpec, Launch, Plan
from rankdeck.model.nodeset import fold, fold_ranks
from rankdeck_agent.wire import (
    JOB_VARIABLE,
    NODE_VARIABLE,
    RUN_VARIABLE,
    NodePlan,
)

__all__ = ["plan_job", "render", "with_port"]

_PLANNERS: Mapping[Launch, Callable[[Placement], tuple[NodePlan, ...]]] = {
    Launch.MPI: plan_mpi,
    Launch.TORCHRUN: plan_torch,
    Launch.TENSORFLOW: plan_tensorflow,
    Launch.PLAIN: plan_plain,
}


def plan_job(cluster: Cluster, spec: JobSpec, job: str) -> Plan:
    """What the supervisors of the nodes will be told; raises LaunchError("plan", …)."""
    nodes = _PLANNERS[spec.launch](lay_out(cluster, spec, job))
    return Plan(
        job=job,
        name=spec.name,
        cluster=cluster.name,
        backend="ssh",
        nodes=nodes,
        grace=spec.grace,
        abort=spec.abort,
        port_on=nodes[0].node if needs_port(nodes) else "",
    )


def render(plan: Plan) -> str:
    """Every file and every command of a plan, as lines that a shell would take."""
    # Where the document is all that is created, the files of its keeper say the same in JSON.
    if plan.text and (
        capabilities(plan.backend).document or not any(n.processes for n in plan.nodes)
    ):
        return plan.text
    head = f"# job {plan.job}: {_counted(plan)}, cluster {plan.cluster}, backend {plan.backend}\n"
    port = f"# RANKDECK_PORT: a free port on {plan.port_on}\n" if plan.port_on else ""
    return head + port + "".join(f"\n{_node_text(node)}" for node in plan.nodes)


def _counted(plan: Plan) -> str:
    ranks, nodes = plan.world_size, len(plan.nodes)
    names = fold(node.node for node in plan.nodes)
    return f"{ranks} rank{'s' * (ranks != 1)} on {nodes} node{'s' * (nodes != 1)} ({names})"


def _node_text(node: NodePlan) -> str:
    lines = [f"# ---- {node.node}: ranks {fold_ranks(node.ranks)}"]
    lines += [f'mkdir -p "${RUN_VARIABLE}" && cd "${RUN_VARIABLE}"'] if node.files else []
    lines += [line for file in node.files for line in file_lines(file)]
    lines.append(f"export {JOB_VARIABLE}={node.job} {NODE_VARIABLE}={node.node}")
    lines += [f"export {shell_line([f'{key}={value}'])}" for key, value in node.env.items()]
    lines += ["cd ~"] if node.processes else ["# no command: mpirun's daemon starts these ranks"]
    several = len(node.processes) > 1
    lines += [process_line(process) + (" &" if several else "") for process in node.processes]
    return "\n".join(lines) + "\n"


def new_job_id(name: str) -> str:
    """`himeno-1121-143005-3f2a`: sorts by time, unique, safe as a folder name."""
    return f"{name}-{datetime.now():%m%d-%H%M%S}-{token_hex(2)}"


_FILE = re.compile(r" > \S+ <<'(EOF_*)'$")


def plan_difference(old: str, old_job: str, new: str, new_job: str) -> tuple[str, ...]:
    """Lines as `diff -U2` gives them; empty where only the job's id differs."""
    before = old.replace(old_job, "JOB").splitlines()
    after = new.replace(new_job, "JOB").splitlines()
    lines = difflib.unified_diff(before, after, n=2, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++")))


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A line of a plan, and what it is."""

    text: str
    kind: str
    """`node` heads the lines of one, `note`, `setup` comes before the commands, `file`, `command`."""


_KINDS = (
    (re.compile(r"# ---- "), "node"),
    (re.compile(r"#(?!SBATCH)"), "note"),
    (re.compile(r"(?:mkdir|cd|export|cat >|chmod|umask) "), "setup"),
)


def plan_lines(text: str, *, folded: bool) -> list[PlanLine]:
    """The lines of a plan by what they are; `folded` leaves one of each file."""
    lines: list[PlanLine] = []
    inside: list[str] = []
    end = ""
    for line in text.splitlines():
        if end and line != end:
            inside.append(line)
            continue
        if end:
            head = lines.pop()
            lines += _file(head, [*inside, end], folded=folded)
            inside, end = [], ""
            continue
        lines.append(PlanLine(line, _kind(line)))
        end = match[1] if (match := _FILE.search(line)) else ""
    lines += [PlanLine(line, "file") for line in inside]
    return _with_variables_folded(lines) if folded else lines


def _with_variables_folded(lines: list[PlanLine]) -> list[PlanLine]:
    """One line for the variables that are set in a row."""
    found: list[PlanLine] = []
    for is_export, some in groupby(lines, lambda line: line.text.startswith("export ")):
        row = list(some)
        many = is_export and len(row) > 1
        found += [PlanLine(f"export  # {len(row)} variables", "setup")] if many else row
    return found


def _file(head: PlanLine, rest: list[str], *, folded: bool) -> list[PlanLine]:
    if folded:
        many = "line" if len(rest) == 2 else "lines"
        return [PlanLine(f"{head.text.partition(' <<')[0]}  # {len(rest) - 1} {many}", "setup")]
    return [head, *(PlanLine(line, "file") for line in rest)]


def _kind(line: str) -> str:
    found = (kind for pattern, kind in _KINDS if pattern.match(line))
    return next(found, "command" if line[:1].strip() else "file")


def ranks_per_node(cluster: Cluster, spec: JobSpec) -> int:
    """Ranks per node: as the job says, else the slots of the cluster's nodes."""
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
