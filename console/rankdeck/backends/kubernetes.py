"""The Kubernetes backend: an MPIJob, or an Indexed Job with a headless
Service, watched by a supervisor near kubectl.

The supervisor runs on the control host: the login node, or this machine. Its launcher is the
agent's keeper, which creates the objects, copies every rank's output to the run folder there, and
deletes the job on cancel.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from rankdeck.backends.base import SchedulerWord, Tell, say_nothing
from rankdeck.backends.kubernetes_manifest import job_name, job_objects, manifest_parts
from rankdeck.backends.plan_options import backend_options, document_plan, planned_ranks_per_node
from rankdeck.backends.ssh import START_LIMIT, SshBackend
from rankdeck.errors import LaunchError, NodeError, UnknownJobError
from rankdeck.model.cluster import Capabilities, Cluster, capabilities_of
from rankdeck.model.field_checks import is_integer, is_number
from rankdeck.model.job import Abort, Job, JobSpec, Launch, Plan
from rankdeck.model.json_tables import read_table
from rankdeck.model.safe_text import clean_line
from rankdeck.model.schedulers import KubernetesJob, SlurmJob
from rankdeck.remote.shell import control_host
from rankdeck_agent.wire import AGENT_TOKEN, NodeFile, NodePlan, ProcessPlan

THE_JOB = "the job"
"""Name of the keeper's process in sentences about what ended if no rank did."""
_MOST_EACH, _LONGEST_GRACE = 4096, 86400.0
SETTINGS, MANIFEST, CREATED = "kubernetes.json", "manifest.json", "kubernetes.created"
"""Files that the keeper reads: its settings, the objects to create,
and a mark that they exist already.
"""
CHECK_LIMIT = 60.0


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
        files = (NodeFile(SETTINGS, settings), NodeFile(MANIFEST, asked))
        keeper = _keeper(cluster, job, plan.world_size, files, spec.grace)
        return replace(plan, nodes=(keeper,))

    async def launch(self, plan: Plan, tell: Tell = say_nothing) -> Plan:
        """Start a keeper.

        A job that exists already is not touched; if a keeper runs already, nothing is started.
        """
        (keeper,) = plan.nodes
        if all(file.path != CREATED for file in keeper.files):
            return await super().launch(plan, tell)
        stdin = json.dumps(asdict(keeper)).encode()
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
        asked = {"target": files[SETTINGS], "objects": files[MANIFEST]}
        stdin = json.dumps(asked).encode()
        answer = await self._agents.call(host.node, ("kubernetes", "try"), stdin, limit=CHECK_LIMIT)
        if answer.row.get("ok") is True:
            return SchedulerWord(remark=clean_line(answer.row.get("remark"), 400))
        why = clean_line(answer.row.get("error"), 1000)
        return SchedulerWord(refused=why or f"{host.node} gives no answer")


def _keeper(
    cluster: Cluster, job: str, ranks: int, files: tuple[NodeFile, ...], grace: float
) -> NodePlan:
    """The plan of the control host: a supervisor whose launcher is the
    keeper, which ends when the job ends.
    """
    host = control_host(cluster)
    return NodePlan(
        job=job,
        node=host,
        ranks=tuple(range(ranks)),
        processes=(ProcessPlan(THE_JOB, (AGENT_TOKEN, "kubernetes", "keep", job, host)),),
        files=files,
        env=cluster.environment,
        tty=False,
        grace=grace,
        elsewhere=True,
    )


_GRACE = 30.0
"""Seconds that Kubernetes gives pods by default."""


def attach_id(found: KubernetesJob) -> str:
    """Rankdeck's id for a job of others, the same in every console: name,
    time of creation and a part of its uid.
    """
    made = time.strftime("%Y%m%d-%H%M%S", time.gmtime(found.created))
    name = re.sub(r"[^A-Za-z0-9._-]", "-", found.name)[:60]
    return f"{name}-{made}-{found.uid.replace('-', '')[:4].ljust(4, '0')}"


OtherJob = KubernetesJob | SlurmJob
"""A job that a scheduler lists and that this console does not follow."""


def find_listed(others: Sequence[OtherJob], text: str) -> OtherJob:
    """The one listed job with this name, place or id; raises
    UnknownJobError if there is none or more than one.
    """
    found = [one for one in others if text in _names(one)]
    if not found:
        raise UnknownJobError(f"no job `{text[:60]}`")
    if len(found) > 1:
        places = ", ".join(one.place for one in found[:5])
        raise UnknownJobError(f"`{text[:60]}` is more than one job: {places}")
    return found[0]


def find_followed(listed: Sequence[KubernetesJob], known: Sequence[Job], text: str) -> str:
    """The id of the job with this place (`job/pi`, a Slurm number) that is followed already,
    also if its server no longer has it; else "".

    `known`: the jobs of this console, newest first.
    """
    ids = [job.id for job in known]
    there = [one for one in listed if text in _names(one)]
    if there:
        found = [one.ours or attach_id(one) for one in there]
        return found[0] if len(found) == 1 and found[0] in ids else ""
    numbers = ((job, job.slurm.id if job.slurm else place_of(job.plan)) for job in known)
    return next((job.id for job, place in numbers if place == text), "")


def place_of(plan: Plan) -> str:
    """`mpijob/pi` for a job on Kubernetes; "" for others."""
    asked = kubernetes_keeper_settings(plan)
    kind, name = (clean_line(asked.get(key), 253) for key in ("kind", "name"))
    return f"{kind.lower()}/{name}" if kind and name else ""


def kubernetes_keeper_settings(plan: Plan) -> Mapping[str, Any]:
    """What the keeper of a job is told (the agent's
    `target.Target`); empty for a job that has none.
    """
    files = [file for node in plan.nodes[:1] for file in node.files if file.path == SETTINGS]
    try:
        return read_table(files[0].text.encode()) if files else {}
    except ValueError:  # a plan that was read back from a host
        return {}


UNMARKED_LIMIT = 3.0
"""Seconds for a rank of such a job to be heard before its
launcher's output is shown in its place.
"""


def is_untagged(plan: Plan) -> bool:
    """Whether ranks of the job can be told apart only if its launcher
    was started with `--tag-output`.
    """
    return kubernetes_keeper_settings(plan).get("form") == "openmpi"


def _names(one: OtherJob) -> tuple[str, ...]:
    """The names by which an operator can choose the job."""
    if isinstance(one, SlurmJob):
        return (one.place, one.id, one.name)
    return (one.place, one.name, one.ours, attach_id(one))


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
    job = found.ours or attach_id(found)
    each = max(found.ranks // found.pods, 1)
    if found.ours and is_integer(note.get("ranks_per_node")):
        each = min(max(note["ranks_per_node"], 1), _MOST_EACH)
    count = found.pods * each
    seconds = note.get("grace")
    grace = min(float(seconds), _LONGEST_GRACE) if is_number(seconds) and seconds >= 0 else _GRACE
    settings = {
        "name": found.name,
        "kind": found.kind,
        "namespace": found.namespace,
        "context": cluster.options.get("context", ""),
        "wanted": found.pods,
        "each": each,
        "ranks": count,
        "form": "openmpi" if found.kind == "MPIJob" and not found.ours else "rankdeck",
        "ours": bool(found.ours),
        "parts": found.parts,
        "grace": grace,
    }
    # The second file marks that the objects exist already.
    files = (NodeFile(SETTINGS, json.dumps(settings)), NodeFile(CREATED, ""))
    keeper = _keeper(cluster, job, count, files, grace)
    return Plan(
        job=job,
        name=clean_line(note.get("name"), 63) or found.name,
        cluster=cluster.name,
        backend=cluster.backend,
        nodes=(keeper,),
        grace=grace,
        abort=Abort(enabled=False),
        owner="" if found.ours else found.whose,
    )


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
