"""NVMe drives: whether the controller is live, and what it says of its own health (log page 02h, as smartctl shows it)."""

import array
import fcntl
import os
import struct
from collections.abc import Mapping
from typing import Callable

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.files import Tree, clean

_BASE = "sys/class/nvme"
_LIMIT = 64
_IDENTITY = (("model", "model"), ("firmware", "firmware_rev"), ("serial", "serial"))


class NvmeCollector:
    """State per controller: anything but "live" means that its disks do not answer."""

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
        for name in names[:_LIMIT]:
            self.doing = name
            device = clean(name)
            reading.attempt(
                self.metrics, lambda n=name, d=device: self._state(reading, n, d), device
            )  # fmt: skip
        self.doing = ""
        reading.inventory = self._inventory
        return reading

    def _state(self, reading: Reading, name: str, device: str) -> None:
        state = self._tree.text(f"{_BASE}/{name}/state")
        reading.put("nvme.live", int(state == "live"), device)
        if f"nvme.{device}.model" not in self._inventory:
            for what, file in _IDENTITY:
                text = self._tree.maybe(f"{_BASE}/{name}/{file}") or ""
                self._inventory[f"nvme.{device}.{what}"] = clean(text)
        if self._inventory.get(f"nvme.{device}.state") != state:
            self._inventory = {**self._inventory, f"nvme.{device}.state": state}


# linux include/uapi/linux/nvme_ioctl.h, include/linux/nvme.h
_ADMIN_COMMAND = 0xC0484E41
_COMMAND = struct.Struct("=BBHIIIQQII6III")
_GET_LOG, _HEALTH, _ALL = 0x02, 0x02, 0xFFFFFFFF
LOG_SIZE = 512
_PATIENCE_MS = 5000
_KELVIN = 273
_UNIT = 512_000
"""Bytes in one of the log's units of data."""
_LASTING = 0b101100
"""Reliability degraded, read-only, persistent memory region gone: the drive is failing."""


class NvmeHealthCollector:
    """What each drive of this machine tells of its health; needs root, else nothing.

    A thread of its own: a drive that dies answers after a minute, or never.
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
        # Under another root the drives are those of another machine: nobody to ask.
        self._ask = ask or (health_log if root == "/" else None)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        for name in self._tree.names(_BASE)[:_LIMIT] if self._ask else ():
            # One that is not live would hold us for its time limit.
            if clean(name) == name and self._tree.maybe(f"{_BASE}/{name}/state") == "live":
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
            # Not root: as if the drive could not tell, with a word in the inventory.
            reading.inventory = {**reading.inventory, f"nvme.{name}.health": "not read: needs root"}
            return
        for metric, number in parsed(log).items():
            reading.put(metric, number, name)


def parsed(log: bytes) -> Mapping[str, int]:
    """The numbers of a health log (NVM Express base specification, log page 02h); raises ValueError."""
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
    # 0: it does not tell.
    return {**found, "nvme.temp": kelvin - _KELVIN} if kelvin else found


def health_log(name: str) -> bytes:
    """The health log of a controller of this machine, such as nvme0; raises OSError, PermissionError without root."""
    handle = os.open(f"/dev/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = array.array("B", bytes(LOG_SIZE))
        address, _ = data.buffer_info()
        words = (LOG_SIZE // 4 - 1) << 16 | _HEALTH
        command = bytearray(
            _COMMAND.pack(_GET_LOG, 0, 0, _ALL, 0, 0, 0, address, 0, LOG_SIZE,
                          words, 0, 0, 0, 0, 0, _PATIENCE_MS, 0)
        )  # fmt: skip
        status = fcntl.ioctl(handle, _ADMIN_COMMAND, command)
        if status:
            raise OSError(f"the drive refuses its health log: status {status:#x}")
        return data.tobytes()
    finally:
        os.close(handle)
