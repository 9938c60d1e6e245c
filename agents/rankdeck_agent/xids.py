"""What each Xid of the NVIDIA driver says about the health of a GPU and its node."""

import re
from collections.abc import Mapping

from rankdeck_agent.rules.table import RESET
from rankdeck_agent.values import Value

OFF_THE_BUS = 79
_RECOVERY_CHANGED = 154


class Xid(Value):
    """What an Xid means.

    `level` is "bad", "warn", "info" or "ok"; `what` names the fault, `do` says what to do.
    """

    level: str
    what: str
    do: str


_RESTART = "the application failed, the GPU goes on: restart the job"
_RESET = f"drain the node, {RESET}"
_NONE = "no action on the node"
_SUPPORT = "ask the vendor if it comes again"
_NVLINK = f"drain the node, {RESET}; again: check NVSwitch and fabric manager"


def _rows(level: str, do: str, names: Mapping[int, str]) -> dict[int, Xid]:
    return {number: Xid(level, what, do) for number, what in names.items()}


def _same(what: str, *numbers: int) -> dict[int, str]:
    return dict.fromkeys(numbers, what)


_APPLICATION = {
    8: "GPU stopped processing",
    13: "graphics engine exception",
    31: "GPU memory page fault",
    68: "video decoder exception",
    69: "graphics engine class error",
    80: "corrupted data sent to the GPU",
    86: "optical flow exception",
    139: "optical flow exception",
    60: "video processor exception",
    **_same("corrupted or invalid push buffer", 11, 25, 32),
    **_same("copy engine error", 39, 40, 41, 70, 71, 72, 75, 76, 77, 85),
    **_same("copy engine error", *range(126, 136)),
    **_same("video decoder error", 83, 84, 88, 89, 96, 97, 98),
    **_same("JPEG engine error", 82, *range(99, 106)),
}
_HARMLESS = {
    43: "GPU stopped processing for this application",
    44: "fault during a context switch",
    45: "cleanup after an earlier error",
    93: "wear limit of the InfoROM",
    121: "C2C link error",
    137: "NVLink privilege error",
    141: "CUDA fast path error",
    157: "resource could not be retired",
    160: "channel retired",
    161: "channel could not be retired",
    14: "unused",
    162: "power smoothing on again",
    **_same("illegal access by the driver", 66, 67),
    **_same("driver firmware error", 37, 38),
    **_same("test message", 106, 107),
    **_same("DLA error", 152, 153),
    108: "reserved",
}
_GPU_RESET = {
    46: "GPU stopped processing",
    62: "internal micro-controller halt",
    64: "memory row could not be remapped",
    95: "uncontained memory error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP does not answer",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialization error",
    155: "NVLink error",
    156: "resource retirement",
    158: "fatal GPU timeout",
}
_SUPPORT_CASES = {
    61: "internal micro-controller breakpoint",
    65: "video processor exception",
    73: "video encoder exception",
    81: "VGA subsystem error",
    142: "video encoder error",
    **_same("NVLink or SPI error", 122, 123, 124, 125),
    **_same("power smoothing circuit", 163, 164, 165),
    166: "traffic on an unencrypted link",
    167: "fatal PCIe timeout",
    168: "error in the write-protected region",
    169: "internal micro-controller halt",
    170: "interrupt in confidential mode",
    171: "details of an uncorrected ECC error",
    172: "details of an uncorrected ECC error",
}
XIDS: Mapping[int, Xid] = {
    **_rows("info", _RESTART, _APPLICATION),
    **_rows("info", _NONE, _HARMLESS),
    **_rows("bad", _RESET, _GPU_RESET),
    **_rows("warn", _SUPPORT, _SUPPORT_CASES),
    48: Xid("bad", "uncorrectable ECC error", f"look for Xid 63, 64, 94, 95 with it; drain the node, {RESET}"),
    74: Xid("bad", "NVLink error", _NVLINK),
    OFF_THE_BUS: Xid("bad", "GPU has fallen off the bus",
                     "reboot the node; twice in 3 days: have the hardware inspected"),
    54: Xid("warn", "no auxiliary power at the GPU board", "check the power cable"),
    63: Xid("warn", "memory row remapped or page retired", f"at the next idle time {RESET}"),
    78: Xid("warn", "vGPU start error", "update driver and firmware"),
    92: Xid("warn", "many corrected ECC errors", "watch remapped rows"),
    94: Xid("warn", "contained memory error", f"restart the job; at the next idle time {RESET}"),
    151: Xid("warn", "key rotation error", "restart the virtual machine"),
    159: Xid("warn", "CHI non-data error", "see the kernel log for UVM"),
}  # fmt: skip
"""Number -> meaning.

Xids caused by an application (13, 31, 43, 45, 68, 94 …) are never "bad": the node is not at fault.
"""
_UNKNOWN = Xid("warn", "unknown Xid", "look it up in NVIDIA's catalogue")
_NVLINK5 = {
    144: "SAW",
    145: "RLW",
    146: "TLW",
    147: "TREX",
    148: "NVLPW_CTRL",
    149: "NETIR",
    150: "MSE",
}
_DETAIL = re.compile(
    r"(?:^|, )(?P<unit>[A-Z][A-Z0-9_]+)(?:/[A-Z0-9_]+| Degraded)? +(?P<severity>Fatal|Nonfatal)\b"
    r"[^(]*(?:\((?P<info>0x[0-9a-fA-F]{1,8}) (?P<status>0x[0-9a-fA-F]{1,8}))?"
)
_RESET_BITS: Mapping[str, tuple[int, int]] = {
    "SAW_MVB": (0x12, 0x3F),
    "RLW_CTRL": (0, 0x80000000),
    "RLW_REMAP": (0xC0, 0x800003FF),
    "RLW_RSPCOL": (0x2, 0x80000003),
    "RLW_RXPIPE": (0, 0x8000000F),
    "RLW_SRC_TRACK": (0x31, 0x8000003F),
    "RLW_TAGSTATE": (0x120002, 0x80130003),
    "TLW_CTRL": (0x4, 0x80000007),
    "TLW_RX": (0x4, 0x80000007),
    "TLW_TX": (0x4, 0x80000007),
    "TREX": (0, 0x80000001),
    "NVLPW_CTRL": (0, 0x80000000),
}
"""Unit of NVLink 5 -> (bits of its error status for which NVIDIA asks for
a reset, all bits that NVIDIA lists).
"""
_RESET_NUMBERS: Mapping[str, tuple[frozenset[int], frozenset[int]]] = {
    "NETIR_BER_EVENT": (frozenset(), frozenset({0, 1, 2, 3})),
    "NETIR_MFDE_EVENT": (frozenset({1, 4, 5, 7}), frozenset({1, 3, 4, 5, 7})),
}
"""The same for units whose status is a number."""
_ASKS_154 = {"RLW_REMAP": 0x3F, "RLW_SRC_TRACK": 0xC}
"""Unit -> bits of its error status for which NVIDIA refers to Xid 154."""
_ALWAYS_RESET = "MSE"
_LINK_EVENT = "NETIR_LINK_EVT"
_LINK_GOES_ON = frozenset({0b101000, 0b100110})
"""Causes of a link event (bits 20 to 25 of the first word) that need no reset."""
_ACTIONS: Mapping[int, Xid] = {
    0: Xid("ok", "GPU recovery action changed", "nothing more to do"),
    1: Xid("bad", "GPU recovery action changed", _RESET),
    2: Xid("bad", "GPU recovery action changed", "drain and reboot the node"),
    3: Xid("warn", "GPU recovery action changed", f"end jobs with peer traffic, then {RESET}"),
    4: Xid("bad", "GPU recovery action changed", _RESET),
}
"""Recovery action in Xid 154, numbered as in NVML -> meaning; 0
withdraws the action asked for before.
"""
_ACTION = re.compile(r"\bto 0x([0-9a-fA-F]{1,8})\b")
_ANOTHER_ACTION = Xid("bad", "GPU recovery action changed", "do what it asks for")


def judge_xid(number: int, details: str) -> Xid:
    """What Xid `number` means; `details`, the rest of its line,
    matters for NVLink 5 and Xid 154.
    """
    if number in _NVLINK5:
        return _nvlink5(number, details)
    if number == _RECOVERY_CHANGED:
        found = _ACTION.search(details)
        return _ACTIONS.get(int(found[1], 16), _ANOTHER_ACTION) if found else _ANOTHER_ACTION
    return XIDS.get(number, _UNKNOWN)


def _nvlink5(number: int, details: str) -> Xid:
    what = f"NVLink {_NVLINK5[number]} error"
    found = _DETAIL.search(details)
    if found is None:
        return Xid("warn", what, _NVLINK)
    if _needs_reset(found):
        return Xid("bad", what, _NVLINK)
    status = int(found["status"] or "0", 16)
    if status & _ASKS_154.get(found["unit"], 0):
        return Xid("warn", what, "do what Xid 154 beside it asks for")
    return Xid("warn", what, "the link corrects itself; watch its error counters")


def _needs_reset(found: "re.Match[str]") -> bool:
    """Whether NVIDIA's catalogue asks for a reset; for what it does not
    list, the driver's severity decides.
    """
    unit, fatal = found["unit"], found["severity"] == "Fatal"
    if unit.startswith(_ALWAYS_RESET):
        return True
    if found["status"] is None:
        return fatal
    if unit == _LINK_EVENT:
        return fatal and int(found["info"], 16) >> 20 & 0x3F not in _LINK_GOES_ON
    status = int(found["status"], 16)
    if unit in _RESET_BITS:
        reset, listed = _RESET_BITS[unit]
        return bool(status & reset) or (fatal and not status & listed)
    if unit in _RESET_NUMBERS:
        numbers, known = _RESET_NUMBERS[unit]
        return status in numbers or (fatal and status not in known)
    return fatal
