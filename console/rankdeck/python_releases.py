"""Releases of Python with which Rankdeck is not started: each has a
known fault in what Rankdeck needs.
"""

from collections.abc import Mapping
from typing import Protocol

BROKEN: Mapping[tuple[int, int, int], str] = {
    (3, 11, 1): "loses output of programs that it starts (CPython issue 100133)",
    (3, 13, 10): "crashes when a name is stored that is no plain text (CPython issue 142218)",
    (3, 14, 1): "crashes when a name is stored that is no plain text (CPython issue 142218)",
}
"""Release -> its fault, which the next release does not have."""


class Version(Protocol):
    """`sys.version_info`."""

    @property
    def major(self) -> int: ...
    @property
    def minor(self) -> int: ...
    @property
    def micro(self) -> int: ...
    @property
    def releaselevel(self) -> str: ...


def python_refusal(version: Version, python: str) -> str:
    """Why this interpreter, whose path is `python`, is refused, and what to do; "" if it is not."""
    release = (version.major, version.minor, version.micro)
    named = ".".join(map(str, release))
    if fault := BROKEN.get(release):
        newer = f"{version.major}.{version.minor}.{version.micro + 1}"
        return f"Python {named} ({python}) {fault}: install Rankdeck with {newer} or newer"
    if version.releaselevel != "final":
        return (
            f"Python {named} ({python}) is a {version.releaselevel} release, which nobody tested"
            " with Rankdeck: install Rankdeck with a final release"
        )
    return ""
