"""The root lab itself: what the tests of containers and Slurm stand on."""

import json

import pytest
from tests.support.lab import RootLab
from tests.support.lab.root import OLD_MPI, OLD_SANDBOX, SANDBOX, SIF
from tests.support.reasons import reasons

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


def test_every_node_is_a_machine_of_its_own(root_lab: RootLab) -> None:
    command = ". /etc/os-release; hostname; id -un; echo $HOME $VERSION_CODENAME"

    answers = [root_lab.ssh(node, command).stdout.split() for node in root_lab.nodes]

    assert answers == [[n, "lab", "/home/lab", "trixie"] for n in root_lab.nodes]


def test_the_nodes_have_two_versions_of_open_mpi(root_lab: RootLab) -> None:
    said = root_lab.ssh("n1", f"mpirun --version; {OLD_MPI}/bin/mpirun --version")

    assert "(Open MPI) 5.0" in said.stdout
    assert "(Open MPI) 4.1" in said.stdout


@pytest.mark.parametrize(
    ("image", "version"), [(SIF, "5.0"), (SANDBOX, "5.0"), (OLD_SANDBOX, "4.1")]
)
def test_an_ordinary_user_enters_every_image(root_lab: RootLab, image: str, version: str) -> None:
    said = root_lab.ssh("n2", f"apptainer exec {image} sh -c 'mpirun --version; id -u'")

    assert f"(Open MPI) {version}" in said.stdout, said.stderr
    assert said.stdout.split()[-1] == "3000"


def test_the_console_on_the_head_hears_every_node(root_lab: RootLab) -> None:
    file = str(root_lab.cluster_file())
    said = root_lab.rankdeck("-c", file, "status", "--wait", "60", "--json", limit=90)

    heard = {node["name"]: reasons(node) for node in json.loads(said.stdout)["nodes"]}
    assert heard == {node: {} for node in root_lab.nodes}, said.stderr


def test_a_crashed_node_boots_again(root_lab: RootLab) -> None:
    root_lab.ssh("n3", "touch ~/kept /srv/lost")
    root_lab.crash("n3")
    assert "refused" in root_lab.ssh("n3", "true").stderr

    root_lab.boot("n3")

    assert root_lab.ssh("n3", "ls ~").stdout == "kept\n"
