"""NVIDIA GPUs: the real nvidia-ml-py on a stand-in library, in the agent's own process for it."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rankdeck_agent.collectors import nvidia
from rankdeck_agent.collectors.gpu import GpuCollector
from rankdeck_agent.collectors.nvidia_calls import CALLS, METRICS
from rankdeck_agent.rules.levels import Expected
from rankdeck_agent.sampler import NodeJudge, Sampler
from rankdeck_agent.seen_devices import SeenDevices
from rankdeck_agent.wire import Sample
from tests.support import nvml
from tests.unit.agent.machines import DATA

AGENTS = Path(__file__).resolve().parents[3] / "agents"
LIMIT = 30.0


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    if nvml.missing():
        pytest.skip(nvml.missing())
    pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    folder = tmp_path_factory.mktemp("library")
    nvml.build(folder)
    return folder


@pytest.fixture
def machine(library, tmp_path, monkeypatch) -> nvml.Machine:
    """Eight H100 whose answers a test may change."""
    made = nvml.Machine(tmp_path / "gpus")
    monkeypatch.setenv("RANKDECK_NVML", str(library))
    monkeypatch.setenv("FAKE_NVML", str(made.file))
    monkeypatch.setattr(nvidia, "AGAIN", 0.2)
    return made


@pytest.fixture
def gpus(machine):
    made = GpuCollector()
    yield made
    made.close()


def until(gpus, wanted, limit=LIMIT):
    """The first reading of which `wanted` is true."""
    deadline = time.monotonic() + limit
    while True:
        reading = gpus.collect(time.monotonic())
        if wanted(reading):
            return reading
        assert time.monotonic() < deadline, (reading.values, reading.failed)
        time.sleep(0.05)


def answered(reading):
    return "gpu.used" in reading.values


def test_every_question_is_answered_in_base_units(gpus):
    reading = until(gpus, answered)

    values = {metric: found.get("7") for metric, found in reading.values.items()}
    assert reading.failed == {}
    assert set(METRICS) - set(values) == {"gpu.mig_mem_used", "gpu.mig_mem_total",
                                          "gpu.retired", "gpu.retired_pending",
                                          "gpu.jpeg", "gpu.optical_flow", "gpu.vgpu_licensed"}  # fmt: skip
    assert values["gpu.power"] == 350.5
    assert values["gpu.energy"] == 123456.789
    assert (values["gpu.clock"], values["gpu.clock_mem"]) == (1.98e9, 2.619e9)
    assert (values["gpu.mem_used"], values["gpu.mem_total"]) == (10 << 30, 80 << 30)
    assert values["gpu.throttle_thermal"] == pytest.approx(1.5)
    assert (values["gpu.ecc_corrected"], values["gpu.ecc_uncorrected_ever"]) == (3, 1)
    assert (values["gpu.nvlinks"], values["gpu.nvlinks_active"]) == (18, 18)
    assert values["gpu.nvlink_errors"] == 3
    assert (values["gpu.fabric"], values["gpu.processes"]) == (3, 1)
    assert (values["gpu.margin"], values["gpu.mem_temp"], values["gpu.mem_margin"]) == (26, 70, 17)
    assert set(reading.values["gpu.temp"]) == set(map(str, range(8)))
    assert reading.inventory["gpu.7.model"] == "NVIDIA H100 80GB HBM3"
    assert reading.inventory["gpu.7.pci"] == "00000000:17:00.0"
    assert reading.inventory["gpu.driver"] == "570.86.15"


@pytest.mark.parametrize("limit", ["0", "-1", "2000"])
def test_a_limit_that_is_none_is_no_margin(gpus, machine, limit):
    machine.without("MarginTemperature")
    machine.say(f"TemperatureThreshold * {limit}")

    reading = until(gpus, answered)

    assert "gpu.margin" not in reading.values
    assert "gpu.mem_margin" not in reading.values
    assert set(reading.values["gpu.mem_temp"].values()) == {70}


def test_what_is_not_supported_is_absent_and_not_failed(gpus, machine):
    machine.without("TotalEccErrors", "NvLinks", "GpuFabricInfo", "MarginTemperature")

    reading = until(gpus, answered)

    absent = reading.absent(gpus.metrics)
    assert {"gpu.ecc_uncorrected", "gpu.nvlinks", "gpu.fabric"} <= absent
    assert reading.values["gpu.margin"]["0"] == 87 - 61
    assert reading.failed == {}


@pytest.mark.slow
def test_an_error_is_failed_with_the_words_of_nvml_and_ends(gpus, machine):
    until(gpus, answered)
    machine.say("PowerUsage 2 !16", "Temperature 4 !999")

    reading = until(gpus, lambda r: len(r.failed) == 2)
    machine.say("PowerUsage 2 1000", "Temperature 4 50")
    later = until(gpus, lambda r: not r.failed and answered(r))

    assert reading.failed == {
        "gpu.power/2": "NVML: GPU requires restart",
        "gpu.temp/4": "NVML: Unknown Error",
    }
    assert later.values["gpu.power"]["2"] == 1


@pytest.mark.slow
def test_a_lost_gpu_is_said_to_be_lost_and_the_others_go_on(gpus, machine):
    until(gpus, answered)
    machine.say(*(f"{name} 3 !15" for name in ("UtilizationRates", "Temperature")))

    reading = until(gpus, lambda r: r.values.get("gpu.lost", {}).get("3"))

    assert reading.failed["gpu.used/3"] == "NVML: GPU is lost"
    assert set(reading.values["gpu.temp"]) == {"0", "1", "2", "4", "5", "6", "7"}
    assert sum(reading.values["gpu.lost"].values()) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "words", "metric"),
    [
        (15, "NVML: GPU is lost", "gpu.lost"),
        (999, "NVML: Unknown Error", "gpu.lost"),
        (16, "NVML: GPU requires restart", "gpu.reset_required"),
    ],
)
def test_a_gpu_that_the_driver_does_not_give_out_blinds_none_of_the_others(
    gpus, machine, code, words, metric
):
    machine.say(f"Handle 3 !{code}")

    reading = until(gpus, answered)

    assert {d for d, bad in reading.values[metric].items() if bad} == {"3"}
    assert reading.failed == {"gpu.used/3": words}
    assert set(reading.values["gpu.temp"]) == set("0124567")
    assert {row["gpu"] for row in nvidia.list_gpu_programs()} == set("0124567")


@pytest.mark.slow
def test_a_gpu_that_requires_a_reset_says_so_until_it_is_done(gpus, machine):
    machine.say("PowerUsage 3 !16", "RemappedRows 3 !16")
    until(gpus, lambda r: r.values.get("gpu.reset_required", {}).get("3") == 1)

    machine.say("PowerUsage 3 350500", "RemappedRows 3 0 0 0 0")
    gpus.close()
    gpus.collect(0.0)

    until(gpus, lambda r: r.values.get("gpu.reset_required", {}).get("3") == 0)


def test_a_gpu_that_could_not_join_the_fabric_is_a_number_and_no_failure(gpus, machine):
    machine.say("GpuFabricInfo 2 2 0 0", "GpuFabricInfo 5 3 999 16")

    reading = until(gpus, lambda r: "gpu.fabric" in r.values)

    assert {d: reading.values["gpu.fabric"][d] for d in "025"} == {"0": 3, "2": 2, "5": 3}
    assert {d: reading.values["gpu.fabric_status"][d] for d in "025"} == {"0": 0, "2": 0, "5": 999}
    assert reading.values["gpu.fabric_health"]["5"] == 16
    assert not [key for key in reading.failed if key.startswith("gpu.fabric")]


@pytest.mark.long
@pytest.mark.parametrize("folder", ["proc/driver/nvidia/gpus", "sys/bus/pci/drivers/nvidia"])
def test_the_drivers_own_list_says_how_many_there_should_be(machine, tmp_path, folder):
    for n in range(9):
        (tmp_path / folder / f"0000:{n:02x}:00.0").mkdir(parents=True)
    (tmp_path / folder / "module").mkdir()
    gpus = GpuCollector(str(tmp_path))

    reading = until(gpus, answered)
    gpus.close()

    assert reading.values["gpu.on_bus"] == {"": 9}
    assert len(reading.values["gpu.lost"]) == 8


@pytest.mark.long
def test_what_the_parts_of_a_gpu_did_is_told_where_it_can(gpus, machine):
    machine.say(
        "Gpm * 1", "Gpm 5 0", "gpm.1 * 97.5", "gpm.5 * 61.25", "gpm.10 * 40", "gpm.20 * 2048"
    )
    machine.say("EncoderUtilization * 3", "DecoderUtilization * 4")

    reading = until(gpus, lambda r: "gpu.tensor_active" in r.values, limit=60.0)

    assert reading.values["gpu.active"]["0"] == 97.5
    assert reading.values["gpu.tensor_active"]["7"] == 61.25
    assert reading.values["gpu.pcie_tx"]["0"] == 2048 * (1 << 20)
    assert "5" not in reading.values["gpu.active"]
    assert "gpu.sm_active" in reading.absent(gpus.metrics)
    assert reading.values["gpu.encoder"]["1"] == 3
    assert not [key for key in reading.failed if "active" in key]


@pytest.mark.left_out
@pytest.mark.long
def test_instances_of_a_divided_gpu_tell_what_each_did(gpus, machine):
    machine.say("MigMode 1 1", "MaxMigDeviceCount 1 7", "MigInstances 1 2", "GpmMig 1 1",
                "MigName 1 NVIDIA H100 MIG 3g.40gb", "Gpm 1 1", "GpmSample 1 !25",
                "gpm.2 * 40", "gpm.5 * 20")  # fmt: skip

    reading = until(gpus, lambda r: "gpu.sm_active" in r.values, limit=60.0)

    # The stand-in adds the number of the instance: 7 and 8.
    assert reading.values["gpu.sm_active"] == {"1:7": 47, "1:8": 48}
    assert reading.values["gpu.tensor_active"] == {"1:7": 27, "1:8": 28}
    assert reading.failed == {}


@pytest.mark.left_out
@pytest.mark.long
def test_before_hopper_bytes_over_nvlink_and_pcie_come_from_counters(gpus, machine):
    machine.say("field.138 * 0", "field.139 * 0", "field.197 * 4294967000")
    until(gpus, answered)
    machine.say("field.138 * 40960", "field.139 * 20480", "field.197 * 704")

    reading = until(gpus, lambda r: "gpu.nvlink_tx" in r.values, limit=60.0)

    sent, received = reading.values["gpu.nvlink_tx"]["0"], reading.values["gpu.nvlink_rx"]["0"]
    assert sent == pytest.approx(2 * received)
    # 40 MiB over NVLink and, round the end of 32 bits, 1,000 bytes over PCIe in the same time.
    assert sent / reading.values["gpu.pcie_tx"]["0"] == pytest.approx(40960 * 1024 / 1000)
    assert "gpu.pcie_rx" in reading.absent(gpus.metrics)


@pytest.mark.long
def test_a_gpu_without_gpm_and_without_counters_of_bytes_is_not_asked_again(gpus):
    reading = until(gpus, lambda r: "gpu.mem_temp" in r.values)

    assert {"gpu.active", "gpu.nvlink_tx", "gpu.pcie_tx"} <= reading.absent(gpus.metrics)
    assert reading.failed == {}


def test_engines_and_the_license_of_a_vgpu_are_told(gpus, machine):
    machine.say("JpgUtilization * 5", "OfaUtilization * 6", "GridLicensableFeatures 1 1 1",
                "GridLicensableFeatures 2 1 0", "GridLicensableFeatures 3 0 0")  # fmt: skip

    reading = until(gpus, lambda r: "gpu.vgpu_licensed" in r.values)

    assert reading.values["gpu.jpeg"]["0"] == 5
    assert reading.values["gpu.optical_flow"]["7"] == 6
    assert reading.values["gpu.vgpu_licensed"] == {"1": 1, "2": 0}


def test_reserved_memory_is_neither_used_nor_free(gpus, machine):
    machine.say("MemoryInfo * 10737418240 85899345920 536870912")

    reading = until(gpus, lambda r: "gpu.mem_reserved" in r.values)

    assert reading.values["gpu.mem_used"]["0"] == 10 << 30
    assert reading.values["gpu.mem_reserved"]["0"] == 512 << 20


@pytest.mark.long
def test_a_gpu_keeps_its_number_when_one_before_it_vanishes(gpus, machine):
    until(gpus, answered)
    # The driver counts seven now: from 3 on each has the index of the one before it.
    machine.say("count * 7", *(f"place {n} {n + 1}" for n in range(3, 7)), "Temperature 7 33")
    machine.say("UtilizationRates * !1")
    until(gpus, lambda r: "Uninitialized" in str(r.failed))
    machine.say("UtilizationRates * 5 5")

    reading = until(gpus, answered)

    assert reading.values["gpu.temp"]["7"] == 33
    assert reading.values["gpu.lost"]["3"] == 1
    assert reading.failed == {"gpu.used/3": "the driver lists it no more"}
    assert "3" not in reading.values["gpu.temp"]
    assert reading.inventory["gpu.7.index"] == "6"


@pytest.mark.long
def test_a_gpu_that_appears_later_is_listed(machine, tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck_agent.collectors.gpu.LOOK_AGAIN", 0.5)
    bus = tmp_path / "proc/driver/nvidia/gpus"
    for number in range(7):
        (bus / f"0000:{number:02x}:00.0").mkdir(parents=True)
    machine.say("count * 7")
    gpus = GpuCollector(str(tmp_path))
    before = until(gpus, answered)
    (bus / "0000:07:00.0").mkdir()
    machine.say("count * 8")
    after = until(gpus, lambda r: "7" in r.values.get("gpu.used", {}))
    gpus.close()

    assert "7" not in before.values["gpu.used"]
    assert set(after.values["gpu.used"]) == set(map(str, range(8)))
    assert after.inventory["gpu.7.index"] == "7"


@pytest.mark.slow
def test_a_driver_that_hangs_is_told_and_no_second_process_starts(gpus, machine, monkeypatch):
    monkeypatch.setattr(nvidia, "DEADLINE", 2.5)
    until(gpus, answered)
    machine.say("ClockInfo 2 hang")
    sampler = Sampler([gpus])
    process = gpus._nvidia._process._process

    deadline, events = time.monotonic() + LIMIT, []
    while not events:
        assert time.monotonic() < deadline
        beat = sampler.take(limit=5)
        events += beat.events
        time.sleep(0.1)

    assert "did not answer in" in beat.sample.failed["gpu.temp"]
    assert "GPU 2, gpu.clock" in beat.sample.failed["gpu.temp"]
    assert beat.sample.values["gpu.answer"][""] > 2
    assert events[0].level == "warn"
    assert "did not answer" in events[0].text
    assert process.poll() is None
    assert gpus._nvidia._process._process is process
    gpus.close()
    assert process.poll() is None, "never killed: that can freeze a GPU"
    os.kill(process.pid, 9)
    process.wait(LIMIT)


@pytest.mark.slow
def test_the_process_ends_with_the_agent_and_a_stuck_one_keeps_the_next_away(
    machine,
):
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from rankdeck_agent.collectors.nvidia import Nvidia\n"
        "n = Nvidia(); n.collect(1.0); print(n._process._process.pid, flush=True); time.sleep(60)"
    )

    def agent():
        argv = [sys.executable, "-c", program, str(AGENTS)]
        started = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert started.stdout
        return started, int(started.stdout.readline())

    first, its_process = agent()
    first.kill()
    first.wait(LIMIT)
    wait_gone(its_process)
    machine.say("Temperature 1 hang")
    second, stuck = agent()
    second.kill()
    second.wait(LIMIT)

    reading = nvidia.Nvidia().collect(1.0)
    os.kill(stuck, 9)

    assert f"still holds process {stuck}" in reading.failed["gpu.temp"]


def wait_gone(pid):
    deadline = time.monotonic() + LIMIT
    while Path(f"/proc/{pid}").exists() and state(pid) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.slow
def test_a_driver_that_does_not_start_says_why_and_is_tried_again(gpus, machine):
    machine.say("init * !9")

    reading = until(gpus, lambda r: r.failed)
    machine.say("init * 0")
    later = until(gpus, answered)

    assert reading.failed["gpu.used"] == "NVML: Driver Not Loaded"
    assert later.failed == {}


@pytest.mark.slow
def test_a_process_that_dies_is_named(gpus, machine):
    until(gpus, answered)
    os.kill(gpus._nvidia._process._process.pid, 9)

    reading = until(gpus, lambda r: r.failed)

    assert reading.failed["gpu.used"].endswith("ended with signal 9")
    until(gpus, answered)


def test_a_process_that_cannot_start_is_a_failure_and_not_an_absence(gpus, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    first, second = gpus.collect(1.0), gpus.collect(1.1)

    assert "No such file" in first.failed["gpu.used"]
    assert second.failed == first.failed
    assert "gpu.used" not in second.absent(gpus.metrics)


def test_instances_of_a_divided_gpu_have_their_memory(gpus, machine):
    machine.say("MigMode 1 1", "MaxMigDeviceCount 1 7", "MigInstances 1 2",
                "MigName 1 NVIDIA H100 MIG 3g.40gb", "UtilizationRates 1 !3")  # fmt: skip

    reading = until(gpus, answered)

    assert set(reading.values["gpu.mig_mem_used"]) == {"1:7", "1:8"}
    assert reading.inventory["gpu.1.mig"] == "3g.40gb 3g.40gb"
    assert "1" not in reading.values["gpu.used"]
    assert reading.failed == {}


@pytest.mark.long
def test_a_chip_without_memory_of_its_own_shows_the_machines(gpus, machine):
    machine.without("MemoryInfo")
    machine.say("Name * NVIDIA GB10")

    reading = until(gpus, answered)

    assert reading.values["gpu.mem_total"]["0"] > reading.values["gpu.mem_used"]["0"]
    assert "shared with the CPU" in reading.inventory["gpu.0.memory"]
    assert "gpu.pcie_width" in reading.absent(gpus.metrics), "its link is a placeholder"


def test_a_virtual_function_has_no_link(gpus, machine):
    machine.say("CurrPcieLinkWidth 2 0")

    reading = until(gpus, answered)

    assert set(reading.values["gpu.pcie_width"]) == set(map(str, range(8))) - {"2"}
    assert reading.failed == {}


def test_a_gpu_that_refuses_its_memory_is_not_taken_for_one_without(gpus, machine):
    machine.without("MemoryInfo")

    reading = until(gpus, answered)

    assert "gpu.mem_used" in reading.absent(gpus.metrics)


def test_hostile_names_are_made_harmless(gpus, machine):
    machine.say("Name * evil\x1b[2Jname")

    reading = until(gpus, answered)

    assert all(text.isprintable() for text in reading.inventory.values())


@pytest.mark.long
def test_processes_are_told_on_demand_with_user_and_command(machine):
    machine.without("Processes")
    machine.say("Processes * 0", f"Processes 5 {os.getpid()} 1048576", "ProcessInstance 5 7")
    machine.say(f"ProcessUtilization 5 {os.getpid()} 90 40 3 4")

    done = subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "gpu-processes"],
        env={**os.environ, "PYTHONPATH": str(AGENTS)},
        capture_output=True,
        timeout=LIMIT,
        check=True,
    )

    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["gpu"], row["pid"], row["bytes"]) == ("5", os.getpid(), 1 << 20)
    assert row["instance"] == 7
    assert row["use"] == {"sm": 90, "memory": 40, "encoder": 3, "decoder": 4}
    # Under xdist the words of this process are not those of pytest.
    assert row["command"].startswith(Path("/proc/self/cmdline").read_text().partition("\0")[0])
    assert row["user"]


@pytest.mark.long
def test_sample_shows_the_gpus_of_one_reading(machine):
    done = subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "sample", "--json"],
        env={**os.environ, "PYTHONPATH": str(AGENTS)},
        capture_output=True,
        timeout=LIMIT,
        check=True,
    )

    shape = json.loads(done.stdout)
    assert shape["values"]["gpu.ecc_corrected"]["7"] == 3
    assert shape["inventory"]["gpu.0.model"] == "NVIDIA H100 80GB HBM3"
    assert "gpu.used" not in shape["absent"]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["init *", "Handle 2", "Name 0", "ClockInfo 2"])
def test_a_driver_that_hangs_is_bad_in_one_reading_and_in_the_next(machine, where):
    machine.say(f"{where} hang")
    stuck = set()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "rankdeck_agent", "health", "--json"],
            env={**os.environ, "PYTHONPATH": str(AGENTS)},
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
        stuck.add(nvidia.left_behind())
        told = json.loads(done.stdout)
        states = {one["name"]: one["state"] for one in told["findings"]}

        assert done.returncode == 2, told["reasons"]
        assert ("gpu.driver", "bad") in {(r["check"], r["level"]) for r in told["reasons"]}
        assert states["gpu.present"] == states["gpu.ecc"] == "unknown"
    (pid,) = stuck
    os.kill(pid, 9)


@pytest.mark.parametrize("error", [2, 4, 10, 11])
def test_a_gpu_that_may_not_be_seen_is_not_lost(gpus, machine, error):
    machine.say(f"Handle 3 !{error}")

    reading = until(gpus, answered)
    sample = Sample(0, 2e9, reading.values, (), reading.failed)
    report = NodeJudge(Expected(), SeenDevices("b"), 10.0).judge(sample, (), {})

    assert reading.values["gpu.lost"]["3"] == 0
    assert len(reading.failed["gpu.used/3"]) > len("NVML: some error: "), "it says what to do"
    assert report.level == 1, "not known to be well"
    assert not [row for row in report.reasons if row[0] in ("gpu.lost", "gpu.count", "gpu.reset")]


@pytest.mark.parametrize(
    ("line", "metric"),
    [
        ("UtilizationRates 2 4294967295 4294967295", "gpu.used"),
        ("UtilizationRates 2 4294967295 7", "gpu.used"),
        ("PowerUsage 2 4294967295", "gpu.power"),
        ("Temperature 2 4294967295", "gpu.temp"),
        ("ClockInfo 2 4294967295 4294967295 4294967295", "gpu.clock"),
        ("CurrPcieLinkWidth 2 4294967295", "gpu.pcie_width"),
        ("EnforcedPowerLimit 2 4294967295", "gpu.power_limit"),
    ],
)
def test_what_stands_for_no_number_is_no_number(gpus, machine, line, metric):
    machine.say(line)

    reading = until(gpus, answered)

    assert "2" not in reading.values.get(metric, {})
    assert "no number" in reading.failed[f"{metric}/2"]


def test_driver_and_library_of_two_versions_say_what_to_do(gpus, machine):
    machine.say("init * !18")

    reading = until(gpus, lambda r: r.failed)

    assert "reload the driver's modules" in reading.failed["gpu.used"]


REAL = Path(__file__).parents[2] / "recorded" / "h200"
"""Recorded on an H200 with driver 580.159.04: the agent's sample and
what nvidia-smi printed, idle and busy.
"""
RECORDED = ("a100-sxm4-v12", "a10g", "tesla-t4", "quadro-p400", "gtx-1070-ti")


@pytest.mark.long
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_gpus_come_out_as_nvidia_smi_printed_them(gpus, machine, name):
    path = DATA / "nvidia-smi" / "testdata" / f"{name}.xml"
    if not path.is_file():
        pytest.skip(f"no recorded output of nvidia-smi: {path} is missing")
    card = ET.parse(path).getroot().findall("gpu")[0]
    machine.without(*(line.split()[0] for line in nvml.H100))
    machine.say(*recorded(card))

    reading = until(gpus, lambda r: "gpu.lost" in r.values)

    got = {m: d["0"] for m, d in reading.values.items() if "0" in d}
    for metric, (where, factor) in PRINTED.items():
        number = printed(card, where)
        if number is None:
            assert metric in reading.absent(gpus.metrics)
        else:
            assert got[metric] == pytest.approx(number * factor)
    assert reading.inventory["gpu.0.model"] == card.findtext("product_name")
    assert reading.failed == {}


@pytest.mark.parametrize("state", ["idle", "load"])
def test_what_the_agent_read_on_a_real_h200_is_what_nvidia_smi_said_beside_it(state):
    read = json.loads((REAL / f"{state}.json").read_text())
    card = ET.parse(REAL / f"{state}.xml").getroot().findall("gpu")[0]
    got = {metric: devices.get("0") for metric, devices in read["values"].items()}

    # The two did not look at the same moment.
    assert got["gpu.used"] == pytest.approx(printed(card, "utilization/gpu_util"), abs=2)
    assert got["gpu.temp"] == pytest.approx(printed(card, "temperature/gpu_temp"), abs=2)
    assert got["gpu.power"] == pytest.approx(
        printed(card, "gpu_power_readings/instant_power_draw"), rel=0.02
    )
    assert got["gpu.clock"] == printed(card, "clocks/sm_clock") * 1e6
    # nvidia-smi rounds up to whole MiB.
    used = printed(card, "fb_memory_usage/used") * 2**20
    assert got["gpu.mem_used"] == pytest.approx(used, abs=2**20)
    assert got["gpu.mem_total"] == printed(card, "fb_memory_usage/total") * 2**20
    assert read["inventory"]["gpu.0.model"] == card.findtext("product_name") == "NVIDIA H200"
    assert (read["failed"], got["gpu.lost"]) == ({}, 0)


@pytest.mark.parametrize("there", [1, 8])
def test_gpus_that_may_not_be_seen_are_not_well(machine, tmp_path, there):
    for n in range(there):
        (tmp_path / "proc/driver/nvidia/gpus" / f"0000:{n:02x}:00.0").mkdir(parents=True)
    machine.say("count * 0")
    gpus = GpuCollector(str(tmp_path))

    reading = until(gpus, lambda r: "gpu.driver" in r.inventory)
    gpus.close()

    assert "may it open /dev/nvidia0" in reading.failed["gpu.used"]
    assert "gpu.lost" in reading.failed
    assert reading.values["gpu.on_bus"] == {"": there}


PRINTED = {
    "gpu.used": ("utilization/gpu_util", 1),
    "gpu.mem_used": ("fb_memory_usage/used", 1 << 20),
    "gpu.temp": ("temperature/gpu_temp", 1),
    "gpu.power": ("power_readings/power_draw", 1),
    "gpu.clock": ("clocks/sm_clock", 1e6),
    "gpu.pcie_width_max": ("pci/pci_gpu_link_info/link_widths/max_link_width", 1),
}


def printed(card, where):
    text = (card.findtext(where) or "N/A").split()[0].rstrip("x")
    return None if text in ("N/A", "[N/A]") else float(text)


def recorded(card):
    """The lines that make the library say what nvidia-smi printed."""
    yield f"Name * {card.findtext('product_name')}"
    yield "driver * 1.0"
    used, total = (printed(card, f"fb_memory_usage/{x}") for x in ("used", "total"))
    if used is not None and total is not None:
        yield f"MemoryInfo * {used * 2**20:.0f} {total * 2**20:.0f}"
    clocks = [printed(card, f"clocks/{x}_clock") for x in ("graphics", "sm", "mem")]
    if None not in clocks:
        yield "ClockInfo * " + " ".join(f"{c:.0f}" for c in clocks)
    link = "pci/pci_gpu_link_info"
    rows = {
        "UtilizationRates": ("utilization/gpu_util", 1),
        "Temperature": ("temperature/gpu_temp", 1),
        "PowerUsage": ("power_readings/power_draw", 1000),
        "CurrPcieLinkGeneration": (f"{link}/pcie_gen/current_link_gen", 1),
        "MaxPcieLinkGeneration": (f"{link}/pcie_gen/max_link_gen", 1),
        "CurrPcieLinkWidth": (f"{link}/link_widths/current_link_width", 1),
        "MaxPcieLinkWidth": (f"{link}/link_widths/max_link_width", 1),
    }
    for function, (where, factor) in rows.items():
        number = printed(card, where)
        if number is not None:
            yield f"{function} * {number * factor:.0f}"


def test_each_metric_is_asked_by_one_question():
    asked = [metric for call in CALLS for metric in call.metrics]

    assert len(asked) == len(set(asked))
