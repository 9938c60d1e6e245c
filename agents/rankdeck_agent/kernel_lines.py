"""What a line of the kernel log says about the health of a node: one table of patterns."""

import re
from dataclasses import dataclass, replace
from typing import Optional

from rankdeck_agent.files import clean
from rankdeck_agent.kernel_records import Line, strip
from rankdeck_agent.xid import OFF_THE_BUS, judge

LINE_LIMIT = 1000
TEXT_LIMIT = 300
_PCI = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"


@dataclass(frozen=True)
class Found:
    """One event in the kernel log. `level` is "ok", "info", "warn" or "bad"."""

    kind: str
    level: str
    text: str
    """seen · what to do"""
    device: str = ""
    xid: Optional[int] = None
    """The number of an Xid, or of an SXid where `kind` says so."""


@dataclass(frozen=True)
class Pattern:
    """A kind of line. The group `device` of the pattern, where it has one, names the device."""

    kind: str
    level: str
    pattern: "re.Pattern[str]"
    do: str = ""


def _row(kind: str, level: str, pattern: str, do: str = "") -> Pattern:
    return Pattern(kind, level, re.compile(pattern), do)


_DISK = "data may be lost: check the disk"
_MEMORY = "a memory fault: find the DIMM by its label"
_STUCK = "if it goes on: reboot the node"

PATTERNS: tuple[Pattern, ...] = (
    _row("gpu", "bad", rf"NVRM: (?:GPU (?P<device>{_PCI})[ :].*)?RmInitAdapter failed", "the driver cannot start the GPU: reboot the node"),
    _row("peermem", "warn", r"nvidia-peermem .*ERROR detected invalid context", "GPUDirect RDMA lost its buffers: restart the job"),
    _row("nccl", "info", r"segfault at .* in libnccl\.so", "the application crashed inside NCCL"),
    _row("oom", "warn", r"(?:Out of memory: )?Kill(?:ed)? process \d+ \(.*\)", "its job is incomplete: use fewer ranks"),
    _row("oom", "warn", r"(?:System )?OOM encountered, victim process: ", "its job is incomplete: use fewer ranks"),
    _row("oom", "info", r"oom-kill:constraint=", "says whose limit it was"),
    _row("hung", "warn", r"task \S.{0,40}:\d+ blocked for more than \d+ seconds", "storage or driver does not answer: see what it waits for"),
    _row("lockup", "bad", r"(?:soft lockup - (?P<device>CPU#\d+)|[Hh]ard LOCKUP|rcu.*detected stalls?\b)", _STUCK),
    _row("panic", "bad", r"(?:Kernel panic - not syncing|kernel BUG at |BUG: unable to handle|BUG: kernel NULL pointer|Oops: )", "reboot the node, keep the log"),
    _row("nfs", "ok", r"(?:nfs|lockd): server (?P<device>\S+) OK\b"),
    _row("nfs", "bad", r"(?:nfs|lockd): server (?P<device>\S+) not responding", "do not touch the mount: check the server"),
    _row("nfs", "bad", r"[Ll]ock reclaim failed", "locks of running jobs are lost: restart them"),
    _row("disk", "bad", r"Buffer I/O error on dev(?:ice)? (?P<device>[\w.-]+)", _DISK),
    _row("disk", "bad", r"(?:I/O|medium|target|nexus) error, dev (?P<device>[\w.-]+)", _DISK),
    _row("disk", "bad", r"I/O error while writing superblock", _DISK),
    _row("disk", "bad", r"(?:\((?:device )?(?P<device>[\w.-]+)\):? .*)?Remounting filesystem read-only", "writes fail: check the disk, then the file system"),
    _row("disk", "bad", r"block (?P<device>nvme\d+n\d+): no available path - failing I/O", _DISK),
    _row("disk", "bad", r"nvme (?P<device>nvme\d+): (?:Disabling device after reset failure|Removing after probe failure)", "the drive is gone: replace it"),
    _row("disk", "warn", r"nvme (?P<device>nvme\d+): (?:I/O .*timeout|controller is down)", "watch the drive"),
    _row("disk", "bad", r"(?:(?P<device>[\w.-]+): )?attempt to access beyond end of device", _DISK),
    _row("disk", "bad", r"md/\S*?: ?Disk failure on (?P<device>[\w.-]+)", "replace the disk"),
    _row("disk", "bad", r"(?:EXT4-fs error|BTRFS(?:: | )(?:error|critical)) \(device (?P<device>[\w.-]+)", _DISK),
    _row("disk", "bad", r"XFS \((?P<device>[\w.-]+)\): (?:.*I/O error|Corruption|Internal error|Metadata corruption)", _DISK),
    _row("edac", "bad", r"EDAC (?P<device>MC\d+): .*\bUE\b", _MEMORY),
    _row("edac", "warn", r"EDAC (?P<device>MC\d+): .*\bCE\b", _MEMORY),
    _row("mce", "bad", r"(?:[Uu]ncorrected hardware memory error|Machine Check Exception|Memory failure: 0x|event severity: (?:fatal|recoverable))", _MEMORY),
    _row("mce", "bad", r"\[Hardware Error\]: .*\b[Uu]ncorrected\b", "a hardware fault: drain the node"),
    _row("mce", "warn", r"(?:Machine check events logged|\[Hardware Error\]: (?:.*\bCorrected error|.*event severity: corrected))", "corrected: watch whether it comes again"),
    _row("thermal", "warn", r"(?P<device>CPU\d+): (?:Core|Package) temperature (?:is )?above threshold", "the CPU slows down: check fans and inlet air"),
    _row("voltage", "bad", r"(?:Undervoltage detected|Under-voltage detected)", "the supply is too weak: change it or its cable"),
    _row("voltage", "ok", r"Voltage normalised"),
    _row("files", "warn", r"VFS: file-max limit \d+ reached", "raise fs.file-max or find who leaks files"),
    _row("mlx5", "info", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?mlx5_cmd_out_err:.*ACCESS_REG\(", "a counter that this port does not allow was read"),
    _row("mlx5", "warn", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?Port module event\[error\]", "check cable or transceiver of this port"),
    _row("mlx5", "warn", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?Detected insufficient power on the PCIe slot", "check the power of the slot"),
    _row("mlx5", "bad", rf"mlx5_core (?P<device>{_PCI}): .*(?:health compromised|device's health|Fatal error|assert_var)", "the adapter failed: reset or reboot"),
    _row("mlx5", "warn", rf"mlx5_core (?P<device>{_PCI}): .*(?:timeout\. Will cause a leak|mlx5_cmd_out_err:)", "the firmware refuses or does not answer"),
    _row("link", "warn", r"(?P<device>[\w.-]+):? (?:NIC )?[Ll]ink (?:is )?[Dd]own\b", "check cable and switch port"),
    _row("link", "ok", r"(?P<device>[\w.-]+):? (?:NIC )?[Ll]ink (?:is )?[Uu]p\b"),
    _row("pcie", "bad", rf"(?P<device>{_PCI}): .*(?:severity=Uncorrect\w+|AER: (?:Multiple )?Uncorrect\w+)", "a device or its slot fails: reseat it"),
    _row("pcie", "warn", rf"(?P<device>{_PCI}): .*(?:severity=Correct\w+|AER: (?:Multiple )?Correct\w+)", "watch whether it comes often: reseat the device"),
    _row("pcie", "warn", rf"(?P<device>{_PCI}): .*available PCIe bandwidth, limited by", "fewer lanes or a lower speed than it can: reseat the device"),
)  # fmt: skip
"""The first that fits is taken. Events on the wire carry the kind as `kernel.<kind>`."""

_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?(?P<pci>{_PCI})\): (?P<number>\d{{1,9}})(?:, |$)(?P<details>.*)"
)
_LOST = re.compile(rf"NVRM: (?:.*?GPU (?:at )?(?:PCI:)?(?P<pci>{_PCI})\b.*)?fallen off the bus")
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU (?:PCI:)?({_PCI})\b")
_SXID = re.compile(
    rf"nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<pci>{_PCI})\): (?P<number>\d{{1,9}}), (?P<details>.*)"
)
_WORDS = re.compile(
    r"NVRM|nvidia|nccl|[Pp]rocess|oom|task |LOCKUP|lockup|rcu|panic|BUG|Oops|nfs|lockd|[Ll]ock reclaim|/O|error|"
    r"Remount|nvme|end of device|md/|XFS|EXT4|BTRFS|EDAC|[Hh]ardware|[Mm]achine|Memory f|severity|temperature|"
    r"oltage|VFS|mlx5|[Pp]ort module|insufficient|[Ll]ink|AER|PCIe"
)
"""None of the patterns fits a line without one of these: most lines are dismissed at once."""


def find(message: str) -> Optional[Found]:
    """The event in one message of the kernel, without its prefix; None where it tells of none."""
    message = clean(message[:LINE_LIMIT], LINE_LIMIT)
    if not _WORDS.search(message):
        return None
    return _nvidia(message) or _listed(message)


def _nvidia(message: str) -> Optional[Found]:
    for pattern, make in _NVIDIA.items():
        found = pattern.search(message)
        if found:
            return make(found)
    return None


def _xid(found: "re.Match[str]") -> Found:
    number = int(found["number"])
    xid = judge(number, found["details"])
    seen = f"Xid {number}, {xid.what}" + _after(found["details"])
    return Found("xid", xid.level, _say(seen, xid.do), address(found["pci"]), number)


def _lost(found: "re.Match[str]") -> Found:
    xid = judge(OFF_THE_BUS, "")
    text = _say(f"Xid {OFF_THE_BUS}, {xid.what}", xid.do)
    return Found("xid", xid.level, text, address(found["pci"] or ""), OFF_THE_BUS)


def _sxid(found: "re.Match[str]") -> Found:
    fatal = found["details"].startswith("Fatal")
    do = "reset all GPUs and the NVSwitch, or reboot" if fatal else "watch this link"
    text = _say(f"SXid {found['number']}" + _after(found["details"]), do)
    level = "bad" if fatal else "warn"
    return Found("sxid", level, text, address(found["pci"]), int(found["number"]))


_NVIDIA = {_XID: _xid, _LOST: _lost, _SXID: _sxid}


def _listed(message: str) -> Optional[Found]:
    for row in PATTERNS:
        found = row.pattern.search(message)
        if found:
            device = found.groupdict().get("device") or ""
            if row.kind in ("pcie", "mlx5", "gpu"):
                device = address(device)
            return Found(row.kind, row.level, _say(message.strip(), row.do), device)
    return None


def address(pci: str) -> str:
    """A PCI address as events name it: domain, bus and slot in lower case, no function."""
    short = pci.lower().partition(".")[0]
    if short and short.count(":") == 1:
        return f"0000:{short}"
    # NVML writes eight digits of domain, the kernel four.
    return short[-10:] if re.fullmatch(r"0{4}[0-9a-f]{4}:.*", short) else short


def _after(details: str) -> str:
    return f": {details.strip()}" if details.strip() else ""


def _say(seen: str, do: str) -> str:
    room = TEXT_LIMIT - len(do) - 3
    return f"{seen[:room]} · {do}" if do else seen[:TEXT_LIMIT]


class Lines:
    """Reads one log line by line: some messages say on one line which device the next is about."""

    def __init__(self) -> None:
        self._spoken_of = ""

    def take(self, line: str) -> "tuple[Optional[Line], Optional[Found]]":
        """The line without prefix, where the kernel wrote it, and the event in it."""
        stripped = strip(line[:LINE_LIMIT])
        if stripped is None:
            return None, None
        found = find(stripped.message)
        if found is None:
            named = _NAMED.search(stripped.message)
            self._spoken_of = address(named[1]) if named else self._spoken_of
        elif found.xid == OFF_THE_BUS and not found.device:
            found = replace(found, device=self._spoken_of)
        return stripped, found
