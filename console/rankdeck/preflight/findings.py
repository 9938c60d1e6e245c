"""What preflight finds: a sentence about nodes, what to do, and the change of the job file that
mends it.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from rankdeck.model.nodeset import fold_nodes
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level

TellFinding = Callable[["Finding"], None]
"""Called with each finding as it is made."""
Step = Callable[[int, int, str], None]
"""Called with the number of steps done, the number of all steps, and what is being done."""


def tell_nobody(_: "Finding") -> None:
    """Do nothing: for callers that wait for all findings."""


def no_step(_done: int, _of: int, _doing: str) -> None:
    """Do nothing: for callers that show no progress."""


class Change(Value):
    """A change of the job file, such as `mpi.flavour` -> openmpi4; None removes the key."""

    key: str
    value: str | int | list[str] | None


class Finding(Value, kw_only=True):
    """One result of a check. BAD: the job would fail; UNKNOWN: it could not be checked."""

    check: str
    level: Level
    text: str
    node: str = ""
    """A node set; "" if the finding concerns the whole job."""
    fix: str = ""
    """What to do, as a sentence."""
    patch: tuple[Change, ...] = ()
    """`fix` as changes of the job file, if it can be done there."""


def make_finding(
    level: Level, check: str, node: str, text: str, fix: str = "", *patch: Change
) -> Finding:
    """Make a finding, written in one line."""
    return Finding(check=check, level=level, text=text, node=node, fix=fix, patch=patch)


K = TypeVar("K")


def group_nodes(pairs: Iterable[tuple[str, K | None]]) -> dict[K, str]:
    """Value -> node set with this value, from (node, value); None values are left out."""
    groups: dict[K, list[str]] = {}
    for node, value in pairs:
        if value is not None:
            groups.setdefault(value, []).append(node)
    return {value: fold_nodes(nodes) for value, nodes in groups.items()}
