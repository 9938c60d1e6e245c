"""`rankdeck inspect`: where every rank of a job is, and who is elsewhere."""

import argparse
from dataclasses import asdict

from rankdeck.cli import choose, codes, output
from rankdeck.cli.opening import opened, until_done
from rankdeck.model.cluster import Cluster
from rankdeck.model.nodeset import fold_ranks
from rankdeck.rules.lens import Group, Inspection, Look


def inspect(options: argparse.Namespace, _open_console: object) -> int:
    """Look at every rank now; trouble where a node could not be looked at."""
    return until_done(_inspect(choose.cluster(options.cluster), options))


async def _inspect(cluster: Cluster, options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        await session.following.caught_up()
        job = session.jobs.find(options.job)
        if job.state.final and not options.json:
            output.say(
                f"{job.id} has ended ({job.state}): no rank runs any more; `rankdeck logs {job.id}` has what they wrote"
            )
            return codes.OK
        output.progress(f"{job.id}: looking at {len(job.ranks)} ranks …")
        found = await session.inspect(job.id)
    if options.json:
        output.say_object(shape(found))
    else:
        output.say(text(found))
    return codes.TROUBLE if found.missing else codes.OK


def shape(found: Inspection) -> dict[str, object]:
    """`inspect --json`."""
    return {
        "job": found.job,
        "at": found.at,
        "answer": found.answer,
        "odd": list(found.odd),
        "groups": [_group_shape(one) for one in found.groups],
        "missing": dict(found.missing),
        "notes": list(found.notes),
        "ras": list(found.ras),
    }


def _group_shape(one: Group) -> dict[str, object]:
    return {
        "place": one.place,
        "waiting": one.waiting,
        "ranks": list(one.ranks),
        "stack": [list(frame) for frame in one.stack],
        "looks": [asdict(look) for look in one.looks],
    }


def text(found: Inspection) -> str:
    """The answer, then each place with its ranks and stack."""
    lines = [found.answer, ""]
    for one in found.groups:
        mark = "! " if set(one.ranks) <= set(found.odd) else "  "
        lines.append(f"{mark}{one.place}: ranks {fold_ranks(one.ranks)}")
        lines += [f"      {name}  {file}:{line}" for name, file, line in one.stack[:12]]
        lines += [f"      {_line(look)}" for look in one.looks[:6]]
    lines += [f"{node}: not looked at: {why}" for node, why in found.missing.items()]
    return "\n".join([*lines, *found.notes, *found.ras])


def _line(look: Look) -> str:
    silent = "" if look.silent is None else f", silent {look.silent:.0f} s"
    waits = f" in {look.wchan}" if look.wchan not in ("", "0") else ""
    cpu = "" if look.cpu is None else f", CPU {look.cpu:.0%}"
    return (
        f"rank {look.rank} {look.node} pid {look.pid} {look.state}{waits}{cpu}{silent}  {look.last}"
    )
