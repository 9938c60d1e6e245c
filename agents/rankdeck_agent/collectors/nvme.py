"""State and health of NVMe drives."""

import array
import fcntl
import os
import struct
from collections.abc import Mapping
from typing import Callable

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text

_BASE = "sys/class/nvme"
_LIMIT = 64
_IDENTITY = (("model", "model"), ("firmware", "firmware_rev"), ("serial", "serial"))
_STATES = {"live": 1, "new": 0.5, "resetting": 0.5, "connecting": 0.5}
"""State of a controller -> nvme.live (linux drivers/nvme/host/core.c); those
between 0 and 1 pass, unless something is wrong.
"""
# linux include/uapi/linux/nvme_ioctl.h, include/linux/nvme.h
_ADMIN_COMMAND = 0xC0484E41
_COMMAND = struct.Struct("=BBHIIIQQII6III")
_GET_LOG, _HEALTH, _ALL = 0x02, 0x02, 0xFFFFFFFF
LOG_SIZE = 512
_PATIENCE_MS = 5000
_KELVIN = 273
_UNIT = 512_000
"""Bytes per data unit of the health log."""
_LASTING = 0b101100
"""Bits of the critical warning that mean a failing drive: reliability degraded,
read-only, persistent memory region lost.
"""


class NvmeCollector:
    """State of each NVMe controller: unless it is "live", its disks do not answer."""

    name = "nvme"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = ("nvme.live",)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        names: list[str] = []
        reading.attempt(self.metrics, lambda: names.extend(self._tree.names(_BASE)))
        reading.say_cut("nvme.drives", "NVMe drives", len(names), _LIMIT)
        for name in names[:_LIMIT]:
            self.doing = name
            device = clean_text(name)
            reading.attempt(
                self.metrics, lambda n=name, d=device: self._state(reading, n, d), device
            )
        self.doing = ""
        reading.inventory = self._inventory
        return reading

    def _state(self, reading: Reading, name: str, device: str) -> None:
        state = self._tree.text(f"{_BASE}/{name}/state")
        reading.put("nvme.live", _STATES.get(state, 0), device)
        if f"nvme.{device}.model" not in self._inventory:
            for what, file in _IDENTITY:
                text = self._tree.maybe(f"{_BASE}/{name}/{file}") or ""
                self._inventory[f"nvme.{device}.{what}"] = clean_text(text)
            if (self._tree.maybe(f"{_BASE}/{name}/transport") or "pcie") != "pcie":
                self._inventory[f"nvme.{device}.kind"] = "fabric"
        if self._inventory.get(f"nvme.{device}.state") != state:
            self._inventory = {**self._inventory, f"nvme.{device}.state": state}


class NvmeHealthCollector:
    """The health log of each NVMe drive; needs root.

    Has a thread of its own: a dying drive answers after a minute, or never.
    """

    name = "nvme_health"
    lane = "nvme_health"
    period = 300.0
    metrics: tuple[str, ...] = (
        "nvme.failing",
        "nvme.warning",
        "nvme.temp",
        "nvme.spare",
        "nvme.worn",
        "nvme.media_errors",
        "nvme.unsafe_shutdowns",
        "nvme.power_on",
        "nvme.read",
        "nvme.written",
    )

    def __init__(self, root: str = "/", ask: "Callable[[str], bytes] | None" = None) -> None:
        self.doing = ""
        self._tree = Tree(root)
        # Below another root the drives are of another machine and cannot be asked.
        self._ask = ask or (health_log if root == "/" else None)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        for name in self._tree.names(_BASE)[:_LIMIT] if self._ask else ():
            # A controller that is not live would block us until its time limit.
            if clean_text(name) == name and self._tree.maybe(f"{_BASE}/{name}/state") == "live":
                self.doing = name
                reading.attempt(self.metrics, lambda n=name: self._health(reading, n), name)
        self.doing = ""
        return reading

    def _health(self, reading: Reading, name: str) -> None:
        if self._ask is None:
            return
        try:
            log = self._ask(name)
        except PermissionError:
            # Not root: the metrics are absent, and the inventory says why.
            reading.inventory = {**reading.inventory, f"nvme.{name}.health": "not read: needs root"}
            return
        reading.put_all(parse_health_log(log), name)


def parse_health_log(log: bytes) -> Mapping[str, int]:
    """The numbers of a health log (NVM Express base specification,
    log page 02h); raises ValueError.
    """
    if len(log) < LOG_SIZE:
        raise ValueError(f"a health log of {len(log)} bytes")
    warning, kelvin, spare, _, worn = struct.unpack_from("<BHBBB", log)

    def counted(at: int) -> int:
        return int.from_bytes(log[at : at + 16], "little")

    found = {
        "nvme.failing": int(bool(warning & _LASTING)),
        "nvme.warning": int(bool(warning)),
        "nvme.spare": spare,
        "nvme.worn": worn,
        "nvme.read": counted(32) * _UNIT,
        "nvme.written": counted(48) * _UNIT,
        "nvme.power_on": counted(128) * 3600,
        "nvme.unsafe_shutdowns": counted(144),
        "nvme.media_errors": counted(160),
    }
    # 0 kelvin: the drive does not report its temperature.
    return {**found, "nvme.temp": kelvin - _KELVIN} if kelvin else found


def health_log(name: str) -> bytes:
    """The health log of a controller of this machine, such as nvme0; raises
    OSError, PermissionError without root.
    """
    handle = os.open(f"/dev/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = array.array("B", bytes(LOG_SIZE))
        address, _ = data.buffer_info()
        words = (LOG_SIZE // 4 - 1) << 16 | _HEALTH
        packed = _COMMAND.pack(
            *(_GET_LOG, 0, 0, _ALL, 0, 0, 0),
            *(address, 0, LOG_SIZE),
            *(words, 0, 0, 0, 0, 0, _PATIENCE_MS, 0),
        )
        status = fcntl.ioctl(handle, _ADMIN_COMMAND, bytearray(packed))
        if status:
            raise OSError(f"the drive refuses its health log: status {status:#x}")
        return data.tobytes()
    finally:
        os.close(handle)
