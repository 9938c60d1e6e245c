"""Installs the agent on nodes as a service, through its own command `service`."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import field

from rankdeck.errors import NodeError
from rankdeck.model.json_tables import as_list
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import Row
from rankdeck.values import Value

INSTALL_LIMIT = 120.0


class NodeOutcome(Value):
    """The result for one node; `why` is one sentence if it is not ok."""

    node: str
    ok: bool
    why: str = ""
    answer: Row = field(default_factory=dict[str, Any])

    def text(self, key: str) -> str:
        """One value of the answer as text, safe to show."""
        return clean_line(self.answer.get(key, ""))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(map(clean_line, as_list(self.answer.get("notes"))))


class Installer:
    """Runs the agent's `service` command on nodes; `system`: system-wide, not
    for the user; `dry`: change nothing.
    """

    def __init__(self, agents: Agents, *, system: bool, dry: bool = False) -> None:
        self._agents = agents
        self._words = ("--system" if system else "--user", *(["--dry-run"] * dry))

    async def run(
        self, verb: str, nodes: Sequence[str], configs: Mapping[str, Mapping[str, Any]]
    ) -> tuple[NodeOutcome, ...]:
        """Run `verb` on every node, for install with `configs` (node ->
        configuration); a failure stops no other.
        """
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._one(verb, node, configs.get(node, {}))) for node in nodes
            ]
        return tuple(task.result() for task in running)

    async def _one(self, verb: str, node: str, config: Mapping[str, Any]) -> NodeOutcome:
        try:
            stdin = json.dumps(dict(config)).encode()
            command = ("service", verb, *self._words)
            result = await self._agents.call(node, command, stdin, limit=INSTALL_LIMIT)
        except NodeError as error:
            return NodeOutcome(node, ok=False, why=clean_line(error.why, 400))
        answer = result.row or {"why": result.complaint}
        ok = answer.get("ok") is True
        return NodeOutcome(node, ok, "" if ok else clean_line(answer.get("why"), 400), answer)
