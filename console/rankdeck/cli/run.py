"""`rankdeck run`, `attach` and `replay`: show the output of a job and return its exit code;
`preflight` and `doctor`: what would go wrong.
"""

import argparse
import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rankdeck.backends.base import SchedulerWord
from rankdeck.backends.plan_text import write_plan
from rankdeck.cli import choose, logs, output
from rankdeck.cli.jobs import cancel_proof, job_sentence, job_summary
from rankdeck.cli.logs import News
from rankdeck.cli.main import OpenConsole
from rankdeck.cli.manifests import run_manifest
from rankdeck.cli.nodes import CopyProgress
from rankdeck.cli.opening import (
    Interrupts,
    file_meant,
    find_meant_job,
    hear_nodes,
    job_in,
    job_meant,
    open_for_command,
    until_done,
)
from rankdeck.cli.output import UsageError
from rankdeck.cli.shapes import finding_shape, job_shape, plan_shape
from rankdeck.cli.status import job_exit_code
from rankdeck.config.allocations import allocation_offer
from rankdeck.config.files import expand_path, write_user_file
from rankdeck.config.manifests import read_manifest
from rankdeck.errors import UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.health import Level
from rankdeck.model.job import Job, JobSpec
from rankdeck.preflight.doctor import judge_here, this_machine
from rankdeck.preflight.facts import Finding, patch_job_file, tell_nobody
from rankdeck.session import Session

_SIGNS = {Level.OK: "ok", Level.UNKNOWN: "?", Level.WARN: "warn", Level.BAD: "BAD"}


def run_preflight(options: argparse.Namespace, _open_console: object) -> int:
    """Check a job and its nodes; the exit code says whether the job can start."""
    cluster, file, spec = job_meant(options)
    return until_done(_preflight(cluster, spec, file, options))


async def _preflight(
    cluster: Cluster, spec: JobSpec, file: Path, options: argparse.Namespace
) -> int:
    quiet = options.json or options.fix
    async with open_for_command(cluster) as session:
        findings = await session.preflight(spec, tell_nobody if quiet else _say)
    ready = all_pass(findings)
    if options.json:
        shapes = [finding_shape(finding) for finding in findings]
        output.say_object({"job": spec.name, "ready": ready, "findings": shapes})
    elif options.fix:
        output.print_text(patch_job_file(file, findings).rstrip("\n"))
    return output.OK if ready else output.BAD_INPUT


def run_doctor(options: argparse.Namespace, _open_console: object) -> int:
    """Print what this machine and the nodes lack; the exit code is 1 if something cannot work."""
    try:
        cluster = choose.choose_cluster(options.cluster)
    except UsageError as error:
        if choose.is_named(options.cluster):
            raise
        output.print_progress(f"rankdeck: only this machine is looked at: {error}")
        nothing = Cluster(name="", nodes=())
        return _print_findings(nothing, _look_here(nothing, options), options)
    return until_done(_doctor(cluster, options))


def _look_here(cluster: Cluster, options: argparse.Namespace) -> Sequence[Finding]:
    here = judge_here(this_machine(os.environ), cluster)
    for finding in here:
        (tell_nobody if options.json else _say)(finding)
    return here


async def _doctor(cluster: Cluster, options: argparse.Namespace) -> int:
    here = _look_here(cluster, options)
    async with open_for_command(cluster) as session:
        found = await session.doctor(tell_nobody if options.json else _say)
    return _print_findings(cluster, (*here, *found), options)


def _print_findings(
    cluster: Cluster, findings: Sequence[Finding], options: argparse.Namespace
) -> int:
    if options.json:
        shapes = [finding_shape(finding) for finding in findings]
        output.say_object({"cluster": cluster.name, "findings": shapes})
    return output.OK if all_pass(findings) else output.TROUBLE


def _say(finding: Finding) -> None:
    output.print_text(finding_words(finding))


async def look_before_launch(session: Session, spec: JobSpec) -> tuple[Finding, ...]:
    """Run a preflight before a launch; problems are printed on stderr as they are found."""

    def tell(finding: Finding) -> None:
        if finding.level is not Level.OK:
            output.print_progress(finding_words(finding))

    return await session.preflight(spec, tell)


def all_pass(findings: Sequence[Finding]) -> bool:
    """Whether none of the findings would make the job fail."""
    return all(finding.level is not Level.BAD for finding in findings)


def finding_words(finding: Finding) -> str:
    """A finding as text for people."""
    where = f"{finding.node}: " if finding.node else ""
    line = f"{_SIGNS[finding.level]:4} {finding.check:9} {where}{finding.text}"
    changes = "; ".join(
        f"{change.key}: {'(take out)' if change.value is None else change.value}"
        for change in finding.patch
    )
    fix = f"{'':14} fix: {finding.fix}" if finding.fix else ""
    patch = f"{'':14} in the job file: {changes}" if changes else ""
    return "\n".join(filter(None, (line, fix, patch)))


SECOND_THOUGHTS = 2.0
"""A second Ctrl-C within so many seconds means: leave the job running."""


def run_job(options: argparse.Namespace, _open_console: object) -> int:
    """Launch the job of a file, or print what a launch would do."""
    cluster, file = file_meant(options)
    manifest = read_manifest(file)
    if manifest is not None:
        show = partial(_show_followed, as_json=options.json)
        return until_done(run_manifest(cluster, manifest, options, show))
    spec = job_in(file, options)
    if options.export:
        return until_done(_export(cluster, spec, options.export))
    work = _show_plan if options.dry_run else _launch
    return until_done(work(cluster, spec, options))


async def _show_plan(cluster: Cluster, spec: JobSpec, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        plan = session.plan(spec)
        text = write_plan(plan).rstrip("\n")
        output.say_result(plan_shape(plan), text, as_json=options.json)
        if options.server:
            _tell_word(spec, await session.check(plan))
    return output.OK


def export_script(options: argparse.Namespace, _open_console: object) -> int:
    """Write the job of a file as a shell script, to stdout or to a file."""
    cluster, _, spec = job_meant(options)
    return until_done(_export(cluster, spec, options.output))


async def _export(cluster: Cluster, spec: JobSpec, file: str) -> int:
    async with open_for_command(cluster) as session:
        text = session.export(spec)
    if file in ("", "-"):
        output.print_text(text.rstrip("\n"))
        return output.OK
    _write_script(file, text)
    output.print_progress(f"{file}: written; start it with `sh {file}`")
    return output.OK


def _write_script(name: str, text: str) -> None:
    path = expand_path(name)
    try:
        write_user_file(path, text, program=True)
    except OSError as error:
        raise output.UsageError(f"{path}: cannot be written: {error.strerror}") from error


def _tell_word(spec: JobSpec, word: SchedulerWord) -> None:
    """Say what a scheduler says of the job; raises UsageError if it would refuse it."""
    if word.refused:
        raise output.UsageError(f"{spec.name}: the server would refuse it: {word.refused}")
    if word.remark:
        output.print_progress(f"rankdeck: {word.remark}")


async def _launch(cluster: Cluster, spec: JobSpec, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        if not options.no_preflight and not all_pass(await look_before_launch(session, spec)):
            output.print_progress(f"{spec.name}: not started; --no-preflight starts it")
            return output.BAD_INPUT
        if offer := allocation_offer(cluster):
            output.print_progress(f"rankdeck: {offer}")
        output.print_progress(f"{spec.name}: starting on {cluster.name} …")
        image = spec.container.image if spec.container else ""
        job_id = await session.launch(spec, CopyProgress(image))
        output.print_progress(job_sentence(session.jobs.job(job_id)))
        if options.detach:
            await session.following.started(job_id)
            code = output.OK
        else:
            code = await _show_until_end(session, job_id, as_json=options.json)
        if options.json:
            output.say_object(job_shape(session.jobs.job(job_id)))
        elif options.detach:
            output.print_text(job_id)
        return code


async def _show_until_end(
    session: Session, job_id: str, *, as_json: bool, may_cancel: bool = True
) -> int:
    """Print what the job writes until it ends or Ctrl-C; returns the exit code."""
    job = session.jobs.job(job_id)
    held = logs.LauncherLines(job, logs.show_nothing if as_json else logs.show_text)
    ranks, show = held.ranks([rank.rank for rank in job.ranks]), held.show
    if not as_json:
        session.watch(job_id, ranks, None)
    printer = logs.Printer(session, job, ranks, show)
    news = News(session, job_id, may_cancel=may_cancel)
    session.hear(job.nodes)
    with Interrupts() as interrupts:
        async with asyncio.TaskGroup() as tasks:
            look = held.look if as_json else held.before(news.look)
            ends = tasks.create_task(logs.print_until_finished(session, job_id, printer, look))
            asks = tasks.create_task(interrupts.next())
            await asyncio.wait((ends, asks), return_when=asyncio.FIRST_COMPLETED)
            asks.cancel()
            if not ends.done():
                code = await _interrupted(session, job_id, interrupts, may_cancel=may_cancel)
                ends.cancel()
                return code
    held.finish()
    if not as_json:
        news.finish()
    await session.look_at_nodes()
    job = session.jobs.job(job_id)
    output.print_progress(job_summary(job))
    return job_exit_code(job)


async def _interrupted(
    session: Session, job_id: str, interrupts: Interrupts, *, may_cancel: bool
) -> int:
    """After Ctrl-C, cancel the job, unless Ctrl-C is pressed once more; returns the exit code."""
    if may_cancel:
        output.print_progress("^C: cancelling; ^C once more within 2 s leaves the job running")
        try:
            async with asyncio.timeout(SECOND_THOUGHTS):
                await interrupts.next()
        except TimeoutError:
            report = await session.cancel(job_id)
            output.print_progress(cancel_proof(report))
            return output.INTERRUPTED
    output.print_progress(f"{job_id} goes on; see it with `rankdeck attach {job_id}`")
    return output.INTERRUPTED


def run_attach(options: argparse.Namespace, open_console: Callable[[Cluster, str], int]) -> int:
    """Open the console on the job that is named; without a terminal,
    print its output until it ends.
    """
    cluster = choose.choose_cluster(options.cluster)
    if output.is_terminal() and not options.json:
        return open_console(cluster, options.job)
    return until_done(_follow(cluster, options))


async def _follow(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        job = await _meant(session, options.job)
        return await _show_followed(session, job.id, as_json=options.json)


async def _show_followed(session: Session, job_id: str, *, as_json: bool) -> int:
    """Print what a job that this command did not start writes until
    it ends; returns the exit code.
    """
    code = await _show_until_end(session, job_id, as_json=as_json, may_cancel=False)
    if as_json:
        output.say_object(job_shape(session.jobs.job(job_id)))
    return code


async def _meant(session: Session, given: str) -> Job:
    """The job of that name, or for "" the newest that runs."""
    if given:
        return await find_meant_job(session, given)
    running = [job for job in session.jobs.all() if not job.state.final]
    if not running:
        raise UnknownJobError("no job runs on this cluster; see `rankdeck jobs`")
    return running[0]


FASTEST = 1e6


def run_replay(options: argparse.Namespace, open_console: OpenConsole) -> int:
    """Open the console on the replay; without a terminal, print its
    output at the pace of the replay.
    """
    if not 0 < options.speed <= FASTEST:
        raise output.UsageError(f"--speed: more than 0, at most {FASTEST:g}")
    cluster = choose.choose_cluster(options.cluster)
    if output.is_terminal() and not options.json:
        return open_console(cluster, options.job, replay=options.speed)
    return until_done(_replay(cluster, options))


async def _replay(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        await hear_nodes(session)
        job_id = await session.replay(session.jobs.find(options.job).id, options.speed, keep=False)
        job = session.jobs.job(job_id)
        show = logs.show_nothing if options.json else logs.show_text
        printer = logs.Printer(session, job, [r.rank for r in job.ranks], show)
        job = await logs.print_until_finished(session, job_id, printer)
    if options.json:
        output.say_object(job_shape(job))
    output.print_progress(job_summary(job))
    return output.OK
