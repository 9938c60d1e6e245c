"""Which ends and paths the slow pairs point to, before anything is named. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum

from rankdeck.acceptance.measurement import End, Measurement, Path
from rankdeck.model.acceptance import Stage


class Role(StrEnum):
    """A direction of an end."""

    SENDS = "sends"
    RECEIVES = "receives"


Side = tuple[End, Role]
_SHARE = 0.6
"""Of its partners with whom an end must be slow."""
_PARTNERS = 2
_STRIKES = 4
"""Slow partners from which on an end needs no confirmation, if most of them are good elsewhere."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """How one end did in one direction."""

    slow: frozenset[End]
    """Partners with whom it was slow."""
    full: frozenset[End]

    @property
    def total(self) -> int:
        return len(self.slow) + len(self.full)

    @property
    def share(self) -> float:
        return len(self.slow) / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Suspects:
    """What the pairs point to."""

    sides: Mapping[Side, Evidence] = field(default_factory=dict[Side, Evidence])
    """Ends that explain their slow pairs, worst first."""
    paths: tuple[Path, ...] = ()
    """Slow paths that no end explains."""
    proven: frozenset[Side] = frozenset()
    """Sides that somebody got full speed from."""


def find_suspects(slow: Iterable[Path], full: Iterable[Path]) -> Suspects:
    """Name the worst end, take its pairs away, and look again until the rest is single paths.

    One bad end makes each of its partners look bad once; taken away with its pairs, it no longer does.
    """
    left, fine = set(slow), set(full)
    partners = _partners(fine)
    proven = frozenset(partners)
    counts = _partners(left)
    named: dict[Side, Evidence] = {}
    while (worst := _worst(counts, partners)) is not None:
        named[worst] = Evidence(frozenset(counts.pop(worst)), frozenset(partners.get(worst, ())))
        for other in named[worst].slow:
            _forget(counts, worst, other)
            left.discard((worst[0], other) if worst[1] is Role.SENDS else (other, worst[0]))
    return Suspects(named, tuple(sorted(left, key=_order)), proven)


def _worst(counts: Mapping[Side, Set[End]], partners: Mapping[Side, Set[End]]) -> Side | None:
    """The end with the largest share of slow partners, then with most of them; None if none is bad enough."""
    best: tuple[float, int] = (0.0, 0)
    found: Side | None = None
    for side, slow in counts.items():
        total = len(slow) + len(partners.get(side, ()))
        share = len(slow) / total
        if len(slow) >= _PARTNERS and share >= _SHARE and (share, len(slow)) > best:
            best, found = (share, len(slow)), side
    return found


def _partners(paths: Iterable[Path]) -> dict[Side, set[End]]:
    found: defaultdict[Side, set[End]] = defaultdict(set)
    for sender, receiver in paths:
        found[sender, Role.SENDS].add(receiver)
        found[receiver, Role.RECEIVES].add(sender)
    return dict(found)


def _forget(counts: dict[Side, set[End]], side: Side, other: End) -> None:
    """Take one slow pair away from the partner at its other end."""
    back = (other, Role.RECEIVES if side[1] is Role.SENDS else Role.SENDS)
    counts[back].discard(side[0])
    if not counts[back]:
        del counts[back]


def _order(path: Path) -> tuple[str, int, str]:
    return path[0].node, path[0].rail, path[1].node


def confirmed(
    side: Side, evidence: Evidence, proven: Set[Side], runs: Iterable[Measurement], limit: float
) -> bool | None:
    """Whether an end is to blame: True, False, or None while it must be measured with proven partners.

    `runs` are its measurements of the confirmation; one at full speed clears it.
    """
    speeds = [speed for one in runs if (speed := one.speed) is not None]
    if speeds:
        return max(speeds) < limit
    back = Role.RECEIVES if side[1] is Role.SENDS else Role.SENDS
    good = sum(1 for partner in evidence.slow if (partner, back) in proven)
    return True if good >= _STRIKES else None


def confirmations(measurements: Iterable[Measurement]) -> Mapping[Side, tuple[Measurement, ...]]:
    """Side -> its measurements of the confirmation."""
    found: defaultdict[Side, list[Measurement]] = defaultdict(list)
    for one in measurements:
        if one.stage is Stage.CONFIRM:
            found[one.path[0], Role.SENDS].append(one)
            found[one.path[1], Role.RECEIVES].append(one)
    return {side: tuple(runs) for side, runs in found.items()}
