"""The same cluster seen otherwise: another namespace of Kubernetes, or the nodes of an
allocation of Slurm. The console closes the one and opens the other.
"""

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from rankdeck.config.allocations import HERE, allocation_here, held_cluster, read_allocation
from rankdeck.config.schedulers import NAMESPACE
from rankdeck.model.cluster import Cluster
from rankdeck.model.safe_text import printable_line
from rankdeck.model.schedulers import ALL_NAMESPACES
from rankdeck.ui.actions import CommandError
from rankdeck.ui.operations import in_background

if TYPE_CHECKING:
    from rankdeck.model.schedulers import Namespaces
    from rankdeck.ui.protocols import Console
    from rankdeck.ui.widgets.canvas import Runs

BACK = "off"
"""In place of an allocation: the cluster for which the console was started."""


# ---- namespaces


def known_namespaces(console: "Console") -> list[str]:
    """The namespaces that can be chosen, as far as the server was asked; asks it
    if it was not yet, for the next time.
    """
    session = console.session
    if session is None or not console.cluster.can.states_rights:
        return []
    known = session.kubernetes_client.known_namespaces
    if not known.current:
        in_background(console, "namespaces", _learn(console), "warn")
    return [*known.allowed, *([ALL_NAMESPACES] if known.every else [])]


async def _learn(console: "Console") -> None:
    found = await console.need_session().kubernetes_client.namespaces()
    console.say(f"{len(found.allowed)} namespaces are known now: tab completes", "dim")


def change_namespace(console: "Console", name: str) -> None:
    """Show what is in this namespace; "": list those there are. Raises CommandError."""
    if not console.cluster.can.states_rights:
        raise CommandError("this cluster is not on Kubernetes: it has no namespaces")
    if name and name != ALL_NAMESPACES and not NAMESPACE.fullmatch(name):
        raise CommandError(f"`{printable_line(name[:63])}` is not the name of a namespace")
    console.say("asking the API server …", "dim")
    work = _change_namespace(console, name) if name else _list_namespaces(console)
    in_background(console, "namespaces", work, "warn")


async def _list_namespaces(console: "Console") -> None:
    found = await console.need_session().kubernetes_client.namespaces()
    console.say("")
    console.show_whole("Namespaces", namespace_lines(found))


def namespace_lines(found: "Namespaces") -> "list[Runs]":
    """A line for each namespace, and how to change to another."""
    lines: list[Runs] = []
    for name in sorted((*found.allowed, *found.closed)):
        word, role = ("you may look", "text") if name in found.allowed else ("not allowed", "dim")
        here = "  shown now" if name == found.current else ""
        lines.append([(f"{name:<40} ", role), (f"{word}{here}", "title" if here else "dim")])
    if found.every:
        lines.append([(f"{ALL_NAMESPACES:<40} ", "text"), ("all of them at once", "dim")])
    lines.append([])
    if found.why:
        lines.append([(found.why, "warn")])
    return [*lines, [(":namespace NAME shows another; tab completes", "dim")]]


async def _change_namespace(console: "Console", name: str) -> None:
    """Change to the namespace, unless the user may see nothing there."""
    found = await console.need_session().kubernetes_client.namespaces(name)
    if name == found.current:
        console.say(f"{name} is shown already", "dim")
    elif name == ALL_NAMESPACES and not found.every:
        console.say("you may not list jobs in all namespaces at once", "warn")
    elif name in found.closed:
        console.say(f"you may not list jobs in {name}", "warn")
    elif name not in (*found.allowed, ALL_NAMESPACES):
        console.say(f"there is no namespace {name}; `:namespace` lists them", "warn")
    else:
        options = {**console.cluster.options, "namespace": name}
        console.change_cluster(replace(console.cluster, options=options))


# ---- allocations


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
