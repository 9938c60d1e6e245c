"""What the scheduler of a cluster keeps: jobs of all users, nodes, partitions, rights."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from rankdeck.errors import RankdeckError, UnknownJobError
from rankdeck.model.job import Job
from rankdeck.model.job_spec import Launch
from rankdeck.model.plan import Plan
from rankdeck.model.queue import Partition, QueueJob
from rankdeck.model.scheduler_node import SchedulerNode
from rankdeck.state.jobs import Jobs
from rankdeck.values import Value

if TYPE_CHECKING:
    from rankdeck.schedulers.orders import (
        JobChange,
        JobOrder,
        SchedulerPages,
        ServiceChange,
        ServiceOrder,
    )
    from rankdeck.telemetry.node_telemetry import Telemetry

_Listed = TypeVar("_Listed", bound=QueueJob)


class FoundJob(Value):
    """A job of others that can be followed."""

    plan: Plan
    created: float | None
    """Epoch seconds; None if the scheduler does not tell."""


class ServerAnswer(Value):
    """Whether the server of a scheduler answers, in a sentence."""

    well: bool
    text: str


class Queue:
    """The queue of one open cluster; this one is of a cluster without a scheduler.

    A scheduler has a class of its own and overrides what it can do (`plugins.QUEUES`).
    """

    asked = False
    """Whether there is a scheduler that can be asked."""
    judges_nodes = False
    """Whether it says by itself that a node is well: its word is then waited for."""

    @property
    def trouble(self) -> str:
        """Why the scheduler tells nothing new, one sentence; "" if it does."""
        return ""

    def troubles(self) -> tuple[str, ...]:
        """`trouble`, and what this user may not see."""
        return (self.trouble,) if self.trouble else ()

    # ---- jobs

    async def refresh(self) -> dict[str, str]:
        """Read nodes and jobs now; returns {host that was asked: why it failed}, or {}."""
        return {}

    def others(self, known: Sequence[Job]) -> tuple[QueueJob, ...]:
        """The jobs of the scheduler without those that this console knows already."""
        del known
        return ()

    def entry(self, number: str) -> QueueJob | None:
        """The job of this number, also one that this console follows; None if it has none."""
        del number
        return None

    def words(self) -> str:
        """A sentence if `others` is not all of the queue, or is old; else ""."""
        return ""

    def partitions(self) -> tuple[Partition, ...]:
        """Its partitions, with their idle nodes."""
        return ()

    async def list_ended(self) -> str:
        """Add jobs that ended within a day to `others`. Returns why it is impossible, or "".

        Raises RankdeckError.
        """
        return "ended jobs of others are not known: the cluster file names no login node of Slurm"

    def is_number(self, text: str) -> bool:
        """Whether this is how the scheduler numbers jobs."""
        del text
        return False

    def find_followed(self, known: Sequence[Job], text: str) -> str:
        """The id of the job that is named so and followed already, also if its
        scheduler no longer has it; else "". `known`: newest first.
        """
        named = (one.id for one in known if one.in_scheduler and one.in_scheduler.id == text)
        return next(named, "")

    async def find_job(self, known: Sequence[Job], text: str) -> FoundJob:
        """One of `others`, by a name that a person uses for it.

        Raises UnknownJobError, and LaunchError if it cannot be followed.
        """
        del known
        raise UnknownJobError(f"no job `{text[:60]}`")

    # ---- orders

    async def change_jobs(self, order: "JobOrder", agreed: str = "") -> "JobChange":
        """The command line for an order about jobs, given their present states; it runs
        only if it equals `agreed`, the line that the user agreed to. Raises RankdeckError.
        """
        del order, agreed
        raise cannot_ask("jobs are held, released and queued again on Slurm only")

    async def change_service(self, order: "ServiceOrder", agreed: str = "") -> "ServiceChange":
        """Like `change_jobs`, to take nodes out of service or to return them."""
        del order, agreed
        raise cannot_ask("nodes can be drained and resumed on Slurm only")

    async def ask(self, what: str, jobs: Sequence[str] = ()) -> "SchedulerPages":
        """What the scheduler itself says: of a `job`, of the `priority` and `efficiency` of
        jobs, of `shares` and its `controller`. Raises RankdeckError.
        """
        del what, jobs
        raise cannot_ask("only Slurm answers this")

    async def ask_server(self) -> ServerAnswer | None:
        """Whether the server answers without which no job can run; None if there is none."""
        return None

    # ---- rights

    async def learn_rights(self) -> None:
        """Ask for the user's rights, unless they are known."""

    def why_not(self, need: str, launch: Launch | None, job: Job | None, place: str) -> str:
        """Why this user lacks the right to "launch", "follow" or "cancel"; "" if none is known.

        `launch`: of the job that would start; else `job`, if it is known, or its `place`. A user
        who can log in may do all three.
        """
        del need, launch, job, place
        return ""

    # ---- nodes

    async def ask_nodes(self, names: Sequence[str]) -> Mapping[str, SchedulerNode]:
        """What the scheduler says of these nodes now; {} without one. Raises NodeError."""
        del names
        return {}

    async def watch(self) -> None:
        """Take all changes of nodes and jobs until cancelled; returns at once without a
        scheduler. After an error `trouble` says why, and it is tried again.
        """

    async def hear(self, telemetry: "Telemetry", jobs: Jobs) -> None:
        """Receive telemetry of nodes without a login from inside the user's jobs, until
        cancelled; returns at once if that is impossible.
        """
        del telemetry, jobs


def find_listed(others: Sequence[_Listed], text: str) -> _Listed:
    """The one listed job with this name, place or id; raises
    UnknownJobError if there is none or more than one.
    """
    found = [one for one in others if text in one.names]
    if not found:
        raise UnknownJobError(f"no job `{text[:60]}`")
    if len(found) > 1:
        places = ", ".join(one.place for one in found[:5])
        raise UnknownJobError(f"`{text[:60]}` is more than one job: {places}")
    return found[0]


def cannot_ask(why: str) -> RankdeckError:
    """The error of an order that this cluster's scheduler cannot get."""
    return RankdeckError(f"{why}: the cluster file names no login node (`slurm: {{login: HOST}}`)")
