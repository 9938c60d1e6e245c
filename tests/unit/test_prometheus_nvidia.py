"""GPUs all the way to Prometheus: the real nvidia-ml-py on a
stand-in library, agent, fleet, exporter.
"""

import time

import pytest

from rankdeck_agent.wire import Hello, Sample, decode_message, encode_message
from tests.unit.agent.test_nvidia import answered, gpus, library, machine, until
from tests.unit.test_prometheus import Lab, value_of

__all__ = ["gpus", "library", "machine"]
GIB = 1 << 30


def told(lab, collector, reading):
    """Send what was read over the wire, as a node does."""
    absent = tuple(reading.absent(collector.metrics))
    hello = Hello("n1", True, time.time(), "b", "0.1.0", 1.0, reading.inventory)
    lab.fleet.apply("n1", decode_message("hello", encode_message(hello)))
    sample = Sample(1, time.time(), reading.values, absent, reading.failed)
    lab.fleet.apply("n1", decode_message("sample", encode_message(sample)))
    return lab.read()


@pytest.mark.long
def test_every_gpu_has_the_labels_that_dashboards_ask_for(gpus):
    found = told(Lab(), gpus, until(gpus, answered))

    (labels,) = [have for have, _ in found["DCGM_FI_DEV_GPU_TEMP"] if have["gpu"] == "3"]
    assert labels["modelName"] == "NVIDIA H100 80GB HBM3"
    assert labels["UUID"].startswith("GPU-")
    assert labels["pci_bus_id"].count(":") == 2
    assert labels["device"] == "nvidia3"
    assert labels["DCGM_FI_DRIVER_VERSION"] == "570.86.15"
    assert len({have["UUID"] for have, _ in found["DCGM_FI_DEV_GPU_TEMP"]}) == 8
    assert value_of(found, "DCGM_FI_DEV_GPU_TEMP", gpu="3") == 61


@pytest.mark.long
def test_what_a_gpu_does_not_have_is_no_series_and_no_zero(gpus):
    reading = until(gpus, answered)
    found = told(Lab(), gpus, reading)

    assert {"gpu.mig_mem_used", "gpu.mig_mem_total"} <= set(reading.absent(gpus.metrics))
    assert not [name for name in found if "mig" in name.lower()]


def test_instances_have_series_of_their_own_and_say_of_which_gpu(gpus, machine):
    machine.say("MigMode 1 1", "MaxMigDeviceCount 1 7", "MigInstances 1 2",
                "MigName 1 NVIDIA H100 MIG 3g.40gb", "UtilizationRates 1 !3")  # fmt: skip
    found = told(Lab(), gpus, until(gpus, answered))

    series = {name: have for name, have in found.items() if "mig" in name.lower()}
    assert series
    for rows in series.values():
        assert {(have["gpu"], have["GPU_I_ID"]) for have, _ in rows} == {
            ("1", "7"),
            ("1", "8"),
        }
        assert {have.get("modelName") for have, _ in rows} == {"NVIDIA H100 80GB HBM3"}
    assert "1" not in {have["gpu"] for have, _ in found["DCGM_FI_DEV_GPU_UTIL"]}
