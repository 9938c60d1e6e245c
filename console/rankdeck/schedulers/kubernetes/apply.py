"""`rankdeck run` on a manifest of Kubernetes: say that it is one, ask,
apply it with kubectl, and follow its job.
"""

import argparse
from collections.abc import Awaitable, Callable

from rankdeck.cli import output
from rankdeck.cli.opening import ask_agreement, open_for_command
from rankdeck.cli.output import UsageError
from rankdeck.errors import UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.schedulers.kubernetes.queue import api_server_of
from rankdeck.schedulers.kubernetes.user_manifests import Manifest, ManifestPart
from rankdeck.schedulers.kubernetes.values import FOLLOWED_KINDS
from rankdeck.session import Session
from rankdeck.values import replace

Show = Callable[[Session, str], Awaitable[int]]
"""Prints what a job writes until it ends; returns the exit code."""
_NO_EFFECT = {
    "export": "--export",
    "on": "--on",
    "set": "--set",
    "server": "--server",
}


async def run_manifest(
    cluster: Cluster, manifest: Manifest, options: argparse.Namespace, show: Show
) -> int:
    """Apply a manifest if the user agrees, and follow its first job."""
    _check(cluster, manifest, options)
    jobs = followed_parts(manifest)
    cluster = _in_namespace(cluster, manifest, jobs)
    async with open_for_command(cluster) as session:
        if options.dry_run:
            for line in await api_server_of(session.queue).apply_manifest(manifest, dry=True):
                output.print_text(f"{line} would be applied")
            return output.OK
        if not options.yes and not await ask_agreement(_question(cluster, manifest, jobs)):
            raise UsageError(
                f"{manifest.file} is a manifest of Kubernetes ({manifest.words}), nothing was applied:"
                " `rankdeck run --yes` applies and follows it, `--dry-run` has the server check it"
            )
        made = await api_server_of(session.queue).apply_manifest(manifest, dry=False)
        for name in made:
            output.print_progress(f"{name}: applied")
        if not jobs:
            output.print_progress(
                f"{manifest.file}: no job in it that Rankdeck follows ({manifest.words});"
                " `rankdeck jobs` lists pods that hold GPUs"
            )
            return output.OK
        place = f"{jobs[0].kind.lower()}/{made[manifest.parts.index(jobs[0])].rpartition('/')[2]}"
        for other in jobs[1:]:
            output.print_progress(
                f"{other.words} is not shown here: `rankdeck logs` and `attach` do it"
            )
        return await _follow(session, place, options, show)


async def _follow(session: Session, place: str, options: argparse.Namespace, show: Show) -> int:
    silent = await session.control.find_running()
    for node, why in silent.items():
        raise UnknownJobError(f"{place} was applied, and {node} cannot list it: {why}")
    job = await session.control.attach(place)
    output.print_progress(
        f"{job}: followed; Ctrl-C leaves it running, `rankdeck cancel {job}` ends it"
    )
    if options.detach:
        output.print_text(job)
        return output.OK
    return await show(session, job)


def followed_parts(manifest: Manifest) -> tuple[ManifestPart, ...]:
    """The objects of a manifest that are jobs which Rankdeck can follow."""
    return tuple(
        part
        for part in manifest.parts
        if FOLLOWED_KINDS.get(part.kind, "-") == part.version.partition("/")[0]
    )


def _check(cluster: Cluster, manifest: Manifest, options: argparse.Namespace) -> None:
    """Raise UsageError if the cluster is not on Kubernetes, or for
    options that are of job files only.
    """
    if not cluster.can.states_rights:
        raise UsageError(
            f"{manifest.file} is a manifest of Kubernetes ({manifest.words}), and cluster `{cluster.name}` starts"
            f" jobs by {cluster.backend}: name one with `backend: kubernetes` (-c FILE)"
        )
    given = [word for key, word in _NO_EFFECT.items() if getattr(options, key)]
    if given:
        raise UsageError(
            f"{manifest.file} is a manifest of Kubernetes: {', '.join(given)} is for job files only"
        )


def _in_namespace(cluster: Cluster, manifest: Manifest, jobs: tuple[ManifestPart, ...]) -> Cluster:
    """The cluster with the namespace that the job in the manifest names."""
    names = [part.namespace for part in jobs or manifest.parts if part.namespace]
    if not names:
        return cluster
    return replace(cluster, options={**cluster.options, "namespace": names[0]})


def _question(cluster: Cluster, manifest: Manifest, jobs: tuple[ManifestPart, ...]) -> str:
    where = cluster.options.get("namespace") or "kubectl's current namespace"
    then = f" and follow {jobs[0].words}" if jobs else ""
    return (
        f"{manifest.file} is a manifest of Kubernetes: {manifest.words}. Apply it in {where}{then}?"
    )
