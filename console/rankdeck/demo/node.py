"""Starts one virtual node in its own namespaces, and stays there as process 1:
`python -m rankdeck.demo.node ROOT NAME PORT`.

The first process returns when the node's SSH server accepts connections, and leaves a record of it.
Standard library only, so that a node costs only one small process besides its server.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import rankdeck
from rankdeck.demo.cluster import DemoFolders, ProcessRecord, start_time

_NEWNS, _NEWUTS, _NEWUSER, _NEWPID = 0x0002_0000, 0x0400_0000, 0x1000_0000, 0x2000_0000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def detach_namespaces(*, user: bool) -> None:
    """Leave the machine's namespaces; the next child is process 1. Raises OSError.

    With `user`, the process first becomes root of its own user namespace.
    """
    uid, gid = os.getuid(), os.getgid()
    _unshare(_NEWNS | _NEWUTS | _NEWPID | (_NEWUSER if user else 0))
    if user:
        _map(0, uid, 0, gid)


def isolate_node(hostname: str, keep: Iterable[Path]) -> None:
    """As process 1: set the host name, and mount the node's own /proc, /tmp and /dev/shm.

    Paths of `keep` under /tmp stay visible, and the host name resolves. Raises OSError.
    """
    socket.sethostname(hostname)
    _mount("none", "/", "", _REC | _PRIVATE)
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _private_tmp([path.resolve() for path in keep])
    _own_hosts(hostname)
    if Path("/dev/shm").is_dir():
        _mount("tmpfs", "/dev/shm", "tmpfs", _NOSUID | _NODEV, "mode=1777")


def leave_root(uid: int, gid: int) -> None:
    """Become the ordinary user again, in a user namespace nested inside that of root."""
    _unshare(_NEWUSER)
    _map(uid, 0, gid, 0)


def _private_tmp(keep: list[Path]) -> None:
    tmp = Path("/tmp").resolve()
    there = {path for path in keep if tmp in path.parents and path.is_dir()}
    inside = [path.relative_to(tmp) for path in there if not there & set(path.parents)]
    os.chdir(tmp)  # relative paths still mean the machine's /tmp after the mount
    _mount("tmpfs", str(tmp), "tmpfs", _NOSUID | _NODEV, "mode=1777")
    for path in inside:
        (tmp / path).mkdir(parents=True, exist_ok=True)
        _mount(f"./{path}", str(tmp / path), "", _BIND | _REC)
    os.chdir("/")


def _own_hosts(hostname: str) -> None:
    """Write /etc/hosts with this name, without which torchrun waits
    for a name server for each rank.
    """
    hosts = Path("/etc/hosts")
    if not hosts.is_file():
        return
    own = Path("/tmp/.hosts")
    own.write_text(f"127.0.0.1 localhost {hostname}\n::1 localhost\n")
    _mount(str(own), str(hosts), "", _BIND)


def _map(uid: int, outer_uid: int, gid: int, outer_gid: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise _last_error("unshare")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    texts = (source.encode(), target.encode(), kind.encode() or None)
    if _libc.mount(*texts, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise _last_error(f"mount {target}")


def _last_error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


ISOLATED = ("root", "user")
"""Ways to isolate a node, the better one first; only root can use both."""


def main() -> int:
    """Try to start the node, with less isolation each time; returns the exit status."""
    layout, name, port = DemoFolders(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
    ways = ISOLATED if os.getuid() == 0 else ISOLATED[1:]
    why = ""
    for way in (*ways, ""):
        pid, answer = _attempt(layout, name, port, way)
        if pid and "port" in answer:
            start, port = start_time(pid) or 0, int(answer["port"])
            record = ProcessRecord(pid, start, port, way, why, sys.prefix)
            record.write(layout.record(name))
            return 0
        if "error" not in answer:
            break  # the server has written the reason to the log
        why = answer["error"]
    return 1


def _attempt(layout: DemoFolders, name: str, port: str, way: str) -> tuple[int, dict[str, str]]:
    """(pid of the node's process 1 as seen from here, the first message of it or its server)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _separate(layout, name, port, way, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor, not a path
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    answer: dict[str, str] = {}
    for line in lines:
        answer.update(json.loads(line))
    return int(answer.get("pid", 0)), answer


def _separate(layout: DemoFolders, name: str, port: str, way: str, writing: int) -> None:
    """Leave the machine's namespaces, start process 1 inside, and exit. Does not return."""
    uid, gid = os.getuid(), os.getgid()
    try:
        if way:
            detach_namespaces(user=way == "user")
        pid = os.fork()
        if pid:
            _say(writing, pid=str(pid))
            os._exit(0)
        if way:
            isolate_node(name, _needed(layout))
        if way == "user":
            leave_root(uid, gid)
    except OSError as error:
        _say(writing, error=error.strerror or str(error))
        os._exit(1)
    os._exit(_first_process(layout, name, port, writing))


def _needed(layout: DemoFolders) -> list[Path]:
    """Paths that nodes must see even under /tmp: our files and this Python."""
    source = Path(rankdeck.__file__).parents[2]
    imported = [Path(entry) for entry in sys.path if entry]
    return [layout.root, Path(sys.prefix), Path(sys.base_prefix), source, *imported]


def _first_process(layout: DemoFolders, name: str, port: str, writing: int) -> int:
    """Run the server, reap orphaned processes, and end with the server; returns its exit status."""
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
