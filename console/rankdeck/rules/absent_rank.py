"""Finds the rank that never reached the point where the others waited. No I/O."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from rankdeck.rules.ends import End, Meaning, Role, keep_own_lines, raised_itself
from rankdeck.rules.failed_job import WINDOW, CauseChoice, View, end_time, name_of, ranks_in_words
from rankdeck.rules.messages import named_ranks, numbered_operation, sought_host

Sign = tuple[int, str]
"""(weight, sentence) of one piece of evidence."""


def never_came(view: View) -> CauseChoice | None:
    """The rank that never reached the point where the others waited and timed out."""
    waited = view.of(Role.TIMEOUT)
    if not waited:
        return None
    if host := host_sought_by_all(view):
        why = f"every rank sought the others at {host} in vain: is that the address of rank 0?"
        return CauseChoice(waited[0], (why, waited[0].why))
    rest = [m for m in view.ranks if m not in waited and not _left_before(m, waited[0])]
    signs = {id(m): _signs_of_absence(m, waited, only=rest == [m]) for m in view.ranks}
    weights = {key: sum(weight for weight, _ in found) for key, found in signs.items()}
    most = max(weights.values())
    if most <= 0:
        return None
    chosen, *tied = (m for m in view.ranks if weights[id(m)] == most)
    who = f"{ranks_in_words(len(waited))} timed out waiting, first {name_of(waited[0].end)}"
    sentences = [sentence for _, sentence in sorted(signs[id(chosen)], reverse=True)]
    return CauseChoice(chosen, (*sentences, f"{who}: {waited[0].why}"), tuple(tied))


def _left_before(meaning: Meaning, first: Meaning) -> bool:
    """Whether it ended well before the first of the others gave up."""
    return meaning.role is Role.WELL and end_time(meaning) < end_time(first)


def _signs_of_absence(meaning: Meaning, waited: Sequence[Meaning], *, only: bool) -> list[Sign]:
    """The evidence that this rank never reached the point where the others waited; [] if it did.

    `only`: all others timed out, so that it was not waiting for the same,
    though its wait may look like theirs.
    """
    end = meaning.end
    if meaning in waited:
        return _behind(end, waited)
    if raised := raised_itself(end):
        return [(5, f"{raised}, and had not ended when the others gave up")]
    if _sought_hosts(end) and _sought_hosts(end) == _sought_hosts(waited[0].end):
        return []
    usual = _usual([m.end.doing for m in waited])
    if usual and end.doing == usual and not only:
        return []
    late = end_time(meaning) > end_time(waited[-1]) + 2 * WINDOW
    named = {r for m in waited for line in keep_own_lines(m.end) for r in named_ranks(line)}
    elsewhere = end.node not in {m.end.node for m in waited}
    signs = (
        (end.rank in named, 4, f"those that waited name rank {end.rank}"),
        (
            bool(usual and end.doing and end.doing != usual),
            3,
            f"it was in {end.doing}, they in {usual}",
        ),
        (late or meaning.role is not Role.PEER, 2, _not_waiting(meaning)),
        (elsewhere, 1, f"no rank on {end.node} timed out"),
    )
    return [(weight, sentence) for true, weight, sentence in signs if true]


def host_sought_by_all(view: View) -> str:
    """The one host that every rank sought in vain until it gave up or was told to end; "" if there
    is none. Then no rank is to blame: who did not come would not have sought it.
    """
    if not all(m.role in (Role.TIMEOUT, Role.TERMINATED) for m in view.ranks):
        return ""
    sought = [_sought_hosts(m.end) for m in view.ranks]
    hosts = frozenset(chain(*sought))
    return min(hosts) if len(hosts) == 1 and all(sought) else ""


def _sought_hosts(end: End) -> frozenset[str]:
    return frozenset(filter(None, map(sought_host, keep_own_lines(end))))


def _not_waiting(meaning: Meaning) -> str:
    if meaning.role is Role.GOING:
        return "it still runs, and did not wait for them"
    return f"it did not time out itself: {meaning.why}"


def _behind(end: End, waited: Sequence[Meaning]) -> list[Sign]:
    """The evidence if a rank waited too, but in an earlier collective
    operation of the same group than the others; else [].
    """
    mine = _sequence(end)
    if mine is None:
        return []
    group, number = mine
    known = [one for m in waited if (one := _sequence(m.end))]
    furthest = max(at for of, at in known if of == group)
    if number >= furthest:
        return []
    return [(4, f"it was at collective operation {number}, others at {furthest}")]


def _sequence(end: End) -> tuple[str, int] | None:
    """(group, number) of the collective operation in which NCCL's watchdog stopped it."""
    found = [one for line in keep_own_lines(end) if (one := numbered_operation(line))]
    return found[-1] if found else None


def _usual(places: Sequence[str]) -> str:
    counts = Counter(filter(None, places))
    return counts.most_common(1)[0][0] if counts else ""
