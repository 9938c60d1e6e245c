"""Kubernetes: prints an MPIJob, or an Indexed Job with a headless Service."""

from collections.abc import Mapping
from typing import ClassVar

from rankdeck.backends.base import Follower
from rankdeck.backends.batch import document_plan
from rankdeck.backends.kubernetes_manifest import job_name, manifest
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import CancelReport, JobSpec, Launch, Plan


class KubernetesBackend:
    """Writes the manifest; the user applies it."""

    name: ClassVar[str] = "kubernetes"
    chooses_nodes: ClassVar[bool] = True

    def __init__(self, *_links: object) -> None:
        """Needs no connection and no agent; the session offers them to every backend."""

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """The manifest as the plan's text."""
        name = job_name(job)
        middle = "worker-" if spec.launch is Launch.MPI else ""
        pods = [f"{name}-{middle}{i}" for i in range(spec.nodes)]
        return document_plan(cluster, spec, job, pods, manifest(cluster, spec, job))

    async def launch(self, plan: Plan) -> Plan:
        raise _not_yet("launching")

    def follow(self, plan: Plan, seen: Mapping[str, int]) -> Follower:
        raise _not_yet("following")

    async def cancel(self, plan: Plan, grace: float, *, by: str = "user") -> CancelReport:
        raise _not_yet("cancelling")


def _not_yet(what: str) -> LaunchError:
    """Why a job cannot be started or followed from here, and what can be done instead."""
    return LaunchError(
        "start",
        f"{what} kubernetes jobs is not yet possible from Rankdeck; "
        "`run --dry-run` prints the script to submit by hand",
    )
