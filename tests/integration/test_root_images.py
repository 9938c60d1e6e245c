"""Real images on their way: a SIF that one node lacks, and those that Podman and Docker keep."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.lab import RootLab
from tests.support.lab.root import IMAGES, people
from tests.support.lab.root.people import LIMIT, OCI, Operator, load, start_docker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
ENGINES = ["podman", "docker"]


@pytest.fixture(scope="module")
def user(root_lab: RootLab) -> Operator:
    return Operator(root_lab, "lab")


@pytest.fixture(scope="module")
def archive(user: Operator) -> str:
    """The archive, and a Docker daemon on two nodes."""
    root = Operator(user.lab, "root")
    start_docker(root, user)
    return people.archive(root)


def digests(who: Operator, runtime: str, image: str) -> dict[str, str]:
    """Node -> digest in the store, of the nodes that have it."""
    (said,) = who.objects("images", "n[1-2]", "--image", image, "--runtime", runtime)
    (one,) = said["images"]
    assert one["runtime"] == runtime
    return {n: row["digest"] for n, row in one["nodes"].items() if row["kind"] == "store"}


def hello(runtime: str, image: str, **more: Any) -> dict[str, Any]:
    command = ["python3", "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"]
    box = {"runtime": runtime, "image": image}
    return {"launch": "mpi", "command": command, "container": box, **more}


def test_a_launch_brings_a_sif_to_the_node_that_lacks_it_and_runs_it(
    user: Operator,
) -> None:
    user.on("n2", "rm -f app.sif")
    user.on("n1", "cp /srv/images/mpi5.sif ~/app.sif")

    job = user.run(**hello("apptainer", "app.sif"))

    assert (job["state"], user.lines(job["job"])) == ("done", ["4"] * 4), job
    both = [user.on(n, "sha256sum <app.sif") for n in ("n1", "n2")]
    assert both[0] == both[1]
    (said,) = user.objects("images", "n[1-2]", "--image", "app.sif")
    assert {row["digest"] for row in said["images"][0]["nodes"].values()} == {both[0].split()[0]}


def test_a_sif_is_pushed_and_runs(user: Operator) -> None:
    (said,) = user.objects(
        "images", "push", str(IMAGES / "mpi5.sif"), "n[1-2]", "--to", "box/a.sif"
    )
    job = user.run(**hello("apptainer", "box/a.sif"))

    assert said["nodes"] == ["n1", "n2"]
    assert (job["state"], user.lines(job["job"])) == ("done", ["4"] * 4), job


@pytest.mark.parametrize("engine", ENGINES)
def test_a_launch_brings_an_image_from_store_to_store_and_runs_it(
    user: Operator, archive: str, engine: str
) -> None:
    load(user, engine, archive, ("n1",))
    user.on("n2", f"{engine} rmi -f {OCI}")
    assert set(digests(user, engine, OCI)) == {"n1"}

    job = user.run(**hello(engine, OCI))

    assert (job["state"], user.lines(job["job"])) == ("done", ["4"] * 4), job
    found = digests(user, engine, OCI)
    assert set(found) == {"n1", "n2"}
    assert len(set(found.values())) == 1
    assert found["n1"].startswith("sha256:")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_archive_is_pushed_into_the_stores(user: Operator, archive: str, engine: str) -> None:
    for node in ("n1", "n2"):
        user.on(node, f"{engine} rmi -f {OCI}")
    (said,) = user.objects("images", "push", archive, "n[1-2]", "--runtime", engine)

    assert said["nodes"] == ["n1", "n2"]
    assert len(set(digests(user, engine, OCI).values())) == 1
    assert set(digests(user, engine, OCI)) == {"n1", "n2"}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_archive_is_refused_by_the_store(
    user: Operator, archive: str, engine: str
) -> None:
    wrong = Path(archive).with_name("wrong.tar")
    wrong.write_bytes(b"no archive" * 1000)
    done = user.lab.rankdeck(
        "-c",
        user.file,
        "images",
        "push",
        str(wrong),
        "n1",
        "--runtime",
        engine,
        "--json",
        limit=LIMIT,
    )

    assert done.returncode == 1
    assert set(json.loads(done.stdout)["failed"]) == {"n1"}


@pytest.mark.parametrize("engine", ENGINES)
def test_two_images_of_one_name_are_refused_with_both_digests(
    user: Operator, archive: str, engine: str
) -> None:
    other = f"printf {engine} >x && tar -c x | {engine} import - local/two"
    for node, make in (("n1", f"{engine} tag {OCI} local/two"), ("n2", other)):
        load(user, engine, archive, (node,))
        user.on(node, make, 120)
    found = digests(user, engine, "local/two")
    file = user.lab.folder / "two.yaml"
    file.write_text(
        json.dumps({"job": "two", "nodes": 2, "ranks_per_node": 1, **hello(engine, "local/two")})
    )

    done = user.lab.rankdeck("-c", user.file, "run", str(file), "--no-preflight", limit=LIMIT)

    assert done.returncode != 0
    assert "different versions" in done.stderr
    for digest in found.values():
        assert digest.removeprefix("sha256:")[:12] in done.stderr
