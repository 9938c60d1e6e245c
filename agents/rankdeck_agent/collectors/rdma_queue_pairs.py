"""The command `rdma-queue-pairs`: prints the counters of single queue pairs."""

import json
import sys
from pathlib import Path
from typing import Optional

from rankdeck_agent.collectors.rdma_netlink import QueuePairs, RdmaNetlink
from rankdeck_agent.text import clean_text, failure_reason, print_complaint

_NOT_BOUND = (
    "rankdeck-agent: {}: no queue pair is bound to a counter. As root, "
    "`rdma statistic qp set link {}/1 auto pid on` has the driver count new ones for each process"
)


def main(device: str) -> int:
    """`rdma-queue-pairs`: print the counters of queue pairs, one JSON
    object per line; returns the exit code.

    `device`: an RDMA device, "" for all. Keys: device, port, counter,
    mode, pid, command, queue_pairs, values.
    """
    try:
        kernel = RdmaNetlink()
        known = kernel.devices()
        if device and device not in known:
            raise FileNotFoundError(0, f"no RDMA device {clean_text(device)!r} here")
        for name, index in known.items():
            if device in ("", name):
                _print_all(name, kernel.queue_pairs(index))
    except FileNotFoundError as error:
        return print_complaint(f"rankdeck-agent: {error.strerror or ''}", 1)
    except OSError as error:
        why = f"the kernel was asked for RDMA counters: {failure_reason(error)}"
        return print_complaint(f"rankdeck-agent: {why}", 1)
    return 0 if known else print_complaint("rankdeck-agent: no RDMA device on this machine", 0)


def _print_all(name: str, bound: list[QueuePairs]) -> None:
    if not bound:
        print(_NOT_BOUND.format(name, name), file=sys.stderr)
    for one in bound:
        row = {"device": name, "port": one.port, "counter": one.id, "mode": one.mode,
               "pid": one.pid, "command": _command(one.pid), "queue_pairs": one.numbers,
               "values": one.values}  # fmt: skip
        print(json.dumps(row))


def _command(pid: Optional[int]) -> Optional[str]:
    try:
        return clean_text(
            Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        )
    except OSError:
        return None
