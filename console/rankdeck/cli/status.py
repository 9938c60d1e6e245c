"""`rankdeck status`: the nodes, what they report and how they are judged."""

import argparse

from rankdeck.cli import choose, output
from rankdeck.cli.listening import (
    judge_fleet,
    judge_states,
    lists_all_nodes,
    open_listening,
    troubles_of,
)
from rankdeck.cli.opening import until_done
from rankdeck.cli.output import OK
from rankdeck.cli.shapes import Shape, health_shape, scheduler_shapes
from rankdeck.cli.spans import seconds_of_option
from rankdeck.model.cluster import Cluster
from rankdeck.state.fleet import Switches
from rankdeck.state.node import NodeState
from rankdeck_agent.rules.levels import Level, by_cause, highest_of
from rankdeck_agent.wire import METRICS

_STATUS = {Level.OK: OK, Level.UNKNOWN: 3, Level.WARN: 4, Level.BAD: 5}
"""Worst level -> exit code of `status`."""
SHOWN = ("cpu.used", "mem.used", "gpu.used", "gpu.temp")
"""Metrics in the columns of the table: the highest of a node's devices."""


def run_status(options: argparse.Namespace, _open_console: object) -> int:
    """Print the state of every node; the exit code is that of the worst."""
    return until_done(_status(choose.choose_cluster(options.cluster), options))


async def _status(cluster: Cluster, options: argparse.Namespace) -> int:
    watch = seconds_of_option(options, "watch")
    async with open_listening(cluster, options) as session:
        fleet = session.fleet
        await judge_fleet(fleet, watch)
        # Inside the session: nodes count as silent when it is closed.
        shapes = [state_shape(state) for state in fleet.nodes()]
        rows = [_row(state) for state in fleet.nodes()]
        troubles = troubles_of(session)
        found = judge_states(fleet.nodes(), troubles, complete=lists_all_nodes(session))
        switches = switch_shapes(session.switches)
    for trouble in (found.nothing,) if found.nothing else troubles:
        output.print_progress(trouble)
    if options.json:
        output.say_object({"cluster": cluster.name, "nodes": shapes, "switches": switches})
    else:
        output.say_table(("NODE", "LEVEL", "HEARD", *map(str.upper, SHOWN), "WHY"), rows)
    return _STATUS[found.level]


def state_shape(state: NodeState) -> Shape:
    """One node of `status --json`."""
    heard = state.heard_s()
    return {
        "name": state.name,
        **health_shape(state.health),
        "heard_s": None if heard is None else round(heard, 3),
        "values": {metric: dict(by_device) for metric, by_device in state.values.items()},
        "rates": {metric: dict(by_device) for metric, by_device in state.rates.items()},
        "absent": sorted(state.absent),
        "failed": dict(state.failed),
        "simulated": list(state.simulated),
        "agent": state.attach,
        **scheduler_shapes(state.in_scheduler),
    }


def switch_shapes(switches: Switches) -> list[Shape]:
    """The switch ports of `status --json`."""
    return [
        {
            "switch": port.switch,
            "port": port.port,
            "node": port.node,
            "device": port.device,
            "up": port.up,
            "values": dict(port.values),
            "rates": dict(port.rates),
            "trouble": switches.troubles.get(port.switch, ""),
        }
        for port in switches.ports()
    ]


def _row(state: NodeState) -> tuple[str, ...]:
    heard = state.heard_s()
    numbers = (_highest(state, metric) for metric in SHOWN)
    why = "; ".join(cause.text for cause, _ in by_cause(state.health.reasons))
    made_up = f"SIMULATED: {', '.join(state.simulated)}" if state.simulated else ""
    words = " · ".join(filter(None, (why, made_up)))
    age = "never" if heard is None else f"{heard:.0f} s"
    return state.name, state.health.level.word, age, *numbers, words


def _highest(state: NodeState, metric: str) -> str:
    worst = highest_of(metric)(state.current)
    return "-" if worst is None else f"{worst:.0f} {METRICS[metric].unit}"
