"""Which rank never came to where the others waited for it in vain. No I/O."""

import re
from collections import Counter
from collections.abc import Sequence

from rankdeck.rules.ends import End, Meaning, Role
from rankdeck.rules.failed_job import (
    WINDOW,
    Choice,
    View,
    end_time,
    name_of,
    ranks_in_words,
)
from rankdeck.rules.named import named_ranks

_SEQUENCE = re.compile(r"SeqNum=(\d{1,12})")
Sign = tuple[int, str]
"""A weight, and the sentence for it."""


def never_came(view: View) -> Choice | None:
    """Others waited in vain: the rank that never came to them."""
    waited = view.of(Role.TIMEOUT)
    if not waited:
        return None
    signs = {id(m): _signs_of_absence(m, view, waited) for m in view.ranks}
    weights = {key: sum(weight for weight, _ in found) for key, found in signs.items()}
    most = max(weights.values())
    if most <= 0:
        return None
    chosen, *tied = (m for m in view.ranks if weights[id(m)] == most)
    who = f"{ranks_in_words(len(waited))} waited in vain, first {name_of(waited[0].end)}"
    said = [sentence for _, sentence in sorted(signs[id(chosen)], reverse=True)]
    return Choice(chosen, (*said, f"{who}: {waited[0].why}"), tuple(tied))


def _signs_of_absence(meaning: Meaning, view: View, waited: Sequence[Meaning]) -> list[Sign]:
    """The signs that this rank never came to where the others waited; none where it did."""
    end = meaning.end
    if meaning in waited:
        return _behind(end, waited)
    usual = _usual([m.end.doing for m in waited])
    if usual and end.doing == usual:
        return []
    late = end_time(meaning) > end_time(waited[-1]) + 2 * WINDOW
    named = {r for m in waited for line in m.end.lines for r in named_ranks(line)}
    elsewhere = end.node not in {m.end.node for m in waited}
    signs = (
        (end.rank in named, 4, f"those that waited name rank {end.rank}"),
        (bool(usual and end.doing), 3, f"it was in {end.doing}, they in {usual}"),
        (late or meaning.role is not Role.PEER, 2, _not_waiting(meaning)),
        (elsewhere, 1, f"no rank on {end.node} waited in vain"),
    )
    return [(weight, sentence) for true, weight, sentence in signs if true]


def _not_waiting(meaning: Meaning) -> str:
    if meaning.role is Role.GOING:
        return "it still runs, and did not wait for them"
    return f"it did not wait in vain itself: {meaning.why}"


def _behind(end: End, waited: Sequence[Meaning]) -> list[Sign]:
    """A rank that waited too, but in an earlier collective operation than the others."""
    numbers = [_sequence(m.end) for m in waited]
    mine, known = _sequence(end), [n for n in numbers if n is not None]
    if mine is None or mine >= max(known):
        return []
    return [(4, f"it was at collective operation {mine}, others at {max(known)}")]


def _sequence(end: End) -> int | None:
    """The number of the collective operation in which NCCL's watchdog stopped it."""
    found = [int(m[1]) for line in end.lines if (m := _SEQUENCE.search(line))]
    return found[-1] if found else None


def _usual(places: Sequence[str]) -> str:
    counts = Counter(filter(None, places))
    return counts.most_common(1)[0][0] if counts else ""
