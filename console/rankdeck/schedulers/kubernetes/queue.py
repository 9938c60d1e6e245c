"""Reads nodes, jobs and rights from Kubernetes through the agent
beside kubectl; the agent as a DaemonSet.
"""

import json
from collections.abc import Mapping, Sequence

from rankdeck.errors import AgentError, LaunchError, NodeError, RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_spec import Launch
from rankdeck.model.safe_text import clean_line
from rankdeck.model.scheduler_node import SchedulerNode
from rankdeck.remote import command
from rankdeck.remote.agent import Agents
from rankdeck.remote.command import AgentRows, RowSource
from rankdeck.remote.shell import ProgramResult, control_host, run_program
from rankdeck.schedulers.kubernetes.attach import cannot_follow, kubernetes_attach_plan
from rankdeck.schedulers.kubernetes.keeper import place_of
from rankdeck.schedulers.kubernetes.rows import (
    LONGEST_SENTENCE,
    LONGEST_WORD,
    about_of,
    kubernetes_takes,
    namespaces_of,
)
from rankdeck.schedulers.kubernetes.state import KubernetesState
from rankdeck.schedulers.kubernetes.user_manifests import Manifest
from rankdeck.schedulers.kubernetes.values import (
    JOB,
    MPIJOB,
    ClusterAbout,
    KubernetesJob,
    Namespaces,
)
from rankdeck.schedulers.queue import FoundJob, Queue, ServerAnswer, find_listed
from rankdeck.state.fleet import Fleet

ASK_LIMIT = 60.0


class KubernetesQueue(Queue):
    """Asks the API server through the agent on the control host; made by the session."""

    asked = True
    judges_nodes = True

    def __init__(self, agents: Agents, cluster: Cluster, fleet: Fleet) -> None:
        self._agents, self._host = agents, control_host(cluster)
        self._cluster, self._fleet = cluster, fleet
        self._known = KubernetesState()
        self._context = cluster.options.get("context", "")
        self._namespace = cluster.options.get("namespace", "")
        self._chosen = {key: cluster.options.get(key, "") for key in ("context", "namespace")}
        self.known_namespaces = Namespaces()
        """What `namespaces` found last."""

    @property
    def trouble(self) -> str:
        return self._known.trouble

    def troubles(self) -> tuple[str, ...]:
        """`trouble`, and that nodes or what pods ask of them may not be seen."""
        refused = (self._known.refused(need) for need in ("fleet", "devices"))
        return tuple(filter(None, (self.trouble, *refused)))

    async def check(self) -> ClusterAbout:
        """Versions, kinds of jobs and rights; if the API server fails, `trouble` says why.

        Raises NodeError.
        """
        return about_of((await self._ask("check")).row)

    async def namespaces(self, also: str = "") -> Namespaces:
        """The namespaces, and in which of them the user may see jobs. Raises NodeError.

        `also`: a name to ask about too, if the user may not list namespaces.
        """
        row = (await self._ask("namespaces", {"also": also})).row
        if trouble := clean_line(row.get("trouble"), LONGEST_SENTENCE):
            raise AgentError(self._host, trouble)
        self.known_namespaces = namespaces_of(row)
        return self.known_namespaces

    async def ask_server(self) -> ServerAnswer:
        try:
            about = await self.check()
        except NodeError as error:
            return ServerAnswer(False, f"Kubernetes cannot be asked: {error}")
        well = f"Kubernetes {about.server} answered"
        return ServerAnswer(not about.trouble, about.trouble or well)

    async def learn_rights(self) -> None:
        if self._known.about is not None:
            return
        try:
            about = await self.check()
        except NodeError:
            return  # the caller's next question to the agent fails with the reason
        if not about.trouble:
            self._known.about = about

    def why_not(self, need: str, launch: Launch | None, job: Job | None, place: str) -> str:
        if launch is not None:
            kind = MPIJOB if launch is Launch.MPI else JOB
            return self._known.refused(need, "see", "follow", kind=kind)
        owned = job.plan.owner.partition(" of ")[0] if job else ""
        spec = job.plan.spec if job else None
        started = MPIJOB if spec and spec.launch is Launch.MPI else JOB
        kind = self._known.kind_of(place) or owned or started
        return self._known.refused(need, "see", kind=kind)

    async def refresh(self) -> dict[str, str]:
        try:
            answer = await self._ask("list")
        except NodeError as error:
            return {self._host: error.why}
        AgentRows(kubernetes_takes(None, self._known)).take(answer.out)
        trouble = self._known.trouble or self._known.refused("see")
        return {self._host: trouble} if trouble else {}

    def others(self, known: Sequence[Job]) -> tuple[KubernetesJob, ...]:
        ids = {job.id for job in known}
        return tuple(one for one in self._known.jobs(ids) if one.job_id not in ids)

    def find_followed(self, known: Sequence[Job], text: str) -> str:
        ids = [job.id for job in known]
        there = [one.job_id for one in self._known.jobs() if text in one.names]
        if there:
            return there[0] if len(there) == 1 and there[0] in ids else ""
        return next((job.id for job in known if place_of(job.plan) == text), "")

    async def find_job(self, known: Sequence[Job], text: str) -> FoundJob:
        found = find_listed(self.others(known), text)
        if why := cannot_follow(found) or self.why_not("follow", None, None, found.place):
            raise LaunchError("start", why)
        return FoundJob(kubernetes_attach_plan(self._cluster, found), found.created)

    async def ask_nodes(self, names: Sequence[str]) -> Mapping[str, SchedulerNode]:
        """What the API server said last: it tells each change at once."""
        views = {name: self._fleet.node(name).in_scheduler for name in names}
        return {name: view for name, view in views.items() if view is not None}

    async def apply(self, text: str) -> str:
        """Pass YAML documents to `kubectl apply`; returns what it prints.

        Raises NodeError with its error message.
        """
        where = (f"--context={self._context}",) if self._context else ()
        # On the server side: else kubectl's annotation of what was applied
        # would contain the agent a second time.
        argv = ("kubectl", *where, "apply", "--server-side", "--field-manager=rankdeck", "-f", "-")
        result = await run_program(self._agents.shell, self._host, argv, text.encode(), ASK_LIMIT)
        if result.code != 0:
            raise AgentError(self._host, _on_one_line(result.err))
        return "\n".join(
            clean_line(line, LONGEST_WORD)
            for line in result.out.decode("utf-8", "replace").splitlines()
        )

    async def apply_manifest(self, manifest: Manifest, *, dry: bool) -> tuple[str, ...]:
        """Apply a user's manifest as the user would; returns what kubectl calls each
        object (`job.batch/pi`), in their order.

        `dry`: the server only checks it. Objects that the server names are created.
        Raises NodeError with kubectl's words.
        """
        where = [f"--context={self._context}"] if self._context else []
        names = {part.namespace for part in manifest.parts} - {"", self._namespace}
        if self._namespace and not names:
            where.append(f"--namespace={self._namespace}")
        verb = "apply" if all(part.name for part in manifest.parts) else "create"
        checks = ("--dry-run=server",) if dry else ()
        argv = ("kubectl", *where, verb, *checks, "--output=name", "-f", "-")
        stdin = manifest.text.encode()
        result = await run_program(self._agents.shell, self._host, argv, stdin, ASK_LIMIT)
        if result.code != 0:
            said = _on_one_line(result.err)
            raise AgentError(self._host, f"{manifest.file}: kubectl {verb}: {said}")
        lines = result.out.decode("utf-8", "replace").split()
        return tuple(clean_line(line, LONGEST_WORD) for line in lines)

    async def _ask(self, verb: str, more: Mapping[str, str] | None = None) -> ProgramResult:
        answer = await self._agents.call(
            self._host, ("cluster", verb), self._line(more), limit=ASK_LIMIT
        )
        if answer.code != 0:
            raise AgentError(self._host, answer.complaint)
        return answer

    def _line(self, more: Mapping[str, str] | None = None) -> bytes:
        """The configuration of a `cluster` command."""
        return json.dumps({**self._chosen, **(more or {})}).encode() + b"\n"

    async def watch(self) -> None:
        source = RowSource(self._agents, self._host, ("cluster", "watch"), self._line())
        taken = kubernetes_takes(self._fleet, self._known)
        await command.watch_command(source, lambda: taken, taken["trouble"])


def _on_one_line(said: bytes) -> str:
    """What kubectl says, which may be several lines, as one; safe to show."""
    return clean_line(" ".join(said.decode("utf-8", "replace").split()), LONGEST_SENTENCE)


def api_server_of(queue: Queue) -> KubernetesQueue:
    """The same queue, for what only an API server can do. Raises RankdeckError."""
    if not isinstance(queue, KubernetesQueue):
        raise RankdeckError("this cluster is not on Kubernetes")
    return queue
