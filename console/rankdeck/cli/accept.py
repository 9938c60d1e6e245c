"""`rankdeck accept`: is the cluster good? Plans, runs with progress, resumes, shows; `--read` reads what others ran."""

import argparse
import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from rankdeck.acceptance.planning import LEAF, MEASURED
from rankdeck.acceptance.port import AcceptancePort, Request
from rankdeck.acceptance.run import AcceptanceRun, Progress
from rankdeck.cli import accept_read, accept_store, choose, output
from rankdeck.cli.accept_text import Followed, outcome, plan_text, run_line
from rankdeck.cli.acknowledge import span
from rankdeck.cli.opening import Interrupts, agrees, opened, until_done
from rankdeck.cli.output import UsageError
from rankdeck.cli.shapes import acceptance_shape
from rankdeck.config.paths import find_job
from rankdeck.errors import RankdeckError
from rankdeck.model.acceptance import Stage
from rankdeck.model.cluster import Cluster
from rankdeck.rules.secrets import Secrets
from rankdeck.session import Session

BAD, MISSING, REFUSED = 1, 2, 3
_LOOK = 0.25
_STAGES = {**{one.value: (one,) for one in MEASURED}, "leaf": LEAF}
_HEARD = 5.0
"""Seconds in which telemetry of the nodes should begin; without it nothing is said of clocks and heat."""


def accept(options: argparse.Namespace, _open_console: object) -> int:
    """The verb; its exit code is 0 accepted, 1 bad, 2 not measured, 3 nobody may be measured, 130 stopped."""
    if options.read:
        return accept_read.read(options)
    cluster = choose.cluster(options.cluster)
    if (
        options.list
        or options.show
        or options.baseline not in ("", "this")
        or options.exclude
        or options.readmit
    ):
        return until_done(_kept(cluster, options))
    return until_done(
        _accept(cluster, options, None if options.resume else request_of(cluster, options))
    )


# ---- what is asked for


def request_of(cluster: Cluster, options: argparse.Namespace) -> Request:
    """What the options ask for; raises UsageError."""
    stages, only = _only(options.only)
    nodes = tuple(
        dict.fromkeys(
            name for word in (*options.words, *only) for name in choose.nodes(cluster, word)
        )
    )
    if not 0 < options.repeats <= 100:
        raise UsageError("--repeats: from 1 to 100")
    if not 0 <= options.seconds <= 3600:
        raise UsageError("--seconds: from 1 to 3600")
    begin = _stage(options.begin, "--from")[0] if options.begin else None
    return Request(
        nodes=nodes, begin=begin, only=stages, recipes=tuple(options.recipe), exhaustive=options.exhaustive,
        include_busy=choose.nodes(cluster, options.include_busy) if options.include_busy else (),
        repeats=options.repeats, seconds=options.seconds, max_crossing=_share(options.max_crossing),
        rails=tuple(filter(None, options.rails.split(","))), soak=span(options.soak) if options.soak else 0.0,
        like=str(find_job(options.like, cluster.file)) if options.like else "",
    )  # fmt: skip


def _share(text: str) -> float:
    """`25%` as 0.25; raises UsageError."""
    number = text.removesuffix("%").strip()
    if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= 100:
        raise UsageError("--max-crossing: from 1% to 100%")
    return int(number) / 100


def _only(text: str) -> tuple[tuple[Stage, ...], tuple[str, ...]]:
    """(stages, node sets) of `--only`: whatever is no stage is a node set."""
    words = text.split(",") if text else []
    if words and all(word in _STAGES for word in words):
        return tuple(stage for word in words for stage in _STAGES[word]), ()
    return (), (text,) if text else ()


def _stage(word: str, option: str) -> tuple[Stage, ...]:
    if word not in _STAGES:
        raise UsageError(f"{option} {word[:40]}: no such stage; there are: {', '.join(_STAGES)}")
    return _STAGES[word]


# ---- run


async def _accept(cluster: Cluster, options: argparse.Namespace, request: Request | None) -> int:
    async with opened(cluster, telemetry=True) as session:
        port = session.acceptance
        if request is None:
            run = port.resume(options.resume)
        else:
            output.progress(f"{cluster.name}: asking the nodes what they are and have …")
            try:
                run = await port.plan(request)
            except RankdeckError as error:
                output.progress(f"rankdeck: {error}")
                return REFUSED
        if options.dry_run:
            _say(run, options, lambda: output.say(plan_text(run)))
            return output.OK
        if run.progress is not Progress.DONE:
            output.progress(plan_text(run))
            if output.is_terminal() and not options.yes and not await agrees("Start?"):
                return REFUSED
            code = await _carried_out(session, port)
            if code is not None:
                return code
        return _finished(session, options)


async def _carried_out(session: Session, port: AcceptancePort) -> int | None:
    """Run it with progress; an exit code where it was interrupted."""
    await session.settle(_HEARD)
    with Interrupts(terminate=True) as interrupts:
        async with asyncio.TaskGroup() as tasks:
            runs = tasks.create_task(port.start())
            asks = tasks.create_task(interrupts.next())
            tells = tasks.create_task(_tell(port))
            await asyncio.wait((runs, asks), return_when=asyncio.FIRST_COMPLETED)
            asks.cancel()
            if not runs.done():
                output.progress("^C: cancelling what runs …")
                left = await port.stop()
                output.progress("\n".join(left) or "cancelled: nothing of it is left on any node")
            tells.cancel()
    run = port.current
    if run is not None and run.progress is not Progress.DONE:
        output.progress(f"stopped; go on with `rankdeck accept --resume {run.id}`")
        return output.INTERRUPTED
    return None


async def _tell(port: AcceptancePort) -> None:
    """A line for each stage and round."""
    followed = Followed()
    try:
        while True:
            await asyncio.sleep(_LOOK)
            _progress(followed, port)
    finally:
        _progress(followed, port)


def _progress(followed: Followed, port: AcceptancePort) -> None:
    if (run := port.current) is not None:
        for line in followed.news(run):
            output.progress(line)


def _finished(session: Session, options: argparse.Namespace) -> int:
    run = session.acceptance.current
    if run is None:
        return REFUSED
    _say(run, options, lambda: output.say(outcome(run, session.cluster)))
    _write_reports(session, run, options)
    if options.baseline == "this":
        accept_store.declare(session.acceptance, run)
    return code_of(run)


def _write_reports(session: Session, run: AcceptanceRun, options: argparse.Namespace) -> None:
    """The files of `--report`."""
    if not options.report:
        return
    from rankdeck.reports.acceptance_files import write_reports

    folder = Path(options.report).expanduser()
    secrets = Secrets([session.cluster.environment])
    made = write_reports(run, session.acceptance, folder, secrets)
    output.progress(f"{len(made)} files in {folder}: report.html is the one for people")


def _say(run: AcceptanceRun, options: argparse.Namespace, text: Callable[[], None]) -> None:
    if options.json:
        output.say_object(acceptance_shape(run))
    else:
        text()


def code_of(run: AcceptanceRun) -> int:
    """0 accepted, 1 something is bad, 2 something was not measured."""
    if run.accepted:
        return output.OK
    return BAD if run.bad or any(not one.answer.accepted for one in run.verdicts) else MISSING


# ---- kept runs


async def _kept(cluster: Cluster, options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        port = session.acceptance
        if options.exclude or options.readmit:
            until = time.time() + span(options.limit)
            out = choose.nodes(cluster, options.exclude) if options.exclude else ()
            back = choose.nodes(cluster, options.readmit) if options.readmit else ()
            return accept_store.keep_out(session, out, back, options.why, until)
        if options.baseline:
            return accept_store.baseline(port, cluster.name, options.baseline, options.words)
        if options.show:
            run = port.open(options.show)
            _say(run, options, lambda: output.say(outcome(run, cluster)))
            _write_reports(session, run, options)
            return code_of(run)
        for one in port.runs():
            if options.json:
                output.say_object(acceptance_shape(one))
            else:
                output.say(run_line(one))
        return output.OK
