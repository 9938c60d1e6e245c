"""The pages about Kubernetes in docs/examples, on the double with real processes as containers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.commands import COMMANDS
from tests.support.example_pages import Desk, Page
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.roles import documented
from tests.support.kubernetes.site import Endpoints, Site

pytestmark = [pytest.mark.slow, pytest.mark.left_out, pytest.mark.timeout(400)]
LIMIT = 150
PI = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: launcher
            image: registry.example.org/openmpi:5
            command: [mpirun, --allow-run-as-root, --hostfile, /etc/mpi/hostfile, --tag-output, -np, "4", sh, -c, 'echo rank $OMPI_COMM_WORLD_RANK on $(hostname)']
    Worker:
      replicas: 2
      template:
        spec:
          containers: [{name: worker, image: registry.example.org/openmpi:5}]
"""


@pytest.fixture
def desk(tmp_path: Path, kubernetes: Callable[..., Double], kubectl: Path) -> tuple[Site, Desk]:
    """Somebody with the rights of docs/kubernetes.md in the namespace of the sample."""
    double = kubernetes(namespaces=("default", "training"), kinds=("mpijobs",))
    roles = [one for part in ("The smallest Role", "Nodes and devices") for one in documented(part)]
    # What the page of the MPI Operator asks for beside them: kubectl apply reads what is there.
    applies = {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["get", "patch"]}
    roles[0]["rules"].append(applies)
    config = double.user("operator", roles, "training")
    site = Site(tmp_path / "site", Endpoints(config, namespace="training", double=double), kubectl)
    desk = Desk("k8s", site.environment, {})
    return site, desk


def read_page(name: str, site: Site, desk: Desk) -> None:
    run = lambda argv, together: COMMANDS.run(  # noqa: E731
        argv, site.environment, LIMIT, desk.folder, together=together
    )
    Page(name).run_lines(run, desk.folder, desk.hide)


def test_the_page_of_the_mpi_operator_is_true(desk: tuple[Site, Desk]) -> None:
    (desk[1].folder / "pi.yaml").write_text(PI)
    read_page("mpi-on-kubernetes", *desk)


def test_the_page_of_torchrun_is_true(desk: tuple[Site, Desk]) -> None:
    pytest.importorskip("torch")
    read_page("torchrun-on-kubernetes", *desk)
