"""Kubernetes jobs that Rankdeck did not start, or another console did: how they are found
again, and the plan to follow one of them.
"""

import json

from rankdeck.model.cluster import Cluster
from rankdeck.model.field_checks import is_integer, is_number
from rankdeck.model.job_spec import Abort
from rankdeck.model.plan import Plan
from rankdeck.model.safe_text import clean_line
from rankdeck.schedulers.kubernetes.keeper import plan_keeper
from rankdeck.schedulers.kubernetes.values import KubernetesJob
from rankdeck_agent.wire import NodeFile
from rankdeck_agent.wire.schedulers.job_files import CREATED, KUBERNETES_SETTINGS

_MOST_EACH, _LONGEST_GRACE = 4096, 86400.0
_GRACE = 30.0
"""Seconds that Kubernetes gives pods by default."""


def cannot_follow(found: KubernetesJob) -> str:
    """Why Rankdeck does not follow it, in a sentence; "" if it can."""
    if found.is_followed:
        return ""
    kubectl = f"kubectl -n {found.namespace} get {found.place}"
    return f"{found.place} {found.held_words}, and Rankdeck follows no {found.kind}: `{kubectl}`"


def kubernetes_attach_plan(cluster: Cluster, found: KubernetesJob) -> Plan:
    """The plan to follow an existing job: its keeper creates nothing and
    reads every pod's output from the start.
    """
    note = found.spec or {}
    job = found.job_id
    each = max(found.ranks // found.pods, 1)
    if found.ours and is_integer(note.get("ranks_per_node")):
        each = min(max(note["ranks_per_node"], 1), _MOST_EACH)
    count = found.pods * each
    seconds = note.get("grace")
    grace = min(float(seconds), _LONGEST_GRACE) if is_number(seconds) and seconds >= 0 else _GRACE
    untagged = found.kind == "MPIJob" and not found.ours
    settings = {
        "name": found.name,
        "kind": found.kind,
        "namespace": found.namespace,
        "context": cluster.options.get("context", ""),
        "wanted": found.pods,
        "each": each,
        "ranks": count,
        "form": "openmpi" if untagged else "rankdeck",
        "ours": bool(found.ours),
        "parts": found.parts,
        "grace": grace,
    }
    # The second file marks that the objects exist already.
    files = (NodeFile(KUBERNETES_SETTINGS, json.dumps(settings)), NodeFile(CREATED, ""))
    keeper = plan_keeper(cluster, job, count, files, grace)
    return Plan(
        job=job,
        name=clean_line(note.get("name"), 63) or found.name,
        cluster=cluster.name,
        backend=cluster.backend,
        nodes=(keeper,),
        grace=grace,
        abort=Abort(enabled=False),
        owner="" if found.ours else found.whose,
        untagged=untagged,
    )
