"""Intel's GPUs and a Jetson's below a made root: nobody recorded such trees."""

import pytest

from rankdeck_agent.collectors.gpu import GpuCollector
from tests.unit.agent.machines import write

CARD = "sys/class/drm/card1"
COMMON = {
    "device/vendor": "0x8086",
    "device/device": "0x56c0",
    "device/uevent": "DRIVER=xe\nPCI_SLOT_NAME=0000:4d:00.0",
    "device/hwmon/hwmon5/energy1_input": "5000000000",
    "device/hwmon/hwmon5/power1_max": "150000000",
}
XE = {
    **COMMON,
    "device/hwmon/hwmon5/temp2_input": "54000",
    "device/hwmon/hwmon5/temp3_input": "60000",
    "device/tile0/gt0/freq0/act_freq": "2050",
    "device/tile0/gt0/gtidle/idle_residency_ms": "900000",
    "device/tile0/gt0/freq0/throttle/reason_thermal": "1",
    "device/tile0/gt0/freq0/throttle/reason_pl1": "1",
    "device/tile0/gt0/freq0/throttle/reason_prochot": "0",
}
I915 = {
    **COMMON,
    "device/hwmon/hwmon5/temp1_input": "54000",
    "gt/gt0/rps_act_freq_mhz": "2050",
    "gt/gt0/rc6_residency_ms": "900000",
    "lmem_total_bytes": "17179869184",
}
IDLE = {id(XE): "device/tile0/gt0/gtidle/idle_residency_ms", id(I915): "gt/gt0/rc6_residency_ms"}


def card(root, files):
    for name, text in files.items():
        write(root, f"{CARD}/{name}", f"{text}\n")


@pytest.mark.parametrize("files", [XE, I915], ids=["xe", "i915"])
def test_a_card_of_intel_is_read_under_the_common_names(tmp_path, files):
    card(tmp_path, files)
    gpu = GpuCollector(str(tmp_path))

    first = gpu.collect(0.0)
    card(tmp_path, {"device/hwmon/hwmon5/energy1_input": "5300000000", IDLE[id(files)]: "900500"})
    later = gpu.collect(2.0)

    values = {metric: found["0"] for metric, found in later.values.items()}
    assert (values["gpu.power"], values["gpu.power_limit"]) == (150.0, 150)
    assert values["gpu.energy"] == pytest.approx(5300)
    assert values["gpu.active"] == 75.0
    assert (values["gpu.temp"], values["gpu.clock"]) == (54, 2.05e9)
    assert "gpu.power" not in first.values
    assert first.inventory["gpu.0.model"] == "Intel GPU 0x56c0"
    assert first.inventory["gpu.0.pci"] == "0000:4d:00.0"
    assert (first.failed, later.failed) == ({}, {})
    assert values.get("gpu.throttle_reasons") == (0x44 if files is XE else None)
    assert values.get("gpu.mem_total") == (None if files is XE else 16 << 30)


def test_graphics_inside_a_processor_are_no_gpu_to_compute_on(tmp_path):
    card(tmp_path, {name: text for name, text in XE.items() if "hwmon" not in name})

    reading = GpuCollector(str(tmp_path)).collect(0.0)

    assert (reading.values, reading.failed, dict(reading.inventory)) == ({}, {}, {})


ORIN = {
    "sys/class/devfreq/17000000.gpu/device/load": "437",
    "sys/class/devfreq/17000000.gpu/cur_freq": "918000000",
    "sys/class/devfreq/60000000.emc/cur_freq": "1",
    "sys/class/thermal/thermal_zone1/type": "cpu-thermal",
    "sys/class/thermal/thermal_zone2/type": "gpu-thermal",
    "sys/class/thermal/thermal_zone2/temp": "48500",
    "sys/class/hwmon/hwmon1/in1_label": "VDD_GPU_SOC",
    "sys/class/hwmon/hwmon1/in1_input": "19000",
    "sys/class/hwmon/hwmon1/curr1_input": "500",
    "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB",
}


def test_the_gpu_of_a_jetson_is_read_from_sysfs_even_where_there_is_a_driver(tmp_path, monkeypatch):
    for name, text in ORIN.items():
        write(tmp_path, name, f"{text}\n")
    monkeypatch.setenv("RANKDECK_NVML", str(tmp_path))

    reading = GpuCollector(str(tmp_path)).collect(0.0)

    assert {metric: found["0"] for metric, found in reading.values.items()} == {
        "gpu.used": 43.7,
        "gpu.clock": 918e6,
        "gpu.temp": 48.5,
        "gpu.power": 9.5,
        "gpu.mem_used": 600 * 1024,
        "gpu.mem_total": 1000 * 1024,
    }
    assert reading.failed == {}
    assert reading.inventory["gpu.0.model"].startswith("NVIDIA Jetson AGX Orin")
    assert "shared" in reading.inventory["gpu.0.memory"]


@pytest.mark.parametrize("file", ["sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load"])
def test_an_older_jetson_tells_its_load_elsewhere(tmp_path, file):
    write(tmp_path, file, "1000\n")

    reading = GpuCollector(str(tmp_path)).collect(0.0)

    assert reading.values["gpu.used"] == {"0": 100.0}
    assert {"gpu.clock", "gpu.power"} <= reading.absent(GpuCollector(str(tmp_path)).metrics)


def test_a_card_of_intel_keeps_its_number_when_the_one_before_it_goes(tmp_path):
    for number in (1, 2):
        for name, text in XE.items():
            made = text.replace("4d", f"{number}d")
            write(tmp_path, f"sys/class/drm/card{number}/{name}", f"{made}\n")
    gpu = GpuCollector(str(tmp_path))
    gpu.collect(0.0)
    (tmp_path / "sys/class/drm/card1").rename(tmp_path / "away")

    reading = gpu.collect(100.0)

    assert set(reading.values["gpu.temp"]) == {"1"}
    assert reading.inventory["gpu.1.index"] == "0"
    assert reading.inventory["gpu.1.pci"] == "0000:2d:00.0"
