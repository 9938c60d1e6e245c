"""`rankdeck health` and `expect`; `ack` and `silence`, which change what counts."""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.listening import (
    Verdict,
    judge_fleet,
    judge_states,
    lists_all_nodes,
    open_listening,
    troubles_of,
)
from rankdeck.cli.opening import until_done
from rankdeck.cli.shapes import Shape, health_shape
from rankdeck.cli.spans import parse_option_span, seconds_of_option
from rankdeck.config.clusters import expect_block, write_block
from rankdeck.config.files import console_state_folder
from rankdeck.config.user import operator_name
from rankdeck.errors import RankdeckError, leaf_errors, suggest_word
from rankdeck.model.cluster import Cluster
from rankdeck.model.health import Ack
from rankdeck.model.safe_text import clean_line
from rankdeck.model.text import day_time
from rankdeck.rules.expectations import LearntExpectations, NodeSight, learn_expectations
from rankdeck.state.history import History
from rankdeck.state.node import NodeState
from rankdeck_agent.rules.coverage import check_names, coverage_words, is_check
from rankdeck_agent.rules.levels import NAGIOS, Level, Reason, by_cause

WORDS = 200


def run_health(options: argparse.Namespace, _open_console: object) -> int:
    """Judge the nodes; the exit code is 0 ok, 1 warn, 2 bad, 3 unknown or an error of Rankdeck."""
    try:
        cluster = choose.choose_cluster(options.cluster)
        names = choose.expand_node_option(cluster, options.nodes)
        return until_done(_health(cluster, names, options))
    except* RankdeckError as group:
        for error in leaf_errors(group):
            output.print_progress(f"rankdeck: {error}")
    return NAGIOS[Level.UNKNOWN][0]


async def _health(cluster: Cluster, names: Sequence[str], options: argparse.Namespace) -> int:
    watch = seconds_of_option(options, "watch")
    async with open_listening(cluster, options) as session:
        fleet = session.fleet
        states = [fleet.node(name) for name in names] if names else list(fleet.nodes())
        await judge_fleet(fleet, watch)
        troubles = troubles_of(session)
        found = judge_states(states, troubles, complete=bool(names) or lists_all_nodes(session))
        code, _ = NAGIOS[found.level]
        if options.json:
            shapes = [_shape(state) for state in states]
            word = {"cluster": cluster.name, "level": found.level.word, "code": code}
            output.say_object({**word, "nodes": shapes, "troubles": troubles})
        else:
            _say(cluster, states, found)
            for trouble in troubles if states else ():
                output.print_progress(trouble)
    return code


def _shape(state: NodeState) -> Shape:
    silent = state.heard_s()
    findings = [
        {
            "number": one.number,
            "name": one.name,
            "title": one.title,
            "state": one.state,
            "evidence": one.evidence,
        }
        for one in state.findings()
    ]
    return {
        "name": state.name,
        **health_shape(state.health),
        "findings": findings,
        "heard_s": None if silent is None else round(silent, 3),
        "simulated": list(state.simulated),
    }


def _say(cluster: Cluster, states: Sequence[NodeState], found: Verdict) -> None:
    """Print one line in the format of monitoring plug-ins, then every reason."""
    counted = Counter(state.health.level for state in states)
    parts = [f"{number} {one.word}" for one, number in sorted(counted.items(), reverse=True)]
    words = found.nothing or f"{', '.join(parts)} of {len(states)} nodes"
    output.print_text(f"RANKDECK {NAGIOS[found.level][1]}: {cluster.name}: {words}")
    for state in sorted(states, key=lambda one: (-one.health.level, one.name)):
        health = state.health
        made_up = f"; SIMULATED: {', '.join(state.simulated)}" if state.simulated else ""
        covered = coverage_words(health)
        output.print_text(f"{state.name}: {health.level.word}; {covered}{made_up}")
        for cause, consequences in by_cause(health.reasons):
            output.print_text(f"  {_line(cause)}")
            for reason in consequences:
                output.print_text(f"    so {_line(reason)}")


def _line(reason: Reason) -> str:
    device = f" {reason.device}" if reason.device else ""
    text = f"{reason.level.word:<7} {reason.check}{device}: {reason.text}"
    if reason.acknowledged_until is None:
        return text
    until = day_time(reason.acknowledged_until)
    return f"{text} [acknowledged until {until} by {reason.acknowledged_by}]"


def run_ack(options: argparse.Namespace, _open_console: object) -> int:
    """Acknowledge a reason: it is listed but not counted, until it
    gets worse or the time is over.
    """
    if not is_check(options.check) and not options.off:
        hint = suggest_word(options.check, check_names())
        raise output.UsageError(
            f"no check `{options.check}`{hint or '; `rankdeck health` names them'}"
        )
    return _keep(options, options.check, options.device)


def run_silence(options: argparse.Namespace, _open_console: object) -> int:
    """Acknowledge all reasons of these nodes until the time is over."""
    return _keep(options, "", "")


def _keep(options: argparse.Namespace, check: str, device: str) -> int:
    cluster = choose.choose_cluster(options.cluster)
    nodes = choose.expand_node_option(cluster, options.nodes)
    now = time.time()
    until = 0.0 if options.off else now + parse_option_span(options.limit, "--for")
    who, why = operator_name(), clean_line(options.why, WORDS)
    made = [Ack(node, check, until, who, why, device) for node in nodes]
    with History(console_state_folder() / "history.db") as history:
        log = history.nodes_of(cluster.name)
        for one in made:
            log.acknowledge(one)
        kept = log.acks(now)
    if options.json:
        output.say_object(
            {
                "cluster": cluster.name,
                "acknowledged": [
                    {
                        "node": one.node,
                        "check": one.check,
                        "device": one.device,
                        "until": one.until,
                        "who": one.who,
                        "why": one.why,
                    }
                    for one in kept
                ],
            }
        )
    elif not kept:
        output.print_text("nothing is acknowledged")
    for one in kept if not options.json else ():
        what = one.check + (f" {one.device}" if one.device else "") or "everything"
        output.print_text(f"{one.node}: {what} until {day_time(one.until)}, {one.words}")
    return output.OK


def run_expect(options: argparse.Namespace, _open_console: object) -> int:
    """Print what most nodes have in common, or write it into the cluster file."""
    cluster = choose.choose_cluster(options.cluster)
    return until_done(_expect(cluster, options))


async def _expect(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_listening(cluster, options) as session:
        fleet = session.fleet
        seen = [
            NodeSight(node.name, node.inventory, dict(node.values), node.simulated)
            for node in fleet.nodes()
            if node.heard_s() is not None
        ]
    learnt = learn_expectations(seen)
    if not seen:
        output.print_progress("no node was heard: there is nothing to learn from")
        return output.TROUBLE
    if len(seen) < len(cluster.nodes):
        output.print_progress(f"only {len(seen)} of {len(cluster.nodes)} nodes were heard")
    _say_learnt(learnt, options)
    return output.OK


def _say_learnt(learnt: LearntExpectations, options: argparse.Namespace) -> None:
    file = ""
    if options.write is not None:
        path = Path(options.write or choose.choose_cluster(options.cluster).file)
        write_block(path, learnt.values, learnt.notes)
        file = str(path)
        output.print_progress(f"written to {path}")
    shape = {"expect": dict(learnt.values), "notes": dict(learnt.notes), "file": file}
    text = expect_block(learnt.values, learnt.notes).rstrip("\n")
    output.say_result(shape, text, as_json=options.json)
