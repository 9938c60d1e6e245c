"""The agent as a DaemonSet: its manifest."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from rankdeck.config.document import write_documents
from rankdeck.errors import RankdeckError
from rankdeck.remote.bundle import Bundle
from rankdeck_agent.wire import NODE_VARIABLE

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
    compressed = agent.compressed
    sizes = {
        "the agent": len(compressed),
        "the configuration of all nodes": sum(map(len, data.values())),
    }
    for what, size in sizes.items():
        if size > _LIMIT:
            raise RankdeckError(f"{what} has {size:,} bytes and Kubernetes takes {_LIMIT:,}")
    code = {"agent.pyz": base64.b64encode(compressed).decode()}
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
