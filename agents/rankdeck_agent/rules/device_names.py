"""What a device of a kind is called in sentences."""

from collections.abc import Mapping

_KINDS: Mapping[str, str] = {
    "agent": "the agent", "cgroup": "the agent's control group", "cpu": "the processor",
    "disk": "disk", "edac": "memory module", "gpu": "GPU", "hwmon": "sensor chip",
    "kernel": "the kernel", "md": "RAID array", "mem": "memory", "net": "interface",
    "nvme": "NVMe drive", "pi": "the Raspberry Pi's firmware", "psi": "the kernel's pressure",
    "rdma": "RDMA port", "sensor": "sensor",
}  # fmt: skip
"""First part of a metric -> what it is about, for people."""
_OF_ALL: Mapping[str, str] = {
    "disk": "the disks", "edac": "the memory modules", "gpu": "the GPUs", "hwmon": "the sensors",
    "md": "the RAID arrays", "net": "the interfaces", "nvme": "the NVMe drives",
    "rdma": "the RDMA ports", "sensor": "the sensors",
}  # fmt: skip
"""The same where no device is named."""


def name_device(key: str) -> str:
    """What `METRIC/DEVICE` or `METRIC` is about: `GPU 1`, `the processor`, `the disks`."""
    metric, _, device = key.partition("/")
    kind = metric.partition(".")[0]
    name = _KINDS.get(kind, kind)
    return f"{name} {device}" if device else _OF_ALL.get(kind, name)


def name_first_device(names: list[str]) -> str:
    """`mlx5_0/1 and 8 more`."""
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")
