"""The PCIe link of a GPU is that of its slot; where there is no link, nothing is said."""

from pathlib import Path

import pytest

from rankdeck_agent.collectors.gpu import GpuCollector
from rankdeck_agent.rules.facts import Facts, Memory
from rankdeck_agent.rules.judge import assess_node
from tests.unit.agent.machines import write

X16_GEN4 = ("16", "16.0 GT/s PCIe")
X2_GEN3 = ("2", "8.0 GT/s PCIe")
BRIDGE, DISPLAY = "0x060400", "0x038000"


def device(root: Path, path: str, vendor: str, kind: str, now, most=X16_GEN4) -> None:
    """A PCI device at `path` below pci0000:00."""
    base = f"sys/devices/pci0000:00/{path}"
    files = {"vendor": vendor, "class": kind, "current_link_width": now[0], "current_link_speed": now[1],
             "max_link_width": most[0], "max_link_speed": most[1]}  # fmt: skip
    for name, text in files.items():
        write(root, f"{base}/{name}", f"{text}\n")


def card(root: Path, path: str, **files: str) -> None:
    base = root / "sys/devices/pci0000:00" / path
    for name, text in {"gpu_busy_percent": "95", **files}.items():
        write(base, name, f"{text}\n")
    (root / "sys/class/drm/card0").mkdir(parents=True)
    (root / "sys/class/drm/card0/device").symlink_to(base)


def links(root: Path) -> "dict[str, float]":
    found = GpuCollector(str(root)).collect(0.0).values
    return {m: devices["0"] for m, devices in found.items() if m.startswith("gpu.pcie_")}


SWITCHED = "0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0"


def test_a_card_behind_its_own_switch_is_judged_by_the_slot(tmp_path) -> None:
    """As an RX 7900 or MI210: the GPU's own link to the switch on the card is always whole."""
    device(tmp_path, "0000:00:01.1", "0x1022", BRIDGE, X2_GEN3)
    device(tmp_path, "0000:00:01.1/0000:01:00.0", "0x1002", BRIDGE, X2_GEN3)
    device(tmp_path, "0000:00:01.1/0000:01:00.0/0000:02:00.0", "0x1002", BRIDGE, X16_GEN4)
    device(tmp_path, SWITCHED, "0x1002", DISPLAY, X16_GEN4)
    card(tmp_path, SWITCHED)
    gpu = GpuCollector(str(tmp_path))
    values = gpu.collect(0.0).values

    assert links(tmp_path) == {
        "gpu.pcie_width": 2, "gpu.pcie_width_max": 16, "gpu.pcie_gen": 3, "gpu.pcie_gen_max": 4,
    }  # fmt: skip
    memory = Memory()
    for now in range(62):
        health, memory = assess_node(Facts(now=float(now), values=values), memory)
    assert {"gpu.pcie", "gpu.pcie_gen"} <= {reason.check for reason in health.reasons}


def test_a_switch_of_another_maker_is_the_slot_and_so_is_a_root_port_of_the_same(tmp_path) -> None:
    device(tmp_path, "0000:00:01.1", "0x8086", BRIDGE, X2_GEN3)
    device(tmp_path, "0000:00:01.1/0000:01:00.0", "0x1000", BRIDGE, X2_GEN3)
    device(tmp_path, "0000:00:01.1/0000:01:00.0/0000:02:00.0", "0x1000", BRIDGE, X16_GEN4)
    device(tmp_path, SWITCHED, "0x1002", DISPLAY, X16_GEN4)
    card(tmp_path, SWITCHED)

    assert links(tmp_path)["gpu.pcie_width"] == 16


@pytest.mark.parametrize("vendor", ["0x1002", "0x8086"])
def test_a_card_in_a_narrow_slot_has_all_the_lanes_that_it_can_have(tmp_path, vendor) -> None:
    x8 = ("8", "8.0 GT/s PCIe")
    device(tmp_path, "0000:00:01.1", vendor, BRIDGE, x8, most=x8)
    device(tmp_path, "0000:00:01.1/0000:01:00.0", vendor, DISPLAY, x8)
    card(tmp_path, "0000:00:01.1/0000:01:00.0", **{"hwmon/hwmon1/temp2_input": "50000"})

    assert links(tmp_path) == {
        "gpu.pcie_width": 8, "gpu.pcie_width_max": 8, "gpu.pcie_gen": 3, "gpu.pcie_gen_max": 3,
    }  # fmt: skip


@pytest.mark.parametrize("width", ["0", "255", "63"])
def test_what_is_no_number_of_lanes_is_no_link(tmp_path, width) -> None:
    device(tmp_path, "0000:01:00.0", "0x1002", DISPLAY, (width, "Unknown"), most=(width, "Unknown"))
    card(tmp_path, "0000:01:00.0")
    reading = GpuCollector(str(tmp_path)).collect(0.0)

    assert not [metric for metric in reading.values if metric.startswith("gpu.pcie_")]
    assert reading.failed == {}
    assert reading.values["gpu.used"] == {"0": 95}
