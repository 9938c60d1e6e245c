"""One made-up node of a simulated fleet: real judgement and real messages over simulated readings."""

import random
import time
import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Callable

from rankdeck_agent import __version__
from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.collectors.simulated import SimulatedGpus, SimulatedHost, SimulatedRdma
from rankdeck_agent.config import Config
from rankdeck_agent.node_judge import HASTE, NodeJudge, Reporter
from rankdeck_agent.wire import Hello, Message, Sample

SILENT = "silent"
FAULTS = (
    ("host", "full"), ("gpu", "hot"), ("gpu", "ecc"), ("gpu", "lost"), ("gpu", "pcie"), ("gpu", "nvlink"),
    ("gpu", "hang"), ("rdma", "down"), ("rdma", "retx"), ("rdma", "errors"), ("", SILENT),
)  # fmt: skip
"""What may befall a node: which part of it, and the fault as `simulate:` names it."""
WATCHED = 90.0
"""Seconds after a fault in which the node is read every second: what it left behind has to end."""
FIRST = 4.0
"""The same at the start: rates need two readings."""
ODD, KERNEL = 500, "6.5.0-made-up"
"""One of so many nodes has another kernel than its peers."""
UP = 40 * 86400.0
"""Seconds since the boot that never was."""
Publish = Callable[[str, Message], None]
"""Told the kind of a message and the message."""


class SimulatedNode:
    """What the agent of one node does, without its clock: `beat` is called when `due` has come."""

    def __init__(self, config: Config, publish: Publish, now: float, *, installed: bool) -> None:
        self.name, self.cluster = config.node, config.cluster
        self.level = 0
        """The level that was said last."""
        self.wanted = config.samples
        """Whether full samples are sent, once a second."""
        self.due = now
        self._config, self._publish = config, publish
        self._host = SimulatedHost(self.name)
        self._parts = (self._host, SimulatedGpus(self.name), SimulatedRdma(self.name))
        self._judge = NodeJudge(
            config.expect, self._boot, config.heartbeat, brief=config.brief, clock=time.monotonic
        )
        self._reporter = Reporter(config.heartbeat)
        self._seq = 0
        self._fault = ""
        self._until = self._said = float("-inf")
        self._watched = now + FIRST
        self._hello = self._first_word(installed=installed)
        self._read(now)

    @property
    def _boot(self) -> str:
        return f"{zlib.crc32(self.name.encode()):08x}"

    @property
    def silent(self) -> bool:
        """Whether a fault keeps it from saying anything."""
        return self._fault == SILENT

    @property
    def sick(self) -> bool:
        return bool(self._fault)

    def goodbye(self) -> Hello:
        """The last will of its agent."""
        return replace(self._hello, up=False, inventory={})

    def announce(self) -> None:
        """Say who it is, and its health at the next beat: a connection was made."""
        self._publish("hello", replace(self._hello, at=time.time()))
        self._reporter.forget()
        self._said = float("-inf")

    def work_on(self, seconds: float) -> None:
        """The load is another one, as if so much time had passed."""
        for part in self._parts:
            part.skip(seconds)

    def fall_ill(self, fault: str, now: float, seconds: float) -> None:
        """Have this fault for so long."""
        self._fault, self._until = fault, now + seconds
        self._watched = self._until + WATCHED
        self._tell_parts()

    def recover(self, now: float) -> None:
        """Have no fault any more."""
        self._fault, self._watched = "", now + WATCHED
        self._tell_parts()

    def _tell_parts(self) -> None:
        for part in self._parts:
            part.faults = tuple(
                fault for name, fault in FAULTS if name == part.name and fault == self._fault
            )

    def beat(self, now: float) -> None:
        """Read, judge and say what is due; then `due` is when to come again."""
        if self.sick and now >= self._until:
            self.recover(now)
        if not self.silent:
            self._speak(now)
        busy = self.wanted or now < self._watched
        self.due = (
            now + 1.0 if busy else max(self._said + self._config.heartbeat - HASTE, now + 1.0)
        )

    def _speak(self, now: float) -> None:
        sample, reading = self._read(now)
        for event in reading.events:
            self._publish("event", event)
        report = self._judge.judge(sample, tuple(reading.events), self._hello.inventory)
        told = self._reporter.due(report, now)
        if told is not None:
            self._publish("health", told)
            self._reporter.said(told, now)
            self.level, self._said = told.level, now
        if self.wanted:
            self._publish("sample", replace(sample, report=report))

    def _read(self, now: float) -> tuple[Sample, Reading]:
        """All parts in one reading. The load of a node that nobody looks at stands still."""
        joined, absent = Reading(), set[str]()
        joined.put("agent.lag", 0.0)
        for part in self._parts:
            part.pace = 1.0 if self.wanted else 0.0
            reading = part.collect(now)
            joined.values.update(reading.values)
            joined.failed.update(reading.failed)
            joined.events += reading.events
            absent |= reading.absent(part.metrics)
        self._seq += 1
        made = Sample(self._seq, time.time(), joined.values, tuple(sorted(absent)), joined.failed)
        return made, joined

    def _first_word(self, *, installed: bool) -> Hello:
        booted = time.time() - UP
        inventory = {"boot.at": f"{booted:.0f}", "agent.python": "made up"}
        for part in self._parts:
            inventory.update(part.inventory)
        if zlib.crc32(self.name.encode()) % ODD == 0:
            inventory["kernel"] = KERNEL
        return Hello(
            node=self.name,
            up=True,
            boot=self._boot,
            agent=__version__,
            period=self._config.period,
            inventory=inventory,
            simulated=(*self._host.prefixes, "gpu", "rdma"),
            installed=installed,
            heartbeat=self._config.heartbeat,
        )


def any_fault(chance: random.Random, among: Iterable[tuple[str, str]] = FAULTS) -> str:
    """One of the faults."""
    return chance.choice([fault for _, fault in among])
