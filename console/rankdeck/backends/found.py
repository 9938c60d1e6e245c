"""Ask nodes what runs on them: jobs that the history of this console may not know."""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

from rankdeck.errors import AgentError, NodeError, UnreachableError
from rankdeck.remote.attach import Agents
from rankdeck.remote.each import on_each
from rankdeck.remote.shell import Shell
from rankdeck.rules.found_jobs import Found, found_jobs

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
