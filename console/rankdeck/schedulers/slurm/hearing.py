"""Telemetry of nodes without a login, through one Slurm step in each of the user's jobs."""

import asyncio
import json
import logging
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rankdeck.model.cluster import Cluster
from rankdeck.model.field_checks import is_integer
from rankdeck.model.job import Job
from rankdeck.model.json_tables import as_table
from rankdeck.model.rank import State
from rankdeck.model.safe_text import clean_line
from rankdeck.remote import command
from rankdeck.remote.agent import Agents
from rankdeck.remote.command import RowSource, Takes
from rankdeck.state.fleet import Fleet
from rankdeck.state.jobs import Jobs
from rankdeck.telemetry.agent_configs import shared_config
from rankdeck.telemetry.node_telemetry import Telemetry
from rankdeck_agent.wire import message_topic

log = logging.getLogger(__name__)
MOST_HEARD, MOST_SAMPLED = 8, 256
"""Most jobs in which a step reports telemetry at the same time; most
nodes of a job that send full samples.
"""
HEAR_PAUSES = (5.0, 60.0, 300.0)
"""Seconds until such a step is tried again: each try costs Slurm's controller some calls."""
_HEAR_PERIOD = 1.0
_MOST_PARTS, _LONGEST_PART, _LONGEST_MESSAGE = 512, 1024, 4 << 20


class SlurmListener:
    """Hears the user's own jobs through the agent on the login node; made by the session."""

    def __init__(self, agents: Agents, cluster: Cluster, fleet: Fleet) -> None:
        self._agents, self._cluster, self._fleet = agents, cluster, fleet
        self._host = cluster.options["login"]

    async def listen(self, telemetry: Telemetry, jobs: Jobs) -> None:
        """Receive telemetry of nodes without login through one Slurm step in
        each of the user's jobs, until cancelled.
        """
        listening: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                running = {job.id: job for job in jobs.all() if _is_inside(job)}
                for gone in listening.keys() - running.keys():
                    listening.pop(gone).cancel()
                fresh = [job for job in running.values() if job.id not in listening]
                for job in filter(self._is_mute, fresh[: MOST_HEARD - len(listening)]):
                    listening[job.id] = tasks.create_task(self._hear_job(job, telemetry))
                await asyncio.sleep(_HEAR_PERIOD)

    def _is_mute(self, job: Job) -> bool:
        known = (self._fleet.node(name) for name in job.nodes if self._fleet.knows(name))
        return any(node.failed_to_attach for node in known)

    async def _hear_job(self, job: Job, telemetry: Telemetry) -> None:
        nodes = [name for name in job.nodes if self._fleet.knows(name)]
        few = len(nodes) <= MOST_SAMPLED
        settings = shared_config(self._cluster, nodes, max(1.0, len(nodes) / 16))
        for config in settings["configs"]:
            config["samples"] = few
        source = RowSource(
            self._agents,
            self._host,
            ("slurm", "hear", job.id, self._host),
            json.dumps(settings).encode() + b"\n",
        )
        way = f"heard from inside Slurm job {job.in_scheduler.id if job.in_scheduler else job.id}: no login there"

        def trouble(why: str) -> None:
            telemetry.lost(nodes)
            log.warning("its nodes are not heard from inside: %s", why, extra={"source": job.id})

        def give(node: str, kind: str, payload: bytes) -> None:
            telemetry.take(node, message_topic(self._cluster.name, node, kind), payload, way)

        def take() -> Takes:
            messages = MessageParts(nodes)
            return {"beside": lambda row: messages.take(as_table(row), give)}

        try:
            await command.watch_command(source, take, trouble, HEAR_PAUSES)
        finally:
            telemetry.lost(nodes)


def _is_inside(job: Job) -> bool:
    """Whether this is the user's own running job with all its
    nodes, so that a step can run in it.
    """
    slurm = job.in_scheduler
    ours = slurm is not None and not (slurm.array or slurm.over or job.plan.owner)
    return ours and job.state is State.RUNNING and all(rank.node for rank in job.ranks)


class MessageParts:
    """Joins the parts in which nodes' messages arrive through srun; only `nodes` may send."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._parts: dict[str, list[str]] = {node: [] for node in nodes}

    def take(self, row: Mapping[str, Any], give: Callable[[str, str, bytes], None]) -> None:
        """Take a part; calls `give(node, kind, payload)` for each complete message.

        Invalid parts are ignored.
        """
        node, kind, data = (
            clean_line(row.get("node"), 253),
            clean_line(row.get("kind"), 20),
            row.get("data"),
        )
        part, count = row.get("part"), row.get("of")
        parts = self._parts.get(node)
        if parts is None or not (is_integer(part) and is_integer(count) and isinstance(data, str)):
            return
        if part == 0:
            parts.clear()
        if part != len(parts) or not 0 <= part < count <= _MOST_PARTS or len(data) > _LONGEST_PART:
            parts.clear()
            return
        parts.append(data)
        if len(parts) == count:
            if (payload := _unpacked("".join(parts))) is not None:
                give(node, kind, payload)
            parts.clear()


def _unpacked(text: str) -> bytes | None:
    """The decoded message; None if it is invalid or too long."""
    try:
        unpacking = zlib.decompressobj()
        payload = unpacking.decompress(b64decode(text, validate=True), _LONGEST_MESSAGE)
    except (ValueError, zlib.error):
        return None
    return payload if unpacking.eof else None
