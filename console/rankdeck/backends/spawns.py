"""Which requests for MPI daemons are carried out, and why the others are not. No I/O."""

from collections.abc import Collection, Mapping
from typing import Any

from rankdeck.model.text import clean
from rankdeck_agent.rules.mpi_daemon import daemon_of, daemons_of
from rankdeck_agent.wire import NodePlan

_SPARE = 16
"""Requests of one node that are answered beyond two for each node of the job."""
FLOOD = "asks for daemons without end: not answered any more"


class Spawns:
    """The requests of one job, as far as a follower has seen them."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = frozenset(hosts)
        self._asked: dict[str, int] = {}
        self._there: set[tuple[str, str]] = set()
        """Node that asked, and host that starts its daemon or has it."""

    def flooded(self, node: str) -> bool | None:
        """Count a request of the node: True when it is the first too many, None for further ones."""
        most = 2 * len(self._hosts) + _SPARE
        asked = self._asked[node] = self._asked.get(node, 0) + 1
        return None if asked > most else asked == most

    def refusal(self, origin: NodePlan, request: Mapping[str, Any]) -> str:
        """Why the request is not carried out, after "asked to start …"; "" where it is.

        One that is carried out counts as there until `failed` says otherwise.
        """
        host, command = request.get("host"), request.get("command")
        allowed = {name for p in origin.processes for name in daemons_of(p.argv, origin.job)}
        on = f"on {clean(host, 64)}"
        if not allowed:
            return f"a command {on}, but has no launcher of MPI: refused"
        if not isinstance(host, str) or host not in self._hosts:
            return f"a command {on}, which is no node of this job: refused"
        if not isinstance(command, str) or daemon_of(command) not in allowed:
            return f"a command {on} that is no MPI daemon: refused"
        if (origin.node, host) in self._there:
            return f"a second MPI daemon {on}: refused"
        self._there.add((origin.node, host))
        return ""

    def failed(self, origin: str, host: str) -> None:
        """The daemon did not come up there: it may be asked for again."""
        self._there.discard((origin, host))
