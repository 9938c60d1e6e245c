"""Gives a process its own host name, processes, mounts and /tmp, without root if need be.

Straight system calls: the machine needs no more than Python, and every refusal has its reason.
"""

import ctypes
import os
import socket
from collections.abc import Iterable
from pathlib import Path

_NEWNS, _NEWUTS, _NEWUSER, _NEWPID = 0x0002_0000, 0x0400_0000, 0x1000_0000, 0x2000_0000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def detach(*, user: bool) -> None:
    """Leave the machine's namespaces; the next child is process 1. Raises OSError.

    With `user` the process becomes root of a user namespace of its own first.
    """
    uid, gid = os.getuid(), os.getgid()
    _unshare(_NEWNS | _NEWUTS | _NEWPID | (_NEWUSER if user else 0))
    if user:
        _map(0, uid, 0, gid)


def furnish(hostname: str, keep: Iterable[Path]) -> None:
    """As process 1: set the host name, mount a /proc, /tmp and /dev/shm of its own.

    What of `keep` lies under /tmp stays visible there, and the host name resolves. Raises OSError.
    """
    socket.sethostname(hostname)
    _mount("none", "/", "", _REC | _PRIVATE)
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _private_tmp([path.resolve() for path in keep])
    _own_hosts(hostname)
    if Path("/dev/shm").is_dir():
        _mount("tmpfs", "/dev/shm", "tmpfs", _NOSUID | _NODEV, "mode=1777")


def become(uid: int, gid: int) -> None:
    """From root of a user namespace back to the ordinary user, in one nested inside."""
    _unshare(_NEWUSER)
    _map(uid, 0, gid, 0)


def _private_tmp(keep: list[Path]) -> None:
    tmp = Path("/tmp").resolve()
    there = {path for path in keep if tmp in path.parents and path.is_dir()}
    inside = [path.relative_to(tmp) for path in there if not there & set(path.parents)]
    os.chdir(tmp)  # relative paths go on meaning the machine's /tmp after the mount
    _mount("tmpfs", str(tmp), "tmpfs", _NOSUID | _NODEV, "mode=1777")
    for path in inside:
        (tmp / path).mkdir(parents=True, exist_ok=True)
        _mount(f"./{path}", str(tmp / path), "", _BIND | _REC)
    os.chdir("/")


def _own_hosts(hostname: str) -> None:
    """Without it torchrun waits for a name server once for every rank."""
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
