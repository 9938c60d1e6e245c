"""Node sets as ClusterShell and Slurm write them: `n[01-16,20]`."""

import re
from collections.abc import Iterable

PLAIN = re.compile(r"[A-Za-z0-9._-]+")
"""A name that stands for itself."""


def expand(text: str) -> tuple[str, ...]:
    """The names `text` stands for, in order; raises ValueError."""
    if PLAIN.fullmatch(text):
        return (text,)
    # Slow to read from disk, and many clusters name their nodes one by one.
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return tuple(str(name) for name in NodeSet(text))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except NodeSetException as error:
        raise ValueError(f"not a node set: {error}") from error


def fold(names: Iterable[str]) -> str:
    """The shortest node set for these names."""
    from ClusterShell.NodeSet import NodeSet

    return str(NodeSet.fromlist(list(names)))  # pyright: ignore[reportUnknownMemberType]


def expand_ranks(text: str) -> tuple[int, ...]:
    """`0-3,7` -> (0, 1, 2, 3, 7); raises ValueError."""
    ranks: dict[int, None] = {}
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(f"not a set of ranks: {text!r}; write 0-3,7")
        last = int(high) if dash else int(low)
        if last - int(low) > 1_000_000:
            raise ValueError(f"too many ranks: {text!r}")
        ranks.update(dict.fromkeys(range(int(low), last + 1)))
    return tuple(ranks)


def fold_ranks(ranks: Iterable[int]) -> str:
    """(0, 1, 2, 7) -> `0-2,7`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
