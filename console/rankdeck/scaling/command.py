"""`rankdeck scale`: how a job scales with ranks and values; runs, continues and shows studies."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

from rankdeck.cli import choose, output
from rankdeck.cli.opening import ask_agreement, carry_out_run, open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.cli.preflight import all_pass, look_before_launch
from rankdeck.cli.spans import parse_option_span
from rankdeck.config.files import expand_path, find_job
from rankdeck.config.jobs import read_job
from rankdeck.model.cluster import Cluster
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.text import day_time, significant_figures
from rankdeck.rules.secrets import Secrets
from rankdeck.scaling.planning import ScaleRequest, ScalingError, job_of, parse_counts
from rankdeck.scaling.study import ScalingProtocol, Study, StudyState
from rankdeck.scaling.table import point_heads, point_row, study_headline, study_shape
from rankdeck.scaling.typed import join_values
from rankdeck.scaling.values import Trial
from rankdeck.session import Session
from rankdeck_agent.rules.units import write_duration

_HEARD = 5.0
"""Seconds to wait for telemetry; without it, reasons on nodes are not known."""


def run_scale(options: argparse.Namespace, _open_console: object) -> int:
    """The command; exit code: 0 every run has a result, 1 some have none, 2 wrong input, 130
    stopped.
    """
    cluster = choose.choose_cluster(options.cluster)
    if options.list or options.show:
        return until_done(_kept(cluster, options))
    if options.resume:
        return until_done(_run(cluster, options, None))
    if not options.file:
        raise UsageError("name a job file; --list shows the kept studies")
    return until_done(_run(cluster, options, scale_request(cluster, options)))


def scale_request(cluster: Cluster, options: argparse.Namespace) -> ScaleRequest:
    """The request that the options make; raises UsageError and ConfigError."""
    file = find_job(options.file, cluster.file)
    choose.read_agreed(lambda: read_job(file))
    on = options.on
    if on and cluster.nodes:
        on = fold_nodes(choose.expand_node_option(cluster, on))
    try:
        return ScaleRequest(
            file=str(file),
            on=on,
            ranks=parse_counts(options.ranks, "--ranks"),
            nodes=parse_counts(options.nodes, "--nodes"),
            sets=join_values(options.set, "--set"),
            weak=join_values(options.weak, "--weak"),
            repeats=options.repeat,
            number=options.number,
            limit=parse_option_span(options.limit, "--limit"),
        )
    except ScalingError as error:
        raise UsageError(str(error)) from error


# ---- run


async def _run(cluster: Cluster, options: argparse.Namespace, request: ScaleRequest | None) -> int:
    async with open_for_command(cluster, telemetry=not options.dry_run) as session:
        port = session.scaling
        try:
            study = port.resume(options.resume) if request is None else await port.plan(request)
        except ScalingError as error:
            raise UsageError(str(error)) from error
        if options.dry_run:
            output.say_result(study_shape(study), _plan_text(study), as_json=options.json)
            return output.OK
        output.print_progress(_plan_text(study))
        if request is not None and not await _may_start(session, study, options):
            output.print_progress(f"{study.plan.job}: not started")
            return output.BAD_INPUT
        code = await _until_end(session, port)
        _say_study(session, port.current or study, options)
        return code


async def _may_start(session: Session, study: Study, options: argparse.Namespace) -> bool:
    """Preflight of the largest point, then the question."""
    if not options.no_preflight:
        largest = max(study.plan.points, key=lambda one: one.ranks)
        spec = job_of(read_job(expand_path(study.plan.file)), largest, study.plan.nodes)
        if not all_pass(await look_before_launch(session, spec)):
            output.print_progress("--no-preflight starts it all the same")
            return False
    if options.yes or not output.can_ask():
        return True
    return await ask_agreement(f"Start {study.runs} jobs, one after the other?")


def _plan_text(study: Study) -> str:
    plan = study.plan
    where = f" on {fold_nodes(plan.nodes)}" if plan.nodes else ""
    runs = f"{len(plan.points)} points × {plan.repeats} = {study.runs} runs"
    lines = [
        f"{study.id}: {plan.job} of {plan.cluster}{where}: {runs}{', weak' if plan.weak else ''}"
    ]
    for point in plan.points:
        size = "".join(f", {key}={value}" for key, value in point.size.items())
        lines.append(f"  {point.label}, {point.ranks_per_node} on each{size}")
    lines += [f"  note: {note}" for note in plan.notes]
    return "\n".join(lines)


async def _until_end(session: Session, port: ScalingProtocol) -> int:
    """Run the study until it ends or a signal comes; returns the exit code."""
    await session.hearing.settle(_HEARD * session.cluster.access.patience)
    await carry_out_run(port.start(), lambda: _progress_lines(port.current), port.stop)
    study = port.current
    if study is None or study.progress is not StudyState.DONE:
        output.print_progress(
            f"stopped; go on with `{study.verb} --resume {study.id}`" if study else "stopped"
        )
        return output.INTERRUPTED
    return _exit_code(study)


def _progress_lines(study: Study | None) -> Iterator[tuple[tuple[int, int], Callable[[], str]]]:
    if study is not None:
        for number, one in enumerate(study.trials, 1):
            yield (one.block, one.point), partial(_trial_line, study, one, number)


def _trial_line(study: Study, one: Trial, number: int) -> str:
    label = study.plan.points[one.point].label
    value = one.numbers.get(study.number)
    what = one.text and f"{one.outcome.value}: {one.text}"
    if not what and value is not None:
        what = f"{study.number} {significant_figures(value)} {study.unit}".rstrip()
    return f"{number} of {study.runs}: block {one.block + 1}, {label}: {what}"


def _exit_code(study: Study) -> int:
    return output.TROUBLE if any(one.text for one in study.trials) else output.OK


# ---- what is shown


def _say_study(session: Session, study: Study, options: argparse.Namespace) -> None:
    """Print the study, and write the files of `--report`."""
    if options.number and options.number != study.number and options.number in study.offered:
        study = session.scaling.open(study.id, options.number)
    if options.json:
        output.say_object(study_shape(study))
    else:
        _print_study(study)
    if options.report:
        from rankdeck.scaling.report_files import write_study_files

        folder = expand_path(options.report)
        made = write_study_files(study, folder, Secrets([session.cluster.environment]))
        output.print_progress(f"{len(made)} files in {folder}: report.html is the one for people")


def _print_study(study: Study) -> None:
    plan = study.plan
    kind = "the work grows with the ranks" if plan.weak else "the same work with more ranks"
    output.print_text(
        f"{study.id}: {plan.job} on {plan.cluster}: {study.progress.value}, {study_headline(study)}; {kind}"
    )
    rows = [point_row(study, curve, one) for curve in study.curves for one in curve.points]
    output.say_table(point_heads(study), rows)
    for one in study.verdicts:
        curve = f"{one.curve}: " if one.curve else ""
        output.print_text(f"{'! ' if one.kind.doubtful else '- '}{curve}{one.text}")


async def _kept(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        if options.show:
            study = session.scaling.open(options.show, options.number)
            _say_study(session, study, options)
            return _exit_code(study)
        for one in session.scaling.studies():
            output.say_result(study_shape(one), kept_study_line(one), as_json=options.json)
    return output.OK


def kept_study_line(study: Study) -> str:
    """A kept study in one line."""
    took = write_duration(study.ended - study.started) if study.ended else ""
    return (
        f"{study.id}  {day_time(study.started)}  {study.progress.value:8}  {study.plan.job} "
        f" {study_headline(study)}  {took}".rstrip()
    )
