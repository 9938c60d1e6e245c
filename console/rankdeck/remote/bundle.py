"""The agent as one file, built from what is installed beside us."""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("rankdeck_agent", "paho")
_MODULES = ("pynvml",)
"""Taken along where they are installed; the agent does without."""
_DATE = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.exit(
        "rankdeck-agent needs Python 3.9 or newer; %s is %d.%d: name another one with `python:` in the cluster file"
        % (sys.executable, sys.version_info[0], sys.version_info[1])
    )

from rankdeck_agent.__main__ import main

sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A zip file that Python runs: `python3 agent.pyz VERB`."""

    data: bytes
    digest: str
    """SHA-256 of `data`, in hex."""
    name: str
    """The file name to use on a node: says what is in it."""


@cache
def bundle() -> Bundle:
    """The agent, always the same bytes for the same sources."""
    files = {"__main__.py": _MAIN.encode()}
    for package in _PACKAGES:
        files.update(_package(package))
    for module in _MODULES:
        files.update(_module(module))
    data = _SHEBANG + _zip(files)
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(data, digest, f"agent-{digest[:12]}.pyz")


def _package(name: str) -> Iterator[tuple[str, bytes]]:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{name} is not installed: the agent cannot be built", name=name)
    folder = Path(next(iter(spec.submodule_search_locations)))
    for path in folder.rglob("*.py"):
        yield f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _module(name: str) -> Iterator[tuple[str, bytes]]:
    spec = find_spec(name)
    if spec is not None and spec.origin and spec.origin.endswith(".py"):
        yield f"{name}.py", Path(spec.origin).read_bytes()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            # Fixed dates and modes: the bytes depend on the sources and on nothing else.
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name], compresslevel=9)
    return buffer.getvalue()
