"""Kubernetes: an MPIJob, or an Indexed Job with a headless Service, kept by a supervisor where kubectl is.

The supervisor is on the control host: the login node, or this machine. Its launcher is the agent's keeper, which
creates the objects, follows every rank's output to the run folder there, and deletes the job on cancel.
"""

import json
from dataclasses import replace
from typing import ClassVar

from rankdeck.backends.batch import document_plan, options, ranks_per_node
from rankdeck.backends.kubernetes_manifest import job_name, manifest, objects
from rankdeck.backends.ssh import SshBackend
from rankdeck.model.border import last_table
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import JobSpec, Launch, Plan
from rankdeck.model.text import clean
from rankdeck.remote.local import THIS_MACHINE
from rankdeck_agent.wire import AGENT_TOKEN, NodeFile, NodePlan, ProcessPlan

KEEPER = "keeper"
SETTINGS, MANIFEST = "kubernetes.json", "manifest.json"
"""Files that the keeper reads."""
CHECK_LIMIT = 60.0


class KubernetesBackend(SshBackend):
    """Has a keeper on the control host, which is followed and cancelled like any supervisor."""

    name: ClassVar[str] = "kubernetes"
    chooses_nodes: ClassVar[bool] = True

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """One node, the control host, with all ranks; `text` is the manifest to apply by hand."""
        names = [f"{job}-node{number}" for number in range(spec.nodes)]
        plan = document_plan(cluster, spec, job, names, manifest(cluster, spec, job))
        host = cluster.options.get("login", "") or THIS_MACHINE
        settings = _settings(cluster, spec, job, plan.world_size)
        made = json.dumps(objects(cluster, spec, job), ensure_ascii=False)
        keeper = NodePlan(
            job=job,
            node=host,
            ranks=tuple(range(plan.world_size)),
            processes=(ProcessPlan(KEEPER, (AGENT_TOKEN, "kubernetes", "keep", job, host)),),
            files=(NodeFile(SETTINGS, settings), NodeFile(MANIFEST, made)),
            env=cluster.environment,
            tty=False,
            grace=spec.grace,
            elsewhere=True,
        )
        return replace(plan, nodes=(keeper,))

    async def check(self, plan: Plan) -> str:
        """What the API server says of the objects (`dryRun=All`)."""
        host = plan.nodes[0]
        files = {file.path: json.loads(file.text) for file in host.files}
        asked = {"target": files[SETTINGS], "objects": files[MANIFEST]}
        stdin = json.dumps(asked).encode()
        result = await self._agent(host.node, ("kubernetes", "try"), stdin, CHECK_LIMIT)
        answer = last_table(result.out)
        if answer.get("ok") is True:
            return ""
        return clean(answer.get("error"), 1000) or f"{host.node} gives no answer"


def _settings(cluster: Cluster, spec: JobSpec, job: str, ranks: int) -> str:
    """What the keeper has to know beside the objects; see `target.Target` of the agent."""
    chosen = options(cluster, spec, "kubernetes")
    return json.dumps(
        {
            "name": job_name(job),
            "kind": "MPIJob" if spec.launch is Launch.MPI else "Job",
            "namespace": chosen.get("namespace", ""),
            "context": chosen.get("context", ""),
            "wanted": spec.nodes,
            "each": ranks_per_node(cluster, spec),
            "ranks": ranks,
            "grace": spec.grace,
        }
    )
