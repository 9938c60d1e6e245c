"""The few ranks that are slower than the others, which wait for them. No I/O."""

import re
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from statistics import median, median_high, median_low
from typing import NamedTuple

from rankdeck.model.rank import BUSY, Activity
from rankdeck.model.stall import Explained, Stall, share_words
from rankdeck.rules.kernel_waits import name_kernel_wait
from rankdeck.rules.rank_signs import STOPPED, KnownOfJob, RankSigns, name_ranks, rank_numbers
from rankdeck.values import replace

LEAST = 8
"""Looks that are needed to find a straggler."""
_LAST = range(-LEAST, 0)
"""Indices of the newest LEAST looks."""
_SLIPS = 1
"""Looks in which a straggler may do something else."""
_MOST = 0.7
"""Least share of the looks in which the others wait."""
_HELD = (3, 0.5)
"""_SLIPS and _MOST for a straggler that is already reported, so
that the report does not come and go.
"""
_HALF = 0.5
"""A rank that does less than this share of a straggler's work is waiting."""
_ALWAYS = 0.9
"""A rank that wants a core for this share of the time does not wait for others."""
_SOME = 0.02
"""A straggler runs its own code on at least this many cores; on an
overloaded machine it may get no more.
"""
_GAP = 12.0
"""Longest time in seconds between two consecutive looks."""
_SLOW_CLOCK = 0.85

_MORE, _TIMES = 0.1, 3.0
"""A rank polls for others if its share of system time is higher than a
straggler's by _MORE and _TIMES as high.
"""

_POLLS = 0.15
"""A rank that computes with at least this share of system time counts as polling for its peers."""
_THROTTLED = 0.5
"""A CPU quota holds a rank back if it was used up in at least this share of its periods."""
_CROWDED = 0.5
"""Cores are crowded for a rank that waits for one in at least this share of what it wants."""
_LEAST_WORK = 5.0
"""Seconds of CPU time that a straggler must have used where all ranks are crowded: there a short
phase of work, in which others wait rightly, lasts for many looks.
"""
_OF_CROWD = Explained(
    "other processes use the cores of its node, and the others wait for it",
    "see what runs there (`rankdeck ps`), end what is left over; start fewer ranks or threads there",
)
_OF_QUOTA = Explained(
    "a control group gives it less CPU than it asks for, and the others wait for it",
    "compare cpu.max (cpu.cfs_quota_us) of its control group with the other ranks'; raise the limit, or start fewer threads",
)
_OWN_WAIT = re.compile(
    r"nanosleep|io_schedule|folio|wait_on_page|pipe_read|\b(?:nfs|rpc|cl_|ll_|ceph|jbd2|xfs|ext4)"
)
"""Kernel functions in which a process waits for time, a file system or a child, not for a peer."""

Looks = Mapping[int, Sequence[Activity]]
"""Rank -> its newest looks, the same number for all ranks."""
Counts = Mapping[int, tuple[int, int]]
"""Rank -> in how many looks it works or rests, and in how many of those most others wait."""


class Moment(NamedTuple):
    """All ranks at one look; numbers are medians."""

    work: float
    asleep: bool
    """Whether most ranks sleep."""
    system: float
    """Share of system time."""
    rests: bool
    """Whether most ranks compute little and want a core for less than half of the time."""


def slow_ranks(
    signs: Sequence[RankSigns], known: KnownOfJob, before: Sequence[Stall]
) -> Stall | None:
    """The few ranks (stragglers) that the others wait for; None if there
    are none, or if that is not known.
    """
    count = min((len(sign.looks) for sign in signs), default=0)
    if count < LEAST or len(signs) < 2:
        return None
    looks = {sign.rank.rank: sign.looks[-count:] for sign in signs}
    if not all(map(_is_whole, looks.values())):
        return None
    held = {rank for stall in before if stall.kind == "slow" for rank in stall.ranks}
    return _resting(signs, held, looks) or _working(signs, known, held, looks)


def held_back(signs: Sequence[RankSigns], before: Sequence[Stall]) -> Stall | None:
    """The few ranks that a CPU quota holds back in nearly all looks; None if
    there are none, or if that is not known.

    The others wait for them, also those that seem to compute because they poll shared memory.
    """
    recent = {sign.rank.rank: sign.looks[-LEAST:] for sign in signs}
    if len(signs) < 2 or min(map(len, recent.values())) < LEAST:
        return None
    times = {rank: sum(map(_is_held_back, looks)) for rank, looks in recent.items()}
    held = {rank for stall in before if stall.kind == "slow" for rank in stall.ranks}
    found = _stragglers(signs, {rank: (n, n) for rank, n in times.items()}, LEAST, held)
    if not found:
        return None
    shares = [look.throttled or 0.0 for sign in found for look in sign.looks[-LEAST:]]
    ranks = [sign.rank for sign in found]
    text = (
        f"{name_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} held back by a CPU quota:"
        f" throttled in {share_words(median(shares))} of its periods, in {min(times[r.rank] for r in ranks)} of {LEAST} looks"
    )
    since = found[0].looks[-LEAST].at
    return Stall(
        kind="slow", ranks=rank_numbers(found), since=since, text=text, explained=(_OF_QUOTA,)
    )


def _is_held_back(look: Activity) -> bool:
    """Whether a quota holds back work of its own; a rank that only polls
    within a quota waits for another one.
    """
    return (look.throttled or 0.0) >= _THROTTLED and (look.system or 0.0) < _POLLS


def _resting(signs: Sequence[RankSigns], held: Set[int], looks: Looks) -> Stall | None:
    """Stragglers that sleep, read or write in nearly all looks while
    the others wait for their peers.
    """
    if len(signs) < _LEAST_RANKS:
        return None
    waiting = [sum(_waits_for_peers(some[at]) for some in looks.values()) for at in _LAST]
    rests = {rank: _rests(some, waiting, len(looks)) for rank, some in looks.items()}
    found = _stragglers(signs, rests, LEAST, held)
    if not found:
        return None
    last = found[0].looks[-1]
    where = name_kernel_wait(last.wchan) if last.wchan else f"state {last.state}"
    return _slow_ranks(found, f"{'is' if len(found) == 1 else 'are'} in {where}", rests, LEAST)


def _rests(mine: Sequence[Activity], waiting: Sequence[int], ranks: int) -> tuple[int, int]:
    """In how many of the last looks this rank is at rest, and in how many
    of those most others wait for peers.

    `waiting` is, for each of these looks, how many of all ranks wait for
    peers; a rank at rest does not count.
    """
    at_rest = [at for at in _LAST if _is_at_rest(mine[at])]
    return len(at_rest), sum(2 * waiting[at] > ranks - 1 for at in at_rest)


def _is_at_rest(look: Activity) -> bool:
    """Whether it waits for a timer, a file system or a child process, and not for another rank."""
    own = look.state == "D" or _OWN_WAIT.search(look.wchan) is not None
    return own and not look.computes


def _waits_for_peers(look: Activity) -> bool:
    if look.computes:
        return (look.system or 0.0) >= _POLLS
    return look.state == "S" and bool(look.wchan) and not _is_at_rest(look)


_LEAST_RANKS = 3
"""Ranks without which a rest says nothing, neither who waits nor for whom: of two, one often only
hands out the other's work, and that may be to wait.
"""
LEAST_POLLS = 4
"""Looks that are needed to tell that a rank only polls."""
_AFTER = 6.0
"""Seconds after its last output from which on a look shows nothing of the time before."""
_FEW_MOVES = 5
"""A rank that polls makes at most this many page faults, reads and writes between two looks."""


def only_polls(sign: RankSigns) -> bool:
    """Whether a silent rank has only asked for messages of others: much time
    in the kernel, no page faults, no I/O.
    """
    quiet = [look for look in sign.looks if look.at > sign.since + _AFTER]
    # On a busy machine a rank may get too little CPU in one look to tell its share of system time.
    told = [look for look in quiet if look.system is not None]
    still = all(look.moves is not None and look.moves <= _FEW_MOVES for look in quiet)
    if len(told) < LEAST_POLLS or not still:
        return False
    kernel = sum(look.cores * (look.system or 0.0) for look in told)
    return kernel >= _POLLS * sum(look.cores for look in told)


def _working(
    signs: Sequence[RankSigns], known: KnownOfJob, held: Set[int], looks: Looks
) -> Stall | None:
    """Stragglers that compute in nearly all looks while the others wait."""
    moments = [_moment(some) for some in zip(*looks.values(), strict=True)]
    counts = {
        rank: _counts(some, moments)
        for rank, some in looks.items()
        if some[-1].state not in STOPPED
    }
    found = _stragglers(signs, counts, len(moments), held)
    if not found:
        return None
    does = "computes" if len(found) == 1 else "compute"
    ranks = rank_numbers(found)
    delays = {rank: median(look.delayed or 0.0 for look in some) for rank, some in looks.items()}
    mine = min(delays[rank] for rank in ranks)
    theirs = median(delay for rank, delay in delays.items() if rank not in ranks)
    crowded = min(mine, theirs) >= _CROWDED
    if crowded and min(_cpu_time(looks[rank]) for rank in ranks) < _LEAST_WORK:
        return None
    told = _slow_ranks(found, does, counts, len(moments), _clock(found, signs, known))
    if crowded or mine < _CROWDED:
        return told
    text = f"{told.text}; for {share_words(mine)} of its work it waits for a core, which others use"
    return replace(told, text=text, explained=(_OF_CROWD,))


def _cpu_time(looks: Sequence[Activity]) -> float:
    """Seconds of CPU time that a rank used between the first and the last of its looks."""
    return sum(after.cores * (after.at - one.at) for one, after in pairwise(looks))


def _is_whole(looks: Sequence[Activity]) -> bool:
    return all(after.at - one.at <= _GAP for one, after in pairwise(looks))


def _moment(looks: Sequence[Activity]) -> Moment:
    if len(looks) < _LEAST_RANKS and any(map(_is_at_rest, looks)):
        return Moment(float("inf"), False, 0.0, False)
    asleep = sum(1 for look in looks if look.state == "S" and look.wchan)
    work = median_low(look.work for look in looks)
    share = median_high(look.system or 0.0 for look in looks)
    resting = sum(map(_rests_between, looks))
    most = len(looks) - 1
    return Moment(work, 2 * asleep > most, share, 2 * resting > most)


def _rests_between(look: Activity) -> bool:
    return look.cores < BUSY and look.wants is not None and look.wants < _HALF


def _counts(looks: Sequence[Activity], moments: Sequence[Moment]) -> tuple[int, int]:
    """In how many looks this rank computes, and in how many of those most others wait."""
    busy = [
        (look, moment)
        for look, moment in zip(looks, moments, strict=True)
        if look.computes and look.work >= _SOME
    ]
    return len(busy), sum(1 for look, moment in busy if _others_wait(look, moment))


def _others_wait(look: Activity, moment: Moment) -> bool:
    mine = look.system or 0.0
    polls = moment.system >= max(mine + _MORE, mine * _TIMES)
    rest = moment.rests and (look.wants or 0.0) >= _ALWAYS
    asleep = moment.asleep and look.state == "R"
    return moment.work < _HALF * look.work or polls or rest or asleep


def _stragglers(
    signs: Sequence[RankSigns], counts: Counts, looks: int, held: Set[int]
) -> list[RankSigns]:
    """The ranks that are stragglers by their counts; [] if they are too many."""
    found = [
        sign
        for sign in signs
        if (rank := sign.rank.rank) in counts and _is_straggler(counts[rank], looks, rank in held)
    ]
    return found if 2 * len(found) <= max(len(signs) - 1, 2) else []


def _is_straggler(counts: tuple[int, int], looks: int, held: bool) -> bool:
    slips, most = _HELD if held else (_SLIPS, _MOST)
    done, waited = counts
    return done >= looks - slips and waited >= most * looks


def _slow_ranks(
    found: Sequence[RankSigns], does: str, counts: Counts, looks: int, why: str = ""
) -> Stall:
    done, waited = min(counts[sign.rank.rank] for sign in found)
    text = (
        f"{name_ranks([sign.rank for sign in found])} {does} in {done} of {looks} looks"
        f" while the others wait in {waited} of {looks}{why}"
    )
    since = found[0].looks[-looks].at
    return Stall(kind="slow", ranks=rank_numbers(found), since=since, text=text)


def _clock(found: Sequence[RankSigns], signs: Sequence[RankSigns], known: KnownOfJob) -> str:
    """A clause for the report if their node's CPU clock is low,
    which explains the slowness; else "".
    """
    nodes = {sign.rank.node for sign in found}
    others = {sign.rank.node for sign in signs} - nodes
    mine = [hz for node in nodes if (hz := known.clock(node))]
    theirs = [hz for node in others if (hz := known.clock(node))]
    if len(nodes) > 1 or not mine or not theirs:
        return ""
    share = mine[0] / median(theirs)
    if share >= _SLOW_CLOCK:
        return ""
    return f"; its node's cores run at {share_words(share)} of the others' clock"
