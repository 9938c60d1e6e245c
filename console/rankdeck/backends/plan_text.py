"""What a plan says, made as parts with a kind; its text and the lines on a
screen are two views of them. No I/O.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice

from rankdeck.backends.job_network import asked_addresses, needs_network
from rankdeck.backends.plan_tokens import word_with_tokens
from rankdeck.backends.shell_words import SHIM, FileLines, file_lines, folder_word, shell_line
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.plan import Plan
from rankdeck.model.plan_part import LineKind, PlanLine, PlanPart
from rankdeck.values import Value
from rankdeck_agent.wire import JOB_VARIABLE, NODE_VARIABLE, RUN_VARIABLE, NodePlan, ProcessPlan


def write_plan(plan: Plan) -> str:
    """Every file and every command of a plan, as shell lines; a document
    (sbatch script, manifest) as it is.
    """
    return parts_text(plan_parts(plan))


def write_plan_lines(plan: Plan, *, folded: bool) -> list[PlanLine]:
    """The lines of a plan with their kinds; `folded` shows each file,
    and variables in a row, as one line.
    """
    parts = plan_parts(plan)
    return [line for part in parts for line in (part.folded_lines if folded else part.lines)]


def parts_text(parts: Sequence[PlanPart]) -> str:
    """All lines of these parts, each with a line feed."""
    return "".join(f"{line.text}\n" for part in parts for line in part.lines)


def plan_parts(plan: Plan) -> Sequence[PlanPart]:
    """The parts of a plan: those of its document if that is all that a
    launch creates, else all of every node.
    """
    # The files of a plan whose document is everything only repeat it as JSON.
    if plan.text and (plan.can.document or not any(n.processes for n in plan.nodes)):
        return plan.parts or (PlanPart(LineKind.FILE, plan.text.removesuffix("\n")),)
    return (*_head(plan), *(part for node in plan.nodes for part in _node_parts(node)))


def _head(plan: Plan) -> Iterator[PlanPart]:
    what = f"# job {plan.job}: {_counted(plan)}, cluster {plan.cluster}, backend {plan.backend}"
    yield PlanPart(LineKind.NOTE, what)
    if plan.port_on:
        yield PlanPart(LineKind.NOTE, f"# RANKDECK_PORT: a free port on {plan.port_on}")
    if any(map(needs_network, plan.nodes)):
        yield PlanPart(LineKind.NOTE, f"# {_OWN}: what each node has in the job network")
    for index in asked_addresses(plan):
        what = f"# RANKDECK_ADDRESS_{index}: the address of {plan.nodes[index].node} in the job network"
        yield PlanPart(LineKind.NOTE, what)


_OWN = "RANKDECK_ADDRESS, RANKDECK_INTERFACE, RANKDECK_DEVICES"


def _counted(plan: Plan) -> str:
    ranks, nodes = plan.world_size, len(plan.nodes)
    names = fold_nodes(node.node for node in plan.nodes)
    return f"{ranks} rank{'s' * (ranks != 1)} on {nodes} node{'s' * (nodes != 1)} ({names})"


def _node_parts(node: NodePlan) -> Iterator[PlanPart]:
    yield PlanPart(LineKind.NOTE, "")
    yield PlanPart(LineKind.NODE, f"# ---- {node.node}: ranks {fold_ranks(node.ranks)}")
    if node.files:
        yield PlanPart(LineKind.SETUP, f'mkdir -p "${RUN_VARIABLE}" && cd "${RUN_VARIABLE}"')
    for file in node.files:
        yield from file_parts(file_lines(file))
    marks = f"export {JOB_VARIABLE}={node.job} {NODE_VARIABLE}={node.node}"
    yield exports_part([marks, *node_export_lines(node.env)])
    if not node.processes:
        yield PlanPart(LineKind.NOTE, "# no command: mpirun's daemon starts these ranks")
        return
    yield PlanPart(LineKind.SETUP, "cd ~")
    beside = " &" if len(node.processes) > 1 else ""
    for process in node.processes:
        yield PlanPart(LineKind.COMMAND, process_line(process) + beside)


def file_parts(lines: FileLines) -> Iterator[PlanPart]:
    """The parts that write a file: its text, which folds into a line, and what follows it."""
    many = "line" if len(lines.rows) == 1 else "lines"
    yield PlanPart(
        LineKind.FILE,
        "\n".join((*lines.rows, lines.end)),
        head=lines.head,
        folded=f"{lines.write}  # {len(lines.rows)} {many}",
    )
    yield from (PlanPart(LineKind.SETUP, line) for line in lines.after)


def export_lines(env: Mapping[str, str]) -> list[str]:
    """A shell line for each variable; a value of several lines stays one entry."""
    return [f"export {shell_line([f'{key}={value}'])}" for key, value in env.items()]


def node_export_lines(env: Mapping[str, str]) -> list[str]:
    """The same for the variables of a node, in which tokens may stand."""
    return [f"export {word_with_tokens(f'{key}={value}')}" for key, value in env.items()]


def exports_part(lines: Sequence[str]) -> PlanPart:
    """Some `export` lines, which fold into one if there are several."""
    folded = f"export  # {len(lines)} variables" if len(lines) > 1 else ""
    return PlanPart(LineKind.SETUP, "\n".join(lines), folded=folded)


def process_line(process: ProcessPlan) -> str:
    """The shell line of a process, with its variables, its folder and, for a rank, the shim."""
    variables = [f"{key}={value}" for key, value in process.env.items()]
    shim = [] if process.rank is None else [SHIM]
    words = [*(["env", *variables] if variables else []), *shim, *process.argv]
    line = " ".join(word_with_tokens(word) for word in words)
    return f"cd {folder_word(process.cwd)} && {line}" if process.cwd else line


class DiffKind(StrEnum):
    """What a line of a comparison is."""

    OLD = "old"
    NEW = "new"
    SAME = "same"
    PLACE = "place"
    """The numbers of the lines that follow."""


class DiffLine(Value):
    """A line of a comparison, with its sign, and what it is."""

    text: str
    kind: DiffKind


_SIGNS = {"-": DiffKind.OLD, "+": DiffKind.NEW, " ": DiffKind.SAME, "@": DiffKind.PLACE}
"""The first character of a line that difflib writes -> what it is."""


def plan_difference(old: Plan, new: Plan) -> tuple[DiffLine, ...]:
    """The lines of `diff -U2` between two plans, without its headers;
    empty if only the job ids differ.
    """
    before, after = (_lines_without_id(plan) for plan in (old, new))
    lines = difflib.unified_diff(before, after, n=2, lineterm="")
    return tuple(DiffLine(line, _SIGNS[line[0]]) for line in islice(lines, 2, None))


def _lines_without_id(plan: Plan) -> list[str]:
    return [line.text.replace(plan.job, "JOB") for line in write_plan_lines(plan, folded=False)]
