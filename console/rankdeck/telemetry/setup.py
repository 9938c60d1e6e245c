"""How the agents that a console carries learn where to publish; installed ones are left alone."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from rankdeck.errors import AgentError, BrokerError
from rankdeck.remote.ssh import Connections
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.link import Link

log = logging.getLogger(__name__)
SETTLE_LIMIT = 12.0
INSTALLED_LOOK = 2.0
INSTALLED = "installed there; see `rankdeck agent status`"


class Telemetry:
    """How the agent of a node is told where to publish, and what became of it."""

    def __init__(self, connections: Connections, link: Link, fleet: Fleet) -> None:
        self._connections, self._link, self._fleet = connections, link, fleet

    async def configure(self, node: str) -> Mapping[str, Any]:
        """The agent's configuration, once one is needed; a tunnel is made anew."""
        await self._link.settled(SETTLE_LIMIT)
        if self._link.trouble:
            raise AgentError(node, "not started: nobody could hear it")
        while self._is_installed(node):
            self.report(node, INSTALLED, well=True)
            await asyncio.sleep(INSTALLED_LOOK)
        try:
            config = self._link.agent_config(node)
        except BrokerError as error:
            raise AgentError(node, str(error)) from error
        if self._link.tunnel:
            port = await self._connections.reverse_tunnel(node, *self._link.address)
            config |= {"host": "127.0.0.1", "port": port}
        return config

    async def superseded(self, node: str) -> None:
        """Return when an installed agent is heard: one that was still starting when we looked."""
        if self._link.private:
            # Installed agents publish to a site's broker only.
            await asyncio.Event().wait()
        # State is plain data without listeners: nobody could set an Event.
        while not self._is_installed(node):  # noqa: ASYNC110
            await asyncio.sleep(INSTALLED_LOOK)

    def _is_installed(self, node: str) -> bool:
        return self._fleet.node(node).installed

    def report(self, node: str, sentence: str, well: bool) -> None:
        if well:
            self._fleet.attached(node, sentence)
            return
        self._fleet.troubled(node, sentence)
        log.warning("%s", sentence, extra={"source": node})
