"""Machines to read: small made ones, and the recorded ones where they are at hand."""

import shutil
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT.parent / "shared" / "data"

STAT = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0 0 0\nintr 1 2 3\n"
MEMINFO = (
    "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n"
)
NET_DEV = """Inter-|   Receive                            |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0
  eth0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0
veth12: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
"""
MOUNTINFO = """21 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /scratch\\040disk ro,relatime - xfs /dev/sdb1 rw
31 21 0:42 / /nfs rw - nfs4 server:/x rw,hard
32 31 8:17 / /nfs/local rw - ext4 /dev/sdc1 rw
33 21 8:1 /bind /bind rw - ext4 /dev/sda1 rw
34 21 0:50 / /run rw - tmpfs tmpfs rw
35 21 0:51 / /auto rw - autofs x rw
"""
PORT = "sys/class/infiniband/mlx5_0/ports/1"


HWMON = "sys/class/hwmon"
EDAC = "sys/devices/system/edac/mc/mc0"
CPU0 = "sys/devices/system/cpu/cpu0"
CGROUP = "sys/fs/cgroup"
SLOW = {
    f"{HWMON}/hwmon0/name": "coretemp\n",
    f"{HWMON}/hwmon0/temp1_input": "71000\n",
    f"{HWMON}/hwmon0/temp2_input": "75000\n",
    f"{HWMON}/hwmon0/temp1_crit": "100000\n",
    f"{HWMON}/hwmon0/temp1_crit_alarm": "0\n",
    f"{HWMON}/hwmon1/name": "nvme\n",
    f"{HWMON}/hwmon1/temp1_input": "-2000\n",
    f"{HWMON}/hwmon1/temp1_crit_alarm": "1\n",
    f"{HWMON}/hwmon2/name": "nvme\n",
    f"{HWMON}/hwmon2/temp1_input": "41000\n",
    f"{HWMON}/hwmon3/name": "rpi_volt\n",
    f"{HWMON}/hwmon3/in0_lcrit_alarm": "1\n",
    f"{CPU0}/thermal_throttle/core_throttle_count": "3\n",
    f"{CPU0}/thermal_throttle/package_throttle_count": "5\n",
    f"{CPU0}/topology/physical_package_id": "0\n",
    f"{EDAC}/ce_count": "9\n",
    f"{EDAC}/ue_count": "1\n",
    f"{EDAC}/ce_noinfo_count": "2\n",
    f"{EDAC}/ue_noinfo_count": "0\n",
    f"{EDAC}/dimm0/dimm_ce_count": "7\n",
    f"{EDAC}/dimm0/dimm_ue_count": "1\n",
    f"{EDAC}/dimm0/dimm_label": "DIMM_A1\n",
    f"{EDAC}/dimm1/dimm_ce_count": "0\n",
    f"{EDAC}/dimm1/dimm_ue_count": "0\n",
    f"{EDAC}/dimm1/dimm_label": "DIMM_A1\n",
    f"{CGROUP}/cgroup.controllers": "cpu memory\n",
    f"{CGROUP}/a/memory.max": "4096\n",
    f"{CGROUP}/a/memory.current": "1024\n",
    f"{CGROUP}/a/b/memory.max": "max\n",
    f"{CGROUP}/a/b/memory.current": "512\n",
    f"{CGROUP}/a/b/cpuset.cpus.effective": "0-3,8\n",
    f"{CGROUP}/a/b/cpu.max": "250000 100000\n",
    f"{CGROUP}/a/b/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 4\n",
    "proc/self/cgroup": "0::/a/b\n",
    "proc/41/stat": "41 (nv) D (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 77\n",
    "proc/42/stat": "42 (nvidia-smi) D 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 88\n",
    "sys/class/nvme/nvme0/state": "live\n",
    "sys/class/nvme/nvme0/model": "Fast Disk   \n",
    "sys/class/nvme/nvme1/state": "resetting\n",
    "sys/class/net/eth0/mtu": "9000\n",
    "sys/class/net/eth0/carrier_changes": "3\n",
    "sys/firmware/devicetree/base/model": "Raspberry Pi 4 Model B\0",
    "sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n",
}
"""What is read seldom; no real machine has all of it."""


def make_machine(root: Path) -> Path:
    """A machine of two cores, a card, a disk and an RDMA port, every number known."""
    texts = {
        **SLOW,
        "proc/stat": STAT,
        "proc/meminfo": MEMINFO,
        "proc/vmstat": "nr_free_pages 1\noom_kill 3\npgfault 9\n",
        "proc/loadavg": "1.50 1.0 0.5 1/100 42\n",
        "proc/diskstats": "8 0 sda 1 2 10 4 5 6 20 8 9 10 11\n8 1 sda1 1 2 3 4 5 6 7 8 9 10 11\n7 0 loop0 1 1 1 1 1 1 1 1 1 1 1\n",
        "proc/cpuinfo": "model name\t: Test CPU 9000\n",
        "proc/self/mountinfo": MOUNTINFO,
        "proc/self/net/dev": NET_DEV,
        "proc/pressure/cpu": "some avg10=1.25 avg60=0 avg300=0 total=1\n",
        "sys/class/net/eth0/operstate": "up\n",
        "sys/class/net/eth0/speed": "25000\n",
        f"{PORT}/state": "4: ACTIVE\n",
        f"{PORT}/rate": "100 Gb/sec (4X EDR)\n",
        f"{PORT}/link_layer": "Ethernet\n",
        "sys/class/infiniband/mlx5_0/fw_ver": "20.31.1014\n",
        f"{PORT}/counters/port_rcv_data": "100\n",
        f"{PORT}/counters/port_xmit_data": "200\n",
        f"{PORT}/counters/symbol_error": "2\n",
        f"{PORT}/counters/link_downed": "1\n",
        f"{PORT}/counters/VL15_dropped": "9\n",
        f"{PORT}/hw_counters/out_of_sequence": "5\n",
        f"{PORT}/hw_counters/packet_seq_err": "6\n",
        f"{PORT}/gids/0": "fe80:0000:0000:0000:0000:0000:0000:0001\n",
        "sys/class/drm/card0/device/vendor": "0x1002\n",
        "sys/class/drm/card0/device/gpu_busy_percent": "12\n",
        "sys/class/drm/card0/device/current_link_speed": "16.0 GT/s PCIe\n",
        "sys/class/drm/card0/device/hwmon/hwmon0/temp1_input": "41000\n",
        "sys/class/drm/card0/device/ras/umc_err_count": "ue: 0\nce: 1\n",
    }
    for name, text in texts.items():
        write(root, name, text)
    (root / "scratch disk").mkdir(exist_ok=True)
    return root


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy_recorded(root: Path, part: str = "") -> Path:
    """The tree recorded for procfs' own tests (hfi1, mlx4 and mlx5 ports,
    Intel CPUs, disks), or a folder of it.
    """
    recorded = DATA / "procfs" / "fixtures" / part
    if not recorded.is_dir():
        pytest.skip(f"no recorded machines: {recorded} is missing")
    shutil.copytree(recorded, root / part, dirs_exist_ok=True, copy_function=shutil.copyfile)
    if part:
        return root
    # The recording holds the link `self` as a file.
    link = root / "proc" / "self"
    if not link.is_symlink():
        target = link.read_text().strip()
        link.unlink()
        link.symlink_to(target)
    return root


def unpack_rxe(root: Path) -> Path:
    """A real Soft-RoCE device, recorded after 500 sends."""
    archives = sorted((DATA / "rxe").glob("*.tgz"))
    if not archives:
        pytest.skip(f"no recorded Soft-RoCE device: {DATA / 'rxe'} is missing")
    target = root / "sys/class/infiniband"
    target.mkdir(parents=True)
    with tarfile.open(archives[0]) as archive:
        archive.extractall(target, filter="data")
    return root
