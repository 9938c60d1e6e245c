"""Commands that change what is in Slurm (`rankdeck hold`, `release`, `requeue`,
`timelimit` of jobs, `drain` and `resume` of nodes), and `slurm`, which asks Slurm itself.
"""

import argparse
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.opening import ask_agreement, ask_line, open_for_command, until_done
from rankdeck.errors import RankdeckError, UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.queue import QueueStatus
from rankdeck.schedulers.orders import (
    JobChange,
    JobOrder,
    OrderChange,
    SchedulerPages,
    ServiceChange,
    ServiceOrder,
)
from rankdeck.session import Session
from rankdeck.values import value_table

_SLURM_JOB = re.compile(r"\d{1,11}(?:_(?:\d{1,9}|\[[\d,:-]+(?:%\d+)?\]))?\Z", re.ASCII)
_OF_JOBS = ("job", "efficiency")


def run_hold(options: argparse.Namespace, _open_console: object) -> int:
    """Hold jobs that wait; exit code 1 if one was left alone."""
    return _change("hold", options)


def run_release(options: argparse.Namespace, _open_console: object) -> int:
    """Release jobs that are held; exit code 1 if one was left alone."""
    return _change("release", options)


def run_requeue(options: argparse.Namespace, _open_console: object) -> int:
    """Stop jobs and put them back into the queue; exit code 1 if one was left alone."""
    return _change("requeue", options)


def run_timelimit(options: argparse.Namespace, _open_console: object) -> int:
    """Give jobs another time limit; exit code 1 if one was left alone."""
    return _change("timelimit", options, options.to)


def run_drain(options: argparse.Namespace, _open_console: object) -> int:
    """Take nodes out of service; exit code 1 if a node was left alone."""
    return _serve("drain", options, why=options.why)


def run_resume(options: argparse.Namespace, _open_console: object) -> int:
    """Return nodes to service; exit code 1 if a node was left alone."""
    return _serve("resume", options, anyway=options.anyway)


def _change(do: str, options: argparse.Namespace, to: str = "") -> int:
    cluster = choose.choose_cluster(options.cluster)

    async def change() -> int:
        async with open_for_command(cluster) as session:
            order = JobOrder(do=do, jobs=slurm_names(session, options.jobs), to=to)
            ask = partial(session.queue.change_jobs, order)
            return await _carry_out(ask, {"do": do, "to": to}, options)

    return until_done(change())


def _serve(do: str, options: argparse.Namespace, *, why: str = "", anyway: bool = False) -> int:
    cluster = choose.choose_cluster(options.cluster)
    nodes = choose.expand_node_option(cluster, options.nodes)
    order = ServiceOrder(do=do, nodes=nodes, why=why, anyway=anyway)

    async def serve() -> int:
        async with open_for_command(cluster) as session:
            return await _carry_out(
                partial(session.queue.change_service, order), {"do": do}, options
            )

    return until_done(serve())


async def _carry_out(
    ask: Callable[[str], Awaitable[JobChange | ServiceChange]],
    order: Mapping[str, str],
    options: argparse.Namespace,
) -> int:
    """Learn the command line of an order, have the user agree to it, run it.

    `ask`: with "" only to learn the line, with the line to run it; `order`: what of it is in JSON.
    """
    change = await ask("")
    if change.line and not change.error and not options.dry_run:
        await _agree(order["do"], change, options)
        change = await ask(change.line)
    if options.json:
        output.say_object({**order, **value_table(change)})
    else:
        _say_change(order["do"], change)
    if change.error:
        raise RankdeckError(change.error)
    return output.TROUBLE if change.left_alone else output.OK


def slurm_names(session: Session, texts: Sequence[str]) -> tuple[str, ...]:
    """Slurm's names of jobs that are named as Rankdeck or Slurm does; raises UnknownJobError."""
    return tuple(dict.fromkeys(_slurm_name(session, text) for text in texts))


def _slurm_name(session: Session, text: str) -> str:
    if _SLURM_JOB.match(text):
        return QueueStatus(id=text).name
    job = session.jobs.find(text)
    if job.in_scheduler is None or not job.in_scheduler.id:
        raise UnknownJobError(f"Slurm has no job {job.id}")
    return job.in_scheduler.id


async def _agree(do: str, change: JobChange | ServiceChange, options: argparse.Namespace) -> None:
    """Have the user agree to the line: type the node or number, or say yes for
    jobs; raises UsageError otherwise.
    """
    if options.yes:
        return
    _tell_left(change)
    if isinstance(change, ServiceChange):
        question = f"{change.line}\nType {change.word} to {do} it: "
        agreed = await ask_line(question) == change.word
    else:
        question = f"{change.line}\nThis changes {change.hit_words}. Do it?"
        agreed = await ask_agreement(question)
    if not agreed:
        raise output.UsageError(f"not run: {change.line} (`--yes` runs it without a question)")


def _say_change(do: str, change: OrderChange) -> None:
    _tell_left(change)
    if change.line:
        output.print_text(change.line)
    elif not change.error:
        output.print_progress(f"nothing to {do}")
    if change.said:
        output.print_text(f"Slurm: {change.said}")
    for name, now in change.now.items():
        output.print_text(f"{name}: {now}")


def _tell_left(change: OrderChange) -> None:
    for name, why in change.left_alone.items():
        output.print_progress(f"{name} is left alone: {why}")


def run_slurm(options: argparse.Namespace, _open_console: object) -> int:
    """Print what Slurm itself says; exit code 1 if one of its commands failed."""
    if options.what in _OF_JOBS and not options.jobs:
        raise output.UsageError(f"write `rankdeck slurm {options.what} JOB`")
    return until_done(_ask(choose.choose_cluster(options.cluster), options))


async def _ask(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        answer = await session.queue.ask(options.what, slurm_names(session, options.jobs))
    if answer.error:
        raise RankdeckError(answer.error)
    if options.json:
        output.say_object(pages_shape(answer))
    else:
        _say_pages(answer)
    return output.TROUBLE if any(page.error for page in answer.pages) else output.OK


def _say_pages(answer: SchedulerPages) -> None:
    for one in answer.efficiency:
        output.print_text("\n".join((*one.lines, "")))
    for page in answer.pages:
        output.print_progress(page.line)
        output.print_text("\n".join(page.lines))
        if page.error:
            output.print_progress(page.error)


def pages_shape(answer: SchedulerPages) -> dict[str, Any]:
    """`slurm --json`."""
    return {
        "pages": [{**value_table(page), "lines": list(page.lines)} for page in answer.pages],
        "efficiency": [value_table(one) for one in answer.efficiency],
    }
