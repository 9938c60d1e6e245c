"""What the screens show while the cluster is being opened: its nodes, nothing heard yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rankdeck.errors import HostKeyError, LaunchError
from rankdeck.state.fleet import Fleet
from rankdeck.state.messages import Messages

if TYPE_CHECKING:
    from rankdeck.images.copy import Tell
    from rankdeck.model.cluster import Cluster
    from rankdeck.model.job import CancelReport, JobSpec, Plan
    from rankdeck.model.notice import Ack
    from rankdeck.preflight.findings import Finding
    from rankdeck.rules.lens import Inspection
    from rankdeck.state.jobs import Jobs
    from rankdeck.state.switches import Switches
    from rankdeck.ui.port import OutputPort, SessionPort


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
            from rankdeck.state.switches import Switches

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
