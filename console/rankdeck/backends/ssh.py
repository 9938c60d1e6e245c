"""The ssh backend, for clusters without a scheduler: starts supervisors
over SSH, asks nodes which jobs they run.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, ClassVar
from weakref import WeakSet

from rankdeck.backends.base import SchedulerWord, Tell, say_nothing
from rankdeck.backends.follow import SshFollower
from rankdeck.backends.free_port import with_port
from rankdeck.backends.job_network import asked_addresses, with_addresses
from rankdeck.backends.launchers import plan_job
from rankdeck.errors import AgentError, LaunchError, NodeError, RankdeckError, UnreachableError
from rankdeck.model.cancel_report import CancelReport, RemainingProcess
from rankdeck.model.capabilities import Capabilities, capabilities_of
from rankdeck.model.cluster import Cluster
from rankdeck.model.field_checks import is_number
from rankdeck.model.job import Job
from rankdeck.model.job_spec import Abort, JobSpec
from rankdeck.model.json_tables import as_list, as_table, as_tables, is_list
from rankdeck.model.plan import Plan
from rankdeck.model.queue import LogRun
from rankdeck.model.rank import State
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.agent import JOB_RUN, Agents
from rankdeck.remote.command import remaining_process
from rankdeck.remote.shell import ProgramResult, on_each
from rankdeck.rules.arrivals import RankTestimony, find_absence, read_rank_testimony
from rankdeck.rules.inspect import Inspection, Look, conclude_inspection, look_of
from rankdeck.state.lines import ReadPositionsOf
from rankdeck.values import replace, value_table
from rankdeck_agent.wire import NodePlan, ProcessPlan

START_LIMIT = 30.0
CANCEL_SLACK = 10.0
"""Seconds beyond the grace period for which a cancel tries again to reach a node."""
CANCEL_LIMIT = 30.0
"""Seconds beyond the grace period that a node may take to cancel:
a container runtime may be slow.
"""
_RETRY = 1.0
_SHORT = ("job", "list")
"""A command that ends quickly, to find out whether a node answers again."""
_MOST_LEFT, _MOST_NAMED = 1000, 4
UNKNOWN_LEFT = (
    "the supervisor was killed, and of these that began after it nothing says whose they are"
)
"""Most remaining processes of a node that are listed."""
Found = dict[str, tuple[Plan, float]]
"""Job -> (its plan, when it was started in epoch seconds)."""


class SshBackend:
    """Plans, launches, follows and cancels over SSH; see `base.Backend`."""

    name: ClassVar[str] = "ssh"
    can: ClassVar[Capabilities] = capabilities_of("ssh")

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._followers: dict[str, WeakSet[SshFollower]] = {}

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        return plan_job(cluster, spec, job)

    def follow(
        self, plan: Plan, seen: Mapping[str, int], positions: ReadPositionsOf
    ) -> SshFollower:
        """See `base.Backend.follow`; `cancel` tells these followers to give up lost nodes."""
        follower = SshFollower(self._agents, plan, seen, positions)
        self._followers.setdefault(plan.job, WeakSet()).add(follower)
        return follower

    # ---- launch

    async def cancel_tasks(self, job: Job, tasks: Sequence[int], grace: float) -> CancelReport:
        """There are none without a scheduler."""
        raise RankdeckError(f"{job.id} is no array: its ranks end together")

    async def find_run(self, job: Job, number: int) -> LogRun:
        """There is only one without a scheduler."""
        raise RankdeckError(f"{job.id} has one run: without a scheduler nothing queues it again")

    async def check(self, plan: Plan) -> SchedulerWord:
        """Nothing: there is no scheduler."""
        return SchedulerWord()

    async def launch(self, plan: Plan, tell: Tell = say_nothing) -> Plan:
        """Start the supervisors, those without processes first; if one
        fails, end all and raise LaunchError.
        """
        plan = await self._with_port(await self._with_addresses(plan))
        waiting = [node for node in plan.nodes if not node.processes]
        starting = [node for node in plan.nodes if node.processes]
        done = False
        try:
            for nodes in (waiting, starting):
                await self._prepare_all(nodes, tell)
            done = True
        finally:
            if not done:
                await self.cancel(plan, 0.0, by="abort")
        return plan

    async def _with_addresses(self, plan: Plan) -> Plan:
        """The plan with the addresses that nodes have in the job network; raises LaunchError."""
        asked = {plan.nodes[index].node: index for index in asked_addresses(plan)}

        async def ask(name: str) -> str:
            node = plan.nodes[asked[name]]
            said = (f"--network={node.network}", f"--interface={node.interface}")
            answer = await self._agents.call(name, ("job", "address", *said), limit=START_LIMIT)
            return _address(name, answer)

        found, failed = await on_each(asked, ask)
        if failed:
            whys = {name: error.why for name, error in failed.items()}
            first = next(iter(failed.values()))
            raise LaunchError("prepare", str(first), whys) from first
        return with_addresses(plan, {asked[name]: address for name, address in found.items()})

    async def _with_port(self, plan: Plan) -> Plan:
        if not plan.port_on:
            return plan
        try:
            answer = await self._agents.call(plan.port_on, ("job", "port"), limit=START_LIMIT)
            return with_port(plan, _port(answer))
        except (NodeError, ValueError) as error:
            raise LaunchError("prepare", f"no free port on {plan.port_on}: {error}") from error

    async def _prepare_all(self, nodes: Iterable[NodePlan], tell: Tell) -> None:
        plans = {node.node: node for node in nodes}
        failed: list[NodeError] = []

        async def prepare(name: str) -> None:
            try:
                await self._prepare(plans[name])
            except NodeError as error:
                failed.append(error)
                if len(failed) == 1:
                    await tell(str(error))

        await on_each(plans, prepare)
        if failed:
            more = f" (and {len(failed) - 1} more nodes)" if len(failed) > 1 else ""
            whys = {one.node: one.why for one in failed}
            raise LaunchError("prepare", f"{failed[0]}{more}", whys) from failed[0]

    async def _prepare(self, node: NodePlan) -> None:
        await self._hand_over(node, JOB_RUN, START_LIMIT)

    async def _hand_over(self, node: NodePlan, command: tuple[str, ...], limit: float) -> None:
        """Pass the plan of a node to this command of its agent; raises NodeError."""
        await self._agents.hand_over(node.node, command, value_table(node), limit)

    # ---- cancel

    async def cancel(self, plan: Plan, grace: float, *, by: str = "user") -> CancelReport:
        """SIGTERM, wait, SIGKILL, then search every node for remaining
        processes; see `base.Backend.cancel`.
        """
        plans = {node.node: node for node in plan.nodes}
        answers, failed = await on_each(
            plans, lambda name: self._cancel_node(plans[name], grace, by)
        )
        left = tuple(one for rows in answers.values() for one in rows)
        unverified = {name: error.why for name, error in failed.items()}
        state = State.RUNNING if left else State.LOST if unverified else State.CANCELLED
        for follower in self._followers.get(plan.job, ()):
            follower.give_up_lost()
        return CancelReport(plan.job, state, left, unverified)

    async def _cancel_node(self, plan: NodePlan, grace: float, by: str) -> list[RemainingProcess]:
        """Cancel on one node, trying again while it cannot be reached, until the time is over."""
        node = plan.node
        command = ("job", "cancel", plan.job, node, "--grace", f"{grace:g}", "--by", by)
        deadline = time.monotonic() + grace + CANCEL_SLACK
        while True:
            try:
                answer = await self._agents.call(node, command, limit=grace + CANCEL_LIMIT)
                if plan.elsewhere and answer.row.get("there") is False:
                    raise AgentError(
                        node, "the job has no run folder there: whether it runs is not known"
                    )
                return left_there(node, answer)
            except UnreachableError as error:
                await self._answers_again(error, deadline)

    async def _answers_again(self, lost: UnreachableError, deadline: float) -> None:
        """Return once the node answers; raises `lost` if it does not answer before the deadline."""
        while (left := deadline - time.monotonic() - _RETRY) > 0:
            await asyncio.sleep(_RETRY)
            with contextlib.suppress(UnreachableError):
                await self._agents.call(lost.node, _SHORT, limit=left)
                return
        raise lost


def _port(answer: ProgramResult) -> int:
    """The port in the agent's answer; raises ValueError."""
    if not re.fullmatch("[0-9]{1,5}", answer.word) or not 0 < int(answer.word) < 1 << 16:
        raise ValueError("the agent names no port")
    return int(answer.word)


def _address(node: str, answer: ProgramResult) -> str:
    """The address in the agent's answer; raises AgentError."""
    try:
        found = ip_address(answer.word if answer.code == 0 else "")
    except ValueError:
        raise AgentError(node, answer.complaint) from None
    return str(found)


def left_there(node: str, answer: ProgramResult) -> list[RemainingProcess]:
    """The processes that remain according to the node's answer; raises
    AgentError if it is invalid, or proves nothing.
    """
    rows = answer.row.get("left")
    if not is_list(rows):
        raise AgentError(node, f"cancel gave no answer: {answer.complaint}")
    unknown = [
        remaining_process(node, one, 100)
        for one in as_tables(answer.row.get("unknown"), _MOST_LEFT)
    ]
    if unknown and not rows:
        named = ", ".join(f"{one.pid} `{one.command}`" for one in unknown[:_MOST_NAMED])
        raise AgentError(node, f"{UNKNOWN_LEFT}: look at {named}")
    return [remaining_process(node, as_table(row), 500) for row in rows[:_MOST_LEFT]]


LIMIT = 45.0
_MOST_HOSTS = 4096
_TOGETHER = 32
"""Most nodes that are asked at the same time."""
_OPEN = 3.0
"""Seconds that an operation must last until it is said who never entered it."""


async def inspect_job(agents: Agents, job: Job) -> Inspection:
    """Where the ranks of this job are; nodes that do not answer within LIMIT are in `missing`."""
    answers: dict[str, Mapping[str, Any]] = {}
    missing: dict[str, str] = {}
    plans = {plan.node: plan for plan in job.plan.nodes}

    async def ask(node: str) -> None:
        answer = await agents.call(node, ("job", "inspect", job.id, node), limit=LIMIT)
        if plans[node].elsewhere and isinstance(answer.row.get("inside"), list):
            _take_those_inside(answer.row, answers, missing)
        elif isinstance(answer.row.get("ranks"), list):
            answers[node] = answer.row
        else:
            raise AgentError(node, answer.complaint)

    _, failed = await on_each(plans, ask, _TOGETHER)
    missing |= {node: clean_line(error.why, 300) for node, error in failed.items()}
    return _concluded(job, answers, missing)


def _take_those_inside(
    row: Mapping[str, Any], answers: dict[str, Mapping[str, Any]], missing: dict[str, str]
) -> None:
    """Add what a login node collected from the nodes of the
    ranks to `answers` and `missing`.
    """
    for found in as_tables(row["inside"], _MOST_HOSTS):
        host = clean_line(found.get("host"), 64)
        if host and isinstance(found.get("ranks"), list):
            answers[host] = found
    unheard = list(as_table(row.get("missing")).items())[:_MOST_HOSTS]
    missing |= {clean_line(host, 64): clean_line(why, 300) for host, why in unheard}


def _concluded(
    job: Job, answers: Mapping[str, Mapping[str, Any]], missing: Mapping[str, str]
) -> Inspection:
    now = time.time()
    silent = {r.rank: now - r.heard for r in job.ranks if r.heard is not None}
    looks: list[Look] = []
    notes: dict[str, str] = {}
    ras: list[str] = []
    said: dict[int, RankTestimony] = {}
    for node, answer in answers.items():
        found = (look_of(node, row, silent) for row in answer["ranks"])
        looks += [look for look in found if look is not None]
        told = (read_rank_testimony(row) for row in answer["ranks"])
        said |= {one.rank: one for one in told if one is not None}
        if spy := clean_line(answer.get("spy"), 200):
            notes[node] = spy
        lines = as_list(as_table(answer.get("ras")).get("lines"), 400)
        ras = ras or [clean_line(line, 200) for line in lines]
    found = conclude_inspection(job.id, now, looks, missing)
    absence = find_absence(said, {rank.rank: rank.node for rank in job.ranks}, _OPEN)
    answer = f"{absence.text}. {found.answer}" if absence else found.answer
    return replace(found, answer=answer, notes=notes, ras=tuple(ras))


async def ask_what_runs(
    agents: Agents, cluster: str, nodes: Iterable[str], limit: float, *, ended: bool = False
) -> tuple[Found, dict[str, str]]:
    """The jobs that run on these nodes, and node -> why it did not answer within `limit` seconds.

    With `ended`, also the jobs that are over and whose run folders are still there.
    """
    command = ("job", "list", "--plans", *(("--ended",) if ended else ()))

    async def ask(node: str) -> Sequence[Mapping[str, Any]]:
        answer = await agents.call(node, command, limit=limit)
        if answer.code != 0:
            raise AgentError(node, f"`job list` ended with exit code {answer.code}")
        return answer.rows

    answered, failed = await on_each(nodes, ask)
    silent = {node: error.why for node, error in failed.items()}
    return found_jobs(cluster, answered, time.time()), silent


_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,100})-(?:\d{4})?\d{4}-\d{6}-[0-9a-f]{4}\Z")
"""A job id as a launch makes it; before, it had no year.

Probes of preflight have other names, and end by themselves.
"""
_MOST_ROWS, _MOST_RANKS, _MOST_PROCESSES, _MOST_WORDS = 1000, 4096, 4096, 1000
_LONGEST_WORD = 4096
_LAST_RANK = 1 << 20
_LONGEST_GRACE = 86400.0


def found_jobs(
    cluster: str, answers: Mapping[str, Sequence[Mapping[str, Any]]], now: float
) -> Found:
    """The jobs whose plans are in the rows of `job list --plans` of
    each node; invalid rows are left out.
    """
    parts: dict[str, list[NodePlan]] = {}
    created: dict[str, float] = {}
    for node, rows in answers.items():
        for row in rows[:_MOST_ROWS]:
            plan = _node_plan(node, row)
            if plan is None or not _free(plan, parts.get(plan.job, [])):
                continue
            parts.setdefault(plan.job, []).append(plan)
            at = min(_number(row.get("created"), now), now)
            created[plan.job] = min(created.get(plan.job, at), at)
    return {job: (_plan(cluster, job, nodes), created[job]) for job, nodes in parts.items()}


def complete_plan(known: Plan, found: Plan) -> Plan | None:
    """The plan of a job that was found before, with the nodes that did not
    answer then; None if nothing is new.
    """
    nodes = list(known.nodes)
    names = {node.node for node in nodes}
    for one in found.nodes if known.found else ():
        if one.node not in names and _free(one, nodes):
            nodes.append(one)
    return _plan(known.cluster, known.job, nodes) if len(nodes) > len(known.nodes) else None


def _free(plan: NodePlan, others: list[NodePlan]) -> bool:
    """Whether no other node reports the ranks of this one."""
    known = {rank for other in others for rank in other.ranks}
    return known.isdisjoint(plan.ranks)


def _plan(cluster: str, job: str, nodes: list[NodePlan]) -> Plan:
    match = _ID.match(job)
    return Plan(
        job=job,
        name=match[1] if match else job,
        cluster=cluster,
        backend="ssh",
        nodes=tuple(sorted(nodes, key=lambda node: min(node.ranks, default=0))),
        grace=max(node.grace for node in nodes),
        # Only the console that started the job knows whether a failed rank should end it.
        abort=Abort(enabled=False),
        found=True,
    )


def _node_plan(node: str, row: Mapping[str, Any]) -> NodePlan | None:
    """The part of one job on one node; None if its supervisor is gone or a field is invalid."""
    job, table = row.get("job"), as_table(row.get("plan"))
    known = row.get("closed") is True or row.get("alive") is True
    if not known or row.get("node") != node:
        return None
    if not isinstance(job, str) or not _ID.match(job):
        return None
    ranks = _ranks(table.get("ranks"))
    if ranks is None or table.get("elsewhere") not in (False, None):
        return None
    grace = min(max(_number(table.get("grace"), 10.0), 0.0), _LONGEST_GRACE)
    processes = _processes(table.get("processes"), ranks)
    return NodePlan(job=job, node=node, ranks=ranks, processes=processes, grace=grace)


def _ranks(raw: object) -> tuple[int, ...] | None:
    ranks = as_list(raw)
    sane = all(type(rank) is int and 0 <= rank < _LAST_RANK for rank in ranks)
    if (
        not isinstance(raw, list)
        or not sane
        or len(ranks) > _MOST_RANKS
        or len(set(ranks)) != len(ranks)
    ):
        return None
    return tuple(ranks)


def _processes(raw: object, ranks: tuple[int, ...]) -> tuple[ProcessPlan, ...]:
    return tuple(_process(row, ranks) for row in as_tables(raw, _MOST_PROCESSES))


def _process(row: Mapping[str, Any], ranks: tuple[int, ...]) -> ProcessPlan:
    words, rank = as_list(row.get("argv"), _MOST_WORDS), row.get("rank")
    return ProcessPlan(
        name=clean_line(row.get("name"), 100),
        argv=tuple(clean_line(word, _LONGEST_WORD) for word in words),
        rank=rank if type(rank) is int and rank in ranks else None,
    )


def _number(raw: object, otherwise: float) -> float:
    return float(raw) if is_number(raw) and abs(raw) < 1e12 else otherwise
