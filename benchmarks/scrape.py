"""One scrape of `rankdeck export` for 1,000 nodes with 8 GPUs and 8 RDMA
ports each: ours against prometheus_client.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from benchmarks import machine
from benchmarks.measure import environment, slower
from benchmarks.result import Result
from rankdeck.model.cluster import Cluster, Node
from rankdeck.prometheus.exporter import Exporter
from rankdeck.prometheus.server import serve_metrics
from rankdeck.state.fleet import Fleet
from rankdeck_agent.wire import METRICS, Hello, Sample

NODES, DEVICES, CORES = 1000, 8, 16
PEER_SHARE = 10
"""The peer keeps each series as an object: it gets every tenth
node's, and its figure is multiplied.
"""
CPU_BUDGET, STALL_BUDGET, MEMORY_BUDGET = 2.0, 0.020, 64.0
_CLIENT = """
import sys, time, urllib.request, zlib
ask = urllib.request.Request(sys.argv[1], headers={"Accept-Encoding": "gzip"} if sys.argv[2] else {})
unpack, size, lines = zlib.decompressobj(31) if sys.argv[2] else None, 0, 0
with urllib.request.urlopen(ask, timeout=300) as answer:
    while piece := answer.read(1 << 18):
        text = unpack.decompress(piece) if unpack else piece
        size, lines = size + len(text), lines + text.count(b"\\n")
print(size, lines)
"""
"""Reads an answer to its end, as Prometheus would, and prints its bytes and lines."""


def run() -> list[Result]:
    """CPU seconds, longest pause and further memory of a scrape, packed and not."""
    exporter = Exporter(_cluster(), _fleet())
    plain, packed = asyncio.run(_scrapes(exporter))
    peer = _peer(plain.lines)
    factor = slower()
    note = f"{plain.lines:,} lines, {plain.size / 1e6:.0f} MB, machine factor {factor:.2f}"
    return [
        Result(name="scrape_cpu", value=plain.cpu, unit="CPU s", peer="prometheus_client",
               peer_value=peer, budget=CPU_BUDGET * factor, on_ratio=False, note=note),
        Result(name="scrape_cpu_gzip", value=packed.cpu, unit="CPU s",
               budget=CPU_BUDGET * factor, on_ratio=False, note="packed in a thread"),
        *(
            Result(name=f"scrape_stall{name}", value=1000 * one.stall, unit="ms CPU",
                   budget=1000 * STALL_BUDGET * factor, on_ratio=False)
            for name, one in (("", plain), ("_gzip", packed))
        ),
        Result(name="scrape_memory", value=max(plain.memory, packed.memory), unit="MiB more",
               budget=MEMORY_BUDGET, on_ratio=False),
    ]  # fmt: skip


class Scrape:
    """What one scrape took."""

    def __init__(self, answer: str, cpu: float, stall: float, memory: float) -> None:
        self.size, self.lines = map(int, answer.split())
        self.cpu, self.stall, self.memory = cpu, stall, memory


async def _scrapes(exporter: Exporter) -> tuple[Scrape, Scrape]:
    async with serve_metrics("127.0.0.1", 0, exporter.text) as port:
        await _scrape(port, packed=False)
        return await _scrape(port, packed=False), await _scrape(port, packed=True)


async def _scrape(port: int, *, packed: bool) -> Scrape:
    _forget_peak()
    before, begin = _peak(), time.process_time()
    watch = _Watch()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, f"http://127.0.0.1:{port}/metrics", "gzip" if packed else "",
        stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch.run())
        answer, _ = await process.communicate()
        watching.cancel()
    cpu = time.process_time() - begin
    return Scrape(answer.decode(), cpu, watch.longest, _peak() - before)


class _Watch:
    """A task that wants to run every millisecond: how much CPU time others use before it may."""

    longest = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            at = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - at)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """MiB of memory that this process held at most since the mark was taken back."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def _cluster() -> Cluster:
    return Cluster(name="bench", nodes=tuple(Node(name=f"gpu-{n:04}") for n in range(NODES)))


def _fleet() -> Fleet:
    # The clock stands still: no node falls silent while the fleet is made.
    at = time.time()
    fleet = Fleet(_cluster(), clock=lambda: 0.0, wall=lambda: at)
    for number in range(NODES):
        name = f"gpu-{number:04}"
        fleet.apply(name, Hello(name, True, at, "boot", "1", 1.0, _inventory(number)))
        fleet.apply(name, Sample(1, at, _values(number)))
    return fleet


def _inventory(number: int) -> dict[str, str]:
    found = {
        "arch": "x86_64",
        "kernel": "6.8.0-51-generic",
        "gpu.driver": "570.86.15",
        "mount./": "ext4 /dev/sda1",
    }
    for gpu in range(DEVICES):
        found[f"gpu.{gpu}.model"] = "NVIDIA H100 80GB HBM3"
        found[f"gpu.{gpu}.uuid"] = f"GPU-{number:08x}-{gpu:04x}-4b6a-9c1d-0123456789ab"
        found[f"gpu.{gpu}.pci"] = f"00000000:{16 * gpu + 11:02X}:00.0"
    return found


_ABSENT = frozenset(
    {
        "gpu.mig_mem_used",
        "gpu.mig_mem_total",
        "gpu.retired",
        "gpu.retired_pending",
        "gpu.jpeg",
        "gpu.optical_flow",
        "gpu.vgpu_licensed",
    }
)
_RANGE: Mapping[str, tuple[int, int]] = {
    "%": (100, 0),
    "C": (100, 0),
    "W": (700, 3),
    "s": (10**6, 2),
    "V": (12, 3),
}
"""Unit -> largest number, and its digits behind the point."""


def _values(number: int) -> dict[str, dict[str, int | float]]:
    """A number for each metric and device, as agents send them: most are whole."""

    def numbers(metric: str, devices: Sequence[str]) -> dict[str, int | float]:
        base = number * 7919 + len(metric)
        told = METRICS[metric].unit if metric in METRICS else ""
        most, digits = _RANGE.get(told, (1 << 40, 0))
        found = ((base + place) * 104_729 % (most * 1000) / 1000 for place in range(len(devices)))
        return dict(
            zip(devices, (round(n, digits) if digits else int(n) for n in found), strict=True)
        )

    eight = [str(device) for device in range(DEVICES)]
    ports = [f"mlx5_{device}/1" for device in range(DEVICES)]
    cores = [str(core) for core in range(CORES)]
    links = ["eth0", "ib0"]
    by_kind = {"gpu": eight, "rdma": ports, "net": links}
    found = {
        m: numbers(m, by_kind.get(m.partition(".")[0], [""])) for m in METRICS if m not in _ABSENT
    }
    found |= {m: numbers(m, cores) for m in METRICS if m.startswith(("cpu.core", "cpu.time"))}
    for folder, names in machine.COUNTERS.items():
        found |= {f"rdma.{folder}.{n}": numbers(f"rdma.{folder}.{n}", ports) for n in names}
    return found


def _peer(lines: int) -> float:
    """CPU seconds of prometheus_client to write as many lines with as many labels."""
    registry = CollectorRegistry()
    labels = ("instance", "cluster", "gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname")
    series = lines // PEER_SHARE
    gauges = [Gauge(f"bench_{n}", "a gauge", labels, registry=registry) for n in range(100)]
    for number in range(series // len(gauges)):
        node, gpu = divmod(number, DEVICES)
        words = (f"gpu-{node:04}", "bench", str(gpu), f"GPU-{node:08x}-{gpu:04x}-4b6a-9c1d-0123456789ab",
                 f"00000000:{16 * gpu + 11:02X}:00.0", f"nvidia{gpu}", "NVIDIA H100 80GB HBM3", f"gpu-{node:04}")  # fmt: skip
        for gauge in gauges:
            gauge.labels(*words).set(number / 7)
    begin = time.process_time()
    text = generate_latest(registry)
    return (time.process_time() - begin) * lines / text.count(b"\n")
