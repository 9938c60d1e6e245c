"""The RDMA queue pairs that the processes of each rank hold."""

from collections.abc import Mapping
from typing import Any, Callable

from rankdeck_agent.collectors.rdma_netlink import HeldPair, RdmaNetlink

_MOST = 64


def read_rank_pairs(
    mine: Mapping[int, list[int]], connect: Callable[[], RdmaNetlink] = RdmaNetlink
) -> dict[int, list[dict[str, Any]]]:
    """Rank -> a row for each of its queue pairs, at most 64; `mine`: rank -> its processes.

    Empty where the kernel has no RDMA or does not tell.
    """
    ranks = {pid: rank for rank, pids in mine.items() for pid in pids}
    found: dict[int, list[dict[str, Any]]] = {}
    try:
        kernel = connect()
    except OSError:
        return {}
    try:
        for name, device in kernel.devices().items():
            for pair in kernel.held_pairs(device):
                if pair.pid in ranks:
                    found.setdefault(ranks[pair.pid], []).append(_row(name, pair))
    except OSError:
        return {}
    finally:
        kernel.close()
    return {rank: rows[:_MOST] for rank, rows in found.items()}


def _row(device: str, pair: HeldPair) -> dict[str, Any]:
    return {
        "device": device,
        "number": pair.number,
        "remote": pair.remote,
        "kind": pair.kind,
        "state": pair.state,
    }
