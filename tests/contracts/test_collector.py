"""Contract tests of the collectors, on recorded, made-up and broken machines."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankdeck_agent import wire
from rankdeck_agent.collectors import COLLECTORS
from rankdeck_agent.collectors.base import Reading
from rankdeck_simulator.devices import SIMULATED
from tests.unit.agent.machines import SLOW, copy_recorded, make_machine

REAL = [pytest.param(make, id=make.name) for make in COLLECTORS]
FILES = (
    "proc/stat",
    "proc/meminfo",
    "proc/vmstat",
    "proc/loadavg",
    "proc/diskstats",
    "proc/cpuinfo",
    "proc/self/mountinfo",
    "proc/self/net/dev",
    "proc/pressure/cpu",
    "sys/class/net/eth0/operstate",
    "sys/class/net/eth0/speed",
    "sys/class/infiniband/mlx5_0/ports/1/state",
    "sys/class/infiniband/mlx5_0/ports/1/gids/0",
    "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed",
    "sys/class/drm/card0/device/vendor",
    "sys/class/drm/card0/device/gpu_busy_percent",
    "sys/class/drm/card0/device/current_link_speed",
    "sys/class/drm/card0/device/hwmon/hwmon0/temp1_input",
    "sys/class/drm/card0/device/ras/umc_err_count",
    "sys/class/infiniband/mlx5_0/ports/1/rate",
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data",
    "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence",
    *SLOW,
)


def check(reading: Reading, metrics: tuple[str, ...]) -> None:
    sample = wire.Sample(0, 1.0, reading.values, tuple(reading.absent(metrics)), reading.failed)
    assert wire.decode_message("sample", wire.encode_message(sample))
    for metric in reading.values:
        assert metric in wire.METRICS or metric.startswith("rdma.")
    for why in reading.failed.values():
        assert why.isprintable()
        assert why
    present = set(reading.values)
    assert not present & reading.absent(metrics)


@pytest.mark.parametrize("make", REAL)
def test_every_metric_of_a_collector_is_in_the_table(make):
    assert set(make.metrics) <= set(wire.METRICS)


def test_every_metric_of_the_table_has_a_collector():
    covered = {metric for make in COLLECTORS for metric in make.metrics}

    assert set(wire.METRICS) - covered == {"agent.lag"}


@pytest.mark.parametrize("make", REAL)
def test_a_machine_with_nothing_is_absent_and_not_failed(make, tmp_path):
    collector = make(str(tmp_path))

    reading = collector.collect(0.0)

    assert reading.values == {}
    assert reading.failed == {}
    assert reading.absent(collector.metrics) == set(collector.metrics)


@pytest.mark.long
@pytest.mark.parametrize("make", REAL)
def test_a_recorded_machine_is_read_twice_alike(make, tmp_path):
    root = copy_recorded(tmp_path)
    collector = make(str(root))

    readings = [collector.collect(0.0), collector.collect(100.0)]

    for reading in readings:
        check(reading, collector.metrics)
    assert set(readings[0].values) <= set(readings[1].values)


@pytest.mark.parametrize("make", REAL)
def test_this_machine_can_be_read(make):
    collector = make("/")

    collector.collect(0.0)

    check(collector.collect(1.0), collector.metrics)


@pytest.mark.parametrize("make", [pytest.param(SIMULATED[name], id=name) for name in SIMULATED])
def test_simulated_numbers_move_and_counters_only_grow(make):
    collector = make("n1")
    before, after = collector.collect(0.0), collector.collect(1.0)
    for at in range(2, 120):
        check(after, collector.metrics)
        later = collector.collect(float(at))
        for metric, by_device in after.values.items():
            if metric in wire.METRICS and wire.METRICS[metric].kind == "counter":
                assert all(later.values[metric][d] >= v for d, v in by_device.items())
        after = later

    assert before.values != after.values
    assert set(after.values) >= set(collector.metrics)


@pytest.mark.long
@pytest.mark.parametrize("make", REAL)
def test_no_bytes_in_any_file_stop_a_collector(make, tmp_path):
    root = make_machine(tmp_path)
    good = {name: (root / name).read_bytes() for name in FILES}

    @settings(max_examples=20)
    @given(data=st.data())
    def try_bytes(data):
        broken = data.draw(st.sets(st.sampled_from(FILES), min_size=1, max_size=12))
        for name in broken:
            bad = data.draw(st.binary(max_size=400) | mutated(good[name]))
            (root / name).write_bytes(bad)
        collector = make(str(root))
        for at in range(3):
            check(collector.collect(float(at * 100)), collector.metrics)
        for name in broken:
            (root / name).write_bytes(good[name])

    try_bytes()


def mutated(old: bytes) -> st.SearchStrategy[bytes]:
    """Real file contents with a part replaced by garbage."""
    spot = st.integers(0, len(old))
    return st.builds(
        lambda at, new, cut: old[:at] + new + old[at + cut :],
        spot,
        st.sampled_from([b"-1", b"9" * 30, b"nan", b"\xff\x00", b"", b"\n", b"1e999", b" "])
        | st.binary(max_size=8),
        st.integers(0, 40),
    )


@pytest.mark.parametrize("make", REAL)
def test_a_folder_in_the_place_of_each_file_is_a_failure_with_a_reason(make, tmp_path):
    root = make_machine(tmp_path)
    for name in FILES:
        (root / name).unlink()
        (root / name).mkdir()
    collector = make(str(root))

    reading = collector.collect(0.0)

    check(reading, collector.metrics)
    assert all(os.strerror(errno.EISDIR) in why for why in reading.failed.values())


def test_devices_with_hostile_names_cannot_reach_a_terminal(tmp_path: Path):
    root = make_machine(tmp_path)
    port = root / "sys/class/infiniband/mlx5_0/ports/1/hw_counters"
    (port / "evil\x1b[2J").write_text("1\n")
    (port / os.fsdecode(b"\xff\xfe")).write_text("2\n")

    for make in COLLECTORS:
        reading = make(str(root)).collect(0.0)
        for metric, by_device in reading.values.items():
            assert metric.isprintable()
            assert all(device.isprintable() for device in by_device)
