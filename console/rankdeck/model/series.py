"""Maps metrics to series of Prometheus, with the names and units that existing
dashboards expect; groups of them by name.
"""

import re
from collections.abc import Callable, Mapping

from rankdeck.values import Value
from rankdeck_agent.wire import METRICS

Number = int | float
Convert = Callable[[Number], Number]
Kinds = frozenset[str]
"""Kinds of series: the first part of metrics, and `health`, `node` (versions, models), `switch`."""
MIB = 1 << 20


class Series(Value):
    """Name of a series, and how a metric is converted to its unit (None: it is in it).

    `kind` is gauge, counter or untyped.
    """

    name: str
    kind: str
    help: str
    convert: Convert | None = None
    mode: str = ""
    """The label `mode`, which tells apart metrics that share a name."""


def escape_label(text: str, *, quotes: bool = False) -> str:
    """A text for an exposition format or PromQL; `quotes`: between double quotes."""
    safe = text.replace("\\", "\\\\").replace("\n", "\\n")
    return safe.replace('"', '\\"') if quotes else safe


def labels_text(labels: Mapping[str, str]) -> str:
    """`{key="value"}`; "" without labels."""
    pairs = ",".join(f'{key}="{escape_label(value, quotes=True)}"' for key, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def times_factor(factor: float) -> Convert:
    """A conversion by a factor."""
    return lambda value: value * factor


def _state_id(up: Number) -> Number:
    """The kernel's number for a port state: 4 (active) or 1 (down)."""
    return 4 if up else 1


# Units of node_exporter are base units; those of dcgm-exporter are MiB, MHz, W and mJ.
_KNOWN: Mapping[str, tuple[str, Convert] | str] = {
    "cpu.load1": "node_load1",
    "cpu.load5": "node_load5",
    "cpu.load15": "node_load15",
    "psi.cpu_waiting": "node_pressure_cpu_waiting_seconds_total",
    "psi.mem_waiting": "node_pressure_memory_waiting_seconds_total",
    "psi.mem_stalled": "node_pressure_memory_stalled_seconds_total",
    "psi.io_waiting": "node_pressure_io_waiting_seconds_total",
    "psi.io_stalled": "node_pressure_io_stalled_seconds_total",
    "psi.irq_stalled": "node_pressure_irq_stalled_seconds_total",
    "kernel.context_switches": "node_context_switches_total",
    "kernel.forks": "node_forks_total",
    "kernel.interrupts": "node_intr_total",
    "kernel.procs_running": "node_procs_running",
    "kernel.procs_blocked": "node_procs_blocked",
    "mem.total": "node_memory_MemTotal_bytes",
    "mem.available": "node_memory_MemAvailable_bytes",
    "mem.corrupted": "node_memory_HardwareCorrupted_bytes",
    "mem.oom_kills": "node_vmstat_oom_kill",
    "edac.mc_ce": "node_edac_correctable_errors_total",
    "edac.mc_ue": "node_edac_uncorrectable_errors_total",
    "edac.row_ce": "node_edac_csrow_correctable_errors_total",
    "edac.row_ue": "node_edac_csrow_uncorrectable_errors_total",
    "sensor.temp": "node_hwmon_temp_celsius",
    "sensor.fan": "node_hwmon_fan_rpm",
    "sensor.voltage": "node_hwmon_in_volts",
    "sensor.current": "node_hwmon_curr_amps",
    "sensor.power": "node_hwmon_power_watt",
    "disk.size": "node_filesystem_size_bytes",
    "disk.free": "node_filesystem_avail_bytes",
    "disk.free_all": "node_filesystem_free_bytes",
    "disk.inodes": "node_filesystem_files",
    "disk.inodes_free": "node_filesystem_files_free",
    "disk.readonly": "node_filesystem_readonly",
    "disk.read": "node_disk_read_bytes_total",
    "disk.write": "node_disk_written_bytes_total",
    "disk.reads": "node_disk_reads_completed_total",
    "disk.reads_merged": "node_disk_reads_merged_total",
    "disk.read_time": "node_disk_read_time_seconds_total",
    "disk.writes": "node_disk_writes_completed_total",
    "disk.writes_merged": "node_disk_writes_merged_total",
    "disk.write_time": "node_disk_write_time_seconds_total",
    "disk.in_flight": "node_disk_io_now",
    "disk.busy": "node_disk_io_time_seconds_total",
    "disk.queued": "node_disk_io_time_weighted_seconds_total",
    "disk.discards": "node_disk_discards_completed_total",
    "disk.discards_merged": "node_disk_discards_merged_total",
    "disk.discarded": ("node_disk_discarded_sectors_total", times_factor(1 / 512)),
    "disk.discard_time": "node_disk_discard_time_seconds_total",
    "disk.flushes": "node_disk_flush_requests_total",
    "disk.flush_time": "node_disk_flush_requests_time_seconds_total",
    "net.rx": "node_network_receive_bytes_total",
    "net.tx": "node_network_transmit_bytes_total",
    "net.rx_packets": "node_network_receive_packets_total",
    "net.rx_errors": "node_network_receive_errs_total",
    "net.rx_drops": "node_network_receive_drop_total",
    "net.rx_fifo": "node_network_receive_fifo_total",
    "net.frame_errors": "node_network_receive_frame_total",
    "net.rx_compressed": "node_network_receive_compressed_total",
    "net.multicast": "node_network_receive_multicast_total",
    "net.tx_packets": "node_network_transmit_packets_total",
    "net.tx_errors": "node_network_transmit_errs_total",
    "net.tx_drops": "node_network_transmit_drop_total",
    "net.tx_fifo": "node_network_transmit_fifo_total",
    "net.collisions": "node_network_transmit_colls_total",
    "net.carrier_errors": "node_network_transmit_carrier_total",
    "net.tx_compressed": "node_network_transmit_compressed_total",
    "net.up": "node_network_up",
    "net.speed": ("node_network_speed_bytes", times_factor(1 / 8)),
    "net.mtu": "node_network_mtu_bytes",
    "net.carrier_changes": "node_network_carrier_changes_total",
    "rdma.up": ("node_infiniband_state_id", _state_id),
    "rdma.phys_state": "node_infiniband_physical_state_id",
    "rdma.rate": ("node_infiniband_rate_bytes_per_second", times_factor(1 / 8)),
    "rdma.rx": "node_infiniband_port_data_received_bytes_total",
    "rdma.tx": "node_infiniband_port_data_transmitted_bytes_total",
    "gpu.used": "DCGM_FI_DEV_GPU_UTIL",
    "gpu.mem_busy": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "gpu.encoder": "DCGM_FI_DEV_ENC_UTIL",
    "gpu.decoder": "DCGM_FI_DEV_DEC_UTIL",
    "gpu.active": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", times_factor(0.01)),
    "gpu.sm_active": ("DCGM_FI_PROF_SM_ACTIVE", times_factor(0.01)),
    "gpu.sm_occupancy": ("DCGM_FI_PROF_SM_OCCUPANCY", times_factor(0.01)),
    "gpu.fp64_active": ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", times_factor(0.01)),
    "gpu.fp32_active": ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", times_factor(0.01)),
    "gpu.fp16_active": ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", times_factor(0.01)),
    "gpu.vgpu_licensed": "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "gpu.tensor_active": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", times_factor(0.01)),
    "gpu.dram_active": ("DCGM_FI_PROF_DRAM_ACTIVE", times_factor(0.01)),
    "gpu.pcie_tx": "DCGM_FI_PROF_PCIE_TX_BYTES",
    "gpu.pcie_rx": "DCGM_FI_PROF_PCIE_RX_BYTES",
    "gpu.nvlink_tx": "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "gpu.nvlink_rx": "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "gpu.mem_used": ("DCGM_FI_DEV_FB_USED", times_factor(1 / MIB)),
    "gpu.mem_total": ("DCGM_FI_DEV_FB_TOTAL", times_factor(1 / MIB)),
    "gpu.mem_reserved": ("DCGM_FI_DEV_FB_RESERVED", times_factor(1 / MIB)),
    "gpu.temp": "DCGM_FI_DEV_GPU_TEMP",
    "gpu.mem_temp": "DCGM_FI_DEV_MEMORY_TEMP",
    "gpu.power": "DCGM_FI_DEV_POWER_USAGE",
    "gpu.power_limit": "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "gpu.energy": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", times_factor(1000)),
    "gpu.clock": ("DCGM_FI_DEV_SM_CLOCK", times_factor(1e-6)),
    "gpu.clock_mem": ("DCGM_FI_DEV_MEM_CLOCK", times_factor(1e-6)),
    "gpu.throttle_reasons": "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "gpu.ecc_corrected": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "gpu.ecc_uncorrected": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "gpu.remap_corrected": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "gpu.remap_uncorrected": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "gpu.remap_pending": "DCGM_FI_DEV_ROW_REMAP_PENDING",
    "gpu.remap_failed": "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "gpu.pcie_gen": "DCGM_FI_DEV_PCIE_LINK_GEN",
    "gpu.pcie_gen_max": "DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
    "gpu.pcie_width": "DCGM_FI_DEV_PCIE_LINK_WIDTH",
    "gpu.pcie_width_max": "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
    "gpu.pcie_replays": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
}
_UNTYPED = frozenset({"mem.oom_kills"})
"""Metrics that node_exporter exports as untyped."""
_UNITS: Mapping[str, tuple[str, Convert | None]] = {
    "": ("", None),
    "%": ("_ratio", times_factor(0.01)),
    "B": ("_bytes", None),
    "B/s": ("_bytes_per_second", None),
    "s": ("_seconds", None),
    "C": ("_celsius", None),
    "Hz": ("_hertz", None),
    "W": ("_watts", None),
    "J": ("_joules", None),
    "bit/s": ("_bytes_per_second", times_factor(1 / 8)),
    "rpm": ("_rpm", None),
    "V": ("_volts", None),
    "A": ("_amperes", None),
}
_TIME = "cpu.time_"
_ROWS: Mapping[str, tuple[str, str, str]] = {
    "mem.row": ("node_memory_", "_bytes", "gauge"),
    "mem.vmstat": ("node_vmstat_", "", "untyped"),
    "net.stack": ("node_netstat_", "", "untyped"),
    "net.sockets": ("node_sockstat_", "", "gauge"),
    "net.conntrack": ("node_nf_conntrack_", "", "gauge"),
    "kernel.files": ("node_filefd_", "", "gauge"),
    "kernel.entropy": ("node_entropy_", "", "gauge"),
}
"""Metric whose devices are rows of a table of the kernel -> beginning and end of
the names of its series, and their kind.
"""
_WITHOUT_UNIT = "HugePages_"
"""Rows of /proc/meminfo that count pages."""


def _ours(metric: str) -> Series:
    """The series of a metric under Rankdeck's own name."""
    row = METRICS[metric]
    unit, convert = _UNITS[row.unit]
    tail = "_total" if row.kind == "counter" else ""
    name = f"rankdeck_{metric.replace('.', '_')}{unit}{tail}"
    return Series(name, row.kind, row.help, convert)


def _theirs(metric: str, target: tuple[str, Convert] | str) -> Series:
    row = METRICS[metric]
    name, convert = (target, None) if isinstance(target, str) else target
    kind = "untyped" if metric in _UNTYPED else row.kind
    return Series(name, kind, row.help, convert)


OURS: Mapping[str, Series] = {metric: _ours(metric) for metric in METRICS}
THEIRS: Mapping[str, Series] = {
    **{metric: _theirs(metric, target) for metric, target in _KNOWN.items() if metric in METRICS},
    **{
        metric: Series(
            "node_cpu_guest_seconds_total", "counter", "time in virtual machines",
            mode="user" if metric == f"{_TIME}guest" else "nice",
        )
        if metric.startswith(f"{_TIME}guest")
        else Series(
            "node_cpu_seconds_total", "counter", "time of a CPU", mode=metric[len(_TIME) :]
        )
        for metric in METRICS
        if metric.startswith(_TIME)
    },
}  # fmt: skip
ROW_METRICS = frozenset(_ROWS)
"""Metrics each of whose devices is a series of its own; see `of_row`."""


def of_row(metric: str, row: str) -> Series:
    """The series of a row, named by the kernel, of one of ROW_METRICS."""
    head, tail, kind = _ROWS[metric]
    slug = _NO_NAME.sub("_", row).strip("_")
    end = "" if row.startswith(_WITHOUT_UNIT) else tail
    return Series(f"{head}{slug}{end}", kind, f"{METRICS[metric].help}: {row}")


_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")

MADE: Mapping[str, tuple[str, str, str]] = {
    "fb_free": ("DCGM_FI_DEV_FB_FREE", "gauge", "memory free"),
    "nvlink": ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge", "bytes over all NVLinks, both ways, in MB/s"),
}  # fmt: skip
"""Series of dcgm-exporter that are made from several of our metrics: key -> (name, kind, help)."""
NOT_READ: Mapping[str, str] = {
    "DCGM_FI_DEV_XID_ERRORS": "an Xid is an event: see rankdeck_check with check=kernel.xid"
}
"""Default field of dcgm-exporter that is never offered -> why."""
BEFORE_HOPPER: Mapping[str, str] = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "gpu.active",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "gpu.tensor_active",
    "DCGM_FI_PROF_DRAM_ACTIVE": "gpu.dram_active",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "gpu.pcie_tx",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "gpu.pcie_rx",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "gpu.nvlink_tx",
}
"""Field that GPUs before Hopper provide only through DCGM -> the metric that is absent on them."""
NEEDS_DCGM = "needs DCGM: not read here"

# ---- RDMA counters: the kernel's names, and node_exporter's for them ----------------------

_HCA = """
port_xmit_wait port_transmit_wait
port_rcv_packets port_packets_received
port_xmit_packets port_packets_transmitted
unicast_rcv_packets unicast_packets_received
unicast_xmit_packets unicast_packets_transmitted
multicast_rcv_packets multicast_packets_received
multicast_xmit_packets multicast_packets_transmitted
symbol_error symbol_error
link_error_recovery link_error_recovery
link_downed link_downed
port_rcv_errors port_errors_received
port_rcv_remote_physical_errors port_receive_remote_physical_errors
port_rcv_switch_relay_errors port_receive_switch_relay_errors
port_rcv_discards port_discards_received
port_xmit_discards port_discards_transmitted
port_rcv_constraint_errors port_constraint_errors_received
port_xmit_constraint_errors port_constraint_errors_transmitted
local_link_integrity_errors local_link_integrity_errors
excessive_buffer_overrun_errors excessive_buffer_overrun_errors
VL15_dropped vl15_dropped
duplicate_request duplicate_requests_packets
implied_nak_seq_err implied_nak_seq_errors
local_ack_timeout_err local_ack_timeout_errors
np_cnp_sent np_cnp_packets_sent
np_ecn_marked_roce_packets np_ecn_marked_roce_packets_received
out_of_buffer out_of_buffer_drops
out_of_sequence out_of_sequence_packets_received
packet_seq_err packet_sequence_errors
req_cqe_error req_cqes_errors
req_cqe_flush_error req_cqes_flush_errors
req_remote_access_errors req_remote_access_errors
req_remote_invalid_request req_remote_invalid_request_errors
resp_cqe_error resp_cqes_errors
resp_cqe_flush_error resp_cqes_flush_errors
resp_local_length_error resp_local_length_errors
resp_remote_access_errors resp_remote_access_errors
rnr_nak_retry_err rnr_nak_retry_packets_received
roce_adp_retrans roce_adp_retransmits
roce_adp_retrans_to roce_adp_retransmits_timeout
roce_slow_restart roce_slow_restart_used
roce_slow_restart_cnps roce_slow_restart_cnps
roce_slow_restart_trans roce_slow_restart
rp_cnp_handled rp_cnp_packets_handled
rp_cnp_ignored rp_cnp_ignored_packets_received
rx_atomic_requests rx_atomic_requests
rx_dct_connect rx_dct_connect_requests
rx_read_requests rx_read_requests
rx_write_requests rx_write_requests
rx_icrc_encapsulated rx_icrc_encapsulated_errors
"""
_NODE_EXPORTER = {
    kernel: f"node_infiniband_{name}_total"
    for kernel, name in (line.split() for line in _HCA.strip().splitlines())
}
_AS_BYTES = frozenset({"port_rcv_data", "port_xmit_data", "port_rcv_data_64", "port_xmit_data_64"})
"""Counters in units of four bytes; rdma.rx and rdma.tx offer them in bytes."""
_COUNTER = re.compile(r"rdma\.(?:counters|counters_ext|hw_counters)\.(.{1,64})")
_GAUGE = re.compile(r"(?:active|watermark)_\w+|db_fifo_register|num_qps_congested|current_rate")
"""Names of gauges among the counter files of bnxt_re and mana."""
_OTHER = re.compile(r"[^a-z0-9]+")


def of_counter(metric: str) -> Series | None:
    """The series of one RDMA counter that is named by the kernel; None for any other metric."""
    found = _COUNTER.fullmatch(metric)
    if found is None or found[1] in _AS_BYTES:
        return None
    kernel = found[1]
    if kernel == "lifespan":
        age = "how old a counter of this port may be"
        return Series("node_infiniband_lifespan_seconds", "gauge", age, times_factor(1e-3))
    slug = _OTHER.sub("_", kernel.lower()).strip("_")
    if _GAUGE.fullmatch(kernel):
        return Series(f"node_infiniband_hw_{slug}", "gauge", f"{kernel} of the port")
    name = _NODE_EXPORTER.get(kernel, f"node_infiniband_hw_{slug}_total")
    return Series(name, "counter", f"counter {kernel} of the port")


# ---- choices: groups of series, and what the cluster file may name

EVERYTHING: Kinds = frozenset(
    {name.partition(".")[0] for name in METRICS} | {"health", "node", "switch"}
)
GROUPS: Mapping[str, Kinds] = {
    **{kind: frozenset({kind}) for kind in EVERYTHING},
    "meminfo": frozenset({"mem"}),
    "vmstat": frozenset({"mem"}),
    "loadavg": frozenset({"cpu"}),
    "stat": frozenset({"cpu", "kernel"}),
    "filefd": frozenset({"kernel"}),
    "entropy": frozenset({"kernel"}),
    "netdev": frozenset({"net"}),
    "netclass": frozenset({"net"}),
    "netstat": frozenset({"net"}),
    "sockstat": frozenset({"net"}),
    "conntrack": frozenset({"net"}),
    "diskstats": frozenset({"disk"}),
    "filesystem": frozenset({"disk"}),
    "mdadm": frozenset({"md"}),
    "infiniband": frozenset({"rdma"}),
    "pressure": frozenset({"psi"}),
    "hwmon": frozenset({"hwmon", "sensor", "node"}),
    "uname": frozenset({"node"}),
    "time": frozenset({"node"}),
}
"""Name of a group -> its kinds; beside ours the names of node_exporter's collectors."""
_OF_NODES = (
    "rankdeck_node_up", "rankdeck_node_health", "rankdeck_checks_evaluated", "rankdeck_checks",
    "rankdeck_sample_age_seconds", "rankdeck_read_failed", "rankdeck_agent_info", "rankdeck_check",
    "node_uname_info", "node_time_seconds", "node_boot_time_seconds", "node_infiniband_info",
    "node_filesystem_device_error", "node_nvme_info", "node_hwmon_chip_names",
    "rankdeck_dcgm_not_read", "rankdeck_devices_expected", "rankdeck_devices_present",
)  # fmt: skip
"""Series that are no metric of METRICS (prometheus/exporter.py)."""
NAMES = frozenset(
    {series.name for series in (*OURS.values(), *THEIRS.values())}
    | {name for name, _, _ in MADE.values()}
    | {*_OF_NODES, *_NODE_EXPORTER.values()}
)
"""Names of all series but those that the kernel names (see `is_offered`)."""
_BY_KERNEL = re.compile(
    rf"(?:node_infiniband_hw_|{'|'.join(head for head, _, _ in _ROWS.values())})[A-Za-z0-9_]{{1,64}}"
)


def is_offered(name: str) -> bool:
    """Whether there may be a series with this name."""
    return name in NAMES or _BY_KERNEL.fullmatch(name) is not None


ALWAYS = "up"
"""The kind of a series that is always served."""


class Choice(Value):
    """Which series are wanted: those of `kinds`; `words` (groups and names
    of series; () for all) narrows them.
    """

    kinds: Kinds = EVERYTHING
    words: tuple[str, ...] = ()

    def has(self, kind: str, name: str) -> bool:
        """Whether this series is wanted."""
        if kind == ALWAYS:
            return True
        if kind not in self.kinds:
            return False
        return not self.words or any(
            kind in GROUPS[word] if word in GROUPS else word == name for word in self.words
        )
