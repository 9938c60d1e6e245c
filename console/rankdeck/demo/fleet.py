"""A simulated fleet of any size: made-up nodes whose agents run
together in one process, on the real broker.

For the session it is a `Shell` on which only the telemetry of each node can run.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Self

from rankdeck.errors import AgentError
from rankdeck.model.cluster import Broker, Cluster, Node
from rankdeck.remote.bundle import build_bundle
from rankdeck.remote.shell import Channel, ClockOffset, OnData, Shell, Way

if TYPE_CHECKING:
    from rankdeck.session import Session

NAME = "simulated"
GPUS, PORTS = 4, 2
_TELEMETRY = "telemetry"
_ANSWER = f"rankdeck|{sys.version_info[0]}.{sys.version_info[1]}|%s|python3|||0|/simulated\n"
"""The answer of a node to the question about its Python and its agent."""
_END_LIMIT = 5.0


def fleet_cluster(count: int, broker: Broker | None = None) -> Cluster:
    """A cluster of `count` nodes without logins; their agents publish to
    a private broker, or to `broker`.
    """
    digits = max(len(str(count)), 3)
    nodes = tuple(
        Node(name=f"sim{number:0{digits}}", gpus=GPUS, rdma=PORTS) for number in range(1, count + 1)
    )
    return Cluster(
        name=NAME,
        nodes=nodes,
        expect={"gpu_model": "Simulated"},
        simulate=("gpu", "rdma"),
        broker=broker,
    )


class FleetProcess:
    """The process that simulates all agents; it runs while entered. Implements `shell.Shell`."""

    def __init__(self, **plan: float) -> None:
        """`plan` as in `rankdeck_simulator.fleet.FleetPlan`."""
        self._plan = plan
        self._process: asyncio.subprocess.Process
        self._asking = asyncio.Lock()

    async def __aenter__(self) -> Self:
        imports = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "rankdeck_simulator",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": imports},
            start_new_session=True,
        )
        self.command(self._plan)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_LIMIT):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, node: str, line: bytes) -> None:
        """Send a line to the agent of that node; an empty line ends the agent."""
        self._write(node.encode() + b" " + line.strip() + b"\n")

    def command(self, request: object) -> None:
        """Send a command to the fleet; see `rankdeck_simulator.fleet`."""
        self._write(b" " + json.dumps(request).encode() + b"\n")

    async def ask(self) -> dict[str, object]:
        """The state of the fleet; raises AgentError if its process has ended."""
        async with self._asking:
            self.command({"ask": True})
            assert self._process.stdout is not None
            line = await self._process.stdout.readline()
        if not line:
            raise AgentError(NAME, "the process of the simulated fleet has ended")
        answer: dict[str, object] = json.loads(line)
        return answer

    async def wait(self) -> int:
        """Wait for the end of the process; returns its exit status."""
        return await self._process.wait()

    def _write(self, line: bytes) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(line)

    # ---- a Shell

    def reach(self, questions: object) -> AbstractAsyncContextManager[Shell]:
        """This shell, when entered; nothing is asked."""
        del questions
        return nullcontext(self)

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> Channel:
        """Open the channel of a node's agent, which is always there;
        raises AgentError for other programs.
        """
        agent = build_bundle(simulating=True)
        if agent.name in argv:
            on_data((_ANSWER % agent.digest).encode())
        if argv[-1] != _TELEMETRY:
            raise _unreal(node)
        return _AgentChannel(self, node)

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        del node, host
        return port

    def way(self, node: str) -> Way:
        del node
        return Way()

    async def clock(self, node: str) -> ClockOffset:
        del node
        return ClockOffset(0.0, 0.0)


def _unreal(node: str) -> AgentError:
    return AgentError(
        node,
        "it is simulated: nothing can be run there; `rankdeck demo` has three nodes that run jobs",
    )


class _AgentChannel:
    """The channel of one node's agent; see `shell.Channel`."""

    complaint = "the process of the simulated fleet has ended"
    complaints = complaint.encode()

    def __init__(self, fleet: FleetProcess, node: str) -> None:
        self._fleet, self._node = fleet, node

    def write(self, data: bytes) -> None:
        for line in data.splitlines():
            self._fleet.tell(self._node, line)

    async def drain(self) -> None:
        """Return at once: the lines are short and few."""

    def end(self) -> None:
        self._fleet.tell(self._node, b"")

    def pause(self) -> None:
        """Do nothing: there is no output."""

    def resume(self) -> None:
        """Do nothing: there is no output."""

    def wait(self) -> Awaitable[int]:
        return self._fleet.wait()

    async def close(self) -> None:
        """Do nothing: the process ends as a whole."""


@asynccontextmanager
async def open_fleet(cluster: Cluster, **plan: float) -> "AsyncGenerator[Session]":
    """Open a session on a simulated fleet with the nodes of the cluster, like `open_session_on`."""
    from rankdeck.opening import Reach, open_session_on

    async with (
        FleetProcess(**plan) as fleet,
        open_session_on(cluster, Reach(fleet.reach)) as session,
    ):
        yield session
