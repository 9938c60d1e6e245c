"""Checks names, addresses and paths in files: all of them end up on command lines."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from rankdeck.config.document import Entry, suggest
from rankdeck.model.nodeset import expand

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ADDRESS = re.compile(r"[A-Za-z0-9_:\[][A-Za-z0-9._:%\[\]-]{0,252}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\+-]{0,63}")
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@:-]{0,14}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def name(entry: Entry, default: str = "") -> str:
    """A name as nodes, clusters and jobs have: letters, digits, `.`, `_`, `-`."""
    return _matching(entry, _NAME, "letters, digits, `.`, `_` and `-`, 63 at most", default)


def user(entry: Entry) -> str:
    """A login name."""
    return _matching(entry, _USER, "a login name")


def interface(entry: Entry) -> str:
    """A network interface."""
    return _matching(entry, _INTERFACE, "the name of a network interface")


def address(entry: Entry) -> str:
    """A host name or IP address."""
    return _matching(entry, _ADDRESS, "a host name or IP address")


def names(entry: Entry) -> tuple[str, ...]:
    """The node names of a node set."""
    found = _expanded(entry)
    return tuple(n for n in found if _fits(entry, n, _NAME, "a node name"))


def addresses(entry: Entry) -> tuple[str, ...]:
    """The addresses of a node set; an IPv6 address stands for itself."""
    text = entry.text()
    found = (text,) if ":" in text else _expanded(entry)
    return tuple(a for a in found if _fits(entry, a, _ADDRESS, "a host name or IP address"))


def environment(entry: Entry) -> dict[str, str]:
    """Environment variables: NAME -> value."""
    table = entry.fields()
    for key, value in table.items():
        if not _VARIABLE.fullmatch(key):
            value.report(f"`{key[:60]}` cannot be the name of a variable")
    return {key: _no_nul(value) for key, value in table.items() if _VARIABLE.fullmatch(key)}


def _no_nul(entry: Entry) -> str:
    word = entry.word()
    if "\0" in word:
        entry.report("a variable cannot hold a NUL character")
        return ""
    return word


def _expanded(entry: Entry) -> tuple[str, ...]:
    text = entry.text()
    if not text:
        return ()
    try:
        return expand(text)
    except ValueError as error:
        entry.report(str(error))
        return ()


def _matching(entry: Entry, shape: re.Pattern[str], what: str, default: str = "") -> str:
    text = entry.text()
    return text if text and _fits(entry, text, shape, what) else _empty(entry, text, default)


def _empty(entry: Entry, text: str, default: str) -> str:
    if entry.kind == "str" and not text:
        entry.report("is empty")
    return default


def _fits(entry: Entry, text: str, shape: re.Pattern[str], what: str) -> bool:
    if shape.fullmatch(text):
        return True
    entry.report(f"`{text[:60]}` is not {what}")
    return False


def url(
    entry: Entry, schemes: Mapping[str, tuple[bool, int]], instead: str
) -> tuple[str, int, bool, str]:
    """Host, port, whether TLS, and path of an address; `schemes` says of each: TLS, usual port.

    `instead` is where a password belongs that the address must not hold.
    """
    text = entry.text()
    try:
        parts = urlsplit(text)
        host, port, secret = parts.hostname or "", parts.port, parts.password
    except ValueError:
        parts, host, port, secret = urlsplit(""), "", None, None
    if secret is not None:
        entry.report(f"the address holds a password; {instead}")
    if parts.scheme not in schemes or not host:
        hint = suggest(parts.scheme, tuple(schemes)) if parts.scheme else ""
        shown = "" if secret is not None else f"; found `{text[:60]}`"
        shapes = " or ".join(f"{scheme}://host:port" for scheme in schemes)
        entry.report(f"expected {shapes}{shown}{hint}")
        return host, next(iter(schemes.values()))[1], False, ""
    tls, usual = schemes[parts.scheme]
    return host, port or usual, tls, parts.path
