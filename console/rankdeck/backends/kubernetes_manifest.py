"""The manifest of a Kubernetes job: an MPIJob, or an Indexed Job with a headless Service, as YAML."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from rankdeck.backends.batch import gpus_per_node, options, ranks_per_node
from rankdeck.backends.kubernetes_shim import POD_SHIM
from rankdeck.backends.launchers import script_command
from rankdeck.backends.tokens import shell_line
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import JobSpec, Launch
from rankdeck_agent.wire import JOB_VARIABLE, RUN_TOKEN, RUN_VARIABLE

Object = dict[str, Any]
FOLDER = "/rankdeck"
"""Where the job's files are in every pod."""
SHIM = ("sh", f"{FOLDER}/rank-shim")
"""What every rank is started through."""
KNOWN = ("namespace", "queue", "gpus", "context", "ttl", "port", "login")
IMPLEMENTATIONS = {"openmpi5": "OpenMPI", "openmpi4": "OpenMPI", "mpich": "MPICH"}
DEFAULT_PORT = "29500"
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")


def job_name(job: str) -> str:
    """The job's id as a DNS label, short enough for the names that Kubernetes adds to."""
    name = re.sub(r"[^a-z0-9-]+", "-", job.lower()).strip("-")
    name = name if name[:1].isalpha() else f"job-{name}"
    name = name[:50].rstrip("-")
    if not _LABEL.fullmatch(name):
        raise LaunchError("plan", f"`{job}` gives no name that Kubernetes takes")
    return name


def manifest(cluster: Cluster, spec: JobSpec, job: str) -> str:
    """All objects of the job as YAML documents; raises LaunchError."""
    made = objects(cluster, spec, job)
    return yaml.safe_dump_all(made, sort_keys=False, width=100, allow_unicode=True)


def objects(cluster: Cluster, spec: JobSpec, job: str) -> list[Object]:
    """All objects of the job in the order in which they are created, the job last; raises LaunchError."""
    if spec.container is None:
        raise LaunchError(
            "plan", f"job `{spec.name}` needs `container: {{image: …}}` on Kubernetes"
        )
    chosen = options(cluster, spec, "kubernetes")
    unknown = [key for key in chosen if key not in KNOWN]
    if unknown:
        known = ", ".join(KNOWN)
        raise LaunchError("plan", f"no Kubernetes option `{unknown[0]}`; there are: {known}")
    return _config_map(spec, job, chosen) + _OBJECTS[spec.launch](cluster, spec, job, chosen)


# ---- parts ------------------------------------------------------------------------------


def _meta(job: str, chosen: Mapping[str, str]) -> Object:
    labels = {"app.kubernetes.io/managed-by": "rankdeck", "rankdeck/job": job_name(job)}
    if chosen.get("queue"):
        labels["kueue.x-k8s.io/queue-name"] = chosen["queue"]
    meta: Object = {"name": job_name(job), "labels": labels}
    if chosen.get("namespace"):
        meta["namespace"] = chosen["namespace"]
    return meta


def _config_map(spec: JobSpec, job: str, chosen: Mapping[str, str]) -> list[Object]:
    if any("/" in name for name in spec.files):
        raise LaunchError("plan", "files in sub-folders cannot be given to pods; use flat names")
    data = {name: _inside(text) for name, text in spec.files.items()}
    data["rank-shim"] = POD_SHIM
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _meta(job, chosen),
            "data": data,
        }
    ]


def _inside(text: str) -> str:
    """The run folder as it is called in a pod."""
    return text.replace(RUN_TOKEN, FOLDER)


def _env(cluster: Cluster, spec: JobSpec, job: str) -> dict[str, str]:
    own = {JOB_VARIABLE: job, RUN_VARIABLE: FOLDER, "PYTHONUNBUFFERED": "1"}
    return {k: _inside(v) for k, v in {**own, **cluster.environment, **spec.env}.items()}


def _container(
    cluster: Cluster, spec: JobSpec, job: str, command: Sequence[str], gpus: int
) -> Object:
    assert spec.container is not None
    container: Object = {"name": "rank", "image": spec.container.image}
    if command:
        container["command"] = [_inside(word) for word in command]
    container["env"] = [{"name": k, "value": v} for k, v in _env(cluster, spec, job).items()]
    folder = spec.container.workdir or spec.workdir
    if folder:
        container["workingDir"] = _inside(folder)
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    mounts = [
        {"name": f"mount{i}", **m[1]} for i, m in enumerate(map(_mount, spec.container.mounts))
    ]
    mounts.insert(0, {"name": "files", "mountPath": FOLDER})
    container["volumeMounts"] = [*mounts, {"name": "shm", "mountPath": "/dev/shm"}]
    return container


def _mount(text: str) -> tuple[Object, Object]:
    source, target, *mode = text.split(":")
    inside: Object = {"mountPath": target}
    if mode == ["ro"]:
        inside["readOnly"] = True
    return {"hostPath": {"path": source}}, inside


def _pod(spec: JobSpec, job: str, container: Object) -> Object:
    """A pod's spec; shared memory is the node's, not Docker's 64 MB."""
    mounts = spec.container.mounts if spec.container else ()
    volumes: list[Object] = [{"name": f"mount{i}", **_mount(m)[0]} for i, m in enumerate(mounts)]
    volumes.insert(0, {"name": "files", "configMap": {"name": job_name(job)}})
    volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    pod: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": round(spec.grace),
    }
    return {**pod, "containers": [container], "volumes": volumes}


# ---- MPIJob -----------------------------------------------------------------------------


def _mpijob(cluster: Cluster, spec: JobSpec, job: str, chosen: Mapping[str, str]) -> list[Object]:
    slots = ranks_per_node(cluster, spec)
    gpus = gpus_per_node(cluster, spec, chosen.get("gpus", ""))
    launcher = _container(cluster, spec, job, _mpirun(cluster, spec, slots), 0)
    worker = _container(cluster, spec, job, (), gpus)
    job_spec: Object = {
        "slotsPerWorker": slots,
        "mpiImplementation": IMPLEMENTATIONS[spec.mpi.flavour],
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {
            "cleanPodPolicy": "Running",
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": int(chosen.get("ttl", "86400")),
        },
        "mpiReplicaSpecs": {
            "Launcher": _replicas(1, job, _pod(spec, job, launcher)),
            "Worker": _replicas(spec.nodes, job, _pod(spec, job, worker)),
        },
    }
    meta = _meta(job, chosen)
    return [
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": meta,
            "spec": job_spec,
        }
    ]


def _replicas(count: int, job: str, pod: Object) -> Object:
    return {"replicas": count, "restartPolicy": "Never", "template": _template(job, pod)}


def _template(job: str, pod: Object) -> Object:
    return {"metadata": {"labels": {"rankdeck/job": job_name(job)}}, "spec": pod}


def _mpirun(cluster: Cluster, spec: JobSpec, slots: int) -> list[str]:
    """The hostfile is named: Open MPI 5 ignores the operator's variables and runs on one host."""
    size = str(slots * spec.nodes)
    words = [spec.mpi.path]
    if spec.mpi.flavour == "mpich":
        return [
            *words,
            "-n",
            size,
            "-ppn",
            str(slots),
            *spec.mpi.args,
            *SHIM,
            *spec.command,
        ]
    words += ["--allow-run-as-root", "--hostfile", "/etc/mpi/hostfile", "-np", size]
    words += ["--map-by", f"ppr:{slots}:node", "--bind-to", "none"]
    for name in {JOB_VARIABLE: 0, RUN_VARIABLE: 0, **cluster.environment, **spec.env}:
        words += ["-x", name]
    return [*words, *spec.mpi.args, *SHIM, *spec.command]


# ---- Indexed Job ------------------------------------------------------------------------


def _indexed_job(
    cluster: Cluster, spec: JobSpec, job: str, chosen: Mapping[str, str]
) -> list[Object]:
    name, meta = job_name(job), _meta(job, chosen)
    gpus = gpus_per_node(cluster, spec, chosen.get("gpus", ""))
    line = _LINES[spec.launch](cluster, spec, name, chosen.get("port", DEFAULT_PORT))
    pod = _pod(spec, job, _container(cluster, spec, job, ("sh", "-c", line), gpus))
    service: Object = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": name},
    }
    job_spec: Object = {
        "completionMode": "Indexed",
        "completions": spec.nodes,
        "parallelism": spec.nodes,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": int(chosen.get("ttl", "86400")),
        "template": _template(job, {"subdomain": name, **pod}),
    }
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": _meta(job, chosen),
            "spec": job_spec,
        },
    ]


def _torchrun(cluster: Cluster, spec: JobSpec, name: str, port: str) -> str:
    words = [
        spec.torch.path,
        f"--nnodes={spec.nodes}",
        f"--nproc-per-node={ranks_per_node(cluster, spec)}",
        f"--master-addr={name}-0.{name}",
        f"--master-port={spec.torch.port or port}",
        "--max-restarts=0",
    ]
    script = (*spec.torch.args, "--no-python", *SHIM, *script_command(spec.command))
    return f'exec {shell_line(words)} --node-rank="$JOB_COMPLETION_INDEX" {shell_line(script)}'


def _tensorflow(cluster: Cluster, spec: JobSpec, name: str, port: str) -> str:
    workers = ",".join(f'\\"{name}-{i}.{name}:{port}\\"' for i in range(spec.nodes))
    config = (
        f'{{\\"cluster\\":{{\\"worker\\":[{workers}]}},'
        '\\"task\\":{\\"type\\":\\"worker\\",\\"index\\":$JOB_COMPLETION_INDEX}}'
    )
    line = shell_line([*SHIM, *spec.command])
    return f'export TF_CONFIG="{config}" RANKDECK_RANK="$JOB_COMPLETION_INDEX"; exec {line}'


def _plain(cluster: Cluster, spec: JobSpec, name: str, port: str) -> str:
    """Ranks of a node side by side in its pod; the first that fails gives the status."""
    each = ranks_per_node(cluster, spec)
    line = shell_line([*SHIM, "-n", str(each), *spec.command])
    return f"export WORLD_SIZE={each * spec.nodes}; exec {line}"


_LINES = {
    Launch.TORCHRUN: _torchrun,
    Launch.TENSORFLOW: _tensorflow,
    Launch.PLAIN: _plain,
}
_OBJECTS: Mapping[Launch, Callable[[Cluster, JobSpec, str, Mapping[str, str]], list[Object]]] = {
    Launch.MPI: _mpijob,
    Launch.TORCHRUN: _indexed_job,
    Launch.TENSORFLOW: _indexed_job,
    Launch.PLAIN: _indexed_job,
}
