"""What the screens need from an open cluster, and what they show until `rankdeck.session` is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rankdeck.errors import HostKeyError, LaunchError
from rankdeck.state.fleet import Fleet
from rankdeck.state.messages import Messages

if TYPE_CHECKING:
    from rankdeck.errors import HostKeyError
    from rankdeck.images.copy import Tell
    from rankdeck.model.cluster import Cluster
    from rankdeck.model.health import Ack
    from rankdeck.model.job import (
        CancelReport,
        FoundLine,
        JobSpec,
        LogPart,
        LogPlace,
        Plan,
    )
    from rankdeck.preflight.findings import Finding
    from rankdeck.rules.inspect import Inspection
    from rankdeck.state.fleet import Fleet, Switches
    from rankdeck.state.jobs import Jobs
    from rankdeck.state.messages import Messages


class OutputPort(Protocol):
    """What one rank wrote, read and searched on its node; every failure is a NodeError."""

    async def read(self, place: LogPlace, size: int) -> LogPart:
        """Whole lines from about that offset on."""
        ...

    def find(self, place: LogPlace, text: str, *, back: bool) -> AsyncGenerator[FoundLine]:
        """The next line with `text`, or the one before: how far that is, until all is counted."""
        ...

    async def open(self) -> None:
        """Make ready on the node, so that the first answer comes at once."""
        ...


class SessionPort(Protocol):
    """One cluster: its state to read, and the few things a person can ask for."""

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
        """A host key that only the operator can judge."""
        ...

    @property
    def history_trouble(self) -> str:
        """Why nothing is written down now; "" where it is."""
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
    async def launch(self, spec: JobSpec, tell: Tell = lambda _: None) -> str:
        """Give the id of the job; `tell` hears of its image's copy. Raises LaunchError."""
        ...

    async def cancel(self, job_id: str, grace: float | None = None) -> CancelReport: ...
    async def inspect(self, job_id: str) -> Inspection:
        """Where every rank is now."""
        ...

    async def replay(self, job_id: str, speed: float = 1.0) -> str:
        """Show a job again; gives the id of the replay."""
        ...

    async def preflight(
        self, spec: JobSpec, tell: Callable[[Finding], None] = lambda _: None
    ) -> tuple[Finding, ...]:
        """What would go wrong; each finding is told as it comes."""
        ...

    def acknowledge(self, ack: Ack) -> None:
        """Raises HistoryError."""
        ...

    def hold(self, job_id: str) -> None:
        """Stop the countdown to a gang abort."""
        ...

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = ...) -> None:
        """From now on fetch the full text of these ranks, and so many bytes of what came before."""
        ...

    def output(self, job_id: str, rank: int) -> OutputPort:
        """What a rank wrote, by offset."""
        ...


OpenSession = Callable[[], AbstractAsyncContextManager[SessionPort]]


class Opening:
    """A session in which nothing can be done yet."""

    pending_host_key: HostKeyError | None = None

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.fleet = Fleet(cluster)
        self.messages = Messages()
        self._jobs: Jobs | None = None
        self._switches: Switches | None = None

    # Read from disk only where a screen asks before the session is there.

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

    def job_files(self) -> tuple[Path, ...]:
        return ()

    def read_job(self, path: Path) -> JobSpec:
        raise self._not_yet(str(path))

    def plan(self, spec: JobSpec) -> Plan:
        raise self._not_yet(spec.name)

    def render(self, plan: Plan) -> str:
        return plan.text

    async def launch(self, spec: JobSpec, tell: Tell = lambda _: None) -> str:
        del tell
        raise self._not_yet(spec.name)

    async def cancel(self, job_id: str, grace: float | None = None) -> CancelReport:
        del grace
        raise self._not_yet(job_id)

    async def inspect(self, job_id: str) -> Inspection:
        raise self._not_yet(job_id)

    async def replay(self, job_id: str, speed: float = 1.0) -> str:
        del speed
        raise self._not_yet(job_id)

    async def preflight(
        self, spec: JobSpec, tell: Callable[[Finding], None] = lambda _: None
    ) -> tuple[Finding, ...]:
        del tell
        raise self._not_yet(spec.name)

    def acknowledge(self, ack: Ack) -> None:
        self.fleet.set_acks([ack])

    def hold(self, job_id: str) -> None:
        del job_id

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = None) -> None:
        del job_id, ranks, backlog

    def output(self, job_id: str, rank: int) -> OutputPort:
        del rank
        raise self._not_yet(job_id)

    def _not_yet(self, what: str) -> LaunchError:
        return LaunchError(
            "plan", f"{what}: the cluster is still being opened; try again in a moment"
        )


@asynccontextmanager
async def open_session(cluster: Cluster) -> AsyncGenerator[SessionPort]:
    """Open the cluster; what that needs is read only now, behind the first picture."""
    real = await asyncio.to_thread(import_module, "rankdeck.session")
    async with real.open_session(cluster) as session:
        yield session
