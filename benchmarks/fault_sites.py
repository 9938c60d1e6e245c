"""Clusters on which faults are planted: the embedded cluster, and the
namespace lab, whose links can be cut.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.agent_file import put_agent_in_demo
from tests.support.lab import Lab, missing, running

from benchmarks.measure import ROOT
from benchmarks.result import MissingError
from rankdeck.demo import cluster as demo
from rankdeck.demo.cluster import NODES, DemoFolders, read_record

IMPORTS = f"{ROOT}/console:{ROOT}/agents:{ROOT}"
XDG = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
_COMPILE_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class DemoSite:
    """The embedded cluster; see `fault_model.Site`."""

    layout: DemoFolders
    cluster: str
    variables: Mapping[str, str]
    """The environment of its consoles."""

    def folder(self, job: str, node: str) -> Path:
        return self.layout.node(node) / "state/jobs" / job / node

    def nodes(self) -> tuple[str, ...]:
        return NODES

    def first_process(self, node: str) -> int:
        record = read_record(self.layout.record(node))
        if record is None or not record.alive:
            raise RuntimeError(f"{node} of the embedded cluster is gone")
        return record.pid

    def command(self, argv: Sequence[str]) -> list[str]:
        return [*argv]

    def environment(self) -> Mapping[str, str]:
        return self.variables

    def place(self) -> Path:
        """A folder that this machine and every node see under the same path."""
        folder = self.layout.root / "bench"
        folder.mkdir(exist_ok=True)
        return folder

    def cut(self, node: str) -> None:
        raise NotImplementedError("the embedded cluster has no links")

    def crash(self, node: str) -> None:
        os.kill(self.first_process(node), signal.SIGKILL)

    def mend(self) -> None:
        # A test gives each of its cases folders of its own; the cluster stays where it is.
        with _folders({name: self.variables[name] for name in XDG}):
            if not demo.demo_status().running:
                demo.start_demo()


@dataclass(frozen=True, slots=True)
class LabSite:
    """The namespace lab; see `fault_model.Site`."""

    lab: Lab
    cluster: str
    hurt: dict[str, str] = field(default_factory=dict[str, str])
    """Node -> the fault that is in force there."""

    def folder(self, job: str, node: str) -> Path:
        home = self.lab.folder / node / "home"
        return home / ".local/state/rankdeck/jobs" / job / node

    def nodes(self) -> tuple[str, ...]:
        return self.lab.nodes

    def first_process(self, node: str) -> int:
        return self.lab.first_process(node)

    def command(self, argv: Sequence[str]) -> list[str]:
        return self.lab.command(argv)

    def environment(self) -> Mapping[str, str]:
        return {**self.lab.environment(), "PYTHONPATH": IMPORTS}

    def place(self) -> Path:
        return self.lab.folder

    def cut(self, node: str) -> None:
        self.lab.cut(node)
        self.hurt[node] = "cut"

    def crash(self, node: str) -> None:
        self.lab.crash(node)
        self.hurt[node] = "crashed"

    def throttle(self, node: str, rate: str, *, towards_head: bool = False) -> None:
        """See `Lab.throttle`."""
        self.lab.throttle(node, rate, towards_head=towards_head)
        self.hurt[node] = "cut"

    def mend(self) -> None:
        for node, how in self.hurt.items():
            self.lab.mend(node) if how == "cut" else self.lab.boot(node)
        self.hurt.clear()


AnySite = DemoSite | LabSite


@contextmanager
def demo_site() -> Generator[DemoSite]:
    """Start a separate embedded cluster, apart from the user's; ended with the block."""
    with tempfile.TemporaryDirectory(prefix="faults.") as name:
        own = {variable: f"{name}/{variable[4:-5].lower()}" for variable in XDG}
        for folder in own.values():
            Path(folder).mkdir(mode=0o700)
        with _folders(own):
            try:
                put_agent_in_demo()
                file = demo.start_demo()
                variables = {**os.environ, "PYTHONPATH": IMPORTS}
                variables.pop("RANKDECK_STATE", None)
                yield DemoSite(DemoFolders(file.parent), str(file), variables)
            finally:
                # Again: a test that ended meanwhile has restored the earlier folders.
                with _folders(own):
                    demo.stop_demo()


@contextmanager
def _folders(own: Mapping[str, str]) -> Generator[None]:
    """Use these folders instead of the user's in our environment inside the block."""
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def lab_site() -> Generator[LabSite]:
    """Three nodes n1, n2, n3 with links that can be cut; raises MissingError."""
    if why := missing():
        raise MissingError(why)
    with running(Lab) as lab:
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        file = lab.cluster_file(slots=2, environment={"PATH": path})
        yield LabSite(lab, str(file))


def compile_c(source: str, target: Path, compiler: str, *options: str) -> None:
    """Compile a program of one file; raises CalledProcessError."""
    text = target.with_suffix(".c")
    text.write_text(source)
    argv = (compiler, "-O1", *options, "-o", str(target), str(text))
    subprocess.run(argv, check=True, timeout=_COMPILE_LIMIT, capture_output=True)
