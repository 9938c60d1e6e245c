"""Finds the job meant by part of its id, and rebuilds jobs that only their nodes know."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rankdeck.errors import UnknownJobError
from rankdeck.model.job import Abort, Job, Plan
from rankdeck.model.text import clean, strip_controls
from rankdeck_agent.wire import NodePlan, ProcessPlan

_KINDS = 3


def _names(job: Job) -> tuple[str, str, str]:
    """What a job may be called, what is surest first."""
    return job.id, job.slurm.id if job.slurm else "", job.name


def find_job(text: str, jobs: Sequence[Job]) -> Job:
    """The job of this id (ours or Slurm's), the first of this name, or the only one whose id begins so.

    Raises UnknownJobError.
    """
    for kind in range(_KINDS):
        exact = next((job for job in jobs if text and _names(job)[kind] == text), None)
        if exact is not None:
            return exact
    found = [job for job in jobs if text and job.id.startswith(text)]
    if len(found) == 1:
        return found[0]
    shown = strip_controls(text)[:60]
    if found:
        names = ", ".join(job.id for job in found[:5])
        raise UnknownJobError(f"`{shown}` begins more than one job: {names}")
    raise UnknownJobError(f"no job `{shown}`; `rankdeck jobs` lists them")


_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,100})-\d{4}-\d{6}-[0-9a-f]{4}\Z")
"""As a launch names its jobs: probes of preflight are called otherwise, and end by themselves."""
_MOST_ROWS, _MOST_RANKS, _MOST_PROCESSES, _MOST_WORDS = 1000, 4096, 4096, 1000
_LONGEST_WORD = 4096
_LAST_RANK = 1 << 20
_LONGEST_GRACE = 86400.0

Found = dict[str, tuple[Plan, float]]
"""Job -> its plan and when it was started, in epoch seconds."""


def found_jobs(cluster: str, told: Mapping[str, Sequence[Mapping[str, Any]]], now: float) -> Found:
    """The running jobs, from the rows of `job list --plans` of each node; invalid rows are left out."""
    parts: dict[str, list[NodePlan]] = {}
    created: dict[str, float] = {}
    for node, rows in told.items():
        for row in rows[:_MOST_ROWS]:
            plan = _node_plan(node, row)
            if plan is None or not _free(plan, parts.get(plan.job, [])):
                continue
            parts.setdefault(plan.job, []).append(plan)
            at = min(_number(row.get("created"), now), now)
            created[plan.job] = min(created.get(plan.job, at), at)
    return {job: (_plan(cluster, job, nodes), created[job]) for job, nodes in parts.items()}


def _free(plan: NodePlan, others: list[NodePlan]) -> bool:
    """Whether no other node reports the ranks of this one."""
    known = {rank for other in others for rank in other.ranks}
    return known.isdisjoint(plan.ranks)


def _plan(cluster: str, job: str, nodes: list[NodePlan]) -> Plan:
    match = _ID.match(job)
    return Plan(
        job=job,
        name=match[1] if match else job,
        cluster=cluster,
        backend="ssh",
        nodes=tuple(sorted(nodes, key=lambda node: min(node.ranks, default=0))),
        grace=max(node.grace for node in nodes),
        # Whether a failed rank ends the job is known only to the console that started it.
        abort=Abort(enabled=False),
    )


def _node_plan(node: str, row: Mapping[str, Any]) -> NodePlan | None:
    """The part of one job on one node, if it runs there and every field is valid."""
    job, plan = row.get("job"), row.get("plan")
    runs = row.get("closed") is False and row.get("alive") is True
    if not runs or row.get("node") != node or not isinstance(plan, dict):
        return None
    if not isinstance(job, str) or not _ID.match(job):
        return None
    table = cast("dict[str, Any]", plan)
    ranks = _ranks(table.get("ranks"))
    if ranks is None or table.get("elsewhere") not in (False, None):
        return None
    grace = min(max(_number(table.get("grace"), 10.0), 0.0), _LONGEST_GRACE)
    processes = _processes(table.get("processes"), ranks)
    return NodePlan(job=job, node=node, ranks=ranks, processes=processes, grace=grace)


def _ranks(raw: object) -> tuple[int, ...] | None:
    if not isinstance(raw, list):
        return None
    ranks = cast("list[Any]", raw)
    sane = all(type(rank) is int and 0 <= rank < _LAST_RANK for rank in ranks)
    if not sane or len(ranks) > _MOST_RANKS or len(set(ranks)) != len(ranks):
        return None
    return tuple(ranks)


def _processes(raw: object, ranks: tuple[int, ...]) -> tuple[ProcessPlan, ...]:
    rows = cast("list[Any]", raw) if isinstance(raw, list) else []
    return tuple(
        _process(cast("dict[str, Any]", row), ranks)
        for row in rows[:_MOST_PROCESSES]
        if isinstance(row, dict)
    )


def _process(row: Mapping[str, Any], ranks: tuple[int, ...]) -> ProcessPlan:
    argv, rank = row.get("argv"), row.get("rank")
    words = cast("list[Any]", argv)[:_MOST_WORDS] if isinstance(argv, list) else []
    return ProcessPlan(
        name=clean(row.get("name"), 100),
        argv=tuple(clean(word, _LONGEST_WORD) for word in words),
        rank=rank if type(rank) is int and rank in ranks else None,
    )


def _number(raw: object, otherwise: float) -> float:
    """Whether it is a finite number in range; written so that NaN is refused too."""
    fine = type(raw) in (int, float) and abs(cast("float", raw)) < 1e12
    return float(cast("float", raw)) if fine else otherwise
