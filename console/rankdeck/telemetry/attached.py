"""The agent of a node: where it publishes, and what became of it."""

import logging
from collections.abc import Mapping
from typing import Any

from rankdeck.remote.ssh import Connections
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.link import Link

log = logging.getLogger(__name__)


class Telemetry:
    """How the agent of a node is told where to publish, and what became of it."""

    def __init__(self, connections: Connections, link: Link, fleet: Fleet) -> None:
        self._connections, self._link, self._fleet = connections, link, fleet

    async def configure(self, node: str) -> Mapping[str, Any]:
        """The agent's configuration; a private broker is reached through a new tunnel."""
        config = self._link.agent_config(node)
        if self._link.private:
            port = await self._connections.reverse_tunnel(node, *self._link.address)
            config |= {"host": "127.0.0.1", "port": port}
        return config

    def report(self, node: str, sentence: str, well: bool) -> None:
        if well:
            self._fleet.attached(node, sentence)
            return
        self._fleet.troubled(node, sentence)
        log.warning("%s", sentence, extra={"source": node})
