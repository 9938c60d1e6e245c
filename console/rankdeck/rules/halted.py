"""Ranks that cannot go on by themselves: stopped, or waiting for a device. No I/O."""

from collections.abc import Callable, Sequence

from rankdeck.model.activity import Activity
from rankdeck.model.insight import Stall
from rankdeck.rules.voices import STOPPED, Voice, named, numbers

LOOKS = 2
"""Looks in a row that make it certain."""
Test = Callable[[Activity], bool]
_NO_CPU = 0.02
"""Cores below which a process in state D has got nothing done."""


def stopped(voices: Sequence[Voice]) -> Stall | None:
    """Ranks in state T for two looks."""
    found = [voice for voice in voices if _lasts(voice.looks, _is_stopped)]
    if not found:
        return None
    ranks = [voice.rank for voice in found]
    who = f"{named(ranks)} {'is' if len(ranks) == 1 else 'are'} stopped"
    pids = [str(rank.pid) for rank in ranks if rank.pid]
    more = f"; `kill -CONT {pids[0]}` lets it go on" if len(pids) == 1 else ""
    many = "; `kill -CONT` lets them go on" if len(ranks) > 1 else ""
    return Stall(
        kind="stopped",
        ranks=numbers(found),
        since=min(_since(voice.looks, _is_stopped) for voice in found),
        text=f"{who} (SIGSTOP or a debugger){more or many}",
    )


def in_device(voices: Sequence[Voice]) -> Stall | None:
    """Ranks in state D at one place for two looks, without a word or CPU time between."""
    found = [voice for voice in voices if _hangs_in_device(voice)]
    if not found:
        return None
    ranks = [voice.rank for voice in found]
    places = {voice.looks[-1].wchan for voice in found} - {""}
    where = f", {places.pop()}" if len(places) == 1 else ""
    verb = "waits" if len(ranks) == 1 else "wait"
    return Stall(
        kind="device",
        ranks=numbers(found),
        since=min(_since(voice.looks, _is_in_device) for voice in found),
        text=f"{named(ranks)} {verb} for a device or a file system (state D{where})",
    )


def _is_stopped(look: Activity) -> bool:
    return look.state in STOPPED


def _is_in_device(look: Activity) -> bool:
    return look.state == "D" and look.cores < _NO_CPU


def _hangs_in_device(voice: Voice) -> bool:
    if not _lasts(voice.looks, _is_in_device):
        return False
    # Who reads much is often seen in D: one that makes progress moves on or speaks.
    last = voice.looks[-LOOKS:]
    return len({look.wchan for look in last}) == 1 and voice.since <= last[0].at


def _lasts(looks: Sequence[Activity], is_so: Test) -> bool:
    return len(looks) >= LOOKS and all(map(is_so, looks[-LOOKS:]))


def _since(looks: Sequence[Activity], is_so: Test) -> float:
    """The first look of those in a row that end now."""
    at = looks[-1].at
    for look in reversed(looks):
        if not is_so(look):
            break
        at = look.at
    return at
