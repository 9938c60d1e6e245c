"""The formats between a node and the console: telemetry messages, job plans and events, log frames.

Standard library only. Telemetry goes over MQTT on
`rankdeck/1/<cluster>/<node>/<kind>`; everything about jobs goes over SSH.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Optional, Union

from rankdeck_agent import ADDRESS_TOKEN as ADDRESS_TOKEN
from rankdeck_agent import AGENT_TOKEN as AGENT_TOKEN
from rankdeck_agent import DEVICES_TOKEN as DEVICES_TOKEN
from rankdeck_agent import INTERFACE_TOKEN as INTERFACE_TOKEN
from rankdeck_agent import JOB_VARIABLE as JOB_VARIABLE
from rankdeck_agent import LAUNCHER as LAUNCHER
from rankdeck_agent import NODE_VARIABLE as NODE_VARIABLE
from rankdeck_agent import RANK_IN_SHELL as RANK_IN_SHELL
from rankdeck_agent import RANK_VARIABLES as RANK_VARIABLES
from rankdeck_agent import RUN_TOKEN as RUN_TOKEN
from rankdeck_agent import RUN_VARIABLE as RUN_VARIABLE
from rankdeck_agent import SIGNALS as SIGNALS
from rankdeck_agent.values import Value, field, list_fields, replace

TOPIC_PREFIX = "rankdeck/1"
Number = Union[int, float]
Values = dict[str, dict[str, Number]]
"""Metric -> device -> number in the metric's base unit (METRICS);
the device is "" for the whole node.
"""


def message_topic(cluster: str, node: str, kind: str) -> str:
    """The MQTT topic of one kind of message (hello, health, sample, event) of one node."""
    return f"{TOPIC_PREFIX}/{cluster}/{node}/{kind}"


def split_topic(text: str) -> Optional[tuple[str, str, str]]:
    """`(cluster, node, kind)` of a topic of Rankdeck; None for any other topic."""
    parts = text.split("/")
    if len(parts) != 5 or "/".join(parts[:2]) != TOPIC_PREFIX:
        return None
    return parts[2], parts[3], parts[4]


class Metric(Value):
    """One metric.

    `kind` is "gauge" or "counter"; `unit` is a base unit ("B", "s", "Hz", "%", …) or "".
    """

    name: str
    kind: str
    unit: str
    help: str


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Metric]:
    return {row[0]: Metric(*row) for row in rows}


METRICS: Mapping[str, Metric] = _table(
    ("cpu.used", "gauge", "%", "time not idle, over all cores"),
    ("cpu.core_used", "gauge", "%", "time not idle, per core"),
    ("cpu.iowait", "gauge", "%", "time waiting for disks"),
    ("cpu.steal", "gauge", "%", "time taken by the hypervisor"),
    ("cpu.time_user", "counter", "s", "time in programs, per core"),
    ("cpu.time_nice", "counter", "s", "time in programs of low priority, per core"),
    ("cpu.time_system", "counter", "s", "time in the kernel, per core"),
    ("cpu.time_idle", "counter", "s", "time without work, per core"),
    ("cpu.time_iowait", "counter", "s", "time without work, waiting for disks, per core"),
    ("cpu.time_irq", "counter", "s", "time in interrupts, per core"),
    ("cpu.time_softirq", "counter", "s", "time in soft interrupts, per core"),
    ("cpu.time_steal", "counter", "s", "time taken by the hypervisor, per core"),
    ("cpu.time_guest", "counter", "s", "time in virtual machines; part of user, per core"),
    (
        "cpu.time_guest_nice",
        "counter",
        "s",
        "time in virtual machines of low priority; part of nice, per core",
    ),
    ("cpu.load1", "gauge", "", "load average, 1 minute"),
    ("cpu.load5", "gauge", "", "load average, 5 minutes"),
    ("cpu.load15", "gauge", "", "load average, 15 minutes"),
    ("cpu.cores", "gauge", "", "cores online"),
    ("cpu.temp", "gauge", "C", "hottest CPU sensor"),
    ("cpu.freq", "gauge", "Hz", "mean clock of the cores"),
    ("cpu.margin", "gauge", "C", "degrees left until the package is critical"),
    ("cpu.throttles", "counter", "", "times that heat slowed a core or package down"),
    ("pi.undervolt", "gauge", "", "1 while the supply of a Raspberry Pi is too low"),
    ("pi.undervolt_seen", "gauge", "", "1 where that has happened since boot"),
    ("pi.throttled", "gauge", "", "1 while the firmware holds the clock down"),
    ("pi.throttled_seen", "gauge", "", "1 where that has happened since boot"),
    ("psi.cpu", "gauge", "%", "time some task waited for CPU, 10 s"),
    ("psi.mem", "gauge", "%", "time all tasks waited for memory, 10 s"),
    ("psi.io", "gauge", "%", "time all tasks waited for I/O, 10 s"),
    ("psi.cpu_waiting", "counter", "s", "time some task waited for CPU"),
    ("psi.mem_waiting", "counter", "s", "time some task waited for memory"),
    ("psi.mem_stalled", "counter", "s", "time all tasks waited for memory"),
    ("psi.io_waiting", "counter", "s", "time some task waited for I/O"),
    ("psi.io_stalled", "counter", "s", "time all tasks waited for I/O"),
    ("psi.irq_stalled", "counter", "s", "time all tasks waited for interrupts"),
    ("mem.total", "gauge", "B", "memory installed"),
    ("mem.available", "gauge", "B", "memory available to programs"),
    ("mem.used", "gauge", "%", "memory in use, of what is not set aside as huge pages"),
    ("mem.huge", "gauge", "B", "memory set aside as huge pages"),
    ("mem.huge_free", "gauge", "B", "huge pages that no program has"),
    ("mem.arc", "gauge", "B", "cache of ZFS that it gives back to programs"),
    ("mem.swap_used", "gauge", "B", "swap in use"),
    ("mem.row", "gauge", "", "a row of /proc/meminfo, in bytes; HugePages_* in pages"),
    ("mem.vmstat", "counter", "", "a row of /proc/vmstat: pages and page faults"),
    ("mem.oom_kills", "counter", "", "processes killed because memory ran out"),
    ("mem.corrupted", "gauge", "B", "memory that the kernel took out of use as broken"),
    ("edac.ce", "counter", "", "corrected memory errors, per DIMM or controller"),
    ("edac.ue", "counter", "", "uncorrected memory errors, per DIMM or controller"),
    ("edac.row_ce", "counter", "", "corrected memory errors of a chip-select row"),
    ("edac.row_ue", "counter", "", "uncorrected memory errors of a chip-select row"),
    (
        "edac.mc_ce",
        "counter",
        "",
        "corrected memory errors of a controller, all its DIMMs together",
    ),
    (
        "edac.mc_ue",
        "counter",
        "",
        "uncorrected memory errors of a controller, all its DIMMs together",
    ),
    ("cgroup.cores", "gauge", "", "cores that the agent's group may use"),
    ("cgroup.mem_limit", "gauge", "B", "memory limit of the agent's group"),
    ("cgroup.mem_used", "gauge", "B", "memory used by the agent's group"),
    ("cgroup.throttled", "counter", "", "periods in which a CPU quota ran out"),
    ("kernel.events", "counter", "", "lines of the kernel log that report an event"),
    ("kernel.context_switches", "counter", "", "times that a CPU went on with another task"),
    ("kernel.forks", "counter", "", "processes and threads started"),
    ("kernel.interrupts", "counter", "", "interrupts handled"),
    ("kernel.procs_running", "gauge", "", "tasks that run or could run"),
    ("kernel.procs_blocked", "gauge", "", "tasks that wait for disks"),
    ("kernel.files", "gauge", "", "file handles: allocated, maximum"),
    ("kernel.entropy", "gauge", "", "random bits: available, size of the pool"),
    ("hwmon.temp", "gauge", "C", "hottest sensor of each chip"),
    ("hwmon.alarm", "gauge", "", "1 where a chip raises a critical alarm"),
    ("hwmon.fan", "gauge", "", "1 where a fan of a chip is stopped or too slow"),
    ("hwmon.voltage", "gauge", "", "1 where a voltage or current is out of its limits"),
    ("sensor.temp", "gauge", "C", "temperature, per chip/sensor"),
    ("sensor.fan", "gauge", "rpm", "speed of a fan, per chip/sensor"),
    ("sensor.voltage", "gauge", "V", "voltage, per chip/sensor"),
    ("sensor.current", "gauge", "A", "current, per chip/sensor"),
    ("sensor.power", "gauge", "W", "power, per chip/sensor"),
    ("kernel.dstate", "gauge", "", "tasks long in uninterruptible sleep, by kind"),
    ("disk.used", "gauge", "%", "space used, per mount"),
    ("disk.size", "gauge", "B", "size, per mount"),
    ("disk.free", "gauge", "B", "space left to users, per mount"),
    ("disk.free_all", "gauge", "B", "space left, with what is reserved for root, per mount"),
    ("disk.inodes_used", "gauge", "%", "inodes used, per mount"),
    ("disk.inodes", "gauge", "", "inodes, per mount"),
    ("disk.inodes_free", "gauge", "", "inodes left, per mount"),
    ("disk.readonly", "gauge", "", "1 where a local mount is read-only"),
    (
        "disk.forced_readonly",
        "gauge",
        "",
        "1 where its file system is, though it was mounted to be written",
    ),
    ("disk.read", "counter", "B", "bytes read, per disk"),
    ("disk.write", "counter", "B", "bytes written, per disk"),
    ("disk.reads", "counter", "", "reads done, per disk"),
    ("disk.reads_merged", "counter", "", "reads joined with others, per disk"),
    ("disk.read_time", "counter", "s", "time that reads took, per disk"),
    ("disk.writes", "counter", "", "writes done, per disk"),
    ("disk.writes_merged", "counter", "", "writes joined with others, per disk"),
    ("disk.write_time", "counter", "s", "time that writes took, per disk"),
    ("disk.in_flight", "gauge", "", "requests that are not done, per disk"),
    ("disk.busy", "counter", "s", "time in which a disk had work"),
    ("disk.queued", "counter", "s", "time in which a disk had work, times its requests"),
    ("disk.discards", "counter", "", "discards done, per disk"),
    ("disk.discards_merged", "counter", "", "discards joined with others, per disk"),
    ("disk.discarded", "counter", "B", "bytes discarded, per disk"),
    ("disk.discard_time", "counter", "s", "time that discards took, per disk"),
    ("disk.flushes", "counter", "", "flushes done, per disk"),
    ("disk.flush_time", "counter", "s", "time that flushes took, per disk"),
    (
        "disk.mounted",
        "gauge",
        "",
        "1 for each network mount, 0 for one of fstab that is not mounted",
    ),
    ("disk.automatic", "gauge", "", "1 for each mount that comes and goes with its use"),
    ("disk.stuck", "gauge", "s", "since a network mount was asked and has not answered"),
    ("md.degraded", "gauge", "", "members that a RAID array (md) lacks"),
    ("md.disks", "gauge", "", "members that a RAID array should have"),
    ("md.failed", "gauge", "", "1 where a RAID array does not work"),
    ("md.rebuilt", "gauge", "%", "how far a rebuild, resync or reshape of a RAID array has come"),
    ("md.checked", "gauge", "%", "how far a check or repair of a RAID array has come"),
    ("disk.io_stuck", "gauge", "s", "since a disk with work made no progress"),
    (
        "nvme.live",
        "gauge",
        "",
        "1 where the NVMe controller is live, 0.5 where it starts or resets, 0 where it is dead",
    ),
    ("nvme.failing", "gauge", "", "1 where a drive says that it is unreliable or read-only"),
    ("nvme.warning", "gauge", "", "1 where a drive gives any critical warning"),
    ("nvme.temp", "gauge", "C", "temperature of a drive"),
    ("nvme.spare", "gauge", "%", "spare blocks left"),
    ("nvme.worn", "gauge", "%", "life used up, as the maker estimates; may exceed 100"),
    ("nvme.media_errors", "counter", "", "times that a drive could not read its data correctly"),
    (
        "nvme.unsafe_shutdowns",
        "counter",
        "",
        "times that a drive lost its power without a shutdown",
    ),
    ("nvme.power_on", "counter", "s", "time that a drive was powered on"),
    ("nvme.read", "counter", "B", "bytes read since a drive was made"),
    ("nvme.written", "counter", "B", "bytes written since a drive was made"),
    ("net.rx", "counter", "B", "bytes received, per interface"),
    ("net.tx", "counter", "B", "bytes sent, per interface"),
    ("net.errors", "counter", "", "receive and transmit errors, per interface"),
    ("net.drops", "counter", "", "packets dropped, per interface"),
    ("net.frame_errors", "counter", "", "broken frames: CRC, length, alignment"),
    ("net.fifo_errors", "counter", "", "overruns of the card's buffers, both ways"),
    ("net.carrier_errors", "counter", "", "packets lost while the carrier was away"),
    ("net.rx_packets", "counter", "", "packets received"),
    ("net.rx_errors", "counter", "", "packets received with an error"),
    ("net.rx_drops", "counter", "", "packets received and dropped"),
    ("net.rx_fifo", "counter", "", "packets received and lost for want of a buffer"),
    ("net.rx_compressed", "counter", "", "compressed packets received"),
    ("net.multicast", "counter", "", "multicast packets received"),
    ("net.tx_packets", "counter", "", "packets sent"),
    ("net.tx_errors", "counter", "", "packets that could not be sent"),
    ("net.tx_drops", "counter", "", "packets dropped instead of sent"),
    ("net.tx_fifo", "counter", "", "packets not sent for want of a buffer"),
    ("net.collisions", "counter", "", "collisions on the cable"),
    ("net.tx_compressed", "counter", "", "compressed packets sent"),
    (
        "net.stack",
        "gauge",
        "",
        "a row of /proc/net/snmp or netstat: packets and errors of a protocol",
    ),
    ("net.sockets", "gauge", "", "a row of /proc/net/sockstat: sockets in use"),
    ("net.conntrack", "gauge", "", "connections tracked: entries, entries_limit"),
    ("net.up", "gauge", "", "1 where the link is up"),
    ("net.needed", "gauge", "", "1 where a route, a bond or an RDMA device uses the interface"),
    (
        "net.bond_leg",
        "gauge",
        "",
        "1 where its bond uses the interface, 0 where it lost its partner",
    ),
    ("net.speed", "gauge", "bit/s", "negotiated speed"),
    ("net.mtu", "gauge", "B", "largest packet"),
    ("net.carrier_changes", "counter", "", "times that the link went down or came up"),
    (
        "net.paused",
        "counter",
        "s",
        "time paused by the other side (PFC, pause), over all priorities",
    ),
    ("net.prio_paused", "counter", "s", "time paused by the other side, per interface/priority"),
    ("net.pause_frames", "counter", "", "pause frames received"),
    ("net.prio_frames", "counter", "", "pause frames received, per interface/priority"),
    ("net.pause_sent", "counter", "", "pause frames sent"),
    ("net.card_drops", "counter", "", "packets dropped in the card because its buffers were full"),
    (
        "net.over_limit",
        "counter",
        "",
        "packets held back or dropped because of the cloud's limits for this machine",
    ),
    ("rdma.up", "gauge", "", "1 where the port is ACTIVE"),
    ("rdma.rate", "gauge", "bit/s", "negotiated rate"),
    ("rdma.rx", "counter", "B", "bytes received"),
    ("rdma.tx", "counter", "B", "bytes sent"),
    ("rdma.phys_state", "gauge", "", "physical state as the kernel counts: 5 is LinkUp"),
    ("rdma.lanes", "gauge", "", "lanes in use, if the kernel reports them"),
    ("rdma.errors", "counter", "", "sum of the error counters"),
    ("rdma.phys_errors", "counter", "", "symbol, integrity, receive and CRC errors"),
    ("rdma.link_downs", "counter", "", "times that the link failed"),
    ("rdma.link_recoveries", "counter", "", "times that the link was trained again"),
    ("rdma.retries_exhausted", "counter", "", "sends given up because the peer did not answer"),
    ("rdma.retx", "counter", "", "retransmitted or out-of-sequence packets"),
    ("rdma.timeouts", "counter", "", "acknowledgements that came too late"),
    ("rdma.not_ready", "counter", "", "messages for which the receiver had no buffer"),
    ("rdma.congestion", "counter", "", "ECN marks seen and congestion notices taken"),
    ("rdma.discards", "counter", "", "packets dropped by the port"),
    ("rdma.xmit_wait", "counter", "", "ticks with data but without credit to send"),
    ("gpu.used", "gauge", "%", "time a kernel was running"),
    ("gpu.mem_busy", "gauge", "%", "time memory was read or written"),
    ("gpu.encoder", "gauge", "%", "time the video encoder was busy"),
    ("gpu.decoder", "gauge", "%", "time the video decoder was busy"),
    (
        "gpu.active",
        "gauge",
        "%",
        "time the graphics engine was active, mean since the last reading",
    ),
    ("gpu.sm_active", "gauge", "%", "SMs that were busy, mean since the last reading"),
    (
        "gpu.sm_occupancy",
        "gauge",
        "%",
        "warps resident of those that fit, mean since the last reading",
    ),
    (
        "gpu.fp64_active",
        "gauge",
        "%",
        "time SMs did FP64 outside tensor cores, mean since the last reading",
    ),
    (
        "gpu.fp32_active",
        "gauge",
        "%",
        "time SMs did FP32 outside tensor cores, mean since the last reading",
    ),
    (
        "gpu.fp16_active",
        "gauge",
        "%",
        "time SMs did FP16 outside tensor cores, mean since the last reading",
    ),
    ("gpu.jpeg", "gauge", "%", "time the JPEG decoder was busy"),
    ("gpu.optical_flow", "gauge", "%", "time the optical flow engine was busy"),
    ("gpu.vgpu_licensed", "gauge", "", "1 where a vGPU has its license"),
    ("gpu.tensor_active", "gauge", "%", "time tensor cores were busy, mean since the last reading"),
    ("gpu.dram_active", "gauge", "%", "memory bandwidth used, mean since the last reading"),
    ("gpu.pcie_tx", "gauge", "B/s", "sent over PCIe, mean since the last reading"),
    ("gpu.pcie_rx", "gauge", "B/s", "received over PCIe, mean since the last reading"),
    ("gpu.nvlink_tx", "gauge", "B/s", "sent over NVLink, mean since the last reading"),
    ("gpu.nvlink_rx", "gauge", "B/s", "received over NVLink, mean since the last reading"),
    ("gpu.mem_used", "gauge", "B", "memory in use"),
    ("gpu.mem_total", "gauge", "B", "memory installed"),
    ("gpu.mem_reserved", "gauge", "B", "memory that the driver keeps for itself"),
    ("gpu.temp", "gauge", "C", "core temperature"),
    ("gpu.margin", "gauge", "C", "degrees left until it slows down"),
    ("gpu.mem_temp", "gauge", "C", "memory temperature"),
    ("gpu.mem_margin", "gauge", "C", "degrees left until its memory is at its limit"),
    ("gpu.power", "gauge", "W", "power drawn"),
    ("gpu.power_limit", "gauge", "W", "power limit in force"),
    ("gpu.energy", "counter", "J", "energy used since the driver was loaded"),
    ("gpu.clock", "gauge", "Hz", "SM clock"),
    ("gpu.clock_mem", "gauge", "Hz", "memory clock"),
    ("gpu.throttle_reasons", "gauge", "", "why clocks are held down: bits as in NVML"),
    ("gpu.throttle_thermal", "counter", "s", "time slowed down by heat"),
    ("gpu.throttle_soft", "counter", "s", "time slowed down by the driver to stay cool"),
    ("gpu.throttle_power", "counter", "s", "time slowed down by the power limit"),
    ("gpu.throttle_brake", "counter", "s", "time slowed down by the power supply"),
    ("gpu.ecc_corrected", "counter", "", "corrected ECC errors since boot"),
    ("gpu.ecc_uncorrected", "counter", "", "uncorrected ECC errors since boot"),
    ("gpu.ecc_uncorrected_ever", "counter", "", "uncorrected ECC errors since the GPU was made"),
    ("gpu.ecc_threshold", "gauge", "", "1 where SRAM errors passed NVIDIA's threshold"),
    ("gpu.remap_corrected", "gauge", "", "rows replaced after corrected errors"),
    ("gpu.remap_uncorrected", "gauge", "", "rows replaced after uncorrected errors"),
    ("gpu.remap_pending", "gauge", "", "1 where a row is replaced at the next reset"),
    ("gpu.remap_failed", "gauge", "", "1 where a row could not be replaced"),
    ("gpu.retired", "gauge", "", "memory pages retired"),
    ("gpu.retired_pending", "gauge", "", "1 where a page is retired at the next reset"),
    ("gpu.recovery", "gauge", "", "0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset"),
    ("gpu.on_bus", "gauge", "", "NVIDIA GPUs that the driver sees on the PCI bus"),
    ("gpu.reset_required", "gauge", "", "1 where NVML refuses a GPU until it is reset"),
    ("gpu.lost", "gauge", "", "1 where the driver says that the GPU is lost"),
    ("gpu.nvlinks", "gauge", "", "NVLinks that could be up"),
    ("gpu.nvlinks_active", "gauge", "", "NVLinks that are up"),
    ("gpu.nvlink_errors", "counter", "", "CRC, replay and recovery errors of all NVLinks"),
    ("gpu.fabric", "gauge", "", "1 not started, 2 in progress, 3 in the NVSwitch fabric"),
    ("gpu.fabric_status", "gauge", "", "NVML's error of the registration in the fabric; 0 none"),
    ("gpu.fabric_health", "gauge", "", "faults of the fabric: mask as in NVML, 2 bits each"),
    ("gpu.pcie_gen", "gauge", "", "PCIe generation now: lower when idle"),
    ("gpu.pcie_gen_max", "gauge", "", "highest PCIe generation of GPU and slot"),
    ("gpu.pcie_width", "gauge", "", "PCIe lanes now"),
    ("gpu.pcie_width_max", "gauge", "", "most PCIe lanes of GPU and slot"),
    ("gpu.pcie_replays", "counter", "", "PCIe packets sent again"),
    ("gpu.processes", "gauge", "", "processes that compute on it"),
    ("gpu.mig_mem_used", "gauge", "B", "memory in use, per GPU:MIG instance"),
    ("gpu.mig_mem_total", "gauge", "B", "memory of a MIG instance"),
    ("gpu.answer", "gauge", "s", "how long the driver took to answer, or has not answered"),
    ("agent.lag", "gauge", "s", "how late the last sample was"),
)


class Hello(Value):
    """The identity of a node; retained by the broker.

    With `up=False`: the agent has ended (its goodbye or last will).
    """

    node: str
    up: bool
    at: float = 0.0
    """Epoch seconds of the node's clock."""
    boot: str = ""
    """The kernel's boot id."""
    agent: str = ""
    """Version of the agent."""
    period: float = 1.0
    """Seconds between two samples; a node silent for several of these is unknown."""
    inventory: Mapping[str, str] = field(default_factory=dict[str, str])
    """Strings such as kernel, os, cpu.model, gpu.0.model, rdma.mlx5_0/1.fw."""
    simulated: tuple[str, ...] = ()
    """Prefixes of metrics that are simulated ("gpu", "rdma"); screens mark them."""
    installed: bool = False
    """The agent runs as a service on the node: a console starts no second one there."""
    heartbeat: float = 0.0
    """Health is sent at least once in this many seconds."""


ReasonRow = tuple[str, int, str, Optional[float], str]
"""(check, level 1 to 3, device, seconds since it began or None if not known, sentence)."""


class HealthReport(Value):
    """The health of a node, judged by its own agent; retained, at most
    REPORT_LIMIT bytes, BARE_LIMIT without reasons.

    A metric that is in neither `numbers` nor `failed` does not exist on this node, or has no value
    yet. The worst reason comes first. To save room, a sentence may lack its end or be empty.
    """

    at: float
    """Epoch seconds of the node's clock."""
    level: int
    """0 ok, 1 unknown, 2 warn, 3 bad; includes the reasons that had no room."""
    heartbeat: float
    """The next report comes within this many seconds."""
    applies: int = 0
    """Bit n: check n applies to this node."""
    judged: int = 0
    """Bit n: check n could be judged."""
    reasons: tuple[ReasonRow, ...] = ()
    more: int = 0
    """How many reasons had no room; none of them is worse than the last listed one."""
    numbers: Mapping[str, Number] = field(default_factory=dict[str, Number])
    """One number for each metric of `rules.levels.SUMMARY` that is known."""
    failed: tuple[str, ...] = ()
    """Metrics of `rules.levels.SUMMARY` that could not be read."""
    expect: str = ""
    """Fingerprint of the expectations that the agent judges by; "" for none."""
    limits: str = ""
    """A sentence about what cannot be seen on this node; only in the report of a sample."""
    grown: Mapping[str, Mapping[str, Number]] = field(default_factory=dict[str, dict[str, Number]])
    """`METRIC/SECONDS`, a counter and its window -> device -> growth in that
    window; only in the report of a sample.
    """


REPORT_LIMIT = 8192
"""Limit in bytes of a health message of a sick node. The report of a sample may be longer."""
BARE_LIMIT = 600
"""Limit in bytes of a health message without reasons: what a node that is well sends."""


class Sample(Value):
    """The numbers of one reading; `at` is in epoch seconds of the node's clock.

    A metric that is in neither `values`, `absent` nor `failed` keeps its last value.
    """

    seq: int
    at: float
    values: Values
    absent: tuple[str, ...] = ()
    """Metrics that this node does not have."""
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """METRIC or METRIC/DEVICE -> why it could not be read; never shown as 0."""
    report: Optional[HealthReport] = None
    """The agent's judgement of this sample; None only before it is judged, never in a message."""
    blind: tuple[str, ...] = ()
    """Those keys of `failed` where nothing is at fault: a saturated
    counter, a log that this user may not read.
    """


class Event(Value):
    """Something that happened on a node. `level` is "ok", "info", "warn" or "bad".

    `check` is `agent.<collector>`, or `kernel.<kind>` for a line of the kernel log: xid (the device
    is the GPU's PCI address), sxid, gpu, oom, hung, lockup, panic, nfs, lustre, gpfs, disk, edac,
    mce, thermal, voltage, mlx5, bnxt, link, pcie, files, nccl, peermem, nvlink, amdgpu; or
    `kernel.log` if lines were lost or folded. When the agent starts, it sends recent events again
    with the same `at` (epoch seconds). "ok" ends earlier events of the same check and device.
    """

    at: float
    level: str
    check: str
    text: str
    device: str = ""
    number: Optional[int] = None
    """The number of an Xid or SXid."""
    link: Optional[int] = None
    """The NVLink that it is about."""


Message = Union[Hello, HealthReport, Sample, Event]
_KINDS: dict[str, Any] = {"hello": Hello, "health": HealthReport, "sample": Sample, "event": Event}


_NUMBERS = frozenset({int, float})
_TABLES = frozenset({dict})
_JSON = json.JSONDecoder()


class WireError(ValueError):
    """A message that cannot be decoded; the text says why."""


def encode_message(message: Message) -> bytes:
    """Compact JSON of one telemetry message; raises ValueError for NaN or infinity."""
    # The fields need no conversion: asdict would copy them all, at three times the cost.
    text = json.dumps(
        vars(message), separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=vars
    )
    return text.encode("utf-8", "replace")


_TIME = re.compile(rb'\{"at":(\d{1,12}(?:\.\d{1,12})?)')


def split_time(payload: bytes) -> tuple[Optional[float], bytes]:
    """The time of an encoded message whose first field is `at` (None if it is
    not), and the bytes after the first comma.
    """
    head, _, rest = payload.partition(b",")
    found = _TIME.fullmatch(head)
    return (float(found.group(1)) if found else None), rest


def decode_message(kind: str, payload: bytes) -> Message:
    """The message of this kind ("hello", "health", …) in `payload`.

    Ignores unknown keys; raises WireError if it is malformed.
    """
    make = _KINDS.get(kind)
    if make is None:
        raise WireError(f"unknown kind of message {kind[:40]!r}")
    try:
        return _made(make, _known(make, _JSON.decode(payload.decode())))
    except WireError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"bad {kind}: {str(error)[:200]}") from error


def _known(make: Any, raw: Any) -> dict[str, Any]:  # noqa: ANN401 - decoded JSON
    return {k: v for k, v in raw.items() if k in list_fields(make)}


def _made(make: Any, fields: dict[str, Any]) -> Message:  # noqa: ANN401 - a class of messages
    """The message with these fields; raises WireError, or what the constructor raises.

    Checks only reports and samples.
    """
    if make is HealthReport:
        return _report(fields)
    if make is Sample:
        _check_values(fields.get("values"))
        if fields.get("report") is not None:
            fields["report"] = _report(_known(HealthReport, fields["report"]))
    message: Message = make(**fields)
    return message


def _report(fields: dict[str, Any]) -> HealthReport:
    """The report, after checking type and range of every field; raises WireError.

    One wrong field makes the whole report invalid: the rest of it
    could look better than the node is.
    """
    told = fields.get("reasons", ())
    reasons = tuple(map(_reason_row, _listed(told, "reasons")))
    failed = tuple(_listed(fields.get("failed", ()), "failed"))
    checked: dict[str, Any] = {**fields, "reasons": reasons, "failed": failed}
    made = HealthReport(**checked)
    whole = (made.level, made.applies, made.judged, made.more)
    if any(type(number) is not int or not 0 <= number < 1 << 53 for number in whole):
        raise WireError("bad health: level, applies, judged and more are whole numbers")
    if made.level > 3 or not all(map(_is_number, (made.at, made.heartbeat))):
        raise WireError("bad health: no such level, or at and heartbeat are no numbers")
    if not (0 < made.heartbeat <= LONGEST_HEARTBEAT):
        raise WireError(f"bad health: a heartbeat of {made.heartbeat:g} s")
    if not all(isinstance(text, str) for text in (made.expect, made.limits, *failed)):
        raise WireError("bad health: expect, limits and the names of failed are texts")
    if any(row[1] > made.level for row in reasons):
        raise WireError("bad health: a reason is worse than its level")
    _check_values({"numbers": made.numbers})
    _check_values(made.grown)
    return replace(made, more=made.more + len(told) - len(reasons))


LONGEST_HEARTBEAT = 3600.0
_MOST_LISTED = 256


def _is_number(raw: Any) -> bool:  # noqa: ANN401 - decoded JSON
    return type(raw) in _NUMBERS and -1e18 < raw < 1e18


def _listed(raw: Any, what: str) -> list[Any]:  # noqa: ANN401 - decoded JSON
    if not isinstance(raw, (list, tuple)):
        raise WireError(f"bad health: {what} is no list")
    found: list[Any] = list(raw[:_MOST_LISTED])  # pyright: ignore[reportUnknownArgumentType]
    return found


def _reason_row(raw: Any) -> ReasonRow:  # noqa: ANN401 - decoded JSON
    row = _listed(raw, "a reason")
    if len(row) < 5:
        raise WireError("bad health: a reason has fewer than five parts")
    check, level, device, held, text = row[:5]
    texts = all(isinstance(one, str) for one in (check, device, text))
    if not texts or type(level) is not int or not 1 <= level <= 3:
        raise WireError("bad health: a reason is not check, level, device, seconds, text")
    if held is not None and not (_is_number(held) and held >= 0):
        raise WireError("bad health: a reason began at no time")
    return check, level, device, held, text


def _check_values(values: Any) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(values, dict):
        raise WireError("bad sample: values is not a table")
    tables: list[Any] = list(values.values())  # pyright: ignore[reportUnknownArgumentType]
    if not _TABLES.issuperset(map(type, tables)):
        raise WireError("bad sample: a metric is not a table")
    numbers: Iterator[Any] = chain.from_iterable(table.values() for table in tables)
    if not _NUMBERS.issuperset(map(type, numbers)):
        raise WireError("bad sample: a value is not a number")


# ---- jobs: what goes to a supervisor, and what comes back -------------------------------


class NodeFile(Value):
    """A file that is written into the run folder before anything
    starts; `path` is relative to it.
    """

    path: str
    text: str
    mode: int = 0o644


class ProcessPlan(Value):
    """A process that the supervisor of a node starts.

    `rank` is the global rank; None means a launcher (mpirun, torchrun),
    whose output is sent as rank LAUNCHER.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    """Working directory; "" is the home folder."""
    rank: Optional[int] = None


class NodePlan(Value):
    """Everything that the supervisor of one node does for one job."""

    job: str
    node: str
    ranks: tuple[int, ...]
    """Global ranks that will run here, no matter which process starts them."""
    processes: tuple[ProcessPlan, ...] = ()
    files: tuple[NodeFile, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the environment of every process of the job on this node, MPI daemons included."""
    tty: bool = True
    """Whether each rank's stdout is a terminal, so that C programs flush it after each line."""
    grace: float = 10.0
    """Grace period: seconds from SIGTERM to SIGKILL."""
    elsewhere: bool = False
    """The ranks run on other machines that share the run folder and have no supervisor (Slurm)."""
    network: str = ""
    """The job network (CIDR), where the node finds what the tokens of it stand for."""
    interface: str = ""
    """The node's interface in it; "": the one that has an address there."""
    patience: float = 1.0
    """All waits of the node for the console are so many times as long as usual."""


def _process_plan(raw: dict[str, Any]) -> ProcessPlan:
    raw["argv"] = tuple(raw["argv"])
    return ProcessPlan(**raw)


def node_plan(raw: Optional[Mapping[str, Any]]) -> NodePlan:
    """The NodePlan that this decoded JSON object describes; raises WireError, also for None."""
    if raw is None:
        raise WireError("bad plan: not a JSON object")
    try:
        values = dict(raw)
        values["ranks"] = tuple(int(r) for r in values["ranks"])
        values["files"] = tuple(NodeFile(**f) for f in values.get("files", ()))
        values["processes"] = tuple(
            _process_plan(dict(process)) for process in values.get("processes", ())
        )
        return NodePlan(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"bad plan: {error}") from error
