"""Ranks that do nothing at all: stopped by a signal, or waiting for a device. No I/O."""

from collections.abc import Callable, Sequence

from rankdeck.model.rank import Activity
from rankdeck.model.stall import Stall
from rankdeck.rules.rank_signs import STOPPED, RankSigns, name_ranks, rank_numbers

LOOKS = 2
"""Looks in a row that are needed."""
Test = Callable[[Activity], bool]
_NOTHING_DONE = 0.02
"""A process in state D that used fewer cores than this did no work."""


def stopped_ranks(signs: Sequence[RankSigns]) -> Stall | None:
    """Ranks in state T for two looks."""
    found = [sign for sign in signs if _lasts(sign.looks, _is_stopped)]
    if not found:
        return None
    ranks = [sign.rank for sign in found]
    who = f"{name_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} stopped"
    pids = [str(rank.pid) for rank in ranks if rank.pid]
    more = f"; `kill -CONT {pids[0]}` lets it go on" if len(pids) == 1 else ""
    many = "; `kill -CONT` lets them go on" if len(ranks) > 1 else ""
    return Stall(
        kind="stopped",
        ranks=rank_numbers(found),
        since=min(_since(sign.looks, _is_stopped) for sign in found),
        text=f"{who} (SIGSTOP or a debugger){more or many}",
    )


def in_device(signs: Sequence[RankSigns]) -> Stall | None:
    """Ranks in state D at one place for two looks, without output or CPU time between."""
    found = [sign for sign in signs if _hangs_in_device(sign)]
    if not found:
        return None
    ranks = [sign.rank for sign in found]
    places = {sign.looks[-1].wchan for sign in found} - {""}
    where = f", {places.pop()}" if len(places) == 1 else ""
    verb = "waits" if len(ranks) == 1 else "wait"
    return Stall(
        kind="device",
        ranks=rank_numbers(found),
        since=min(_since(sign.looks, _is_in_device) for sign in found),
        text=f"{name_ranks(ranks)} {verb} for a device or a file system (state D{where})",
    )


def _is_stopped(look: Activity) -> bool:
    return look.state in STOPPED


def _is_in_device(look: Activity) -> bool:
    return look.state == "D" and look.cores < _NOTHING_DONE


def _hangs_in_device(sign: RankSigns) -> bool:
    if not _lasts(sign.looks, _is_in_device):
        return False
    # A rank that reads much is often seen in state D; if it makes
    # progress, its place changes or it writes.
    last = sign.looks[-LOOKS:]
    return len({look.wchan for look in last}) == 1 and sign.since <= last[0].at


def _lasts(looks: Sequence[Activity], is_so: Test) -> bool:
    return len(looks) >= LOOKS and all(map(is_so, looks[-LOOKS:]))


def _since(looks: Sequence[Activity], is_so: Test) -> float:
    """Epoch seconds of the first look of the unbroken row that lasts until now."""
    at = looks[-1].at
    for look in reversed(looks):
        if not is_so(look):
            break
        at = look.at
    return at
