"""Who is connected to whom, by real sockets of this machine."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.polling import eventually

from rankdeck_agent.job.tcp_sockets import find_listening_users, list_connections, read_tcp_sockets

CONNECTS = """
import socket, sys, time
some = [socket.create_connection((host, int(port))) for host, port in [sys.argv[1:3]]]
print(some[0].getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def links_of(pid: int) -> dict[str, list[str]]:
    return list_connections({0: [pid]})[0]


def address(one: socket.socket) -> str:
    host, port = one.getsockname()[:2]
    return f"{host}:{port}"


def test_both_ends_of_a_connection_of_another_process_are_seen(listener: socket.socket) -> None:
    host, port = listener.getsockname()
    argv = [sys.executable, "-c", CONNECTS, host, str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        own = f"127.0.0.1:{process.stdout.readline().strip()}"
        found = links_of(process.pid)
        with listener.accept()[0]:
            accepted = links_of(os.getpid())
        process.kill()

    assert found == {"own": [own], "peers": [address(listener)], "seeks": []}
    assert address(listener) in accepted["own"]
    assert own in accepted["peers"]


def test_where_a_process_seeks_another_in_vain_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as fills:
        fills.setblocking(False)
        fills.connect_ex(full.getsockname())
        others = [socket.socket() for _ in range(3)]
        for one in others:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        sought = eventually(lambda: address(full) in links_of(os.getpid())["seeks"], 5)
        for one in others:
            one.close()

    assert sought


def test_of_a_process_with_many_connections_none_is_told(listener: socket.socket) -> None:
    links = [socket.create_connection(listener.getsockname()) for _ in range(20)]
    try:
        assert links_of(os.getpid()) == {}
    finally:
        for one in links:
            one.close()


def test_a_file_that_is_closed_while_they_are_listed_hides_no_connection(
    listener: socket.socket,
) -> None:
    low = os.open("/dev/null", os.O_RDONLY)
    with socket.create_connection(listener.getsockname()) as link:
        os.close(low)  # the list itself is opened here, before the connection, and closed then
        assert address(link) in links_of(os.getpid())["own"]


def test_a_process_that_is_gone_has_no_connections() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert links_of(process.pid) == {"own": [], "peers": [], "seeks": []}


def test_whose_process_listens_at_a_port_is_seen(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert find_listening_users(port) == {os.geteuid()}
    assert [one.peer for one in read_tcp_sockets("self") if one.own == address(listener)] == [""]
