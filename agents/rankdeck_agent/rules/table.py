"""The checks, and the rules with their thresholds, one row each; a
rule's sentence says seen · means · do.
"""

from collections.abc import Mapping, Sequence
from typing import Optional

from rankdeck_agent.rules.levels import Level
from rankdeck_agent.rules.units import write_number
from rankdeck_agent.values import Value
from rankdeck_agent.wire import METRICS

WARN, BAD = Level.WARN, Level.BAD
LET_GO = "first `rankdeck agent stop --gpu NODE`, because the agent holds the driver"
RESET = f"reset the GPU ({LET_GO})"
"""What to do where a GPU must be reset; the same words in every text."""
MINUTE, HOUR = 60.0, 3600.0
BOOT_GRACE = 30 * MINUTE
"""Seconds after a boot in which link changes are not counted."""


class HealthCheck(Value):
    """One check.

    It can be judged if one of the metrics `needs` was read; if all are absent, it does not apply.
    """

    number: int
    name: str
    title: str
    needs: tuple[str, ...]


class Rule(Value):
    """Fires when `metric` is at or above `enter` for `hold` seconds; ends when
    it is below `clear` for `linger` seconds.

    With `below`: at or below `enter`, and above `clear`. With `window`: the
    counter's growth in that many seconds is compared.
    """

    check: str
    part_of: int
    """Number of the HealthCheck."""
    metric: str
    level: Level
    enter: float
    clear: float
    text: str
    """{device}, {value}, {span} and {note} are filled in."""
    hold: float = 0.0
    linger: float = 0.0
    window: float = 0.0
    below: bool = False
    falls: bool = False
    """Count how often the value fell instead of how much it grew."""
    over: str = ""
    """Compare the share (0 to 1) of this other metric of the same device."""
    at_least: float = 0.0
    """With `over`: only devices are judged that have so much of that metric."""
    only: Optional[tuple[str, float, float]] = None
    """(metric, least, most): judge a device only while this other
    metric of it is within these limits.
    """
    unless: str = ""
    """Not judged for a device of which this other metric is above 0, such as
    the margin to the hardware's own limit.
    """
    grace: float = 0.0
    """Seconds after boot in which nothing is counted."""

    def holds(self, number: float, fired: bool) -> bool:
        """Whether the number is at or beyond the threshold: `clear` if the
        rule has fired, otherwise `enter`.
        """
        line = self.clear if fired else self.enter
        return number <= line if self.below else number >= line

    def write(self, number: float) -> str:
        """The number with its unit."""
        metric = METRICS.get(self.metric)
        unit = "" if self.over or self.falls or metric is None else metric.unit
        return write_number(number, unit)

    @property
    def span(self) -> str:
        """`in 5 min`; "" without a window."""
        return f"in {_lasting(self.window)}" if self.window else ""

    @property
    def held(self) -> str:
        """` for 5 min`; "" if it fires at once."""
        return f" for {_lasting(self.hold)}" if self.hold else ""

    def say(self, device: str, number: float, note: str = "") -> str:
        """The sentence of the rule, with {device}, {value}, {span} and {note} filled in."""
        return self.text.format(
            device=device or "node",
            value=self.write(number),
            span=self.span,
            note=note,
        )


def _lasting(seconds: float) -> str:
    """`10 s`, `5 min`, `12 h`."""
    if seconds < MINUTE:
        return f"{seconds:g} s"
    return f"{seconds / HOUR:g} h" if seconds >= HOUR else f"{seconds / MINUTE:g} min"


CHECKS: tuple[HealthCheck, ...] = (
    HealthCheck(1, "driver", "Agent and driver answer", ("agent.lag", "gpu.answer")),
    HealthCheck(2, "gpu.present", "Every GPU is there", ("gpu.mem_total", "gpu.used")),
    HealthCheck(3, "gpu.recovery", "GPU asks for recovery", ("gpu.recovery", "gpu.reset_required")),
    HealthCheck(4, "gpu.xid", "Xid and SXid in the kernel log", ("gpu.mem_total", "gpu.used")),
    HealthCheck(5, "gpu.ecc", "Uncorrectable GPU memory errors", ("gpu.ecc_uncorrected", "gpu.ecc_threshold")),
    HealthCheck(6, "gpu.remap", "GPU row remapping, page retirement",
          ("gpu.remap_failed", "gpu.remap_pending", "gpu.remap_uncorrected", "gpu.retired", "gpu.retired_pending")),
    HealthCheck(7, "link", "Ports up, at full rate", ("rdma.up", "net.up")),
    HealthCheck(8, "link.flap", "Links do not flap", ("rdma.up", "net.carrier_changes")),
    HealthCheck(9, "storage", "Storage answers, is mounted and writable",
          ("disk.readonly", "disk.mounted", "disk.stuck", "disk.used")),
    HealthCheck(10, "gpu.nvlink", "NVLink and fabric", ("gpu.nvlinks_active", "gpu.fabric")),
    HealthCheck(11, "link.errors", "Physical link errors", ("rdma.phys_errors", "rdma.errors", "net.errors")),
    HealthCheck(12, "rdma.retries", "RDMA retries exhausted", ("rdma.retries_exhausted",)),
    HealthCheck(13, "rdma.retx", "RDMA retransmissions", ("rdma.retx",)),
    HealthCheck(14, "gpu.slowdown", "GPU slowed down by heat or power", ("gpu.throttle_thermal", "gpu.throttle_brake", "gpu.throttle_reasons")),
    HealthCheck(15, "gpu.pcie", "PCIe width, generation, replays", ("gpu.pcie_width", "gpu.pcie_gen", "gpu.pcie_replays")),
    HealthCheck(16, "mem.faults", "Host memory faults", ("edac.ue", "edac.ce", "mem.corrupted")),
    HealthCheck(17, "mem", "Memory suffices", ("mem.used", "psi.mem", "mem.oom_kills")),
    HealthCheck(18, "disk", "Disks have room and work", ("disk.used", "disk.inodes_used", "nvme.live", "md.failed")),
    HealthCheck(19, "heat", "Temperature and supply", ("cpu.temp", "gpu.temp", "gpu.margin", "pi.undervolt")),
    HealthCheck(20, "node.clock", "Clock right, no unexpected reboot", ("node.skew",)),
    HealthCheck(21, "kernel", "Kernel not stuck", ("kernel.dstate",)),
    HealthCheck(22, "gpu.ecc_rate", "Correctable GPU memory errors", ("gpu.ecc_corrected",)),
    HealthCheck(23, "fabric", "Congestion on the fabric", ("rdma.congestion", "rdma.not_ready", "net.drops")),
    HealthCheck(24, "leftovers", "No leftovers, no shared cores", ("cpu.load1", "cpu.steal", "gpu.processes")),
    HealthCheck(25, "drift", "Like the cluster file and its peers", ("node.like",)),
)  # fmt: skip


def _rows(
    check: str,
    part_of: int,
    metric: str,
    *lines: tuple[Level, float, float],
    text: str,
    **more: object,
) -> list[Rule]:
    """One row for each (level, enter, clear)."""
    return [
        Rule(check, part_of, metric, level, enter, clear, text, **more)  # type: ignore[arg-type]
        for level, enter, clear in lines
    ]


RULES: tuple[Rule, ...] = (
    # 1 the agent, the driver
    *_rows("agent.lag", 1, "agent.lag", (WARN, 2, 1), hold=30,
           text="the agent is {value} late · the node is overloaded · its numbers are old"),
    *_rows("gpu.driver", 1, "gpu.answer", (WARN, 2, 1), hold=10,
           text="the GPU driver has not answered for {value} · it is overloaded or about to hang · watch it, start no nvidia-smi loops"),
    *_rows("gpu.driver", 1, "gpu.hangs", (BAD, 1, 1),
           text="the GPU driver has not answered for {note} · it hangs, jobs on the node will too · start no nvidia-smi loops, drain, reboot"),
    # 2, 3 GPUs
    *_rows("gpu.count", 2, "gpu.missing", (BAD, 1, 1),
           text="{note} · a device is lost or its driver is not loaded · look at the kernel log, reboot; again within 3 days: vendor"),
    *_rows("gpu.lost", 2, "gpu.lost", (BAD, 1, 1),
           text="GPU {device} lost, says its driver · jobs on it are dead · reboot; again within 3 days: vendor"),
    *_rows("gpu.lost", 2, "gpu.gone", (BAD, 1, 1),
           text="GPU {device} was there and has gone · jobs on it are dead · look at the kernel log, reboot; if it was taken out, acknowledge it"),
    *_rows("gpu.count", 2, "gpu.unlisted", (WARN, 1, 1), hold=30,
           text="the driver lists {note} that it has on the PCI bus · one is dead, or kept from this agent · look for RmInitAdapter in the kernel log, reboot"),
    *_rows("gpu.recovery", 3, "gpu.action", (WARN, 1, 1), (BAD, 2, 2),
           text="GPU {device} asks for {note} · its driver cannot go on without it · drain the node, then do it; " + LET_GO),
    *_rows("gpu.reset", 3, "gpu.reset_required", (BAD, 1, 1),
           text="GPU {device} requires a reset · NVML refuses to use it, no job can run on it · drain the node, " + RESET),
    # 5, 6 GPU memory
    *_rows("gpu.ecc", 5, "gpu.ecc_uncorrected", (BAD, 1, 1),
           text="GPU {device}: {value} uncorrected memory errors · results may be wrong, jobs die · restart the job; drain the node, " + RESET),
    *_rows("gpu.ecc_threshold", 5, "gpu.ecc_threshold", (BAD, 1, 1),
           text="GPU {device} is over its own limit of SRAM errors · the chip wears out · drain; replace the GPU"),
    *_rows("gpu.remap", 6, "gpu.remap_failed", (BAD, 1, 1),
           text="GPU {device}: row remapping failed · no spare rows are left · replace the GPU"),
    *_rows("gpu.remap_pending", 6, "gpu.remap_pending", (WARN, 1, 1),
           text="GPU {device}: a row waits to be remapped · bad memory stays in use until then · when it is idle, " + RESET),
    *_rows("gpu.remap_rows", 6, "gpu.remap_uncorrected", (WARN, 512, 512),
           text="GPU {device}: {value} rows remapped after uncorrectable errors · its memory wears out · plan a replacement"),
    *_rows("gpu.retired", 6, "gpu.retired", (BAD, 63, 63),
           text="GPU {device}: {value} pages retired · the table is full · replace the GPU"),
    *_rows("gpu.retired_pending", 6, "gpu.retired_pending", (WARN, 1, 1),
           text="GPU {device}: a page waits to be retired · bad memory stays in use until then · when it is idle, " + RESET),
    # 7, 8 ports
    *_rows("rdma.link", 7, "rdma.down", (BAD, 1, 1), hold=15, linger=120,
           text="RDMA port {device} is {note} · jobs that use it stop or hang · check cable, switch port, subnet manager"),
    *_rows("rdma.link", 7, "rdma.odd", (WARN, 1, 1), hold=15,
           text="RDMA port {device} is not ACTIVE, {note} · a job that uses all ports hangs or is slow · check cable, switch port, subnet manager; or say `rdma_count` under `expect`"),
    *_rows("rdma.count", 7, "rdma.missing", (BAD, 1, 1),
           text="{note} · a device is lost or its driver is not loaded · look at the kernel log, reboot"),
    *_rows("rdma.rate", 7, "rdma.slow", (WARN, 1, 1), hold=15,
           text="{device} runs at {note} · transfers are slower · check cable, switch port, negotiation"),
    *_rows("net.link", 7, "net.down", (BAD, 1, 1), hold=15, linger=120,
           text="interface {device} is {note} · jobs that use it stop or hang · check cable and switch port"),
    *_rows("net.speed", 7, "net.slow", (WARN, 1, 1), hold=15,
           text="{device} runs at {note} · transfers are slower · check cable, switch port, negotiation"),
    *_rows("link.flap", 8, "rdma.up", (WARN, 2, 1), window=HOUR, falls=True, grace=BOOT_GRACE,
           text="RDMA port {device} went down {value} times {span} · jobs on it stall or die · reseat or replace transceiver and cable"),
    *_rows("link.flap", 8, "rdma.up", (BAD, 3, 1), window=12 * HOUR, falls=True, grace=BOOT_GRACE,
           text="RDMA port {device} went down {value} times {span} · it will again · replace transceiver or cable, then acknowledge"),
    *_rows("link.flap", 8, "rdma.link_downs", (WARN, 2, 1), window=HOUR, grace=BOOT_GRACE,
           text="RDMA port {device} failed {value} times {span} · jobs on it stall or die · reseat or replace transceiver and cable"),
    *_rows("link.flap", 8, "rdma.link_downs", (BAD, 3, 1), window=12 * HOUR, grace=BOOT_GRACE,
           text="RDMA port {device} failed {value} times {span} · it will again · replace transceiver or cable, then acknowledge"),
    *_rows("net.flap", 8, "net.carrier_changes", (WARN, 4, 1), window=HOUR, grace=BOOT_GRACE,
           text="{device}: carrier changed {value} times {span} · the link flaps · reseat or replace the cable"),
    *_rows("net.flap", 8, "net.carrier_changes", (BAD, 6, 1), window=12 * HOUR, grace=BOOT_GRACE,
           text="{device}: carrier changed {value} times {span} · the link will fail again · replace the cable, then acknowledge"),
    # 9 storage
    *_rows("disk.stuck", 9, "disk.stuck", (WARN, 5, 1), (BAD, 25, 1),
           text="{device} has not answered for {value} · processes that use it hang · do not touch the path; check the server"),
    *_rows("disk.mounted", 9, "disk.unmounted", (BAD, 1, 1),
           text="{device} is not mounted · jobs write to the wrong place or fail · mount it, check the server"),
    *_rows("disk.readonly", 9, "disk.forced_readonly", (BAD, 1, 1),
           text="{device} became read-only · writes fail · look at the kernel log for I/O errors, check the disk"),
    # 10 NVLink
    *_rows("gpu.nvlink", 10, "gpu.nvlinks_down", (BAD, 1, 1), hold=60,
           text="GPU {device}: only {note} NVLinks work · collectives are slow or hang · drain the node, " + RESET + ", check NVSwitch and fabric manager"),
    *_rows("gpu.nvlink_errors", 10, "gpu.nvlink_errors", (WARN, 6000, 600), window=MINUTE,
           text="GPU {device}: {value} NVLink errors {span} · the link is about to fail · drain at the next chance, " + RESET),
    *_rows("gpu.fabric", 10, "gpu.fabric", (BAD, 2, 2), below=True, hold=MINUTE,
           text="GPU {device} has not joined the NVSwitch fabric (state {value} of 3) · CUDA does not start on it · check the fabric manager, then " + RESET),
    *_rows("gpu.fabric", 10, "gpu.fabric_status", (BAD, 1, 1),
           text="GPU {device} could not join the NVSwitch fabric (NVML error {value}) · CUDA does not start on it · check the fabric manager, then " + RESET),
    *_rows("gpu.fabric_fault", 10, "gpu.fabric_fault", (WARN, 1, 1), (BAD, 2, 2),
           text="NVSwitch fabric of GPU {device}: {note} · collectives are slow or hang · check NVSwitches and fabric manager"),
    # 11, 12, 13 errors on the wire
    *_rows("rdma.phys_errors", 11, "rdma.phys_errors", (WARN, 10, 1), window=5 * MINUTE,
           text="{device}: {value} symbol or receive errors {span} · a bad cable or transceiver · clean or replace it; clear with perfquery -R"),
    *_rows("rdma.phys_errors", 11, "rdma.phys_errors", (BAD, 120, 60), window=HOUR,
           text="{device}: {value} symbol or receive errors {span} · the link drops packets · replace cable or transceiver"),
    *_rows("rdma.errors", 11, "rdma.errors", (WARN, 1, 1), window=5 * MINUTE,
           text="{device}: {value} errors of the port or of requests {span} · packets came damaged, or peers did not answer or refused · see which counter grows: cable, peer or program"),
    *_rows("net.errors", 11, "net.errors", (WARN, 10, 1), window=MINUTE,
           text="{device}: {value} errors {span} · a bad cable, port or driver · swap the cable"),
    *_rows("rdma.retries", 12, "rdma.retries_exhausted", (WARN, 1, 1), window=5 * MINUTE,
           text="{device}: retries exhausted {value} times {span} · peers cannot be reached, jobs die · check routes, PFC, the port of the peer"),
    *_rows("rdma.retx", 13, "rdma.retx", (WARN, 60, 30), window=MINUTE, linger=5 * MINUTE,
           text="{device}: {value} retransmissions {span} · packets are lost · check PFC and ECN, MTU, cable"),
    *_rows("rdma.timeouts", 13, "rdma.timeouts", (WARN, 60, 30), window=MINUTE, linger=5 * MINUTE,
           text="{device}: {value} acknowledgements came too late {span} · packets are lost or peers slow · check PFC and ECN, MTU, cable"),
    # 14, 15 GPU speed
    *_rows("gpu.slowdown", 14, "gpu.throttle_thermal", (WARN, 6, 3), window=10 * MINUTE,
           text="GPU {device} was slowed down by heat for {value} {span} · the job waits for it · check fans, inlet air, neighbours"),
    *_rows("gpu.brake", 14, "gpu.throttle_brake", (BAD, 30, 15), window=10 * MINUTE,
           text="GPU {device} was held by the power brake for {value} {span} · the supply cannot keep up · check power supplies and their feed"),
    *_rows("gpu.slowdown_soft", 14, "gpu.throttle_soft", (WARN, 60, 30), window=10 * MINUTE,
           text="GPU {device} was slowed down by its driver to stay cool for {value} {span} · the job waits for it · check fans, inlet air, neighbours"),
    *_rows("gpu.slowdown", 14, "gpu.slowed_now", (WARN, 1, 1), hold=30, linger=MINUTE,
           text="GPU {device} clocks are held down by the hardware · heat or power, its driver does not count for how long · check fans, inlet air, power supplies"),
    *_rows("gpu.brake", 14, "gpu.brake_now", (BAD, 1, 1), hold=30, linger=MINUTE,
           text="GPU {device} is held by the power brake · the supply cannot keep up · check power supplies and their feed"),
    *_rows("gpu.slow", 14, "gpu.slow", (WARN, 1, 1), hold=MINUTE, linger=5 * MINUTE,
           text="GPU {device} runs at {note} while all work · the job waits for it · look why its clock is held: `nvidia-smi -q -d PERFORMANCE,CLOCK`, power supply, heat"),
    *_rows("gpu.capped", 14, "gpu.capped", (WARN, 1, 1), hold=MINUTE,
           text="GPU {device} may take {note} · under load it is slower than the others · set its power limit as theirs, or look at its power supply"),
    *_rows("gpu.pcie", 15, "gpu.pcie_width", (BAD, 0.999, 0.999), over="gpu.pcie_width_max", below=True, hold=60, linger=HOUR, only=("gpu.used", 20, 200),
           text="GPU {device} has {note} PCIe lanes · transfers take twice as long or more · reseat the card or riser"),
    *_rows("gpu.pcie_gen", 15, "gpu.pcie_gen", (WARN, 0.999, 0.999), over="gpu.pcie_gen_max", below=True, hold=60, linger=HOUR, only=("gpu.used", 20, 200),
           text="GPU {device} runs at PCIe generation {note} · transfers are slower · reseat the card, check the BIOS"),
    *_rows("gpu.pcie_replays", 15, "gpu.pcie_replays", (BAD, 31, 10), window=MINUTE,
           text="GPU {device}: {value} PCIe replays {span} · the lanes are disturbed · reseat the card or riser"),
    # 16, 17 host memory
    *_rows("mem.ecc", 16, "edac.ue", (BAD, 1, 1),
           text="{device}: {value} uncorrectable memory errors · processes die, results may be wrong · replace this DIMM"),
    *_rows("mem.ecc_rate", 16, "edac.ce", (WARN, 100, 20), window=HOUR,
           text="{device}: {value} corrected memory errors {span} · the DIMM wears out · plan to replace it"),
    *_rows("mem.corrupted", 16, "mem.corrupted", (BAD, 1, 1),
           text="{value} of memory is corrupted · the kernel has taken it out of use · find and replace the DIMM"),
    *_rows("mem.low", 17, "mem.used", (WARN, 95, 92), (BAD, 99, 97), hold=10,
           text="memory {value} used · the kernel is about to kill processes · use fewer ranks or a smaller problem"),
    *_rows("mem.oom", 17, "mem.oom_kills", (WARN, 1, 1), window=10 * MINUTE,
           text="a process was killed because memory ran out · its job is incomplete · see the kernel log, use fewer ranks"),
    *_rows("mem.size", 17, "mem.missing", (BAD, 1, 1),
           text="{note} of memory is left since boot · a part was taken out of use · look at the kernel log; if that was meant, acknowledge it"),
    *_rows("psi.mem", 17, "psi.mem", (WARN, 10, 5), hold=MINUTE,
           text="all tasks wait {value} of the time for memory · the node is thrashing · use fewer ranks"),
    # 18 disks
    *_rows("disk.full", 18, "disk.used", (WARN, 80, 78), (BAD, 95, 93),
           text="{device} is {value} full · jobs fail when they write · free space"),
    *_rows("disk.inodes", 18, "disk.inodes_used", (WARN, 80, 78), (BAD, 95, 93),
           text="{device}: {value} of inodes used · no new files soon · remove small files"),
    *_rows("disk.nvme", 18, "nvme.live", (BAD, 0, 0), below=True,
           text="NVMe {device} is not live · its controller has given up · reset or replace the drive"),
    *_rows("disk.nvme", 18, "nvme.live", (WARN, 0.5, 0.5), below=True, hold=MINUTE,
           text="NVMe {device} has been starting again for over a minute · its controller or the way to it fails · look at the kernel log, reset it"),
    *_rows("disk.nvme", 18, "nvme.gone", (BAD, 1, 1),
           text="NVMe {device} was there and has gone · what is on it cannot be reached · look at the kernel log, reseat or replace it; if it was taken out, acknowledge it"),
    *_rows("disk.nvme_health", 18, "nvme.failing", (BAD, 1, 1),
           text="NVMe {device} says that it is unreliable or read-only · it is failing · save its data, replace it"),
    *_rows("disk.nvme_health", 18, "nvme.warning", (WARN, 1, 1),
           text="NVMe {device} gives a critical warning · its spare blocks run out, or it is too hot · look with `nvme smart-log`"),
    *_rows("disk.nvme_worn", 18, "nvme.worn", (WARN, 100, 100),
           text="NVMe {device}: {value} of its life used up · errors become likely · plan its replacement"),
    *_rows("disk.nvme_errors", 18, "nvme.media_errors", (WARN, 1, 1), window=24 * HOUR,
           text="NVMe {device}: {value} times data not whole {span} · the drive wears out · check the files, watch, replace"),
    *_rows("disk.io_stuck", 18, "disk.io_stuck", (WARN, 30, 5), (BAD, 120, 5), linger=MINUTE,
           text="disk {device}: requests wait for {value} and none ends · it hangs or dies · look at the kernel log, replace it"),
    *_rows("disk.raid", 18, "md.degraded", (WARN, 1, 1), unless="md.failed",
           text="RAID array {device} lacks {value} of its disks{note} · another loss may lose its data · look with `mdadm --detail`, replace the disk"),
    *_rows("disk.raid", 18, "md.failed", (BAD, 1, 1),
           text="RAID array {device} does not work · too many of its disks are missing · look with `mdadm --detail`, bring the disks back; else restore its data"),
    # 19 heat and supply
    *_rows("gpu.temp", 19, "gpu.temp", (WARN, 85, 80), (BAD, 92, 87), hold=MINUTE, unless="gpu.margin",
           text="GPU {device} at {value} · it slows down or shuts off · check fans, inlet air, neighbours"),
    *_rows("gpu.margin", 19, "gpu.margin", (WARN, 5, 10), below=True, hold=MINUTE,
           text="GPU {device} slows down if it gets {value} hotter · hot air or a blocked fan · check fans, inlet air, neighbours"),
    *_rows("gpu.margin", 19, "gpu.margin", (BAD, 0, 5), below=True, hold=MINUTE,
           text="GPU {device} is so hot that it slows down · hot air or a blocked fan · check fans, inlet air, neighbours"),
    *_rows("gpu.mem_margin", 19, "gpu.mem_margin", (WARN, 2, 5), below=True, hold=MINUTE,
           text="GPU {device}: its memory has {value} left to its limit · it slows down · check fans, inlet air, neighbours"),
    *_rows("gpu.mem_margin", 19, "gpu.mem_margin", (BAD, 0, 2), below=True, hold=MINUTE,
           text="GPU {device}: its memory is at its limit, {value} left · it slows down or fails · check fans, inlet air, neighbours"),
    *_rows("gpu.mem_temp", 19, "gpu.mem_temp", (WARN, 95, 90), (BAD, 105, 100), hold=MINUTE, unless="gpu.mem_margin",
           text="GPU {device} memory at {value} · it slows down or fails · check fans, inlet air"),
    *_rows("cpu.temp", 19, "cpu.temp", (WARN, 85, 80), (BAD, 95, 90), hold=MINUTE, unless="cpu.margin",
           text="CPU at {value} · it slows down or shuts off · check fans and inlet air"),
    *_rows("cpu.margin", 19, "cpu.margin", (WARN, 5, 10), (BAD, 0, 5), below=True, hold=MINUTE,
           text="CPU {device} has {value} left to its critical temperature · it slows down or shuts off · check fans and inlet air"),
    *_rows("hwmon.alarm", 19, "hwmon.alarm", (BAD, 1, 1), linger=MINUTE,
           text="{device} raises a critical alarm · temperature, fan or voltage out of range · look at its sensors, the BMC"),
    *_rows("hwmon.fan", 19, "hwmon.fan", (WARN, 1, 1), linger=MINUTE,
           text="{device}: a fan is stopped or too slow · it gets hot under load · look at its fans, the BMC"),
    *_rows("hwmon.voltage", 19, "hwmon.voltage", (WARN, 1, 1), linger=MINUTE,
           text="{device}: a voltage or current is out of its limits · the board may fail under load · look at its sensors, the BMC, the supplies"),
    *_rows("cpu.throttled", 19, "cpu.throttles", (WARN, 60, 10), window=10 * MINUTE,
           text="{device}: slowed down by heat {value} times {span} · ranks wait for this node · check fans and inlet air"),
    *_rows("pi.supply", 19, "pi.undervolt", (BAD, 1, 1), linger=MINUTE,
           text="supply voltage is too low now · the board slows down, cards get corrupted · use a stronger supply or a shorter cable"),
    *_rows("pi.supply", 19, "pi.undervolt_seen", (WARN, 1, 1),
           text="supply voltage was too low since boot · it will be again under load · use a stronger supply or a shorter cable"),
    *_rows("pi.throttled", 19, "pi.throttled", (WARN, 1, 1), linger=MINUTE,
           text="the board slows itself down · heat or supply · add cooling, check the supply"),
    # 20 clock
    *_rows("node.clock", 20, "node.skew", (WARN, 1, 0.5), hold=10,
           text="clock is {note} · times of this node are not comparable · check chrony or ntp"),
    # 21 kernel
    # The agent counts only tasks that have waited for minutes: no hold is needed.
    *_rows("kernel.dstate", 21, "kernel.dstate", (WARN, 1, 1),
           text="{value} tasks ({device}) wait for the kernel without end · a driver or file server hangs · see the kernel log; only a reboot ends them"),
    # 22 correctable ECC
    *_rows("gpu.ecc_rate", 22, "gpu.ecc_corrected", (WARN, 100, 20), (BAD, 600_000, 60_000), window=MINUTE, linger=4 * MINUTE,
           text="GPU {device}: {value} corrected memory errors {span} · rows wear out · at the next chance " + RESET + ", watch the remapped rows"),
    # 23 the fabric, never bad
    *_rows("fabric.congestion", 23, "rdma.congestion", (WARN, 600_000, 120_000), window=10 * MINUTE,
           text="{device}: {value} congestion marks {span} · the fabric is full, not the node · look at the switches, PFC and ECN"),
    *_rows("rdma.not_ready", 23, "rdma.not_ready", (WARN, 600, 60), window=MINUTE,
           text="{device}: {value} messages found no buffer at the receiver {span} · the receiving program is too slow, nothing is broken · look for the rank that lags"),
    *_rows("rdma.xmit_wait", 23, "rdma.xmit_wait", (WARN, 3_000_000_000, 300_000_000), window=10 * MINUTE,
           text="{device} waited {value} ticks {span} for permission to send · the fabric or a receiver is full, not this port · look at the switches, PFC and ECN"),
    *_rows("rdma.discards", 23, "rdma.discards", (WARN, 6000, 600), window=MINUTE,
           text="{device}: {value} packets dropped by the port {span} · the fabric is full · look at the switches, PFC and ECN"),
    *_rows("net.paused", 23, "net.paused", (WARN, 60, 30), window=10 * MINUTE,
           text="{device} was told to wait for {value} {span} · switch or receivers are full, not this port · look for the slow receiver, PFC and ECN"),
    *_rows("net.card_drops", 23, "net.card_drops", (WARN, 6000, 600), window=MINUTE,
           text="{device}: {value} packets dropped in the card {span} · it gets more than it can hold · look at PFC and ECN, buffers, load"),
    *_rows("net.over_limit", 23, "net.over_limit", (WARN, 6000, 600), window=MINUTE,
           text="{device}: {value} packets held back or dropped {span} by the cloud's limit for this machine · nothing is broken, it sends or gets more than it was given · a larger instance, fewer connections, or EFA"),
    *_rows("net.drops", 23, "net.drops", (WARN, 6000, 600), window=MINUTE,
           text="{device}: {value} packets dropped {span} · receivers are too slow or buffers small · look at ring sizes and load"),
    # 24 leftovers and sharing
    *_rows("cpu.load", 24, "cpu.load1", (WARN, 2, 1.5), over="cpu.cores", hold=5 * MINUTE,
           text="load is {value} × the cores · ranks share cores · use fewer ranks, look for leftovers"),
    *_rows("gpu.held", 24, "gpu.mem_used", (WARN, 0.05, 0.02), over="gpu.mem_total", at_least=4 * 2**30, hold=30 * MINUTE, only=("gpu.used", 0, 0.5),
           text="GPU {device}: {value} of its memory is held while nothing runs · a leftover process, or one that waits · list its processes"),
    *_rows("cpu.count", 24, "cpu.missing", (BAD, 1, 1),
           text="{note} CPUs are online · the others were taken offline, ranks share cores · look at the kernel log; if that was meant, acknowledge it"),
    *_rows("cpu.steal", 24, "cpu.steal", (WARN, 10, 5), hold=2 * MINUTE,
           text="the hypervisor takes {value} of the CPU · the machine is shared · timings are not comparable"),
    *_rows("cpu.iowait", 24, "cpu.iowait", (WARN, 50, 30), hold=2 * MINUTE,
           text="CPU waits {value} of the time for disks · storage is the limit · look at disk and file server"),
    *_rows("psi.io", 24, "psi.io", (WARN, 40, 25), hold=2 * MINUTE,
           text="all tasks wait {value} of the time for disks · storage is the limit · look at disk and file server"),
    # 25 the cluster file; the console finds differences from peers
    *_rows("expect", 25, "node.unlike", (WARN, 1, 1),
           text="{note} · the node differs from the cluster file · correct one of them"),
)  # fmt: skip
"""A check may have several rows; the worst that fires for a device is shown."""

IDLE_CHECKS = frozenset(rule.check for rule in RULES if rule.only and not rule.only[1])
"""Checks of memory that is held on an idle GPU; not judged while a job of ours runs on the node."""


def _by_metric() -> dict[str, tuple[tuple[int, Rule], ...]]:
    found: dict[str, list[tuple[int, Rule]]] = {}
    for row, rule in enumerate(RULES):
        found.setdefault(rule.metric, []).append((row, rule))
    return {metric: tuple(rows) for metric, rows in found.items()}


BY_METRIC: Mapping[str, Sequence[tuple[int, Rule]]] = _by_metric()
"""Metric -> (row in RULES, rule) of every rule that reads it."""
