"""Many nodes in one process: each its own MQTT connection, one sample a second, staggered.

`python -m benchmarks.publishers` with one line of JSON on stdin: {"port", "nodes": [[name, user, password], …], "seconds"}.
"""

import json
import socket
import sys
import time

from rankdeck_agent.wire import Sample, Values, encode, topic

CLUSTER = "bench"
DEVICES = [str(number) for number in range(8)]
PER_DEVICE = ("gpu.used", "gpu.mem_used", "gpu.mem_total", "gpu.temp", "gpu.power", "gpu.clock",
              "rdma.rx", "rdma.tx", "rdma.errors", "rdma.retx", "rdma.up", "net.rx", "net.tx")  # fmt: skip


def main() -> None:
    told = json.loads(sys.stdin.readline())
    connected = [
        (name, _connect(told["port"], name, user, password))
        for name, user, password in told["nodes"]
    ]
    print("ready", flush=True)
    begin, step = time.monotonic(), 1 / len(connected)
    for beat in range(int(told["seconds"] * len(connected))):
        name, link = connected[beat % len(connected)]
        link.sendall(_publish(topic(CLUSTER, name, "sample"), encode(_sample(beat))))
        time.sleep(max(0.0, begin + (beat + 1) * step - time.monotonic()))
    print("done", flush=True)
    sys.stdin.readline()


def _sample(beat: int) -> Sample:
    values: Values = {
        m: {d: 1_000_000 + beat + 7 * i for i, d in enumerate(DEVICES)} for m in PER_DEVICE
    }
    return Sample(
        beat,
        time.time(),
        {**values, "cpu.used": {"": beat % 100}, "mem.used": {"": 40.5}},
    )


def _connect(port: int, name: str, user: str, password: str) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 10)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    flags = 0xC2 if user else 0x02
    body = _text("MQTT") + bytes((4, flags, 0, 120)) + _text(name)
    body += (_text(user) + _text(password)) if user else b""
    link.sendall(b"\x10" + _length(len(body)) + body)
    answer = link.recv(4)
    if answer[:1] != b"\x20" or answer[3] != 0:
        raise SystemExit(f"{name}: refused: {answer!r}")
    return link


def _publish(name: str, payload: bytes) -> bytes:
    body = _text(name) + payload
    return b"\x30" + _length(len(body)) + body


def _text(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(2, "big") + raw


def _length(number: int) -> bytes:
    encoded = bytearray()
    while True:
        number, low = divmod(number, 128)
        encoded.append(low | (0x80 if number else 0))
        if not number:
            return bytes(encoded)


if __name__ == "__main__":
    main()
