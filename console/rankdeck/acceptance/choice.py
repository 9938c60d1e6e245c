"""Which recipes a run takes, by what its nodes have. Pure.

Before a collective over GPUs the network below it is measured: when NCCL is slow, its sentence needs that.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankdeck.acceptance.gate import Identity
from rankdeck.errors import RankdeckError
from rankdeck.model.acceptance import Stage
from rankdeck.model.nodeset import fold

NEEDS: Mapping[str, tuple[str, ...]] = {
    "nccl-tests": ("gpu:nvidia", "mpirun", "all_reduce_perf"),
    "rccl-tests": ("gpu:amd", "mpirun", "all_reduce_perf"),
    "torch-nccl": ("gpu:nvidia", "torchrun", "module:torch"),
    "ib_write_bw": ("rdma", "ib_write_bw"),
    "iperf3": ("iperf3",),
    "imb": ("mpirun", "IMB-MPI1"),
    "osu": ("mpirun", "osu_bw"),
    "mpi4py.bench": ("mpirun", "module:mpi4py"),
    "torch-gloo": ("torchrun", "module:torch"),
    "dcgmi": ("gpu:nvidia", "dcgmi"),
    "stress-ng": ("stress-ng",),
    "sysbench": ("sysbench",),
}
"""Recipe -> what a node must have for it to be chosen unasked: words of `Identity.has`."""
PROGRAMS = tuple(dict.fromkeys(
    word for words in NEEDS.values() for word in words if ":" not in word and word != "rdma"
))  # fmt: skip
MODULES = tuple(dict.fromkeys(
    word.partition(":")[2] for words in NEEDS.values() for word in words if word.startswith("module:")
))  # fmt: skip
_GPU = ("nccl-tests", "rccl-tests", "torch-nccl")
_MPI = ("imb", "osu", "mpi4py.bench")
_FAST = 40.0
"""Gb/s from which on one stream of TCP measures a core, not the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One recipe of one stage."""

    stage: Stage
    recipe: str
    """"" where there is none: then `why` says why."""
    why: str


def choose(
    nodes: Sequence[str],
    said: Mapping[str, Identity],
    *,
    virtual: bool,
    gbps: float,
) -> tuple[Chosen, ...]:
    """For single nodes, pairs and groups; `virtual`: the nodes are one machine, `gbps` 0: rate not known."""
    lacking = _lacking(nodes, said)
    return (
        *_single(lacking, virtual=virtual),
        *_pairs(lacking, virtual=virtual, gbps=gbps),
        *_groups(lacking),
    )


def _lacking(nodes: Sequence[str], said: Mapping[str, Identity]) -> dict[str, tuple[str, ...]]:
    """Recipe -> nodes that cannot run it."""
    return {
        recipe: tuple(
            node for node in nodes if node in said and not said[node].has.issuperset(words)
        )
        for recipe, words in NEEDS.items()
    }


def _first(names: Sequence[str], lacking: Mapping[str, Sequence[str]]) -> str:
    return next((name for name in names if not lacking[name]), "")


def _single(lacking: Mapping[str, Sequence[str]], *, virtual: bool) -> list[Chosen]:
    gpu = _first(("dcgmi",), lacking)
    found = (
        [Chosen(stage=Stage.SINGLE, recipe=gpu, why="NVIDIA GPUs and dcgmi are there")]
        if gpu
        else []
    )
    if virtual:
        return [
            *found,
            Chosen(
                stage=Stage.SINGLE,
                recipe="",
                why="the nodes share one machine: each would measure the others",
            ),
        ]
    cpu = _first(("stress-ng", "sysbench"), lacking)
    why = f"every node has {cpu}" if cpu else _why_not(("stress-ng", "sysbench"), lacking)
    return [*found, Chosen(stage=Stage.SINGLE, recipe=cpu, why=why)]


def _pairs(lacking: Mapping[str, Sequence[str]], *, virtual: bool, gbps: float) -> list[Chosen]:
    gpu = _first(_GPU, lacking)
    below = _first(("ib_write_bw",), lacking)
    why = "every node has RDMA ports and ib_write_bw" if below else ""
    if not below:
        below, why = _tcp(lacking, virtual=virtual, gbps=gbps)
    found = [Chosen(stage=Stage.PAIRS, recipe=below, why=why)] if below else []
    if gpu:
        found.append(Chosen(stage=Stage.PAIRS, recipe=gpu, why=f"every node has GPUs and {gpu}"))
    if not found:
        names = ("iperf3", *_MPI, "torch-gloo")
        found = [Chosen(stage=Stage.PAIRS, recipe="", why=_why_not(names, lacking))]
    return found


def _tcp(lacking: Mapping[str, Sequence[str]], *, virtual: bool, gbps: float) -> tuple[str, str]:
    """The recipe for the network without RDMA, and why it."""
    mpi = _first(_MPI, lacking)
    if not lacking["iperf3"] and not virtual and gbps < _FAST:
        return "iperf3", "every node has iperf3, which tells the directions apart"
    if mpi:
        fast = f"; one stream of iperf3 does not fill {gbps:g} Gb/s" if gbps >= _FAST else ""
        return mpi, f"every node has MPI and {mpi}{fast}"
    if not lacking["iperf3"]:
        return "iperf3", "every node has iperf3"
    gloo = _first(("torch-gloo",), lacking)
    return gloo, "every node has torch" if gloo else ""


def _groups(lacking: Mapping[str, Sequence[str]]) -> list[Chosen]:
    names = (*_GPU, *_MPI, "torch-gloo")
    name = _first(names, lacking)
    why = f"every node has {name}" if name else _why_not(names, lacking)
    return [Chosen(stage=Stage.GROUPS, recipe=name, why=why)]


Rails = Mapping[str, tuple[str, ...]]
"""Node -> its devices, one a rail; of all nodes as many."""


def rails_of(nodes: Sequence[str], said: Mapping[str, Identity], asked: Sequence[str]) -> Rails:
    """The devices asked for, else the fastest RDMA ports of each node; empty where there are fewer than two.

    Raises RankdeckError where a node lacks one that was asked for.
    """
    if asked:
        for node in nodes:
            has = {*said[node].rdma, *said[node].networks}
            if lacks := [name for name in asked if name not in has]:
                known = ", ".join(sorted(has)[:12])
                raise RankdeckError(f"{node} has no active {', '.join(lacks)}; it has {known}")
        return dict.fromkeys(nodes, tuple(asked))
    fastest = {node: _fastest(said[node].rdma) for node in nodes if node in said}
    count = min(map(len, fastest.values()), default=0)
    return {node: ports[:count] for node, ports in fastest.items()} if count > 1 else {}


def _fastest(ports: Mapping[str, float]) -> tuple[str, ...]:
    """Those for jobs; a slower one is for storage or management."""
    best = max(ports.values(), default=0.0)
    return tuple(sorted((name for name, rate in ports.items() if rate == best), key=_by_number))


def _by_number(name: str) -> tuple[str | int, ...]:
    """`mlx5_10` behind `mlx5_9`."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))


def fabric_of(rails: Rails, said: Mapping[str, Identity]) -> str:
    """Whether rails are `rdma` devices or `network` interfaces."""
    node, ports = next(iter(rails.items()), ("", ()))
    return "rdma" if ports and all(one in said[node].rdma for one in ports) else "network"


def _why_not(names: Sequence[str], lacking: Mapping[str, Sequence[str]]) -> str:
    """The recipe that fewest nodes lack, and which."""
    least = min(names, key=lambda name: len(lacking[name]))
    needs = ", ".join(word.partition(":")[2] or word for word in NEEDS[least])
    who = lacking[least]
    return f"no recipe that every node can run: {fold(who)} lack{'s' * (len(who) == 1)} {needs} for {least}"
