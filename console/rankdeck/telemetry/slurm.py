"""Reads nodes, partitions and jobs from Slurm, and receives telemetry of
nodes from inside the user's own jobs.
"""

import asyncio
import json
import logging
import time
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeGuard

from rankdeck.config.schedulers import slurm_keeper_settings
from rankdeck.errors import NodeError, RankdeckError, UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.field_checks import (
    cleaned_fields,
    is_flag,
    is_integer,
    is_rows,
    is_stamp,
    is_text,
    or_null,
)
from rankdeck.model.job import Job, State
from rankdeck.model.json_tables import as_table, as_tables
from rankdeck.model.safe_text import clean_line
from rankdeck.model.schedulers import (
    JobChange,
    JobOrder,
    ServiceChange,
    ServiceOrder,
    SlurmComponent,
    SlurmEfficiency,
    SlurmJob,
    SlurmLook,
    SlurmNode,
    SlurmPage,
    SlurmPages,
    SlurmPartition,
    SlurmStatus,
)
from rankdeck.remote import command
from rankdeck.remote.agent import Agents
from rankdeck.remote.command import AgentRows, RowSource, Takes
from rankdeck.remote.shell import ProgramResult, Row
from rankdeck.state.fleet import Fleet, SlurmCluster
from rankdeck.state.jobs import Jobs
from rankdeck.telemetry.link import Telemetry, shared_config
from rankdeck_agent.wire import message_topic

log = logging.getLogger(__name__)
ASK_LIMIT, LIST_LIMIT, SERVICE_LIMIT = 60.0, 100.0, 150.0
"""Limits in seconds; within LIST_LIMIT the agent waits for two answers of
Slurm, within SERVICE_LIMIT for up to five.
"""
_WORD, _SENTENCE = 300, 600
_LONGEST_NODES = 2000
_LONGEST_JOB = 4200
"""Most characters of a job's name in an order: the tasks of an array may be many."""
_MOST = 1000
_MOST_GRES, _MOST_CHANGED, _LONGEST_LINE = 64, 5000, 1 << 17
_MOST_RANKS = 4096
MOST_HEARD, MOST_SAMPLED = 8, 256
"""Most jobs in which a step reports telemetry at the same time; most
nodes of a job that send full samples.
"""
HEAR_PAUSES = (5.0, 60.0, 300.0)
"""Seconds until such a step is tried again: each try costs Slurm's controller some calls."""
_HEAR_PERIOD = 1.0
_MOST_PARTS, _LONGEST_PART, _LONGEST_MESSAGE = 512, 1024, 4 << 20


class SlurmClient:
    """Asks Slurm through the agent on the login node; made by the session."""

    def __init__(self, agents: Agents, cluster: Cluster, fleet: Fleet) -> None:
        self._agents, self._cluster, self._fleet = agents, cluster, fleet
        self._host = cluster.options.get("login", "")
        self.state = SlurmCluster()
        self.asked = cluster.can.queue and bool(self._host)
        """Whether Slurm can be asked: the backend is Slurm and the
        cluster file names a login node.
        """
        self._settings = slurm_keeper_settings(cluster)
        self._config = json.dumps(self._settings).encode() + b"\n"
        self._config_now = json.dumps({**self._settings, "now": True}).encode() + b"\n"

    async def list(self) -> dict[str, str]:
        """Read nodes, partitions and jobs, at most a minute old; returns
        {login node: why it failed}, or {}.
        """
        if not self.asked:
            return {}
        try:
            answer = await self._ask("list", self._config, LIST_LIMIT)
        except NodeError as error:
            return {self._host: error.why}
        AgentRows(slurm_takes(self._fleet, self.state)).take(answer.out)
        return {self._host: self.state.trouble} if self.state.trouble else {}

    async def nodes_now(self) -> Mapping[str, SlurmNode]:
        """Node -> its present state in Slurm; {} if Slurm cannot be asked. Raises NodeError."""
        if not self.asked:
            return {}
        answer = await self._ask("list", self._config_now)
        found: list[tuple[str, SlurmNode]] = []
        troubles: list[str] = []
        taken: Takes = {
            "node": lambda row: found.append(slurm_node_of(as_table(row))),
            "trouble": lambda why: troubles.append(clean_line(why, _SENTENCE)),
        }
        AgentRows(taken).take(answer.out)
        if troubles:
            raise NodeError(self._host, troubles[-1])
        return dict(found)

    async def list_ended(self) -> str:
        """Read the jobs that ended in the last day. Returns why they are not known, or "".

        Raises NodeError.
        """
        if not self.asked:
            return (
                "ended jobs of others are not known: the cluster file names no login node of Slurm"
            )
        answer = await self._ask("ended", self._config, SERVICE_LIMIT)
        troubles: list[str] = []
        ended: Takes = {
            "ended": lambda found: self.state.put_ended(ended_of(as_table(found))),
            "trouble": lambda found: troubles.append(clean_line(found, _SENTENCE)),
        }
        AgentRows(ended).take(answer.out)
        return "".join(troubles[-1:])

    async def service(self, order: ServiceOrder, agreed: str = "") -> ServiceChange:
        """The command line for an order, given the nodes' present
        states; run only if it equals `agreed`.

        Raises RankdeckError if the login node does not answer or the cluster file names none.
        """
        self._need_login("nodes can be drained and resumed on Slurm only")
        row = await self._answer("service", {**asdict(order), "agreed": agreed}, SERVICE_LIMIT)
        change = change_of(row)
        self._take_now(as_tables(row.get("now"), _MOST_CHANGED))
        return change

    async def change(self, order: JobOrder, agreed: str = "") -> JobChange:
        """The command line for an order about jobs, given their present
        states; run only if it equals `agreed`.

        Raises RankdeckError if the login node does not answer or the cluster file names none.
        """
        self._need_login("jobs are held, released and queued again on Slurm only")
        row = await self._answer("change", {**asdict(order), "agreed": agreed}, SERVICE_LIMIT)
        return job_change_of(row)

    async def ask(self, what: str, jobs: Sequence[str] = ()) -> SlurmPages:
        """What Slurm itself says: of a `job`, of the `priority` and `efficiency` of
        jobs, of `shares` and its `controller`.

        Raises RankdeckError if the login node does not answer or the cluster file names none.
        """
        self._need_login("only Slurm answers this")
        return pages_of(await self._answer("ask", {"what": what, "jobs": jobs}, SERVICE_LIMIT))

    def _need_login(self, why: str) -> None:
        if not self.asked:
            raise RankdeckError(
                f"{why}: the cluster file names no login node (`slurm: {{login: HOST}}`)"
            )

    async def look(self, number: str) -> SlurmLook:
        """What Slurm knows about this job now, and where its output goes;
        raises NodeError, UnknownJobError.
        """
        row = await self._answer("look", {"id": number}, ASK_LIMIT)
        known = cleaned_fields(row, _LOOK)
        known |= {key: path for key in ("out", "err") if _shown_whole(path := row.get(key))}
        if error := known.pop("error", ""):
            raise UnknownJobError(error)
        return SlurmLook(**known)

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
            known = self._fleet.node(name).slurm if self._fleet.knows(name) else None
            if known is not None:
                parts = {key: getattr(fresh, key) for key in _SERVICE}
                self._fleet.slurm_says(name, replace(known, **parts))

    async def watch(self) -> None:
        """Write all changes to fleet and `state` until cancelled; after an
        error, set `state.trouble` and try again.

        Returns at once if Slurm cannot be asked.
        """
        if not self.asked:
            return
        source = RowSource(self._agents, self._host, ("slurm", "watch"), self._config)
        taken = slurm_takes(self._fleet, self.state)
        await command.watch_command(source, lambda: taken, taken["trouble"])

    async def hear(self, telemetry: Telemetry, jobs: Jobs) -> None:
        """Receive telemetry of nodes without login through one Slurm step in
        each of the user's jobs, until cancelled.

        Returns at once if Slurm cannot be asked.
        """
        if not self.asked:
            return
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
        way = f"heard from inside Slurm job {job.slurm.id if job.slurm else job.id}: no login there"

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
    slurm = job.slurm
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


def slurm_takes(fleet: Fleet, state: SlurmCluster) -> Takes:
    """Key of a row -> function that applies its value to fleet and state."""

    def trouble(found: object) -> None:
        state.trouble = why = clean_line(found, _SENTENCE)
        if why:
            fleet.await_nodes(awaited=False)
            log.warning("%s", why, extra={"source": "slurm"})

    def about(found: object) -> None:
        state.user = clean_line(as_table(found).get("user"), 64)

    def ready(_: object) -> None:
        fleet.await_nodes(awaited=False)

    def node(found: object) -> None:
        name, view = slurm_node_of(as_table(found))
        fleet.slurm_says(name, view)

    def left_out(count: object) -> None:
        state.left_out = count if is_integer(count) else 0

    def queue_age(seconds: object) -> None:
        state.read_at = time.time() - float(seconds) if is_stamp(seconds) else None

    return {
        "about": about,
        "job": lambda found: state.put(slurm_job_of(as_table(found))),
        "job_gone": lambda found: state.drop(clean_line(found, 40)),
        "node": node,
        "node_gone": lambda found: node({"name": found}),
        "partition": lambda found: state.put_partition(partition_of(as_table(found))),
        "partition_gone": lambda found: state.drop_partition(clean_line(found, _WORD)),
        "left_out": left_out,
        "queue_age": queue_age,
        "ready": ready,
        "trouble": trouble,
    }


# ---- rows -------------------------------------------------------------------------------


_WORDS = is_rows(is_text(_WORD), _MOST)
_NODE = {
    "state": is_text(40), "also": _WORDS, "reason": is_text(_SENTENCE), "by": is_text(_WORD), "since": or_null(is_stamp),
    "partitions": _WORDS, "features": is_text(_WORD), "cpus": is_integer, "cpus_used": is_integer,
    "memory": is_integer, "memory_used": is_integer, "jobs": _WORDS,
}  # fmt: skip


def slurm_node_of(row: Mapping[str, Any]) -> tuple[str, SlurmNode]:
    """(name, state) of a node; the name is "" if the row is invalid,
    `state.state` "" if Slurm has no such node.
    """
    known: dict[str, Any] = {"state": "", **cleaned_fields(row, _NODE)}
    used: dict[str, Any] = {key: _counts(row.get(key)) for key in ("gres", "gres_used")}
    return clean_line(row.get("name"), 253), SlurmNode(**known, **used)


def _counts(found: object) -> dict[str, int]:
    items = list(as_table(found).items())[:_MOST_GRES]
    return {
        clean_line(name, 100): count for name, count in items if is_integer(count) and count >= 0
    }


_SERVICE = ("state", "also", "reason", "by", "since")
"""The fields of a node that change when it is taken out of service."""


def _shown_whole(line: object) -> TypeGuard[str]:
    """Whether this line can be shown unchanged, so that the
    operator agrees to exactly what runs.
    """
    return isinstance(line, str) and line.isprintable() and len(line) <= _LONGEST_LINE


def change_of(row: Mapping[str, Any]) -> ServiceChange:
    """The agent's answer to a `ServiceOrder`."""
    known = _change_fields(row, _CHANGE, (_MOST_CHANGED, 253))
    told = (slurm_node_of(one) for one in as_tables(row.get("now"), _MOST_CHANGED))
    states = {name: view.words for name, view in told if name}
    changed = known.get("nodes", ()) if known.get("done") else ()
    return ServiceChange(
        **known,
        now={node: states.get(node, "not known") for node in changed},
    )


_JOB_CHANGE = {
    "jobs": is_rows(is_text(_LONGEST_JOB), _MOST), "hits": is_integer, "done": is_flag, "said": is_text(_SENTENCE),
    "error": is_text(_SENTENCE),
}  # fmt: skip


def job_change_of(row: Mapping[str, Any]) -> JobChange:
    """The agent's answer to a `JobOrder`."""
    bounds = _MOST, _LONGEST_JOB
    return JobChange(
        **_change_fields(row, _JOB_CHANGE, bounds), now=_told_of_each(row.get("now"), bounds)
    )


def _change_fields(
    row: Mapping[str, Any], fields: Mapping[str, Any], bounds: tuple[int, int]
) -> dict[str, Any]:
    """What both answers have; `bounds`: most names, and characters of each."""
    line = row.get("line")
    return {
        **cleaned_fields(row, fields),
        "line": line if _shown_whole(line) else "",
        "left_alone": _told_of_each(row.get("left"), bounds),
    }


def _told_of_each(table: object, bounds: tuple[int, int]) -> dict[str, str]:
    """A sentence for each node or job."""
    most, longest = bounds
    each = list(as_table(table).items())[:most]
    return {clean_line(name, longest): clean_line(said, _SENTENCE) for name, said in each}


_MOST_PAGES, _MOST_PAGE_LINES, _LONGEST_PAGE_LINE = 200, 4001, 1000
_PAGE = {
    "line": is_text(_LONGEST_PAGE_LINE), "lines": is_rows(is_text(_LONGEST_PAGE_LINE), _MOST_PAGE_LINES), "error": is_text(_SENTENCE),
}  # fmt: skip
_EFFICIENCY = {
    "job": is_text(80), "state": is_text(40), "elapsed": is_stamp, "cpus": is_integer, "nodes": is_integer, "gpus": is_integer,
    "cpu_used": or_null(is_stamp), "cpu": or_null(is_stamp), "memory": or_null(is_stamp), "memory_used": or_null(is_stamp),
    "memory_share": or_null(is_stamp), "gpu": or_null(is_stamp),
}  # fmt: skip


def pages_of(row: Mapping[str, Any]) -> SlurmPages:
    """The agent's answer to a question that Slurm itself answers."""
    pages = (cleaned_fields(one, _PAGE) for one in as_tables(row.get("pages"), _MOST_PAGES))
    used = (cleaned_fields(one, _EFFICIENCY) for one in as_tables(row.get("efficiency"), _MOST))
    return SlurmPages(
        pages=tuple(SlurmPage(**one) for one in pages),
        efficiency=tuple(SlurmEfficiency(**one) for one in used),
        error=clean_line(row.get("error"), _SENTENCE),
    )


_PARTITION = {
    "name": is_text(_WORD), "usual": is_flag, "up": is_flag, "limit": or_null(is_stamp), "size": is_text(40),
    "nodes": is_integer, "idle": is_integer, "usable": is_integer,
}  # fmt: skip


def partition_of(row: Mapping[str, Any]) -> SlurmPartition:
    """A partition; its name is "" if the row is invalid."""
    known: dict[str, Any] = {"name": "", **cleaned_fields(row, _PARTITION)}
    return SlurmPartition(**known)


_CHANGE = {
    "nodes": is_rows(is_text(253), _MOST_CHANGED), "done": is_flag, "said": is_text(_SENTENCE), "error": is_text(_SENTENCE),
}  # fmt: skip
_STATUS = {
    "state": is_text(40), "reason": is_text(_WORD), "text": is_text(_SENTENCE), "do": is_text(_SENTENCE), "stuck": is_flag,
    "partition": is_text(_WORD), "account": is_text(_WORD), "qos": is_text(_WORD),
    "nodes": is_text(_LONGEST_NODES), "position": is_integer, "waiting": is_integer, "limit": or_null(is_stamp), "start": or_null(is_stamp),
}  # fmt: skip


def _is_count(value: object) -> bool:
    return is_integer(value) and 1 <= value <= _MOST_RANKS


_LOOK = {
    "id": is_text(40), "array": is_text(60), "name": is_text(_WORD), "user": is_text(64), "state": is_text(40), "submitted": or_null(is_stamp),
    "ranks": _is_count, "error": is_text(_SENTENCE), "components": is_integer, "tasks": is_integer,
}  # fmt: skip
_JOB = {
    "id": is_text(40), "name": is_text(_WORD), "user": is_text(64), "cpus": is_integer, "count": is_integer, "gpus": is_integer,
    "memory": is_stamp, "priority": is_integer,
}  # fmt: skip
_COMPONENT = {
    "id": is_text(40), "state": is_text(40), "partition": is_text(_WORD), "nodes": is_text(_LONGEST_NODES), "text": is_text(_SENTENCE),
    "count": is_integer, "cpus": is_integer, "gpus": is_integer, "memory": is_stamp,
}  # fmt: skip
_MOST_COMPONENTS = 256


def components_of(row: Mapping[str, Any]) -> tuple[SlurmComponent, ...]:
    """The components of a het job; () for other jobs."""
    found = (
        cleaned_fields(one, _COMPONENT)
        for one in as_tables(row.get("components"), _MOST_COMPONENTS)
    )
    return tuple(SlurmComponent(**one) for one in found)


def ended_of(row: Mapping[str, Any]) -> SlurmJob:
    """An ended job from Slurm's accounting; its id is "" if the row is invalid."""
    job, end, code = slurm_job_of(row), row.get("end"), row.get("code")
    code = code if is_integer(code) and 0 <= code < 1 << 16 else None
    status = replace(job.status, over=True, code=code)
    return replace(job, status=status, ended=float(end) if is_stamp(end) else job.created)


def slurm_job_of(row: Mapping[str, Any]) -> SlurmJob:
    """A job in the queue; its id is "" if the row is invalid."""
    known: dict[str, Any] = {"id": "", **cleaned_fields(row, _JOB)}
    submitted, end = row.get("submitted"), row.get("end")
    status = SlurmStatus(id=clean_line(row.get("shown"), 100), **cleaned_fields(row, _STATUS))
    if not status.waits and is_stamp(end):
        status = replace(status, ends=float(end))
    return SlurmJob(
        **known,
        place=status.id or known["id"],
        components=components_of(row),
        created=float(submitted) if is_stamp(submitted) else 0.0,
        status=status,
    )
