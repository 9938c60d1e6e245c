"""The agent as a DaemonSet of Kubernetes: a pod on every node that publishes to the site's broker."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from rankdeck.config.yaml_text import documents
from rankdeck.errors import RankdeckError
from rankdeck.remote.agent import Bundle
from rankdeck_agent.wire import NODE_VARIABLE

Object = dict[str, Any]
NAME = "rankdeck-agent"
_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "rankdeck"}
_FOLDER = "/rankdeck"
_CONFIG = "agent.conf"
_LIMIT = 1 << 20
"""Bytes that a ConfigMap or Secret may have."""


def daemon_set(
    image: str, namespace: str, agent: Bundle, configs: Mapping[str, Mapping[str, Any]]
) -> str:
    """All objects as YAML documents: agent, configuration, DaemonSet.

    `configs` is node -> its configuration; under "" the one of all nodes. `image` needs Python 3.9
    and nothing else. Raises RankdeckError where it is more than Kubernetes takes.
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
    return documents(made)


def _text(node: str, config: Mapping[str, Any]) -> str:
    """A configuration; that of all nodes names none: the pod's environment does."""
    return json.dumps({key: value for key, value in config.items() if node or key != "node"})


def _spec(image: str, agent: Bundle, *, each: bool) -> Object:
    pod = {
        # What belongs to the node is seen in its own namespaces only: processes, network, RDMA.
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
    # Another agent makes other pods; a Secret or ConfigMap alone would not.
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
            # Read by NVIDIA's container runtime: it brings NVML in, and no GPU is taken from pods.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        ],
        # No limit of memory: the agent would report it as the node's.
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
