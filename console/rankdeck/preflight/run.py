"""Runs a preflight: asks all nodes at once, lets them connect to each other,
applies all checks, reports findings.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from secrets import token_hex
from typing import Any, NamedTuple

from msgspec import field

from rankdeck.backends.base import Backend, SchedulerWord
from rankdeck.backends.launchers import Placement, lay_out
from rankdeck.config.files import expand_path
from rankdeck.errors import AgentError, HostKeyError, LaunchError, NodeError, UnreachableError
from rankdeck.images.bring import local_image, wanted_by
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.plan import Plan
from rankdeck.preflight import check_network, check_rdma, checks
from rankdeck.preflight.check_network import foreign_host, listens_on, meeting_place
from rankdeck.preflight.checks import found_mpi
from rankdeck.preflight.facts import NodeFacts, node_facts
from rankdeck.preflight.findings import (
    Finding,
    Step,
    TellFinding,
    make_finding,
    no_step,
    tell_nobody,
)
from rankdeck.preflight.image_trial import inside_spec, judge_inside, settled_nodes
from rankdeck.preflight.job_context import JobContext
from rankdeck.preflight.job_needs import is_address, modules_of, needs_names, programs_of
from rankdeck.preflight.lemons import lemon_findings
from rankdeck.preflight.mpi_trial import ELSEWHERE, judge_probe, probe_spec, run_probe
from rankdeck.preflight.trial_run import collect_output
from rankdeck.remote.agent import Agents
from rankdeck.remote.dialogue import Dialogue
from rankdeck.remote.shell import on_each
from rankdeck.state.node_records import NodeRecords
from rankdeck.values import Value, replace
from rankdeck_agent.rules.levels import Health, Level


class Check(NamedTuple):
    """One check: its name, what to say if it finds nothing, and its function."""

    name: str
    well: str
    judge: Callable[[JobContext], Iterable[Finding]]


CHECKS = (
    Check("clock", "the clocks agree", checks.check_clock),
    Check("logout", "jobs outlive the login", checks.check_logout),
    Check("slots", "a core for every rank", checks.check_slots),
    Check("workdir", "the working directory is there", checks.check_folder),
    Check("program", "launcher and program are there", checks.check_programs),
    Check("modules", "what the program imports is there", checks.check_modules),
    Check("program", "the program is the same file everywhere", checks.same_program),
    Check("mpi", "mpirun is what the job says", checks.check_mpi),
    Check("image", "the image is the same everywhere", checks.check_image),
    Check("port", "the port is free", check_network.check_port),
    Check("names", "the names resolve", checks.check_host_names),
    Check("meeting", "the ranks can find rank 0", check_network.check_host),
    Check("numbering", "each rank will be on the node of the plan", check_network.check_numbering),
    Check("gpu", "the GPUs are there and free", checks.check_gpus),
    Check("gid", "the GID index means the same on all nodes", check_rdma.check_gids),
    Check("memlock", "enough memory may be locked", checks.check_memlock),
    Check("shm", "enough shared memory", checks.shared_memory),
    Check("space", "enough disk space", checks.check_space),
    Check("health", "telemetry reports no problem of the nodes", checks.check_health),
)


def concerned_checks(case: JobContext) -> Mapping[str, bool]:
    """Check -> whether it applies to this job; checks that are not named always apply."""
    spec = case.spec
    nodes = [place.node for place in case.layout.places]
    return {
        "modules": bool(modules_of(spec)),
        "mpi": spec.launch is Launch.MPI,
        "image": any(f.image is not None for _, f in case.answered),
        "port": bool(meeting_place(case.layout).port),
        "meeting": bool(meeting_place(case.layout).host),
        "numbering": spec.launch is Launch.TORCHRUN and len(nodes) > 1,
        "names": needs_names(spec),
        "gpu": any(f.gpus is not None for _, f in case.answered) and any(n.gpus for n in nodes),
        "gid": bool(check_rdma.chosen_gids(case) and any(f.rdma for _, f in case.answered)),
        "memlock": any(node.rdma for node in nodes),
        "health": bool(case.health),
        "logout": any(f.logout for _, f in case.answered),
    }


def judge_case(case: JobContext) -> list[Finding]:
    """The findings of every check that applies to this job; a check that
    finds nothing says that all is well.
    """
    concerned = concerned_checks(case)
    findings: list[Finding] = []
    for check in CHECKS:
        if not concerned.get(check.name, True):
            continue
        news = list(check.judge(case))
        findings += news or [make_finding(Level.OK, check.name, "", check.well)]
    return findings


FACTS_LIMIT = 20.0
CONNECT_LIMIT = 12.0
REMOVE_LIMIT = 10.0
LIVES = 45
"""Seconds after which the agents end by themselves, whatever happens to the console."""
IMAGE_PATIENCE = 2.0
"""Seconds to compute the digest of an image that is not known yet;
after that, only sizes are compared.
"""
LATER = 3
"""Steps after the checks: nodes connect to each other, two ranks start,
the image starts on the other nodes.
"""


def keep_spec(spec: JobSpec) -> JobSpec:
    """The same job: for jobs whose nodes are chosen already."""
    return spec


class Tools(Value):
    """What preflight works with."""

    cluster: Cluster
    agents: Agents
    backend: Backend
    place: Callable[[JobSpec], JobSpec] = keep_spec
    """Chooses the nodes as a launch does."""
    healths: Callable[[], Mapping[str, Health]] = dict[str, Health]
    """The health of the nodes that are heard."""
    records: Callable[[], NodeRecords] = NodeRecords
    """How often jobs failed on each node by its own fault."""
    versions: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """(node, launcher) -> the first line of its `--version`, as far as it was asked."""

    def may_use(self, node: str) -> bool:
        """Whether a job may be placed on this node, which is neither excluded nor bad."""
        health = self.healths().get(node)
        try:
            self.place(JobSpec(name="", launch=Launch.PLAIN, command=(), on=(node,)))
        except LaunchError:
            return False
        return health is None or health.level is not Level.BAD

    def launcher_of(self, spec: JobSpec) -> tuple[str, str]:
        """The first node of the job and its launcher."""
        first = spec.on[0] if spec.on else self.cluster.nodes[0].name
        return first, spec.mpi.path

    def with_mpi(self, spec: JobSpec) -> JobSpec:
        """The job with the MPI flavour of its first node, if that is known."""
        if not spec.on and not self.cluster.nodes:
            return spec
        return found_mpi(spec, self.versions.get(self.launcher_of(spec), ""))


async def run_all_checks(
    means: Tools, spec: JobSpec, tell: TellFinding = tell_nobody, step: Step = no_step
) -> tuple[Finding, ...]:
    """Run all checks; returns all findings in the order of the calls of `tell`.

    A node that fails is a finding, not an exception.
    """
    findings: list[Finding] = []

    def take(news: list[Finding]) -> None:
        for finding in news:
            findings.append(finding)
            tell(finding)

    try:
        spec = means.place(spec)
        plan = replace(means.backend.plan(means.cluster, spec, "preflight"), spec=spec)
        chooses = means.backend.can.chooses_nodes
        layout = None if chooses else lay_out(means.cluster, spec, "preflight")
    except LaunchError as error:
        take([make_finding(Level.BAD, "plan", "", str(error))])
        return tuple(findings)
    take(checks.check_job_file(spec))
    take(lemon_findings(means.cluster, spec, means.records().lemons, means.may_use))
    if layout is None:
        take(await _ask_scheduler(means, plan))
        return tuple(findings)
    async with AsyncExitStack() as stack:
        await _Run(means, layout, stack, take, step).all()
    return tuple(findings)


async def ask_facts(agents: Agents, node: str, question: Mapping[str, object]) -> NodeFacts:
    """Ask one node and end the dialogue; raises NodeError."""
    async with agents.dialogue(node, ("preflight",)) as talk:
        lives = {"seconds": LIVES, "patience": agents.patience}
        asked = time.time()
        raw = await talk.ask({**lives, **question}, FACTS_LIMIT)
        return node_facts(raw, asked, time.time())


async def find_mpi(means: Tools, spec: JobSpec) -> None:
    """Ask which MPI is on the first node of the job, if the job names none and
    it is not known yet; raises LaunchError.
    """
    if spec.launch is not Launch.MPI or not spec.mpi.detect or means.backend.can.chooses_nodes:
        return
    spec = spec if spec.on else means.place(spec)
    node, path = means.launcher_of(spec)
    if (node, path) in means.versions:
        return
    search = {**means.cluster.environment, **spec.env}.get("PATH", "")
    question = {"path": search, "versions": [path]}
    try:
        facts = await ask_facts(means.agents, node, question)
    except NodeError:
        return  # the launch will report the error
    means.versions[node, path] = facts.versions.get(path, "")


async def _ask_scheduler(means: Tools, plan: Plan) -> list[Finding]:
    """The findings of a scheduler that chooses the nodes when the job
    starts: only the scheduler can be asked.
    """
    backend = means.backend
    try:
        if backend.can.queue:
            # A launch logs in there: a login node that does not answer takes no job.
            login, program = plan.nodes[0].node, backend.can.program
            asked = {
                "path": means.cluster.environment.get("PATH", ""),
                "programs": [program] if program else [],
            }
            if (await ask_facts(means.agents, login, asked)).has(program) is False:
                text = f"there is no {program} in the PATH of this login"
                path = f"/opt/{means.cluster.backend}/bin:/usr/bin:/bin"
                do = f"name its folder in the cluster file: `environment: {{PATH: {path}}}`"
                return [make_finding(Level.BAD, "program", login, text, do)]
        word = await backend.check(plan)
    except NodeError as error:
        word = SchedulerWord(refused=str(error))
    if why := word.refused:
        return [make_finding(Level.BAD, "plan", "", f"{backend.name} would not take it: {why}")]
    text = f"the nodes are chosen by {backend.name} when the job starts: they were not asked"
    if backend.can.node_check:
        text += f"; `{backend.can.node_check}` has them judged there, before the ranks"
    found = [make_finding(Level.UNKNOWN, "reach", "", text)]
    if word.remark:
        found.append(make_finding(Level.WARN, "plan", "", word.remark, word.fix))
    return found


class _Run:
    """One preflight, from the first question to the last."""

    def __init__(
        self,
        means: Tools,
        layout: Placement,
        stack: AsyncExitStack,
        take: Callable[[list[Finding]], None],
        step: Step,
    ) -> None:
        self._means, self._layout, self._stack, self._take = means, layout, stack, take
        self._step, self._done = step, 0
        self._token = token_hex(16)
        self._talks: dict[str, Dialogue] = {}

    def _did(self, steps: int = 1) -> None:
        """Count steps: one for each node that answers, for each check, and for each later step."""
        self._done += steps
        nodes = len(self._layout.places)
        doing = "asking the nodes" if self._done < nodes else "connecting them, trying two ranks"
        self._step(self._done, nodes + len(CHECKS) + LATER, doing)

    async def all(self) -> None:
        self._did(0)
        began = time.monotonic()
        names = [place.node.name for place in self._layout.places]
        facts, _ = await on_each(names, self._facts)
        self._learn_mpi(facts.get(names[0]))
        if len(facts) == len(names):
            text = f"{len(names)} node{'s' * (len(names) != 1)} answered in {time.monotonic() - began:.1f} s"
            self._take([make_finding(Level.OK, "reach", "", text)])
        here = local_image(self._layout.spec)
        case = JobContext(
            layout=self._layout,
            facts=facts,
            health=self._means.healths(),
            image_here=here.stat().st_size if here else None,
            programs_here=frozenset(
                name
                for name in programs_of(self._layout.spec)
                if "/" in name and expand_path(name).is_file()
            ),
        )
        self._take(judge_case(case))
        self._did(len(CHECKS))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._connect(case))
            tasks.create_task(self._probe(case))

    def _learn_mpi(self, first: NodeFacts | None) -> None:
        """Use the MPI flavour of the first node from now on."""
        spec, node = self._layout.spec, self._layout.places[0].node.name
        version = first.versions.get(spec.mpi.path, "") if first else ""
        if version:
            self._means.versions[node, spec.mpi.path] = version
            self._layout = replace(self._layout, spec=found_mpi(spec, version))

    async def _facts(self, node: str) -> NodeFacts:
        try:
            talking = self._means.agents.dialogue(node, ("preflight",))
            talk = await self._stack.enter_async_context(talking)
            asked = time.time()
            raw = await talk.ask(self._request(node), FACTS_LIMIT)
        except NodeError as error:
            self._take([unreachable_finding(node, error)])
            raise
        finally:
            self._did()
        self._talks[node] = talk
        return node_facts(raw, asked, time.time())

    def _request(self, node: str) -> dict[str, Any]:
        spec, nodes = self._layout.spec, [p.node for p in self._layout.places]
        env = {**self._means.cluster.environment, **spec.env}
        wanted = wanted_by(spec)
        image = [[wanted.runtime, wanted.image, wanted.base]] if wanted else []
        here = next(n for n in nodes if n.name == node)
        mpi = [spec.mpi.path, *ELSEWHERE] if spec.launch is Launch.MPI else []
        simulated = "gpu" in self._means.cluster.simulate
        return {
            "token": self._token,
            "seconds": LIVES,
            "patience": self._means.cluster.access.patience,
            "base": "" if "${" in spec.workdir else spec.workdir,
            "path": env.get("PATH", ""),
            "programs": programs_of(spec),
            "modules": modules_of(spec),
            "versions": mpi,
            "images": image,
            "limit": IMAGE_PATIENCE,
            "hosts": self._hosts(),
            "port": meeting_place(self._layout).number if node == listens_on(self._layout) else 0,
            "gpus": bool(here.gpus) and not simulated,
        }

    def _hosts(self) -> list[str]:
        """The names that every node must know."""
        nodes = [place.node for place in self._layout.places]
        names = [foreign_host(self._layout)]
        if needs_names(self._layout.spec):
            names += [node.host for node in nodes if not is_address(node.host)]
        return [name for name in dict.fromkeys(names) if name]

    async def _connect(self, case: JobContext) -> None:
        """Let every node try to reach the others while all of them listen."""
        self._take(check_network.check_interfaces(case))
        orders = check_network.connection_targets(case)

        async def one(node: str) -> Mapping[str, check_network.ConnectAttempt]:
            question = {"connect": orders[node]}
            raw = await self._talks[node].ask(question, CONNECT_LIMIT)
            return check_network.parse_attempts(raw.get("connected"))

        reached, failed = await on_each(orders, one)
        self._take(all_unreachable(failed))
        self._take(check_network.judge_pairs(case, reached))
        self._did()

    async def _probe(self, case: JobContext) -> None:
        """Start two ranks, unless a finding says that they cannot start."""
        spec = probe_spec(case)
        able = spec is not None and all(_can_launch(case, name) for name in spec.on)
        tried = spec.on if spec is not None and able else ()
        async with asyncio.TaskGroup() as tasks:
            inside = tasks.create_task(self._look_inside(case, tried))
            ranks = tasks.create_task(self._two_ranks(case, spec if able else None))
        # Only a trial shows what a setuid runtime, or one with its own profile, may do.
        self._take(list(checks.check_runtime(case, inside.result() | ranks.result())))

    async def _two_ranks(self, case: JobContext, spec: JobSpec | None) -> frozenset[str]:
        """Start two ranks; returns the nodes that need no further check of their runtime."""
        if spec is None:
            return frozenset()
        outcome = await run_probe(self._means.backend, self._means.cluster, spec)
        self._did()
        self._take(judge_probe(case, spec, outcome))
        await on_each(spec.on, lambda node: self._forget(node, outcome.job))
        settled = len(outcome.answers) == outcome.wanted or outcome.remedy
        return frozenset(spec.on if settled else ())

    async def _look_inside(self, case: JobContext, tried: Sequence[str]) -> frozenset[str]:
        """Start the image on the nodes where the probe has no rank; returns those that need no
        further check of their runtime.
        """
        spec = inside_spec(case, tried)
        if spec is None:
            return frozenset()
        trial = await collect_output(self._means.backend, self._means.cluster, spec)
        self._did()
        self._take(judge_inside(case, trial))
        await on_each(spec.on, lambda node: self._forget(node, trial.plan.job))
        return settled_nodes(trial)

    async def _forget(self, node: str, job: str) -> None:
        """Remove the run folder of the probe."""
        await self._means.agents.call(node, ("job", "remove", job, node), limit=REMOVE_LIMIT)


def _can_launch(case: JobContext, node: str) -> bool:
    facts = case.facts[node]
    return facts.base_there and all(
        facts.has(name) is not False for name in programs_of(case.spec)[:2]
    )


def all_unreachable(failed: Mapping[str, NodeError]) -> list[Finding]:
    """The findings for nodes that cannot be asked; those that fail in the same way share one."""
    groups: dict[str, dict[str, NodeError]] = {}
    for node, error in failed.items():
        alike = error.common if isinstance(error, UnreachableError) else error.why
        groups.setdefault(alike, {})[node] = error
    return [_shared(alike, group) for alike, group in groups.items()]


def _shared(alike: str, group: Mapping[str, NodeError]) -> Finding:
    node, error = next(iter(group.items()))
    finding = unreachable_finding(node, error)
    return finding if len(group) == 1 else replace(finding, node=fold_nodes(group), text=alike)


def unreachable_finding(node: str, error: NodeError) -> Finding:
    """The finding for a node that cannot be asked."""
    if isinstance(error, HostKeyError):
        fix = "compare the key with the node's own, then accept it"
    elif isinstance(error, AgentError):
        fix = "until then, leave it out with `on`"  # SSH works, and the reason says what to do
    else:
        fix = f"try `ssh {node}` by hand, or leave it out with `on`"
    return make_finding(Level.BAD, "reach", node, error.why, fix)
