"""What the screens need from an open cluster, and the stand-in until `rankdeck.session` is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rankdeck.errors import HostKeyError, LaunchError
from rankdeck.state.fleet import Fleet
from rankdeck.state.messages import Messages

if TYPE_CHECKING:
    from rankdeck.acceptance.run import AcceptanceProtocol
    from rankdeck.errors import HostKeyError, NodeError
    from rankdeck.images.copy import Tell, TellFetch, TellLaunch
    from rankdeck.model.cluster import Cluster
    from rankdeck.model.health import Ack, PastView
    from rankdeck.model.job import (
        CancelReport,
        FoundLine,
        JobSpec,
        LogPart,
        LogPlace,
        Plan,
    )
    from rankdeck.model.process import NodeProcess
    from rankdeck.model.schedulers import (
        KubernetesJob,
        LogRun,
        ServiceChange,
        ServiceOrder,
        SlurmJob,
        SlurmPartition,
    )
    from rankdeck.preflight.facts import Finding
    from rankdeck.remote.command import CommandRun, FoundProcesses
    from rankdeck.rules.inspect import Inspection
    from rankdeck.state.fleet import Fleet, Switches
    from rankdeck.state.jobs import Jobs
    from rankdeck.state.messages import Messages


class OutputProtocol(Protocol):
    """The output of one rank, read and searched on its node; every failure is raised as NodeError."""

    async def read(self, place: LogPlace, size: int) -> LogPart:
        """Whole lines that begin near `place`, at most about `size` bytes of them."""
        ...

    def find(self, place: LogPlace, text: str, *, back: bool) -> AsyncGenerator[FoundLine]:
        """Search from `place` for the next line with `text`, or with `back` for the last one before it.

        Yields the state of the search again and again until all matches are counted. Capitals in
        `text` make the search exact.
        """
        ...

    async def open(self) -> None:
        """Start the agent that answers, so that the first answer comes at once."""
        ...


class SessionProtocol(Protocol):
    """One open cluster: its state to read, and what a screen may ask for.

    All methods are called on the event loop; those that are not `async` return at once.
    """

    @property
    def cluster(self) -> Cluster: ...
    @property
    def fleet(self) -> Fleet: ...
    @property
    def switches(self) -> Switches: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def pending_host_key(self) -> HostKeyError | None:
        """A host key that the operator must accept or refuse; None if there is none."""
        ...

    @property
    def history_trouble(self) -> str:
        """Why the history cannot be written now, one sentence; "" if it can."""
        ...

    @property
    def connecting(self) -> tuple[int, int]:
        """Of how many nodes the telemetry was reached, or failed, at least once, and of how many it is wanted."""
        ...

    @property
    def acceptance(self) -> AcceptanceProtocol | None:
        """Acceptance runs of this cluster; None while it is being opened."""
        ...

    def answer_host_key(self, accept: bool) -> None: ...
    def job_files(self) -> tuple[Path, ...]: ...
    def read_job(self, path: Path) -> JobSpec:
        """Raises ConfigError."""
        ...

    def plan(self, spec: JobSpec) -> Plan:
        """Raises LaunchError."""
        ...

    def render(self, plan: Plan) -> str: ...
    def export(self, spec: JobSpec) -> str:
        """The job as a shell script that needs no Rankdeck; raises LaunchError."""
        ...

    async def launch(self, spec: JobSpec, tell: TellLaunch = lambda _: None) -> str:
        """Start the job and return its id; raises LaunchError.

        `tell` is called with the progress while its image is copied.
        """
        ...

    async def cancel(self, job_id: str, grace: float | None = None) -> CancelReport: ...
    async def cancel_tasks(self, job_id: str, tasks: Sequence[int]) -> CancelReport: ...
    async def log_run(self, job_id: str, number: int) -> LogRun:
        """Where the output of this run (from 0) of a job lies; raises RankdeckError."""
        ...

    def why_not(self, need: str, what: JobSpec | str) -> str:
        """Why this user may not `launch` a job, or `follow` or `cancel` one; "" where nothing is known against it."""
        ...

    def others(self) -> Sequence[KubernetesJob | SlurmJob]:
        """Jobs of the scheduler that this console does not follow."""
        ...

    async def list_ended(self) -> str:
        """Have `others` tell also what ended within a day; why that is not known, or "". Raises RankdeckError."""
        ...

    def partitions(self) -> Sequence[SlurmPartition]:
        """Slurm's partitions with what is idle in them; none where there is no Slurm."""
        ...

    async def service(self, order: ServiceOrder, agreed: str = "") -> ServiceChange:
        """What takes nodes out of Slurm's service, or gives them back; done only where `agreed` is that line. Raises RankdeckError."""
        ...

    async def attach(self, text: str) -> str:
        """Follow such a job, which changes nothing of it; returns our id. Raises RankdeckError."""
        ...

    @property
    def commands(self) -> Sequence[CommandRun]:
        """Commands that were run on nodes from here, newest last."""
        ...

    def command(self, nodes: Sequence[str], command: str) -> CommandRun:
        """Begin to run a shell command on these nodes. Raises RankdeckError."""
        ...

    async def processes(self, nodes: Iterable[str]) -> FoundProcesses:
        """What runs on these nodes now. Raises RankdeckError."""
        ...

    async def signal(self, name: str, some: Sequence[NodeProcess]) -> Mapping[str, str]:
        """Send TERM, KILL, … to these processes; gives `NODE PID` -> why it was not sent."""
        ...

    async def lacking(self, specs: Sequence[JobSpec]) -> Mapping[str, str]:
        """Job file -> what its nodes lack to run it, "" for nothing; without those of which it is not known."""
        ...

    async def copy_file(
        self, file: Path, to: str, nodes: Sequence[str], tell: Tell
    ) -> Mapping[str, NodeError]:
        """Copy a file of this machine to `to` on nodes ("": its name); gives who failed. Raises OSError."""
        ...

    async def fetch(
        self, path: str, nodes: Sequence[str], to: Path, tell: TellFetch
    ) -> Mapping[str, NodeError]:
        """Copy `path` of nodes into a folder here, as NAME.NODE; gives who failed. Raises OSError."""
        ...

    def shell_command(self, node: str, words: Sequence[str] = ()) -> tuple[str, ...]:
        """The user's own ssh to that node with our options: a shell there, or a command on a terminal.

        Raises RankdeckError where the nodes are not reached over SSH.
        """
        ...

    async def inspect(self, job_id: str) -> Inspection:
        """Ask all nodes of the job where every rank is now."""
        ...

    async def replay(self, job_id: str, speed: float = 1.0) -> str:
        """Play a job again, `speed` times as fast as it was, or a replay anew; returns the id of the replay."""
        ...

    def forget(self, job_id: str) -> None:
        """Drop this replay; the job itself stays."""
        ...

    def wind(self, job_id: str, seconds: float) -> bool:
        """Go on, or back, by so many seconds in this replay; 0 holds it or lets it go on.

        Gives whether it is held now.
        """
        ...

    async def report(self, job_id: str, path: Path, *, page: bool) -> Mapping[str, str]:
        """Write all about a job to `path`: a page of HTML, or an archive. Gives node -> why it is not
        in it; raises RankdeckError."""
        ...

    async def preflight(
        self,
        spec: JobSpec,
        tell: Callable[[Finding], None] = ...,
        step: Callable[[int, int, str], None] = ...,
    ) -> tuple[Finding, ...]:
        """What would go wrong with this job; `tell` is called with each finding, `step` with how far of how much it is."""
        ...

    def acknowledge(self, ack: Ack) -> None:
        """Raises HistoryError."""
        ...

    def want(self, nodes: frozenset[str] | None) -> None:
        """Ask for full samples of these nodes from now on; None: of all."""
        ...

    def past(self, node: str, hours: float, until: float | None = None) -> PastView | None:
        """What the site's Prometheus had of a node by then; it is asked in the background. None without one."""
        ...

    def hold(self, job_id: str) -> None:
        """Stop the countdown to a gang abort."""
        ...

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = ...) -> None:
        """From now on fetch the full output of these ranks, and `backlog` bytes of earlier output."""
        ...

    def output(self, job_id: str, rank: int) -> OutputProtocol:
        """The output of one rank, by byte offset."""
        ...


OpenSession = Callable[[], AbstractAsyncContextManager[SessionProtocol]]


class Opening:
    """Stands in for the session while it is being opened; every request raises LaunchError."""

    pending_host_key: HostKeyError | None = None
    acceptance: AcceptanceProtocol | None = None

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.fleet = Fleet(cluster)
        self.messages = Messages()
        self._jobs: Jobs | None = None
        self._switches: Switches | None = None

    # These modules are imported only if a screen asks before the session is there.

    @property
    def jobs(self) -> Jobs:
        if self._jobs is None:
            from rankdeck.state.jobs import Jobs

            self._jobs = Jobs()
        return self._jobs

    @property
    def switches(self) -> Switches:
        if self._switches is None:
            from rankdeck.state.fleet import Switches

            self._switches = Switches(self.cluster)
        return self._switches

    def answer_host_key(self, accept: bool) -> None:
        del accept

    @property
    def history_trouble(self) -> str:
        return ""

    @property
    def connecting(self) -> tuple[int, int]:
        return 0, 0

    def job_files(self) -> tuple[Path, ...]:
        return ()

    def read_job(self, path: Path) -> JobSpec:
        raise self._not_yet(str(path))

    def plan(self, spec: JobSpec) -> Plan:
        raise self._not_yet(spec.name)

    def render(self, plan: Plan) -> str:
        return plan.text

    def export(self, spec: JobSpec) -> str:
        raise self._not_yet(spec.name)

    async def launch(self, spec: JobSpec, tell: TellLaunch = lambda _: None) -> str:
        del tell
        raise self._not_yet(spec.name)

    def why_not(self, need: str, what: JobSpec | str) -> str:
        del need, what
        return ""

    async def cancel_tasks(self, job_id: str, tasks: Sequence[int]) -> CancelReport:
        del tasks
        raise self._not_yet(job_id)

    async def log_run(self, job_id: str, number: int) -> LogRun:
        del number
        raise self._not_yet(job_id)

    async def cancel(self, job_id: str, grace: float | None = None) -> CancelReport:
        del grace
        raise self._not_yet(job_id)

    def others(self) -> Sequence[KubernetesJob | SlurmJob]:
        return ()

    async def list_ended(self) -> str:
        raise self._not_yet("jobs that ended")

    def partitions(self) -> Sequence[SlurmPartition]:
        return ()

    async def service(self, order: ServiceOrder, agreed: str = "") -> ServiceChange:
        del agreed
        raise self._not_yet(order.do)

    async def attach(self, text: str) -> str:
        raise self._not_yet(text)

    @property
    def commands(self) -> Sequence[CommandRun]:
        return ()

    def command(self, nodes: Sequence[str], command: str) -> CommandRun:
        del nodes
        raise self._not_yet(command)

    async def processes(self, nodes: Iterable[str]) -> FoundProcesses:
        del nodes
        raise self._not_yet("processes")

    async def signal(self, name: str, some: Sequence[NodeProcess]) -> Mapping[str, str]:
        del some
        raise self._not_yet(name)

    async def lacking(self, specs: Sequence[JobSpec]) -> Mapping[str, str]:
        del specs
        return {}

    async def copy_file(
        self, file: Path, to: str, nodes: Sequence[str], tell: Tell
    ) -> Mapping[str, NodeError]:
        del to, nodes, tell
        raise self._not_yet(str(file))

    async def fetch(
        self, path: str, nodes: Sequence[str], to: Path, tell: TellFetch
    ) -> Mapping[str, NodeError]:
        del nodes, to, tell
        raise self._not_yet(path)

    def shell_command(self, node: str, words: Sequence[str] = ()) -> tuple[str, ...]:
        del words
        raise self._not_yet(node)

    async def inspect(self, job_id: str) -> Inspection:
        raise self._not_yet(job_id)

    async def replay(self, job_id: str, speed: float = 1.0) -> str:
        del speed
        raise self._not_yet(job_id)

    def forget(self, job_id: str) -> None:
        raise self._not_yet(job_id)

    def wind(self, job_id: str, seconds: float) -> bool:
        del seconds
        raise self._not_yet(job_id)

    async def report(self, job_id: str, path: Path, *, page: bool) -> Mapping[str, str]:
        del path, page
        raise self._not_yet(job_id)

    async def preflight(
        self,
        spec: JobSpec,
        tell: Callable[[Finding], None] = lambda _: None,
        step: Callable[[int, int, str], None] = lambda _done, _of, _doing: None,
    ) -> tuple[Finding, ...]:
        del tell, step
        raise self._not_yet(spec.name)

    def acknowledge(self, ack: Ack) -> None:
        self.fleet.set_acks([ack])

    def want(self, nodes: frozenset[str] | None) -> None:
        del nodes

    def past(self, node: str, hours: float, until: float | None = None) -> PastView | None:
        del node, hours, until
        return None

    def hold(self, job_id: str) -> None:
        del job_id

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = None) -> None:
        del job_id, ranks, backlog

    def output(self, job_id: str, rank: int) -> OutputProtocol:
        del rank
        raise self._not_yet(job_id)

    def _not_yet(self, what: str) -> LaunchError:
        return LaunchError(
            "plan", f"{what}: the cluster is still being opened; try again in a moment"
        )


def _loaded(module: str) -> Any:  # noqa: ANN401 - a module
    """This module; with it what the state of nodes reads at the first message, when a key may wait."""
    for name in ("rankdeck.rules.nodes", "rankdeck.state.judgement"):
        import_module(name)
    return import_module(module)


@asynccontextmanager
async def open_session(cluster: Cluster) -> AsyncGenerator[SessionProtocol]:
    """Open the cluster; `rankdeck.session` is imported only now, after the first picture."""
    real = await asyncio.to_thread(_loaded, "rankdeck.session")
    async with real.open_session(cluster) as session:
        yield session


@asynccontextmanager
async def open_simulated(cluster: Cluster) -> AsyncGenerator[SessionProtocol]:
    """The same on made-up nodes that cannot be logged in to; see `demo/fleet.py`."""
    demo = await asyncio.to_thread(_loaded, "rankdeck.demo.fleet")
    async with demo.open_fleet(cluster) as session:
        yield session
