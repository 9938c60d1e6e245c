"""Made-up nodes that look like real ones, the same on every run."""

import math
import random

from rankdeck.model.cluster import Cluster
from rankdeck_agent.wire import Event, Hello, Sample, Values
from tests.ui.support.stage import Stage, cluster_of

GIB = 1 << 30
INVENTORY = {
    "kernel": "6.8.0-51-generic",
    "os": "Debian GNU/Linux 12",
    "cpu.model": "AMD EPYC 7763",
    "gpu.0.model": "NVIDIA A100-SXM4-80GB",
}


class Simulation:
    """Numbers of many nodes, one step at a time."""

    def __init__(self, stage: Stage, *, simulated: tuple[str, ...] = ("gpu", "rdma")) -> None:
        self.stage = stage
        self._random = random.Random(7)
        self._seq = 0
        self._at = 1_000.0
        self._counters: dict[str, float] = {}
        self._hot = {node.name for node in stage.cluster.nodes[2::97]}
        self._silent = {node.name for node in stage.cluster.nodes[5::211]}
        for node in stage.cluster.nodes:
            if node.name not in self._silent:
                stage.fleet.apply(
                    node.name,
                    Hello(
                        node.name,
                        True,
                        self._at,
                        "boot",
                        "0.1.0",
                        1.0,
                        INVENTORY,
                        simulated,
                    ),
                )
        if stage.cluster.nodes:
            first = stage.cluster.nodes[0].name
            stage.fleet.apply(
                first,
                Event(self._at, "info", "kernel.xid", "Xid 63, memory row remapped", "0"),
            )

    def step(self, part: int = 0, parts: int = 1) -> None:
        """One second, or a part of it: every node sends a sample, each in its part."""
        if part == 0:
            self._seq += 1
            self._at += 1.0
        nodes = self.stage.cluster.nodes
        for place in range(part, len(nodes), parts):
            name = nodes[place].name
            if name not in self._silent:
                numbers = self.values(place, name)
                self.stage.fleet.apply(name, Sample(self._seq, self._at, numbers))

    def values(self, place: int, name: str) -> Values:
        """What a node reads now."""
        wave = 50 + 45 * math.sin(self._seq / 9 + place)
        busy = max(0.0, min(100.0, wave + self._random.uniform(-4, 4)))
        hot = name in self._hot
        sent = self._counters[name] = self._counters.get(name, 0.0) + busy * 2.1e8
        gpus = {str(i): max(0.0, min(100.0, busy + self._random.uniform(-9, 9))) for i in range(4)}
        return {
            "cpu.used": {"": busy}, "cpu.load1": {"": busy / 6}, "cpu.cores": {"": 16}, "cpu.temp": {"": 40 + busy / 4},
            "cpu.core_used": {str(i): max(0.0, min(100.0, busy + self._random.uniform(-30, 30))) for i in range(16)},
            "mem.total": {"": 512 * GIB}, "mem.available": {"": (512 - 3 * busy) * GIB},
            "mem.used": {"": 97.3 if hot else 3 * busy / 5.12},
            "gpu.used": gpus, "gpu.temp": {g: (93.0 if hot and g == "1" else 35 + v / 3) for g, v in gpus.items()},
            "gpu.mem_used": {g: v * 0.7 * GIB for g, v in gpus.items()}, "gpu.mem_total": dict.fromkeys(gpus, 80 * GIB),
            "gpu.power": {g: 60 + v * 3 for g, v in gpus.items()}, "gpu.ecc_uncorrected": dict.fromkeys(gpus, 0),
            "rdma.up": {"mlx5_0/1": 1, "mlx5_1/1": 1}, "rdma.rate": {"mlx5_0/1": 200e9, "mlx5_1/1": 200e9},
            "rdma.rx": {"mlx5_0/1": sent, "mlx5_1/1": sent * 0.9}, "rdma.tx": {"mlx5_0/1": sent * 0.8, "mlx5_1/1": sent},
            "net.rx": {"eth0": sent / 900}, "net.tx": {"eth0": sent / 1300}, "net.up": {"eth0": 1}, "net.speed": {"eth0": 10e9},
            "disk.used": {"/": 41.0, "/scratch": 78.5}, "disk.free": {"/": 210 * GIB, "/scratch": 3100 * GIB},
        }  # fmt: skip


def fleet(count: int, steps: int = 4, cluster: Cluster | None = None) -> tuple[Stage, Simulation]:
    """A stage with that many nodes, after some seconds."""
    stage = Stage(cluster or cluster_of(count))
    simulation = Simulation(stage)
    for _ in range(steps):
        simulation.step()
    return stage, simulation


def training_job(
    stage: Stage,
    job_id: str = "train-1121-143005-3f2a",
    nodes: int = 4,
    per_node: int = 4,
    lines: int = 40,
) -> str:
    """A job that has written for a while."""
    stage.start(job_id, nodes, per_node)
    for rank in range(nodes * per_node):
        chat(stage, job_id, rank, 0, lines)
    return job_id


def chat(stage: Stage, job_id: str, rank: int, start: int, lines: int) -> None:
    """Further numbered lines of one rank."""
    text = "".join(
        f"step {n:5}  loss {2.3 / (1 + n / 40) + rank / 1000:.4f}  {11_800 + (n * 37 + rank * 11) % 400} tok/s  rank {rank}\n"
        for n in range(start, start + lines)
    )
    stage.write(job_id, rank, text)
