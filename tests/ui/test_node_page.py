"""The page of a node: every device keeps its line, and what is wrong stands beside it."""

import errno
import re

import pytest

from rankdeck.cli import health, status
from rankdeck.model.cluster import Cluster, Metrics, Node
from rankdeck.model.health import PastNumbers, PastSeries, PastView, Times, with_device
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.node_page import finding_lines, shrink_values
from rankdeck.ui.themes import UNICODE
from rankdeck.values import replace
from rankdeck_agent.collectors.kernel_log import LOG_CLOSED
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import Hello, Sample
from rankdeck_simulator.devices import SimulatedGpus, SimulatedRdma
from tests.ui.support.stage import Stage
from tests.ui.test_screens import console, shows, text_of, until


def machine(*, gpu: str = "", rdma: str = "", seconds: int = 40) -> Stage:
    """A node with four GPUs and two ports, sick in these ways for so
    long; its clock then stands still.
    """
    at = 1000.0
    cluster = Cluster(name="lab", nodes=(Node(name="gpu01", gpus=4, rdma=2),))
    stage = Stage(cluster, clock=lambda: at)
    gpus = SimulatedGpus("x", [gpu] if gpu else [])
    ports = SimulatedRdma("x", [rdma] if rdma else [])
    for second in range(seconds):
        at = 1000.0 + second
        one, two = gpus.collect(at), ports.collect(at)
        if not second:
            made_of = {"cpu.model": "EPYC", **one.inventory, **two.inventory}
            stage.fleet.apply("gpu01", Hello("gpu01", True, at, "b", "0", 600.0, made_of))
        values = {"cpu.core_used": {"0": 4.0, "1": 9.0}, **one.values, **two.values}
        failed = {**one.failed, **two.failed}
        stage.fleet.apply("gpu01", Sample(second + 1, at, values, (), failed))
        stage.fleet.take_changes()
    return stage


def row(app: RankdeckApp, name: str) -> str:
    lines = text_of(app).splitlines()
    return next(line for line in lines if re.match(rf"   \S {re.escape(name)} ", line))


async def test_a_lost_gpu_keeps_its_line_and_the_errors_are_one() -> None:
    async with console(machine(gpu="xid79"), (120, 60)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "4 × Simulated GPU")
        assert "✗ 1" in row(app, "1")
        assert row(app, "1").rstrip().endswith("lost")
        assert "● 2" in row(app, "2")
        await shows(app, pilot, "cannot read GPU 1 (gpu.used/1 and")
        page = text_of(app)

    assert page.count("NVML: GPU is lost") == 2


@pytest.mark.long
async def test_a_gpu_that_the_driver_numbers_anew_keeps_its_own_number() -> None:
    stage = machine()
    moved = {"gpu.2.index": "1", "gpu.3.index": "2", "gpu.0.index": "0"}
    at = stage.fleet.node("gpu01").hello.at
    stage.fleet.apply("gpu01", Hello("gpu01", True, at, "b", "0", 600.0, moved))
    async with console(stage, (160, 50)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "2 now 1")
        await shows(app, pilot, "3 now 2")
        assert "0 now" not in text_of(app)


@pytest.mark.long
async def test_a_gpu_says_what_is_wrong_beside_its_numbers() -> None:
    async with console(machine(gpu="ecc"), (160, 50)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "18/18")
        sick = row(app, "1")
        well = row(app, "0")

    assert "2 uncorrected memory errors" in sick
    assert "✗" in sick
    assert "18/18" in well
    assert "✗" not in well


async def test_one_hot_gpu_is_one_reason_with_what_follows_from_it() -> None:
    stage = machine(gpu="hot", seconds=90)
    async with console(stage, (120, 50)) as (app, pilot):
        await shows(app, pilot, "GPU 1 at 93 °C")
        listed = next(line for line in text_of(app).splitlines() if "✗ bad" in line)
        await pilot.press("enter")
        await shows(app, pilot, "4 × Simulated GPU")
        page = text_of(app).splitlines()
        sick = row(app, "1")

    checks = {reason.check for reason in stage.fleet.node("gpu01").health.reasons}
    assert {"gpu.temp", "gpu.margin", "gpu.mem_temp", "gpu.slowdown"} <= checks
    assert "  GPU 1 at 93 °C · check fans" in listed
    assert sum(line.startswith((" ✗ bad", " ▲ warn")) for line in page) == 1
    assert sum(line.startswith("           so    ") for line in page) == len(checks) - 1
    assert sick.endswith("at 93 °C")


def test_the_command_puts_what_follows_under_the_cause(capsys) -> None:
    stage = machine(gpu="hot", seconds=90)
    health._say(stage.cluster, stage.fleet.nodes(), health.Verdict(Level.BAD))
    _, _, cause, *others = capsys.readouterr().out.splitlines()

    assert cause.startswith("  bad     gpu.temp 1: GPU 1 at 93 °C")
    assert [line[:7] for line in others] == ["    so "] * 3


@pytest.mark.parametrize("gpu", ["hot", ""])
async def test_both_columns_of_a_wide_page_fill_and_cut_nothing_beside_empty_rows(gpu: str) -> None:
    async with console(machine(gpu=gpu, rdma="flap", seconds=90), (200, 50)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "─ GPU POWER ─")
        rows = text_of(app).splitlines()
        first = next(at for at, line in enumerate(rows) if "─ GPU POWER ─" in line)
        left = [line[:99].rstrip() for line in rows[first:-1]]
        right = [line[99:].rstrip() for line in rows[first:-1]]

    assert sum(map(bool, left)) > 0.7 * len(left)
    assert sum(map(bool, right)) > 0.8 * len(right)
    assert not [line for line in left if line.endswith("…")]
    assert "GPU 0: uncorrected ECC errors 0 (bad ≥" in " ".join(right)


async def test_evidence_of_a_check_that_found_nothing_is_cut_only_where_rows_are_short() -> None:
    node = machine(seconds=60).fleet.node("gpu01")
    whole, cut = (
        ["".join(text for text, _ in line) for line in finding_lines(node, (100, rows), UNICODE)]
        for rows in (200, 30)
    )

    assert not [line for line in whole if "…" in line]
    assert [line for line in cut if "…" in line]
    assert len(cut) <= 30


async def test_traffic_is_drawn_up_to_the_speed_of_the_link_in_its_unit() -> None:
    stage = Stage(Cluster(name="lab", nodes=(Node(name="n1"),)))
    stage.fleet.apply("n1", Hello("n1", True, 1000.0, "b", "0", 600.0))
    for second in range(20):
        sent = second * 1.25e9
        links = {"net.up": {"eth0": 1}, "net.speed": {"eth0": 20e9}, "net.rx": {"eth0": sent}}
        values = {"cpu.used": {"": 9.0}, **links, "net.tx": {"eth0": sent / 1000}}
        stage.fleet.apply("n1", Sample(second + 1, 1000.0 + second, values))
    async with console(stage, (120, 50)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "20 Gb/s")
        line = row(app, "eth0")

    received, sent = re.findall(r"[rt]x ([ ⠁-⣿]+)", line)
    assert set(received.strip()) == {"⣶", "⢰"}
    assert set(sent.strip()) == {"⣀", "⢀"}
    assert "10Gb/s" in line
    assert "B/s" not in line


async def test_each_gpu_has_its_past_as_the_cpu_has() -> None:
    async with console(machine(), (120, 50)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "4 × Simulated GPU")
        past = re.findall(r"[⠁-⣿]+", row(app, "2"))

    assert len(past[0]) >= 10


async def test_a_port_that_is_down_says_so_with_its_counters() -> None:
    async with console(machine(rdma="down"), (120, 50)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, " down ")
        sick = row(app, "mlx5_1/1")

    assert "✗" in sick
    assert "downs 1" in sick


async def test_an_interface_that_nobody_needs_may_be_down() -> None:
    stage = Stage(Cluster(name="pis", nodes=(Node(name="pi1"),)))
    stage.fleet.apply("pi1", Hello("pi1", True, 1000.0, "b", "0", 600.0))
    links = {"net.up": {"eth0": 1, "wlan0": 0}, "net.rx": {"eth0": 9, "wlan0": 0}}
    stage.fleet.apply("pi1", Sample(1, 1000.0, {"cpu.used": {"": 9.0}, **links}))
    async with console(stage, (80, 40)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "wlan0")
        assert "· wlan0" in row(app, "wlan0")
        assert "down" in row(app, "wlan0")
        assert "● eth0" in row(app, "eth0")


async def test_a_node_that_was_never_heard_shows_no_empty_gauges() -> None:
    stage = Stage(Cluster(name="lab", nodes=(Node(name="n01"),)))
    stage.fleet.troubled("n01", "cannot reach 10.0.0.1:22")
    async with console(stage, (100, 30)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "cannot reach 10.0.0.1:22")
        await shows(app, pilot, "tries again by itself")
        assert "Memory" not in text_of(app)


async def test_a_kernel_log_that_may_not_be_read_is_said_whole_and_is_no_reason() -> None:
    stage = machine()
    why = LOG_CLOSED[errno.EPERM]
    values = {"cpu.core_used": {"0": 4.0}}
    sample = Sample(41, 1040.0, values, (), {"kernel.events": why}, blind=("kernel.events",))
    stage.fleet.apply("gpu01", sample)
    async with console(stage, (120, 60)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, why)
        page = text_of(app)

    assert "cannot read" not in page
    assert "kernel.events" in page


# ---- hours and days from the site's Prometheus


def with_site(*, trouble: str = "", series=(), warning: str = "") -> Stage:
    stage = machine()
    stage.cluster = replace(stage.cluster, metrics=Metrics(host="prom", port=9090))
    times = Times(1_000_000.0, 180.0, 120)
    found = {("gpu01", metric): one for metric, one in series}
    numbers = PastNumbers(times, found, warning) if series or warning else None
    stage.past_view = PastView(6.0, "prom:9090", numbers, trouble)
    return stage


def line_of(app: RankdeckApp, word: str) -> str:
    return next(line for line in text_of(app).splitlines() if word in line)


@pytest.mark.long
async def test_hours_are_drawn_with_their_source_and_gaps_stay_gaps() -> None:
    values = (*[10.0] * 50, *[None] * 20, *[100.0] * 49, 95.0)
    ours = PastSeries(values, "rankdeck, job deck")
    theirs = PastSeries((5.0,) * 120, "dcgm-exporter, job gpus", simulated=True)
    stage = with_site(series=(("cpu.used", ours), ("gpu.used", theirs)))
    async with console(stage, (200, 90)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "The last 6 hours")
        await shows(app, pilot, "from prom:9090")
        cpu = line_of(app, "most 100%")
        page = text_of(app)

    assert re.search(r"CPU +95%  [^ ]{25} {10}[^ ]{25}  most 100%", cpu)
    assert "CPU: series of rankdeck, job deck" in page
    assert "GPU: series of dcgm-exporter, job gpus, SIMULATED" in page


async def test_a_narrow_chart_has_the_highest_of_neighbours_and_the_whole_time() -> None:
    values = (*[0.0] * 119, 80.0)
    stage = with_site(series=(("cpu.used", PastSeries(values, "rankdeck")),))
    async with console(stage, (80, 90)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "The last 6 hours")
        await shows(app, pilot, "most 80%")

    assert shrink_values(values, 40)[-1] == 80.0
    assert len(shrink_values(values, 40)) == 40
    assert shrink_values((None, None, 1.0, None), 2) == [None, 1.0]


async def test_a_site_that_does_not_answer_is_one_sentence_on_the_page() -> None:
    stage = with_site(trouble="prom:9090 does not answer within 10 s")
    async with console(stage, (120, 90)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "prom:9090 does not answer within 10 s")
        page = text_of(app)

    assert "awaited" not in page
    assert "Network" in page or "Processor" in page


async def test_a_site_that_does_not_know_the_node_says_where_to_look() -> None:
    async with console(with_site(warning="a store is down"), (120, 90)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "no numbers of this node then")
        await shows(app, pilot, "a store is down")


async def test_h_looks_further_back_and_a_moment_is_looked_back_from() -> None:
    stage = with_site()
    async with console(stage, (120, 90)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "waiting for the answer")
        await pilot.press("H")
        await until(
            pilot, lambda: ("gpu01", 24.0, None) in stage.looked_back, "a day was not asked for"
        )
        await pilot.press("P")
        await until(pilot, lambda: stage.looked_back[-1][2] is not None, "no moment was asked for")

    assert stage.looked_back[-1][:2] == ("gpu01", 24.0)


async def test_without_a_site_h_says_how_to_have_one() -> None:
    async with console(machine(), (120, 90)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "Processor")
        await pilot.press("H")
        await shows(app, pilot, "metrics: {url: …}")
        page = text_of(app)

    assert "The last 6 hours" not in page


async def test_raid_arrays_have_a_line_with_their_disks_and_what_goes_on() -> None:
    stage = machine(seconds=2)
    values = {
        "md.failed": {"md0": 0, "md1": 0, "md2": 1},
        "md.disks": {"md0": 2, "md1": 4, "md2": 2},
        "md.degraded": {"md0": 0, "md1": 1, "md2": 2},
        "md.rebuilt": {"md1": 37.5},
    }
    stage.fleet.apply("gpu01", Sample(9, 1002.0, values))
    stage.fleet.take_changes()
    async with console(stage, (120, 90)) as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "RAID arrays")
        page = text_of(app)

    lines = {line.split()[0]: line for line in page.splitlines() if line.strip().startswith("md")}
    assert "2 of 2 disks" in lines["md0"]
    assert "38% rebuilt" in lines["md1"]
    assert "3 of 4 disks" in lines["md1"]
    assert "0 of 2 disks, does not work" in lines["md2"]
    (shape,) = [status.state_shape(node) for node in stage.fleet.nodes()]
    assert shape["values"]["md.degraded"]["md1"] == 1


def test_an_event_of_a_gpu_names_the_gpu_not_only_its_number() -> None:
    assert with_device("0", "Xid 63 · reset", "kernel.xid") == "GPU 0: Xid 63 · reset"
    assert with_device("1", "GPU 1 at 93 °C", "gpu.temp") == "GPU 1 at 93 °C"
    assert with_device("/data", "96% used", "disk.full") == "/data: 96% used"
