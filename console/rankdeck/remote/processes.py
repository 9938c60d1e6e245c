"""Asks nodes what runs on them, and sends signals, through the agent's `ps`."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from rankdeck.errors import AgentError, NodeError
from rankdeck.model.process import NodeProcess, process_of
from rankdeck.model.text import clean
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import on_each

LIMIT = 45.0
_TOGETHER = 64
_MOST = 5_000


@dataclass(frozen=True, slots=True)
class FoundProcesses:
    """What was found on some nodes."""

    processes: tuple[NodeProcess, ...] = ()
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """Node -> why it did not tell."""
    notes: tuple[str, ...] = ()
    """What is not known, a sentence each."""


async def find_processes(agents: Agents, nodes: Iterable[str]) -> FoundProcesses:
    """The processes of these nodes now; a node that does not answer is named, not waited for."""
    turn = asyncio.Semaphore(_TOGETHER)

    async def ask(node: str) -> tuple[list[NodeProcess], list[str]]:
        async with turn:
            answer = await agents.call(node, ("ps",), limit=LIMIT)
        rows = answer.row.get("rows")
        if not isinstance(rows, list):
            raise AgentError(node, answer.complaint)
        some = rows[:_MOST]  # pyright: ignore[reportUnknownVariableType]
        found = [process_of(node, row) for row in some if isinstance(row, dict)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        why = clean(answer.row.get("gpus"))
        notes = [f"{node}: who is on the GPUs is not known: {why}"] if why else []
        return [one for one in found if one is not None], notes

    answers = await on_each(nodes, ask)
    told = [answer for answer in answers.values() if not isinstance(answer, NodeError)]
    return FoundProcesses(
        tuple(one for rows, _ in told for one in rows),
        {n: clean(a.why, 300) for n, a in answers.items() if isinstance(a, NodeError)},
        tuple(note for _, notes in told for note in notes),
    )


async def send_signal(agents: Agents, name: str, some: Sequence[NodeProcess]) -> dict[str, str]:
    """Send TERM, KILL, … to these; gives `NODE PID` -> why it was not sent."""
    by_node: dict[str, list[list[int]]] = {}
    for one in some:
        by_node.setdefault(one.node, []).append([one.pid, one.start])

    async def send(node: str) -> dict[str, str]:
        asked = json.dumps({"signal": name, "pids": by_node[node]}).encode()
        answer = await agents.call(node, ("ps", "signal"), asked, limit=LIMIT)
        rows = answer.row.get("not")
        if not isinstance(rows, list):
            raise AgentError(node, answer.complaint)
        told = [
            cast("dict[str, object]", row)
            for row in cast("list[object]", rows)
            if isinstance(row, dict)
        ]
        return {f"{node} {clean(row.get('pid'))}": clean(row.get("why")) for row in told}

    answers = await on_each(by_node, send)
    failed: dict[str, str] = {}
    for node, answer in answers.items():
        failed |= {node: answer.why} if isinstance(answer, NodeError) else answer
    return failed
