"""Simulated GPUs, RDMA ports and hosts, healthy or faulty, for demo
and tests; always marked as simulated.
"""

import math
import random
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable, Optional

from rankdeck_agent.collectors.base import Collector, Reading
from rankdeck_agent.kernel_lines import find_kernel_event
from rankdeck_agent.wire import Event

_GPUS = 4
_SICK_GPU = "1"
_PORTS: tuple[str, ...] = ("mlx5_0/1", "mlx5_1/1")
_SICK_PORT = "mlx5_1/1"
_GIB = 1 << 30
_MODEL = "Simulated GPU 80GB"
_HEALTHY: Mapping[str, float] = {
    "gpu.mem_total": 80 * _GIB, "gpu.power_limit": 700, "gpu.clock_mem": 2.6e9,
    "gpu.throttle_reasons": 0, "gpu.throttle_thermal": 0, "gpu.throttle_brake": 0,
    "gpu.ecc_corrected": 0, "gpu.ecc_uncorrected": 0, "gpu.ecc_threshold": 0,
    "gpu.remap_uncorrected": 0, "gpu.remap_pending": 0, "gpu.remap_failed": 0,
    "gpu.recovery": 0, "gpu.lost": 0, "gpu.nvlinks": 18, "gpu.nvlinks_active": 18,
    "gpu.nvlink_errors": 0, "gpu.pcie_gen": 5, "gpu.pcie_gen_max": 5, "gpu.pcie_width": 16,
    "gpu.pcie_width_max": 16, "gpu.pcie_replays": 0,
}  # fmt: skip
_MOVING = ("gpu.used", "gpu.mem_used", "gpu.temp", "gpu.margin", "gpu.mem_temp",
           "gpu.power", "gpu.energy", "gpu.clock", "gpu.processes")  # fmt: skip
_HOTTEST = 90.0
_LEAST_USED = 30.0

GPU_FAULTS: Mapping[str, Mapping[str, float]] = {
    "hot": {"gpu.throttle_reasons": 0x40},
    "ecc": {"gpu.ecc_uncorrected": 2, "gpu.remap_pending": 1, "gpu.remap_uncorrected": 1, "gpu.recovery": 1},
    "lost": {},
    "xid79": {"gpu.recovery": 2},
    "nvlink": {"gpu.nvlinks_active": 17},
    "pcie": {"gpu.pcie_width": 8},
    "hang": {},
}  # fmt: skip
"""Fault -> metrics in which the faulty GPU differs from a healthy one;
code below adds more for some faults.
"""
RDMA_FAULTS = ("down", "flap", "retx", "errors")
_XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus."
_FLAP_EVERY, _FLAP_DOWN = 60.0, 5.0


class _Simulation:
    """Base of the simulated collectors: load that rises and falls in waves, and
    faults that may be changed at any time.
    """

    lane = "simulated"
    period = 0.0
    pace = 1.0
    """Seconds of simulated work per real second; 0: the load is constant and
    without noise, and heat has settled.
    """

    def __init__(self, seed: str, faults: Sequence[str], salt: int) -> None:
        self.doing = ""
        self.faults = faults
        self.inventory: Mapping[str, str] = {}
        self._random = random.Random(zlib.crc32(seed.encode("utf-8", "replace")) + salt)
        self._at = self._random.uniform(0, 600)
        """The position in the simulated work, in seconds."""
        self._before: Optional[float] = None

    def skip(self, seconds: float) -> None:
        """Move the position in the work forward."""
        self._at += seconds

    def _step(self, now: float) -> float:
        """Seconds since the last reading, at most 60; moves the position in the work."""
        step = 1.0 if self._before is None else min(60.0, max(0.0, now - self._before))
        self._before = now
        self._at += step * self.pace
        return step


class SimulatedGpus(_Simulation):
    """Four GPUs whose load, memory, heat and power rise and fall together."""

    name = "gpu"
    metrics: tuple[str, ...] = (*_MOVING, *_HEALTHY, "gpu.answer")

    def __init__(self, seed: str = "", faults: Sequence[str] = ()) -> None:
        super().__init__(seed, faults, 0)
        self._heat = [45.0] * _GPUS
        self._joules = [0.0] * _GPUS
        self._throttled = 0.0
        self._since: Optional[float] = None
        rows = ((f"gpu.{n}.model", _MODEL) for n in range(_GPUS))
        self.inventory = dict(rows)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.inventory = self.inventory
        step = self._step(now)
        if self._since is None:
            self._since = now
            reading.events = self._events()
        if "hang" in self.faults:
            self._hang(reading, now - self._since)
            return reading
        reading.put("gpu.answer", 0.001)
        for number in range(_GPUS):
            self._one(reading, number, step)
        return reading

    def _events(self) -> list[Event]:
        found = find_kernel_event(_XID_79) if "xid79" in self.faults else None
        if found is None:
            return []
        check = f"kernel.{found.kind}"
        return [
            Event(time.time(), found.level, check, found.text, found.device, found.xid, found.link)
        ]

    def _hang(self, reading: Reading, waited: float) -> None:
        why = f"the driver did not answer in {waited:.0f} s (GPU {_SICK_GPU}, gpu.used)"
        reading.failed = dict.fromkeys(self.metrics[:-1], why)
        reading.put("gpu.answer", round(waited, 1))
        reading.trouble = why

    def _one(self, reading: Reading, number: int, step: float) -> None:
        device = str(number)
        faults = self.faults if device == _SICK_GPU else ()
        if "lost" in faults or "xid79" in faults:
            reading.put("gpu.lost", 1, device)
            reading.failed.update({f"{metric}/{device}": "NVML: GPU is lost" for metric in _MOVING})
            return
        numbers = {**_HEALTHY, **self._work(number, step)}
        if "hot" in faults:
            self._throttled += step
            numbers.update(self._hot(numbers))
        if "pcie" in faults:
            # Lanes are judged only under load.
            numbers["gpu.used"] = max(_LEAST_USED, numbers["gpu.used"])
        for fault in faults:
            numbers.update(GPU_FAULTS[fault])
        reading.put_all(numbers, device)

    def _work(self, number: int, step: float) -> dict[str, float]:
        wave = 0.5 + 0.5 * math.sin(self._at / 40 + number * 0.3)
        used = min(100.0, max(0.0, 100 * wave + self._random.gauss(0, 3) * self.pace))
        power = round(70 + 5.6 * used, 1)
        # Heat follows the load slowly.
        follows = 1 - math.exp(-step / 20) if self.pace else 1.0
        self._heat[number] += (38 + 0.38 * used - self._heat[number]) * follows
        self._joules[number] += power * step
        heat = round(self._heat[number])
        return {
            "gpu.used": round(used),
            "gpu.mem_used": int(_GIB * (2 + 60 * wave)),
            "gpu.temp": heat,
            "gpu.margin": _HOTTEST - heat,
            "gpu.mem_temp": heat + 8,
            "gpu.power": power,
            "gpu.energy": round(self._joules[number], 1),
            "gpu.clock": (345 if used < 3 else 1980) * 1e6,
            "gpu.processes": int(used >= 3),
        }

    def _hot(self, numbers: Mapping[str, float]) -> dict[str, float]:
        heat = round(93 + numbers["gpu.used"] / 50)
        return {
            "gpu.temp": heat,
            "gpu.margin": _HOTTEST - heat,
            "gpu.mem_temp": heat + 8,
            "gpu.clock": 990e6,
            "gpu.throttle_thermal": round(self._throttled, 3),
        }


class SimulatedRdma(_Simulation):
    """Two ports of 400 Gbit/s whose counters grow in bursts."""

    name = "rdma"
    metrics: tuple[str, ...] = tuple(
        f"rdma.{n}"
        for n in (
            "up", "phys_state", "rate", "lanes", "rx", "tx", "errors", "phys_errors", "link_downs",
            "retries_exhausted", "retx", "timeouts", "congestion",
        )
    )  # fmt: skip

    def __init__(self, seed: str = "", faults: Sequence[str] = ()) -> None:
        super().__init__(seed, faults, 1)
        self._counted: dict[tuple[str, str], int] = {}
        self._was_up = dict.fromkeys(_PORTS, True)
        self._began: Optional[float] = None
        self.inventory = {f"rdma.{p}.type": "simulated" for p in _PORTS}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.inventory = self.inventory
        step = self._step(now)
        self._began = now if self._began is None else self._began
        for port in _PORTS:
            faults = self.faults if port == _SICK_PORT else ()
            up = self._is_up(faults, now - self._began)
            self._one(reading, port, faults, step if up else 0.0)
            self._link(reading, port, up)
        return reading

    def _is_up(self, faults: Sequence[str], passed: float) -> bool:
        if "down" in faults:
            return False
        return "flap" not in faults or passed % _FLAP_EVERY < _FLAP_EVERY - _FLAP_DOWN

    def _link(self, reading: Reading, port: str, up: bool) -> None:
        fell = self._was_up[port] and not up
        self._was_up[port] = up
        reading.put("rdma.up", int(up), port)
        reading.put("rdma.phys_state", 5 if up else 2, port)
        reading.put("rdma.rate", 400e9, port)
        reading.put("rdma.lanes", 4, port)
        names = ("link_downs", "counters.link_downed")
        self._count(reading, port, names, int(fell))

    def _one(self, reading: Reading, port: str, faults: Sequence[str], step: float) -> None:
        rate = (
            30e9 * max(0.0, math.sin(self._at / 40)) * self._random.uniform(1 - 0.1 * self.pace, 1)
        )
        lost = int(self._random.random() < 0.05 and rate > 0)
        lost += int(40 * step) if "retx" in faults else 0
        late = int(3 * step) if "retx" in faults else 0
        broken = int(20 * step) if "errors" in faults else 0
        for metric, name, more in (
            ("rx", "counters.port_rcv_data", int(rate * step) // 4),
            ("tx", "counters.port_xmit_data", int(rate * step) // 4),
            ("errors", "counters.symbol_error", broken),
            ("phys_errors", "counters.symbol_error", broken),
            ("retx", "hw_counters.out_of_sequence", lost),
            ("timeouts", "hw_counters.local_ack_timeout_err", late),
            ("retries_exhausted", "hw_counters.req_transport_retries_exceeded", 0),
            ("congestion", "hw_counters.np_ecn_marked_roce_packets", 0),
        ):
            self._count(reading, port, (metric, name), more)

    def _count(self, reading: Reading, port: str, names: tuple[str, str], more: int) -> None:
        metric, kernel_name = names
        total = self._counted.get((port, metric), 0) + more
        self._counted[port, metric] = total
        words = 4 if kernel_name.endswith("_data") else 1
        reading.put(f"rdma.{metric}", total * words, port)
        reading.put(f"rdma.{kernel_name}", total, port)


class SimulatedHost(_Simulation):
    """CPU, memory, disk and network, for nodes that are simulated as a whole."""

    name = "host"
    metrics: tuple[str, ...] = (
        "cpu.used", "cpu.load1", "cpu.cores", "cpu.temp", "mem.total", "mem.available", "mem.used",
        "disk.used", "disk.size", "disk.free", "net.rx", "net.tx", "net.errors", "net.up", "net.speed",
    )  # fmt: skip
    prefixes: tuple[str, ...] = ("cpu", "disk", "mem", "net")

    def __init__(self, seed: str = "") -> None:
        super().__init__(seed, (), 2)
        self._received = 0
        self.inventory = {"os": "made up", "kernel": "6.8.0-made-up", "cpu.model": "Simulated CPU"}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.inventory = self.inventory
        step = self._step(now)
        wave = 0.5 + 0.5 * math.sin(self._at / 40)
        self._received += int(2e8 * wave * step)
        used, total = 20 + 40 * wave, 1024 * _GIB
        reading.put_all({
            "cpu.used": round(5 + 70 * wave, 1), "cpu.load1": round(64 * wave, 2), "cpu.cores": 64,
            "cpu.temp": round(45 + 20 * wave), "mem.total": total, "mem.used": round(used, 1),
            "mem.available": int(total * (1 - used / 100)),
        })  # fmt: skip
        size = 3 << 40
        full = 97.0 if "full" in self.faults else 41.0
        free = int(size * (1 - full / 100))
        reading.put_all({"disk.used": full, "disk.size": size, "disk.free": free}, "/")
        reading.put_all(
            {
                "net.rx": self._received,
                "net.tx": self._received // 2,
                "net.errors": 0,
                "net.up": 1,
                "net.speed": 25e9,
            },
            "eth0",
        )
        return reading


SIMULATED: Mapping[str, Callable[..., Collector]] = {"gpu": SimulatedGpus, "rdma": SimulatedRdma}
FAULTS: Mapping[str, tuple[str, ...]] = {"gpu": (*GPU_FAULTS,), "rdma": RDMA_FAULTS}


def parse_simulation(entry: str) -> tuple[str, str, str]:
    """`(what, fault, node)` of `gpu`, `gpu:hot` or `gpu:hot@node7`; raises ValueError."""
    what, colon, rest = entry.partition(":")
    fault, _, node = rest.partition("@")
    if what not in SIMULATED:
        raise ValueError(f"cannot make up {entry[:40]!r}, only {', '.join(SIMULATED)}")
    if colon and fault not in FAULTS[what]:
        raise ValueError(f"{what} has no fault {fault[:40]!r}, only {', '.join(FAULTS[what])}")
    return what, fault, node


def choose_simulations(entries: Iterable[str], node: str) -> dict[str, tuple[str, ...]]:
    """What to simulate on this node -> its faults, from `entries` as for
    `parse_simulation`; raises ValueError.
    """
    found: dict[str, tuple[str, ...]] = {}
    for what, fault, place in map(parse_simulation, entries):
        if place in ("", node):
            found[what] = (*found.get(what, ()), fault) if fault else found.get(what, ())
    return found
