"""Reads nodes, jobs and rights from Kubernetes through the agent
beside kubectl; the agent as a DaemonSet.
"""

import base64
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from rankdeck.config.document import write_documents
from rankdeck.config.manifests import Manifest
from rankdeck.config.schedulers import NAMESPACE
from rankdeck.errors import AgentError, NodeError, RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.model.field_checks import (
    cleaned_fields,
    fitting_fields,
    is_flag,
    is_integer,
    is_stamp,
    is_text,
    or_null,
)
from rankdeck.model.json_tables import as_list, as_table, as_tables, is_table
from rankdeck.model.safe_text import clean_line
from rankdeck.model.schedulers import (
    ClusterAbout,
    Condition,
    DeviceCount,
    KubernetesJob,
    KubernetesNode,
    Namespaces,
    Permission,
)
from rankdeck.remote import command
from rankdeck.remote.agent import Agents, Bundle
from rankdeck.remote.command import AgentRows, RowSource, Takes
from rankdeck.remote.shell import ProgramResult, control_host, run_program
from rankdeck.state.fleet import Fleet, KubernetesState
from rankdeck_agent.wire import NODE_VARIABLE

log = logging.getLogger(__name__)
ASK_LIMIT = 60.0
_MOST = 256
"""Most conditions, devices, jobs or rights of one row that are used."""
_WORD, _SENTENCE = 300, 600


class KubernetesClient:
    """Asks the API server through the agent on the control host; made by the session."""

    def __init__(self, agents: Agents, cluster: Cluster) -> None:
        self._agents, self._host = agents, control_host(cluster)
        self.asked = cluster.can.states_rights
        """Whether there is an API server to ask."""
        self._context = cluster.options.get("context", "")
        self._namespace = cluster.options.get("namespace", "")
        chosen = {key: cluster.options.get(key, "") for key in ("context", "namespace")}
        self._chosen = chosen
        self.known_namespaces = Namespaces()
        """What `namespaces` found last."""

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
        if trouble := clean_line(row.get("trouble"), _SENTENCE):
            raise AgentError(self._host, trouble)
        self.known_namespaces = namespaces_of(row)
        return self.known_namespaces

    async def learn_rights(self, state: KubernetesState) -> None:
        """Ask for the user's rights and store them in `state`, unless it has them already."""
        if not self.asked or state.about is not None:
            return
        try:
            about = await self.check()
        except NodeError:
            return  # the caller's next question to the agent fails with the reason
        if not about.trouble:
            state.about = about

    async def list(self, state: KubernetesState) -> dict[str, str]:
        """Read the existing jobs into `state`; returns {control host:
        why that failed}, {} if it did not.
        """
        if not self.asked:
            return {}
        try:
            answer = await self._ask("list")
        except NodeError as error:
            return {self._host: error.why}
        AgentRows(kubernetes_takes(None, state)).take(answer.out)
        trouble = state.trouble or state.refused("see")
        return {self._host: trouble} if trouble else {}

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
            clean_line(line, _WORD) for line in result.out.decode("utf-8", "replace").splitlines()
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
        return tuple(clean_line(line, _WORD) for line in lines)

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

    async def watch(self, fleet: Fleet, state: KubernetesState) -> None:
        """Write all changes to fleet and state until cancelled; after an
        error, set `state.trouble` and try again.

        Returns at once if the cluster is not on Kubernetes.
        """
        if not self.asked:
            return
        source = RowSource(self._agents, self._host, ("cluster", "watch"), self._line())
        taken = kubernetes_takes(fleet, state)
        await command.watch_command(source, lambda: taken, taken["trouble"])


def kubernetes_takes(fleet: Fleet | None, state: KubernetesState) -> Takes:
    """Key of a row -> function that applies its value to fleet (None:
    only jobs are wanted) and state.
    """

    def about(found: object) -> None:
        state.about = about_of(as_table(found))

    def node(found: object) -> None:
        name, view = kubernetes_node_of(as_table(found))
        if name and fleet is not None:
            fleet.kubernetes_says(name, view)

    def ready(_found: object) -> None:
        if fleet is not None:
            fleet.await_nodes(awaited=False)

    def trouble(found: object) -> None:
        state.trouble = why = clean_line(found, _SENTENCE)
        if why:
            ready(why)
            log.warning("%s", why, extra={"source": "kubernetes"})

    return {
        "about": about,
        "job": lambda found: state.put(kubernetes_job_of(as_table(found))),
        "job_gone": lambda found: state.drop(*_words(found)[:2]),
        "node": node,
        "node_gone": lambda found: node({"name": found, "gone": True}),
        "ready": ready,
        "trouble": trouble,
    }


def _on_one_line(said: bytes) -> str:
    """What kubectl says, which may be several lines, as one; safe to show."""
    return clean_line(" ".join(said.decode("utf-8", "replace").split()), _SENTENCE)


# ---- rows -------------------------------------------------------------------------------


def _words(found: object) -> tuple[str, ...]:
    return tuple(clean_line(word, _WORD) for word in as_list(found, _MOST) if isinstance(word, str))


_CONDITION = {"type": is_text(_WORD), "status": is_text(20), "reason": is_text(_WORD),
              "message": is_text(_SENTENCE), "since": or_null(is_stamp)}  # fmt: skip


def kubernetes_node_of(row: Mapping[str, Any]) -> tuple[str, KubernetesNode]:
    """(name, state) of a node; the name is "" if the row is invalid."""
    view = KubernetesNode(
        conditions=tuple(map(_condition, as_tables(row.get("conditions"), _MOST))),
        unschedulable=row.get("unschedulable") is True,
        taints=_words(row.get("taints")),
        devices=dict(filter(None, map(_device, _items(row.get("devices"))))),
        jobs=_words(row.get("jobs")),
        kubelet=clean_line(row.get("kubelet"), 60),
        gone=row.get("gone") is True,
    )
    return clean_line(row.get("name"), 253), view


def _condition(row: Mapping[str, Any]) -> Condition:
    known: dict[str, Any] = {"type": "", "status": "", **cleaned_fields(row, _CONDITION)}
    return Condition(**known)


def _items(found: object) -> Iterable[tuple[str, object]]:
    return list(as_table(found).items())[:_MOST]


_DEVICE = {"capacity": is_integer, "allocatable": is_integer, "asked": or_null(is_integer)}


def _device(item: tuple[str, object]) -> tuple[str, DeviceCount] | None:
    name, row = item
    found = fitting_fields(as_table(row), _DEVICE)
    return (clean_line(name, 253), DeviceCount(**found)) if len(found) == len(_DEVICE) else None


_MOST_NAMESPACES = 500


def namespaces_of(row: Mapping[str, Any]) -> Namespaces:
    """The answer to `cluster namespaces`; what is no name is left out."""
    allowed: dict[str, bool] = {}
    for one in as_tables(row.get("namespaces"), _MOST_NAMESPACES):
        name = one.get("name")
        if isinstance(name, str) and NAMESPACE.fullmatch(name):
            allowed[name] = one.get("allowed") is True
    return Namespaces(
        allowed=tuple(name for name, may in allowed.items() if may),
        closed=tuple(name for name, may in allowed.items() if not may),
        current=clean_line(row.get("current"), 63),
        every=row.get("every") is True,
        why=clean_line(row.get("why"), _SENTENCE),
    )


_MOST_PODS, _MOST_RANKS = 4096, 65536
_STATES = ("pending", "running", "done", "failed")
_TEXTS = ("kind", "namespace", "name", "uid", "label", "owner", "why", "ours")


def kubernetes_job_of(row: Mapping[str, Any]) -> KubernetesJob:
    """A job as the agent lists it; invalid fields get their defaults."""
    created, state, spec = (row.get(key) for key in ("created", "state", "spec"))
    pods, ranks = row.get("pods"), row.get("ranks")
    return KubernetesJob(
        **{key: clean_line(row.get(key), _WORD) for key in _TEXTS},
        created=float(created) if is_stamp(created) else 0.0,
        pods=min(max(pods, 1), _MOST_PODS) if is_integer(pods) else 1,
        ranks=min(max(ranks, 1), _MOST_RANKS) if is_integer(ranks) else 1,
        parts=dict(filter(None, map(_part, _items(row.get("parts"))))),
        held={name: count for name, count in _items(row.get("held")) if is_integer(count)},
        nodes=_words(row.get("nodes")),
        state=state if state in _STATES else "pending",
        spec=spec if is_table(spec) else None,
    )


_PART_NUMBERS = 2


def _part(item: tuple[str, object]) -> tuple[str, tuple[int, int]] | None:
    """(name, (number of the first pod, pods of each Job)); None if invalid."""
    name, found = item
    given = as_list(found)
    numbers = [n for n in given if is_integer(n) and 0 <= n <= _MOST_PODS]
    fits = len(numbers) == len(given) == _PART_NUMBERS
    return (clean_line(name, 63), (numbers[0], numbers[1])) if fits else None


_RIGHT = {
    "need": is_text(20),
    "kind": is_text(63),
    "what": is_text(_WORD),
    "allowed": is_flag,
    "why": is_text(_SENTENCE),
}
_NEEDED = 3


def about_of(row: Mapping[str, Any]) -> ClusterAbout:
    """The agent's report about an API server."""
    rights = (cleaned_fields(one, _RIGHT) for one in as_tables(row.get("rights"), _MOST))
    return ClusterAbout(
        **{
            key: clean_line(row.get(key), _WORD)
            for key in ("kubectl", "context", "namespace", "server")
        },
        kinds=_words(row.get("kinds")),
        kueue=row.get("kueue") is True,
        rights=tuple(Permission(**one) for one in rights if len(one) >= _NEEDED),
        trouble=clean_line(row.get("trouble"), _SENTENCE),
    )


Object = dict[str, Any]
NAME = "rankdeck-agent"
_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "rankdeck"}
_FOLDER = "/rankdeck"
_CONFIG = "agent.conf"
_LIMIT = 1 << 20
"""Most bytes of a ConfigMap or Secret."""


def daemon_set(
    image: str, namespace: str, agent: Bundle, configs: Mapping[str, Mapping[str, Any]]
) -> str:
    """The objects that run the agent on every node, as YAML
    documents: ConfigMap, Secret, DaemonSet.

    `configs` is node -> its configuration; "" -> one for all nodes. `image` only needs Python 3.6.
    Raises RankdeckError if agent or configuration is larger than Kubernetes allows.
    """
    meta: Object = {"name": NAME, "labels": _LABELS}
    if namespace:
        meta["namespace"] = namespace
    data = {node or _CONFIG: _text(node, config) for node, config in configs.items()}
    sizes = {
        "the agent": len(agent.data),
        "the configuration of all nodes": sum(map(len, data.values())),
    }
    for what, size in sizes.items():
        if size > _LIMIT:
            raise RankdeckError(f"{what} has {size:,} bytes and Kubernetes takes {_LIMIT:,}")
    code = {"agent.pyz": base64.b64encode(agent.data).decode()}
    made = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "binaryData": code},
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data},
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": meta,
            "spec": _spec(image, agent, each="" not in configs),
        },
    ]
    return write_documents(made)


def _text(node: str, config: Mapping[str, Any]) -> str:
    """A configuration as JSON; the one for all nodes has no node name,
    which the pod gets from its environment.
    """
    return json.dumps({key: value for key, value in config.items() if node or key != "node"})


def _spec(image: str, agent: Bundle, *, each: bool) -> Object:
    pod = {
        # Processes, network and RDMA devices of the node are visible only in the host's namespaces.
        "hostPID": True,
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 10,
        "containers": [_container(image, each=each)],
        "volumes": [
            {"name": "agent", "configMap": {"name": NAME}},
            {"name": "config", "secret": {"secretName": NAME, "defaultMode": 0o400}},
            {"name": "sys", "hostPath": {"path": "/sys"}},
        ],
    }
    # A changed annotation restarts the pods when the agent changes; a
    # changed ConfigMap or Secret would not.
    notes = {"rankdeck/agent": agent.digest[:12]}
    return {
        "selector": {"matchLabels": {"app.kubernetes.io/name": NAME}},
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
        "template": {"metadata": {"labels": _LABELS, "annotations": notes}, "spec": pod},
    }


def _container(image: str, *, each: bool) -> Object:
    config = {"name": "config", "mountPath": f"{_FOLDER}/{_CONFIG}", "readOnly": True}
    config |= {"subPathExpr": f"$({NODE_VARIABLE})"} if each else {"subPath": _CONFIG}
    node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    return {
        "name": "agent",
        "image": image,
        "command": ["python3", f"{_FOLDER}/agent.pyz", "--config", f"{_FOLDER}/{_CONFIG}"],
        "env": [
            {"name": NODE_VARIABLE, "valueFrom": node},
            # Read by NVIDIA's container runtime, which then provides NVML without allocating GPUs.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        ],
        # No memory limit: the agent would report it as the memory of the node.
        "resources": {"requests": {"cpu": "10m", "memory": "48Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {
                "name": "agent",
                "mountPath": f"{_FOLDER}/agent.pyz",
                "subPath": "agent.pyz",
                "readOnly": True,
            },
            config,
            {"name": "sys", "mountPath": "/sys", "readOnly": True},
        ],
    }
