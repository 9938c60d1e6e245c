"""`rankdeck health`: the judgement of nodes for people and for monitoring, with Nagios exit codes."""

import argparse
import time
from collections import Counter
from collections.abc import Sequence

from rankdeck.cli import choose, output
from rankdeck.cli.opening import until_done
from rankdeck.cli.shapes import Shape, health_shape
from rankdeck.cli.status import heard, judged, wait_of, watch_of
from rankdeck.errors import RankdeckError, leaves
from rankdeck.model.cluster import Cluster
from rankdeck.model.health import Level, Reason
from rankdeck.state.node import NodeState
from rankdeck_agent.rules.explain import coverage_words

NAGIOS = {
    Level.OK: (0, "OK"),
    Level.WARN: (1, "WARNING"),
    Level.BAD: (2, "CRITICAL"),
    Level.UNKNOWN: (3, "UNKNOWN"),
}
"""Level -> exit code and word, as monitoring plug-ins give them."""


def health(options: argparse.Namespace, _open_console: object) -> int:
    """Judge the nodes; the code is 0 ok, 1 warn, 2 bad, 3 unknown or trouble of our own."""
    try:
        cluster = choose.cluster(options.cluster)
        names = choose.nodes(cluster, options.nodes)
        return until_done(_health(cluster, names, options))
    except* RankdeckError as group:
        for error in leaves(group):
            output.progress(f"rankdeck: {error}")
    return NAGIOS[Level.UNKNOWN][0]


async def _health(cluster: Cluster, names: Sequence[str], options: argparse.Namespace) -> int:
    wait, watch = wait_of(options), watch_of(options)
    async with heard(cluster, wait) as session:
        fleet = session.fleet
        states = [fleet.node(name) for name in names]
        await judged(fleet, watch)
        level = max((state.health.level for state in states), default=Level.OK)
        if options.json:
            shapes = [_shape(state) for state in states]
            word = {
                "cluster": cluster.name,
                "level": level.word,
                "code": NAGIOS[level][0],
            }
            output.say_object({**word, "nodes": shapes})
        else:
            _say(cluster, states, level)
    return NAGIOS[level][0]


def _shape(state: NodeState) -> Shape:
    silent = state.heard_s()
    findings = [
        {"number": one.number, "name": one.name, "title": one.title, "state": one.state, "evidence": one.evidence}
        for one in state.findings()
    ]  # fmt: skip
    return {
        "name": state.name,
        **health_shape(state.health),
        "findings": findings,
        "heard_s": None if silent is None else round(silent, 3),
        "simulated": list(state.simulated),
    }


def _say(cluster: Cluster, states: Sequence[NodeState], level: Level) -> None:
    """One line as monitoring wants it, then every reason."""
    counted = Counter(state.health.level for state in states)
    parts = [f"{number} {one.word}" for one, number in sorted(counted.items(), reverse=True)]
    output.say(
        f"RANKDECK {NAGIOS[level][1]}: {cluster.name}: {', '.join(parts)} of {len(states)} nodes"
    )
    for state in sorted(states, key=lambda one: (-one.health.level, one.name)):
        health = state.health
        made_up = f"; SIMULATED: {', '.join(state.simulated)}" if state.simulated else ""
        covered = coverage_words(health)
        output.say(f"{state.name}: {health.level.word}; {covered}{made_up}")
        for reason in health.reasons:
            output.say(f"  {_line(reason)}")


def _line(reason: Reason) -> str:
    device = f" {reason.device}" if reason.device else ""
    said = f"{reason.level.word:<7} {reason.check}{device}: {reason.text}"
    if reason.acknowledged_until is None:
        return said
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(reason.acknowledged_until))
    return f"{said} [acknowledged until {until} by {reason.acknowledged_by}]"
