"""`rankdeck run`, `attach` and `replay`: show the output of a job and return its exit code;
`export-script` writes the job as a script instead.
"""

import argparse
import asyncio
from collections.abc import Callable
from functools import partial

from rankdeck.backends.base import SchedulerWord
from rankdeck.backends.plan_text import write_plan
from rankdeck.cli import choose, logs, output
from rankdeck.cli.copying import CopyProgress
from rankdeck.cli.jobs import cancel_proof, job_sentence, job_summary
from rankdeck.cli.logs import News
from rankdeck.cli.main import OpenConsole
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
from rankdeck.cli.output import INTERRUPTED, OK, TROUBLE
from rankdeck.cli.preflight import all_pass, look_before_launch
from rankdeck.cli.shapes import job_shape, plan_shape
from rankdeck.config.files import expand_path, write_user_file
from rankdeck.errors import UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.json_values import fields_of
from rankdeck.model.rank import State
from rankdeck.schedulers.kubernetes.apply import run_manifest
from rankdeck.schedulers.kubernetes.user_manifests import read_manifest
from rankdeck.schedulers.slurm.allocations import allocation_offer
from rankdeck.session import Session

SECOND_THOUGHTS = 2.0
"""A second Ctrl-C within so many seconds means: leave the job running."""
FASTEST = 1e6


def job_exit_code(job: Job) -> int:
    """The exit code of `run`: that of the rank that failed first."""
    if job.state is State.DONE:
        return OK
    if job.state is State.CANCELLED:
        return INTERRUPTED
    return job.exit_code or TROUBLE


def run_job(options: argparse.Namespace, _open_console: object) -> int:
    """Launch the job of a file, or print what a launch would do."""
    cluster, file = file_meant(options)
    manifest = read_manifest(file)
    if manifest is not None:
        show = partial(_show_followed, as_json=options.json)
        return until_done(run_manifest(cluster, manifest, options, show))
    spec = job_in(cluster, file, options)
    if options.export:
        return until_done(_export(cluster, spec, options.export))
    work = _show_plan if options.dry_run else _launch
    return until_done(work(cluster, spec, options))


async def _show_plan(cluster: Cluster, spec: JobSpec, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        plan = session.control.plan(spec)
        text = write_plan(plan).rstrip("\n")
        known = session.jobs.judge_nodes().lemons
        lemons = [known[node.node] for node in plan.nodes if node.node in known]
        shape = {**plan_shape(plan), "lemons": [fields_of(one) for one in lemons]}
        output.say_result(shape, text, as_json=options.json)
        for one in lemons:
            output.print_progress(
                f"{one.node}: {one.sentence}; `preflight` says how to leave it out"
            )
        if options.server:
            _tell_word(spec, await session.control.check_plan(plan))
    return output.OK


def export_script(options: argparse.Namespace, _open_console: object) -> int:
    """Write the job of a file as a shell script, to stdout or to a file."""
    cluster, _, spec = job_meant(options)
    return until_done(_export(cluster, spec, options.output))


async def _export(cluster: Cluster, spec: JobSpec, file: str) -> int:
    async with open_for_command(cluster) as session:
        text = session.control.export(spec)
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
        job_id = await session.control.launch(spec, CopyProgress(image))
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
        session.following.watch(job_id, ranks, None)
    whole = logs.Show(show, None if as_json else held.show_plain)
    printer = logs.Printer(session, job, ranks, whole)
    news = News(session, job_id, may_cancel=may_cancel)
    session.hearing.hear(job.nodes)
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
    await session.node_journal.look()
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
            report = await session.control.cancel(job_id)
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
        job_id = await session.control.replay(
            session.jobs.find(options.job).id, options.speed, keep=False
        )
        job = session.jobs.job(job_id)
        show = logs.SHOW_NOTHING if options.json else logs.SHOW_TEXT
        printer = logs.Printer(session, job, [r.rank for r in job.ranks], show)
        job = await logs.print_until_finished(session, job_id, printer)
    if options.json:
        output.say_object(job_shape(job))
    output.print_progress(job_summary(job))
    return output.OK
