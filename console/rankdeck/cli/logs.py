"""`rankdeck logs`: what the ranks of a job wrote."""

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rankdeck.cli import choose, codes, folded, stream
from rankdeck.cli.opening import job_of, opened, until_done
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.rankset import choose as choose_ranks
from rankdeck_agent.wire import LAUNCHER


def logs(options: argparse.Namespace, _open_console: object) -> int:
    """Print the output of a job from the beginning."""
    return until_done(_logs(choose.cluster(options.cluster), options))


async def _logs(cluster: Cluster, options: argparse.Namespace) -> int:
    view = _view(options)
    async with opened(cluster) as session:
        await session.following.caught_up()
        job = await job_of(session, options.job)
        ranks = [LAUNCHER] if options.launcher else _ranks(job, options.rank)
        if view:
            reader = folded.Reader(session, job, ranks, options.stream)
            await _VIEWS[view](reader, job, options)
            return codes.OK
        session.watch(job.id, ranks, None)
        show = stream.show_object if options.json else stream.show_text
        printer = stream.Printer(session, job, ranks, show, options.stream)
        if options.follow or job.state.final:
            await stream.print_until_finished(session, job.id, printer)
        else:
            await stream.print_what_there_is(session, job.id, printer)
    return codes.OK


def _view(options: argparse.Namespace) -> str:
    """Which way of folding was asked for; "" for none. They exclude each other and --follow."""
    asked = [name for name in _VIEWS if getattr(options, name) not in (False, None)]
    if options.launcher and (asked or options.rank):
        raise codes.UsageError("--launcher goes with --follow and --stream only")
    if len(asked) > 1 or (asked and options.follow):
        names = " and ".join(
            f"--{name}" for name in [*asked, *(["follow"] if options.follow else [])]
        )
        raise codes.UsageError(f"{names} do not go together")
    return asked[0] if asked else ""


_VIEWS: Mapping[str, Callable[[folded.Reader, Job, argparse.Namespace], Awaitable[None]]] = {
    "collapse": lambda reader, _, o: folded.print_collapsed(reader, as_json=o.json),
    "merge": lambda reader, _, o: folded.print_merged(reader, as_json=o.json),
    "diff": lambda reader, job, o: folded.print_difference(reader, job, o.diff, as_json=o.json),
}


def _ranks(job: Job, text: str) -> Sequence[int]:
    """The ranks that are meant; all where none are named."""
    try:
        return choose_ranks(text, job.ranks)
    except ValueError as error:
        raise codes.UsageError(f"--rank {text}: {error}") from error
