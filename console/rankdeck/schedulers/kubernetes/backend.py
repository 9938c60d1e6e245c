"""The Kubernetes backend: an MPIJob, or an Indexed Job with a headless
Service, watched by a supervisor near kubectl.

The supervisor runs on the control host: the login node, or this machine. Its launcher is the
agent's keeper, which creates the objects, copies every rank's output to the run folder there, and
deletes the job on cancel.
"""

import json
from typing import ClassVar

from rankdeck.backends.base import SchedulerWord, Tell, say_nothing
from rankdeck.backends.plan_options import backend_options, document_plan, planned_ranks_per_node
from rankdeck.backends.ssh import START_LIMIT, SshBackend
from rankdeck.errors import LaunchError, NodeError
from rankdeck.model.capabilities import Capabilities, capabilities_of
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.safe_text import clean_line
from rankdeck.schedulers.kubernetes.keeper import plan_keeper
from rankdeck.schedulers.kubernetes.manifest import job_name, job_objects, manifest_parts
from rankdeck.values import replace, value_table
from rankdeck_agent.wire import NodeFile
from rankdeck_agent.wire.schedulers.job_files import CREATED, KUBERNETES_SETTINGS, MANIFEST

CHECK_LIMIT = 60.0
_MORE_FILES = (
    "raise `nofile` of that host in /etc/security/limits.d, name another `login`, or have ranks "
    "write to a claim too (`kubernetes: {logs: CLAIM}`)"
)


class KubernetesBackend(SshBackend):
    """Starts a keeper on the control host, which is followed and cancelled like any supervisor."""

    name: ClassVar[str] = "kubernetes"
    can: ClassVar[Capabilities] = capabilities_of("kubernetes")

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """One node, the control host, with all ranks; `text` is the manifest to apply by hand."""
        made = job_objects(cluster, spec, job)
        plan = document_plan(cluster, spec, job, manifest_parts(made))
        settings = _settings(cluster, spec, job, plan.world_size)
        asked = json.dumps(made, ensure_ascii=False)
        files = (NodeFile(KUBERNETES_SETTINGS, settings), NodeFile(MANIFEST, asked))
        keeper = plan_keeper(cluster, job, plan.world_size, files, spec.grace)
        return replace(plan, nodes=(keeper,))

    async def launch(self, plan: Plan, tell: Tell = say_nothing) -> Plan:
        """Start a keeper.

        A job that exists already is not touched; if a keeper runs already, nothing is started.
        """
        (keeper,) = plan.nodes
        if all(file.path != CREATED for file in keeper.files):
            return await super().launch(plan, tell)
        stdin = json.dumps(value_table(keeper)).encode()
        try:
            answer = await self._agents.call(keeper.node, ("job", "run"), stdin, limit=START_LIMIT)
        except NodeError as error:
            raise LaunchError("prepare", str(error)) from error
        if answer.row.get("ok") is True or answer.row.get("there") is True:
            return plan
        why = clean_line(answer.row.get("error"), 400) or answer.complaint
        raise LaunchError("prepare", f"{keeper.node}: {why}")

    async def check(self, plan: Plan) -> SchedulerWord:
        """What the API server says of the objects (`dryRun=All`), and what of
        the output the control host could not keep.
        """
        host = plan.nodes[0]
        files = {file.path: json.loads(file.text) for file in host.files}
        asked = {"target": files[KUBERNETES_SETTINGS], "objects": files[MANIFEST]}
        stdin = json.dumps(asked).encode()
        answer = await self._agents.call(host.node, ("kubernetes", "try"), stdin, limit=CHECK_LIMIT)
        if answer.row.get("ok") is True:
            remark = clean_line(answer.row.get("remark"), 400)
            return SchedulerWord(remark=remark, fix=_MORE_FILES if remark else "")
        why = clean_line(answer.row.get("error"), 1000)
        return SchedulerWord(refused=why or f"{host.node} gives no answer")


def _settings(cluster: Cluster, spec: JobSpec, job: str, ranks: int) -> str:
    """The keeper's settings as JSON; see `target.Target` of the agent."""
    chosen = backend_options(cluster, spec, "kubernetes")
    return json.dumps(
        {
            "name": job_name(job),
            "kind": "MPIJob" if spec.launch is Launch.MPI else "Job",
            "namespace": chosen.get("namespace", ""),
            "context": chosen.get("context", ""),
            "wanted": spec.nodes,
            "each": planned_ranks_per_node(cluster, spec),
            "ranks": ranks,
            "grace": spec.grace,
        }
    )
