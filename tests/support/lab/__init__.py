"""Labs: small clusters on this machine for the tests that need real sshd, links and crashes.

Take the fixture `lab` (one rootless lab of three nodes per test module; see `rootless.Lab`):

    @pytest.mark.slow
    def test_a_cut_link_is_noticed(lab: Lab) -> None:
        file = lab.cluster_file(slots=2)
        lab.cut("n2")
        assert lab.rankdeck("-c", str(file), "status").returncode == 0

A test that cuts or crashes mends or boots afterwards. Another kind of lab (a root file system of its own,
Slurm, Apptainer) is another module here with the same methods.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab.rootless import Lab, missing

__all__ = ["Lab", "lab", "missing"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Give three nodes n1, n2, n3 and a head; skips by name where the machine cannot."""
    why = missing()
    if why:
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="lab.") as folder:
        running = Lab(Path(folder).resolve())
        try:
            running.up()
            yield running
        finally:
            running.down()
