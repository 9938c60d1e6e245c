"""Nodes written after public reports, played through the real collectors and judge: what is told
of each, on which device, how bad, and what to do.
"""

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from rankdeck_agent import sampler, system_files
from rankdeck_agent.collectors import make_collectors
from rankdeck_agent.collectors.gpu import GpuCollector
from rankdeck_agent.machine import describe_machine
from rankdeck_agent.rules.coverage import check_number
from rankdeck_agent.rules.levels import Expected, Reason
from rankdeck_agent.rules.report import check_numbers_in, health_of, shorten_report
from rankdeck_agent.sampler import NodeJudge, Sampler, Worker
from rankdeck_agent.seen_devices import SeenDevices
from rankdeck_agent.system_files import Tree
from tests.support import nvml

_TICKS = (10.0, 61.0, 9.0)
_ANSWER = 20.0


@dataclass(frozen=True)
class Told:
    """One thing that has to be told: levels `bad|warn`, number of the check, patterns."""

    level: str
    part: int
    device: str = ".*"
    say: str = ""
    do: str = ""

    def fits(self, reason: Reason) -> bool:
        """Whether this reason is about that, whatever its level and advice."""
        same = check_number(reason.check) == self.part
        return same and re.fullmatch(self.device, reason.device) is not None

    def is_right(self, reason: Reason) -> bool:
        words = (self.say, reason.text), (self.do, reason.sentence.action)
        good = all(re.search(pattern, text, re.IGNORECASE) for pattern, text in words)
        return self.fits(reason) and reason.level.word in self.level.split("|") and good


@dataclass(frozen=True, kw_only=True)
class Later:
    """What happens so many seconds after what was before."""

    after: float
    files: Mapping[str, str | None] = field(default_factory=dict)
    """None: the file or folder goes."""
    kernel: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeCase:
    """A node, and the truth about it."""

    right: tuple[Told, ...] = ()
    """What has to be told; nothing: the node is well."""
    may: tuple[Told, ...] = ()
    """What may be told beside it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Beside those of a node that is well; a text that begins with `->` is a link, and one like
    `!EAGAIN` a file that cannot be read, with this error.
    """
    kernel: tuple[str, ...] = ()
    """Lines of its log, of level 4, or as `LEVEL,-;TEXT`."""
    later: tuple[Later, ...] = ()
    gpus: tuple[str, ...] | None = None
    """Answers of NVML; None: no NVIDIA driver."""
    expect: Expected = field(default_factory=Expected)
    unjudged: frozenset[int] = frozenset()
    """Checks that must not count as judged."""
    up_for: float = 7200.0
    log: bool = True
    """Whether there is a kernel log."""


@dataclass(frozen=True)
class Outcome:
    """What was told at the end, and at any time; the checks that counted as judged."""

    last: tuple[Reason, ...]
    ever: tuple[Reason, ...]
    judged: frozenset[int]


@dataclass(frozen=True)
class Verdict:
    """right, silent, wrong (device, level, words), accused (something else), or blind."""

    word: str
    why: tuple[str, ...] = ()


def judge_outcome(case: NodeCase, outcome: Outcome) -> Verdict:
    """Compare what was told with the truth."""
    faults: list[tuple[str, str]] = []
    for told in case.right:
        near = [r for r in outcome.last if told.fits(r)]
        if not any(told.is_right(r) for r in near):
            faults.append(("wrong" if near else "silent", f"{told}"))
    known = (*case.right, *case.may)
    # An allowed reason may be milder than what has to be told.
    faults += [
        ("accused", f"{r.level.word} {r.check} {r.device}: {r.text}")
        for r in dict.fromkeys(outcome.ever)
        if not any(t.fits(r) and (t in case.right or t.is_right(r)) for t in known)
    ]
    if case.unjudged & outcome.judged:
        faults.append(("blind", f"counted as judged: {case.unjudged & outcome.judged}"))
    order = ("silent", "wrong", "accused", "blind")
    worst = min((word for word, _ in faults), key=order.index, default="right")
    return Verdict(worst, tuple(f"{word}: {why}" for word, why in faults))


class _Clock:
    """The time of a played node: real at the beginning, then as the case wants it."""

    def __init__(self) -> None:
        self.passed = 0.0
        self._mono, self._wall = time.monotonic(), time.time()

    def monotonic(self) -> float:
        return self._mono + self.passed

    def time(self) -> float:
        return self._wall + self.passed


class _InlineWorker(Worker):
    """Reads at once, without a thread."""

    def kick(self, now: float, batch: sampler.Batch) -> None:
        results = dict(self.results)
        for one in self.members:
            if self._due(one, now):
                self._collected[one.name] = now
                try:
                    results[one.name] = one.collect(now)
                except sampler.FAILURES as error:
                    results[one.name] = sampler._silent(one, str(error))
        self.results = results


def play_node(case: NodeCase, root: Path, library: Path | None = None) -> Outcome:
    """Everything that is told of a node; `library`: folder of the stand-in for NVML."""
    clock = _Clock()
    with contextlib.ExitStack() as stack:
        shim = SimpleNamespace(monotonic=clock.monotonic, time=clock.time, sleep=time.sleep)
        stack.enter_context(mock.patch.object(sampler, "time", shim))
        stack.enter_context(mock.patch.object(sampler, "Worker", _InlineWorker))
        stack.enter_context(mock.patch.object(os, "statvfs", _space))
        stack.enter_context(mock.patch.object(system_files, "_take", _take))
        machine = _gpus_of(case, root, library, stack)
        return _Played(case, root / "root", clock, machine).run(stack)


_TAKE = system_files._take


def _take(handle: int, name: str) -> bytes:
    data = _TAKE(handle, name)
    if re.match(rb"!E[A-Z0-9]+$", data.rstrip()):
        number = getattr(errno, data.decode().strip("!\n"))
        raise OSError(number, os.strerror(number))
    return data


def _space(path: str) -> SimpleNamespace:
    return SimpleNamespace(
        f_blocks=1000, f_bfree=600, f_bavail=600, f_frsize=4096, f_files=1000, f_ffree=900
    )


def _gpus_of(
    case: NodeCase, root: Path, library: Path | None, stack: contextlib.ExitStack
) -> nvml.Machine | None:
    if case.gpus is None:
        return None
    assert library is not None
    root.mkdir(parents=True, exist_ok=True)
    machine = nvml.Machine(root / "gpus", 1, case.gpus)
    named = {"RANKDECK_NVML": str(library), "FAKE_NVML": str(machine.file)}
    stack.enter_context(mock.patch.dict(os.environ, named))
    return machine


class _Played:
    """One play: the files, the sampler and the judge."""

    def __init__(
        self, case: NodeCase, root: Path, clock: _Clock, machine: nvml.Machine | None
    ) -> None:
        self._case, self._root, self._clock, self._machine = case, root, clock, machine
        self._ever: list[Reason] = []
        self._last: tuple[Reason, ...] = ()
        self._judged: frozenset[int] = frozenset()
        self._sequence = 0
        stat = WELL["proc/stat"].replace("BTIME", str(int(clock.time() - case.up_for)))
        write_files(root, {**WELL, "proc/stat": stat, **case.files})
        self._log(case.kernel)

    def run(self, stack: contextlib.ExitStack) -> Outcome:
        collectors = make_collectors(str(self._root))
        for one in collectors:
            if isinstance(one, GpuCollector):
                stack.callback(one.close)
        self._sampler = Sampler(collectors, clock=self._clock.monotonic)
        seen = SeenDevices("boot")
        self._judge = NodeJudge(self._case.expect, seen, 10.0, clock=self._clock.monotonic)
        self._look(first=True)
        for step in self._case.later:
            self._clock.passed += step.after
            write_files(self._root, step.files)
            if self._machine and step.gpus:
                self._machine.say(*step.gpus)
            self._log(step.kernel)
            self._look()
        return Outcome(self._last, tuple(self._ever), self._judged)

    def _log(self, lines: Sequence[str]) -> None:
        ring = self._root / "dev/kmsg"
        if not self._case.log or (not lines and ring.exists()):
            return
        ring.parent.mkdir(parents=True, exist_ok=True)
        since = self._case.up_for + self._clock.passed - 9
        with ring.open("a") as log:
            for line in lines:
                self._sequence += 1
                spoken = re.match(r"(\d+),-;", line)
                head, text = (spoken[1], line[spoken.end() :]) if spoken else ("4", line)
                since += 0.01
                log.write(f"{head},{self._sequence},{int(since * 1e6)},-;{text}\n")

    def _look(self, *, first: bool = False) -> None:
        self._tick()
        if first and self._machine:
            self._wait()
        for passed in _TICKS:
            self._clock.passed += passed
            self._tick()

    def _wait(self) -> None:
        """Until NVML's process has answered or given up."""
        deadline = time.monotonic() + _ANSWER
        while time.monotonic() < deadline:
            collected = self._tick()
            sample = collected.sample
            if "gpu.lost" in sample.values or any(k.startswith("gpu.") for k in sample.failed):
                return
            if "gpu.answer" in sample.values:
                return
            time.sleep(0.05)

    def _tick(self) -> sampler.Collected:
        collected = self._sampler.take(limit=1.0)
        inventory = {**describe_machine(Tree(str(self._root))), **collected.inventory}
        report = self._judge.judge(collected.sample, tuple(collected.events), inventory)
        self._judged = check_numbers_in(report.judged)
        now = self._clock.monotonic()
        self._last = health_of(shorten_report(report), now).reasons
        self._ever += [_bare(reason) for reason in self._last]
        return collected


def _bare(reason: Reason) -> Reason:
    """Without its numbers, so that it counts once."""
    return Reason(reason.check, reason.level, reason.text, reason.device)


def write_files(root: Path, files: Mapping[str, str | None]) -> None:
    """Make, change or remove (None) files; `-> x` makes a link."""
    for name, text in files.items():
        path = root / name
        if text is None:
            _remove(path)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.unlink(missing_ok=True)
            path.symlink_to(text[3:])
        else:
            path.write_text(text)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for one in path.iterdir():
            _remove(one)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


# ---- parts of nodes

WELL: Mapping[str, str] = {
    "proc/stat": "cpu  100 0 100 80000 0 0 0 0 0 0\ncpu0 50 0 50 40000 0 0 0 0 0 0\ncpu1 50 0 50 40000 0 0 0 0 0 0\nbtime BTIME\n",
    "proc/meminfo": "MemTotal: 64000000 kB\nMemFree: 40000000 kB\nMemAvailable: 50000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
    "proc/vmstat": "nr_free_pages 1\noom_kill 0\n",
    "proc/loadavg": "0.50 0.5 0.5 1/100 42\n",
    "proc/uptime": "7200.00 10000.00\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Test CPU\nprocessor\t: 1\n",
    "proc/self/mountinfo": "21 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
    "proc/diskstats": "8 0 sda 10 2 10 4 5 6 20 8 0 10 11\n",
    "proc/self/net/dev": "Inter-|   Receive  |  Transmit\n face |bytes\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0: 1000 10 0 0 0 0 0 0 2000 20 0 0 0 0 0 0\n",
    "proc/self/net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\neth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
    "proc/1/stat": "1 (init) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n",
    "proc/sys/kernel/osrelease": "6.8.0\n",
    "sys/class/net/eth0/operstate": "up\n",
    "sys/class/net/eth0/carrier_changes": "2\n",
    "sys/class/net/eth0/speed": "25000\n",
    "sys/class/net/eth0/ifindex": "2\n",
    "sys/class/net/eth0/device/vendor": "0x8086\n",
    "sys/class/hwmon/hwmon0/name": "coretemp\n",
    "sys/class/hwmon/hwmon0/temp1_input": "45000\n",
    "sys/class/hwmon/hwmon0/temp1_crit": "100000\n",
}  # fmt: skip


def port(device: str, **more: str) -> dict[str, str]:
    """An RDMA port that is ACTIVE; `more`: its files (`state`, `rate`, `counters/x`)."""
    base = f"sys/class/infiniband/{device}"
    files = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand",
        **{name.replace("__", "/"): text for name, text in more.items()},
    }
    made = {f"{base}/ports/1/{name}": f"{text}\n" for name, text in files.items()}
    return {f"{base}/hca_type": "MT4129\n", f"{base}/node_guid": "a088:c203:00ab:12cd\n", **made}


def counters(device: str, **numbers: int) -> dict[str, str]:
    """Counters of a port: `hw__NAME` in hw_counters, others in counters."""
    base = f"sys/class/infiniband/{device}/ports/1"
    rows = ((name, name.startswith("hw__"), number) for name, number in numbers.items())
    return {
        f"{base}/hw_counters/{name[4:]}" if hardware else f"{base}/counters/{name}": f"{number}\n"
        for name, hardware, number in rows
    }


def amd_card(number: int, **more: str) -> dict[str, str]:
    """An MI300X; `more`: its files, `hwmon__NAME` those of its sensors."""
    base = f"sys/class/drm/card{number}/device"
    address = f"0000:{16 + number:02x}:00.0"
    files = {
        "vendor": "0x1002",
        "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={address}",
        "product_name": "AMD Instinct MI300X OAM",
        "unique_id": f"{number:016x}",
        "gpu_busy_percent": "95",
        "mem_info_vram_total": str(192 << 30),
        "mem_info_vram_used": str(100 << 30),
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_width": "16",
        "ras/umc_err_count": "ue: 0\nce: 0",
        "ras/gfx_err_count": "ue: 0\nce: 0",
        "hwmon/hwmon9/temp1_label": "junction",
        "hwmon/hwmon9/temp1_input": "60000",
        "hwmon/hwmon9/temp1_crit": "100000",
        "hwmon/hwmon9/power1_average": "500000000",
        "hwmon/hwmon9/power1_cap": "750000000",
    }
    files.update({name.replace("hwmon__", "hwmon/hwmon9/").replace("__", "/"): t for name, t in more.items()})  # fmt: skip
    return {f"{base}/{name}": f"{text}\n" for name, text in files.items()}


def many(made: Iterator[dict[str, str]]) -> dict[str, str]:
    """The files of several parts together."""
    return {name: text for one in made for name, text in one.items()}
