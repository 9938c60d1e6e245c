"""1,000 nodes at 1 Hz into the model: our broker and fleet, and mosquitto with aiomqtt, in turn."""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import aiomqtt
from tests.support.ports import free_port, wait_for_port

from benchmarks.measure import cpu_of, environment, running
from benchmarks.publishers import CLUSTER
from benchmarks.result import MissingError, Result
from rankdeck.model.cluster import Cluster, Node
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.private_broker import PrivateBroker
from rankdeck_agent.wire import decode_message, split_topic

NODES = 1000
SECONDS = 6.0
WARM = 1.5
"""Seconds in which every node has sent once: what is created once is not counted."""
LAST = 0.5
"""Seconds to read what was sent last; not counted."""
ROUNDS = 3
NAMES = [f"n{number:04d}" for number in range(NODES)]


def run() -> list[Result]:
    mosquitto = shutil.which("mosquitto")
    if mosquitto is None:
        raise MissingError("no mosquitto to compare with: apt-get install mosquitto")
    ours: list[float] = []
    peers: list[float] = []
    for _ in range(ROUNDS):
        ours.append(asyncio.run(_ours()))
        peers.append(asyncio.run(_peer(mosquitto)))
    return [
        Result(
            name="telemetry_private", value=median(ours), unit="% of a core",
            peer="mosquitto + aiomqtt", peer_value=median(peers), budget=12, on_ratio=False,
            limit="a wake-up and two or three system calls a message",
            note=f"{NODES} nodes x 1 Hz, model included",
        )
    ]  # fmt: skip


async def _ours() -> float:
    """Percent of a core of broker and fleet in this process."""
    fleet = Fleet(Cluster(name=CLUSTER, nodes=tuple(Node(name=name) for name in NAMES)))
    heard = 0

    def deliver(topic: str, payload: bytes) -> None:
        nonlocal heard
        place = split_topic(topic)
        if place is not None:
            fleet.apply(place[1], decode_message(place[2], payload))
            heard += 1

    broker = PrivateBroker(deliver, CLUSTER)
    await broker.start()
    try:
        accounts = [(name, *broker.credential(name)) for name in NAMES]
        async with _publishing(broker.port, accounts) as publishers:
            used = await _percent(publishers, ())
            await asyncio.sleep(LAST)
    finally:
        await broker.close()
    _must_have(heard)
    return used


async def _peer(mosquitto: str) -> float:
    """Percent of a core of mosquitto, and of aiomqtt with json.loads in this process."""
    port, heard = free_port(), 0

    async def listen() -> None:
        nonlocal heard
        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe(f"rankdeck/1/{CLUSTER}/+/sample")
            async for message in client.messages:
                json.loads(message.payload)
                heard += 1

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mosquitto.conf"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n")
        with running((mosquitto, "-c", str(config))) as broker:
            wait_for_port(port)
            listener = asyncio.create_task(listen())
            await asyncio.sleep(0.5)
            async with _publishing(port, [(name, "", "") for name in NAMES]) as publishers:
                used = await _percent(publishers, (broker.pid,))
            listener.cancel()
            await asyncio.wait((listener,))
    _must_have(heard)
    return used


class _publishing:  # noqa: N801 - used as a verb
    """Start the publishers as a process and wait until they are connected; ended with the block."""

    def __init__(self, port: int, nodes: list[tuple[str, str, str]]) -> None:
        self._told = json.dumps({"port": port, "nodes": nodes, "seconds": SECONDS}) + "\n"

    async def __aenter__(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.publishers",
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(self._told.encode())
        await _said(self._process, b"ready")
        return self._process

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), 10)


async def _said(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    if line.strip() != word:
        raise RuntimeError(f"the publishers said {line!r}, not {word!r}")


async def _percent(publishers: asyncio.subprocess.Process, others: tuple[int, ...]) -> float:
    """What this process and the others use while the publishers send."""
    await asyncio.sleep(WARM)
    begin, before = time.monotonic(), time.process_time() + sum(map(cpu_of, others))
    await _said(publishers, b"done")
    after = time.process_time() + sum(map(cpu_of, others))
    return 100 * (after - before) / (time.monotonic() - begin)


def _must_have(heard: int) -> None:
    if heard < 0.99 * NODES * SECONDS:
        raise RuntimeError(f"only {heard} of {NODES * SECONDS:.0f} messages arrived")
