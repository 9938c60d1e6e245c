"""Starts one virtual node and stays as its process 1: `python -m rankdeck.demo.node ROOT NAME PORT`.

The first process returns when the node's SSH server accepts, and leaves a record of it.
Standard library only, so that a node costs one small process beside its server.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import rankdeck
from rankdeck.demo import namespaces
from rankdeck.demo.layout import DemoFolders
from rankdeck.demo.processes import ProcessRecord, start_time

ISOLATED = ("root", "user")
"""Ways to separate a node, the better one first; only root has both."""


def main() -> int:
    """Try to start the node, with less separation each time."""
    layout, name, port = DemoFolders(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
    ways = ISOLATED if os.getuid() == 0 else ISOLATED[1:]
    why = ""
    for way in (*ways, ""):
        pid, answer = _attempt(layout, name, port, way)
        if pid and "port" in answer:
            record = ProcessRecord(pid, start_time(pid) or 0, int(answer["port"]), way, why)
            record.write(layout.record(name))
            return 0
        if "error" not in answer:
            break  # the server has written into the log why
        why = answer["error"]
    return 1


def _attempt(layout: DemoFolders, name: str, port: str, way: str) -> tuple[int, dict[str, str]]:
    """Process 1 of the node as seen from here, and what it or its server said first."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _separate(layout, name, port, way, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as said:  # noqa: PTH123 - a descriptor, not a path
        lines = said.read().splitlines()
    os.waitpid(child, 0)
    answer: dict[str, str] = {}
    for line in lines:
        answer.update(json.loads(line))
    return int(answer.get("pid", 0)), answer


def _separate(layout: DemoFolders, name: str, port: str, way: str, writing: int) -> None:
    """Leave the machine's namespaces, start process 1 inside, end. Does not return."""
    uid, gid = os.getuid(), os.getgid()
    try:
        if way:
            namespaces.detach(user=way == "user")
        pid = os.fork()
        if pid:
            _say(writing, pid=str(pid))
            os._exit(0)
        if way:
            namespaces.furnish(name, _needed(layout))
        if way == "user":
            namespaces.become(uid, gid)
    except OSError as error:
        _say(writing, error=error.strerror or str(error))
        os._exit(1)
    os._exit(_first_process(layout, name, port, writing))


def _needed(layout: DemoFolders) -> list[Path]:
    """What the nodes must see even where it lies under /tmp: our files and this Python."""
    source = Path(rankdeck.__file__).parents[2]
    imported = [Path(entry) for entry in sys.path if entry]
    return [layout.root, Path(sys.prefix), Path(sys.base_prefix), source, *imported]


def _first_process(layout: DemoFolders, name: str, port: str, writing: int) -> int:
    """Run the server, bury what is left behind, and end with the server."""
    argv = [sys.executable, "-m", "rankdeck.demo.server", str(layout.root), name, port]
    server = subprocess.Popen([*argv, str(writing)], pass_fds=[writing], cwd="/")
    os.close(writing)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == server.pid:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _say(writing: int, **words: str) -> None:
    os.write(writing, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
