"""`:namespace`: the same cluster, another namespace; the console closes the one and opens the
other.
"""

from typing import TYPE_CHECKING, cast

from rankdeck.model.safe_text import printable_line
from rankdeck.schedulers.kubernetes.values import ALL_NAMESPACES
from rankdeck.ui.commands import CommandError
from rankdeck.ui.operations import in_background
from rankdeck.values import replace

if TYPE_CHECKING:
    from rankdeck.schedulers.kubernetes.queue import KubernetesQueue
    from rankdeck.schedulers.kubernetes.values import Namespaces
    from rankdeck.ui.protocols import Console
    from rankdeck.ui.widgets.canvas import Runs


def _api_server(console: "Console") -> "KubernetesQueue":
    """What is asked on a cluster whose backend tells the rights of its users."""
    return cast("KubernetesQueue", console.need_session().queue)


def known_namespaces(console: "Console") -> list[str]:
    """The namespaces that can be chosen, as far as the server was asked; asks it
    if it was not yet, for the next time.
    """
    if console.session is None or not console.cluster.can.states_rights:
        return []
    known = _api_server(console).known_namespaces
    if not known.current:
        in_background(console, "namespaces", _learn(console), "warn")
    return [*known.allowed, *([ALL_NAMESPACES] if known.every else [])]


async def _learn(console: "Console") -> None:
    found = await _api_server(console).namespaces()
    console.say(f"{len(found.allowed)} namespaces are known now: tab completes", "dim")


def change_namespace(console: "Console", name: str) -> None:
    """Show what is in this namespace; "": list those there are. Raises CommandError."""
    from rankdeck.schedulers.kubernetes.options import NAMESPACE  # loads all of a section's rules

    if not console.cluster.can.states_rights:
        raise CommandError("this cluster is not on Kubernetes: it has no namespaces")
    if name and name != ALL_NAMESPACES and not NAMESPACE.fullmatch(name):
        raise CommandError(f"`{printable_line(name[:63])}` is not the name of a namespace")
    console.say("asking the API server …", "dim")
    work = _change_namespace(console, name) if name else _list_namespaces(console)
    in_background(console, "namespaces", work, "warn")


async def _list_namespaces(console: "Console") -> None:
    found = await _api_server(console).namespaces()
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
    found = await _api_server(console).namespaces(name)
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
