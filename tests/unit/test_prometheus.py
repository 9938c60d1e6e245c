"""What export offers, read back by prometheus_client's own parsers."""

import asyncio
import gzip
import json
import math
import re
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rankdeck.model.cluster import Cluster, Node, Switch
from rankdeck.prometheus.exporter import Exporter
from rankdeck.prometheus.server import AT_ONCE, HEAD_LIMIT, ListenError, serve_metrics
from rankdeck.state.fleet import COUNTERS, Switches
from rankdeck_agent.wire import METRICS, Hello, Sample
from tests.support.judged_fleet import JudgedFleet
from tests.support.scrapes import whole

parser = pytest.importorskip(
    "prometheus_client.parser", reason="prometheus-client is not installed"
)
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
DASHBOARD = Path(__file__).resolve().parents[2] / "docs/grafana/rankdeck.json"
INVENTORY = {
    "arch": "x86_64",
    "kernel": "6.8.0",
    "gpu.driver": "570.1",
    "gpu.0.model": "NVIDIA A100",
    "gpu.0.uuid": "GPU-1234",
    "gpu.0.pci": "00000000:17:00.0",
    "gpu.1.model": "AMD Instinct MI250X",
    "rdma.mlx5_0/1.fw": "20.31.1014",
    "rdma.mlx5_0/1.type": "MT4123",
    "rdma.mlx5_0/1.board": "MT_0000000223",
}
GIB = 1 << 30


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Lab:
    """One node and its exporter."""

    def __init__(self, *, simulated=(), show=False, export=(), **node) -> None:
        switch = Switch(name="leaf1", ports={"Ethernet1": "n1:mlx5_0/1"})
        nodes = (Node(name="n1", **node),)
        cluster = Cluster(name="lab", nodes=nodes, switches=(switch,), export=export)
        self.switches = Switches(cluster)
        self.clock = Clock()
        self.fleet = JudgedFleet(cluster, self.clock)
        self.exporter = Exporter(cluster, self.fleet, switches=self.switches, simulated=show)
        hello = Hello("n1", True, 1.0, "b", "0.1.0", 1.0, INVENTORY, simulated)
        self.fleet.apply("n1", hello)
        self.seq = 0

    def hear(self, values, step=1.0, **more) -> None:
        self.seq += 1
        self.at = getattr(self, "at", 1e9) + step
        self.fleet.apply("n1", Sample(self.seq, self.at, values, **more))
        self.fleet.take_changes()

    def read(self):
        """Every sample: name -> [(labels, value)], the same by both parsers."""
        text = asyncio.run(whole(self.exporter))
        by_text = samples(parser.text_string_to_metric_families(text))
        newer = asyncio.run(whole(self.exporter, openmetrics=True))
        by_open = samples(openmetrics.text_string_to_metric_families(newer))
        assert by_text == by_open
        return by_text


def samples(families):
    found = {}
    for family in families:
        for sample in family.samples:
            assert math.isfinite(sample.value)
            # The parser puts it behind every counter, though no server does.
            dcgm = sample.name.startswith("DCGM_")
            name = sample.name.removesuffix("_total") if dcgm else sample.name
            found.setdefault(name, []).append((sample.labels, sample.value))
    return found


def value_of(found, name, **labels):
    """The one value of this name with these labels."""
    matching = [value for have, value in found.get(name, ()) if labels.items() <= have.items()]
    assert len(matching) == 1, (name, labels, found.get(name))
    return matching[0]


@pytest.mark.parametrize(
    ("metric", "device", "given", "name", "labels", "value"),
    [
        ("net.speed", "eth0", 25e9, "node_network_speed_bytes", {"device": "eth0"}, 3.125e9),
        ("net.rx", "eth0", 7, "node_network_receive_bytes_total", {"device": "eth0"}, 7),
        ("disk.free", "/", 5, "node_filesystem_avail_bytes", {"mountpoint": "/"}, 5),
        ("disk.read", "sda", 512, "node_disk_read_bytes_total", {"device": "sda"}, 512),
        ("mem.total", "", GIB, "node_memory_MemTotal_bytes", {}, GIB),
        ("mem.oom_kills", "", 3, "node_vmstat_oom_kill", {}, 3),
        ("cpu.iowait", "", 50, "rankdeck_cpu_iowait_ratio", {}, 0.5),
        ("rdma.rate", "mlx5_0/1", 100e9, "node_infiniband_rate_bytes_per_second", {"device": "mlx5_0", "port": "1"}, 12.5e9),
        ("rdma.up", "mlx5_0/1", 1, "node_infiniband_state_id", {"port": "1"}, 4),
        ("rdma.rx", "mlx5_0/1", 400, "node_infiniband_port_data_received_bytes_total", {}, 400),
        ("rdma.counters.port_xmit_wait", "mlx5_0/1", 9, "node_infiniband_port_transmit_wait_total", {"device": "mlx5_0"}, 9),
        ("rdma.counters.VL15_dropped", "mlx5_0/1", 2, "node_infiniband_vl15_dropped_total", {}, 2),
        ("rdma.hw_counters.local_ack_timeout_err", "mlx5_0/1", 1, "node_infiniband_local_ack_timeout_errors_total", {}, 1),
        ("rdma.hw_counters.Nak Sequence Error", "irdma0/1", 6, "node_infiniband_hw_nak_sequence_error_total", {"device": "irdma0"}, 6),
        ("rdma.hw_counters.active_qps", "bnxt_re0/1", 900, "node_infiniband_hw_active_qps", {"device": "bnxt_re0"}, 900),
        ("rdma.hw_counters.watermark_qps", "bnxt_re0/1", 990, "node_infiniband_hw_watermark_qps", {}, 990),
        ("rdma.counters_ext.port_rcv_packets_64", "mlx4_0/1", 5, "node_infiniband_hw_port_rcv_packets_64_total", {}, 5),
        ("rdma.hw_counters.lifespan", "mlx5_0/1", 10, "node_infiniband_lifespan_seconds", {}, 0.01),
        ("gpu.clock", "0", 1.98e9, "DCGM_FI_DEV_SM_CLOCK", {"gpu": "0", "UUID": "GPU-1234"}, 1980),
        ("gpu.energy", "0", 2, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", {"device": "nvidia0"}, 2000),
        ("gpu.mem_used", "0", GIB, "DCGM_FI_DEV_FB_USED", {"modelName": "NVIDIA A100", "Hostname": "n1"}, 1024),
        ("gpu.temp", "1", 50, "rankdeck_gpu_temp_celsius", {"gpu": "1", "modelName": "AMD Instinct MI250X"}, 50),
    ],
)  # fmt: skip
def test_a_metric_has_the_name_unit_and_labels_that_dashboards_know(
    metric, device, given, name, labels, value
) -> None:
    lab = Lab()
    lab.hear({metric: {device: given}})

    found = lab.read()

    everywhere = {"instance": "n1", "cluster": "lab"}
    assert value_of(found, name, **everywhere, **labels) == pytest.approx(value)


def test_every_metric_is_offered_and_in_base_units() -> None:
    lab = Lab()
    lab.hear({name: {"0": 1} for name in METRICS})

    names = {name for name in lab.read() if not name.startswith("rankdeck_node")}

    assert len(names) > len(METRICS)
    for name in names:
        assert not re.search(r"percent|_mb$|_ms$|_kb", name), name


def test_counters_are_counters_and_gauges_gauges() -> None:
    lab = Lab()
    lab.hear({name: {"0": 1} for name in METRICS})

    text = asyncio.run(whole(lab.exporter))

    for family in parser.text_string_to_metric_families(text):
        ours = family.name.startswith(("rankdeck_", "node_"))
        ends = all(s.name.endswith("_total") for s in family.samples)
        if ours and family.type == "counter":
            assert ends, family.name
        if family.type == "gauge":
            assert not ends or family.name.startswith("DCGM_"), family.name


def test_what_is_absent_has_no_series_and_what_failed_says_so() -> None:
    lab = Lab()
    lab.hear(
        {"cpu.load1": {"": 1}, "disk.used": {"/": 5}},
        absent=("gpu.used",),
        failed={"disk.used//nfs": "ESTALE", "cpu.temp": "EIO"},
    )

    found = lab.read()

    assert not [name for name in found if name.startswith("DCGM_")]
    assert value_of(found, "rankdeck_read_failed", metric="cpu.temp", device="") == 1
    assert "rankdeck_cpu_temp_celsius" not in found
    assert value_of(found, "node_filesystem_device_error", mountpoint="/") == 0
    assert value_of(found, "node_filesystem_device_error", mountpoint="/nfs") == 1


def test_a_silent_node_is_unknown_and_its_numbers_end() -> None:
    lab = Lab()
    lab.hear({"cpu.load1": {"": 1}})
    lab.clock.now += 60
    lab.fleet.take_changes()

    found = lab.read()

    assert value_of(found, "rankdeck_node_up") == 0
    assert value_of(found, "rankdeck_node_health") == 1
    assert value_of(found, "rankdeck_sample_age_seconds") == 60
    assert "node_load1" not in found


def test_a_check_that_fired_is_a_series_with_its_level() -> None:
    lab = Lab()
    lab.hear({"disk.used": {"/": 99.5}, "mem.available": {"": 1}})

    found = lab.read()

    assert value_of(found, "rankdeck_node_health") >= 2
    assert max(value for _, value in found["rankdeck_check"]) >= 2


def test_made_up_numbers_are_left_out_or_marked() -> None:
    values = {"gpu.used": {"0": 40}, "cpu.load1": {"": 1}}
    hidden, shown = Lab(simulated=("gpu",)), Lab(simulated=("gpu",), show=True)
    hidden.hear(values)
    shown.hear(values)

    assert "DCGM_FI_DEV_GPU_UTIL" not in hidden.read()
    found = shown.read()
    assert value_of(found, "DCGM_FI_DEV_GPU_UTIL", simulated="1") == 40
    assert "simulated" not in found["node_load1"][0][0]


def test_the_time_of_each_cpu_has_the_mode_as_a_label() -> None:
    lab = Lab()
    lab.hear(
        {
            "cpu.time_user": {"0": 12.5, "1": 0},
            "cpu.time_idle": {"0": 80, "1": 93.25},
            "cpu.time_guest": {"0": 3, "1": 0},
        }
    )

    found = lab.read()

    name = "node_cpu_seconds_total"
    assert value_of(found, name, cpu="0", mode="user") == 12.5
    assert value_of(found, name, cpu="1", mode="idle") == 93.25
    assert value_of(found, "node_cpu_guest_seconds_total", cpu="0", mode="user") == 3
    assert len(found[name]) == 4


def test_rows_of_the_kernels_tables_are_series_of_their_own() -> None:
    lab = Lab()
    lab.hear(
        {
            "mem.total": {"": 64 * GIB},
            # MemTotal is another metric already: of two equal series the first stays.
            "mem.row": {"MemFree": GIB, "Active(anon)": 2048, "HugePages_Free": 7, "MemTotal": 1},
            "mem.vmstat": {"pgpgin": 5, "oom_kill": 1},
            "net.stack": {"Tcp_RetransSegs": 9},
            "net.sockets": {"TCP_inuse": 3},
            "net.conntrack": {"entries_limit": 262144},
            "kernel.files": {"allocated": 1024},
            "kernel.entropy": {"available_bits": 256},
        }
    )

    found = lab.read()

    assert value_of(found, "node_memory_MemFree_bytes") == GIB
    assert value_of(found, "node_memory_Active_anon_bytes") == 2048
    assert value_of(found, "node_memory_HugePages_Free") == 7
    assert value_of(found, "node_memory_MemTotal_bytes") == 64 * GIB
    assert value_of(found, "node_vmstat_pgpgin") == 5
    assert value_of(found, "node_netstat_Tcp_RetransSegs") == 9
    assert value_of(found, "node_sockstat_TCP_inuse") == 3
    assert value_of(found, "node_nf_conntrack_entries_limit") == 262144
    assert value_of(found, "node_filefd_allocated") == 1024
    assert value_of(found, "node_entropy_available_bits") == 256


def test_a_file_system_has_its_kind_and_device_and_the_node_its_times() -> None:
    lab = Lab()
    more = {**INVENTORY, "mount./": "ext4 /dev/sda1", "boot.at": "999999000", "kernel.build": "#1"}
    lab.fleet.apply("n1", Hello("n1", True, 2.0, "b", "0.1.0", 1.0, more))
    lab.hear({"disk.free_all": {"/": 7}, "disk.used": {"/": 5}}, step=2e9)

    found = lab.read()

    root = {"mountpoint": "/", "fstype": "ext4", "device": "/dev/sda1"}
    assert value_of(found, "node_filesystem_free_bytes", **root) == 7
    assert value_of(found, "node_filesystem_device_error", **root) == 0
    assert value_of(found, "node_boot_time_seconds") == 999999000
    assert value_of(found, "node_time_seconds") == 3e9
    assert value_of(found, "node_uname_info", version="#1", release="6.8.0") == 1


@pytest.mark.parametrize(
    ("export", "there", "absent"),
    [
        (("gpu",), {"DCGM_FI_DEV_GPU_TEMP", "rankdeck_gpu_temp_celsius"}, {"node_load1", "rankdeck_node_health"}),
        (("node_load1", "health"), {"node_load1", "rankdeck_node_health"}, {"DCGM_FI_DEV_GPU_TEMP", "node_load5"}),
        (("meminfo", "DCGM_FI_DEV_GPU_TEMP"), {"node_memory_MemTotal_bytes", "DCGM_FI_DEV_GPU_TEMP"}, {"node_load1", "rankdeck_gpu_temp_celsius"}),
    ],
)  # fmt: skip
def test_the_cluster_file_may_choose_what_is_exported(export, there, absent) -> None:
    lab = Lab(export=export)
    lab.hear(
        {
            "gpu.temp": {"0": 40.0, "1": 50.0},
            "cpu.load1": {"": 1.0},
            "cpu.load5": {"": 1.0},
            "mem.total": {"": GIB},
        }
    )

    names = set(lab.read())

    assert "rankdeck_node_up" in names
    assert there <= names
    assert not absent & names


def test_lost_gpus_show_as_fewer_than_expected() -> None:
    lab = Lab(gpus=2)
    lab.hear({"gpu.mem_total": {"0": GIB}})

    found = lab.read()

    assert value_of(found, "rankdeck_devices_expected", kind="gpu") == 2
    assert value_of(found, "rankdeck_devices_present", kind="gpu") == 1


def test_hostile_names_stay_inside_their_quotes() -> None:
    lab = Lab()
    nasty = 'x"} 1\n# TYPE evil counter\nevil\\'
    lab.hear(
        {
            "net.rx": {nasty: 1, "a/b": 2},
            f"rdma.counters.{nasty}"[:60]: {"m/1": 1},
            "rdma.counters.a-b": {"m/1": 1},
            "rdma.counters.a.b": {"m/1": 2},
            "nonsense.metric": {"": 5},
        }
    )

    found = lab.read()

    assert "evil" not in found
    assert len(found["node_network_receive_bytes_total"]) == 2
    assert len(found["node_infiniband_hw_a_b_total"]) == 1
    assert not [name for name in found if "nonsense" in name]


def test_the_dashboard_asks_only_for_what_is_offered() -> None:
    lab = Lab()
    lab.hear({name: {"0": 1} for name in METRICS})
    lab.hear({name: {"0": 1} for name in METRICS}, failed={"x": "y"})
    for leaf in COUNTERS:
        lab.switches.apply("leaf1", "Ethernet1", True, {leaf: 1})
    text = asyncio.run(whole(lab.exporter))
    offered = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    board = json.loads(DASHBOARD.read_text())

    asked = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"\b(?:rankdeck|node|DCGM)_[A-Za-z0-9_]+", target["expr"])
    }

    assert len(asked) > 20
    assert asked <= offered
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


# ---- HTTP -------------------------------------------------------------------------------


async def nothing(_choice, *, openmetrics):
    yield "# EOF\n" if openmetrics else ""


@asynccontextmanager
async def served(write=None):
    async with serve_metrics("127.0.0.1", 0, write or Lab().exporter.text) as port:
        yield port


async def ask(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 15)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), joined(body) if b"chunked" in head else body


def joined(chunks):
    """The body that arrived in chunks; the last of them is empty."""
    body, length = b"", 0
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size, 16)
        body, chunks = body + rest[:length], rest[length + 2 :]
    assert length == 0
    return body


async def test_a_scrape_gets_text_or_openmetrics_as_it_asks() -> None:
    async with served() as port:
        head, body = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        accept = b"Accept: application/openmetrics-text;version=1.0.0,text/plain\r\n"
        open_head, open_body = await ask(port, b"GET /metrics HTTP/1.1\r\n" + accept + b"\r\n")

    assert head.startswith("HTTP/1.1 200 ")
    assert "text/plain; version=0.0.4" in head
    assert b"# TYPE rankdeck_node_up gauge\n" in body
    assert "application/openmetrics-text; version=1.0.0" in open_head
    assert open_body.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("collect", "there", "absent"),
    [
        ("", ["rankdeck_node_health", "node_load1", "DCGM_FI_DEV_GPU_TEMP"], []),
        ("collect[]=gpu", ["DCGM_FI_DEV_GPU_TEMP"], ["node_load1", "rankdeck_node_health"]),
        (
            "collect[]=loadavg&collect[]=health",
            ["node_load1", "rankdeck_node_health"],
            ["DCGM_FI_"],
        ),
        ("collect%5B%5D=meminfo", ["node_memory_MemTotal_bytes"], ["node_load1", "DCGM_FI_"]),
    ],
)
async def test_a_scrape_may_choose_what_it_collects(collect, there, absent) -> None:
    lab = Lab()
    lab.hear({"gpu.temp": {"0": 40.0}, "cpu.load1": {"": 1.0}, "mem.total": {"": 1 << 30}})
    async with served(lab.exporter.text) as port:
        _, body = await ask(port, f"GET /metrics?{collect} HTTP/1.1\r\n\r\n".encode())

    text = body.decode()
    assert "rankdeck_node_up" in text
    assert [name for name in there if name not in text] == []
    assert [name for name in absent if name in text] == []


async def test_what_cannot_be_collected_is_named_with_what_can() -> None:
    async with served() as port:
        head, body = await ask(port, b"GET /metrics?collect[]=bcache HTTP/1.1\r\n\r\n")

    assert " 400 " in head
    assert b"no collect[]='bcache'; there are: agent" in body


async def test_other_tasks_run_while_the_series_of_many_nodes_are_gathered(monkeypatch) -> None:
    monkeypatch.setattr("rankdeck.prometheus.exporter.AT_A_TIME", 0.0)
    nodes = tuple(Node(name=f"n{number}") for number in range(50))
    cluster = Cluster(name="lab", nodes=nodes)
    exporter, turns = Exporter(cluster, JudgedFleet(cluster, Clock())), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count())
        await whole(exporter)
        counting.cancel()

    assert turns >= len(nodes) - 1


async def test_a_packed_answer_unpacks_to_the_plain_one() -> None:
    async with served(nothing) as port:
        request = b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n"
        head, body = await ask(port, request + b"Accept: application/openmetrics-text\r\n\r\n")

    assert "Content-Encoding: gzip" in head
    assert gzip.decompress(body) == b"# EOF\n"


@pytest.mark.parametrize(
    ("accept", "newer"),
    [
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;version=2.0.0, text/plain;q=0.5", False),
        ("Application/OpenMetrics-Text; version=1.0.0", True),
        ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", False),
        ("bad;;q=x", False),
    ],
)  # fmt: skip
async def test_the_format_is_the_one_that_the_scraper_likes_most(accept, newer) -> None:
    async with served(nothing) as port:
        request = f"GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n"
        head, _ = await ask(port, request.encode())

    assert ("openmetrics" in head) is newer


@pytest.mark.parametrize(
    ("encoding", "packed"), [("gzip;q=0", False), ("GZIP", True), ("deflate, gzip;q=0.5", True)]
)
async def test_an_answer_is_packed_only_where_the_scraper_can_unpack_it(encoding, packed) -> None:
    async with served(nothing) as port:
        request = f"GET /metrics HTTP/1.1\r\nAccept-Encoding: {encoding}\r\n\r\n"
        head, _ = await ask(port, request.encode())

    assert ("Content-Encoding: gzip" in head) is packed


async def test_nothing_is_left_out_in_silence() -> None:
    async with served() as port:
        head, body = await ask(port, b"GET /metrics?exclude[]=gpu HTTP/1.1\r\n\r\n")

    assert " 400 " in head
    assert b"no exclude[] here" in body


async def test_fifty_scrapers_at_once_all_get_their_answer() -> None:
    async with served() as port:
        request = b"GET /metrics HTTP/1.1\r\n\r\n"
        answers = await asyncio.gather(*(ask(port, request) for _ in range(50)))

    assert {head.split()[1] for head, _ in answers} == {"200"}


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"POST /metrics HTTP/1.1", 405),
        (b"GET /etc/passwd HTTP/1.1", 404),
        (b"GET / HTTP/1.0", 200),
        (b"GET http://exporter:9464/metrics HTTP/1.1", 200),
        (b"HEAD /metrics HTTP/1.1", 200),
        (b"nonsense", 400),
        (b"\x16\x03\x01\x02", 400),
        (b"GET /" + b"x" * 2 * HEAD_LIMIT + b" HTTP/1.1", 400),
    ],
)
async def test_other_requests_get_a_plain_refusal(request_line, status) -> None:
    async with served() as port:
        head, body = await ask(port, request_line + b"\r\n\r\n")

    assert head.startswith(f"HTTP/1.1 {status} ")
    assert bool(body) != request_line.startswith(b"HEAD")


async def test_requests_that_never_end_keep_nobody_out() -> None:
    async with served() as port, AsyncExitStack() as stack:
        for _ in range(3 * AT_ONCE):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET /metrics HTTP/1.1\r\nX")
        head, _ = await asyncio.wait_for(ask(port, b"GET / HTTP/1.1\r\n\r\n"), 5)

    assert head.startswith("HTTP/1.1 200 ")


async def test_an_address_in_use_is_one_sentence() -> None:
    async with served() as port:
        with pytest.raises(
            ListenError, match=f"^cannot listen on 127.0.0.1:{port}: Address already in use$"
        ):
            async with serve_metrics("127.0.0.1", port, nothing):
                pass


def test_free_memory_leaves_out_what_is_reserved_as_nvidia_smi_does() -> None:
    lab = Lab()
    lab.hear(
        {
            "gpu.mem_total": {"0": 80 * GIB},
            "gpu.mem_used": {"0": 10 * GIB},
            "gpu.mem_reserved": {"0": GIB},
        }
    )

    found = lab.read()

    assert value_of(found, "DCGM_FI_DEV_FB_FREE", gpu="0") == 69 * 1024
    assert value_of(found, "DCGM_FI_DEV_FB_RESERVED", gpu="0") == 1024


def test_sensors_drives_and_memory_controllers_have_the_names_of_node_exporter() -> None:
    lab = Lab()
    more = {
        "nvme.nvme0.model": "Fast Disk", "nvme.nvme0.firmware": "1.2", "nvme.nvme0.serial": "S1",
        "nvme.nvme0.state": "live", "sensor.platform_coretemp_0.name": "coretemp",
    }  # fmt: skip
    lab.fleet.apply("n1", Hello("n1", True, 2.0, "b", "0.1.0", 1.0, {**INVENTORY, **more}))
    lab.hear(
        {
            "nvme.live": {"nvme0": 1},
            "nvme.worn": {"nvme0": 3},
            "edac.mc_ce": {"mc1": 7},
            "edac.mc_ue": {"mc1": 0},
            "edac.row_ce": {"mc1/csrow2": 6, "mc1/unknown": 1},
            "sensor.temp": {"platform_coretemp_0/temp1": 71.0},
            "sensor.fan": {"platform_coretemp_0/fan1": 2400},
            "net.prio_frames": {"eth0/3": 5},
        }
    )

    found = lab.read()

    assert value_of(found, "node_nvme_info", device="nvme0", model="Fast Disk", firmware_revision="1.2",
                    serial="S1", state="live") == 1  # fmt: skip
    assert value_of(found, "rankdeck_nvme_worn_ratio", device="nvme0") == 0.03
    assert value_of(found, "node_edac_correctable_errors_total", controller="1") == 7
    assert value_of(found, "node_edac_uncorrectable_errors_total", controller="1") == 0
    rows = "node_edac_csrow_correctable_errors_total"
    assert value_of(found, rows, controller="1", csrow="2") == 6
    assert value_of(found, rows, controller="1", csrow="unknown") == 1
    where = {"chip": "platform_coretemp_0"}
    assert value_of(found, "node_hwmon_temp_celsius", **where, sensor="temp1") == 71.0
    assert value_of(found, "node_hwmon_fan_rpm", **where, sensor="fan1") == 2400
    assert value_of(found, "node_hwmon_chip_names", **where, chip_name="coretemp") == 1
    assert value_of(found, "rankdeck_net_prio_frames_total", device="eth0", priority="3") == 5


DCGM_DEFAULTS = """
SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER GPU_UTIL MEM_COPY_UTIL
ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED NVLINK_BANDWIDTH_TOTAL VGPU_LICENSE_STATUS
UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE
PROF_GR_ENGINE_ACTIVE PROF_PIPE_TENSOR_ACTIVE PROF_DRAM_ACTIVE PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES
"""
"""dcgm-exporter, etc/default-counters.csv."""


def test_every_default_field_of_dcgm_exporter_has_an_answer() -> None:
    lab = Lab()
    values = {name: {"0": 1.0} for name in METRICS if name.startswith("gpu.")}
    lab.hear(values)
    full = lab.read()
    absent = (
        "gpu.active",
        "gpu.tensor_active",
        "gpu.dram_active",
        "gpu.pcie_tx",
        "gpu.pcie_rx",
        "gpu.nvlink_tx",
    )
    old = Lab()
    old.hear({m: v for m, v in values.items() if m not in absent}, absent=absent)
    before = old.read()

    fields = [name if name.startswith("PROF_") else f"DEV_{name}" for name in DCGM_DEFAULTS.split()]
    assert len(fields) == 25
    for found in (full, before):
        said = {have["field"]: have["why"] for have, _ in found["rankdeck_dcgm_not_read"]}
        for name in (f"DCGM_FI_{field}" for field in fields):
            assert (name in found) != (name in said), name
    assert {
        have["why"] for have, _ in before["rankdeck_dcgm_not_read"] if "PROF" in have["field"]
    } == {"needs DCGM: not read here"}
    assert value_of(full, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", gpu="0") == 2e-6


async def test_an_older_client_gets_the_text_without_chunks() -> None:
    async with served() as port:
        head, body = await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")

    assert "chunked" not in head
    assert "Content-Length" not in head
    assert b"\nrankdeck_node_up{" in body
    assert body.endswith(b"\n")


async def test_a_client_that_goes_away_ends_what_is_written_for_it() -> None:
    ended = asyncio.Event()

    async def endless(_choice, *, openmetrics):
        assert not openmetrics
        try:
            while True:
                yield "x" * 100_000
                await asyncio.sleep(0)
        finally:
            ended.set()

    async with served(endless) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await reader.readexactly(1_000_000)
        writer.transport.abort()
        await asyncio.wait_for(ended.wait(), 15)


async def test_a_new_hello_makes_new_labels() -> None:
    lab = Lab()
    lab.hear({"cpu.load1": {"": 1.0}})
    await whole(lab.exporter)
    lab.hear({"gpu.temp": {"0": 40.0}, "cpu.load1": {"": 2.0}})
    # A new hello may name other models and addresses: labels are made again.
    lab.fleet.apply("n1", Hello("n1", True, 3.0, "b", "0.1.0", 1.0, {"gpu.0.model": "AMD X"}))
    text = await whole(lab.exporter)

    assert "DCGM_FI_DEV_GPU_TEMP" not in text
    assert 'rankdeck_gpu_temp_celsius{instance="n1",cluster="lab",gpu="0",modelName="AMD X"' in text
