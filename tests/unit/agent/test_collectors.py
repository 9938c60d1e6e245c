"""What the collectors make of machines whose every number is known."""

from rankdeck_agent.collectors.cpu import CpuCollector
from rankdeck_agent.collectors.disk import DiskCollector, local_mounts
from rankdeck_agent.collectors.memory import MemoryCollector
from rankdeck_agent.collectors.net import NetCollector
from rankdeck_agent.collectors.rdma import RdmaCollector
from tests.unit.agent.machines import (
    DATA,
    PORT,
    copy_recorded,
    make_machine,
    unpack_rxe,
    write,
)

KEY = "mlx5_0/1"


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


def test_rdma_data_is_in_bytes_and_every_counter_keeps_its_name(tmp_path):
    reading = RdmaCollector(str(make_machine(tmp_path))).collect(0)

    values = reading.values
    assert values["rdma.rx"] == {KEY: 400}
    assert values["rdma.tx"] == {KEY: 800}
    assert values["rdma.rate"] == {KEY: 100e9}
    assert values["rdma.up"] == {KEY: 1}
    assert values["rdma.errors"] == {KEY: 3}
    assert values["rdma.retx"] == {KEY: 11}
    assert values["rdma.counters.port_rcv_data"] == {KEY: 100}
    assert values["rdma.hw_counters.out_of_sequence"] == {KEY: 5}
    assert reading.inventory[f"rdma.{KEY}.fw"] == "20.31.1014"


def test_a_counter_that_cannot_be_read_is_failed_and_never_zero(tmp_path):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    rdma.collect(0)
    write(tmp_path, f"{PORT}/counters/symbol_error", "garbage\n")

    reading = rdma.collect(1)

    assert "garbage" in reading.failed[f"rdma.counters.symbol_error/{KEY}"]
    assert "symbol_error" in reading.failed[f"rdma.errors/{KEY}"]
    assert "rdma.errors" not in reading.values
    assert reading.values["rdma.rx"] == {KEY: 400}


def test_a_counter_that_never_answered_does_not_spoil_the_sum(tmp_path):
    write(tmp_path, f"{PORT}/counters/symbol_error", "garbage\n")
    root = make_machine(tmp_path)
    write(root, f"{PORT}/counters/symbol_error", "N/A (no PMA)\n")

    reading = RdmaCollector(str(root)).collect(0)

    assert reading.values["rdma.errors"] == {KEY: 1}
    assert "rdma.counters.symbol_error" not in reading.values
    assert not reading.failed


def test_a_counter_that_keeps_failing_is_asked_seldom_and_comes_back(tmp_path):
    rdma = RdmaCollector(str(make_machine(tmp_path)))
    write(tmp_path, f"{PORT}/counters/symbol_error", "bad\n")
    for at in range(4):
        rdma.collect(at)
    write(tmp_path, f"{PORT}/counters/symbol_error", "7\n")

    resting, later = rdma.collect(5), rdma.collect(100)

    assert f"rdma.counters.symbol_error/{KEY}" in resting.failed
    assert later.values["rdma.counters.symbol_error"] == {KEY: 7}


def test_irdma_names_with_spaces_are_kept(tmp_path):
    root = make_machine(tmp_path)
    write(root, "sys/class/infiniband/irdma0/ports/1/hw_counters/RNR sent", "4\n")
    write(
        root,
        "sys/class/infiniband/irdma0/ports/1/hw_counters/Nak Sequence Error",
        "2\n",
    )

    values = RdmaCollector(str(root)).collect(0).values

    assert values["rdma.hw_counters.RNR sent"] == {"irdma0/1": 4}
    assert values["rdma.retx"]["irdma0/1"] == 2


def test_the_recorded_ports_are_all_read(tmp_path):
    reading = RdmaCollector(str(copy_recorded(tmp_path))).collect(0)

    assert set(reading.values["rdma.up"]) == {
        "hfi1_0/1",
        "mlx4_0/1",
        "mlx4_0/2",
        "mlx5_0/1",
    }
    words = (
        DATA
        / "procfs/fixtures/sys/class/infiniband/hfi1_0/ports/1/counters/port_rcv_data"
    ).read_text()
    assert reading.values["rdma.rx"]["hfi1_0/1"] == int(words) * 4
    assert reading.values["rdma.rate"]["mlx5_0/1"] == 25e9


def test_a_recorded_soft_roce_port_has_counters_but_no_bytes(tmp_path):
    reading = RdmaCollector(str(unpack_rxe(tmp_path))).collect(0)

    assert reading.values["rdma.hw_counters.sent_pkts"]["rxe0/1"] > 500
    assert "rdma.rx" not in reading.values
    assert reading.values["rdma.errors"]["rxe0/1"] >= 0
