"""A simulated machine that looks to an agent as if it had 8 GPUs and 8 RDMA ports."""

from importlib.util import find_spec
from pathlib import Path

from tests.support import nvml

PORTS = 8
_PMA = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
]
_MLX5 = [
    "duplicate_request",
    "implied_nak_seq_err",
    "lifespan",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_dct_connect",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
]

COUNTERS = {"counters": _PMA, "hw_counters": _MLX5}
"""Folder of a port -> the counters in it."""


def missing() -> str:
    """Why the machine cannot be simulated here; "" if it can."""
    if find_spec("pynvml") is None:
        return "8 GPUs not measured, no process would ask NVML: pip install nvidia-ml-py"
    return nvml.missing()


def make(root: Path) -> Path:
    """This machine's own /proc and /sys, with eight mlx5 ports in them."""
    ports = root / "sys/class/infiniband"
    ports.mkdir(parents=True)
    (root / "proc").symlink_to("/proc")
    _link(Path("/sys"), root / "sys")
    _link(Path("/sys/class"), root / "sys/class")
    for number in range(PORTS):
        _port(ports / f"mlx5_{number}")
    return root


def make_gpus(folder: Path) -> dict[str, str]:
    """The environment in which eight H100 answer."""
    folder.mkdir()
    nvml.build(folder)
    gpus = nvml.Machine(folder / "gpus")
    return {"RANKDECK_NVML": str(folder), "FAKE_NVML": str(gpus.file)}


def _link(source: Path, target: Path) -> None:
    for entry in source.iterdir():
        if not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)


def _port(device: Path) -> None:
    port = device / "ports/1"
    files = {"fw_ver": "28.39.1002", "hca_type": "MT4129", "board_id": "MT_0000000838"}
    files |= {f"ports/1/counters/{name}": "0" for name in _PMA}
    files |= {f"ports/1/hw_counters/{name}": "0" for name in _MLX5}
    files |= {
        "ports/1/state": "4: ACTIVE",
        "ports/1/phys_state": "5: LinkUp",
        "ports/1/rate": "400 Gb/sec (4X NDR)",
        "ports/1/link_layer": "Ethernet",
        "ports/1/counters/port_rcv_data": "123456789012",
        "ports/1/counters/port_xmit_data": "123456789012",
    }
    for folder in ("counters", "hw_counters"):
        (port / folder).mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(f"{text}\n")
