"""The manifest of a Kubernetes job: an MPIJob, or an Indexed Job with a headless Service, as YAML.

Its pods run each rank under a shim, which writes to the pod's stdout what the rank prints and how
it ends, one line each; `rankdeck_agent.schedulers.kubernetes.objects` reads them:

    [rank 3 start] HOST
    [rank 3 out] TEXT
    [rank 3 err] TEXT
    [rank 3 out+] TEXT            a part of a long line, which goes on
    [rank 3 exit] STATUS          as in a shell: 128 + signal if a signal ended it

Kubernetes keeps one log per container, for all ranks, and stdout and stderr together. The labels
tell ranks and streams apart, whatever mpirun or torchrun add. Writes to a pipe are atomic up to
4096 bytes, so longer lines are sent in parts.

On the volume claim of `logs` a rank has the files `out` and `err` with its output, and `start` and
`exit` with the text as above and, on a second line, the time (epoch seconds);
`rankdeck_agent.schedulers.kubernetes.volume_claim` reads them.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rankdeck.backends.launchers import (
    TORCHRUN_ENDS,
    jax_variables,
    script_command,
    without_given_options,
)
from rankdeck.backends.plan_options import backend_options, gpus_per_node, planned_ranks_per_node
from rankdeck.backends.shell_words import shell_line
from rankdeck.config.document import write_documents
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import CLAIM, JobSpec, Launch
from rankdeck.model.plan_part import LineKind, PlanPart
from rankdeck.schedulers.kubernetes.patch import patch_objects, pod_templates, table_or_empty
from rankdeck.values import Value
from rankdeck_agent.wire import (
    JOB_VARIABLE,
    NODE_VARIABLE,
    RANK_IN_SHELL,
    RUN_TOKEN,
    RUN_VARIABLE,
    run_folder,
)
from rankdeck_agent.wire.inside_rank import INSIDE_FILE, INSIDE_RANK

_SHIM_TEXT = r"""#!/bin/sh
# rank-shim [-n RANKS] PROGRAM ARGS...: run one rank, or the RANKS ranks of this pod side by side.
#
# As the first process of a container it has to pass on SIGTERM itself: the program runs in the background
# and the shell waits. What a rank leaves behind in the background is not waited for.
code=0
await() { # PID: wait for it, through signals; its status is in $code
    again=1
    while [ -n "$again" ]; do
        again=
        wait "$1" 2>/dev/null
        code=$?
    done
}
if [ "$1" = -n ]; then
    each=$2 slot=0 pids= status=0
    shift 2
    trap 'again=1; kill -TERM $pids 2>/dev/null' TERM
    while [ "$slot" -lt "$each" ]; do
        RANK=$((JOB_COMPLETION_INDEX * each + slot)) LOCAL_RANK=$slot sh "$0" "$@" &
        pids="$pids $!" slot=$((slot + 1))
    done
    for pid in $pids; do
        await "$pid"
        [ "$status" -ne 0 ] || status=$code
    done
    exit "$status"
fi
rank=@RANK@
: "${rank:=0}"
for folder in /dev/shm "${TMPDIR:-/tmp}" /var/tmp; do
    place=$folder/rankdeck.$rank.$$
    mkdir -m 700 "$place" 2>/dev/null && mkfifo -m 600 "$place/out" "$place/err" && break
    place=
done
if [ -z "$place" ]; then
    echo "rankdeck: no folder of this container may be written: the output of rank $rank stays without its number" >&2
    exec "$@"
fi
kept=${RANKDECK_LOGS:+$RANKDECK_LOGS/rank.$rank}
[ -z "$kept" ] || mkdir -p "$kept" || kept=
label() { # STREAM: sed -u reads a byte at a time, so it comes second
    # Each 76th run of 50 bytes ends a part. The first test is for speed; 255 is the most that musl counts to.
    script=":a
/^.\{250\}/{
s/................................................../&\\
/76
/\n/{
s/^/[rank $rank $1+] /
P
s/^[^\n]*\n//
ba
}
}
s/^/[rank $rank $1] /"
    if stdbuf -oL true 2>/dev/null; then
        LC_ALL=C exec stdbuf -oL sed "$script"
    elif echo | sed -u "$script" >/dev/null 2>&1; then
        LC_ALL=C exec sed -u "$script"
    fi
    LC_ALL=C
    while IFS= read -r line || [ -n "$line" ]; do
        while [ "${#line}" -gt 3800 ]; do
            head=$(printf '%.3800s' "$line")
            line=${line#"$head"}
            printf '[rank %s %s+] %s\n' "$rank" "$1" "$head"
        done
        printf '[rank %s %s] %s\n' "$rank" "$1" "$line"
    done
}
keep() { # STREAM: with a copy on the volume claim, where there is one; a signal to the whole group is not for it
    trap '' TERM INT HUP
    if [ -n "$kept" ]; then tee -a "$kept/$1" | label "$1"; else label "$1"; fi
}
output() { # FILE of an open descriptor: whether it is the output of the rank
    [ "$1" -ef "$place/out" ] || [ "$1" -ef "$place/err" ]
}
held() { # whether a process may still write to it; `keep` has it as its fd 0
    for open in /proc/[0-9]*/fd/[1-9]*; do
        ! output "$open" || return 0
    done
    return 1
}
tell() { # WHAT TEXT
    printf '[rank %s %s] %s\n' "$rank" "$1" "$2"
    [ -z "$kept" ] || printf '%s\n' "$2" "$(date +%s)" >"$kept/$1"
}
# A Python rank of several answers where it is.
inside=$RANKDECK_RUN/@INSIDE@
if [ "$RANKDECK_WITNESS" != off ] && [ -r "$inside/@INSIDE_FILE@" ]; then
    RANKDECK_WITNESS=$place/@POD_WITNESS@
    PYTHONPATH=$inside${PYTHONPATH:+:$PYTHONPATH}
    : "${TORCH_FR_BUFFER_SIZE:=${TORCH_NCCL_TRACE_BUFFER_SIZE:-2000}}"
    export RANKDECK_WITNESS PYTHONPATH TORCH_FR_BUFFER_SIZE
fi
tell start "$(uname -n)"
pid=
trap 'again=1; [ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null' TERM
keep out <"$place/out" &
taggers=$!
keep err <"$place/err" &
taggers="$taggers $!"
"$@" >"$place/out" 2>"$place/err" &
pid=$!
printf '%s\n' "$pid" >"$place/@POD_PID@"
await "$pid"
status=$code pid=
# The labels come to their end by themselves, however slowly the log is read, unless a program that the rank
# left behind has its output open: that is not waited for.
(
    patience=600
    while [ "$patience" -gt 0 ]; do
        sleep 1
        [ -d "$place" ] || exit # A signal that comes as this begins may be lost.
        if held; then patience=$((patience - 300)); else patience=$((patience - 1)); fi
    done
    for tagger in $taggers; do
        ! output "/proc/$tagger/fd/0" || kill -9 "$tagger" # Its number may be that of another process by now.
    done
) >/dev/null 2>&1 &
watch=$!
for tagger in $taggers; do await "$tagger"; done
kill "$watch" 2>/dev/null
rm -rf "$place"
tell exit "$status"
exit "$status"
"""
_SHIM_WORDS = {
    "RANK": RANK_IN_SHELL,
    "INSIDE": run_folder.INSIDE,
    "INSIDE_FILE": INSIDE_FILE,
    "POD_WITNESS": run_folder.POD_WITNESS,
    "POD_PID": run_folder.POD_PID,
}
POD_SHIM = re.sub(r"@([A-Z_]+)@", lambda found: _SHIM_WORDS[found[1]], _SHIM_TEXT)


Object = dict[str, Any]
FOLDER = "/rankdeck"
"""Where the job's files are in every pod."""
SHIM = ("sh", f"{FOLDER}/{run_folder.SHIM}")
"""Words before the command of every rank."""
LOGS, LOGS_VARIABLE = "/rankdeck-logs", "RANKDECK_LOGS"
"""Where the volume claim of `logs` is mounted in every pod, and
the variable that tells the shim.
"""
IMPLEMENTATIONS = {"openmpi5": "OpenMPI", "openmpi4": "OpenMPI", "mpich": "MPICH"}
HOSTFILE = "/etc/mpi/hostfile"
"""Where the MPI Operator puts it."""
CLEAN_UP = {"running": "Running", "all": "All", "none": "None"}
GPU_RESOURCES = {"amd": "amd.com/gpu"}
"""Vendor of the container's GPUs -> resource; `nvidia.com/gpu` for all others."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_LABEL, RANKS_LABEL = "rankdeck/job", "rankdeck/ranks"
"""Labels: on all objects of a job; on its pods with ranks, if the job names their nodes."""
JOB_ANNOTATION, SPEC_ANNOTATION = "rankdeck/job-id", "rankdeck/spec"
"""Annotations of the Job or MPIJob: Rankdeck's job id, and what
other consoles need to follow it.
"""
_DEFAULT_PORT = "29500"
_DEFAULT_TTL = "86400"
_LONGEST_NAME = 50
"""Most characters of a job's name: the pod `NAME-worker-99999` is also
a host name, which has at most 63.
"""
_DATA_LIMIT = 1 << 20
_WITH_WITNESSES = (Launch.MPI, Launch.TORCHRUN, Launch.JAX)
"""Launches whose Python ranks can say where they are."""
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(m|[kMGTPE]|[KMGTPE]i|)")
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_READ_BY_KUBERNETES = re.compile(r"\$(?=[$(])")
_RDMA = re.compile(r"rdma|hca|infiniband|(^|[./])(ib|efa)([./]|$)", re.IGNORECASE)
"""RDMA resources: programs that use them register memory, for
which the container needs IPC_LOCK.
"""


class _Wanted(Value):
    """What a manifest is made from."""

    cluster: Cluster
    spec: JobSpec
    job: str
    chosen: Mapping[str, str]
    """The options of `config/schedulers.py`: the cluster's, overridden by the job's."""

    @property
    def name(self) -> str:
        return job_name(self.job)

    def word(self, key: str, default: str = "") -> str:
        return self.chosen.get(key, "") or default

    def parsed(self, key: str) -> Any:  # noqa: ANN401 - a list or a table, as the reader made it
        return json.loads(self.chosen.get(key) or "null")


def job_name(job: str) -> str:
    """The job's id as a DNS label, short enough for the suffixes that
    Kubernetes adds; raises LaunchError.
    """
    name = re.sub(r"[^a-z0-9-]+", "-", job.lower()).strip("-")
    name = name if name[:1].isalpha() else f"job-{name}"
    if len(name) > _LONGEST_NAME:
        # The part that is cut off tells jobs of the same name apart, so replace it by a digest.
        digest = hashlib.sha256(job.encode()).hexdigest()[:8]
        name = f"{name[: _LONGEST_NAME - 9].rstrip('-')}-{digest}"
    if not _LABEL.fullmatch(name):
        raise LaunchError("plan", f"`{job}` gives no name that Kubernetes takes")
    return name


def manifest_parts(made: Sequence[Any]) -> list[PlanPart]:
    """The manifest as YAML, a document for each object, in parts: each
    field at its top with all below it.
    """
    parts: list[PlanPart] = []
    for one in made:
        if parts:
            parts.append(PlanPart(LineKind.NOTE, "---"))
        for key, value in one.items():
            first, *below = write_documents([{key: value}]).removesuffix("\n").split("\n")
            parts.append(PlanPart(LineKind.FIELD, first))
            if below:
                parts.append(PlanPart(LineKind.FILE, "\n".join(below)))
    return parts


def job_objects(cluster: Cluster, spec: JobSpec, job: str) -> list[Object]:
    """All objects of the job in the order in which they are created, the Job
    or MPIJob last; raises LaunchError.
    """
    if spec.container is None:
        raise LaunchError(
            "plan", f"job `{spec.name}` needs `container: {{image: …}}` on Kubernetes"
        )
    wanted = _Wanted(cluster, spec, job, backend_options(cluster, spec, "kubernetes"))
    make = _mpijob if spec.launch is Launch.MPI else _indexed_job
    made = patch_objects(_config_map(wanted) + make(wanted), wanted.parsed("patch") or ())
    _check_requests(made[-1])
    return made


def _check_requests(workload: Object) -> None:
    """Raise LaunchError if a container requests more than its limit: no such pod can be
    created, and no server says so of an MPIJob.
    """
    boxes = [box for one in pod_templates(workload) for box in one["spec"]["containers"]]
    for box in boxes:
        given = table_or_empty(box.get("resources"))
        limits = table_or_empty(given.get("limits"))
        for name, asked in table_or_empty(given.get("requests")).items():
            limit = limits.get(name)
            if limit is not None and _amount(asked) > _amount(limit):
                raise LaunchError(
                    "plan",
                    f"container `{box['name']}` requests {asked} of {name} and its limit is {limit}:"
                    " raise `resources` or lower `requests`",
                )


_FACTORS = {"": 1, "m": Fraction(1, 1000), **{s: 1000**n for n, s in enumerate("kMGTPE", 1)},
            **{f"{s}i": 1024**n for n, s in enumerate("KMGTPE", 1)}}  # fmt: skip


def _amount(quantity: object) -> Fraction:
    """The number that a quantity means: 500m, 64Gi; 0 if it is none, which the server refuses."""
    found = _QUANTITY.fullmatch(str(quantity))
    return Fraction(found[1]) * _FACTORS[found[2]] if found else Fraction(0)


# ---- names ------------------------------------------------------------------------------


def _labels(wanted: _Wanted) -> dict[str, str]:
    """The labels of all objects and pods: those of the site, and
    those by which Rankdeck finds them.
    """
    own = {"app.kubernetes.io/managed-by": "rankdeck", JOB_LABEL: wanted.name}
    return {**(wanted.parsed("labels") or {}), **own}


def _marks(wanted: _Wanted) -> Object:
    """Labels and annotations of all objects and pods."""
    notes = wanted.parsed("annotations")
    return {"labels": _labels(wanted), **({"annotations": notes} if notes else {})}


def _meta(wanted: _Wanted) -> Object:
    meta: Object = {"name": wanted.name, **_marks(wanted)}
    if namespace := wanted.word("namespace"):
        meta["namespace"] = namespace
    return meta


def _workload_meta(wanted: _Wanted) -> Object:
    """The metadata of the Job or MPIJob: the label of its Kueue queue,
    and annotations for other consoles.
    """
    meta = _meta(wanted)
    if queue := wanted.word("queue"):
        meta["labels"][QUEUE_LABEL] = queue
    annotations = {
        **meta.get("annotations", {}),
        JOB_ANNOTATION: wanted.job,
        SPEC_ANNOTATION: json.dumps(_spec_note(wanted), separators=(",", ":")),
    }
    return {**meta, "annotations": annotations}


def _spec_note(wanted: _Wanted) -> Object:
    spec = wanted.spec
    return {
        "name": spec.name,
        "cluster": wanted.cluster.name,
        "launch": spec.launch.value,
        "nodes": spec.nodes,
        "ranks_per_node": planned_ranks_per_node(wanted.cluster, spec),
        "grace": spec.grace,
        "abort": spec.abort.enabled,
        "countdown": spec.abort.countdown,
    }


# ---- files ------------------------------------------------------------------------------


def _config_map(wanted: _Wanted) -> list[Object]:
    files = _files(wanted)
    for name in files:
        if name.startswith(".."):
            raise LaunchError("plan", f"file `{name}`: Kubernetes takes no name that begins so")
    data = {key: _inside(files[name]) for key, name in _keys(files).items()}
    size = sum(len(key) + len(text.encode()) for key, text in data.items())
    if size > _DATA_LIMIT:
        raise LaunchError(
            "plan",
            f"the files of job `{wanted.spec.name}` have {size:,} bytes and Kubernetes takes"
            f" {_DATA_LIMIT:,}: put them into the image or on a volume (`mounts`)",
        )
    meta = _meta(wanted)
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}]


def _files(wanted: _Wanted) -> dict[str, str]:
    """Name -> text of the files in FOLDER of every pod: those of the job, and ours."""
    files = {**wanted.spec.files, run_folder.SHIM: POD_SHIM}
    if wanted.spec.launch in _WITH_WITNESSES:
        files[f"{run_folder.INSIDE}/{INSIDE_FILE}"] = INSIDE_RANK
    return files


def _keys(files: Mapping[str, str]) -> dict[str, str]:
    """Key in the ConfigMap -> file name; a key cannot contain `/` and many other characters."""
    keys: dict[str, str] = {}
    for number, name in enumerate(files):
        key = name if _DATA_KEY.fullmatch(name) and name not in (".", "..") else f"file-{number}"
        while key in keys or (key != name and key in files):
            key = f"{key}_"
        keys[key] = name
    return keys


def _inside(text: str) -> str:
    """The text with the run folder's path in a pod."""
    return text.replace(RUN_TOKEN, FOLDER)


def _literal(text: str) -> str:
    """A word of a command, or a value of a variable, escaped so that
    Kubernetes does not expand `$(NAME)`.
    """
    return _READ_BY_KUBERNETES.sub("$$", _inside(text))


# ---- pods -------------------------------------------------------------------------------


def _own_env(wanted: _Wanted) -> dict[str, str]:
    """The variables that the shim reads."""
    logs = {LOGS_VARIABLE: LOGS} if wanted.word("logs") else {}
    return {JOB_VARIABLE: wanted.job, RUN_VARIABLE: FOLDER, **logs}


def _env(wanted: _Wanted, extra: Mapping[str, str]) -> list[Object]:
    own = {**_own_env(wanted), "PYTHONUNBUFFERED": "1", **extra}
    every = {**own, **wanted.cluster.environment, **wanted.spec.env}
    return [{"name": key, "value": _literal(value)} for key, value in every.items()]


_NODE: Object = {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
"""The variable with the name of the pod's node; every backend sets it."""


def _container(
    wanted: _Wanted, command: Sequence[str], given: Object, env: Mapping[str, str] | None = None
) -> Object:
    """The only container of a pod, with these `resources`; without
    a command it runs the image's.
    """
    spec = wanted.spec
    assert spec.container is not None
    container: Object = {"name": "rank", "image": spec.container.image}
    if policy := wanted.word("pull_policy"):
        container["imagePullPolicy"] = policy
    if command:
        container["command"] = [_literal(word) for word in command]
    container["env"] = [*_env(wanted, env or {}), _NODE]
    if folder := spec.container.workdir or spec.workdir:
        container["workingDir"] = _inside(folder)
    if given:
        container["resources"] = given
    security: Object = wanted.parsed("security") or {}
    if any(map(_RDMA.search, given.get("limits") or {})):
        security = {"capabilities": {"add": ["IPC_LOCK"]}, **security}
    if security:
        container["securityContext"] = security
    container["volumeMounts"] = [volume.mount for volume in _volumes(wanted)]
    return container


def _rank_resources(wanted: _Wanted) -> Object:
    """The `resources` of a container with ranks."""
    spec = wanted.spec
    gpus = gpus_per_node(wanted.cluster, spec, wanted.word("gpus"))
    vendor = spec.container.gpu if spec.container else ""
    name = GPU_RESOURCES.get(vendor, "nvidia.com/gpu")
    asked: Object = {name: gpus} if gpus else {}
    limits = {**asked, **table_or_empty(wanted.parsed("resources"))}
    both: Object = {"limits": limits, "requests": wanted.parsed("requests")}
    return {key: value for key, value in both.items() if value}


class _Volume(Value):
    """A volume of a pod and its place in the container."""

    source: Object
    mount: Object


def _volumes(wanted: _Wanted) -> list[_Volume]:
    mounts = wanted.spec.container.mounts if wanted.spec.container else ()
    volumes = [_mounted(f"mount{number}", text) for number, text in enumerate(mounts)]
    volumes.insert(0, _files_volume(wanted))
    if claim := wanted.word("logs"):
        source = {"persistentVolumeClaim": {"claimName": claim}}
        volumes.append(_volume("logs", source, LOGS))
        volumes[-1].mount["subPath"] = wanted.name
    # The usual 64 MB of /dev/shm are too small for NCCL and Open MPI.
    memory = {"medium": "Memory"}
    if size := wanted.word("shm"):
        memory["sizeLimit"] = size
    return [*volumes, _volume("shm", {"emptyDir": memory}, "/dev/shm")]


def _volume(name: str, source: Object, path: str, *, read_only: bool = False) -> _Volume:
    mount: Object = {"name": name, "mountPath": path}
    if read_only:
        mount["readOnly"] = True
    return _Volume({"name": name, **source}, mount)


def _files_volume(wanted: _Wanted) -> _Volume:
    keys = _keys(_files(wanted))
    source: Object = {"name": wanted.name, "defaultMode": 0o755}
    if any(key != name for key, name in keys.items()):
        source["items"] = [{"key": key, "path": name} for key, name in keys.items()]
    return _volume("files", {"configMap": source}, FOLDER)


def _mounted(name: str, text: str) -> _Volume:
    """The volume of `source:target[:ro]` or `pvc:NAME:target[:ro]`; raises LaunchError."""
    claim = text.startswith(CLAIM)
    source, target, *mode = text.removeprefix(CLAIM).split(":")
    if not claim and not source.startswith("/"):
        raise LaunchError(
            "plan",
            f"mount `{text}`: write a path of the node (/data:/data) or a claim (pvc:NAME:/data)",
        )
    made: Object = (
        {"persistentVolumeClaim": {"claimName": source}}
        if claim
        else {"hostPath": {"path": source}}
    )
    return _volume(name, made, _inside(target), read_only=mode == ["ro"])


def _template(wanted: _Wanted, container: Object, **more: object) -> Object:
    """A pod template with the job's labels; `more` are further fields of the pod's spec."""
    pod: Object = {
        **more,
        "terminationGracePeriodSeconds": round(wanted.spec.grace),
        **_placing(wanted),
        "containers": [container],
        "volumes": [volume.source for volume in _volumes(wanted)],
    }
    return {"metadata": _marks(wanted), "spec": pod}


def _of_ranks(wanted: _Wanted, template: Object) -> Object:
    """The template for pods with ranks: with their runtime class, on the nodes of
    `on`, one per node, on none of `exclude`.
    """
    if runtime := wanted.word("runtime_class"):
        template = {**template, "spec": {"runtimeClassName": runtime, **template["spec"]}}
    named, excluded = wanted.spec.on, wanted.word("exclude")
    if named:
        terms = [_matching("In", [name]) for name in named]
    elif excluded:
        terms = [_matching("NotIn", excluded.split(","))]
    else:
        return template
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity: Object = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}
    meta = template["metadata"]
    if named:
        ours = {RANKS_LABEL: wanted.name}
        apart = {"labelSelector": {"matchLabels": ours}, "topologyKey": "kubernetes.io/hostname"}
        affinity["podAntiAffinity"] = {required: [apart]}
        meta = {**meta, "labels": {**meta["labels"], **ours}}
    return {"metadata": meta, "spec": {**template["spec"], "affinity": affinity}}


def _matching(operator: str, names: Sequence[str]) -> Object:
    """A node selector term for these names: each field takes one value,
    and all fields of a term must match.
    """
    fields = [{"key": "metadata.name", "operator": operator, "values": [name]} for name in names]
    return {"matchFields": fields}


def _placing(wanted: _Wanted) -> Object:
    """The fields of a pod that say where it may run, by whose choice, and as whom."""
    pod: Object = {}
    for key, field in (
        ("service_account", "serviceAccountName"),
        ("priority", "priorityClassName"),
        ("scheduler", "schedulerName"),
    ):
        if word := wanted.word(key):
            pod[field] = word
    for key, field in (
        ("node_selector", "nodeSelector"),
        ("tolerations", "tolerations"),
        ("pod_security", "securityContext"),
    ):
        if value := wanted.parsed(key):
            pod[field] = value
    if secrets := wanted.parsed("pull_secrets"):
        pod["imagePullSecrets"] = [{"name": name} for name in secrets]
    if wanted.word("host_network"):
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return pod


# ---- MPIJob -----------------------------------------------------------------------------


def _mpijob(wanted: _Wanted) -> list[Object]:
    spec = wanted.spec
    slots = planned_ranks_per_node(wanted.cluster, spec)
    given = table_or_empty(wanted.parsed("launcher"))
    launcher = _container(wanted, _mpirun(wanted, slots), given, _MPI_ENV.get(spec.mpi.flavour))
    worker = _container(wanted, (), _rank_resources(wanted))
    job: Object = {
        "slotsPerWorker": slots,
        "mpiImplementation": IMPLEMENTATIONS[spec.mpi.flavour],
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {
            "cleanPodPolicy": CLEAN_UP[wanted.word("cleanup", "running")],
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": int(wanted.word("ttl", _DEFAULT_TTL)),
        },
        "mpiReplicaSpecs": {
            "Launcher": _replicas(1, _template(wanted, launcher)),
            "Worker": _replicas(spec.nodes, _of_ranks(wanted, _template(wanted, worker))),
        },
    }
    if path := wanted.word("ssh_path"):
        job["sshAuthMountPath"] = path
    meta = _workload_meta(wanted)
    return [{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": meta, "spec": job}]


def _replicas(count: int, template: Object) -> Object:
    """One role of an MPIJob.

    The restart policy is only here: the operator ignores one in the template and warns.
    """
    return {"replicas": count, "restartPolicy": "Never", "template": template}


_MPI_ENV: Mapping[str, Mapping[str, str]] = {
    "openmpi5": {
        "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
        "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
    }
}
"""Flavour -> variables: the operator sets these only under the names of Open MPI 4."""


def _mpirun(wanted: _Wanted, slots: int) -> list[str]:
    """The mpirun command.

    It names the hostfile, as Open MPI 5 ignores the operator's variable and uses one host.
    """
    cluster, spec = wanted.cluster, wanted.spec
    size = str(slots * spec.nodes)
    words = [spec.mpi.path]
    if spec.mpi.flavour == "mpich":
        words += ["-f", HOSTFILE, "-n", size, "-ppn", str(slots)]
        return [*words, *spec.mpi.args, *SHIM, *spec.command]
    words += ["--allow-run-as-root", "--hostfile", HOSTFILE, "-np", size]
    words += without_given_options(
        ("--map-by", f"ppr:{slots}:node", "--bind-to", "none"), spec.mpi.args
    )
    # Pods have more networks by `host_network`, or by annotations for the network plug-in.
    words += ["--mca", "btl_tcp_if_include", cluster.network] if cluster.network else []
    for name in {**_own_env(wanted), **cluster.environment, **spec.env}:
        words += ["-x", name]
    return [*words, *spec.mpi.args, *SHIM, *spec.command]


# ---- Indexed Job ------------------------------------------------------------------------


def _indexed_job(wanted: _Wanted) -> list[Object]:
    spec, name = wanted.spec, wanted.name
    line = _LINES[spec.launch](wanted, wanted.word("port", _DEFAULT_PORT))
    container = _container(wanted, ("sh", "-c", line), _rank_resources(wanted))
    template = _template(wanted, container, subdomain=name, restartPolicy="Never")
    service: Object = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        # Our own label: servers before 1.27 do not set `batch.kubernetes.io/job-name`.
        "selector": {JOB_LABEL: name},
    }
    job: Object = {
        "completionMode": "Indexed",
        "completions": spec.nodes,
        "parallelism": spec.nodes,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": int(wanted.word("ttl", _DEFAULT_TTL)),
        "template": _of_ranks(wanted, template),
    }
    meta = _workload_meta(wanted)
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": _meta(wanted), "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job},
    ]


def _torchrun(wanted: _Wanted, port: str) -> str:
    spec, name = wanted.spec, wanted.name
    words = [
        spec.torch.path,
        f"--nnodes={spec.nodes}",
        f"--nproc-per-node={planned_ranks_per_node(wanted.cluster, spec)}",
        f"--master-addr={name}-0.{name}",
        f"--master-port={spec.torch.port or port}",
        "--max-restarts=0",
    ]
    script = (*spec.torch.args, *TORCHRUN_ENDS, *SHIM, *script_command(spec.command))
    return f'exec {shell_line(words)} --node-rank="$JOB_COMPLETION_INDEX" {shell_line(script)}'


def _tensorflow(wanted: _Wanted, port: str) -> str:
    spec, name = wanted.spec, wanted.name
    workers = ",".join(f'\\"{name}-{i}.{name}:{port}\\"' for i in range(spec.nodes))
    config = (
        f'{{\\"cluster\\":{{\\"worker\\":[{workers}]}},'
        '\\"task\\":{\\"type\\":\\"worker\\",\\"index\\":$JOB_COMPLETION_INDEX}}'
    )
    line = shell_line([*SHIM, *spec.command])
    return f'export TF_CONFIG="{config}" RANKDECK_RANK="$JOB_COMPLETION_INDEX"; exec {line}'


def _jax(wanted: _Wanted, port: str) -> str:
    """The shell line of a pod with all ranks of a node side by side: each counts its number
    from the pod's, and the pod's first rank of all is the coordinator.
    """
    spec, name = wanted.spec, wanted.name
    each = planned_ranks_per_node(wanted.cluster, spec)
    told = jax_variables(
        f"{name}-0.{name}:{port}",
        str(each * spec.nodes),
        "$RANK",
        "$LOCAL_RANK" if each > 1 else "",
    )
    inside = " ".join(f'{key}="{value}"' for key, value in told.items())
    line = f"export {inside}; exec {shell_line(spec.command)}"
    run = shell_line([*SHIM, "-n", str(each), "sh", "-c", line])
    return f"export WORLD_SIZE={each * spec.nodes} RANKDECK_SERVICE={name}; exec {run}"


def _plain(wanted: _Wanted, port: str) -> str:
    """The shell line of a pod with all ranks of a node side by side; the
    first failure gives the exit status.
    """
    spec = wanted.spec
    each = planned_ranks_per_node(wanted.cluster, spec)
    line = shell_line([*SHIM, "-n", str(each), *spec.command])
    return f"export WORLD_SIZE={each * spec.nodes} RANKDECK_SERVICE={wanted.name}; exec {line}"


_LINES: Mapping[Launch, Callable[[_Wanted, str], str]] = {
    Launch.TORCHRUN: _torchrun,
    Launch.TENSORFLOW: _tensorflow,
    Launch.JAX: _jax,
    Launch.PLAIN: _plain,
}
