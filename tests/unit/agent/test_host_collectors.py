"""What the seldom-read collectors make of a machine whose every number is known."""

import os
import stat as modes
from pathlib import Path

import pytest

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.collectors.cgroup import CgroupCollector
from rankdeck_agent.collectors.cpu import CpuCollector
from rankdeck_agent.collectors.disk import DiskCollector, local_mounts, network_mounts
from rankdeck_agent.collectors.edac import EdacCollector
from rankdeck_agent.collectors.hung_tasks import TaskCollector
from rankdeck_agent.collectors.memory import MemoryCollector
from rankdeck_agent.collectors.net import _STATISTICS, NetCollector
from rankdeck_agent.collectors.network_mounts import COMMAND, NetworkMounts
from rankdeck_agent.collectors.nvme import (
    LOG_SIZE,
    NvmeCollector,
    NvmeHealthCollector,
    parse_health_log,
)
from rankdeck_agent.collectors.sensors import HeatCollector, PiCollector, SensorCollector
from tests.support.programs import python_script
from tests.unit.agent.machines import CGROUP, CPU0, EDAC, HWMON, copy_recorded, make_machine, write

WORD = "sys/devices/platform/soc/soc:firmware/get_throttled"


def test_each_chip_gives_its_hottest_sensor_and_its_alarm(tmp_path):
    values = HeatCollector(str(make_machine(tmp_path))).collect(0).values

    assert values["hwmon.temp"] == {"coretemp": 75.0, "nvme": -2.0, "nvme.2": 41.0}
    assert values["hwmon.alarm"] == {"coretemp": 0, "nvme": 1}
    assert values["cpu.margin"] == {"": 29.0}
    assert values["cpu.throttles"] == {"package0": 5, "cores": 3}


def test_a_sensor_without_an_answer_leaves_the_others_of_its_chip(tmp_path):
    root = make_machine(tmp_path)
    write(root, f"{HWMON}/hwmon0/temp2_input", "nothing\n")
    write(root, f"{HWMON}/hwmon2/temp1_input", "\n")

    reading = HeatCollector(str(root)).collect(0)

    assert reading.values["hwmon.temp"] == {"coretemp": 71.0, "nvme": -2.0}
    assert "hwmon.temp/nvme.2" in reading.failed


@pytest.mark.long
def test_throttle_counts_of_the_recorded_machine_are_per_package(tmp_path):
    root = copy_recorded(tmp_path)

    values = HeatCollector(str(root)).collect(0).values

    package = (root / CPU0 / "thermal_throttle/package_throttle_count").read_text()
    assert values["cpu.throttles"]["package0"] == int(package)


def test_a_raspberry_pi_tells_what_is_now_and_what_was_since_boot(tmp_path):
    values = PiCollector(str(make_machine(tmp_path))).collect(0).values

    assert values == {
        "pi.undervolt": {"": 1},
        "pi.undervolt_seen": {"": 1},
        "pi.throttled": {"": 1},
        "pi.throttled_seen": {"": 1},
    }


def test_an_undervoltage_stays_seen_after_the_driver_has_cleared_it(tmp_path):
    root = make_machine(tmp_path)
    write(root, f"{HWMON}/hwmon3/in0_lcrit_alarm", "0\n")
    pi = PiCollector(str(root))
    write(root, WORD, "1\n")
    pi.collect(0)
    write(root, WORD, "0\n")

    values = pi.collect(5).values

    assert (values["pi.undervolt"], values["pi.undervolt_seen"]) == ({"": 0}, {"": 1})
    assert (values["pi.throttled"], values["pi.throttled_seen"]) == ({"": 0}, {"": 0})


def test_without_the_firmware_the_kernels_alarm_is_enough_for_undervoltage(tmp_path):
    root = make_machine(tmp_path)
    (root / WORD).unlink()

    reading = PiCollector(str(root)).collect(0)

    assert reading.values["pi.undervolt"] == {"": 1}
    assert reading.values["pi.undervolt_seen"] == {"": 1}
    assert "pi.throttled" not in reading.values


def test_a_mailbox_that_does_not_answer_is_failed_and_not_fine(tmp_path):
    root = make_machine(tmp_path)
    (root / WORD).unlink()
    write(root, "dev/vcio", "")

    reading = PiCollector(str(root)).collect(0)

    assert "ENOTTY" in reading.failed["pi.throttled"]
    assert "pi.throttled" not in reading.values


def test_a_machine_that_is_no_raspberry_pi_is_asked_no_more(tmp_path):
    write(tmp_path, f"{HWMON}/hwmon0/name", "coretemp\n")
    pi = PiCollector(str(tmp_path))

    reading = pi.collect(0)

    assert reading.absent(pi.metrics) == set(pi.metrics)
    assert pi.period > 1000


def test_memory_errors_are_told_by_the_label_of_the_dimm(tmp_path):
    values = EdacCollector(str(make_machine(tmp_path))).collect(0).values

    assert values["edac.ce"] == {"mc0": 2, "DIMM_A1": 7, "mc0/dimm1": 0}
    assert values["edac.ue"] == {"mc0": 0, "DIMM_A1": 1, "mc0/dimm1": 0}


def test_a_controller_without_dimms_stands_for_all_of_them(tmp_path):
    write(tmp_path, f"{EDAC}/ce_count", "9\n")
    write(tmp_path, f"{EDAC}/ue_count", "bad\n")

    reading = EdacCollector(str(tmp_path)).collect(0)

    assert reading.values == {"edac.ce": {"mc0": 9}, "edac.mc_ce": {"mc0": 9}}
    assert "bad" in reading.failed["edac.ue/mc0"]


def test_a_kernel_with_the_older_interface_counts_by_chip_select_row(tmp_path):
    for name, number in (("ce_count", 9), ("ce_noinfo_count", 2), ("csrow1/ce_count", 7)):
        write(tmp_path, f"{EDAC}/{name}", f"{number}\n")
        write(tmp_path, f"{EDAC}/{name.replace('ce_', 'ue_')}", "0\n")

    values = EdacCollector(str(tmp_path)).collect(0).values

    assert values["edac.row_ce"] == {"mc0/csrow1": 7, "mc0/unknown": 2}
    assert values["edac.row_ue"] == {"mc0/csrow1": 0, "mc0/unknown": 0}
    assert values["edac.ce"] == {"mc0": 9}


def test_the_tightest_limit_around_the_agent_counts(tmp_path):
    values = CgroupCollector(str(make_machine(tmp_path))).collect(0).values

    assert values == {
        "cgroup.mem_limit": {"": 4096},
        "cgroup.mem_used": {"": 1024},
        "cgroup.cores": {"": 2.5},
        "cgroup.throttled": {"": 4},
    }


def test_the_first_version_of_control_groups_is_read_too(tmp_path):
    write(tmp_path, "proc/self/cgroup", "4:memory:/job\n3:cpuset:/\n1:cpu,cpuacct:/\n")
    write(tmp_path, f"{CGROUP}/memory/job/memory.limit_in_bytes", "8192\n")
    write(tmp_path, f"{CGROUP}/memory/job/memory.usage_in_bytes", "100\n")
    write(tmp_path, f"{CGROUP}/memory/memory.limit_in_bytes", f"{2**63 - 4096}\n")
    write(tmp_path, f"{CGROUP}/cpuset/cpuset.effective_cpus", "0-1\n")

    values = CgroupCollector(str(tmp_path)).collect(0).values

    assert values == {
        "cgroup.mem_limit": {"": 8192},
        "cgroup.mem_used": {"": 100},
        "cgroup.cores": {"": 2.0},
    }


def test_only_tasks_that_wait_for_minutes_are_counted(tmp_path):
    tasks = TaskCollector(str(make_machine(tmp_path)))

    first = tasks.collect(0).values["kernel.dstate"]
    later = tasks.collect(300).values["kernel.dstate"]
    # The same number, another process: it has waited for no time at all.
    old = (tmp_path / "proc/42/stat").read_text()
    write(tmp_path, "proc/42/stat", old.replace(" 88\n", " 99\n"))
    replaced = tasks.collect(360).values["kernel.dstate"]

    assert first == {"nvidia": 0, "other": 0}
    assert later == {"nvidia": 1, "other": 0}
    assert replaced == {"nvidia": 0, "other": 0}


def test_an_nvme_controller_is_live_or_not(tmp_path):
    reading = NvmeCollector(str(make_machine(tmp_path))).collect(0)

    assert reading.values["nvme.live"] == {"nvme0": 1, "nvme1": 0.5}
    assert reading.inventory["nvme.nvme0.model"] == "Fast Disk"


def health_log(warning=0, kelvin=313, spare=100, worn=3, **counts):
    """As an NVMe drive writes it (log page 02h): counts by the byte at which they begin."""
    log = bytearray(LOG_SIZE)
    log[0:6] = bytes([warning, kelvin & 255, kelvin >> 8, spare, 10, worn])
    for at, number in counts.items():
        log[int(at[1:]) : int(at[1:]) + 16] = number.to_bytes(16, "little")
    return bytes(log)


def test_a_drive_tells_its_health(tmp_path):
    asked = []

    def ask(name):
        asked.append(name)
        return health_log(4, worn=120, b32=2, b48=3, b128=1000, b144=7, b160=5)

    reading = NvmeHealthCollector(str(make_machine(tmp_path)), ask).collect(0)

    assert asked == ["nvme0"], "nvme1 is not live: it would hold us"
    assert {metric: of["nvme0"] for metric, of in reading.values.items()} == {
        "nvme.failing": 1,
        "nvme.warning": 1,
        "nvme.temp": 40,
        "nvme.spare": 100,
        "nvme.worn": 120,
        "nvme.read": 1_024_000,
        "nvme.written": 1_536_000,
        "nvme.power_on": 3_600_000,
        "nvme.unsafe_shutdowns": 7,
        "nvme.media_errors": 5,
    }


@pytest.mark.parametrize(
    ("bits", "failing", "warning"),
    [(0, 0, 0), (1, 0, 1), (2, 0, 1), (4, 1, 1), (8, 1, 1), (32, 1, 1)],
)
def test_a_drive_that_is_failing_is_told_from_one_that_warns(bits, failing, warning):
    found = parse_health_log(health_log(bits))

    assert (found["nvme.failing"], found["nvme.warning"]) == (failing, warning)


def test_a_drive_without_a_thermometer_has_no_temperature_and_a_short_log_is_none():
    assert "nvme.temp" not in parse_health_log(health_log(kelvin=0))
    with pytest.raises(ValueError, match="100 bytes"):
        parse_health_log(bytes(100))


def test_without_root_the_health_of_drives_is_absent_and_the_inventory_says_why(tmp_path):
    def ask(name):
        raise PermissionError(1, name)

    drives = NvmeHealthCollector(str(make_machine(tmp_path)), ask)

    reading = drives.collect(0)

    assert reading.failed == {}
    assert reading.absent(drives.metrics) == set(drives.metrics)
    assert reading.inventory == {"nvme.nvme0.health": "not read: needs root"}


def test_a_drive_that_refuses_is_a_failure_with_its_reason(tmp_path):
    def ask(name):
        raise OSError(5, "Input/output error")

    reading = NvmeHealthCollector(str(make_machine(tmp_path)), ask).collect(0)

    assert "EIO" in reading.failed["nvme.worn/nvme0"]


def test_a_recording_is_not_mixed_with_the_drives_of_this_machine(tmp_path):
    reading = NvmeHealthCollector(str(make_machine(tmp_path))).collect(0)

    assert (reading.values, reading.failed) == ({}, {})


def test_each_sensor_has_the_name_that_node_exporter_gives_it(tmp_path):
    device = tmp_path / "sys/devices/platform/coretemp.0"
    base = "sys/devices/platform/coretemp.0/hwmon/hwmon3"
    for name, text in {
        "name": "coretemp", "temp1_input": "71000", "temp2_input": "", "fan1_input": "2400", "in0_input": "1200",
        "curr1_input": "2500", "power1_average": "95000000", "temp1_crit": "100000",
    }.items():  # fmt: skip
        write(tmp_path, f"{base}/{name}", f"{text}\n")
    (tmp_path / base / "device").symlink_to(device)
    (tmp_path / "sys/class/hwmon").mkdir(parents=True)
    (tmp_path / "sys/class/hwmon/hwmon3").symlink_to(tmp_path / base)

    reading = SensorCollector(str(tmp_path)).collect(0)

    chip = "platform_coretemp_0"
    assert reading.values == {
        "sensor.temp": {f"{chip}/temp1": 71.0},
        "sensor.fan": {f"{chip}/fan1": 2400},
        "sensor.voltage": {f"{chip}/in0": 1.2},
        "sensor.current": {f"{chip}/curr1": 2.5},
        "sensor.power": {f"{chip}/power1": 95.0},
    }
    assert reading.inventory == {f"sensor.{chip}.name": "coretemp"}
    assert reading.failed == {}


def test_memory_that_the_kernel_gave_up_is_counted(tmp_path):
    write(tmp_path, "proc/meminfo", "MemTotal: 9 kB\nHardwareCorrupted:    4 kB\n")

    values = MemoryCollector(str(tmp_path)).collect(0).values

    assert values["mem.corrupted"] == {"": 4096}


MEMORY = "MemTotal: 1000000 kB\nMemAvailable: 40000 kB\n"
HUGE = "HugePages_Total:     450\nHugePages_Free:     440\nHugepagesize:       2048 kB\n"


def test_huge_pages_are_set_aside_and_not_in_use(tmp_path):
    for more in ("", "Hugetlb:          921600 kB\n"):
        write(tmp_path, "proc/meminfo", MEMORY + HUGE + more)

        values = MemoryCollector(str(tmp_path)).collect(0).values

        assert values["mem.used"] == {"": pytest.approx(100 * (78400 - 40000) / 78400, abs=0.01)}
        assert values["mem.huge"] == {"": 450 * 2048 * 1024}
        assert values["mem.huge_free"] == {"": 440 * 2048 * 1024}
        assert values["mem.available"] == {"": 40000 * 1024}


def test_the_cache_of_zfs_is_given_back_down_to_its_least_size(tmp_path):
    write(tmp_path, "proc/meminfo", MEMORY)
    rows = "13 1 0x01 96 4608 1 2\nname                            type data\n"
    sizes = {"c_min": 100_000 << 10, "c_max": 900_000 << 10, "size": 800_000 << 10}
    rows += "".join(f"{name:31} 4    {size}\n" for name, size in sizes.items())
    write(tmp_path, "proc/spl/kstat/zfs/arcstats", rows)

    values = MemoryCollector(str(tmp_path)).collect(0).values

    assert values["mem.arc"] == {"": 700_000 << 10}
    assert values["mem.used"] == {"": 26.0}


def test_guest_time_is_not_counted_twice_and_a_new_core_starts_later(tmp_path):
    cpu = CpuCollector(str(make_machine(tmp_path)))
    write(tmp_path, "proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    cpu.collect(0)
    rows = "cpu 50 0 0 50 0 0 0 0 50 0\ncpu0 50 0 0 50 0 0 0 0 50 0\ncpu1 9 0 0 1 0 0 0 0\n"
    write(tmp_path, "proc/stat", rows)

    values = cpu.collect(1).values

    assert values["cpu.used"] == {"": 50.0}
    assert values["cpu.core_used"] == {"0": 50.0}
    assert values["cpu.cores"] == {"": 2}


def test_waiting_time_that_steps_back_does_not_swell_the_rest(tmp_path):
    cpu = CpuCollector(str(make_machine(tmp_path)))
    write(tmp_path, "proc/stat", "cpu 100 0 0 800 50 0 0 0\n")
    cpu.collect(0)
    write(tmp_path, "proc/stat", "cpu 150 0 0 850 0 0 0 0\n")

    assert cpu.collect(1).values["cpu.used"] == {"": 50.0}


def test_an_interface_tells_its_errors_by_kind_and_what_it_is(tmp_path):
    root = make_machine(tmp_path)
    device = root / "sys/class/net/eth0/device"
    (device / "infiniband/mlx5_0").mkdir(parents=True)
    (device / "driver").symlink_to("../../bus/pci/drivers/mlx5_core")
    write(root, "proc/self/net/dev", "eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")

    reading = NetCollector(str(root)).collect(0)

    values = {m: d["eth0"] for m, d in reading.values.items()}
    assert values["net.frame_errors"] == 6
    assert values["net.fifo_errors"] == 5 + 13
    assert values["net.carrier_errors"] == 15
    assert (values["net.mtu"], values["net.carrier_changes"]) == (9000, 3)
    assert reading.inventory == {
        "net.eth0.driver": "mlx5_core",
        "net.eth0.rdma": "mlx5_0",
    }


def test_a_link_that_comes_back_slower_is_seen_at_once(tmp_path):
    root = make_machine(tmp_path)
    net = NetCollector(str(root))
    net.collect(0)
    write(root, "sys/class/net/eth0/operstate", "down\n")
    down = net.collect(1).values
    write(root, "sys/class/net/eth0/operstate", "up\n")
    write(root, "sys/class/net/eth0/speed", "1000\n")

    back = net.collect(2).values

    assert "net.speed" not in down
    assert back["net.speed"] == {"eth0": 1e9}


def diskstats(done, waiting, busy):
    return f"8 0 sda {done} 2 10 4 5 6 20 8 {waiting} {busy} 11\n"


def test_a_disk_with_work_and_without_progress_is_stuck(tmp_path):
    root = make_machine(tmp_path)
    disk = DiskCollector(str(root))
    waits = []
    for at, done, waiting in (
        (0, 1, 2),
        (10, 1, 2),
        (20, 1, 3),
        (30, 2, 3),
        (40, 2, 0),
    ):
        write(root, "proc/diskstats", diskstats(done, waiting, busy=at * 1000))
        waits.append(disk.collect(at).values["disk.io_stuck"]["sda"])

    assert waits == [0, 10, 20, 0, 0]


@pytest.mark.parametrize(
    ("mount", "file_system", "readonly", "forced"),
    [
        ("rw,relatime", "rw,errors=remount-ro", False, False),
        ("rw,relatime", "ro,errors=remount-ro", True, True),
        ("rw,relatime", "rw,emergency_ro", True, True),
        # /usr of an immutable system, a bind mount.
        ("ro,relatime", "ro,norecovery", True, False),
        ("ro,relatime", "rw", True, False),
    ],
)
def test_what_the_kernel_made_read_only_is_told_from_what_was_mounted_so(
    mount, file_system, readonly, forced
):
    raw = f"6 0 8:1 / /data {mount} shared:1 - ext4 /dev/sda {file_system}\n".encode()

    (found,) = local_mounts(raw)

    assert (found.readonly, found.forced) == (readonly, forced)


def test_network_mounts_are_known_and_autofs_is_never_touched(tmp_path):
    raw = (
        b"1 0 0:1 / /home rw - nfs4 fs:/home rw\n"
        b"2 0 0:2 / /auto rw - autofs auto rw\n"
        b"3 0 0:3 / /sshfs rw - fuse.sshfs a:/ rw\n"
        b"4 0 0:4 / /lxcfs rw - fuse.lxcfs lxcfs rw\n"
        b"5 0 0:5 / /data\\040set ro - lustre l:/ rw\n"
        b"6 0 8:1 / / rw - ext4 /dev/sda rw\n"
    )

    assert network_mounts(raw) == ("/home", "/sshfs", "/data set")


def ask(mounts, path, now):
    reading = Reading()
    mounts.put(reading, [path], now)
    return reading


def settle(mounts, path, now, done):
    """Ask again until the child has answered."""
    for _ in range(2000):
        reading = ask(mounts, path, now)
        if done(reading):
            return reading
        os.sched_yield()
        select_a_little()
    raise AssertionError(f"no answer: {reading.values} {reading.failed}")


def select_a_little():
    import select

    select.select([], [], [], 0.01)


def program(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "ask"
    path.write_text(python_script(f"{text}\n"))
    path.chmod(path.stat().st_mode | modes.S_IXUSR)
    return (str(path),)


def test_a_mount_that_answers_gives_its_space(tmp_path):
    if not Path(COMMAND[0]).exists():
        pytest.skip("no stat command on this machine")
    mounts = NetworkMounts()

    path = str(tmp_path)
    reading = settle(mounts, path, 0.0, lambda r: "disk.used" in r.values)

    assert reading.values["disk.mounted"] == {path: 1}
    assert reading.values["disk.size"][path] == (
        os.statvfs(path).f_blocks * os.statvfs(path).f_frsize
    )
    assert reading.values["disk.stuck"] == {path: 0.0}


def test_a_mount_that_refuses_is_failed_with_its_reason(tmp_path):
    path = str(tmp_path / "gone")

    reading = settle(NetworkMounts(), path, 0.0, lambda r: r.failed)

    assert reading.failed[f"disk.used/{path}"] == "No such file or directory"


def release(gate):
    """Let go whoever waits at the gate, and whoever comes after."""
    writer = os.open(gate, os.O_RDWR | os.O_NONBLOCK)
    gate.unlink()
    os.close(writer)


def test_a_mount_that_hangs_is_asked_once_and_its_wait_is_told(tmp_path):
    gate, asked = tmp_path / "gate", tmp_path / "asked"
    os.mkfifo(gate)
    text = (
        f"open({str(asked)!r}, 'a').write('x'); open({str(gate)!r}).read(); print('9 3 2 512 10 5')"
    )
    mounts = NetworkMounts(program(tmp_path, text))
    settle(mounts, "/nfs", 0.0, lambda r: asked.exists())

    waits = [ask(mounts, "/nfs", at) for at in (3.0, 8.0, 60.0)]
    with gate.open("w"):
        pass
    back = settle(mounts, "/nfs", 61.0, lambda r: "disk.used" in r.values)
    release(gate)

    assert [w.values["disk.stuck"]["/nfs"] for w in waits] == [3.0, 8.0, 60.0]
    assert "disk.used" in waits[0].pending
    assert waits[1].failed["disk.used//nfs"] == "no answer for 8 s"
    assert back.values["disk.free"] == {"/nfs": 1024}
    assert back.values["disk.inodes_used"] == {"/nfs": 50.0}
    assert asked.read_text().count("x") <= 2


def test_words_that_are_no_numbers_are_an_error(tmp_path):
    mounts = NetworkMounts(program(tmp_path, "print('\\x1b[2J lots')"))

    reading = settle(mounts, "/nfs", 0.0, lambda r: r.failed)

    assert "not a number" in reading.failed["disk.used//nfs"]
    assert reading.failed["disk.used//nfs"].isprintable()


def test_without_the_command_the_reason_is_told(tmp_path):
    reading = ask(NetworkMounts((str(tmp_path / "none"),)), "/nfs", 0.0)

    assert "cannot be run" in reading.failed["disk.used//nfs"]
    assert reading.values["disk.mounted"] == {"/nfs": 1}


BOARD = "sys/class/hwmon/hwmon9"


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"fan1_alarm": 1, "fan1_input": 300, "fan1_min": 1000}, {"hwmon.fan": 1}),
        ({"fan1_alarm": 0, "fan1_input": 3000, "fan1_min": 1000}, {"hwmon.fan": 0}),
        ({"fan2_fault": 1, "fan2_input": 0}, {"hwmon.fan": 1}),
        ({"in0_alarm": 1, "in0_input": 2800, "in0_min": 2970, "in0_max": 3630}, {"hwmon.voltage": 1}),
        ({"in0_max_alarm": 1}, {"hwmon.voltage": 1}),
        # Limits that nobody has set, or that say otherwise: a latched bit of a desktop board.
        ({"in0_alarm": 1, "in0_input": 900, "in0_min": 0, "in0_max": 0}, {"hwmon.voltage": 0}),
        ({"in0_alarm": 1, "in0_input": 900, "in0_min": 0, "in0_max": 1744}, {"hwmon.voltage": 0}),
        ({"temp1_input": 41000}, {}),
    ],
)  # fmt: skip
def test_fans_and_voltages_out_of_their_limits_are_told(tmp_path, files, wanted):
    write(tmp_path, f"{BOARD}/name", "nct6775\n")
    for name, number in files.items():
        write(tmp_path, f"{BOARD}/{name}", f"{number}\n")

    values = HeatCollector(str(tmp_path)).collect(0.0).values

    told = {m: values[m]["nct6775"] for m in ("hwmon.fan", "hwmon.voltage") if m in values}
    assert told == wanted


def test_interfaces_are_read_from_sys_where_proc_lists_none(tmp_path):
    net = "sys/class/net/eth0"
    files = {file for files in _STATISTICS.values() for file in files}
    for at, file in enumerate(sorted(files), 1):
        write(tmp_path, f"{net}/statistics/{file}", f"{at}\n")
    write(tmp_path, f"{net}/statistics/rx_bytes", "1000\n")
    write(tmp_path, f"{net}/operstate", "up\n")
    write(tmp_path, "sys/class/net/eth1/operstate", "down\n")
    write(tmp_path, "sys/class/net/veth7/operstate", "up\n")

    values = NetCollector(str(tmp_path)).collect(0.0).values

    assert values["net.up"] == {"eth0": 1, "eth1": 0}
    assert values["net.rx"] == {"eth0": 1000}
    assert set(values) >= {"net.tx", "net.errors", "net.drops", "net.fifo_errors"}


def test_a_cold_cpu_has_a_temperature(tmp_path):
    write(make_machine(tmp_path), f"{HWMON}/hwmon0/temp1_input", "-5000\n")

    reading = CpuCollector(str(tmp_path)).collect(0)

    assert reading.values["cpu.temp"] == {"": -5}
    assert "cpu.temp" not in reading.failed


@pytest.mark.parametrize(("quota", "cores"), [("150000", 1.5), ("-1", 4)])
def test_quotas_of_the_first_cgroups_are_read_as_those_of_the_second(tmp_path, quota, cores):
    base = "sys/fs/cgroup"
    write(tmp_path, "proc/self/cgroup", "4:cpu,cpuacct:/job\n3:cpuset:/job\n")
    write(tmp_path, f"{base}/cpuset/job/cpuset.effective_cpus", "0-3\n")
    write(tmp_path, f"{base}/cpu/job/cpu.cfs_quota_us", f"{quota}\n")
    write(tmp_path, f"{base}/cpu/job/cpu.cfs_period_us", "100000\n")
    write(tmp_path, f"{base}/cpu/cpu.cfs_quota_us", "-1\n")

    reading = CgroupCollector(str(tmp_path)).collect(0)

    assert reading.values["cgroup.cores"] == {"": cores}


def test_the_die_counts_and_not_the_control_temperature(tmp_path):
    chip = f"{HWMON}/hwmon0"
    for name, text in (("name", "k10temp"), ("temp1_input", "97000"), ("temp1_label", "Tctl"), ("temp2_input", "70000"), ("temp2_label", "Tdie")):  # fmt: skip
        write(tmp_path, f"{chip}/{name}", f"{text}\n")
    write(tmp_path, "proc/stat", "cpu 1 1 1 1\n")

    assert CpuCollector(str(tmp_path)).collect(0).values["cpu.temp"] == {"": 70}


def test_a_machine_with_acpi_zones_only_has_a_temperature(tmp_path):
    write(tmp_path, "sys/class/thermal/thermal_zone0/type", "acpitz\n")
    write(tmp_path, "sys/class/thermal/thermal_zone0/temp", "96000\n")

    assert CpuCollector(str(tmp_path)).collect(0).values["cpu.temp"] == {"": 96}


@pytest.mark.parametrize(
    ("crit", "raised"), [("0", 0), ("-1000", 0), ("65261850", 0), ("95000", 1)]
)
def test_a_limit_that_is_none_raises_no_alarm(tmp_path, crit, raised):
    chip = f"{HWMON}/hwmon0"
    for name, text in (("name", "jc42"), ("temp1_input", "41000"), ("temp1_crit", crit), ("temp1_crit_alarm", "1")):  # fmt: skip
        write(tmp_path, f"{chip}/{name}", f"{text}\n")

    assert HeatCollector(str(tmp_path)).collect(0).values["hwmon.alarm"] == {"jc42": raised}


@pytest.mark.parametrize(
    ("waiting", "busy", "stuck"),
    [("1", 0, 0), (f"{2**32 - 1}", 0, 0), (f"{2**64 - 1}", 7000, 0), ("3", 7000, 290)],
)
def test_a_count_left_behind_is_no_disk_that_hangs(tmp_path, waiting, busy, stuck):
    disks = DiskCollector(str(tmp_path))
    write(tmp_path, "proc/self/mountinfo", "")
    for step in range(30):
        line = f"8 0 sda 1 2 10 4 5 6 20 8 {waiting} {100 + step * busy} 11\n"
        write(tmp_path, "proc/diskstats", line)
        reading = disks.collect(10.0 * step)

    assert reading.values["disk.io_stuck"] == {"sda": stuck}


def test_a_chip_keeps_its_name_when_one_of_the_same_kind_before_it_goes(tmp_path):
    for number in (1, 2, 3):
        device = f"sys/devices/pci0000:0{number}"
        write(tmp_path, f"{device}/hwmon/hwmon{number}/name", "nvme\n")
        write(tmp_path, f"{device}/hwmon/hwmon{number}/temp1_input", f"{number}0000\n")
        (tmp_path / f"{device}/hwmon/hwmon{number}/device").symlink_to(tmp_path / device)
        (tmp_path / HWMON).mkdir(parents=True, exist_ok=True)
        chip = tmp_path / f"{HWMON}/hwmon{number}"
        chip.symlink_to(tmp_path / f"{device}/hwmon/hwmon{number}")
    collector = HeatCollector(str(tmp_path))
    before = collector.collect(0).values["hwmon.temp"]
    (tmp_path / f"{HWMON}/hwmon1").unlink()
    after = collector.collect(1000).values["hwmon.temp"]

    assert before == {"nvme": 10, "nvme.2": 20, "nvme.3": 30}
    assert after == {"nvme.2": 20, "nvme.3": 30}


@pytest.mark.parametrize(
    ("points", "margin"),
    [
        ({"0": ("passive", "95000"), "1": ("critical", "105000")}, {"": 9.0}),
        ({"0": ("critical", "0")}, None),
        ({"0": ("hot", "100000")}, None),
    ],
)
def test_a_thermal_zone_of_the_cpu_has_its_own_limit(tmp_path, points, margin):
    zone = "sys/class/thermal/thermal_zone3"
    write(tmp_path, f"{zone}/type", "acpitz\n")
    write(tmp_path, f"{zone}/temp", "96000\n")
    for number, (kind, degrees) in points.items():
        write(tmp_path, f"{zone}/trip_point_{number}_type", f"{kind}\n")
        write(tmp_path, f"{zone}/trip_point_{number}_temp", f"{degrees}\n")

    assert HeatCollector(str(tmp_path)).collect(0).values.get("cpu.margin") == margin
