"""`Status` bodies, with which the API server refuses a request; the
words were recorded from Kubernetes 1.36.
"""

from tests.support.kubernetes.kinds import Kind

Json = dict


class RefusedError(Exception):
    """A request that is answered by a `Status` body."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.body = code, status(code, reason, message, details)


def status(code: int, reason: str, message: str, details: Json | None = None) -> Json:
    """A `Status` of a failure."""
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    more = {"details": details} if details else {}
    return {**head, "message": message, "reason": reason, **more, "code": code}


def success(kind: Kind, name: str, uid: str) -> Json:
    """The answer to a deletion that took effect at once."""
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**head, "details": {**_details(kind, name), "uid": uid}}


def _details(kind: Kind, name: str) -> Json:
    group = {"group": kind.group} if kind.group else {}
    return {"name": name, **group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> RefusedError:
    return RefusedError(
        404, "NotFound", f'{kind.resource} "{name}" not found', _details(kind, name)
    )


def exists(kind: Kind, name: str) -> RefusedError:
    message = f'{kind.resource} "{name}" already exists'
    return RefusedError(409, "AlreadyExists", message, _details(kind, name))


def conflict(kind: Kind, name: str) -> RefusedError:
    message = (
        f'Operation cannot be fulfilled on {kind.resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return RefusedError(409, "Conflict", message, _details(kind, name))


def invalid(kind: Kind, name: str, causes: list[tuple[str, str, str]]) -> RefusedError:
    """`causes` are (reason, field, message)."""
    told = [f"{field}: {message}" for _, field, message in causes]
    words = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    listed = [{"reason": r, "message": m, "field": f} for r, f, m in causes]
    details = {**_details(kind, name), "kind": kind.name, "causes": listed}
    return RefusedError(422, "Invalid", f'{kind.title} "{name}" is invalid: {words}', details)


def unknown_field(kind: Kind, fields: list[str]) -> RefusedError:
    told = ", ".join(f'unknown field "{field}"' for field in fields)
    message = (
        f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
        f"strict decoding error: {told}"
    )
    return RefusedError(400, "BadRequest", message)


def forbidden(
    user: str, verb: str, kind: Kind, sub: str, namespace: str, name: str
) -> RefusedError:
    resource = f"{kind.plural}/{sub}" if sub else kind.plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    what = f'{kind.resource} "{name}"' if name else kind.resource
    message = (
        f'{what} is forbidden: User "{user}" cannot {verb} resource "{resource}" '
        f'in API group "{kind.group}" {where}'
    )
    details = _details(kind, name) if name else {"kind": kind.plural}
    return RefusedError(403, "Forbidden", message, details)


def expired(asked: int, oldest: int) -> RefusedError:
    return RefusedError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def unauthorized() -> RefusedError:
    return RefusedError(401, "Unauthorized", "Unauthorized")
