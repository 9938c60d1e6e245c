"""Launch backends (ssh, slurm, kubernetes): their protocol, and functions for plans that all share."""

import difflib
import re
import shlex
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from secrets import token_hex
from string import ascii_letters
from typing import ClassVar, Protocol

from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Capabilities, Cluster, capabilities
from rankdeck.model.job import CancelReport, Followed, JobSpec, Launch, Plan
from rankdeck.model.nodeset import fold, fold_ranks
from rankdeck.state.lines import ReadPositionsOf
from rankdeck_agent.wire import (
    JOB_VARIABLE,
    NODE_VARIABLE,
    RUN_TOKEN,
    RUN_VARIABLE,
    NodeFile,
    NodePlan,
    ProcessPlan,
)

Tell = Callable[[str], None]
"""Takes one sentence about progress; called on the event loop, must not block."""


def say_nothing(_: str) -> None:
    """The default `tell`: ignores progress."""


class Follower(Protocol):
    """Reports what happens in one job to one caller. Closing a follower does not affect the job."""

    def __aiter__(self) -> AsyncIterator[Followed]:
        """Yield events, chunks of output and tails of output, in the order in which they arrive.

        The iteration ends when every node has sent `closed` or was given up, or after `close`. A broken
        connection is opened again. Raises RankdeckError if the job cannot be followed at all.
        """
        ...

    def watch(self, ranks: Collection[int], backlog: int | None) -> None:
        """Fetch the full output of these ranks from now on, and only the last line of all others.

        Reading continues at `positions` (see `Backend.follow`). `backlog` is the minimum number of bytes of
        earlier output to fetch; None fetches all. Each call replaces the one before.
        """
        ...

    @property
    def behind(self) -> set[str]:
        """Nodes that are not known to be unreachable and have not yet sent all events up to now."""
        ...

    def give_up_lost(self) -> None:
        """Stop waiting for nodes that do not answer now; the iteration ends without them."""
        ...

    async def close(self) -> None:
        """End the iteration; the job goes on."""
        ...


class Backend(Protocol):
    """One way to run the ranks of a job. The class is called with one argument, `Agents`."""

    name: ClassVar[str]
    """The value of `backend:` in a cluster file."""
    can: ClassVar[Capabilities]
    """What this backend can do; `model.cluster.capabilities` finds it by name. Callers check this, never the name."""

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """The plan that `launch` would carry out; `job` is the new job's id.

        Pure: contacts no node. Raises LaunchError with the stage "plan".
        """
        ...

    async def check(self, plan: Plan) -> str:
        """Why the scheduler would refuse this job now, in its own words; starts nothing.

        "" if it would accept the job, or if there is no scheduler to ask. Raises NodeError.
        """
        ...

    async def launch(self, plan: Plan, tell: Tell = say_nothing) -> Plan:
        """Carry out the plan and nothing else; returns it with its TCP port filled in.

        If it fails, it ends everything that it had started and raises LaunchError. Because the clean-up can
        take seconds, `tell` is called before it, with a sentence that says what failed.
        """
        ...

    def follow(self, plan: Plan, seen: Mapping[str, int], positions: ReadPositionsOf) -> Follower:
        """A follower of this job. Each node sends the events after number `seen[node]`; all, if `seen` lacks the node.

        `positions(node, rank)` gives how far that rank's logs were read. After a reconnect, output is sent again from
        these positions, so the caller must record each chunk in them before it takes the next item.
        """
        ...

    async def cancel(self, plan: Plan, grace: float, *, by: str = "user") -> CancelReport:
        """End the job on every node: SIGTERM, wait `grace` seconds, SIGKILL, then search for remaining processes.

        `by` is "user", "abort" (a part of the job failed) or "system". A node that does not answer
        raises no exception: the report lists it as not verified.
        """
        ...


SHIM = f"{RUN_TOKEN}/rank-shim"
PORT_TOKEN = "${RANKDECK_PORT}"
_PORT = re.compile(r"\$\{RANKDECK_PORT(?:\+(\d{1,4}))?\}")


def port_token(offset: int = 0) -> str:
    """`${RANKDECK_PORT}`, or the port `offset` above it."""
    return f"${{RANKDECK_PORT+{offset}}}" if offset else PORT_TOKEN


def needs_port(nodes: Sequence[NodePlan]) -> bool:
    """True if a command or an environment variable of the plan contains the token of the free port."""
    return any(_PORT.search(text) for node in nodes for text in _texts(node))


def _texts(node: NodePlan) -> list[str]:
    texts = list(node.env.values())
    for process in node.processes:
        texts += (*process.argv, *process.env.values())
    return texts


def with_port(plan: Plan, port: int) -> Plan:
    """The plan with the port that was found on `port_on` filled in."""
    nodes = tuple(_filled(node, port) for node in plan.nodes)
    return replace(plan, nodes=nodes, text=_fill(plan.text, port), port_on="")


def _fill(text: str, port: int) -> str:
    return _PORT.sub(lambda match: str(port + int(match[1] or 0)), text)


def _fill_table(table: Mapping[str, str], port: int) -> dict[str, str]:
    return {key: _fill(value, port) for key, value in table.items()}


def _filled(node: NodePlan, port: int) -> NodePlan:
    processes = tuple(
        replace(
            process,
            argv=tuple(_fill(word, port) for word in process.argv),
            env=_fill_table(process.env, port),
        )
        for process in node.processes
    )
    return replace(node, processes=processes, env=_fill_table(node.env, port))


def shell_word(word: str) -> str:
    """`word` quoted for sh; the token of the run folder becomes a variable that sh expands."""
    parts = word.split(RUN_TOKEN)
    quoted = [shlex.quote(part) if part else "" for part in parts]
    return f'"${RUN_VARIABLE}"'.join(quoted) if len(parts) > 1 else shlex.quote(word)


def shell_line(words: Sequence[str]) -> str:
    """A command line that can be pasted into a shell."""
    return " ".join(shell_word(word) for word in words)


def folder_word(path: str) -> str:
    """A folder quoted for sh; a leading `~` is the home folder, as it is for the supervisor."""
    home, slash, rest = path.partition("/")
    if home != "~":
        return shell_word(path)
    return '"$HOME"' + (shell_word(slash + rest) if rest else "")


def at_run_time(argv: Sequence[str]) -> tuple[str, ...]:
    """The command, wrapped in sh if it names the run folder: that path differs from node to node."""
    if not any(RUN_TOKEN in word for word in argv):
        return tuple(argv)
    return ("sh", "-c", f"exec {shell_line(argv)}")


def process_line(process: ProcessPlan) -> str:
    """The shell line of a process, with its variables, its folder and, for a rank, the shim."""
    variables = [f"{key}={value}" for key, value in process.env.items()]
    shim = [] if process.rank is None else [SHIM]
    words = [*(["env", *variables] if variables else []), *shim, *process.argv]
    line = " ".join(_with_port_variable(word) for word in words)
    return f"cd {folder_word(process.cwd)} && {line}" if process.cwd else line


def _with_port_variable(word: str) -> str:
    """`word` quoted for sh; the run folder and the port become variables that sh expands."""
    parts: list[str] = []
    end = 0
    for mark in _PORT.finditer(word):
        offset = f"$((RANKDECK_PORT + {mark[1]}))" if mark[1] else "$RANKDECK_PORT"
        parts += [word[end : mark.start()], offset]
        end = mark.end()
    if not parts:
        return shell_word(word)
    quoted = [shell_word(text) if text else "" for text in (*parts[::2], word[end:])]
    ports = [f'"{text}"' for text in (*parts[1::2], "")]
    return "".join(text + port for text, port in zip(quoted, ports, strict=True)).removesuffix('""')


def end_mark(word: str, rows: Collection[str]) -> str:
    """The delimiter for a here-document with these lines: `word`, with more letters if needed to be unique.

    It begins with no letter that begins a line with non-ASCII text: after such a partial match with the
    delimiter, dash (0.5.12) loses the first byte of a non-ASCII character.
    """
    heads = {row[0] for row in rows if not row.isascii()}
    words = (word, *(letter + word for letter in ascii_letters))
    end = next((one for one in words if one[0] not in heads), word)
    while end in rows:
        end += "_"
    return end


def _file_lines(file: NodeFile) -> list[str]:
    """Shell lines that write a file; sed replaces the token of the run folder in its text."""
    # Only a line feed ends a line in sh, so no splitlines().
    rows = file.text.removesuffix("\n").split("\n") if file.text else []
    end = end_mark("EOF", rows)
    path = shell_word(file.path)
    fill = f'sed "s|\\{RUN_TOKEN}|${RUN_VARIABLE}|g"'
    write = f"{fill if RUN_TOKEN in file.text else 'cat'} > {path} <<'{end}'"
    mode = [f"chmod {file.mode:o} {path}"] if file.mode != 0o644 else []
    return [write, *rows, end, *mode]


def whole_file(file: NodeFile) -> list[str]:
    """Shell lines that write a file byte for byte: no line feed is added to text that ends without one."""
    lines = _file_lines(file)
    if not file.text or file.text.endswith("\n"):
        return lines
    path, part = shell_word(file.path), shell_word(f"{file.path}.new")
    trim = f'printf %s "$(cat {path})" > {part} && mv {part} {path}'
    mode = [f"chmod {file.mode:o} {path}"] if file.mode != 0o644 else []
    return [*lines, trim, *mode]


def render(plan: Plan) -> str:
    """Every file and every command of a plan, as shell lines; a document (sbatch script, manifest) as it is."""
    # If the document is all that a launch creates, the files only repeat it as JSON.
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
    lines += [line for file in node.files for line in _file_lines(file)]
    lines.append(f"export {JOB_VARIABLE}={node.job} {NODE_VARIABLE}={node.node}")
    lines += [f"export {shell_line([f'{key}={value}'])}" for key, value in node.env.items()]
    lines += ["cd ~"] if node.processes else ["# no command: mpirun's daemon starts these ranks"]
    several = len(node.processes) > 1
    lines += [process_line(process) + (" &" if several else "") for process in node.processes]
    return "\n".join(lines) + "\n"


def new_job_id(name: str) -> str:
    """`himeno-1121-143005-3f2a`: sorts by time, unique, safe as a folder name."""
    return f"{name}-{datetime.now():%m%d-%H%M%S}-{token_hex(2)}"


_FILE = re.compile(r" > \S+ <<'([A-Za-z]?EOF_*)'$")


def plan_difference(old: str, old_job: str, new: str, new_job: str) -> tuple[str, ...]:
    """The lines of `diff -U2` between two plans, without its headers; empty if only the job ids differ."""
    before = old.replace(old_job, "JOB").splitlines()
    after = new.replace(new_job, "JOB").splitlines()
    lines = difflib.unified_diff(before, after, n=2, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++")))


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A line of a plan and its kind."""

    text: str
    kind: str
    """`node` (headline of a node), `note` (comment), `setup` (before the commands), `file` (its text) or `command`."""


_KINDS = (
    (re.compile(r"# ---- "), "node"),
    (re.compile(r"#(?!SBATCH)"), "note"),
    (re.compile(r"(?:mkdir|cd|export|cat >|chmod|umask) "), "setup"),
)


def plan_lines(text: str, *, folded: bool) -> list[PlanLine]:
    """The lines of a plan with their kinds; `folded` shows each file, and variables in a row, as one line."""
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
    """Replace each run of several `export` lines by one line."""
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
    """Ranks per node: as the job says, else the slots of the cluster's nodes. Raises LaunchError if slots differ."""
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
    """GPUs to request per node: `asked` (the option), else all if the container uses any. Raises LaunchError."""
    if asked:
        return _count(asked)
    wants = spec.container is not None and bool(spec.container.gpu)
    return max((node.gpus for node in cluster.nodes), default=0) if wants else 0


def _count(text: str) -> int:
    if not text.isdigit():
        raise LaunchError("plan", f"`gpus: {text}` is not a number")
    return int(text)


def options(cluster: Cluster, spec: JobSpec, backend: str) -> dict[str, str]:
    """The backend's options: those of the cluster file, overridden by those of the job file."""
    prefix = f"{backend}."
    own = {k.removeprefix(prefix): v for k, v in spec.options.items() if k.startswith(prefix)}
    return {**cluster.options, **own}


def document_plan(cluster: Cluster, spec: JobSpec, job: str, text: str) -> Plan:
    """A plan whose content is one document (`text`); its nodes only state how many ranks each has."""
    each = ranks_per_node(cluster, spec)
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
        text=text,
        grace=spec.grace,
        abort=spec.abort,
    )
