"""Further lots of nodes after public reports, sick and well: each was written after the one
before was mended, and before it was played.
"""

from rankdeck_agent.rules.levels import Expected
from tests.support.nvml import H100
from tests.support.sick_nodes import Later, NodeCase, Told, amd_card, counters, many, port
from tests.unit.agent.sick_node_cases import (
    AMD,
    BAD,
    BASE,
    DISK,
    ECC,
    EIGHT,
    EITHER,
    FLAP,
    GPU,
    HEAT,
    IDLE_ROCE,
    KERNEL,
    LINK,
    MEMORY,
    MI300,
    NVLINK,
    PCIE,
    PHYSICAL,
    RETX,
    STORAGE,
    WARN,
    XID,
    h100,
    says,
    told,
)
from tests.unit.agent.well_node_cases import gpus_without, quiet

NET = "sys/class/net"
TWO = "Inter-|\n face |\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0: 1 1 0 0 0 0 0 0 2 2 0 0 0 0 0 0\n  eth1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
SPARE = {"proc/self/net/dev": TWO, f"{NET}/eth1/operstate": "down\n", f"{NET}/eth1/ifindex": "3\n", f"{NET}/eth1/device/vendor": "0x8086\n"}  # fmt: skip
BONDED = {
    "proc/self/net/dev": f"{TWO} bond0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    "proc/self/net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\nbond0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
    f"{NET}/bond0/operstate": "up\n",
    f"{NET}/bond0/speed": "50000\n",
    f"{NET}/bond0/ifindex": "9\n",
    f"{NET}/bond0/bonding/mode": "802.3ad 4\n",
    **{f"{NET}/eth{n}/{file}": text for n in (0, 1) for file, text in (("operstate", "up\n"), ("speed", "25000\n"), ("master", "-> ../bond0"), ("bonding_slave/mii_status", "up\n"), ("upper_bond0", "-> ../bond0"), ("device/vendor", "0x8086\n"), ("ifindex", f"{n + 2}\n"))},
}  # fmt: skip

SICK: dict[str, NodeCase] = {
    "the heartbeat of LibOS is late": says("NVRM: GPU0 _kgspRpcRecvPoll: LibOS heartbeat timed out", right=told(BAD, GPU, do="reboot|reset")),
    "only an assertion says that a reset is required": says("NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2827", right=told(EITHER, GPU, do="reset")),
    "a GPU is attached no more": says("NVRM: _threadNodeCheckTimeout: API_GPU_ATTACHED_SANITY_CHECK failed!", right=told(EITHER, GPU, do="reset|reboot|log")),
    "a driver of 2026 asks for a reboot in other words": says("NVRM: Xid (PCI:0000:01:00): 62, 00000000 00000000 00000000", "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", right=told(BAD, XID, "0000:01:00", "62.*154", "reboot")),
    "three faults of one GPU, and what it asks for": says("NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=x, Timeout after 45s of waiting for RPC response from GPU3 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2080 0x4).", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", right=told(BAD, XID, "0000:3b:00", "119", "reboot")),
    "an accelerator of Habana has no heartbeat": says("habanalabs hl3: Device heartbeat failed!", right=told(EITHER, GPU, "hl3", do="reset|reboot")),
    "POWER freezes a device": says("EEH: Recovering PHB#33-PE#10000", "EEH: Frozen PHB#33-PE#10000 detected", right=told(EITHER, PCIE, do="reseat|watch|reboot")),
    "a server of Lustre is stuck": says("LNet: Service thread pid 156436 was inactive for 200.35s. Watchdog stack traces are limited to 3 per 300 seconds, skipping this one.", right=told(EITHER, STORAGE, do="server|network|disk")),
    "ZFS panics": says("PANIC at zfs_vfsops.c:426:zfs_space_delta_cb()", "Showing stack for process 4711", right=told(BAD, KERNEL, do="reboot")),
    "F2FS stops": says("F2FS-fs (mmcblk0p2): Stopped filesystem due to reason: 3", right=told(BAD, DISK, "mmcblk0p2", do="check|disk|card")),
    "a pool of thin volumes is full": says("device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode", right=told(BAD, DISK, "253:4", do="full|space|extend")),
    "dm-integrity finds damage": says("device-mapper: integrity: nvme1n1: Checksum failed at sector 0x1234", right=told(EITHER, DISK, do="disk|check")),
    "a Jetson draws too much": says("soctherm: OC ALARM 0x00000001", right=told(WARN, HEAT, do="supply|power")),
    "memory of the kernel is overwritten": says("BUG kmalloc-64 (Tainted: G           OE     ): Poison overwritten", right=told(BAD, KERNEL, do="reboot")),
    "a RISC-V kernel has an Oops": says("Oops [#1]", "Modules linked in: mlx5_ib", right=told(BAD, KERNEL, do="reboot")),
    "an x86 kernel meets an invalid opcode": says("Oops: invalid opcode: 0000 [#1] SMP KASAN NOPTI", "CPU: 1 UID: 0 PID: 1302 Comm: venom-agent Tainted: G           O        6.19.0 #45 PREEMPT(lazy)", right=told(BAD, KERNEL, do="reboot")),
    "Solarflare's controller starts again": says("sfc 0000:c1:00.0 ens2f0np0: MC reboot detected on event queue", right=told(EITHER, LINK, "0000:c1:00", do="watch|firmware|reset")),
    "Chelsio's firmware crashes": says("cxgb4 0000:c1:00.4: Firmware reports adapter error: Firmware crashed, PCIE_FW 0x80000000", right=told(EITHER, LINK, "0000:c1:00", do="reset|reboot")),
    "an ARM server reports a bus error": says("SError Interrupt on CPU4, code 0x00000000be000011 -- SError", right=told(BAD, KERNEL, do="reboot")),
    "an interface flaps every three seconds": NodeCase(later=(Later(after=600, files={f"{NET}/eth0/carrier_changes": "14\n"}, kernel=("igc 0000:07:00.0 eth0: NIC Link is Down", "igc 0000:07:00.0 eth0: NIC Link is Up 2500 Mbps Full Duplex, Flow Control: RX/TX")),), right=told(BAD, FLAP, "eth0", "12 times", "cable")),
    "a bond loses a leg": NodeCase(files=BONDED, later=(Later(after=600, files={f"{NET}/eth1/operstate": "down\n", f"{NET}/eth1/bonding_slave/mii_status": "down\n", f"{NET}/bond0/speed": "25000\n"}),), right=told(BAD, LINK, "eth1", do="cable|switch")),
    "one of two legs of a bond is slow": NodeCase(files=BONDED, later=(Later(after=600, files={f"{NET}/eth1/speed": "10000\n", f"{NET}/bond0/speed": "35000\n"}),), right=told(WARN, LINK, "eth1", "10 Gbit/s", "cable|switch")),
    "memory is taken out of use": NodeCase(later=(Later(after=60, files={"proc/meminfo": "MemTotal: 64000000 kB\nMemFree: 40000000 kB\nMemAvailable: 50000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nHardwareCorrupted:     8 kB\n"}),), right=told(BAD, MEMORY, "", "8", "DIMM")),
    "two ports of eight are at half speed after a restart of the switch": NodeCase(files=EIGHT, later=(Later(after=600, files={f"{BASE}/mlx5_{n}/ports/1/rate": "200 Gb/sec (4X HDR)\n" for n in (2, 3)}),), right=tuple(Told(WARN, LINK, f"mlx5_{n}/1", "200 Gbit/s", "cable|switch") for n in (2, 3))),
    "all ports are at half speed after a restart of the switch": NodeCase(files=EIGHT, later=(Later(after=600, files={f"{BASE}/mlx5_{n}/ports/1/rate": "200 Gb/sec (4X HDR)\n" for n in range(8)}),), right=tuple(Told(WARN, LINK, f"mlx5_{n}/1", "200 Gbit/s.*400 Gbit/s before", "cable|switch") for n in range(8))),
    "a port comes back slower than the cluster file says": NodeCase(files=port("mlx5_0"), expect=Expected(other={"rdma_rate_gbps": 400}), later=(Later(after=600, files={f"{BASE}/mlx5_0/ports/1/rate": "100 Gb/sec (4X EDR)\n"}),), right=told(WARN, LINK, "mlx5_0/1", "expected 400 Gbit/s", "cable")),
    "receive errors of a port": NodeCase(files={**port("mlx5_0"), **counters("mlx5_0", port_rcv_errors=1)}, later=(Later(after=60, files=counters("mlx5_0", port_rcv_errors=25)),), right=told(WARN, PHYSICAL, "mlx5_0/1", "24", "cable"), may=told(WARN, PHYSICAL, "mlx5_0/1")),
    "bnxt_re retransmits": NodeCase(files={**port("bnxt_re0", **IDLE_ROCE), **counters("bnxt_re0", hw__to_retransmits=5, hw__rx_bytes=1)}, later=(Later(after=30, files=counters("bnxt_re0", hw__to_retransmits=205)),), right=(*told(WARN, RETX, "bnxt_re0/1", "200"),)),
    "an MI300X counts uncorrectable errors while it works": NodeCase(files=MI300, later=(Later(after=120, files={"sys/class/drm/card1/device/ras/gfx_err_count": "ue: 1\nce: 0\n"}),), right=told(BAD, ECC, "1", "1 uncorrected")),
    "an Instinct is throttled by its limit of power alone": NodeCase(files={**MI300, **amd_card(4, hwmon__power1_cap="350000000")}, right=told(WARN, 14, "4", "350 W", "power")),
    "all links of eight H100 are down": NodeCase(gpus=h100("NvLinks * 18 0"), right=tuple(Told(BAD, NVLINK, str(n), "0 of 18") for n in range(8))),
    "the only GPU of a node that should have eight": NodeCase(gpus=h100("NvLinks * 18 0", count=1), expect=Expected(gpus=8), right=(*told(BAD, GPU, "", "1 of 8"), *told(BAD, NVLINK, "0", "0 of 18"))),
}  # fmt: skip

WELL: dict[str, NodeCase] = {
    "an in-band ECC that cries wolf": quiet("EDAC igen6 MC0: HANDLING IBECC MEMORY ERROR", "EDAC igen6 MC0: ADDR 0x7fffffffe0 "),
    "a hot Atom tells its heat as machine checks": quiet("CPU1: Core temperature above threshold, cpu clock throttled (total events = 136516)", "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 128: 00000000087f0022", "CPU1: Core temperature/speed normal", "mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 128: 0000000088000022"),
    "checksums of packets": quiet("eth0: hw csum failure", "skb len=180 headroom=98 headlen=180 tailroom=42"),
    "power limits of a processor": quiet("CPU12: Package power limit notification (total events = 1)", "CPU12: Package power limit normal"),
    "a bond of a container": quiet("bond7: (slave dummy0): link status definitely down, disabling slave", "bond7: now running without any active interface!"),
    "a port without a cable": NodeCase(files=SPARE, kernel=("e1000e 0000:00:1f.6 eth1: NIC Link is Down",), later=(Later(after=5, kernel=("e1000e 0000:00:1f.6 eth1: NIC Link is Down",)),)),
    "bridges of containers": quiet("docker0: port 1(veth1a2b) entered disabled state", "veth1a2b (unregistering): left promiscuous mode", "eth0: renamed from veth77", "cni0: port 3(veth9) entered blocking state"),
    "a spare interface is slower than before": NodeCase(files={**SPARE, f"{NET}/eth1/operstate": "up\n", f"{NET}/eth1/speed": "10000\n"}, later=(Later(after=600, files={f"{NET}/eth1/speed": "1000\n"}),)),
    "the speed is not known for a moment": NodeCase(later=(Later(after=60, files={f"{NET}/eth0/speed": "-1\n"}), Later(after=60, files={f"{NET}/eth0/speed": "25000\n"}))),
    "a port says another rate while it is down": NodeCase(files=port("mlx5_0", **IDLE_ROCE, state="1: DOWN", phys_state="3: Disabled") | {f"{BASE}/mlx5_0/ports/1/rate": "40 Gb/sec (4X QDR)\n"}, later=(Later(after=60, files={f"{BASE}/mlx5_0/ports/1/state": "4: ACTIVE\n", f"{BASE}/mlx5_0/ports/1/phys_state": "5: LinkUp\n", f"{BASE}/mlx5_0/ports/1/rate": "25 Gb/sec (1X EDR)\n"}),)),
    "a card is plugged in": NodeCase(files=MI300, later=(Later(after=120, files=amd_card(8)),)),
    "cards get other numbers after their driver was loaded again": NodeCase(files=many(amd_card(n) for n in range(2)), later=(Later(after=120, files={"sys/class/drm/card0": None, **{name.replace("card0", "card7"): text for name, text in amd_card(0).items()}}),)),
    "Omni-Path with its many counters": NodeCase(files={**port("hfi1_0", rate="100 Gb/sec (4X EDR)"), **counters("hfi1_0", hw__DmaWait=50646, hw__RcSeqNak=0, hw__lifespan=10, link_downed=0, symbol_error=0), f"{BASE}/hfi1_0/hw_counters/TxLinkdownErr": "0\n", f"{BASE}/hfi1_0/ports/1/hw_counters/SwLinkUp,32": "1\n"}, later=(Later(after=60, files=counters("hfi1_0", hw__DmaWait=90000, hw__RcSeqNak=3)),)),
    "a drive over the network comes and goes": NodeCase(files={"sys/class/nvme/nvme4/state": "live\n", "sys/class/nvme/nvme4/transport": "rdma\n", "sys/class/nvme/nvme4/model": "X\n"}, later=(Later(after=60, files={"sys/class/nvme/nvme4": None}),)),
    "two GPUs for a virtual machine": gpus_without("GpuFabricInfo", more=("NvLinks * 18 18",), count=2),
    "L40S without any link": gpus_without("NvLinks", "GpuFabricInfo", "RemappedRows", more=("Name * NVIDIA L40S", "TotalEccErrors * 0 0 0 0"), count=4),
    "boards of the same kind with another name of the driver": NodeCase(gpus=(*H100, "driver * 580.159.04", "Name * NVIDIA H200", "count * 8")),
}  # fmt: skip

# A third lot, written after the second was mended.
THIRD_SICK: dict[str, NodeCase] = {
    "firmware tells of PCIe errors of a drive": says("{12}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 512", "{12}[Hardware Error]: It has been corrected by h/w and requires no further action", "{12}[Hardware Error]: event severity: corrected", "{12}[Hardware Error]:  Error 0, type: corrected", "{12}[Hardware Error]:   section_type: PCIe error", "{12}[Hardware Error]:   port_type: 0, PCIe end point", "{12}[Hardware Error]:   device_id: 0000:2a:00.0", "nvme 0000:2a:00.0: AER: aer_status: 0x00000001, aer_mask: 0x00002000", "nvme 0000:2a:00.0: AER:    [ 0] RxErr                  (First)", "nvme 0000:2a:00.0: AER: aer_layer=Physical Layer, aer_agent=Receiver ID", right=told(WARN, PCIE, "0000:2a:00", do="reseat|watch"), may=told(WARN, MEMORY)),
    "a RAID of a MegaRAID controller is degraded": says("megaraid_sas 0000:02:00.0: 9217 (695872131s/0x0001/CRIT) - VD 00/0 is now DEGRADED", right=told(EITHER, DISK, "0000:02:00", do="disk|replace|array")),
    "a RAID of a MegaRAID controller is gone": says("megaraid_sas 0000:02:00.0: 9219 (695872140s/0x0001/FATAL) - VD 01/1 is now OFFLINE", right=told(BAD, DISK, "0000:02:00", do="disk|array|restore|replace")),
    "XFS cannot write back": says("XFS (dm-3): writeback error on inode 1234, offset 0, sector 5678", right=told(BAD, DISK, "dm-3", do="disk|check")),
    "ext4 cannot write": says("EXT4-fs warning (device sdb1): ext4_end_bio:343: I/O error 10 writing to inode 131 starting block 33792)", right=told(EITHER, DISK, "sdb1", do="disk|check")),
    "a journal cannot be written": says("JBD2: I/O error when updating journal superblock for sdc1-8.", right=told(BAD, DISK, "sdc1", do="disk|check")),
    "an adapter's firmware does not start": says("mlx5_core 0000:c1:00.0: wait_fw_init:199:(pid 812): Waiting for FW initialization, timeout abort in 100s (0xfe000000)", right=told(EITHER, LINK, "0000:c1:00", do="firmware|reset|reboot")),
    "GuC does not answer": says("i915 0000:4d:00.0: [drm] *ERROR* GT0: GUC: TLB invalidation response timed out for seqno 309", right=told(EITHER, GPU, "0000:4d:00", do="reset|reboot")),
    "an interrupt that nobody understands": says("0,-;Uhhuh. NMI received for unknown reason 3d on CPU 0.", "0,-;Dazed and confused, but trying to continue", right=told(EITHER, KERNEL, say="NMI|Uhhuh")),
    "something that nobody wrote a pattern for": says("2,-;quantum_xl 0000:e1:00.0: coolant pump stalled, shutting down compute", right=told(EITHER, KERNEL, say="coolant")),
    "SATA cannot read what its disk is": says("ata2.00: failed to IDENTIFY (I/O error, err_mask=0x4)", "ata2.00: revalidation failed (errno=-5)", right=told(EITHER, DISK, "ata2.00", do="drive|cable")),
    "pages of the host are lost": says("Memory failure: 0x12345: Sending SIGBUS to python3:4711 due to hardware memory corruption", right=told(BAD, MEMORY, do="DIMM")),
}  # fmt: skip
THIRD_WELL: dict[str, NodeCase] = {
    "empty slots for plugging": quiet("pcieport 0000:00:1c.0: pciehp: Slot(0): No link", "pcieport 0000:00:1c.0: pciehp: Slot(0-1): Link Up", "pcieport 0000:00:1c.0: pciehp: Slot(0-1): No device found"),
    "controllers of disks talk": quiet("mpt3sas_cm0: log_info(0x31111000): originator(PL), code(0x11), sub_code(0x1000)", "sd 0:0:12:0: Power-on or device reset occurred", "megaraid_sas 0000:02:00.0: 9301 (695872131s/0x0020/INFO) - Patrol Read complete", "sd 2:0:0:0: [sdb] Assuming drive cache: write through"),
    "BIOSes have bugs": quiet("3,-;ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0.XHC.RHUB.HS11], AE_NOT_FOUND (20230331/dswload2-162)", "DMAR: [Firmware Bug]: RMRR entry for device 02:00.0 is broken - applying workaround", "3,-;x86/cpu: SGX disabled or unsupported by BIOS."),
    "a kernel starts": quiet("0,-;Initramfs unpacking failed: Decoding failed", "MDS CPU bug present and SMT on, data leak possible.", "3,-;tsc: Fast TSC calibration failed", "Spectre V2 : Spectre v2 / SpectreRSB mitigation: Filling RSB on context switch"),
    "a display is not there": quiet("nvidia-modeset: WARNING: GPU:0: Lost display notification (0:0x00000000); continuing.", "[drm] Cannot find any crtc or sizes"),
    "USB is slow to answer": quiet("usb 1-1: device descriptor read/64, error -71", "usb 1-1: reset high-speed USB device number 3 using xhci_hcd", "usb usb1-port4: Cannot enable. Maybe the USB cable is bad?"),
    "a report of an error with its further lines": says("1,-;BUG: unable to handle page fault for address: ffffffffdeadbeef", "1,-;#PF: supervisor read access in kernel mode", "1,-;#PF: error_code(0x0000) - not-present page", "0,-;Oops: 0000 [#1] PREEMPT SMP NOPTI", "0,-;---[ end Kernel panic - not syncing: Fatal exception ]---", right=told(BAD, KERNEL)),
}  # fmt: skip

# A fourth lot, of files that are there but refuse to be read.
HWMON = "sys/class/hwmon"
ZONES = "sys/class/thermal"
ORIN = {"proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0", "sys/class/devfreq/17000000.gpu/device/load": "0\n", "sys/class/devfreq/17000000.gpu/cur_freq": "306000000\n", f"{ZONES}/thermal_zone0/type": "cpu-thermal\n", f"{ZONES}/thermal_zone0/temp": "46000\n", f"{ZONES}/thermal_zone1/type": "gpu-thermal\n", f"{ZONES}/thermal_zone1/temp": "!EAGAIN\n"}  # fmt: skip


def refusing(device: str, error: str, **more: str) -> dict[str, str]:
    """A port whose counters cannot be read."""
    base = f"{BASE}/{device}/ports/1"
    names = ("counters/port_rcv_data", "counters/port_xmit_data", "counters/symbol_error", "counters/link_downed", "hw_counters/out_of_sequence")  # fmt: skip
    return {**port(device, **more), **{f"{base}/{name}": f"!{error}\n" for name in names}}


BRIDGES = {**many(refusing(f"mlx5_{n}", "EINVAL") for n in range(8, 12)), **{f"{BASE}/mlx5_{n}/device/vpd": "\x82\x2fNVIDIA ConnectX-7 bridge\x90\x40\0PN\x07692-9XXSMDL=SW_MNG\0\x78" for n in range(8, 12)}}  # fmt: skip
ASLEEP = amd_card(0, gpu_busy_percent="!EPERM", mem_info_vram_used="!EPERM", hwmon__temp1_input="!EPERM", hwmon__power1_average="!EPERM", power__runtime_status="suspended")  # fmt: skip
FOURTH_WELL: dict[str, NodeCase] = {
    "the GPU of a Jetson sleeps": NodeCase(files=ORIN),
    "a wireless adapter is off": NodeCase(files={f"{HWMON}/hwmon3/name": "iwlwifi_1\n", f"{HWMON}/hwmon3/temp1_input": "!ENODATA\n"}),
    "an Atheros adapter is off": NodeCase(files={f"{HWMON}/hwmon3/name": "ath11k_hwmon\n", f"{HWMON}/hwmon3/temp1_input": "!ENETDOWN\n"}),
    "a network adapter sleeps": NodeCase(files={f"{HWMON}/hwmon4/name": "r8169_0_200:00\n", f"{HWMON}/hwmon4/temp1_input": "!EAGAIN\n"}),
    "a firmware's sensor has no number": NodeCase(files={f"{ZONES}/thermal_zone0/type": "acpitz\n", f"{ZONES}/thermal_zone0/temp": "!ENODATA\n"}),
    "a disk sleeps": NodeCase(files={f"{HWMON}/hwmon5/name": "drivetemp\n", f"{HWMON}/hwmon5/temp1_input": "!EIO\n", f"{HWMON}/hwmon5/temp1_crit": "70000\n"}),
    "a module of memory does not answer": NodeCase(files={f"{HWMON}/hwmon6/name": "spd5118\n", f"{HWMON}/hwmon6/temp1_input": "!ENXIO\n", f"{HWMON}/hwmon6/temp1_crit_alarm": "!ENXIO\n"}),
    "a rail of the board is not wired": NodeCase(files={f"{HWMON}/hwmon7/name": "ina3221\n", f"{HWMON}/hwmon7/in1_input": "!ENODATA\n", f"{HWMON}/hwmon7/curr1_crit_alarm": "0\n"}),
    "a display card sleeps": NodeCase(files={f"{HWMON}/hwmon8/name": "nouveau\n", f"{HWMON}/hwmon8/temp1_input": "!EINVAL\n"}),
    "an AMD card sleeps": NodeCase(files=ASLEEP),
    "bridges to NVSwitches beside eight adapters": NodeCase(files={**EIGHT, **BRIDGES}),
    "an interface that is down has no speed": NodeCase(files={**SPARE, f"{NET}/eth1/speed": "!EINVAL\n", f"{NET}/eth1/carrier": "!EINVAL\n"}),
}  # fmt: skip
UNSEEN = "bad|warn|unknown"
FOURTH_SICK: dict[str, NodeCase] = {
    "one of eight adapters does not count": NodeCase(files={**EIGHT, **refusing("mlx5_3", "EINVAL")}, right=(Told(UNSEEN, 1, say="mlx5_3"),)),
    "one of eight MI300X does not answer": NodeCase(files={**MI300, **amd_card(4, gpu_busy_percent="!EIO", mem_info_vram_used="!EIO", hwmon__temp1_input="!EIO", ras__umc_err_count="!EIO", ras__gfx_err_count="!EIO")}, right=(Told(UNSEEN, 1, say="4"),)),
    "the sensor of the CPU fails": NodeCase(files={f"{HWMON}/hwmon0/temp1_input": "!EIO\n"}, right=(Told(UNSEEN, 1, say="processor|heat"),)),
    "a bridge to NVSwitches is down": NodeCase(files={**EIGHT, **BRIDGES, f"{BASE}/mlx5_9/ports/1/state": "1: DOWN\n", f"{BASE}/mlx5_9/ports/1/phys_state": "3: Disabled\n"}, may=(*told(EITHER, LINK, ".*mlx5_9.*"),)),
}  # fmt: skip

# A fifth lot: what refuses comes, goes and changes.
CARD = "sys/class/drm/card0"
FAN = {f"{HWMON}/hwmon6/name": "nct6798\n", f"{HWMON}/hwmon6/temp1_input": "40000\n", f"{HWMON}/hwmon6/temp1_crit_alarm": "0\n"}  # fmt: skip
FIFTH_WELL: dict[str, NodeCase] = {
    "an AMD card falls asleep and wakes up": NodeCase(files=amd_card(0), later=(Later(after=120, files=ASLEEP), Later(after=600, files={**amd_card(0), f"{CARD}/device/power/runtime_status": "active\n"}), Later(after=300, files=ASLEEP))),
    "a wireless adapter is switched off": NodeCase(files={f"{HWMON}/hwmon3/name": "iwlwifi_1\n", f"{HWMON}/hwmon3/temp1_input": "41000\n"}, later=(Later(after=120, files={f"{HWMON}/hwmon3/temp1_input": "!ENODATA\n"}), Later(after=120, files={f"{HWMON}/hwmon3/temp1_input": "43000\n"}))),
    "the GPU of a Jetson works and sleeps": NodeCase(files={**ORIN, f"{ZONES}/thermal_zone1/temp": "70000\n"}, later=(Later(after=120, files=ORIN), Later(after=120, files={f"{ZONES}/thermal_zone1/temp": "60000\n"}))),
    "a card for the display sleeps beside eight that work": NodeCase(files={**ASLEEP, **many(amd_card(n) for n in range(1, 9))}),
}  # fmt: skip
FIFTH_SICK: dict[str, NodeCase] = {
    "an AMD card that sleeps vanishes": NodeCase(files=ASLEEP, later=(Later(after=120, files={CARD: None}),), right=told(BAD, GPU, "0", "gone", "reboot")),
    "an AMD card does not wake up": NodeCase(files=amd_card(0), later=(Later(after=120, files={**ASLEEP, f"{CARD}/device/power/runtime_status": "error\n"}),), right=(Told(UNSEEN, 1, say="GPU 0"),)),
    "a card that sleeps cannot be reset": NodeCase(files=ASLEEP, kernel=("3,-;amdgpu 0000:10:00.0: amdgpu: GPU reset(2) failed",), right=told(BAD, AMD, "0|0000:10:00", do="reboot")),
    "a bridge to NVSwitches counted and counts no longer": NodeCase(files={**EIGHT, **port("mlx5_9"), **counters("mlx5_9", symbol_error=0, link_downed=0), f"{BASE}/mlx5_9/device/vpd": "SMDL=SW_MNG"}, later=(Later(after=120, files={f"{BASE}/mlx5_9/ports/1/counters/symbol_error": "!EINVAL\n", f"{BASE}/mlx5_9/ports/1/counters/link_downed": "!EINVAL\n"}),), right=(Told(UNSEEN, 1, say="mlx5_9"),)),
    "a chip told of alarms and answers no longer": NodeCase(files=FAN, later=(Later(after=120, files={f"{HWMON}/hwmon6/temp1_crit_alarm": "!ENXIO\n"}),), right=(Told(UNSEEN, 1, say="nct6798"),)),
    "the sensor of a Jetson that works refuses": NodeCase(files={**ORIN, "sys/class/devfreq/17000000.gpu/device/load": "800\n"}, right=(Told(UNSEEN, 1, say="GPU 0"),)),
    "the link of a bridge to NVSwitches goes down": NodeCase(files={**EIGHT, **BRIDGES}, later=(Later(after=120, files={f"{BASE}/mlx5_9/ports/1/state": "1: DOWN\n", f"{BASE}/mlx5_9/ports/1/phys_state": "2: Polling\n"}),), right=told(EITHER, LINK, ".*mlx5_9.*")),
    "an alarm beside a sensor that refuses": NodeCase(files={**FAN, f"{HWMON}/hwmon6/temp1_input": "!ENODATA\n", f"{HWMON}/hwmon6/temp1_crit_alarm": "1\n"}, right=told(BAD, HEAT, "nct6798", do="sensors|BMC")),
}  # fmt: skip
