"""An allocation of Slurm that the user holds (`salloc`): its nodes, as a
cluster whose jobs run within it.
"""

import os
import re
from collections.abc import Iterator, Mapping

from rankdeck.config.node_sources import JOB_NUMBER, SLURM_JOB_VARIABLE, SourceError, ask_program
from rankdeck.model.cluster import Access, Cluster, Node, Transport
from rankdeck.model.nodeset import expand_nodes, fold_nodes
from rankdeck.values import Value, replace

HERE = "here"
"""In place of a number: the allocation in which we run."""
_PART = re.compile(r"(?<=\s)Nodes=(\S+) CPU_IDs=(\S+) Mem=\S* GRES=(\S*)")
"""The lines of `scontrol show job --details`, one for nodes of which the same is so."""
_GPUS = re.compile(r"(?:^|,)gpu(?::[\w.-]+?)?:(\d{1,4})(?=\(|,|$)")
_MOST_CPUS = 65536


class Allocation(Value):
    """What a running job of Slurm holds."""

    number: str
    nodes: tuple[Node, ...]

    @property
    def folded(self) -> str:
        """Its nodes as a node set."""
        return fold_nodes(node.name for node in self.nodes)


def allocation_here(environment: Mapping[str, str]) -> str:
    """The number of the allocation in which we run; "" outside of one, and in a step of it."""
    number = environment.get(SLURM_JOB_VARIABLE, "")
    return number if JOB_NUMBER.match(number) else ""


def allocation_offer(cluster: Cluster) -> str:
    """What to say on a cluster of Slurm inside an allocation: jobs can run within
    it; "" elsewhere.
    """
    number = allocation_here(os.environ)
    if not number or not cluster.can.queue:
        return ""
    return (
        f"you are inside allocation {number}: `--allocation here` (on screen `:allocation`) "
        "runs jobs within it, without the queue"
    )


def read_allocation(number: str) -> Allocation:
    """Ask Slurm what this job of the user holds, HERE for the one in which we run.

    Raises SourceError.
    """
    number = allocation_here(os.environ) if number == HERE else number
    if not number:
        raise SourceError(
            f"there is no allocation here ({SLURM_JOB_VARIABLE} is not set): start inside `salloc`, or give its number"
        )
    if not JOB_NUMBER.match(number):
        raise SourceError(f"`{number[:60]}` is not the number of a job of Slurm")
    said = ask_program(("scontrol", "show", "job", "--details", "--oneliner", number), "scontrol")
    return parse_allocation(said, number)


def parse_allocation(said: str, number: str) -> Allocation:
    """The allocation that `scontrol show job --details` tells of; raises SourceError."""
    told = dict(word.split("=", 1) for word in said.split() if "=" in word)
    if told.get("JobState") != "RUNNING":
        state = told.get("JobState", "unknown to Slurm")[:40]
        raise SourceError(f"job {number} does not run ({state}): it has no nodes")
    nodes = tuple(_nodes(said))
    if not nodes:
        raise SourceError(f"Slurm does not say which nodes job {number} has")
    return Allocation(told.get("JobId", number), nodes)


def _nodes(said: str) -> Iterator[Node]:
    for folded, cpus, gres in _PART.findall(said):
        count = sum(map(_length, cpus.split(",")))
        gpus = sum(map(int, _GPUS.findall(gres)))
        for name in expand_nodes(folded):
            yield Node(name=name, slots=max(1, min(count, _MOST_CPUS)), gpus=gpus)


def _length(numbers: str) -> int:
    """How many numbers `4-7` or `4` are."""
    first, _, last = numbers.partition("-")
    known = first.isdecimal() and (last or first).isdecimal()
    return int(last or first) - int(first) + 1 if known else 0


def held_cluster(found: Cluster, held: Allocation) -> Cluster:
    """The cluster whose nodes are those of this allocation, and whose jobs run within it.

    What the cluster file says of a node and of jobs holds there too.
    """
    access = replace(found.access, transport=Transport.SRUN, allocation=held.number)
    return replace(
        found,
        name=f"{found.name[: 62 - len(held.number)]}-{held.number}",
        backend="ssh",
        options={},
        access=access,
        nodes=tuple(_as_named(found, node) for node in held.nodes),
    )


def _as_named(found: Cluster, node: Node) -> Node:
    """The node with what the cluster file says of it, but as many slots and GPUs as are held."""
    if not found.has(node.name):
        return node
    return replace(found.node(node.name), slots=node.slots, gpus=node.gpus)


def bare_cluster() -> Cluster:
    """What stands in for a cluster file where there is none."""
    return Cluster(name="allocation", nodes=(), access=Access())
