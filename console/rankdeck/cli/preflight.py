"""`rankdeck preflight` and `doctor`: what would go wrong with a job, and what the nodes lack."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.opening import job_meant, open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.cli.shapes import finding_shape
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec
from rankdeck.preflight.doctor import judge_here, this_machine
from rankdeck.preflight.findings import Finding, tell_nobody
from rankdeck.preflight.job_file_patch import patch_job_file
from rankdeck.session import Session
from rankdeck_agent.rules.levels import Level

_SIGNS = {Level.OK: "ok", Level.UNKNOWN: "?", Level.WARN: "warn", Level.BAD: "BAD"}


def run_preflight(options: argparse.Namespace, _open_console: object) -> int:
    """Check a job and its nodes; the exit code says whether the job can start."""
    cluster, file, spec = job_meant(options)
    return until_done(_preflight(cluster, spec, file, options))


async def _preflight(
    cluster: Cluster, spec: JobSpec, file: Path, options: argparse.Namespace
) -> int:
    quiet = options.json or options.fix
    async with open_for_command(cluster) as session:
        findings = await session.control.preflight(spec, tell_nobody if quiet else _say)
    ready = all_pass(findings)
    if options.json:
        shapes = [finding_shape(finding) for finding in findings]
        output.say_object({"job": spec.name, "ready": ready, "findings": shapes})
    elif options.fix:
        output.print_text(patch_job_file(file, findings).rstrip("\n"))
    return output.OK if ready else output.BAD_INPUT


def run_doctor(options: argparse.Namespace, _open_console: object) -> int:
    """Print what this machine and the nodes lack; the exit code is 1 if something cannot work."""
    try:
        cluster = choose.choose_cluster(options.cluster)
    except UsageError as error:
        if choose.is_named(options.cluster):
            raise
        output.print_progress(f"rankdeck: only this machine is looked at: {error}")
        nothing = Cluster(name="", nodes=())
        return _print_findings(nothing, _look_here(nothing, options), options)
    return until_done(_doctor(cluster, options))


def _look_here(cluster: Cluster, options: argparse.Namespace) -> Sequence[Finding]:
    here = judge_here(this_machine(os.environ), cluster)
    for finding in here:
        (tell_nobody if options.json else _say)(finding)
    return here


async def _doctor(cluster: Cluster, options: argparse.Namespace) -> int:
    here = _look_here(cluster, options)
    async with open_for_command(cluster) as session:
        found = await session.nodes.examine(tell_nobody if options.json else _say)
    return _print_findings(cluster, (*here, *found), options)


def _print_findings(
    cluster: Cluster, findings: Sequence[Finding], options: argparse.Namespace
) -> int:
    if options.json:
        shapes = [finding_shape(finding) for finding in findings]
        output.say_object({"cluster": cluster.name, "findings": shapes})
    return output.OK if all_pass(findings) else output.TROUBLE


def _say(finding: Finding) -> None:
    output.print_text(finding_words(finding))


async def look_before_launch(session: Session, spec: JobSpec) -> tuple[Finding, ...]:
    """Run a preflight before a launch; problems are printed on stderr as they are found."""

    def tell(finding: Finding) -> None:
        if finding.level is not Level.OK:
            output.print_progress(finding_words(finding))

    return await session.control.preflight(spec, tell)


def all_pass(findings: Sequence[Finding]) -> bool:
    """Whether none of the findings would make the job fail."""
    return all(finding.level is not Level.BAD for finding in findings)


def finding_words(finding: Finding) -> str:
    """A finding as text for people."""
    where = f"{finding.node}: " if finding.node else ""
    line = f"{_SIGNS[finding.level]:4} {finding.check:9} {where}{finding.text}"
    changes = "; ".join(
        f"{change.key}: {'(take out)' if change.value is None else change.value}"
        for change in finding.patch
    )
    fix = f"{'':14} fix: {finding.fix}" if finding.fix else ""
    patch = f"{'':14} in the job file: {changes}" if changes else ""
    return "\n".join(filter(None, (line, fix, patch)))
