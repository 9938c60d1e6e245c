"""Nodes and partitions, from the output of `sinfo`."""

import re
from collections.abc import Iterable, Mapping

from rankdeck_agent.schedulers.slurm.host_list import unfold_hosts
from rankdeck_agent.schedulers.slurm.job_reports import cut_columns
from rankdeck_agent.schedulers.slurm.queue import Row
from rankdeck_agent.schedulers.slurm.values import known_text, parse_count, parse_moment, parse_span
from rankdeck_agent.wire.schedulers.slurm_states import AWAY, NO_JOBS, SlurmFlag

MOST_NODES, MOST_PARTITIONS = 20_000, 1_000
_JOBS_OF_NODE = 64
NODE_COLUMNS = {
    "NodeHost": 64,
    "PartitionName": 64,
    "StateLong": 24,
    "Gres": 256,
    "GresUsed": 320,
    "features_act": 120,
    "CPUsState": 24,
    "AllocMem": 14,
    "Memory": 14,
    "User": 32,
    "Timestamp": 24,
    "Available": 10,
    "Time": 16,
    "Size": 24,
    "Partition": 66,
    "Reason": 240,
}
"""Field of `sinfo -O` -> its width."""
SINFO = (
    "sinfo", "--local", "--noheader", "--all", "--Node",
    "--Format=" + ",".join(f"{name}:{width}" for name, width in NODE_COLUMNS.items()),
)  # fmt: skip
"""The command for nodes and partitions: prints a line for each node of each partition."""
_SYMBOLS = {
    "*": SlurmFlag.NOT_RESPONDING.value,
    "~": SlurmFlag.POWERED_DOWN.value,
    "#": "powering up",
    "!": "to be powered down",
    "%": SlurmFlag.POWERING_DOWN.value,
    "$": "reserved for maintenance",
    "@": "to be rebooted",
    "^": SlurmFlag.REBOOTING.value,
    "-": "planned for a job",
    "+": "",
}
"""Sign at the end of a node's state -> its meaning."""
_CPUS = 4
_GRES = re.compile(r"([A-Za-z0-9_.+-]+(?::[A-Za-z0-9_.+-]+)?):(\d{1,9})(?:[KMGT])?(?:\(|,|$)")
_NO_TYPE = ":(null)"
"""What releases before 25.05 print for the type of GRES in use that have none."""
_UNUSABLE = (*NO_JOBS, *AWAY)


def node_rows(text: str) -> tuple[list[Row], list[Row]]:
    """(nodes, partitions) in the output of SINFO; other lines are skipped."""
    nodes: dict[str, Row] = {}
    partitions: dict[str, Row] = {}
    for line in text.splitlines():
        if "/" not in line:
            continue  # a quick check, because there may be megabytes of lines
        cells = dict(cut_columns(line, NODE_COLUMNS))
        name, where = cells["NodeHost"], cells["PartitionName"]
        if not name or not cells["StateLong"] or "/" not in cells["CPUsState"]:
            continue
        if name not in nodes and len(nodes) < MOST_NODES:
            nodes[name] = _node(cells)
        if name in nodes and where:
            nodes[name]["partitions"].append(where)
        if where and (where in partitions or len(partitions) < MOST_PARTITIONS):
            _count(partitions.setdefault(where, _partition(cells)), cells)
    return list(nodes.values()), list(partitions.values())


def _node(cells: Mapping[str, str]) -> Row:
    word = cells["StateLong"]
    state = word.rstrip("".join(_SYMBOLS))
    busy, _, _, total = _numbers(cells["CPUsState"])
    return {
        "name": cells["NodeHost"],
        "state": state,
        "also": [_SYMBOLS[sign] for sign in word[len(state) :] if _SYMBOLS[sign]],
        "reason": _reason(cells["Reason"]),
        "by": known_text(cells["User"]),
        "since": parse_moment(cells["Timestamp"]),
        "partitions": [],
        "features": known_text(cells["features_act"]),
        "gres": _gres(cells["Gres"]),
        "gres_used": _gres(cells["GresUsed"]),
        "cpus": total,
        "cpus_used": busy,
        "memory": parse_count(cells["Memory"]),
        "memory_used": parse_count(cells["AllocMem"]),
        "jobs": [],
    }


def _reason(text: str) -> str:
    return "" if text == "none" else known_text(text)


def _numbers(text: str) -> tuple[int, ...]:
    """(allocated, idle, other, total) in `4/0/0/4`."""
    words = text.split("/")
    return tuple(map(parse_count, words)) if len(words) == _CPUS else (0,) * _CPUS


def _gres(text: str) -> dict[str, int]:
    """Name -> number in `gpu:a100:4(S:0-1),nic:2`."""
    found: dict[str, int] = {}
    for name, count in _GRES.findall(re.sub(r"\([^)]*\)", "", text.replace(_NO_TYPE, ""))):
        found[name] = found.get(name, 0) + int(count)
    return found


def _partition(cells: Mapping[str, str]) -> Row:
    return {
        "name": cells["PartitionName"],
        "usual": cells["Partition"].endswith("*"),
        "up": cells["Available"] == "up",
        "limit": parse_span(cells["Time"]),
        "size": cells["Size"],
        "nodes": 0,
        "idle": 0,
        "usable": 0,
    }


def _count(partition: Row, cells: Mapping[str, str]) -> None:
    word = cells["StateLong"]
    usable = not word.startswith(_UNUSABLE) and not set(word) & set("*$@^%")
    partition["nodes"] += 1
    partition["usable"] += usable
    partition["idle"] += usable and word.startswith("idle")


def place_jobs(nodes: Iterable[Row], jobs: Iterable[Row]) -> None:
    """Add to each node's row the jobs that run there."""
    known_nodes = {row["name"]: row for row in nodes}
    for job in jobs:
        for name in unfold_hosts(job["nodes"]) if job["state"] != "PENDING" else ():
            node = known_nodes.get(name)
            if node is not None and len(node["jobs"]) < _JOBS_OF_NODE:
                node["jobs"].append(f"{job['shown']} {job['user']}")
