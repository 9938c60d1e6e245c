"""Faults of nodes in the form of public reports, of drivers' sources and of vendors' pages, written
before any was played: what has to be told, of which device, how bad, and what to do.
"""

from rankdeck_agent.rules.levels import Expected
from tests.support.nvml import H100
from tests.support.sick_nodes import Later, NodeCase, Told, amd_card, counters, many, port

WARN, BAD, EITHER = "warn", "bad", "warn|bad"
GPU, XID, LINK, FLAP, STORAGE, NVLINK, RETRIES, PCIE, MEMORY, OOM, DISK, HEAT, CLOCK, KERNEL = 2, 4, 7, 8, 9, 10, 12, 15, 16, 17, 18, 19, 20, 21  # fmt: skip
AMD, PHYSICAL, RETX, ECC = 5, 11, 13, 5


def says(*lines: str, right: tuple[Told, ...], may: tuple[Told, ...] = ()) -> NodeCase:
    return NodeCase(kernel=lines, right=right, may=may)


def told(level: str, part: int, device: str = ".*", say: str = "", do: str = "") -> tuple[Told, ...]:  # fmt: skip
    return (Told(level, part, device, say, do),)


OOPS = told(BAD, KERNEL, do="reboot")
ANY_XID = told(EITHER, XID)

KERNEL_LINES: dict[str, NodeCase] = {
    # NVIDIA, drivers 515 to 610
    "the GSP's heartbeat is late, driver 595": says("NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812751949 heartbeat 1899482 heartbeatWithOffsetMs 812745879 diff 6070 timeout 5200", "NVRM: GPU6 _kgspLogRpcTimeout: ********************************* GSP Timeout **********************************", right=told(BAD, GPU, say="GPU6", do="reboot|reset")),
    "WPR2 is still up after a warm reboot": says("NVRM: GPU0 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP", "NVRM: GPU0 _kgspBootGspRm: (the GPU is likely in a bad state and may need to be reset)", "NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM", "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2168)", "NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0", right=told(BAD, GPU, "0000:01:00", do="reboot|power")),
    "the GPU's firmware does not boot": says("NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: (progress 0x3)", "NVRM: kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete: 0x65 VBIOS version 94.02.59.00.05", "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM", "NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x65:1792)", right=told(BAD, GPU, "0000:98:00", do="reboot")),
    "the GSP does not answer and a reboot is required": says("NVRM: Xid (PCI:0000:07:00): 119, pid=3182, name=vllm, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) sequence 12 (0x20800a4c 0x4).", "NVRM: Xid (PCI:0000:07:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", right=told(BAD, XID, "0000:07:00", do="reboot"), may=ANY_XID),
    "channels hang on their context switch": says("NVRM: GPU at PCI:0000:07:00: GPU-fb51809b-350a-99db-67b5-e16fc6d498ab", "NVRM: Xid (PCI:0000:07:00): 109, pid=326, name=python3, channel 0x00000007, errorString CTX SWITCH TIMEOUT, Info 0x74007", right=told(BAD, XID, "0000:07:00", do="reset")),
    "the watchdog of the driver finds a locked GPU": says("NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7", right=told(EITHER, GPU, do="reset|reboot")),
    "NVLinks of GPU 4 do not train, driver 580": says("NVRM: GPU4 knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!", right=told(EITHER, NVLINK, say="GPU4", do="NVSwitch|fabric|reset")),
    "an uncorrectable error, contained, with a row to remap": says("NVRM: Xid (PCI:0000:9b:00): 48, pid='<unknown>', name=<unknown>, DBE: An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 4, subpartition 1.", "NVRM: Xid (PCI:0000:9b:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x0000000000a1b2c3) marked for remapping, reset gpu to activate.", "NVRM: Xid (PCI:0000:9b:00): 94, pid=4711, name=python3, Contained: SM (0x1). RST: No, D-RST: No", right=told(BAD, XID, "0000:9b:00", do="reset"), may=ANY_XID),
    "a GPU falls off the bus, open driver": says("NVRM: GPU at PCI:0000:09:00: GPU-3c0de8e3-0000-0000-0000-000000000000", "NVRM: Xid (PCI:0000:09:00): 79, GPU has fallen off the bus.", "NVRM: GPU 0000:09:00.0: GPU has fallen off the bus.", "NVRM: GPU 0000:09:00.0: GPU serial number is 1562821083900.", "NVRM: A GPU crash dump has been created. If possible, please run", "NVRM: nvidia-bug-report.sh as root to collect this data before", right=told(BAD, XID, "0000:09:00", "79", "reboot")),
    "interrupts of a GPU storm": says("NVRM: Going over RM unhandled interrupt threshold for irq 153", right=told(EITHER, GPU, do="reboot|reset|log")),
    "an NVSwitch has a fatal error": says("nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 19084, Fatal, Link 36 AN1 Heartbeat Timeout Error (First)", "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 19084, Severity 1 Engine instance 36 Sub-engine instance 00", right=told(BAD, XID, "0000:06:00 link 36", "19084", "NVSwitch|reset|reboot")),
    # AMD
    "MES is gone and the reset fails": says("amdgpu 0000:0d:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE", "amdgpu 0000:0d:00.0: amdgpu: MES might be in unrecoverable state, issue a GPU reset", "amdgpu 0000:0d:00.0: amdgpu: GPU reset begin!", "amdgpu 0000:0d:00.0: amdgpu: GPU reset end with ret = -62", right=told(BAD, AMD, "0000:0d:00", do="reboot")),
    "the SMU of a GPU does not answer": says("amdgpu 0000:0d:00.0: amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000012 SMN_C2PMSG_82:0x00000005", "amdgpu 0000:0d:00.0: amdgpu: Failed to export SMU metrics table!", right=told(EITHER, AMD, "0000:0d:00", do="reset|reboot")),
    "an MI300X dies in the data fabric": says("amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", right=told(BAD, AMD, "0000:1c:00", do="reset")),
    "an MI300X corrects errors of its XGMI links": says("amdgpu 0000:42:00.0: {1}[Hardware Error]: Accelerator Check Architecture events logged", "amdgpu 0000:42:00.0: {1}[Hardware Error]: aca entry[00].STATUS=0x98000800003e0000", "amdgpu 0000:42:00.0: amdgpu: {1}socket: 1, die: 0, 1 new correctable hardware errors detected in total in xgmi_wafl block", right=told(WARN, AMD, "0000:42:00", do="watch")),
    "an MI250X has as many bad pages as it may": says("amdgpu 0000:2f:00.0: amdgpu: Saved bad pages 256 reaches threshold value 256", right=told(EITHER, AMD, "0000:2f:00", do="replace|vendor")),
    "the XGMI topology cannot be set": says("amdgpu 0000:2f:00.0: amdgpu: XGMI: Set topology failure on device 5e2a13ba1c6f, hive 7a9e21, ret -22", right=(Told(EITHER, AMD, "0000:2f:00", do="reboot"),)),
    # Intel
    "Xe is wedged after a failed reset": says("xe 0000:0b:00.0: [drm] *ERROR* Tile0: GT0: failed to clear GRDOM_FULL (-ETIMEDOUT)", "xe 0000:0b:00.0: [drm] *ERROR* Tile0: GT0: reset failed (-ETIMEDOUT)", "xe 0000:0b:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:0b:00.0 as wedged.", right=told(BAD, GPU, "0000:0b:00", do="reboot")),
    "i915 cannot reset its chip": says("i915 0000:4d:00.0: [drm] *ERROR* GT0: GUC: Engine reset failed on 0:0 (rcs0) because 0x00000000", "i915 0000:4d:00.0: [drm] *ERROR* Failed to reset chip", right=told(BAD, GPU, "0000:4d:00", do="reboot")),
    # Adapters
    "mlx5 gives up its recovery": says("mlx5_core 0000:61:00.1: mlx5_health_try_recover:381:(pid 1): health recovery flow aborted, PCI reads still not working", right=told(BAD, LINK, "0000:61:00", do="reset|reboot")),
    "mlx5 counts no heartbeat": says("mlx5_core 0000:a1:00.0: poll_health:1095:(pid 0): device's health compromised - reached miss count", "mlx5_core 0000:a1:00.0: print_health_info:421:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:", "mlx5_core 0000:a1:00.0: print_health_info:425:(pid 0): assert_var[0] 0x00000000", right=told(BAD, LINK, "0000:a1:00", do="reset|reboot")),
    "efa gets no completion": says("infiniband rdmap0s29: The device didn't send any completion for admin cmd CREATE_QP(1) status 2 (ctx 0x000000003a1b, sq producer: 83, sq consumer: 83, cq consumer: 82)", right=told(EITHER, LINK, "rdmap0s29", do="reboot|reset|instance")),
    "commands of bnxt_re time out": says("bnxt_en 0000:86:00.0: QPLIB: cmdq[0x2e1]=0x5 timedout (20000)msec", right=told(EITHER, LINK, "0000:86:00", do="reset|reboot|firmware")),
    "an Omni-Path link goes down": says("hfi1 0000:05:00.0: hfi1_0: set_link_state: current ACTIVE, new OFFLINE", "hfi1 0000:05:00.0: hfi1_0: physical state changed to PHYS_OFFLINE (0x9), phy 0x90", right=(Told(EITHER, FLAP, "hfi1_0", do="cable|switch"),)),
    "e1000e hangs": says("e1000e 0000:00:19.0 eth1: Detected Hardware Unit Hang:", "  TDH                  <ec>", right=told(EITHER, LINK, "0000:00:19|eth1", do="reset|firmware|slot|driver")),
    "igc loses its PCIe link": says("igc 0000:6d:00.0 enp109s0: PCIe link lost, device now detached", right=(Told(BAD, LINK, "0000:6d:00", do="reseat|reboot|reset"),)),
    "ice cannot rebuild": says("ice 0000:b1:00.0: PF VSI rebuild failed: -22", "ice 0000:b1:00.0: Rebuild failed, unload and reload driver", right=told(BAD, LINK, "0000:b1:00", do="reload|reset|reboot")),
    "Azure's adapter does not answer": says("mana 7870:00:00.0: HWC: Request timed out!", right=told(EITHER, LINK, "7870:00:00", do="reboot|reset|cloud")),
    # Memory of the host, processors
    "firmware corrects errors of DIMM D2": says("{35}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4", "{35}[Hardware Error]: It has been corrected by h/w and requires no further action", "{35}[Hardware Error]: event severity: corrected", "{35}[Hardware Error]:  Error 0, type: corrected", "{35}[Hardware Error]:  fru_text: D2", "{35}[Hardware Error]:   section_type: memory error", "{35}[Hardware Error]:    error_status: Storage error in DRAM memory (0x0000000000000400)", "{35}[Hardware Error]:   error_type: 2, single-bit ECC", right=told(WARN, MEMORY, do="watch|DIMM")),
    "firmware reports an error that a program may survive": says("{3}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0", "{3}[Hardware Error]: event severity: recoverable", "{3}[Hardware Error]:  Error 0, type: recoverable", "{3}[Hardware Error]:   section_type: memory error", "{3}[Hardware Error]:   error_type: 3, multi-bit ECC", right=told(BAD, MEMORY, do="DIMM|drain")),
    "EDAC of AmpereOne names a DIMM": says("EDAC MC0: 1 CE single-symbol chipkill ECC on P0_Node0_Channel5_Dimm0 DIMMF1 (node:0 card:5 module:16 rank:0 bank_group:3 device:7 row:32680 column:1312 DIMM location: P0_Node0_Channel5_Dimm0 DIMMF1 page:0x3fd437 offset:0x4180 grain:1 syndrome:0x0)", right=told(WARN, MEMORY, "MC0", "DIMMF1", "DIMM")),
    "EDAC of Skylake has an uncorrectable error": says("EDAC skx MC2: HANDLING MCE MEMORY ERROR", "EDAC skx MC2: CPU 0: Machine Check Event: 0x0 Bank 13: 0x8c00004200800090", "EDAC MC2: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x3a1 offset:0x0 grain:32)", right=told(BAD, MEMORY, "MC2", "DIMM#0", "DIMM"), may=told(WARN, MEMORY)),
    "EPYC corrects an error of its memory controller": says("mce: [Hardware Error]: Machine check events logged", "[Hardware Error]: Corrected error, no action required.", "[Hardware Error]: CPU:2 (19:1:1) MC17_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000000011b", "[Hardware Error]: Unified Memory Controller Ext. Error Code: 0, DRAM ECC error.", right=told(WARN, MEMORY)),
    "EPYC poisons data": says("[Hardware Error]: Uncorrected, software restartable error.", "[Hardware Error]: CPU:66 (19:11:1) MC0_STATUS[-|UE|MiscV|AddrV|-|-|SyndV|UECC|-|Poison|-]: 0xbc00080001010135", right=told(BAD, MEMORY, do="drain")),
    "an ARM kernel aborts on the bus": says("Internal error: synchronous external abort: 0000000096000610 [#1] SMP", right=OOPS),
    "an ARM kernel has a bug": says("Internal error: Oops - BUG: 00000000f2000800 [#1] PREEMPT SMP", right=OOPS),
    # Stuck kernels
    "a task waits for I/O, kernel 6.17": says("INFO: task python3:1473 blocked in I/O wait for more than 122 seconds.", right=told(WARN, KERNEL, say="python3", do="wait|storage|see")),
    "a work queue is locked up": says("BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 44s!", "Showing busy workqueues and worker pools:", right=told(EITHER, KERNEL, do="reboot")),
    "nobody serves an interrupt": says("irq 16: nobody cared (try booting with the \"irqpoll\" option)", "Disabling IRQ #16", right=told(EITHER, KERNEL)),
    "RCU waits, and its thread starves": says("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "rcu: rcu_preempt kthread starved for 14689 jiffies! g2345 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=3", right=told(BAD, KERNEL, do="reboot")),
    # File servers
    "the state of NFSv4 cannot be recovered": says("NFS: state manager: lease expired failed on NFSv4 server 10.0.0.5 with error 13", right=told(EITHER, STORAGE, "10.0.0.5", do="server|mount")),
    "the MGS of Lustre is lost": says("LustreError: 166-1: MGC10.0.0.1@o2ib: Connection to MGS (at 10.0.0.1@o2ib) was lost; in progress operations using this service will fail", right=told(WARN, STORAGE, "MGC10.0.0.1@o2ib|", do="server|network")),
    "Ceph's metadata server denies to reconnect": says("ceph: mds0 closed our session", "ceph: mds0 reconnect start", "ceph: mds0 reconnect denied", right=told(EITHER, STORAGE, "mds0", do="mount|restart|server")),
    "Ceph's monitors are lost": says("libceph: mon0 (1)192.168.3.235:6789 session lost, hunting for new mon", right=told(WARN, STORAGE, do="server|network")),
    "Ceph's server hangs, kernel 6.8": says("ceph: [fb30d64e-7a8c-46d3-bbd7-77a3b1f080d1 27315342]: mds1 hung", right=told(WARN, STORAGE, "mds1", do="server|network")),
    # Disks
    "NVMe of a Raspberry Pi is reset": says("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "nvme nvme0: Does your device have a faulty power saving mode enabled?", "nvme 0000:01:00.0: enabling device (0000 -> 0002)", right=told(WARN, DISK, "nvme0", do="watch|drive")),
    "NVMe cannot read a sector": says("nvme0n1: Read(0x2) @ LBA 1953523136, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) MORE DNR", "critical medium error, dev nvme0n1, sector 1953523136 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2", right=told(BAD, DISK, "nvme0n1", do="disk|replace")),
    "a request to a disk times out": says("timeout error, dev nvme1n1, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0", right=told(EITHER, DISK, "nvme1n1", do="disk|drive")),
    "a disk goes offline": says("device offline error, dev sdb, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", right=told(BAD, DISK, "sdb", do="disk|drive|replace")),
    "SAS loses the way to a disk": says("recoverable transport error, dev sdq, sector 1234 op 0x0:(READ) flags 0x4000 phys_seg 2 prio class 0", right=told(EITHER, DISK, "sdq", do="disk|cable|drive")),
    "libata disables a disk, kernel 6.x": says("ata3.00: failed command: WRITE FPDMA QUEUED", "ata3: COMRESET failed (errno=-16)", "ata3: reset failed, giving up", "ata3.00: disable device", right=told(BAD, DISK, "ata3.00", do="replace|drive"), may=told(EITHER, DISK, "ata3")),
    "ext4 cannot allocate": says("EXT4-fs (sda1): Delayed block allocation failed for inode 131 at logical offset 0 with max blocks 2048 with error 117", "EXT4-fs (sda1): This should not happen!! Data will be lost", right=told(BAD, DISK, "sda1", do="check|disk")),
    "a controller of disks is dead": says("mpt3sas_cm0: SAS host is non-operational !!!!", right=told(BAD, DISK, "mpt3sas_cm0", do="controller")),
    "another controller hangs": says("aacraid: Host bus reset request. SCSI hang ?", right=told(EITHER, DISK, do="controller")),
    "a third controller locks up": says("smartpqi 0000:5c:00.0: controller offline: reason code 0x6100c (lockup)", right=told(BAD, DISK, "0000:5c:00", do="controller")),
    "an SD card does not answer": says("mmc0: Timeout waiting for hardware interrupt.", "mmc0: Card stuck being busy! __mmc_poll_for_busy", right=told(WARN, DISK, "mmc0", do="card|replace")),
    # PCIe
    "a root port names its device by number": says("pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e5(Receiver ID)", "pcieport 0000:00:1c.5:   device [8086:9d15] error status/mask=00000001/00002000", "pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5", "pcieport 0000:00:1c.5: can't find device of ID00e5", right=told(WARN, PCIE, "0000:00:1c", do="reseat|watch")),
    "AER of kernel 6.17 with the caller": says("pcieport 0000:00:00.0: AER: Multiple Correctable error message received from 0000:01:00.0", "nvme 0000:01:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)", "nvme 0000:01:00.0:    [12] Timeout", right=told(WARN, PCIE, "0000:01:00", do="reseat|watch")),
    "a GPU has half of its lanes": says("nvidia 0000:9b:00.0: 252.048 Gb/s available PCIe bandwidth, limited by 32.0 GT/s PCIe x8 link at 0000:99:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)", right=told(WARN, PCIE, "0000:9b:00", do="reseat")),
    # Memory
    "a cgroup is out of memory, RHEL 7": says("python invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0", "Memory cgroup out of memory: Kill process 30233 (python) score 1996 or sacrifice child", "Killed process 30233 (python), UID 1000, total-vm:8388608kB, anon-rss:4194304kB, file-rss:0kB, shmem-rss:0kB", right=told(WARN, OOM, say="python", do="ranks|memory")),
    "a user names a cgroup like a fault": says("python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "Memory cgroup stats for /user.slice/user-1000.slice/user@1000.service/NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.:", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/user.slice/user-1000.slice/user@1000.service/NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.,task_memcg=/x,task=python3,pid=4711,uid=1000", "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:0", right=told(WARN, OOM, say="4711")),
}  # fmt: skip

# ---- numbers

EIGHT = many(port(f"mlx5_{n}") for n in range(8))
MI300 = many(amd_card(n) for n in range(8))
IDLE_ROCE = {"link_layer": "Ethernet", "rate": "100 Gb/sec (4X EDR)"}
E810 = {"link_layer": "Ethernet", "rate": "25 Gb/sec (1X EDR)"}
BASE = "sys/class/infiniband"


def grows(device: str, after: float, before: dict[str, int], then: dict[str, int], right: tuple[Told, ...] = (), **more: str) -> NodeCase:  # fmt: skip
    """A port whose counters grow."""
    begin = {**port(device, **more), **counters(device, **before)}
    return NodeCase(files=begin, later=(Later(after=after, files=counters(device, **then)),), right=right)  # fmt: skip


NUMBERS: dict[str, NodeCase] = {
    "one of eight adapters vanishes": NodeCase(files=EIGHT, later=(Later(after=60, files={f"{BASE}/mlx5_3": None}),), right=told(BAD, LINK, "mlx5_3/1", "gone")),
    "all adapters vanish when their driver is unloaded": NodeCase(files=port("mlx5_0") | port("mlx5_1"), later=(Later(after=60, files={f"{BASE}/mlx5_0": None, f"{BASE}/mlx5_1": None}),), right=(*told(BAD, LINK, "mlx5_0/1", "gone"), *told(BAD, LINK, "mlx5_1/1", "gone"))),
    "the only port comes back with a quarter of its speed": NodeCase(files=port("mlx5_0"), later=(Later(after=600, files={f"{BASE}/mlx5_0/ports/1/rate": "100 Gb/sec (1X NDR)\n"}),), right=told(WARN, LINK, "mlx5_0/1", "100 Gbit/s", "cable|switch")),
    "an Ethernet interface comes back at a tenth": NodeCase(later=(Later(after=600, files={"sys/class/net/eth0/speed": "2500\n", "sys/class/net/eth0/carrier_changes": "4\n"}),), right=told(WARN, LINK, "eth0", "2.5 Gbit/s", "cable|switch")),
    "a port has two of four lanes": NodeCase(files={**EIGHT, f"{BASE}/mlx5_5/ports/1/rate": "200 Gb/sec (2X NDR)\n"}, right=told(WARN, LINK, "mlx5_5/1", "200 Gbit/s", "cable")),
    "no subnet manager": NodeCase(files={**EIGHT, **{f"{BASE}/mlx5_{n}/ports/1/state": "2: INIT\n" for n in range(8)}}, right=tuple(Told(EITHER, LINK, f"mlx5_{n}/1", "subnet manager", "subnet manager") for n in range(8))),
    "a RoCE port goes down": NodeCase(files=port("mlx5_0", **IDLE_ROCE), later=(Later(after=60, files={f"{BASE}/mlx5_0/ports/1/state": "1: DOWN\n", f"{BASE}/mlx5_0/ports/1/phys_state": "3: Disabled\n"}),), right=told(BAD, LINK, "mlx5_0/1", "down", "cable|switch")),
    "a queue counter wraps": grows("mlx5_0", 30, {"hw__packet_seq_err": 4_294_967_000}, {"hw__packet_seq_err": 500}, told(WARN, RETX, "mlx5_0/1", "796 retransmissions", "PFC|cable"), **IDLE_ROCE),
    "acknowledgements come too late": grows("mlx5_0", 30, {"hw__local_ack_timeout_err": 10}, {"hw__local_ack_timeout_err": 310}, (*told(WARN, RETX, "mlx5_0/1", "300"),), **IDLE_ROCE),
    "retries are exhausted": NodeCase(files={**port("mlx5_2", **IDLE_ROCE), **counters("mlx5_2", hw__req_transport_retries_exceeded=7)}, later=(Later(after=60, files=counters("mlx5_2", hw__req_transport_retries_exceeded=10)),), right=told(WARN, RETRIES, "mlx5_2/1", "3 times", "route|PFC|peer"), may=told(WARN, PHYSICAL, "mlx5_2/1")),
    "efa: a remote does not answer": NodeCase(files={**port("rdmap0s29", link_layer="Unspecified", rate="100 Gb/sec (4X EDR)"), **counters("rdmap0s29", hw__unresponsive_remote_events=0, hw__rx_bytes=1)}, later=(Later(after=60, files=counters("rdmap0s29", hw__unresponsive_remote_events=5)),), right=told(WARN, RETRIES, "rdmap0s29/1", "5 times"), may=told(WARN, PHYSICAL, "rdmap0s29/1")),
    "symbol errors by the hundred": NodeCase(files={**port("mlx5_0"), **counters("mlx5_0", symbol_error=3)}, later=(Later(after=200, files=counters("mlx5_0", symbol_error=503)),), right=told(BAD, PHYSICAL, "mlx5_0/1", "500", "cable|transceiver"), may=told(WARN, PHYSICAL, "mlx5_0/1")),
    "an irdma port of the new names retransmits": grows("rocep202s0f0", 30, {"hw__RTO": 0, "hw__InRdmaReads": 5}, {"hw__RTO": 90}, (*told(WARN, RETX, "rocep202s0f0/1", "90"),), **E810),
    "an interface flaps": NodeCase(later=(Later(after=600, files={"sys/class/net/eth0/carrier_changes": "10\n"}),), right=told(BAD, FLAP, "eth0", "8 times", "cable")),
    "one of eight MI300X has uncorrectable errors": NodeCase(files={**MI300, "sys/class/drm/card3/device/ras/umc_err_count": "ue: 2\nce: 9\n"}, right=told(BAD, ECC, "3", "2 uncorrected", "drain|reset")),
    "one of eight MI300X vanishes": NodeCase(files=MI300, later=(Later(after=120, files={"sys/class/drm/card5": None}),), right=told(BAD, GPU, "5", "gone", "reboot")),
    "the junction of an MI300X is at its limit": NodeCase(files={**MI300, **amd_card(2, hwmon__temp1_input="100000")}, right=told(BAD, HEAT, "2", "hot", "fan|air")),
    "an MI300X has eight lanes": NodeCase(files={**MI300, **amd_card(6, current_link_width="8")}, right=told(BAD, PCIE, "6", "8 of 16", "reseat")),
    "a Raspberry Pi gets too little": NodeCase(files={"sys/firmware/devicetree/base/model": "Raspberry Pi 5 Model B Rev 1.0\0", "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled": "50005\n"}, right=(*told(BAD, HEAT, "", "supply voltage", "supply"), *told(WARN, HEAT, "", "slows itself"))),
    "a DIMM has uncorrectable errors": NodeCase(files={"sys/devices/system/edac/mc/mc0/ce_count": "0\n", "sys/devices/system/edac/mc/mc0/ue_count": "1\n", "sys/devices/system/edac/mc/mc0/ce_noinfo_count": "0\n", "sys/devices/system/edac/mc/mc0/ue_noinfo_count": "0\n", "sys/devices/system/edac/mc/mc0/dimm4/dimm_label": "CPU_SrcID#0_MC#0_Chan#2_DIMM#0\n", "sys/devices/system/edac/mc/mc0/dimm4/dimm_ce_count": "0\n", "sys/devices/system/edac/mc/mc0/dimm4/dimm_ue_count": "1\n"}, right=told(BAD, MEMORY, "CPU_SrcID#0_MC#0_Chan#2_DIMM#0", "1 uncorrectable", "DIMM")),
    "a file system becomes read-only": NodeCase(later=(Later(after=60, files={"proc/self/mountinfo": "21 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 ro\n"}),), right=told(BAD, STORAGE, "/", "read-only", "disk|log")),
    "an NFS mount is gone": NodeCase(files={"proc/self/mountinfo": "21 0 8:1 / / rw - ext4 /dev/sda1 rw\n40 21 0:50 / /data rw - nfs4 fs1:/data rw,hard\n"}, later=(Later(after=60, files={"proc/self/mountinfo": "21 0 8:1 / / rw - ext4 /dev/sda1 rw\n"}),), right=told(BAD, STORAGE, "/data", "not mounted", "mount")),
    "an NVMe drive is dead": NodeCase(files={"sys/class/nvme/nvme2/state": "dead\n", "sys/class/nvme/nvme2/model": "X\n"}, right=told(BAD, DISK, "nvme2", "not live", "reset|replace")),
    "a mirror has lost a disk": NodeCase(files={"proc/mdstat": "Personalities : [raid1]\nmd0 : active raid1 sda1[0]\n      1000 blocks super 1.2 [2/1] [U_]\n", "sys/block/md0/md/level": "raid1\n", "sys/block/md0/md/array_state": "clean\n", "sys/block/md0/md/degraded": "1\n", "sys/block/md0/md/raid_disks": "2\n"}, right=told(WARN, DISK, "md0", "lacks", "replace|mdadm")),
    "cores are taken offline": NodeCase(later=(Later(after=60, files={"proc/stat": "cpu  100 0 100 80000 0 0 0 0 0 0\ncpu0 50 0 50 40000 0 0 0 0 0 0\nbtime 1\n"}),), right=told(BAD, 24, "", "1 of 2")),
}  # fmt: skip

# ---- NVML


def h100(*lines: str, count: int = 8) -> tuple[str, ...]:
    return (*H100, f"count * {count}", *lines)


NVML: dict[str, NodeCase] = {
    "a card whose GSP is gone answers with errors": NodeCase(gpus=h100("UtilizationRates 3 !999", "Temperature 3 !999", "PowerUsage 3 !999", "ClockInfo 3 !999", "TotalEccErrors 3 !999"), right=told("unknown|bad", 1, say="GPU 3|/3")),
    "two NVLinks of one GPU are down": NodeCase(gpus=h100("NvLinks 5 18 16"), right=told(BAD, NVLINK, "5", "16 of 18", "NVSwitch|fabric")),
    "the fabric never completes": NodeCase(gpus=h100("GpuFabricInfo * 2 0"), right=tuple(Told(BAD, NVLINK, str(n), "fabric", "fabric manager") for n in range(8))),
    "the fabric completes without resources": NodeCase(gpus=h100("GpuFabricInfo 4 3 23"), right=told(BAD, NVLINK, "4", "could not join", "fabric manager")),
    "one GPU has an uncorrectable error": NodeCase(gpus=h100("TotalEccErrors 2 3 1 9 2"), right=told(BAD, ECC, "2", "1 uncorrected", "reset")),
    "library and driver differ": NodeCase(gpus=("init 0 !18",), right=told("unknown|warn", 1, say="two versions|version", do="")),
    "no kernel log in a container": NodeCase(gpus=h100(count=1), log=False, unjudged=frozenset({4})),
    "the expected eighth GPU is missing": NodeCase(gpus=h100(count=7), expect=Expected(gpus=8), right=told(BAD, GPU, "", "7 of 8", "reboot")),
    "a GPU wants a reboot": NodeCase(gpus=h100("field.230 6 2"), right=told(BAD, 3, "6", "reboot", "drain")),
}  # fmt: skip
