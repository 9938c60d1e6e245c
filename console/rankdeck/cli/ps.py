"""`rankdeck ps`: the processes of users on nodes, and the ranks of jobs."""

import argparse
from collections.abc import Iterable
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.jobs import ended_job_sentence
from rankdeck.cli.opening import find_meant_job, hear_nodes, open_for_command, until_done
from rankdeck.cli.shapes import rank_use_shape
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.process import NodeProcess, RankUse, rank_uses
from rankdeck.remote.command import FoundProcesses
from rankdeck.values import value_table
from rankdeck_agent.rules.units import write_size, write_speed

BUSY_CPU, BUSY_RSS = 0.01, 256 << 20
"""A process that belongs to no job is shown from this many cores or bytes on."""
PROCESS_HEADS = ("NODE", "PID", "USER", "S", "CPU", "RSS", "GPU", "GPU MEM", "I/O", "RANK", "JOB", "COMMAND")  # fmt: skip
RANK_HEADS = ("RANK", "NODE", "PID", "S", "CPU", "RSS", "GPU", "GPU MEM", "I/O", "LINES")


def run_ps(options: argparse.Namespace, _open_console: object) -> int:
    """List processes; exit code 1 if a node did not answer."""
    cluster = choose.choose_cluster(options.cluster)
    return until_done(_ps(cluster, options))


async def _ps(cluster: Cluster, options: argparse.Namespace) -> int:
    nodes = choose.expand_node_option(cluster, options.nodes)
    async with open_for_command(cluster) as session:
        job = await find_meant_job(session, options.job) if options.job else None
        if job is not None:
            await hear_nodes(session)
            job = session.jobs.job(job.id)
            if job.state.final and not options.json:
                output.print_text(ended_job_sentence(job))
                return output.OK
            nodes = job.nodes
        found = await session.nodes.find_processes(nodes)
    if job is not None:
        _say_ranks(job, found, as_json=options.json)
    elif options.json:
        output.say_object(processes_shape(found))
    else:
        shown = [one for one in found.processes if options.all or _matters(one)]
        if shown or not found.processes:
            output.say_table(PROCESS_HEADS, map(_row, shown))
        else:
            output.print_progress(
                f"nothing of a job, on a GPU or with much CPU or memory; --all lists {len(found.processes)}"
            )
    for text in (*(f"{n}: not asked: {why}" for n, why in found.missing.items()), *found.notes):
        output.print_progress(f"rankdeck: {text}")
    return output.TROUBLE if found.missing else output.OK


def _matters(one: NodeProcess) -> bool:
    return bool(one.job or one.gpus) or one.cpu >= BUSY_CPU or one.rss >= BUSY_RSS


def _row(one: NodeProcess) -> tuple[str, ...]:
    rank = "-" if one.rank is None else str(one.rank)
    return (
        one.node,
        str(one.pid),
        one.user,
        one.state,
        f"{one.cpu:.0%}",
        write_size(one.rss),
        *_gpu(one.gpus, one.gpu_memory),
        write_speed(one.traffic) if one.traffic is not None else "-",
        rank,
        one.job or "-",
        one.command,
    )


def _gpu(gpus: Iterable[str], memory: int | None) -> tuple[str, str]:
    names = ",".join(gpus)
    return names or "-", write_size(memory or 0) if names else "-"


def _say_ranks(job: Job, found: FoundProcesses, *, as_json: bool) -> None:
    uses = rank_uses(job, found.processes)
    if as_json:
        ranks = [rank_use_shape(one) for one in uses.values()]
        output.say_object({"job": job.id, "ranks": ranks, "missing": dict(found.missing)})
        return
    lines = {rank.rank: rank.lines for rank in job.ranks}
    output.say_table(RANK_HEADS, (_rank_row(one, lines[one.rank]) for one in uses.values()))


def _rank_row(one: RankUse, lines: int) -> tuple[str, ...]:
    cpu = "-" if one.cpu is None else f"{one.cpu:.0%}"
    rss = "-" if one.rss is None else write_size(one.rss)
    return (
        str(one.rank),
        one.node,
        str(one.pid or "-"),
        one.state,
        cpu,
        rss,
        *_gpu(one.gpus, one.gpu_memory),
        write_speed(one.traffic) if one.traffic is not None else "-",
        f"{lines:,}",
    )


def processes_shape(found: FoundProcesses) -> dict[str, Any]:
    """`ps --json`."""
    return {
        "processes": [value_table(one) for one in found.processes],
        "missing": dict(found.missing),
        "notes": list(found.notes),
    }
