"""Judges which ranks are stalled: silent, stopped, waiting for a device, hung
after an exception, not begun. No I/O.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from rankdeck.model.job import Job, RankState
from rankdeck.model.rank import Activity, State
from rankdeck.model.stall import LONG_PAUSE, Stall
from rankdeck.rules.deadlock import OF_DEADLOCK, describe_deadlock
from rankdeck.rules.halted_ranks import in_device, stopped_ranks
from rankdeck.rules.inspect import Look, StackGroup, group_stacks, odd_groups
from rankdeck.rules.messages import explain_end
from rankdeck.rules.mute_agents import mute_agents
from rankdeck.rules.rank_signs import (
    QUIET,
    KnownOfJob,
    RankSigns,
    lasting_words,
    name_ranks,
    rank_numbers,
    signs_of,
)
from rankdeck.rules.stragglers import held_back, only_polls, slow_ranks
from rankdeck.rules.unhandled_exceptions import raised_ranks
from rankdeck.values import replace

UNSURE = 60.0
"""Seconds that all ranks may be silent at once if it is not
known whether CPUs and GPUs are idle.
"""
BUSY = 300.0
"""The same if all compute and fell silent together, which may be a long phase of work.
If a few fell silent first, the others poll for them, and UNSURE counts."""
SPEECHLESS = 120.0
"""Seconds that a job may take to write its first line if it does not compute."""
START = 60.0
"""Seconds that ranks may take to begin."""
PACES, PACES_APART = 10.0, 4.0
"""How many of its usual pauses a rank may be silent; PACES_APART if looks show that ranks wait."""
_SPOKE_SINCE = 10.0
"""A rank counts as going on if it wrote at least this many seconds
after the last line of the silent ones.
"""
_ASKS = 0.04
"""A rank that computes with less than this share of system time does not poll."""
_IDLE_CORES = 0.3
"""Cores per rank below which a node does not compute."""
_IDLE_GPU = 10.0
_NO_CPU = 0.05
"""A rank that uses fewer cores than this is said to use no CPU."""
_LOOKS = 6
"""Looks that are used to tell what a silent rank does: a rank that
polls is seen at several places.
"""
_MOST_NAMED = 4
_APART = 0.25
"""Seconds between two silences below which neither is the first."""


def is_idle(
    ranks: int, cpu_used: float | None, cores: float | None, gpus: Sequence[float]
) -> bool | None:
    """Whether a node with `ranks` ranks is idle, by its telemetry; None: not known.

    `cpu_used`, `gpus`: percent.
    """
    if cpu_used is None or cores is None:
        return None
    if gpus_busy(gpus):
        return False
    return cpu_used / 100 * cores < _IDLE_CORES * max(ranks, 1)


def gpus_busy(gpus: Sequence[float]) -> bool | None:
    """Whether any of the GPUs (percent in use) is busy; None if there are none."""
    return any(used >= _IDLE_GPU for used in gpus) if gpus else None


def find_stalls(job: Job, now: float, known: KnownOfJob) -> tuple[Stall, ...]:
    """The present stalls of this job; () if it has ended or a part of it
    has failed. `now` is epoch seconds.

    `job.stalled` has the stalls reported before; a silence that was
    reported stays until there is output again.
    """
    if job.state.final or job.first_failure is not None or job.clock is not None:
        return ()
    signs = signs_of(job, now, known)
    if job.unit == "task":  # tasks of an array do not wait for each other
        found = (stopped_ranks(signs), in_device(signs))
        return tuple(one for one in found if one is not None)
    mute = mute_agents(job, now, known)
    unseen = {rank for one in mute for rank in one.ranks}
    signs = [sign for sign in signs if sign.rank.rank not in unseen]
    halted = [raised_ranks(signs, known), stopped_ranks(signs), in_device(signs)]
    found = [*mute, _not_begun(job, now, known.launcher), *halted]
    if not any(halted) and not job.waits:
        # While some pods wait, the others wait for them.
        found.append(
            held_back(signs, job.stalled)
            or _all_silent(signs, known, job.stalled)
            or _some_silent(signs, job.stalled)
            or slow_ranks(signs, known, job.stalled)
        )
    return tuple(_with_those_that_left(one, job) for one in found if one is not None)


def _with_those_that_left(stall: Stall, job: Job) -> Stall:
    """The stall; if all running ranks are silent, with the few that have
    ended well: the others may wait for them.
    """
    left = [rank for rank in job.ranks if rank.state is State.DONE]
    if stall.kind != "all" or not left or 2 * len(left) > len(job.ranks):
        return stall
    gone = tuple(rank.rank for rank in left)
    text = f"{name_ranks(left)} ended with exit 0; {stall.text}"
    return replace(stall, text=text, first=gone, odd=gone)


def _may_begin(job: Job) -> float | None:
    """Since when its ranks could have begun (epoch seconds); None while it
    waits in a queue, which is no stall.
    """
    if job.in_scheduler is None:
        return None if job.waits else max(job.created, job.waited)
    return None if job.in_scheduler.waits else max(job.created, job.in_scheduler.start or 0.0)


def _not_begun(job: Job, now: float, launcher: Sequence[str]) -> Stall | None:
    pending = [rank for rank in job.ranks if rank.state is State.PENDING]
    since = _may_begin(job)
    if not pending or since is None or now - since < START:
        return None
    everybody = len(pending) == len(job.ranks)
    has = "has" if len(pending) == 1 else "have"
    who = "no rank has" if everybody else f"{name_ranks(pending)} {has} not"
    last = next((line for line in reversed(launcher) if line.strip()), "")
    hint = f"; the launcher's last line: {last.strip()}" if last else ""
    return Stall(
        kind="start",
        ranks=tuple(rank.rank for rank in pending),
        since=since,
        text=f"{who} begun after {lasting_words(now - since)}{hint}",
        explained=explain_end(launcher),
    )


# ---- some ------------------------------------------------------------------------------------


def _some_silent(signs: Sequence[RankSigns], before: Sequence[Stall]) -> Stall | None:
    """A minority of ranks that fell silent.

    If most are silent, that is normal: only some ranks write.
    """
    speakers = [sign for sign in signs if sign.pace is not None]
    late = [sign for sign in speakers if _is_late(sign, PACES, _quiet(sign))]
    if not late:
        return None
    # Ranks that fell silent together reach the limit one after the other;
    # only ranks that wrote later go on.
    last = max(sign.since for sign in late)
    held = _held("rank", late, before)
    later = [sign for sign in speakers if sign.since - last >= _SPOKE_SINCE]
    others = sum(held or _goes_on(sign) for sign in later)
    few = 2 * len(late) < len(speakers) <= 2 * others
    if not others or not (few or held):
        return None
    since = min(sign.since for sign in late)
    go = "another goes on" if others == 1 else f"{others} others go on"
    does = _doing(late)
    who = " ".join([name_ranks([sign.rank for sign in late]), *(f"{one}," for one in does)])
    return Stall(
        kind="rank",
        ranks=rank_numbers(late),
        since=since,
        text=f"{who} silent for {lasting_words(max(v.silent for v in late))} while {go}",
        first=_first(late),
        heard=max(sign.since for sign in late),
    )


def _goes_on(sign: RankSigns) -> bool:
    """Whether it wrote just now, and has for as long as others may be silent.

    In a pause of all, some have only written a little longer. After it some write later
    than others: not every rank writes in every step.
    """
    pauses_often = PACES_APART * (sign.pace or 0.0) >= LONG_PAUSE
    return sign.silent < _SPOKE_SINCE and (pauses_often or sign.talks >= QUIET)


def _quiet(sign: RankSigns) -> float:
    """Seconds that a rank may be silent: more if it computes, because
    some ranks work longer than others.
    """
    works = bool(sign.looks) and _usual(sign).computes and _works(sign)
    return UNSURE if works else QUIET


def _is_late(sign: RankSigns, paces: float, quiet: float = QUIET) -> bool:
    return sign.silent > max(quiet, paces * (sign.pace or 0.0))


def _held(kind: str, signs: Sequence[RankSigns], before: Sequence[Stall]) -> bool:
    """Whether such a stall was reported before and none of its ranks has written since."""
    return any(_is_so_still(stall, signs) for stall in before if stall.kind == kind)


def _is_so_still(stall: Stall, signs: Sequence[RankSigns]) -> bool:
    about = [sign.since for sign in signs if sign.rank.rank in stall.ranks]
    return bool(about) and max(about) <= stall.heard


# ---- all -------------------------------------------------------------------------------------


def _all_silent(
    signs: Sequence[RankSigns], known: KnownOfJob, before: Sequence[Stall]
) -> Stall | None:
    if not signs:
        return None
    looked = all(sign.looks for sign in signs)
    groups = _groups(signs) if looked else ()
    first = _first(signs)
    gpus = any(known.gpus(node) for node in {sign.rank.node for sign in signs})
    said = any(OF_DEADLOCK in one.explained and _is_so_still(one, signs) for one in before)
    locked = said or (len(signs) > 1 and all(map(only_polls, signs)) and not gpus)
    if not _held("all", signs, before):
        patience, paces = (
            (QUIET, PACES_APART)
            if locked
            else _patience_of(groups, signs, known, first)
            if looked
            else (_patience_by_load(signs, known, first), PACES)
        )
        silent = min(sign.silent for sign in signs)
        if silent <= patience or not all(_is_late(sign, paces) for sign in signs):
            return None
    if locked:
        return _deadlock(signs, first)
    odd = odd_groups(groups)
    return Stall(
        kind="all",
        ranks=rank_numbers(signs),
        since=min(sign.since for sign in signs),
        text=_in_words(signs, groups, known, first),
        first=first,
        odd=tuple(sorted(rank for one in odd for rank in one.ranks)),
        heard=max(sign.since for sign in signs),
    )


def _deadlock(signs: Sequence[RankSigns], first: Sequence[int]) -> Stall:
    """The stall if every rank only polls for messages: who is to
    blame, what they do cannot tell.
    """
    chosen = [sign.rank for sign in signs if sign.rank.rank in first]
    began = f"; {name_ranks(chosen)} fell silent first" if first else ""
    silent = lasting_words(min(sign.silent for sign in signs))
    return Stall(
        kind="all",
        ranks=rank_numbers(signs),
        since=min(sign.since for sign in signs),
        text=describe_deadlock(
            f"all {len(signs)} ranks",
            [f"they poll for messages, none computes, silent for {silent}{began}"],
        ),
        heard=max(sign.since for sign in signs),
        explained=(OF_DEADLOCK,),
    )


def _patience_of(
    groups: Sequence[StackGroup],
    signs: Sequence[RankSigns],
    known: KnownOfJob,
    first: Sequence[int],
) -> tuple[float, float]:
    """How long ranks that do this may be silent: (seconds, number of usual pauses)."""
    if not any(sign.rank.lines for sign in signs):
        return (BUSY if _compute(groups, signs, known) else SPEECHLESS), PACES
    if _compute(groups, signs, known):
        poll = not all(map(_works, signs))
        return (UNSURE if first and poll else BUSY), PACES
    spoke = any(sign.pace is not None for sign in signs)
    return (QUIET if spoke or len(groups) > 1 else UNSURE), PACES_APART


def _compute(groups: Sequence[StackGroup], signs: Sequence[RankSigns], known: KnownOfJob) -> bool:
    """Whether all ranks are at the same place and compute, or wait for GPUs that compute."""
    if len(groups) > 1:
        return False
    nodes = {sign.rank.node for sign in signs}
    return _usual(signs[0]).computes or any(known.gpus(node) for node in nodes)


def _works(sign: RankSigns) -> bool:
    """Whether it computes by itself; a rank that polls for others
    spends its time in system calls.
    """
    system = _usual(sign).system
    return system is not None and system < _ASKS


def _patience_by_load(signs: Sequence[RankSigns], known: KnownOfJob, first: Sequence[int]) -> float:
    resting = _resting(signs, known)
    if not any(sign.pace is not None for sign in signs):
        return SPEECHLESS if resting else float("inf")
    return {True: QUIET, None: UNSURE, False: UNSURE if first else BUSY}[resting]


def _resting(signs: Sequence[RankSigns], known: KnownOfJob) -> bool | None:
    """True if all nodes are known to be idle, False if one is busy."""
    idle = {known.idle(node) for node in {sign.rank.node for sign in signs}}
    if False in idle:
        return False
    return None if None in idle else True


def _first(signs: Sequence[RankSigns]) -> tuple[int, ...]:
    """The ranks of the minority that fell silent clearly before the rest; () if there is none."""
    ordered = sorted(signs, key=lambda sign: sign.since)
    usual = median(sign.pace or 0.0 for sign in signs)
    for count in range(1, (len(ordered) + 1) // 2):
        if _clearly_before(ordered[:count], ordered[count:], usual):
            return tuple(sorted(rank_numbers(ordered[:count])))
    return ()


def _clearly_before(some: Sequence[RankSigns], rest: Sequence[RankSigns], usual: float) -> bool:
    """Whether `some` fell silent a usual pause before the rest; half of one if
    they did so together and wrote more.
    """
    gap = rest[0].since - some[-1].since
    if gap > max(usual, _APART):
        return True
    together = rest[-1].since - rest[0].since <= gap / 2
    fewer = max(one.rank.lines for one in some) < min(one.rank.lines for one in rest)
    return gap > max(usual / 2, _APART) and together and fewer


# ---- in words --------------------------------------------------------------------------------


def _in_words(
    signs: Sequence[RankSigns],
    groups: Sequence[StackGroup],
    known: KnownOfJob,
    first: Sequence[int],
) -> str:
    silent = f"silent for {lasting_words(min(sign.silent for sign in signs))}"
    who = f"all {len(signs)} ranks" if len(signs) > 1 else name_ranks([signs[0].rank])
    if len(groups) > 1:
        return f"{who} {silent}: {', '.join(_parts(groups, signs))}"
    chosen = [sign.rank for sign in signs if sign.rank.rank in first]
    began = f"; {name_ranks(chosen)} fell silent first" if first else ""
    if not groups:
        load = {True: ", CPUs and GPUs are idle", False: ", the nodes are busy", None: ""}
        return f"{who} {silent}{load[_resting(signs, known)]}{began}"
    return f"{who} {_place(groups[0], len(signs))}{_no_cpu(signs)}, {silent}{began}"


def _doing(signs: Sequence[RankSigns]) -> list[str]:
    """What these ranks do, as one text in a list; [] if that is
    not known or not the same for all.
    """
    if not all(sign.looks for sign in signs):
        return []
    groups = _groups(signs)
    return [_place(groups[0], len(signs))] if len(groups) == 1 else []


def _parts(groups: Sequence[StackGroup], signs: Sequence[RankSigns]) -> list[str]:
    """`15 in futex_wait`, `rank 11 on n2 in hrtimer_nanosleep`: the odd ones by name, last."""
    odd = odd_groups(groups)
    by_rank = {sign.rank.rank: sign.rank for sign in signs}
    usual = [one for one in groups if one not in odd]
    by_name = odd or usual
    parts = [f"{len(one.looks)} {_place(one, len(one.looks))}" for one in usual if odd]
    for one in by_name[:_MOST_NAMED]:
        ranks = [by_rank[rank] for rank in one.ranks]
        parts.append(f"{name_ranks(ranks)} {_place(one, len(ranks))}")
    more = len(by_name) - _MOST_NAMED
    return [*parts, f"{more} more places"] if more > 0 else parts


def _place(one: StackGroup, ranks: int) -> str:
    """`in ep_poll`, `computes`."""
    if not one.where:
        return "computes" if ranks == 1 else "compute"
    return f"in {one.where}"


def _no_cpu(signs: Sequence[RankSigns]) -> str:
    used = max(_usual(sign).cores for sign in signs)
    return ", no CPU used" if used < _NO_CPU else ""


def _groups(signs: Sequence[RankSigns]) -> tuple[StackGroup, ...]:
    """Ranks grouped (as in `inspect`) by what they did most of the time since they fell silent."""
    return group_stacks([_look(sign.rank, _usual(sign)) for sign in signs])


def _look(rank: RankState, usual: Activity) -> Look:
    return Look(
        rank=rank.rank, node=rank.node, state=usual.state, wchan=usual.wchan, cpu=usual.cores
    )


def _usual(sign: RankSigns) -> Activity:
    """The newest look at a silent rank that shows what most of its looks show."""
    quiet = [look for look in sign.looks[-_LOOKS:] if look.at > sign.since]
    looks = quiet or sign.looks[-1:]
    counts = Counter(map(_kind, looks))
    most = max(counts.values())
    return next(look for look in reversed(looks) if counts[_kind(look)] == most)


def _kind(look: Activity) -> tuple[str, ...]:
    return ("computes",) if look.computes else (look.state, look.wchan)
