"""Options for the policies of a site: what they put into the manifest, the
strategic merge, and what is refused where.
"""

from pathlib import Path
from typing import Any

import pytest

from rankdeck.cli.check import look_at
from rankdeck.config.clusters import read_cluster
from rankdeck.config.jobs import read_job
from rankdeck.errors import ConfigError, LaunchError
from rankdeck.schedulers.kubernetes.manifest import job_objects

CLUSTER = "cluster: k\nbackend: kubernetes\nnodes: [{name: w1, slots: 2}]\n"
JOB = 'job: t\nlaunch: LAUNCH\nnodes: 2\ncommand: [app]\ncontainer: {image: "i:1"}\n'


def made(
    folder: Path, job: str = "", cluster: str = "", launch: str = "plain"
) -> list[dict[str, Any]]:
    """The objects of a job, with these lines in the `kubernetes:`
    section of the job and of the cluster.
    """
    section = "kubernetes:\n"
    (folder / "c.yaml").write_text(CLUSTER + (section + cluster if cluster else ""))
    (folder / "j.yaml").write_text(JOB.replace("LAUNCH", launch) + (section + job if job else ""))
    return job_objects(read_cluster(folder / "c.yaml"), read_job(folder / "j.yaml"), "t-1")


def template(workload: dict[str, Any], role: str = "") -> dict[str, Any]:
    spec = workload["spec"]
    return spec["mpiReplicaSpecs"][role]["template"] if role else spec["template"]


def box(workload: dict[str, Any], role: str = "") -> dict[str, Any]:
    (found,) = template(workload, role)["spec"]["containers"]
    return found


def test_labels_and_annotations_of_cluster_and_job_are_on_every_object_and_pod(tmp_path) -> None:
    all_of_them = made(
        tmp_path,
        '  labels: {team: b, run: "7"}\n',
        '  labels: {team: a, cost: "1"}\n  annotations: {example.org/contact: me}\n',
        "mpi",
    )
    roles = all_of_them[-1]["spec"]["mpiReplicaSpecs"].values()

    for meta in [*(o["metadata"] for o in all_of_them), *(r["template"]["metadata"] for r in roles)]:  # fmt: skip
        assert meta["labels"].items() >= {"team": "b", "cost": "1", "run": "7", "rankdeck/job": "t-1"}.items()  # fmt: skip
        assert meta["annotations"]["example.org/contact"] == "me"
    assert all_of_them[-1]["metadata"]["annotations"]["rankdeck/job-id"] == "t-1"


def test_security_scheduler_runtime_and_resources_are_where_kubernetes_wants_them(tmp_path) -> None:
    *_, job = made(
        tmp_path,
        "  pod_security: {runAsUser: 1000}\n  security: {allowPrivilegeEscalation: false}\n"
        "  scheduler: volcano\n  runtime_class: nvidia\n  resources: {cpu: 8}\n  requests: {cpu: 500m}\n"
        "  launcher: {resources: {cpu: 1}, requests: {cpu: 100m}}\n",
        launch="mpi",
    )
    for role in ("Launcher", "Worker"):
        pod = template(job, role)["spec"]
        assert pod["securityContext"] == {"runAsUser": 1000}
        assert pod["schedulerName"] == "volcano"
        assert box(job, role)["securityContext"] == {"allowPrivilegeEscalation": False}
    assert box(job, "Worker")["resources"] == {"limits": {"cpu": "8"}, "requests": {"cpu": "500m"}}
    assert box(job, "Launcher")["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}}  # fmt: skip
    assert template(job, "Worker")["spec"]["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in template(job, "Launcher")["spec"]


def test_capabilities_of_the_user_replace_the_one_for_rdma(tmp_path) -> None:
    *_, plain = made(tmp_path, "  resources: {rdma/hca: 1}\n  security: {runAsUser: 5}\n")
    assert box(plain)["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}, "runAsUser": 5}

    *_, own = made(
        tmp_path, "  resources: {rdma/hca: 1}\n  security: {capabilities: {drop: [ALL]}}\n"
    )
    assert box(own)["securityContext"] == {"capabilities": {"drop": ["ALL"]}}


def test_a_patch_is_merged_by_names_as_kubectl_does(tmp_path) -> None:
    _, service, job = made(
        tmp_path,
        "  patch:\n"
        "    - spec: {backoffLimit: null, activeDeadlineSeconds: 60}\n"
        "    - kind: Pod\n"
        "      spec:\n"
        "        volumes: [{name: shm, emptyDir: {sizeLimit: 1Gi}}, {name: x, emptyDir: {}}]\n"
        "        tolerations: [{operator: Exists}]\n"
        "        containers:\n"
        "          - {name: rank, env: [{name: PYTHONUNBUFFERED, $patch: delete}, {name: A, value: '1'}]}\n"
        "          - {name: beside, image: b}\n"
        "    - {kind: Service, apiVersion: v1, spec: {ports: [{port: 1}], selector: {$patch: replace, a: b}}}\n",
        "  tolerations: [{key: a}]\n",
    )
    pod = template(job)["spec"]
    rank, beside = pod["containers"]
    names = [one["name"] for one in rank["env"]]

    assert "backoffLimit" not in job["spec"]
    assert job["spec"]["activeDeadlineSeconds"] == 60
    assert [v["name"] for v in pod["volumes"]] == ["files", "shm", "x"]
    assert pod["volumes"][1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert "PYTHONUNBUFFERED" not in names
    assert names[-1] == "A"
    assert rank["command"][0] == "sh"
    assert beside == {"name": "beside", "image": "b"}
    assert service["spec"]["ports"] == [{"port": 1}]
    assert service["spec"]["selector"] == {"a": "b"}


def test_the_patch_of_the_cluster_stays_and_that_of_the_job_comes_on_top(tmp_path) -> None:
    *_, job = made(
        tmp_path,
        "  patch: {spec: {activeDeadlineSeconds: 60}}\n",
        "  patch: [{spec: {activeDeadlineSeconds: 9, suspend: true}}]\n",
    )

    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["suspend"]) == (60, True)


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("{metadata: {name: other}}", "it changes metadata.name of the Job"),
        ("{spec: {parallelism: 1}}", "it changes spec.parallelism of the Job"),
        ("{kind: Pod, spec: {containers: [{name: rank, $patch: delete}]}}", "it changes container `rank` of the pod, its command"),
        ("{kind: Pod, metadata: {labels: {$patch: replace, a: b}}}", "labels rankdeck/job"),
        ("{kind: MPIJob, spec: {slotsPerWorker: 3}}", "this job has no MPIJob, only ConfigMap, Service, Job"),
    ],
)  # fmt: skip
def test_a_patch_that_takes_away_what_rankdeck_needs_is_refused_with_its_place(
    tmp_path: Path, patch: str, said: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        made(tmp_path, f"  patch: {patch}\n")

    assert f"{tmp_path}/j.yaml:7: patch: " in str(caught.value)
    assert said in str(caught.value)


def test_a_request_over_the_limit_is_refused_as_no_server_says_so_of_an_mpijob(tmp_path) -> None:
    with pytest.raises(LaunchError, match="requests 2Gi of memory and its limit is 1500Mi"):
        made(tmp_path, "  resources: {memory: 1500Mi}\n  requests: {memory: 2Gi}\n", launch="mpi")
    made(tmp_path, "  resources: {memory: 2Gi}\n  requests: {memory: 2048Mi}\n", launch="mpi")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("labels: {a b: c}", "4:28: kubernetes.labels.a b: `a b` is not a name as Kubernetes has: prefix/name or name"),
        ("labels: {a: 4711}", "4:26: kubernetes.labels.a: expected text, found a number `4711`; put it in quotes"),
        ("labels: {rankdeck/job: x}", "4:37: kubernetes.labels.rankdeck/job: `rankdeck/job` is set by Rankdeck or by Kubernetes itself"),
        ("labels: {job-name: x}", "4:33: kubernetes.labels.job-name: `job-name` is set by Rankdeck or by Kubernetes itself"),
        ("annotations: {a: true}", "4:31: kubernetes.annotations.a: expected text, found true or false `true`; put it in quotes"),
        ("security: {fsGroup: 1}", "4:25: kubernetes.security: is of a pod: write it below `pod_security`"),
        ("pod_security: {runAsNonroot: true}", "4:29: kubernetes.pod_security: unknown key `runAsNonroot`; did you mean `runAsNonRoot`?"),
        ("requests: {nvidia.com/gpu: 1}", "4:41: kubernetes.requests.nvidia.com/gpu: is given whole or not at all: name it in `resources` or `gpus` only"),
        ("launcher: {cpu: 1}", "4:25: kubernetes.launcher: unknown key `cpu`; there are: resources, requests"),
        ("schedulerName: v", "4:14: kubernetes: `schedulerName` is called `scheduler` here"),
        ("securityContext: {}", "4:14: kubernetes: `securityContext` is called `security` for the container and `pod_security` for the pod here"),
        ("patch: {spce: {}}", "4:28: kubernetes.patch.spce: `spce` is not a part of a Job or MPIJob (without `kind`) that can be patched; did you mean `spec`?"),
        ("patch: [{kind: Deployment}]", "4:29: kubernetes.patch[0].kind: no such value `Deployment`; there are: Job, MPIJob, Service, ConfigMap, Pod"),
        ("patch: {spec: {$retainKeys: [a]}}", "4:42: kubernetes.patch.spec.$retainKeys: `$retainKeys` is not known here: write `$patch: delete` or `replace`"),
        ("patch: {spec: {a: 2026-01-01}}", "4:32: kubernetes.patch.spec.a: a date `2026-01-01` is no value that JSON has; put it in quotes"),
    ],
)  # fmt: skip
def test_a_policy_that_is_wrong_is_refused_at_its_place(
    tmp_path: Path, lines: str, said: str
) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"job: t\nlaunch: plain\ncommand: [a]\nkubernetes: {{{lines}}}\n")
    with pytest.raises(ConfigError) as caught:
        look_at(path)

    assert [str(p).removeprefix(f"{path}:") for p in caught.value.problems] == [said]
