"""Commands on jobs in Slurm's queue: `rankdeck hold`, `release`, `requeue`,
`timelimit`, and `slurm`, which asks Slurm itself.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.opening import ask_agreement, open_for_command, until_done
from rankdeck.errors import RankdeckError, UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.schedulers import JobChange, JobOrder, SlurmPages, SlurmStatus
from rankdeck.session import Session

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


def _change(do: str, options: argparse.Namespace, to: str = "") -> int:
    return until_done(_carry_out(choose.choose_cluster(options.cluster), do, options, to))


async def _carry_out(cluster: Cluster, do: str, options: argparse.Namespace, to: str) -> int:
    async with open_for_command(cluster) as session:
        order = JobOrder(do=do, jobs=slurm_names(session, options.jobs), to=to)
        change = await session.change_jobs(order)
        if change.line and not change.error and not options.dry_run:
            await _agree(change, options)
            change = await session.change_jobs(order, change.line)
    if options.json:
        output.say_object({"do": do, "to": to, **asdict(change), "jobs": list(change.jobs)})
    else:
        _say_change(change)
    if change.error:
        raise RankdeckError(change.error)
    return output.TROUBLE if change.left else output.OK


def slurm_names(session: Session, texts: Sequence[str]) -> tuple[str, ...]:
    """Slurm's names of jobs that are named as Rankdeck or Slurm does; raises UnknownJobError."""
    return tuple(dict.fromkeys(_slurm_name(session, text) for text in texts))


def _slurm_name(session: Session, text: str) -> str:
    if _SLURM_JOB.match(text):
        return SlurmStatus(id=text).name
    job = session.jobs.find(text)
    if job.slurm is None or not job.slurm.id:
        raise UnknownJobError(f"Slurm has no job {job.id}")
    return job.slurm.id


async def _agree(change: JobChange, options: argparse.Namespace) -> None:
    """Have the user say yes to the line; raises UsageError otherwise."""
    if options.yes:
        return
    _tell_left(change)
    if not await ask_agreement(f"{change.line}\nThis changes {change.hit_words}. Do it?"):
        raise output.UsageError(f"not run: {change.line} (`--yes` runs it without a question)")


def _say_change(change: JobChange) -> None:
    _tell_left(change)
    if change.line:
        output.print_text(change.line)
    if change.said:
        output.print_text(f"Slurm: {change.said}")
    for job, now in change.now.items():
        output.print_text(f"{job}: {now}")


def _tell_left(change: JobChange) -> None:
    for job, why in change.left.items():
        output.print_progress(f"{job} is left alone: {why}")


def run_slurm(options: argparse.Namespace, _open_console: object) -> int:
    """Print what Slurm itself says; exit code 1 if one of its commands failed."""
    if options.what in _OF_JOBS and not options.jobs:
        raise output.UsageError(f"write `rankdeck slurm {options.what} JOB`")
    return until_done(_ask(choose.choose_cluster(options.cluster), options))


async def _ask(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        answer = await session.ask_slurm(options.what, slurm_names(session, options.jobs))
    if answer.error:
        raise RankdeckError(answer.error)
    if options.json:
        output.say_object(pages_shape(answer))
    else:
        _say_pages(answer)
    return output.TROUBLE if any(page.error for page in answer.pages) else output.OK


def _say_pages(answer: SlurmPages) -> None:
    for one in answer.efficiency:
        output.print_text("\n".join((*one.lines, "")))
    for page in answer.pages:
        output.print_progress(page.line)
        output.print_text("\n".join(page.lines))
        if page.error:
            output.print_progress(page.error)


def pages_shape(answer: SlurmPages) -> dict[str, Any]:
    """`slurm --json`."""
    return {
        "pages": [{**asdict(page), "lines": list(page.lines)} for page in answer.pages],
        "efficiency": [asdict(one) for one in answer.efficiency],
    }
