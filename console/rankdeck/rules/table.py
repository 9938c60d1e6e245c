"""The thresholds of health, one row each; a sentence says seen · means · do."""

from dataclasses import dataclass

from rankdeck.model.health import Level
from rankdeck.model.units import written
from rankdeck_agent.wire import METRICS

WARN, BAD = Level.WARN, Level.BAD
BARELY = 1e-9
"""A line that anything above 0 crosses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`metric` at or above `enter` for `hold` seconds fires; below `clear` it ends."""

    check: str
    metric: str
    level: Level
    enter: float
    clear: float
    text: str
    """{device} and {value} are filled in."""
    hold: float = 0.0
    rate: bool = False
    """Compare the counter's growth per second."""
    over: str = ""
    """Compare the share of this other metric."""
    sticky: float = 0.0
    """Seconds that it stays after the condition ended."""

    def say(self, device: str, number: float) -> str:
        metric = METRICS.get(self.metric)
        unit = "" if self.over or metric is None else metric.unit
        value = written(number, f"{unit}/s" if self.rate else unit)
        return self.text.format(device=device or "node", value=value)


def _rule(
    check: str,
    metric: str,
    *lines: tuple[Level, float, float],
    text: str,
    hold: float = 0.0,
) -> list[Rule]:
    """One row for each (level, enter, clear)."""
    return [
        Rule(
            check=check,
            metric=metric,
            level=level,
            enter=enter,
            clear=clear,
            text=text,
            hold=hold,
        )
        for level, enter, clear in lines
    ]


RULES: tuple[Rule, ...] = (
    *_rule("gpu.ecc", "gpu.ecc_uncorrected", (BAD, 1, 1),
           text="GPU {device}: {value} uncorrected memory errors · results may be wrong, jobs die · drain and reset the GPU"),
    *_rule("gpu.temp", "gpu.temp", (WARN, 85, 80), (BAD, 92, 87), hold=60,
           text="GPU {device} at {value} · it slows down or shuts off · check fans, inlet air, neighbours"),
    Rule(check="rdma.errors", metric="rdma.errors", level=WARN, enter=BARELY, clear=BARELY, rate=True, sticky=300,
         text="{device}: link errors rise ({value}) · a bad cable or transceiver · clean or replace it"),
    Rule(check="rdma.retx", metric="rdma.retx", level=WARN, enter=1, clear=0.5, rate=True, hold=10, sticky=300,
         text="{device}: {value} retransmissions · packets are lost · check PFC and ECN, MTU, cable"),
    *_rule("disk.readonly", "disk.readonly", (BAD, 1, 1),
           text="{device} is read-only · writes fail · look at the kernel log for I/O errors, check the disk"),
    *_rule("disk.full", "disk.used", (WARN, 80, 78), (BAD, 95, 93),
           text="{device} is {value} full · jobs fail when they write · free space"),
    *_rule("disk.inodes", "disk.inodes_used", (WARN, 80, 78), (BAD, 95, 93),
           text="{device}: {value} of inodes used · no new files soon · remove small files"),
    *_rule("mem.low", "mem.used", (WARN, 95, 92), (BAD, 99, 97), hold=10,
           text="memory {value} used · the kernel is about to kill processes · use fewer ranks or a smaller problem"),
    Rule(check="mem.oom", metric="mem.oom_kills", level=WARN, enter=BARELY, clear=BARELY, rate=True, sticky=600,
         text="a process was killed for want of memory · its job is incomplete · see the kernel log, use fewer ranks"),
    *_rule("psi.mem", "psi.mem", (WARN, 10, 5), hold=60,
           text="all tasks wait {value} of the time for memory · the node is thrashing · use fewer ranks"),
    *_rule("psi.io", "psi.io", (WARN, 40, 25), hold=120,
           text="all tasks wait {value} of the time for disks · storage is the limit · look at disk and file server"),
    Rule(check="cpu.load", metric="cpu.load1", level=WARN, enter=2, clear=1.5, over="cpu.cores", hold=300,
         text="load is {value} × the cores · ranks share cores · use fewer ranks, look for leftovers"),
    *_rule("cpu.iowait", "cpu.iowait", (WARN, 50, 30), hold=120,
           text="CPU waits {value} of the time for disks · storage is the limit · look at disk and file server"),
    *_rule("cpu.steal", "cpu.steal", (WARN, 10, 5), hold=120,
           text="the hypervisor takes {value} of the CPU · the machine is shared · timings are not comparable"),
    *_rule("cpu.temp", "cpu.temp", (WARN, 85, 80), (BAD, 95, 90), hold=60,
           text="CPU at {value} · it slows down or shuts off · check fans and inlet air"),
    Rule(check="net.errors", metric="net.errors", level=WARN, enter=1, clear=0.1, rate=True, hold=10, sticky=60,
         text="{device}: {value} errors · a bad cable, port or driver · swap the cable"),
    Rule(check="net.drops", metric="net.drops", level=WARN, enter=100, clear=50, rate=True, hold=60,
         text="{device}: {value} packets dropped · receivers are too slow or buffers small · look at ring sizes and load"),
    *_rule("agent.lag", "agent.lag", (WARN, 2, 1), hold=30,
           text="the agent is {value} late · the node is overloaded · its numbers are old"),
)  # fmt: skip
"""Rows of one check may differ in level; the worst that fires is shown."""
