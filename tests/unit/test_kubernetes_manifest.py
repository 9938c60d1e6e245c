"""Manifests for Kubernetes: options of both files, volumes, files, names, and what is refused."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rankdeck.backends.launchers import plan_job
from rankdeck.cli.check import look_at
from rankdeck.config.clusters import read_cluster
from rankdeck.config.jobs import read_job
from rankdeck.errors import ConfigError, LaunchError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import Container, JobSpec, Launch, MpiOptions
from rankdeck.schedulers.kubernetes.manifest import POD_SHIM, job_name, job_objects
from rankdeck.values import replace

IMAGE = Container(image="i:1")
CLUSTER = """\
cluster: k
backend: kubernetes
nodes: [{name: w1, slots: 2}]
kubernetes:
  namespace: training
  queue: team-a
  login: head
  tolerations:
    - {key: nvidia.com/gpu, effect: NoSchedule}
    - {key: spot, value: "yes", effect: NoExecute, seconds: 30}
  node_selector: {gpu: h100}
  pull_secrets: registry
  resources: {rdma/hca: 1, memory: 64Gi}
"""
JOB = """\
job: t
launch: plain
nodes: 2
command: [app]
container: {image: "i:1", mounts: ["/data:/data:ro", "pvc:sets:/sets"]}
kubernetes:
  gpus: 4
  shm: 16Gi
  priority: high
  pull_policy: Always
  service_account: trainer
  host_network: true
  ttl: 60
  resources: {rdma/hca: 2}
"""


def planned(folder: Path, cluster: str = CLUSTER, job: str = JOB) -> list[dict[str, Any]]:
    (folder / "c.yaml").write_text(cluster)
    (folder / "j.yaml").write_text(job)
    return job_objects(read_cluster(folder / "c.yaml"), read_job(folder / "j.yaml"), "t-1")


def made(spec: JobSpec, job: str = "t-1", **options: str) -> list[dict[str, Any]]:
    nodes = (Node(name="w1", slots=2),)
    return job_objects(
        Cluster(name="k", nodes=nodes, backend="kubernetes", options=options), spec, job
    )


def pod_of(workload: Mapping[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]


def mistakes(folder: Path, text: str) -> list[str]:
    path = folder / "f.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        look_at(path)
    return [str(p).removeprefix(f"{path}:") for p in caught.value.problems]


def test_every_option_of_both_files_is_in_the_pods(tmp_path: Path) -> None:
    *_, job = planned(tmp_path)
    pod = pod_of(job)
    (container,) = pod["containers"]

    assert job["metadata"]["namespace"] == "training"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert job["spec"]["ttlSecondsAfterFinished"] == 60
    assert pod["nodeSelector"] == {"gpu": "h100"}
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "spot", "value": "yes", "operator": "Equal", "effect": "NoExecute", "tolerationSeconds": 30},
    ]  # fmt: skip
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert (pod["priorityClassName"], pod["serviceAccountName"]) == ("high", "trainer")
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 4, "rdma/hca": "2"}}
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}


def affinity_of(workload: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The nodes of each term, and how they are meant."""
    wanted = pod_of(workload)["affinity"]["nodeAffinity"]
    terms = wanted["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    fields = [term["matchFields"] for term in terms]
    assert all(f["key"] == "metadata.name" and len(f["values"]) == 1 for fs in fields for f in fs)
    return [(fs[0]["operator"], [f["values"][0] for f in fs]) for fs in fields]


def test_ranks_are_on_the_nodes_that_are_named_and_the_launcher_anywhere(tmp_path: Path) -> None:
    spec = JobSpec(name="t", launch=Launch.PLAIN, command=("a",), container=IMAGE, nodes=2, on=("a", "b"))  # fmt: skip
    *_, job = made(spec)

    assert affinity_of(job) == [("In", ["a"]), ("In", ["b"])]
    (apart,) = pod_of(job)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]  # fmt: skip
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert apart["labelSelector"]["matchLabels"].items() <= labels.items()
    assert apart["topologyKey"] == "kubernetes.io/hostname"

    *_, mpijob = made(replace(spec, launch=Launch.MPI, mpi=MpiOptions(flavour="openmpi5")))
    replicas = mpijob["spec"]["mpiReplicaSpecs"]
    assert "affinity" in replicas["Worker"]["template"]["spec"]
    assert "affinity" not in replicas["Launcher"]["template"]["spec"]
    launcher = replicas["Launcher"]["template"]["metadata"]["labels"]
    assert not apart["labelSelector"]["matchLabels"].items() <= launcher.items()


def test_no_rank_is_on_an_excluded_node(tmp_path: Path) -> None:
    *_, job = planned(tmp_path, CLUSTER + "  exclude: [w7, w8]\n")

    assert affinity_of(job) == [("NotIn", ["w7", "w8"])]


def test_volumes_are_paths_of_the_node_or_claims(tmp_path: Path) -> None:
    *_, job = planned(tmp_path)
    pod = pod_of(job)

    assert pod["volumes"][1:] == [
        {"name": "mount0", "hostPath": {"path": "/data"}},
        {"name": "mount1", "persistentVolumeClaim": {"claimName": "sets"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
    ]
    assert pod["containers"][0]["volumeMounts"][1:] == [
        {"name": "mount0", "mountPath": "/data", "readOnly": True},
        {"name": "mount1", "mountPath": "/sets"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("kubernetes: {namespce: a}", "4:14: kubernetes: unknown key `namespce`; did you mean `namespace`?"),
        ("kubernetes: {gpus: many}", "4:20: kubernetes.gpus: expected a whole number from 0 to 1024, found text `many`"),
        ("kubernetes: {namespace: A_b}", "4:25: kubernetes.namespace: `A_b` is not a name as Kubernetes has: a-z, 0-9 and `-`, 63 at most"),
        ("kubernetes: {shm: lots}", "4:19: kubernetes.shm: `lots` is not a quantity; write it as 1, 500m, 64Gi"),
        ("kubernetes: {resources: [a]}", "4:25: kubernetes.resources: expected a table (key: value), found a list"),
        ("kubernetes: {pull_policy: always}", "4:27: kubernetes.pull_policy: no such value `always`; did you mean `Always`?"),
        ("kubernetes: {tolerations: [{kay: a}]}", "4:29: kubernetes.tolerations[0]: unknown key `kay`; did you mean `key`?"),
        ("kubernetes: {tolerations: [{key: a, seconds: 3}]}", "4:46: kubernetes.tolerations[0].seconds: has no effect without `effect: NoExecute`"),
        ("kubernetes: {context: -x}", "4:23: kubernetes.context: `-x` is not the name of a context in kubectl's configuration"),
        ("kubernetes: {login: h}", "4:14: kubernetes: belongs into the cluster file: `kubernetes: {login: HOST}`"),
    ],
)  # fmt: skip
def test_an_option_that_is_wrong_is_refused_at_its_place(
    tmp_path: Path, lines: str, said: str
) -> None:
    assert mistakes(tmp_path, f"job: t\nlaunch: plain\ncommand: [a]\n{lines}\n") == [said]


def test_a_cluster_file_refuses_unknown_options_too(tmp_path: Path) -> None:
    text = "cluster: k\nbackend: kubernetes\nkubernetes: {contxt: prod}\n"

    assert mistakes(tmp_path, text) == [
        "3:14: kubernetes: unknown key `contxt`; did you mean `context`?"
    ]


def test_a_claim_keeps_the_output_of_each_job_in_a_folder_of_its_own() -> None:
    spec = JobSpec(name="t", launch=Launch.MPI, command=("a",), container=IMAGE)
    *_, job = made(spec, logs="kept")

    for replica in job["spec"]["mpiReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        mount = next(m for m in container["volumeMounts"] if m["name"] == "logs")
        assert mount == {"name": "logs", "mountPath": "/rankdeck-logs", "subPath": "t-1"}
        assert {"name": "RANKDECK_LOGS", "value": "/rankdeck-logs"} in container["env"]


def test_a_claim_is_refused_where_there_is_no_kubernetes() -> None:
    container = replace(IMAGE, mounts=("pvc:a:/a",))
    spec = JobSpec(name="t", launch=Launch.PLAIN, command=("a",), container=container)

    with pytest.raises(LaunchError, match="only on Kubernetes"):
        plan_job(Cluster(name="c", nodes=(Node(name="n"),)), spec, "t-1")


def test_a_mount_without_a_whole_path_is_refused() -> None:
    container = replace(IMAGE, mounts=("data:/data",))
    spec = JobSpec(name="t", launch=Launch.PLAIN, command=("a",), container=container)

    with pytest.raises(LaunchError, match=r"pvc:NAME:/data"):
        made(spec)


def test_pods_bear_the_labels_of_the_job() -> None:
    for launch in Launch:
        spec = JobSpec(name="t", launch=launch, command=("a",), container=IMAGE)
        *_, job = made(spec)
        replicas = job["spec"].get("mpiReplicaSpecs", {"": job["spec"]})

        for replica in replicas.values():
            labels = replica["template"]["metadata"]["labels"]
            assert labels == {"app.kubernetes.io/managed-by": "rankdeck", "rankdeck/job": "t-1"}


def test_another_console_reads_the_job_from_its_annotations() -> None:
    spec = JobSpec(name="t", launch=Launch.MPI, command=("a",), nodes=2, container=IMAGE)
    *_, job = made(spec)
    notes = job["metadata"]["annotations"]

    assert notes["rankdeck/job-id"] == "t-1"
    assert json.loads(notes["rankdeck/spec"]) == {
        "name": "t", "cluster": "k", "launch": "mpi", "nodes": 2, "ranks_per_node": 2,
        "grace": 10.0, "abort": True, "countdown": 10.0,
    }  # fmt: skip


def test_files_in_folders_get_keys_of_their_own() -> None:
    files = {"a/b.py": "1", "b c": "2", "file-0": "3", "d.py": "4"}
    spec = JobSpec(name="t", launch=Launch.PLAIN, command=("a",), files=files, container=IMAGE)
    config, *_, job = made(spec)
    volume = next(v for v in pod_of(job)["volumes"] if v["name"] == "files")

    laid = {one["path"]: config["data"][one["key"]] for one in volume["configMap"]["items"]}
    assert laid == {**files, "rank-shim": POD_SHIM}
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", key) for key in config["data"])


def test_too_many_files_are_refused_before_the_server_does() -> None:
    files = {"a": "x" * (1 << 20)}
    spec = JobSpec(name="t", launch=Launch.PLAIN, command=("a",), files=files, container=IMAGE)

    with pytest.raises(LaunchError, match="bytes and Kubernetes takes 1,048,576"):
        made(spec)


def test_long_names_stay_different_and_fit() -> None:
    one, two = (job_name(f"{'a' * 60}-1122-111111-{end}") for end in ("aaaa", "bbbb"))

    assert one != two
    assert len(f"{one}-worker-99999") <= 63
    assert job_name("9-Job_x") == "job-9-job-x"


@pytest.mark.parametrize(("cleanup", "policy"), [("", "Running"), ("none", "None"), ("all", "All")])
def test_what_is_left_of_an_mpijob_is_as_asked(cleanup: str, policy: str) -> None:
    spec = JobSpec(name="t", launch=Launch.MPI, command=("a",), container=IMAGE)
    *_, job = made(spec, cleanup=cleanup, ssh_path="/home/mpi/.ssh")

    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == policy
    assert job["spec"]["sshAuthMountPath"] == "/home/mpi/.ssh"


def test_the_restart_policy_stands_where_its_controller_reads_it() -> None:
    """The MPI Operator warns of one in a pod template; a Job wants it there."""
    spec = JobSpec(name="t", launch=Launch.PLAIN, command=("a",), container=IMAGE)
    *_, job = made(spec)
    *_, mpijob = made(replace(spec, launch=Launch.MPI))

    assert pod_of(job)["restartPolicy"] == "Never"
    replicas = mpijob["spec"]["mpiReplicaSpecs"].values()
    assert [one["restartPolicy"] for one in replicas] == ["Never", "Never"]
    assert all("restartPolicy" not in one["template"]["spec"] for one in replicas)


@pytest.mark.parametrize("flavour", ["openmpi5", "openmpi4", "mpich"])
def test_every_mpi_is_told_the_hostfile(flavour: str) -> None:
    mpi = MpiOptions(flavour=flavour)
    spec = JobSpec(name="t", launch=Launch.MPI, command=("a",), mpi=mpi, container=IMAGE)
    *_, job = made(spec)
    (launcher,) = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]

    assert "/etc/mpi/hostfile" in launcher["command"]
    assert "resources" not in launcher
