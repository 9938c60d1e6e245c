"""What this user may do on the cluster: asked by SelfSubjectAccessReview, one question per right."""

from collections.abc import Iterable
from dataclasses import dataclass

from rankdeck_agent.kubernetes.api import Api
from rankdeck_agent.kubernetes.kinds import JOB, KINDS, MPIJOB, Kind, part
from rankdeck_agent.kubernetes.pods import Object, text_of

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Right:
    """A verb on a resource, and the feature that needs it."""

    need: str
    """launch, tidy, mpi, follow, cancel, attach, fleet, devices."""
    verb: str
    resource: str
    group: str = ""
    everywhere: bool = False
    """Not only in the namespace."""

    @property
    def words(self) -> str:
        """`create jobs.batch`."""
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}" + (" of all namespaces" if self.everywhere else "")


def _each(need: str, verbs: str, resource: str, group: str = "") -> "list[Right]":
    return [Right(need, verb, resource, group) for verb in verbs.split()]


ALWAYS = (
    *_each("launch", "create", "jobs", JOB.group),
    *_each("launch", "create", "services"),
    *_each("launch", "create", "configmaps"),
    *_each("tidy", "patch", "services"),
    *_each("tidy", "patch", "configmaps"),
    *_each("follow", "get list watch", "jobs", JOB.group),
    *_each("follow", "get list watch", "pods"),
    *_each("follow", "get", "pods/log"),
    *_each("follow", "list watch", "events"),
    *_each("cancel", "delete", "jobs", JOB.group),
    *_each("cancel", "delete", "pods"),
    *_each("cancel", "list delete", "services"),
    *_each("cancel", "list delete", "configmaps"),
    Right("fleet", "list", "nodes", everywhere=True),
    Right("fleet", "watch", "nodes", everywhere=True),
    Right("devices", "list", "pods", everywhere=True),
    Right("devices", "watch", "pods", everywhere=True),
)
MPI = (
    *_each("mpi", "create get list watch delete", MPIJOB.plural, MPIJOB.group),
)  # fmt: skip


def needed(kinds: Iterable[Kind]) -> "tuple[Right, ...]":
    """The rights to ask for where the server has these kinds."""
    found = [*ALWAYS]
    there = {kind.name for kind in kinds}
    if MPIJOB.name in there:
        found += MPI
    for kind in KINDS:
        if kind.name in there and kind not in (JOB, MPIJOB):
            found += _each("attach", "get list watch delete", kind.plural, kind.group)
    return tuple(found)


def ask(api: Api, namespace: str, right: Right) -> Object:
    """One answer: the right, `allowed`, and `why` where the server says it. Raises ApiError."""
    resource, _, sub = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource}
    if sub:
        attributes["subresource"] = sub
    if not right.everywhere:
        attributes["namespace"] = namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    status = part(api.request("POST", REVIEWS, body=body), "status")
    allowed = status.get("allowed") is True
    return {
        "need": right.need,
        "what": right.words,
        "allowed": allowed,
        "why": "" if allowed else text_of(status, "reason", 300),
    }
