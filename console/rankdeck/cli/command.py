"""`rankdeck sh` and `cp`: a command or a file for many nodes."""

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.images import CopyProgress, told
from rankdeck.cli.opening import Interrupts, opened, until_done
from rankdeck.cli.output import UsageError
from rankdeck.model.cluster import Cluster
from rankdeck.model.command import CommandEnd, OutputGroup
from rankdeck.model.nodeset import fold
from rankdeck.remote.command import CommandRun
from rankdeck.session import Session
from rankdeck.state.command import CommandState

DAY = 86400.0
_PERIOD = 0.2
_TELL = 5.0
"""Seconds between two words about who is waited for."""


def sh(options: argparse.Namespace, _open_console: object) -> int:
    """Run it and show its output; the exit status is the largest of all nodes."""
    if not 0 < options.limit <= DAY:
        raise UsageError("--limit: seconds, more than 0 and at most a day")
    if not 0 < options.fan_out <= 1000:
        raise UsageError("--fan-out: nodes, from 1 to 1000")
    cluster = choose.cluster(options.cluster)
    nodes = choose.nodes(cluster, options.nodes)
    return until_done(_sh(cluster, nodes, options))


async def _sh(cluster: Cluster, nodes: Sequence[str], options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        command = " ".join(options.words)
        run = session.command(nodes, command, options.limit, options.fan_out)
        with Interrupts(terminate=True) as interrupts:
            cancelled = await _until_over(run, interrupts, options)
    state = run.state
    if options.json:
        output.say_object(shape(state))
    elif not options.lines:
        for group in state.groups():
            _say_group(group)
    _say_ends(state, cancelled=cancelled)
    return output.INTERRUPTED if cancelled else state.status


async def _until_over(run: CommandRun, interrupts: Interrupts, options: argparse.Namespace) -> bool:
    """Follow it to its end; whether somebody cancelled it."""
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
    output.progress("rankdeck: cancelling, and looking at what is left …")
    run.cancel()


class _Waiting:
    """Says now and then who has not ended."""

    def __init__(self, state: CommandState) -> None:
        self._state, self._next = state, time.monotonic() + _TELL

    def say(self) -> None:
        """If it is time."""
        waiting = self._state.waited_for
        if waiting and time.monotonic() >= self._next:
            self._next = time.monotonic() + _TELL
            done = len(self._state.nodes) - len(waiting)
            output.progress(
                f"{done} of {len(self._state.nodes)} nodes are done; waiting for {fold(waiting)}"
            )


class _Lines:
    """Prints each line once, behind the name of its node."""

    def __init__(self, state: CommandState) -> None:
        self._state = state
        self._printed = dict.fromkeys(state.nodes, 0)
        self._seen = -1

    def print(self) -> None:
        """What is new since the last time."""
        if self._state.changes == self._seen:
            return
        self._seen = self._state.changes
        for node, before in self._printed.items():
            lines = self._state.lines(node)
            for _, text in lines[before:]:
                output.say_line(f"{node}: ", text)
            self._printed[node] = len(lines)
        output.flush()


_RULE = "-" * 15


def _say_group(group: OutputGroup) -> None:
    """As `clush -b` prints it."""
    if not group.lines:
        return
    number = f" ({len(group.nodes)})" if len(group.nodes) > 1 else ""
    output.say(f"{_RULE}\n{fold(group.nodes)}{number}\n{_RULE}")
    for text in group.text:
        output.say_line("", text)


def _say_ends(state: CommandState, *, cancelled: bool) -> None:
    """On stderr: who did not end well, and after a cancel what is proven."""
    ends: dict[str, list[str]] = {}
    for node, end in state.ends.items():
        if not end.well or end.behind or end.cut:
            ends.setdefault(end.words, []).append(node)
    for words, nodes in ends.items():
        output.progress(f"rankdeck: {fold(nodes)} ({len(nodes)}): {words}")
    for end in state.not_proven().values():
        for one in end.left:
            output.progress(f"rankdeck: left on {one.node}: {one.pid} {one.command}")
    if cancelled and not state.not_proven():
        output.progress("rankdeck: cancelled; nothing of it is left on any node")


def shape(state: CommandState) -> dict[str, Any]:
    """`sh --json`."""
    return {
        "command": state.command,
        "status": state.status,
        "nodes": [_node_shape(node, state.ends[node], state) for node in state.nodes],
        "groups": [
            {"nodes": list(group.nodes), "ended": group.words, "lines": list(group.text)}
            for group in state.groups()
        ],
    }


def _node_shape(node: str, end: CommandEnd, state: CommandState) -> dict[str, Any]:
    lines = state.lines(node)
    return {
        "node": node,
        **asdict(end),
        "left": [{"pid": one.pid, "command": one.command} for one in end.left],
        "status": end.status,
        "out": [text for stream, text in lines if stream == "out"],
        "err": [text for stream, text in lines if stream == "err"],
    }


def cp(options: argparse.Namespace, _open_console: object) -> int:
    """Copy the file; trouble where a node has not got it."""
    cluster = choose.cluster(options.cluster)
    file = Path(options.file).expanduser()
    if not file.is_file():
        raise UsageError(f"{file}: no such file; folders are not copied")
    text, _, path = options.to.partition(":")
    return until_done(_cp(cluster, file, choose.nodes(cluster, text), path, options))


async def _cp(
    cluster: Cluster, file: Path, nodes: Sequence[str], path: str, options: argparse.Namespace
) -> int:
    async with opened(cluster) as session:
        target = f"{path}{file.name}" if path.endswith("/") else path
        place, failed = await _pushed(session, file, target, nodes, replace=options.replace)
    shape = {"file": place, "size": file.stat().st_size}  # noqa: ASYNC240
    return told(shape, nodes, failed, options, place)


async def _pushed(
    session: Session, file: Path, target: str, nodes: Sequence[str], *, replace: bool
) -> tuple[str, dict[str, Any]]:
    place, failed = await session.images.push(
        file, target, nodes, CopyProgress(file.name), overwrite=replace
    )
    return place.path, dict(failed)
