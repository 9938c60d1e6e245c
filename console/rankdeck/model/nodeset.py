"""Node sets in the syntax of ClusterShell and Slurm, `n[01-16,20]`, and sets of ranks, `0-3,7`."""

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from math import prod

PLAIN = re.compile(r"[A-Za-z0-9._-]+")
"""A single node name, not a set."""


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?:/\d+)?)?", re.ASCII)
_BETWEEN = re.compile(r"([,!&^])(?![^\[]*\])")
"""Operators between two sets, outside of brackets."""
LONGEST = 4_000
"""Most characters of a node set: text in brackets is scanned many times."""
MOST = 100_000
"""Most names in one node set."""


def expand_nodes(text: str) -> tuple[str, ...]:
    """The names in a node set, in its order; raises ValueError, which
    says what is wrong with the text.

    Groups (`@gpu`) are refused: to look up a group, ClusterShell runs a shell command that contains
    the name of the group.
    """
    if PLAIN.fullmatch(text):
        return (text,)
    _check(text)
    # Slow to import, and many clusters name their nodes one by one.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return tuple(str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except (NodeSetException, AssertionError) as error:
        raise ValueError(f"not a node set: {error or text[:60]}") from error


ALL = "all"


def expand_known_nodes(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in a node set, each once, as `expand_nodes` has them; patterns such as `gpu*`
    and the word `all` mean names of `known`. Raises ValueError.
    """
    signs_and_words = _BETWEEN.split(text)
    words = [word.strip() for word in signs_and_words[::2]]
    if not any(_is_pattern(word, known) for word in words):
        return tuple(dict.fromkeys(expand_nodes(text)))
    _check(text)
    chosen: dict[str, None] = {}
    for sign, word in zip((",", *signs_and_words[1::2]), words, strict=True):
        names = dict.fromkeys(_meant(word, known))
        chosen = _joined(chosen, sign, names)
    return tuple(chosen)


def _is_pattern(word: str, known: Collection[str]) -> bool:
    return "*" in word or "?" in word or (word == ALL and ALL not in known)


def _meant(word: str, known: Collection[str]) -> Iterable[str]:
    if not _is_pattern(word, known):
        return expand_nodes(word)
    if "[" in word:
        raise ValueError(f"not a node set: `*` and `?` cannot stand beside brackets in {word[:60]}")
    found = [name for name in known if word == ALL or fnmatchcase(name, word)]
    if not found:
        raise ValueError(f"no node matches `{word[:60]}`")
    return found


def _joined(left: dict[str, None], sign: str, right: dict[str, None]) -> dict[str, None]:
    """Both sets as the sign between them says."""
    if sign == "&":
        return {name: None for name in left if name in right}
    rest = {name: None for name in left if name not in right}
    if sign == "!":
        return rest
    if sign == "^":
        return {**rest, **{name: None for name in right if name not in left}}
    return {**left, **right}


def _check(text: str) -> None:
    """Refuse sets that would run programs or are too large; raises ValueError."""
    if "@" in text:
        raise ValueError("a group of nodes (`@…`) cannot be used here: write their names")
    if len(text) > LONGEST:
        raise ValueError(f"a node set of more than {LONGEST} characters")
    if _count(text) > MOST:
        raise ValueError(f"a node set of more than {MOST} names")


def _count(text: str) -> int:
    """An upper bound on the number of names in a node set, without expanding it; raises ValueError.

    ClusterShell accepts undocumented text between brackets, such as `[1-2-9999999]`: here only the
    documented syntax is allowed.
    """
    if any(bracket in _BRACKETS.sub("", text) for bracket in "[]"):
        raise ValueError(f"not a node set: a bracket is missing in {text[:60]}")
    return sum(_product(part) for part in _BETWEEN.split(text)[::2])


def _product(part: str) -> int:
    return prod(_span(inside) for inside in _BRACKETS.findall(part))


def _span(inside: str) -> int:
    ranges = [_RANGE.fullmatch(word.strip()) for word in inside.split(",")]
    if None in ranges:
        raise ValueError(f"not a node set: [{inside[:60]}]; write such as [1-4,7]")
    ends = [(int(found[1]), int(found[2] or found[1])) for found in ranges if found]
    return sum(max(1, high - low + 1) for low, high in ends)


def fold_nodes(names: Iterable[str]) -> str:
    """The shortest node set for these names."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))  # pyright: ignore[reportUnknownMemberType]


def expand_ranks(text: str) -> tuple[int, ...]:
    """`0-3,7` -> (0, 1, 2, 3, 7); raises ValueError."""
    ranks: dict[int, None] = {}
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(f"not a set of ranks: `{text}`")
        last = int(high) if dash else int(low)
        if last < int(low):
            raise ValueError(f"not a set of ranks: `{text}`; the smaller one stands first")
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
