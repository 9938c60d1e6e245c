"""`rankdeck jobs`, `cancel`, `inspect` and `report`."""

import argparse
import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.opening import (
    ask_agreement,
    find_meant_job,
    hear_nodes,
    open_for_command,
    until_done,
)
from rankdeck.cli.shapes import (
    Shape,
    job_shape,
    listed_shape,
    queued_shape,
    rank_use_shape,
    report_shape,
)
from rankdeck.config.files import expand_path
from rankdeck.errors import RankdeckError
from rankdeck.following import CATCH_UP_LIMIT, wait_for_condition
from rankdeck.job_control import ASK_LIMIT, LOOK_LIMIT
from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.cluster import Cluster
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.process import rank_uses
from rankdeck.model.queue import QueueJob, QueueStatus, queue_words
from rankdeck.model.rank import State, how_it_ended
from rankdeck.model.stall import Explained
from rankdeck.rules import query
from rankdeck.rules.inspect import Inspection, Look, StackGroup
from rankdeck.rules.job_news import note_words, time_of_note
from rankdeck.session import Session
from rankdeck.state.history import KEEP
from rankdeck.values import value_table
from rankdeck_agent.rules.units import write_size

COMING = "output still coming"


def job_sentence(job: Job) -> str:
    """The state of a job in one line."""
    coming = f"; {COMING}" if job.output_coming and job.state.final else ""
    waits = queue_words(job.in_scheduler, time.time()) if job.in_scheduler else job.waits
    queue = f"; {waits}" if waits else ""
    scheduler = job.plan.can.scheduler
    number = (
        f" ({scheduler} {job.in_scheduler.id})" if job.in_scheduler and job.in_scheduler.id else ""
    )
    where = f" on {fold_nodes(job.nodes)}" if job.nodes else ""
    return (
        f"{job.id}: {job.state}{coming}{number}{where}; {job.unit}s:"
        f" {job.rank_counts or 'none yet'}{queue}"
    )


def job_summary(job: Job) -> str:
    """How a job ended: its state, the first failure with its last lines, what else was odd."""
    lines = [job_sentence(job), *job.troubles]
    if job.first_failure is not None:
        lines += _failure_lines(job.first_failure)
    lines += _meaning(job.explained)
    lines += [
        f"on its nodes: {note_words(one)} · {time_of_note(one, job)}" for one in job.node_notes
    ]
    return "\n".join(lines)


def _failure_lines(first: FirstFailure) -> list[str]:
    return [
        f"first failure: {first.sentence}",
        *(f"  because: {sentence}" for sentence in first.evidence if sentence != first.how),
        *(f"  | {line}" for line in first.lines),
        *_meaning(first.explained),
        *(f"  also: {other.who}: {other.why}" for other in first.others),
    ]


def _meaning(explained: Iterable[Explained]) -> list[str]:
    return [f"  means: {one.means}\n    try: {one.remedy}" for one in explained]


def cancel_proof(report: CancelReport) -> str:
    """What cancel found when it verified the end, as a sentence."""
    left = [f"  left on {one.node}: {one.pid} {one.command}" for one in report.left]
    unknown = [f"  {node} could not be asked: {why}" for node, why in report.unverified.items()]
    verdict = "some of it is left or not known" if left or unknown else "nothing of it is left"
    return "\n".join((f"{report.job}: {report.state}; {verdict}", *left, *unknown))


DAY = 86400.0
MOST_KEPT = f"the newest {KEEP} jobs are kept, and those that run: older ones were removed"
NAMESPACES = (
    "`--namespace NAME` before a command looks there: `rankdeck --namespace NAME logs job/x`"
)
READ_BACK = "`rankdeck jobs --from-nodes` reads back what the nodes still have"


def run_jobs(options: argparse.Namespace, _open_console: object) -> int:
    """List the jobs of a cluster, newest first."""
    if options.live and not options.json:
        raise output.UsageError("--live goes with --json; `ps --job JOB` is the table")
    try:
        wanted = query.parse_query(options.where)
    except query.QueryError as error:
        raise output.UsageError(f"--where: {error}") from error
    cluster = choose.choose_cluster(options.cluster)
    if options.all_namespaces:
        cluster = choose.in_every_namespace(cluster)
    return until_done(_jobs(cluster, options, wanted))


async def _jobs(cluster: Cluster, options: argparse.Namespace, wanted: query.Query) -> int:
    async with open_for_command(cluster) as session:
        limit = LOOK_LIMIT if options.from_nodes else ASK_LIMIT
        silent = await session.control.find_running(limit, ended=options.from_nodes)
        forgotten = await session.queue.list_ended() if options.ended else ""
        await hear_nodes(session, silent)
        await session.following.ask_ranks_enough()
        session.following.notice_stalls()
        oldest = 0.0 if options.all else time.time() - DAY
        known = sorted(
            (job for job in session.jobs.all() if (job.ended or time.time()) >= oldest),
            key=lambda job: -job.created,
        )
        queued = {
            job.id: one
            for job in known
            if job.in_scheduler and (one := session.queue.entry(job.in_scheduler.id))
        }
        known = [
            job for job in known if wanted(query.job_subject(job, queued.get(job.id), _why(job)))
        ]
        listed = session.queue.others(session.jobs.all())
        others = [one for one in listed if wanted(_listed_subject(one))]
        queue = session.queue.words()
        running = [job for job in known if not job.state.final] if options.live else []
        uses = await _uses(session, running)
    unread = session.history.state.unread
    damaged = unread or session.history.state.mended
    remarks = (
        unread,
        MOST_KEPT if options.all and len(known) >= KEEP else "",
        READ_BACK if damaged and not options.from_nodes else "",
        forgotten,
        queue,
        *(f"{node}: not asked what runs there: {why}" for node, why in silent.items()),
    )
    for remark in filter(None, remarks):
        output.print_progress(remark)
    code = output.TROUBLE if unread else output.OK
    if options.all_namespaces and others and not options.json:
        output.print_progress(NAMESPACES)
    if options.json:
        for shape in _shapes(known, queued, uses):
            output.say_object(shape)
        for other in others:
            output.say_object(listed_shape(other))
        return code
    parts = [] if options.parts else [job for job in known if job.plan.part_of]
    _table(cluster, [job for job in known if job not in parts], others, len(parts), options)
    return code


def _shapes(
    jobs: Sequence[Job], queued: Mapping[str, QueueJob], uses: Mapping[str, list[Shape]]
) -> Iterable[Shape]:
    """The JSON of the jobs that this console follows."""
    for job in jobs:
        live = {"live": uses[job.id]} if job.id in uses else {}
        in_queue = {"queued": queued_shape(queued.get(job.id))} if job.in_scheduler else {}
        yield {**job_shape(job), **live, **in_queue}


async def _uses(session: Session, running: Sequence[Job]) -> dict[str, list[Shape]]:
    """Job -> what each of its ranks uses now; nodes that do not answer are named on stderr."""
    if not running:
        return {}
    try:
        found = await session.nodes.find_processes({node for job in running for node in job.nodes})
    except RankdeckError as error:  # in pods: the list is useful without it
        output.print_progress(f"what ranks take is not known: {error}")
        return {}
    for node, why in found.missing.items():
        output.print_progress(f"{node}: not asked what ranks take: {why}")
    return {
        job.id: [rank_use_shape(one) for one in rank_uses(job, found.processes).values()]
        for job in running
    }


def _table(
    cluster: Cluster,
    jobs: Sequence[Job],
    others: Sequence[QueueJob],
    parts: int,
    options: argparse.Namespace,
) -> None:
    """Print the jobs as a table; `parts` is the number of acceptance
    measurements that are left out.
    """
    if parts:
        output.print_progress(
            f"{parts} jobs of acceptance runs and studies are hidden: --parts lists them, `rankdeck"
            " accept --list` and `rankdeck scale --list` the runs"
        )
    if jobs or others:
        output.say_table(
            ("JOB", "STATE", "RANKS", "NODES", "STARTED", "FIRST FAILURE / STALL"),
            [
                *(row for job in jobs for row in (_row(job), *_task_rows(job))),
                *(_other_row(one, apart=options.all_namespaces) for one in others),
            ],
        )
    elif not parts:
        which = "no job matches the filter" if options.where else "no jobs"
        output.print_progress(
            f"{which} on {cluster.name}" + ("" if options.all else " in the last day")
        )


def _listed_subject(one: QueueJob) -> query.Subject:
    """A job that this console does not follow, as a filter sees it."""
    text = f"{one.place} {one.name} {one.whose} {one.remark}"
    values = query.job_values(one.status, one.user)
    return query.Subject(text, one.state, lambda _: None, values=values)


def _clock(at: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(at))


def _row(job: Job) -> tuple[str, ...]:
    started = _clock(job.created)
    return (job.id, job.state.value, str(len(job.ranks)), fold_nodes(job.nodes), started, _why(job))


def _task_rows(job: Job) -> Iterable[tuple[str, ...]]:
    """Rows for the tasks of an array: each task that runs or
    failed, and how many wait or are done.
    """
    if not (job.in_scheduler and job.in_scheduler.array):
        return
    tasks = {task.number: task for task in job.in_scheduler.tasks}
    for state in (State.PENDING, State.DONE):
        alike = [rank.rank for rank in job.ranks if rank.state is state]
        if alike:
            yield f"  task {fold_ranks(alike)}", state.value, str(len(alike)), "", "", ""
    for rank in job.ranks:
        if rank.state in (State.PENDING, State.DONE):
            continue
        task = tasks.get(rank.rank)
        again = f"run {task.attempt + 1}" if task and task.attempt else ""
        end = how_it_ended(rank.exit_code, rank.signal) if rank.state.final else ""
        text = task.text if task and task.text else end
        started = _clock(rank.started) if rank.started else "-"
        why = "; ".join(filter(None, (again, text)))
        yield f"  task {rank.rank}", rank.state.value, "1", rank.node, started, why


def _other_row(job: QueueJob, *, apart: bool = False) -> tuple[str, ...]:
    """The row of a job that this console does not follow; `logs` and `cancel` accept its
    first column. `apart`: name its namespace.
    """
    queued = queue_words(job.status, time.time()) if job.status else ""
    where = f"in namespace {job.namespace}" if apart and job.namespace else ""
    name = job.name if job.status else ""  # else its place is its name
    parts = (job.whose, where, name, job_resources(job), job.remark or queued)
    ranks = str(job.ranks) if job.ranks else "-"
    text = "; ".join(filter(None, parts))
    return job.known_as, job.state, ranks, job.node_set or "-", _clock(job.created), text


def job_resources(job: QueueJob) -> str:
    """`gpu, account research, QOS normal, priority 1200, 8 GPUs, 64 GB`: what
    the queue says that a job has or asks for.
    """
    status = job.status or QueueStatus()
    parts = (
        status.partition,
        f"account {status.account}" if status.account else "",
        f"QOS {status.qos}" if status.qos else "",
        f"priority {job.priority}" if job.priority and status.waits else "",
        f"{job.gpus} GPU{'s' if job.gpus > 1 else ''}" if job.gpus else "",
        write_size(round(job.memory * (1 << 20))) if job.memory else "",
    )
    return ", ".join(filter(None, parts))


def _why(job: Job) -> str:
    """What went wrong: the first line of the summary of `run`."""
    first = job.first_failure
    explained = job.explained if first is None else first.explained
    parts = [first.sentence] if first else [stall.sentence for stall in job.stalled]
    parts += [job.not_started] if job.not_started else []
    parts += [job.waits] if job.waits else []
    parts = [job.plan.owner, *parts] if job.plan.owner else parts
    if job.in_scheduler and not job.state.final:
        parts += filter(None, (queue_words(job.in_scheduler, time.time()),))
    if job.in_scheduler and job.state is State.CANCELLED and job.in_scheduler.text:
        parts.append(job.in_scheduler.text)
    if job.unproven:
        nodes = fold_nodes(job.unproven)
        parts.append(f"not proven that nothing is left on {nodes}: `rankdeck cancel` asks again")
    # If Slurm ended the job, the sentence is printed already.
    means = (one.means for one in explained[:1])
    return "; ".join((*parts, *(one for one in means if one not in "; ".join(parts))))


def run_cancel(options: argparse.Namespace, _open_console: object) -> int:
    """Cancel jobs; the exit code says whether it is verified that nothing is left."""
    if options.grace is not None and not 0 <= options.grace <= DAY:
        raise output.UsageError("--grace: seconds, at most a day")
    return until_done(_cancel(choose.choose_cluster(options.cluster), options))


async def _cancel(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        jobs = await _meant(session, options)
        await _agree(jobs, options)
        tasks = _tasks(jobs[0], options.task) if jobs else ()
        codes = list[int]()

        async def end(job: Job) -> None:
            try:
                codes.append(await _end_job(session, job, tasks, options))
            except RankdeckError as error:
                # The others are ended all the same.
                output.print_progress(f"{job.id}: {error}")
                codes.append(output.TROUBLE)

        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(end(job))
    return max(codes, default=output.OK)


async def _meant(session: Session, options: argparse.Namespace) -> tuple[Job, ...]:
    """The jobs that the command names; with `--all` those of one's own that run."""
    if options.all:
        if options.job or options.task:
            raise output.UsageError("--all ends every job: name none beside it")
        silent = await session.control.find_running()
        for node, why in silent.items():
            output.print_progress(f"{node}: {why}: jobs that only it knows are not ended")
        found = [job for job in session.jobs.all() if not job.state.final and not job.plan.owner]
        if not found:
            output.print_progress(f"no job of yours runs on {session.cluster.name}")
        return tuple(found)
    if not options.job:
        raise output.UsageError("name the job (`rankdeck cancel JOB …`), or `--all`")
    if options.task and len(options.job) > 1:
        raise output.UsageError("--task belongs to one job")
    jobs = [await find_meant_job(session, name) for name in options.job]
    return tuple({job.id: job for job in jobs}.values())


async def _agree(jobs: Sequence[Job], options: argparse.Namespace) -> None:
    """Ask before jobs of others end, and before all do; raises UsageError without a yes."""
    if options.yes:
        return
    if options.all and jobs:
        names = ", ".join(job.id for job in jobs)
        if not await ask_agreement(f"{names}: end {len(jobs)} jobs?"):
            raise output.UsageError(f"nothing was ended: `cancel --all --yes` ends {names}")
    for job in jobs:
        whose = f"{job.id} is a {job.plan.owner}"
        if job.plan.owner and not await ask_agreement(f"{whose}: end it?"):
            raise output.UsageError(f"{whose}: `cancel --yes` ends it all the same")


async def _end_job(
    session: Session, job: Job, tasks: tuple[int, ...], options: argparse.Namespace
) -> int:
    """Cancel a job, or these tasks of it, and say what was verified; the exit code."""
    what = f"task {fold_ranks(tasks)} of {job.id}" if tasks else job.id
    output.print_progress(f"{what}: cancelling on {fold_nodes(job.nodes) or job.cluster} …")
    if tasks:
        report = await session.control.cancel_tasks(job.id, tasks, options.grace)
    else:
        report = await session.control.cancel(job.id, options.grace)
        if not report.left and not report.unverified:
            # What the nodes say of the end is kept, and the next command finds it.
            await wait_for_condition(lambda: session.jobs.job(job.id).state.final, CATCH_UP_LIMIT)
    output.say_result(report_shape(report), cancel_proof(report), as_json=options.json)
    return output.TROUBLE if report.left or report.unverified else output.OK


def _tasks(job: Job, text: str | None) -> tuple[int, ...]:
    # Loading the views of logs takes time, and only tasks are named like ranks.
    from rankdeck.logs.rank_choice import choose_ranks

    try:
        return choose_ranks(text, job.ranks) if text else ()
    except ValueError as error:
        raise output.UsageError(f"--task {text}: {error}") from error


def ended_job_sentence(job: Job) -> str:
    """A sentence for a job that has ended: it has no ranks to inspect, and what to use instead."""
    return f"{job.id} has ended ({job.state}): no rank runs any more; `rankdeck logs {job.id}` has what they wrote"


def run_inspect(options: argparse.Namespace, _open_console: object) -> int:
    """Print what every rank is doing now; exit code 1 if a node could not be asked."""
    return until_done(_inspect(choose.choose_cluster(options.cluster), options))


async def _inspect(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        await hear_nodes(session)
        job = session.jobs.find(options.job)
        if job.state.final and not options.json:
            output.print_text(ended_job_sentence(job))
            return output.OK
        output.print_progress(f"{job.id}: looking at {len(job.ranks)} ranks …")
        found = await session.control.inspect(job.id)
    output.say_result(inspection_shape(found), inspection_text(found), as_json=options.json)
    return output.TROUBLE if found.missing else output.OK


def inspection_shape(found: Inspection) -> dict[str, object]:
    """`inspect --json`."""
    return {
        "job": found.job,
        "at": found.at,
        "answer": found.answer,
        "odd": list(found.odd),
        "groups": [_group_shape(one) for one in found.groups],
        "missing": dict(found.missing),
        "notes": _note_lines(found),
        "ras": list(found.ras),
    }


def _note_lines(found: Inspection) -> list[str]:
    return [f"{node}: {note}" for node, note in found.notes.items()]


def _group_shape(one: StackGroup) -> dict[str, object]:
    return {
        "place": one.place,
        "waiting": one.waiting,
        "ranks": list(one.ranks),
        "stack": [list(frame) for frame in one.stack],
        "looks": [value_table(look) for look in one.looks],
    }


def inspection_text(found: Inspection) -> str:
    """The answer, then each group of ranks with its stack."""
    lines = [found.answer, ""]
    for one in found.groups:
        mark = "! " if set(one.ranks) <= set(found.odd) else "  "
        lines.append(f"{mark}{one.place}: ranks {fold_ranks(one.ranks)}")
        lines += [f"      {name}  {file}:{line}" for name, file, line in one.stack[:12]]
        for look in one.looks[:6]:
            lines += [f"      {_line(look)}"]
            lines += [f"        {look.pairs_text}"] if look.pairs else []
    lines += [f"{node}: not looked at: {why}" for node, why in found.missing.items()]
    return "\n".join([*lines, *_note_lines(found), *found.ras])


def _line(look: Look) -> str:
    silent = "" if look.silent is None else f", silent {look.silent:.0f} s"
    waits = f" in {look.wchan}" if look.wchan not in ("", "0") else ""
    cpu = "" if look.cpu is None else f", CPU {look.cpu:.0%}"
    return (
        f"rank {look.rank} {look.node} pid {look.pid} {look.state}{waits}{cpu}{silent}  {look.last}"
    )


HEAR_LIMIT = 4.0
"""Seconds to wait for the nodes' health."""


def run_report(options: argparse.Namespace, _open_console: object) -> int:
    """Write the archive or the page; exit code 1 if a node could not be asked."""
    if options.html is not None and (options.output or options.full):
        raise output.UsageError("--html FILE is the page alone: without --output and --full")
    return until_done(_report(choose.choose_cluster(options.cluster), options))


async def _report(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster, telemetry=True) as session:
        await hear_nodes(session)
        job = session.jobs.find(options.job)
        name = options.output or f"{job.id}.tar.gz"
        path = _target(name if options.html is None else options.html or f"{job.id}.html")
        output.print_progress(f"{job.id}: collecting from {len(job.nodes)} nodes …")
        await session.hearing.settle(HEAR_LIMIT * cluster.access.patience)
        page = options.html is not None
        missing = dict(await session.control.report(job.id, path, page=page, full=options.full))
    size = path.stat().st_size
    shape = {"job": job.id, "file": str(path), "bytes": size, "missing": missing}
    output.say_result(shape, f"{path} ({size:,} bytes)", as_json=options.json)
    for node, why in missing.items():
        output.print_progress(f"{node}: not in it: {why}")
    return output.TROUBLE if missing else output.OK


def _target(name: str) -> Path:
    path = expand_path(name).absolute()
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else "there is no such folder"
        raise output.UsageError(f"{path}: cannot be written: {why}")
    return path
