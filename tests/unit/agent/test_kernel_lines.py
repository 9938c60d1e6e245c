"""What the lines of real kernel logs are read as; recorded lines
and NVIDIA's own catalogue decide.
"""

import ast
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck_agent.kernel_lines import PATTERNS, KernelLines, find_kernel_event
from rankdeck_agent.kernel_records import strip_log_prefix
from rankdeck_agent.needed_texts import words_of
from rankdeck_agent.xids import XIDS, judge_xid
from tests.support.cases import each
from tests.unit.agent.machines import DATA

APPLICATION = (13, 31, 43, 45, 68, 94)
UNLABELLED_EVENTS = (
    "Killed process",
    "Out of memory: Killed",
    "oom-kill:constraint",
    "mlx5_cmd_out_err",
    "Port module event[error]",
    "Detected insufficient power",
)


def recorded():
    path = DATA / "kernel-lines" / "kernel_lines.jsonl"
    if not path.exists():
        pytest.skip(f"no recorded kernel lines: {path} is missing")
    return [json.loads(line) for line in path.read_text().splitlines()]


def found(line):
    return KernelLines().take(line)[1]


def is_event(row):
    if row.get("xid") or row.get("sxid") or row.get("event") or row.get("match"):
        return True
    return any(words in row["line"] for words in UNLABELLED_EVENTS)


def test_of_the_recorded_lines_exactly_the_events_are_found():
    rows = recorded()

    wrong = [r["line"] for r in rows if (found(r["line"]) is not None) != is_event(r)]

    assert wrong == []


def test_number_and_device_of_every_recorded_xid_are_read():
    rows = [r for r in recorded() if r.get("xid") or r.get("sxid")]
    assert len(rows) > 40

    for row in rows:
        event = found(row["line"])
        assert event is not None
        assert event.xid == (row.get("xid") or row.get("sxid"))
        assert event.kind == ("xid" if row.get("xid") else "sxid")
        assert event.device == row.get("device", event.device).replace("PCI:", "")


def test_recorded_nvlink_errors_that_others_call_fatal_are_bad():
    fatal = [r for r in recorded() if r.get("gpud_event") == "Fatal"]
    assert fatal

    assert {found(r["line"]).level for r in fatal} == {"bad"}


def catalogue():
    paths = list((DATA / "xid-catalogue").rglob("xid_catalog_data.json"))
    if not paths:
        pytest.skip(f"no Xid catalogue: {DATA / 'xid-catalogue'} is missing")
    return json.loads(paths[0].read_text())


def test_what_nvidia_wants_reset_or_rebooted_is_bad_and_what_it_ignores_is_not():
    wanted = {"RESET_GPU": "bad", "RESTART_BM": "bad", "CONTACT_SUPPORT": "warn"}

    for number, row in catalogue()["xid_error_catalog"].items():
        level = judge_xid(int(number), "").level
        assert level == wanted.get(row["action"], level)
        if row["action"] in ("IGNORE", "RESTART_APP"):
            assert level != "bad"


def test_every_xid_that_nvidia_describes_has_a_name():
    rows = catalogue()["xid_error_catalog"].items()
    described = {int(n) for n, row in rows if row["description"] != "Unused"}

    assert described - set(XIDS) - set(range(144, 151)) == {154}


def test_nvlink_5_is_bad_where_nvidia_asks_for_a_reset():
    checked = 0
    for number, rules in catalogue()["nvl5_decoding_rules"].items():
        for rule in rules:
            for status in rule["error_status_hex"]:
                unit = rule["mnemonic"].split("/")[0]
                line = f"{unit} Fatal XC0 i0 Link 00 (0x00000001 {status})"
                reset = rule["resolution"] == "RESET_GPU"
                checked += 1
                assert (judge_xid(int(number), line).level == "bad") == reset, line
    assert checked > 60


@pytest.mark.parametrize(
    ("number", "details", "level"),
    [
        # Two bits, one of which asks for a reset.
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 01 (0x00000004 0x00000042)", "bad"),
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 01 (0x00000004 0x00000004)", "warn"),
        # The catalogue does not list it: the driver's own word counts.
        (145, "RLW_REMAP Fatal XC0 i0 Link 01 (0x00000004 0x00010000)", "bad"),
        (149, "NETIR_MFDE_EVENT Fatal XC0 i0 Link 00 (0x00000014 0x00000009)", "bad"),
        (150, "MSE Degraded Nonfatal XC0 i0 Link 00 (0x00000000 0x00000000)", "bad"),
        (150, "MSE_WATCHDOG Nonfatal XC0 i0 Link -1 (0x00000000 0x00000000)", "bad"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "bad"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "bad"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", "warn"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "bad"),
        (154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "ok"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x9 (Something New)", "bad"),
    ],
)
def test_the_details_of_an_xid_decide(number, details, level):
    assert judge_xid(number, details).level == level


def test_a_145_for_which_nvidia_says_154_says_so():
    details = "RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x040868e2 0x00000008)"

    assert "Xid 154" in judge_xid(145, details).do


@pytest.mark.parametrize("number", APPLICATION)
def test_what_an_application_did_never_counts_against_the_node(number):
    event = found(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=1, name=python3")

    assert event.level in ("info", "warn")


def test_an_unknown_xid_is_told_and_not_dropped():
    event = found("NVRM: Xid (PCI:0000:3b:00): 99999, something new")

    assert (event.level, event.xid) == ("warn", 99999)
    assert "unknown Xid" in event.text


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:B5:00): 79, GPU has fallen off the bus.",
        "[  12.345678] NVRM: Xid (PCI:0000:b5:00): 79, GPU has fallen",
        "[Mon Jul 25 16:46:20 2022] NVRM: Xid (PCI:0000:b5:00): 79, x",
        "<4>[   12.3] NVRM: Xid (0000:b5:00): 79, x",
        "[   12.345] [ T1234] NVRM: Xid (PCI:0000:b5:00): 79, x",
        "kern  :warn  : 2025-01-21T04:41:44,285060+00:00 NVRM: Xid (PCI:0000:b5:00): 79, x",
        "Jul 25 16:46:20 gpu-7 kernel: NVRM: Xid (PCI:0000:b5:00): 79, x",
        "Jul 25 16:46:20 gpu-7 kernel: [   12.3] NVRM: Xid (PCI:0000:b5:00): 79, x",
        "2025-01-21T04:41:44+0000 gpu-7 kernel: NVRM: Xid (PCI:0000:b5:00): 79, x",
        "4,1227,437812449932,-;NVRM: Xid (PCI:0000:b5:00): 79, x",
        "kernel: message repeated 3 times: [ NVRM: Xid (PCI:0000:b5:00): 79, x]",
        "NVRM: Xid (PCI:0000:b5:00 GPU-I:05): 79, x",
        "NVRM: Xid (PCI:0000:b5:00 GPU-I:05 GPU-CI:02): 79, x",
        "NVRM: GPU 0000:b5:00.0: GPU has fallen off the bus.",
        "NVRM: GPU b5:00.0: GPU has fallen off the bus.",
    ],
)
def test_whatever_tool_wrote_the_line_down_it_is_the_same_event(line):
    event = found(line)

    assert (event.kind, event.level, event.xid, event.device) == (
        "xid",
        "bad",
        79,
        "0000:b5:00",
    )


def test_a_message_over_two_lines_keeps_its_device():
    lines = KernelLines()
    lines.take("[ 1.1] NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)")
    lines.take("[ 1.2] NVRM: installed in this system has")

    event = lines.take("[ 1.3] NVRM: fallen off the bus and is not responding.")[1]

    assert (event.xid, event.device) == (79, "0000:3b:00")


def test_a_lost_gpu_without_an_address_blames_none_that_was_named_long_before():
    lines = KernelLines()
    lines.take("[ 1.1] NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)")
    for n in range(9):
        lines.take(f"[ 2.{n}] usb 1-1: new high-speed USB device number 4")

    event = lines.take("[ 900.3] NVRM: GPU has fallen off the bus.")[1]

    assert (event.xid, event.device) == (79, "")


@pytest.mark.parametrize(
    ("details", "level", "link"),
    [
        ("24007, Fatal, Link 44 sourcetrack timeout error (First)", "bad", 44),
        ("24007, Severity 5 Engine instance 44 Sub-engine instance 00", "info", None),
        ("24007, Data {0x00ac0000, 0x00000000, 0x00000000}", "info", None),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", "warn", 32),
    ],
)
def test_the_data_lines_of_an_sxid_are_no_second_error(details, level, link):
    event = find_kernel_event(f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): {details}")

    assert (event.level, event.link) == (level, link)


def test_the_links_of_an_nvlink_error_before_blackwell_are_told_apart():
    details = "pid=1, name=python, NVLink: fatal error detected on link {}(0x0, 0x0, 0x10000)"

    events = [
        find_kernel_event(f"NVRM: Xid (PCI:0000:3b:00): 74, {details.format(link)}")
        for link in (3, 11)
    ]

    assert [(e.level, e.link) for e in events] == [("bad", 3), ("bad", 11)]


@pytest.mark.parametrize(
    "line",
    [
        "Jul 25 16:46:20 n1 sshd[7]: NVRM: Xid (PCI:0000:b5:00): 79, x",
        "12,1227,437812449932,-;NVRM: Xid (PCI:0000:b5:00): 79, x",
    ],
)
def test_what_a_program_wrote_is_not_the_kernels_word(line):
    assert found(line) is None


@each(
    [
        ("nfs: server fs1 not responding, still trying", "nfs", "bad", "fs1"),
        ("nfs: server fs1 OK", "nfs", "ok", "fs1"),
        ("mlx5_core 0000:5e:00.0: eth0: Link down", "link", "warn", "eth0"),
        ("igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down", "link", "warn", "eno1"),
        ("e1000e 0000:00:19.0 eth1: NIC Link is Up 1000 Mbps", "link", "ok", "eth1"),
        ("blk_update_request: critical medium error, dev sdb, sector 7", "disk", "bad", "sdb"),
        ("EXT4-fs error (device sda1): ext4_find_entry:1455: reading", "disk", "bad", "sda1"),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "disk", "bad", "sda1"),
        ("XFS (nvme1n1): metadata I/O error in \"xlog\" at daddr 0x1", "disk", "bad", "nvme1n1"),
        ("EDAC MC0: 1 CE memory read error on DIMM_A1 (channel:0)", "edac", "warn", "MC0"),
        ("EDAC MC1: 1 UE memory read error on DIMM_B1", "edac", "bad", "MC1"),
        ("mce: [Hardware Error]: Machine check events logged", "mce", "warn", ""),
        ("mce: Uncorrected hardware memory error in user-access at 1234", "mce", "bad", ""),
        ("{1}[Hardware Error]: event severity: corrected", "mce", "warn", ""),
        ("pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0", "pcie", "warn", "0000:00:1c"),
        ("pcieport 0000:00:1c.0: PCIe Bus Error: severity=Uncorrected (Fatal)", "pcie", "bad", "0000:00:1c"),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "lockup", "bad", ""),
        ("Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB", "oom", "warn", ""),
        ("hwmon hwmon1: Undervoltage detected!", "voltage", "bad", ""),
        ("hwmon hwmon1: Voltage normalised", "voltage", "ok", ""),
        ("mce: CPU3: Core temperature above threshold, cpu clock throttled", "thermal", "warn", "CPU3"),
        ("NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer1's postRxDetLinkMask failed!", "nvlink", "warn", ""),
        ("amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "ras", "bad", "0000:e3:00"),
        ("amdgpu 0000:0c:00.0: amdgpu: 1 new uncorrectable hardware errors detected in umc block", "ras", "bad", "0000:0c:00"),
        ("amdgpu 0000:29:00.0: amdgpu: GPU reset begin!", "amdgpu", "warn", "0000:29:00"),
        ("amdgpu 0000:29:00.0: amdgpu: GPU reset(2) succeeded!", "amdgpu", "ok", "0000:29:00"),
        ("amdgpu 0000:29:00.0: amdgpu: GPU reset end with ret = -110", "amdgpu", "bad", "0000:29:00"),
        ("amdgpu 0000:04:00.0: amdgpu: ring comp_1.0.1 timeout, signaled seq=45, emitted seq=47", "amdgpu", "info", "0000:04:00"),
        ("LustreError: 167-0: lfs-MDT0000-mdc-ffff88: This client was evicted by lfs-MDT0000; in progress operations using this service will fail.", "lustre", "warn", ""),
        ("Lustre: lfs-OST0001-osc-ffff88: Connection to lfs-OST0001 (at 10.0.0.1@o2ib) was lost; in progress operations using this service will wait", "lustre", "warn", "lfs-OST0001"),
        ("Lustre: lfs-OST0001-osc-ffff88: Connection restored to lfs-OST0001 (at 10.0.0.1@o2ib)", "lustre", "ok", "lfs-OST0001"),
        ("GPFS Deadman Switch timer [0] has expired; IOs in progress: 2", "gpfs", "bad", ""),
        ("pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000", "pcie", "bad", "0000:00:01"),
        ("bnxt_en 0000:86:00.0 ens1f0np0: Firmware not responding, status: 0x8000", "bnxt", "bad", "0000:86:00"),
        ("bnxt_en 0000:86:00.0 ens1f0np0: Error (timeout: 500015) msg {0x50 0x24} len:0", "bnxt", "warn", "0000:86:00"),
        ("Kernel panic - not syncing: hung_task: blocked tasks", "panic", "bad", ""),
        ("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP", "panic", "bad", ""),
        ("Unable to handle kernel paging request at virtual address ffff0000", "panic", "bad", ""),
        ("python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0", "oom", "info", ""),
        ("ata1.00: disabled", "disk", "bad", "ata1.00"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2393)", "gpu", "bad", "0000:3b:00"),
        ("NVRM: GPU 0000:3b:00.0: GPU does not have the necessary power cables connected.", "gpu", "bad", "0000:3b:00"),
        ("NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 3", "gpu", "bad", "0000:3b:00"),
        ("NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x2b, requiring os reboot to recover.", "gpu", "bad", ""),
        ("NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).  The GPU likely needs to be reset.", "gpu", "bad", "0000:9b:00"),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", "gpu", "bad", ""),
        ("NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out", "gpu", "bad", ""),
        ("nvidia: probe of 0000:3b:00.0 failed with error -1", "gpu", "bad", "0000:3b:00"),
        ("nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1", "gpu", "bad", "0000:3b:00"),
        ("nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible", "pcie", "bad", "0000:3b:00"),
        ("amdgpu 0000:c1:00.0: amdgpu: RAS records:24 exceed threshold:24, GPU will not be initialized.", "gpu", "bad", "0000:c1:00"),
        ("amdgpu 0000:c1:00.0: amdgpu: device lost from bus!", "gpu", "bad", "0000:c1:00"),
        ("amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0, 1 new deferred hardware errors detected in umc block", "ras", "warn", "0000:c1:00"),
        ("amdgpu: qcm fence wait loop timeout expired", "amdgpu", "warn", ""),
        ("xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged.", "gpu", "bad", "0000:03:00"),
        ("i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:85dffffb, in python [1234]", "gpu", "info", "0000:00:02"),
        ("Lustre: lfs-OST0001-osc-ffff88: Connection restored to 10.0.0.1@o2ib (at 10.0.0.1@o2ib)", "lustre", "ok", "lfs-OST0001"),
        ("LNetError: 2345:0:(o2iblnd_cb.c:3321:kiblnd_check_txs_locked()) Timed out tx: active_txs, 0 seconds", "lustre", "warn", ""),
        ("LustreError: 99:0:(osc_io.c:1:osc_io()) LBUG", "lustre", "bad", ""),
        ("mmfs: [X] File System fs1 unmounted by the system with return code 19 reason code 0", "gpfs", "bad", ""),
        ("ceph: mds0 hung", "ceph", "warn", "mds0"),
        ("ceph: mds0 came back", "ceph", "ok", "mds0"),
        ("CIFS: VFS: \\\\filer has not responded in 180 seconds. Reconnecting...", "cifs", "warn", "\\\\filer"),
        ("Kernel Panic - not syncing: VFS: Unable to mount root fs", "panic", "bad", ""),
        ("BUG: Bad page state in process python  pfn:123", "panic", "bad", ""),
        ("rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... }", "lockup", "bad", ""),
        ("EXT4-fs (dm-0): I/O error while writing superblock", "disk", "bad", "dm-0"),
        ("XFS (sda1): Filesystem has been shut down due to log error (0x2).", "disk", "bad", "sda1"),
        ("XFS (sda1): Metadata CRC error detected at xfs_agf_read_verify", "disk", "bad", "sda1"),
        ("Aborting journal on device sda1-8.", "disk", "bad", "sda1"),
        ("EXT4-fs (sda2): warning: mounting fs with errors, running e2fsck is recommended", "disk", "warn", "sda2"),
        ("mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:808:(pid 1): QUERY_HCA_CAP(0x100) op_mod(0x6d) failed, status bad parameter(0x3)", "mlx5", "info", "0000:5e:00"),
        ("mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:808:(pid 1): CREATE_QP(0x500) op_mod(0x0) failed, status bad resource(0x5)", "mlx5", "warn", "0000:5e:00"),
        ("BTRFS info (device sda1): forced readonly", "disk", "bad", "sda1"),
        ("BTRFS warning (device sda1): csum failed root 5 ino 257", "disk", "warn", "sda1"),
        ("nvme nvme0: Device not ready; aborting reset, CSTS=0x1", "disk", "bad", "nvme0"),
        ("sd 0:0:0:0: rejecting I/O to offline device", "disk", "bad", "0:0:0:0"),
        ("ata1.00: failed command: READ DMA EXT", "disk", "warn", "ata1.00"),
        ("device-mapper: multipath: 253:3: Failing path 8:16.", "disk", "warn", "8:16"),
        ("mmcblk0: error -110 transferring data, sector 5", "disk", "warn", "mmcblk0"),
        ("megaraid_sas 0000:18:00.0: Found FW in FAULT state, will reset adapter.", "disk", "bad", "0000:18:00"),
        ("Buffer I/O error on dev sr0, logical block 0, async page read", "disk", "info", "sr0"),
        ("blk_update_request: I/O error, dev fd0, sector 0", "disk", "info", "fd0"),
        ("[Hardware Error]: System Fatal error.", "mce", "bad", ""),
        ("[Hardware Error]: Deferred error, no action required.", "mce", "warn", ""),
        ("NMI: PCI system error (SERR) for reason a1 on CPU 0.", "mce", "bad", ""),
        ("CPU3: Core temperature/speed normal", "thermal", "ok", "CPU3"),
        ("thermal thermal_zone0: critical temperature reached(127 C),shutting down", "thermal", "bad", ""),
        ("mlx5_core 0000:5e:00.0: temp_warn_event:327:(pid 0): High temperature on sensors with bit set 0 1", "mlx5", "warn", "0000:5e:00"),
        ("mlx5_core 0000:5e:00.0: print_health_info:384:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:", "mlx5", "bad", "0000:5e:00"),
        ("mlx5_core 0000:5e:00.0: print_health_info:384:(pid 0): Health issue observed, High temperature, severity(5) NOTICE:", "mlx5", "warn", "0000:5e:00"),
        ("mlx5_core 0000:5e:00.0: mlx5_function_setup:1170:(pid 1): Firmware over 120000 MS in pre-initializing state, aborting", "mlx5", "bad", "0000:5e:00"),
        ("mlx5_core: probe of 0000:5e:00.0 failed with error -110", "nic", "bad", "0000:5e:00"),
        ("mlx4_core 0000:07:00.0: Internal error detected:", "nic", "bad", "0000:07:00"),
        ("mlx4_core 0000:07:00.0: command 0x31 timed out (go bit not cleared)", "nic", "warn", "0000:07:00"),
        ("ena 0000:00:06.0: Keep alive watchdog timeout.", "nic", "warn", "0000:00:06"),
        ("NETDEV WATCHDOG: ens1f0 (mlx5_core): transmit queue 3 timed out", "nic", "warn", "ens1f0"),
        ("mlx5_core 0000:5e:00.0 ens1f0: NETDEV WATCHDOG: CPU: 3: transmit queue 5 timed out 5012 ms", "nic", "warn", "ens1f0"),
        ("bond0: (slave ens1f0): link status definitely down, disabling slave", "link", "warn", "ens1f0"),
        ("bond0: (slave ens1f0): link status definitely up, 100000 Mbps full duplex", "link", "ok", "ens1f0"),
        ("bond0: now running without any active interface!", "link", "warn", "bond0"),
        ("bond0: first active interface up!", "link", "ok", "bond0"),
        ("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing", "peermem", "warn", ""),
        ("python3[4711]: segfault at 7f1c ip 00007f1c8a sp 00007ffd12 error 4 in libnccl.so.2.21.5[7f1c80+9a000]", "nccl", "info", ""),
        ("System OOM encountered, victim process: python3, pid: 4711", "oom", "warn", ""),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,task=python3,pid=4711,uid=1000", "oom", "info", ""),
        ("INFO: task python3:4711 blocked for more than 120 seconds.", "hung", "warn", ""),
        ("NFS: nfs4_reclaim_open_state: Lock reclaim failed!", "nfs", "bad", ""),
        ("Buffer I/O error on dev sdb1, logical block 0, async page read", "disk", "bad", "sdb1"),
        ("block nvme1n1: no available path - failing I/O", "disk", "bad", "nvme1n1"),
        ("nvme nvme1: Removing after probe failure status: -19", "disk", "bad", "nvme1"),
        ("nvme nvme1: I/O 128 QID 3 timeout, aborting", "disk", "warn", "nvme1"),
        ("sdb1: attempt to access beyond end of device", "disk", "bad", "sdb1"),
        ("md/raid1:md0: Disk failure on sdb1, disabling device.", "disk", "bad", "sdb1"),
        ("{1}[Hardware Error]:   section_type: memory error, Uncorrected", "mce", "bad", ""),
        ("VFS: file-max limit 65536 reached", "files", "warn", ""),
        ("mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:838:(pid 99): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3)", "mlx5", "info", "0000:5e:00"),
        ("arm-smmu-v3 arm-smmu-v3.0.auto: event 0x10 received:", "iommu", "warn", "arm-smmu-v3.0.auto"),
        ("nvme 0000:5e:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "pcie", "warn", "0000:5e:00"),
        ("mlx5_core 0000:5e:00.0: Detected insufficient power on the PCIe slot (25W).", "mlx5", "warn", "0000:5e:00"),
        ("mlx5_core 0000:5e:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link", "pcie", "warn", "0000:5e:00"),
        ("pcieport 0000:16:02.0: DPC: ERR_FATAL detected", "pcie", "bad", "0000:16:02"),
        ("pcieport 0000:16:02.0: AER: device recovery failed", "pcie", "bad", "0000:16:02"),
        ("pcieport 0000:16:02.0: pciehp: Slot(1): Card not present", "pcie", "warn", "0000:16:02"),
        ("bnxt_re: bnxt_re0: async event: fatal", "nic", "bad", "bnxt_re0"),
        ("ixgbe 0000:18:00.0 eth4: Adapter removed", "nic", "bad", "0000:18:00"),
        ("ice 0000:18:00.0: Firmware recovery mode detected. Limiting functionality.", "nic", "bad", "0000:18:00"),
        ("i40e 0000:18:00.0: Error OICR: ECC error, resetting", "nic", "warn", "0000:18:00"),
        ("sd 2:0:0:0: [sdc] Medium access timeout failure. Offlining disk!", "disk", "bad", "sdc"),
        ("mpt3sas_cm0: fault_state(0x5862)!", "disk", "bad", "mpt3sas_cm0"),
        ("WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.", "disk", "bad", "tank"),
        ("LustreError: 11-0: lfs-OST0003-osc: operation ost_write to node 10.0.0.9@o2ib failed: rc = -28", "disk", "bad", ""),
        ("nf_conntrack: nf_conntrack: table full, dropping packet", "limits", "warn", ""),
        ("neighbour: arp_cache: neighbor table overflow!", "limits", "warn", ""),
        ("TCP: out of memory -- consider tuning tcp_mem", "limits", "warn", ""),
        ("cgroup: fork rejected by pids controller in /user.slice/user-1000.slice", "limits", "warn", ""),
        ("clocksource: timekeeping watchdog on CPU4: Marking clocksource 'tsc' as unstable because the skew is too large:", "clock", "warn", ""),
        ("xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=ccs, logical mask: 0x1", "gpu", "info", "0000:03:00"),
        ("amdgpu: HIVE reset failed", "gpu", "bad", ""),
        ("amdgpu 0000:83:00.0: amdgpu: 3 correctable hardware errors detected in umc block", "ras", "warn", "0000:83:00"),
        ("amdgpu 0000:83:00.0: amdgpu: [gfxhub0] retry page fault (src_id:0 ring:0 vmid:8 pasid:32770)", "amdgpu", "info", "0000:83:00"),
    ],
)  # fmt: skip
def test_a_line_of_each_kind_is_found_with_its_device(line, kind, level, device):
    event = find_kernel_event(line)

    assert (event.kind, event.level, event.device) == (kind, level, device)


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new high-speed USB device number 4 using xhci_hcd",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        "nfs: Deprecated parameter 'intr'",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "br0: port 1(v1) entered disabled state",
        "ata5: SATA link down (SStatus 0 SControl 300)",
        "ata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)",
        "amdgpu 0000:0c:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "mlx5_core 0000:5e:00.0: Port module event: module 1, Cable unplugged",
        "mlx5_core 0000:5e:00.0: mlx5_pcie_event:302:(pid 7): PCIe slot advertised sufficient power (27W).",
        "amdgpu 0000:0c:00.0: amdgpu: socket: 0, die: 0, 0 new deferred hardware errors detected in umc block",
        "pcieport 0000:16:02.0: AER: device recovery successful",
        "XFS (sda1): Ending clean mount",
        "XFS (sda1): Unmounting Filesystem",
        "bond0: (slave ens1f0): Enslaving as a backup interface with a down link",
        "traps: python3[77] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f+1]",
        "",
    ],
)
def test_everyday_lines_are_no_events(line):
    assert find_kernel_event(line) is None


START = ("NVRM: Xid (PCI:", "4,1,2,-;", "[ 1.2] ", "Jul 25 16:46:20 n kernel: ", "")
TAIL = ("0000:3b:00): 79", "GPU has fallen off the bus", "\x1b[2J", "\u202e", "(")


@given(st.lists(st.sampled_from(START + TAIL) | st.text(max_size=30), max_size=8))
def test_no_line_stops_the_reader_or_gets_control_characters_through(parts):
    line = "".join(parts)

    event = found(line)

    if event is not None:
        assert event.text.isprintable()
        assert event.device.isprintable()
        assert len(event.text) <= 300
    stripped = strip_log_prefix(line)
    assert stripped is None or stripped.message in line


SLOT = "0000:c1:00"


@each(
    [
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400", "mce", "bad", ""),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: bd80000000100134", "mce", "bad", ""),
        ("mce: [Hardware Error]: CPU 9: Machine Check Event: 0 Bank 7: 8e00004000010091", "mce", "bad", ""),
        ("mce: [Hardware Error]: CPU 9: Machine Check Event: 0 Bank 7: 8c00004000010091", "mce", "warn", ""),
        ("mce: [Hardware Error]: CPU 9: Machine Check: 0 Bank 7: cc00004000010091", "mce", "warn", ""),
        ("[Hardware Error]: CPU:2 (19:1:1) MC18_STATUS[Over|UE|MiscV|AddrV|PCC|-|SyndV]: 0xfe2000000002010a", "mce", "bad", ""),
        ("[Hardware Error]: CPU:2 (19:1:1) MC18_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV]: 0xdc2040000000011b", "", "", ""),
        ("critical target error, dev sdb, sector 99 op 0x3:(DISCARD) flags 0x4000 phys_seg 1 prio class 0", "disk", "info", "sdb"),
        ("I/O error, dev nvme2n1, sector 0 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2", "disk", "info", "nvme2n1"),
        ("blk_update_request: operation not supported error, dev dm-4, sector 8 op 0x9:(WRITE_ZEROES) flags 0x0", "disk", "info", "dm-4"),
        ("critical target error, dev sdb, sector 99 op 0x1:(WRITE) flags 0x4000 phys_seg 1 prio class 0", "disk", "bad", "sdb"),
        ("pcieport 0000:00:03.0: AER: Uncorrected (Non-Fatal) error received: 0000:c1:00.0", "pcie", "bad", SLOT),
        ("pcieport 0000:00:03.0: AER: Multiple Corrected error message received from 0000:c1:00.0", "pcie", "warn", SLOT),
        ("pcieport 0000:00:03.0: AER: Correctable error message received from 0000:c1:00.1", "pcie", "warn", SLOT),
        ("md/raid1:md0: Operation continuing on 1 devices.", "disk", "warn", "md0"),
        ("md/raid:md127: raid level 5 active with 2 out of 3 devices, algorithm 2", "disk", "warn", "md127"),
        ("md/raid:md127: raid level 5 active with 3 out of 3 devices, algorithm 2", "", "", ""),
        ("md/raid1:md3: active with 1 out of 2 mirrors", "disk", "warn", "md3"),
        ("md/raid10:md4: active with 4 out of 4 devices", "", "", ""),
        ("md: kicking non-fresh sdb1 from array!", "disk", "warn", "sdb1"),
        ("md/raid:md5: not enough operational devices (2/4 failed)", "disk", "bad", "md5"),
        ("amdgpu 0000:c1:00.0: amdgpu: WARN: GPU thermal throttling temperature reached, expect performance decrease. HotSpot.", "thermal", "warn", SLOT),
        ("amdgpu 0000:c1:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!", "thermal", "bad", SLOT),
        ("amdgpu 0000:c1:00.0: amdgpu: ERROR: System is going to shutdown due to GPU SW CTF!", "thermal", "bad", SLOT),
        ("mlx5_core 0000:c1:00.0 ens1f0np0: TX timeout detected", "mlx5", "warn", SLOT),
        ("mlx5_core 0000:c1:00.0 ens1f0np0: TX timeout on queue: 3, SQ: 0x11, CQ: 0x22, SQ Cons: 0x1", "mlx5", "warn", SLOT),
        ("bnxt_en 0000:c1:00.0 ens2f0: TX timeout detected, starting reset task!", "bnxt", "warn", SLOT),
        ("i40e 0000:c1:00.0 ens3: tx_timeout: VSI_seid: 390, Q 5, NTC: 0x1, HWB: 0x2", "nic", "warn", SLOT),
        ("DMAR: [DMA Read NO_PASID] Request device [c1:00.0] fault addr 0xdead000 [fault reason 0x06] PTE Read access is not set", "iommu", "warn", SLOT),
        ("DMAR: [DMA Write] Request device [0000:c1:00.0] fault addr ff", "iommu", "warn", SLOT),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:c1:00.0 domain=0x0015 address=0x9000 flags=0x0020]", "iommu", "warn", SLOT),
        ("nvidia 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0015 address=0x9000 flags=0x0000]", "iommu", "warn", SLOT),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "gpu", "bad", ""),
        ("NVRM: None of the NVIDIA devices were initialized.", "gpu", "bad", ""),
        ("NVRM: API mismatch: the client has the version 550.54.15, but", "gpu", "warn", ""),
        ('mce: [Hardware Error]: Machine check: Processor context corrupt', "mce", "bad", ""),
        ('mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 9: cc00008000010092', "mce", "warn", ""),
        ('{3}[Hardware Error]:  Error 0, type: fatal', "mce", "bad", ""),
        ('critical space allocation error, dev sdd, sector 77 op 0x1:(WRITE) flags 0x0', "disk", "bad", "sdd"),
        ('md/raid0:md3: too few disks (1 of 2) - aborting!', "disk", "bad", "md3"),
        ('md/raid10:md127: active with 3 out of 4 devices', "disk", "warn", "md127"),
        ('md/raid1:md0: active with 2 out of 2 mirrors', "", "", ""),
        ('pcieport 0000:80:03.1: AER: Multiple Uncorrectable (Non-Fatal) error received: 0000:c1:00.0', "pcie", "bad", SLOT),
        ('pcieport 0000:5d:00.0: AER: Correctable error message received from 0000:c1:00.0', "pcie", "warn", SLOT),
        ('amdgpu 0000:c1:00.0: amdgpu: ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!', "thermal", "bad", SLOT),
        ('amdgpu: GPU over temperature range detected on PCIe 3:0.0!', "thermal", "bad", ""),
        ('amdgpu 0000:c1:00.0: amdgpu: GPU under temperature range detected', "thermal", "ok", SLOT),
        ("ena 0000:c1:00.0 ens5: TX hasn't completed, qid 3, index 100. 5000 usecs have passed", "nic", "warn", SLOT),
        ('ena 0000:c1:00.0 ens5: The number of lost tx completions is above the threshold (129 > 128). Reset the device', "nic", "warn", SLOT),
        ('virtio_net virtio0 eth0: TX timeout on queue: 0, sq: output.0, vq: 0x1, name: output.0, 5004000 usecs ago', "nic", "warn", "virtio0"),
        ('ib0: transmit timeout: latency 1430 msecs', "nic", "warn", "ib0"),
        ('AMD-Vi: Completion-Wait loop timed out', "iommu", "bad", ""),
        ('AMD-Vi: IOTLB_INV_TIMEOUT device=0000:c1:00.0 address=0x100065480', "iommu", "warn", SLOT),
        ('arm-smmu-v3 arm-smmu-v3.3.auto: CMDQ timeout', "iommu", "bad", ""),
        ('NVRM: None of the NVIDIA devices were probed.', "gpu", "bad", ""),
        ('NVRM: GPU 0000:c1:00.0: Failed to copy vbios to system memory.', "gpu", "bad", SLOT),
        ('NVRM: BAR1 is 0M @ 0x0 (PCI:0000:65:00.0)', "gpu", "bad", ""),
    ]
)  # fmt: skip
def test_what_the_hardware_says_is_read_as_it_means_it(line, kind, level, device) -> None:
    event = find_kernel_event(line)

    told = (event.kind, event.level, event.device) if event else ("", "", "")
    assert told == (kind, level, device)
    assert event is None or "corrected" not in event.text.rpartition(" · ")[2] or level == "warn"


@each(
    [
        ("NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812 heartbeat 189 diff 6070 timeout 5200", "gpu", "bad", ""),
        ("NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7", "gpu", "warn", ""),
        ("NVRM: GPU4 knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!", "nvlink", "warn", ""),
        ("i915 0000:c1:00.0: [drm] *ERROR* Failed to reset chip", "gpu", "bad", SLOT),
        ("xe 0000:c1:00.0: [drm] *ERROR* Tile0: GT0: reset failed (-ETIMEDOUT)", "gpu", "bad", SLOT),
        ("amdgpu 0000:c1:00.0: amdgpu: Saved bad pages 256 reaches threshold value 256", "ras", "bad", SLOT),
        ("amdgpu 0000:c1:00.0: amdgpu: XGMI: Set topology failure on device 5e2a13ba1c6f, hive 7a9e21, ret -22", "amdgpu", "bad", SLOT),
        ("amdgpu 0000:c1:00.0: amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000012", "amdgpu", "warn", SLOT),
        ("LustreError: 166-1: MGC10.0.0.1@o2ib: Connection to MGS (at 10.0.0.1@o2ib) was lost; in progress", "lustre", "warn", "MGC10.0.0.1@o2ib"),
        ("ceph: mds0 reconnect denied", "ceph", "warn", "mds0"),
        ("libceph: mon0 (1)192.168.3.235:6789 session lost, hunting for new mon", "ceph", "warn", "mon"),
        ("libceph: mon1 (1)192.168.3.236:6789 session established", "ceph", "ok", "mon"),
        ("INFO: task dd:456 blocked in I/O wait for more than 122 seconds.", "hung", "warn", ""),
        ("BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 44s!", "lockup", "warn", ""),
        ('irq 16: nobody cared (try booting with the "irqpoll" option)', "irq", "warn", ""),
        ("Internal error: synchronous external abort: 0000000096000610 [#1] SMP", "panic", "bad", ""),
        ("NFS: state manager: lease expired failed on NFSv4 server 10.0.0.5 with error 13", "nfs", "warn", "10.0.0.5"),
        ("NFS: server fs1 error: fileid changed", "nfs", "warn", "fs1"),
        ("I/O error, dev loop3, sector 4096 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0", "disk", "info", "loop3"),
        ("timeout error, dev nvme1n1, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0", "disk", "bad", "nvme1n1"),
        ("device offline error, dev sdb, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", "disk", "bad", "sdb"),
        ("ata3.00: disable device", "disk", "bad", "ata3.00"),
        ("ata3: reset failed, giving up", "disk", "bad", "ata3"),
        ("nvme nvme2: Reconnecting in 10 seconds...", "disk", "warn", "nvme2"),
        ("nvme nvme2: Successfully reconnected (1 attempt)", "disk", "ok", "nvme2"),
        ("session1: session recovery timed out after 120 secs", "disk", "bad", "session1"),
        ("rport-2:0-5: blocked FC remote port time out: removing target and saving binding", "disk", "warn", "rport-2:0-5"),
        ("EXT4-fs (sda1): This should not happen!! Data will be lost", "disk", "bad", "sda1"),
        ("mpt3sas_cm0: SAS host is non-operational !!!!", "disk", "bad", "mpt3sas_cm0"),
        ("mmc0: Timeout waiting for hardware interrupt.", "disk", "warn", "mmc0"),
        ("smartpqi 0000:c1:00.0: controller offline: reason code 0x6100c (lockup)", "disk", "bad", SLOT),
        ("aacraid: Host bus reset request. SCSI hang ?", "disk", "warn", ""),
        ("mlx5_core 0000:c1:00.1: mlx5_health_try_recover:381:(pid 1): health recovery flow aborted, PCI reads still not working", "mlx5", "bad", SLOT),
        ("bnxt_en 0000:c1:00.0: QPLIB: cmdq[0x2e1]=0x5 timedout (20000)msec", "bnxt", "warn", SLOT),
        ("infiniband rdmap0s29: The device didn't send any completion for admin cmd CREATE_QP(1) status 2", "nic", "bad", "rdmap0s29"),
        ("efa 0000:c1:00.0: Reset indication didn't turn on", "nic", "bad", SLOT),
        ("infiniband rocep202s0f0: Requesting a reset", "nic", "warn", "rocep202s0f0"),
        ("mana 7870:00:00.0: HWC: Request timed out!", "nic", "warn", "7870:00:00"),
        ("ionic 0000:c1:00.0: FW heartbeat stalled at 1234", "nic", "warn", SLOT),
        ("e1000e 0000:c1:00.0 eth1: Detected Hardware Unit Hang:", "nic", "warn", SLOT),
        ("igc 0000:c1:00.0 (unnamed net_device) (uninitialized): PCIe link lost, device now detached", "nic", "bad", SLOT),
        ("ice 0000:c1:00.0: Rebuild failed, unload and reload driver", "nic", "bad", SLOT),
        ("hfi1 0000:05:00.0: hfi1_0: set_link_state: current ACTIVE, new OFFLINE", "link", "warn", "hfi1_0"),
        ("hfi1 0000:05:00.0: hfi1_0: set_link_state: current ARMED, new ACTIVE", "link", "ok", "hfi1_0"),
        ("hfi1 0000:05:00.0: hfi1_0: set_link_state: current OFFLINE, new POLL", "", "", ""),
        ("NVRM: GPU0 _kgspRpcRecvPoll: LibOS heartbeat timed out", "gpu", "bad", ""),
        ("NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2827", "gpu", "bad", ""),
        ("NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: (status == NV_OK) || (status == NV_ERR_GPU_IS_LOST) @ rs_client.c:844", "", "", ""),
        ("NVRM: _threadNodeCheckTimeout: API_GPU_ATTACHED_SANITY_CHECK failed!", "gpu", "warn", ""),
        ("habanalabs hl3: Device heartbeat failed!", "gpu", "bad", "hl3"),
        ("LNet: Service thread pid 156436 was inactive for 200.35s. Watchdog stack traces are limited", "lustre", "warn", ""),
        ("PANIC at zfs_vfsops.c:426:zfs_space_delta_cb()", "panic", "bad", ""),
        ("Oops [#1]", "panic", "bad", ""),
        ("BUG kmalloc-64 (Tainted: G           OE     ): Poison overwritten", "panic", "bad", ""),
        ("SError Interrupt on CPU4, code 0x00000000be000011 -- SError", "panic", "bad", ""),
        ("F2FS-fs (mmcblk0p2): Stopped filesystem due to reason: 3", "disk", "bad", "mmcblk0p2"),
        ("bcachefs (sda1): fatal error - emergency read only", "disk", "bad", "sda1"),
        ("device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode", "disk", "bad", "253:4"),
        ("device-mapper: thin: 253:4: reached low water mark for data device: sending event.", "disk", "warn", "253:4"),
        ("device-mapper: integrity: nvme1n1: Checksum failed at sector 0x1234", "disk", "bad", ""),
        ("i915 0000:c1:00.0: [drm] *ERROR* GT0: GUC: TLB invalidation response timed out for seqno 309", "gpu", "warn", SLOT),
        ("xe 0000:c1:00.0: [drm] *ERROR* Tile0: GT0: reset failed (-ETIMEDOUT)", "gpu", "bad", SLOT),
        ("XFS (dm-3): writeback error on inode 1234, offset 0, sector 5678", "disk", "bad", "dm-3"),
        ("EXT4-fs warning (device sdb1): ext4_end_bio:343: I/O error 10 writing to inode 131 starting block 33792)", "disk", "bad", "sdb1"),
        ("JBD2: I/O error when updating journal superblock for sdc1-8.", "disk", "bad", "sdc1"),
        ("ata2.00: failed to IDENTIFY (I/O error, err_mask=0x4)", "disk", "warn", "ata2.00"),
        ("ata2.00: failed to get NCQ Send/Recv Log Emask 0x1", "", "", ""),
        ("megaraid_sas 0000:c1:00.0: 9217 (695872131s/0x0001/CRIT) - VD 00/0 is now DEGRADED", "disk", "warn", SLOT),
        ("megaraid_sas 0000:c1:00.0: 9219 (695872140s/0x0001/FATAL) - VD 01/1 is now OFFLINE", "disk", "bad", SLOT),
        ("megaraid_sas 0000:c1:00.0: 9301 (695872131s/0x0020/INFO) - Patrol Read complete", "", "", ""),
        ("mlx5_core 0000:c1:00.0: wait_fw_init:199:(pid 812): Waiting for FW initialization, timeout abort in 100s", "mlx5", "warn", SLOT),
        ("nvme 0000:c1:00.0: AER: aer_layer=Physical Layer, aer_agent=Receiver ID", "pcie", "warn", SLOT),
        ("{35}[Hardware Error]:  fru_text: D2", "mce", "warn", "D2"),
        ("{35}[Hardware Error]:  fru_text: CorrectedErr", "", "", ""),
        ("{1}[Hardware Error]:   DIMM location: CPU 1 DIMM 3", "mce", "warn", "CPU 1 DIMM 3"),
        ("soctherm: OC ALARM 0x00000001", "voltage", "warn", ""),
        ("sfc 0000:c1:00.0 ens2f0np0: MC reboot detected on event queue", "nic", "warn", SLOT),
        ("EEH: Frozen PHB#33-PE#10000 detected", "pcie", "warn", "PHB#33-PE#10000"),
        ("EEH: PHB#33 failure detected, location: N/A", "pcie", "warn", "PHB#33"),
        ("EEH: PHB#33-PE#10000 has failed 6 times in the last hour and has been permanently disabled.", "pcie", "bad", ""),
        ("xhci_hcd 0000:c1:00.0: xHCI host controller not responding, assume dead", "device", "warn", SLOT),
        ("xhci_hcd 0000:c1:00.0: HC died; cleaning up", "device", "warn", SLOT),
    ]
)  # fmt: skip
def test_what_newer_kernels_and_other_drivers_say_is_read(line, kind, level, device) -> None:
    event = find_kernel_event(line)

    assert ((event.kind, event.level, event.device) if event else ("", "", "")) == (kind, level, device)  # fmt: skip


FORGED = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


@each(
    [
        f"process 'a.out' launched '/tmp/{FORGED}' with NULL argv: empty string added",
        f"Memory cgroup stats for /user.slice/user-1000.slice/{FORGED}:",
        "Oops: x[4711]: segfault at 0 ip 000055d1 sp 00007ffd error 4 in a.out[55d1+1000]",
        "traps: ib0: link down[4713] trap invalid opcode ip:55d1 sp:7ffd error:0 in a.out[55d1+1000]",
        "[   4711]  1000  4711  1234567   800000  6500000        0             0 ib0: link down",
        "CPU: 3 UID: 1000 PID: 4713 Comm: ib0: link down Not tainted 6.8.0 #1",
        "netlink: 16 bytes leftover after parsing attributes in process `ib0: link down'.",
        f"overlayfs: failed to resolve '/tmp/{FORGED}': -2",
        "overlayfs: failed to resolve '/tmp/critical medium error, dev sda, sector 1': -2",
        "EXT4-fs (sda1): mounted by Kernel panic - not syncing: none",
        "usb 1-1: Product: ib0: link down",
    ]
)  # fmt: skip
def test_what_any_user_may_choose_is_not_the_kernels_word(line) -> None:
    assert find_kernel_event(line) is None


def test_a_cgroup_that_is_named_like_a_fault_is_told_as_the_limit_that_it_is() -> None:
    event = find_kernel_event(f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/{FORGED},task=a")

    assert (event.kind, event.level) == ("oom", "info")


@each(
    [
        "user  :notice: [   12.3] " + FORGED,
        "daemon:warn  : 2026-01-21T04:41:44,285060+00:00 " + FORGED,
        "local0:err   : [   12.3] " + FORGED,
        "<12>[   12.3] " + FORGED,
    ]
)
def test_what_dmesg_says_was_written_by_a_program_is_not_believed(line) -> None:
    assert found(line) is None


@each(
    [
        "<4>[   12.3] " + FORGED,
        "kern  :warn  : [   12.3] " + FORGED,
        "192.168.11.119: kern: warning: [2026-04-22T21:27:51.291660856Z]: " + FORGED,
        "kern: warning: [2026-04-22T21:27:51.291660856Z]: " + FORGED,
    ]
)
def test_what_dmesg_says_is_the_kernels_is_read(line) -> None:
    assert found(line).xid == 79


def kmsg(level: int, text: str) -> str:
    return f"{level},7,1000000,-;{text}"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_the_kernel_calls_critical_is_told_though_nobody_knows_it(level) -> None:
    event = found(kmsg(level, "Uhhuh. NMI received for unknown reason 3d on CPU 0."))

    assert (event.kind, event.level) == ("critical", "warn")
    assert "Uhhuh" in event.text


@each(
    [
        kmsg(3, "Uhhuh. NMI received for unknown reason 3d on CPU 0."),
        "Uhhuh. NMI received for unknown reason 3d on CPU 0.",
        kmsg(0, "mce: [Hardware Error]: TSC 30aafa6d16448"),
        kmsg(0, "Initramfs unpacking failed: Decoding failed"),
        kmsg(2, " ffff8840354d7d60 0000000000000046"),
        kmsg(8, "Uhhuh. NMI received for unknown reason 3d on CPU 0."),
    ]
)
def test_what_is_less_or_belongs_to_another_report_is_not_told_as_critical(line) -> None:
    assert found(line) is None


def test_lines_after_an_event_are_part_of_its_report() -> None:
    lines = KernelLines()
    lines.take(kmsg(1, "BUG: unable to handle page fault for address: ffffffffdead"))

    after = [lines.take(kmsg(1, text))[1] for text in ("#PF: supervisor read access", "PGD 0")]

    assert after == [None, None]
    for n in range(50):
        lines.take(kmsg(6, f"usb 1-{n}: new device"))
    assert lines.take(kmsg(2, "Something else is broken"))[1].kind == "critical"


def test_every_kind_of_line_has_an_example_here_and_its_place_on_the_page() -> None:
    page = Path("docs/agent.md").read_text()
    texts = {
        node.value
        for node in ast.walk(ast.parse(Path(__file__).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    shown = {
        next((row for row in PATTERNS if re.search(row.pattern, text)), None) for text in texts
    }

    assert [row.pattern for row in PATTERNS if row not in shown] == []
    assert [row.kind for row in PATTERNS if f"`{row.kind}`" not in page] == []


@each([(row,) for row in PATTERNS])
def test_the_texts_that_a_pattern_needs_follow_from_it(row) -> None:
    """Without them no line matches, and a new pattern needs no second list."""
    words = words_of(row.pattern)

    assert words, "each line would be tried"
    assert min(map(len, words)) >= 2, "nearly each line would be tried"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("abc", ("abc",)),
        ("a(?:cd|efg)h", ("cd", "efg")),
        ("(?:ab|c?)d", ("d",)),
        ("(?:ab|c?)", ()),
        ("a(?:bcd)?", ("a",)),
        ("(?:bcd)+[xy]z", ("bcd",)),
        ("[Ff]atal", ("atal",)),
        (r"\w+", ()),
        ("a|b", ()),
        ("(?P<x>abc) (?!no)y", ("abc",)),
    ],
)
def test_only_texts_that_each_match_has_are_needed(pattern, words) -> None:
    assert words_of(pattern) == words


@given(st.sampled_from(PATTERNS), st.data())
def test_whatever_a_pattern_matches_has_one_of_its_texts(row, data) -> None:
    line = data.draw(st.from_regex(row.pattern))

    assert any(word in line for word in words_of(row.pattern))
