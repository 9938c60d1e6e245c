"""Made-up GPUs and RDMA ports, for the demo and the tests; always announced as simulated."""

import math
import random
import zlib
from collections.abc import Mapping
from typing import Callable

from rankdeck_agent.collectors.base import Collector, Reading

_GPUS = 4
_PORTS: tuple[str, ...] = ("mlx5_0/1", "mlx5_1/1")
_GIB = 1 << 30
_MODEL = "Simulated GPU 80GB"


class SimulatedGpus:
    """Four GPUs that work in waves: load, memory, heat and power that belong together."""

    name = "gpu"
    lane = "simulated"
    period = 0.0
    metrics: tuple[str, ...] = (
        "gpu.used",
        "gpu.mem_used",
        "gpu.mem_total",
        "gpu.temp",
        "gpu.power",
        "gpu.power_limit",
        "gpu.clock",
        "gpu.ecc_uncorrected",
    )

    def __init__(self, seed: str = "") -> None:
        self.doing = ""
        self._random = random.Random(zlib.crc32(seed.encode("utf-8", "replace")))
        self._phase = self._random.uniform(0, 600)
        self._heat = [45.0] * _GPUS
        self._before = 0.0
        rows = ((f"gpu.{n}.model", _MODEL) for n in range(_GPUS))
        self._inventory: Mapping[str, str] = dict(rows)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.inventory = self._inventory
        step = min(5.0, max(0.0, now - self._before))
        self._before = now
        for number in range(_GPUS):
            self._one(reading, number, now + self._phase, step)
        return reading

    def _one(self, reading: Reading, number: int, at: float, step: float) -> None:
        wave = 0.5 + 0.5 * math.sin(at / 40 + number * 0.3)
        used = min(100.0, max(0.0, 100 * wave + self._random.gauss(0, 3)))
        # Heat follows work slowly, as metal does.
        self._heat[number] += (38 + 0.38 * used - self._heat[number]) * (
            1 - math.exp(-step / 20)
        )
        numbers: dict[str, float] = {
            "gpu.used": round(used),
            "gpu.mem_used": int(_GIB * (2 + 60 * wave)),
            "gpu.mem_total": 80 * _GIB,
            "gpu.temp": round(self._heat[number]),
            "gpu.power": round(70 + 5.6 * used, 1),
            "gpu.power_limit": 700,
            "gpu.clock": (345 if used < 3 else 1980) * 1e6,
            "gpu.ecc_uncorrected": 0,
        }
        for metric, value in numbers.items():
            reading.put(metric, value, str(number))


class SimulatedRdma:
    """Two ports of 400 Gbit/s whose counters grow in bursts."""

    name = "rdma"
    lane = "simulated"
    period = 0.0
    metrics: tuple[str, ...] = tuple(
        f"rdma.{n}" for n in ("up", "rate", "rx", "tx", "errors", "retx")
    )

    def __init__(self, seed: str = "") -> None:
        self.doing = ""
        self._random = random.Random(zlib.crc32(seed.encode("utf-8", "replace")) + 1)
        self._phase = self._random.uniform(0, 600)
        self._bytes: dict[tuple[str, str], int] = {}
        self._retransmitted = dict.fromkeys(_PORTS, 0)
        self._before = 0.0
        self._inventory = {f"rdma.{p}.type": "simulated" for p in _PORTS}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.inventory = self._inventory
        step = min(5.0, max(0.0, now - self._before))
        self._before = now
        for port in _PORTS:
            self._one(reading, port, now + self._phase, step)
        return reading

    def _one(self, reading: Reading, port: str, at: float, step: float) -> None:
        rate = 30e9 * max(0.0, math.sin(at / 40)) * self._random.uniform(0.9, 1.0)
        for metric, name in (
            ("rdma.rx", "port_rcv_data"),
            ("rdma.tx", "port_xmit_data"),
        ):
            total = self._bytes.get((port, metric), 0) + int(rate * step) // 4 * 4
            self._bytes[port, metric] = total
            reading.put(metric, total, port)
            reading.put(f"rdma.counters.{name}", total // 4, port)
        self._retransmitted[port] += int(self._random.random() < 0.05 and rate > 0)
        reading.put("rdma.retx", self._retransmitted[port], port)
        reading.put("rdma.hw_counters.out_of_sequence", self._retransmitted[port], port)
        reading.put("rdma.errors", 0, port)
        reading.put("rdma.up", 1, port)
        reading.put("rdma.rate", 400e9, port)


SIMULATED: Mapping[str, Callable[[str], Collector]] = {
    "gpu": SimulatedGpus,
    "rdma": SimulatedRdma,
}
