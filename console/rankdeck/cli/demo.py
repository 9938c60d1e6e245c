"""`rankdeck demo`: the embedded cluster."""

import argparse
import os
import resource
from collections.abc import Sequence

from rankdeck.cli import output
from rankdeck.cli.main import OpenConsole
from rankdeck.cli.output import UsageError, require_terminal
from rankdeck.config.clusters import SIMULATED, read_cluster
from rankdeck.demo import cluster as embedded
from rankdeck.demo.cluster import NODES
from rankdeck.demo.fleet import fleet_cluster
from rankdeck.errors import suggest_or_list
from rankdeck.telemetry.private_broker import most_connections


def run_demo(options: argparse.Namespace, open_console: OpenConsole) -> int:
    """Start, stop or describe the embedded cluster; without a word,
    start it and open the console on it.
    """
    if options.nodes:
        return _fleet(options, open_console)
    if options.action == "down":
        output.print_progress(
            "demo: ended" if embedded.stop_demo() else "demo: nothing was running"
        )
        if not options.json:
            return output.OK
    elif options.action != "status":
        _check(options.fault)
        if options.action is None and not options.json:
            require_terminal(os.environ)
        output.print_progress("demo: starting three virtual nodes …")
        file = embedded.start_demo(options.fault)
        if options.action is None and not options.json:
            return open_console(read_cluster(file), "")
    return _describe(embedded.demo_status(), as_json=options.json)


def _fleet(options: argparse.Namespace, open_console: OpenConsole) -> int:
    """Open the console on a simulated fleet, which ends with the console."""
    if options.action or options.fault or options.json:
        raise UsageError(
            "--nodes opens the console on a simulated fleet and goes with nothing else"
        )
    most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if not 1 <= options.nodes <= most:
        raise UsageError(
            f"--nodes {options.nodes}: from 1 to {most:,} here; more need more open files (`ulimit -Hn`)"
        )
    require_terminal(os.environ)
    return open_console(fleet_cluster(options.nodes), "", simulated=True)


def _check(faults: Sequence[str]) -> None:
    """Raise an error for faults that no node can simulate, before anything starts."""
    for fault in faults:
        what, _, node = fault.partition("@")
        if what not in SIMULATED:
            hint = suggest_or_list(what, SIMULATED)
            raise UsageError(f"--fault {fault}: no such fault{hint}")
        if node and node not in NODES:
            known = ", ".join(NODES)
            raise UsageError(f"--fault {fault}: no node `{node}`; there are {known}")


def _describe(status: embedded.DemoStatus, *, as_json: bool) -> int:
    if as_json:
        output.say_object(status_shape(status))
        return output.OK
    nodes = ((n.name, str(n.port), str(n.pid), "yes" if n.isolated else "no") for n in status.nodes)
    if status.nodes:
        output.say_table(("NODE", "PORT", "PID", "ISOLATED"), nodes)
        output.print_text(f"cluster file: {status.file}   use it with -c demo")
    else:
        output.print_text("the demo cluster does not run; start it with `rankdeck demo up`")
    if status.note:
        output.print_text(status.note)
    return output.OK


def status_shape(status: embedded.DemoStatus) -> dict[str, object]:
    """`demo status --json`."""
    nodes = [
        {"name": n.name, "port": n.port, "pid": n.pid, "isolated": n.isolated} for n in status.nodes
    ]
    return {
        "running": status.running,
        "file": str(status.file),
        "nodes": nodes,
        "note": status.note,
    }
