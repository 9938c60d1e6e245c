"""Describes the machine: kernel, operating system, boot time, name, addresses."""

import platform
import re
import socket
from pathlib import Path

from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text

_BOOT = re.compile(rb"^btime (\d{1,12})$", re.MULTILINE)


def describe_machine(tree: Tree) -> dict[str, str]:
    """Inventory of the machine under the tree: kernel, os, boot.at; for this
    machine also kernel.build, arch and python.
    """
    found = {"os": _system(tree)}
    if tree.root == "/":
        kernel = platform.release()
        found.update(arch=platform.machine(), python=platform.python_version())
        found["kernel.build"] = platform.version()
    else:
        kernel = tree.maybe("proc/sys/kernel/osrelease") or ""
    found["kernel"] = kernel
    found["boot.at"] = read_boot_time(tree)
    return {key: clean_text(value) for key, value in found.items() if value}


def read_host_name(tree: Tree) -> str:
    """The host name of the machine under the tree, without domain; "" if not known."""
    if tree.root == "/":
        return clean_text(platform.node().partition(".")[0])
    return clean_text((tree.maybe("proc/sys/kernel/hostname") or "").partition(".")[0])


def read_boot_time(tree: Tree) -> str:
    """Epoch seconds of the boot, by the machine's own clock, as text; "" if not known."""
    try:
        found = _BOOT.search(tree.read("proc/stat"))
    except OSError:
        found = None
    return found[1].decode() if found else ""


def _system(tree: Tree) -> str:
    try:
        text = tree.read("etc/os-release").decode("utf-8", "replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return clean_text(value.strip("\"'"))
    return platform.system() if tree.root == "/" else ""


_MOST = 64
_LOCAL = re.compile(r"\|-- ([\d.]{7,15})\n\s+/32 host LOCAL")


def local_addresses(proc: Path = Path("/proc")) -> list[str]:
    """This machine's IPv4 and IPv6 addresses without loopback; what cannot be read is left out.

    From `net/fib_trie` (a local address has a `/32 host LOCAL` below its `|--` line) and
    `net/if_inet6` (each line begins with 32 hexadecimal digits).
    """
    found = [a for a in _LOCAL.findall(_text(proc / "net/fib_trie")) if not a.startswith("127.")]
    found += map(_ipv6, _text(proc / "net/if_inet6").splitlines())
    return [address for address in dict.fromkeys(found) if address][:_MOST]


def _ipv6(line: str) -> str:
    """The address at the beginning of a line; "" for loopback, or if there is none."""
    try:
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line[:32]))
    except ValueError:
        return ""
    return "" if address == "::1" else address


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[: 1 << 20].decode("ascii", "replace")
    except OSError:
        return ""
