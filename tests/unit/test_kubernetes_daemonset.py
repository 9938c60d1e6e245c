"""The agent as a DaemonSet: what is in it, what is not, and what is too large."""

import base64
import json
import os
import zipfile
from io import BytesIO
from typing import Any

import pytest
import yaml

from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Broker, Cluster, Node
from rankdeck.remote.bundle import Bundle, build_bundle
from rankdeck.schedulers.kubernetes.daemon_set import daemon_set
from rankdeck.telemetry.agent_configs import installed_config
from rankdeck_agent import config as agent

LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
CLUSTER = Cluster(name="k", nodes=(), backend="kubernetes", broker=Broker(host="head"))


def objects(*nodes: str) -> dict[str, dict[str, Any]]:
    assert CLUSTER.broker is not None
    configs = {node: installed_config(CLUSTER, CLUSTER.broker, node) for node in nodes}
    text = daemon_set("python:3", "ops", build_bundle(), configs)
    return {one["kind"]: one for one in yaml.load_all(text, LOADER)}


def modules(file: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(file)) as found:
        return {name: found.read(name) for name in found.namelist()}


def container(made: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (found,) = made["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.long
def test_the_agent_is_in_it_with_the_same_modules() -> None:
    made = objects("")
    file = base64.b64decode(made["ConfigMap"]["binaryData"]["agent.pyz"])

    assert modules(file) == modules(build_bundle().data)
    assert len(file) < len(build_bundle().data) / 2
    assert {one["metadata"]["namespace"] for one in made.values()} == {"ops"}


@pytest.mark.long
def test_it_has_no_privilege_and_no_account_of_the_cluster() -> None:
    made = objects("")
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    allowed = container(made)["securityContext"]

    assert (pod["hostPID"], pod["hostNetwork"], pod["automountServiceAccountToken"]) == (
        True,
        True,
        False,
    )
    assert (allowed["allowPrivilegeEscalation"], allowed["capabilities"]) == (
        False,
        {"drop": ["ALL"]},
    )
    assert all(mount["readOnly"] for mount in container(made)["volumeMounts"])
    assert [v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v] == ["/sys"]


def test_one_configuration_serves_all_nodes_whose_name_the_pod_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = objects("")
    monkeypatch.setenv("RANKDECK_NODE", "w7")

    read = agent.from_mapping(json.loads(made["Secret"]["stringData"]["agent.conf"]))

    assert (read.cluster, read.host, read.node) == ("k", "head", "w7")


@pytest.mark.long
def test_each_node_gets_the_account_of_its_own_where_it_has_one() -> None:
    made = objects("w0", "w1")
    mount = next(m for m in container(made)["volumeMounts"] if m["name"] == "config")

    assert set(made["Secret"]["stringData"]) == {"w0", "w1"}
    assert mount["subPathExpr"] == "$(RANKDECK_NODE)"


def test_what_kubernetes_would_not_take_is_refused() -> None:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("large.py", os.urandom(1 << 20))
    large = Bundle(file.getvalue(), "d" * 64, "a.pyz")

    with pytest.raises(RankdeckError, match=r"the agent has 1,04\d,\d{3} bytes"):
        daemon_set("python:3", "", large, {"": {}})


@pytest.mark.parametrize(
    ("nodes", "wished", "period"),
    [(3, 0.0, 1.0), (3, 5.0, 5.0), (2001, 0.0, 15.0), (2001, 2.0, 2.0)],
)
def test_an_installed_agent_is_told_how_often_to_send_samples_and_what_to_expect(
    nodes, wished, period
) -> None:
    some = tuple(Node(name=f"n{n}", gpus=8, interface="eth1") for n in range(nodes))
    broker = Broker(host="b", sample_period=wished)
    cluster = Cluster(name="c", nodes=some, broker=broker, expect={"gpu_model": "A100"})

    config = installed_config(cluster, broker, "n1")

    assert agent.from_mapping(config).sample_period == period
    assert config["expect"] == {
        "gpus": 8,
        "rdma": 0,
        "interface": "eth1",
        "other": {"gpu_model": "A100"},
    }
