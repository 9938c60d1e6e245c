"""`rankdeck drill`: plants harmless faults on this cluster, shows who was named and how soon."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

from rankdeck.cli import choose, output
from rankdeck.cli.opening import ask_agreement, carry_out_run, open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.cli.spans import parse_option_span
from rankdeck.config.files import find_job
from rankdeck.config.jobs import read_job
from rankdeck.drill.planning import DrillError, DrillRequest, parse_launches, parse_link, parse_ways
from rankdeck.drill.service import Drills
from rankdeck.drill.table import HEADS, drill_headline, drill_shape, result_row
from rankdeck.drill.values import Drill, DrillResult
from rankdeck.model.cluster import Cluster
from rankdeck.model.nodeset import fold_nodes


def run_drill(options: argparse.Namespace, _open_console: object) -> int:
    """The command; exit code: 0 every fault that was planted was told rightly, 1 not so, or none
    could be planted, 2 wrong input, 130 stopped.
    """
    cluster = choose.choose_cluster(options.cluster)
    try:
        request = _request(cluster, options)
    except DrillError as error:
        raise UsageError(str(error)) from error
    return until_done(_drill(cluster, options, request))


def _request(cluster: Cluster, options: argparse.Namespace) -> DrillRequest:
    on = choose.expand_node_option(cluster, options.on) if options.on else ()
    if options.nodes < 0 or options.ranks_per_node < 0:
        raise UsageError("--nodes and --ranks-per-node: not below 0")
    like = None
    if options.like:
        file = find_job(options.like, cluster.file)
        like = choose.read_agreed(lambda: read_job(file))
    return DrillRequest(
        on=tuple(on),
        nodes=options.nodes,
        ranks_per_node=options.ranks_per_node,
        launches=parse_launches(options.launch),
        ways=parse_ways(options.only),
        like=like,
        limit=parse_option_span(options.limit, "--limit"),
        link=parse_link(options.cut, options.mend),
    )


async def _drill(cluster: Cluster, options: argparse.Namespace, request: DrillRequest) -> int:
    async with open_for_command(cluster) as session:
        port = Drills(session)
        try:
            drill = await port.plan(request)
        except DrillError as error:
            raise UsageError(str(error)) from error
        if options.dry_run:
            output.say_result(drill_shape(drill), _plan_text(drill), as_json=options.json)
            return output.OK
        output.print_progress(_plan_text(drill))
        count = sum(not one.unplanted for one in drill.plan.faults)
        if (
            not options.yes
            and output.can_ask()
            and not await ask_agreement(f"Start {count} jobs, one after the other?")
        ):
            output.print_progress("not started")
            return output.BAD_INPUT
        return await _until_end(port, as_json=options.json)


def _plan_text(drill: Drill) -> str:
    nodes = fold_nodes({name for one in drill.plan.faults for name in one.spec.on})
    first = drill.plan.faults[0].spec
    where = f" on {nodes}" if nodes else f" on {first.nodes} nodes"
    lines = [
        f"{drill.id}: {len(drill.plan.faults)} faults{where}, {first.ranks_per_node} ranks on each"
    ]
    lines += [
        f"  {one.label}" + (f": not planted: {one.unplanted}" if one.unplanted else "")
        for one in drill.plan.faults
    ]
    lines += [f"  note: {note}" for note in drill.plan.notes]
    return "\n".join(lines)


async def _until_end(port: Drills, *, as_json: bool) -> int:
    """Carry the drill out until it ends or a signal comes; returns the exit code."""
    await carry_out_run(port.start(), lambda: _progress_lines(port.current), port.stop)
    drill = port.current
    assert drill is not None
    if as_json:
        output.say_object(drill_shape(drill))
    else:
        _print_drill(drill)
    if not drill.ended:
        return output.INTERRUPTED
    return output.OK if drill.trusted else output.TROUBLE


def _progress_lines(drill: Drill | None) -> Iterator[tuple[int, Callable[[], str]]]:
    if drill is not None:
        for number, one in enumerate(drill.results, 1):
            yield number, partial(_result_line, drill, number, one)


def _result_line(drill: Drill, number: int, one: DrillResult) -> str:
    took = "" if one.seconds is None else f" after {one.seconds:.1f} s"
    left = "".join(f"; {node}: {why}" for node, why in one.left.items())
    place = f"{number} of {len(drill.plan.faults)}"
    return f"{place}: {one.fault.label}: {one.verdict.value}{took}: {one.sentence}{left}"


def _print_drill(drill: Drill) -> None:
    output.say_table(HEADS, [result_row(one) for one in drill.results])
    output.print_text(f"{drill.id}: {drill_headline(drill)}")
