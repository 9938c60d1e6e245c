"""Raspberry Pi: undervoltage and throttling, as the firmware reports them."""

import fcntl
import os
import struct
from typing import Optional

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import Tree

_MODELS = ("proc/device-tree/model", "sys/firmware/devicetree/base/model")
_HWMON = "sys/class/hwmon"
_WORDS = (
    "sys/devices/platform/soc/soc:firmware/get_throttled",
    "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled",
)
_MAILBOX = "dev/vcio"
_GET_THROTTLED = 0x00030046
"""Tag of the firmware's property interface."""
_ASK = 0xC0006400 | struct.calcsize("P") << 16
"""_IOWR(100, 0, char *): the size is that of a pointer."""
_ANSWERED = 0x80000000
_UNDERVOLT = 1 << 0
_HELD_DOWN = 1 << 1 | 1 << 2 | 1 << 3
"""Clock capped, throttled, soft temperature limit."""
_SINCE_BOOT = 16
_PERIOD = 5.0
_NO_PI = 3600.0
_NOW = ("pi.undervolt", "pi.throttled")
_SEEN = ("pi.undervolt_seen", "pi.throttled_seen")


class PiCollector:
    """The throttle word of the firmware, and the kernel's own alarm where there is none."""

    name = "pi"
    lane = "slow"
    period = _PERIOD
    metrics: tuple[str, ...] = (*_NOW, *_SEEN)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._seen: dict[str, int] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        alarm = _alarm(self._tree)
        if not alarm and not _is_pi(self._tree):
            self.period = _NO_PI
            return reading
        self.period = _PERIOD
        reading.attempt(self.metrics, lambda: self._word(reading))
        if alarm and "pi.undervolt" not in reading.values:
            reading.attempt(("pi.undervolt",), lambda: self._volt(reading, alarm))
        self._remember(reading)
        return reading

    def _word(self, reading: Reading) -> None:
        word = _from_file(self._tree)
        if word is None:
            self.doing = "the firmware"
            word = _from_firmware(self._tree.path(_MAILBOX))
            self.doing = ""
        for metric, bits in zip(_NOW, (_UNDERVOLT, _HELD_DOWN)):
            reading.put(metric, int(word & bits != 0))
            seen = word >> _SINCE_BOOT & bits != 0
            reading.put(f"{metric}_seen", int(seen))

    def _volt(self, reading: Reading, alarm: str) -> None:
        reading.put("pi.undervolt", int(whole(self._tree.read(alarm)) != 0))
        reading.failed.pop("pi.undervolt", None)

    def _remember(self, reading: Reading) -> None:
        """What was seen once stays seen: the kernel's driver clears the firmware's own memory."""
        for now, seen in zip(_NOW, _SEEN):
            values = [reading.values.get(m, {}).get("", 0) for m in (now, seen)]
            if any(values) or self._seen.get(seen):
                self._seen[seen] = 1
                reading.put(seen, 1)
                reading.failed.pop(seen, None)


def _is_pi(tree: Tree) -> bool:
    return any("Raspberry Pi" in (tree.maybe(path) or "") for path in _MODELS)


def _alarm(tree: Tree) -> str:
    for name in tree.names(_HWMON):
        if tree.maybe(f"{_HWMON}/{name}/name") == "rpi_volt":
            return f"{_HWMON}/{name}/in0_lcrit_alarm"
    return ""


def _from_file(tree: Tree) -> Optional[int]:
    """The word from /sys, hexadecimal without 0x; None where this kernel has no such file."""
    for path in _WORDS:
        if tree.exists(path):
            return int(tree.text(path)[:16], 16)
    return None


def _from_firmware(path: str) -> int:
    """The word from the firmware's mailbox, as vcgencmd asks; raises OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Size of all, request, then tag, room for the value, request, value 0: clear nothing.
        message = bytearray(struct.pack("<8I", 32, 0, _GET_THROTTLED, 4, 0, 0, 0, 0))
        fcntl.ioctl(handle, _ASK, message, True)
    finally:
        os.close(handle)
    _, code, _, _, _, value, _, _ = struct.unpack("<8I", message)
    if code != _ANSWERED:
        raise ValueError(f"the firmware does not know its throttle word ({code:#x})")
    return value
