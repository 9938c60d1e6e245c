"""Drift: how a run differs from the declared baseline, node by node and as a whole. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rankdeck.model.nodeset import fold

_MADS, _LEAST = 3.0, 0.03
"""A subject drifts by more than three median deviations of then, and by more than 3 %."""
_SIGN = 0.9
"""Share of the subjects that must be on one side for the whole cluster to have moved."""
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Normal:
    """What was declared of one subject."""

    median: float
    mad: float


@dataclass(frozen=True, slots=True)
class Drift:
    """One subject that moved, or the whole."""

    subject: str
    """A node or a path; "" for the whole cluster."""
    change: float
    """Share of what it was: -0.06 is 6 % less."""
    sentence: str


def drifts(
    now: Mapping[str, float], then: Mapping[str, Normal], changed: str = "", unit: str = ""
) -> tuple[Drift, ...]:
    """The whole cluster first, then each subject that moved; subjects of only one side are not compared.

    `changed` is what `changed_since` says; it stands in every sentence.
    """
    both = {
        name: (value, then[name])
        for name, value in now.items()
        if name in then and then[name].median > 0
    }
    shares = {name: value / normal.median - 1 for name, (value, normal) in both.items()}
    more = f"; changed since: {changed}" if changed else ""
    single = tuple(
        Drift(name, shares[name], f"{name}: {value:.3g} {unit}".rstrip() + f", was {normal.median:.3g} ({_percent(shares[name])}){more}")
        for name, (value, normal) in both.items()
        if abs(value - normal.median) > max(_MADS * normal.mad, _LEAST * normal.median)
    )  # fmt: skip
    return (*_whole(shares, more), *single)


def _whole(shares: Mapping[str, float], more: str) -> tuple[Drift, ...]:
    """A sign test: nine in ten on one side, also where each change is small."""
    lower = sum(1 for share in shares.values() if share < 0)
    higher = sum(1 for share in shares.values() if share > 0)
    most = max(lower, higher)
    if len(shares) < _FEWEST or most < _SIGN * len(shares):
        return ()
    change = median(shares.values())
    return (Drift("", change, f"{_percent(change)} on {most} of {len(shares)}{more}"),)


def _percent(share: float) -> str:
    return f"{share:+.1%}".replace("%", " %").replace("-", "−")


def changed_since(
    now: Mapping[str, Mapping[str, str]], then: Mapping[str, Mapping[str, str]]
) -> str:
    """What is different about the nodes, most useful line of a report: `driver 550.90 → 570.12 on n[1-16]`.

    Both are node -> fact -> value; nodes and facts of only one side are left out.
    """
    moved: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for node in sorted(set(now) & set(then)):
        for fact in sorted(set(now[node]) & set(then[node])):
            before, after = then[node][fact], now[node][fact]
            if before != after:
                moved[fact, before, after].append(node)
    return ", ".join(_said(key, nodes) for key, nodes in sorted(moved.items()))


def _said(key: tuple[str, str, str], nodes: Sequence[str]) -> str:
    fact, before, after = key
    return f"{fact} {before} → {after} on {fold(nodes)}"
