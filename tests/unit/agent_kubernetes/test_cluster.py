"""Rows of nodes and jobs for the console, from objects as the API
server has them, ours and recorded ones.
"""

import json
from typing import Any

import pytest

from rankdeck_agent.schedulers.kubernetes.cluster import NODES, PODS, KubernetesView
from rankdeck_agent.schedulers.kubernetes.objects import JOB, MPIJOB
from rankdeck_agent.schedulers.kubernetes.rows import (
    is_outermost,
    job_row,
    kubernetes_job_state,
    requested_devices,
)
from rankdeck_agent.schedulers.kubernetes.watch import LISTED
from tests.unit.agent.machines import DATA

NODE = {
    "metadata": {"name": "w0"},
    "spec": {"taints": [{"key": "spot", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "64", "nvidia.com/gpu": "8", "hugepages-2Mi": "0"},
        "allocatable": {"nvidia.com/gpu": "7"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:58:11Z"}],
        "images": [{"names": ["x"] * 100}],
    },
}  # fmt: skip


def pod(name: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    asked = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    labels = {"batch.kubernetes.io/job-name": "train"}
    return {
        "metadata": {"name": name, "uid": name, "namespace": "t", "labels": labels},
        "spec": {"nodeName": "w0", "containers": [asked]},
        "status": {"phase": phase},
    }


def test_a_node_is_told_with_what_pods_ask_of_it_and_only_when_that_changes() -> None:
    view = KubernetesView(all_pods=True)
    view.take(NODES, LISTED, {"items": [NODE]})
    view.take(PODS, "ADDED", pod("a", 2))
    view.take(PODS, "ADDED", pod("b", 3))
    ((row,),) = [view.take_changes()]

    assert row["node"]["devices"] == {
        "nvidia.com/gpu": {"capacity": 8, "allocatable": 7, "asked": 5}
    }
    assert (row["node"]["jobs"], row["node"]["taints"]) == (["t/train"], ["spot:NoSchedule"])
    view.take(NODES, "MODIFIED", NODE)
    assert view.take_changes() == []
    view.take(PODS, "MODIFIED", pod("b", 3, "Succeeded"))
    assert view.take_changes()[0]["node"]["devices"]["nvidia.com/gpu"]["asked"] == 2
    view.take(NODES, LISTED, {"items": []})
    assert view.take_changes() == [{"node_gone": "w0"}]


def test_a_container_that_runs_before_the_others_counts_where_it_asks_for_more() -> None:
    one = {"resources": {"requests": {"nvidia.com/gpu": "2"}}}
    first = {"resources": {"limits": {"nvidia.com/gpu": 8}}}

    assert requested_devices({"containers": [one, one], "initContainers": [first]}) == {
        "nvidia.com/gpu": 8
    }
    assert requested_devices({"containers": [one, one]}) == {"nvidia.com/gpu": 4}


@pytest.mark.parametrize(
    ("meta", "owner"),
    [
        ({"labels": {"user": "alice"}}, "alice"),
        ({"ownerReferences": [{"kind": "CronJob", "name": "nightly", "controller": True}]}, "CronJob nightly"),
        ({"managedFields": [{"manager": "kubectl-create", "operation": "Update"}]}, "somebody with kubectl-create"),
        ({}, "unknown"),
    ],
)  # fmt: skip
def test_the_owner_is_who_the_object_names(meta: dict[str, Any], owner: str) -> None:
    assert job_row(JOB, {"metadata": {"name": "j", **meta}})["owner"] == owner


def test_parts_of_other_jobs_are_not_listed() -> None:
    reference = {"kind": "MPIJob", "name": "pi", "controller": True}

    assert not is_outermost({"metadata": {"ownerReferences": [reference]}})
    assert is_outermost({"metadata": {"ownerReferences": [{**reference, "kind": "CronJob"}]}})


def test_an_mpijob_has_the_ranks_of_its_slots() -> None:
    spec = {"slotsPerWorker": 4, "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}}}
    row = job_row(MPIJOB, {"metadata": {"name": "pi"}, "spec": spec})

    assert (row["pods"], row["ranks"]) == (2, 8)


@pytest.mark.parametrize(
    ("file", "kind", "states"),
    [
        ("indexed-job-success", "job", ["pending", "running", "done"]),
        ("indexed-job-one-rank-fails-survivors-deleted", "job", ["pending", "running", "failed"]),
        ("mpijob-success-cleanpodpolicy-running", "mpijob", ["pending", "running", "done"]),
        ("mpijob-launcher-fails", "mpijob", ["pending", "running", "failed"]),
    ],
)
def test_recorded_jobs_go_through_the_states_that_an_operator_sees(
    file: str, kind: str, states: list[str]
) -> None:
    recorded = DATA / "kubernetes" / f"{file}.jsonl"
    if not recorded.exists():
        pytest.skip("needs recordings of a Kubernetes control plane")
    rows = [json.loads(line) for line in recorded.read_text().splitlines()]
    seen = [kubernetes_job_state(row["object"])[0] for row in rows if row.get("watch") == kind]

    assert [state for at, state in enumerate(seen) if seen[at - 1 : at] != [state]] == states


def test_nonsense_of_a_server_is_left_out() -> None:
    view = KubernetesView(all_pods=True)
    for what in (NODES, PODS, JOB):
        for found in (
            {},
            {"metadata": 1, "spec": [], "status": "x"},
            {"metadata": {"name": ["a"]}},
        ):
            view.take(what, "ADDED", found)
    view.take(
        NODES, "ADDED", {"metadata": {"name": "n\x1b[31m"}, "status": {"capacity": {"a.b/c": "-1"}}}
    )

    rows = view.take_changes()
    assert all("\x1b" not in json.dumps(row, ensure_ascii=False) for row in rows)
    assert [row["node"]["devices"] for row in rows if "node" in row] == [{}]
