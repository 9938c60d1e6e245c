"""Agents that stay: put on nodes as a service, looked after, taken away; all nodes at once."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankdeck.errors import AgentError, NodeError
from rankdeck.model.border import last_table
from rankdeck.model.text import clean
from rankdeck.remote.attach import Agents
from rankdeck.remote.shell import Shell

LIMIT = 120.0
TEXT = 65536
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one node; `why` is one sentence where it is not ok."""

    node: str
    ok: bool
    why: str = ""
    answer: Answer = field(default_factory=dict[str, Any])

    def text(self, key: str) -> str:
        """One value of the answer as text that is safe to show."""
        return clean(self.answer.get(key, ""))

    @property
    def notes(self) -> tuple[str, ...]:
        raw = self.answer.get("notes", ())
        return tuple(map(clean, raw)) if isinstance(raw, list) else ()  # pyright: ignore[reportUnknownArgumentType]


class Installer:
    """Runs the agent's own `service` verb on nodes."""

    def __init__(self, shell: Shell, agents: Agents, *, system: bool, dry: bool = False) -> None:
        self._shell, self._agents = shell, agents
        self._words = ("--system" if system else "--user", *(["--dry-run"] * dry))

    async def run(
        self, verb: str, nodes: Sequence[str], configs: Mapping[str, Answer]
    ) -> tuple[Outcome, ...]:
        """Do `verb` on every node; `configs` goes to install. One failing keeps none back."""
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._one(verb, node, configs.get(node, {}))) for node in nodes
            ]
        return tuple(task.result() for task in running)

    async def _one(self, verb: str, node: str, config: Answer) -> Outcome:
        try:
            agent = await self._agents.agent_path(node)
            said = await self._shell.run(
                node,
                (*agent, "service", verb, *self._words),
                json.dumps(dict(config)).encode(),
                LIMIT,
            )
            answer = _answer(node, said.out, said.err)
        except NodeError as error:
            return Outcome(node, ok=False, why=clean(error.why, 400))
        ok = answer.get("ok") is True
        return Outcome(node, ok, "" if ok else clean(answer.get("why"), 400), answer)


def _answer(node: str, out: bytes, err: bytes) -> Answer:
    """The line of JSON among whatever the login prints; raises AgentError."""
    if answer := last_table(out[-TEXT:]):
        return answer
    lines = err.decode("utf-8", "replace").strip().splitlines()
    raise AgentError(node, clean(lines[-1], 300) if lines else "gave no answer")
