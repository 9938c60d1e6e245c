"""How sure we are: fits the weights of evidence on one part of the recordings and planted
timelines, and checks on the other part whether shares are what they say.

`python -m benchmarks certainty [--plays FOLDER] [--fit]`; `--fit` writes the table of weights. A
timeline belongs to a part by the hash of its name. Recorded failures and planted timelines are
told apart in the figures.
"""

import argparse
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from benchmarks.planted_ends import Timeline, plant_failure
from benchmarks.planted_stalls import StallTimeline, plant_stall
from benchmarks.recorded_ends import PLAYS, read_corpus, read_plays
from rankdeck.rules.certainty import BAR, Sign, share_blame, tell_share
from rankdeck.rules.certainty_table import WEIGHTS
from rankdeck.rules.failure_evidence import fails_as_one, gather_evidence
from rankdeck.rules.root_cause import find_cause
from rankdeck.rules.stall_evidence import NOBODY, gather_suspects

PLANTED = 3000
"""Timelines of failures and of stalls that are planted."""
ROUNDS, STEP, PULL = 500, 0.05, 0.2
"""Rounds of the fit, its step, and how strongly each weight is pulled to 0 (as so many cases)."""
GIVEN: Mapping[Sign, float] = {Sign.LEFT_BEHIND: -0.83}
"""Weights that are not fitted, because no timeline has them. In the binomial tree of a broadcast
every rank but the root waits alone if only it is there; if one leaves it out, another one waits
alone for a quarter of them. So 4 to 1, or 80 %.
"""
BINS = 10
SURE = 0.9
TABLE = Path(__file__).resolve().parents[1] / "console/rankdeck/rules/certainty_table.py"
Weights = Mapping[Sign, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """One verdict: the evidence, who was to blame, and who was chosen."""

    name: str
    recorded: bool
    rows: tuple[frozenset[Sign], ...]
    """The evidence of each candidate; the last row is that of "none of these"."""
    right: frozenset[int]
    """Rows of those to blame."""
    chosen: int
    """The row of the accused."""
    good: bool
    """Whether the accused is to blame."""
    family: str

    @property
    def kept_apart(self) -> bool:
        """Whether it is kept for the check."""
        base = self.name.partition("#")[0]
        return hashlib.sha256(base.encode()).digest()[0] < 128


def sample_failure(one: Timeline, *, recorded: bool = False) -> Sample | None:
    """The verdict on a failure; None if nobody was accused, and nothing is open: every rank failed
    alike.
    """
    cause = find_cause(one.job)
    if cause is None or fails_as_one(cause):
        return None
    found = gather_evidence(cause)
    rows = (*(each.signs for each in found.candidates), found.nobody)
    good = [each.who <= one.right for each in found.candidates]
    return Sample(one.name, recorded, rows, _right_rows(good), 0, good[0], one.family)


def sample_stalls(one: StallTimeline) -> Sample | None:
    """The verdict on a stall; None if nobody is accused."""
    suspects = gather_suspects(one.found)
    if not suspects:
        return None
    rows = (*(each.signs for each, _ in suspects), frozenset(NOBODY))
    good = [each.who <= one.right if each.who else not one.right for each, _ in suspects]
    return Sample(one.name, False, rows, _right_rows(good), 0, good[0], one.family)


def _right_rows(good: Sequence[bool]) -> frozenset[int]:
    """The rows of those to blame; if none of them is, the row of "none of these"."""
    return frozenset(at for at, true in enumerate(good) if true) or frozenset({len(good)})


def gather_samples(plays: Path = PLAYS, planted: int = PLANTED) -> list[Sample]:
    """All verdicts, recorded and planted; each recording also with other clocks, as planted."""
    recordings = (*read_corpus(), *read_plays(plays))
    found = [sample_failure(one, recorded="#" not in one.name) for one in recordings]
    found += [sample_failure(plant_failure(f"failure {n}")) for n in range(planted)]
    found += [sample_stalls(plant_stall(f"stall {n}")) for n in range(planted)]
    return [one for one in found if one is not None]


# ---- fit -----------------------------------------------------------------------------------


def fit_weights(samples: Sequence[Sample]) -> dict[Sign, float]:
    """The weights under which those to blame have the highest shares (maximum likelihood, pulled
    to 0); steps are those of Adam.
    """
    weights = dict.fromkeys(Sign, 0.0)
    mean, spread = dict.fromkeys(Sign, 0.0), dict.fromkeys(Sign, 0.0)
    for turn in range(1, ROUNDS + 1):
        slope = _slope(samples, weights)
        for sign in Sign:
            mean[sign] = 0.9 * mean[sign] + 0.1 * slope[sign]
            spread[sign] = 0.999 * spread[sign] + 0.001 * slope[sign] ** 2
            move = mean[sign] / (1 - 0.9**turn) / (sqrt(spread[sign] / (1 - 0.999**turn)) + 1e-9)
            weights[sign] += STEP * move
    return {**{sign: round(weight, 2) for sign, weight in weights.items()}, **GIVEN}


def _slope(samples: Sequence[Sample], weights: Weights) -> dict[Sign, float]:
    slope = {sign: -PULL * weights[sign] for sign in Sign}
    for one in samples:
        shares = share_blame(one.rows, weights)
        told = sum(shares[at] for at in one.right)
        for at, row in enumerate(one.rows):
            move = (shares[at] / told if at in one.right else 0.0) - shares[at]
            for sign in row:
                slope[sign] += move
    return slope


# ---- check ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calibration:
    """Whether shares are what they say."""

    told: int
    """Verdicts that accuse somebody, or say that nobody is to blame."""
    right: int
    undecided: int
    error: float
    """Expected calibration error of the verdicts that are told."""
    sure: int
    """Verdicts of at least SURE."""
    sure_wrong: int

    @property
    def highest_wrong(self) -> float:
        """Upper end of the interval (Wilson, 95 %) of the share of sure verdicts that are wrong."""
        return upper_end(self.sure_wrong, self.sure)


def upper_end(count: int, of: int, z: float = 1.96) -> float:
    """Upper end of Wilson's interval for 95 %."""
    if not of:
        return 1.0
    share = count / of
    middle = share + z * z / (2 * of)
    return (middle + z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))) / (1 + z * z / of)


def told_shares(samples: Iterable[Sample], weights: Weights) -> list[tuple[float, bool]]:
    """(share as it is told, whether right) of each verdict, undecided ones too."""
    found: list[tuple[float, bool]] = []
    for one in samples:
        shares = share_blame(one.rows, weights)
        found.append((tell_share(shares[one.chosen]), one.good))
    return found


def check_shares(verdicts: Sequence[tuple[float, bool]]) -> Calibration:
    """Compare the shares with how often they are right."""
    told = [one for one in verdicts if one[0] >= BAR]
    bins: dict[int, list[tuple[float, bool]]] = {}
    for one in told:
        bins.setdefault(min(int(one[0] * BINS), BINS - 1), []).append(one)
    apart = sum(abs(sum(share - good for share, good in some)) for some in bins.values())
    sure = [good for share, good in told if share >= SURE]
    return Calibration(
        told=len(told), right=sum(good for _, good in told), undecided=len(verdicts) - len(told),
        error=apart / len(told) if told else 0.0, sure=len(sure), sure_wrong=sure.count(False),
    )  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Print the figures; 1 if the table of weights misses its goal on what was kept apart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks certainty", description=__doc__)
    parser.add_argument("--plays", type=Path, default=PLAYS, metavar="FOLDER")
    parser.add_argument("--fit", action="store_true", help="fit, and write the table of weights")
    options = parser.parse_args(words)
    samples = gather_samples(options.plays)
    weights: Weights = WEIGHTS
    if options.fit:
        weights = fit_weights([one for one in samples if not one.kept_apart])
        TABLE.write_text(write_table(weights))
    parts = {
        "fitted on": [one for one in samples if not one.kept_apart],
        "kept apart": [one for one in samples if one.kept_apart],
        "kept apart, recorded": [one for one in samples if one.kept_apart and one.recorded],
        "all recorded": [one for one in samples if one.recorded],
    }
    for name, some in parts.items():
        print(f"{name}: {calibration_words(check_shares(told_shares(some, weights)))}")
    goal = check_shares(told_shares(parts["kept apart"], weights))
    return int(goal.error > 0.05 or goal.sure_wrong > 0.01 * goal.sure)


def calibration_words(one: Calibration) -> str:
    """The figures in one line."""
    return (
        f"{one.told} verdicts, {one.right} right, {one.undecided} undecided; calibration error"
        f" {one.error:.1%}; {one.sure} of at least {SURE:.0%}, {one.sure_wrong} of them wrong"
        f" (at most {one.highest_wrong:.1%})"
    )


def write_table(weights: Weights) -> str:
    """The module with the table."""
    rows = "".join(f"    Sign.{sign.name}: {weights[sign]},\n" for sign in Sign)
    return f'''"""The weights of evidence (natural logarithms of odds), as written by `python -m benchmarks
certainty --fit`.
"""

from collections.abc import Mapping

from rankdeck.rules.certainty import Sign

WEIGHTS: Mapping[Sign, float] = {{
{rows}}}
'''
