"""Jobs on nodes with real RDMA (Soft-RoCE): what preflight says of them, who holds queue pairs."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.polling import seen_until
from tests.support.rdma_lab import RdmaLab
from tests.support.rdma_lab.exporter import LIMIT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.left_out]
PLAIN = {"launch": "plain", "nodes": 2, "ranks_per_node": 1}
WRITES = "ib_write_bw -u 18 -F --run_infinitely"
"""Longer until a packet is sent again: an emulated node is slow."""
TALK = f"test $(hostname) = rxe1 && exec {WRITES}; until {WRITES} 10.9.0.1; do sleep 1; done"


def job_file(folder: Path, **more: Any) -> str:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump({"job": "talk", **PLAIN, **more}, sort_keys=False))
    return str(file)


@contextmanager
def fabric_of_rxe2(lab: RdmaLab, *commands: str) -> Iterator[None]:
    """The interface of the fabric on rxe2 as these commands set it, until the end of the block."""
    own = "ip -4 address flush dev eth1; ip address add 10.9.0.2/24 dev eth1"
    try:
        for command in commands:
            lab.run("rxe2", command)
        yield
    finally:
        lab.run("rxe2", f"{own}; ip link set dev eth1 mtu 1500")


def test_a_gid_of_another_network_and_an_mtu_of_its_own_are_named_before_a_launch(
    rdma_lab: RdmaLab, tmp_path: Path
) -> None:
    job = job_file(tmp_path, command=["true"], env={"NCCL_IB_GID_INDEX": "1"})
    first = "ip -4 address flush dev eth1; ip address add 10.8.0.2/24 dev eth1"
    more = "ip address add 10.9.0.2/24 dev eth1", "ip link set dev eth1 mtu 1400"
    with fabric_of_rxe2(rdma_lab, first, *more):
        found = findings(rdma_lab, job)

    assert (found["gid"]["level"], found["gid"]["node"]) == ("bad", "rxe2")
    assert "10.8.0.2, outside the job network 10.9.0.0/24; GID 2 is" in found["gid"]["text"]
    assert "NCCL_IB_GID_INDEX" in found["gid"]["fix"]
    assert "1400 on rxe2, 1500 on rxe1" in found["mtu"]["text"]
    assert "`ip link set dev eth1 mtu 1400` on rxe1" in found["mtu"]["fix"]


def findings(lab: RdmaLab, job: str) -> Mapping[str, Mapping[str, str]]:
    """What preflight has against a job, by check."""
    done = lab.rankdeck("-c", str(lab.cluster_file()), "preflight", "--json", job, limit=LIMIT)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [row for one in told for row in one.get("findings", [one])]
    return {row["check"]: row for row in rows if row["level"] in ("bad", "warn")}


def test_the_queue_pairs_of_a_running_job_are_told_by_rank(
    rdma_lab: RdmaLab, tmp_path: Path
) -> None:
    file, job = str(rdma_lab.cluster_file()), job_file(tmp_path, command=["sh", "-c", TALK])
    run = ("-c", file, "run", "--detach", "--no-preflight", "--json", job)
    began = rdma_lab.rankdeck(*run, limit=LIMIT)
    name = json.loads(began.stdout)["job"]
    try:
        pairs = seen_until(lambda: pairs_of(rdma_lab, file, name), is_connected, LIMIT)
    finally:
        rdma_lab.rankdeck("-c", file, "cancel", name, limit=LIMIT)

    (one,), (other,) = pairs[0], pairs[1]
    assert {one["device"], other["device"]} == {"rxe0"}
    # The first only receives: perftest leaves it ready to receive.
    assert [(end["kind"], end["state"]) for end in (one, other)] == [("RC", "RTR"), ("RC", "RTS")]
    assert (one["remote"], other["remote"]) == (other["number"], one["number"])


def pairs_of(lab: RdmaLab, file: str, job: str) -> dict[int, list[dict[str, Any]]]:
    """Rank -> its queue pairs, as `inspect` tells."""
    done = lab.rankdeck("-c", file, "inspect", "--json", job, limit=LIMIT)
    groups = json.loads(done.stdout)["groups"]
    return {look["rank"]: look["pairs"] for group in groups for look in group["looks"]}


def is_connected(pairs: Mapping[int, list[dict[str, Any]]]) -> bool:
    """Whether both ranks hold one that knows its other end."""
    return all(any(one["remote"] for one in pairs.get(rank, [])) for rank in (0, 1))


OVER_VERBS = {
    "job": "ring",
    "launch": "mpi",
    "nodes": 2,
    "ranks_per_node": 1,
    "command": ["python3", "-m", "mpi4py.bench", "ringtest", "-n", "65536", "-l", "20"],
    # Debian leaves UCX out of Open MPI; UCX looks for a GID where only NVIDIA's cards put it.
    "env": {"OMPI_MCA_pml": "ucx", "UCX_TLS": "rc,self", "UCX_UD_ETH_DGID_CHECK": "n"},
}


def test_ranks_of_mpi_talk_over_the_verbs_by_ucx(rdma_lab: RdmaLab, tmp_path: Path) -> None:
    job = tmp_path / "ring.yaml"
    job.write_text(yaml.safe_dump(OVER_VERBS))
    before = rdma_lab.sent_packets()
    file = str(rdma_lab.cluster_file())
    done = rdma_lab.rankdeck("-c", file, "run", "--no-preflight", str(job), limit=2 * LIMIT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "(2 processes, 65536 bytes)" in done.stdout
    # 20 times round, 64 KiB in packets of 1 KiB.
    assert rdma_lab.sent_packets() > before + 2000
