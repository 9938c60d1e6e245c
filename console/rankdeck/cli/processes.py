"""`rankdeck ps`: the processes of nodes, or what each rank of a job takes."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.opening import job_of, opened, until_done
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.process import NodeProcess, RankUse, uses_of
from rankdeck.model.text import size, speed
from rankdeck.remote.processes import FoundProcesses

BUSY_CPU, BUSY_RSS = 0.01, 256 << 20
"""Cores and bytes from which on a process of nobody's job is shown."""
PROCESS_HEADS = ("NODE", "PID", "USER", "S", "CPU", "RSS", "GPU", "GPU MEM", "I/O", "RANK", "JOB", "COMMAND")  # fmt: skip
RANK_HEADS = ("RANK", "NODE", "PID", "S", "CPU", "RSS", "GPU", "GPU MEM", "I/O", "LINES")


def ps(options: argparse.Namespace, _open_console: object) -> int:
    """List them; trouble where a node did not tell."""
    cluster = choose.cluster(options.cluster)
    return until_done(_ps(cluster, options))


async def _ps(cluster: Cluster, options: argparse.Namespace) -> int:
    nodes = choose.nodes(cluster, options.nodes)
    async with opened(cluster) as session:
        job = await job_of(session, options.job) if options.job else None
        if job is not None:
            await session.following.caught_up()
            job = session.jobs.job(job.id)
            nodes = job.nodes
        found = await session.processes(nodes)
    if job is not None:
        _say_ranks(job, found, as_json=options.json)
    elif options.json:
        output.say_object(shape(found))
    else:
        shown = [one for one in found.processes if options.all or _matters(one)]
        output.say_table(PROCESS_HEADS, map(_row, shown))
    for text in (*(f"{n}: not asked: {why}" for n, why in found.missing.items()), *found.notes):
        output.progress(f"rankdeck: {text}")
    return output.TROUBLE if found.missing else output.OK


def _matters(one: NodeProcess) -> bool:
    return bool(one.job or one.gpus) or one.cpu >= BUSY_CPU or one.rss >= BUSY_RSS


def _row(one: NodeProcess) -> tuple[str, ...]:
    rank = "-" if one.rank is None else str(one.rank)
    return (
        one.node, str(one.pid), one.user, one.state, f"{one.cpu:.0%}", size(one.rss), *_gpu(one.gpus, one.gpu_memory),
        speed(one.traffic) if one.traffic is not None else "-", rank, one.job or "-", one.command,
    )  # fmt: skip


def _gpu(gpus: Iterable[str], memory: int | None) -> tuple[str, str]:
    names = ",".join(gpus)
    return names or "-", size(memory or 0) if names else "-"


def _say_ranks(job: Job, found: FoundProcesses, *, as_json: bool) -> None:
    uses = uses_of(job, found.processes)
    if as_json:
        ranks = [rank_use_shape(one) for one in uses.values()]
        output.say_object({"job": job.id, "ranks": ranks, "missing": dict(found.missing)})
        return
    lines = {rank.rank: rank.lines for rank in job.ranks}
    output.say_table(RANK_HEADS, (_rank_row(one, lines[one.rank]) for one in uses.values()))


def _rank_row(one: RankUse, lines: int) -> tuple[str, ...]:
    cpu = "-" if one.cpu is None else f"{one.cpu:.0%}"
    rss = "-" if one.rss is None else size(one.rss)
    return (
        str(one.rank), one.node, str(one.pid or "-"), one.state, cpu, rss, *_gpu(one.gpus, one.gpu_memory),
        speed(one.traffic) if one.traffic is not None else "-", f"{lines:,}",
    )  # fmt: skip


def rank_use_shape(one: RankUse) -> dict[str, Any]:
    """What one rank takes."""
    return {
        "rank": one.rank,
        "node": one.node,
        "pid": one.pid,
        "state": one.state,
        "cpu": one.cpu,
        "rss": one.rss,
        "gpus": list(one.gpus),
        "gpu_memory": one.gpu_memory,
        "io": one.traffic,
        "pids": [process.pid for process in one.processes],
    }


def shape(found: FoundProcesses) -> dict[str, Any]:
    """`ps --json`."""
    return {
        "processes": [asdict(one) for one in found.processes],
        "missing": dict(found.missing),
        "notes": list(found.notes),
    }
