"""Stands in for the agent on a node, and changes what the real agent reports.

`python3 agent.pyz WORDS…`: `lie.json` beside it has the kind of lie, the words for which it is
told and the texts to plant; `real.pyz` is the agent. Standard library only.
"""

import json
import os
import subprocess
import sys
import threading
import time
from itertools import cycle
from pathlib import Path

HERE = Path(__file__).resolve().parent
REAL = str(HERE / "real.pyz")
KEPT = ("kind", "seq", "at")
"""Fields that are kept: without them the whole frame is refused."""
MANY = 10_000
LONG = 100 << 20


def told():
    return json.loads((HERE / "lie.json").read_text("utf-8"))


# ---- lies about values -----------------------------------------------------------------


def bent(value, leaf, key=""):
    """The same JSON with `leaf(value, key)` instead of each value that is no object or list."""
    if isinstance(value, dict):
        return {k: v if k in KEPT else bent(v, leaf, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [bent(one, leaf, key) for one in value]
    return leaf(value, key)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numbers(other):
    return lambda value, key: other(value) if is_number(value) else value


def swapped(value, key):
    if isinstance(value, str):
        return {"x": [1]}
    return "seven" if value is not None else [None]


SIZES = cycle((0, -1, 1, 1 << 31, (1 << 53) - 1, 1 << 62, 7, 16 << 20))


def multiplied(value):
    """The same JSON, with ten thousand entries in every list and every table of numbers."""
    if isinstance(value, dict):
        grown = {k: v if k in KEPT else multiplied(v) for k, v in value.items()}
        if grown and all(map(is_number, grown.values())):
            grown.update({f"d{n}": n for n in range(MANY)})
        return grown
    if isinstance(value, list) and value:
        # Nested lists stay as they are: 10,000 times 10,000 entries would be too many.
        return (value * MANY)[:MANY]
    return value


def valued(lie):
    """A function from JSON to JSON for lies about values; None for other lies."""
    texts = cycle(lie["texts"] or [""])
    nest = json.loads("[" * 900 + "]" * 900)
    leaves = {
        "types": swapped,
        "nan": numbers(lambda _: float("nan")),
        "huge": numbers(lambda _: 10**30),
        "beyond": numbers(lambda _: 1e308),
        "negative": numbers(lambda n: -n - 1),
        "sizes": numbers(lambda _: next(SIZES)),
        "text": lambda v, k: v + next(texts) if isinstance(v, str) else v,
        "halves": lambda v, k: v + "\ud800" if isinstance(v, str) else v,
        "deep": lambda v, k: nest,
        "null": lambda v, k: None,
    }
    if lie["kind"] == "many":
        return multiplied
    leaf = leaves.get(lie["kind"])
    return (lambda value: bent(value, leaf)) if leaf else None


# ---- lies about lines ------------------------------------------------------------------


def other(line, lie):
    """Another node's name, another job's id."""
    for true, false in lie["names"].items():
        line = line.replace(true.encode(), false.encode())
    return line


def forged(lie):
    """Frames with which this node asks for a command on another one."""
    for seq, host in enumerate(lie["names"].values()):
        ask = {"kind": "spawn", "seq": 100 + seq, "at": time.time(), "id": f"f{seq}"}
        yield json.dumps({**ask, "host": host, "command": lie["command"]}).encode() + b"\n"


def added(lie, line):
    """The frames of `frames`, numbered on after this one; none before raw bytes."""
    head = json.loads(line)
    if head["kind"] == "data":
        return b""
    first = head.get("seq", 0) + 1
    rows = ({"seq": first + n, "at": time.time(), **row} for n, row in enumerate(lie["frames"]))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def line_of(lie, line):
    """The line as it is sent."""
    change = valued(lie)
    if change:
        try:
            return json.dumps(change(json.loads(line))).encode() + b"\n"
        except ValueError:
            return line
    if lie["kind"] == "other":
        return other(line, lie)
    if lie["kind"] == "frames":
        return line + added(lie, line)
    if lie["kind"] == "spawn":
        return line + b"".join(forged(lie))
    if lie["kind"] == "noise":
        return os.urandom(200) + b"\n" + line
    return line


def instead(lie, out):
    """Lies that need no true word; whether that was one."""
    kind = lie["kind"]
    if kind == "long":
        out.write(b'{"kind": "trouble", "seq": 1, "at": 1.7e9, "ok": true, "text": "')
        out.write(b"x" * LONG + b'"}\n')
    elif kind == "endless":
        while True:
            out.write(b"x" * (1 << 16))
    elif kind == "cut":
        out.write(b'{"kind": "data", "r": 0, "s": "out", "o": 0, "n": 100000, "at": 1.7e9}\nhalf')
    elif kind == "silent":
        time.sleep(3600)
    elif kind == "steering-error":
        sys.stderr.write("".join(lie["texts"]) + "\n")
        return 3
    else:
        return None
    out.flush()
    return 0


def relay(lie, words):
    """Run the real agent and pass on its lines, changed."""
    out = sys.stdout.buffer
    ended = instead(lie, out)
    if ended is not None:
        return ended
    real = subprocess.Popen(
        [sys.executable, REAL, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    threading.Thread(target=pass_on, args=(real.stdin,), daemon=True).start()
    for line in real.stdout:
        data = real.stdout.read(size_of_data(line)) if words[1:2] == ["follow"] else b""
        out.write(line_of(lie, line) + data)
        out.flush()
    return real.wait()


def size_of_data(line):
    """How many raw bytes follow this line of `job follow`."""
    head = json.loads(line)
    return head["n"] if head["kind"] == "data" else 0


def pass_on(target):
    while True:
        data = os.read(0, 1 << 16)
        if not data:
            target.close()
            return
        target.write(data)
        target.flush()


# ---- lies about numbers of the node ----------------------------------------------------


def publish(lie):
    """The real telemetry, whose messages are changed before they are sent."""
    sys.path.insert(0, REAL)
    from rankdeck_agent import wire

    honest, topic = wire.encode_message, wire.message_topic
    change = valued(lie)

    def encode(message):
        if change:
            return json.dumps(change(json.loads(honest(message)))).encode("utf-8", "surrogatepass")
        made = {"long": b"x" * LONG, "cut": b'{"seq":', "noise": os.urandom(5000)}
        return other(made.get(lie["kind"], honest(message)), lie)

    wire.encode_message = encode
    if lie["kind"] == "other":
        wire.message_topic = lambda *parts: other(topic(*parts).encode(), lie).decode()
    from rankdeck_agent.__main__ import main

    return main(["telemetry"])


def keep_login():
    """Write the login that the console gives us beside us, and put it back."""
    line = sys.stdin.buffer.readline()
    (HERE / "login.json").write_bytes(line)
    read, write = os.pipe()
    os.write(write, line)
    threading.Thread(target=hand_on, args=(os.dup(0), write), daemon=True).start()
    os.dup2(read, 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)


def hand_on(source, target):
    while data := os.read(source, 4096):
        os.write(target, data)
    os.close(target)


def main():
    lie, words = told(), sys.argv[1:]
    if words[:1] == ["telemetry"]:
        keep_login()
    if words[: len(lie["only"])] != lie["only"] or not lie["kind"]:
        if words[:1] != ["telemetry"]:
            os.execv(sys.executable, [sys.executable, REAL, *words])
        lie["kind"] = ""
    if words[:1] == ["telemetry"] and lie["kind"] not in ("endless", "silent", "steering-error"):
        return publish(lie)
    return relay(lie, words)


if __name__ == "__main__":
    sys.exit(main())
