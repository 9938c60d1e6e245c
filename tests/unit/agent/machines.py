"""Machines to read: small made ones, and the recorded ones where they are at hand."""

import shutil
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT.parent / "shared" / "data"

STAT = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0 0 0\nintr 1 2 3\n"
MEMINFO = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n"
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


def make_machine(root: Path) -> Path:
    """A machine of two cores, a card, a disk and an RDMA port, every number known."""
    texts = {
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
    }
    for name, text in texts.items():
        write(root, name, text)
    (root / "scratch disk").mkdir(exist_ok=True)
    return root


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy_recorded(root: Path) -> Path:
    """The tree recorded for procfs' own tests: hfi1, mlx4 and mlx5 ports, Intel CPUs, disks."""
    recorded = DATA / "procfs" / "fixtures"
    if not recorded.is_dir():
        pytest.skip(f"no recorded machines: {recorded} is missing")
    shutil.copytree(recorded, root, dirs_exist_ok=True, copy_function=shutil.copyfile)
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
