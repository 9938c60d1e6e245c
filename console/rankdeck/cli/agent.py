"""`rankdeck agent install|uninstall|status|digest|stop|start`: agents as
services on nodes; have them let the GPUs go.
"""

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.opening import open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.config.clusters import read_accounts, with_new_accounts, write_accounts
from rankdeck.model.cluster import Broker, Cluster
from rankdeck.remote.bundle import build_bundle
from rankdeck.remote.installer import NodeOutcome
from rankdeck.schedulers.kubernetes.daemon_set import daemon_set
from rankdeck.schedulers.kubernetes.queue import api_server_of
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.agent_configs import installed_config
from rankdeck.telemetry.link import open_link

LISTEN = 8.0
"""Seconds that `status` waits for messages from installed agents."""


def run_install(options: argparse.Namespace, _open_console: object) -> int:
    """Put the agent on the nodes as a service that publishes to the site's broker."""
    cluster = choose.choose_cluster(options.cluster)
    if options.kubernetes:
        return _daemon_set(cluster, options)
    nodes = choose.expand_node_option(cluster, options.nodes)
    broker = _broker(cluster)
    for note in _accounts(broker, nodes, dry=options.dry_run):
        output.print_progress(note)
    configs = {node: installed_config(cluster, broker, node) for node in nodes}
    return until_done(_do(cluster, "install", nodes, configs, options))


def _daemon_set(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print the DaemonSet, or apply it to Kubernetes."""
    broker = _broker(cluster)
    if not options.image:
        raise UsageError("--kubernetes needs --image IMAGE: any that has Python 3.6 or newer")
    nodes = tuple(node.name for node in cluster.nodes) if broker.agents_file else ()
    if broker.agents_file and not nodes:
        raise UsageError(
            f"`agents_file` has an account for each node: name the nodes in {cluster.file},"
            " or leave it out to give all agents one account"
        )
    for note in _accounts(broker, nodes, dry=not options.apply):
        output.print_progress(note)
    configs = {node: installed_config(cluster, broker, node) for node in nodes or ("",)}
    agent = build_bundle(simulating=bool(cluster.simulate))
    text = daemon_set(options.image, cluster.options.get("namespace", ""), agent, configs)
    if not options.apply:
        output.print_progress(
            "the Secret in it holds the agents' passwords; `--apply` gives all of it to Kubernetes"
        )
        output.print_text(text.rstrip())
        return output.OK
    return until_done(_apply(cluster, text))


async def _apply(cluster: Cluster, text: str) -> int:
    async with open_for_command(cluster) as session:
        answer = await api_server_of(session.queue).apply(text)
    output.print_text(answer.rstrip())
    return output.OK


def run_uninstall(options: argparse.Namespace, _open_console: object) -> int:
    """Stop the service and remove all its files."""
    cluster = choose.choose_cluster(options.cluster)
    nodes = choose.expand_node_option(cluster, options.nodes)
    return until_done(_do(cluster, "uninstall", nodes, {}, options))


def stop_gpu(options: argparse.Namespace, _open_console: object) -> int:
    """Have all agents on the nodes, installed or started by consoles, let the GPU
    driver go until they are told otherwise.
    """
    return _tell(options, "gpu-stop")


def start_gpu(options: argparse.Namespace, _open_console: object) -> int:
    """Have the agents on the nodes read the GPUs again."""
    return _tell(options, "gpu-start")


def _tell(options: argparse.Namespace, verb: str) -> int:
    cluster = choose.choose_cluster(options.cluster)
    nodes = choose.expand_node_option(cluster, options.nodes)
    options.dry_run = False
    return until_done(_do(cluster, verb, nodes, {}, options))


def run_digest(options: argparse.Namespace, _open_console: object) -> int:
    """Print the SHA-256 of the file that is copied to nodes, in the format of sha256sum."""
    agent = build_bundle()
    shape = {"file": agent.name, "sha256": agent.digest, "size": len(agent.data)}
    output.say_result(shape, f"{agent.digest}  {agent.name}", as_json=options.json)
    return output.OK


def run_agent_status(options: argparse.Namespace, _open_console: object) -> int:
    """Print for each node whether the service runs, its version, and when it was last heard."""
    cluster = choose.choose_cluster(options.cluster)
    return until_done(_status(cluster, choose.expand_node_option(cluster, options.nodes), options))


async def _do(
    cluster: Cluster,
    verb: str,
    nodes: Sequence[str],
    configs: Mapping[str, Mapping[str, Any]],
    options: argparse.Namespace,
) -> int:
    async with open_for_command(cluster) as session:
        installer = session.nodes.installer(system=options.system, dry=options.dry_run)
        outcomes = await installer.run(verb, nodes, configs)
    if options.json:
        shapes = [_shape(outcome) for outcome in outcomes]
        output.say_object({"cluster": cluster.name, "nodes": shapes})
    elif options.dry_run:
        output.print_text("\n".join(_steps(outcome) for outcome in outcomes))
    else:
        output.say_table(("NODE", "RESULT", "VERSION", "NOTES"), map(_row, outcomes))
    return output.OK if all(outcome.ok for outcome in outcomes) else output.TROUBLE


def _row(outcome: NodeOutcome) -> tuple[str, ...]:
    if not outcome.ok:
        return outcome.node, "failed", "-", outcome.why
    old, new = outcome.text("old"), outcome.text("new")
    version = f"{old} -> {new}" if old and new and old != new else new or old
    return outcome.node, outcome.text("did"), version or "-", "; ".join(outcome.notes)


def _shape(outcome: NodeOutcome) -> dict[str, Any]:
    return {**outcome.answer, "node": outcome.node, "ok": outcome.ok, "why": outcome.why}


def _steps(outcome: NodeOutcome) -> str:
    """Every command and every file of one node, as `--dry-run` prints them."""
    lines = [f"# {outcome.node}" + (f": {outcome.why}" if outcome.why else "")]
    for step in outcome.answer.get("steps", ()):
        sign = "$ " if step["what"] == "run" else f"{step['what']} "
        lines.append(sign + str(step["text"]))
        lines += [f"    {line}" for line in str(step["detail"]).splitlines()]
    return "\n".join(lines) + "\n"


# ---- status -----------------------------------------------------------------------------


async def _status(cluster: Cluster, nodes: Sequence[str], options: argparse.Namespace) -> int:
    fleet = Fleet(cluster)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(open_for_command(cluster))
        link = None
        if cluster.broker is not None:
            link = await stack.enter_async_context(open_link(cluster, fleet))
        installer = session.nodes.installer(system=options.system)
        outcomes = await installer.run("status", nodes, {})
        if link is not None:
            there = [o.node for o in outcomes if o.answer.get("installed")]
            await _wait_until_heard(fleet, there)
    if fleet.trouble:
        output.print_progress(fleet.trouble)
    ages = {node: fleet.node(node).heard_s() for node in nodes}
    shapes = [{**_shape(o), "heard_s": ages[o.node]} for o in outcomes]
    if options.json:
        output.say_object({"cluster": cluster.name, "nodes": shapes})
    else:
        heads = ("NODE", "SERVICE", "VERSION", "HEARD", "SAYS")
        output.say_table(heads, [_state_row(o, ages[o.node]) for o in outcomes])
    return output.OK if all(o.ok and _runs(o) for o in outcomes) else output.TROUBLE


async def _wait_until_heard(fleet: Fleet, nodes: Sequence[str]) -> None:
    """Wait until each of these nodes was heard, or the time is over."""
    deadline = time.monotonic() + LISTEN
    # State is plain data without listeners, so this must poll.
    while (  # noqa: ASYNC110
        any(fleet.node(node).heard_s() is None for node in nodes)
        and not fleet.trouble
        and time.monotonic() < deadline
    ):
        await asyncio.sleep(0.1)


def _runs(outcome: NodeOutcome) -> bool:
    return not outcome.answer.get("installed") or outcome.text("state") == "active"


def _state_row(outcome: NodeOutcome, age: float | None) -> tuple[str, ...]:
    if not outcome.ok:
        return outcome.node, "-", "-", "-", outcome.why
    if not outcome.answer.get("installed"):
        return outcome.node, "not installed", "-", "-", ""
    heard = "never" if age is None else f"{age:.1f} s ago"
    state, version = outcome.text("state"), outcome.text("version")
    return outcome.node, state, version, heard, outcome.text("says")


# ---- options ----------------------------------------------------------------------------


def _broker(cluster: Cluster) -> Broker:
    if cluster.broker is None:
        raise UsageError(
            "installed agents publish to the site's broker: "
            f"add `broker: {{url: mqtts://HOST}}` to {cluster.file}"
        )
    if cluster.broker.reach == "ssh":
        raise UsageError(
            "installed agents cannot use `reach: ssh`: they have no console to go through"
        )
    return cluster.broker


def _accounts(broker: Broker, nodes: Sequence[str], *, dry: bool) -> tuple[str, ...]:
    """Make an account for each node; returns what the operator must do about it."""
    if not broker.agents_file:
        if not broker.username:
            return ()
        return (
            f"the agents use the account of {broker.username}; "
            "`agents_file: FILE` gives each node its own",
        )
    accounts = read_accounts(broker.agents_file)
    more = with_new_accounts(accounts, nodes)
    if len(more) == len(accounts):
        return ()
    if dry:
        return (f"would add {len(more) - len(accounts)} accounts to {broker.agents_file}",)
    write_accounts(broker.agents_file, more)
    return (
        f"{len(more) - len(accounts)} new accounts in {broker.agents_file}: hash a copy "
        "(mosquitto_passwd -U COPY) and give it to the broker",
    )
