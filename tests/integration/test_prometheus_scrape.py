"""A real Prometheus scrapes a real `rankdeck export` of the demo cluster."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.ports import free_port

from rankdeck.config.clusters import read_cluster
from rankdeck.demo import cluster
from rankdeck.errors import MetricsError
from rankdeck.model.cluster import Metrics
from rankdeck.model.health import Times
from rankdeck.prometheus.site_past import past_numbers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed"),
]
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 90.0
DASHBOARD = ROOT / "docs/grafana/rankdeck.json"
ONLY_IF = r"age_seconds|_check|read_failed|ECC_DBE|state_id|switch_port|pressure"
"""In queries that find nothing on a well cluster without a switch, or on kernels without PSI."""
NODES = {"sakuya", "sakura", "koishi"}
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: rankdeck
    honor_labels: true
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture
def demo(own_folders):
    try:
        yield cluster.start_demo()
    finally:
        cluster.stop_demo()


@contextmanager
def exporting(file):
    path = os.pathsep.join((str(ROOT / "console"), str(ROOT / "agents")))
    command = [sys.executable, "-m", "rankdeck", "-c", str(file), "export"]
    process = subprocess.Popen(
        [*command, "--simulated", "--listen", "127.0.0.1:0"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait(LIMIT)


@contextmanager
def prometheus(folder, target):
    port = free_port()
    (folder / "prometheus.yml").write_text(CONFIG.format(target=target))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(LIMIT)


def query(port, expression):
    """The result of an instant query; empty while the server starts."""
    text = urllib.parse.urlencode({"query": expression})
    url = f"http://127.0.0.1:{port}/api/v1/query?{text}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]["result"]
    except OSError:
        return []


def panel_queries():
    """What the panels and variables of the dashboard for Grafana ask, as it would put it."""
    board = json.loads(DASHBOARD.read_text())
    asked = [t["expr"] for panel in board["panels"] for t in panel.get("targets", ())]
    lists = [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    asked += [one.removeprefix("label_values(").rpartition(",")[0] for one in lists]
    filled = {"$__rate_interval": "20s", "$cluster": ".*", "$instance": ".*"}
    for variable, value in filled.items():
        asked = [text.replace(variable, value) for text in asked]
    return dict.fromkeys(asked)


def query_panel(port, expression):
    """The result of a query; None if the server does not understand it."""
    text = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{text}", timeout=10) as done:
        found = json.load(done)
    return found["data"]["result"] if found["status"] == "success" else None


def until(ask, true):
    end = time.monotonic() + LIMIT
    while not true(result := ask()):
        assert time.monotonic() < end, result
        time.sleep(0.5)
    return result


def test_prometheus_takes_in_every_node_with_its_own_name(demo, tmp_path) -> None:
    with exporting(demo) as (process, url):
        target = url.removeprefix("http://").removesuffix("/metrics")
        with prometheus(tmp_path, target) as port:
            loads = until(lambda: query(port, "node_load1"), lambda found: len(found) == 3)
            # Counters are counters to it: two scrapes make a rate.
            received = until(
                lambda: query(port, "sum(rate(node_cpu_seconds_total[20s])) by (instance)"),
                lambda found: len(found) == 3 and all(float(s["value"][1]) > 0 for s in found),
            )
            gpus = query(port, 'DCGM_FI_DEV_GPU_UTIL{simulated="1"}')
            drawn = {asked: query_panel(port, asked) for asked in panel_queries()}
            wellbeing = query(port, 'up{job="rankdeck"}')
        process.send_signal(signal.SIGTERM)
        code = process.wait(LIMIT)

    assert {series["metric"]["instance"] for series in loads} == NODES
    assert {series["metric"]["instance"] for series in received} == NODES
    assert len(gpus) == 12
    # Shown at once on a dashboard of simulated GPUs and RDMA: all but what is wrong on a node.
    empty = {asked for asked, found in drawn.items() if not found}
    assert len(drawn) > 25
    assert all(found is not None for found in drawn.values()), drawn
    assert {asked for asked in empty if not re.search(ONLY_IF, asked)} == set()
    assert [series["value"][1] for series in wellbeing] == ["1"]
    assert code == 0


async def past(port, nodes, times):
    server = Metrics(host="127.0.0.1", port=port, interval=2)
    try:
        return (await past_numbers(server, nodes, times)).series
    except MetricsError:
        return {}


@pytest.mark.left_out
async def test_what_prometheus_took_in_comes_back_as_the_past_of_each_node(demo, tmp_path) -> None:
    nodes = read_cluster(demo).nodes
    begin = time.time()
    times = Times(begin - 60, 2.0, 60)
    with exporting(demo) as (process, url):
        target = url.removeprefix("http://").removesuffix("/metrics")
        with prometheus(tmp_path, target) as port:
            series = await wanted(lambda: past(port, nodes, times), lambda found: len(found) >= 24)
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT)
            stopped = time.time()
            times = Times(begin - 60, 2.0, int(stopped - begin + 90) // 2)
            series = await past(port, nodes, times)

    assert {node for node, _ in series} == NODES
    for node in NODES:
        load, gpus = series[node, "cpu.load1"], series[node, "gpu.used"]
        assert load.source == "node_exporter, job rankdeck"
        assert not load.simulated
        assert gpus.simulated
        assert 0 <= max(v for v in gpus.values if v is not None) <= 100
        assert 0 < max(v for v in series[node, "mem.used"].values if v is not None) < 100
        # Before the first scrape, and after the last, nothing is known: no zero.
        assert load.values[:29] == (None,) * 29
        assert load.values[-5:] == (None,) * 5


async def wanted(ask, true):
    end = time.monotonic() + LIMIT
    while not true(result := await ask()):
        assert time.monotonic() < end, list(result)
        await asyncio.sleep(0.5)
    return result
