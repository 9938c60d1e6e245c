"""What an Xid of NVIDIA's driver says about a node, after NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

OFF_THE_BUS = 79
_RECOVERY_CHANGED = 154


@dataclass(frozen=True)
class Xid:
    """`level` is "bad", "warn" or "info"; `what` names the fault, `do` says what follows."""

    level: str
    what: str
    do: str


_RESTART = "the application failed, the GPU goes on: restart the job"
_RESET = "drain the node, reset the GPU"
_NONE = "no action on the node"
_SUPPORT = "ask the vendor if it comes again"
_NVLINK = "drain the node, reset the GPU; again: check NVSwitch and fabric manager"


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
    48: Xid("bad", "uncorrectable ECC error", "look for Xid 63, 64, 94, 95 with it; drain the node, reset the GPU"),
    74: Xid("bad", "NVLink error", _NVLINK),
    OFF_THE_BUS: Xid("bad", "GPU has fallen off the bus",
                     "reboot the node; twice in 3 days: have the hardware inspected"),
    54: Xid("warn", "no auxiliary power at the GPU board", "check the power cable"),
    63: Xid("warn", "memory row remapped or page retired", "reset the GPU at the next idle time"),
    78: Xid("warn", "vGPU start error", "update driver and firmware"),
    92: Xid("warn", "many corrected ECC errors", "watch remapped rows"),
    94: Xid("warn", "contained memory error", "restart the job; reset the GPU at the next idle time"),
    151: Xid("warn", "key rotation error", "restart the virtual machine"),
    159: Xid("warn", "CHI non-data error", "see the kernel log for UVM"),
}  # fmt: skip
"""Xids that speak of an application (13, 31, 43, 45, 68, 94 …) are never "bad": they say nothing against the node."""

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
    r"(?:^|, )(?P<unit>[A-Z][A-Z0-9_]+)(?:/[A-Z0-9_]+)? +(?P<severity>Fatal|Nonfatal)\b"
    r"[^(]*(?:\((?P<info>0x[0-9a-fA-F]{1,8}) (?P<status>0x[0-9a-fA-F]{1,8}))?"
)
_NEED_RESET: Mapping[str, frozenset[int]] = {
    "SAW_MVB": frozenset({0x2, 0x10}),
    "RLW_CTRL": frozenset(),
    "RLW_REMAP": frozenset({0x40, 0x80}),
    "RLW_RSPCOL": frozenset({0x2}),
    "RLW_RXPIPE": frozenset(),
    "RLW_SRC_TRACK": frozenset({0x1, 0x10, 0x20}),
    "RLW_TAGSTATE": frozenset({0x2, 0x20000, 0x100000}),
    "TLW_CTRL": frozenset({0x4}),
    "TLW_RX": frozenset({0x4}),
    "TLW_TX": frozenset({0x4}),
    "TREX": frozenset(),
    "NVLPW_CTRL": frozenset(),
    "NETIR_BER_EVENT": frozenset(),
    "NETIR_MFDE_EVENT": frozenset({0x1, 0x4, 0x5, 0x7}),
}
"""Unit of NVLink 5 -> error status for which NVIDIA asks for a reset of the GPU."""
_LINK_EVENT = "NETIR_LINK_EVT"
_LINK_GOES_ON = frozenset({0b101000, 0b100110})
"""Causes of a link event (bits 20 to 25 of the first word) that need no reset."""


def judge(number: int, details: str) -> Xid:
    """What Xid `number` means; `details` is the rest of its line, which decides for NVLink 5."""
    if number in _NVLINK5:
        return _nvlink5(number, details)
    if number == _RECOVERY_CHANGED:
        calm = re.search(r"\bto 0x0\b", details) is not None
        return Xid("info" if calm else "warn", "GPU recovery action changed",
                   "nothing more to do" if calm else "do what it asks for")  # fmt: skip
    return XIDS.get(number, _UNKNOWN)


def _nvlink5(number: int, details: str) -> Xid:
    what = f"NVLink {_NVLINK5[number]} error"
    found = _DETAIL.search(details)
    if found is None:
        return Xid("warn", what, _NVLINK)
    if _needs_reset(found):
        return Xid("bad", what, _NVLINK)
    return Xid("warn", what, "the link corrects itself; watch its error counters")


def _needs_reset(found: "re.Match[str]") -> bool:
    unit = found["unit"]
    fatal = found["severity"] == "Fatal"
    if found["status"] is None:
        return fatal
    if unit == _LINK_EVENT:
        return fatal and int(found["info"], 16) >> 20 & 0x3F not in _LINK_GOES_ON
    if unit in _NEED_RESET:
        return int(found["status"], 16) in _NEED_RESET[unit]
    return fatal
