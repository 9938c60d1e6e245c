"""The embedded cluster: real SSH servers, each with its own host name, gone without a trace."""

import os
import pty
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest
import yaml

from rankdeck.demo import cluster
from rankdeck.demo.cluster import MARKER, marked_processes

pytestmark = pytest.mark.slow

Content = dict[str, object]


@pytest.fixture
def demo(own_folders: Path) -> Iterator[Path]:
    try:
        yield cluster.start_demo().parent
    finally:
        cluster.stop_demo()


@pytest.fixture
async def sakuya(demo: Path) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with connect(demo, "sakuya") as connection:
        yield connection


def content(demo: Path) -> Content:
    return yaml.safe_load((demo / "cluster.yaml").read_text())


def connect(demo: Path, name: str, **changed: object):
    access = content(demo)["ssh"]
    (node,) = [node for node in content(demo)["nodes"] if node["name"] == name]
    options = {
        "username": access["user"],
        "client_keys": [access["identity"]],
        "known_hosts": access["known_hosts"],
        "config": None,
        "agent_path": None,
        "connect_timeout": 10,
    }
    return asyncssh.connect(node["address"], node["port"], **{**options, **changed})


def isolated() -> bool:
    return all(node.isolated for node in cluster.demo_status().nodes)


async def test_each_node_has_its_own_name_home_and_tmp(demo: Path) -> None:
    if not isolated():
        pytest.skip("needs user namespaces")
    seen = []
    for name in ("sakuya", "sakura", "koishi"):
        async with connect(demo, name) as connection:
            said = await connection.run(
                "hostname; echo $HOME; ls /tmp | grep -c mark; touch /tmp/mark"
            )
        seen.append(said.stdout.split())

    assert [name for name, _, _ in seen] == ["sakuya", "sakura", "koishi"]
    assert len({home for _, home, _ in seen}) == 3
    assert {marks for _, _, marks in seen} == {"0"}


async def test_a_command_sees_nothing_of_our_own_environment(
    demo: Path, sakuya: asyncssh.SSHClientConnection
) -> None:
    said = await sakuya.run("env")

    names = {line.partition("=")[0] for line in said.stdout.splitlines()}
    assert "PYTHONPATH" not in names
    assert "PYTEST_CURRENT_TEST" not in names
    assert f"PATH={Path(sys.executable).parent}:" in said.stdout


async def test_bytes_streams_and_exit_codes_pass_exactly(
    sakuya: asyncssh.SSHClientConnection,
) -> None:
    sent = bytes(range(256)) * 40_000

    said = await sakuya.run("cat; echo bad >&2; exit 3", input=sent, encoding=None)

    assert said.stdout == sent
    assert said.stderr == b"bad\n"
    assert said.exit_status == 3


async def test_a_signal_reaches_the_command_and_names_its_end(
    sakuya: asyncssh.SSHClientConnection,
) -> None:
    process = await sakuya.create_process("trap 'echo caught; kill -9 $$' TERM; echo on; read x")
    await process.stdout.readline()

    process.terminate()
    ended = await process.wait()

    assert ended.stdout == "caught\n"
    assert ended.exit_signal[0] == "KILL"


async def test_a_slow_reader_loses_nothing(
    sakuya: asyncssh.SSHClientConnection,
) -> None:
    process = await sakuya.create_process("seq 1 2000000", encoding=None)
    first = await process.stdout.read(1000)
    for _ in range(50):
        await sakuya.run("true")

    rest = await process.stdout.read()
    assert (first + rest).splitlines()[-1] == b"2000000"


async def test_a_terminal_is_given_where_asked_for(
    sakuya: asyncssh.SSHClientConnection,
) -> None:
    said = await sakuya.run("tty && stty size", term_type="xterm", term_size=(101, 33))

    assert said.stdout.split() == [said.stdout.split()[0], "33", "101"]


async def test_a_detached_command_outlives_the_connection(demo: Path) -> None:
    async with connect(demo, "sakura") as connection:
        await connection.run("setsid sleep 60 >/dev/null 2>&1 </dev/null & echo")

    async with connect(demo, "sakura") as connection:
        assert (
            await connection.run("pgrep -cx sleep || ps ax | grep -c '[s]leep 60'")
        ).stdout == "1\n"


async def test_a_reverse_tunnel_leads_back_to_the_console(
    sakuya: asyncssh.SSHClientConnection,
) -> None:
    async def answer(reader, writer) -> None:
        writer.write(b"from the console")
        writer.close()

    listener = await sakuya.start_server(lambda host, port: answer, "127.0.0.1", 0)
    code = f"import socket; print(socket.create_connection(('127.0.0.1', {listener.get_port()})).recv(99))"

    said = await sakuya.run(f'python3 -c "{code}"')

    assert "from the console" in said.stdout


async def test_no_port_is_opened_beyond_loopback(
    sakuya: asyncssh.SSHClientConnection,
) -> None:
    with pytest.raises(asyncssh.ChannelListenError):
        await sakuya.forward_remote_port("0.0.0.0", 0, "127.0.0.1", 9)


async def test_another_key_and_a_password_are_refused(demo: Path) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519")

    with pytest.raises(asyncssh.PermissionDenied):
        await connect(demo, "koishi", client_keys=[stranger], password="x")


def test_secrets_are_readable_by_their_owner_only(demo: Path) -> None:
    assert stat.S_IMODE(demo.stat().st_mode) == 0o700
    assert stat.S_IMODE((demo / "id").stat().st_mode) == 0o600


def test_up_again_keeps_what_runs_and_replaces_what_died(demo: Path) -> None:
    before = {node.name: node for node in cluster.demo_status().nodes}
    os.kill(before["sakura"].pid, signal.SIGKILL)
    while cluster.demo_status().running:
        time.sleep(0.01)

    cluster.start_demo()

    after = {node.name: node for node in cluster.demo_status().nodes}
    assert after["sakuya"] == before["sakuya"]
    assert after["sakura"].pid != before["sakura"].pid
    assert cluster.demo_status().running


def test_nodes_of_another_installation_are_started_anew(demo: Path) -> None:
    before = {node.name: node.pid for node in cluster.demo_status().nodes}
    record = demo / "nodes/koishi/running.json"
    record.write_text(record.read_text().replace(sys.prefix, "/another"))

    cluster.start_demo()

    after = {node.name: node.pid for node in cluster.demo_status().nodes}
    assert not set(before.values()) & set(after.values())
    assert after.keys() == before.keys()


def test_down_leaves_no_process_and_can_be_said_twice(demo: Path) -> None:
    assert cluster.stop_demo() is True

    assert list(marked_processes("RANKDECK_DEMO", str(demo))) == []
    assert cluster.demo_status().nodes == ()
    assert cluster.stop_demo() is False


def test_a_record_of_another_process_is_not_believed(demo: Path) -> None:
    cluster.stop_demo()
    record = demo / "nodes/sakuya/running.json"
    record.write_text(f'{{"pid": {os.getpid()}, "start": 1, "port": 9, "way": ""}}')

    assert cluster.stop_demo() is False
    assert not cluster.demo_status().running


@dataclass(frozen=True)
class Mpi:
    """An mpirun on sakuya that reaches the others by OpenSSH's client."""

    demo: Path

    def agent(self) -> Path:
        access = content(self.demo)["ssh"]
        ports = {node["name"]: node["port"] for node in content(self.demo)["nodes"]}
        cases = "".join(f"{name}) port={port};; " for name, port in ports.items())
        file = self.demo / "agent"
        file.write_text(
            f"#!/bin/sh\ncase $1 in {cases}esac\nshift\n"
            f"exec ssh -F none -i {access['identity']} -p $port -l {access['user']} -o BatchMode=yes "
            f'-o UserKnownHostsFile={access["known_hosts"]} 127.0.0.1 "$@"\n'
        )
        file.chmod(0o755)
        return file

    def command(self, program: str) -> str:
        root = "--allow-run-as-root " if os.getuid() == 0 else ""
        interface = content(self.demo)["nodes"][0]["interface"]
        only = f"--prtemca prte_if_include {interface} --mca btl_tcp_if_include {interface}"
        return f"mpirun {root}--prtemca plm_ssh_agent {self.agent()} {only} --host sakuya:1,sakura:1 {program}"


async def test_mpi_messages_cross_two_nodes(demo: Path, need) -> None:
    need("ssh")
    if not isolated() or not Path(sys.executable).with_name("mpirun").exists():
        pytest.skip("needs user namespaces and mpirun (pip install rankdeck[mpi])")
    code = (
        "from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.allgather(MPI.Get_processor_name()))"
    )
    program = demo / "ring.py"
    program.write_text(code)

    async with connect(demo, "sakuya") as connection:
        said = await connection.run(Mpi(demo).command(f"{sys.executable} {program}"), timeout=300)

    assert said.stdout.splitlines() == ["['sakuya', 'sakura']"] * 2, said.stderr


def test_without_namespaces_the_nodes_run_and_say_what_is_missing(
    own_folders: Path,
) -> None:
    code = (
        "from rankdeck.demo import cluster as c; c.start_demo(); s = c.demo_status(); "
        "print(s.running, {n.isolated for n in s.nodes}, s.note); print(c.stop_demo())"
    )
    barred = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    said = subprocess.run(
        [
            "unshare",
            "-U",
            "-r",
            "sh",
            "-c",
            f'{barred} "$@"',
            "sh",
            sys.executable,
            "-c",
            code,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )

    if "unshare" in said.stderr or "setpriv" in said.stderr:
        pytest.skip("needs unshare and setpriv to take namespaces away")
    assert "True {False} The demo nodes share this machine's host name" in said.stdout, said.stderr
    assert said.stdout.endswith("True\n")


def test_a_console_that_lost_its_terminal_leaves_the_nodes_and_no_agent(
    demo: Path,
) -> None:
    before = set(marked_processes(MARKER, str(demo)))
    master, slave = pty.openpty()
    console = subprocess.Popen(
        [sys.executable, "-m", "rankdeck", "-c", "demo"],
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    os.close(slave)
    deadline = time.monotonic() + 40
    # Each node has an agent: a shell of the login, and what it runs.
    while len(set(marked_processes(MARKER, str(demo)))) < len(before) + 6:
        assert time.monotonic() < deadline
        if select.select((master,), (), (), 0.1)[0]:
            os.read(master, 1 << 16)

    os.close(master)

    assert console.wait(60) == 128 + signal.SIGHUP
    while set(marked_processes(MARKER, str(demo))) != before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert cluster.demo_status().running
