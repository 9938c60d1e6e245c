"""A simulated cluster for acceptance: values as from iperf3, with
planted faults, noise and disturbance.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankdeck.acceptance.judge import Judgement
from rankdeck.acceptance.schedule import Options, Round, Schedule
from rankdeck.acceptance.suspects import Context
from rankdeck.acceptance.values import Measurement, Outcome
from rankdeck.values import replace

LINK = 96.0


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The bandwidth of a pair is the minimum of sender, receiver, path
    and its share of the uplink, in Gb/s.
    """

    sends: Mapping[str, float] = field(default_factory=dict)
    receives: Mapping[str, float] = field(default_factory=dict)
    paths: Mapping[frozenset[str], float] = field(default_factory=dict)
    other_port: Mapping[frozenset[str], float] = field(default_factory=dict)
    uplinks: Mapping[str, float] = field(default_factory=dict)
    """Leaf -> bandwidth of its uplink, shared by all pairs that cross at once."""
    leaves: Mapping[str, str] = field(default_factory=dict)
    erratic: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Node -> (share of its runs that are slow, the speed that these reach)."""
    broken: frozenset[str] = frozenset()
    """Nodes whose pairs fail."""
    noise: float = 0.01
    disturbed: float = 0.03
    """Share of the runs that something slows by 15 to 60 %."""

    def speed(self, sender: str, receiver: str, one: Round, chance: random.Random) -> float:
        pair = frozenset((sender, receiver))
        table = self.other_port if one.port and pair in self.other_port else self.paths
        least = min(
            self.sends.get(sender, LINK), self.receives.get(receiver, LINK), table.get(pair, LINK)
        )
        for node in sorted(pair):
            share, most = self.erratic.get(node, (0.0, LINK))
            least = min(least, most) if share and chance.random() < share else least
            leaf = self.leaves.get(node)
            if leaf in self.uplinks and self.leaves.get(sender) != self.leaves.get(receiver):
                crossing = sum(
                    1 for a, b in one.pairs if (self.leaves[a] == leaf) != (self.leaves[b] == leaf)
                )
                least = min(least, self.uplinks[leaf] / max(crossing, 1))
        value = least * (1 - abs(chance.gauss(0, self.noise)))
        return (
            value * (1 - chance.uniform(0.15, 0.6)) if chance.random() < self.disturbed else value
        )

    def run(
        self, options: Options, context: Context | None = None, seed: int = 0, most: int = 10_000
    ) -> tuple[Judgement, Schedule, int]:
        """Run all rounds; returns the judgement, the schedule, and the number of rounds."""
        schedule, chance, count = Schedule(options, context), random.Random(seed), 0
        while (one := schedule.next_round()) is not None:
            assert len({node for pair in one.pairs for node in pair}) == 2 * len(one.pairs)
            count += 1
            assert count <= most
            for sender, receiver, repeat, rail in one.runs:
                schedule.take(
                    replace(self.measured(sender, receiver, one, repeat, chance), rail=rail)
                )
        return schedule.judgement(), schedule, count

    def measured(
        self, sender: str, receiver: str, one: Round, repeat: int, chance: random.Random
    ) -> Measurement:
        bad = bool(self.broken & {sender, receiver})
        return Measurement(
            stage=one.stage, sender=sender, receiver=receiver, round=one.number, repeat=repeat, port=one.port,
            value=None if bad else self.speed(sender, receiver, one, chance),
            status=Outcome.FAILED if bad else Outcome.MEASURED,
            text="time ran out after traffic began" if bad else "",
        )  # fmt: skip
