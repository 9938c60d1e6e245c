"""`:allocation`: the nodes of an allocation of Slurm; the console closes the cluster and opens
them.
"""

import asyncio
import os
from typing import TYPE_CHECKING

from rankdeck.model.cluster import Cluster
from rankdeck.schedulers.slurm.allocations import (
    HERE,
    allocation_here,
    held_cluster,
    read_allocation,
)
from rankdeck.ui.commands import CommandError
from rankdeck.ui.operations import in_background

if TYPE_CHECKING:
    from rankdeck.ui.protocols import Console

BACK = "off"
"""In place of an allocation: the cluster for which the console was started."""


def known_allocations(console: "Console") -> list[str]:
    """What can be given in place of the number of an allocation."""
    here = [HERE] if allocation_here(os.environ) else []
    return [*here, *([BACK] if _is_held(console.cluster) else [])]


def change_allocation(console: "Console", number: str) -> None:
    """Work within this allocation; "": that in which the console runs. Raises CommandError."""
    first = console.first_cluster
    if number == BACK:
        if not _is_held(console.cluster) or _is_held(first):
            raise CommandError("the console was started on this cluster")
        console.change_cluster(first)
        return
    if console.cluster.can.pods:
        raise CommandError("this cluster is on Kubernetes: an allocation is one of Slurm")

    async def change() -> None:
        held = await asyncio.to_thread(read_allocation, number or HERE)
        console.change_cluster(held_cluster(first, held))

    console.say("asking Slurm …", "dim")
    in_background(console, "allocation", change(), "warn")


def _is_held(cluster: Cluster) -> bool:
    return bool(cluster.access.allocation)
