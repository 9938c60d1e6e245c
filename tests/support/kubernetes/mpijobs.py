"""The mpi-operator of the double (v2beta1 as of 0.8.2): workers, launcher Job,
hostfile, keys, conditions as recorded.
"""

import base64
import copy

import asyncssh

from tests.support.kubernetes import defaults, garbage, status
from tests.support.kubernetes.admission import Admit
from tests.support.kubernetes.kinds import CONFIG_MAP, JOB, MPIJOB, POD, SECRET, SERVICE, Kind
from tests.support.kubernetes.store import Store, deleting, is_true, labels, now, owned, owner
from tests.support.programs import sshd

Json = dict
BY = "mpi-job-controller"
_LABEL = "training.kubeflow.org"
_KEYS = ("ssh-privatekey", "ssh-publickey")
_ENVIRONMENT = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    },
    "Intel": {
        "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
    },
    "MPICH": {
        "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
    },
}
_SLOTS = {
    "OpenMPI": ("OMPI_MCA_orte_set_default_slots", "{host} slots={slots}"),
    "Intel": ("I_MPI_PERHOST", "{host}:{slots}"),
    "MPICH": ("MPICH_PERHOST", "{host}:{slots}"),
}


class MpiJobs:
    """Advances every MPIJob by one step at each call of `reconcile`."""

    def __init__(self, store: Store, admit: Admit) -> None:
        self._store, self._admit = store, admit

    def reconcile(self) -> None:
        """One round over all MPIJobs."""
        for job in self._store.all(MPIJOB):
            if deleting(job) or is_true(job, "Succeeded") or is_true(job, "Failed"):
                continue
            if wrong := _wrong(job):
                words = f"Found validation errors: {wrong}"
                self._store.event(MPIJOB, job, "ValidationError", words, by=BY, warning=True)
                continue
            self._step(job)

    def _step(self, job: Json) -> None:
        new = copy.deepcopy(job)
        known = new.setdefault("status", {})
        if "startTime" not in known:
            known["startTime"] = now()
            self._say(new, "Created", "True", "MPIJobCreated", "is created.")
        self._make(job, SERVICE, job["metadata"]["name"], _service)
        self._make(job, CONFIG_MAP, f"{job['metadata']['name']}-config", _config)
        self._make(job, SECRET, f"{job['metadata']['name']}-ssh", _secret)
        suspended = job["spec"]["runPolicy"]["suspend"]
        workers = [] if suspended else self._workers(job)
        launcher = self._launcher(job, workers, suspended)
        if suspended:
            self._suspend(new)
        elif is_true(new, "Suspended"):
            known["startTime"] = now()
            self._note(new, "Suspended", "False", "MPIJobResumed", "MPIJob resumed")
        self._report(new, workers, launcher, suspended)
        self._store.change(MPIJOB, job, lambda old: old.update(new))

    def _say(self, job: Json, name: str, value: str, reason: str, words: str) -> None:
        """Set a condition whose message names the job; if it is new
        and true, also write an event.
        """
        meta = job["metadata"]
        message = f"MPIJob {meta['namespace']}/{meta['name']} {words}"
        if not is_true(job, name) and value == "True":
            told = message.removesuffix(".") if name == "Running" else message
            self._store.event(MPIJOB, job, reason, told, by=BY)
        _condition(job, name, value, reason, message)

    def _note(self, job: Json, name: str, value: str, reason: str, message: str) -> None:
        """Set a condition and write an event."""
        self._store.event(MPIJOB, job, reason, message, by=BY)
        _condition(job, name, value, reason, message)

    def _make(self, job: Json, kind: Kind, name: str, maker) -> None:
        namespace = job["metadata"]["namespace"]
        if self._store.get(kind, namespace, name) is None:
            meta = {
                "name": name,
                "namespace": namespace,
                "labels": {"app": job["metadata"]["name"]},
            }
            made = {"metadata": {**meta, "ownerReferences": [owner(MPIJOB, job)]}, **maker(job)}
            self._store.create(kind, made)

    def _workers(self, job: Json) -> list[Json]:
        """The worker pods; creates those that are missing."""
        meta = job["metadata"]
        found = []
        for index in range(_replicas(job, "Worker")):
            name = f"{meta['name']}-worker-{index}"
            pod = self._store.get(POD, meta["namespace"], name) or self._worker(job, name, index)
            if pod is not None:
                found.append(pod)
        return found

    def _worker(self, job: Json, name: str, index: int) -> Json | None:
        # The path that the operator writes, which may not be that of this machine.
        template = _template(job, "Worker", [str(sshd()), "-De"])
        inner = template["metadata"]
        inner["name"], inner["ownerReferences"] = name, [owner(MPIJOB, job)]
        inner["labels"][f"{_LABEL}/replica-index"] = str(index)
        spec = template["spec"]
        namespace = job["metadata"]["namespace"]
        spec["hostname"], spec["subdomain"] = name, job["metadata"]["name"]
        search = {"searches": [f"{job['metadata']['name']}.{namespace}.svc.cluster.local"]}
        spec["dnsConfig"] = search
        try:
            made = self._admit(POD, defaults.completed(POD, template, namespace))
            defaults.check_quota(POD, made, self._store)
            return self._store.create(POD, made)
        except status.RefusedError as refusal:
            words = f"worker pod created failed: {refusal}"
            self._store.event(MPIJOB, job, "MPIJobFailed", words, by=BY, warning=True)
            return None

    def _launcher(self, job: Json, workers: list[Json], suspended: bool) -> Json | None:
        """The launcher Job; created as soon as the policy allows."""
        meta = job["metadata"]
        name = f"{meta['name']}-launcher"
        found = self._store.get(JOB, meta["namespace"], name)
        waits = job["spec"]["launcherCreationPolicy"] == "WaitForWorkersReady"
        ready = len(workers) == _replicas(job, "Worker") and all(
            is_true(w, "Ready") for w in workers
        )
        if found is None and (suspended or not waits or ready):
            made = defaults.completed(JOB, _launcher_job(job, name, suspended), meta["namespace"])
            try:
                found = self._store.create(JOB, self._admit(JOB, made))
            except status.RefusedError as refusal:
                words = f"launcher pod created failed: {refusal}"
                self._store.event(MPIJOB, job, "MPIJobFailed", words, by=BY, warning=True)
                return None
        if found is not None and found["spec"]["suspend"] != suspended:
            found = self._store.change(
                JOB, found, lambda new: new["spec"].update(suspend=suspended)
            )
        return found

    def _suspend(self, job: Json) -> None:
        self._clean(job, everything=True)
        if not is_true(job, "Suspended"):
            self._note(job, "Suspended", "True", "MPIJobSuspended", "MPIJob suspended")
            self._say(job, "Running", "False", "MPIJobSuspended", "is suspended.")

    def _clean(self, job: Json, *, everything: bool) -> None:
        """Delete all worker pods, or only those that still run."""
        for pod in self._store.all(POD, job["metadata"]["namespace"]):
            is_worker = labels(pod).get(f"{_LABEL}/job-role") == "worker" and owned(pod, job)
            if is_worker and (everything or pod["status"]["phase"] in ("Pending", "Running")):
                garbage.end(self._store, POD, pod)

    def _report(
        self, new: Json, workers: list[Json], launcher: Json | None, suspended: bool
    ) -> None:
        """Derive conditions and counts from the launcher and the workers."""
        pods = self._store.all(POD, new["metadata"]["namespace"])
        mine = [pod for pod in pods if launcher and owned(pod, launcher)]
        active = sum(pod["status"]["phase"] == "Running" for pod in mine)
        up = sum(pod["status"]["phase"] == "Running" for pod in workers)
        evicted = sum(pod["status"].get("reason") == "Evicted" for pod in workers)
        counts = {"Launcher": _counted(active=active), "Worker": _counted(active=up)}
        new["status"]["replicaStatuses"] = counts
        if launcher and is_true(launcher, "Complete"):
            counts["Launcher"] = {"succeeded": 1}
            self._finish(new, "Succeeded", "MPIJobSucceeded", "successfully completed.")
        elif launcher and is_true(launcher, "Failed"):
            counts["Launcher"] = {"failed": 1}
            self._fail(new, launcher)
        elif evicted:
            self._finish(
                new, "Failed", "MPIJobEvicted", f"{evicted}/{len(workers)} workers are evicted"
            )
        elif active and up == len(workers) and not suspended and not is_true(new, "Running"):
            self._say(new, "Running", "True", "MPIJobRunning", "is running.")

    def _finish(self, new: Json, name: str, reason: str, words: str) -> None:
        self._over(new)
        self._say(new, name, "True", reason, words)

    def _fail(self, new: Json, launcher: Json) -> None:
        self._over(new)
        (why,) = [c for c in launcher["status"]["conditions"] if c["type"] == "Failed"]
        reason, message = f"{why['reason']}/", f"{why['message']}: "
        self._store.event(MPIJOB, new, reason, message, by=BY, warning=True)
        _condition(new, "Failed", "True", reason, message)

    def _over(self, new: Json) -> None:
        """What success and failure have in common; under every policy the
        number of active workers is now 0.
        """
        new["status"]["completionTime"] = now()
        new["status"]["replicaStatuses"]["Worker"] = {}
        for known in new["status"]["conditions"]:
            if known["type"] == "Running":
                known["status"] = "False"
        policy = new["spec"]["runPolicy"]["cleanPodPolicy"]
        if policy != "None":
            self._clean(new, everything=policy == "All")


def _counted(active: int) -> Json:
    return {"active": active} if active else {}


def _condition(job: Json, name: str, value: str, reason: str, message: str) -> None:
    """Set a condition; a changed one moves to the end of the list."""
    known = job["status"].setdefault("conditions", [])
    same = [c for c in known if c["type"] == name]
    if same and (same[0]["status"], same[0]["reason"]) == (value, reason):
        return
    times = {"lastTransitionTime": now(), "lastUpdateTime": now()}
    new = {**times, "message": message, "reason": reason, "status": value, "type": name}
    job["status"]["conditions"] = [*(c for c in known if c["type"] != name), new]


def _replicas(job: Json, role: str) -> int:
    spec = job["spec"]["mpiReplicaSpecs"].get(role)
    return spec.get("replicas", 1) if spec else 0


def _wrong(job: Json) -> str:
    """The error of the operator's own validation, or ""."""
    specs = job["spec"].get("mpiReplicaSpecs") or {}
    if "Launcher" not in specs:
        return "spec.mpiReplicaSpecs[Launcher]: Required value: must have Launcher replica spec"
    last = f"{job['metadata']['name']}-worker-{max(_replicas(job, 'Worker') - 1, 0)}"
    if len(last) > 63 or not last[0].isalpha():
        name = job["metadata"]["name"]
        return (
            f'metadata.name: Invalid value: "{name}": will not able to create pod and service with '
            f'invalid DNS label "{last}": must be no more than 63 characters'
        )
    for role, spec in specs.items():
        policy = spec.get("restartPolicy", "Never")
        if policy not in ("Never", "OnFailure"):
            where = f"spec.mpiReplicaSpecs[{role}].restartPolicy"
            return f'{where}: Unsupported value: "{policy}": supported values: "Never", "OnFailure"'
    return ""


def _hosts(job: Json) -> list[str]:
    meta = job["metadata"]
    name, namespace = meta["name"], meta["namespace"]
    return [f"{name}-worker-{i}.{name}.{namespace}.svc" for i in range(_replicas(job, "Worker"))]


def _service(job: Json) -> Json:
    own = {"job-name": job["metadata"]["name"], "operator-name": "mpi-operator"}
    selector = {f"{_LABEL}/{key}": value for key, value in own.items()}
    early = job["spec"]["runLauncherAsWorker"]
    return {"spec": {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": early}}


def _config(job: Json) -> Json:
    shape = _SLOTS[job["spec"]["mpiImplementation"]][1]
    lines = [shape.format(host=h, slots=job["spec"]["slotsPerWorker"]) for h in _hosts(job)]
    script = "\n".join(["#!/bin/sh", *(f"echo {host}" for host in _hosts(job))])
    return {"data": {"hostfile": "".join(f"{x}\n" for x in lines), "discover_hosts.sh": script}}


def _secret(job: Json) -> Json:
    key = asyncssh.generate_private_key("ecdsa-sha2-nistp521")
    parts = (key.export_private_key(), key.export_public_key())
    data = {name: base64.b64encode(text).decode() for name, text in zip(_KEYS, parts, strict=True)}
    return {"type": "kubernetes.io/ssh-auth", "data": data}


def _template(job: Json, role: str, default: list[str]) -> Json:
    """A role's pod template with what the operator adds."""
    meta, wanted = job["metadata"], job["spec"]["mpiReplicaSpecs"][role]
    template = copy.deepcopy(wanted["template"])
    own = {"job-name": meta["name"], "job-role": role.lower(), "operator-name": "mpi-operator"}
    inner = template.setdefault("metadata", {})
    added = {f"{_LABEL}/{key}": value for key, value in own.items()}
    inner["labels"] = {**(inner.get("labels") or {}), **added}
    spec = template["spec"]
    usual = "Never" if role == "Worker" else "OnFailure"
    spec["restartPolicy"] = wanted.get("restartPolicy", usual)
    first = spec["containers"][0]
    if default and not first.get("command") and not first.get("args"):
        first["command"] = default
    first["env"] = [*first.get("env", []), {"name": "K_MPI_JOB_ROLE", "value": role.lower()}]
    _mount(spec, "ssh-auth", job["spec"]["sshAuthMountPath"], _keys_volume(meta["name"]))
    return template


def _keys_volume(name: str) -> Json:
    private, public = _KEYS
    paths = [(private, "id_rsa"), (public, "id_rsa.pub"), (public, "authorized_keys")]
    items = [{"key": key, "path": path} for key, path in paths]
    return {"secret": {"secretName": f"{name}-ssh", "items": items, "defaultMode": 0o600}}


def _mount(spec: Json, name: str, path: str, source: Json) -> None:
    spec["volumes"] = [*spec.get("volumes", []), {"name": name, **source}]
    first = spec["containers"][0]
    first["volumeMounts"] = [*first.get("volumeMounts", []), {"name": name, "mountPath": path}]


def _launcher_job(job: Json, name: str, suspended: bool) -> Json:
    template = _template(job, "Launcher", [])
    spec, meta = template["spec"], job["metadata"]
    modes = [("hostfile", 0o444), ("discover_hosts.sh", 0o555)]
    items = [{"key": key, "path": key, "mode": mode} for key, mode in modes]
    config = {"name": f"{meta['name']}-config", "items": items, "defaultMode": 0o644}
    _mount(spec, "mpi-job-config", "/etc/mpi", {"configMap": config})
    spec["hostname"], spec["subdomain"] = name, meta["name"]
    kind = job["spec"]["mpiImplementation"]
    added = dict(_ENVIRONMENT[kind])
    added[_SLOTS[kind][0]] = str(job["spec"]["slotsPerWorker"])
    first = spec["containers"][0]
    first["env"] += [{"name": k, "value": v} for k, v in added.items()]
    first["env"] += [{"name": "NVIDIA_VISIBLE_DEVICES"}, {"name": "NVIDIA_DRIVER_CAPABILITIES"}]
    run = job["spec"]["runPolicy"]
    limits = ("backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds")
    own = {"name": name, "labels": {"app": meta["name"]}, "ownerReferences": [owner(MPIJOB, job)]}
    settings = {key: run[key] for key in limits if key in run}
    whole = {**settings, "template": template, "suspend": suspended}
    return {"metadata": own, "spec": {**whole, "podReplacementPolicy": "Failed"}}
