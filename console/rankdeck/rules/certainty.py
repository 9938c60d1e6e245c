"""How sure a verdict is: weighs the evidence for each candidate and against all of them. No I/O.

Each kind of evidence has one weight (`certainty_table.py`, fitted by `python -m benchmarks
certainty --fit`). The weights of a candidate add up; its share is e to that sum, divided by the
same of all candidates and of "none of these". So a weight of 0.7 doubles the odds, one of 2.3
makes them ten times as high, and of n candidates with equal evidence each has the same share.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from math import exp

from rankdeck.values import Value

BAR = 0.7
"""Least share with which somebody is accused; below it the verdict is `undecided`."""
HIGHEST = 0.99
"""Highest share that is told: the fit has seen too few verdicts to tell more."""
MOST_BETWEEN = 3
"""Most candidates between which a verdict is said to be undecided."""
_GREY, GREY_TOLD = (0.9, 0.98), 0.89
"""Shares of at least 90 % are told only from 98 % on: what is said to be so sure must be wrong
at most once in a hundred times. In between, 89 % is told.
"""
_WORTH = 0.2
"""Least share, as part of the best one, with which a candidate is named there."""


class Sign(StrEnum):
    """A kind of evidence for or against one candidate."""

    # What its end says by itself; one of these.
    KERNEL = "the kernel names it"
    CRASH = "it crashed"
    ABORT = "it called MPI_Abort"
    WORDS = "its words tell a fault of its own"
    UNEXPLAINED = "it ended by itself, unexplained"
    KILLED = "it was killed, or its end was not seen"
    ASKED = "somebody asked it to end, not its launcher"
    VICTIM = "its words or exit code are those of a victim"
    WELL = "it ended with exit 0"
    GOING = "it has not ended"
    GONE = "its node stopped answering"
    LAUNCHER = "it is a launcher"
    # Which rule picks it; of several that the clocks cannot tell apart, all are picked.
    OWN = "picked as the first own fault"
    ABSENT = "picked because it never came"
    LEFT = "picked because it left early"
    FAILED = "picked as the launcher that failed"
    PEERS = "picked because others lost a peer"
    TOLD = "picked as the first that was told to end"
    SCHEDULER = "picked by the scheduler's word"
    # What others say.
    NAMED = "a launcher names it"
    NOT_NAMED = "a launcher names another"
    BY_PEERS = "ranks that lost a peer name it"
    BY_MOST = "most ranks that lost a peer name it"
    # Time.
    FIRST = "surely the first"
    FIRST_SEEN = "first by the records, within their error"
    LATER = "surely later than another candidate"
    # Others like it.
    ALONE = "no other has a fault of its own"
    ALIKE = "another one ended alike"
    AFTER_WELL = "another one ended with exit 0 before it"
    TWINS = "others on its node fail by the same words"
    EVERYBODY = "every rank ended alike"
    # Stalls; one of these.
    STOPPED = "it is stopped"
    DEVICE = "it waits for a device"
    RAISED = "it raised an exception and runs on"
    NEVER_ENTERED = "it never entered the operation in which others wait"
    SILENT = "it is silent while others go on"
    ODD = "it does something else than the others, all silent"
    EARLY = "it fell silent first, all silent"
    GONE_BEFORE = "it ended with exit 0, all others silent"
    SLOW = "the others wait for it"
    AGENT = "the agent of its node stands still"
    NOT_BEGUN = "it has not begun"
    DEADLOCK = "all wait for each other"
    # More about a stall.
    LEFT_BEHIND = "the others may have gone on without it"
    BOTH = "it fell silent first and does something else"
    SEVERAL = "it is one of several, all silent"
    SEVERAL_RAISED = "another one raised an exception, too"
    SEVERAL_SLOW = "the others wait for several"
    SEVERAL_ALIKE = "it is one of several to which the same happens"
    DISPUTED = "another stall names another one"
    # Where none of the candidates is to blame.
    NOBODY_OWN = "none: where an own fault was picked"
    NOBODY_ABSENT = "none: where one never came"
    NOBODY_OTHER = "none: where only victims were found"
    NOBODY_STALLED = "none: at a stall"


class Candidate(Value):
    """Somebody who may be to blame, and the evidence."""

    who: frozenset["Part"]
    signs: frozenset[Sign]


Part = tuple[str, int | str]
"""("rank", 3), ("node", "n2"), ("launcher", "n1")."""
Weights = Mapping[Sign, float]


def share_blame(rows: Sequence[Collection[Sign]], weights: Weights) -> list[float]:
    """The share of each row of evidence: one for each candidate, the last for "none of these"."""
    sums = [sum(weights.get(sign, 0.0) for sign in row) for row in rows]
    highest = max(sums)
    parts = [exp(one - highest) for one in sums]
    whole = sum(parts)
    return [part / whole for part in parts]


def tell_share(share: float) -> float:
    """A share as it is told."""
    low, high = _GREY
    return round(GREY_TOLD if low <= share < high else min(share, HIGHEST), 2)


def rivals_of(shares: Sequence[float], chosen: Iterable[int]) -> tuple[int, ...]:
    """Indices of the candidates between which a verdict is undecided, the likeliest first;
    `shares` without that of "none of these".
    """
    best = max(shares, default=0.0)
    worth = [at for at, share in enumerate(shares) if share >= _WORTH * best or at in {*chosen}]
    return tuple(sorted(worth, key=lambda at: -shares[at])[:MOST_BETWEEN])
