"""What the collectors make of machines whose every number is known."""

from rankdeck_agent.collectors.cpu import CpuCollector
from rankdeck_agent.collectors.disk import DiskCollector, local_mounts
from rankdeck_agent.collectors.memory import MemoryCollector
from rankdeck_agent.collectors.net import NetCollector
from tests.unit.agent.machines import make_machine, write


def test_cpu_time_is_the_share_between_two_readings(tmp_path):
    cpu = CpuCollector(str(make_machine(tmp_path)))

    first = cpu.collect(0)
    write(
        tmp_path,
        "proc/stat",
        "cpu  150 0 100 830 10 0 0 10\ncpu0 75 0 75 450 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0\n",
    )
    second = cpu.collect(1)

    assert "cpu.used" not in first.values
    assert "cpu.used" not in first.absent(cpu.metrics)
    assert second.values["cpu.used"] == {"": 60.0}
    assert second.values["cpu.iowait"] == {"": 10.0}
    assert second.values["cpu.steal"] == {"": 10.0}
    assert second.values["cpu.core_used"] == {"0": 50.0}
    assert second.values["cpu.cores"] == {"": 2}
    assert second.values["psi.cpu"] == {"": 1.25}
    assert {"psi.mem", "cpu.freq"} <= second.absent(cpu.metrics)


def test_iowait_that_goes_backwards_is_not_negative(tmp_path):
    cpu = CpuCollector(str(make_machine(tmp_path)))
    write(tmp_path, "proc/stat", "cpu  100 0 100 800 50 0 0 0\n")
    cpu.collect(0)
    write(tmp_path, "proc/stat", "cpu  110 0 100 900 40 0 0 0\n")

    values = cpu.collect(1).values

    assert values["cpu.iowait"] == {"": 0.0}
    assert 0 <= values["cpu.used"][""] <= 100


def test_memory_used_is_what_cannot_be_had(tmp_path):
    values = MemoryCollector(str(make_machine(tmp_path))).collect(0).values

    assert values["mem.used"] == {"": 75.0}
    assert values["mem.swap_used"] == {"": 60 * 1024}
    assert values["mem.oom_kills"] == {"": 3}


def test_only_local_mounts_are_asked_and_each_file_system_once(tmp_path):
    reading = DiskCollector(str(make_machine(tmp_path))).collect(0)

    assert set(reading.values["disk.used"]) == {"/", "/scratch disk"}
    assert reading.values["disk.readonly"] == {"/": 0, "/scratch disk": 1}
    assert reading.values["disk.forced_readonly"] == {"/": 0, "/scratch disk": 0}
    assert reading.values["disk.read"] == {"sda": 10 * 512}
    assert reading.values["disk.write"] == {"sda": 20 * 512}


def test_a_local_disk_below_a_network_mount_is_not_touched():
    mounts = local_mounts(
        b"1 0 0:1 / /nfs rw - nfs4 s:/ rw\n2 1 8:1 / /nfs/scratch rw - ext4 /dev/sda rw\n"
    )

    assert mounts == ()


def test_a_mount_that_is_gone_fails_alone(tmp_path):
    root = make_machine(tmp_path)
    (root / "scratch disk").rmdir()
    (root / "scratch disk").symlink_to("scratch disk")

    reading = DiskCollector(str(root)).collect(0)

    assert set(reading.values["disk.used"]) == {"/"}
    assert "ELOOP" in reading.failed["disk.used//scratch disk"]


def test_interfaces_that_stand_for_a_cable_are_counted(tmp_path):
    values = NetCollector(str(make_machine(tmp_path))).collect(0).values

    assert values["net.rx"] == {"eth0": 1000}
    assert values["net.tx"] == {"eth0": 2000}
    assert values["net.errors"] == {"eth0": 4}
    assert values["net.drops"] == {"eth0": 6}
    assert values["net.up"] == {"eth0": 1}
    assert values["net.speed"] == {"eth0": 25e9}


def test_a_virtual_card_without_a_speed_has_none_and_is_up(tmp_path):
    root = make_machine(tmp_path)
    write(root, "sys/class/net/eth0/operstate", "unknown\n")
    write(root, "sys/class/net/eth0/carrier", "1\n")
    write(root, "sys/class/net/eth0/speed", "-1\n")

    net = NetCollector(str(root))
    reading = net.collect(0)

    assert reading.values["net.up"] == {"eth0": 1}
    assert "net.speed" in reading.absent(net.metrics)
    assert not reading.failed
