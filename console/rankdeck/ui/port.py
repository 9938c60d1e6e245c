"""What the console needs from an open cluster; `rankdeck.session` is the real one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rankdeck.errors import HostKeyError
    from rankdeck.images.copy import Tell
    from rankdeck.model.cluster import Cluster
    from rankdeck.model.job import (
        CancelReport,
        FoundLine,
        JobSpec,
        LogPart,
        LogPlace,
        Plan,
    )
    from rankdeck.model.notice import Ack
    from rankdeck.preflight.findings import Finding
    from rankdeck.rules.lens import Inspection
    from rankdeck.state.fleet import Fleet
    from rankdeck.state.jobs import Jobs
    from rankdeck.state.messages import Messages
    from rankdeck.state.switches import Switches


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
