"""Who works on the Slurm of the root lab: root, who may do
everything in it, and an ordinary user.
"""

from collections.abc import Iterator

import pytest
from tests.support.lab import RootLab
from tests.support.lab.root import slurm
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually


@pytest.fixture(scope="module")
def root(slurm_lab: RootLab) -> Operator:
    """The administrator; Slurm is up."""
    root = Operator(slurm_lab, "root")
    slurm.start(root)
    return slurm.through(root)


@pytest.fixture
def user(root: Operator) -> Iterator[Operator]:
    """An ordinary user; every test leaves the queue empty and the workers idle."""
    user = slurm.through(Operator(root.lab, "lab"))
    yield user
    assert eventually(lambda: tidied(root)), root.on("n3", "sinfo -R; squeue")


def tidied(root: Operator) -> bool:
    """Whether all is idle after this try: a health check that still
    runs may drain a node once more.
    """
    root.on(
        "n3",
        "scancel --user=lab; scancel --user=root; scontrol update nodename=n[1-2] state=resume",
    )
    return slurm.idle(root)
