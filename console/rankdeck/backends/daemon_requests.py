"""Which requests of a job's launchers for MPI daemons on other nodes are carried out. No I/O."""

from collections.abc import Collection

from rankdeck.model.safe_text import clean_line
from rankdeck_agent.rules.mpi_daemon import daemon_of, daemons_of
from rankdeck_agent.wire import NodePlan
from rankdeck_agent.wire.job_events import DaemonAsked

_SPARE = 16
"""Requests of one node that are carried out, in addition to two for each node of the job."""
FLOOD = "asks for too many daemons: no longer answered"


class DaemonRequests:
    """Decides which requests for MPI daemons of one job are carried out."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = frozenset(hosts)
        self._asked: dict[str, int] = {}
        self._there: set[tuple[str, str]] = set()
        """(node that asked, host on which its daemon starts or runs)."""

    def flooded(self, node: str) -> bool | None:
        """Count a request of the node.

        False: carry it out; True: it reaches the limit, report it; None: ignore it.
        """
        most = 2 * len(self._hosts) + _SPARE
        asked = self._asked[node] = self._asked.get(node, 0) + 1
        return None if asked > most else asked == most

    def refusal(self, origin: NodePlan, request: DaemonAsked) -> str:
        """Why the request is refused, worded to follow "asked to start
        …"; "" if it is to be carried out.

        In that case the daemon counts as running until `failed` is called.
        """
        host = request.host
        allowed = {name for p in origin.processes for name in daemons_of(p.argv, origin.job)}
        on = f"on {clean_line(host, 64)}"
        if not allowed:
            return f"a command {on}, but has no launcher of MPI: refused"
        if host not in self._hosts:
            return f"a command {on}, which is no node of this job: refused"
        if daemon_of(request.command) not in allowed:
            return f"a command {on} that is no MPI daemon: refused"
        if (origin.node, host) in self._there:
            return f"a second MPI daemon {on}: refused"
        self._there.add((origin.node, host))
        return ""

    def failed(self, origin: str, host: str) -> None:
        """Note that the daemon did not start on `host`: `origin` may request it again."""
        self._there.discard((origin, host))
