"""The protocol of a launch backend (ssh, slurm, kubernetes): plan, launch, follow, cancel."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import ClassVar, Protocol

from rankdeck.model.cluster import Capabilities, Cluster
from rankdeck.model.job import CancelReport, Followed, JobSpec, Plan
from rankdeck.state.lines import ReadPositionsOf

Tell = Callable[[str], None]


def say_nothing(_: str) -> None:
    """For a caller that waits for the end."""


class Follower(Protocol):
    """Reports what happens in one job, for one caller. Closing it never touches the job."""

    def __aiter__(self) -> AsyncIterator[Followed]:
        """Events, chunks of output and tails of output, in the order in which they arrive.

        Ends when every node has sent `closed` or was given up, or after `close`. Reconnects by
        itself; raises RankdeckError where the job cannot be followed at all.
        """
        ...

    def watch(self, ranks: Collection[int], backlog: int | None) -> None:
        """From now on fetch the full output of these ranks, and of others only the last line.

        Reading goes on where `positions` says, with at least `backlog` bytes of earlier output; None
        fetches all of it. Each call replaces the one before.
        """
        ...

    @property
    def current(self) -> bool:
        """Whether every node that answers has reported all that happened up to now."""
        ...

    def give_up_lost(self) -> None:
        """Wait no longer for nodes that do not answer now: the iteration ends without them."""
        ...

    async def close(self) -> None:
        """End the iteration; the job goes on."""
        ...


class Backend(Protocol):
    """One way to run the ranks of a job; its class is called with one argument, the `Agents`.

    `name` is what a cluster file calls it.
    """

    name: ClassVar[str]
    can: ClassVar[Capabilities]
    """What others ask instead of its name; `rankdeck.model.cluster.capabilities` gives it by name."""

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """What `launch` would do for this job, under the id `job`.

        Pure: asks no node. Raises LaunchError with the stage "plan".
        """
        ...

    async def check(self, plan: Plan) -> str:
        """Why whoever schedules it would refuse this job now, in its words; nothing is started.

        "" where it would take it, or where nobody can be asked. Raises NodeError.
        """
        ...

    async def launch(self, plan: Plan, tell: Tell = say_nothing) -> Plan:
        """Do what the plan says and nothing else; returns it with its TCP port filled in.

        Raises LaunchError; whatever was started by then has been ended again. That may take a while:
        `tell` is called before it, with a sentence on what failed first.
        """
        ...

    def follow(self, plan: Plan, seen: Mapping[str, int], positions: ReadPositionsOf) -> Follower:
        """A follower of this job: from the beginning, or per node from the event after `seen[node]`.

        `positions` knows how far each log was read. Who takes a chunk has to have it taken there
        before the next one: output may come twice, and what is new of it is known only there.
        """
        ...

    async def cancel(self, plan: Plan, grace: float, *, by: str = "user") -> CancelReport:
        """End the job on every node: SIGTERM, wait, SIGKILL, then look for what is left.

        `grace` is in seconds. `by` is "user", "abort" (a part of the job had failed) or "system".
        Raises nothing for a node that does not answer: the report names it as not verified.
        """
        ...
