"""What a launch backend is: plan, launch, follow, cancel."""

from collections.abc import AsyncIterator, Mapping
from typing import ClassVar, Protocol

from rankdeck.model.cluster import Cluster
from rankdeck.model.job import CancelReport, Followed, JobSpec, Plan


class Follower(Protocol):
    """One running look at one job; leaving it never touches the job."""

    def __aiter__(self) -> AsyncIterator[Followed]:
        """Everything that happens, until every node has closed. Reconnects by itself."""
        ...

    def watch(self, offsets: Mapping[int, Mapping[str, int]]) -> None:
        """From now on send full text of these ranks, each stream from its offset on; below 0: from the end."""
        ...

    @property
    def current(self) -> bool:
        """Whether every node that answers has told all that happened up to now."""
        ...

    def give_up_lost(self) -> None:
        """Wait no longer for nodes that do not answer now."""
        ...

    async def close(self) -> None: ...


class Backend(Protocol):
    """A way to run ranks somewhere."""

    name: ClassVar[str]

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """Pure: reads no node. Raises LaunchError("plan", …)."""
        ...

    async def launch(self, plan: Plan) -> Plan:
        """Do what the plan says and nothing else; give the plan with its port filled in."""
        ...

    def follow(self, plan: Plan, seen: Mapping[str, int]) -> Follower:
        """Follow from the beginning, or per node from the event after `seen[node]`."""
        ...

    async def cancel(self, plan: Plan, grace: float, *, by: str = "user") -> CancelReport:
        """Ask, wait, force, then look on every node for what is left; `by` as in the event (wire.py)."""
        ...
