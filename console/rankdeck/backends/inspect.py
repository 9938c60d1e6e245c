"""Asks all nodes of a job at once where its ranks are, and nodes which jobs they run."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from rankdeck.errors import AgentError, NodeError
from rankdeck.model.job import Job
from rankdeck.model.text import clean
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import on_each
from rankdeck.rules.find_jobs import Found, found_jobs
from rankdeck.rules.inspect import Inspection, Look, conclude, look_of
from rankdeck_agent.wire import NodePlan

LIMIT = 45.0
_MOST_HOSTS = 4096
_TOGETHER = 32
"""Nodes that are asked at the same time."""


async def inspect_job(agents: Agents, job: Job, limit: float = LIMIT) -> Inspection:
    """Where the ranks of this job are; a node that does not answer is named, not waited for."""
    answers: dict[str, Mapping[str, Any]] = {}
    missing: dict[str, str] = {}
    slots = asyncio.Semaphore(_TOGETHER)

    async def one(plan: NodePlan) -> None:
        node = plan.node
        try:
            async with slots:
                answer = await agents.call(node, ("job", "inspect", job.id, node), limit=limit)
            if plan.elsewhere and isinstance(answer.row.get("inside"), list):
                _take_those_inside(answer.row, answers, missing)
            elif isinstance(answer.row.get("ranks"), list):
                answers[node] = answer.row
            else:
                raise AgentError(node, answer.complaint)
        except NodeError as error:
            missing[node] = clean(error.why, 300)

    async with asyncio.TaskGroup() as tasks:
        for node in job.plan.nodes:
            tasks.create_task(one(node))
    return _concluded(job, answers, missing)


def _take_those_inside(
    row: Mapping[str, Any], answers: dict[str, Mapping[str, Any]], missing: dict[str, str]
) -> None:
    """What a login node of Slurm has from the nodes on which the ranks are."""
    for one in cast("list[object]", row["inside"])[:_MOST_HOSTS]:
        found = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        host = clean(found.get("host"), 64)
        if host and isinstance(found.get("ranks"), list):
            answers[host] = found
    unheard = row.get("missing")
    if isinstance(unheard, dict):
        told = cast("dict[str, object]", unheard).items()
        missing |= {clean(host, 64): clean(why, 300) for host, why in list(told)[:_MOST_HOSTS]}


def _concluded(
    job: Job, answers: Mapping[str, Mapping[str, Any]], missing: Mapping[str, str]
) -> Inspection:
    now = time.time()
    silent = {r.rank: now - r.heard for r in job.ranks if r.heard is not None}
    looks: list[Look] = []
    notes: list[str] = []
    ras: list[str] = []
    for node, answer in answers.items():
        found = (look_of(node, row, silent) for row in answer["ranks"])
        looks += [look for look in found if look is not None]
        if spy := clean(answer.get("spy"), 200):
            notes.append(f"{node}: {spy}")
        said = answer.get("ras")
        if isinstance(said, dict) and not ras:
            lines = cast("dict[str, Any]", said).get("lines")
            told = cast("list[object]", lines) if isinstance(lines, list) else []
            ras = [clean(line, 200) for line in told[:400]]
    found = conclude(job.id, now, looks, missing)
    return replace(found, notes=tuple(notes), ras=tuple(ras))


async def ask_what_runs(
    agents: Agents, cluster: str, nodes: Iterable[str], limit: float
) -> tuple[Found, dict[str, str]]:
    """The jobs that run on these nodes, and node -> why it did not answer within `limit` seconds."""

    async def ask(node: str) -> Sequence[Mapping[str, Any]]:
        answer = await agents.call(node, ("job", "list", "--plans"), limit=limit)
        if answer.code != 0:
            raise AgentError(node, f"`job list` ended with exit code {answer.code}")
        return answer.rows

    answers = await on_each(nodes, ask)
    silent = {n: a.why for n, a in answers.items() if isinstance(a, NodeError)}
    told = {n: a for n, a in answers.items() if not isinstance(a, NodeError)}
    return found_jobs(cluster, told, time.time()), silent
