"""AMD GPUs below a made root, and the one recorded for procfs."""

import pytest

from rankdeck_agent.collectors.base import BootMemory
from rankdeck_agent.collectors.gpu import GpuCollector
from rankdeck_agent.collectors.pcie import pcie_generation
from tests.unit.agent.machines import copy_recorded, write

CARD = "sys/class/drm/card{}/device"
FILES = {
    "vendor": "0x1002",
    "uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{}:00.0",
    "gpu_busy_percent": "37",
    "mem_info_vram_used": "1073741824",
    "mem_info_vram_total": "68702699520",
    "current_link_speed": "16.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "8",
    "max_link_width": "16",
    "pcie_replay_count": "2",
    "product_name": "AMD Instinct MI300X",
    "unique_id": "f4b0f1d2a1b2c3d4",
    "hwmon/hwmon3/name": "amdgpu",
    "hwmon/hwmon3/temp2_label": "junction",
    "hwmon/hwmon3/temp2_input": "61000",
    "hwmon/hwmon3/temp2_crit": "110000",
    "hwmon/hwmon3/temp3_label": "mem",
    "hwmon/hwmon3/temp3_input": "55500",
    "hwmon/hwmon3/power1_average": "350000000",
    "hwmon/hwmon3/power1_cap": "750000000",
    "hwmon/hwmon3/freq1_input": "2100000000",
    "ras/umc_err_count": "ue: 1\nce: 5",
    "ras/gfx_err_count": "ue: 0\nce: 2",
}


def add(root, number, bus="18"):
    for name, text in FILES.items():
        write(root, f"{CARD.format(number)}/{name}", text.format(bus) + "\n")


def test_a_card_is_read_under_the_common_names(tmp_path):
    add(tmp_path, 1)
    write(tmp_path, "sys/class/drm/card0/device/vendor", "0x1a03\n")
    gpu = GpuCollector(str(tmp_path))

    reading = gpu.collect(0)

    values = {metric: found["0"] for metric, found in reading.values.items()}
    assert values == {
        "gpu.used": 37,
        "gpu.mem_used": 1 << 30,
        "gpu.mem_total": 68702699520,
        "gpu.temp": 61,
        "gpu.margin": 49,
        "gpu.mem_temp": 55.5,
        "gpu.power": 350,
        "gpu.power_limit": 750,
        "gpu.clock": 2.1e9,
        "gpu.pcie_gen": 4,
        "gpu.pcie_gen_max": 5,
        "gpu.pcie_width": 8,
        "gpu.pcie_width_max": 16,
        "gpu.pcie_replays": 2,
        "gpu.ecc_corrected": 7,
        "gpu.ecc_uncorrected": 1,
    }
    assert reading.inventory["gpu.0.model"] == "AMD Instinct MI300X"
    assert reading.failed == {}
    assert "gpu.nvlinks" in reading.absent(gpu.metrics)


def test_the_sensor_nearest_to_its_own_limit_counts(tmp_path):
    add(tmp_path, 0)
    sensors = {
        "temp1_label": "edge", "temp1_input": "70000", "temp1_crit": "100000",
        # This one names only the limit at which it is shut off.
        "temp2_crit": "0", "temp2_emergency": "105000", "temp2_input": "98500",
        "temp3_crit": "94000", "temp3_input": "91000",
    }  # fmt: skip
    for name, text in sensors.items():
        write(tmp_path, f"{CARD.format(0)}/hwmon/hwmon3/{name}", f"{text}\n")

    values = GpuCollector(str(tmp_path)).collect(0).values

    assert values["gpu.temp"] == {"0": 70}
    assert values["gpu.margin"] == {"0": 6.5}
    assert values["gpu.mem_margin"] == {"0": 3}


def test_a_lost_card_renames_no_other_after_the_agent_started_again(tmp_path):
    for number, bus in ((0, "03"), (1, "41"), (2, "c1")):
        add(tmp_path, number, bus=bus)
        write(tmp_path, f"{CARD.format(number)}/gpu_busy_percent", f"{10 * number}\n")
        write(tmp_path, f"{CARD.format(number)}/unique_id", f"made{number}\n")
    file = tmp_path / "state" / "devices.n1"
    GpuCollector(str(tmp_path), BootMemory(file, "boot-1")).collect(0)
    (tmp_path / "sys/class/drm/card1").rename(tmp_path / "away")

    again = GpuCollector(str(tmp_path), BootMemory(file, "boot-1")).collect(0)
    rebooted = GpuCollector(str(tmp_path), BootMemory(file, "boot-2")).collect(0)

    assert again.values["gpu.used"] == {"0": 0, "2": 20}
    assert again.inventory["gpu.2.index"] == "1"
    assert rebooted.values["gpu.used"] == {"0": 0, "1": 20}


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"boot": "b", "amd": [1]}', '{"boot": "b", "amd": {"x": 3}}']
)
def test_a_damaged_memory_is_none(tmp_path, text):
    add(tmp_path, 0)
    file = tmp_path / "devices.n1"
    file.write_text(text)

    values = GpuCollector(str(tmp_path), BootMemory(file, "b")).collect(0).values

    assert set(values["gpu.used"]) == {"0"}


def test_a_memory_that_cannot_be_written_stops_nothing(tmp_path):
    add(tmp_path, 0)
    (tmp_path / "file").write_text("")

    values = (
        GpuCollector(str(tmp_path), BootMemory(tmp_path / "file/devices", "b")).collect(0).values
    )

    assert set(values["gpu.used"]) == {"0"}


def test_cards_are_numbered_by_their_place_on_the_bus(tmp_path):
    add(tmp_path, 0, bus="c1")
    add(tmp_path, 2, bus="03")
    write(tmp_path, f"{CARD.format(2)}/gpu_busy_percent", "99\n")

    values = GpuCollector(str(tmp_path)).collect(0).values

    assert values["gpu.used"] == {"0": 99, "1": 37}


def test_what_fails_is_told_until_it_is_read_again(tmp_path):
    add(tmp_path, 0)
    write(tmp_path, f"{CARD.format(0)}/ras/umc_err_count", "query failed\n")
    gpu = GpuCollector(str(tmp_path))

    first, between = gpu.collect(0), gpu.collect(1)
    write(tmp_path, f"{CARD.format(0)}/ras/umc_err_count", "ue: 0\nce: 0\n")
    later = gpu.collect(31)

    assert "umc_err_count" in first.failed["gpu.ecc_corrected/0"]
    assert between.failed == first.failed
    assert between.values == {}
    assert "gpu.used" not in between.absent(gpu.metrics)
    assert later.values["gpu.ecc_corrected"] == {"0": 2}
    assert later.failed == {}


def test_what_a_virtual_machine_does_not_show_is_absent_and_no_fault(tmp_path):
    add(tmp_path, 0)
    for name in ("current_link_speed", "max_link_speed"):
        write(tmp_path, f"{CARD.format(0)}/{name}", "Unknown\n")
    write(tmp_path, f"{CARD.format(0)}/hwmon/hwmon3/temp2_crit", "0\n")
    gpu = GpuCollector(str(tmp_path))

    reading = gpu.collect(0)

    assert {"gpu.pcie_gen", "gpu.pcie_gen_max", "gpu.margin"} <= reading.absent(gpu.metrics)
    assert reading.values["gpu.temp"] == {"0": 61}
    assert reading.failed == {}


def test_a_speed_that_is_none_is_refused():
    assert pcie_generation("2.5 GT/s PCIe") == 1
    for text in ("", "Unknown", "9 GT/s"):
        with pytest.raises(ValueError, match="not a PCIe speed"):
            pcie_generation(text)


@pytest.mark.long
def test_the_recorded_card_is_read(tmp_path):
    reading = GpuCollector(str(copy_recorded(tmp_path))).collect(0)

    assert reading.values["gpu.used"]["0"] == 4
    assert reading.values["gpu.mem_total"]["0"] == 8573157376
    assert reading.inventory["gpu.0.uuid"] == "0123456789abcdef"


def test_a_card_keeps_its_number_when_one_before_it_goes_and_comes_back(tmp_path):
    for number in range(4):
        add(tmp_path, number, bus=f"{number + 1}0")
        write(tmp_path, f"{CARD.format(number)}/gpu_busy_percent", f"{number}\n")
        write(tmp_path, f"{CARD.format(number)}/unique_id", f"{number:016x}\n")
    gpu = GpuCollector(str(tmp_path))
    whole = gpu.collect(0)
    away = tmp_path / "away"
    (tmp_path / "sys/class/drm/card1").rename(away)
    less = gpu.collect(100)
    away.rename(tmp_path / "sys/class/drm/card1")
    again = gpu.collect(200)

    assert whole.values["gpu.used"] == {"0": 0, "1": 1, "2": 2, "3": 3}
    assert less.values["gpu.used"] == {"0": 0, "2": 2, "3": 3}
    assert [less.inventory[f"gpu.{n}.index"] for n in "023"] == ["0", "1", "2"]
    assert less.inventory["gpu.3.pci"] == "0000:40:00.0"
    assert again.values["gpu.used"] == whole.values["gpu.used"]


def test_a_card_that_appears_later_is_listed_and_moves_no_other(tmp_path):
    """It lies before the others on the bus."""
    for number in (1, 2):
        add(tmp_path, number, bus=f"{number}0")
    gpu = GpuCollector(str(tmp_path))
    gpu.collect(0)
    add(tmp_path, 0, bus="05")
    write(tmp_path, f"{CARD.format(0)}/gpu_busy_percent", "99\n")

    assert gpu.collect(100).values["gpu.used"] == {"0": 37, "1": 37, "2": 99}


def test_another_card_in_the_same_slot_is_another(tmp_path):
    for number in (1, 2):
        add(tmp_path, number, bus=f"{number}0")
    gpu = GpuCollector(str(tmp_path))
    gpu.collect(0)
    write(tmp_path, f"{CARD.format(1)}/unique_id", "ffff\n")

    assert set(gpu.collect(100).values["gpu.used"]) == {"1", "2"}
