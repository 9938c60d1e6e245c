"""Images on their way to nodes over real SSH: whole or not at all, from where they broke off."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lab import Lab
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
RUNTIME = """#!/bin/sh
# Stands where apptainer stands: takes its words, needs its image, runs the program.
while [ "${1#-}" != "$1" ]; do shift; done
[ "$1" = exec ] || exit 64
shift
while [ "${1#-}" != "$1" ]; do shift; done
[ -s "$1" ] || { echo "no image $1" >&2; exit 255; }
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def image(lab: Lab) -> Path:
    path = lab.folder / "console" / "big.sif"
    path.write_bytes(os.urandom(20 << 20))
    return path


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def push(lab: Lab, file: Path, nodes: str, *more: str) -> tuple[int, dict[str, Any], str]:
    where = str(lab.cluster_file())
    done = lab.rankdeck("-c", where, "images", "push", str(file), nodes, "--json", *more)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def on_node(lab: Lab, node: str, name: str) -> str:
    said = lab.ssh(node, f"sha256sum {name}").stdout.split()
    return said[0] if said else ""


def run(lab: Lab, name: str, **more: Any) -> Any:
    runtime = lab.shared / "apptainer"
    runtime.write_text(RUNTIME)
    runtime.chmod(0o755)
    job = {
        "job": "boxed",
        "launch": "plain",
        "nodes": 3,
        "ranks_per_node": 1,
        "command": ["hostname"],
        "container": {"runtime": "apptainer", "image": name},
        **more,
    }
    file = lab.folder / "console" / "boxed.yaml"
    file.write_text(yaml.safe_dump(job))
    path = f"{lab.shared}:{Path(sys.executable).parent}:/usr/bin:/bin"
    cluster = str(lab.cluster_file(environment={"PATH": path}))
    return lab.rankdeck("-c", cluster, "run", str(file), limit=100)


def test_a_push_puts_the_same_bytes_on_every_node(lab: Lab, image: Path) -> None:
    code, said, err = push(lab, image, "n[1-2]")

    assert code == 0, err
    assert said["nodes"] == ["n1", "n2"]
    assert said["digest"] == sha(image)
    assert [on_node(lab, n, "big.sif") for n in ("n1", "n2")] == [sha(image)] * 2
    assert "20 MiB of 20 MiB to n[1-2]" in err
    assert lab.ssh("n1", "ls -a | grep part").stdout == ""
    assert lab.ssh("n1", "stat -c %a big.sif").stdout.strip() == "644"


def test_a_second_push_sends_nothing(lab: Lab, image: Path) -> None:
    push(lab, image, "n1")
    code, _, err = push(lab, image, "n1")

    assert code == 0
    assert "MiB/s" not in err


def test_a_push_goes_on_where_it_broke_off(lab: Lab, image: Path) -> None:
    part = f".resumed.sif.{sha(image)[:16]}.part"
    half = lab.shared / "half"
    half.write_bytes(image.read_bytes()[: 15 << 20])
    lab.ssh("n1", f"cp {half} {part}")
    code, _, err = push(lab, image, "n1", "--to", "resumed.sif")

    assert code == 0, err
    assert on_node(lab, "n1", "resumed.sif") == sha(image)
    assert "20 MiB of 20 MiB" in err
    assert lab.ssh("n1", f"ls {part}").returncode


@pytest.mark.kept
def test_a_copy_that_a_crash_broke_off_goes_on_from_there(
    lab: Lab, image: Path, need: Callable[..., None]
) -> None:
    need("tc")
    part = lab.folder / "n1/home" / f".crashed.sif.{sha(image)[:16]}.part"
    slow = "tc qdisc {} dev v1 root tbf rate 40mbit burst 64kb latency 100ms"
    lab.as_root(slow.format("add").split())
    try:
        with ThreadPoolExecutor() as thread:
            first = thread.submit(push, lab, image, "n[1-2]", "--to", "crashed.sif")
            under_way = lambda: part.exists() and part.stat().st_size > 4 << 20  # noqa: E731
            assert eventually(under_way)
            lab.crash("n1")
            code, said, _ = first.result()
    finally:
        lab.as_root(slow.format("del").split())
    kept = part.stat().st_size
    lab.boot("n1")
    before = sent_to_n1(lab)
    again, _, err = push(lab, image, "n1", "--to", "crashed.sif")

    assert (code, said["nodes"]) == (1, ["n2"])
    assert 4 << 20 < kept < 20 << 20
    assert again == 0, err
    assert on_node(lab, "n1", "crashed.sif") == sha(image)
    assert not part.exists()
    assert sent_to_n1(lab) - before < (20 << 20) - kept + (3 << 20)


def sent_to_n1(lab: Lab) -> int:
    """Bytes that went over the link, our agent's file included."""
    said = lab.as_root(["ip", "-s", "-j", "link", "show", "v1"]).stdout
    return int(json.loads(said)[0]["stats64"]["tx"]["bytes"])


def test_bytes_that_are_not_those_sent_never_get_the_name(lab: Lab, image: Path) -> None:
    part = f".spoilt.sif.{sha(image)[:16]}.part"
    lab.ssh("n1", f"head -c 1000000 /dev/zero >{part}")
    code, said, err = push(lab, image, "n1", "--to", "spoilt.sif")

    assert code == 1
    assert "not what was sent" in said["failed"]["n1"], err
    assert lab.ssh("n1", f"ls spoilt.sif {part}").stdout == ""


def test_another_image_of_that_name_stays_until_it_may_be_replaced(lab: Lab, image: Path) -> None:
    lab.ssh("n3", "printf other >other.sif")
    refused, said, _ = push(lab, image, "n[1,3]", "--to", "other.sif")
    kept = lab.ssh("n3", "cat other.sif").stdout
    code, _, err = push(lab, image, "n[1,3]", "--to", "other.sif", "--replace")

    assert (refused, said["nodes"], kept) == (1, ["n1"], "other")
    assert "another image" in said["failed"]["n3"]
    assert code == 0, err
    assert on_node(lab, "n3", "other.sif") == sha(image)


@pytest.mark.kept
def test_a_node_without_room_says_so_and_the_others_get_it(lab: Lab, image: Path) -> None:
    pid = (lab.folder / "n2" / "unshare.pid").read_text().strip()
    inside = f"nsenter -t $(cat /proc/{pid}/task/{pid}/children) -m"
    lab.ssh("n2", "mkdir -p ~/small")
    lab.ssh("n1", "mkdir -p ~/small")
    lab.as_root(["sh", "-c", f"{inside} mount -t tmpfs -o size=8m,mode=1777 tmpfs /run/home/small"])
    try:
        code, said, _ = push(lab, image, "n[1-2]", "--to", "small/a.sif")
    finally:
        lab.as_root(["sh", "-c", f"{inside} umount /run/home/small"])

    assert (code, said["nodes"]) == (1, ["n1"])
    assert "MiB free" in said["failed"]["n2"]


def test_a_node_that_is_cut_off_fails_alone(lab: Lab, image: Path) -> None:
    lab.cut("n3")
    try:
        code, said, _ = push(lab, image, "n[1,3]", "--to", "alone.sif")
    finally:
        lab.mend("n3")

    assert (code, said["nodes"]) == (1, ["n1"])
    assert on_node(lab, "n1", "alone.sif") == sha(image)


@pytest.mark.kept
def test_a_launch_copies_the_image_from_a_node_to_those_that_lack_it(lab: Lab, image: Path) -> None:
    push(lab, image, "n2", "--to", "launch.sif")
    done = run(lab, "launch.sif")

    assert done.returncode == 0, done.stderr
    assert sorted(line.split()[-1] for line in done.stdout.splitlines()) == ["n1", "n2", "n3"]
    assert [on_node(lab, n, "launch.sif") for n in lab.nodes] == [sha(image)] * 3
    assert "launch.sif: 20 MiB of 20 MiB to n[1,3]" in done.stderr


@pytest.mark.kept
def test_a_launch_copies_an_image_that_lies_beside_the_job_file(lab: Lab, image: Path) -> None:
    (image.parent / "beside.sif").write_bytes(b"x" * 5000)
    done = run(lab, "beside.sif", workdir="/tmp")

    assert done.returncode == 0, done.stderr
    assert lab.ssh("n3", "stat -c %s /tmp/beside.sif").stdout.strip() == "5000"


def test_a_launch_with_two_versions_around_is_refused(lab: Lab) -> None:
    for node in lab.nodes:
        lab.ssh(node, f"printf {'old' if node == 'n1' else 'new'} >mixed.sif")
    looked = run(lab, "mixed.sif")

    assert looked.returncode == 2
    assert "different versions" in looked.stderr


def test_the_atlas_names_the_nodes_of_each_version(lab: Lab) -> None:
    for node in lab.nodes:
        lab.ssh(node, f"printf {'old' if node == 'n1' else 'new'} >atlas.sif")
    where = str(lab.cluster_file())
    samples = lab.rankdeck("-c", where, "images")
    told = lab.rankdeck("-c", where, "images", "--image", "atlas.sif")
    some = lab.rankdeck("-c", where, "images", "n[2-3]", "--image", "atlas.sif", "--json")
    shape = json.loads(some.stdout)["images"][0]

    # The samples for Kubernetes have images that its nodes pull: they are not looked for here.
    assert "mpi-multinodes.sif" in samples.stdout
    assert "registry" not in samples.stdout
    assert told.returncode == 1
    assert "DIFFERENT" in told.stdout
    assert hashlib.sha256(b"old").hexdigest()[:12] in told.stdout
    assert some.returncode == 0
    assert shape["same"]
    assert shape["nodes"]["n2"]["digest"] == hashlib.sha256(b"new").hexdigest()
    assert shape["nodes"]["n2"]["size"] == 3
