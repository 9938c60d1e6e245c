"""The kernel log: its records read, and what each line says about the health of a node."""

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Optional

from rankdeck_agent.files import clean, reason
from rankdeck_agent.xid import OFF_THE_BUS, judge

RING = "/dev/kmsg"
_LONGEST = 8192


def open_ring() -> int:
    """A handle on the kernel's ring of records that never waits; raises OSError."""
    return os.open(RING, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def records(handle: int) -> Iterator[bytes]:
    """What the ring holds now, one record each."""
    while True:
        try:
            data = os.read(handle, _LONGEST)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # Overwritten while we read: the next read goes on at the oldest that is left.
            continue
        if not data:
            return
        yield data.partition(b"\n")[0]


_RECORD = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,20}),[^;]{0,64};")
_DMESG = re.compile(
    r"(?:<\d{1,4}>)?(?:[a-z0-9]{1,8} *:[a-z]{1,8} *: ?)?"
    r"(?:\[ *(?P<since>\d{1,10}(?:\.\d{1,9})?)\]|\[[A-Z][a-z]{2} [^\]]{1,40}\]|\d{4}-\d\d-\d\dT[\d:,.+Z-]{8,30}|)"
    r"(?: ?\[ *[CT]\d+\])?:? ?"
)
_JOURNAL = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.,]{8,15}(?:Z|[+-][\d:]{4,5})?) \S+ "
    r"(?P<program>[^\s:\[]+)(?:\[\d+\])?: "
)
_SOURCE = re.compile(r"(?:[\w.-]+ )?kernel: (?=\S)")
_REPEATED = re.compile(r"message repeated \d+ times: \[ ?(.*)\]\s*$")


@dataclass(frozen=True)
class KernelLine:
    """A line without its prefix; `since` is seconds since boot where the prefix tells."""

    message: str
    since: Optional[float] = None


def strip(line: str) -> Optional[KernelLine]:
    """What the kernel said, whatever tool has written it down; None if another program spoke."""
    record = _RECORD.match(line)
    if record:
        # Above 7 there is a facility: a program wrote it to /dev/kmsg, not the kernel.
        spoken = int(record[1]) < 8
        message = line[record.end() :]
        return KernelLine(message, int(record[3]) / 1e6) if spoken else None
    journal = _JOURNAL.match(line)
    if journal:
        return _bare(line[journal.end() :]) if journal["program"] == "kernel" else None
    return _bare(line)


def _bare(text: str) -> KernelLine:
    prefix = _DMESG.match(text)
    since = prefix and prefix["since"]
    message = text[prefix.end() :] if prefix else text
    message = message[_end(_SOURCE.match(message)) :]
    repeated = _REPEATED.match(message)
    return KernelLine(repeated[1] if repeated else message, float(since) if since else None)


def _end(found: "Optional[re.Match[str]]") -> int:
    return found.end() if found else 0


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
    link: Optional[int] = None
    """The NVLink that it names."""


@dataclass(frozen=True)
class KernelPattern:
    """A kind of line. The group `device` of the pattern, where it has one, names the device."""

    kind: str
    level: str
    pattern: "re.Pattern[str]"
    do: str = ""


def _pattern(kind: str, level: str, pattern: str, do: str = "") -> KernelPattern:
    return KernelPattern(kind, level, re.compile(pattern), do)


_DISK = "data may be lost: check the disk"
_MEMORY = "a memory fault: find the DIMM by its label"
_STUCK = "if it goes on: reboot the node"

PATTERNS: tuple[KernelPattern, ...] = (
    _pattern("gpu", "bad", rf"NVRM: (?:GPU (?P<device>{_PCI})[ :].*)?(?:RmInitAdapter|rm_init_adapter) failed", "the driver cannot start the GPU: reboot the node"),
    _pattern("gpu", "bad", rf"NVRM: GPU (?P<device>{_PCI}): GPU does not have the necessary power cables", "it stays off: plug in its power cables"),
    _pattern("gpu", "bad", r"[Ee]ncountered (?:a )?global fatal error", "CUDA works on no GPU of the node: drain, reboot"),
    _pattern("gpu", "bad", rf"NVRM: .*GPU at PCI:(?P<device>{_PCI}) .*likely needs to be reset", "drain the node, reset the GPU"),
    _pattern("gpu", "bad", r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid", "the BIOS gave a GPU no room: update it, switch on Above 4G decoding"),
    _pattern("gpu", "bad", r"NVRM: .*GSP RM heartbeat timed out", "the GPU's own processor does not answer: drain, reboot the node"),
    _pattern("gpu", "bad", rf"\b(?:nvidia|amdgpu|xe|i915):? (?:probe of )?(?P<device>{_PCI})(?:: probe with driver \w+)? failed with error -", "the driver cannot start the GPU: reboot the node"),
    _pattern("gpu", "bad", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?(?:.*GPU will not be initialized|Fatal error during GPU init|device lost from bus)", "the driver gave up the GPU: reboot the node; again: vendor"),
    _pattern("gpu", "bad", rf"Xe has declared device (?P<device>{_PCI}) as wedged", "the driver gave up the GPU: reboot the node"),
    _pattern("gpu", "info", rf"i915 (?P<device>{_PCI}): .*GPU HANG", "an application hung the GPU"),
    _pattern("nvlink", "warn", r"NVRM: knvlink\w+: .*\b[Ff]ailed", "collectives are slow or fail: reset the GPU, check NVSwitch and fabric manager"),
    _pattern("amdgpu", "ok", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?GPU reset\(\d+\) succeeded"),
    _pattern("amdgpu", "bad", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?(?:GPU reset end with ret = -|GPU [Rr]ecovery [Ff]ailed)", "the GPU stays away: reboot the node"),
    _pattern("amdgpu", "warn", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?GPU reset begin", "jobs on it are lost: restart them; again: have it inspected"),
    # A kind of their own: that the reset after them succeeded takes no memory error back.
    _pattern("ras", "bad", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?.*(?<!\b0 )(?<!\b0 new )uncorrectable hardware error", "results may be wrong: drain, reset the GPU"),
    _pattern("ras", "warn", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?.*(?<!\b0 )(?<!\b0 new )deferred hardware error", "who reads that memory is ended: watch the GPU"),
    _pattern("amdgpu", "warn", r"amdgpu: (?:qcm fence wait loop timeout|The cp might be in an unrecoverable state)", "queues hang: end the job; again: reset the GPU"),
    _pattern("amdgpu", "info", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?ring \S+ timeout", "an application hung the GPU"),
    # Without a device: that the connection is back does not bring the open files back.
    _pattern("lustre", "warn", r"LustreError: .*This client was evicted by ", "open files of running jobs are lost: restart them, check server and network"),
    _pattern("lustre", "warn", r"Lustre: (?P<device>[\w.]+(?:-[A-Z]{3}[0-9a-f]{4})?)\S*: Connection to .* was lost", "whoever touches it waits: check server and network"),
    _pattern("lustre", "ok", r"Lustre: (?P<device>[\w.]+(?:-[A-Z]{3}[0-9a-f]{4})?)\S*: Connection restored to "),
    _pattern("lustre", "bad", r"LustreError: .*\bLBUG\b", "the client is stuck: reboot the node"),
    _pattern("lustre", "warn", r"LNet(?:Error)?: .*Timed out (?:RDMA with|tx)", "the network to a server is lost or slow: check fabric and server"),
    _pattern("ceph", "ok", r"ceph: .*(?P<device>mds\d+) (?:recovery completed|came back|caps renewed)"),
    _pattern("ceph", "warn", r"ceph: .*(?P<device>mds\d+) (?:hung|caps (?:went )?stale)", "whoever touches it waits: check server and network"),
    _pattern("cifs", "warn", r"CIFS: VFS: (?P<device>\S+) has not responded in", "whoever touches it waits: check server and network"),
    _pattern("gpfs", "bad", r"GPFS Deadman Switch timer.*expired", "the node lost its cluster: drain, check the network, start GPFS"),
    _pattern("gpfs", "bad", r"mmfs: .*\b(?:expel|lost quorum|unmount.*(?:panic|force|by the system))", "file systems are gone: drain, check the network, start GPFS"),
    _pattern("peermem", "warn", r"nvidia-peermem .*ERROR detected invalid context", "GPUDirect RDMA lost its buffers: restart the job"),
    _pattern("nccl", "info", r"segfault at .* in libnccl\.so", "the application crashed inside NCCL"),
    _pattern("oom", "warn", r"(?:Out of memory: )?Kill(?:ed)? process \d+ \(.*\)", "its job is incomplete: use fewer ranks"),
    _pattern("oom", "warn", r"(?:System )?OOM encountered, victim process: ", "its job is incomplete: use fewer ranks"),
    _pattern("oom", "info", r"oom-kill:constraint=", "says whose limit it was"),
    _pattern("oom", "info", r"\S+ invoked oom-killer: ", "says who asked for memory"),
    _pattern("hung", "warn", r"task \S.{0,40}:\d+ blocked for more than \d+ seconds", "storage or driver does not answer: see what it waits for"),
    _pattern("lockup", "bad", r"(?:soft lockup - (?P<device>CPU#\d+)|[Hh]ard LOCKUP|rcu.*detected (?:expedited )?stalls?\b)", _STUCK),
    _pattern("panic", "bad", r"(?:Kernel [Pp]anic - not syncing|kernel BUG at |BUG: Bad page (?:state|map)|BUG: unable to handle|BUG: kernel NULL pointer|Oops: |general protection fault\b.*\[#|Unable to handle kernel )", "reboot the node, keep the log"),
    _pattern("nfs", "ok", r"(?:nfs|lockd): server (?P<device>\S+) OK\b"),
    _pattern("nfs", "bad", r"(?:nfs|lockd): server (?P<device>\S+) not responding", "do not touch the mount: check the server"),
    _pattern("nfs", "bad", r"[Ll]ock reclaim failed", "locks of running jobs are lost: restart them"),
    # CDs and floppies of a BMC or a virtual machine, with no medium in them.
    _pattern("disk", "info", r"I/O error(?: on|,) dev(?:ice)? (?P<device>(?:sr|fd)\d+)\b", "an empty drive was read"),
    _pattern("disk", "bad", r"Buffer I/O error on dev(?:ice)? (?P<device>[\w.-]+)", _DISK),
    _pattern("disk", "bad", r"(?:I/O|medium|target|nexus) error, dev (?P<device>[\w.-]+)", _DISK),
    _pattern("disk", "bad", r"(?:\((?P<device>[\w.-]+)\): )?I/O error while writing superblock", _DISK),
    _pattern("disk", "bad", r"(?:\((?:device )?(?P<device>[\w.-]+)\):? .*)?Remounting filesystem read-only", "writes fail: check the disk, then the file system"),
    _pattern("disk", "bad", r"block (?P<device>nvme\d+n\d+): no available path - failing I/O", _DISK),
    _pattern("disk", "bad", r"nvme (?P<device>nvme\d+): (?:Disabling device after reset failure|Removing after probe failure)", "the drive is gone: replace it"),
    _pattern("disk", "bad", r"nvme (?P<device>nvme\d+): (?:Device not ready; aborting|Identify Controller failed)", "the drive does not start: reset or replace it"),
    _pattern("disk", "warn", r"nvme (?P<device>nvme\d+): (?:I/O .*timeout|controller is down)", "watch the drive"),
    _pattern("disk", "bad", r"(?P<device>ata\d+\.\d+): disabled$", "the drive is gone: replace it"),
    _pattern("disk", "bad", r"(?:(?P<device>[\w.-]+): )?attempt to access beyond end of device", _DISK),
    _pattern("disk", "bad", r"md/\S*?: ?Disk failure on (?P<device>[\w.-]+)", "replace the disk"),
    _pattern("disk", "bad", r"(?:EXT4-fs error|BTRFS(?:: | )(?:error|critical)) \(device (?P<device>[\w.-]+)", _DISK),
    _pattern("disk", "bad", r"XFS \((?P<device>[\w.-]+)\): (?:.*I/O [Ee]rror|Corruption|Internal error|Metadata (?:corruption|CRC error)|.*has been shut down|.*[Ss]hutting down filesystem)", _DISK),
    _pattern("disk", "bad", r"(?:Aborting journal on device|Detected IO errors while flushing file data on) (?P<device>[\w.]+)", "the file system goes read-only: check the disk"),
    _pattern("disk", "warn", r"EXT4-fs \((?P<device>[\w.-]+)\): (?:warning: mounting fs with errors|error count since last fsck)", "it had errors before: check it with e2fsck"),
    _pattern("disk", "bad", r"BTRFS(?:: | )info \(device (?P<device>[\w.-]+)[^)]*\): forced readonly", _DISK),
    _pattern("disk", "warn", r"BTRFS(?:: | )warning \(device (?P<device>[\w.-]+)[^)]*\): (?:csum failed|checksum error)", _DISK),
    _pattern("disk", "bad", r"sd (?P<device>[\d:]+): (?:\[\w+\] )?(?:rejecting I/O to offline device|Device offlined)", "the drive is gone: replace it"),
    _pattern("disk", "warn", r"(?P<device>ata\d+\.\d+): failed command: ", "watch the drive, check its cable"),
    _pattern("disk", "warn", r"device-mapper: multipath: .*Failing path (?P<device>[\d:]+)", "one way to the disk is lost: check cable, switch, controller"),
    _pattern("disk", "warn", r"(?P<device>mmcblk\d+): error -\d+", "the card fails: save its data, replace it"),
    _pattern("disk", "bad", rf"megaraid_sas (?P<device>{_PCI}): .*\bFAULT state", "the controller of the disks failed: check it"),
    _pattern("edac", "bad", r"EDAC (?P<device>MC\d+): .*\bUE\b", _MEMORY),
    _pattern("edac", "warn", r"EDAC (?P<device>MC\d+): .*\bCE\b", _MEMORY),
    _pattern("mce", "bad", r"(?:[Uu]ncorrected hardware memory error|Machine Check Exception|Memory failure: 0x|event severity: (?:fatal|recoverable))", _MEMORY),
    _pattern("mce", "bad", r"\[Hardware Error\]: .*\b[Uu]ncorrected\b", "a hardware fault: drain the node"),
    _pattern("mce", "bad", r"(?:\[Hardware Error\]: System Fatal error|NMI: (?:PCI system error|IOCK error|memory parity error))", "a hardware fault: drain the node"),
    _pattern("mce", "warn", r"\[Hardware Error\]: Deferred error", "bad memory was found before it was used: watch whether it comes again"),
    _pattern("mce", "warn", r"(?:Machine check events logged|\[Hardware Error\]: (?:.*\bCorrected error|.*event severity: corrected))", "corrected: watch whether it comes again"),
    _pattern("thermal", "warn", r"(?P<device>CPU\d+): (?:Core|Package) temperature (?:is )?above threshold", "the CPU slows down: check fans and inlet air"),
    _pattern("thermal", "ok", r"(?P<device>CPU\d+): (?:Core|Package) temperature/speed normal"),
    _pattern("thermal", "bad", r"critical temperature reached", "the node shuts down: check fans and inlet air"),
    _pattern("voltage", "bad", r"(?:Undervoltage detected|Under-voltage detected)", "the supply is too weak: change it or its cable"),
    _pattern("voltage", "ok", r"Voltage normalised"),
    _pattern("files", "warn", r"VFS: file-max limit \d+ reached", "raise fs.file-max or find who leaks files"),
    _pattern("mlx5", "info", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?mlx5_cmd_out_err:.*(?:ACCESS_REG|QUERY_\w+)\(", "the firmware refused a question, such as for a counter that this port does not allow"),
    _pattern("mlx5", "warn", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?Port module event(?:\[error\]|: module \d+, Cable error)", "check cable or transceiver of this port"),
    _pattern("mlx5", "warn", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?Detected insufficient power on the PCIe slot", "check the power of the slot"),
    _pattern("mlx5", "warn", rf"mlx5_core (?P<device>{_PCI}): .*High temperature on sensors", "the adapter or its module is too hot: check fans and inlet air"),
    _pattern("mlx5", "warn", rf"mlx5_core (?P<device>{_PCI}): .*Health issue observed, .*severity\([4-7]\)", "watch the adapter"),
    _pattern("mlx5", "bad", rf"mlx5_core (?P<device>{_PCI}): .*(?:health compromised|device's health|Fatal error|assert_var|Health issue observed|PCI slot is unavailable|handling bad device|pre-initializing state)", "the adapter failed: reset or reboot"),
    _pattern("mlx5", "warn", rf"mlx5_core (?P<device>{_PCI}): .*(?:timeout\. Will cause a leak|mlx5_cmd_out_err:)", "the firmware refuses or does not answer"),
    _pattern("bnxt", "bad", rf"bnxt_en (?P<device>{_PCI})(?: \S+)?: .*(?:[Ff]irmware (?:fatal|not responding)|FW fatal|[Ff]atal (?:firmware|FW))", "the adapter failed: reset or reboot"),
    _pattern("bnxt", "warn", rf"bnxt_en (?P<device>{_PCI})(?: \S+)?: .*(?:[Ff]irmware .*reset|FW reset|Error \(timeout: |[Hh]wrm .*timeout)", "the firmware refuses or does not answer"),
    _pattern("nic", "bad", rf"\b(?:mlx[45]_core|bnxt_en|ice|i40e|hfi1|ionic|ena|efa):? (?:probe of )?(?P<device>{_PCI})(?:: probe with driver \w+)? failed with error -", "the driver cannot start the adapter: reset or reboot"),
    _pattern("nic", "bad", rf"mlx4_core (?P<device>{_PCI}): Internal error detected", "the adapter failed: reset or reboot"),
    _pattern("nic", "warn", rf"mlx4_core (?P<device>{_PCI}): command \w+ timed out", "the firmware refuses or does not answer"),
    _pattern("nic", "warn", rf"ena (?P<device>{_PCI}).*: Keep alive watchdog timeout", "the adapter does not answer and is reset"),
    _pattern("nic", "warn", r"(?P<device>[\w.-]+): NETDEV WATCHDOG: ", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("nic", "warn", r"NETDEV WATCHDOG: (?P<device>[\w.-]+) \(", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("link", "warn", r"bond\S*: (?:\(slave (?P<device>[\w.-]+)\): )?link status definitely down", "one link of the bond is lost: check cable and switch port"),
    _pattern("link", "ok", r"bond\S*: \(slave (?P<device>[\w.-]+)\): link status definitely up"),
    _pattern("link", "warn", r"(?P<device>bond\S*): now running without any active interface", "the bond is dead: check cables and switch ports"),
    _pattern("link", "ok", r"(?P<device>bond\S*): first active interface up"),
    # A SATA port without a disk is down from the start; a disk that goes is "disabled".
    _pattern("link", "warn", r"(?<![\w.-])(?!SATA )(?P<device>[\w.-]+):? (?:NIC )?[Ll]ink (?:is )?[Dd]own\b", "check cable and switch port"),
    _pattern("link", "ok", r"(?<![\w.-])(?!SATA )(?P<device>[\w.-]+):? (?:NIC )?[Ll]ink (?:is )?[Uu]p\b"),
    _pattern("pcie", "bad", rf"(?P<device>{_PCI}): DPC: (?:containment event|unmasked uncorrectable error|ERR_\w+ detected)", "the port was shut off, what is behind it is gone: reseat it, reboot"),
    _pattern("pcie", "bad", rf"(?P<device>{_PCI}): (?:AER: (?:can't recover|[Dd]evice recovery failed)|Unable to change power state from \S+ to D0, device inaccessible|can't change power state from \S+ to D0 \(config space inaccessible)", "the device is gone or stuck: reseat it, reboot"),
    _pattern("pcie", "warn", rf"(?P<device>{_PCI})(?::\w+)?: (?:pciehp: )?Slot\([\w-]+\): (?:Link Down|Card not present)", "a device left its slot: reseat it, unless somebody took it out"),
    _pattern("pcie", "bad", rf"(?P<device>{_PCI}): .*(?:severity=Uncorrect\w+|AER: (?:Multiple )?Uncorrect\w+)", "a device or its slot fails: reseat it"),
    _pattern("pcie", "warn", rf"(?P<device>{_PCI}): .*(?:severity=Correct\w+|AER: (?:Multiple )?Correct\w+)", "watch whether it comes often: reseat the device"),
    _pattern("pcie", "warn", rf"(?P<device>{_PCI}): .*available PCIe bandwidth, limited by", "fewer lanes or a lower speed than it can: reseat the device"),
)  # fmt: skip
"""The first that fits is taken. Events on the wire carry the kind as `kernel.<kind>`."""

_XID = re.compile(
    # A GPU divided by MIG adds the instance: `(PCI:0000:01:00 GPU-I:05 GPU-CI:02)`.
    rf"NVRM: Xid \((?:PCI:)?(?P<pci>{_PCI})(?: GPU-C?I:\d+)*\): (?P<number>\d{{1,9}})(?:, |$)(?P<details>.*)"
)
_LOST = re.compile(rf"NVRM: (?:.*?GPU (?:at )?(?:PCI:)?(?P<pci>{_PCI})\b)?.*fallen off the bus")
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU (?:PCI:)?({_PCI})\b")
_SXID = re.compile(
    rf"nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<pci>{_PCI})\): (?P<number>\d{{1,9}}), (?P<details>.*)"
)
_LINK = re.compile(r"\b[Ll]ink (-?\d{1,3})\b")
_WORDS = re.compile(
    r"NVRM|nvidia|nccl|[Pp]rocess|oom|task |LOCKUP|lockup|rcu|panic|BUG|Oops|nfs|lockd|[Ll]ock reclaim|/O|error|"
    r"Remount|nvme|end of device|md/|XFS|EXT4|BTRFS|EDAC|[Hh]ardware|[Mm]achine|Memory f|severity|temperature|"
    r"oltage|VFS|amdgpu|Lustre|LNet|ceph|GPFS|mmfs|fault|Unable|disabled|DPC|bnxt|mlx[45]|[Pp]ort module|insufficient|[Ll]ink|"
    r"AER|PCIe|HANG|Xe has|Aborting journal|IO errors|offline|failed command|Failing path|FAULT|NMI: |watchdog|WATCHDOG|"
    r"without any active|active interface up|inaccessible|Slot|failed with error"
)
"""None of the patterns fits a line without one of these: most lines are dismissed at once."""


def find(message: str) -> Optional[Found]:
    """The event in one message of the kernel, without its prefix; None if it is no event."""
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
    device, link = address(found["pci"]), _link(found["details"])
    return Found("xid", xid.level, _say(seen, xid.do), device, number, link)


def _lost(found: "re.Match[str]") -> Found:
    xid = judge(OFF_THE_BUS, "")
    text = _say(f"Xid {OFF_THE_BUS}, {xid.what}", xid.do)
    return Found("xid", xid.level, text, address(found["pci"] or ""), OFF_THE_BUS)


def _sxid(found: "re.Match[str]") -> Found:
    level, do = next(row[1:] for row in _SXIDS if found["details"].startswith(row[0]))
    text = _say(f"SXid {found['number']}" + _after(found["details"]), do)
    device, link = address(found["pci"]), _link(found["details"])
    return Found("sxid", level, text, device, int(found["number"]), link)


_SXIDS = (
    ("Fatal", "bad", "reset all GPUs and the NVSwitch, or reboot"),
    # The lines after the first only bring its registers.
    ("Severity ", "info", ""),
    ("Data ", "info", ""),
    ("", "warn", "watch this link"),
)
"""How the details of an SXid begin -> level, what to do."""


def _link(details: str) -> Optional[int]:
    found = _LINK.search(details)
    return int(found[1]) if found else None


_NVIDIA = {_XID: _xid, _LOST: _lost, _SXID: _sxid}


_ON_PCI = ("pcie", "mlx5", "bnxt", "gpu", "amdgpu", "ras", "nic")


def _listed(message: str) -> Optional[Found]:
    for row in PATTERNS:
        found = row.pattern.search(message)
        if found:
            device = found.groupdict().get("device") or ""
            if row.kind in _ON_PCI:
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


_MESSAGE = 4
"""Lines after the one with its address that a message may have: later ones blame nobody."""


class KernelLines:
    """Reads one log line by line: some messages say on one line which device the next is about."""

    def __init__(self) -> None:
        self._spoken_of = ""
        self._lines_left = 0

    def take(self, line: str) -> "tuple[Optional[KernelLine], Optional[Found]]":
        """The line without prefix, where the kernel wrote it, and the event in it."""
        stripped = strip(line[:LINE_LIMIT])
        if stripped is None:
            return None, None
        found = find(stripped.message)
        named = _NAMED.search(stripped.message)
        self._lines_left -= 1
        if named and found is None:
            self._spoken_of, self._lines_left = address(named[1]), _MESSAGE
        elif found and found.xid == OFF_THE_BUS and not found.device and self._lines_left >= 0:
            found = replace(found, device=self._spoken_of)
        return stripped, found


_READ_LIMIT = 65536


def kernel_log(path: str, *, as_json: bool) -> int:
    """Print what is found in the file, in standard input ("-") or in this machine's log ("")."""
    try:
        with contextlib.ExitStack() as stack:
            source = _open(path, stack)
            _print_events(source, as_json=as_json)
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"rankdeck-agent: {clean(path or RING, 200)}: {reason(error)}", file=sys.stderr)
        return 2
    return 0


def _open(path: str, stack: contextlib.ExitStack) -> Iterator[bytes]:
    if path == "-":
        return _lines(sys.stdin.buffer)
    if path in ("", RING):
        handle = open_ring()
        stack.callback(os.close, handle)
        return records(handle)
    return _lines(stack.enter_context(open(path, "rb")))  # noqa: PTH123  a Path costs an import


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines; the rest of an overlong one is dropped."""
    while True:
        line = file.readline(_READ_LIMIT)
        if not line:
            return
        yield line
        while not line.endswith(b"\n") and len(line) == _READ_LIMIT:
            line = file.readline(_READ_LIMIT)


def _print_events(source: Iterator[bytes], *, as_json: bool) -> None:
    lines = KernelLines()
    for number, raw in enumerate(source, 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        _, found = lines.take(line)
        if found is not None:
            shown = _object(number, line, found) if as_json else _row(number, found)
            print(shown, flush=True)


def _object(number: int, line: str, found: Found) -> str:
    return json.dumps(
        {
            "line": clean(line, LINE_LIMIT),
            "number": number,
            "kind": found.kind,
            "xid": found.xid,
            "device": found.device,
            "level": found.level,
            "text": found.text,
        }
    )


def _row(number: int, found: Found) -> str:
    return f"{number:>8} {found.level:<4} {found.kind:<8} {found.device:<14} {found.text}"
