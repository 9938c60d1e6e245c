"""Look at every rank of a job, on all its nodes at once."""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from rankdeck.errors import AgentError, NodeError, UnreachableError
from rankdeck.model.border import last_table
from rankdeck.model.job import Job
from rankdeck.model.text import clean
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import Shell, on_each
from rankdeck.rules.find_jobs import Found, found_jobs
from rankdeck.rules.inspect import Inspection, Look, conclude, look_of

LIMIT = 45.0
_TOGETHER = 32
"""Nodes that are asked at the same time."""


async def inspect_job(shell: Shell, agents: Agents, job: Job, limit: float = LIMIT) -> Inspection:
    """Where the ranks of this job are; a node that does not answer is named, not waited for."""
    answers: dict[str, Mapping[str, Any]] = {}
    missing: dict[str, str] = {}
    slots = asyncio.Semaphore(_TOGETHER)

    async def one(node: str) -> None:
        try:
            async with slots, asyncio.timeout(limit):
                answers[node] = await _ask(shell, agents, job.id, node, limit)
        except NodeError as error:
            missing[node] = clean(error.why, 300)
        except TimeoutError:
            missing[node] = f"no answer within {limit:.0f} s"

    async with asyncio.TaskGroup() as tasks:
        for node in job.plan.nodes:
            tasks.create_task(one(node.node))
    return _concluded(job, answers, missing)


async def _ask(
    shell: Shell, agents: Agents, job: str, node: str, limit: float
) -> Mapping[str, Any]:
    agent = await agents.agent_path(node)
    result = await shell.run(node, (*agent, "job", "inspect", job, node), limit=limit)
    answer = last_table(result.out)
    if not isinstance(answer.get("ranks"), list):
        said = result.err.decode("utf-8", "replace").strip().splitlines()
        raise AgentError(node, clean(said[-1], 300) if said else f"exit status {result.code}")
    return answer


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


_MOST_LINES = 1000


async def ask_what_runs(
    shell: Shell, agents: Agents, cluster: str, nodes: Iterable[str], limit: float
) -> tuple[Found, dict[str, str]]:
    """The jobs that run on these nodes; and node -> why it told nothing within `limit` seconds."""

    async def ask(node: str) -> list[Mapping[str, Any]]:
        try:
            async with asyncio.timeout(limit):
                agent = await agents.agent_path(node)
                argv = (*agent, "job", "list", "--plans")
                result = await shell.run(node, argv, limit=limit)
        except TimeoutError as error:
            raise UnreachableError(node, f"no answer within {limit:g} s") from error
        if result.code != 0:
            raise AgentError(node, f"`job list` ended with exit code {result.code}")
        return _rows(result.out)

    answers = await on_each(nodes, ask)
    silent = {n: a.why for n, a in answers.items() if isinstance(a, NodeError)}
    told = {n: a for n, a in answers.items() if not isinstance(a, NodeError)}
    return found_jobs(cluster, told, time.time()), silent


def _rows(out: bytes) -> list[Mapping[str, Any]]:
    """The lines that are JSON objects: start-up files of the login may print others."""
    rows: list[Mapping[str, Any]] = []
    for line in out.splitlines()[-_MOST_LINES:]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(cast("dict[str, Any]", row))
    return rows
