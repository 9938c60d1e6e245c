"""Which ranks and which peers a line of a launcher, MPI, torch, NCCL or UCX names. No I/O."""

import re
from functools import lru_cache

_LONGEST = 500
_MOST_RANKS = 4096
_NUMBER = r"(\d{1,9})\b"
_RANKS = tuple(
    re.compile(pattern)
    for pattern in (
        # MPICH's "node" is the rank in the world; the rank behind it may be one of another communicator.
        rf"\bAbort\(-?\d+\) on node {_NUMBER}",
        rf"\bMPI_ABORT was invoked on rank {_NUMBER}(?! in communicator (?!MPI_COMM_WORLD))",
        rf"^\s*Proc: \[\[\d+,\d+\],{_NUMBER}",
        rf"\bProcess name: \[[^\s\]]+\]?,{_NUMBER}\]",
        rf"\bprocess rank {_NUMBER} with PID",
        rf"\bRANK {_NUMBER} PID \d+ RUNNING AT",
        rf"\bCommunication error with rank {_NUMBER}",
        r"\bRanks? (\d[\d, ]*) failed to pass monitoredBarrier",
        r"\bsrun: error: [^\s:]+: tasks? \[?(\d[\d,-]*)\]?:",
    )
)
_PORT = r":\d{1,5}\b"
_ADDRESS = r"[0-9A-Fa-f:.]{3,45}(?:%\w{1,15})?"
_HOST = r"([\w.-]{1,253})"
_PEERS = tuple(
    re.compile(pattern)
    for pattern in (
        # Gloo and c10d; the address behind `addr=` is our own end.
        rf"(?<!addr=)\[({_ADDRESS})\]{_PORT}",
        rf"\bconnect to \[{_HOST}\]{_PORT}",
        rf"\b(?:connect to|address of) \({_HOST}, \d+\)",
        # NCCL
        r"\b(?:[Cc]onnect to|recv from|send to|peer) ([^\s<>]{1,253})<\d+>",
        # Open MPI, MPICH, Slurm
        rf"^\s*(?:[Pp]eer(?: host| hostname)?|[Hh]ostname|Remote host):\s+{_HOST}(?:\s|$)",
        rf"\bRemote daemon: \S+ on node {_HOST}",
        rf"\bprocess rank \d+ with PID \d+ on node {_HOST}",
        rf"\bRUNNING AT {_HOST}",
        rf"\bsrun: error: {_HOST}: tasks? ",
        # UCX, libfabric, gRPC, ssh
        rf"\bdest_addr=({_ADDRESS}){_PORT}",
        rf"<-> ({_ADDRESS}){_PORT}",
        rf"\bremote peer \(({_ADDRESS}){_PORT}\)",
        rf"\bfi_sockaddr_in6?://\[?({_ADDRESS})\]?{_PORT}",
        rf"\bipv[46]:(?:\[|%5B)?({_ADDRESS})(?:\]|%5D)?{_PORT}",
        rf"\bssh: connect to host {_HOST} port \d",
        r"\b[Cc]ould not resolve hostname ([\w.-]{1,253})",
    )
)


@lru_cache(maxsize=8192)
def named_ranks(line: str) -> tuple[int, ...]:
    """The ranks that a line says have failed or are missing, as they stand in it."""
    found: list[int] = []
    for pattern in _RANKS:
        for match in pattern.finditer(line[:_LONGEST]):
            found += _numbers(match[1])
    return tuple(dict.fromkeys(found))[:_MOST_RANKS]


@lru_cache(maxsize=8192)
def named_peers(line: str) -> tuple[str, ...]:
    """The addresses and host names of other nodes in a line, without their ports."""
    hits = (match for pattern in _PEERS for match in pattern.finditer(line[:_LONGEST]))
    found = (match[1].removeprefix("::ffff:").rstrip(".") for match in hits)
    return tuple(dict.fromkeys(name for name in found if name))


def _numbers(text: str) -> list[int]:
    """The numbers of `0`, `2, 5` or `0-3,7`; a range beyond all reason counts as its ends."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit():
            continue
        low, high = int(first[:9]), int(last[:9]) if last.isdigit() else int(first[:9])
        found += range(low, high + 1) if 0 <= high - low < _MOST_RANKS else (low, high)
    return found
