"""The kinds of jobs on Kubernetes that Rankdeck knows: where the API has them, and the label of their pods."""

from dataclasses import dataclass
from typing import Optional

from rankdeck_agent.kubernetes.api import Api, ApiError
from rankdeck_agent.kubernetes.pods import Object, rows_of, table_of, text_of

OURS_LABEL = "rankdeck/job"
ID_ANNOTATION, SPEC_ANNOTATION = "rankdeck/job-id", "rankdeck/spec"


@dataclass(frozen=True)
class Kind:
    """One kind of job. `label` is on its pods, with the job's name."""

    name: str
    group: str
    version: str
    plural: str
    label: str
    operator: str = ""
    """What OPERATOR_LABEL of its pods says, where kinds share `label`: jobs of both may have one name."""

    @property
    def api_version(self) -> str:
        """As objects of this kind have it."""
        return f"{self.group}/{self.version}"

    @property
    def place(self) -> str:
        return f"/apis/{self.api_version}"

    def path(self, namespace: str, name: str = "") -> str:
        """Where the API has the jobs of a namespace, or one of them."""
        path = f"{self.place}/namespaces/{namespace}/{self.plural}"
        return f"{path}/{name}" if name else path


OPERATOR_LABEL = "training.kubeflow.org/operator-name"
JOB = Kind("Job", "batch", "v1", "jobs", "batch.kubernetes.io/job-name")
MPIJOB = Kind(
    "MPIJob", "kubeflow.org", "v2beta1", "mpijobs", "training.kubeflow.org/job-name", "mpi-operator"
)
KINDS = (
    JOB,
    MPIJOB,
    Kind("PyTorchJob", "kubeflow.org", "v1", "pytorchjobs", "training.kubeflow.org/job-name", "pytorchjob-controller"),
    Kind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", "jobset.sigs.k8s.io/jobset-name"),
    Kind("TrainJob", "trainer.kubeflow.org", "v1alpha1", "trainjobs", "jobset.sigs.k8s.io/jobset-name"),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
POD_LABELS = tuple(dict.fromkeys(kind.label for kind in reversed(KINDS)))
"""Labels that name the job of a pod, the outermost first: a JobSet's pods also bear their Job's name."""
KUEUE = Kind("Workload", "kueue.x-k8s.io", "v1beta1", "workloads", "")


def served(api: Api) -> tuple[Kind, ...]:
    """The kinds that this server has, by discovery; raises ApiError where it does not answer."""
    return tuple(kind for kind in KINDS if serves(api, kind))


def serves(api: Api, kind: Kind) -> bool:
    """Whether the server has this kind; raises ApiError where it does not answer."""
    try:
        found = api.request("GET", kind.place)
    except ApiError as error:
        if error.status in (403, 404):
            return False
        raise
    return kind.plural in {row.get("name") for row in rows_of(found.get("resources"))}


def kind_of(name: str) -> Optional[Kind]:
    """The kind of this name."""
    return BY_NAME.get(name)


# ---- parts of objects, none of them trusted ---------------------------------------------


def part(found: object, *keys: str) -> Object:
    """The object below these keys; empty where there is none."""
    for key in keys:
        found = table_of(found).get(key)
    return table_of(found)


def whole(found: object) -> int:
    """A whole number of 0 or more; 0 for all else."""
    return found if type(found) is int and found >= 0 else 0


def job_of_pod(pod: Object) -> str:
    """`namespace/job` of a pod, "" where it belongs to none."""
    given = part(pod, "metadata", "labels")
    name = next((text for label in POD_LABELS if (text := text_of(given, label))), "")
    return f"{text_of(part(pod, 'metadata'), 'namespace')}/{name}" if name else ""
