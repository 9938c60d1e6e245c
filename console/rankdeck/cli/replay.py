"""`rankdeck replay`: a job that ran, once more on the screen."""

import argparse

from rankdeck.cli import choose, codes, output, stream
from rankdeck.cli.jobwords import summary
from rankdeck.cli.main import OpenConsole
from rankdeck.cli.opening import opened, until_done
from rankdeck.cli.shapes import job_shape
from rankdeck.model.cluster import Cluster

FASTEST = 1e6


def replay(options: argparse.Namespace, open_console: OpenConsole) -> int:
    """The console on the replay; where nobody looks, its output at that pace."""
    if not 0 < options.speed <= FASTEST:
        raise codes.UsageError(f"--speed: more than 0, at most {FASTEST:g}")
    cluster = choose.cluster(options.cluster)
    if output.is_terminal() and not options.json:
        return open_console(cluster, options.job, replay=options.speed)
    return until_done(_replay(cluster, options))


async def _replay(cluster: Cluster, options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        await session.following.caught_up()
        job_id = await session.replay(session.jobs.find(options.job).id, options.speed)
        job = session.jobs.job(job_id)
        show = stream.show_nothing if options.json else stream.show_text
        printer = stream.Printer(session, job, [r.rank for r in job.ranks], show)
        job = await stream.print_until_finished(session, job_id, printer)
    if options.json:
        output.say_object(job_shape(job))
    output.progress(summary(job))
    return codes.OK
