"""`rankdeck status`, `nodes` and `health`; `ack`, `silence` and
`expect`; `export` for Prometheus.
"""

import argparse
import asyncio
import getpass
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.opening import Interrupts, open_for_command, until_done
from rankdeck.cli.output import INTERRUPTED, OK, TROUBLE, UsageError
from rankdeck.cli.shapes import Shape, health_shape, node_shape, scheduler_shape
from rankdeck.config.clusters import expect_block, write_block
from rankdeck.config.files import console_state_folder
from rankdeck.errors import RankdeckError, leaf_errors, suggest_word
from rankdeck.following import wait_for_condition
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.health import Ack, Level, Reason, parse_duration
from rankdeck.model.job import Job, State
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.model.schedulers import DeviceCount
from rankdeck.model.text import day_time
from rankdeck.prometheus.exporter import Exporter
from rankdeck.prometheus.server import serve_metrics
from rankdeck.rules.nodes import LearntExpectations, NodeSight, learn_expectations
from rankdeck.session import Session
from rankdeck.state.fleet import Fleet, Switches
from rankdeck.state.history import History
from rankdeck.state.node import NodeState
from rankdeck_agent.rules.judge import check_names, coverage_words, is_check
from rankdeck_agent.rules.levels import NAGIOS, by_cause, highest_of
from rankdeck_agent.wire import METRICS

_STATUS = {Level.OK: OK, Level.UNKNOWN: 3, Level.WARN: 4, Level.BAD: 5}
"""Worst level -> exit code of `status`."""


def job_exit_code(job: Job) -> int:
    """The exit code of `run`: that of the rank that failed first."""
    if job.state is State.DONE:
        return OK
    if job.state is State.CANCELLED:
        return INTERRUPTED
    return job.exit_code or TROUBLE


HEAR_LIMIT = 10.0
"""Seconds to wait for nodes if nothing is said."""
WAIT_LIMIT = 600.0
SECOND_SAMPLE = 4.0
"""Seconds until the growth of counters is known."""
LOOK = 0.2
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
        found = judge_states(fleet.nodes(), troubles, complete=_lists_all(session))
        switches = switch_shapes(session.switches)
    for trouble in (found.nothing,) if found.nothing else troubles:
        output.print_progress(trouble)
    if options.json:
        output.say_object({"cluster": cluster.name, "nodes": shapes, "switches": switches})
    else:
        output.say_table(("NODE", "LEVEL", "HEARD", *map(str.upper, SHOWN), "WHY"), rows)
    return _STATUS[found.level]


@asynccontextmanager
async def open_listening(cluster: Cluster, options: argparse.Namespace) -> AsyncGenerator[Session]:
    """Open the session, and wait for the nodes: with `--wait` so many seconds at most until each
    was heard, else until each was heard or failed.
    """
    wait = 0.0 if options.wait is None else seconds_of_option(options, "wait")
    lister = cluster.can.scheduler or "the broker"
    known = f"{len(cluster.nodes)} nodes" if cluster.nodes else f"{lister} for its nodes"
    output.print_progress(f"{cluster.name}: asking {known} …")
    async with open_for_command(cluster, telemetry=True, brief=True) as session:
        if options.wait is None:
            await session.settle(HEAR_LIMIT * cluster.access.patience)
        else:
            await wait_for_condition(session.fleet.all_heard, wait)
        yield session


def troubles_of(session: Session) -> tuple[str, ...]:
    """What is wrong with the broker, the scheduler, the switches and
    this machine's clock; () if nothing.
    """
    server = session.kubernetes
    told = (
        session.fleet.trouble,
        session.fleet.clock_trouble,
        *session.switches.troubles.values(),
        server.trouble,
        session.slurm.state.trouble,
        server.refused("fleet"),
        server.refused("devices"),
        f"{session.cluster.can.scheduler} has not answered yet" if session.fleet.awaited else "",
    )
    return tuple(filter(None, told))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The level of a cluster, and why no node of it is known ("" if some are)."""

    level: Level
    nothing: str = ""


def judge_states(
    states: Sequence[NodeState], troubles: Sequence[str], *, complete: bool
) -> Verdict:
    """The worst level of the nodes; to know none is unknown, and never well.

    `complete`: whether all nodes of the cluster are among those asked for; if
    not, the cluster is at least unknown.
    """
    if not states:
        why = troubles or ("name them under `nodes` of the cluster file",)
        return Verdict(Level.UNKNOWN, f"no node is known: {'; '.join(why)}")
    worst = max(state.health.level for state in states)
    return Verdict(worst if complete else max(worst, Level.UNKNOWN))


def _lists_all(session: Session) -> bool:
    """Whether all nodes are known: the cluster file names them, or
    the scheduler has listed them.
    """
    fleet, troubles = session.fleet, (session.kubernetes.trouble, session.slurm.state.trouble)
    return not fleet.open or not (fleet.awaited or any(troubles))


async def judge_fleet(fleet: Fleet, watch: float) -> None:
    """Judge every node by at least two samples, and for `watch` seconds.

    A problem in both samples counts as lasting, so that the command need not wait for a minute.
    """
    before = {state.name: state.samples for state in fleet.nodes()}
    began = time.monotonic()
    while (passed := time.monotonic() - began) < max(SECOND_SAMPLE, watch):
        waiting = (s for s in fleet.nodes() if not s.silent)
        if passed >= watch and all(s.samples > before[s.name] for s in waiting):
            break
        await asyncio.sleep(LOOK)
    fleet.compare_peers(SECOND_SAMPLE / 2)
    fleet.take_as_lasting()
    # The session judges the samples, which takes a moment.
    while fleet.behind:  # noqa: ASYNC110
        await asyncio.sleep(LOOK / 10)


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
        "kubernetes": scheduler_shape(state.kubernetes),
        "slurm": scheduler_shape(state.slurm),
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


def run_nodes(options: argparse.Namespace, _open_console: object) -> int:
    """List the nodes of the file, with their inventory if requested; or
    make a cluster file from another list.
    """
    if options.imported:
        from rankdeck.cli.site_lists import import_nodes

        return import_nodes(options.imported, options.format)
    cluster = choose.choose_cluster(options.cluster)
    # If the file names no nodes, only those that Kubernetes knows can be listed.
    if cluster.nodes and not options.live:
        return _list(cluster, [node_shape(node) for node in cluster.nodes], options)
    return until_done(_live(cluster, options))


async def _live(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_listening(cluster, options) as session:
        states = {state.name: state for state in session.fleet.nodes()}
        found = cluster.nodes or tuple(Node(name=name) for name in states)
        shapes = [_live_shape(node, states) for node in found]
        troubles = troubles_of(session)
        nothing = judge_states(tuple(states.values()), troubles, complete=True).nothing
        mute = [name for name, state in states.items() if not _has_spoken(state)]
    silent = f"{fold_nodes(mute)}: not heard" if mute else ""
    for trouble in filter(None, (nothing, silent) if nothing else (*troubles, silent)):
        output.print_progress(trouble)
    _list(cluster, shapes, options)
    return TROUBLE if len(mute) == len(states) else OK


def _has_spoken(state: NodeState) -> bool:
    """Whether anything is known of the node: by its agent, or by the scheduler."""
    return state.was_heard or state.kubernetes is not None or state.slurm is not None


def _live_shape(node: Node, states: dict[str, NodeState]) -> Shape:
    state = states.get(node.name)
    hello = state.hello if state else None
    shape = node_shape(node, hello.inventory if hello else {})
    return {
        **shape,
        "kubernetes": scheduler_shape(state.kubernetes if state else None),
        "slurm": scheduler_shape(state.slurm if state else None),
    }


def _list(cluster: Cluster, shapes: Sequence[Shape], options: argparse.Namespace) -> int:
    if options.json:
        output.say_object({"cluster": cluster.name, "nodes": list(shapes)})
        return output.OK
    keys = ("name", "address", "port", "slots", "gpus", "rdma")
    rows = ([str(shape[key]) for key in keys] for shape in shapes)
    output.say_table([key.upper() for key in keys], rows)
    for shape in shapes:
        inventory: dict[str, str] = shape["inventory"] or {}
        for key, value in sorted(inventory.items()):
            output.print_text(f"{shape['name']}: {key} = {value}")
        for line in _kubernetes_lines(shape.get("kubernetes") or {}):
            output.print_text(f"{shape['name']}: {line}")
    return output.OK


def _kubernetes_lines(shape: Shape) -> list[str]:
    """What Kubernetes says about a node: conditions verbatim, taints, devices, jobs."""
    if not shape:
        return []
    lines = [
        f"condition {row['type']} = {row['status']} {row['reason']} {row['message']}".rstrip()
        for row in shape["conditions"]
    ]
    taints = [f"taint {taint}" for taint in shape["taints"]]
    cordoned = ["unschedulable"] if shape["unschedulable"] else []
    devices = [f"{name}: {DeviceCount(**row).words}" for name, row in shape["devices"].items()]
    return [*lines, *taints, *cordoned, *devices, *(f"job {job}" for job in shape["jobs"])]


def seconds_of_option(options: argparse.Namespace, name: str) -> float:
    """The seconds of `--wait` or `--watch`; raises UsageError."""
    seconds: float = getattr(options, name)
    if not 0 <= seconds <= WAIT_LIMIT:
        raise output.UsageError(f"--{name}: seconds, at most {WAIT_LIMIT:.0f}")
    return seconds


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
        found = judge_states(states, troubles, complete=bool(names) or _lists_all(session))
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


WORDS = 200


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
    until = 0.0 if options.off else now + parse_option_span(options.limit)
    who, why = getpass.getuser(), clean_line(options.why, WORDS)
    made = [Ack(node, check, until, who, why, device) for node in nodes]
    with History(console_state_folder() / "history.db") as history:
        log = history.nodes_of(cluster.name)
        for one in made:
            log.acknowledge(one)
        kept = log.acks(now)
    if options.json:
        output.say_object(
            {"cluster": cluster.name, "acknowledged": [_ack_shape(one) for one in kept]}
        )
    elif not kept:
        output.print_text("nothing is acknowledged")
    for one in kept if not options.json else ():
        what = one.check + (f" {one.device}" if one.device else "") or "everything"
        output.print_text(f"{one.node}: {what} until {day_time(one.until)}, {one.words}")
    return output.OK


def _ack_shape(one: Ack) -> dict[str, object]:
    return {
        "node": one.node, "check": one.check, "device": one.device, "until": one.until,
        "who": one.who, "why": one.why,
    }  # fmt: skip


def parse_option_span(text: str) -> float:
    """Seconds of `30m`, `4h`, `2d`; raises UsageError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise output.UsageError(f"--for: {error}") from error


def run_expect(options: argparse.Namespace, _open_console: object) -> int:
    """Print what most nodes have in common, or write it into the cluster file."""
    cluster = choose.choose_cluster(options.cluster)
    return until_done(_expect(cluster, options))


async def _expect(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_listening(cluster, options) as session:
        fleet = session.fleet
        seen = [_seen(node) for node in fleet.nodes() if node.heard_s() is not None]
    learnt = learn_expectations(seen)
    if not seen:
        output.print_progress("no node was heard: there is nothing to learn from")
        return output.TROUBLE
    if len(seen) < len(cluster.nodes):
        output.print_progress(f"only {len(seen)} of {len(cluster.nodes)} nodes were heard")
    _say_learnt(learnt, options)
    return output.OK


def _seen(node: NodeState) -> NodeSight:
    return NodeSight(node.name, node.inventory, dict(node.values), node.simulated)


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


LOOPBACK = ("127.0.0.1", "::1", "localhost")


def run_export(options: argparse.Namespace, _open_console: object) -> int:
    """Serve metrics until Ctrl-C or SIGTERM."""
    host, port = _address(options.listen)
    cluster = choose.choose_cluster(options.cluster)
    return until_done(_export(cluster, host, port, simulated=options.simulated))


async def _export(cluster: Cluster, host: str, port: int, *, simulated: bool) -> int:
    async with open_for_command(cluster, telemetry=True) as session:
        session.want(None)
        exporter = Exporter(cluster, session.fleet, switches=session.switches, simulated=simulated)
        async with serve_metrics(host, port, exporter.text) as bound:
            shown = f"[{host}]" if ":" in host else host
            output.print_text(f"http://{shown}:{bound}/metrics")
            output.flush_stdout()
            if host not in LOOPBACK:
                output.print_progress(
                    f"anyone who reaches {shown}:{bound} can read these numbers; "
                    "put a proxy with TLS and a password before it"
                )
            with Interrupts(terminate=True) as interrupts:
                await interrupts.next()
    return output.OK


def _address(text: str) -> tuple[str, int]:
    """Host and port of `--listen`; raises UsageError."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    valid = bare and port.isascii() and port.isdigit() and int(port) < 65536
    if not valid or (":" in bare and bare == host):
        raise UsageError(f"--listen {text[:60]}: write it as 127.0.0.1:9464")
    return bare, int(port)
