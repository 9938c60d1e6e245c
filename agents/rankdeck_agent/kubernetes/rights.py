"""What this user may do on the cluster: asked by SelfSubjectAccessReview, one question per right."""

from collections.abc import Iterable
from dataclasses import dataclass

from rankdeck_agent.kubernetes.api import Api
from rankdeck_agent.kubernetes.kinds import JOB, MPIJOB, Kind, part
from rankdeck_agent.kubernetes.pods import Object, text_of

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Right:
    """A verb on a resource, and the feature that needs it."""

    need: str
    """launch, tidy, see, follow, events, cancel, force, fleet, devices."""
    verb: str
    resource: str
    group: str = ""
    kind: str = ""
    """Of the jobs for which it is needed; "" for all."""
    everywhere: bool = False
    """Not only in the namespace."""

    @property
    def words(self) -> str:
        """`create jobs.batch`."""
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}" + (" of all namespaces" if self.everywhere else "")


def _each(need: str, verbs: str, resource: str, kind: str = "") -> "list[Right]":
    return [Right(need, verb, resource, kind=kind) for verb in verbs.split()]


_ALWAYS = (
    *_each("launch", "create", "configmaps"),
    *_each("launch", "create", "services", JOB.name),
    *_each("tidy", "patch", "configmaps"),
    *_each("tidy", "patch", "services", JOB.name),
    *_each("follow", "get list watch", "pods"),
    *_each("follow", "get", "pods/log"),
    *_each("events", "list watch", "events"),
    *_each("cancel", "list delete", "services"),
    *_each("cancel", "list delete", "configmaps"),
    *_each("force", "delete", "pods"),
    Right("fleet", "list", "nodes", everywhere=True),
    Right("fleet", "watch", "nodes", everywhere=True),
    Right("devices", "list", "pods", everywhere=True),
    Right("devices", "watch", "pods", everywhere=True),
)
_OF_A_KIND = (("see", "list"), ("see", "watch"), ("cancel", "delete"))
_STARTED = (JOB, MPIJOB)


def needed(kinds: Iterable[Kind]) -> "tuple[Right, ...]":
    """The rights to ask for where the server has these kinds of jobs."""
    found: list[Right] = []
    for kind in kinds:
        asked = (("launch", "create"), *_OF_A_KIND) if kind in _STARTED else _OF_A_KIND
        found += [Right(need, verb, kind.plural, kind.group, kind.name) for need, verb in asked]
    return (*found, *_ALWAYS)


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
        "kind": right.kind,
        "what": right.words,
        "allowed": allowed,
        "why": "" if allowed else text_of(status, "reason", 300),
    }
