"""`rankdeck attach`: look at a job that runs already."""

import argparse
from collections.abc import Callable

from rankdeck.cli import choose, output
from rankdeck.cli.opening import job_of, opened, until_done
from rankdeck.cli.run import attend
from rankdeck.cli.shapes import job_shape
from rankdeck.errors import UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.session import Session


def attach(options: argparse.Namespace, open_console: Callable[[Cluster, str], int]) -> int:
    """The console, on that job if one is named; where nobody looks its output until it ends."""
    cluster = choose.cluster(options.cluster)
    if output.is_terminal() and not options.json:
        return open_console(cluster, options.job)
    return until_done(_follow(cluster, options))


async def _follow(cluster: Cluster, options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        job = await _meant(session, options.job)
        code = await attend(session, job.id, as_json=options.json, may_cancel=False)
        if options.json:
            output.say_object(job_shape(session.jobs.job(job.id)))
        return code


async def _meant(session: Session, given: str) -> Job:
    """The job of that name, else the newest that runs."""
    if given:
        return await job_of(session, given)
    running = [job for job in session.jobs.all() if not job.state.final]
    if not running:
        raise UnknownJobError("no job runs on this cluster; see `rankdeck jobs`")
    return running[0]
