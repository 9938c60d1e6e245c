"""The rows with which the agent tells of Slurm: each checked, and made a value."""

import logging
import time
from collections.abc import Mapping
from typing import Any, TypeGuard

from rankdeck.errors import UnknownJobError
from rankdeck.model.field_checks import (
    cleaned_fields,
    is_flag,
    is_integer,
    is_rows,
    is_stamp,
    is_text,
    or_null,
)
from rankdeck.model.json_tables import as_table, as_tables
from rankdeck.model.queue import JobComponent, Partition, QueueStatus
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.command import Takes
from rankdeck.schedulers.orders import (
    JobChange,
    JobEfficiency,
    SchedulerPage,
    SchedulerPages,
    ServiceChange,
)
from rankdeck.schedulers.slurm.node import SlurmNode
from rankdeck.schedulers.slurm.state import SlurmCluster
from rankdeck.schedulers.slurm.values import SlurmJob, SlurmLook
from rankdeck.state.fleet import Fleet
from rankdeck.values import replace

_WORD, LONGEST_SENTENCE = 300, 600
log = logging.getLogger(__name__)
_LONGEST_NODES = 2000
_LONGEST_JOB = 4200
"""Most characters of a job's name in an order: the tasks of an array may be many."""
_MOST = 1000
_MOST_GRES, _LONGEST_LINE = 64, 1 << 17
MOST_CHANGED = 5000
"""Most nodes or jobs that one order changes."""
_MOST_RANKS = 4096


def slurm_takes(fleet: Fleet, state: SlurmCluster) -> Takes:
    """Key of a row -> function that applies its value to fleet and state."""

    def trouble(found: object) -> None:
        state.trouble = why = clean_line(found, LONGEST_SENTENCE)
        if why:
            fleet.await_nodes(awaited=False)
            log.warning("%s", why, extra={"source": "slurm"})

    def about(found: object) -> None:
        state.user = clean_line(as_table(found).get("user"), 64)

    def ready(_: object) -> None:
        fleet.await_nodes(awaited=False)

    def node(found: object) -> None:
        name, view = slurm_node_of(as_table(found))
        fleet.scheduler_says(name, view)

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


_WORDS = is_rows(is_text(_WORD), _MOST)
_NODE = {
    "state": is_text(40), "also": _WORDS, "reason": is_text(LONGEST_SENTENCE), "by": is_text(_WORD), "since": or_null(is_stamp),
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


def _is_shown_whole(line: object) -> TypeGuard[str]:
    """Whether this line can be shown unchanged, so that the
    operator agrees to exactly what runs.
    """
    return isinstance(line, str) and line.isprintable() and len(line) <= _LONGEST_LINE


def change_of(row: Mapping[str, Any]) -> ServiceChange:
    """The agent's answer to a `ServiceOrder`."""
    known = _change_fields(row, _CHANGE, (MOST_CHANGED, 253))
    told = (slurm_node_of(one) for one in as_tables(row.get("now"), MOST_CHANGED))
    states = {name: view.words for name, view in told if name}
    changed = known.get("nodes", ()) if known.get("done") else ()
    return ServiceChange(
        **known,
        now={node: states.get(node, "not known") for node in changed},
    )


_JOB_CHANGE = {
    "jobs": is_rows(is_text(_LONGEST_JOB), _MOST), "hits": is_integer, "done": is_flag, "said": is_text(LONGEST_SENTENCE),
    "error": is_text(LONGEST_SENTENCE),
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
        "line": line if _is_shown_whole(line) else "",
        "left_alone": _told_of_each(row.get("left"), bounds),
    }


def _told_of_each(table: object, bounds: tuple[int, int]) -> dict[str, str]:
    """A sentence for each node or job."""
    most, longest = bounds
    each = list(as_table(table).items())[:most]
    return {clean_line(name, longest): clean_line(said, LONGEST_SENTENCE) for name, said in each}


_MOST_PAGES, _MOST_PAGE_LINES, _LONGEST_PAGE_LINE = 200, 4001, 1000
_PAGE = {
    "line": is_text(_LONGEST_PAGE_LINE), "lines": is_rows(is_text(_LONGEST_PAGE_LINE), _MOST_PAGE_LINES), "error": is_text(LONGEST_SENTENCE),
}  # fmt: skip
_EFFICIENCY = {
    "job": is_text(80), "state": is_text(40), "elapsed": is_stamp, "cpus": is_integer, "nodes": is_integer, "gpus": is_integer,
    "cpu_used": or_null(is_stamp), "cpu": or_null(is_stamp), "memory": or_null(is_stamp), "memory_used": or_null(is_stamp),
    "memory_share": or_null(is_stamp), "gpu": or_null(is_stamp),
}  # fmt: skip


def pages_of(row: Mapping[str, Any]) -> SchedulerPages:
    """The agent's answer to a question that Slurm itself answers."""
    pages = (cleaned_fields(one, _PAGE) for one in as_tables(row.get("pages"), _MOST_PAGES))
    used = (cleaned_fields(one, _EFFICIENCY) for one in as_tables(row.get("efficiency"), _MOST))
    return SchedulerPages(
        pages=tuple(SchedulerPage(**one) for one in pages),
        efficiency=tuple(JobEfficiency(**one) for one in used),
        error=clean_line(row.get("error"), LONGEST_SENTENCE),
    )


_PARTITION = {
    "name": is_text(_WORD), "usual": is_flag, "up": is_flag, "limit": or_null(is_stamp), "size": is_text(40),
    "nodes": is_integer, "idle": is_integer, "usable": is_integer,
}  # fmt: skip


def partition_of(row: Mapping[str, Any]) -> Partition:
    """A partition; its name is "" if the row is invalid."""
    known: dict[str, Any] = {"name": "", **cleaned_fields(row, _PARTITION)}
    return Partition(**known)


_CHANGE = {
    "nodes": is_rows(is_text(253), MOST_CHANGED), "done": is_flag, "said": is_text(LONGEST_SENTENCE), "error": is_text(LONGEST_SENTENCE),
}  # fmt: skip
_STATUS = {
    "state": is_text(40), "reason": is_text(_WORD), "text": is_text(LONGEST_SENTENCE), "do": is_text(LONGEST_SENTENCE), "stuck": is_flag,
    "partition": is_text(_WORD), "account": is_text(_WORD), "qos": is_text(_WORD),
    "nodes": is_text(_LONGEST_NODES), "position": is_integer, "waiting": is_integer, "limit": or_null(is_stamp), "start": or_null(is_stamp),
}  # fmt: skip


def _is_count(value: object) -> bool:
    return is_integer(value) and 1 <= value <= _MOST_RANKS


_LOOK = {
    "id": is_text(40), "array": is_text(60), "name": is_text(_WORD), "user": is_text(64), "state": is_text(40), "submitted": or_null(is_stamp),
    "ranks": _is_count, "error": is_text(LONGEST_SENTENCE), "components": is_integer, "tasks": is_integer,
}  # fmt: skip


def slurm_look_of(row: Mapping[str, Any]) -> SlurmLook:
    """What Slurm knows about one job; raises UnknownJobError."""
    known = cleaned_fields(row, _LOOK)
    known |= {key: path for key in ("out", "err") if _is_shown_whole(path := row.get(key))}
    if error := known.pop("error", ""):
        raise UnknownJobError(error)
    return SlurmLook(**known)


_JOB = {
    "id": is_text(40), "name": is_text(_WORD), "user": is_text(64), "cpus": is_integer, "count": is_integer, "gpus": is_integer,
    "memory": is_stamp, "priority": is_integer,
}  # fmt: skip
_COMPONENT = {
    "id": is_text(40), "state": is_text(40), "partition": is_text(_WORD), "nodes": is_text(_LONGEST_NODES), "text": is_text(LONGEST_SENTENCE),
    "count": is_integer, "cpus": is_integer, "gpus": is_integer, "memory": is_stamp,
}  # fmt: skip
_MOST_COMPONENTS = 256


def components_of(row: Mapping[str, Any]) -> tuple[JobComponent, ...]:
    """The components of a het job; () for other jobs."""
    found = (
        cleaned_fields(one, _COMPONENT)
        for one in as_tables(row.get("components"), _MOST_COMPONENTS)
    )
    return tuple(JobComponent(**one) for one in found)


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
    status = QueueStatus(id=clean_line(row.get("shown"), 100), **cleaned_fields(row, _STATUS))
    if not status.waits and is_stamp(end):
        status = replace(status, ends=float(end))
    return SlurmJob(
        **known,
        place=status.id or known["id"],
        components=components_of(row),
        created=float(submitted) if is_stamp(submitted) else 0.0,
        status=status,
    )
