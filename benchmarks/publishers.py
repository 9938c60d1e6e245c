"""Many nodes in one process: each its own MQTT connection, one sample a second, staggered.

`python -m benchmarks.publishers` with one line of JSON on stdin: {"port",
"nodes": [[name, user, password], …], "seconds"}.
"""

import json
import socket
import sys
import time

from tests.support import mqtt

from rankdeck.telemetry.mqtt_packets import Publish
from rankdeck_agent.wire import HealthReport, Sample, Values, encode_message, message_topic

CLUSTER = "bench"
KEEPALIVE = 120
HEARTBEAT = 10.0
CHECKS = (1 << 26) - 2
"""Bits of all 25 checks."""
DEVICES = [str(number) for number in range(8)]
PER_DEVICE = ("gpu.used", "gpu.mem_used", "gpu.mem_total", "gpu.temp", "gpu.power", "gpu.clock",
              "rdma.rx", "rdma.tx", "rdma.errors", "rdma.retx", "rdma.up", "net.rx", "net.tx")  # fmt: skip


def main() -> None:
    told = json.loads(sys.stdin.readline())
    # All first, then the answers: a broker that looks every 0.1 s answers all of them at once.
    connected = [
        (name, _connect(told["port"], name, user, password))
        for name, user, password in told["nodes"]
    ]
    for name, link in connected:
        _must_be_welcome(name, link)
    print("ready", flush=True)
    begin, step = time.monotonic(), 1 / len(connected)
    for beat in range(int(told["seconds"] * len(connected))):
        name, link = connected[beat % len(connected)]
        link.sendall(
            mqtt.publish(
                Publish(message_topic(CLUSTER, name, "sample"), encode_message(_sample(beat)))
            )
        )
        time.sleep(max(0.0, begin + (beat + 1) * step - time.monotonic()))
    print("done", flush=True)
    sys.stdin.readline()


def _sample(beat: int) -> Sample:
    values: Values = {
        m: {d: 1_000_000 + beat + 7 * i for i, d in enumerate(DEVICES)} for m in PER_DEVICE
    }
    numbers = {"cpu.used": float(beat % 100), "mem.used": 40.5}
    report = HealthReport(time.time(), 0, HEARTBEAT, CHECKS, CHECKS, numbers=numbers)
    return Sample(
        beat, report.at, {**values, **{m: {"": n} for m, n in numbers.items()}}, report=report
    )


def _connect(port: int, name: str, user: str, password: str) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 10)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(mqtt.connect(name, KEEPALIVE, user, password.encode()))
    return link


def _must_be_welcome(name: str, link: socket.socket) -> None:
    answer = link.recv(4)
    if answer[:1] != b"\x20" or answer[3] != 0:
        raise SystemExit(f"{name}: refused: {answer!r}")


if __name__ == "__main__":
    main()
