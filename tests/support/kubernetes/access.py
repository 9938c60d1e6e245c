"""Access rights: bearer tokens, and rules of Roles that a test gives."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.kubernetes import status

Json = dict
ADMIN = "admin"


@dataclass
class Access:
    """Tokens and rules; the user `admin` may do everything."""

    tokens: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Token -> (user, monotonic time at which it expires)."""
    rules: dict[str, list[tuple[str, Json]]] = field(default_factory=dict)
    """User -> (namespace, or "" for all; rule)."""
    used: set[tuple[str, str, str]] = field(default_factory=set)
    """(user, verb, resource) of all allowed requests."""

    def add(self, user: str, token: str, roles: Sequence[Json] = ()) -> None:
        """Add a user with a token and the rights of these Roles and ClusterRoles."""
        self.tokens[token] = (user, float("inf"))
        for role in roles:
            where = role["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
            self.rules.setdefault(user, []).extend((where, rule) for rule in role["rules"])

    def expire(self, token: str) -> None:
        self.tokens[token] = (self.tokens[token][0], 0.0)

    def user(self, header: str) -> str:
        """Who sent a request; raises RefusedError with 401."""
        user, until = self.tokens.get(header.removeprefix("Bearer ").strip(), ("", 0.0))
        if not user or time.monotonic() > until:
            raise status.unauthorized()
        return user

    def may(self, user: str, asked: Json) -> bool:
        """Whether resource attributes, as a review has them, are allowed."""
        if user == ADMIN:
            return True
        sub = asked.get("subresource")
        resource = f"{asked['resource']}/{sub}" if sub else asked["resource"]
        for where, rule in self.rules.get(user, []):
            names = rule.get("resourceNames")
            if (
                where in ("", asked.get("namespace", ""))
                and _has(rule["apiGroups"], asked.get("group", ""))
                and _has(rule["resources"], resource)
                and _has(rule["verbs"], asked["verb"])
                and (not names or asked.get("name") in names)
            ):
                return True
        return False

    def demand(self, user: str, verb: str, target) -> None:
        """Raises RefusedError with 403 for what is not allowed."""
        kind = target.kind
        asked = {
            "group": kind.group,
            "resource": kind.plural,
            "subresource": target.sub,
            "verb": verb,
            "namespace": target.namespace,
            "name": target.name,
        }
        if not self.may(user, asked):
            raise status.forbidden(user, verb, kind, target.sub, target.namespace, target.name)
        self.used.add((user, verb, f"{kind.plural}/{target.sub}" if target.sub else kind.plural))

    def review(self, user: str, asked: Json) -> Json:
        """A SelfSubjectAccessReview, answered."""
        attributes = asked.get("spec", {}).get("resourceAttributes")
        allowed = bool(attributes) and self.may(user, attributes)
        return {**asked, "metadata": {}, "status": {"allowed": allowed}}


def _has(listed: list[str], wanted: str) -> bool:
    return "*" in listed or wanted in listed
