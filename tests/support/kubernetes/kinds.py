"""Kinds of objects that the Kubernetes double serves, and their
names in URLs, manifests and messages.
"""

from dataclasses import dataclass

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Kind:
    """One kind: `Kind("batch", "v1", "jobs", "Job")`; `short` are kubectl's short names."""

    group: str
    version: str
    plural: str
    name: str
    short: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ("status",)

    @property
    def group_version(self) -> str:
        """The `apiVersion`: `batch/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name in messages of the server: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def title(self) -> str:
        """The name in messages about invalid objects: `Job.batch`, `Pod`."""
        return f"{self.name}.{self.group}" if self.group else self.name


def _core(plural: str, name: str, *short: str, namespaced: bool = True, sub=("status",)) -> Kind:
    return Kind("", "v1", plural, name, short, namespaced, sub)


NAMESPACE = _core("namespaces", "Namespace", "ns", namespaced=False)
NODE = _core("nodes", "Node", "no", namespaced=False)
POD = _core("pods", "Pod", "po", sub=("status", "log", "eviction"))
SERVICE = _core("services", "Service", "svc")
CONFIG_MAP = _core("configmaps", "ConfigMap", "cm", sub=())
SECRET = _core("secrets", "Secret", sub=())
EVENT = _core("events", "Event", "ev", sub=())
CLAIM = _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc")
QUOTA = _core("resourcequotas", "ResourceQuota", "quota")
LIMIT_RANGE = _core("limitranges", "LimitRange", "limits", sub=())
RUNTIME_CLASS = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", (), False, ())
JOB = Kind("batch", "v1", "jobs", "Job")
DAEMON_SET = Kind("apps", "v1", "daemonsets", "DaemonSet", ("ds",))
MPIJOB = Kind("kubeflow.org", "v2beta1", "mpijobs", "MPIJob", ("mj",))
BUILT_IN = (
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    CONFIG_MAP,
    SECRET,
    EVENT,
    CLAIM,
    QUOTA,
    LIMIT_RANGE,
    RUNTIME_CLASS,
    _core("serviceaccounts", "ServiceAccount", "sa", sub=()),
    JOB,
    DAEMON_SET,
    Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", subresources=()),
    Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", subresources=()),
)
ADDED = {
    kind.plural: kind
    for kind in (
        MPIJOB,
        Kind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
        Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"),
        Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
        Kind("kueue.x-k8s.io", "v1beta1", "workloads", "Workload", ("wl",)),
        Kind("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue"),
    )
}
"""Kinds of operators and queues; a double serves those that its test names."""
