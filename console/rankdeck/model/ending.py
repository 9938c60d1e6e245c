"""How a process ended and who made a job fail, in words: the same on every screen and in every command."""

import signal
from typing import TYPE_CHECKING

from rankdeck.model.nodeset import fold_ranks

if TYPE_CHECKING:
    from rankdeck.model.job import FirstFailure, Suspect

SHELL_SIGNAL = 128
"""A shell adds this to the number of the signal that ended a program."""
_SIGNALS = frozenset(signal.Signals)


def exit_status(code: int | None, number: int | None) -> int:
    """The status as a shell gives it: 128 + signal, else the code, else 1 if it is not known."""
    if number is not None:
        return SHELL_SIGNAL + number
    return 1 if code is None else code


def signal_of(code: int | None, number: int | None) -> int | None:
    """The signal that ended a process, also where a container runtime turned it into an exit code."""
    if number is not None or code is None:
        return number
    found = code - SHELL_SIGNAL
    return found if found in _SIGNALS else None


def signal_name(number: int) -> str:
    """`SIGKILL`, or `signal 64` where it has no name."""
    known = number in _SIGNALS
    return signal.Signals(number).name if known else f"signal {number}"


def how_it_ended(exit_code: int | None, number: int | None) -> str:
    """`exit 3`, `signal 9 (SIGKILL)`."""
    if number:
        name = signal_name(number)
        return f"signal {number} ({name})" if name.startswith("SIG") else name
    return "ended, nobody knows how" if exit_code is None else f"exit {exit_code}"


def who(one: "FirstFailure | Suspect") -> str:
    """`rank 5 on n2`, `mpirun on n1`, `node n2`, `the job`."""
    if one.what == "node":
        return f"node {one.node}"
    if one.what == "job":
        return "the job"
    if one.what == "scheduler":
        return one.name
    name = one.name or "the launcher" if one.rank is None else f"rank {one.rank}"
    return f"{name} on {one.node}"


def how(first: "FirstFailure") -> str:
    """`exit 3`, `signal 9 (SIGKILL)`, `stopped answering`."""
    if first.what == "node":
        return "stopped answering"
    if first.what == "job":
        return "ended well and did nothing"
    if first.what == "scheduler":
        return "".join(first.evidence[:1])
    return how_it_ended(first.exit_code, first.signal)


def failure(first: "FirstFailure") -> str:
    """Who failed first and how, in one line."""
    so_far = "" if first.settled else "so far: "
    tied = f"; too close to tell from {fold_ranks(first.tied)}" if first.tied else ""
    after = (
        f"; {len(first.victims)} pulled down by it: {fold_ranks(first.victims)}"
        if first.victims
        else ""
    )
    return f"{so_far}{who(first)}, {how(first)}{tied}{after}"
