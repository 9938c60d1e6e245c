"""`rankdeck report`: all about one job in one archive."""

import argparse
from pathlib import Path

from rankdeck.cli import choose, codes, output
from rankdeck.cli.opening import opened, until_done
from rankdeck.model.cluster import Cluster

HEAR_LIMIT = 4.0
"""Seconds that nodes get to say how they are now."""


def report(options: argparse.Namespace, _open_console: object) -> int:
    """Write the archive; trouble where a node could not be asked."""
    return until_done(_report(choose.cluster(options.cluster), options))


async def _report(cluster: Cluster, options: argparse.Namespace) -> int:
    async with opened(cluster, telemetry=True) as session:
        await session.following.caught_up()
        job = session.jobs.find(options.job)
        path = _archive(options.output or f"{job.id}.tar.gz")
        output.progress(f"{job.id}: collecting from {len(job.nodes)} nodes …")
        await session.settle(HEAR_LIMIT)
        made = await session.report(job.id, path, full=options.full)
    size = path.stat().st_size
    missing = dict(made.missing)
    if options.json:
        output.say_object({"job": job.id, "file": str(path), "bytes": size, "missing": missing})
    else:
        output.say(f"{path} ({size:,} bytes)")
    for node, why in missing.items():
        output.progress(f"{node}: not in it: {why}")
    return codes.TROUBLE if missing else codes.OK


def _archive(name: str) -> Path:
    path = Path(name).expanduser().absolute()
    if not path.parent.is_dir():
        raise codes.UsageError(f"{path}: cannot be written: there is no such folder")
    return path
