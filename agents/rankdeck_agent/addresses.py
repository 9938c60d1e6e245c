"""The IP addresses of this machine, as the kernel lists them."""

import re
import socket
from pathlib import Path

_MOST = 64
_LOCAL = re.compile(r"\|-- ([\d.]{7,15})\n\s+/32 host LOCAL")


def local_addresses(proc: Path = Path("/proc")) -> list[str]:
    """IPv4 and IPv6 addresses other than loopback, each once; what cannot be read is left out.

    From `net/fib_trie` (a local address is a `/32 host LOCAL` below its `|--` line) and
    `net/if_inet6` (32 hexadecimal digits at the beginning of each line).
    """
    found = [a for a in _LOCAL.findall(_text(proc / "net/fib_trie")) if not a.startswith("127.")]
    found += map(_ipv6, _text(proc / "net/if_inet6").splitlines())
    return [address for address in dict.fromkeys(found) if address][:_MOST]


def _ipv6(line: str) -> str:
    """The address at the beginning of a line; "" for loopback and where there is none."""
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
