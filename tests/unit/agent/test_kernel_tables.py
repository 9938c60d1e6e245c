"""Numbers that no check needs: the kernel's tables, the time of each CPU by
mode, packets by way, disks, file systems.
"""

import pytest

from rankdeck_agent.collectors.cpu import CpuCollector
from rankdeck_agent.collectors.disk import DiskCollector
from rankdeck_agent.collectors.kernel_tables import KernelTableCollector
from rankdeck_agent.collectors.net import NetCollector
from rankdeck_agent.rules.unread import describe_limits, split_unread
from tests.unit.agent.machines import write

SNMP = "Tcp: RtoMin ActiveOpens CurrEstab\nTcp: 200 7 3\nUdp: InDatagrams\nUdp: 9\nIp: Forwarding\n"


def test_tables_are_read_under_the_kernels_names(tmp_path):
    files = {
        "proc/meminfo": "MemTotal: 9 kB\nMemFree: 4 kB\nActive(anon): 2 kB\nHugePages_Free: 7\nodd\n",
        "proc/vmstat": "nr_free_pages 5\npgpgin 8\npgfault 6\noom_kill 1\npgfaulty 3\n",
        "proc/net/snmp": SNMP,
        "proc/net/netstat": "TcpExt: ListenDrops Other\nTcpExt: 2 5\n",
        "proc/net/sockstat": "sockets: used 200\nTCP: inuse 5 orphan 0 mem 2\n",
        "proc/sys/fs/file-nr": "1024\t0\t9223372036854775807\n",
        "proc/sys/kernel/random/entropy_avail": "256\n",
    }
    for name, text in files.items():
        write(tmp_path, name, text)

    reading = KernelTableCollector(str(tmp_path)).collect(0)

    assert reading.values["mem.row"] == {"MemFree": 4096, "Active(anon)": 2048, "HugePages_Free": 7}
    assert reading.values["mem.vmstat"] == {"pgpgin": 8, "pgfault": 6}
    # A line of names without one of numbers tells nothing.
    assert reading.values["net.stack"] == {
        "Tcp_ActiveOpens": 7, "Tcp_CurrEstab": 3, "Udp_InDatagrams": 9, "TcpExt_ListenDrops": 2,
    }  # fmt: skip
    assert reading.values["net.sockets"] == {
        "sockets_used": 200, "TCP_inuse": 5, "TCP_orphan": 0, "TCP_mem": 2, "TCP_mem_bytes": 8192,
    }  # fmt: skip
    assert reading.values["kernel.files"] == {"allocated": 1024, "maximum": 9223372036854775807}
    assert reading.values["kernel.entropy"] == {"available_bits": 256}
    assert "net.conntrack" in reading.absent(KernelTableCollector.metrics)
    assert reading.failed == {}


@pytest.mark.parametrize("row", ["MemFree: x kB\n", "Tcp: a\n", ""])
def test_a_table_that_is_damaged_costs_only_its_rows(tmp_path, row):
    for name in ("proc/meminfo", "proc/net/snmp", "proc/net/sockstat", "proc/sys/fs/file-nr"):
        write(tmp_path, name, row)
    write(tmp_path, "proc/vmstat", "pgpgin 8\n")

    reading = KernelTableCollector(str(tmp_path)).collect(0)

    assert reading.values["mem.vmstat"] == {"pgpgin": 8}
    assert "mem.row" not in reading.values


def test_each_cpu_has_its_time_in_every_mode(tmp_path):
    rows = (
        "cpu  300 0 0 0 0 0 0 0 0 0\ncpu0 100 5 50 800 3 1 2 4 10 1\ncpu3 200 0 0 0 0 0 0 0 0 0\n"
    )
    more = "intr 77 1 2 3\nctxt 500\nbtime 1\nprocesses 40\nprocs_running 2\nprocs_blocked 1\nsoftirq 9 1\n"
    write(tmp_path, "proc/stat", rows + more)

    values = CpuCollector(str(tmp_path)).collect(0).values

    assert values["cpu.time_user"] == {"0": 1.0, "3": 2.0}
    assert values["cpu.time_steal"] == {"0": 0.04, "3": 0}
    assert values["cpu.time_guest_nice"] == {"0": 0.01, "3": 0}
    assert values["kernel.context_switches"] == {"": 500}
    assert values["kernel.forks"] == {"": 40}
    assert values["kernel.interrupts"] == {"": 77}
    assert values["kernel.procs_blocked"] == {"": 1}


def test_an_old_kernel_has_fewer_modes(tmp_path):
    write(tmp_path, "proc/stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\n")

    values = CpuCollector(str(tmp_path)).collect(0).values

    assert values["cpu.time_idle"] == {"0": 0.04}
    assert "cpu.time_steal" not in values


def test_packets_are_told_by_their_way(tmp_path):
    write(tmp_path, "proc/net/dev", "eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")

    values = NetCollector(str(tmp_path)).collect(0).values

    by_way = {
        m: values[f"net.{m}"]["eth0"] for m in ("rx_packets", "rx_errors", "rx_drops", "multicast")
    }
    assert by_way == {"rx_packets": 2, "rx_errors": 3, "rx_drops": 4, "multicast": 8}
    assert values["net.tx_packets"] == {"eth0": 10}
    assert values["net.collisions"] == {"eth0": 14}


def test_a_disk_tells_its_requests_and_times_and_an_older_kernel_fewer(tmp_path):
    newer = " ".join(map(str, range(1, 18)))
    write(tmp_path, "proc/diskstats", f"8 0 sda {newer}\n8 16 sdb 1 2 3 4 5 6 7 8 9 10 11\n")

    values = DiskCollector(str(tmp_path)).collect(0).values

    assert values["disk.reads"] == {"sda": 1, "sdb": 1}
    assert values["disk.write"] == {"sda": 7 * 512, "sdb": 7 * 512}
    assert values["disk.busy"]["sda"] == pytest.approx(0.01)
    assert values["disk.flush_time"] == {"sda": pytest.approx(0.017)}


def test_a_mount_tells_its_file_system_and_device(tmp_path):
    line = "21 0 8:1 / / rw,relatime shared:1 - ext4 /dev/disk\\040one rw\n"
    write(tmp_path, "proc/self/mountinfo", line)

    reading = DiskCollector(str(tmp_path)).collect(0)

    assert reading.inventory == {"mount./": "ext4 /dev/disk one"}
    assert reading.values["disk.inodes"]["/"] >= reading.values["disk.inodes_free"]["/"]
    assert reading.values["disk.free_all"]["/"] >= reading.values["disk.free"]["/"]


def test_devices_that_are_too_many_to_be_read_are_said(tmp_path):
    ports = "".join(f"  eth{n}: " + " ".join(["1"] * 16) + "\n" for n in range(80))
    disks = "".join(
        f"8 0 sd{chr(97 + n // 676 % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)} "
        + " ".join(["1"] * 11)
        + "\n"
        for n in range(1100)
    )
    mounts = "".join(f"{n} 1 8:{n} / /data{n} rw - ext4 /dev/x{n} rw\n" for n in range(70))
    write(tmp_path, "proc/net/dev", ports)
    write(tmp_path, "proc/diskstats", disks)
    write(tmp_path, "proc/self/mountinfo", mounts)

    said = [make(str(tmp_path)).collect(0) for make in (NetCollector, DiskCollector)]

    failed = {key: why for reading in said for key, why in reading.failed.items() if "/" not in key}
    values = {metric: found for reading in said for metric, found in reading.values.items()}
    assert len(values["net.rx"]) == 64
    assert len(values["disk.read"]) == 1024
    unread = split_unread(failed, {key for reading in said for key in reading.blind}, values)
    # It is said, and makes no node unknown.
    assert unread.trouble == {}
    assert describe_limits(unread.beside) == (
        "64 of 80 interfaces are read; 1024 of 1100 disks are read; 64 of 70 local mounts are read"
    )
