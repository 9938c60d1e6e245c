"""The agent at 1 Hz, collectd, glances and node_exporter, all at the same time."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from tests.support.ports import free_port, wait_for_port
from tests.support.processes import children, descendants
from tests.support.programs import search_path

from benchmarks import machine
from benchmarks.measure import (
    ROOT,
    cpu_of,
    machine_factor,
    must_live,
    resident_of,
    running,
    scraped,
)
from benchmarks.result import MissingError, Result

SETTLE = 3.0
SECONDS = 20.0
FETCHING = 600.0
COLLECTD = """Interval 1
PIDFile "{folder}/pid"
BaseDir "{folder}"
PluginDir "{root}/usr/lib/collectd"
TypesDB "{root}/usr/share/collectd/types.db"
LoadPlugin cpu
LoadPlugin cpufreq
LoadPlugin memory
LoadPlugin swap
LoadPlugin vmem
LoadPlugin load
LoadPlugin interface
LoadPlugin disk
<LoadPlugin df>
  Interval 5
</LoadPlugin>
<LoadPlugin thermal>
  Interval 30
</LoadPlugin>
<LoadPlugin processes>
  Interval 60
</LoadPlugin>
LoadPlugin mqtt
<Plugin mqtt>
  <Publish "bench">
    Host "127.0.0.1"
    Port "{port}"
    ClientId "collectd"
  </Publish>
</Plugin>
"""
"""What our agent reads too, each as often as it does."""
GLANCES = """[mqtt]
host=127.0.0.1
port={port}
tls=false
topic=glances
topic_structure=per-plugin
"""
BUDGETS = {"collectd": 1.3, "glances": 1 / 20}
UNJUDGED = "agent_unjudged"
OURS = {"agent": 0.15, "agent_watched": None, UNJUDGED: None, "agent_gpus": 0.5}
"""Our agents and their budgets (percent of a core, times the machine factor): a bare machine; one
on screen, which also sends full samples; one that sends them and does not judge; one with 8 GPUs
and 8 RDMA ports, not on screen.
"""
QUIET = 1 / 5
"""Bytes of a node that nobody looks at, as a share of those of an agent that
sends full samples and does not judge.
"""
EXPORTER = "prometheus-node-exporter"
_EXPORTER_PORT = free_port()
UNPACK = ROOT / "tests/support/packages.sh"
UNPACKED = ("collectd:collectd-core", f"{EXPORTER}:{EXPORTER}")
"""Peers that this benchmark gets by itself, as root on Debian: unpacked, not installed."""
PEERS = "for peers: apt-get install collectd-core prometheus-node-exporter; pip install glances paho-mqtt certifi"


JUDGING = 1.15
_UNJUDGED = (
    "-c",
    """
from rankdeck_agent import telemetry
from rankdeck_agent.__main__ import main
class Unjudged(telemetry.NodeJudge):
    def judge(self, *read):
        return None
telemetry.NodeJudge = Unjudged
telemetry.Publisher.health = lambda *told: None
raise SystemExit(main())
""",
)
"""The agent without judging: full samples once a second, no health messages."""


def run() -> list[Result]:
    mosquitto = shutil.which("mosquitto")
    if mosquitto is None:
        raise MissingError("no mosquitto to publish to: apt-get install mosquitto")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        stack.enter_context(running((mosquitto, "-p", str(port))))
        wait_for_port(port)
        heard = stack.enter_context(_heard(port))
        processes = {
            "agent": stack.enter_context(_agent(port, "bench", samples=False)),
            "agent_watched": stack.enter_context(_agent(port, "watched", samples=True)),
            UNJUDGED: stack.enter_context(
                _agent(port, "unjudged", samples=True, program=_UNJUDGED)
            ),
        }
        note = machine.missing()
        if not note:
            processes["agent_gpus"] = stack.enter_context(_with_gpus(port, folder))
        for name, argv in _peers(folder, port).items():
            processes[name] = stack.enter_context(running(argv))
        if EXPORTER in processes:
            stack.enter_context(scraped(_EXPORTER_PORT))
        used = _used({name: process.pid for name, process in processes.items()})
        resident = {
            name: sum(map(resident_of, descendants(process.pid)))
            for name, process in processes.items()
        }
        for name, process in processes.items():
            must_live(name, process)
        if "agent_gpus" in processes and not children(processes["agent_gpus"].pid):
            raise RuntimeError("the process that asks NVML did not run while it was measured")
    return [*_cpu(used, note), *_judging(used), *_memory(resident), _network(heard)]


@contextmanager
def _heard(port: int) -> Generator[Counter[str]]:
    """Node -> bytes of its topics and messages, counted inside the block."""
    heard: Counter[str] = Counter()

    def count(_client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        node = message.topic.split("/")[3]
        heard[node] += len(message.topic) + len(message.payload)

    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_message = count
    client.connect("127.0.0.1", port)
    client.subscribe("rankdeck/1/bench/#", qos=1)
    client.loop_start()
    yield heard
    client.disconnect()
    client.loop_stop()


def _judging(used: Mapping[str, float]) -> list[Result]:
    """Cost of judging: on a node that nobody looks at, and on one that also sends its samples."""
    peer = "samples without judging"
    return [
        Result(name=f"{name}_judging", value=used[name], unit="% of a core", peer=peer,
               peer_value=used[UNJUDGED], budget=budget)
        for name, budget in (("agent", JUDGING), ("agent_watched", None))
    ]  # fmt: skip


def _network(heard: Counter[str]) -> Result:
    return Result(
        name="agent_network", value=heard["bench"] / 1024, unit="KiB", peer="samples without judging",
        peer_value=heard["unjudged"] / 1024, budget=QUIET, note="topics and messages, beginning and all",
    )  # fmt: skip


def _agent(
    port: int,
    node: str,
    root: str = "/",
    *,
    samples: bool = False,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = ("-m", "rankdeck_agent"),
):
    config = {
        "cluster": "bench",
        "node": node,
        "host": "127.0.0.1",
        "port": port,
        "period": 1.0,
        "root": root,
        "samples": samples,
    }
    argv = (sys.executable, *program, "telemetry")
    return running(argv, (json.dumps(config) + "\n").encode(), **(environment or {}))


def _with_gpus(port: int, folder: Path):
    """The agent on a machine with 8 GPUs and 8 RDMA ports; both are stand-ins."""
    root = machine.make(folder / "root")
    gpus = machine.make_gpus(folder / "nvml")
    return _agent(port, "gpus", str(root), environment=gpus)


def _peers(folder: Path, port: int) -> dict[str, Sequence[str]]:
    """The peers that are installed here or can be downloaded."""
    _fetch()
    path = search_path()
    root = Path(shutil.which("collectd", path=path) or "/usr/sbin/collectd").parents[2]
    root = "" if root == Path("/") else root
    text = COLLECTD.format(folder=folder, port=port, root=root)
    (folder / "collectd.conf").write_text(text)
    (folder / "glances.conf").write_text(GLANCES.format(port=port))
    commands = {
        "collectd": ("collectd", "-f", "-C", str(folder / "collectd.conf")),
        "glances": ("glances", "-C", str(folder / "glances.conf"), "-q", "--export", "mqtt", "-t", "1"),
        EXPORTER: (EXPORTER, f"--web.listen-address=127.0.0.1:{_EXPORTER_PORT}",
                   f"--path.sysfs={folder}/root/sys"),
    }  # fmt: skip
    found = {name: shutil.which(argv[0], path=path) for name, argv in commands.items()}
    return {name: (file, *commands[name][1:]) for name, file in found.items() if file}


def _fetch() -> None:
    """Unpack missing peers into the cache folder; if that fails, the note says how to get them."""
    subprocess.run(
        ("bash", str(UNPACK), *UNPACKED), stdout=sys.stderr, timeout=FETCHING, check=False
    )


def _used(pids: dict[str, int]) -> dict[str, float]:
    """Percent of a core that each process and its children used in the same seconds."""
    time.sleep(SETTLE)
    families = {name: descendants(pid) for name, pid in pids.items()}
    begin = time.monotonic()
    before = {name: sum(map(cpu_of, each)) for name, each in families.items()}
    time.sleep(SECONDS)
    passed = time.monotonic() - begin
    return {
        name: 100 * (sum(map(cpu_of, each)) - before[name]) / passed
        for name, each in families.items()
    }


def _cpu(used: dict[str, float], missing: str) -> list[Result]:
    peers = {name: value for name, value in used.items() if name not in OURS}
    factor = machine_factor()
    found: list[Result] = [
        Result(
            name="agent_machine",
            value=factor,
            unit="x",
            note="JSON decode loop; above 1 budgets are multiplied by it",
        )
    ]
    for ours, budget in OURS.items():
        if ours not in used:
            continue
        found.append(
            Result(name=f"{ours}_cpu", value=used[ours], unit="% of a core", budget=budget and budget * max(factor, 1.0),
                   on_ratio=False, note="; ".join(filter(None, (missing, "" if peers else PEERS))))
        )  # fmt: skip
        found += [
            Result(name=f"{ours}_cpu/{peer}", value=used[ours], unit="% of a core", peer=peer,
                   peer_value=value, budget=BUDGETS.get(peer) if ours == "agent" else None)
            for peer, value in peers.items()
        ]  # fmt: skip
    return found


def _memory(resident: dict[str, float]) -> list[Result]:
    budgets = {"agent": 24.0, "agent_gpus": 48.0}
    return [
        Result(name=f"{name}_memory", value=value, unit="MB", budget=budgets.get(name),
               on_ratio=False, limit="10 MB: Python with json and sockets" if name in budgets else "")
        for name, value in resident.items()
    ]  # fmt: skip
