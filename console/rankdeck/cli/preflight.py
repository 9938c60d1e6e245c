"""`rankdeck preflight` and `doctor`: what would go wrong, before it does."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.opening import job_meant, opened, until_done
from rankdeck.cli.output import UsageError
from rankdeck.cli.shapes import finding_shape
from rankdeck.model.cluster import Cluster
from rankdeck.model.health import Level
from rankdeck.model.job import JobSpec
from rankdeck.preflight.doctor import judge_here, this_machine
from rankdeck.preflight.facts import Finding, patched
from rankdeck.session import Session

_SIGNS = {Level.OK: "ok", Level.UNKNOWN: "?", Level.WARN: "warn", Level.BAD: "BAD"}


def preflight(options: argparse.Namespace, _open_console: object) -> int:
    """Look at a job and its nodes; the code says whether it can start."""
    cluster, file, spec = job_meant(options)
    return until_done(_preflight(cluster, spec, file, options))


async def _preflight(
    cluster: Cluster, spec: JobSpec, file: Path, options: argparse.Namespace
) -> int:
    quiet = options.json or options.fix
    async with opened(cluster) as session:
        findings = await session.preflight(spec, _tell_nobody if quiet else _say)
    ready = passes(findings)
    if options.json:
        shapes = [finding_shape(finding) for finding in findings]
        output.say_object({"job": spec.name, "ready": ready, "findings": shapes})
    elif options.fix:
        output.say(patched(file, findings).rstrip("\n"))
    return output.OK if ready else output.BAD_INPUT


def doctor(options: argparse.Namespace, _open_console: object) -> int:
    """Say what this machine and the nodes lack; the code is 1 where something cannot work."""
    try:
        cluster = choose.cluster(options.cluster)
    except UsageError as error:
        if choose.is_named(options.cluster):
            raise
        output.progress(f"rankdeck: only this machine is looked at: {error}")
        nothing = Cluster(name="", nodes=())
        return _told(nothing, _look_here(nothing, options), options)
    return until_done(_doctor(cluster, options))


def _look_here(cluster: Cluster, options: argparse.Namespace) -> Sequence[Finding]:
    here = judge_here(this_machine(os.environ), cluster)
    for finding in here:
        (_tell_nobody if options.json else _say)(finding)
    return here


async def _doctor(cluster: Cluster, options: argparse.Namespace) -> int:
    here = _look_here(cluster, options)
    async with opened(cluster) as session:
        found = await session.doctor(_tell_nobody if options.json else _say)
    return _told(cluster, (*here, *found), options)


def _told(cluster: Cluster, findings: Sequence[Finding], options: argparse.Namespace) -> int:
    if options.json:
        shapes = [finding_shape(finding) for finding in findings]
        output.say_object({"cluster": cluster.name, "findings": shapes})
    return output.OK if passes(findings) else output.TROUBLE


def _tell_nobody(_: Finding) -> None:
    pass


def _say(finding: Finding) -> None:
    output.say(words(finding))


async def looked(session: Session, spec: JobSpec) -> tuple[Finding, ...]:
    """Preflight before a launch: what is not well goes to stderr as it comes."""

    def tell(finding: Finding) -> None:
        if finding.level is not Level.OK:
            output.progress(words(finding))

    return await session.preflight(spec, tell)


def passes(findings: Sequence[Finding]) -> bool:
    """Whether nothing that was found would make the job fail."""
    return all(finding.level is not Level.BAD for finding in findings)


def words(finding: Finding) -> str:
    """One finding as lines for people."""
    where = f"{finding.node}: " if finding.node else ""
    line = f"{_SIGNS[finding.level]:4} {finding.check:9} {where}{finding.text}"
    changes = "; ".join(
        f"{change.key}: {'(take out)' if change.value is None else change.value}"
        for change in finding.patch
    )
    fix = f"{'':14} fix: {finding.fix}" if finding.fix else ""
    patch = f"{'':14} in the job file: {changes}" if changes else ""
    return "\n".join(filter(None, (line, fix, patch)))
