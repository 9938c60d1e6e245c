"""Acceptance of one open cluster: serves the requests of front ends,
keeps saved runs and the run in progress.
"""

import json
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from secrets import randbelow
from statistics import median
from typing import Any, Protocol

from rankdeck import plugins
from rankdeck.acceptance import view
from rankdeck.acceptance.baseline import compare_with_baseline, kinds_of_hardware
from rankdeck.acceptance.gate import (
    PROGRAM,
    Identity,
    OutsideFacts,
    admit_nodes,
    job_address,
    kept_by_scheduler,
    link_gbps,
    of_network,
    read_identity,
)
from rankdeck.acceptance.hardware import describe_differing
from rankdeck.acceptance.measure import MeasureSession, RawOutputs, measure_job
from rankdeck.acceptance.planning import (
    Participants,
    Rails,
    fabric_of,
    needed_modules,
    needed_programs,
    plan_run,
    rails_of,
    repeats_of,
)
from rankdeck.acceptance.recipe import Commands, HardwareFacts
from rankdeck.acceptance.recipes import node_program_text
from rankdeck.acceptance.run import (
    AcceptanceRun,
    Request,
    RunPlan,
    RunState,
    acceptance_plan_json,
    once_more,
    plan_hash,
    read_plan,
)
from rankdeck.acceptance.runner import Runner
from rankdeck.acceptance.stoppable import StoppableWork
from rankdeck.acceptance.store import AcceptanceRuns, Exclusion, KeptRun
from rankdeck.acceptance.values import Result
from rankdeck.acceptance.work import PEER, Setup, Work, command_lines, find_recipe, job_spec
from rankdeck.backends.plan_options import new_series_id
from rankdeck.config.files import command_of
from rankdeck.config.user import operator_name
from rankdeck.errors import RankdeckError, UnknownRunError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import Launch
from rankdeck.model.safe_text import clean_line
from rankdeck.model.scheduler_node import SchedulerNode
from rankdeck.state.node import NodeState
from rankdeck.values import Value, replace
from rankdeck_agent.wire import RUN_TOKEN

_LOOK_LIMIT, _QUEUE_LIMIT = 30.0, 300.0
"""Seconds in which nodes must report their identity: without, and with a queue."""


class AsksNodes(Protocol):
    """What acceptance needs from a scheduler."""

    async def ask_nodes(self, names: Sequence[str]) -> Mapping[str, SchedulerNode]:
        """What the scheduler says of these nodes now; {} without one. Raises NodeError."""
        ...


class AcceptanceSession(MeasureSession, Protocol):
    """What acceptance needs from a session, beyond measuring."""

    @property
    def queue(self) -> AsksNodes: ...


class NodeSurvey(Value):
    """What the nodes report now."""

    setup: Setup
    identities: Mapping[str, Identity]
    around: OutsideFacts
    facts: Mapping[str, Mapping[str, str]]
    """Node -> fact -> value."""


class Acceptance:
    """Implements `AcceptanceProtocol`; see `acceptance/run.py` for the methods."""

    def __init__(self, session: AcceptanceSession, store: AcceptanceRuns, folder: Path) -> None:
        self._session, self.store, self._raw = session, store, RawOutputs(folder)
        self._head: KeptRun | None = None
        self._plan: RunPlan | None = None
        self._setup: Setup | None = None
        self._runner: Runner | None = None
        self._progress = RunState.PENDING
        self._identity: Mapping[str, Mapping[str, str]] = {}
        self._stale = True
        self._view: AcceptanceRun | None = None
        self._judged: tuple[int, view.Judged] = (-1, view.Judged())
        self._work = StoppableWork(session)
        self.changed: Callable[[], None] = lambda: None
        """Called without arguments whenever `current` changed; may be replaced."""

    # ---- plan

    async def plan(self, request: Request) -> AcceptanceRun:
        """Ask the nodes for their hardware and programs, and plan the run; nothing is measured."""
        self._refuse_while_running()
        cluster = self._session.cluster
        if cluster.can.pods:
            _refuse_pods(cluster, request)
        wanted = request.nodes or tuple(node.name for node in cluster.nodes)
        looked = await self._look(wanted, request)
        identities, self._identity = looked.identities, looked.facts
        admitted = admit_nodes(cluster, wanted, identities, looked.around, request.include_busy)
        if not admitted.nodes:
            why = "; ".join(f"{node}: {why}" for node, why in list(admitted.left_out.items())[:5])
            raise RankdeckError(f"no node can be measured: {why}")
        leaves = {
            node.name: node.leaf
            for node in cluster.nodes
            if node.leaf and node.name in admitted.nodes
        }
        if request.max_crossing < 1 and len(set(leaves.values())) < 2:
            raise RankdeckError(
                "a share of crossing pairs needs to know which nodes share a switch: "
                "write `leaf: NAME` at the nodes of the cluster file"
            )
        rails = _rails(request, admitted.nodes, identities, pods=looked.setup.pods)
        setup = replace(looked.setup, rails=rails)
        participants = Participants(
            admitted=admitted,
            identities=identities,
            setup=setup,
            leaves=leaves,
            seed=randbelow(1 << 30),
        )
        self._plan = replace(plan_run(request, participants), like=request.like)
        self._setup = setup
        run = new_series_id("a")
        self._head = KeptRun(
            run,
            cluster.name,
            0.0,
            plan_hash(self._plan),
            operator_name(),
            body=acceptance_plan_json(self._plan),
        )
        self._begin_anew(RunState.PENDING)
        return self._shown()

    def _begin_anew(self, progress: RunState) -> None:
        self._progress, self._runner, self._judged = progress, None, (-1, view.Judged())
        self._touch()

    async def _look(self, wanted: Sequence[str], request: Request) -> NodeSurvey:
        session, cluster = self._session, self._session.cluster
        silent = await session.control.find_running(_LOOK_LIMIT)
        # Jobs that ended while no console was open do not keep a node busy.
        await session.following.caught_up(silent=silent)
        away = {node: f"no answer: {why}" for node, why in silent.items() if node in wanted}
        states = {node: session.fleet.node(node) for node in wanted}
        views = await session.queue.ask_nodes(wanted)
        away |= kept_by_scheduler(views, request.include_busy)
        running = [job for job in session.jobs.all() if not job.state.final]
        # A scheduler that tells of our jobs knows earlier than our keeper that one has ended.
        told = {node for node, view in views.items() if view.tells_own_jobs}
        jobs = {node: job.id for job in running for node in job.nodes if node not in told}
        base = session.control.read_job(Path(request.like)) if request.like else None
        setup = Setup(cluster=cluster, like=base, seconds=request.seconds, exclusive=True)
        asked = [node for node in wanted if node not in away]
        identities, failed = await self._identities(asked, setup)
        around = OutsideFacts(
            jobs=jobs,
            away={**away, **failed},
            excluded=session.control.find_excluded(),
            bad={node: _why_bad(states[node]) for node in wanted if node in session.fleet.bad},
            scheduled=session.cluster.can.chooses_nodes,
        )
        addresses = {
            node: PEER
            if setup.pods
            else job_address(cluster, cluster.node(node), identities.get(node))
            for node in asked
        }
        facts = {
            node: {**one.facts, **of_network(one, addresses[node])}
            for node, one in identities.items()
        }
        return NodeSurvey(_surveyed(setup, identities, addresses), identities, around, facts)

    async def _identities(
        self, nodes: Sequence[str], setup: Setup
    ) -> tuple[dict[str, Identity], Mapping[str, str]]:
        """(node -> its identity, node -> why no job starts there); raises
        RankdeckError if none starts at all.
        """
        if not nodes:
            return {}, {}
        mpirun = setup.like.mpi.path if setup.like else "mpirun"
        question = json.dumps(
            {
                "programs": [*needed_programs(), mpirun],
                "modules": needed_modules(),
                "mpirun": mpirun,
            }
        )
        commands = Commands(
            launch=Launch.PLAIN,
            argv=("python3", f"{RUN_TOKEN}/{PROGRAM}", question),
            files={PROGRAM: node_program_text(PROGRAM)},
        )
        patience = setup.cluster.access.patience
        limit = _QUEUE_LIMIT if self._session.cluster.can.chooses_nodes else _LOOK_LIMIT * patience
        # Runs beside the jobs of others: it takes a second, and waiting
        # for whole nodes may take hours.
        spec = job_spec(commands, nodes, replace(setup, exclusive=False), 1)
        done = await measure_job(
            self._session, spec, lambda: limit, setup.cluster.environment, _QUEUE_LIMIT
        )
        if done.refusing:
            found, failed = await self._identities(
                [node for node in nodes if node not in done.refusing], setup
            )
            return found, {**failed, **done.refusing}
        if done.refused:
            raise RankdeckError(f"the nodes cannot be asked what they are: {done.refused}")
        places = {rank.rank: rank.node for rank in self._session.jobs.job(done.job).ranks}
        found = {
            places[rank]: replace(one, machine="") if setup.pods else one  # a pod has the image's
            for rank, text in done.output.items()
            if rank in places and (one := read_identity(text))
        }
        if not found:
            raise RankdeckError(
                f"no node said what it is; see `{command_of('logs', self._session.cluster.file)}"
                f" {done.job}`: jobs need python3 in their PATH"
            )
        return found, {}

    # ---- run

    async def start(self) -> AcceptanceRun:
        """Run `current`, or continue it if it was stopped; returns the run when it has ended."""
        self._refuse_while_running()
        if self._head is None or self._plan is None:
            raise RankdeckError("nothing is planned")
        head, plan = self._head, self._plan
        if self._setup is None:
            looked = await self._look(plan.nodes, _asked_again(plan, plan.nodes))
            self._setup, self._identity = looked.setup, looked.facts
        if not head.started:
            head = self._head = replace(head, started=time.time())
            for old in self.store.begin(head):
                self._raw.remove(old)
            self.store.identify(head.id, self._identity)
        self._runner = self._new_runner(self._setup, head.id)
        out = self.store.exclusions(head.cluster, time.time())
        self._runner.excluded.update({one.node: one.why for one in out if one.run == head.id})
        ended = RunState.STOPPED
        try:
            if await self._carry_out(self._runner.go(head.id, plan)):
                ended = RunState.DONE
        finally:
            self._end(ended)
        run = self._shown()
        if run.progress is RunState.DONE:
            passed = [node for node in run.good if node not in self._runner.excluded]
            self.store.readmit(run.cluster, passed)
        return run

    def _end(self, progress: RunState) -> None:
        assert self._head is not None
        self._progress = progress
        self._head = replace(self._head, state=progress.value, ended=time.time())
        self.store.end(self._head.id, self._head.state, self._head.ended)
        self._touch()

    def _new_runner(self, setup: Setup, run: str) -> Runner:
        assert self._plan is not None
        setup = replace(setup, run=run, rails=self._plan.rails)
        runner = Runner(self._session, self.store, self._raw, setup, self._touch)
        kept = self.store.identity(run)
        identity = {node: {**kept.get(node, {}), **facts} for node, facts in self._identity.items()}
        runner.take(self.store.measurements(run), identity)
        return runner

    async def _carry_out(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run `work`; returns whether it came to its end, False if it was stopped."""
        self._progress = RunState.RUNNING
        self._touch()
        return await self._work.carry_out(work)

    async def stop(self) -> tuple[str, ...]:
        """Cancel all measurements and verify it; returns a sentence for each process left."""
        await self._work.stop()
        resting = self._runner.resting if self._runner else {}
        return tuple(f"{node}: {why}" for node, (_, why) in resting.items())

    def exclude(self, node: str, why: str, until: float, run: str) -> None:
        """Keep jobs away from a node until then; a run in progress continues without it."""
        cluster, now = self._session.cluster.name, time.time()
        self.store.exclude(
            [Exclusion(cluster=cluster, node=node, why=why, run=run, at=now, until=until)]
        )
        if self._runner is not None and self._work.runs:
            self._runner.excluded[node] = why
        self._touch()

    def readmit(self, node: str) -> None:
        """Undo `exclude`."""
        self.store.readmit(self._session.cluster.name, (node,))
        if self._runner is not None:
            self._runner.excluded.pop(node, None)
        self._touch()

    def excluded(self) -> Mapping[str, str]:
        """Node -> why and until when jobs are kept away from it."""
        return self._session.control.find_excluded()

    async def again(self, nodes: Sequence[str], recipe: str) -> None:
        """Measure a pair or one node again; during a run, after the current round."""
        head, plan = self._head, self._plan
        if head is None or plan is None or not head.started:
            raise RankdeckError(
                "no run is open that has begun: start one, or open one with `resume`"
            )
        wanted = once_more(self._shown(), nodes, recipe)
        if not self._work.runs or self._runner is None:
            setup = await self._free(
                plan, dict.fromkeys(node for _, some in wanted for node in some)
            )
            self._runner = self._runner or self._new_runner(setup, head.id)
        runner = self._runner
        for name, some in wanted:
            runner.again(some, name, repeats_of(name, plan.repeats))
        if self._work.runs:
            return
        before = self._progress
        # Nodes that the operator names are measured, even if the run continued without them.
        kept, runner.excluded = runner.excluded, {}
        try:
            await self._carry_out(runner.asked(head.id, plan))
        finally:
            self._progress, runner.excluded = before, kept
            self._touch()

    async def _free(self, plan: RunPlan, nodes: Iterable[str]) -> Setup:
        """The setup of the run; raises RankdeckError if one of these nodes is in use now."""
        wanted = tuple(nodes)
        asked = plan.nodes if self._setup is None else wanted
        looked = await self._look(asked, _asked_again(plan, plan.include_busy))
        self._setup = self._setup or looked.setup
        cluster = self._session.cluster
        # A bad node that the operator names is measured: it shows whether it has been mended.
        around = replace(looked.around, bad={})
        admitted = admit_nodes(cluster, wanted, looked.identities, around, plan.include_busy)
        if admitted.left_out:
            why = "; ".join(f"{node}: {text}" for node, text in admitted.left_out.items())
            raise RankdeckError(f"nothing was measured: {why}")
        return self._setup

    def _refuse_while_running(self) -> None:
        if self._work.runs:
            raise RankdeckError("a run is in progress: stop it first")

    # ---- show

    @property
    def current(self) -> AcceptanceRun | None:
        """The run that was planned or started here, as it is now."""
        if self._head is None:
            return None
        if self._stale or self._view is None:
            self._view = self._shown()
        return self._view

    def _touch(self) -> None:
        self._stale = True
        self.changed()

    def _shown(self) -> AcceptanceRun:
        assert self._head is not None
        assert self._plan is not None
        runner = self._runner
        results = (
            tuple(runner.results.values()) if runner else self.store.measurements(self._head.id)
        )
        done = runner.done if runner else list(results)
        odd = runner.odd if runner else describe_differing(self._identity)
        if self._judged[0] != len(done):
            self._judged = (
                len(done),
                view.judge_results(self._plan, done, odd, kinds_of_hardware(self._identity)),
            )
        self._stale = False
        self._view = self._value(self._head, self._plan, results, self._judged[1])
        return self._view

    def _value(
        self, head: KeptRun, plan: RunPlan, results: Sequence[Result], judged: view.Judged
    ) -> AcceptanceRun:
        runner = self._runner if head is self._head else None
        progress = self._progress if head is self._head else _progress(head)
        known = runner.identity if runner else self._identity if head is self._head else {}
        identity = known or self.store.identity(head.id)
        rows = self.store.baselines(head.cluster)
        then = self.store.identity(rows[0].run) if rows else {}
        compared = compare_with_baseline(plan, results, identity, rows, then)
        return AcceptanceRun(
            id=head.id,
            cluster=head.cluster,
            operator=head.operator,
            started=head.started,
            ended=head.ended,
            progress=progress,
            plan=plan,
            results=tuple(results),
            judgements=judged.judgements,
            verdicts=judged.verdicts,
            stages=view.stage_views(plan, results, runner.stage if runner else None, progress),
            answers=judged.answers,
            notes=judged.notes,
            identity=identity,
            differing=describe_differing(identity),
            drift=compared.drift,
            baseline=compared.sentence,
            changed=compared.changed,
            partly_compared=compared.partly,
            excluded=dict(runner.excluded) if runner else {},
            verb=self._verb,
        )

    @property
    def _verb(self) -> str:
        return command_of("accept", self._session.cluster.file)

    def runs(self) -> tuple[AcceptanceRun, ...]:
        """The saved runs of the cluster, newest first, without their results."""
        found = [(head, _plan_of(head)) for head in self.store.runs(self._session.cluster.name)]
        return tuple(
            AcceptanceRun(
                id=head.id,
                cluster=head.cluster,
                operator=head.operator,
                started=head.started,
                ended=head.ended,
                progress=_progress(head),
                plan=plan,
                verb=self._verb,
            )
            for head, plan in found
            if plan is not None
        )

    def open(self, run: str) -> AcceptanceRun:
        """A saved run with all results."""
        if self._head is not None and run == self._head.id:
            return self._shown()
        head, plan = self._find(run)
        results = self.store.measurements(head.id)
        identity = self.store.identity(head.id)
        judged = view.judge_results(
            plan, results, describe_differing(identity), kinds_of_hardware(identity)
        )
        return self._value(head, plan, results, judged)

    def resume(self, run: str) -> AcceptanceRun:
        """Make a stopped run `current`, so that `start` continues it."""
        self._refuse_while_running()
        head, plan = self._find(run)
        self._head, self._plan, self._setup = head, plan, None
        self._identity = self.store.identity(head.id)
        self._begin_anew(RunState.DONE if head.state == "done" else RunState.STOPPED)
        return self._shown()

    def _find(self, run: str) -> tuple[KeptRun, RunPlan]:
        heads = self.store.runs(self._session.cluster.name)
        head = next((one for one in heads if one.id == run), None)
        plan = _plan_of(head) if head else None
        if head is None or plan is None:
            known = ", ".join(one.id for one in heads[:5]) or "none"
            raise UnknownRunError(
                f"no acceptance run `{run[:60]}` of {self._session.cluster.name}; there are: {known}"
            )
        return head, plan

    def commands(self, run: AcceptanceRun, result: Result) -> tuple[str, ...]:
        """The commands of one measurement, quoted for a shell."""
        cluster = self._session.cluster
        addresses = {node: job_address(cluster, cluster.node(node), None) for node in result.nodes}
        setup = self._setup or Setup(
            cluster=cluster, addresses=addresses, rails=run.plan.rails, seconds=run.plan.seconds
        )
        work = Work(
            stage=result.stage,
            recipe=result.recipe,
            nodes=result.nodes,
            runs=((result.sender, result.receiver, result.repeat, result.rail),),
            port=result.port,
        )
        return command_lines(work, setup)

    def raw(self, result: Result, most: int = 1 << 20) -> str:
        """The output of a measurement, made safe to show; "" if it is gone."""
        return self._raw.read(result, most)


def _refuse_pods(cluster: Cluster, request: Request) -> None:
    """Raise RankdeckError if pods cannot do what is requested."""
    if not cluster.nodes:
        raise RankdeckError(
            "name the nodes to be measured under `nodes:` of the cluster file, as `kubectl get nodes` has them"
        )
    if not request.like:
        raise RankdeckError(
            f"on {cluster.can.scheduler} measurements need an image: `--like JOB` takes it, and all options, from a job file; "
            "the image must have python3, timeout and the programs of the recipe"
        )


def _surveyed(
    setup: Setup, identities: Mapping[str, Identity], addresses: Mapping[str, str]
) -> Setup:
    """The setup, with what the nodes reported."""
    rates = [rate for node, one in identities.items() if (rate := link_gbps(one, addresses[node]))]
    ports = [max(one.rdma.values()) for one in identities.values() if one.rdma]
    interfaces = {
        node: {name: net.addresses[0] for name, net in one.networks.items() if net.addresses}
        for node, one in identities.items()
    }
    return replace(
        setup,
        addresses=addresses,
        interfaces={} if setup.pods else interfaces,
        hostnames={} if setup.pods else {node: one.hostname for node, one in identities.items()},
        gpus={node: one.gpus for node, one in identities.items() if one.gpus},
        known=HardwareFacts(link_gbps=median(rates) if rates else 0.0),
        rdma_gbps=median(ports) if ports else 0.0,
    )


def _rails(
    request: Request, nodes: Sequence[str], identities: Mapping[str, Identity], *, pods: bool
) -> dict[str, Rails]:
    """Recipe -> rails, for those that measure one rail at a time; raises RankdeckError."""
    rails = rails_of(nodes, identities, request.rails)
    fabric = fabric_of(rails, identities)
    if pods and rails and fabric == "network":
        raise RankdeckError(
            "`--rails` of interfaces: each pod has others; name RDMA devices, or none"
        )
    names = [
        name
        for name in plugins.plugin_names("recipes")
        if find_recipe(name).traits.fabric == fabric
    ]
    return dict.fromkeys(names, rails) if rails else {}


def _why_bad(node: NodeState) -> str:
    """The worst reason of a node, as Fleet tells it."""
    worst = next(iter(node.health.reasons), None)
    return clean_line(worst.sentence.seen, 120) if worst else "its agent says so"


def _asked_again(plan: RunPlan, include_busy: tuple[str, ...]) -> Request:
    """The request that checks the nodes again before a stopped run continues;
    the nodes were chosen when it began.
    """
    return Request(like=plan.like, seconds=plan.seconds, include_busy=include_busy)


def _plan_of(head: KeptRun) -> RunPlan | None:
    try:
        return read_plan(head.body)
    except ValueError:
        return None


def _progress(head: KeptRun) -> RunState:
    """The state of a saved run: a run that is marked as running was
    killed, or runs in another console.
    """
    return RunState.DONE if head.state == "done" else RunState.STOPPED
