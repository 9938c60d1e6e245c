"""`rankdeck doctor`: what this machine and the nodes lack, for any job."""

import asyncio
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path

from rankdeck.backends.launchers import lay_out
from rankdeck.config.files import console_state_folder
from rankdeck.config.user import lacks_unicode
from rankdeck.errors import ForwardingError, LaunchError, NodeError
from rankdeck.model.capabilities import BACKENDS
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.plugins import plugin_names
from rankdeck.preflight import checks
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Finding, TellFinding, group_nodes, make_finding
from rankdeck.preflight.job_context import JobContext
from rankdeck.preflight.job_needs import modules_of, programs_of
from rankdeck.preflight.run import Check, Tools, all_unreachable, ask_facts, concerned_checks
from rankdeck.python_releases import python_refusal
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import Way, asks_here, limit_time, on_each
from rankdeck.runtimes import Runtime, find_runtime
from rankdeck.schedulers.queue import ServerAnswer
from rankdeck.values import Value, replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.rules.units import write_size

LEAST_FILES = 1024
"""File descriptors that the console needs: its own, and for each node."""
FILES_PER_NODE = 4
LEAST_SPACE = 64 << 20
_SESSIONS, _SESSION_LIMIT = 3, 15.0
"""Sessions that are held to try it: the telemetry, what follows a job, and a question.

And seconds until each runs.
"""
_DISCARD = 9
"""The port to which a tunnel leads that is only tried."""


class Machine(Value, kw_only=True):
    """What the console needs of this machine."""

    term: str
    """The variable TERM; with "" and "dumb" no screen can be shown."""
    unicode: bool
    files: int
    """The most open files that this user may request (the hard limit)."""
    space: int | None
    """Free bytes in the folder of the history; None: it cannot be written."""
    keys: bool
    """Whether there is an SSH agent, a key with a usual name, or a
    configuration that may name one.
    """
    programs: frozenset[str]
    """Commands of HERE that were found."""
    modules: frozenset[str]
    """Python packages of EXTRAS that were found."""
    refused: str = ""
    """Why the commands do not start with this Python; "" if they do."""


HERE = ("ssh", *(can.program for can in BACKENDS.values() if can.asked_from_here))
"""Programs that are looked for on this machine."""
EXTRAS = ("pygnmi",)


def this_machine(env: Mapping[str, str]) -> Machine:
    """Examine this machine; `env` is the environment of the console."""
    home = Path.home() / ".ssh"
    keys = bool(env.get("SSH_AUTH_SOCK")) or (home / "config").exists() or any(home.glob("id_*"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(
        term=env.get("TERM", ""),
        unicode=not lacks_unicode(env),
        files=sys.maxsize if hard == resource.RLIM_INFINITY else hard,
        space=_space(console_state_folder()),
        keys=keys,
        programs=frozenset(name for name in HERE if shutil.which(name)),
        modules=frozenset(name for name in EXTRAS if find_spec(name)),
        refused=python_refusal(sys.version_info, sys.executable),
    )


def _space(folder: Path) -> int | None:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return None
    return shutil.disk_usage(folder).free


def judge_here(machine: Machine, cluster: Cluster) -> list[Finding]:
    """What this machine lacks for this cluster, worst first; if nothing, a finding that says so."""
    rows = [finding for lacks in _HERE if (finding := lacks(machine, cluster))]
    rows.sort(key=lambda finding: -finding.level)
    return rows or [make_finding(Level.OK, "here", "", "this machine has what the console needs")]


Lacks = Callable[[Machine, Cluster], Finding | None]


def _python(machine: Machine, _: Cluster) -> Finding | None:
    if not machine.refused:
        return None
    text, fix = machine.refused.rsplit(": ", 1)
    return make_finding(Level.BAD, "here", "", text, fix)


def _terminal(machine: Machine, _: Cluster) -> Finding | None:
    if machine.term not in ("", "dumb"):
        return None
    named = f"TERM is `{machine.term}`" if machine.term else "TERM is not set"
    return make_finding(
        Level.WARN,
        "here",
        "",
        f"{named}: the console cannot draw; the commands work",
        "use a terminal, or set TERM, e.g. to xterm-256color",
    )


def _glyphs(machine: Machine, _: Cluster) -> Finding | None:
    if machine.unicode:
        return None
    return make_finding(
        Level.WARN,
        "here",
        "",
        "the terminal is said to show ASCII only: the pictures are coarser",
        "if it shows more, set LANG, e.g. to C.UTF-8",
    )


def _descriptors(machine: Machine, cluster: Cluster) -> Finding | None:
    wanted = LEAST_FILES + FILES_PER_NODE * len(cluster.nodes)
    if machine.files >= wanted:
        return None
    return make_finding(
        Level.WARN,
        "here",
        "",
        f"{machine.files:,} open files are allowed, {wanted:,} are wanted",
        f"raise it: `ulimit -n {wanted}`, or `* - nofile {wanted}` in /etc/security/limits.d",
    )


def _history(machine: Machine, _: Cluster) -> Finding | None:
    folder = console_state_folder()
    if machine.space is None:
        text = f"{folder} cannot be written: jobs are not remembered"
        return make_finding(Level.BAD, "here", "", text, "make it writable, or set XDG_STATE_HOME")
    if machine.space < LEAST_SPACE:
        text = f"{folder} has {write_size(machine.space)} left: jobs may not be remembered"
        return make_finding(Level.WARN, "here", "", text, "make room there, or set XDG_STATE_HOME")
    return None


def _ssh(machine: Machine, cluster: Cluster) -> Finding | None:
    if "ssh" not in machine.programs:
        text = "no `ssh` here: ssh_config is read without OpenSSH, and a shell on a node needs it"
        return make_finding(Level.WARN, "here", "", text, "install it (Debian: openssh-client)")
    if machine.keys or all(node.here for node in cluster.hosts) or cluster.access.identity:
        return None
    text = "no SSH key, agent or configuration: logins will be refused"
    return make_finding(
        Level.WARN, "here", "", text, "`ssh-keygen`, then `ssh-copy-id` to each node"
    )


def _scheduler_program(machine: Machine, cluster: Cluster) -> Finding | None:
    program = cluster.can.program
    if not asks_here(cluster) or program in machine.programs:
        return None
    return make_finding(
        Level.BAD,
        "here",
        "",
        f"no `{program}` here, and the cluster file names no other host that has it",
        f"install {program}, or name a host: `{cluster.backend}: {{login: HOST}}`",
    )


def _switches(machine: Machine, cluster: Cluster) -> Finding | None:
    if not cluster.switches or "pygnmi" in machine.modules:
        return None
    return make_finding(
        Level.WARN,
        "here",
        "",
        "the cluster file names switches, and pygnmi is not installed",
        "pip install 'rankdeck[gnmi]'",
    )


_HERE: Sequence[Lacks] = (
    _python,
    _terminal,
    _glyphs,
    _descriptors,
    _history,
    _ssh,
    _scheduler_program,
    _switches,
)


# ---- nodes


class Tool(Value):
    """Programs of which a node should have at least one; `of` selects the nodes."""

    programs: tuple[str, ...]
    check: str
    lacking: str
    fix: str
    of: Callable[[Node], bool] = lambda _: True


TOOLS = (
    Tool(
        ("mpirun", "mpirun.openmpi", "mpirun.mpich"), "mpi", "no mpirun: MPI jobs cannot start here",
        "install it (Debian: openmpi-bin), or give its folder to PATH in `environment` of the cluster file",
    ),
    Tool(
        ("torchrun",), "torch", "no torchrun: torchrun jobs need an image or a virtual environment",
        "`pip install torch` there and name its torchrun as `torch.path` in the job file, or use a container",
    ),
    Tool(
        ("py-spy",), "inspect",
        "no py-spy: `inspect` names the system call of a stuck Python rank, not its line",
        "`pip install py-spy` there",
    ),
    Tool(
        ("ib_write_bw",), "rdma", "no ib_write_bw: the speed of RDMA cannot be measured",
        "install perftest", lambda node: bool(node.rdma),
    ),
)  # fmt: skip
CHECKS = (
    Check("clock", "the clocks agree", checks.check_clock),
    Check("gpu", "the GPUs are there", checks.check_gpus),
    Check("memlock", "enough memory may be locked", checks.check_memlock),
    Check("space", "enough disk space", checks.check_space),
)
"""Checks of a job that make sense for every job."""


def _runtimes() -> list[Runtime]:
    """The container runtimes that have a program."""
    found = (find_runtime(name) for name in plugin_names("runtimes"))
    return [runtime for runtime in found if runtime.program]


def list_tools() -> tuple[Tool, ...]:
    """What a node of a job should have: TOOLS, and one of the container runtimes."""
    programs = tuple(runtime.program for runtime in _runtimes())
    lacking = "no container runtime: jobs with a `container` cannot start here"
    return (*TOOLS, Tool(programs, "runtime", lacking, f"install one: {', '.join(programs)}"))


def judge_nodes(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> list[Finding]:
    """What the nodes that answered lack; nodes with the same lack share a finding."""
    layout = lay_out(cluster, _any_job(cluster.nodes), "doctor")
    case = JobContext(layout=layout, facts=facts, health={})
    concerned = concerned_checks(case)
    findings: list[Finding] = []
    for check in CHECKS:
        news = list(check.judge(case))
        if not news and concerned.get(check.name, True):
            news = [make_finding(Level.OK, check.name, "", check.well)]
        findings += news
    findings += checks.check_logout(case)
    for tool in list_tools():
        findings += _tool(tool, cluster.nodes, facts)
    return findings


def _any_job(nodes: Iterable[Node]) -> JobSpec:
    names = tuple(node.name for node in nodes)
    return JobSpec(
        name="doctor",
        launch=Launch.PLAIN,
        command=("true",),
        on=names,
        nodes=len(names),
        ranks_per_node=1,
    )


def _tool(tool: Tool, nodes: Sequence[Node], facts: Mapping[str, NodeFacts]) -> Iterable[Finding]:
    """Findings for nodes with none of these programs; if all nodes have one, which."""
    asked = [node.name for node in nodes if node.name in facts and tool.of(node)]
    found_at = {name: _first(tool, facts[name]) for name in asked}
    if lacking := [name for name, path in found_at.items() if not path]:
        yield make_finding(Level.WARN, tool.check, fold_nodes(lacking), tool.lacking, tool.fix)
    for words, names in group_nodes((n, p or None) for n, p in found_at.items()).items():
        yield make_finding(Level.OK, tool.check, names, words)


def _first(tool: Tool, facts: NodeFacts) -> str:
    for name in tool.programs:
        program = facts.programs.get(name)
        if program is not None and program.path:
            return f"{program.path} {facts.versions.get(name, '')}".strip()
    return ""


async def examine_nodes(cluster: Cluster, agents: Agents, tell: TellFinding) -> tuple[Finding, ...]:
    """Ask every node what it has.

    `tell` is called with each finding; a node that fails is a finding, not an exception.
    """
    findings: list[Finding] = []

    def take(news: Iterable[Finding]) -> None:
        for finding in news:
            findings.append(finding)
            tell(finding)

    async def ask(name: str) -> NodeFacts:
        node = next((one for one in cluster.nodes if one.name == name), None)
        return await ask_facts(agents, name, _request(cluster, node))

    facts, deaf = await on_each([node.name for node in cluster.hosts], ask)
    take(_unreachable(cluster, deaf))
    if facts:
        take([make_finding(Level.OK, "reach", fold_nodes(facts), "answered")])
    await _try_sessions(cluster, agents, facts)
    take(_ways({node: agents.shell.way(node) for node in facts}))
    take(_places(agents.elsewhere))
    if facts and (cluster.broker is None or cluster.broker.reach == "ssh"):
        take(await _tunnels(agents, facts))
    if cluster.nodes and facts:
        take(judge_nodes(cluster, facts))
    return tuple(findings)


async def _try_sessions(cluster: Cluster, agents: Agents, nodes: Iterable[str]) -> None:
    """Hold as many sessions on a connection as Rankdeck uses often, so that
    the way knows whether they are allowed.
    """

    async def hold(node: str) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(_SESSIONS):
                runs = asyncio.Event()
                said = ("sh", "-c", "echo; exec cat")
                channel = await agents.shell.open(node, said, lambda _, runs=runs: runs.set())
                stack.push_async_callback(channel.close)
                async with limit_time(node, _SESSION_LIMIT * cluster.access.patience):
                    await runs.wait()

    # A node that fails here has answered a moment ago: nothing is learned of it.
    await on_each(nodes, hold)


_WAYS: Sequence[tuple[str, Callable[[Way], bool], str]] = (
    ("here", lambda way: way.here, "this machine, used without SSH"),
    ("step", lambda way: bool(way.step), "reached by steps of the allocation (srun), without SSH"),
    (
        "sessions",
        lambda way: way.few_sessions,
        "the SSH server allows few sessions at a time on a connection (MaxSessions): there are more logins instead",
    ),
)
"""(name of the finding, whether it is said, its text)."""


def _ways(ways: Mapping[str, Way]) -> Iterable[Finding]:
    """What is particular about the way to the nodes."""
    for name, is_so, text in _WAYS:
        if nodes := [node for node, way in ways.items() if is_so(way)]:
            yield make_finding(Level.OK, name, fold_nodes(nodes), text)


def _places(elsewhere: Mapping[str, str]) -> Iterable[Finding]:
    """Where the agent lies, on nodes where the usual folder cannot be used."""
    for names, path in group_nodes(elsewhere.items()).items():
        text = f"the usual folder cannot be used: the agent lies at {clean_line(path, 200)}"
        fix = "make ~/.cache/rankdeck writable, or name a folder with `folder` under `ssh` in the cluster file"
        yield make_finding(Level.WARN, "agent", names, text, fix)


async def _tunnels(agents: Agents, facts: Iterable[str]) -> Iterable[Finding]:
    """How the numbers come from nodes whose SSH server opens no port."""

    async def ask(node: str) -> int:
        return await agents.shell.reverse_tunnel(node, "127.0.0.1", _DISCARD)

    _, refused = await on_each(facts, ask)
    closed = [
        node
        for node, error in refused.items()
        if isinstance(error, ForwardingError) and not agents.shell.way(node).step
    ]
    if not closed:
        return []
    text = "the SSH server opens no port (AllowTcpForwarding): numbers come over the agent's own output"
    return [make_finding(Level.OK, "tunnel", fold_nodes(closed), text)]


def server_finding(answer: ServerAnswer) -> Finding:
    """Whether the scheduler's server answers: no job can run without it."""
    return make_finding(Level.OK if answer.well else Level.BAD, "server", "", answer.text)


def _unreachable(cluster: Cluster, deaf: Mapping[str, NodeError]) -> Iterable[Finding]:
    """The findings for nodes that cannot be asked; some schedulers start
    jobs on nodes where users cannot log in.
    """
    login = cluster.options.get("login")
    needed = {n: e for n, e in deaf.items() if cluster.can.needs_login or n == login}
    yield from all_unreachable(needed)
    for finding in all_unreachable({n: e for n, e in deaf.items() if n not in needed}):
        yield replace(finding, level=Level.WARN)


def _request(cluster: Cluster, node: Node | None) -> dict[str, object]:
    tools = list_tools()
    simulated = "gpu" in cluster.simulate
    return {
        "path": cluster.environment.get("PATH", ""),
        "programs": [name for tool in tools for name in tool.programs],
        "versions": ["mpirun", *(one.program for one in _runtimes() if one.tells_version)],
        "gpus": bool(node and node.gpus) and not simulated,
    }


# ---- job files to choose from

MOST_ASKED = 8
"""Most nodes of a job that are asked whether it could run."""


async def lacking_tools(tools: Tools, specs: Sequence[JobSpec]) -> dict[str, str]:
    """Job file -> what its nodes lack to run it, such as `no torchrun`; "" for nothing.

    Jobs whose nodes are not known yet or do not answer are left out.
    """
    nodes = {one.file: names for one in specs if (names := _nodes_of(tools, one))}
    placed = [spec for spec in specs if spec.file in nodes]
    asked = {
        "path": tools.cluster.environment.get("PATH", ""),
        "programs": sorted({name for spec in placed for name in programs_of(spec)}),
        "modules": sorted({name for spec in placed for name in modules_of(spec)}),
    }

    async def ask(name: str) -> NodeFacts:
        return await ask_facts(tools.agents, name, asked)

    facts, _ = await on_each({name for some in nodes.values() for name in some}, ask)
    return {
        spec.file: lack_of(spec, [facts[name] for name in nodes[spec.file] if name in facts])
        for spec in placed
        if facts.keys() & nodes[spec.file]
    }


def _nodes_of(tools: Tools, spec: JobSpec) -> frozenset[str]:
    """Some nodes of a job, if they can be asked; else none."""
    if tools.backend.can.chooses_nodes or "PATH" in spec.env:
        return frozenset()
    try:
        places = lay_out(tools.cluster, tools.place(spec), "doctor").places
    except LaunchError:
        return frozenset()
    return frozenset(place.node.name for place in places[:MOST_ASKED])


def lack_of(spec: JobSpec, facts: Sequence[NodeFacts]) -> str:
    """The first thing that one of these nodes lacks for this job, such as `no
    torchrun` or `no numpy`; "" for nothing.
    """
    for name in programs_of(spec):
        if any(one.has(name) is False for one in facts):
            return f"no {name}"
    for word in modules_of(spec):
        if any(one.modules.get(word) is False for one in facts):
            return f"no {word.rpartition(' ')[2]}"
    return ""
