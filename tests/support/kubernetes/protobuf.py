"""The one object that kubectl sends as protobuf: the
SelfSubjectAccessReview of `kubectl auth can-i`.

Field numbers: runtime.Unknown (generated.proto of apimachinery) and authorization.k8s.io/v1.
"""

MAGIC = b"k8s\x00"
_ATTRIBUTES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")


def review(body: bytes) -> dict:
    """The review as the same object in JSON; raises ValueError if `body` is not such a message."""
    raw = _fields(body[len(MAGIC) :]).get(2, b"")
    asked = _fields(_fields(_fields(raw).get(2, b"")).get(1, b""))
    known = {name: asked.get(at, b"").decode() for at, name in enumerate(_ATTRIBUTES, 1)}
    spec = {"resourceAttributes": {k: v for k, v in known.items() if v}}
    head = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    return {**head, "metadata": {}, "spec": spec}


def _fields(message: bytes) -> dict[int, bytes]:
    """Fields with a length (wire type 2), by number."""
    found, at = {}, 0
    while at < len(message):
        tag, at = _number(message, at)
        size, at = _number(message, at)
        if tag & 7 == 2:
            found[tag >> 3] = message[at : at + size]
            at += size
        elif tag & 7 != 0:
            raise ValueError("an unexpected kind of field")
    return found


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
