"""The agent at 1 Hz beside collectd and glances, all at the same time."""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measure import (
    cpu_of,
    free_port,
    must_live,
    resident_of,
    running,
    wait_for_port,
)
from benchmarks.result import MissingError, Result

SETTLE = 3.0
SECONDS = 20.0
COLLECTD = """Interval 1
PIDFile "{folder}/pid"
BaseDir "{folder}"
LoadPlugin cpu
LoadPlugin memory
LoadPlugin load
LoadPlugin interface
LoadPlugin mqtt
<Plugin mqtt>
  <Publish "bench">
    Host "127.0.0.1"
    Port "{port}"
    ClientId "collectd"
  </Publish>
</Plugin>
"""
BUDGETS = {"collectd": 1.3, "glances": 1 / 20}
PEERS = (
    "for peers: apt-get install collectd-core; pip install glances paho-mqtt certifi"
)


def run() -> list[Result]:
    mosquitto = shutil.which("mosquitto")
    if mosquitto is None:
        raise MissingError("no mosquitto to publish to: apt-get install mosquitto")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        stack.enter_context(running((mosquitto, "-p", str(port))))
        wait_for_port(port)
        processes = {"agent": stack.enter_context(_agent(port))}
        for name, argv in _peers(folder, port).items():
            processes[name] = stack.enter_context(running(argv))
        used = _used({name: process.pid for name, process in processes.items()})
        resident = resident_of(processes["agent"].pid)
        for name, process in processes.items():
            must_live(name, process)
    return [*_cpu(used), _memory(resident)]


def _agent(port: int):
    config = {
        "cluster": "bench",
        "node": "bench",
        "host": "127.0.0.1",
        "port": port,
        "period": 1.0,
    }
    argv = (sys.executable, "-m", "rankdeck_agent", "telemetry")
    return running(argv, (json.dumps(config) + "\n").encode())


def _peers(folder: Path, port: int) -> dict[str, Sequence[str]]:
    """The peers that are installed."""
    (folder / "collectd.conf").write_text(COLLECTD.format(folder=folder, port=port))
    commands = {
        "collectd": ("collectd", "-f", "-C", str(folder / "collectd.conf")),
        "glances": ("glances", "-q", "--export", "mqtt", "-t", "1"),
    }
    return {name: argv for name, argv in commands.items() if shutil.which(argv[0])}


def _used(pids: dict[str, int]) -> dict[str, float]:
    """Percent of a core that each used in the same seconds."""
    time.sleep(SETTLE)
    begin = time.monotonic()
    before = {name: cpu_of(pid) for name, pid in pids.items()}
    time.sleep(SECONDS)
    passed = time.monotonic() - begin
    return {
        name: 100 * (cpu_of(pid) - before[name]) / passed for name, pid in pids.items()
    }


def _cpu(used: dict[str, float]) -> list[Result]:
    ours = used.pop("agent")
    note = "" if used else PEERS
    own = Result(
        name="agent_cpu",
        value=ours,
        unit="% of a core",
        budget=0.15,
        on_ratio=False,
        note=note,
    )
    beside = (
        Result(
            name=f"agent_cpu/{peer}", value=ours, unit="% of a core", peer=peer,
            peer_value=value, budget=BUDGETS[peer],
        )
        for peer, value in used.items()
    )  # fmt: skip
    return [own, *beside]


def _memory(resident: float) -> Result:
    return Result(
        name="agent_memory", value=resident, unit="MB", budget=24, on_ratio=False
    )
