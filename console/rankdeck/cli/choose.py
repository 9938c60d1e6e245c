"""Finds the cluster and the nodes that the user means, and asks
before a file of other users is used.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rankdeck.cli import output
from rankdeck.cli.output import UsageError
from rankdeck.config.clusters import read_cluster
from rankdeck.config.files import config_folder, find_cluster, read_regular
from rankdeck.config.node_sources import SourceError
from rankdeck.config.user import allow_uses
from rankdeck.errors import UntrustedError
from rankdeck.model.cluster import Cluster
from rankdeck.model.nodeset import expand_known_nodes, fold_nodes
from rankdeck.schedulers.slurm.allocations import bare_cluster, held_cluster, read_allocation
from rankdeck.values import replace

if TYPE_CHECKING:
    from rankdeck.demo.cluster import DemoStatus

Read = TypeVar("Read")


def read_agreed(read: Callable[[], Read]) -> Read:
    """The result of `read`; if a file is not trusted and there is a terminal, ask first."""
    try:
        return read()
    except UntrustedError as error:
        if not _yes(error):
            raise
        allow_uses(error.problems)
    return read()


def _yes(error: UntrustedError) -> bool:
    if not output.can_ask():
        return False
    problems = "\n".join(str(problem) for problem in error.problems)
    output.print_progress(f"{problems}\nAgree to this and remember it? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def read_file_or_stdin(name: str, limit: int) -> bytes:
    """A file, or stdin, of at most `limit` bytes; raises UsageError."""
    try:
        if name != "-":
            return read_regular(Path(name), limit)
        raw = sys.stdin.buffer.read(limit + 1) if sys.stdin else b""
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error
    if len(raw) > limit:
        raise UsageError(f"-: larger than {limit >> 10} KiB")
    return raw


VARIABLE = "RANKDECK_CLUSTER"
NAMESPACE_VARIABLE = "RANKDECK_NAMESPACE"
"""The namespace of Kubernetes; the option `--namespace` sets it for one command."""
ALLOCATION_VARIABLE = "RANKDECK_ALLOCATION"
"""The allocation of Slurm in which jobs run; the option `--allocation` sets it for one command."""


def note_choice(namespace: str, allocation: str) -> None:
    """Have `choose_cluster` take this namespace and allocation; "": as the environment says."""
    chosen = {NAMESPACE_VARIABLE: namespace, ALLOCATION_VARIABLE: allocation}
    os.environ.update({variable: value for variable, value in chosen.items() if value})


def is_named(given: str) -> bool:
    """Whether the cluster is named, by an option or the environment."""
    return bool(given or os.environ.get(VARIABLE, ""))


def choose_cluster(given: str) -> Cluster:
    """The cluster of this file or name; for "" the one that is meant if none is named."""
    namespace = os.environ.get(NAMESPACE_VARIABLE, "")
    allocation = os.environ.get(ALLOCATION_VARIABLE, "")
    found = _named_cluster(given or os.environ.get(VARIABLE, ""), bare=bool(allocation))
    if namespace:
        found = in_namespace(found, namespace)
    return in_allocation(found, allocation) if allocation else found


def _named_cluster(name: str, *, bare: bool) -> Cluster:
    """The cluster of this name; for "" the only one, with `bare` also none."""
    if name == "demo":
        return read_cluster(_demo_file())
    if not name and bare and not _cluster_files():
        return bare_cluster()
    file = find_cluster(name) if name else _only_cluster()
    return read_agreed(lambda: read_cluster(file))


def in_allocation(found: Cluster, number: str) -> Cluster:
    """The cluster of the nodes of this allocation of Slurm, `here` for the one in
    which we run: jobs run within it. Raises UsageError.
    """
    if found.can.pods:
        raise UsageError(
            f"`{found.name}` is on Kubernetes: an allocation is one of Slurm (--allocation, {ALLOCATION_VARIABLE})"
        )
    try:
        return held_cluster(found, read_allocation(number))
    except SourceError as error:
        raise UsageError(f"--allocation {number[:60]}: {error}") from error


def in_namespace(found: Cluster, namespace: str) -> Cluster:
    """The cluster as it is seen from this namespace; raises UsageError if it is
    not on Kubernetes, or for no namespace.
    """
    # Loading what Kubernetes needs takes time, and most commands are for other clusters.
    from rankdeck.schedulers.kubernetes.options import NAMESPACE
    from rankdeck.schedulers.kubernetes.values import ALL_NAMESPACES

    if not found.can.states_rights:
        raise UsageError(
            f"`{found.name}` is not on Kubernetes: leave out the namespace `{namespace[:63]}`"
            f" (--namespace, {NAMESPACE_VARIABLE})"
        )
    if namespace != ALL_NAMESPACES and not NAMESPACE.fullmatch(namespace):
        raise UsageError(f"`{namespace[:63]}` is not the name of a namespace")
    return replace(found, options={**found.options, "namespace": namespace})


def in_every_namespace(found: Cluster) -> Cluster:
    """The cluster with all its namespaces at once; raises UsageError if it has none."""
    from rankdeck.schedulers.kubernetes.values import ALL_NAMESPACES

    return in_namespace(found, ALL_NAMESPACES)


def expand_node_option(cluster: Cluster, text: str) -> tuple[str, ...]:
    """The nodes of this node set, each once; "": all of the cluster.

    Raises UsageError for unknown nodes.
    """
    known = tuple(node.name for node in cluster.nodes)
    if not text:
        return known
    try:
        names = expand_known_nodes(text, known)
    except ValueError as error:
        raise UsageError(str(error)) from error
    strangers = [name for name in names if name not in known]
    if strangers or not names:
        missing = fold_nodes(strangers) or text[:60]
        raise UsageError(
            f"no node `{missing}` in cluster `{cluster.name}`;"
            f" there are: {fold_nodes(known)} (`all` means all of them)"
        )
    return names


def _demo() -> "DemoStatus":
    """The state of the embedded cluster."""
    from rankdeck.demo.cluster import demo_status

    return demo_status()


def _demo_file() -> Path:
    demo = _demo()
    if not demo.nodes:  # a demo that crashed has nodes, and is shown
        raise UsageError("the demo cluster does not run; start it with `rankdeck demo up`")
    return demo.file


def _cluster_files() -> list[Path]:
    folder = config_folder() / "clusters"
    return sorted((*folder.glob("*.yaml"), *folder.glob("*.yml")))


def _only_cluster() -> Path:
    """The user's only cluster file, or else the demo's while it runs."""
    folder, files = config_folder() / "clusters", _cluster_files()
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(file.stem for file in files)
        raise UsageError(f"which cluster? say -c NAME or set {VARIABLE}; there are: {names}")
    demo = _demo()
    if demo.nodes:
        return demo.file
    raise UsageError(
        f"no cluster: say -c FILE, set {VARIABLE}, put a file into {folder}, or try `rankdeck demo`"
    )
