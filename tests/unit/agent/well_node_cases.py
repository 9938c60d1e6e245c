"""Healthy nodes that look odd, in the form of public reports of false alarms, written before any
was played: nothing may be told of them.
"""

from rankdeck_agent.rules.levels import Expected
from tests.support.nvml import H100
from tests.support.sick_nodes import Later, NodeCase, Told, amd_card, counters, many, port
from tests.unit.agent.sick_node_cases import DISK, IDLE_ROCE, LINK, grows, h100

BASE = "sys/class/infiniband"


def quiet(*lines: str, may: tuple[Told, ...] = ()) -> NodeCase:
    return NodeCase(kernel=lines, may=may)


def gpus_without(*functions: str, more: tuple[str, ...] = (), count: int = 1, **rest: object) -> NodeCase:  # fmt: skip
    kept = tuple(line for line in H100 if line.split(" ", 1)[0] not in functions)
    return NodeCase(gpus=(*kept, *more, f"count * {count}"), **rest)


FABRIC = ("NvLinks", "GpuFabricInfo")
NO_ECC = ("TotalEccErrors", "SramEccErrorStatus", "RemappedRows", *FABRIC)
LINKS = ("field.38", "field.45", "field.52", "field.59")

WELL_LINES: dict[str, NodeCase] = {
    "an image with the driver on a node without GPU": quiet("nvidia: loading out-of-tree module taints kernel.", "NVRM: No NVIDIA GPU found.", "nvidia-nvlink: Unregistered Nvlink Core, major device number 239"),
    "assertions of the driver": quiet("NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: (status == NV_OK) || (status == NV_ERR_GPU_IN_FULLCHIP_RESET) @ rs_client.c:844", "NVRM: nvAssertOkFailedNoLog: Assertion failed: Invalid state [NV_ERR_INVALID_STATE] (0x00000040) returned from _kgspWalkRegistryTable @ kernel_gsp.c:1234", "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from rmStatus @ vaspace_api.c:538"),
    "programs fail on GPUs": quiet("NVRM: Xid (PCI:0000:01:00): 13, pid=77, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address", "NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=python3, channel 0x00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_3 faulted @ 0x7f5a_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ", "NVRM: Xid (PCI:0000:01:00): 43, pid=77, name=python3, Ch 00000018", "NVRM: Xid (PCI:0000:01:00): 45, pid=77, name=python3, Ch 00000018"),
    "programs fail on AMD's GPUs": quiet("amdgpu 0000:a6:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:0 vmid:8 pasid:32770)", "amdgpu 0000:a6:00.0: amdgpu:  for process python3 pid 132529 thread python3 pid 132529)", "amdgpu 0000:a6:00.0: amdgpu:          Faulty UTCL2 client ID: TCP (0x8)", "amdgpu 0000:a6:00.0: amdgpu:          WALKER_ERROR: 0x0"),
    "programs fail on Intel's GPUs": quiet("xe 0000:0b:00.0: [drm] Tile0: GT0: Engine memory CAT error [18]: class=ccs, logical_mask: 0x1, guc_id=11", "xe 0000:0b:00.0: [drm] Tile0: GT0: Fault response: Unsuccessful -EIO"),
    "a ring of an old amdgpu times out": quiet("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=613206, emitted seq=613208", "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* Process information: process plasmashell pid 3182 thread plasmashel:cs0 pid 3224"),
    "a GPU is reset and comes back": quiet("amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE", "amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!. Source:  3", "amdgpu 0000:c5:00.0: amdgpu: MODE2 reset", "amdgpu 0000:c5:00.0: amdgpu: GPU reset succeeded, trying to resume", "amdgpu 0000:c5:00.0: amdgpu: GPU reset(2) succeeded!", "amdgpu 0000:c5:00.0: [drm] device wedged, but recovered through reset", may=(Told("warn", 5, "0000:c5:00"),)),
    "amdgpu starts": quiet("amdgpu 0000:83:00.0: amdgpu: SMU driver if version not matched", "amdgpu 0000:83:00.0: amdgpu: smu driver if version = 0x00000035, smu fw if version = 0x00000040, smu fw program = 0", "amdgpu 0000:83:00.0: amdgpu: RAS: optional ras ta ucode is not available", "amdgpu 0000:83:00.0: amdgpu: HDCP: optional hdcp ta ucode is not available", "amdgpu: Virtual CRAT table created for CPU", "amdgpu 0000:83:00.0: amdgpu: ring comp_1.0.0 uses VM inv eng 1 on hub 0"),
    "EDAC starts": quiet("EDAC MC: Ver: 3.0.0", "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:64:0a.0 (INTERRUPT)", "EDAC amd64: F19h detected (node 0).", "EDAC MC: UMC0 chip selects:", "EDAC amd64: MC: 0: 32768MB 1: 32768MB", "EDAC MC1: Giving out device to module amd64_edac controller F19h: DEV 0000:00:19.3 (INTERRUPT)"),
    "GHES starts": quiet("GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.", "[Firmware Warn]: GHES: Poll interval is 0 for generic hardware error source: 1, disabled.", "HEST: Table parsing has been initialized.", "ERST: Error Record Serialization Table (ERST) support is initialized.", "mce: CPU supports 22 MCE banks", "mce: CPU0: Thermal monitoring enabled (TM1)"),
    "mlx5 starts": quiet("mlx5_core 0004:01:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)", "mlx5_core 0004:01:00.0: Port module event: module 0, Cable plugged", "mlx5_core 0004:01:00.0: mlx5_pcie_event:294:(pid 542): PCIe slot advertised sufficient power (75W).", "mlx5_core 0004:01:00.1: Port module event: module 1, Cable unplugged", "mlx5_core 0000:03:00.0: mlx5_cmd_out_err:835:(pid 18360): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x9a6171), err(-22)"),
    "mlx5 tells of queue pairs that are gone": quiet("mlx5_core 0000:00:08.0: rsc_event_notifier:190:(pid 0): Async event for bogus resource 0x29b1e"),
    "a peer breaks its connections": quiet("infiniband rocep33s0f0: mlx5_poll_one:527:(pid 0): Responder error cqe on cqn 0x406:", "infiniband rocep33s0f0: mlx5_poll_one:530:(pid 0): syndrome 0x5, vendor syndrome 0xf9", may=(Told("warn", 12), Told("warn", LINK))),
    "efa has no room for another domain": quiet("infiniband efa_0: Failed to process command ALLOC_PD (opcode 14) comp_status 1 err -12", "infiniband efa_0: Failed to allocate pd[-12]"),
    "PCI finds no room for what nobody needs": quiet("pci 0000:00:1f.0: BAR 13 [io  size 0x1000]: can't assign; no space", "pci 0000:00:1f.0: BAR 13 [io  size 0x1000]: failed to assign", "pci 0000:81:00.0: VF BAR 0 [mem size 0x08000000 64bit pref]: failed to assign", "pci 0000:17:00.0: BAR 6: no space for [mem size 0x00080000 pref]"),
    "the kernel is a little late": quiet("workqueue: blk_mq_run_work_fn hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND", "perf: interrupt took too long (2513 > 2500), lowering kernel.perf_event_max_sample_rate to 79000", "sched: RT throttling activated", "hrtimer: interrupt took 31047 ns", "clocksource: Long readout interval, skipping watchdog check: cs_nsec: 1034 wd_nsec: 1033"),
    "Ceph finds another monitor": quiet("libceph: mon2 (1)10.0.0.247:6789 socket closed (con state OPEN)", "libceph: mon2 (1)10.0.0.247:6789 session lost, hunting for new mon", "libceph: mon1 (1)10.0.0.249:6789 session established"),
    "a disk server of Ceph is restarted": quiet("libceph: osd2 (1)10.0.0.249:6801 socket closed (con state OPEN)", "libceph (fb30d64e-7a8c-46d3-bbd7-77a3b1f080d1 e857): osd2 down", "libceph (fb30d64e-7a8c-46d3-bbd7-77a3b1f080d1 e859): osd2 up"),
    "the image of a user is cut off": quiet("loop3: detected capacity change from 0 to 8192", "I/O error, dev loop3, sector 4096 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0", "Buffer I/O error on dev loop3, logical block 512, async page read", "SQUASHFS error: Failed to read block 0x200000: -5", may=(Told("warn", DISK, "loop3"),)),
    "a USB stick is pulled out": quiet("usb 2-1: USB disconnect, device number 3", "sd 6:0:0:0: [sdc] Synchronizing SCSI cache", "sd 6:0:0:0: [sdc] Synchronize Cache(10) failed: Result: hostbyte=DID_ERROR driverbyte=DRIVER_OK"),
    "an NFS server was away for a moment": quiet("nfs: server fs1 not responding, still trying", "nfs: server fs1 OK"),
    "file systems come and go": quiet("EXT4-fs (sda1): mounted filesystem 3f1c with ordered data mode. Quota mode: none.", "XFS (dm-3): Mounting V5 Filesystem", "XFS (dm-3): Ending clean mount", "XFS (dm-3): Unmounting Filesystem", "EXT4-fs (sda1): recovery complete", "EXT4-fs (sda2): orphan cleanup on readonly fs", "BTRFS info (device sdb1): using crc32c (crc32c-intel) checksum algorithm"),
    "NVMe drives start": quiet("nvme nvme0: missing or invalid SUBNQN field.", "nvme nvme0: Shutdown timeout set to 10 seconds", "nvme nvme0: Ignoring bogus Namespace Identifiers", "nvme nvme0: 4/0/0 default/read/poll queues", "nvme nvme0: using unchecked data buffer"),
    "an array is checked": quiet("md: data-check of RAID array md0", "md: delaying data-check of md1 until md0 has finished (they share one or more physical units)", "md: md0: data-check done."),
    "Raspberry Pi 5 with NVMe on its one lane": NodeCase(files={"sys/firmware/devicetree/base/model": "Raspberry Pi 5 Model B Rev 1.0\0", "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled": "0\n", "sys/bus/pci/devices/0000:01:00.0": "-> ../../../devices/platform/axi/1000110000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0", "sys/devices/platform/axi/1000110000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0/current_link_width": "1\n", "sys/devices/platform/axi/1000110000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0/max_link_width": "4\n", "sys/devices/platform/axi/1000110000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0/current_link_speed": "5.0 GT/s PCIe\n", "sys/devices/platform/axi/1000110000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0/max_link_speed": "8.0 GT/s PCIe\n", "sys/devices/platform/axi/1000110000.pcie/pci0000:00/0000:00:00.0/max_link_width": "1\n", "sys/devices/platform/axi/1000110000.pcie/pci0000:00/0000:00:00.0/max_link_speed": "5.0 GT/s PCIe\n", "sys/devices/platform/axi/1000110000.pcie/pci0000:00/0000:00:00.0/vendor": "0x14e4\n"}, kernel=("pci 0000:01:00.0: 4.000 Gb/s available PCIe bandwidth, limited by 5.0 GT/s PCIe x1 link at 0000:00:00.0 (capable of 31.504 Gb/s with 8.0 GT/s PCIe x4 link)",)),
    "voltage of a Raspberry Pi 3 dipped and is normal": quiet("Under-voltage detected! (0x00050005)", "Voltage normalised (0x00000000)"),
    "a processor was hot for a second": quiet("CPU3: Package temperature is above threshold, cpu clock is throttled (total events = 1)", "CPU3: Package temperature/speed normal (total events = 1)"),
    "what programs write into the kernel's log": quiet("12,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "12,-;Kernel panic - not syncing: none"),
    "a user's file is named like a fault": quiet("process 'a.out' launched '/tmp/NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.' with NULL argv: empty string added"),
    "a user's program is named like a fault": quiet("Oops: x[4711]: segfault at 0 ip 000055d1 sp 00007ffd error 4 in a.out[55d1+1000]", "ib0: link down[4712]: segfault at 0 ip 000055d1 sp 00007ffd error 4 in a.out[55d1+1000]", "traps: ib0: link down[4713] trap invalid opcode ip:55d1 sp:7ffd error:0 in a.out[55d1+1000]"),
    "a table of processes has a name like a fault": NodeCase(kernel=("[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name", "[   4711]  1000  4711  1234567   800000  6500000        0             0 ib0: link down", "[   4712]  1000  4712  1234567   800000  6500000        0             0 Oops: x", "CPU: 3 PID: 4713 Comm: Oops: y Not tainted 6.8.0 #1")),
    "an interface of the BMC comes and goes": quiet("cdc_ether 1-14.3:2.0 usb0: register 'cdc_ether' at usb-0000:00:14.0-14.3, CDC Ethernet Device, 36:5a:1d:00:00:01", "cdc_ether 1-14.3:2.0 usb0: unregister 'cdc_ether' usb-0000:00:14.0-14.3, CDC Ethernet Device"),
    "mce of a virtual machine": quiet("mce: CPU supports 10 MCE banks", "unchecked MSR access error: RDMSR from 0x852 at rIP: 0xffffffff9e0 (native_read_msr+0x5/0x40)", "kvm: no hardware support"),
    "GPUs of a laptop sleep": quiet("nvidia 0000:01:00.0: Enabling HDA controller", "nvidia 0000:01:00.0: vgaarb: changed VGA decodes: olddecodes=io+mem,decodes=none:owns=none", "ACPI Warning: \\_SB.PCI0.PEG0.PEGP._DSM: Argument #4 type mismatch - Found [Buffer], ACPI requires [Package]"),
    "mlx5 leaves at a reboot of the host": quiet("mlx5_core 0000:5e:00.0: Shutdown was called", "mlx5_core 0000:5e:00.0: E-Switch: Disable: mode(LEGACY), nvfs(0), neovfs(0), active vports(0)"),
}  # fmt: skip

APU = amd_card(
    0,
    product_name="",
    gpu_busy_percent="0",
    mem_info_vram_total=str(512 << 20),
    mem_info_vram_used=str(60 << 20),
    current_link_width="16",
    hwmon__power1_cap="0",
    unique_id="",
)
GCDS = many(amd_card(n, product_name="AMD Instinct MI250X", hwmon__power1_cap="560000000" if n % 2 == 0 else "0", hwmon__power1_average="300000000" if n % 2 == 0 else "0") for n in range(8))  # fmt: skip
BOND = {
    "sys/class/net/bond0/operstate": "up\n",
    "sys/class/net/bond0/ifindex": "9\n",
    "sys/class/net/bond0/bonding/mode": "active-backup 1\n",
}

WELL_NUMBERS: dict[str, NodeCase] = {
    "a node with nothing special": NodeCase(),
    "a small virtual machine": NodeCase(files={"sys/class/net/eth0/speed": "-1\n", "sys/class/hwmon/hwmon0/name": "acpitz\n", "proc/stat": "cpu  1 0 1 800 0 0 0 0 0 0\ncpu0 1 0 1 800 0 0 0 0 0 0\nbtime BTIME\n"}),
    "Raspberry Pi 3 without PSI": NodeCase(files={"sys/firmware/devicetree/base/model": "Raspberry Pi 3 Model B Rev 1.2\0", "sys/devices/platform/soc/soc:firmware/get_throttled": "0\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io pids\n"}),
    "counters that stick at their top": NodeCase(files={**port("mlx5_0"), **counters("mlx5_0", port_xmit_wait=4_294_967_295, excessive_buffer_overrun_errors=15, link_downed=255, port_xmit_discards=65_535, port_rcv_switch_relay_errors=2, symbol_error=0, port_rcv_errors=0, hw__out_of_buffer=0)}, later=(Later(after=600, files=counters("mlx5_0", symbol_error=0)),)),
    "iWARP without port counters": NodeCase(files={**port("i40iw0", link_layer="Ethernet", rate="40 Gb/sec (4X QDR)"), **{f"{BASE}/i40iw0/ports/1/counters/{name}": "N/A (no PMA)\n" for name in ("link_downed", "symbol_error", "port_rcv_data", "port_xmit_data", "port_rcv_errors")}, **counters("i40iw0", hw__ip4InOctets=5, hw__tcpRetransSegs=0)}),
    "virtual functions that wait for pods": NodeCase(files={**many(port(f"mlx5_{n}") for n in range(8)), **many(port(f"mlx5_{n}", state="1: DOWN", phys_state="5: LinkUp") for n in (8, 9)), f"{BASE}/mlx5_8/device/physfn/vendor": "0x15b3\n", f"{BASE}/mlx5_9/device/physfn/vendor": "0x15b3\n"}),
    "a driver is loaded again": grows("mlx5_0", 60, {"hw__out_of_sequence": 4_000_000, "hw__packet_seq_err": 500_000}, {"hw__out_of_sequence": 3, "hw__packet_seq_err": 0}, **IDLE_ROCE),
    "bonded RoCE beside InfiniBand": NodeCase(files={**many(port(f"mlx5_{n}") for n in range(4)), **port("mlx5_bond_0", link_layer="Ethernet", rate="200 Gb/sec (4X HDR)", hca_type="MT4125")}),
    "a spare Ethernet port": NodeCase(files={**many(port(f"mlx5_{n}") for n in range(8)), **port("mlx5_8", link_layer="Ethernet", rate="100 Gb/sec (4X EDR)"), f"{BASE}/mlx5_8/hca_type": "MT4125\n", **port("mlx5_9", link_layer="Ethernet", rate="40 Gb/sec (4X QDR)", state="1: DOWN", phys_state="3: Disabled"), f"{BASE}/mlx5_9/hca_type": "MT4125\n"}),
    "a graphics chip beside the processor": NodeCase(files=APU, later=(Later(after=1000), Later(after=1000))),
    "both dies of MI250X": NodeCase(files=GCDS),
    "an interface flaps while the node starts": NodeCase(up_for=120, later=(Later(after=60, files={"sys/class/net/eth0/carrier_changes": "12\n"}),)),
    "an unused interface": NodeCase(files={"proc/self/net/dev": "Inter-|\n face |\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0: 1 1 0 0 0 0 0 0 2 2 0 0 0 0 0 0\n  eth1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", "sys/class/net/eth1/operstate": "down\n", "sys/class/net/eth1/ifindex": "3\n", "sys/class/net/eth1/device/vendor": "0x8086\n"}),
    "a container starts and ends": NodeCase(files={"proc/self/net/dev": "Inter-|\n face |\n  eth0: 1 1 0 0 0 0 0 0 2 2 0 0 0 0 0 0\nveth12ab: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\ncali77: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", "sys/class/net/veth12ab/operstate": "up\n", "sys/class/net/cali77/operstate": "up\n"}, later=(Later(after=60, files={"proc/self/net/dev": "Inter-|\n face |\n  eth0: 1 1 0 0 0 0 0 0 2 2 0 0 0 0 0 0\n", "sys/class/net/veth12ab": None, "sys/class/net/cali77": None}),)),
    "an image is mounted and unmounted": NodeCase(files={"proc/self/mountinfo": "21 0 8:1 / / rw - ext4 /dev/sda1 rw\n60 21 7:3 / /var/lib/containerd/x ro - squashfs /dev/loop3 ro\n61 21 0:70 / /run/user/1000/sif rw - fuse.squashfuse_ll x rw\n"}, later=(Later(after=60, files={"proc/self/mountinfo": "21 0 8:1 / / rw - ext4 /dev/sda1 rw\n"}),)),
    "an array is checked, its numbers": NodeCase(files={"proc/mdstat": "Personalities : [raid1]\nmd0 : active raid1 sdb1[1] sda1[0]\n      1000 blocks super 1.2 [2/2] [UU]\n      [==>..................]  check = 12.6% (126/1000) finish=1.0min speed=1K/sec\n", "sys/block/md0/md/level": "raid1\n", "sys/block/md0/md/array_state": "active\n", "sys/block/md0/md/degraded": "0\n", "sys/block/md0/md/raid_disks": "2\n"}),
    "Jetson Orin": NodeCase(files={"proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0", "sys/class/devfreq/17000000.gpu/device/load": "125\n", "sys/class/devfreq/17000000.gpu/cur_freq": "306000000\n", "sys/class/thermal/thermal_zone1/type": "gpu-thermal\n", "sys/class/thermal/thermal_zone1/temp": "46000\n"}),
    "a sensor that is not there": NodeCase(files={"sys/class/hwmon/hwmon1/name": "nct6779\n", "sys/class/hwmon/hwmon1/temp7_input": "-128000\n", "sys/class/hwmon/hwmon1/fan3_input": "0\n", "sys/class/hwmon/hwmon1/fan3_min": "0\n", "sys/class/hwmon/hwmon1/fan3_alarm": "0\n", "sys/class/hwmon/hwmon1/in5_input": "0\n", "sys/class/hwmon/hwmon1/in5_alarm": "1\n", "sys/class/hwmon/hwmon1/in5_min": "0\n", "sys/class/hwmon/hwmon1/in5_max": "0\n", "sys/class/hwmon/hwmon1/intrusion0_alarm": "1\n"}),
    "a drive is reset for a moment": NodeCase(files={"sys/class/nvme/nvme0/state": "live\n"}, later=(Later(after=5, files={"sys/class/nvme/nvme0/state": "live\n"}),)),
    "huge pages for DPDK": NodeCase(files={"proc/meminfo": "MemTotal: 64000000 kB\nMemFree: 900000 kB\nMemAvailable: 6000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nHugePages_Total: 50\nHugePages_Free: 2\nHugepagesize: 1048576 kB\nHugetlb: 52428800 kB\n"}),
}  # fmt: skip

WELL_NVML: dict[str, NodeCase] = {
    "GeForce": gpus_without(*NO_ECC, *LINKS, "MarginTemperature", "field.82", more=("Name * NVIDIA GeForce RTX 4090",)),
    "A100 with instances": gpus_without("UtilizationRates", "EncoderUtilization", "DecoderUtilization", "GpuFabricInfo", more=("Name * NVIDIA A100-SXM4-80GB", "MigMode * 1", "MigInstances * 3", "MigName * NVIDIA A100-SXM4-80GB MIG 2g.20gb", "NvLinks * 12 12")),
    "vGPU": gpus_without(*NO_ECC, *LINKS, "Temperature", "TemperatureThreshold", "MarginTemperature", "PowerUsage", "EnforcedPowerLimit", "TotalEnergyConsumption", "field.82", "PcieReplayCounter", more=("Name * GRID V100D-16Q", "CurrPcieLinkWidth * 0", "CurrPcieLinkGeneration * 0", "GridLicensableFeatures * 1 1")),
    "Grace Hopper without NVSwitch": gpus_without("GpuFabricInfo", *LINKS, more=("Name * NVIDIA GH200 480GB", "NvLinks * 18 0")),
    "one H100 of eight for a virtual machine": gpus_without("GpuFabricInfo", *LINKS, more=("NvLinks * 18 0",)),
    "DGX Spark": gpus_without(*NO_ECC, *LINKS, "MemoryInfo", "EnforcedPowerLimit", "PcieReplayCounter", more=("Name * NVIDIA GB10", "CurrPcieLinkWidth * 1", "CurrPcieLinkGeneration * 1", "MaxPcieLinkWidth * 1", "MaxPcieLinkGeneration * 1")),
    "two RTX 3090 without their bridge": gpus_without("TotalEccErrors", "SramEccErrorStatus", "RemappedRows", "GpuFabricInfo", more=("Name * NVIDIA GeForce RTX 3090", "NvLinks * 4 0"), count=2),
    "sixteen V100": gpus_without("GpuFabricInfo", "SramEccErrorStatus", "RemappedRows", more=("Name * Tesla V100-SXM3-32GB", "NvLinks * 6 6"), count=16),
    "an idle H100 with a slow link": NodeCase(gpus=h100("UtilizationRates * 0 0", "CurrPcieLinkGeneration * 1", "CurrClocks * 345", "MemoryInfo * 0 85899345920", "CurrentClocksEventReasons * 1", count=1)),
    "eight H100 at their power limit": NodeCase(gpus=h100("CurrentClocksEventReasons * 4", "PowerUsage * 699000"), expect=Expected(gpus=8)),
}  # fmt: skip
