"""`rankdeck swap`: is it the program or the node? Runs a job again with its ranks elsewhere."""

import argparse
from functools import partial

from rankdeck.cli import choose, output
from rankdeck.cli.opening import (
    ask_agreement,
    carry_out_run,
    find_meant_job,
    hear_nodes,
    open_for_command,
    until_done,
)
from rankdeck.cli.output import UsageError
from rankdeck.cli.spans import parse_option_span
from rankdeck.model.cluster import Cluster
from rankdeck.swap.planning import SwapError
from rankdeck.swap.service import WATCH, Swaps, is_blank
from rankdeck.swap.table import plan_lines, result_line, start_question, swap_shape, verdict_lines
from rankdeck.swap.values import Blame, Swap


def run_swap(options: argparse.Namespace, _open_console: object) -> int:
    """The command; exit code: 0 it is known what is to blame and nothing is left, 1 undecided,
    2 wrong input, 130 stopped.
    """
    cluster = choose.choose_cluster(options.cluster)
    return until_done(_swap(cluster, options, parse_option_span(options.limit, "--limit")))


async def _swap(cluster: Cluster, options: argparse.Namespace, limit: float) -> int:
    async with open_for_command(cluster) as session:
        job = await find_meant_job(session, options.job)
        await hear_nodes(session)
        port = session.swaps
        if is_blank(job):
            output.print_progress(f"{job.id} runs: watching it for up to {WATCH:.0f} s …")
        try:
            swap = await port.plan(job.id, limit)
        except SwapError as error:
            raise UsageError(str(error)) from error
        text = "\n".join(plan_lines(swap.plan))
        if options.dry_run:
            output.say_result(swap_shape(swap), text, as_json=options.json)
            return output.OK
        output.print_progress(text)
        if not await _may_start(swap, options):
            output.print_progress("not started")
            return output.BAD_INPUT
        return await _until_end(port, as_json=options.json)


async def _may_start(swap: Swap, options: argparse.Namespace) -> bool:
    """Without a terminal it starts by itself, but never ends a job that nobody said yes to."""
    if options.yes or (not output.can_ask() and not swap.plan.ends_job):
        return True
    if not output.can_ask():
        output.print_progress(
            f"{swap.plan.job} still runs and would be cancelled: --yes agrees to that"
        )
        return False
    return await ask_agreement(start_question(swap.plan))


async def _until_end(port: Swaps, *, as_json: bool) -> int:
    """Make the runs until they end or a signal comes; returns the exit code."""
    await carry_out_run(
        port.start(),
        lambda: (
            (number, partial(result_line, number, one))
            for number, one in enumerate(port.current.results if port.current else (), 1)
        ),
        port.stop,
    )
    swap = port.current
    assert swap is not None
    output.say_result(swap_shape(swap), "\n".join(verdict_lines(swap)), as_json=as_json)
    if not swap.ended:
        return output.INTERRUPTED
    decided = swap.verdict is not None and swap.verdict.blame is not Blame.UNDECIDED
    return output.OK if decided and not any(one.left for one in swap.results) else output.TROUBLE
