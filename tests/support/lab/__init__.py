"""Labs: small clusters on this machine for the tests that need real sshd, links and crashes.

Take the fixture `lab` (one rootless lab of three nodes per test module; see `rootless.Lab`):

    @pytest.mark.slow
    def test_a_cut_link_is_noticed(lab: Lab) -> None:
        file = lab.cluster_file(slots=2)
        lab.cut("n2")
        assert lab.rankdeck("-c", str(file), "status").returncode == 0

A test that cuts a link or crashes a node must undo that (`mend`, `boot`). The fixture `root_lab` is
the same with a root file system of its own on every node: Apptainer, Podman, Slurm, two versions of
Open MPI (see `root`). Files share it, so a test there removes what could disturb others, and
creates what it needs itself.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.agent_file import put_agent
from tests.support.lab import root
from tests.support.lab.root import RootLab
from tests.support.lab.rootless import Lab, missing

__all__ = ["Lab", "RootLab", "lab", "missing", "root_lab", "running", "slurm_lab"]
AnyLab = TypeVar("AnyLab", bound=Lab)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Give three nodes n1, n2, n3 and a head; skips the test if this machine cannot run a lab."""
    if why := missing():
        pytest.skip(why)
    with running(Lab) as up:
        yield up


@pytest.fixture(scope="session")
def root_lab() -> Iterator[RootLab]:
    """Give three nodes n1, n2, n3 with real containers, one lab for all files; skips
    the test if this machine cannot run it.
    """
    yield from _root_lab()


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[RootLab]:
    """The same with a fourth node, for the files that make it a Slurm cluster."""
    yield from _root_lab(("n1", "n2", "n3", "n4"))


def _root_lab(names: Sequence[str] = ()) -> Iterator[RootLab]:
    if why := root.missing():
        pytest.skip(why)
    with running(RootLab, names) as up:
        yield up


@contextmanager
def running(kind: type[AnyLab], names: Sequence[str] = ()) -> Iterator[AnyLab]:
    """A lab of this kind in a folder of its own, up until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="lab.") as folder:
        lab = kind(Path(folder).resolve(), names=names)
        try:
            lab.up()
            if lab.python == sys.executable:
                put_agent(lab.folder / node / "home" for node in lab.nodes)
            yield lab
        finally:
            lab.down()
