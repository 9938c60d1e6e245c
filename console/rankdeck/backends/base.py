"""The protocol of a launch backend (ssh, slurm, kubernetes): plan, launch, follow, cancel."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import ClassVar, Protocol

from rankdeck.model.cluster import Capabilities, Cluster
from rankdeck.model.job import CancelReport, Followed, JobSpec, Plan
from rankdeck.state.lines import ReadPositionsOf

Tell = Callable[[str], None]
"""Takes one sentence about progress; called on the event loop, must not block."""


def say_nothing(_: str) -> None:
    """For a caller that needs no progress."""


class Follower(Protocol):
    """Reports what happens in one job to one caller. Closing it leaves the job alone."""

    def __aiter__(self) -> AsyncIterator[Followed]:
        """Events, chunks of output and tails of output, in the order in which they arrive.

        Ends when every node has sent `closed` or was given up, or after `close`. A broken connection
        is opened again. Raises RankdeckError if the job cannot be followed at all.
        """
        ...

    def watch(self, ranks: Collection[int], backlog: int | None) -> None:
        """Fetch the full output of these ranks from now on, and only the last line of all others.

        Reading continues at `positions` (see `Backend.follow`). `backlog` is how many bytes of earlier
        output to fetch at least; None fetches all. Each call replaces the one before.
        """
        ...

    @property
    def behind(self) -> set[str]:
        """Nodes that can be reached, as far as is known, and have not sent all events up to now."""
        ...

    def give_up_lost(self) -> None:
        """Stop waiting for nodes that do not answer now; the iteration ends without them."""
        ...

    async def close(self) -> None:
        """End the iteration; the job goes on."""
        ...


class Backend(Protocol):
    """One way to run the ranks of a job. The class is called with one argument, `Agents`."""

    name: ClassVar[str]
    """The value of `backend:` in a cluster file."""
    can: ClassVar[Capabilities]
    """What this backend can do; `model.cluster.capabilities` finds it by name. Callers ask this, not the name."""

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """The plan that `launch` would carry out; `job` is the new job's id.

        Pure: asks no node. Raises LaunchError with the stage "plan".
        """
        ...

    async def check(self, plan: Plan) -> str:
        """Why the scheduler would refuse this job now, in its own words; starts nothing.

        "" if it would accept the job, or if there is no scheduler to ask. Raises NodeError.
        """
        ...

    async def launch(self, plan: Plan, tell: Tell = say_nothing) -> Plan:
        """Carry out the plan and nothing else; returns it with its TCP port filled in.

        Raises LaunchError after it has ended everything that it had started. Because that can take
        seconds, `tell` is called first, with a sentence that says what failed.
        """
        ...

    def follow(self, plan: Plan, seen: Mapping[str, int], positions: ReadPositionsOf) -> Follower:
        """A follower of this job. Each node starts after event number `seen[node]`, or at the first event.

        `positions(node, rank)` is how far that log was read. Output can arrive twice, so the caller must
        record each chunk in these positions before it takes the next item.
        """
        ...

    async def cancel(self, plan: Plan, grace: float, *, by: str = "user") -> CancelReport:
        """End the job on every node: SIGTERM, wait `grace` seconds, SIGKILL, then look for what is left.

        `by` is "user", "abort" (a part of the job failed) or "system". A node that does not answer
        raises nothing: the report lists it as not verified.
        """
        ...
