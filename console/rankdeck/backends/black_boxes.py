"""Reads the black boxes of a job from its nodes."""

import asyncio
from collections.abc import Mapping

from rankdeck.model.job import Job
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import on_each
from rankdeck.state.black_box import NodeBox, read_node_box
from rankdeck.state.job_recorder import choose_recorded, troubled_nodes
from rankdeck_agent.wire.job_events import origin_of

BOX_LIMIT = 30.0
"""Seconds for the answer of a node with its black box."""
_TOGETHER = 16


class BoxReader:
    """Asks nodes for black boxes."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def read(self, job: Job) -> dict[str, NodeBox]:
        """Node -> its black box, of at most 64 nodes; a node that does not answer has an empty one
        with the reason.
        """
        plans = {plan.node: plan for plan in job.plan.nodes}
        asked = choose_recorded(list(plans), troubled_nodes(job))

        async def ask(node: str) -> NodeBox:
            answer = await self._agents.call(node, ("job", "box", job.id, node), limit=BOX_LIMIT)
            if answer.code:
                return NodeBox(node, trouble=answer.complaint)
            clock = await self._agents.shell.clock(node)
            origin = origin_of(plans[node], job.plan.backend)
            # Megabytes of JSON: the screens go on meanwhile.
            return await asyncio.to_thread(read_node_box, node, origin, clock.offset, answer.row)

        boxes, failed = await on_each([name for name in asked if name in plans], ask, _TOGETHER)
        return {**boxes, **_empty({node: str(error) for node, error in failed.items()})}


def _empty(failed: Mapping[str, str]) -> dict[str, NodeBox]:
    return {node: NodeBox(node, trouble=why) for node, why in failed.items()}
