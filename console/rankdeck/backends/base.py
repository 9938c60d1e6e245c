"""Launch backends (ssh, slurm, kubernetes): the protocol that each follows."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import ClassVar, Protocol

from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.capabilities import Capabilities
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.plan import Plan
from rankdeck.model.queue import LogRun
from rankdeck.model.rank_output import Followed
from rankdeck.state.lines import ReadPositionsOf
from rankdeck.values import Value

Tell = Callable[[str], Awaitable[None]]
"""Takes one sentence about progress."""


async def say_nothing(_: str) -> None:
    """The default `tell`: ignores progress."""


class SchedulerWord(Value):
    """What a scheduler says of a job that it would get; nothing if there is none to ask."""

    refused: str = ""
    """Why it would refuse the job, in its own words; "" if it would take it."""
    remark: str = ""
    """What would be missing all the same, a sentence; "" for nothing."""
    fix: str = ""
    """What to do about the remark."""


class Follower(Protocol):
    """Reports what happens in one job to one caller. Closing a follower does not affect the job."""

    def __aiter__(self) -> AsyncIterator[Followed]:
        """Yield events, chunks of output and tails of output, in the order in which they arrive.

        The iteration ends when every node has sent `closed` or was given up, or after `close`. A
        broken connection is opened again. Raises RankdeckError if the job cannot be followed at
        all.
        """
        ...

    def watch(self, ranks: Collection[int], backlog: int | None) -> None:
        """Fetch the full output of these ranks from now on, and only the last line of all others.

        Reading continues at `positions` (see `Backend.follow`). `backlog` is the minimum number of
        bytes of earlier output to fetch; None fetches all. Each call replaces the one before.
        """
        ...

    @property
    def behind(self) -> set[str]:
        """Nodes that are not known to be unreachable and have not yet sent all events up to now."""
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
    """What this backend can do; `model.cluster.capabilities` finds it by name.

    Callers check this, never the name.
    """

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """The plan that `launch` would carry out; `job` is the new job's id.

        Pure: contacts no node. Raises LaunchError with the stage "plan".
        """
        ...

    async def check(self, plan: Plan) -> SchedulerWord:
        """What the scheduler says of this job now; starts nothing. Raises NodeError."""
        ...

    async def launch(self, plan: Plan, tell: Tell = say_nothing) -> Plan:
        """Carry out the plan and nothing else; returns it with its TCP port filled in.

        If it fails, it ends everything that it had started and raises LaunchError. Because the
        clean-up can take seconds, `tell` is awaited before it, with a sentence that says what
        failed.
        """
        ...

    def follow(self, plan: Plan, seen: Mapping[str, int], positions: ReadPositionsOf) -> Follower:
        """A follower of this job. Each node sends the events after number
        `seen[node]`; all, if `seen` lacks the node.

        `positions(node, rank)` gives how far that rank's logs were read. After a reconnect, output
        is sent again from these positions, so the caller must record each chunk in them before it
        takes the next item.
        """
        ...

    async def cancel_tasks(self, job: Job, tasks: Sequence[int], grace: float) -> CancelReport:
        """End only these tasks of an array; `grace` in seconds. Raises RankdeckError."""
        ...

    async def find_run(self, job: Job, number: int) -> LogRun:
        """Which part of the output belongs to run `number` (from 0) of a job that its scheduler
        queued again; raises RankdeckError.
        """
        ...

    async def cancel(self, plan: Plan, grace: float, *, by: str = "user") -> CancelReport:
        """End the job on every node: SIGTERM, wait `grace` seconds, SIGKILL,
        then search for remaining processes.

        `by` is "user", "abort" (a part of the job failed) or "system". A node that does not answer
        raises no exception: the report lists it as not verified.
        """
        ...
