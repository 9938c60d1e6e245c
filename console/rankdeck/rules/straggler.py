"""Ranks that are slow, not silent: they compute while the others wait for them. No I/O."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median, median_high, median_low

from rankdeck.model.activity import Activity
from rankdeck.model.job import Stall
from rankdeck.rules.rank_activity import STOPPED, Known, Voice, named, numbers

LEAST = 8
"""Looks that are needed."""
_LAST = range(-LEAST, 0)
"""The places of the newest of them."""
_SLIPS = 1
"""Looks in which a straggler may be seen at rest."""
_MOST = 0.7
"""Share of the looks in which the others wait."""
_HELD = (3, 0.5)
"""The same two for one that is known: a line that comes and goes helps nobody."""
_HALF = 0.5
"""Who does less than this part of a straggler's work waits."""
_SOME = 0.02
"""Cores of own code below which nobody is waited for; on an overloaded machine a rank gets no more."""
_GAP = 12.0
"""Seconds between two looks that are not missing any."""
_SLOW_CLOCK = 0.85

_MORE, _TIMES = 0.1, 3.0
"""Who polls for others spends so much more of its time in the system, and so many times as much."""

_POLLS = 0.15
"""Share of system time from which on a rank that computes is taken to poll for its peers."""
_OWN_WAIT = re.compile(
    r"nanosleep|io_schedule|folio|wait_on_page|pipe_read|\b(?:nfs|rpc|cl_|ll_|ceph|jbd2|xfs|ext4)"
)
"""Kernel functions in which a process waits for time, a file system or a child, not for a peer."""

Looks = Mapping[int, Sequence[Activity]]
"""Rank -> its newest looks, of all ranks as many."""
Moment = tuple[float, bool, float]
"""One look over all ranks: the work of the middle rank, whether most sleep, the middle share of system time."""


def slow(voices: Sequence[Voice], known: Known, before: Sequence[Stall]) -> Stall | None:
    """The few ranks that the others wait for; None where the work is balanced or not known."""
    count = min((len(voice.looks) for voice in voices), default=0)
    if count < LEAST or len(voices) < 2:
        return None
    looks = {voice.rank.rank: voice.looks[-count:] for voice in voices}
    if not all(map(_is_whole, looks.values())):
        return None
    return _resting(voices, before, looks) or _working(voices, known, before, looks)


def _resting(voices: Sequence[Voice], before: Sequence[Stall], looks: Looks) -> Stall | None:
    """Who sleeps, reads or writes in nearly all looks while the others wait for their peers."""
    held = {rank for stall in before if stall.kind == "slow" for rank in stall.ranks}
    waiting = [sum(_waits_for_peers(some[at]) for some in looks.values()) for at in _LAST]
    rests = {rank: _rests(some, waiting, len(looks)) for rank, some in looks.items()}
    found = [
        voice
        for voice in voices
        if _is_straggler(rests[voice.rank.rank], LEAST, voice.rank.rank in held)
    ]
    if not found or 2 * len(found) > max(len(voices) - 1, 2):
        return None
    rested, waited = min(rests[voice.rank.rank] for voice in found)
    where = found[0].looks[-1].wchan or f"state {found[0].looks[-1].state}"
    verb = "is" if len(found) == 1 else "are"
    text = (
        f"{named([voice.rank for voice in found])} {verb} in {where} in {rested} of {LEAST} looks"
        f" while the others wait in {waited} of {LEAST}"
    )
    since = found[0].looks[-LEAST].at
    return Stall(kind="slow", ranks=numbers(found), since=since, text=text)


def _rests(mine: Sequence[Activity], waiting: Sequence[int], ranks: int) -> tuple[int, int]:
    """In how many of the last looks it rests by itself, and in how many of those most others wait.

    `waiting` has for each of these looks how many of all ranks wait; who rests is none of them.
    """
    at_rest = [at for at in _LAST if _is_at_rest(mine[at])]
    return len(at_rest), sum(2 * waiting[at] > ranks - 1 for at in at_rest)


def _is_at_rest(look: Activity) -> bool:
    """Whether it waits for time, a disk or a child of its own, and not for another rank."""
    own = look.state == "D" or _OWN_WAIT.search(look.wchan) is not None
    return own and not look.computes


def _waits_for_peers(look: Activity) -> bool:
    if look.computes:
        return (look.system or 0.0) >= _POLLS
    return look.state == "S" and bool(look.wchan) and not _is_at_rest(look)


def _working(
    voices: Sequence[Voice], known: Known, before: Sequence[Stall], looks: Looks
) -> Stall | None:
    """Who computes in nearly all looks while the others wait."""
    count = min(map(len, looks.values()))
    moments = [_moment([some[at] for some in looks.values()]) for at in range(count)]
    held = {rank for stall in before if stall.kind == "slow" for rank in stall.ranks}
    counts = {rank: _counts(some, moments) for rank, some in looks.items()}
    found = [
        voice
        for voice in voices
        if voice.looks[-1].state not in STOPPED
        and _is_straggler(counts[voice.rank.rank], count, voice.rank.rank in held)
    ]
    if not found or 2 * len(found) > max(len(voices) - 1, 2):
        return None
    return _told(found, voices, known, [counts[v.rank.rank] for v in found], count)


def _is_whole(looks: Sequence[Activity]) -> bool:
    return all(after.at - one.at <= _GAP for one, after in pairwise(looks))


def _moment(looks: Sequence[Activity]) -> Moment:
    asleep = sum(1 for look in looks if look.state == "S" and look.wchan)
    work = median_low(look.work for look in looks)
    share = median_high(look.system or 0.0 for look in looks)
    return work, 2 * asleep > len(looks) - 1, share


def _counts(looks: Sequence[Activity], moments: Sequence[Moment]) -> tuple[int, int]:
    """In how many looks it computes, and in how many of those most others wait."""
    busy = [
        (look, moment)
        for look, moment in zip(looks, moments, strict=True)
        if look.computes and look.work >= _SOME
    ]
    return len(busy), sum(1 for look, moment in busy if _others_wait(look, moment))


def _others_wait(look: Activity, moment: Moment) -> bool:
    work, asleep, share = moment
    mine = look.system or 0.0
    polls = share >= max(mine + _MORE, mine * _TIMES)
    return work < _HALF * look.work or polls or (look.state == "R" and asleep)


def _is_straggler(counts: tuple[int, int], looks: int, held: bool) -> bool:
    slips, most = _HELD if held else (_SLIPS, _MOST)
    computes, waited = counts
    return computes >= looks - slips and waited >= most * looks


def _told(
    found: Sequence[Voice],
    voices: Sequence[Voice],
    known: Known,
    counts: Sequence[tuple[int, int]],
    looks: int,
) -> Stall:
    computes, waited = min(counts)
    ranks = [voice.rank for voice in found]
    verb = "computes" if len(ranks) == 1 else "compute"
    text = (
        f"{named(ranks)} {verb} in {computes} of {looks} looks while the others wait"
        f" in {waited} of {looks}{_clock(found, voices, known)}"
    )
    since = found[0].looks[-looks].at
    return Stall(kind="slow", ranks=numbers(found), since=since, text=text)


def _clock(found: Sequence[Voice], voices: Sequence[Voice], known: Known) -> str:
    """What the clock of their node has to do with it, where telemetry tells."""
    nodes = {voice.rank.node for voice in found}
    others = {voice.rank.node for voice in voices} - nodes
    mine = [hz for node in nodes if (hz := known.clock(node))]
    theirs = [hz for node in others if (hz := known.clock(node))]
    if len(nodes) > 1 or not mine or not theirs:
        return ""
    share = mine[0] / median(theirs)
    if share >= _SLOW_CLOCK:
        return ""
    return f"; its node's cores run at {share:.0%} of the others' clock".replace("%", " %")
