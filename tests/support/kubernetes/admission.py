"""Admission of pods and jobs in the double: PodSecurity, LimitRange, quotas on
CPU and memory, classes, webhooks of a site.

The words are those of Kubernetes 1.36 (pkg/apis,
staging/src/k8s.io/pod-security-admission, plugin/pkg/admission) from its sources.
"""

import copy
import re
from collections.abc import Callable
from fractions import Fraction

from tests.support.kubernetes import status
from tests.support.kubernetes.kinds import LIMIT_RANGE, NAMESPACE, POD, QUOTA, RUNTIME_CLASS, Kind
from tests.support.kubernetes.store import Store

Json = dict
ENFORCE = "pod-security.kubernetes.io/enforce"
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([a-zA-Z]*)")
_FACTORS = {"": 1, "m": Fraction(1, 1000), "k": 1000, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}  # fmt: skip
Hook = Callable[[Kind, Json], "str | None"]
"""A webhook of a site: may change the object; a text refuses it."""
Admit = Callable[[Kind, Json], Json]


class Admission:
    """The admission chain of the double; `hooks` are the webhooks of its site, by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.hooks: dict[str, Hook] = {}

    def admit(self, kind: Kind, made: Json) -> Json:
        """The object as it is stored; raises RefusedError."""
        made = copy.deepcopy(made)
        if kind is POD:
            self._default(made)
        for name, hook in self.hooks.items():
            if why := hook(kind, made):
                raise status.RefusedError(
                    400, "BadRequest", f'admission webhook "{name}" denied the request: {why}'
                )
        if kind is POD:
            self._demand_class(made)
            self._demand_security(made)
            self._demand_limits(made)
            self._demand_quota(made)
        return made

    def _default(self, pod: Json) -> None:
        """A LimitRange gives containers that name no limits its defaults."""
        for ranges in self._of(pod, LIMIT_RANGE):
            for one in ranges["spec"]["limits"]:
                for box in pod["spec"]["containers"]:
                    given = box.setdefault("resources", {})
                    given["limits"] = {**one.get("default", {}), **given.get("limits", {})}
                    asked = {**one.get("defaultRequest", {}), **given.get("limits", {})}
                    given["requests"] = {**asked, **given.get("requests", {})}

    def _of(self, pod: Json, kind: Kind) -> list[Json]:
        return self._store.all(kind, pod["metadata"]["namespace"])

    def _demand_class(self, pod: Json) -> None:
        name = pod["spec"].get("runtimeClassName")
        known = {one["metadata"]["name"] for one in self._store.all(RUNTIME_CLASS)}
        if name and name not in known:
            raise _forbidden(pod, f'pod rejected: RuntimeClass "{name}" not found')

    def _demand_security(self, pod: Json) -> None:
        space = self._store.need(NAMESPACE, "", pod["metadata"]["namespace"])
        if space["metadata"].get("labels", {}).get(ENFORCE) != "restricted":
            return
        if found := violations(pod["spec"]):
            raise _forbidden(pod, f'violates PodSecurity "restricted:latest": {", ".join(found)}')

    def _demand_limits(self, pod: Json) -> None:
        for ranges in self._of(pod, LIMIT_RANGE):
            for one in ranges["spec"]["limits"]:
                for name, most in one.get("max", {}).items():
                    for box in pod["spec"]["containers"]:
                        asked = box.get("resources", {}).get("limits", {}).get(name)
                        if asked is not None and _amount(asked) > _amount(most):
                            raise _forbidden(
                                pod,
                                f"maximum {name} usage per Container is {most}, but limit is {asked}",
                            )

    def _demand_quota(self, pod: Json) -> None:
        for quota in self._of(pod, QUOTA):
            title, hard = quota["metadata"]["name"], quota["spec"]["hard"]
            kept = [
                name
                for name in hard
                if name.startswith(("requests.", "limits.")) and "/" not in name
            ]
            missing = [name for name in kept if _of_box(pod, name) is None]
            if missing:
                boxes = ",".join(box["name"] for box in pod["spec"]["containers"])
                words = "; ".join(f"{name} for: {boxes}" for name in sorted(missing))
                raise _forbidden(pod, f"failed quota: {title}: must specify {words}")
            for name in kept:
                others = self._of(pod, POD)
                used = sum(
                    (_of_box(one, name) or 0 for one in others if not _is_over(one)), Fraction(0)
                )
                asked = _of_box(pod, name) or Fraction(0)
                if used + asked > _amount(hard[name]):
                    said = f"requested: {name}={_short(asked)}, used: {name}={_short(used)}, limited: {name}={hard[name]}"
                    raise _forbidden(pod, f"exceeded quota: {title}, {said}")


def _forbidden(pod: Json, why: str) -> status.RefusedError:
    name = pod["metadata"]["name"]
    words = f'pods "{name}" is forbidden: {why}'
    return status.RefusedError(403, "Forbidden", words, {"name": name, "kind": "pods"})


def _is_over(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _short(amount: Fraction) -> str:
    return str(int(amount)) if amount.denominator == 1 else f"{int(amount * 1000)}m"


def _amount(quantity: object) -> Fraction:
    found = _AMOUNT.fullmatch(str(quantity))
    assert found is not None
    return Fraction(found[1]) * _FACTORS[found[2]]


def _of_box(pod: Json, name: str) -> Fraction | None:
    """How much the containers of a pod ask for, `requests.cpu`; None if one does not say."""
    what, _, resource = name.partition(".")
    asked = [
        box.get("resources", {}).get(what, {}).get(resource) for box in pod["spec"]["containers"]
    ]
    return None if None in asked else sum(map(_amount, asked), Fraction(0))


def violations(spec: Json) -> list[str]:
    """What PodSecurity `restricted` finds wrong with a pod."""
    found: list[str] = []
    if spec.get("hostNetwork"):
        found.append("host namespaces (hostNetwork=true)")
    paths = [one["name"] for one in spec.get("volumes", []) if "hostPath" in one]
    if paths:
        found.append(
            f'restricted volume types (volume "{paths[0]}" uses restricted volume type "hostPath")'
        )
    pod = spec.get("securityContext") or {}
    for box in spec["containers"]:
        own = box.get("securityContext") or {}
        name, adding = f'container "{box["name"]}"', own.get("capabilities", {}).get("add", [])
        if own.get("allowPrivilegeEscalation") is not False:
            found.append(
                f"allowPrivilegeEscalation != false ({name} must set securityContext.allowPrivilegeEscalation=false)"
            )
        if "ALL" not in own.get("capabilities", {}).get("drop", []) or set(adding) - {
            "NET_BIND_SERVICE"
        }:
            found.append(
                f'unrestricted capabilities ({name} must set securityContext.capabilities.drop=["ALL"])'
            )
        if {**pod, **own}.get("runAsNonRoot") is not True:
            found.append(
                f"runAsNonRoot != true (pod or {name} must set securityContext.runAsNonRoot=true)"
            )
        if {**pod, **own}.get("seccompProfile", {}).get("type") not in (
            "RuntimeDefault",
            "Localhost",
        ):
            found.append(
                f'seccompProfile (pod or {name} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
            )
    return found
