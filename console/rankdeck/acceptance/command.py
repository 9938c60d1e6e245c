"""`rankdeck accept`: plan, run, resume and show acceptance runs; baselines and
exclusions; read outputs of other runs.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rankdeck import plugins
from rankdeck.acceptance.baseline import baselines_of
from rankdeck.acceptance.heatmap import outcome_headline
from rankdeck.acceptance.output_text import LARGEST, read_output
from rankdeck.acceptance.planning import LEAF, MEASURED
from rankdeck.acceptance.recipe import OutputReading, Recipe
from rankdeck.acceptance.run import (
    AcceptanceProtocol,
    AcceptanceRun,
    Request,
    RunState,
    StagePlan,
    next_step,
)
from rankdeck.acceptance.service import Acceptance
from rankdeck.acceptance.shapes import acceptance_shape, reading_shape
from rankdeck.acceptance.store import Exclusion
from rankdeck.acceptance.values import Outcome, Result, Stage
from rankdeck.cli import choose, output
from rankdeck.cli.opening import ask_agreement, carry_out_run, open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.cli.spans import parse_option_span
from rankdeck.config.files import LIMIT, expand_path, find_job
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.text import day_time, significant_figures
from rankdeck.rules.secrets import Secrets
from rankdeck.session import Session
from rankdeck_agent.rules.units import write_duration
from rankdeck_agent.rules.units import write_size as bytes_text

BAD, MISSING, REFUSED = 1, 2, 3
_CODES = {
    Outcome.MEASURED: output.OK,
    Outcome.FAILED: BAD,
    Outcome.NOT_MEASURED: MISSING,
    Outcome.REFUSED: REFUSED,
}
_Round = tuple[Stage, str, int]
_GRAVEST = (BAD, MISSING, REFUSED, output.OK)


def read_results(options: argparse.Namespace) -> int:
    """Read every file (`--read`); the exit code is that of the worst result."""
    recipe: Recipe = plugins.find_plugin("recipes", options.read)()
    if not options.words:
        raise UsageError("`accept --read` needs a file; - is stdin")
    # All files are read before the first result is printed.
    outputs = [(name, choose.read_file_or_stdin(name, LARGEST)) for name in options.words]
    codes: set[int] = set()
    for name, raw in outputs:
        for reading in read_output(recipe, raw):
            text = f"{name}: {recipe.name}: {reading.status}: {reading.text}"
            shape = reading_shape(recipe.name, reading)
            output.say_result(shape, text, as_json=options.json)
            codes.add(_code(reading))
    return next(code for code in _GRAVEST if code in codes)


def _code(reading: OutputReading) -> int:
    """The exit code for one result; a value below what it should be counts as bad."""
    return BAD if reading.grade == "slow" else _CODES[reading.status]


def declare_baseline(port: Acceptance, run: AcceptanceRun) -> None:
    """Make the run the baseline of its cluster; raises UsageError if the run is not accepted."""
    if not run.accepted:
        raise UsageError(f"{run.id} is not accepted, so it cannot be the baseline")
    rows = baselines_of(run, run.operator, time.time())
    port.store.declare(rows)
    output.print_progress(f"{run.id} is the baseline now: {len(rows)} values")


def run_baseline(port: Acceptance, cluster: str, what: str, words: Sequence[str]) -> int:
    """Do `show`, `declare RUN`, `export` or `import FILE`; returns the exit code."""
    if what == "declare" and len(words) == 1:
        declare_baseline(port, port.open(words[0]))
    elif what == "export" and not words:
        output.print_text(port.store.exported(cluster))
    elif what == "import" and len(words) == 1:
        found = port.store.imported(cluster, words[0], choose.read_file_or_stdin(words[0], LIMIT))
        output.print_progress(f"{len(found)} values are the baseline of {cluster} now")
    elif what == "show" and not words:
        for one in port.store.baselines(cluster):
            output.print_text(
                f"{one.recipe}  {one.subject}  {significant_figures(one.median)} ± {one.mad:.2g} of"
                f" {one.count}  run {one.run}, {one.accepted_by}"
            )
    else:
        raise UsageError("--baseline: this, show, declare RUN, export, or import FILE")
    return output.OK


def keep_out(
    session: Session, out: Sequence[str], back: Sequence[str], why: str, until: float
) -> int:
    """Exclude nodes (`out`) from jobs, or readmit them (`back`)."""
    store, name, now = session.acceptance.store, session.cluster.name, time.time()
    if out and not why:
        raise UsageError("--exclude needs --why TEXT: the reason, for other users")
    store.exclude(Exclusion(cluster=name, node=node, why=why, at=now, until=until) for node in out)
    store.readmit(name, back)
    for one in store.exclusions(name, now):
        output.print_text(f"{one.node}: {one.sentence}")
    return output.OK


_MOST = 12
"""Most lines of one kind that are printed one by one."""


def acceptance_plan_text(run: AcceptanceRun) -> str:
    """The plan as text: all stages with their commands."""
    plan = run.plan
    lines = [
        f"acceptance {run.id} of {run.cluster}: {fold_nodes(plan.nodes)} ({len(plan.nodes)}"
        f" node{'s' * (len(plan.nodes) != 1)})"
    ]
    lines += [f"  left out {node}: {why}" for node, why in plan.left_out.items()]
    lines += [f"  differs {node}: {what}" for node, what in list(run.differing.items())[:_MOST]]
    for one in plan.stages:
        lines.append(_stage_line(one))
        lines += [f"      {command}" for command in one.commands]
    lines += [f"  {note}" for note in plan.notes]
    return "\n".join(lines)


def _stage_line(one: StagePlan) -> str:
    words = [f"  {one.stage:9}", one.recipe]
    if one.rounds:
        words.append(
            f"{one.rounds} round{'s' * (one.rounds != 1)}, {one.tests}"
            f" measurement{'s' * (one.tests != 1)}, about {write_duration(one.minutes * 60)}"
        )
    if one.bytes:
        words.append(f"about {bytes_text(one.bytes)}")
    return " ".join(filter(None, words)) + (f": {one.note}" if one.note else "")


def _progress_lines(run: AcceptanceRun | None) -> Iterator[tuple[_Round, Callable[[], str]]]:
    """What makes the line of each round that has ended."""
    if run is None:
        return
    rounds: dict[_Round, list[Result]] = {}
    for one in run.results:
        rounds.setdefault((one.stage, one.recipe, one.round), []).append(one)
    for key, results in rounds.items():
        if all(one.outcome.final for one in results):
            yield key, partial(_round_line, run, *key, results)


def _round_line(
    run: AcceptanceRun, stage: Stage, recipe: str, number: int, results: list[Result]
) -> str:
    planned = next(
        (one.rounds for one in run.plan.stages if (one.stage, one.recipe) == (stage, recipe)), 0
    )
    of = f" {number + 1} of {planned}" if 1 < planned > number else ""
    values = [one.value for one in results if one.value is not None]
    ends = dict.fromkeys(significant_figures(end(values), 3) for end in (min, max) if values)
    span = f", {' to '.join(ends)} {results[0].unit}" if values else ""
    wrong = [one for one in results if one.outcome is not Outcome.MEASURED]
    line = f"{stage} {recipe}{of}: {len(values)} of {len(results)} measured{span}"
    return "\n".join([line, *(f"  {_who(one)}: {one.outcome}: {one.text}" for one in wrong[:3])])


def _who(one: Result) -> str:
    return (
        f"{one.sender}→{one.receiver}" if one.receiver else fold_nodes(one.group or (one.sender,))
    )


def acceptance_outcome(run: AcceptanceRun, cluster: Cluster) -> str:
    """The result as text: a sentence for each faulty node or link, then what
    is good, what changed and what to do.
    """
    lines = [f"{run.cluster}, {run.id}: {_verdict(run)}"]
    for one in run.verdicts:
        lines.append(f"  {one.answer}: {one.sentence}")
        lines += [f"    {step}"] if (step := next_step(run, one)) else []
    lines += [
        f"  suspected, and not measured again: {suspects} ({recipe})"
        for recipe, one in run.judgements.items()
        if (suspects := one.open.names(_MOST))
    ]
    lines += [f"  {node}: left out: {why}" for node, why in run.left_out.items()]
    lines += [f"  note: {note}" for note in (*run.notes, *run.plan.notes[:-1])]
    lines += [f"  differs {node}: {what}" for node, what in list(run.differing.items())[:_MOST]]
    lines += [f"  drift: {one.sentence}" for one in run.drift[:_MOST]]
    if run.baseline and (run.drift or run.changed or run.partly_compared):
        lines.append(f"  baseline: {run.baseline}")
    lines += [
        f"  {word}: {fold_nodes(nodes)}"
        for word, nodes in (("good", run.good), ("bad", run.bad), ("not measured", run.unknown))
        if nodes
    ]
    lines += [f"  {line}" for line in propose_commands(run, cluster)]
    return "\n".join(lines)


def _verdict(run: AcceptanceRun) -> str:
    resume = f"; go on with `{run.verb} --resume {run.id}`"
    return outcome_headline(run) + ("" if run.progress is RunState.DONE else resume)


def propose_commands(run: AcceptanceRun, cluster: Cluster) -> Iterator[str]:
    """Commands to copy; none of them is run."""
    if run.progress is not RunState.DONE:
        return
    for node in run.bad:
        why = next(
            (one.sentence for one in run.verdicts if node in one.nodes),
            f"{run.answers[node]} in acceptance",
        )
        reason = why.replace('"', "'").replace("`", "'").replace("$", "")[:160]
        day, _, _ = day_time(run.ended or run.started).partition(" ")
        yield f'to keep jobs away: {run.verb} --exclude {node} --why "run {run.id}: {reason}"'
        if lines := cluster.can.out_of_service([node], f"rankdeck {day}: {reason}"):
            yield f"in {cluster.can.scheduler}: {lines[0]}; back: {lines[-1]}"


def saved_run_line(run: AcceptanceRun) -> str:
    """A saved run in one line."""
    return f"{run.id}  {day_time(run.started)}  {run.progress:8}  {fold_nodes(run.plan.nodes)}  {run.operator}"


_STAGES = {**{one.value: (one,) for one in MEASURED}, "leaf": LEAF}
_HEARD = 5.0
"""Seconds to wait for telemetry of the nodes; without it, clocks and heat are not reported."""


def run_accept(options: argparse.Namespace, _open_console: object) -> int:
    """The command; exit code: 0 accepted, 1 bad, 2 not measured, 3 no
    node may be measured, 130 stopped.
    """
    if options.read:
        return read_results(options)
    cluster = choose.choose_cluster(options.cluster)
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


# ---- the request


def request_of(cluster: Cluster, options: argparse.Namespace) -> Request:
    """The request that the options make; raises UsageError and UnknownPluginError."""
    stages, only = _only(options.only)
    nodes = tuple(
        dict.fromkeys(
            name
            for word in (*options.words, *only)
            for name in choose.expand_node_option(cluster, word)
        )
    )
    if not 0 < options.repeats <= 100:
        raise UsageError("--repeats: from 1 to 100")
    if not 0 <= options.seconds <= 3600:
        raise UsageError("--seconds: from 1 to 3600")
    for name in options.recipe:
        plugins.find_plugin("recipes", name)
    begin = _stage(options.begin, "--from")[0] if options.begin else None
    return Request(
        nodes=nodes,
        begin=begin,
        only=stages,
        recipes=tuple(options.recipe),
        exhaustive=options.exhaustive,
        include_busy=choose.expand_node_option(cluster, options.include_busy)
        if options.include_busy
        else (),
        repeats=options.repeats,
        seconds=options.seconds,
        max_crossing=_share(options.max_crossing),
        rails=tuple(filter(None, options.rails.split(","))),
        soak=parse_option_span(options.soak, "--soak") if options.soak else 0.0,
        like=str(find_job(options.like, cluster.file)) if options.like else "",
    )


def _share(text: str) -> float:
    """`25%` as 0.25; raises UsageError."""
    number = text.removesuffix("%").strip()
    if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= 100:
        raise UsageError("--max-crossing: from 1% to 100%")
    return int(number) / 100


def _only(text: str) -> tuple[tuple[Stage, ...], tuple[str, ...]]:
    """(stages, node sets) of `--only`: a word that is not a stage is a node set."""
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
    async with open_for_command(cluster, telemetry=True) as session:
        port = session.acceptance
        if request is None:
            run = port.resume(options.resume)
        else:
            output.print_progress(f"{cluster.name}: asking the nodes what they are and have …")
            try:
                run = await port.plan(request)
            except output.INPUT_ERRORS:
                raise
            except RankdeckError as error:
                output.print_progress(f"rankdeck: {error}")
                return REFUSED
        if options.dry_run:
            output.say_result(
                acceptance_shape(run), acceptance_plan_text(run), as_json=options.json
            )
            return output.OK
        if run.progress is not RunState.DONE:
            output.print_progress(acceptance_plan_text(run))
            if output.is_terminal() and not options.yes and not await ask_agreement("Start?"):
                return REFUSED
            code = await _carried_out(session, port)
            if code is not None:
                return code
        return _finished(session, options)


async def _carried_out(session: Session, port: AcceptanceProtocol) -> int | None:
    """Run with progress; returns an exit code if it was interrupted, else None."""
    await session.hearing.settle(_HEARD * session.cluster.access.patience)
    await carry_out_run(port.start(), lambda: _progress_lines(port.current), port.stop)
    run = port.current
    if run is not None and run.progress is not RunState.DONE:
        output.print_progress(f"stopped; go on with `{run.verb} --resume {run.id}`")
        return output.INTERRUPTED
    return None


def _finished(session: Session, options: argparse.Namespace) -> int:
    run = session.acceptance.current
    if run is None:
        return REFUSED
    _say_outcome(session, run, options)
    if options.baseline == "this":
        declare_baseline(session.acceptance, run)
    return acceptance_exit_code(run)


def _say_outcome(session: Session, run: AcceptanceRun, options: argparse.Namespace) -> None:
    """Print the result, and write the files of `--report`."""
    text = acceptance_outcome(run, session.cluster)
    output.say_result(acceptance_shape(run), text, as_json=options.json)
    if not options.report:
        return
    from rankdeck.acceptance.report_files import write_reports

    folder = expand_path(options.report)
    secrets = Secrets([session.cluster.environment])
    made = write_reports(run, session.acceptance, folder, secrets)
    output.print_progress(f"{len(made)} files in {folder}: report.html is the one for people")


def acceptance_exit_code(run: AcceptanceRun) -> int:
    """0 accepted, 1 something is bad, 2 something was not measured."""
    if run.accepted:
        return output.OK
    return BAD if run.bad or any(one.answer.bad for one in run.verdicts) else MISSING


# ---- saved runs


async def _kept(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        port = session.acceptance
        if options.exclude or options.readmit:
            until = time.time() + parse_option_span(options.limit, "--for")
            out = choose.expand_node_option(cluster, options.exclude) if options.exclude else ()
            back = choose.expand_node_option(cluster, options.readmit) if options.readmit else ()
            return keep_out(session, out, back, options.why, until)
        if options.baseline:
            return run_baseline(port, cluster.name, options.baseline, options.words)
        if options.show:
            run = port.open(options.show)
            _say_outcome(session, run, options)
            return acceptance_exit_code(run)
        for one in port.runs():
            output.say_result(acceptance_shape(one), saved_run_line(one), as_json=options.json)
        return output.OK
