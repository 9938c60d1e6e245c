"""Job mode as the console uses it: real commands, one folder of state per virtual node."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]


def until(condition: Callable[[], Any], limit: float = 60.0) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {limit} s: {condition}")


def mpi_daemon(folder: Path, script: str) -> str:
    """The command of a program with the name of a daemon, which does what the script says."""
    program = folder / "bin" / "prted"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{program} --daemonize"


class Node:
    """One virtual node: where its state lies, and what to put before a command to be on it."""

    def __init__(self, name: str, state: Path, prefix: tuple[str, ...] = ()) -> None:
        self.name, self.state, self.prefix = name, state, prefix
        self.jobs: set[str] = set()

    def popen(self, *words: str) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY / "agents"),
            "RANKDECK_STATE": str(self.state),
        }
        command = [
            *self.prefix,
            sys.executable,
            "-m",
            "rankdeck_agent",
            "job",
            *words,
        ]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)

    def job(self, *words: str, stdin: Any = None, limit: float = 40.0) -> tuple[int, bytes, bytes]:
        process = self.popen(*words)
        data = stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode()
        out, err = process.communicate(data, timeout=limit)
        return process.returncode, out, err

    def run(
        self, job: str, ranks: list[int], processes: list[dict[str, Any]], **more: Any
    ) -> dict[str, Any]:
        self.jobs.add(job)
        plan = {
            "job": job,
            "node": self.name,
            "ranks": ranks,
            "processes": processes,
            **more,
        }
        return json.loads(self.job("run", stdin=plan)[1])

    def cancel(self, job: str, grace: float = 1.0) -> dict[str, Any]:
        return json.loads(self.job("cancel", job, self.name, "--grace", str(grace))[1])

    def folder(self, job: str) -> Path:
        return self.state / "jobs" / job / self.name

    def events(self, job: str, kind: str = "") -> list[dict[str, Any]]:
        lines = (self.folder(job) / "events").read_text().splitlines()
        return [event for event in map(json.loads, lines) if kind in ("", event["kind"])]

    def closed(self, job: str, limit: float = 20.0) -> list[dict[str, Any]]:
        until(lambda: self.events(job, "closed"), limit)
        return self.events(job)

    def log(self, job: str, rank: int, stream: str = "out") -> bytes:
        place = "launcher" if rank < 0 else f"rank.{rank}"
        return (self.folder(job) / place / stream).read_bytes()


class Console:
    """Stands in for the console: answers `spawn` events of one node by asking the others."""

    def __init__(self, first: Node, others: dict[str, Node], job: str) -> None:
        self._first, self._others, self._job = first, others, job
        self._follow = first.popen("follow", job, first.name)
        self.spawned: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        assert self._follow.stdout
        for line in self._follow.stdout:
            event = json.loads(line)
            if event["kind"] == "spawn":
                self.spawned.append(event)
                self._first.job(
                    "answer",
                    self._job,
                    self._first.name,
                    event["id"],
                    self._start(event),
                )

    def _start(self, event: dict[str, Any]) -> str:
        node = self._others.get(event["host"])
        if node is None:
            return f"no node is called {event['host']}"
        request = {"id": event["id"], "command": event["command"]}
        said = json.loads(node.job("spawn", self._job, node.name, stdin=request)[1])
        return "ok" if said["ok"] else said["error"]

    def stop(self) -> None:
        self._follow.kill()
        self._follow.wait()
        self._thread.join(10)


def _end_everything(nodes: list[Node]) -> None:
    for node in nodes:
        for job in node.jobs:
            if (node.folder(job) / "events").exists():
                node.cancel(job, 0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    one = Node("n1", tmp_path / "state")
    yield one
    _end_everything([one])


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Two nodes with host names, process tables and /tmp of their own."""
    if os.geteuid() != 0:
        pytest.skip("needs root for namespaces")
    inits: list[subprocess.Popen[bytes]] = []
    nodes: list[Node] = []
    for name in ("n1", "n2"):
        private = tmp_path / name
        (private / "tmp").mkdir(parents=True)
        script = f"hostname {name}; mount --bind {private}/tmp /mnt; echo up; exec sleep 3600"
        init = subprocess.Popen(
            [
                "unshare",
                "-u",
                "-m",
                "-p",
                "-f",
                "--mount-proc",
                "--kill-child",
                "sh",
                "-c",
                script,
            ],
            stdout=subprocess.PIPE,
        )
        assert init.stdout
        assert init.stdout.readline() == b"up\n"
        inits.append(init)
        children = Path(f"/proc/{init.pid}/task/{init.pid}/children").read_text().split()
        prefix = ("nsenter", "-t", children[0], "-u", "-m", "-p")
        nodes.append(Node(name, private / "state", prefix))
    yield nodes
    _end_everything(nodes)
    for init in inits:
        init.kill()
        init.wait()
        assert init.stdout
        init.stdout.close()


@pytest.fixture
def console() -> Iterator[Callable[[Node, dict[str, Node], str], Console]]:
    made: list[Console] = []

    def make(first: Node, others: dict[str, Node], job: str) -> Console:
        made.append(Console(first, others, job))
        return made[-1]

    yield make
    for one in made:
        one.stop()
