"""What a user does to nodes: commands, shells, signals, installing, cleaning, acknowledging."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rankdeck.background import BackgroundTasks
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.model.process import NodeProcess
from rankdeck.preflight.findings import Finding, TellFinding, tell_nobody
from rankdeck.remote.agent import Agents
from rankdeck.remote.command import (
    FAN_OUT,
    USUAL_LIMIT,
    CommandRun,
    CommandState,
    FoundProcesses,
    find_processes,
    send_signal,
)
from rankdeck.remote.installer import Installer
from rankdeck.remote.user_ssh import UserSsh
from rankdeck.schedulers.queue import Queue

if TYPE_CHECKING:
    from rankdeck.model.leftovers import CleanOrder, CleanReport

MOST_COMMANDS = 10
"""Commands whose output is kept."""


class NodeCommands:
    """Runs things on the nodes of one open cluster, through its agents."""

    def __init__(
        self, cluster: Cluster, agents: Agents, queue: Queue, background: BackgroundTasks
    ) -> None:
        self._cluster, self._agents = cluster, agents
        self._queue, self._background = queue, background
        self.commands: tuple[CommandRun, ...] = ()
        """Shell commands that were run on nodes, newest last; the last MOST_COMMANDS are kept."""

    def run_command(
        self, nodes: Sequence[str], command: str, limit: float = USUAL_LIMIT, fan_out: int = FAN_OUT
    ) -> CommandRun:
        """Run a shell command on these nodes, `fan_out` nodes at a time and at most
        `limit` seconds on each; returns at once.

        The `state` of the result shows the progress. Raises
        RankdeckError on Kubernetes: no SSH login.
        """
        self._need_ssh()
        run = CommandRun(self._agents, CommandState(command, nodes), limit, fan_out)
        self.commands = (*self.commands, run)[-MOST_COMMANDS:]
        self._background.start(run.run())
        return run

    def shell_command(self, node: str, words: Sequence[str] = ()) -> tuple[str, ...]:
        """The command line of the user's own ssh to that node: opens a
        shell, or runs `words` on a terminal.

        Raises RankdeckError where nodes are not reached over SSH.
        """
        self._need_ssh()
        return UserSsh(self._cluster).command(node, words)

    async def find_processes(self, nodes: Iterable[str]) -> FoundProcesses:
        """The processes on these nodes, and the nodes that did not answer.

        Raises RankdeckError on Kubernetes.
        """
        self._need_ssh()
        return await find_processes(self._agents, nodes)

    def _need_ssh(self) -> None:
        if not self._cluster.can.allows_login:
            raise RankdeckError(
                f"nodes of a {self._cluster.can.scheduler} cluster are not reached over SSH"
            )

    async def send_signal(self, name: str, some: Sequence[NodeProcess]) -> dict[str, str]:
        """Send a signal (`name`: TERM, KILL, …) to these processes; returns
        `NODE PID` -> why it was not sent.
        """
        return await send_signal(self._agents, name, some)

    async def clean_up(self, nodes: Sequence[str], order: "CleanOrder") -> "CleanReport":
        """Remove what ended jobs and older consoles left on these nodes and
        here; with `dry`, only ask what that is.
        """
        # Loading the values takes time, and one command needs them.
        from rankdeck.remote.clean import clean_up

        return await clean_up(self._agents, nodes, order)

    async def examine(self, tell: TellFinding = tell_nobody) -> tuple[Finding, ...]:
        """What the nodes lack for any job, and whether the scheduler's server answers; `tell` is
        called with each finding.
        """
        from rankdeck.preflight.doctor import examine_nodes, server_finding

        findings = await examine_nodes(self._cluster, self._agents, tell)
        answer = await self._queue.ask_server()
        if answer is None:
            return findings
        server = server_finding(answer)
        tell(server)
        return (*findings, server)

    def installer(self, *, system: bool, dry: bool = False) -> Installer:
        """Installs agents on nodes as a service, or removes them;
        `dry` only reports what it would do.
        """
        return Installer(self._agents, system=system, dry=dry)
