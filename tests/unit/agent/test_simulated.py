"""Made-up numbers, well and sick."""

import pytest

from rankdeck.config.clusters import SIMULATED as OFFERED
from rankdeck_agent.collectors import make_collectors
from rankdeck_agent.config import AgentConfigError, from_mapping
from rankdeck_agent.telemetry import make_hello
from rankdeck_agent.wire import METRICS
from rankdeck_simulator.devices import (
    FAULTS,
    SIMULATED,
    SimulatedGpus,
    SimulatedHost,
    SimulatedRdma,
    choose_simulations,
)


def after(made, seconds=120):
    """The last of as many readings."""
    for at in range(seconds):
        reading = made.collect(float(at))
    return reading


@pytest.mark.parametrize(
    ("fault", "metric", "sick"),
    [
        ("hot", "gpu.margin", lambda v: v < 0),
        ("hot", "gpu.throttle_thermal", lambda v: v > 100),
        ("ecc", "gpu.ecc_uncorrected", lambda v: v == 2),
        ("ecc", "gpu.recovery", lambda v: v == 1),
        ("lost", "gpu.lost", lambda v: v == 1),
        ("xid79", "gpu.lost", lambda v: v == 1),
        ("nvlink", "gpu.nvlinks_active", lambda v: v < 18),
        ("pcie", "gpu.pcie_width", lambda v: v < 16),
    ],
)
def test_a_sick_gpu_shows_it_and_its_neighbours_do_not(fault, metric, sick):
    values = after(SimulatedGpus("n1", (fault,))).values[metric]

    assert {device for device, value in values.items() if sick(value)} == {"1"}


@pytest.mark.parametrize(
    ("make", "metric"), [(SimulatedGpus, "gpu.temp"), (SimulatedHost, "cpu.used")]
)
def test_the_load_of_a_node_that_nobody_looks_at_stands_still_until_it_is_another(make, metric):
    made = make("n1")
    made.pace = 0.0
    first, second, third = (made.collect(at).values[metric] for at in (0.0, 10.0, 40.0))
    made.skip(100.0)
    fourth, fifth = (made.collect(at).values[metric] for at in (50.0, 60.0))

    assert first == second == third
    assert third != fourth == fifth


def test_the_traffic_of_a_port_that_nobody_looks_at_is_even():
    made = SimulatedRdma("n3")
    made.pace = 0.0
    counts = [made.collect(float(at)).values["rdma.rx"]["mlx5_0/1"] for at in (0, 10, 20, 30)]

    assert counts[3] - counts[2] == counts[2] - counts[1] == counts[1] - counts[0] > 0


def test_a_lost_gpu_has_no_numbers_but_an_error():
    reading = after(SimulatedGpus("n1", ("lost",)))

    assert set(reading.values["gpu.temp"]) == {"0", "2", "3"}
    assert reading.failed["gpu.temp/1"] == "NVML: GPU is lost"


def test_the_kernel_tells_of_xid_79_once():
    made = SimulatedGpus("n1", ("xid79",))

    first, second = made.collect(0.0), made.collect(1.0)

    (event,) = first.events
    assert event.level == "bad"
    assert "79" in event.text
    assert second.events == []


def test_a_driver_that_hangs_fails_every_number_but_the_waiting():
    reading = after(SimulatedGpus("n1", ("hang",)), 30)

    assert reading.values == {"gpu.answer": {"": 29.0}}
    assert "did not answer in 29 s" in reading.failed["gpu.used"]


@pytest.mark.parametrize(
    ("fault", "metric", "least"),
    [
        ("retx", "rdma.retx", 1000),
        ("retx", "rdma.timeouts", 100),
        ("errors", "rdma.phys_errors", 1000),
        ("flap", "rdma.link_downs", 2),
    ],
)
def test_a_sick_port_counts_and_the_other_does_not(fault, metric, least):
    values = after(SimulatedRdma("n1", (fault,))).values[metric]

    assert values["mlx5_1/1"] >= least > values["mlx5_0/1"]


def test_a_port_that_is_down_moves_no_bytes():
    first, last = (after(SimulatedRdma("n1", ("down",)), n).values for n in (1, 260))

    assert last["rdma.up"] == {"mlx5_0/1": 1, "mlx5_1/1": 0}
    assert last["rdma.rx"]["mlx5_1/1"] == first["rdma.rx"]["mlx5_1/1"]
    assert last["rdma.rx"]["mlx5_0/1"] > first["rdma.rx"]["mlx5_0/1"]


def test_a_fault_may_be_for_one_node_only():
    entries = ("gpu", "gpu:hot@n2", "rdma:flap@n2", "rdma:retx@n2")

    assert choose_simulations(entries, "n1") == {"gpu": ()}
    assert choose_simulations(entries, "n2") == {"gpu": ("hot",), "rdma": ("flap", "retx")}
    made = {c.name: c for c in make_collectors("/", entries, "n1")}
    assert isinstance(made["gpu"], SimulatedGpus)
    assert not isinstance(made["rdma"], SimulatedRdma)


def test_a_node_announces_only_what_is_made_up_on_it():
    given = {"cluster": "c", "host": "h", "simulate": ["gpu", "rdma:down@other"]}

    assert make_hello(from_mapping({**given, "node": "n1"})).simulated == ("gpu",)
    assert make_hello(from_mapping({**given, "node": "other"})).simulated == ("gpu", "rdma")


@pytest.mark.parametrize("entry", ["gpu:", "gpu:cold", "disk", "rdma:hot", "gpu:hot:x"])
def test_a_fault_that_is_none_is_refused_with_those_there_are(entry):
    with pytest.raises(AgentConfigError, match=r"only .*(hot|rdma|flap)"):
        from_mapping({"cluster": "c", "host": "h", "simulate": [entry]})


def test_the_cluster_file_offers_what_the_agent_can_do():
    able = {f"{what}:{fault}" for what in FAULTS for fault in FAULTS[what]}

    assert set(OFFERED) == {*SIMULATED, *able}


@pytest.mark.parametrize("what", SIMULATED)
def test_everything_made_up_is_a_row_of_the_table(what):
    assert set(SIMULATED[what].metrics) <= set(METRICS)
