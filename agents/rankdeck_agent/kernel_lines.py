"""What a line of the kernel log says about the health of a node."""

import re
from typing import Optional

from rankdeck_agent.kernel_records import KernelLine, strip_log_prefix
from rankdeck_agent.needed_texts import match_patterns
from rankdeck_agent.rules.table import LET_GO, RESET
from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Value, replace
from rankdeck_agent.xids import OFF_THE_BUS, judge_xid

LINE_LIMIT = 1000
TEXT_LIMIT = 300
_PCI = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"


class Found(Value):
    """One event in the kernel log. `level` is "ok", "info", "warn" or "bad"."""

    kind: str
    level: str
    text: str
    """seen · what to do"""
    device: str = ""
    xid: Optional[int] = None
    """The number of an Xid, or of an SXid if `kind` is "sxid"."""
    link: Optional[int] = None
    """The NVLink that the line names."""


class KernelPattern(Value):
    """A kind of line. If the pattern has a group `device`, that is the device."""

    kind: str
    level: str
    pattern: str
    do: str = ""
    """What to do."""
    names_slot: bool = False
    """Whether its device is named by its PCI address."""


def _pattern(kind: str, level: str, pattern: str, do: str = "") -> KernelPattern:
    names_slot = f"(?P<device>{_PCI}" in pattern
    return KernelPattern(kind, level, pattern, do, names_slot)


_DISK = "data may be lost: check the disk"
_MEMORY = "a memory fault: find the DIMM by its label"
_STUCK = "if it goes on: reboot the node"
_IOMMU = "its driver or firmware uses memory that is not its own: update it, or ask the vendor about `iommu=pt`"
_IOMMU_STUCK = "a device does not answer the IOMMU: look what failed before it, reboot the node"
_UNCORRECTED = r"(?:[abef][0-9a-f]{15}|[89cd][2367abef][0-9a-f]{14})\b"
"""A status of 64 bits that is valid (bit 63), and uncorrected or corrupt (61, 57)."""
PATTERNS: tuple[KernelPattern, ...] = (
    _pattern("gpu", "bad", rf"NVRM: (?:GPU (?P<device>{_PCI})[ :].*)?(?:RmInitAdapter|rm_init_adapter) failed", "the driver cannot start the GPU: reboot the node"),
    _pattern("gpu", "bad", rf"NVRM: GPU (?P<device>{_PCI}): GPU does not have the necessary power cables", "it stays off: plug in its power cables"),
    _pattern("gpu", "bad", r"[Ee]ncountered (?:a )?global fatal error", "CUDA works on no GPU of the node: drain, reboot"),
    _pattern("gpu", "bad", rf"NVRM: .*GPU at PCI:(?P<device>{_PCI}) .*likely needs to be reset", f"drain the node, {RESET}"),
    _pattern("gpu", "bad", r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid", "the BIOS gave a GPU no room: update it, switch on Above 4G decoding"),
    _pattern("gpu", "bad", r"NVRM: (?:The NVIDIA probe routine (?:failed|was not called) for|None of the NVIDIA (?:graphics adapters|devices) were (?:initialized|probed))", "the driver cannot start the GPU: look for who holds it (vfio, nouveau), reboot the node"),
    _pattern("gpu", "bad", rf"NVRM: (?:GPU (?P<device>{_PCI}): Failed to copy vbios|BAR\d is 0M @ |request_mem_region failed for )", "the driver cannot reach the GPU's memory: update the BIOS, reseat the GPU, reboot"),
    _pattern("gpu", "warn", r"NVRM: API mismatch", "the driver in the kernel and its library are of two versions: reload the driver's modules or reboot; in a container: use the host's library"),
    # Since driver 580 the number of the GPU comes first: `NVRM: GPU6 _kgspIsHeartbeatTimedOut: …`.
    _pattern("gpu", "bad", r"NVRM: .*(?:(?:GSP RM|LibOS) heartbeat timed out|HeartbeatTimedOut: Heartbeat timed out|_kgspLogRpcTimeout: \*+ GSP Timeout)", "the GPU's own processor does not answer: drain, reboot the node"),
    # In brackets is what a call returned, not what the code asserts.
    _pattern("gpu", "bad", r"NVRM: .*\[NV_ERR_(?:RESET_REQUIRED|GPU_IS_LOST)\]", f"a GPU cannot be used: drain the node, {RESET}; else reboot it"),
    _pattern("gpu", "bad", r"habanalabs (?P<device>\S+): .*(?:heartbeat failed|[Ff]atal error)", "the accelerator does not answer: reset it or reboot the node"),
    _pattern("gpu", "warn", r"NVRM: .*(?:RC watchdog: GPU is probably locked|Going over RM unhandled interrupt threshold|GPU_ATTACHED_SANITY_CHECK failed)|nvidia-modeset: ERROR: GPU:\d+: Error while waiting for GPU progress", f"the GPU may be stuck: look for its Xids; again: drain the node, {RESET}"),
    _pattern("gpu", "bad", rf"\b(?:nvidia|amdgpu|xe|i915):? (?:probe of )?(?P<device>{_PCI})(?:: probe with driver \w+)? failed with error -", "the driver cannot start the GPU: reboot the node"),
    _pattern("gpu", "bad", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?(?:.*GPU will not be initialized|Fatal error during GPU init|device lost from bus)", "the driver gave up the GPU: reboot the node; again: vendor"),
    _pattern("gpu", "bad", rf"Xe has declared device (?P<device>{_PCI}) as wedged", "the driver gave up the GPU: reboot the node"),
    _pattern("gpu", "bad", rf"(?:i915|xe) (?P<device>{_PCI}): .*(?:Failed to reset chip|declaring it wedged|GT\d+: reset failed)", "the driver gave up the GPU: reboot the node"),
    _pattern("gpu", "warn", rf"(?:i915|xe) (?P<device>{_PCI}): .*\*ERROR\* .*GT\d+: .*(?:timed out|[Ff]ailed)", "the GPU's own processor does not answer: reboot the node if it stays so"),
    _pattern("gpu", "info", rf"i915 (?P<device>{_PCI}): .*GPU HANG", "an application hung the GPU"),
    _pattern("gpu", "info", rf"xe (?P<device>{_PCI}): .*(?:Engine reset|Timedout job)", "an application hung the GPU"),
    _pattern("gpu", "bad", r"amdgpu: HIVE reset failed", "the GPUs of one group stay away: reboot the node"),
    _pattern("ras", "warn", rf"amdgpu (?P<device>{_PCI}): .* [1-9]\d* (?:new )?correctable hardware errors? detected", "watch whether it comes often"),
    _pattern("amdgpu", "info", rf"amdgpu (?P<device>{_PCI}): .*(?:retry|no-retry) page fault", "a program used memory of the GPU that is not its own"),
    _pattern("nvlink", "warn", r"NVRM: (?:GPU\d+ )?knvlink\w+: .*\b[Ff]ailed", f"collectives are slow or fail: {RESET}, check NVSwitch and fabric manager"),
    _pattern("thermal", "bad", rf"amdgpu (?P<device>{_PCI}): .*(?:over temperature range|GPU (?:SW|HW) (?:CTF|Critical Temperature))", "the GPU is too hot and shuts down: check fans and inlet air"),
    _pattern("thermal", "bad", r"amdgpu: GPU over temperature range detected", "a GPU is too hot and shuts down: check fans and inlet air"),
    _pattern("thermal", "ok", rf"amdgpu (?P<device>{_PCI}): .*GPU under temperature range detected"),
    _pattern("thermal", "warn", rf"amdgpu (?P<device>{_PCI}): .*(?:thermal throttling|GPU is throttled|temperature reached)", "the GPU slows down: check fans, inlet air, neighbours"),
    _pattern("amdgpu", "ok", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?GPU reset\(\d+\) succeeded"),
    _pattern("amdgpu", "bad", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?(?:GPU reset(?: end with ret = -|\(\d+\) failed)|GPU [Rr]ecovery [Ff]ailed)", "the GPU stays away: reboot the node"),
    _pattern("amdgpu", "warn", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?GPU reset begin", "jobs on it are lost: restart them; again: have it inspected"),
    # Not kind `amdgpu`: the reset that succeeds after these must not end them.
    _pattern("ras", "bad", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?.*(?<!\b0 )(?<!\b0 new )uncorrectable hardware error", f"results may be wrong: drain the node, {RESET}"),
    _pattern("ras", "warn", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?.*(?<!\b0 )(?<!\b0 new )deferred hardware error", "who reads that memory is ended: watch the GPU"),
    _pattern("ras", "bad", rf"amdgpu (?P<device>{_PCI}): .*(?:[Bb]ad pages.*reaches threshold|RAS records.*exceed threshold)", "its memory is worn out, it may not start again: replace the GPU"),
    _pattern("amdgpu", "bad", rf"amdgpu (?P<device>{_PCI}): .*XGMI: .*(?:failure|failed)", "the GPUs of one group do not find each other: reboot the node; again: vendor"),
    _pattern("amdgpu", "warn", rf"amdgpu (?P<device>{_PCI}): .*(?:SMU: (?:I'm not done with your previous command|No response)|MES (?:failed to respond|might be in unrecoverable state))", "the GPU's own processor does not answer: reboot the node if it stays so"),
    _pattern("amdgpu", "warn", r"amdgpu: (?:qcm fence wait loop timeout|The cp might be in an unrecoverable state)", f"queues hang: end the job; again: {RESET}"),
    _pattern("amdgpu", "info", rf"amdgpu (?P<device>{_PCI}): (?:amdgpu: )?ring \S+ timeout", "an application hung the GPU"),
    # Without a device: a restored connection does not end this, since open files stay lost.
    _pattern("lustre", "warn", r"LustreError: .*This client was evicted by ", "open files of running jobs are lost: restart them, check server and network"),
    _pattern("lustre", "warn", r"Lustre(?:Error: [\d-]+)?: (?P<device>[\w.@]+(?:-[A-Z]{3}[0-9a-f]{4})?)\S*: Connection to .* was lost", "processes that use it wait: check server and network"),
    _pattern("lustre", "ok", r"Lustre: (?P<device>[\w.@]+(?:-[A-Z]{3}[0-9a-f]{4})?)\S*: Connection restored to "),
    _pattern("lustre", "warn", r"(?:Lustre|LNet): Service thread pid \d+ was inactive", "a server of Lustre is stuck: check its disks and network"),
    _pattern("lustre", "bad", r"LustreError: .*\bLBUG\b", "the client is stuck: reboot the node"),
    _pattern("lustre", "warn", r"LNet(?:Error)?: .*Timed out (?:RDMA with|tx)", "the network to a server is lost or slow: check fabric and server"),
    _pattern("ceph", "ok", r"ceph: .*(?P<device>mds\d+) (?:recovery completed|came back|caps renewed|reconnect success)"),
    _pattern("ceph", "warn", r"ceph: .*(?P<device>mds\d+) (?:reconnect denied|rejected session)", "open files of running jobs are lost: mount it again, restart them"),
    _pattern("ceph", "ok", r"libceph: (?P<device>mon)\d+ .*session established"),
    _pattern("ceph", "warn", r"libceph: (?P<device>mon)\d+ .*session lost", "no monitor answers: check server and network"),
    _pattern("ceph", "warn", r"ceph: .*(?P<device>mds\d+) (?:hung|caps (?:went )?stale)", "processes that use it wait: check server and network"),
    _pattern("cifs", "warn", r"CIFS: VFS: (?P<device>\S+) has not responded in", "processes that use it wait: check server and network"),
    _pattern("gpfs", "bad", r"GPFS Deadman Switch timer.*expired", "the node lost its cluster: drain, check the network, start GPFS"),
    _pattern("gpfs", "bad", r"mmfs: .*\b(?:expel|lost quorum|unmount.*(?:panic|force|by the system))", "file systems are gone: drain, check the network, start GPFS"),
    _pattern("peermem", "warn", r"nvidia-peermem .*ERROR detected invalid context", "GPUDirect RDMA lost its buffers: restart the job"),
    _pattern("nccl", "info", r"segfault at .* in libnccl\.so", "the application crashed inside NCCL"),
    _pattern("oom", "warn", r"(?:Out of memory: )?Kill(?:ed)? process \d+ \(.*\)", "its job is incomplete: use fewer ranks"),
    _pattern("oom", "warn", r"(?:System )?OOM encountered, victim process: ", "its job is incomplete: use fewer ranks"),
    _pattern("oom", "info", r"oom-kill:constraint=", "says whose limit it was"),
    _pattern("oom", "info", r"\S+ invoked oom-killer: ", "says who asked for memory"),
    _pattern("hung", "warn", r"task \S.{0,40}:\d+ blocked (?:in I/O wait )?for more than \d+ seconds", "storage or driver does not answer: see what it waits for"),
    _pattern("lockup", "bad", r"(?:soft lockup - (?P<device>CPU#\d+)|[Hh]ard LOCKUP|rcu.*detected (?:expedited )?stalls?\b)", _STUCK),
    _pattern("lockup", "warn", r"BUG: workqueue lockup - pool", _STUCK),
    _pattern("irq", "warn", r"irq \d+: nobody cared", "look whose interrupt it is in /proc/interrupts: driver, firmware or device; reboot the node"),
    _pattern("panic", "bad", r"^(?:Kernel [Pp]anic - not syncing|kernel BUG at |BUG: Bad page (?:state|map)|BUG: unable to handle|BUG: kernel NULL pointer|Oops: |Oops \[#|PANIC at \S+:\d+:|SError Interrupt on |BUG \S+ \((?:Not t|T)ainted|(?:general protection fault|Internal error|Oops|invalid opcode|divide error|stack segment)\b.*\[#|Unable to handle kernel )", "reboot the node, keep the log"),
    _pattern("nfs", "ok", r"(?:nfs|lockd): server (?P<device>\S+) OK\b"),
    _pattern("nfs", "bad", r"(?:nfs|lockd): server (?P<device>\S+) not responding", "do not touch the mount: check the server"),
    _pattern("nfs", "warn", r"NFS: state manager.* failed on NFSv4 server (?P<device>\S+) with error", "open files of running jobs may be lost: check the server"),
    _pattern("nfs", "warn", r"NFS: server (?P<device>\S+) error: fileid changed", "files have been replaced on the server: mount it again"),
    _pattern("nfs", "bad", r"[Ll]ock reclaim failed", "locks of running jobs are lost: restart them"),
    # Empty CD and floppy drives of a BMC or a virtual machine.
    _pattern("disk", "info", r"I/O error(?: on|,) dev(?:ice)? (?P<device>(?:sr|fd)\d+)\b", "an empty drive was read"),
    # Images of containers, which are files of users: what is wrong with them is no fault of a disk.
    _pattern("disk", "info", r"(?:error, dev |I/O error on dev(?:ice)? |\((?:device )?)(?P<device>loop\d+)\b", "an image is damaged or cut off, not a disk of the node"),
    # What is discarded holds no data.
    _pattern("disk", "info", r"error, dev (?P<device>[\w.-]+), .*\((?:DISCARD|SECURE_ERASE)\)", "the disk refuses to discard blocks: no data is lost"),
    _pattern("disk", "info", r"(?:critical target|operation not supported|not supported) error, dev (?P<device>[\w.-]+), .*\(WRITE_ZEROES\)", "the disk refuses to zero blocks by itself: no data is lost"),
    _pattern("disk", "bad", r"Buffer I/O error on dev(?:ice)? (?P<device>[\w.-]+)", _DISK),
    _pattern("disk", "bad", r"(?:I/O|medium|target|nexus|timeout|transport|protection|device offline) error, dev (?P<device>[\w.-]+)", _DISK),
    _pattern("disk", "bad", r"critical space allocation error, dev (?P<device>[\w.-]+)", "writes fail: the storage behind it is full"),
    _pattern("disk", "bad", r"(?:\((?P<device>[\w.-]+)\): )?I/O error while writing superblock", _DISK),
    _pattern("disk", "bad", r"(?:\((?:device )?(?P<device>[\w.-]+)\):? .*)?Remounting filesystem read-only", "writes fail: check the disk, then the file system"),
    _pattern("disk", "bad", r"block (?P<device>nvme\d+n\d+): no available path - failing I/O", _DISK),
    _pattern("disk", "bad", r"nvme (?P<device>nvme\d+): (?:Disabling device after reset failure|Removing after probe failure)", "the drive is gone: replace it"),
    _pattern("disk", "bad", r"nvme (?P<device>nvme\d+): (?:Device not ready; aborting|Identify Controller failed)", "the drive does not start: reset or replace it"),
    _pattern("disk", "warn", r"nvme (?P<device>nvme\d+): (?:I/O .*timeout|controller is down)", "watch the drive"),
    _pattern("disk", "bad", r"(?P<device>ata\d+\.\d+): disabled?(?: device)?$", "the drive is gone: replace it"),
    _pattern("disk", "warn", r"(?P<device>ata\d+\.\d+): (?:failed to IDENTIFY|failed to set xfermode|revalidation failed)", "watch the drive, check its cable"),
    _pattern("disk", "bad", r"(?P<device>ata\d+): reset failed, giving up", "the drive does not answer: check its cable, replace it"),
    _pattern("disk", "warn", r"nvme (?P<device>nvme\d+): (?:Reconnecting in \d+ seconds|starting error recovery)", "its server does not answer: check server and network"),
    _pattern("disk", "ok", r"nvme (?P<device>nvme\d+): Successfully reconnected"),
    _pattern("disk", "bad", r"(?P<device>session\d+): session recovery timed out", "the disks of this iSCSI server are gone: check server and network"),
    _pattern("disk", "warn", r"(?P<device>rport-[\d:-]+): blocked FC remote port time out", "one way to disks is lost: check cable, switch, controller"),
    _pattern("disk", "bad", r"(?:(?P<device>[\w.-]+): )?attempt to access beyond end of device", _DISK),
    _pattern("disk", "bad", r"md/\S*?: ?Disk failure on (?P<device>[\w.-]+)", "replace the disk"),
    _pattern("disk", "bad", r"md/\S*?:(?P<device>md\w+): (?:[Nn]ot enough operational|[Cc]annot start|[Ff]ailed to run|too few disks|.*has failed)", "the array is gone: replace its disks, restore its data"),
    _pattern("disk", "warn", r"md/\S*?:(?P<device>md\w+): (?:Operation continuing on \d|.*\bactive with (?P<left>\d+) out of (?!(?P=left)\b)\d|.*\b[Dd]egraded)", "the array has lost a disk, another loss loses its data: replace the disk"),
    _pattern("disk", "warn", r"md: kicking (?:non-fresh )?(?P<device>[\w.-]+) (?:from|out of)", "the array has lost a disk: add it again or replace it"),
    _pattern("disk", "bad", r"F2FS-fs \((?P<device>[\w.-]+)\): (?:Stopped filesystem|Inconsistent error)", _DISK),
    _pattern("disk", "bad", r"bcachefs \((?P<device>[\w.-]+)\): .*emergency read only", _DISK),
    _pattern("disk", "bad", r"device-mapper: thin: (?P<device>[\d:]+): switching pool to (?:out-of-data-space|read-only|failure)", "writes fail or wait: the pool is full, extend it or free space"),
    _pattern("disk", "warn", r"device-mapper: thin: (?P<device>[\d:]+): reached low water mark", "the pool is nearly full: extend it or free space"),
    _pattern("disk", "bad", r"device-mapper: (?:integrity|verity|crypt): .*(?:[Cc]hecksum failed|corrupted|INTEGRITY AEAD ERROR)", _DISK),
    _pattern("disk", "bad", r"(?:EXT4-fs error|BTRFS(?:: | )(?:error|critical)) \(device (?P<device>[\w.-]+)", _DISK),
    _pattern("disk", "bad", r"XFS \((?P<device>[\w.-]+)\): (?:.*(?:I/O|writeback) [Ee]rror|Corruption|Internal error|Metadata (?:corruption|CRC error)|.*has been shut down|.*[Ss]hutting down filesystem)", _DISK),
    _pattern("disk", "bad", r"(?:Aborting journal on device|Detected IO errors while flushing file data on|JBD2: (?:I/O )?[Ee]rror .*\bfor) (?P<device>[\w.]+)", "the file system goes read-only: check the disk"),
    _pattern("disk", "bad", r"EXT4-fs warning \(device (?P<device>[\w.-]+)\): .*I/O error", _DISK),
    _pattern("disk", "bad", r"EXT4-fs \((?P<device>[\w.-]+)\): (?:Delayed block allocation failed|.*[Dd]ata will be lost)", _DISK),
    _pattern("disk", "warn", r"EXT4-fs \((?P<device>[\w.-]+)\): (?:warning: mounting fs with errors|error count since last fsck)", "it had errors before: check it with e2fsck"),
    _pattern("disk", "bad", r"BTRFS(?:: | )info \(device (?P<device>[\w.-]+)[^)]*\): forced readonly", _DISK),
    _pattern("disk", "warn", r"BTRFS(?:: | )warning \(device (?P<device>[\w.-]+)[^)]*\): (?:csum failed|checksum error)", _DISK),
    _pattern("disk", "bad", r"sd (?P<device>[\d:]+): (?:\[\w+\] )?(?:rejecting I/O to offline device|Device offlined)", "the drive is gone: replace it"),
    _pattern("disk", "warn", r"(?P<device>ata\d+\.\d+): failed command: ", "watch the drive, check its cable"),
    _pattern("disk", "warn", r"device-mapper: multipath: .*Failing path (?P<device>[\d:]+)", "one way to the disk is lost: check cable, switch, controller"),
    _pattern("disk", "bad", r"\[(?P<device>sd\w+)\] .*Offlining disk", "the drive is gone: replace it"),
    _pattern("disk", "bad", r"(?P<device>mpt[23]sas_cm\d+): (?:fault_state|.*(?:in FAULT state|host (?:not |is non-)operational|dead host))", "the controller of the disks failed: check it"),
    _pattern("disk", "bad", r"Pool '(?P<device>[\w.-]+)' has encountered an uncorrectable I/O failure", "the pool stands still: `zpool status` says which disks failed; after that `zpool clear`"),
    _pattern("disk", "bad", r"LustreError: .*rc = -28\b", "the file system is full: `lfs df`"),
    _pattern("disk", "warn", r"(?P<device>mmcblk\d+): error -\d+", "the card fails: save its data, replace it"),
    _pattern("disk", "warn", r"(?P<device>mmc\d+): (?:Timeout waiting for hardware interrupt|Card stuck)", "the card fails: save its data, replace it"),
    _pattern("disk", "bad", rf"(?:hpsa|smartpqi|aacraid|megaraid_sas) (?P<device>{_PCI}): .*(?:lockup detected|[Cc]ontroller (?:is )?offline|cannot be recovered)", "the controller of the disks failed: check it"),
    # Its own events, with their own severity: NUMBER (TIME/CLASS/SEVERITY) - TEXT.
    _pattern("disk", "bad", rf"megaraid_sas (?P<device>{_PCI}): \d+ \(\S+/(?:FATAL|DEAD)\) - ", "an array or the controller is lost: replace its disks, restore its data"),
    _pattern("disk", "warn", rf"megaraid_sas (?P<device>{_PCI}): \d+ \(\S+/CRIT\) - ", "an array has lost a disk, or one fails: look with the controller's own tool, replace it"),
    _pattern("disk", "warn", r"aacraid: Host (?:bus|adapter) (?:reset|abort) request", "the controller of the disks does not answer: watch it, check it"),
    _pattern("disk", "bad", rf"megaraid_sas (?P<device>{_PCI}): .*\bFAULT state", "the controller of the disks failed: check it"),
    _pattern("edac", "bad", r"EDAC (?P<device>MC\d+): .*\bUE\b", _MEMORY),
    _pattern("edac", "warn", r"EDAC (?P<device>MC\d+): .*\bCE\b", _MEMORY),
    # Bits of the status (linux arch/x86/include/asm/mce.h): 61 uncorrected
    # (UC), 57 processor context corrupt (PCC).
    _pattern("mce", "bad", rf"(?:Machine Check(?: Exception| Event)?: *\w+ Bank \d+: |\bSTATUS:? ?)(?:0x)?{_UNCORRECTED}", "a hardware fault: drain the node"),
    _pattern("mce", "bad", r"\[Hardware Error\]: .*_STATUS\[[^\]]*\b(?:UE|UC|PCC)\b", "a hardware fault: drain the node"),
    _pattern("mce", "bad", r"\[Hardware Error\]: (?:Machine [Cc]heck: (?:Processor context corrupt|Overflowed|Invalid)|.*\bError \d+, type: (?:fatal|recoverable))", "a hardware fault: drain the node"),
    _pattern("mce", "warn", r"Machine Check(?: Event)?: *\w+ Bank \d+: (?:0x)?[89cd][0-9a-f]{15}", "corrected: watch whether it comes again"),
    _pattern("mce", "bad", r"(?:[Uu]ncorrected hardware memory error|Machine Check Exception|Memory failure: 0x|event severity: (?:fatal|recoverable))", _MEMORY),
    _pattern("mce", "bad", r"\[Hardware Error\]: .*\b[Uu]ncorrected\b", "a hardware fault: drain the node"),
    _pattern("mce", "bad", r"(?:\[Hardware Error\]: System Fatal error|NMI: (?:PCI system error|IOCK error|memory parity error))", "a hardware fault: drain the node"),
    _pattern("mce", "warn", r"\[Hardware Error\]:\s+(?:fru_text: (?=[A-Z]{1,4}\d{1,2}\b|\S*DIMM)|DIMM location: )(?P<device>.{1,60})$", "the firmware means this module: watch whether it comes again, replace it"),
    _pattern("mce", "warn", r"\[Hardware Error\]: Deferred error", "bad memory was found before it was used: watch whether it comes again"),
    _pattern("mce", "warn", r"\[Hardware Error\]: (?:.*\bCorrected error|.*event severity: corrected)", "corrected: watch whether it comes again"),
    _pattern("mce", "warn", r"Machine check events logged", "the lines beside it, mcelog or rasdaemon say whether it was corrected"),
    _pattern("thermal", "warn", r"(?P<device>CPU\d+): (?:Core|Package) temperature (?:is )?above threshold", "the CPU slows down: check fans and inlet air"),
    _pattern("thermal", "ok", r"(?P<device>CPU\d+): (?:Core|Package) temperature/speed normal"),
    _pattern("thermal", "bad", r"critical temperature reached", "the node shuts down: check fans and inlet air"),
    _pattern("voltage", "bad", r"(?:Undervoltage detected|Under-voltage detected)", "the supply is too weak: change it or its cable"),
    _pattern("voltage", "ok", r"Voltage normalised"),
    _pattern("voltage", "warn", r"soctherm: OC ALARM", "the board draws more than its supply gives: use a stronger supply or a lower power mode"),
    _pattern("files", "warn", r"VFS: file-max limit \d+ reached", "raise fs.file-max or find who leaks files"),
    _pattern("limits", "warn", r"nf_conntrack: .*table full, dropping packet", "connections fail: raise nf_conntrack_max, or take the firewall off the fabric"),
    _pattern("limits", "warn", r"neighbou?r(?: table|: \w+: neighbou?r table) overflow", "nodes do not find each other: raise net.ipv4.neigh.default.gc_thresh1 to 3 above the number of nodes"),
    _pattern("limits", "warn", r"TCP: (?:out of memory -- consider|too many orphaned sockets)", "connections fail: raise net.ipv4.tcp_mem, or find who keeps so many"),
    _pattern("limits", "warn", r"cgroup: fork rejected by pids controller|fork rejected by pids controller in ", "programs cannot start: raise pids.max or TasksMax of that user or job"),
    _pattern("clock", "warn", r"clocksource: .*Marking clocksource '\w+' as unstable|Clocksource \w+ unstable", "time is read slowly from now on: update firmware or BIOS, reboot the node"),
    _pattern("mlx5", "info", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?mlx5_cmd_out_err:.*(?:ACCESS_REG|QUERY_\w+)\(", "the firmware refused a question, such as for a counter that this port does not allow"),
    _pattern("mlx5", "warn", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?Port module event(?:\[error\]|: module \d+, Cable error)", "check cable or transceiver of this port"),
    _pattern("mlx5", "warn", rf"(?:mlx5_core (?P<device>{_PCI}): .*)?Detected insufficient power on the PCIe slot", "check the power of the slot"),
    _pattern("mlx5", "warn", rf"mlx5_core (?P<device>{_PCI}): .*High temperature on sensors", "the adapter or its module is too hot: check fans and inlet air"),
    _pattern("mlx5", "warn", rf"mlx5_core (?P<device>{_PCI}): .*Health issue observed, .*severity\([4-7]\)", "watch the adapter"),
    _pattern("mlx5", "warn", rf"mlx5_core (?P<device>{_PCI})(?: \S+)?: .*TX timeout", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("bnxt", "warn", rf"bnxt_en (?P<device>{_PCI})(?: \S+)?: .*TX timeout", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("mlx5", "bad", rf"mlx5_core (?P<device>{_PCI}): .*(?:health compromised|device's health|Fatal error|assert_var|Health issue observed|PCI slot is unavailable|handling bad device|pre-initializing state|health recovery flow aborted|PCI channel offline)", "the adapter failed: reset or reboot"),
    _pattern("mlx5", "warn", rf"mlx5_core (?P<device>{_PCI}): .*(?:Waiting for FW initialization|timeout\. Will cause a leak|mlx5_cmd_out_err:)", "the firmware refuses or does not answer: reset the adapter; again: firmware or slot"),
    _pattern("bnxt", "bad", rf"bnxt_en (?P<device>{_PCI})(?: \S+)?: .*(?:[Ff]irmware (?:fatal|not responding)|FW fatal|[Ff]atal (?:firmware|FW))", "the adapter failed: reset or reboot"),
    _pattern("bnxt", "warn", rf"bnxt_en (?P<device>{_PCI})(?: \S+)?: .*(?:[Ff]irmware .*reset|FW reset|Error \(timeout: |[Hh]wrm .*timeout|QPLIB: cmdq\[.*timed ?out)", "the firmware refuses or does not answer: reset the adapter; again: firmware or slot"),
    _pattern("nic", "bad", r"infiniband (?P<device>\S+): The device (?:didn't send any completion|sent a completion but)", "the adapter does not answer: reboot the node; again: another instance"),
    _pattern("nic", "bad", rf"efa (?P<device>{_PCI}): (?:Admin queue is closed|Device isn't ready|Reset indication didn't turn)", "the adapter does not answer: reboot the node; again: another instance"),
    _pattern("nic", "warn", r"infiniband (?P<device>\S+): Requesting a reset", "the adapter is reset, jobs on it are lost: watch it; again: firmware or slot"),
    _pattern("nic", "warn", rf"sfc (?P<device>{_PCI})(?: \S+)?: MC reboot detected", "the adapter's controller started again: watch it; again: firmware or slot"),
    _pattern("nic", "warn", rf"mana (?P<device>{_PCI}): HWC: .*[Tt]imed out", "the adapter does not answer: reboot the node; again: ask the cloud"),
    _pattern("nic", "warn", rf"ionic (?P<device>{_PCI})(?: \S+)?: FW heartbeat stalled", "the firmware does not answer: reset the adapter; again: firmware or slot"),
    _pattern("nic", "warn", rf"\w+ (?P<device>{_PCI})(?: \S+)?: Detected (?:Tx|Hardware) Unit Hang", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("nic", "bad", rf"\w+ (?P<device>{_PCI}).*: PCIe link lost", "the adapter is gone: reboot, reseat it"),
    _pattern("nic", "bad", rf"(?:ice|i40e) (?P<device>{_PCI})(?: \S+)?: Rebuild failed, unload", "the adapter failed: load its driver again or reboot"),
    _pattern("nic", "bad", rf"\b(?:mlx[45]_core|bnxt_en|ice|i40e|hfi1|ionic|ena|efa):? (?:probe of )?(?P<device>{_PCI})(?:: probe with driver \w+)? failed with error -", "the driver cannot start the adapter: reset or reboot"),
    _pattern("nic", "bad", r"(?P<device>bnxt_re\d+): async event: fatal", "the adapter failed: reset or reboot"),
    _pattern("nic", "bad", rf"\w+ (?P<device>{_PCI})(?: \S+)?: (?:Adapter removed|.*(?:Fatal firmware error|Firmware (?:halted|crashed)|[Rr]ecovery mode detected|firmware recovery mode))", "the adapter failed: reset or reboot"),
    _pattern("nic", "warn", rf"(?:i40e|ice|iavf|ixgbe) (?P<device>{_PCI})(?: \S+)?: .*(?:ECC error|Malicious Driver Detection|HMC error|reset failed|Recovery module loading failed)", "the adapter has faults: watch it; again: firmware or slot"),
    _pattern("nic", "bad", rf"mlx4_core (?P<device>{_PCI}): Internal error detected", "the adapter failed: reset or reboot"),
    _pattern("nic", "warn", rf"mlx4_core (?P<device>{_PCI}): command \w+ timed out", "the firmware refuses or does not answer"),
    _pattern("nic", "warn", rf"ena (?P<device>{_PCI}).*: Keep alive watchdog timeout", "the adapter does not answer and is reset"),
    _pattern("nic", "warn", r"(?P<device>[\w.-]+): NETDEV WATCHDOG: ", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("nic", "warn", r"NETDEV WATCHDOG: (?P<device>[\w.-]+) \(", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("nic", "warn", rf"\w+ (?P<device>{_PCI}|virtio\d+)(?: \S+)?: .*(?:[Tt][Xx][ _]?[Tt]imeout|[Tt]ransmit (?:queue )?.*timed out|TX hasn't completed|lost tx completions)", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("nic", "warn", r"(?P<device>[\w.-]+): transmit timeout: latency", "the adapter stopped sending: reset it; again: firmware or slot"),
    _pattern("link", "warn", r"bond\S*: (?:\(slave (?P<device>[\w.-]+)\): )?link status definitely down", "one link of the bond is lost: check cable and switch port"),
    _pattern("link", "ok", r"bond\S*: \(slave (?P<device>[\w.-]+)\): link status definitely up"),
    _pattern("link", "warn", r"hfi1 \S+: (?P<device>hfi1_\d+): set_link_state: current (?:ACTIVE|ARMED|INIT), new (?!ACTIVE|ARMED)", "check cable and switch port"),
    _pattern("link", "ok", r"hfi1 \S+: (?P<device>hfi1_\d+): set_link_state: current \w+, new ACTIVE"),
    _pattern("link", "warn", r"(?P<device>bond\S*): now running without any active interface", "the bond is dead: check cables and switch ports"),
    _pattern("link", "ok", r"(?P<device>bond\S*): first active interface up"),
    # Not SATA: a port without a disk is always down; a disk that goes is "disabled".
    _pattern("link", "warn", r"(?<![\w.-])(?!SATA )(?P<device>[\w.-]+):? (?:NIC )?[Ll]ink (?:is )?[Dd]own\b", "check cable and switch port"),
    _pattern("link", "ok", r"(?<![\w.-])(?!SATA )(?P<device>[\w.-]+):? (?:NIC )?[Ll]ink (?:is )?[Uu]p\b"),
    _pattern("pcie", "bad", rf"(?P<device>{_PCI}): DPC: (?:containment event|unmasked uncorrectable error|ERR_\w+ detected)", "the port was shut off, what is behind it is gone: reseat it, reboot"),
    _pattern("pcie", "bad", rf"(?P<device>{_PCI}): (?:AER: (?:can't recover|[Dd]evice recovery failed)|Unable to change power state from \S+ to D0, device inaccessible|can't change power state from \S+ to D0 \(config space inaccessible)", "the device is gone or stuck: reseat it, reboot"),
    _pattern("pcie", "warn", rf"(?P<device>{_PCI})(?::\w+)?: (?:pciehp: )?Slot\([\w-]+\): (?:Link Down|Card not present)", "a device left its slot: reseat it, unless somebody took it out"),
    _pattern("pcie", "bad", r"EEH: .*(?:permanently disabled|has failed \d+ times)", "a device was shut off: reseat it, reboot"),
    _pattern("pcie", "warn", r"EEH: (?:Frozen )?(?P<device>PHB\S+) (?:failure )?detected", "the kernel stopped a device and tries to start it again: watch it, reseat it"),
    _pattern("iommu", "warn", rf"DMAR: .*Request device \[(?:\w+:)?(?P<device>{_PCI})\]", _IOMMU),
    _pattern("iommu", "warn", rf"AMD-Vi: Event logged \[\w+ device=(?P<device>{_PCI})", _IOMMU),
    _pattern("iommu", "warn", rf"(?:(?P<device>{_PCI}): )?AMD-Vi: Event logged \[(?:IO_PAGE_FAULT|\w+_ERROR|\w+_FAULT)", _IOMMU),
    _pattern("iommu", "warn", r"arm-smmu\S* (?P<device>\S+): (?:Unhandled context fault|event 0x\w+ received|\s*event: F_)", _IOMMU),
    _pattern("iommu", "warn", rf"AMD-Vi: IOTLB_INV_TIMEOUT device=(?P<device>{_PCI})", _IOMMU_STUCK),
    _pattern("iommu", "bad", r"(?:AMD-Vi: Completion-Wait loop timed out|arm-smmu\S* \S+: CMDQ timeout|DMAR: .*Device-TLB [Ii]nvalidation timeout)", _IOMMU_STUCK),
    # A root port reports for the device that it names last.
    _pattern("pcie", "bad", rf"AER: (?:Multiple )?Uncorrect\w+ .*received(?: from|:) (?P<device>{_PCI})", "a device or its slot fails: reseat it"),
    _pattern("pcie", "warn", rf"AER: (?:Multiple )?Correct\w+ .*received(?: from|:) (?P<device>{_PCI})", "watch whether it comes often: reseat the device"),
    _pattern("pcie", "bad", rf"(?P<device>{_PCI}): .*(?:severity=Uncorrect\w+|AER: (?:Multiple )?Uncorrect\w+)", "a device or its slot fails: reseat it"),
    _pattern("pcie", "warn", rf"(?P<device>{_PCI}): AER: aer_layer=", "watch whether it comes often: reseat the device"),
    _pattern("pcie", "warn", rf"(?P<device>{_PCI}): .*(?:severity=Correct\w+|AER: (?:Multiple )?Correct\w+)", "watch whether it comes often: reseat the device"),
    _pattern("device", "warn", rf"\w+ (?P<device>{_PCI})(?: \S+)?: .*(?:[Ff]atal (?:hardware|HW|firmware|FW) error|[Uu]nrecoverable|[Ff]irmware (?:hang|hung|died|is dead)|(?:device|adapter|controller) (?:is )?(?:dead|gone|not responding|unresponsive)|HC died)", "its driver gave it up: look at the lines before it; reset the device or reboot"),
    _pattern("pcie", "warn", rf"(?P<device>{_PCI}): .*available PCIe bandwidth, limited by", "fewer lanes or a lower speed than it can: reseat the device"),
)  # fmt: skip
"""The first that matches counts. Events on the wire have the kind as `kernel.<kind>`."""
_XID = (
    # With MIG the instance is added: `(PCI:0000:01:00 GPU-I:05 GPU-CI:02)`.
    rf"^NVRM: Xid \((?:PCI:)?(?P<pci>{_PCI})(?: GPU-C?I:\d+)*\): (?P<number>\d{{1,9}})(?:, |$)(?P<details>.*)"
)
_LOST = rf"^NVRM: (?:.*?GPU (?:at )?(?:PCI:)?(?P<pci>{_PCI})\b)?.*fallen off the bus"
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU (?:PCI:)?({_PCI})\b")
_SXID = rf"^nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<pci>{_PCI})\): (?P<number>\d{{1,9}}), (?P<details>.*)"
_SXIDS = (
    ("Fatal", "bad", f"reset all GPUs and the NVSwitch ({LET_GO}), or reboot"),
    # Lines after the first have only registers.
    ("Severity ", "info", ""),
    ("Data ", "info", ""),
    ("", "warn", "watch this link"),
)
"""(beginning of an SXid's details, level, what to do); the first that fits counts."""
_LINK = re.compile(r"\b[Ll]ink (-?\d{1,3})\b")


_NAMES_FIRST = re.compile(
    r"(?:traps: )?.{1,15}?\[\d+\]:? (?=segfault at|trap |general protection|bad frame)"
)
"""The name of a program before what happened to it: traps.c, fault.c."""
_QUOTES = re.compile(
    r"process '"  # fs/exec.c: the path of a program
    r"|oom-kill:constraint=\w+,|Memory cgroup stats for |\[ *\d+\] +\d+ +\d+ "  # mm/oom_kill.c, memcontrol.c
    r"|cgroup: fork rejected by pids controller in |overlayfs: |audit: |input: "
    r"|usb [\d.-]+: (?:Product|Manufacturer|SerialNumber): "
    r"|.*\bPID: \d+ Comm: |[^`]*`"
)
"""The kernel's own words in a line that goes on with a text which anybody may choose."""


def _own_words(message: str) -> str:
    """What of a message the kernel itself says: without the names of programs, files and cgroups
    in those lines in which any user can have it write them.
    """
    named = _NAMES_FIRST.match(message)
    message = message[named.end() :] if named else message
    quoting = _QUOTES.match(message)
    return quoting[0] if quoting else message


def find_kernel_event(message: str) -> Optional[Found]:
    """The event in one message of the kernel (without prefix); None if it is no event."""
    message = clean_text(message[:LINE_LIMIT], LINE_LIMIT)
    own = _own_words(message)
    for place, match in match_patterns(_NVIDIA_PATTERNS, own):
        return _NVIDIA[place][1](match)
    for place, match in match_patterns(_LISTED_PATTERNS, own):
        row = PATTERNS[place]
        device = match.groupdict().get("device") or ""
        if row.names_slot:
            device = event_pci_address(device)
        return Found(row.kind, row.level, _say(message.strip(), row.do), device)
    return None


class LinkLimit(Value):
    """The link that limits a device, as the kernel says at boot (linux drivers/pci/pci.c)."""

    device: str
    """PCI address, as `at`."""
    speed: str
    """Gigatransfers per second: "8.0"."""
    width: int
    """Lanes."""
    at: str
    """The device that ends the link."""


_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
_LIMITED = re.compile(
    rf"\w+ (?P<device>{_ADDRESS}): .*limited by (?P<speed>[\d.]{{1,5}}) GT/s PCIe x(?P<width>\d{{1,2}})"
    rf" link at (?P<at>{_ADDRESS})"
)


def find_link_limit(message: str) -> Optional[LinkLimit]:
    """What limits a device, by this message of the kernel; None if it does not tell of that."""
    found = _LIMITED.match(message)
    if found is None:
        return None
    return LinkLimit(found["device"], found["speed"], int(found["width"]), found["at"])


def _xid(found: "re.Match[str]") -> Found:
    number = int(found["number"])
    xid = judge_xid(number, found["details"])
    seen = f"Xid {number}, {xid.what}" + _after(found["details"])
    device, link = event_pci_address(found["pci"]), _link(found["details"])
    return Found("xid", xid.level, _say(seen, xid.do), device, number, link)


def _lost(found: "re.Match[str]") -> Found:
    xid = judge_xid(OFF_THE_BUS, "")
    text = _say(f"Xid {OFF_THE_BUS}, {xid.what}", xid.do)
    return Found("xid", xid.level, text, event_pci_address(found["pci"] or ""), OFF_THE_BUS)


def _sxid(found: "re.Match[str]") -> Found:
    level, do = next(row[1:] for row in _SXIDS if found["details"].startswith(row[0]))
    text = _say(f"SXid {found['number']}" + _after(found["details"]), do)
    device, link = event_pci_address(found["pci"]), _link(found["details"])
    return Found("sxid", level, text, device, int(found["number"]), link)


def _link(details: str) -> Optional[int]:
    found = _LINK.search(details)
    return int(found[1]) if found else None


_NVIDIA = ((_XID, _xid), (_LOST, _lost), (_SXID, _sxid))
_NVIDIA_PATTERNS = tuple(pattern for pattern, _ in _NVIDIA)
_LISTED_PATTERNS = tuple(row.pattern for row in PATTERNS)


def event_pci_address(pci: str) -> str:
    """A PCI address as in events: domain, bus and slot, in lower case, without function."""
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


_CRITICAL = 2
"""Levels of the kernel up to this: emergency, alert, critical."""
_BESIDE = 40
"""Lines after an event that may belong to its report, such as a trace."""
_NO_NEWS = re.compile(r".*\[Hardware Error\]|Initramfs unpacking failed|\s")
"""Beginnings of lines that the kernel calls critical: further lines of
reports whose first has a pattern, and what is often said while nothing is wrong.
"""
_MESSAGE = 4
"""Lines after the one with the address that belong to the same message;
for later lines the device is not known.
"""


class KernelLines:
    """Finds events in one log, line by line: in some messages one line names
    the device and a later one the fault.
    """

    def __init__(self) -> None:
        self._spoken_of = ""
        self._lines_left = 0
        self._beside = 0

    def take(self, line: str) -> "tuple[Optional[KernelLine], Optional[Found]]":
        """(the line without prefix, None if the kernel did not write
        it; the event in it, or None).
        """
        stripped = strip_log_prefix(line[:LINE_LIMIT])
        if stripped is None:
            return None, None
        found = find_kernel_event(stripped.message) or self._unknown(stripped)
        self._beside = _BESIDE if found else max(0, self._beside - 1)
        named = _NAMED.match(stripped.message)
        self._lines_left -= 1
        if named and found is None:
            self._spoken_of, self._lines_left = event_pci_address(named[1]), _MESSAGE
        elif found and found.xid == OFF_THE_BUS and not found.device and self._lines_left >= 0:
            found = replace(found, device=self._spoken_of)
        return stripped, found

    def _unknown(self, line: KernelLine) -> Optional[Found]:
        """The event in a line without a pattern that the kernel itself
        calls critical; None after another event, to which it may belong.
        """
        if line.level is None or line.level > _CRITICAL or self._beside:
            return None
        message = clean_text(_own_words(line.message[:LINE_LIMIT]), LINE_LIMIT)
        if not message.strip() or _NO_NEWS.match(message):
            return None
        return Found("critical", "warn", _say(message, ""))
