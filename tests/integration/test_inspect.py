"""Looking at real processes, on this machine: stacks by py-spy, NCCL's RAS by its protocol."""

import contextlib
import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.test_nccl_ras import LATE, NODES, ras_rank, report

from rankdeck.rules.nccl_ras import find_ras_absence
from rankdeck.rules.silent_job import NodeAnswers
from rankdeck_agent.job import inspect, nccl_ras
from rankdeck_agent.job.folder import RunFolder

pytestmark = pytest.mark.slow
WAITER = "import time\ndef load_batch():\n    time.sleep(120)\nload_batch()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    """A run folder whose rank 0 is a Python program asleep in load_batch."""
    made = RunFolder(tmp_path, "look-1", "n1")
    (tmp_path / "rank.0").mkdir()
    (tmp_path / "rank.0/out").write_text("step 1\nstep 2\n")
    (tmp_path / "wait.py").write_text(WAITER)
    env = {**os.environ, "RANKDECK_JOB": "look-1", "RANKDECK_NODE": "n1"}
    with subprocess.Popen([sys.executable, str(tmp_path / "wait.py")], env=env) as program:
        event = {"seq": 0, "at": 1.0, "kind": "started", "rank": 0, "pid": program.pid}
        (tmp_path / "events").write_text(json.dumps(event) + "\n")
        try:
            yield made
        finally:
            program.kill()


def asleep(folder: RunFolder) -> dict:
    """The row of rank 0 once it sleeps."""
    deadline = time.monotonic() + 20
    while True:
        answer = inspect.inspect_node_ranks(folder)
        (row,) = answer["ranks"]
        if row["state"] == "S" and "sleep" in row["wchan"] + str(row["stacks"]) + "sleep" * (
            row["cpu"] == 0
        ):
            return {**row, "answer": answer}
        assert time.monotonic() < deadline, row


def test_a_sleeping_rank_is_found_with_its_last_line_and_no_cpu_time(folder) -> None:
    row = asleep(folder)

    assert row["rank"] == 0
    assert row["last"] == "step 2"
    assert row["cpu"] < 0.5
    assert sum(row["threads"].values()) == 1


def test_py_spy_names_the_function_it_sleeps_in(folder, monkeypatch) -> None:
    here = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", f"{here}{os.pathsep}{os.environ['PATH']}")
    if not shutil.which("py-spy"):
        pytest.skip("needs py-spy (pip install py-spy)")
    row = asleep(folder)
    if "ptrace" in row["answer"]["spy"]:
        pytest.skip(f"needs ptrace: {row['answer']['spy']}")

    deadline = time.monotonic() + 20
    while not row["stacks"]:
        assert time.monotonic() < deadline, row
        row = asleep(folder)
    name, file, line = row["stacks"][0]["frames"][0]
    assert (name, Path(file).name, line) == ("load_batch", "wait.py", 3)


def test_without_py_spy_it_is_said(folder, monkeypatch) -> None:
    monkeypatch.setattr(inspect, "_find_spy", lambda pids: "")

    assert "py-spy is not on the PATH" in inspect.inspect_node_ranks(folder)["spy"]


class Ras(socketserver.StreamRequestHandler):
    """Answers as NCCL's RAS does, to what it was asked."""

    def handle(self) -> None:
        asked = [self.rfile.readline().decode().strip() for _ in range(3)]
        if asked == ["CLIENT PROTOCOL 2", "TIMEOUT 2", "VERBOSE STATUS"]:
            self.wfile.write(b"SERVER PROTOCOL 2\nOK\nJob summary\n  Missing: rank 2\x1b[2J\n")


def test_nccl_ras_is_asked_where_it_listens(monkeypatch) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Ras) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(nccl_ras, "_ADDRESS", server.server_address)
        said = nccl_ras.ask_nccl_ras([])
        server.shutdown()

    assert said["lines"][-1] == "Missing: rank 2 [2J"


class Hostile(socketserver.BaseRequestHandler):
    """Answers with what `kind` says, whatever it was asked."""

    kind = ""

    def handle(self) -> None:
        if self.kind == "endless":
            with contextlib.suppress(OSError):
                while True:
                    self.request.sendall(b'{"communicators": [' + b"[" * (1 << 20))
        elif self.kind == "silent":
            self.request.recv(1 << 20)
            self.request.recv(1)
        else:
            self.request.sendall(self.kind.encode())


@pytest.mark.parametrize(
    "kind",
    [
        "silent",
        "endless",
        'OK\n{"communicators": [{"size": 4',
        "[" * 100_000,
        '{"a": ' * 100_000,
        "{}{}",
        "",
    ],
    ids=["silent", "endless", "half", "no object", "deep", "two", "nothing"],
)
def test_what_no_ras_says_is_no_report(kind: str, monkeypatch) -> None:
    monkeypatch.setattr(nccl_ras, "_LIMIT", 0.5)
    monkeypatch.setattr(Hostile, "kind", kind)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(nccl_ras, "_ADDRESS", server.server_address)
        said = nccl_ras.ask_nccl_counts([])
        server.shutdown()

    assert "json" not in said
    assert sum(map(len, said.get("lines", ()))) <= 400 * 200


class Reporting(socketserver.StreamRequestHandler):
    """Answers as NCCL 2.28 does, with the `report` of its server."""

    def handle(self) -> None:
        asked = [self.rfile.readline() for _ in range(4)]
        assert asked[2] == b"SET FORMAT json\n"
        self.wfile.write(b"SERVER PROTOCOL 2\nOK\nOK\n" + json.dumps(self.server.report).encode())


def answers_of(*reports: dict, monkeypatch) -> NodeAnswers:
    """What the nodes n1, n2, ... answer, of which each has two ranks and a RAS of its own."""
    heard = NodeAnswers()
    for node, told in enumerate(reports):
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Reporting) as server:
            server.report = told["json"]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            monkeypatch.setattr(nccl_ras, "_ADDRESS", server.server_address)
            pids = [[100 + rank, rank] for rank in (2 * node, 2 * node + 1)]
            heard.take({"ras": nccl_ras.ask_nccl_counts([]), "pids": pids}, frozenset(range(4)))
            server.shutdown()
    return heard


def accused(*reports: dict, monkeypatch) -> tuple[int, ...]:
    heard = answers_of(*reports, monkeypatch=monkeypatch)
    found = find_ras_absence(heard.ras, heard.ras, heard.pids, NODES)
    return found.ranks if found else ()


def test_where_the_ras_of_two_nodes_disagree_nobody_is_accused(monkeypatch) -> None:
    lie = report(ras_rank(0), ras_rank(1), ras_rank(2), ras_rank(3, 60))

    assert accused(LATE, LATE, monkeypatch=monkeypatch) == (2,)
    assert accused(LATE, lie, monkeypatch=monkeypatch) == ()
    assert accused(lie, report(*map(ras_rank, NODES)), monkeypatch=monkeypatch) == ()


LIAR = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
link = server.accept()[0]
link.recv(4096)
link.sendall(b'{"communicators": []}')
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_user_who_listens_there_is_not_asked(monkeypatch) -> None:
    liar = subprocess.Popen(
        ["/usr/bin/python3", "-c", LIAR], user=65534, cwd="/", stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(liar.stdout.readline())
        monkeypatch.setattr(nccl_ras, "_ADDRESS", ("127.0.0.1", port))
        assert nccl_ras.ask_nccl_counts([os.getpid()]) == {}
        assert nccl_ras.ask_nccl_counts([liar.pid]) == {"json": {"communicators": []}}
    finally:
        liar.kill()
        liar.communicate()


def test_where_there_is_no_ras_it_is_said(monkeypatch) -> None:
    monkeypatch.setattr(nccl_ras, "_ADDRESS", ("127.0.0.1", 1))

    assert "no NCCL RAS" in nccl_ras.ask_nccl_ras([])["why"]
