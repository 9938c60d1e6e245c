"""Faults of real containers, planted in the root lab: preflight
names each before the job is started.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.support.lab import RootLab
from tests.support.lab.root import OLD_MPI, OLD_SANDBOX, SANDBOX, SIF, people
from tests.support.lab.root.people import LIMIT, OCI, Operator, load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
NEW = {"flavour": "openmpi5", "path": "mpirun"}
OLD = {"flavour": "openmpi4", "path": f"{OLD_MPI}/bin/mpirun"}
STARTER = "$(find /usr/lib -path '*/apptainer/bin/starter')"
Look = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def user(root_lab: RootLab) -> Operator:
    return Operator(root_lab, "lab")


@pytest.fixture(scope="module")
def root(root_lab: RootLab) -> Operator:
    return Operator(root_lab, "root")


@pytest.fixture(scope="module")
def podman(user: Operator, root: Operator) -> Operator:
    return load(user, "podman", people.archive(root))


def look(who: Operator, image: str, runtime: str = "apptainer", **spec: object) -> dict[str, Any]:
    """What `preflight --json` says of a job in this image."""
    job = {
        "job": "looked-at", "launch": "mpi", "nodes": 2, "ranks_per_node": 1, "command": ["python3", "-c", "1"],
        "container": {"runtime": runtime, "image": image}, **spec,
    }  # fmt: skip
    file = who.lab.folder / "looked-at.yaml"
    file.write_text(yaml.safe_dump(job))
    done = who.lab.rankdeck("-c", who.file, "preflight", str(file), "--json", limit=LIMIT)
    assert done.stdout, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if said["ready"] else 2)
    return said


def troubles(said: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(f["level"], f["check"], f["node"]) for f in said["findings"] if f["level"] != "ok"]


def of(said: dict[str, Any], check: str) -> dict[str, Any]:
    (finding,) = [f for f in said["findings"] if f["check"] == check and f["level"] != "ok"]
    return finding


# ---- good jobs -------------------------------------------------------------------------


@pytest.mark.kept("/srv/images/mpi5.sif")
@pytest.mark.parametrize("image", [SIF, SANDBOX])
def test_a_good_job_in_a_container_has_nothing_against_it(user: Operator, image: str) -> None:
    said = look(user, image, nodes=3)

    assert troubles(said) == []
    assert "2 ranks found each other: Open MPI v5" in str(said["findings"])
    assert "the image starts on 1 node and has the program" in str(said["findings"])


@pytest.mark.parametrize("launch", ["plain", "tensorflow"])
def test_a_good_job_without_mpi_is_tried_on_every_node(user: Operator, launch: str) -> None:
    said = look(user, SIF, launch=launch, nodes=3)

    assert troubles(said) == []
    assert "the image starts on 3 nodes and has the program" in str(said["findings"])


def test_a_good_job_in_podman_has_nothing_against_it(podman: Operator) -> None:
    assert troubles(look(podman, OCI, "podman")) == []
    assert troubles(look(podman, OCI, "podman", launch="plain")) == []
    assert podman.on("n1", "podman ps -aq; ls /tmp | grep -c probe-") == "0\n"


def test_torchrun_of_the_image_is_found_there(user: Operator) -> None:
    said = look(user, OLD_SANDBOX, launch="torchrun", command=["/bin/sh"])

    assert troubles(said) == []


# ---- MPI outside and inside ------------------------------------------------------------


@pytest.mark.kept
def test_ranks_that_will_all_be_rank_0_are_named_with_a_launcher_that_fits(
    user: Operator,
) -> None:
    said = look(user, OLD_SANDBOX, mpi=NEW)
    finding = of(said, "probe")

    assert (finding["level"], finding["node"]) == ("bad", "n[1-2]")
    assert "every rank is rank 0 of 1" in finding["text"]
    assert "5.0" in finding["text"]
    assert "4.1.4" in finding["text"]
    assert finding["patch"] == {"mpi.path": OLD["path"], "mpi.flavour": OLD["flavour"]}


@pytest.mark.parametrize("image", [OLD_SANDBOX, SANDBOX])
def test_versions_that_differ_and_work_are_told(user: Operator, image: str) -> None:
    said = look(user, image, mpi=OLD)

    assert said["ready"]
    assert troubles(said) == [("warn", "probe", "n[1-2]")]
    assert "they work together here" in of(said, "probe")["text"]


# ---- one node, one image ---------------------------------------------------------------


@pytest.mark.parametrize("launch", ["mpi", "plain"])
def test_a_node_without_the_runtime_is_named(user: Operator, root: Operator, launch: str) -> None:
    root.on("n2", "mv /usr/bin/apptainer /usr/bin/away")
    try:
        said = look(user, SANDBOX, launch=launch)
    finally:
        root.on("n2", "mv /usr/bin/away /usr/bin/apptainer")

    assert ("bad", "program", "n2") in troubles(said)
    assert "no `apptainer`" in of(said, "program")["text"]


@pytest.mark.kept
def test_a_node_where_the_runtime_does_not_start_is_named(user: Operator, root: Operator) -> None:
    root.on("n3", f"chmod 0600 {STARTER}")
    try:
        plain = look(user, SANDBOX, launch="plain", nodes=3)
        mpi = look(user, SANDBOX, nodes=3)
    finally:
        root.on("n3", f"chmod 0755 {STARTER}")

    assert troubles(plain) == [("bad", "container", "n3")]
    assert troubles(mpi) == [("bad", "container", "n3")]
    assert "starter" in of(plain, "container")["text"]


@pytest.mark.parametrize(
    ("image", "runtime", "more", "missing"),
    [
        (SIF, "apptainer", {"command": ["hello-mpi"]}, "hello-mpi"),
        (SIF, "apptainer", {"launch": "plain", "command": ["hello-mpi"]}, "hello-mpi"),
        (SIF, "apptainer", {"launch": "torchrun", "command": ["/bin/sh"]}, "torchrun"),
        (OLD_SANDBOX, "apptainer", {"launch": "torchrun", "command": ["/no/train.py"]}, "/no/train.py"),
        (OCI, "podman", {"launch": "plain", "command": ["hello-mpi"]}, "hello-mpi"),
        (OCI, "podman", {"launch": "tensorflow", "command": ["python3", "/no/tf.py"]}, "/no/tf.py"),
    ],
)  # fmt: skip
def test_an_image_without_the_program_is_named(
    podman: Operator, image: str, runtime: str, more: dict[str, Any], missing: str
) -> None:
    said = look(podman, image, runtime, **more)

    assert troubles(said) == [("bad", "program", "n[1-2]")]
    assert f"no `{missing}` in the image" in of(said, "program")["text"]


def test_two_images_of_one_name_in_podman_are_named(podman: Operator) -> None:
    podman.on("n2", f"printf x >x && tar -c x | podman import - {OCI}-two", 120)
    podman.on("n1", f"podman tag {OCI} {OCI}-two")
    said = look(podman, f"{OCI}-two", "podman", launch="plain")

    assert ("bad", "image", "") in troubles(said)
    assert "different versions" in of(said, "image")["text"]
