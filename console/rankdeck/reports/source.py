"""What is known of a job besides its logs: events, health and numbers of its nodes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankdeck.model.job import Job, NodeEvent
from rankdeck.prometheus.site_past import JobNumbers, SitePast
from rankdeck.state.fleet import Fleet
from rankdeck.state.history import History
from rankdeck.state.job_recorder import chosen, node_health, troubled_nodes


@dataclass(frozen=True, slots=True)
class ReportSource:
    """What goes into a report."""

    job: Job
    events: Sequence[NodeEvent]
    """From the history: used for nodes that do not answer."""
    health: Sequence[Mapping[str, Any]]
    environment: Mapping[str, str]
    """Of the cluster file."""
    numbers: JobNumbers = JobNumbers()  # noqa: RUF009 - it is frozen
    """Of its nodes while it ran; without a source they are what consoles heard."""


@dataclass(frozen=True, slots=True)
class NodesOfJob:
    """Who knows of the nodes of a job."""

    history: History
    fleet: Fleet
    past: SitePast
    environment: Mapping[str, str]
    """Of the cluster file."""


async def report_source(job: Job, known: NodesOfJob) -> ReportSource:
    """All that is known now; the site's metrics are asked where there are some."""
    now = time.time()
    nodes = chosen(job.nodes, troubled_nodes(job))
    past = await known.past.of_job(nodes, job.created, job.ended or now, len(job.nodes))
    turn = {"at": now, "turn": "now", "nodes": node_health(known.fleet, job)}
    return ReportSource(
        job,
        known.history.events(job.id),
        [*known.history.health(job.id), turn],
        known.environment,
        past if past.rows else replace(past, rows=known.history.numbers(job.id)),
    )
