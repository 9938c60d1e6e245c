"""`rankdeck jobs` and `rankdeck cancel`."""

import argparse
import time

from rankdeck.cli import choose, codes, output
from rankdeck.cli.jobwords import clean_report, proof
from rankdeck.cli.opening import job_of, opened, until_done
from rankdeck.cli.shapes import job_shape, report_shape
from rankdeck.model.blame import failure
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold

DAY = 86400.0


def jobs(options: argparse.Namespace, _open_console: object) -> int:
    """List the jobs of a cluster, newest first."""
    return until_done(_jobs(choose.cluster(options.cluster), options))


async def _jobs(cluster: Cluster, options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        silent = await session.find_running()
        await session.following.caught_up()
        session.following.notice_stalls()
        oldest = 0.0 if options.all else time.time() - DAY
        known = sorted(
            (job for job in session.jobs.all() if (job.ended or time.time()) >= oldest),
            key=lambda job: -job.created,
        )
    for node, why in silent.items():
        output.progress(f"{node}: not asked what runs there: {why}")
    if options.json:
        for job in known:
            output.say_object(job_shape(job))
    elif known:
        output.say_table(
            ("JOB", "STATE", "RANKS", "NODES", "STARTED", "FIRST FAILURE / STALL"),
            map(_row, known),
        )
    else:
        output.progress(f"no jobs on {cluster.name}" + ("" if options.all else " in the last day"))
    return codes.OK


def _row(job: Job) -> tuple[str, ...]:
    started = time.strftime("%m-%d %H:%M:%S", time.localtime(job.created))
    return (
        job.id,
        job.state.value,
        str(len(job.ranks)),
        fold(job.nodes),
        started,
        _why(job),
    )


def _why(job: Job) -> str:
    """What went wrong, as the summary of `run` begins."""
    first = job.first_failure
    explained = job.explained if first is None else first.explained
    said = [failure(first)] if first else [stall.text for stall in job.stalled]
    return "; ".join((*said, *(one.means for one in explained[:1])))


def cancel(options: argparse.Namespace, _open_console: object) -> int:
    """End a job; the code says whether it is proven that nothing is left."""
    if options.grace is not None and not 0 <= options.grace <= DAY:
        raise codes.UsageError("--grace: seconds, at most a day")
    return until_done(_cancel(choose.cluster(options.cluster), options))


async def _cancel(cluster: Cluster, options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        job = await job_of(session, options.job)
        output.progress(f"{job.id}: cancelling on {fold(job.nodes)} …")
        report = await session.cancel(job.id, options.grace)
    if options.json:
        output.say_object(report_shape(report))
    else:
        output.say(proof(report))
    return codes.OK if clean_report(report) else codes.TROUBLE
