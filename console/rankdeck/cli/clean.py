"""`rankdeck clean`: what ended jobs and older consoles left on nodes and
on this machine; asks, then removes it.
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rankdeck.cli import choose, output
from rankdeck.cli.opening import ask_agreement, open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.cli.shapes import clean_shape
from rankdeck.model.cluster import LOCAL, Cluster
from rankdeck.model.leftovers import (
    DATABASES,
    LOCKS,
    Cleaned,
    CleanOrder,
    CleanReport,
    DoubtfulClock,
    LeftoverGroup,
    total_leftovers,
)
from rankdeck.remote.shell import THIS_MACHINE, control_host
from rankdeck.values import replace
from rankdeck_agent.rules.units import write_duration, write_size
from rankdeck_agent.wire.leftovers import Ground, LeftoverKind

HERE = "this machine"
_MOST_DAYS = 36500.0
_SIZE = re.compile(r"(\d{1,12})([KMGT]?)i?B?", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_THINGS: Mapping[str, tuple[str, str]] = {
    LeftoverKind.RUN: ("run folder", "run folders"),
    LeftoverKind.LINKS: ("folder of links", "folders of links"),
    LeftoverKind.AGENT: ("agent", "agents"),
    LeftoverKind.ASIDE: ("half-removed run folder", "half-removed run folders"),
    LOCKS: ("lock of a launch", "locks of launches"),
    DATABASES: ("database that was set aside", "databases that were set aside"),
}
"""Kind -> its words for one, and for several."""
_NAMED: Mapping[Ground, str] = {
    Ground.OPEN: "the end of the job is not recorded; `rankdeck cancel` asks its nodes and records it",
    Ground.STARTING: "the job is being started, or its start was interrupted",
    Ground.FOREIGN: "of another user",
    Ground.UNKNOWN: "not made by Rankdeck, or not readable",
}
"""Reasons to stay that nobody expects -> their words; these things are named."""


def run_clean(options: argparse.Namespace, _open_console: object) -> int:
    """Say what goes, ask, remove it; exit code 1 if a machine could not be
    asked or something could not be removed.
    """
    if not 0 <= options.days <= _MOST_DAYS:
        raise UsageError(f"--days: from 0 to {_MOST_DAYS:.0f}")
    cluster = choose.choose_cluster(options.cluster)
    order = CleanOrder(dry=True, days=options.days, size=_bytes(options.size))
    return until_done(_clean(cluster, _machines(cluster, options.nodes), order, options))


def _bytes(text: str) -> int | None:
    match = _SIZE.fullmatch(text.strip())
    if text and not match:
        raise UsageError(f"--size {text}: write a number and a unit, e.g. 500M or 10G")
    return int(match[1]) << 10 * _POWERS[match[2]] if match else None


def _machines(cluster: Cluster, text: str) -> tuple[str, ...]:
    """The machines on which jobs leave something: with a scheduler the
    login node, unless others are named.
    """
    if cluster.can.needs_login or (text and cluster.can.allows_login):
        # What is here is cleaned as this machine.
        return tuple(
            name for name in choose.expand_node_option(cluster, text) if not cluster.node(name).here
        )
    if text:
        raise UsageError(
            f"--nodes: nodes of a {cluster.can.scheduler} cluster are not reached over SSH"
        )
    login = cluster.options.get("login", "") or control_host(cluster)
    return () if login in (THIS_MACHINE, LOCAL) else (login,)


async def _clean(
    cluster: Cluster, nodes: Sequence[str], order: CleanOrder, options: argparse.Namespace
) -> int:
    async with open_for_command(cluster) as session:
        output.print_progress(f"asking {len(nodes)} nodes and this machine …")
        report = await session.nodes.clean_up(nodes, order)
        count, size_ = total_leftovers(report.machines, dry=True)
        if count and not options.dry_run:
            await _agree(report, _amount(count, size_), options)
            order = replace(order, dry=False)
            report = await session.nodes.clean_up(nodes, order)
    if options.json:
        output.say_object(clean_shape(cluster.name, order, report))
    else:
        _say(report, dry=order.dry)
    return output.OK if report.well else output.TROUBLE


async def _agree(report: CleanReport, amount: str, options: argparse.Namespace) -> None:
    """Have the operator agree; raises UsageError otherwise."""
    if options.yes:
        return
    for name, machine in _by_name(report):
        if machine.going:
            output.print_progress(f"{name}: {_list(machine.going)}")
    if not await ask_agreement(f"Remove {amount}?"):
        raise UsageError(
            f"nothing was removed: {amount} would go (`--yes` removes without a question)"
        )


def _say(report: CleanReport, *, dry: bool) -> None:
    rows = [
        (
            name,
            _list(one.going) or "nothing",
            write_size(sum(group.bytes for group in one.going)),
            _stays(one),
        )
        for name, one in _by_name(report)
    ]
    output.say_table(("MACHINE", "WOULD GO" if dry else "REMOVED", "SIZE", "STAYS"), rows)
    amount = _amount(*total_leftovers(report.machines, dry=dry))
    output.print_text(f"{amount} would be removed" if dry else f"{amount} removed")
    for name, machine in _by_name(report):
        for line in _remarks(machine):
            output.print_progress(f"{name}: {line}")
    for node, why in report.missing.items():
        output.print_progress(f"rankdeck: {node}: not asked what lies there: {why}")


def _by_name(report: CleanReport) -> Iterator[tuple[str, Cleaned]]:
    yield from report.nodes.items()
    yield HERE, report.here


def _amount(count: int, size_: int) -> str:
    return f"{count} {'thing' if count == 1 else 'things'} ({write_size(size_)})"


def _list(groups: Iterable[LeftoverGroup]) -> str:
    """`44 run folders, 2 agents`."""
    counts: dict[str, int] = {}
    for one in groups:
        counts[one.kind] = counts.get(one.kind, 0) + one.count
    return ", ".join(f"{count} {_THINGS[kind][count != 1]}" for kind, count in counts.items())


def _stays(machine: Cleaned) -> str:
    staying = [one for one in machine.groups if not one.goes]
    amount = write_size(sum(one.bytes for one in staying))
    return f"{_list(staying)}: {amount}" if staying else "nothing"


def _remarks(machine: Cleaned) -> Iterator[str]:
    """What is odd there, and what could not be removed."""
    if machine.doubt:
        yield _about_clock(machine.doubt)
    for one in machine.groups:
        if one.ground in _NAMED:
            names = ", ".join(one.names)
            yield f"kept: {_list([one])} ({names}): {_NAMED[one.ground]}"
    for name, why in machine.failed.items():
        yield f"{name} could not be removed: {why}"


def _about_clock(doubt: DoubtfulClock) -> str:
    if doubt.newest:
        what = f"{doubt.newest} is {write_duration(doubt.ahead)} newer than its clock"
    else:
        side = "ahead of" if doubt.console > 0 else "behind"
        what = f"its clock is {write_duration(abs(doubt.console))} {side} that of this machine"
    return f"{what}: nothing is removed for its age there"
