"""Reads nodes, partitions and jobs from Slurm, and receives telemetry of
nodes from inside the user's own jobs.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankdeck.errors import NodeError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.json_tables import as_table, as_tables
from rankdeck.model.queue import Partition
from rankdeck.model.safe_text import clean_line
from rankdeck.model.scheduler_node import SchedulerNode
from rankdeck.remote import command
from rankdeck.remote.agent import Agents
from rankdeck.remote.command import AgentRows, RowSource, Takes
from rankdeck.remote.shell import ProgramResult, Row
from rankdeck.schedulers.orders import (
    JobChange,
    JobOrder,
    SchedulerPages,
    ServiceChange,
    ServiceOrder,
)
from rankdeck.schedulers.queue import FoundJob, Queue, find_listed
from rankdeck.schedulers.slurm.attach import job_named, slurm_attach_plan
from rankdeck.schedulers.slurm.hearing import SlurmListener
from rankdeck.schedulers.slurm.node import SlurmNode
from rankdeck.schedulers.slurm.options import slurm_keeper_settings
from rankdeck.schedulers.slurm.rows import (
    LONGEST_SENTENCE,
    MOST_CHANGED,
    change_of,
    ended_of,
    job_change_of,
    pages_of,
    slurm_look_of,
    slurm_node_of,
    slurm_takes,
)
from rankdeck.schedulers.slurm.state import SlurmCluster
from rankdeck.schedulers.slurm.values import SlurmJob, SlurmLook
from rankdeck.state.fleet import Fleet
from rankdeck.state.jobs import Jobs
from rankdeck.telemetry.node_telemetry import Telemetry
from rankdeck.values import replace, value_table

ASK_LIMIT, LIST_LIMIT, SERVICE_LIMIT = 60.0, 100.0, 150.0
"""Limits in seconds; within LIST_LIMIT the agent waits for two answers of
Slurm, within SERVICE_LIMIT for up to five.
"""


class SlurmQueue(Queue):
    """Asks Slurm through the agent on the login node that the cluster file names."""

    asked = True

    def __init__(self, agents: Agents, cluster: Cluster, fleet: Fleet) -> None:
        self._agents, self._cluster, self._fleet = agents, cluster, fleet
        self._host = cluster.options["login"]
        self._known = SlurmCluster()
        self._settings = slurm_keeper_settings(cluster)
        self._config = json.dumps(self._settings).encode() + b"\n"
        self._config_now = json.dumps({**self._settings, "now": True}).encode() + b"\n"

    @property
    def trouble(self) -> str:
        return self._known.trouble

    async def refresh(self) -> dict[str, str]:
        """Read nodes, partitions and jobs, at most a minute old."""
        try:
            answer = await self._ask("list", self._config, LIST_LIMIT)
        except NodeError as error:
            return {self._host: error.why}
        AgentRows(slurm_takes(self._fleet, self._known)).take(answer.out)
        return {self._host: self._known.trouble} if self._known.trouble else {}

    def others(self, known: Sequence[Job]) -> tuple[SlurmJob, ...]:
        return self._known.jobs({job.in_scheduler.id for job in known if job.in_scheduler})

    def entry(self, number: str) -> SlurmJob | None:
        return self._known.job(number)

    def words(self) -> str:
        return self._known.words(time.time())

    def partitions(self) -> tuple[Partition, ...]:
        return self._known.partitions()

    def is_number(self, text: str) -> bool:
        return bool(job_named(text)[0])

    async def find_job(self, known: Sequence[Job], text: str) -> FoundJob:
        """A job by its number, also one that is not listed, or a listed one by its name."""
        number, place = job_named(text)
        if not number:
            listed = find_listed(self.others(known), text)
            number, place = listed.id, listed.place
        seen = await self.look(number)
        return FoundJob(slurm_attach_plan(self._cluster, seen, place), seen.submitted)

    async def ask_nodes(self, names: Sequence[str]) -> Mapping[str, SchedulerNode]:
        """What Slurm says now: the fleet's copy may be a minute old, and others may have got
        a node since then.
        """
        answer = await self._ask("list", self._config_now)
        found: dict[str, SlurmNode] = {}
        troubles: list[str] = []
        taken: Takes = {
            "node": lambda row: found.update([slurm_node_of(as_table(row))]),
            "trouble": lambda why: troubles.append(clean_line(why, LONGEST_SENTENCE)),
        }
        AgentRows(taken).take(answer.out)
        if troubles:
            raise NodeError(self._host, troubles[-1])
        return {name: found.get(name, SlurmNode(state="")) for name in names} if found else {}

    async def list_ended(self) -> str:
        """Read the jobs that ended in the last day. Returns why they are not known, or "".

        Raises NodeError.
        """
        answer = await self._ask("ended", self._config, SERVICE_LIMIT)
        troubles: list[str] = []
        ended: Takes = {
            "ended": lambda found: self._known.put_ended(ended_of(as_table(found))),
            "trouble": lambda found: troubles.append(clean_line(found, LONGEST_SENTENCE)),
        }
        AgentRows(ended).take(answer.out)
        return "".join(troubles[-1:])

    async def change_service(self, order: ServiceOrder, agreed: str = "") -> ServiceChange:
        """The command line for an order, given the nodes' present
        states; run only if it equals `agreed`.

        Raises NodeError.
        """
        row = await self._answer("service", {**value_table(order), "agreed": agreed}, SERVICE_LIMIT)
        change = change_of(row)
        self._take_now(as_tables(row.get("now"), MOST_CHANGED))
        return change

    async def change_jobs(self, order: JobOrder, agreed: str = "") -> JobChange:
        """The command line for an order about jobs, given their present
        states; run only if it equals `agreed`.

        Raises NodeError.
        """
        row = await self._answer("change", {**value_table(order), "agreed": agreed}, SERVICE_LIMIT)
        return job_change_of(row)

    async def ask(self, what: str, jobs: Sequence[str] = ()) -> SchedulerPages:
        """What Slurm itself says: of a `job`, of the `priority` and `efficiency` of
        jobs, of `shares` and its `controller`.

        Raises NodeError.
        """
        return pages_of(await self._answer("ask", {"what": what, "jobs": jobs}, SERVICE_LIMIT))

    async def look(self, number: str) -> SlurmLook:
        """What Slurm knows about this job now, and where its output goes;
        raises NodeError, UnknownJobError.
        """
        return slurm_look_of(await self._answer("look", {"id": number}, ASK_LIMIT))

    async def _answer(self, verb: str, question: Mapping[str, Any], limit: float) -> Row:
        """The one row with which the login node answers this question; raises NodeError."""
        asked = json.dumps({**question, **self._settings}).encode() + b"\n"
        answer = await self._ask(verb, asked, limit)
        if not answer.row:
            raise NodeError(self._host, answer.complaint)
        return answer.row

    async def _ask(self, verb: str, asked: bytes, limit: float = ASK_LIMIT) -> ProgramResult:
        """The answer of a command of the agent on the login node; raises
        NodeError, also if it fails there.
        """
        answer = await self._agents.call(self._host, ("slurm", verb), asked, limit=limit)
        if answer.code != 0:
            raise NodeError(self._host, answer.complaint)
        return answer

    def _take_now(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Apply the states that Slurm reported after a change; `watch_command`
        would read them up to a minute later.
        """
        for row in found:
            name, fresh = slurm_node_of(row)
            known = self._fleet.node(name).in_scheduler if self._fleet.knows(name) else None
            if isinstance(known, SlurmNode):
                parts = {key: getattr(fresh, key) for key in _SERVICE}
                self._fleet.scheduler_says(name, replace(known, **parts))

    async def hear(self, telemetry: Telemetry, jobs: Jobs) -> None:
        """Receive telemetry through one Slurm step in each of the user's jobs."""
        await SlurmListener(self._agents, self._cluster, self._fleet).listen(telemetry, jobs)

    async def watch(self) -> None:
        source = RowSource(self._agents, self._host, ("slurm", "watch"), self._config)
        taken = slurm_takes(self._fleet, self._known)
        await command.watch_command(source, lambda: taken, taken["trouble"])


_SERVICE = ("state", "also", "reason", "by", "since")
"""The fields of a node that change when it is taken out of service."""
