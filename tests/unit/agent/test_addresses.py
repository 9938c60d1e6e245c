"""The addresses of a machine, from the files of its kernel."""

import socket
from pathlib import Path

from rankdeck_agent.machine import local_addresses

FIB = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.0
           /24 link UNICAST
        |-- 10.0.0.2
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
Local:
        |-- 10.0.0.2
           /32 host LOCAL
"""
INET6 = """\
00000000000000000000000000000001 01 80 10 80       lo
fe80000000000000021122fffe334455 02 40 20 80     eth0
not an address at all
"""


def test_every_address_but_loopback_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/fib_trie").write_text(FIB)
    (tmp_path / "net/if_inet6").write_text(INET6)

    assert local_addresses(tmp_path) == ["10.0.0.2", "fe80::211:22ff:fe33:4455"]


def test_a_machine_without_these_files_has_none(tmp_path: Path) -> None:
    assert local_addresses(tmp_path) == []


def test_the_address_of_this_machine_is_among_them() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: a route is chosen
        except OSError:
            return
        mine = probe.getsockname()[0]

    assert mine.startswith("127.") or mine in local_addresses()
