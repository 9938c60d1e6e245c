"""`rankdeck sh`: a command on many nodes, equal output together."""

import argparse
import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.jobs import DAY
from rankdeck.cli.opening import Interrupts, open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.model.cluster import Cluster
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.process import CommandEnd, OutputGroup
from rankdeck.model.safe_text import strip_controls
from rankdeck.remote.command import CommandRun, CommandState
from rankdeck.values import value_table

_PERIOD = 0.2
_TELL = 5.0
"""Seconds between two lines that name the nodes still running."""
_RULE = "-" * 15


def run_sh(options: argparse.Namespace, _open_console: object) -> int:
    """Run a command and show its output; the exit code is the largest of all nodes."""
    if not 0 < options.limit <= DAY:
        raise UsageError("--limit: seconds, more than 0 and at most a day")
    if not 0 < options.fan_out <= 1000:
        raise UsageError("--fan-out: nodes, from 1 to 1000")
    cluster = choose.choose_cluster(options.cluster)
    nodes = choose.expand_node_option(cluster, options.nodes)
    return until_done(_sh(cluster, nodes, options))


async def _sh(cluster: Cluster, nodes: Sequence[str], options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        command = " ".join(options.words)
        run = session.nodes.run_command(nodes, command, options.limit, options.fan_out)
        with Interrupts(terminate=True) as interrupts:
            cancelled = await _until_over(run, interrupts, options)
    state = run.state
    if options.json:
        output.say_object(command_shape(state))
    elif not options.lines:
        for group in state.groups():
            _say_group(group)
    _say_ends(state, cancelled=cancelled)
    return output.INTERRUPTED if cancelled else state.status


async def _until_over(run: CommandRun, interrupts: Interrupts, options: argparse.Namespace) -> bool:
    """Follow the command to its end; returns whether it was cancelled."""
    follow = (
        _Lines(run.state).print if options.lines and not options.json else _Waiting(run.state).say
    )
    async with asyncio.TaskGroup() as tasks:
        cancelling = tasks.create_task(_cancel_when_interrupted(interrupts, run))
        while not run.state.over:
            await asyncio.sleep(_PERIOD)
            follow()
        cancelling.cancel()
    return run.cancelled


async def _cancel_when_interrupted(interrupts: Interrupts, run: CommandRun) -> None:
    await interrupts.next()
    output.print_progress("rankdeck: cancelling, then checking what is left …")
    run.cancel()


class _Waiting:
    """Prints regularly which nodes have not ended."""

    def __init__(self, state: CommandState) -> None:
        self._state, self._next = state, time.monotonic() + _TELL

    def say(self) -> None:
        """Print the line if it is time."""
        waiting = self._state.waited_for
        if waiting and time.monotonic() >= self._next:
            self._next = time.monotonic() + _TELL
            done = len(self._state.nodes) - len(waiting)
            output.print_progress(
                f"{done} of {len(self._state.nodes)} nodes are done; waiting for {fold_nodes(waiting)}"
            )


class _Lines:
    """Prints each line once, after the name of its node."""

    def __init__(self, state: CommandState) -> None:
        self._state = state
        self._printed = dict.fromkeys(state.nodes, 0)
        self._seen = -1

    def print(self) -> None:
        """Print what is new since the last call."""
        if self._state.changes == self._seen:
            return
        self._seen = self._state.changes
        for node, before in self._printed.items():
            lines = self._state.lines(node)
            for _, text in lines[before:]:
                output.say_line(f"{node}: ", text)
            self._printed[node] = len(lines)
        output.flush_stdout()


def _say_group(group: OutputGroup) -> None:
    """Print a group in the format of `clush -b`."""
    if not group.lines:
        return
    number = f" ({len(group.nodes)})" if len(group.nodes) > 1 else ""
    output.print_text(f"{_RULE}\n{fold_nodes(group.nodes)}{number}\n{_RULE}")
    for text in group.text:
        output.say_line("", text)


def _say_ends(state: CommandState, *, cancelled: bool) -> None:
    """Print on stderr which nodes failed, and after a cancel what is verified."""
    ends: dict[str, list[str]] = {}
    for node, end in state.ends.items():
        if not end.well or end.behind or end.cut:
            ends.setdefault(end.words, []).append(node)
    for words, nodes in ends.items():
        output.print_progress(f"rankdeck: {fold_nodes(nodes)} ({len(nodes)}): {words}")
    for end in state.not_proven().values():
        for one in end.left:
            output.print_progress(f"rankdeck: left on {one.node}: {one.pid} {one.command}")
    if cancelled and not state.not_proven():
        output.print_progress("rankdeck: cancelled; nothing is left on any node")


def command_shape(state: CommandState) -> dict[str, Any]:
    """`sh --json`."""
    return {
        "command": state.command,
        "status": state.status,
        "nodes": [_node_shape(node, state.ends[node], state) for node in state.nodes],
        "groups": [
            {"nodes": list(group.nodes), "ended": group.words, "lines": _programs_lines(group.text)}
            for group in state.groups()
        ],
    }


def _node_shape(node: str, end: CommandEnd, state: CommandState) -> dict[str, Any]:
    lines = state.lines(node)
    return {
        "node": node,
        **value_table(end),
        "left": [{"pid": one.pid, "command": one.command} for one in end.left],
        "status": end.status,
        "out": _programs_lines(text for stream, text in lines if stream == "out"),
        "err": _programs_lines(text for stream, text in lines if stream == "err"),
    }


def _programs_lines(lines: Iterable[str]) -> list[str]:
    """The lines for a program that reads them; colours stay."""
    return [strip_controls(text, colour=True) for text in lines]
