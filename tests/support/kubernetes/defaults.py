"""Validation and defaults of new objects in the API server, as far as the tests need them.

The lists of fields are of Kubernetes 1.36 and of the MPIJob of mpi-operator 0.8.
"""

import copy
import re
import secrets
import uuid

from tests.support.kubernetes import status
from tests.support.kubernetes.kinds import (
    CONFIG_MAP,
    DAEMON_SET,
    JOB,
    MPIJOB,
    POD,
    QUOTA,
    SECRET,
    SERVICE,
    Kind,
)
from tests.support.kubernetes.store import Store

Json = dict
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_MIB = 1 << 20

# ---- known fields: a word is a leaf, `name: {...}` has fields, `name[]` is a list -----------

_META = (
    "name generateName namespace labels annotations ownerReferences finalizers uid resourceVersion "
    "creationTimestamp generation managedFields deletionTimestamp deletionGracePeriodSeconds"
)
_VOLUME = (
    "name configMap secret emptyDir hostPath persistentVolumeClaim projected downwardAPI nfs csi "
    "ephemeral image"
)
_CONTAINER = (
    "name image command args workingDir env envFrom ports resources volumeMounts volumeDevices "
    "livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath "
    "terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty restartPolicy "
    "resizePolicy restartPolicyRules"
)
_POD = (
    "restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector "
    "serviceAccountName serviceAccount automountServiceAccountToken nodeName hostNetwork hostPID "
    "hostIPC shareProcessNamespace securityContext imagePullSecrets hostname subdomain affinity "
    "schedulerName tolerations hostAliases priorityClassName priority dnsConfig readinessGates "
    "runtimeClassName enableServiceLinks preemptionPolicy overhead topologySpreadConstraints "
    "setHostnameAsFQDN os hostUsers schedulingGates resourceClaims resources workloadRef "
    "ephemeralContainers hostnameOverride"
)


def _fields(words: str, **more: object) -> dict[str, object]:
    return {**dict.fromkeys(words.split(), None), **more}


_SECURITY = _fields(
    "allowPrivilegeEscalation appArmorProfile capabilities privileged procMount readOnlyRootFilesystem "
    "runAsGroup runAsNonRoot runAsUser seLinuxOptions seccompProfile windowsOptions",
    capabilities=_fields("add drop"),
    seccompProfile=_fields("type localhostProfile"),
)
_POD_SPEC = _fields(
    _POD,
    **{
        "containers[]": _fields(
            _CONTAINER,
            **{
                "env[]": _fields("name value valueFrom"),
                "volumeMounts[]": _fields(
                    "name mountPath subPath subPathExpr readOnly mountPropagation recursiveReadOnly"
                ),
                "resources": _fields("limits requests claims"),
                "securityContext": _SECURITY,
            },
        ),
        "initContainers[]": _fields(_CONTAINER),
        "volumes[]": _fields(
            _VOLUME,
            configMap=_fields("name items defaultMode optional"),
            secret=_fields("secretName items defaultMode optional"),
            emptyDir=_fields("medium sizeLimit"),
            hostPath=_fields("path type"),
            persistentVolumeClaim=_fields("claimName readOnly"),
        ),
    },
)
_TEMPLATE = {"metadata": _fields(_META), "spec": _POD_SPEC}
_JOB_SPEC = _fields(
    "parallelism completions activeDeadlineSeconds podFailurePolicy successPolicy backoffLimit "
    "backoffLimitPerIndex maxFailedIndexes selector manualSelector ttlSecondsAfterFinished "
    "completionMode suspend podReplacementPolicy managedBy",
    template=_TEMPLATE,
)
_REPLICAS = _fields("replicas restartPolicy", template=_TEMPLATE)
_MPIJOB_SPEC = _fields(
    "slotsPerWorker runLauncherAsWorker sshAuthMountPath launcherCreationPolicy mpiImplementation",
    runPolicy=_fields(
        "cleanPodPolicy ttlSecondsAfterFinished activeDeadlineSeconds backoffLimit suspend managedBy "
        "schedulingPolicy"
    ),
    mpiReplicaSpecs={"Launcher": _REPLICAS, "Worker": _REPLICAS},
)
_SERVICE_SPEC = _fields(
    "clusterIP clusterIPs publishNotReadyAddresses selector ports type sessionAffinity externalIPs "
    "ipFamilies ipFamilyPolicy internalTrafficPolicy externalName"
)
_DAEMON_SET_SPEC = _fields(
    "selector minReadySeconds revisionHistoryLimit",
    updateStrategy=_fields("type", rollingUpdate=_fields("maxUnavailable maxSurge")),
    template=_TEMPLATE,
)
_TOP = {
    DAEMON_SET: {"spec": _DAEMON_SET_SPEC},
    JOB: {"spec": _JOB_SPEC},
    MPIJOB: {"spec": _MPIJOB_SPEC},
    POD: {"spec": _POD_SPEC},
    SERVICE: {"spec": _SERVICE_SPEC},
    CONFIG_MAP: _fields("data binaryData immutable"),
    SECRET: _fields("data stringData type immutable"),
}


def unknown(found: object, known: object, path: str = "") -> list[str]:
    """Paths of unknown fields, in the form of the server."""
    if not isinstance(found, dict) or not isinstance(known, dict):
        return []
    told = []
    for name, value in found.items():
        here = f"{path}.{name}" if path else name
        if f"{name}[]" in known and isinstance(value, list):
            for at, each in enumerate(value):
                told += unknown(each, known[f"{name}[]"], f"{here}[{at}]")
        elif name not in known:
            told.append(here)
        else:
            told += unknown(value, known[name], here)
    return told


# ---- refusing ---------------------------------------------------------------------------


def check(kind: Kind, made: Json, validation: str) -> str:
    """Refuse invalid objects as the server does; returns the
    warning about unknown fields, or "".
    """
    if made.get("kind", kind.name) != kind.name:
        raise status.RefusedError(400, "BadRequest", f"the object provided is no {kind.name}")
    strange: list[str] = []
    if kind in _TOP:
        known = {**_fields("apiVersion kind status"), "metadata": _fields(_META), **_TOP[kind]}
        strange = unknown(made, known)
    if strange and validation == "Strict":
        raise status.unknown_field(kind, strange)
    causes = [*_name_causes(made), *_CHECKS.get(kind, lambda made: [])(made)]
    if causes:
        raise status.invalid(kind, made["metadata"].get("name", ""), causes)
    warned = [f'unknown field \\"{field}\\"' for field in strange if validation != "Ignore"]
    return ", ".join(warned)


Causes = list[tuple[str, str, str]]


def _name_causes(made: Json) -> Causes:
    meta = made.setdefault("metadata", {})
    name = meta.get("name") or meta.get("generateName", "").rstrip("-.")
    if not name:
        return [("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")]  # fmt: skip
    if not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
        return [("FieldValueInvalid", "metadata.name", f'Invalid value: "{name}": {_SUBDOMAIN_WORDS}')]  # fmt: skip
    return [*_label_causes(meta.get("labels") or {}, "metadata.labels")]


def _label_causes(labels: Json, field: str) -> Causes:
    shape = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
    return [
        ("FieldValueInvalid", field, f'Invalid value: "{value}": a valid label must be 63 characters or less')
        for value in labels.values()
        if not isinstance(value, str) or len(value) > 63 or not shape.fullmatch(value)
    ]  # fmt: skip


def _choice(made: Json, path: str, allowed: tuple[str, ...]) -> Causes:
    at: object = made
    for name in path.split("."):
        at = at.get(name) if isinstance(at, dict) else None
    if at is None or at in allowed:
        return []
    known = ", ".join(f'"{word}"' for word in allowed)
    return [
        ("FieldValueNotSupported", path, f'Unsupported value: "{at}": supported values: {known}')
    ]


def _job_causes(made: Json) -> Causes:
    spec = made.get("spec", {})
    pod = spec.get("template", {}).get("spec", {})
    causes = _choice(made, "spec.completionMode", ("NonIndexed", "Indexed"))
    causes += _choice(made, "spec.template.spec.restartPolicy", ("OnFailure", "Never"))
    if pod.get("restartPolicy") is None:
        causes.append(
            ("FieldValueRequired", "spec.template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"')
        )  # fmt: skip
    last = f"{made['metadata'].get('name', '')}-{max(spec.get('completions') or 1, 1) - 1}"
    causes += _pod_causes(pod, "spec.template.spec")
    named = bool(made["metadata"].get("name"))
    if (
        named
        and spec.get("completionMode") == "Indexed"
        and (not _LABEL.fullmatch(last) or len(last) > 63)
    ):
        name = made["metadata"].get("name", "")
        words = f"will not able to create pod with invalid DNS label: {last}"
        causes.append(("FieldValueInvalid", "metadata.name", f'Invalid value: "{name}": {words}'))
    return causes


def _pod_causes(pod: Json, path: str) -> Causes:
    causes: Causes = []
    sub = pod.get("subdomain")
    if sub and (not _LABEL.fullmatch(sub) or len(sub) > 63):
        causes.append(("FieldValueInvalid", f"{path}.subdomain", f'Invalid value: "{sub}": {_LABEL_WORDS}'))  # fmt: skip
    if not pod.get("containers"):
        causes.append(("FieldValueRequired", f"{path}.containers", "Required value"))
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for at, container in enumerate(pod.get("containers", [])):
        for which, mount in enumerate(container.get("volumeMounts", [])):
            if mount["name"] not in volumes:
                field = f"{path}.containers[{at}].volumeMounts[{which}].name"
                causes.append(("FieldValueNotFound", field, f'Not found: "{mount["name"]}"'))
    return causes


def _mpijob_causes(made: Json) -> Causes:
    return [
        *_choice(made, "spec.mpiImplementation", ("OpenMPI", "Intel", "MPICH")),
        *_choice(made, "spec.launcherCreationPolicy", ("AtStartup", "WaitForWorkersReady")),
        *_choice(made, "spec.runPolicy.cleanPodPolicy", ("None", "Running", "All")),
    ]


def _config_map_causes(made: Json) -> Causes:
    size = sum(len(v.encode()) for v in (made.get("data") or {}).values())
    size += sum(len(v) * 3 // 4 for v in (made.get("binaryData") or {}).values())
    if size <= _MIB:
        return []
    return [("FieldValueTooLong", "[]", "Too long: may not be more than 1048576 bytes")]


_CHECKS = {
    JOB: _job_causes,
    MPIJOB: _mpijob_causes,
    CONFIG_MAP: _config_map_causes,
    POD: lambda made: _pod_causes(made.get("spec", {}), "spec"),
}


def check_quota(kind: Kind, made: Json, store: Store) -> None:
    """Refuse a pod that would exceed a ResourceQuota of its namespace on
    devices; see `admission` for CPU and memory.
    """
    if kind is not POD:
        return
    namespace = made["metadata"]["namespace"]
    for quota in store.all(QUOTA, namespace):
        for name, hard in quota["spec"]["hard"].items():
            if "/" not in name:
                continue
            wanted = requested(made, name.removeprefix("requests."))
            used = sum(
                requested(p, name.removeprefix("requests.")) for p in store.all(POD, namespace)
            )
            if wanted and used + wanted > int(hard):
                title = quota["metadata"]["name"]
                raise status.RefusedError(
                    403,
                    "Forbidden",
                    f'pods "{made["metadata"]["name"]}" is forbidden: exceeded quota: {title}, '
                    f"requested: {name}={wanted}, used: {name}={used}, limited: {name}={hard}",
                    {"name": made["metadata"]["name"], "kind": "pods"},
                )


def requested(pod: Json, resource: str) -> int:
    """How many of a device the containers of a pod request."""
    found = 0
    for container in pod["spec"]["containers"]:
        wanted = container.get("resources", {})
        asked = {**wanted.get("limits", {}), **wanted.get("requests", {})}
        found += int(asked.get(resource, 0)) if str(asked.get(resource, 0)).isdigit() else 0
    return found


# ---- adding -----------------------------------------------------------------------------


def completed(kind: Kind, made: Json, namespace: str) -> Json:
    """The object as the server stores it: with a name, a namespace and the defaults of its kind."""
    made = copy.deepcopy(made)
    meta = made["metadata"]
    if kind.namespaced:
        meta["namespace"] = namespace
    if not meta.get("name"):
        meta["name"] = meta["generateName"] + suffix()
    if kind.subresources and kind is not MPIJOB:
        made["status"] = made.get("status") or {}
    return _COMPLETIONS.get(kind, lambda made: made)(made)


def suffix() -> str:
    """Five random characters for the end of a generated name."""
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))


def _job(made: Json) -> Json:
    meta, spec = made["metadata"], made["spec"]
    uid = meta.setdefault("uid", str(uuid.uuid4()))
    modern = {"controller-uid": uid, "job-name": meta["name"]}
    own = {**{f"batch.kubernetes.io/{k}": v for k, v in modern.items()}, **modern}
    template = spec.setdefault("template", {})
    if not meta.get("labels"):
        meta["labels"] = dict(own)
    inner = template.setdefault("metadata", {})
    inner["labels"] = {**(inner.get("labels") or {}), **own}
    spec["template"] = {**template, "spec": _pod_spec(template.get("spec", {}))}
    count = spec.setdefault("completions", 1)
    spec.setdefault("parallelism", count if spec.get("completionMode") != "Indexed" else 1)
    spec.setdefault("backoffLimit", 2147483647 if "backoffLimitPerIndex" in spec else 6)
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    spec.setdefault("manualSelector", False)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    policy = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    return made


def _pod_spec(spec: Json) -> Json:
    container = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    pod = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }
    containers = [_limits({**container, **each}) for each in spec.get("containers", [])]
    return {**pod, **spec, "containers": containers}


def _limits(container: Json) -> Json:
    """Write quantities as text; where there is a limit and no request, the request is the limit."""
    told = container["resources"]
    limits = {k: str(v) for k, v in told.get("limits", {}).items()}
    requests = {**limits, **{k: str(v) for k, v in told.get("requests", {}).items()}}
    whole = {"limits": limits, "requests": requests} if told else {}
    return {**container, "resources": {k: v for k, v in whole.items() if v}}


def _pod(made: Json) -> Json:
    spec = _pod_spec(made["spec"])
    account = {"serviceAccountName": spec.get("serviceAccountName", "default")}
    made["spec"] = {**spec, **account}
    made["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    return made


def _mpijob(made: Json) -> Json:
    spec = made["spec"]
    spec.setdefault("slotsPerWorker", 1)
    spec.setdefault("runLauncherAsWorker", False)
    spec.setdefault("sshAuthMountPath", "/root/.ssh")
    spec.setdefault("launcherCreationPolicy", "AtStartup")
    spec.setdefault("mpiImplementation", "OpenMPI")
    spec.setdefault("runPolicy", {}).setdefault("cleanPodPolicy", "None")
    spec["runPolicy"].setdefault("suspend", False)
    return made


def _service(made: Json) -> Json:
    made["spec"] = {"type": "ClusterIP", "sessionAffinity": "None", **made.get("spec", {})}
    return made


_COMPLETIONS = {JOB: _job, POD: _pod, MPIJOB: _mpijob, SERVICE: _service}
