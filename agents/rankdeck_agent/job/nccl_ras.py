"""What NCCL (or RCCL) says about its communicators: its RAS service, on this node."""

import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job import processes
from rankdeck_agent.job.tcp_sockets import find_listening_users
from rankdeck_agent.text import parse_json_table, plain_line

_ADDRESS = ("127.0.0.1", 28028)
_LIMIT = 3.0
"""Seconds for all of one answer; RAS itself is told to wait at most 2 s for other nodes."""
_MOST_TEXT, _MOST_JSON = 1 << 16, 4 << 20
_MOST_LINES = 400
_TEXT = b"CLIENT PROTOCOL 2\nTIMEOUT 2\nVERBOSE STATUS\n"
_JSON = b"CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT json\nVERBOSE STATUS\n"

Row = dict[str, Any]


def ask_nccl_ras(pids: Iterable[int]) -> Row:
    """{"lines": the report as text}, or {"why": why there is none}; `pids`: processes of ranks."""
    address = _address_of(pids)
    try:
        data = _exchange(address, _users_of(pids), _TEXT, _MOST_TEXT)
    except OSError as error:
        return {"why": f"no NCCL RAS at {address[0]}:{address[1]}: {error}"}
    return {"lines": _lines(data)}


def ask_nccl_counts(pids: Iterable[int]) -> Row:
    """{"json": the report} of NCCL 2.28 and later, {"lines": it as text} of an older one, {} if
    nobody answers.
    """
    address = _address_of(pids)
    try:
        data = _exchange(address, _users_of(pids), _JSON, _MOST_JSON)
    except OSError:
        return {}
    # Before the report stand the answers to the first commands, a line each.
    begin = data.find(b"{")
    if begin < 0:
        return {"lines": _lines(data)}
    report = parse_json_table(data[begin:].decode("utf-8", "replace"))
    return {"json": report} if report else {}  # cut, or not of RAS


def _address_of(pids: Iterable[int]) -> "tuple[str, int]":
    for pid in list(pids)[:1]:
        told = processes.read_environment(pid, ("NCCL_RAS_ADDR",)).get("NCCL_RAS_ADDR", "")
        host, _, port = told.rpartition(":")
        if port.isdigit():
            return host or _ADDRESS[0], int(port)
    return _ADDRESS


def _users_of(pids: Iterable[int]) -> "set[int]":
    """The users of these processes; our own if there are none."""
    found = {_user_of(pid) for pid in pids}
    return {user for user in found if user is not None} or {os.geteuid()}


def _user_of(pid: int) -> Optional[int]:
    try:
        return Path("/proc", str(pid)).stat().st_uid
    except OSError:  # it has ended
        return None


def _exchange(address: "tuple[str, int]", users: "set[int]", asked: bytes, most: int) -> bytes:
    """What is answered there, if only these users listen at that port: another one may say of our
    ranks what he likes.
    """
    listening = find_listening_users(address[1])
    if not listening or listening - users:
        raise OSError("no process of the ranks' user listens there")
    with socket.create_connection(address, timeout=0.5) as link:
        link.sendall(asked)
        return _read_all(link, most)


def _read_all(link: socket.socket, most: int) -> bytes:
    data = b""
    deadline = time.monotonic() + _LIMIT
    while len(data) < most:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        link.settimeout(left)
        try:
            more = link.recv(1 << 16)
        except socket.timeout:
            break
        if not more:
            break
        data += more
    return data


def _lines(data: bytes) -> "list[str]":
    lines = (plain_line(line, 200) for line in data.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line][:_MOST_LINES]
