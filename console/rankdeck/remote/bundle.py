"""The agent as one file that Python runs, built from the modules that are installed here."""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rankdeck.values import Value

_PACKAGES = ("rankdeck_agent", "paho")
_SIMULATOR = "rankdeck_simulator"
"""Only for nodes that simulate devices."""
_MODULES = ("pynvml",)
"""Included in the file if they are installed here; the agent works without them."""
_DATE = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = """\
import os, sys

if sys.version_info < (3, 6):
    sys.exit(
        "rankdeck-agent needs Python 3.6 or newer; %s is %d.%d: name another one with `python:` in the cluster file"
        % (sys.executable, sys.version_info[0], sys.version_info[1])
    )

agent = sys.path[0]
# Where the console put it, the same modules lie beside it, compiled by this version of Python.
compiled = "%s.%s" % (agent, sys.implementation.cache_tag)
sys.path.insert(0, compiled)
if sys.version_info < (3, 8):
    sys.path.append(agent + "/rankdeck_agent/for_older_python")
if sys.version_info < (3, 9) and not os.path.exists(compiled):
    from rankdeck_agent.older_source import OlderSourceFinder

    sys.meta_path.insert(0, OlderSourceFinder(agent))

from rankdeck_agent.__main__ import main

sys.exit(main())
"""
COMPILE_MODULES = """\
import glob, importlib.util, marshal, os, re, sys, zipfile
part, agent = sys.argv[1:]
sys.path.insert(0, part)
from rankdeck_agent.older_source import compile_module
head = importlib.util.MAGIC_NUMBER + bytes(12 if sys.version_info >= (3, 7) else 8)
with zipfile.ZipFile(part) as source, zipfile.ZipFile(part + "c", "w", zipfile.ZIP_DEFLATED) as compiled:
    for name in source.namelist():
        if name.endswith(".py") and name != "__main__.py":
            code = marshal.dumps(compile_module(source.read(name), agent + "/" + name))
            compiled.writestr(name + "c", head + code)
os.replace(part + "c", "%s.%s" % (agent, sys.implementation.cache_tag))

running = set()
for file in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        with open(file, "rb") as words:
            running.update(re.findall(r"agent-[0-9a-f]{12}[.]pyz", words.read().decode("utf-8", "replace")))
    except OSError:
        pass
now = os.stat(part).st_mtime
for old in glob.glob(os.path.dirname(agent) + "/agent-*.pyz"):
    name, seen = os.path.basename(old), os.stat(old)
    ours = re.fullmatch(r"agent-[0-9a-f]{12}[.]pyz", name)
    if ours and old != agent and name not in running and now - max(seen.st_mtime, seen.st_atime) > 30 * 86400:
        for file in glob.glob(old + "*"):
            os.remove(file)
"""
"""Run by the node's Python after an upload. It compiles the modules, because Python does not cache
those of a zip file, and compiling takes most of the start time of a command. It also removes agents
of other versions that were not used for 30 days and do not run on this node; by the clock of the
file system, which nodes may share.
"""


UNPACK = "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))"
"""Run by the node's Python: writes to stdout what `Bundle.packed` on stdin stands for."""


class Bundle(Value):
    """A zip file that Python runs: `python3 agent.pyz VERB`."""

    data: bytes
    """Not compressed: every command builds it, to know whether that on a node is the same."""
    digest: str
    """SHA-256 of `data`, in hex."""
    name: str
    """The file name on a node; contains the beginning of the digest."""

    @property
    def packed(self) -> bytes:
        """The data as it is sent: a quarter of the size; see UNPACK."""
        return zlib.compress(self.data)

    @property
    def compressed(self) -> bytes:
        """A file of the same modules, compressed, for places that take little."""
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        return _zip(files, zipfile.ZIP_DEFLATED)


def build_bundle(*, simulating: bool = False) -> Bundle:
    """The agent as one file; the same sources give the same bytes.

    `simulating`: with the devices that `simulate:` of a cluster file asks for.
    """
    return _built(simulating)


@cache
def _built(simulating: bool) -> Bundle:
    files = {"__main__.py": _MAIN.encode()}
    for package in (*_PACKAGES, *[_SIMULATOR] * simulating):
        files.update(_package(package))
    for module in _MODULES:
        files.update(_module(module))
    data = _zip(files)
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


def _zip(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name in sorted(files):
            # Fixed dates and modes, so that the bytes depend only on the sources.
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            entry.compress_type = method
            archive.writestr(entry, files[name])
    return _SHEBANG + buffer.getvalue()
